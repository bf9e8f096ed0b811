"""Removes arguments from calls, with their comments."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import Bound, ordered_arguments
from fsdp_migrate.findings import Fix
from fsdp_migrate.rules.card import Verdict
from fsdp_migrate.source import Span


def without(facts: ModuleFacts, call: ast.Call, dropped: Bound, parameters: Sequence[str] = ()) -> Verdict:
    """The call without one of its arguments.

    If `parameters` are given, later positions become keywords; otherwise each moves up by one.
    """
    kept = []
    for index, argument in enumerate(ordered_arguments(call)):
        keyword = argument.arg if isinstance(argument, ast.keyword) else None
        if keyword is None and parameters and index > dropped.index:
            keyword = parameters[index]
        if index != dropped.index:
            kept.append(Argument(keyword, index))
    note = kept_comment(facts, call, dropped)
    return Verdict(Fix((RewriteCall(facts.source.span(call), None, tuple(kept)),)), note=note)


def kept_comment(facts: ModuleFacts, call: ast.Call, dropped: Bound) -> str | None:
    """The reason about a comment in a removed argument, or after it on its line; None without one."""
    source, arguments = facts.source, ordered_arguments(call)
    argument = arguments[dropped.index]
    following = arguments[dropped.index + 1] if dropped.index + 1 < len(arguments) else None
    end = source.span(call).end if following is None else source.span(following).start
    line_end = source.data.find(b"\n", source.span(argument).end, end)
    if not source.has_comment(Span(source.span(argument).start, end if line_end < 0 else line_end)):
        return None
    name = argument.arg if isinstance(argument, ast.keyword) else ast.unparse(argument)
    return f"the comment at `{name}` stays in the call"
