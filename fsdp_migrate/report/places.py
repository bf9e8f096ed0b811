"""Paths in the form that other programs expect."""

from __future__ import annotations

import os
from pathlib import PurePath


def below(path: str, folder: str) -> str | None:
    """`path` relative to `folder`, with slashes; None if it is not below it."""
    try:
        relative = os.path.relpath(os.path.abspath(path), folder)
    except ValueError:  # another drive
        return None
    return None if relative.split(os.sep)[0] == os.pardir else PurePath(relative).as_posix()


def in_repository(path: str, variable: str) -> str:
    """`path` relative to the checkout that an environment variable of the CI names, if it is in it."""
    checkout = os.environ.get(variable)
    return (below(path, checkout) if checkout else None) or PurePath(path).as_posix()
