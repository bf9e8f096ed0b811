"""Statements and hoisted calls under a `with`."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from fsdp_migrate.edits import Context, Hoist, Replace, RewriteCall, Unwrap, Wrap
from fsdp_migrate.source import Replacement, Source, Span
from fsdp_migrate.splicing import NEWLINE, reindent, splice, with_newlines

WIDTH = 88
_BLANK_LINES = re.compile(r"(?:[ \t\f\r\n]|#[^\r\n]*(?![^\r\n]))*")
_IDENTIFIER = re.compile(r"\w+")
_TARGETS = (ast.Name, ast.Attribute, ast.Subscript)

InnerEdit = Replace | RewriteCall


def with_header(context: Context, indent: str, unit: str, newline: str) -> str:
    """The line `with context:`, one argument a line if it would be too wide; `indent` is in front of it already."""
    line = f"with {context.callee}({', '.join(context.arguments)}):"
    if fits(indent + line):
        return line
    arguments = "".join(f"{newline}{indent}{unit}{argument}," for argument in context.arguments)
    return f"with {context.callee}({arguments}{newline}{indent}):"


def fits(text: str) -> bool:
    """Whether `text` is one line of at most 88 columns (a tab counts up to the next multiple of four)."""
    return NEWLINE.search(text) is None and len(text.expandtabs(4)) <= WIDTH


@dataclass
class _Block:
    """Neighbouring statements that share one `with`; `wrap` is the first of them."""

    wrap: Wrap
    span: Span
    inner: list[InnerEdit]
    joined: bool = False


def wrapped(
    source: Source, wraps: Iterable[Wrap], replaces: Iterable[Replace]
) -> tuple[list[Replacement], set[Replace]]:
    """New texts of the wrapped statements, and those of `replaces` (between neighbours) that they include."""
    blocks: list[_Block] = []
    used: set[Replace] = set()
    between = sorted(replaces, key=lambda replace: replace.span)
    assigned = _Assigned(source)
    for wrap in sorted(wraps, key=lambda w: w.span):
        joining = _joining(source, blocks[-1], wrap, between, assigned) if blocks else None
        if joining is None:
            blocks.append(_Block(wrap, wrap.span, list(wrap.inner)))
        else:
            block = blocks[-1]
            block.inner += [edit for edit in (*joining, *wrap.inner) if edit not in block.inner]
            block.joined = block.joined or wrap.span != block.span
            block.span = Span(block.span.start, wrap.span.end)
            used.update(joining)
    return [_wrapped(source, block) for block in blocks], used


def _context_of(edit: Wrap | Hoist) -> tuple[object, ...]:
    """What two edits must have in common to share a `with`."""
    return edit.header, edit.indent, edit.unit, edit.prologue


def _joining(
    source: Source, block: _Block, wrap: Wrap, replaces: list[Replace], assigned: _Assigned
) -> list[Replace] | None:
    """The edits between `block` and `wrap` if both go under one `with`, None if they do not."""
    first = block.wrap
    if _context_of(first) != _context_of(wrap):
        return None
    if wrap.span == first.span:
        return []
    gap = Span(block.span.end, wrap.span.start)
    if gap.start > gap.end or source.piece(gap.start) != source.piece(gap.end):
        return None
    first_inside, behind = (
        bisect_left(replaces, at, key=lambda one: one.span.start) for at in (gap.start, gap.end + 1)
    )
    inside = [replace for replace in replaces[first_inside:behind] if gap.contains(replace.span)]
    text = _spliced(source, gap, inside)
    if NEWLINE.search(text) is None or _BLANK_LINES.fullmatch(text) is None:
        return None
    # The context of the second would be another one if the first gave one of its names a new value.
    header = set(_IDENTIFIER.findall(" ".join((wrap.header.callee, *wrap.header.arguments))))
    return None if header & assigned.within(block.span) else inside


class _Assigned:
    """The names and attributes that are assigned or deleted in a text, or whose items are."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def within(self, region: Span) -> set[str]:
        """Those in a region."""
        first, last = (bisect_left(self._ordered, (Span(offset, 0), "")) for offset in region)
        return {name for span, name in self._ordered[first:last] if region.contains(span)}

    @cached_property
    def _ordered(self) -> list[tuple[Span, str]]:
        return sorted(
            (self.source.span(node), name)
            for node in ast.walk(self.source.tree)
            if isinstance(node, _TARGETS)
            and not isinstance(node.ctx, ast.Load)
            and (name := _changed_by(node)) is not None
        )


def _changed_by(target: ast.expr) -> str | None:
    """The last name of what an assignment to `target` changes."""
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Name):
        return target.id
    return target.attr if isinstance(target, ast.Attribute) else None


def _wrapped(source: Source, block: _Block) -> Replacement:
    wrap, newline = block.wrap, source.newline_at(block.span.start)
    indent = _columns(wrap.indent)
    inner = indent + wrap.unit
    text = _spliced(source, block.span, block.inner)
    old = indent if block.joined else _line_indent(source, block.span.start)
    body = reindent(text, old, inner, before=f"if 1:\n{old}" if old else "")
    header = with_header(wrap.header, indent, wrap.unit, newline)
    return Replacement(block.span, f"{_before(wrap, indent, newline)}{header}{newline}{inner}{body}")


def unwrapped(source: Source, edit: Unwrap) -> Replacement:
    """The block of a compound statement in the place of the whole."""
    text = reindent(_spliced(source, edit.block, edit.inner), edit.old, edit.new, before=f"if 1:\n{edit.old}")
    return Replacement(edit.span, f"{_before(edit, edit.new, source.newline_at(edit.span.start))}{text}")


def _before(edit: Wrap | Unwrap | Hoist, indent: str, newline: str) -> str:
    """The lines of an edit's prologue, with the indentation of what follows."""
    return "".join(f"{line}{newline}{indent}" for line in edit.prologue)


def _line_indent(source: Source, offset: int) -> str:
    """The indentation of the line that `offset` is on."""
    line = source.data[source.line_start(offset) : offset].decode()
    return _columns(line[: len(line) - len(line.lstrip(" \t\f"))])


def _columns(indent: str) -> str:
    """Indentation without the form feeds that a line may start with: columns count from behind them."""
    return indent.rpartition("\f")[2]


def _spliced(source: Source, region: Span, edits: Iterable[InnerEdit]) -> str:
    """The text of `region` after the edits inside it."""
    moved = [
        Replacement(Span(edit.span.start - region.start, edit.span.end - region.start), new_text(source, edit))
        for edit in edits
    ]
    return splice(source.data[region.start : region.end], moved).decode()


def new_text(source: Source, edit: InnerEdit) -> str:
    """What an edit puts at its span."""
    if isinstance(edit, Replace):
        return with_newlines(edit.text, source.newline_at(edit.span.start))
    from fsdp_migrate.rewrite.calls import rewrite_call  # brings LibCST

    return rewrite_call(source.segment(edit.span), edit)


def hoisted(source: Source, hoists: Iterable[Hoist]) -> list[Replacement]:
    """New texts for hoisted calls: a block in front of each statement, and a name where each call was."""
    replacements = []
    ordered = sorted(hoists, key=lambda h: (h.at, h.call.span))
    for at, at_one_place in groupby(ordered, key=lambda h: h.at):
        calls = list(at_one_place)
        text = "".join(_hoisted_block(source, list(group)) for _, group in groupby(calls, key=_context_of))
        replacements.append(Replacement(Span(at, at), text, rank=1))
        replacements += [Replacement(h.call.span, h.name + _separator(source, h.call.span.end)) for h in calls]
    return replacements


def _hoisted_block(source: Source, hoists: list[Hoist]) -> str:
    first, newline = hoists[0], source.newline_at(hoists[0].at)
    indent = _columns(first.indent)
    inner = indent + first.unit
    lines = [f"{inner}{h.name} = {_hoisted_call(source, h, inner)}{newline}" for h in hoists]
    header = with_header(first.header, indent, first.unit, newline)
    return f"{_before(first, indent, newline)}{header}{newline}{''.join(lines)}{indent}"


def _hoisted_call(source: Source, hoist: Hoist, indent: str) -> str:
    """The rewritten call, its further lines moved along from the line where it stood to `indent`."""
    from fsdp_migrate.rewrite.calls import stands_alone  # brings LibCST

    old = _line_indent(source, hoist.call.span.start)
    text = reindent(new_text(source, hoist.call), old, indent, before="(", after=")")
    return text if stands_alone(text) else f"({text})"


def _separator(source: Source, offset: int) -> str:
    """A blank if a word follows at `offset` directly, as in `f()if x`."""
    following = source.data[offset : offset + 1]
    return " " if following.isalnum() or following == b"_" else ""
