"""Finds the place for a `with` around a call that does not change what the statement does.

The `with` goes around the whole statement if the call is all that it evaluates besides plain values. Otherwise the call
moves in front of it, if it runs exactly once and nothing with an effect runs before it.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.evaluation import (
    calls_in,
    evaluated_before,
    evaluated_conditionally,
    is_reading,
    is_still,
    pure,
)
from fsdp_migrate.patterns import pattern
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Source, Span

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
_CONTAINERS = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred, ast.keyword)
_READS = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.Attribute, ast.Subscript)
_BLOCKS = ("body", "orelse", "finalbody")
# What may stand between two parts of one logical line.
_BLANKS = pattern(rb"(?:[ \t\f]|\\\r?\n)*")
_SEMICOLON = pattern(rb"(?:[ \t\f]|\\\r?\n)*;(?:[ \t\f]|\\\r?\n)*")


class CannotPlace(Exception):
    """The call cannot be put under a `with` here. The message is a reason for the user."""


class Placement(NamedTuple):
    """A statement and the place of its call: under a `with` around all of it (`whole`), or in front of it.

    `indent` is the whitespace before the statement after `splits` have put it on its own line. `first` has to be
    evaluated before the `with`, in this order: arguments of the call, and what runs before it.
    """

    statement: ast.stmt
    whole: bool
    indent: str
    splits: tuple[Replace, ...]
    first: tuple[ast.expr, ...]


def place(
    facts: ModuleFacts, call: ast.Call, arguments: Sequence[ast.expr], siblings: frozenset[ast.Call]
) -> Placement:
    """Find the place for `call` with these `arguments`; `siblings` are rewritten, too, and only read state.

    Only the call runs under the `with`, because the `with` does not restore the type after an error. What would change
    places with something that affects it is evaluated first.

    Raises:
        CannotPlace: there is none.
    """
    statement = facts.statement(call)
    _check_runs_once(facts, call, statement)
    earlier = _evaluated_before(facts, call, statement)
    moved = {one for one in earlier if _stirs(facts, one, siblings)}
    moved |= {argument for argument in arguments if not is_still(argument)}
    stirred = False
    for one in (*reversed(arguments), *reversed(earlier)):
        if one not in moved and stirred and any(isinstance(part, _READS) for part in ast.walk(one)):
            moved.add(one)
        stirred = stirred or (one in moved and _stirs(facts, one, siblings))
    first = tuple(_named(facts, call, one) for one in (*earlier, *arguments) if one in moved)
    indent, splits = own_line(facts, statement)
    return Placement(statement, _only_passed_on(facts, call, statement), indent, splits, first)


def _evaluated_before(facts: ModuleFacts, call: ast.Call, statement: ast.stmt) -> list[ast.AST]:
    """What `statement` evaluates before `call`, in order, without plain callees (`torch.save`)."""
    found: list[ast.AST] = []
    for earlier in evaluated_before(call, statement, facts.structure.parents):
        if isinstance(earlier, ast.withitem):
            raise CannotPlace(f"the same `with` enters `{_shortened(earlier)}` before the call: split the `with`")
        if any(isinstance(part, ast.NamedExpr) for part in ast.walk(earlier)):
            raise CannotPlace(
                "the same statement binds a name with `:=` before the call: bind it in an earlier statement"
            )
        parent = facts.structure.parents.get(earlier)  # operators have none
        if not (isinstance(parent, ast.Call) and earlier is parent.func and pure(earlier)):
            found.append(earlier)
    return found[::-1]


def _stirs(facts: ModuleFacts, node: ast.AST, others: frozenset[ast.Call]) -> bool:
    """Whether evaluating `node` may do more than read."""
    return any(call not in others and not is_reading(call, facts.names) for call in calls_in(node))


def _named(facts: ModuleFacts, call: ast.Call, node: ast.AST) -> ast.expr:
    """The expression that is assigned to a name if `node` has to be evaluated first.

    Raises:
        CannotPlace: a name cannot stand for it.
    """
    part = node.value if isinstance(node, ast.keyword) and node.arg is not None else node
    parent = facts.structure.parents.get(part)
    while isinstance(part, ast.Attribute) and isinstance(parent, ast.Call) and node is parent.func:
        part = part.value  # `made().save`: what the method is read off
    is_value = isinstance(getattr(part, "ctx", ast.Load()), ast.Load)
    if isinstance(part, ast.expr) and is_value and not isinstance(part, (ast.Starred, ast.FormattedValue, ast.Slice)):
        return part
    where = "before the call in the same statement: move it to a statement of its own"
    raise CannotPlace(f"`{_shortened(node)}` runs {where}")


def _check_runs_once(facts: ModuleFacts, call: ast.Call, statement: ast.stmt) -> None:
    if facts.scope(statement).is_class:
        raise CannotPlace("the call is in a class body: move it into a function")
    reason = evaluated_conditionally(call, statement, facts.structure.parents)
    if reason is not None:
        raise CannotPlace(f"the call is {reason}")
    if is_printed_as_code(facts, call):
        raise CannotPlace(
            "the call is inside an f-string with `=`, which prints the source text of the call: assign its "
            "result to a variable first"
        )
    start = facts.source.span(statement).start
    if isinstance(statement, ast.If) and facts.source.data.startswith(b"elif", start):
        raise CannotPlace("the call is in an `elif` condition: assign its result to a variable before the `if`")


def is_printed_as_code(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether `call` is in `f"{...=}"`, which prints its text."""
    child: ast.AST = call
    while not isinstance(child, ast.stmt):
        parent = facts.structure.parents[child]
        if isinstance(parent, ast.JoinedStr):
            before = parent.values[parent.values.index(child) - 1]  # type: ignore[arg-type]
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if isinstance(before, ast.Constant) and method in str(before.value) and "=" in str(before.value):
                return True
        child = parent
    return False


def _only_passed_on(facts: ModuleFacts, call: ast.Call, statement: ast.stmt) -> bool:
    """Whether `statement` only passes on the value of `call`, so that nothing else runs with it."""
    if not isinstance(statement, _SIMPLE):
        return False
    child: ast.AST = call
    while (parent := facts.structure.parents[child]) is not statement:
        if not isinstance(parent, _CONTAINERS):
            return False
        if not all(is_still(part) for part in ast.iter_child_nodes(parent) if part is not child):
            return False
        child = parent
    return all(is_still(part) for part in ast.iter_child_nodes(statement) if part is not child)


def _shortened(node: ast.AST, limit: int = 40) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def own_line(facts: ModuleFacts, statement: ast.stmt) -> tuple[str, tuple[Replace, ...]]:
    """The indentation of `statement`, and the edits that put it on its own line."""
    source = facts.source
    block = _block(facts, statement)
    start = source.span(block[0]).start
    lead = source.data[source.line_start(start) : start]
    colon = source.data.rfind(b":", 0, start)
    follows_colon = colon >= 0 and _BLANKS.fullmatch(source.data, colon + 1, start) is not None
    if not follows_colon or block[0] is not _siblings(facts, statement)[0]:
        indent = lead.decode().replace("\f", "")
        wanted = [pair for pair in itertools.pairwise(block) if statement in pair]
        gaps = [
            Span(source.span(one).end, source.span(two).start) for one, two in wanted if _share_line(source, one, two)
        ]
    else:
        header = facts.structure.parents[statement]
        outer = facts.statement(header)
        indent = facts.indentation(outer) + facts.indent_unit * (2 if isinstance(header, ast.match_case) else 1)
        gaps = [Span(colon + 1, start)]
        gaps += [Span(source.span(one).end, source.span(two).start) for one, two in itertools.pairwise(block)]
    return indent, tuple(Replace(gap, f"{source.newline_at(gap.start)}{indent}") for gap in gaps)


def _block(facts: ModuleFacts, statement: ast.stmt) -> list[ast.stmt]:
    """The statements on the line of `statement` in its block, itself included."""
    statements = _siblings(facts, statement)
    first = last = statements.index(statement)
    while first > 0 and _share_line(facts.source, statements[first - 1], statements[first]):
        first -= 1
    while last + 1 < len(statements) and _share_line(facts.source, statements[last], statements[last + 1]):
        last += 1
    return statements[first : last + 1]


def _siblings(facts: ModuleFacts, statement: ast.stmt) -> list[ast.stmt]:
    """The block of `statement`."""
    parent = facts.structure.parents[statement]
    blocks: list[list[ast.stmt]] = [getattr(parent, name, None) or [] for name in _BLOCKS]
    return next(block for block in blocks if isinstance(block, list) and statement in block)


def _share_line(source: Source, one: ast.stmt, two: ast.stmt) -> bool:
    """Whether only a semicolon is between two statements."""
    return _SEMICOLON.fullmatch(source.data, source.span(one).end, source.span(two).start) is not None
