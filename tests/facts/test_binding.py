from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from fsdp_migrate.facts.binding import loops_to, surely_bound
from fsdp_migrate.facts.walk import build


def probe(text: str) -> tuple[ast.AST, dict[ast.AST, ast.AST]]:
    """The `use()` in a function `f(p)` with this body."""
    lines = dedent(text).splitlines()
    structure = build(ast.parse("def f(p, *q, r=None, **s):\n" + "".join(f"    {line}\n" for line in lines)))
    (call,) = [call for call in structure.calls if ast.unparse(call) == "use()"]
    return call, structure.parents


@pytest.mark.parametrize(
    ("body", "bound"),
    [
        ("x = 1\nuse()", True),
        ("use()\nx = 1", False),
        ("x: int = 1\nuse()", True),
        ("x: int\nuse()", False),
        ("x += 1\nuse()", True),
        ("a, (b, *x) = y\nuse()", True),
        ("x.y = 1\nuse()", False),
        ("x[0] = 1\nuse()", False),
        ("import x.y\nuse()", True),
        ("import y as x\nuse()", True),
        ("import x as y\nuse()", False),
        ("from y import x\nuse()", True),
        ("def x():\n    pass\nuse()", True),
        ("class x:\n    pass\nuse()", True),
        ("if p:\n    x = 1\nuse()", False),
        ("if p:\n    x = 1\nelse:\n    x = 2\nuse()", True),
        ("if p:\n    x = 1\nelse:\n    return\nuse()", True),
        ("if p:\n    x = 1\nelse:\n    raise E\nuse()", True),
        ("if p:\n    x = 1\n    use()", True),
        ("with p as x:\n    pass\nuse()", True),
        ("with p as x:\n    use()", True),
        ("with p as y, q as x:\n    use()", True),
        ("with p:\n    x = 1\nuse()", True),
        ("async def g():\n    async with p as x:\n        pass\n    use()", True),
        ("for x in p:\n    use()", True),
        ("for x in p:\n    pass\nuse()", False),
        ("for y in p:\n    x = 1\nuse()", False),
        ("for x in p:\n    pass\nelse:\n    use()", False),
        ("while p:\n    x = 1\nuse()", False),
        ("for y in p:\n    if y:\n        x = 1\n    else:\n        continue\n    use()", True),
        ("try:\n    x = 1\nexcept E:\n    x = 2\nuse()", True),
        ("try:\n    x = 1\nexcept E:\n    return\nuse()", True),
        ("try:\n    x = 1\nexcept E:\n    pass\nuse()", False),
        ("try:\n    pass\nexcept E:\n    x = 1\nelse:\n    x = 2\nuse()", True),
        ("try:\n    pass\nfinally:\n    x = 1\nuse()", True),
        ("try:\n    pass\nfinally:\n    x = 1\n    use()", True),
        ("x = 1\ndef g():\n    use()", False),
        ("def g(x):\n    use()", True),
        ("g = lambda x: use()", True),
    ],
)
def test_a_name_is_surely_bound_where_every_way_binds_it(body: str, bound: bool) -> None:
    assert surely_bound("x", *probe(body)) is bound


@pytest.mark.parametrize("name", ["p", "q", "r", "s"])
def test_parameters_of_every_kind_are_bound(name: str) -> None:
    assert surely_bound(name, *probe("use()"))
    assert not surely_bound("t", *probe("use()"))


@pytest.mark.parametrize(
    ("body", "loops"),
    [
        ("for a in p:\n    use()\n    x = 1", 1),
        ("while p:\n    use()", 1),
        ("for a in p:\n    while a:\n        use()", 2),
        ("for a in p:\n    x = 1\n    while a:\n        use()", 1),
        ("for a in p:\n    x = 1\n    use()", 0),
        ("for x in p:\n    use()", 0),
        ("for a in use():\n    x = 1", 0),
        ("for a in p:\n    x = 1\nelse:\n    use()", 0),
        ("use()", 0),
        ("for a in p:\n    def g():\n        use()", 0),
    ],
)
def test_a_loop_brings_back_what_a_turn_has_not_bound_before(body: str, loops: int) -> None:
    assert len(loops_to("x", *probe(body))) == loops
