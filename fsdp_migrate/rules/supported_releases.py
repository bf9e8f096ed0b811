"""Which of the supported releases get to a place, held against the oldest one that a rewrite there is good for.

Code behind the file's own version check runs on fewer releases than the project supports.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from packaging.version import Version

from fsdp_migrate.edits import Replace, touched
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.torch_api.words import span_of

if TYPE_CHECKING:
    from fsdp_migrate.edits import Edit
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.source import Span


def newest(facts: ModuleFacts, node: ast.AST) -> Version:
    """The newest release that gets to `node`."""
    return max(facts.gates.alive(node), default=facts.torch.newest)


def older(facts: ModuleFacts, floor: Version, node: ast.AST) -> tuple[Version, ...]:
    """The releases before `floor` that get to `node`."""
    return tuple(release for release in facts.gates.alive(node) if release < floor)


def is_only_for_older(facts: ModuleFacts, node: ast.AST, floor: Version) -> bool:
    """Whether a version check lets only releases before `floor` get to `node`."""
    alive = facts.gates.alive(node)
    return bool(alive) and max(alive) < floor and len(alive) < len(facts.torch.releases)


def only_older(facts: ModuleFacts, node: ast.AST, since: str) -> bool:
    """Whether only releases before `since` run `node`, in a range that has newer ones too, or none does."""
    alive = facts.gates.alive(node)
    return not alive or (len(alive) < len(facts.torch.releases) and max(alive) < Version(since))


def supported(facts: ModuleFacts) -> str:
    """Which releases the project supports, in words, with the place that states it where there is one."""
    return str(facts.torch.stated) if facts.torch.stated is not None else f"torch{facts.torch} is supported"


def too_old(facts: ModuleFacts, floor: Version, node: ast.AST, edits: Iterable[Edit]) -> str | None:
    """Why `edits` for `node` are not right on all releases that run what they change, None when they are."""
    needs = f"the replacement needs torch>={floor}"
    if facts.gates.alive(node).issuperset(facts.torch.releases):
        return f"{needs}, but {supported(facts)}"
    if early := older(facts, floor, node):
        runs = "only runs" if is_only_for_older(facts, node, floor) else "also runs"
        return f"{needs}, but this code {runs} on torch {span_of(early)}"
    for span in changed(facts, edits):
        if early := older(facts, floor, around(facts, span)):
            line = facts.source.location(span.start).line
            return f"{needs}, but the fix also changes line {line}, which runs on torch {span_of(early)}"
    return None


def range_from(facts: ModuleFacts, floor: Version, node: ast.AST) -> TorchRange | None:
    """The supported range from `floor` on, None if none of its releases gets to `node`."""
    if not any(release >= floor for release in facts.gates.alive(node)):
        return None
    upper = [part.strip() for part in str(facts.torch).split(",") if not part.strip().startswith(">")]
    return TorchRange(",".join([f">={floor}", *upper]))


def changed(facts: ModuleFacts, edits: Iterable[Edit]) -> Iterator[Span]:
    """Where `edits` change more than blanks between statements."""
    for edit in edits:
        if not (isinstance(edit, Replace) and _is_about_blanks(facts, edit)):
            yield from touched(edit)


def _is_about_blanks(facts: ModuleFacts, edit: Replace) -> bool:
    return not edit.text.strip() and not facts.source.segment(edit.span).strip(" ;\t\f\\\r\n")


def around(facts: ModuleFacts, span: Span) -> ast.AST:
    """The smallest part of the program that holds `span`."""
    node: ast.AST = facts.source.tree
    body, starts = facts.source.tree.body, facts.memo(around, lambda: _starts(facts))
    above = bisect_right(starts, span.start) - 1
    if above >= 0 and _holds(facts, body[above], span):
        node = body[above]
    while (inner := next((part for part in _parts(node) if _holds(facts, part, span)), None)) is not None:
        node = inner
    return node


def _starts(facts: ModuleFacts) -> list[int]:
    """Where the statements of the module start, those with decorators at what is decorated."""
    return [facts.source.span(statement).start for statement in facts.source.tree.body]


def _holds(facts: ModuleFacts, node: ast.AST, span: Span) -> bool:
    start, end = facts.source.span(node)
    return start <= span.start and span.end <= end


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that have a place of their own; decorators stand in front of what they decorate."""
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno"):
            yield child
            yield from getattr(child, "decorator_list", ())
        else:
            yield from _parts(child)
