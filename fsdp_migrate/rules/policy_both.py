"""Wrap policies that FSDP can call by either name of their parameter, for projects that support torch 1.x too."""

from __future__ import annotations

import ast

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Fix
from fsdp_migrate.rules.card import Verdict
from fsdp_migrate.rules.moved_modules import has_own_lines
from fsdp_migrate.source import Span


def takes_both(
    facts: ModuleFacts, function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, argument: ast.arg, new: str
) -> Verdict | None:
    """The function with a second optional parameter, `new`, whose value the old one takes over.

    None where it cannot be written: parameters without a default follow, or a lambda reads the old one.
    """
    arguments = function.args
    if arguments.args[-1:] != [argument] or arguments.defaults or arguments.vararg is not None:
        return None
    equals = " = None" if argument.annotation is not None else "=None"
    annotation = "" if argument.annotation is None else f": {facts.source.segment(argument.annotation)}"
    end = facts.source.span(argument).end
    edits = [Replace(Span(end, end), f"{equals}, {new}{annotation}{equals}")]
    if any(isinstance(node, ast.Name) and node.id == argument.arg for node in ast.walk(function)):
        first = None if isinstance(function, ast.Lambda) else _first(function)
        if first is None or not has_own_lines(facts, first):
            return None
        indent, at = facts.indentation(first), facts.source.span(first).start
        taken_over = f"if {argument.arg} is None:\n{indent}{facts.indent_unit}{argument.arg} = {new}\n{indent}"
        edits.append(Replace(Span(at, at), taken_over))
    return Verdict(Fix(tuple(edits)), below_floor=True)


def _first(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt | None:
    """The first statement behind the docstring."""
    body = function.body
    is_docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return next(iter(body[1:] if is_docstring else body), None)
