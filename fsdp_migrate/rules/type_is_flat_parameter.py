"""FSDP302: comparing the type of a parameter with FlatParameter.

Since torch 2.1 `FlatParameter(...)` makes a plain Parameter with a mark, and a metaclass answers `isinstance`
(catalogue flat-isinstance; 2.1.2 to 2.15.0, `_flat_param.py`). The type of no object is FlatParameter any more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple, TypeGuard

from packaging.version import Version

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.names import LOCAL
from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.rules.flat_classes import (
    ATTRIBUTE,
    FLAT_PARAMETER,
    Classes,
    attribute_test,
    classes_of,
    releases,
    stands_alone,
    template_around,
)
from fsdp_migrate.rules.flat_parameter import text_trouble
from fsdp_migrate.rules.flat_uses import special_use

NEVER_SINCE = Version("2.1")
_NAME = "FlatParameter"
_MESSAGE = (
    f"the type of no object is FlatParameter since torch {NEVER_SINCE}, so that this test is always {{}}; "
    f"`{ATTRIBUTE}` tells whether FSDP manages a parameter"
)
_WAKES = f"the outcome has been fixed since torch {NEVER_SINCE}: code that did not run comes to life"
_EQUAL, _UNEQUAL = (ast.Is, ast.Eq), (ast.IsNot, ast.NotEq)
# What binds tighter than `not`.
_TIGHT = (ast.Compare, ast.BinOp, ast.Await, ast.Attribute, ast.Subscript, ast.Starred)


class _Test(NamedTuple):
    """A comparison of the type of `subject`, read off `holder` (`type(x)` or its name), with some classes."""

    node: ast.expr
    subject: ast.expr
    holder: ast.expr
    classes: Classes
    negated: bool = False


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find comparisons of types and of their names, and `issubclass` tests of types."""
    for holder, subject in _types(facts):
        test = _test(facts, holder, subject)
        if test is not None and test.classes.concerned and _is_fixed(facts, test):
            place = template_around(facts, test.node) or test.node
            message = _MESSAGE.format(test.negated if not test.classes.others else "decided by the other classes")
            yield finding(facts, card, place, facts.statement(test.node), message, _verdict(facts, test))


def _is_fixed(facts: ModuleFacts, test: _Test) -> bool:
    """Whether the outcome is known beforehand on a release that gets to the test."""
    return any(release >= NEVER_SINCE for release in facts.gates.alive(test.node))


def _types(facts: ModuleFacts) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Every `type(x)` and `x.__class__` with its x."""
    for call in facts.structure.calls:
        is_type = isinstance(call.func, ast.Name) and call.func.id == "type" and len(call.args) == 1
        if is_type and not call.keywords and facts.names.qualified(call.func) == "builtins.type":
            yield call, call.args[0]
    for attribute in facts.structure.attributes:
        if attribute.attr == "__class__" and isinstance(attribute.ctx, ast.Load):
            yield attribute, attribute.value


def _test(facts: ModuleFacts, holder: ast.expr, subject: ast.expr) -> _Test | None:
    parent = facts.structure.parents[holder]
    if _is_name(parent):
        compare = facts.structure.parents[parent]
        return _compared(facts, compare, parent, subject) if isinstance(compare, ast.Compare) else None
    if isinstance(parent, ast.Compare):
        return _compared(facts, parent, holder, subject)
    if not isinstance(parent, ast.Call) or facts.names.qualified(parent.func) != "builtins.issubclass":
        return None
    if holder not in parent.args[:1] or len(parent.args) != 2 or parent.keywords:
        return None
    return _Test(parent, subject, holder, classes_of(facts, parent.args[1]))


def _is_name(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether `node` is the name of a type rather than the type."""
    return isinstance(node, ast.Attribute) and node.attr in ("__name__", "__qualname__")


def _compared(facts: ModuleFacts, compare: ast.Compare, holder: ast.expr, subject: ast.expr) -> _Test | None:
    classes_read = _names_of if _is_name(holder) else classes_of
    if len(compare.ops) != 1:
        parts = [part for part in (compare.left, *compare.comparators) if part is not holder]
        if any(classes_read(facts, part).concerned for part in parts):
            return _Test(compare, subject, holder, Classes(trouble="a chained comparison: take it apart"))
        return None
    operator = compare.ops[0]
    other = compare.comparators[0] if compare.left is holder else compare.left
    if isinstance(operator, (*_EQUAL, *_UNEQUAL)):
        classes = classes_read(facts, other) if not isinstance(other, (ast.Tuple, ast.List, ast.Set)) else Classes()
        return _Test(compare, subject, holder, classes, isinstance(operator, _UNEQUAL))
    if isinstance(operator, (ast.In, ast.NotIn)) and compare.left is holder:
        return _Test(compare, subject, holder, classes_read(facts, other), isinstance(operator, ast.NotIn))
    return None


def _names_of(facts: ModuleFacts, node: ast.expr) -> Classes:
    """The classes that strings name; the name alone is torch's only where no other class has it."""
    leaves = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    flat: list[ast.expr] = [leaf for leaf in leaves if isinstance(leaf, ast.Constant) and leaf.value == _NAME]
    if not flat or facts.memo(_has_namesake, lambda: _has_namesake(facts)):
        return Classes()
    return Classes(flat, [leaf for leaf in leaves if leaf not in flat])


def _has_namesake(facts: ModuleFacts) -> bool:
    """Whether the file knows a class of that name that is not torch's."""
    for scope in facts.structure.module.nested():
        for bindings in scope.bindings.values():
            for binding in bindings:
                own = [f"{LOCAL}.{binding.name}"] if isinstance(binding.node, ast.ClassDef) else []
                if any(_is_namesake(target or "") for target in (*facts.names.targets(binding), *own)):
                    return True
    return False


def _is_namesake(target: str) -> bool:
    if target.startswith(("fairscale", "torch_xla")):
        return True
    return target.rpartition(".")[2] == _NAME and not target.startswith(FLAT_PARAMETER.rpartition(".")[0])


def _verdict(facts: ModuleFacts, test: _Test) -> Verdict:
    trouble = test.classes.trouble or text_trouble(facts, test.node)
    if trouble is None and test.classes.others and not pure(test.subject):
        trouble = f"`{ast.unparse(test.subject)}` would be evaluated twice: name it first"
    if trouble is None and any(isinstance(other, ast.Starred) for other in test.classes.others):
        trouble = "the other classes are unpacked: name them one by one"
    trouble = trouble or special_use(facts, test.node, test.subject, test.negated)
    if trouble is not None:
        return manual(trouble)
    edit = Replace(facts.source.span(test.node), _new_text(facts, test))
    return Verdict(Fix((edit,), releases(facts, test.classes)), unsafe=_WAKES)


def _new_text(facts: ModuleFacts, test: _Test) -> str:
    text = attribute_test(facts, test.subject)
    others = [facts.source.segment(other) for other in test.classes.others]
    if others:
        text = f"{text} or {_rest(facts, test, others)}"
    if not test.negated:
        return text if not others or stands_alone(facts, test.node) else f"({text})"
    text = f"not ({text})" if others else f"not {text}"
    parent = facts.structure.parents[test.node]
    tight = isinstance(parent, _TIGHT) or (isinstance(parent, ast.UnaryOp) and not isinstance(parent.op, ast.Not))
    return f"({text})" if tight else text


def _rest(facts: ModuleFacts, test: _Test, others: list[str]) -> str:
    """The old test for the other classes, in its positive form."""
    holder = facts.source.segment(test.holder)
    listed = others[0] if len(others) == 1 else f"({', '.join(others)})"
    if isinstance(test.node, ast.Call):
        return f"{facts.source.segment(test.node.func)}({holder}, {listed})"
    if len(others) > 1:
        return f"{holder} in {listed}"
    return f"{holder} == {listed}" if _is_name(test.holder) else f"{holder} is {listed}"


RULE = Rule(
    RuleCard(
        code="FSDP302",
        name="type-is-flat-parameter",
        summary="a test of the type itself for FlatParameter, which is never true since torch 2.1",
        explanation=f"""\
Since torch 2.1 constructing a FlatParameter gives a plain `Parameter` that carries a mark, and only `isinstance` knows
how to read it. `type(p) is FlatParameter`, `p.__class__ == FlatParameter`, a comparison of `__name__` and
`issubclass(type(p), FlatParameter)` are therefore always False, and the code behind them has not run since.

The fix tests the attribute `{ATTRIBUTE}`, as FSDP301 does. It is **unsafe** everywhere, because it wakes that code. It
is **manual** where FlatParameters are counted or used by their private attributes.""",
        applicability="unsafe or manual",
        removed="2.1",
        floor="1.13",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before="""\
from torch.distributed.fsdp import FlatParameter

def sharded(params):
    return [p for p in params if type(p) is FlatParameter]
""",
                after=f"""\
def sharded(params):
    return [p for p in params if getattr(p, "{ATTRIBUTE}", False)]
""",
                applicability=Applicability.UNSAFE,
            ),
            Example(
                before="""\
def others(params):
    return [p for p in params if type(p).__name__ != "FlatParameter"]
""",
                after=f"""\
def others(params):
    return [p for p in params if not getattr(p, "{ATTRIBUTE}", False)]
""",
                applicability=Applicability.UNSAFE,
            ),
            Example(
                before="""\
from torch.distributed.fsdp import FlatParameter

def count(params):
    return sum(type(p) is FlatParameter for p in params)
""",
                note="FlatParameters are counted",
            ),
        ),
        leaves=(
            """\
import torch

def plain(params):
    return [p for p in params if type(p) is torch.nn.Parameter]
""",
            """\
from fairscale.nn.misc import FlatParameter

def sharded(params):
    return [p for p in params if type(p) is FlatParameter]
""",
        ),
        url="https://github.com/pytorch/pytorch/pull/85038",
    ),
    needles=(_NAME,),
    check=check,
)
