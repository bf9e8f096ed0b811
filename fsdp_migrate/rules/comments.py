"""Which comments a rewritten call would lose."""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import Bound, ordered_arguments
from fsdp_migrate.source import Span


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
