"""Findings of what a run called and the source does not show."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fsdp_migrate.facts.distributed import DISTRIBUTED, uses_distributed
from fsdp_migrate.findings import Finding
from fsdp_migrate.rules.card import RuleCard, finding, manual
from fsdp_migrate.trace.apis import Watched, apis
from fsdp_migrate.trace.seen import is_at

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.rules.entry import Entry
    from fsdp_migrate.trace.records import Call
    from fsdp_migrate.trace.seen import Seen

_MOST_RANKS = 4


def unseen(facts: ModuleFacts, rules: Iterable[Entry], found: Sequence[Finding], seen: Seen) -> Iterator[Finding]:
    """A finding for each call of the run that the rules speak of, and of which none of those `found` tells."""
    codes = {entry.code: entry for entry in rules}
    for call in seen.calls:
        watched = next((one for one in apis().get(call.api, ()) if _concerns(one, call)), None)
        entry = None if watched is None else codes.get(watched.rule.card.code)
        node = None if entry is None else _node(facts, call)
        if watched is None or entry is None or node is None or not facts.reached(node):
            continue
        if entry.is_neighbour and not (call.api.startswith(f"{DISTRIBUTED}.") or uses_distributed(facts)):
            continue
        if call.by is not None or not _is_told(facts, node, call, watched.rule.card.code, found):
            yield _finding(facts, node, call, watched.rule.card)


def _concerns(watched: Watched, call: Call) -> bool:
    """Whether a call is a place of the rule, by the arguments that it gives."""
    wanted = watched.traced
    return (wanted.given is None or wanted.given in call.given) and wanted.missing not in call.given


def _node(facts: ModuleFacts, call: Call) -> ast.expr | ast.stmt | None:
    """The call in the text, else the innermost statement at its line."""
    assert call.place is not None
    line = call.place.line
    if call.by is None:
        exact = next((node for node in facts.structure.calls if is_at(call, node)), None)
        if exact is not None:
            return exact
    nodes = (node for node in ast.walk(facts.source.tree) if isinstance(node, ast.stmt))
    around = [node for node in nodes if node.lineno <= line <= (node.end_lineno or node.lineno)]
    return max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)


def _is_told(facts: ModuleFacts, node: ast.expr | ast.stmt, call: Call, code: str, found: Sequence[Finding]) -> bool:
    """Whether the source shows what is called: a finding says so, or torch's own name, which the rule has judged."""
    name = call.api.rpartition(".")[2]
    parts = [node.func] if isinstance(node, ast.Call) else list(_read_in(facts, facts.statement(node)))
    named = (facts.names.qualified(part) or "" for part in parts)
    if any(path.startswith("torch.") and path.rpartition(".")[2] == name for path in named):
        return True
    values = (facts.names.definition(part) for part in parts if isinstance(part, ast.Name))
    places = [node, *(value for value in values if value is not None)]
    headers = {facts.header(facts.statement(place)) for place in places}
    return any(one.code == code and one.statement in headers for one in found)


def _read_in(facts: ModuleFacts, statement: ast.stmt) -> Iterator[ast.expr]:
    """The names and attributes in the first lines of a statement."""
    end = facts.header(statement).end
    for node in ast.walk(statement):
        if isinstance(node, (ast.Name, ast.Attribute)) and facts.source.span(node).start < end:
            yield node


def _finding(facts: ModuleFacts, node: ast.expr | ast.stmt, call: Call, card: RuleCard) -> Finding:
    named = ".".join(call.api.split(".")[-2:])
    since = f"it is deprecated since torch {card.deprecated}" if card.deprecated else card.summary
    if call.by is None:
        message = f"a run called `{named}` here ({_how_often(call)}), which the source does not show: {since}"
        advice = "call it here by its name, which can be rewritten, or change what chooses it"
    else:
        message = f"a run called `{named}` from here, through {call.by} ({_how_often(call)}): {since}"
        advice = "it is that library's call: use a release of it without, or another way"
    return finding(facts, card, node, facts.statement(node), message, manual(advice))._replace(by_run=True)


def _how_often(call: Call) -> str:
    times = "once" if call.times == 1 else f"{call.times} times"
    if not call.ranks:
        return times
    shown = ", ".join(map(str, call.ranks[:_MOST_RANKS])) + (", ..." if len(call.ranks) > _MOST_RANKS else "")
    return f"{times}, rank{'s' if len(call.ranks) > 1 else ''} {shown}"
