from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop, check_transformed, lint

HEAD = """\
import torch
from packaging.version import Version
from mylib import OLD, FSDP

def save(model, optim):
    return FSDP.full_optim_state_dict(model, optim)

"""
CODE = "FSDP690"
NEW_TORCH = 'Version(torch.__version__) >= Version("2.0")'
OLD_TORCH = 'Version(torch.__version__) < Version("2.0")'
OLDER_TORCH = 'Version(torch.__version__) < Version("1.13")'


def program(body: str) -> str:
    """A module that the screen lets pass, for the name of an old method in it."""
    return f"{HEAD}{body}"


def transformed(before: str, after: str, torch: str = ">=2.1") -> None:
    check_transformed(program(before), program(after), CODE, unsafe=True, torch=torch)


def test_a_check_that_is_true_gives_way_to_its_body() -> None:
    transformed(
        f"if {NEW_TORCH}:\n    a = 1\n    if a:\n        b = 2\nelse:\n    a = 2\nc = 3\n",
        "a = 1\nif a:\n    b = 2\nc = 3\n",
    )


def test_a_check_that_is_false_gives_way_to_its_else() -> None:
    transformed(
        f"def f():\n    if {OLD_TORCH}:\n        return 1\n    else:\n        return 2\n",
        "def f():\n    return 2\n",
    )


@pytest.mark.parametrize(
    ("check", "fate"),
    [
        (OLD_TORCH, f"`{OLD_TORCH}` is always false; its body never runs"),
        (NEW_TORCH, f"`{NEW_TORCH}` is always true; its else never runs"),
        (f"({OLD_TORCH}\n        or {OLDER_TORCH})", "this condition is always false; its body never runs"),
    ],
)
def test_the_message_says_what_never_runs(check: str, fate: str) -> None:
    (found,) = lint(program(f"if {check}:\n    a = 1\nelse:\n    a = 2\n"), CODE)
    assert found.message == f"on torch>=2.1 {fate}"


def test_an_elif_chain_behind_a_true_check_goes_whole() -> None:
    transformed(
        f"if {NEW_TORCH}:\n    a = 1\nelif OLD:\n    a = 2\nelse:\n    a = 3\n",
        "a = 1\n",
    )


def test_comments_of_the_living_arm_stay() -> None:
    transformed(
        f"if {NEW_TORCH}:\n"
        "    # above\n    a = 1  # behind\n\n    # between\n    b = 2  # last\nelse:\n    a = 2\n# after\n",
        "# above\na = 1  # behind\n\n# between\nb = 2  # last\n# after\n",
    )


def test_strings_over_several_lines_keep_theirs() -> None:
    transformed(
        f'if {OLD_TORCH}:\n    a = 1\nelse:\n    a = """\n    x\n"""\n    b = (\n        1\n    )\n',
        'a = """\n    x\n"""\nb = (\n    1\n)\n',
    )


def test_newlines_and_tabs_stay_as_they_are() -> None:
    transformed(
        f"if True:\r\n\tif {OLD_TORCH}:\r\n\t\ta = 1\r\n\telse:\r\n\t\ta = 2\r\n\t\tb = 3\r\n",
        "if True:\r\n\ta = 2\r\n\tb = 3\r\n",
    )


def test_a_text_without_a_last_newline() -> None:
    transformed(f"if {NEW_TORCH}:\n    a = 1\nelse:\n    a = 2", "a = 1")


def test_nested_checks_go_one_after_the_other() -> None:
    transformed(
        f"if {NEW_TORCH}:\n    if {OLDER_TORCH}:\n        a = 1\n    else:\n        a = 2\nelse:\n    a = 3\n",
        "a = 2\n",
    )


def test_a_flag_is_followed() -> None:
    flag = 'NEW = Version(torch.__version__) >= Version("2.0")\n'
    transformed(f"{flag}if NEW:\n    a = 1\nelse:\n    a = 2\n", f"{flag}a = 1\n")


@pytest.mark.parametrize(
    ("torch", "found"),
    [
        (">=2.1", False),
        (">=2.2", False),
        (">=2.4", True),
        (">=2.3,<2.8", False),
        (">=2.4,<2.8", True),
        (">=1.12", False),
    ],
)
def test_the_range_decides(torch: str, found: bool) -> None:
    text = program('if Version(torch.__version__) >= Version("2.4"):\n    a = 1\nelse:\n    a = 2\n')
    assert bool(lint(text, CODE, torch)) is found


def test_the_message_says_what_the_check_comes_to() -> None:
    text = program(f"if {NEW_TORCH}:\n    a = 1\nelse:\n    a = 2\n")
    (finding,) = lint(text, CODE, ">=2.2")
    assert finding.message == (
        'on torch>=2.2 `Version(torch.__version__) >= Version("2.0")` is always true; its else never runs'
    )
    assert finding.severity.value == "hint"
    assert finding.reason == "the code for older torch releases is removed"


def test_a_patch_release_that_is_not_known_may_still_run_an_arm() -> None:
    text = program('if Version(torch.__version__) >= Version("2.4.1"):\n    a = 1\nelse:\n    a = 2\n')
    check_noop(text, CODE, torch=">=2.4")
    assert lint(text, CODE, torch=">=2.5")


@pytest.mark.parametrize("bound", ["2.14", "2.20", "3.0"])
def test_an_arm_that_waits_for_a_newer_torch_is_not_dead(bound: str) -> None:
    text = program(f'if Version(torch.__version__) >= Version("{bound}"):\n    a = 1\nelse:\n    a = 2\n')
    check_noop(text, CODE, torch=">=2.1,<2.8")


@pytest.mark.parametrize(
    "test",
    ["False", "OLD", "not OLD", "torch.cuda.is_available()", 'OLD or Version(torch.__version__) < Version("2.0")'],
)
def test_what_is_not_decided_by_the_version_is_left_alone(test: str) -> None:
    check_noop(program(f"if {test}:\n    a = 1\nelse:\n    a = 2\n"), CODE)


def test_a_true_check_without_an_else_has_no_dead_arm() -> None:
    check_noop(program(f"if {NEW_TORCH}:\n    a = 1\n"), CODE)


def test_inside_a_dead_arm_nothing_more_is_said() -> None:
    text = program(
        f"if {OLD_TORCH}:\n    if {OLDER_TORCH}:\n        a = 1\n    else:\n        a = 2\nelse:\n    a = 3\n"
    )
    assert [finding.line for finding in lint(text, CODE)] == [8]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"if {OLD_TORCH}:\n    a = 1\n", "nothing replaces the statement"),
        (f"if OLD and {OLD_TORCH}:\n    a = 1\nelse:\n    a = 2\n", "more than the torch version"),
        (f"if {OLD_TORCH}:\n    a = 1\nelif OLD:\n    a = 2\n", "elif chain"),
        (f"if OLD:\n    a = 1\nelif {OLD_TORCH}:\n    a = 2\nelse:\n    a = 3\n", "elif chain"),
        (f"if {OLD_TORCH}: a = 1\nelse: a = 2\n", "share lines"),
        (f"if {OLD_TORCH}:  # for the cluster\n    a = 1\nelse:\n    a = 2\n", "comments"),
        (f"if {OLD_TORCH}:\n    a = 1\n# then\nelse:\n    a = 2\n", "comments"),
        (f"if {OLD_TORCH}:\n    a = 1\nelse:\n    # far above\n\n    a = 2\n", "comments"),
        (f"if not {OLD_TORCH}:\n    a = 1\nelse:\n    a = 2  # old\n", "comments"),
        (
            f"def f():\n    if {OLD_TORCH}:\n        yield 1\n    else:\n        return\n",
            "declares names of the function",
        ),
        (
            f"def f():\n    if {OLD_TORCH}:\n        global a\n    else:\n        a = 1\n",
            "declares names of the function",
        ),
    ],
)
def test_what_is_left_to_people(body: str, reason: str) -> None:
    check_manual(program(body), CODE, reason)
