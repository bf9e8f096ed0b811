"""Where the top-level names of a module may come from by star imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fsdp_migrate.modules.view import View

_LATE = b"__getattr__"


class Reach(NamedTuple):
    """The files whose top-level names a module has by star imports, its own among them.

    One that is `open` may have any others too: from torch, or from a `__getattr__`.
    """

    paths: frozenset[str]
    open: bool


def reach_of(view: View) -> Reach:
    """The files that star imports of one lead to, over those of others."""
    modules, paths, waiting, is_open = view.modules, {view.path}, [view], False
    while waiting:
        current = waiting.pop()
        sketch = modules.sketch(current.path)
        for star in () if sketch is None else sketch.stars:
            found = current.star_module(star)
            taken = None if found is None else modules.sketch(found)
            is_open = is_open or star.split(".")[0] == "torch" or (taken is not None and _LATE in taken.raw)
            if found is not None and found not in paths:
                paths.add(found)
                waiting.append(modules.view_at(found, view.torch))
    return Reach(frozenset(paths), is_open)
