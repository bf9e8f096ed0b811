from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from fsdp_migrate.facts.evaluation import (
    calls_in,
    evaluated_before,
    evaluated_conditionally,
    is_reading,
    is_still,
    pure,
)
from fsdp_migrate.facts.names import Names
from fsdp_migrate.facts.walk import build


def probe(text: str) -> tuple[ast.Call, ast.stmt, Names]:
    structure = build(ast.parse(dedent(text)))
    (call,) = [c for c in structure.calls if isinstance(c.func, ast.Name) and c.func.id == "probe"]
    statement: ast.AST = call
    while not isinstance(statement, ast.stmt):
        statement = structure.parents[statement]
    return call, statement, Names(structure)


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("f(a, probe(), b)", ["f", "a"]),
        ("x[i] = probe()", []),
        ("x[probe()] = y", ["x", "y"]),
        ("x.y += probe()", ["x.y"]),
        ("{a: b, c: probe(), d: e}", ["a", "b", "c"]),
        ("f(k=a, *probe())", ["f"]),
        ("f(k=probe(), *a)", ["f", "*a"]),
        ("for x[a] in probe(): pass", []),
        ("async for x[a] in probe(): pass", []),
        ("[x for x in probe()]", []),
        ("(a := probe())", []),
        ("return_ = (a, probe())[b]", ["a"]),
    ],
)
def test_what_runs_before_follows_the_order_of_evaluation(text: str, before: list[str]) -> None:
    call, statement, names = probe(text)
    found = [ast.unparse(node) for node in evaluated_before(call, statement, names.structure.parents)]
    assert sorted(found) == sorted(before)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("f(g(), [h(i()) for x in j()])", ["f", "g", "h", "i", "j"]),
        ("f(lambda: g())", ["f"]),
        ("def f(a=g()):\n    h()", []),
        ("async def f():\n    h()", []),
        ("class A(f()):\n    g()", []),
    ],
)
def test_what_is_only_defined_calls_nothing(text: str, calls: list[str]) -> None:
    (statement,) = ast.parse(text).body
    found = [
        call.func.id for call in calls_in(statement) if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    ]
    assert sorted(found) == calls


@pytest.mark.parametrize(
    ("text", "runs_once"),
    [
        ("x = probe() if a else b", False),
        ("x = a if probe() else b", True),
        ("x = probe() and a", True),
        ("x = a or probe()", False),
        ("x = a < probe() < b", True),
        ("x = a < b < probe()", False),
        ("x = [probe() for y in z]", False),
        ("x = [y for y in probe()]", True),
        ("x = [y for y in z for w in probe()]", False),
        ("x = lambda: probe()", False),
        ("while probe(): pass", False),
        ("if probe(): pass", True),
        ("def f(a=probe()): pass", False),
        ("class A(probe()): pass", False),
        ("match a:\n    case 1 if probe(): pass", False),
        ("match probe():\n    case 1: pass", True),
        ("try: pass\nexcept probe(): pass", False),
        ("for a[probe()] in b: pass", False),
        ("with a as b[probe()]: pass", False),
    ],
)
def test_whether_a_call_runs_exactly_once(text: str, runs_once: bool) -> None:
    call, statement, names = probe(text)
    assert (evaluated_conditionally(call, statement, names.structure.parents) is None) == runs_once


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("probe(); x = 1", False),
        ("import torch\ntorch.save(probe())", False),
        ("from torch import load\nload(probe())", True),
        ("load(probe())", False),
        ("len(probe())", True),
        ("def len(x): ...\nlen(probe())", False),
        ("model.state_dict(probe())", True),
        ("self.get_extra_state(probe())", False),
        ("optim.load_state_dict(probe())", False),
        ("get_model_state_dict(probe())", False),
        ("queue.pop(probe())", False),
        ("config.items(probe())", True),
    ],
)
def test_what_only_reads(text: str, reading: bool) -> None:
    call, _, names = probe(text)
    outer = names.structure.parents[call]
    assert is_reading(outer if isinstance(outer, ast.Call) else call, names) is reading


@pytest.mark.parametrize(
    ("text", "still"),
    [
        ("a.b['k'] + c[i].d", True),
        ("[a, *b, {'k': c}]", True),
        ("a if b else -c", True),
        ("a['k']['l']", False),
        ("f()", False),
        ("[a for a in b]", False),
        ("(a for a in b)", False),
        ("a[f()]", False),
    ],
)
def test_what_runs_nothing(text: str, still: bool) -> None:
    assert is_still(ast.parse(text, mode="eval").body) is still


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", True),
        ("a.b.c", True),
        ("a[0]", True),
        ("a[i].b", True),
        ("a()", False),
        ("a[f()]", False),
        ("(a := b)", False),
    ],
)
def test_only_chains_of_names_may_be_written_twice(text: str, expected: bool) -> None:
    assert pure(ast.parse(text, mode="eval").body) == expected
