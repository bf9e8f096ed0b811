"""Running a function on a module right after the module's own code ran."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_waiting: dict[str, list[Callable[[ModuleType], object]]] = {}


def after_import(name: str, function: Callable[[ModuleType], object]) -> None:
    """Call `function` with the module `name` as soon as it is there, which may be at once.

    It runs before whoever imports the module gets it, so that what it replaces there is what everyone sees.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        function(module)
        return
    _waiting.setdefault(name, []).append(function)
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    """Stands in front of the finders that find the modules, and has the loader call the functions."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The specification that the other finders give, with a loader that does more."""
        if name not in _waiting:
            return None
        spec = found_behind(_Finder, name, path, target)
        if spec is not None and spec.loader is not None:
            _extend(spec.loader, name)
        return spec


def found_behind(finder: Any, name: str, path: Any, target: Any) -> ModuleSpec | None:
    """What those finders find that are asked after `finder`."""
    place = sys.meta_path.index(finder)
    behind = (other for other in sys.meta_path[place + 1 :] if hasattr(other, "find_spec"))
    found = (other.find_spec(name, path, target) for other in behind)
    return next((spec for spec in found if spec is not None), None)


def _extend(loader: Any, name: str) -> None:
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        # What the loader is asked for later, such as its data, is not changed.
        del loader.exec_module
        run(module)
        for function in _waiting.pop(name, ()):
            function(module)

    loader.exec_module = exec_module
