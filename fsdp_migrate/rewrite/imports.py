"""Imports with more or fewer names."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from fsdp_migrate.edits import EditImport, ImportBehind, MoveImport
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rewrite.blocks import fits
from fsdp_migrate.rewrite.commas import CommaList, Gap
from fsdp_migrate.rewrite.removal import removed
from fsdp_migrate.source import Replacement, Source, Span
from fsdp_migrate.splicing import NEWLINE, RewriteError
from fsdp_migrate.suppressions import is_silencing

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_COMMENT = re.compile(r"#[^\r\n]*")
# The module of a `from ... import`, with what is around it.
_MODULE = re.compile(r"\Afrom([\s\\]+).*?([\s\\]+)import\b", re.DOTALL)
# What is no import of the usual kind, so that a blank line stands between it and one.
_OPENING = re.compile(r"(?!import\b|from\b(?!\s+__future__\b))")
_BLANK = " \t\f"
_CONTINUED = " \t\f\\\r\n"


class _Import(NamedTuple):
    """A statement taken apart: everything before the names, the names, and the closing parenthesis if any."""

    head: str
    names: CommaList
    tail: str


class _Name(NamedTuple):
    """A name of a new import, with the comments on the lines above it and on its own line."""

    text: str
    above: Sequence[str] = ()
    behind: Sequence[str] = ()


class _Layout(NamedTuple):
    """Where a new import stands, and whether it was spread over several lines before."""

    indent: str
    unit: str
    newline: str
    spread: bool = False

    @property
    def line(self) -> str:
        """What starts a line."""
        return self.newline + self.indent

    @property
    def inner(self) -> _Layout:
        """One level deeper."""
        return self._replace(indent=self.indent + self.unit)


def imported(source: Source, edits: Iterable[EditImport | MoveImport | ImportBehind]) -> list[Replacement]:
    """New texts of import statements, those that follow them included.

    A statement that is left without names goes, with its line if it was alone there.
    """
    by_statement: dict[Span, list[EditImport | MoveImport | ImportBehind]] = {}
    for edit in edits:
        by_statement.setdefault(edit.span, []).append(edit)
    found: list[Replacement] = []
    gone: dict[Span, EditImport] = {}
    for span in sorted(by_statement):
        together = by_statement[span]
        moves = [edit for edit in together if isinstance(edit, MoveImport)]
        beside = [edit for edit in together if isinstance(edit, ImportBehind)]
        edit = _united(span, [edit for edit in together if isinstance(edit, EditImport)])
        line = f"{source.newline_at(span.end)}{beside[0].indent}" if beside else ""
        ahead = _beside(source, span, [edit for edit in beside if edit.ahead])
        behind = _beside(source, span, [edit for edit in beside if not edit.ahead])
        if len(beside) < len(together):
            new = _moved(source, moves, edit) if moves else _edited(source, edit)
            if new is None and beside:
                found.append(Replacement(span, line.join([*ahead, *behind])))
                continue
            if new is None:
                gone[span] = edit
            else:
                found.append(new)
        is_first = _OPENING.match(source.segment(span)) is not None
        if ahead:
            gap = 2 * line if is_first else ""
            place = Span(span.start, span.start)
            found.append(Replacement(place, "".join(text + line for text in ahead) + gap, rank=-1))
        if behind:
            gap = line if is_first else ""
            found.append(Replacement(_line_end(source, span.end), gap + "".join(line + text for text in behind)))
    entirely = {span for span, edit in gone.items() if edit.comments}
    return found + removed(source, set(gone), leaving=False, entirely=entirely)


def _beside(source: Source, span: Span, edits: Iterable[ImportBehind]) -> list[str]:
    """The statements in front of an import or behind it, one for a module."""
    by_module: dict[str, list[ImportBehind]] = {}
    for edit in edits:
        by_module.setdefault(edit.module, []).append(edit)
    statements = []
    for module, together in sorted(by_module.items()):
        names = sorted({name for edit in together for name in edit.add}, key=_classes_first)
        layout = _Layout(together[0].indent, together[0].unit, source.newline_at(span.end))
        statements.append(_statement(module, [_Name(name) for name in names], layout))
    return statements


def _edited(source: Source, edit: EditImport) -> Replacement | None:
    text = _new_text(source, edit, _take_apart(source.segment(edit.span)))
    return None if text is None else _with_comment(source, edit.span, text)


def _moved(source: Source, moves: Sequence[MoveImport], edit: EditImport) -> Replacement:
    """An import of which some names come from other modules; those stand in front of what stays.

    A comment goes with its name. One that silences a tool for the whole statement is needed at each of its parts.
    """
    first, span = moves[0], edit.span
    statement = _take_apart(source.segment(span))
    names, going = statement.names, {move.name: move for move in moves}
    layout = _Layout(first.indent, first.unit, source.newline_at(span.end), bool(NEWLINE.search(source.segment(span))))
    before = list(dict.fromkeys(line for move in moves for line in move.before))
    homes = {(move.module, move.fallback) for move in moves}
    if homes == {(first.module, None)} and not edit.add and all(_bound(name) in going for name in names.items):
        names.items[:] = [going[_bound(name)].text or name for name in names.items]
        flat, kept = (
            f"{_MODULE.sub(head, statement.head, count=1)}{names}{statement.tail}"
            for head in (f"from {first.module} import", rf"from\g<1>{first.module}\g<2>import")
        )
        return Replacement(span, layout.line.join([*before, flat if fits(layout.indent + flat) else kept]))
    opening = _COMMENT.findall(names.opening)
    groups: dict[tuple[str, str | None, str | None], list[tuple[MoveImport, _Name]]] = {}
    for name in names.items.copy():
        if (move := going.get(_bound(name))) is not None:
            above, behind = names.take(names.items.index(name))
            taken = _Name(_spelled(_COMMENT.sub("", name)), [*above, *_COMMENT.findall(name)], behind)
            groups.setdefault((move.module, move.fallback, move.test), []).append((move, taken))
    rest = _new_text(source, edit, statement)
    trailing = _comment_behind(source, span)
    behind = [] if trailing is None else [source.segment(trailing)]
    silencing = [comment for comment in dict.fromkeys([*opening, *behind]) if is_silencing(comment)]
    if rest is None:
        left = [comment for comment in _COMMENT.findall(str(names)) if comment not in silencing]
        before = [*left, *before]
    last = [comment for comment in behind if comment not in silencing] if rest is None else []
    # What fails nowhere comes first.
    for number, key in enumerate(ordered := sorted(groups, key=lambda key: key[1] is not None), 1):
        comments = silencing + (last if number == len(ordered) else [])
        before.append(_group(groups[key], comments, silencing, layout))
    if rest is not None or trailing is None:
        trailing = span
    return Replacement(Span(span.start, trailing.end), layout.line.join(before if rest is None else [*before, rest]))


def _group(
    members: Sequence[tuple[MoveImport, _Name]], comments: Sequence[str], silencing: Sequence[str], layout: _Layout
) -> str:
    """The import of some names from their new module; the old one stays beside it where there is a fallback."""
    move = members[0][0]
    new = [name._replace(text=one.text or name.text) for one, name in members]
    if move.fallback is None:
        return _statement(move.module, new, layout, comments)
    old = [
        name._replace(
            above=[comment for comment in name.above if is_silencing(comment)],
            behind=[comment for comment in name.behind if is_silencing(comment)],
        )
        for _, name in members
    ]
    outer, inner = layout.line, layout.inner.line
    first = _statement(move.module, new, layout.inner, comments)
    second = _statement(move.fallback, old, layout.inner, silencing)
    then = "".join(f"{inner}{line}" for one, _ in members for line in one.then)
    if move.test is not None:
        return f"if {move.test}:{inner}{first}{then}{outer}else:{inner}{second}"
    behind = f"{outer}else:{then}" if then else ""
    return f"try:{inner}{first}{outer}except ImportError:{inner}{second}{behind}"


def _statement(module: str, names: Sequence[_Name], layout: _Layout, comments: Sequence[str] = ()) -> str:
    """An import without the indentation of its first line; one name a line where it would be too long.

    Without a module it is a plain `import`. `comments` are those of the whole statement.
    """
    line = f"{f'from {module} ' if module else ''}import {', '.join(name.text for name in names)}"
    own = [name for name in names if name.above or name.behind]
    alone = names[0] if len(names) == 1 else None
    behind = [*(alone.behind if alone else ()), *comments]
    listed = bool(own) or layout.spread if alone is None else len(behind) > 1
    if not module or (fits(layout.indent + line) and not listed):
        above = alone.above if alone else ()
        return layout.line.join([*above, "  ".join([line, *behind])])
    lines = []
    for name in names:
        *further, last = name.behind or ("",)
        lines += [*name.above, *further, f"{name.text},  {last}".rstrip()]
    inner = layout.inner.line
    head = "  ".join([f"from {module} import (", *comments[:1]])
    return f"{head}{inner}{inner.join(lines)}{layout.line}{'  '.join([')', *comments[1:]])}"


def _line_end(source: Source, offset: int) -> Span:
    newline = _NEWLINE.search(source.data, offset)
    end = newline.start() if newline else len(source.data)
    return Span(end, end)


def _comment_behind(source: Source, span: Span) -> Span | None:
    """The comment that follows a statement on its line, nothing else between them."""
    number = bisect_left(source.comments, span.end, key=lambda comment: comment[0].start)
    behind = source.comments[number][0] if number < len(source.comments) else None
    return None if behind is None or source.segment(Span(span.end, behind.start)).strip(_BLANK) else behind


def _with_comment(source: Source, span: Span, text: str) -> Replacement:
    """The new text; a comment behind a statement that takes more lines now goes to its first, where tools look."""
    newline = NEWLINE.search(text)
    behind = _comment_behind(source, span)
    if newline is None or NEWLINE.search(source.segment(span)) or behind is None:
        return Replacement(span, text)
    first = f"{text[: newline.start()]}  {source.segment(behind)}"
    return Replacement(Span(span.start, behind.end), first + text[newline.start() :])


def _united(span: Span, edits: Sequence[EditImport]) -> EditImport:
    """All edits of a statement as one."""
    add = tuple(dict.fromkeys(name for edit in edits for name in edit.add))
    remove = tuple(dict.fromkeys(name for edit in edits for name in edit.remove))
    instead = tuple(dict.fromkeys(pair for edit in edits for pair in edit.instead))
    comments = tuple(text for edit in edits for text in edit.comments)
    return EditImport(span, add, remove, edits[0].unit if edits else "", instead, comments)


def _new_text(source: Source, edit: EditImport, statement: _Import) -> str | None:
    """The statement after `edit`, None if no name is left."""
    text, names = source.segment(edit.span), statement.names
    instead = {**{_bound(name): name for name in edit.add if _bound(name) in edit.remove}, **dict(edit.instead)}
    names.items[:] = [instead.get(_bound(name), name) for name in names.items]
    going = [name for name in names.items if _bound(name) in edit.remove and name not in instead.values()]
    new = [name for name in edit.add if name not in map(_spelled, names.items)]
    if len(going) == len(names.items) and not new:
        return None
    for index, name in _places(names.items, new):
        names.insert(index, name)
    for name in going:
        index = names.items.index(name)
        if edit.comments:
            names.forget(index)
        names.remove(index)
    multi_line = NEWLINE.search(text) is not None
    result = f"{statement.head}{names}{statement.tail}"
    if multi_line and not statement.tail:  # by backslashes
        result = f"{statement.head.rstrip(_CONTINUED)} {', '.join(names.items)}"
    elif multi_line or not new:
        return result
    line = source.data[source.line_start(edit.span.start) : edit.span.start].decode()
    return result if fits(line + result) else _exploded(statement, line, edit.unit, source.newline_at(edit.span.end))


def _take_apart(text: str) -> _Import:
    statement = _taken_apart(text)
    return statement._replace(names=statement.names.copy())


@lru_cache(maxsize=256)
def _taken_apart(text: str) -> _Import:
    """The same statement is often written in many files; what is remembered is not to be changed."""
    import libcst as cst  # takes longer than anything else here; new statements and moved modules do without

    newline = NEWLINE.search(text)
    code = cst.Module([], default_newline=newline.group() if newline else "\n").code_for_node
    try:
        parsed = cst.parse_module(text).body[0]
    except cst.ParserSyntaxError as error:
        raise RewriteError(f"cannot read the import again: {error.message}") from None
    statement = parsed.body[0] if isinstance(parsed, cst.SimpleStatementLine) else None
    if not isinstance(statement, (cst.Import, cst.ImportFrom)) or isinstance(statement.names, cst.ImportStar):
        raise RewriteError("an import with names was expected")
    lpar, rpar = (statement.lpar, statement.rpar) if isinstance(statement, cst.ImportFrom) else (None, None)
    names = CommaList(code(lpar.whitespace_after) if lpar else "")
    for alias in statement.names:
        names.items.append(code(alias.with_changes(comma=cst.MaybeSentinel.DEFAULT)))
        if isinstance(alias.comma, cst.Comma):
            gap = Gap(code(alias.comma.whitespace_before), True, code(alias.comma.whitespace_after))
        else:
            gap = Gap(comma=False)
        names.gaps.append(gap)
    if rpar is not None:
        names.gaps[-1] = _closing(names.gaps[-1], code(rpar.whitespace_before))
    tail = ")" if rpar else ""
    head = text[: len(text) - len(str(names)) - len(tail)]
    if f"{head}{names}{tail}" != text:
        raise RewriteError("an import does not print as it was written")
    return _Import(head, names, tail)


def _closing(gap: Gap, space: str) -> Gap:
    return Gap(gap.before, True, gap.after + space) if gap.comma else Gap(gap.before + space, False)


def _exploded(statement: _Import, line: str, unit: str, newline: str) -> str:
    """One name a line, in parentheses."""
    indent = line[: len(line) - len(line.lstrip(_BLANK))].rpartition("\f")[2]
    names = "".join(f"{newline}{indent}{unit}{name}," for name in statement.names.items)
    head = statement.head if statement.tail else statement.head.rstrip(_CONTINUED) + " ("
    return f"{head}{names}{newline}{indent})"


def _classes_first(name: str) -> tuple[bool, str]:
    """What sorts names as isort does."""
    return name[0].islower(), _imported(name).lower()


def _imported(name: str) -> str:
    return name.split()[0]


def _bound(name: str) -> str:
    return name.split()[-1]


def _spelled(name: str) -> str:
    return " ".join(name.split())


def _places(existing: list[str], new: list[str]) -> list[tuple[int, str]]:
    """Where the new names go, in the order of insertion."""
    names = [_imported(name) for name in existing]
    for order in (str.lower, str):
        keys = [order(name) for name in names]
        if keys == sorted(keys):
            return _sorted_places(keys, new, order)
    ordered = sorted(new, key=lambda name: _imported(name).lower())
    return list(enumerate(ordered, len(names)))


def _sorted_places(keys: list[str], new: list[str], order: Callable[[str], str]) -> list[tuple[int, str]]:
    places = []
    for name in sorted(new, key=lambda n: order(_imported(n))):
        key = order(_imported(name))
        index = bisect_right(keys, key)
        keys.insert(index, key)
        places.append((index, name))
    return places
