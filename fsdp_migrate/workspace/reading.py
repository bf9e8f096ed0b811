"""Reads a file's bytes: Python code, plain or in the cells of a notebook, or what stands beside it."""

from __future__ import annotations

import ast

from fsdp_migrate.source import Source, SourceError, is_beside, is_notebook, is_yaml


def read_source(raw: bytes, path: str) -> Source:
    """The text in a file's bytes; the name of the file tells whether it is Python, a notebook, YAML or a script.

    Raises:
        SourceError: it cannot be read as what its name says.
    """
    if is_notebook(path):
        from fsdp_migrate.workspace.notebook import Notebook  # brings JSON, which other files do not need

        return Notebook(raw)
    if is_beside(path):
        from fsdp_migrate.workspace.beside import ScriptText, YamlText

        return YamlText(raw) if is_yaml(path) else ScriptText(raw, path)
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
