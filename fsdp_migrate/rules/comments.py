"""Which comments a rewritten call would lose."""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import Bound, ordered_arguments
from fsdp_migrate.source import Span


def loses_comment(facts: ModuleFacts, call: ast.Call, dropped: Bound) -> bool:
    """Whether a comment inside the dropped argument, or behind it up to the next one, would go with it."""
    source = facts.source
    following = ordered_arguments(call)[dropped.index + 1 :]
    end = source.span(following[0]).start if following else source.span(call).end
    return source.has_comment(Span(source.span(dropped.value).start, end))
