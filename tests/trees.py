"""Small project trees, and what is found out about the files in them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from fsdp_migrate.workspace.filesystem import SourceFile
from fsdp_migrate.workspace.projects import Projects
from fsdp_migrate.workspace.settings import Project


def plant(files: dict[str, str | bytes]) -> None:
    """Write files below the current folder, which becomes the root of a repository."""
    Path(".git").mkdir(exist_ok=True)
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())


def project_of(path: str, files: dict[str, str | bytes]) -> Project:
    """The project of the file `path` in the tree of `files`."""
    plant(files)
    return Projects().of(SourceFile(path, path))


def torch_of(files: dict[str, str | bytes]) -> str:
    """The torch range of a file at the root of the tree, which no warning is allowed to accompany."""
    project = project_of("train.py", files)
    assert project.warnings == ()
    return str(project.torch)
