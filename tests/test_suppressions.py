from __future__ import annotations

import pytest

from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

SETTINGS = Settings(torch=TorchRange.parse(">=2.1"), ignore=("FSDP002",))
IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
OLD = "FSDP.full_optim_state_dict(model, optim)"


def silenced(text: str, settings: Settings = SETTINGS) -> bool:
    report = lint_bytes(text.encode(), "x.py", settings)
    assert report.error is None
    codes = [finding.code for finding in report.findings]
    assert codes + ["FSDP101"] * report.suppressed == ["FSDP101"]
    return report.suppressed == 1


STATEMENTS = {
    "comprehension": """\
states = [
    FSDP.full_optim_state_dict(model, optim)
    for model, optim in pairs
    if model
]
""",
    "nested comprehensions": """\
states = {
    name: [
        FSDP.full_optim_state_dict(model, optim)
        for model in models
    ]
    for name, models in groups.items()
}
""",
    "generator in a call": """\
merge(
    FSDP.full_optim_state_dict(model, optim)
    for model in models
)
""",
    "lambda": """\
state = lambda model: (
    FSDP.full_optim_state_dict(model, optim)
)
""",
    "return": """\
def save(model, optim):
    return (
        FSDP.full_optim_state_dict(model, optim)
    )
""",
    "condition": """\
if (
    FSDP.full_optim_state_dict(model, optim)
):
    pass
""",
    "decorator": """\
@saved(
    FSDP.full_optim_state_dict(model, optim)
)
def f(
    x
): pass
""",
    "with": """\
with (
    saved(FSDP.full_optim_state_dict(model, optim)),
    other
):
    pass
""",
    "default argument": """\
def f(
    state=FSDP.full_optim_state_dict(model, optim),
):
    pass
""",
    "assert with a message": """\
assert x, (
    FSDP.full_optim_state_dict(model, optim)
)
""",
}


def _lines() -> list[object]:
    # A header ends where its block begins: what stands in the block speaks for itself.
    inside = {"return": [1, 2, 3], "condition": [0, 1, 2], "decorator": range(5), "with": range(4)}
    inside["default argument"] = range(3)
    return [
        pytest.param(text, line, id=f"{name}-{line}")
        for name, text in STATEMENTS.items()
        for line in inside.get(name, range(text.count("\n")))
    ]


@pytest.mark.parametrize(("statement", "line"), _lines())
def test_a_comment_on_any_line_of_a_statement_silences(statement: str, line: int) -> None:
    lines = statement.splitlines()
    assert not silenced(IMPORT + statement)
    lines[line] += "  # noqa: FSDP101"
    assert silenced(IMPORT + "\n".join(lines) + "\n")


@pytest.mark.parametrize("handler", ["except state({}):", "except (A, state({})):"])
def test_a_comment_at_an_except_silences_what_stands_in_it(handler: str) -> None:
    text = f"{IMPORT}try:\n    pass\n{handler.format(OLD)}{{}}\n    pass\n"
    assert not silenced(text.format(""))
    assert silenced(text.format("  # fsdp-migrate: ignore[FSDP101]"))


@pytest.mark.parametrize(
    ("comment", "silent"),
    [
        ("# fsdp-migrate: ignore-file", True),
        ("# fsdp-migrate: ignore-file[FSDP101]", True),
        ("# fsdp-migrate:ignore-file[FSDP3, full-optim-state-dict] why", True),
        ("# fsdp-migrate: ignore-file[FSDP3]", False),
        ("# fsdp-migrate: ignore-file[]", False),
        ("# fsdp-migrate: ignore-files", False),
        ("# fsdp-migrate: ignore[FSDP101]", False),
        ("# noqa: FSDP101", False),
    ],
)
@pytest.mark.parametrize("last", [True, False])
def test_a_comment_for_the_file_silences_everywhere_in_it(comment: str, silent: bool, last: bool) -> None:
    text = f"{IMPORT}x = {OLD}\n\ndef f():\n    pass\n"
    assert silenced(text + comment if last else f"{comment}\n{text}") is silent


def test_several_suppressions_can_stand_in_one_comment() -> None:
    assert silenced(f"{IMPORT}x = {OLD}  # noqa: E501  # fsdp-migrate: ignore[FSDP101]\n")
    assert silenced(f"{IMPORT}x = {OLD}  # why not  # noqa:FSDP3,fsdp1 # more\n")


def test_a_comment_above_or_in_a_string_silences_nothing() -> None:
    assert not silenced(f"{IMPORT}# noqa: FSDP101\nx = {OLD}\n")
    assert not silenced(f"{IMPORT}x = f('# noqa: FSDP101', {OLD})\n")


@pytest.mark.parametrize(
    ("text", "silent"),
    [
        (f"{OLD}  # noqa\n", True),
        (f"{OLD}  # NoQA: fsdp101\n", True),
        (f"state = (  # noqa\n    {OLD}\n)\n", True),
        (f"x = 1  # noqa\n{OLD}\n", False),
        (f'{OLD}["# noqa"]\n', False),
        (f"{OLD}\n\n# Fsdp-Migrate:  Ignore-File[FSDP101]\n", True),
        (f"{OLD}\n\nx = 1  # fsdp-migrate: ignore\n", False),
        (f"{OLD}\n\ntext = '# fsdp-migrate: ignore-file'\n", False),
    ],
)
def test_a_comment_silences_from_its_own_lines_or_for_the_file(text: str, silent: bool) -> None:
    assert silenced(IMPORT + text) is silent


def test_a_statement_may_end_in_a_letter_of_several_bytes() -> None:
    text = (
        "# noqa: E501\nimport torch.distributed as dist\nfrom torch.distributed import reduce_op as \u00e9t\u00e9\n"
        "dist.all_reduce(x, op=\u00e9t\u00e9.SUM)\n"
    )
    report = lint_bytes(text.encode(), "a.py", Settings(TorchRange.parse(">=2.1")))
    assert (report.error, [finding.code for finding in report.findings]) == (None, ["FSDP812"])
