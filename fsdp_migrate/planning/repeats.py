"""Options that several fixes set to the same: each fix writes its own assignment, and the second goes."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from fsdp_migrate.code.state_dicts.mapping import OPTIONS
from fsdp_migrate.source import Replacement
from fsdp_migrate.splicing import splice

_TO_NEXT = re.compile(rb"[ \t]*(?:\r\n|\r|\n)[ \t]*(?=\S|\Z)")


def without_repeats(data: bytes, changes: Sequence[Replacement]) -> list[Replacement]:
    """The changes of `data` without assignments that say again what holds at their place."""
    if sum(f"{OPTIONS}(" in change.text for change in changes) < 2:
        return list(changes)
    new = splice(data, changes)
    try:
        tree = ast.parse(new)
    except (SyntaxError, ValueError):
        return list(changes)  # what is wrong is told when the new text is checked
    lines = [0]
    for line in new.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    repeated = sorted(
        (lines[one.lineno - 1] + one.col_offset, lines[(one.end_lineno or one.lineno) - 1] + (one.end_col_offset or 0))
        for one in _repeated(tree)
    )
    found, moved = [], 0
    for change in sorted(changes, key=lambda one: (one.span, one.rank)):
        text, start = change.text.encode(), change.span.start + moved
        moved += len(text) - (change.span.end - change.span.start)
        inside = repeated[bisect_left(repeated, (start, 0)) : bisect_left(repeated, (start + len(text), 0))]
        for first, last in reversed([(one - start, end - start) for one, end in inside]):
            behind = _TO_NEXT.match(text, last) if last <= len(text) else None
            if behind is not None:
                text = text[:first] + text[behind.end() :]
        found.append(change._replace(text=text.decode()))
    return found


def _repeated(tree: ast.Module) -> Iterator[ast.Assign]:
    """The assignments of options that their name has already."""
    blocks = (value for node in ast.walk(tree) for _, value in ast.iter_fields(node) if isinstance(value, list))
    for block in blocks:
        known: dict[str, str] = {}
        for statement in block:
            name = _options(statement)
            text = "" if name is None else ast.unparse(statement)
            if name is not None and known.get(name) == text:
                yield statement
                continue
            known = {one: value for one, value in known.items() if not _may_change(statement, one)}
            if name is not None:
                known[name] = text


def _options(node: ast.AST) -> str | None:
    """The name that a statement gives to options whose fields are written out."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or len(node.targets) != 1:
        return None
    target, call = node.targets[0], node.value
    is_plain = not call.args and all(isinstance(one.value, ast.Constant) for one in call.keywords)
    is_made = isinstance(call.func, (ast.Name, ast.Attribute)) and ast.unparse(call.func).endswith(OPTIONS)
    return target.id if is_plain and is_made and isinstance(target, ast.Name) else None


def _may_change(node: ast.AST, name: str) -> bool:
    """Whether code does something else with options than to pass them on as such."""
    passed = {one.value for one in ast.walk(node) if isinstance(one, ast.keyword) and one.arg == "options"}
    return any(isinstance(one, ast.Name) and one.id == name and one not in passed for one in ast.walk(node))
