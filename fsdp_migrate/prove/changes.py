"""The lines in which two copies differ, as far as code runs there."""

from __future__ import annotations

import ast
import difflib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

Lines = dict[str, list[int]]


def changed_lines(before: Path, after: Path) -> tuple[Lines, Lines]:
    """By path in the copies, the lines of each version that the other has not, and at which code starts.

    A line inside of a longer statement counts as the statement's first one. Imports, and the heads of functions and
    classes, run wherever a module is imported, so they count only if nothing else changed.
    """
    inside, anywhere = _changed(before, after, declarations=False), _changed(before, after, declarations=True)
    return inside if any(inside) else anywhere


def _changed(before: Path, after: Path, *, declarations: bool) -> tuple[Lines, Lines]:
    sides: tuple[Lines, Lines] = ({}, {})
    for path in sorted({*_programs(before), *_programs(after)}):
        texts = [_text(folder / path) for folder in (before, after)]
        if texts[0] == texts[1]:
            continue
        old, new = (text.split(b"\n") for text in texts)
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        changes = [(slice(a, b), slice(c, d)) for kind, a, b, c, d in matcher.get_opcodes() if kind != "equal"]
        for side, text, spans in zip(sides, texts, zip(*changes)):
            touched = {number + 1 for span in spans for number in range(span.start, span.stop)}
            lines = _running(text, path, touched, declarations=declarations)
            if lines:
                side[path] = lines
    return sides


def paths(before: Path, after: Path) -> list[str]:
    """The files of two copies, by path in them."""
    return sorted({*_files(before), *_files(after)})


def _files(folder: Path) -> Iterator[str]:
    for above, _, names in os.walk(folder):
        for name in names:
            yield os.path.relpath(os.path.join(above, name), folder)


def _programs(folder: Path) -> Iterator[str]:
    return (path for path in _files(folder) if path.endswith(".py"))


def _text(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _running(text: bytes, path: str, touched: set[int], *, declarations: bool) -> list[int]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
            code = compile(tree, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return []  # a later Python may read it; here nobody knows which lines run
    lines = set(_lines(code))
    first: dict[int, int] = {}
    for node in ast.walk(tree):
        # A comment between the statements of a function is a part of none of them.
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            first.update(dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node.lineno))
    starts = {number if number in lines else first.get(number, 0) for number in touched}
    if not declarations:
        starts -= {number for node in ast.walk(tree) for number in _declares(node)}
    return sorted(starts & lines)


def _declares(node: ast.AST) -> range:
    """The lines of an import, or of the head of a function or class."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return range(min(one.lineno for one in (node, *node.decorator_list)), node.body[0].lineno)
    return range(0)


def _lines(code: CodeType) -> Iterator[int]:
    yield from (line for _, _, line in code.co_lines() if line)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines(constant)
