"""Arguments that a rewritten call goes without, and the comments that would go with them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import Bound, ordered_arguments
from fsdp_migrate.findings import Fix
from fsdp_migrate.rules.card import Verdict, manual
from fsdp_migrate.source import Span


def without(facts: ModuleFacts, call: ast.Call, dropped: Bound, parameters: Sequence[str] = ()) -> Verdict:
    """The call without one of its arguments, unless a comment belongs to that.

    Where `parameters` are given, positions behind it become keywords; else each moves up by one.
    """
    if loses_comment(facts, call, dropped):
        return manual("a comment stands at the argument: move it out, or drop the argument by hand")
    kept = []
    for index, argument in enumerate(ordered_arguments(call)):
        keyword = argument.arg if isinstance(argument, ast.keyword) else None
        if keyword is None and parameters and index > dropped.index:
            keyword = parameters[index]
        if index != dropped.index:
            kept.append(Argument(keyword, index))
    return Verdict(Fix((RewriteCall(facts.source.span(call), None, tuple(kept)),)))


def loses_comment(facts: ModuleFacts, call: ast.Call, dropped: Bound) -> bool:
    """Whether a comment inside the dropped argument, or behind it up to the next one, would go with it."""
    source = facts.source
    arguments = ordered_arguments(call)
    argument = arguments[dropped.index]
    start = source.span(argument).start
    before = source.span(arguments[dropped.index - 1] if dropped.index else call.func).end
    if not dropped.index:
        before = source.data.find(b"(", before, start) + 1  # that of the call
    # Parentheses around an argument are not part of its span.
    opening = source.data.find(b"(", before, start)
    start = opening if opening >= 0 else start
    end = (
        source.span(arguments[dropped.index + 1]).start if dropped.index + 1 < len(arguments) else source.span(call).end
    )
    return source.has_comment(Span(start, end))
