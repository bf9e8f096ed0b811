"""Modules of the project come from the copy of this run, whatever an installation or PYTHONPATH says."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from ..after_import import found_behind


def install(copy: str, tree: str) -> CopyFinder:
    """Put a finder in front of all others."""
    finder = CopyFinder(copy, tree)
    sys.path[:] = [finder.moved(folder) or folder for folder in sys.path]
    sys.meta_path.insert(0, finder)
    return finder


class CopyFinder:
    """Asks the other finders, and takes what they find in the user's tree from the copy instead.

    `tell` is called with the name and the file of a module that only the tree has: a file that git ignores.
    """

    def __init__(self, copy: str, tree: str) -> None:
        self._copy, self._tree = copy, tree
        prefixes = {os.path.join(os.path.realpath(prefix), "") for prefix in (sys.prefix, sys.base_prefix)}
        self._environments = [prefix for prefix in prefixes if prefix.startswith(os.path.join(tree, ""))]
        self.tell: Callable[[str, str], object] = lambda module, file: None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The specification that the others give, or that of the same module in the copy."""
        spec = found_behind(self, name, path, target)
        if spec is None:
            return self._only_in_the_tree(name, path)
        moved = self.moved(spec.origin) if spec.has_location else None
        folders = spec.submodule_search_locations
        if moved is not None:
            if not os.path.exists(moved):
                self.tell(name, str(spec.origin))
                return spec
            return _at(name, moved, folders is not None)
        if folders is not None and spec.origin is None:
            there = [self.moved(folder) or folder for folder in folders]
            if there != list(folders):
                spec.submodule_search_locations = there
        return self._own_package(spec) or spec

    def moved(self, path: str | None) -> str | None:
        """Where a path in the tree is in the copy; None for any other path."""
        if not path:
            return None
        real = os.path.realpath(path)
        if real != self._tree and not real.startswith(os.path.join(self._tree, "")):
            return None
        inside = os.path.relpath(real, self._tree)
        # An environment in the project's folder is not the project.
        if "site-packages" in inside.split(os.sep) or any(real.startswith(folder) for folder in self._environments):
            return None
        return os.path.normpath(os.path.join(self._copy, inside))

    def _only_in_the_tree(self, name: str, path: Any) -> ModuleSpec | None:
        """A module that is nowhere but in the tree, where the copy would have it, such as a compiled one."""
        inside = os.path.join(self._copy, "")
        there = [
            os.path.join(self._tree, folder[len(inside) :])
            for folder in (sys.path if path is None else path)
            if os.path.join(str(folder), "").startswith(inside)
        ]
        spec = PathFinder.find_spec(name, there) if there else None
        if spec is None or not spec.has_location:
            return None
        self.tell(name, str(spec.origin))
        return spec

    def _own_package(self, spec: ModuleSpec) -> ModuleSpec | None:
        """The copy's package in place of an installed one that is the same, without a link to the tree."""
        folders = list(spec.submodule_search_locations or ())
        if "." in spec.name or len(folders) != 1 or not spec.has_location or self._is_copied(folders[0]):
            return None
        for root in ("", "src", "lib", "python"):
            own = os.path.join(self._copy, root, spec.name)
            file = os.path.join(own, "__init__.py")
            if os.path.isfile(file) and _same_package(own, folders[0]):
                return _at(spec.name, file, True)
        return None

    def _is_copied(self, folder: str) -> bool:
        return os.path.realpath(folder).startswith(os.path.join(self._copy, ""))


def _at(name: str, file: str, is_package: bool) -> ModuleSpec | None:
    return importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[os.path.dirname(file)] if is_package else None
    )


def _same_package(one: str, other: str) -> bool:
    """Whether two folders of one name hold the same package: most of the modules in either are in the other, too."""
    mine, theirs = ({name for name in os.listdir(folder) if name.endswith(".py")} for folder in (one, other))
    return len(mine & theirs) > max(1, len(mine) // 2, len(theirs) // 2)
