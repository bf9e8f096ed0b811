"""How a file asks for torch's version: a condition in its own words for the releases that have some names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from packaging.version import Version

from fsdp_migrate.code.unused_imports import uses_of
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.scopes import Binding, Kind
from fsdp_migrate.source import Span
from fsdp_migrate.torch_api.data import exists

_VERSION = re.compile(r"(\D*)\d+\.\d+(\.\d+)*")
_OPERATORS = frozenset({"<", "<=", ">", ">=", "=="})
_AT_LEAST = ">="


def version_test(facts: ModuleFacts, statement: ast.stmt, names: Sequence[str]) -> str | None:
    """A condition that is true on just those supported releases that have all the `names`, None where there is none.

    It is a flag that is bound above `statement`, or a test of the file for another version: a helper's or packaging's.
    """
    wanted = {release for release in facts.torch.releases if all(exists(name, release) for name in names)}
    if not wanted:
        return None
    return _flag(facts, statement, wanted) or _test(facts, statement, wanted)


def _flag(facts: ModuleFacts, statement: ast.stmt, wanted: set[Version]) -> str | None:
    for name, bindings in facts.structure.module.bindings.items():
        value = _value(bindings[0]) if len(bindings) == 1 else None
        if value is not None and _is_bound(facts, statement, name) and _trues(facts, value) == wanted:
            return name
    return None


def _value(binding: Binding) -> ast.expr | None:
    """An expression that has the value of a name; of an imported one, a use."""
    return next(uses_of(binding), None) if binding.kind is Kind.IMPORT else binding.value


def _is_bound(facts: ModuleFacts, statement: ast.stmt, name: str) -> bool:
    """Whether a name means at `statement` what the module binds it to once, above."""
    module = facts.structure.module
    bindings = module.bindings.get(name, [])
    if facts.scope(statement).lookup(name) is not module or len(bindings) != 1 or bindings[0].conditional:
        return False
    return bindings[0].position < (statement.lineno, statement.col_offset)


def _trues(facts: ModuleFacts, test: ast.expr) -> set[Version] | None:
    """The releases on which a condition is true, None where it depends on more than the version."""
    told = {release: facts.gates.truth(test, release) for release in facts.torch.releases}
    return None if None in told.values() else {release for release, true in told.items() if true}


def _versions(facts: ModuleFacts) -> tuple[tuple[ast.Constant, re.Match[str]], ...]:
    """The strings that are versions, and perhaps what to compare with one."""
    texts = ((text, text.value) for text in facts.structure.strings)
    matches = ((text, _VERSION.fullmatch(value)) for text, value in texts if isinstance(value, str))
    return tuple((text, match) for text, match in matches if match is not None)


def _test(facts: ModuleFacts, statement: ast.stmt, wanted: set[Version]) -> str | None:
    oldest = min(wanted)
    for constant, found in facts.memo(_versions, lambda: _versions(facts)):
        # What writes three numbers goes on to write three.
        version = f"{found[1]}{oldest.major}.{oldest.minor}{'.0' if found[2] else ''}"
        for test in _tests(facts, constant):
            swap = {constant: version, **dict.fromkeys(_operators(test), _AT_LEAST)}
            if _is_at_hand(facts, statement, test) and _trues(facts, _with(test, swap)) == wanted:
                return _text(facts, test, swap)
    return None


def _tests(facts: ModuleFacts, constant: ast.Constant) -> Iterator[ast.Call | ast.Compare]:
    """The calls and comparisons around a constant on one line, the innermost first."""
    node: ast.AST = constant
    while isinstance(node := facts.structure.parents[node], (ast.Call, ast.Compare, ast.keyword)):
        if not isinstance(node, ast.keyword) and node.lineno == node.end_lineno:
            yield node


def _operators(test: ast.Call | ast.Compare) -> list[ast.Constant]:
    """The comparisons that a call is given as text."""
    arguments = [*test.args, *(keyword.value for keyword in test.keywords)] if isinstance(test, ast.Call) else []
    return [one for one in arguments if isinstance(one, ast.Constant) and one.value in _OPERATORS]


def _is_at_hand(facts: ModuleFacts, statement: ast.stmt, test: ast.expr) -> bool:
    names = {node for node in ast.walk(test) if isinstance(node, ast.Name)}
    same = all(facts.scope(node).lookup(node.id) is facts.structure.module for node in names)
    return same and all(_is_bound(facts, statement, node.id) for node in names)


def _with(node: ast.expr, swap: Mapping[ast.Constant, str]) -> ast.expr:
    """A test with other constants; what is looked up in it stays the same node, which is known to the facts."""
    if isinstance(node, ast.Constant):
        return ast.Constant(swap[node]) if node in swap else node
    if isinstance(node, ast.Compare):
        return ast.Compare(_with(node.left, swap), node.ops, [_with(other, swap) for other in node.comparators])
    if isinstance(node, ast.Call):
        keywords = [ast.keyword(keyword.arg, _with(keyword.value, swap)) for keyword in node.keywords]
        return ast.Call(node.func, [_with(argument, swap) for argument in node.args], keywords)
    return node


def _text(facts: ModuleFacts, test: ast.expr, swap: Mapping[ast.Constant, str]) -> str:
    """How the test is written with other constants, in the quotes of the old ones."""
    source, span = facts.source, facts.source.span(test)
    pieces, at = [], span.start
    for constant in sorted(swap, key=lambda one: one.col_offset):
        place = source.span(constant)
        pieces += [
            source.segment(Span(at, place.start)),
            source.segment(place).replace(str(constant.value), swap[constant]),
        ]
        at = place.end
    return "".join([*pieces, source.segment(Span(at, span.end))])
