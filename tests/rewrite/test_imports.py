from __future__ import annotations

from collections.abc import Callable

import pytest

from fsdp_migrate.edits import EditImport, ImportBehind, MoveImport
from fsdp_migrate.source import Source, Span
from fsdp_migrate.splicing import RewriteError
from fsdp_migrate.workspace.reading import read_source

from .plans import add, apply, remove


def applied(text: str, *plan: Callable[[Source], EditImport]) -> str:
    source = Source(text.encode())
    return apply(source, [make(source) for make in plan]).decode()


def adding(text: str, *names: str, statement: str | None = None, unit: str = "    ") -> str:
    return applied(text, lambda s: add(s, (statement or text).strip(), *names, unit=unit))


def removing(text: str, *names: str, statement: str | None = None) -> str:
    return applied(text, lambda s: remove(s, (statement or text).strip(), *names))


@pytest.mark.parametrize(
    ("names", "new", "expected"),
    [
        ("FSDP", ["StateDictType"], "FSDP, StateDictType"),
        ("Zoo", ["StateDictType"], "StateDictType, Zoo"),
        ("FullyShardedDataParallel as FSDP", ["FullConfig"], "FullConfig, FullyShardedDataParallel as FSDP"),
        ("A, C", ["D", "B"], "A, B, C, D"),
        ("a, B, c", ["C2", "b2"], "a, B, b2, c, C2"),
        ("B, a", ["C", "A"], "A, B, C, a"),
        ("C, A, B", ["b", "D", "A2"], "C, A, B, A2, b, D"),
        ("A, C", ["B as C2"], "A, B as C2, C"),
        ("A, B as C", ["B as C"], "A, B as C"),
        ("A, B  as  C", ["B as C", "A"], "A, B  as  C"),
        ("A, B", ["B as B2"], "A, B, B as B2"),
        ("A,C", ["B", "D"], "A,B,C,D"),
    ],
)
def test_names_join_in_the_order_that_the_statement_keeps(names: str, new: list[str], expected: str) -> None:
    assert adding(f"from m import {names}\n", *new) == f"from m import {expected}\n"


LONG = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP"


def test_a_line_of_88_columns_stays_one() -> None:
    assert len(f"{LONG}, StateDictTypeABCDEF") == 88
    assert adding(f"{LONG}\n", "StateDictTypeABCDEF") == f"{LONG}, StateDictTypeABCDEF\n"
    assert adding(f"{LONG}\n", "StateDictTypeABCDEFG").count("\n") == 4


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_wider_line_becomes_a_list_in_parentheses(newline: str) -> None:
    text = f"import os\nif x:\n  {LONG}  # noqa\n".replace("\n", newline)
    assert adding(text, "StateDictType", "FullOptimStateDictConfig", statement=LONG, unit="  ") == (
        "import os\nif x:\n  from torch.distributed.fsdp import (  # noqa\n    FullOptimStateDictConfig,\n"
        "    FullyShardedDataParallel as FSDP,\n    StateDictType,\n  )\n"
    ).replace("\n", newline)


def test_a_wide_line_in_parentheses_becomes_a_list() -> None:
    text = "from torch.distributed.fsdp import (FullyShardedDataParallel as FSDP)\n"
    assert adding(text, "FullStateDictConfig", "StateDictType") == (
        "from torch.distributed.fsdp import (\n    FullStateDictConfig,\n"
        "    FullyShardedDataParallel as FSDP,\n    StateDictType,\n)\n"
    )
    assert adding("from m import (A)\n", "B") == "from m import (A, B)\n"
    assert adding("from m import (A, C,)\n", "B", "D") == "from m import (A, B, C, D,)\n"


def test_the_width_counts_what_stands_before_the_statement() -> None:
    text = f"import os; {LONG}\n"
    assert adding(text, "StateDictType", statement=LONG) == (
        "import os; from torch.distributed.fsdp import (\n"
        "    FullyShardedDataParallel as FSDP,\n    StateDictType,\n)\n"
    )


def test_an_import_beside_others_on_its_line_is_edited_in_place() -> None:
    assert adding("import a; from b import c; d()\n", "e", statement="from b import c") == (
        "import a; from b import c, e; d()\n"
    )


@pytest.mark.parametrize(
    ("names", "new", "expected"),
    [
        ("\n    A,\n    C,\n", ["B"], "\n    A,\n    B,\n    C,\n"),
        ("\n    A,\n    C\n", ["D"], "\n    A,\n    C,\n    D\n"),
        ("\n    FSDP\n", ["StateDictType"], "\n    FSDP,\n    StateDictType\n"),
        ("\n\tA,  # noqa\n\tC,  # c\n", ["B", "D"], "\n\tA,  # noqa\n\tB,\n\tC,  # c\n\tD,\n"),
        ("\n    A,\n    # about C\n    C,\n", ["B"], "\n    A,\n    B,\n    # about C\n    C,\n"),
        ("  # noqa\n    # about B\n    B,\n", ["A"], "  # noqa\n    A,\n    # about B\n    B,\n"),
        ("A,\n               C", ["B", "D"], "A,\n               B,\n               C,\n               D"),
        ("B,\n     C", ["A"], "A,\n     B,\n     C"),
        ("\n    A, C,\n    D, F,\n", ["B"], "\n    A, B, C,\n    D, F,\n"),
        ("\n    A, C,\n    D, F,\n", ["C2"], "\n    A, C, C2,\n    D, F,\n"),
        ("\n    A, C,  # ac\n    D, F,\n", ["C2"], "\n    A, C,  # ac\n    C2, D, F,\n"),
        ("\n    A, C,\n    D, F,\n", ["G"], "\n    A, C,\n    D, F, G,\n"),
        ("\n    A, C\n", ["D"], "\n    A, C, D\n"),
        ("\n    A, C,\n    D, F  # df\n", ["G"], "\n    A, C,\n    D, F,  # df\n    G\n"),
        ("\r\n    A,\r\n    C,\n", ["B"], "\r\n    A,\r\n    B,\r\n    C,\n"),
    ],
)
def test_new_names_follow_the_layout_and_comments_stay_with_theirs(names: str, new: list[str], expected: str) -> None:
    assert adding(f"from m import ({names})\n", *new) == f"from m import ({expected})\n"


def test_backslashes_give_way_to_one_line_or_parentheses() -> None:
    assert adding("from m import A, \\\n    C\n", "B") == "from m import A, B, C\n"
    assert removing("from m import A, \\\n    C\n", "C") == "from m import A\n"
    assert adding(
        "from torch.distributed.fsdp import \\\n    FullyShardedDataParallel as FSDP\n", "StateDictType" * 3
    ) == (
        f"from torch.distributed.fsdp import (\n    FullyShardedDataParallel as FSDP,\n    {'StateDictType' * 3},\n)\n"
    )


def test_edits_of_one_statement_are_united() -> None:
    text = "from m import A, Old\n"
    assert (
        applied(
            text,
            lambda s: add(s, text.strip(), "C", "B"),
            lambda s: remove(s, text.strip(), "Old"),
            lambda s: add(s, text.strip(), "B"),
        )
        == "from m import A, B, C\n"
    )


def test_names_go_by_what_they_bind() -> None:
    assert removing("from m import A, B as C, C as D\n", "C") == "from m import A, C as D\n"
    assert removing("from m import A\n", "B") == "from m import A\n"


@pytest.mark.parametrize(
    ("names", "gone", "expected"),
    [
        ("A, B", ["B"], "A"),
        ("A, B", ["A"], "B"),
        ("\n    A,\n    B,\n    C,\n", ["B"], "\n    A,\n    C,\n"),
        ("\n    A,\n    B,\n    C\n", ["C"], "\n    A,\n    B\n"),
        ("\n    A,\n    B,\n    C\n", ["A", "C"], "\n    B\n"),
        ("\n    A,  # a\n    B,  # b\n    C,  # c\n", ["A"], "\n    # a\n    B,  # b\n    C,  # c\n"),
        ("\n    A,  # a\n    B,  # b\n    C,  # c\n", ["B"], "\n    A,  # a\n    # b\n    C,  # c\n"),
        ("\n    A,  # a\n    B,  # b\n    C,  # c\n", ["C"], "\n    A,  # a\n    B,  # b\n    # c\n"),
        ("\n    A, B,\n    C, D,\n", ["B", "C"], "\n    A,\n    D,\n"),
        ("A,\n     B", ["A"], "B"),
    ],
)
def test_names_go_and_comments_stay(names: str, gone: list[str], expected: str) -> None:
    assert removing(f"from m import ({names})\n", *gone) == f"from m import ({expected})\n"


@pytest.mark.parametrize(
    ("names", "new", "expected"),
    [
        ("Old", "New", "New"),
        ("(\n    Old,\n)", "New", "(\n    New,\n)"),
        ("(\n    Old  # old\n)", "Older", "(\n    # old\n    Older\n)"),
        ("New as Old", "Old", "Old"),
    ],
)
def test_the_last_name_may_be_replaced(names: str, new: str, expected: str) -> None:
    text = f"from m import {names}"
    edit = EditImport(Span(0, len(text)), add=(new,), remove=("Old",))
    assert applied(text, lambda s: edit) == f"from m import {expected}"


@pytest.mark.parametrize(
    ("text", "statement", "gone", "expected"),
    [
        ("import a.b as x\ny = 1\n", "import a.b as x", "x", "y = 1\n"),
        ("import a, b as x, c\n", "import a, b as x, c", "x", "import a, c\n"),
        ("if c:\n    import a; import b\n", "import a", "a", "if c:\n    import b\n"),
        ("if c:\n    import a\n", "import a", "a", "if c:\n    pass\n"),
        ("import a, \\\n  b\n", "import a, \\\n  b", "a", "import b\n"),
    ],
)
def test_names_go_from_plain_imports_too(text: str, statement: str, gone: str, expected: str) -> None:
    assert removing(text, gone, statement=statement) == expected


def test_star_imports_cannot_be_edited() -> None:
    with pytest.raises(RewriteError, match="import"):
        adding("from m import *\n", "A")


def test_names_that_move_to_other_modules_stand_in_front_of_what_stays() -> None:
    text = "if x:\n    from old import a, b as c, d\n"
    span = Span(text.index("from"), len(text) - 1)
    plan = [MoveImport(span, name, module, "    ") for name, module in (("c", "new"), ("a", "other"))]
    new = "if x:\n    from other import a\n    from new import b as c\n    from old import d\n"
    assert apply(read_source(text.encode(), "m.py"), plan).decode() == new


def test_statements_that_are_written_alike_are_each_edited_by_their_own_plan() -> None:
    text = "from m import (\n    A,  # why\n    C,\n)\n"
    for _ in range(2):
        assert adding(text, "B") == text.replace("    C", "    B,\n    C")
        assert removing(text, "C") == text.replace("    C,\n", "")
        assert adding(text, "D") == text.replace("    C,\n", "    C,\n    D,\n")


@pytest.mark.parametrize(
    ("text", "others", "expected"),
    [
        ("from m import A\n\n\nx\n", (), "from a import B, c\nfrom m import A\n\n\nx\n"),
        ("from m import A\n\n\nx\n", ("A",), "from a import B, c\n\n\nx\n"),
        ("if x:\n    from m import A\n", (), "if x:\n    from a import B, c\n    from m import A\n"),
        ("if x:\r\n    from m import A\r\n", ("A",), "if x:\r\n    from a import B, c\r\n"),
    ],
)
def test_an_import_goes_in_front_of_another_or_in_its_place(text: str, others: tuple[str, ...], expected: str) -> None:
    source = Source(text.encode())
    start = text.index("from m")
    place, indent = Span(start, start + len("from m import A")), " " * 4 * text.startswith("if")
    ahead = [ImportBehind(place, "a", (name,), indent, ahead=True) for name in ("c", "B", "c")]
    edits = [*ahead, *([EditImport(place, remove=others)] if others else [])]
    assert apply(source, edits).decode() == expected


def test_comments_go_with_the_names_that_they_follow_and_with_the_whole_statement() -> None:
    text = "from m import (\n    A,  # a\n    # of B\n    B,  # b\n    C,\n)\nx\n"
    source = Source(text.encode())
    place = Span(0, text.index(")") + 1)
    after = apply(source, [EditImport(place, remove=("A", "C"), comments=("# a",))]).decode()
    assert after == "from m import (\n    # of B\n    B,  # b\n)\nx\n"
    source = Source(text.replace("    # of B\n", "").encode())
    place = Span(0, text.index(")") + 1 - len("    # of B\n"))
    edit = EditImport(place, remove=("A", "B", "C"), comments=("# a", "# b"))
    assert apply(source, [edit]).decode() == "x\n"
