"""Reading a file of Python code, plain or in the cells of a notebook."""

from __future__ import annotations

from fsdp_migrate.source import Source, is_notebook


def read_source(raw: bytes, path: str) -> Source:
    """The Python text in a file's bytes; its name tells whether it is a notebook.

    Raises:
        SourceError: it cannot be read as what its name says.
    """
    if is_notebook(path):
        from fsdp_migrate.workspace.notebook import Notebook  # brings JSON, which other files do not need

        return Notebook(raw)
    return Source(raw)
