"""Reads Python code from a file's bytes, plain or in the cells of a notebook."""

from __future__ import annotations

import ast

from fsdp_migrate.source import Source, SourceError, is_notebook


def read_source(raw: bytes, path: str) -> Source:
    """The Python code in a file's bytes; the name of the file tells whether it is a notebook.

    Raises:
        SourceError: it cannot be read as what its name says.
    """
    if is_notebook(path):
        from fsdp_migrate.workspace.notebook import Notebook  # brings JSON, which other files do not need

        return Notebook(raw)
    return Source(raw)


def imports_relatively(raw: bytes) -> bool:
    """Whether a text without a name has relative imports, which only a place can resolve; it may not parse."""
    if b"from" not in raw:
        return False
    try:
        tree = read_source(raw, "unnamed.py").tree
    except (SourceError, SyntaxError, RecursionError):
        return False
    return any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in ast.walk(tree))


def is_unnamed_notebook(raw: bytes) -> bool:
    """Whether a text without a name is the JSON of a notebook. As Python that is one long, harmless expression."""
    if not raw.lstrip().startswith(b"{") or b'"cells"' not in raw:
        return False
    try:
        read_source(raw, "unnamed.ipynb")
    except SourceError:
        return False
    return True
