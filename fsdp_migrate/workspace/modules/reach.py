"""Where the top-level names of a module may come from by star imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fsdp_migrate.workspace.modules.view import View


class Reach(NamedTuple):
    """The files whose top-level names a module has by star imports, its own among them.

    Of some it has no more than `names`; of the `others` it may have any name that they write. One that is `open` may
    have any at all: from torch, or from a `__getattr__`.
    """

    paths: frozenset[str]
    names: frozenset[str]
    others: frozenset[str]
    open: bool


def reach_of(view: View) -> Reach:
    """The files that the star imports of one file lead to, directly and through others."""
    modules, waiting, is_open = view.modules, [view], False
    names: set[str] = set()
    paths, others = {view.path}, {view.path}
    while waiting:
        current = waiting.pop()
        sketch = modules.sketch(current.path)
        for star in () if sketch is None else sketch.stars:
            is_open = is_open or star.split(".")[0] == "torch"
            found = current.star_module(star)
            if found is None or found in paths:
                continue
            paths.add(found)
            taken = modules.starred(found)
            if taken is not None:
                names |= taken
                continue
            others.add(found)
            text = modules.sketch(found)
            is_open = is_open or (text is not None and text.gives_late)
            waiting.append(modules.view_at(found, view.torch))
    return Reach(frozenset(paths), frozenset(names), frozenset(others), is_open)
