"""Texts of which nobody said where they belong."""

from __future__ import annotations

import ast

from fsdp_migrate.source import SourceError
from fsdp_migrate.workspace.reading import read_source

_ANY_NOTEBOOK = "unnamed.ipynb"


def imports_relatively(raw: bytes) -> bool:
    """Whether a text imports modules that only its place tells; one that does not parse imports none."""
    if b"from" not in raw:
        return False
    try:
        tree = read_source(raw, "unnamed.py").tree
    except (SourceError, SyntaxError, RecursionError):
        return False
    return any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in ast.walk(tree))


def is_unnamed_notebook(raw: bytes) -> bool:
    """Whether a text is the JSON of a notebook, which as Python is one long and harmless expression."""
    if not raw.lstrip().startswith(b"{") or b'"cells"' not in raw:
        return False
    try:
        read_source(raw, _ANY_NOTEBOOK)
    except SourceError:
        return False
    return True
