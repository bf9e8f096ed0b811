"""Assignments of options that two fixes write, one behind the other."""

from __future__ import annotations

import pytest

from fsdp_migrate.planning.repeats import without_repeats
from fsdp_migrate.source import Replacement, Span
from fsdp_migrate.splicing import splice

LINE = "options = StateDictOptions(full_state_dict=True)"


def after(between: str, first: str = LINE, second: str = LINE) -> str:
    """A function after two fixes that put options in front of their calls; `between` stands between these."""
    data = f"def f():\n    get(options=options)\n{between}    put(options=options)\n".encode()
    one, two = data.index(b"get"), data.rindex(b"put")
    changes = [Replacement(Span(two, two), f"{second}\n    "), Replacement(Span(one, one), f"{first}\n    ")]
    return splice(data, without_repeats(data, changes)).decode()


@pytest.mark.parametrize(
    "between", ["", "\n", "    # then\n    x = other(1, options=options)\n", "    x.options = 3\n"]
)
def test_the_second_goes(between: str) -> None:
    expected = f"def f():\n    {LINE}\n    get(options=options)\n{between}    put(options=options)\n"
    assert after(between) == expected


@pytest.mark.parametrize(
    "between",
    [
        "    options = None\n",
        "    options.strict = False\n",
        "    def g():\n        nonlocal options\n        options = 1\n",
        "    change(options)\n",
        "    return\ndef g():\n",
        "    if x:\n        del options\n",
    ],
)
def test_it_stays_where_its_name_may_be_something_else(between: str) -> None:
    assert after(between).count(LINE) == 2


def test_it_stays_where_a_block_is_left() -> None:
    data = b"if x:\n    get()\nelse:\n    put()\n"
    changes = [Replacement(Span(at, at), f"{LINE}\n    ") for at in (data.index(b"get"), data.index(b"put"))]
    assert without_repeats(data, changes) == changes


@pytest.mark.parametrize(
    "second", ["options = StateDictOptions()", "options_2 = StateDictOptions(full_state_dict=True)"]
)
def test_other_options_stay(second: str) -> None:
    assert second in after("", second=second)


def test_options_that_depend_on_something_stay() -> None:
    line = "options = StateDictOptions(strict=strict)"
    assert after("", line, line).count(line) == 2
