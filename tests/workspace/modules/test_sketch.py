"""What the bytes of a module tell of the names that it binds."""

from __future__ import annotations

import pytest

from fsdp_migrate.workspace.modules.sketch import Sketch


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("A = b.C", ["b.C"]),
        ("import x\n\tA=1\n  A: int =  2", ["1", "2"]),
        ("x = 1\n\f\n\fA = b", ["b"]),
        ("if x:\n    A = b\nelse:\n    A = c", ["b", "c"]),
        ("Ä_A = 1\nAA = 2\nx.A = 3\nA == 4\nA.b = 5\nx = A = 6", []),
        ("call(\n    A=1,\n)", ["1,"]),
    ],
)
def test_values_are_what_lines_assign_to_the_very_name(text: str, values: list[str], newline: str) -> None:
    assert Sketch(text.replace("\n", newline).encode()).assigned("A") == values


@pytest.mark.parametrize(
    ("text", "bases"),
    [
        ("class A(b.C): pass", ("b.C",)),
        ("if x:\n  class  A (\n    B,\n    C,\n  ):\n    pass", ("B", "C")),
        ("class A: pass\nclass AA(B): pass\nclass A_(B): pass\nA(B)\ndef A(B): pass", ()),
        ("class A(B): ...\nclass A(C): ...", ("B", "C")),
    ],
)
def test_bases_are_those_of_classes_of_the_very_name(text: str, bases: tuple[str, ...]) -> None:
    assert Sketch(text.encode()).bases("A") == bases


@pytest.mark.parametrize("text", ["def A(): pass", "async  def A (x): pass", "if x:\n\tdef A(\n    x): pass"])
def test_functions_are_seen_however_they_are_laid_out(text: str) -> None:
    sketch = Sketch(text.encode())
    assert sketch.is_function("A")
    assert not sketch.is_function("B")


def test_names_beyond_ascii_are_whole_words() -> None:
    sketch = Sketch("größe = a.b\nclass Maß(a.C): ...\n".encode())
    assert sketch.aliases("größe") == ("a.b",)
    assert sketch.bases("Maß") == ("a.C",)
    assert sketch.assigned("gr") == sketch.assigned("e") == []


def test_the_first_line_binds_names_like_any_other() -> None:
    assert Sketch(b"A = b").names == {"A"}
    assert Sketch(b"class A(b): ...").names == {"A"}
    assert Sketch(b"A, B = c").unpacked == {"A", "B"}
    assert Sketch(b"A = a\nB = b  # two\nC = c if x else y\nD = d\n").names == {"A", "B", "C", "D"}


@pytest.mark.parametrize(
    ("body", "asks"),
    [
        ("return torch.__version__ > '2'", True),
        ("return getVersion() and conversion()", True),
        ("return convert(conversion_mapping)", False),
        ("return hasattr(torch, 'x')", True),
    ],
)
def test_a_function_that_converts_does_not_ask_for_a_version(body: str, asks: bool) -> None:
    assert Sketch(f"def f(x):\n    {body}\n".encode()).asks_version("f") is asks


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("lib.FSDP.x = 1\nself.y = 2\ncls.z=3\na.b == c\na.d >= 1\n", {"x"}),
        ("def f():\n    FSDP.x=staticmethod(g)\n", {"x"}),
        ("setattr(lib.FSDP, 'x', g)\nsetattr(\n    FSDP,\n    \"y\", g)\n", {"x", "y"}),
    ],
)
def test_attributes_that_are_assigned(text: str, stored: set[str]) -> None:
    assert {name for name in "xyzbd" if Sketch(text.encode()).stores(name)} == stored
