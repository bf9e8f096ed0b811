from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.reaching import Order, Reaching
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange


def reached(text: str) -> bool:
    """Whether what `x = first` assigns may be there in `last(x)`."""
    facts = ModuleFacts(Source(dedent(text).encode()), "a.py", TorchRange.default())
    names = [node for node in ast.walk(facts.source.tree) if isinstance(node, ast.Name) and node.id == "x"]
    stores = [node for node in names if isinstance(node.ctx, ast.Store)]
    (store,) = (
        node
        for node in stores
        if isinstance(parent := facts.structure.parents[node], ast.Assign) and ast.unparse(parent.value) == "first"
    )
    (load,) = (
        node
        for node in names
        if isinstance(parent := facts.structure.parents[node], ast.Call) and ast.unparse(parent.func) == "last"
    )
    return Reaching(facts.structure.parents).may_reach(store, load, "x", stores)


REACHED = {
    "behind it": "x = first\nlast(x)\n",
    "behind a condition": "x = first\nif a:\n    x = 1\nlast(x)\n",
    "in the condition's arm": "if a:\n    x = first\n    last(x)\nelse:\n    x = 1\n",
    "around a loop": "for i in y:\n    last(x)\n    x = first\n",
    "around a loop, on another arm": "for i in y:\n    if a:\n        last(x)\n    else:\n        x = first\n",
    "in a handler": "try:\n    x = first\n    f()\n    x = 1\nexcept E:\n    last(x)\n",
    "at the end of a try": "try:\n    x = first\n    return_()\nfinally:\n    last(x)\n",
    "out of a loop": "for i in y:\n    x = first\n    break\nlast(x)\n",
    "in a comprehension": "x = first\n[last(x) for i in y]\n",
    "behind a loop that may not run": "x = first\nfor x in y:\n    pass\nlast(x)\n",
    "around a while": "while last(x):\n    x = first\n",
}
UNREACHED = {
    "before it": "last(x)\nx = first\n",
    "in the value": "x = 0\nx = 1; last(x); x = first\n",
    "bound again": "x = first\nx = 1\nlast(x)\n",
    "bound again on both arms": "x = first\nif a:\n    x = 1\nelse:\n    x = 2\nlast(x)\n",
    "on the other arm": "if a:\n    x = first\nelse:\n    last(x)\n",
    "on another case": "match a:\n    case 1:\n        x = first\n    case _:\n        last(x)\n",
    "behind a return": "def f():\n    if a:\n        x = first\n        return\n    last(x)\n",
    "behind a raise": "def f():\n    if a:\n        x = first\n        raise E\n    last(x)\n",
    "around a loop that binds it first": "for i in y:\n    x = 1\n    last(x)\n    x = first\n",
    "around a loop over it": "for x in y:\n    last(x)\n    x = first\n",
    "around a loop that is left": "for i in y:\n    last(x)\n    if a:\n        x = first\n        break\n",
    "in a block that binds it": "x = first\nwith f() as x:\n    last(x)\n",
    "in the other handler": "try:\n    f()\nexcept A:\n    x = first\nexcept B:\n    last(x)\n",
}


@pytest.mark.parametrize("text", REACHED.values(), ids=REACHED.keys())
def test_it_may_be_there(text: str) -> None:
    assert reached(text)


@pytest.mark.parametrize("text", UNREACHED.values(), ids=UNREACHED.keys())
def test_it_is_not_there(text: str) -> None:
    assert not reached(text)


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("one; two", Order.BEFORE),
        ("two; one", Order.AFTER),
        ("a = two\none", Order.AFTER),
        ("one = two", Order.AFTER),
        ("one if two else 3", Order.AFTER),
        ("one if a else two", Order.APART),
        ("[one for i in two]", Order.AFTER),
        ("for one in two: pass", Order.AFTER),
        ("f(one, two)", Order.BEFORE),
        ("f(two, a=one)", Order.AFTER),
    ],
)
def test_what_runs_before_what(text: str, order: Order) -> None:
    facts = ModuleFacts(Source(text.encode()), "a.py", TorchRange.default())
    nodes = {node.id: node for node in ast.walk(facts.source.tree) if isinstance(node, ast.Name)}
    assert Reaching(facts.structure.parents).order(nodes["one"], nodes["two"]) is order
