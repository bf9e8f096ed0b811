"""Optimizers that are built before their model is wrapped: what can be built behind it instead, with its schedulers.

The statement that builds one is moved: the call of its class, or of a function or class of the project that does no
more than that. So are the schedulers that are made of it on the way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.outdent import block_span
from fsdp_migrate.edits import RemoveStatement, Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.project_code import Code, Function
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Span
from fsdp_migrate.targets.fsdp2.conversion import Construction, Conversion

OPTIMIZERS = "torch.optim."
_SCHEDULES = ("torch.optim.lr_scheduler.", "transformers.get_", "transformers.optimization.get_", "diffusers.")
_OUTSIDE = (OPTIMIZERS, "builtins.", "inspect.", "logging.")
# What may be asked of a module, of its parameters and their names, and of collections, and means the same behind.
_ASKING = frozenset(
    """
    parameters named_parameters modules named_modules numel dim size append extend add items keys values get startswith
    endswith split join replace format lower debug info warning
    """.split()
)


class _Moved(NamedTuple):
    """A statement that is moved: what it assigns, and the names and chains of attributes that it reads."""

    statement: ast.Assign
    reads: frozenset[str]


def move_behind(conversion: Conversion, construction: Construction, facts: ModuleFacts, built: ast.Call) -> bool:
    """Build an optimizer behind the place where its model is sharded; False if something on the way needs it."""
    call = _called_beside(conversion.code, construction, facts, built)
    if call is None:
        return False
    facts, wrap = construction.facts, construction.facts.statement(construction.call)
    statement = facts.statement(call)
    block = _block(facts, statement)
    if wrap not in block or not _assigns(statement, call) or block.index(wrap) < block.index(statement):
        return False
    assert isinstance(statement, ast.Assign)
    first = _Moved(statement, _reads(facts, statement, whole=call is not built))
    moved = _together(facts, first, block[block.index(statement) + 1 : block.index(wrap)])
    spans = [facts.source.span(one.statement) for one in moved]
    if (
        not moved
        or not all(block_span(facts, [one.statement]) for one in moved)
        or any(map(facts.source.has_comment, spans))
    ):
        return False
    end, indent = facts.source.span(wrap).end, facts.indentation(wrap)
    text = "".join(f"\n{indent}{facts.source.segment(span)}" for span in spans)
    conversion.edit(facts, [*map(RemoveStatement, spans), Replace(Span(end, end), text)])
    return True


def _called_beside(code: Code, construction: Construction, facts: ModuleFacts, built: ast.Call) -> ast.Call | None:
    """The call that builds an optimizer in the function that wraps: its own, or the only one of its function."""
    function = facts.function(built)
    if function is construction.facts.function(construction.call):
        return built
    if not isinstance(function, (ast.FunctionDef, ast.Lambda)) or not _only_builds(facts, function):
        return None
    callers = code.callers(Function(facts, function))
    if len(callers.sites) != 1 or callers.elsewhere or callers.hidden:
        return None
    (site,) = callers.sites
    beside = site.facts is construction.facts and site.facts.function(site.call) is site.facts.function(
        construction.call
    )
    return site.call if beside else None


def _only_builds(facts: ModuleFacts, function: ast.AST) -> bool:
    """Whether a function does nothing but ask for parameters, and make optimizers and schedulers of them."""
    nodes = list(ast.walk(function))
    others = (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete)
    calls = (node for node in nodes if isinstance(node, ast.Call))
    return not any(isinstance(node, others) for node in nodes) and all(_is_quiet(facts, call) for call in calls)


def _is_quiet(facts: ModuleFacts, call: ast.Call) -> bool:
    named = facts.names.qualified(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
    if named is not None and named.startswith((*_OUTSIDE, *_SCHEDULES)):
        return True
    return isinstance(call.func, ast.Attribute) and call.func.attr in _ASKING


def _together(facts: ModuleFacts, first: _Moved, between: list[ast.stmt]) -> list[_Moved]:
    """A statement, and those behind it that go with it; none where another one needs what is moved, or changes it."""
    moved, made = [first], set(_stored(first.statement))
    for statement in between:
        mentioned = {ast.unparse(node) for node in ast.walk(statement) if isinstance(node, (ast.Name, ast.Attribute))}
        if not made.isdisjoint(mentioned):
            if not _makes_schedule(facts, statement):
                return []
            moved.append(_Moved(statement, _reads(facts, statement)))  # type: ignore[arg-type]
            made.update(_stored(statement))
        elif any(_changes(stored, read) for stored in _stored(statement) for one in moved for read in one.reads):
            return []
    return moved


def _makes_schedule(facts: ModuleFacts, statement: ast.stmt) -> bool:
    """Whether a statement makes a learning-rate scheduler."""
    call = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(call, ast.Call) or not _assigns(statement, call):
        return False
    return (facts.names.qualified(call.func) or "").startswith(_SCHEDULES)


def _assigns(statement: ast.stmt, call: ast.Call) -> bool:
    return isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1


def _stored(statement: ast.stmt) -> Iterator[str]:
    """The names and attributes that a statement assigns, deletes or changes an item of."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            while isinstance(node, ast.Subscript):
                node = node.value
            yield ast.unparse(node)


def _reads(facts: ModuleFacts, statement: ast.stmt, *, whole: bool = False) -> frozenset[str]:
    """The names and chains of attributes that a statement reads; `whole` is what its method is called on, too."""
    parents = facts.structure.parents
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            parent = parents[node]
            called = parents.get(parent)
            is_receiver = whole and isinstance(called, ast.Call) and called.func is parent
            if is_receiver or not isinstance(parent, ast.Attribute):
                found.add(ast.unparse(node))
    return frozenset(found)


def _changes(stored: str, read: str) -> bool:
    """Whether an assignment may change what is read: the same, an attribute of it, or what it is an attribute of."""
    return stored == read or stored.startswith(f"{read}.") or read.startswith(f"{stored}.")


def _block(facts: ModuleFacts, statement: ast.stmt) -> list[ast.stmt]:
    for _, block in ast.iter_fields(facts.structure.parents[statement]):
        if isinstance(block, list) and statement in block:
            return block
    return []
