"""Modules that are read as attributes of others: `package.module.Wrapper`, where the package imports the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fsdp_migrate.workspace.modules.sketch import Sketch, is_torch

if TYPE_CHECKING:
    from fsdp_migrate.workspace.modules.view import View


def behind_modules(view: View, reads: Callable[[str], bool]) -> set[tuple[str, str]]:
    """What of torch is behind the names of modules that are read off a file, or off one of those in turn."""
    found: set[tuple[str, str]] = set()
    waiting, seen = [view], {view.path}
    while waiting:
        current = waiting.pop()
        sketch = view.modules.sketch(current.path)
        bound = () if sketch is None else bound_modules(current, sketch)
        for path in {path for name, path in bound if reads(name)} - seen:
            seen.add(path)
            current.asked.add(path)
            waiting.append(view.modules.view_at(path, view.torch))
            found |= waiting[-1].everything_behind(reads)
    return found


def bound_modules(view: View, sketch: Sketch) -> Iterator[tuple[str, str]]:
    """The names that a file binds to modules of its project, each with the file of the module."""
    for bound, targets in sketch.imports.items():
        for target in targets:
            path = None if is_torch(target) else view.modules.finder.find(target, view.path)
            if path is not None and path != view.path:
                yield bound, path
