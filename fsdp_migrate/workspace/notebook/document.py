"""The contents of a notebook's JSON: the Python cells, and the language of the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any

from fsdp_migrate.source import SourceError
from fsdp_migrate.workspace.notebook.placed_json import Array, Literal, load

_PYTHON = frozenset(["ipython", "python", "python2", "python3"])


@dataclass(frozen=True)
class RawCell:
    """A code cell: its number among cells of every kind, from 1, and its source in the JSON."""

    number: int
    source: Literal | Array


def read_cells(text: str) -> tuple[RawCell, ...]:
    """The Python cells of a notebook of format 2 to 4; none if its kernel has another language.

    Raises:
        SourceError: `text` is not JSON, or is not a notebook.
    """
    try:
        document = load(text)
    except JSONDecodeError as error:
        raise SourceError(f"not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise SourceError("too deeply nested to read") from None
    cells = list(_cells(document))
    return tuple(_code_cells(cells)) if _speaks_python(document) else ()


def _cells(document: Any) -> Iterator[Any]:
    holders = [document]
    if isinstance(document, dict) and isinstance(document.get("worksheets"), Array):  # before format 4
        holders = document["worksheets"]
    for holder in holders:
        if not isinstance(holder, dict) or not isinstance(holder.get("cells"), Array):
            raise SourceError("not a notebook: it has no list of cells")
        yield from holder["cells"]


def _code_cells(cells: Iterable[Any]) -> Iterator[RawCell]:
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict):
            raise SourceError(f"not a notebook: cell {number} is not an object")
        if cell.get("cell_type") != "code" or not _holds_python(cell):
            continue
        source = cell.get("source", cell.get("input"))  # `input` before format 4
        if source is None:
            continue
        if not isinstance(source, Literal) and not _is_list_of_strings(source):
            raise SourceError(f"not a notebook: the source of cell {number} is not text")
        yield RawCell(number, source)


def _is_list_of_strings(source: Any) -> bool:
    return isinstance(source, Array) and all(isinstance(line, Literal) for line in source)


def _holds_python(cell: dict[str, Any]) -> bool:
    """Whether a cell is Python: neither an editor (VS Code) nor format 3 says that it has another language."""
    editor = _inside(cell, "metadata", "vscode", "languageId")
    return all(language is None or language.lower() in _PYTHON for language in (editor, _inside(cell, "language")))


def _speaks_python(document: Any) -> bool:
    """Whether the kernel's language is Python: by what the kernel reported, else by what was asked for, else yes."""
    for path in (("metadata", "language_info", "name"), ("metadata", "kernelspec", "language")):
        language = _inside(document, *path)
        if language is not None:
            return language.lower() in _PYTHON
    return True


def _inside(value: Any, *path: str) -> str | None:
    """The text at `path` in the JSON, None if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None
