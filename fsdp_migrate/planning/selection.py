"""Chooses the fixes that one pass applies."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fsdp_migrate.edits import (
    Edit,
    EditComment,
    EditImport,
    Hoist,
    ImportBehind,
    ImportBinding,
    MoveImport,
    RemoveStatement,
    Replace,
    Wrap,
    texts_of,
    touched,
)
from fsdp_migrate.findings import Applicability, Finding, Fix
from fsdp_migrate.source import Source, Span
from fsdp_migrate.suppressions import is_silencing

_OF_IMPORTS = (EditImport, ImportBehind, MoveImport)
_WORD = re.compile(r"(?<![\w.])[^\W\d]\w*")
_STRETCH = 64  # bytes, about a line


def selected(findings: Iterable[Finding], unsafe_fixes: bool) -> list[Finding]:
    """The findings to fix in this pass. Of fixes that touch the same text, the outer or earlier one goes first.

    Removals of comments go first and alone: a needless comment must not block a fix, or keep an unused import.
    """
    wanted = {Applicability.SAFE, Applicability.UNSAFE} if unsafe_fixes else {Applicability.SAFE}
    fixable = [(f, f.fix) for f in findings if f.fix is not None and f.fix.edits and f.applicability in wanted]
    of_comments = [pair for pair in fixable if all(isinstance(edit, EditComment) for edit in pair[1].edits)]
    return _without_early(_compatible(of_comments or fixable))


def _compatible(fixable: Sequence[tuple[Finding, Fix]]) -> list[Finding]:
    """The findings whose fixes can be applied together.

    A fix that imports a name in front of a statement waits for one that adds the name to an import, so that it can use
    it. Otherwise the local import would shadow what the other fix writes in the same function.
    """
    chosen: list[Finding] = []
    claims = Claims()
    joining = {name for _, fix in fixable for edit in fix.edits for name in _joins(edit)}
    for finding, fix in sorted(fixable, key=lambda pair: _place(pair[1])):
        waits = any(not joining.isdisjoint(_imports_in_front(edit)) for edit in fix.edits)
        if not waits and not any(map(claims.oppose, fix.edits)):
            chosen.append(finding)
            claims.add(fix.edits)
    return chosen


def _without_early(chosen: list[Finding]) -> list[Finding]:
    """The findings without those that have to wait for the next pass.

    They leave a name unused in an import that another fix rewrites. In one pass the name would stay.
    """
    fixes = [finding.fix for finding in chosen if finding.fix is not None]
    unused = _unused(fixes)
    claims = _claims(fixes, unused)
    early: set[ImportBinding] = set()
    for binding in unused:
        if binding.then is None and claims.oppose(removal := EditImport(binding.statement, remove=(binding.name,))):
            rest = [fix for fix in fixes if binding not in _losing_uses(fix)]
            if _claims(rest, unused).oppose(removal):
                early.add(binding)
    return [f for f in chosen if f.fix is None or early.isdisjoint(_losing_uses(f.fix))]


def _losing_uses(fix: Fix) -> set[ImportBinding]:
    """The bindings of which a fix removes uses, also through an assignment that becomes unused."""
    waiting, found = [use.binding for use in fix.removed_uses], set[ImportBinding]()
    while waiting:
        if (binding := waiting.pop()) not in found:
            found.add(binding)
            waiting.extend(use.binding for use in binding.then or ())
    return found


def _joins(edit: Edit) -> set[str]:
    """The names that an edit adds to an import, or behind one."""
    return _bound(edit.add) if isinstance(edit, (EditImport, ImportBehind)) else set()


def _imports_in_front(edit: Edit) -> set[str]:
    """The names that an edit imports in front of its statement."""
    lines = edit.prologue if isinstance(edit, (Wrap, Hoist)) else ()
    parts = (line.partition(" import ")[2].split(", ") for line in lines if line.startswith("from "))
    return {name for part in parts for name in _bound(part)}


def _bound(imported: Iterable[str]) -> set[str]:
    """The names that `NAME` and `NAME as OTHER` bind."""
    return {name.rpartition(" as ")[2] for name in imported}


class Claims:
    """Edits by the stretch of text that they touch, because only neighbours can conflict."""

    def __init__(self, edits: Iterable[Edit] = ()) -> None:
        self._edits: defaultdict[int, dict[Edit, None]] = defaultdict(dict)
        self.add(edits)

    def add(self, edits: Iterable[Edit]) -> None:
        """Add edits, equal ones once."""
        for edit in edits:
            for stretch in _stretches(edit):
                self._edits[stretch][edit] = None

    def oppose(self, edit: Edit) -> bool:
        """Whether an edit conflicts with one of these."""
        return any(conflict(edit, other) for stretch in _stretches(edit) for other in self._edits.get(stretch, ()))


def _stretches(edit: Edit) -> Iterator[int]:
    for span in touched(edit):
        yield from range(span.start // _STRETCH, span.end // _STRETCH + 1)


def _place(fix: Fix) -> tuple[int, int]:
    """A sort key: the earlier fix first, and of two that start together the outer one."""
    body = [edit for edit in fix.edits if not isinstance(edit, _OF_IMPORTS)]
    spans = [span for edit in body or fix.edits for span in touched(edit)]
    return min(span.start for span in spans), -max(span.end for span in spans)


def conflict(one: Edit, two: Edit) -> bool:
    """Whether two edits cannot be made together."""
    if one == two:
        return False
    if isinstance(one, _OF_IMPORTS) and isinstance(two, _OF_IMPORTS) and one.span == two.span:
        return not _moves(one).isdisjoint(_goes(two)) or not _moves(two).isdisjoint(_goes(one))
    if isinstance(one, Hoist) and isinstance(two, Hoist) and one.at == two.at:
        return one.name == two.name or one.call.span.overlaps(two.call.span)
    if isinstance(one, Wrap) and isinstance(two, Wrap) and one.span == two.span:
        same = (one.header, one.indent, one.unit, one.prologue) == (two.header, two.indent, two.unit, two.prologue)
        return not same or any(conflict(inner, other) for inner in one.inner for other in two.inner)
    if isinstance(one, Replace) and isinstance(two, Replace) and one.span == two.span:
        return True
    return any(span.overlaps(other) for span in touched(one) for other in touched(two))


def _moves(edit: Edit) -> set[str]:
    """The name that an edit imports from another place."""
    return {edit.name} if isinstance(edit, MoveImport) else set()


def _goes(edit: Edit) -> set[str]:
    """The names that an edit removes from an import."""
    return set(edit.remove) if isinstance(edit, EditImport) else _moves(edit)


def edits_of(source: Source, fixes: Iterable[Fix]) -> list[Edit]:
    """The edits of a pass: those of the fixes, and the removal of imports that become unused."""
    fixes = list(fixes)
    removals = unused_bindings(source, fixes)
    gone = {(one.span, name) for one in removals if isinstance(one, EditImport) for name in one.remove}
    needed = [fix for fix in fixes if not _is_needless(fix, gone)]
    return _imported_once(source, [*(edit for fix in needed for edit in fix.edits), *removals])


def _imported_once(source: Source, edits: list[Edit]) -> list[Edit]:
    """The edits, with each name added by one import only: the first at the top level."""
    adding = [edit for edit in edits if isinstance(edit, (EditImport, ImportBehind)) and edit.add]
    if len({edit.span for edit in adding}) < 2:
        return edits
    top = {source.span(node) for node in source.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))}
    adding = sorted((edit for edit in adding if edit.span in top), key=lambda edit: edit.span)
    first: dict[str, Span] = {}
    for edit in adding:
        first.update((name, edit.span) for name in edit.add if name not in first)
    at_top = frozenset(adding)
    slimmed = (_slimmed(edit, first) if edit in at_top else edit for edit in edits)
    return [edit for edit in slimmed if edit is not None]


def _slimmed(edit: Edit, first: Mapping[str, Span]) -> Edit | None:
    """An import edit without the names that another edit adds, None if nothing is left."""
    if not isinstance(edit, (EditImport, ImportBehind)):
        return edit
    add = tuple(name for name in edit.add if first[name] == edit.span)
    return edit._replace(add=add) if add or (isinstance(edit, EditImport) and edit.remove) else None


def _is_needless(fix: Fix, gone: set[tuple[Span, str]]) -> bool:
    """Whether a fix only updates names that are removed anyway."""
    return bool(fix.moves) and gone.issuperset(fix.moves)


def unused_bindings(source: Source, fixes: Iterable[Fix]) -> list[EditImport | RemoveStatement]:
    """Removals of imports, and of assignments without effect, whose last uses these fixes remove.

    A name stays if its comment would be left behind, or if a fix edits its statement or uses the name.
    """
    fixes = list(fixes)
    unused = _unused(fixes)
    names: dict[Span, list[str]] = {}
    for binding in unused:
        if binding.then is None:
            names.setdefault(binding.statement, []).append(binding.name)
    imports = [EditImport(span, remove=tuple(sorted(bound))) for span, bound in sorted(names.items())]
    statements = [RemoveStatement(binding.statement) for binding in unused if binding.then is not None]
    claims = _claims(fixes, unused)
    free = [removal for removal in imports if not claims.oppose(removal)]
    return [*(_without_comments(source, free, _successors(fixes)) if free else []), *statements]


def _unused(fixes: Sequence[Fix]) -> list[ImportBinding]:
    """The bindings that are unused after the fixes, with those that were only used by them."""
    removed: dict[ImportBinding, set[Span]] = {}
    waiting = [use for fix in fixes for use in fix.removed_uses]
    if not waiting:
        return []
    words = {word for fix in fixes for edit in fix.edits for text in texts_of(edit) for word in _WORD.findall(text)}
    claims = Claims(edit for fix in fixes for edit in fix.edits)
    unused: dict[ImportBinding, None] = {}
    while waiting:
        for use in waiting:
            removed.setdefault(use.binding, set()).add(use.span)
        new = [
            binding
            for binding, spans in removed.items()
            if binding not in unused and binding.removable and spans.issuperset(binding.uses)
            if binding.name not in words
            if binding.then is None or not claims.oppose(RemoveStatement(binding.statement))
        ]
        unused.update(dict.fromkeys(new))
        waiting = [use for binding in new for use in binding.then or ()]
    return list(unused)


def _claims(fixes: Iterable[Fix], unused: Iterable[ImportBinding]) -> Claims:
    """The edits of the fixes, as claims on text."""
    gone = {(binding.statement, binding.name) for binding in unused}
    return Claims(edit for fix in fixes if not _is_needless(fix, gone) for edit in fix.edits)


def _successors(fixes: Iterable[Fix]) -> dict[tuple[Span, str], str]:
    """The names that fixes add to an import instead of a name that becomes unused."""
    found = {}
    for fix in fixes:
        added = {edit.span: edit.add for edit in fix.edits if isinstance(edit, EditImport) and len(edit.add) == 1}
        for use in fix.removed_uses:
            if use.binding.uses and (names := added.get(use.binding.statement)) is not None:
                found[use.binding.statement, use.binding.name] = names[0]
    return found


def _without_comments(
    source: Source, removals: Iterable[EditImport], successors: Mapping[tuple[Span, str], str]
) -> list[EditImport]:
    """The removals, with the comments of the names.

    The comment of a name goes to its successor, or is removed with it. A name stays if its comment silences a tool. All
    names stay if a comment that belongs to none of them would be left.
    """
    imports = {
        source.span(node): node for node in ast.walk(source.tree) if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    found = []
    for removal in removals:
        node = imports[removal.span]
        behind, is_of_names = _comments_behind(source, node)
        commented = [name for name in removal.remove if name in behind]
        joined = {name: new for name in removal.remove if (new := successors.get((removal.span, name))) is not None}
        heirs = {joined[name]: name for name in reversed(commented) if name in joined}  # one for each
        rest = [name for name in removal.remove if not any(map(is_silencing, behind.get(name, ())))]
        if joined:  # the statement stays
            rest = [name for name in rest if name not in commented]
        elif len(rest) == len(node.names) and not is_of_names:
            rest = []
        gone = tuple(text for name in rest for text in behind.get(name, ()))
        if heirs or rest:
            instead = tuple((name, new) for new, name in heirs.items())
            found.append(removal._replace(remove=tuple(rest), instead=instead, comments=gone))
    return found


def _comments_behind(source: Source, node: ast.Import | ast.ImportFrom) -> tuple[dict[str, list[str]], bool]:
    """The comments after the names of an import by line, and whether the statement has no other comments."""
    last = {alias.end_lineno: alias.asname or alias.name for alias in node.names}
    is_spread = node.end_lineno != node.lineno
    found: dict[str, list[str]] = {}
    whole = source.span(node)
    is_complete = True
    for span, text in source.comments:
        row = source.position(span.start).line
        if node.lineno <= row <= (node.end_lineno or node.lineno):
            name = last.get(row) if is_spread and whole.contains(span) else None
            is_complete = is_complete and name is not None
            if name is not None:
                found.setdefault(name, []).append(text)
    return found, is_complete
