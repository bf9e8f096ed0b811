"""Imports with more or fewer names."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from fsdp_migrate.edits import EditImport, ImportBehind, MoveImport
from fsdp_migrate.rewrite.blocks import fits
from fsdp_migrate.rewrite.commas import CommaList, Gap
from fsdp_migrate.rewrite.removal import removed
from fsdp_migrate.source import Replacement, Source, Span
from fsdp_migrate.splicing import NEWLINE, RewriteError

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_BLANK = " \t\f"
_CONTINUED = " \t\f\\\r\n"


class _Import(NamedTuple):
    """A statement taken apart: everything before the names, the names, and the closing parenthesis if any."""

    head: str
    names: CommaList
    tail: str


def edited(source: Source, edits: Iterable[EditImport], behind: Iterable[ImportBehind]) -> list[Replacement]:
    """New texts of import statements, and new statements on the lines behind them.

    A statement that is left without names goes, with its line if it was alone there.
    """
    texts = {edit.span: _new_text(source, edit) for edit in _united(edits)}
    replacements = [_with_comment(source, span, text) for span, text in texts.items() if text is not None]
    gone = {span for span, text in texts.items() if text is None}
    added = _added_behind(source, behind)
    taking = {span for span, _ in added} & gone
    replacements += [Replacement(span, one.text.lstrip(_CONTINUED)) if span in taking else one for span, one in added]
    return replacements + removed(source, gone - taking)


def _added_behind(source: Source, edits: Iterable[ImportBehind]) -> list[tuple[Span, Replacement]]:
    """New import statements on the lines behind others, with the places of these."""
    united: dict[tuple[Span, str], list[ImportBehind]] = {}
    for edit in edits:
        united.setdefault((edit.span, edit.module), []).append(edit)
    found = []
    for rank, ((span, module), together) in enumerate(sorted(united.items())):
        names = sorted({name for edit in together for name in edit.add}, key=lambda name: _imported(name).lower())
        indent, newline = together[0].indent, source.newline_at(span.end)
        line = indent + _import_line(module, names, indent, together[0].unit, newline)
        found.append((span, Replacement(_line_end(source, span.end), newline + line, rank)))
    return found


def moved(source: Source, edits: Iterable[MoveImport]) -> list[Replacement]:
    """Imports of which some names come from other modules; those in front of what stays."""
    united: dict[Span, list[MoveImport]] = {}
    for edit in edits:
        united.setdefault(edit.span, []).append(edit)
    return [Replacement(span, _moved(source, united[span])) for span in sorted(united)]


def _moved(source: Source, edits: list[MoveImport]) -> str:
    first, text = edits[0], source.segment(edits[0].span)
    newline = source.newline_at(first.span.end)
    going = {edit.name: edit.module for edit in edits}
    names = _take_apart(text).names.items
    lines = list(dict.fromkeys(line for edit in edits for line in edit.before))
    modules = sorted(set(going.values()))
    if len(modules) == 1 and all(_bound(name) in going for name in names):
        lines.append(f"from {modules[0]}{text[text.index(' import') :]}")
    else:
        for module in modules:
            taken = [_spelled(name) for name in names if going.get(_bound(name)) == module]
            lines.append(_import_line(module, taken, first.indent, first.unit, newline))
        rest = _new_text(source, EditImport(first.span, remove=tuple(going), unit=first.unit))
        lines += [] if rest is None else [rest]
    return f"{newline}{first.indent}".join(lines)


def _import_line(module: str, names: Sequence[str], indent: str, unit: str, newline: str) -> str:
    """An import without the indentation of its first line; one name a line where it would be too long."""
    line = f"from {module} import {', '.join(names)}"
    if fits(indent + line):
        return line
    each = "".join(f"{newline}{indent}{unit}{name}," for name in names)
    return f"from {module} import ({each}{newline}{indent})"


def _line_end(source: Source, offset: int) -> Span:
    newline = _NEWLINE.search(source.data, offset)
    end = newline.start() if newline else len(source.data)
    return Span(end, end)


def _with_comment(source: Source, span: Span, text: str) -> Replacement:
    """The new text; a comment behind a statement that takes more lines now goes to its first, where tools look."""
    newline = NEWLINE.search(text)
    number = bisect_left(source.comments, span.end, key=lambda comment: comment[0].start)
    behind = source.comments[number][0] if number < len(source.comments) else None
    if newline is None or NEWLINE.search(source.segment(span)) or behind is None:
        return Replacement(span, text)
    if source.segment(Span(span.end, behind.start)).strip(_BLANK):
        return Replacement(span, text)
    first = f"{text[: newline.start()]}  {source.segment(behind)}"
    return Replacement(Span(span.start, behind.end), first + text[newline.start() :])


def _united(edits: Iterable[EditImport]) -> list[EditImport]:
    """One edit per statement."""
    by_statement: dict[Span, EditImport] = {}
    for edit in edits:
        first = by_statement.get(edit.span, edit)
        add = tuple(dict.fromkeys((*first.add, *edit.add)))
        remove = tuple(dict.fromkeys((*first.remove, *edit.remove)))
        by_statement[edit.span] = EditImport(edit.span, add, remove, first.unit)
    return [by_statement[span] for span in sorted(by_statement)]


def _new_text(source: Source, edit: EditImport) -> str | None:
    """The statement after `edit`, None if no name is left."""
    text = source.segment(edit.span)
    statement = _take_apart(text)
    names = statement.names
    going = [name for name in names.items if _bound(name) in edit.remove]
    new = [name for name in edit.add if name not in map(_spelled, names.items)]
    if len(going) == len(names.items) and not new:
        return None
    for index, name in _places(names.items, new):
        names.insert(index, name)
    for name in going:
        names.remove(names.items.index(name))
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
