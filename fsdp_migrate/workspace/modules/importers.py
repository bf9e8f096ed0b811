"""Which files of a run import a module, and what they do with it.

All files of the run are read once for it, with those of the module's project that the run does not look at; only what
they import is kept.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fsdp_migrate.facts.other_modules import Use
from fsdp_migrate.workspace.filesystem import printable
from fsdp_migrate.workspace.modules.sketch import Sketch, split, stem

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.torch_api import TorchRange
    from fsdp_migrate.workspace.filesystem import SourceFile
    from fsdp_migrate.workspace.modules.project import Modules


@dataclass
class Index:
    """Files by what they import, names of modules and their last names, and by the attributes that they assign."""

    names: dict[str, set[str]] = field(default_factory=dict)
    modules: dict[str, set[str]] = field(default_factory=dict)
    stores: dict[str, set[str]] = field(default_factory=dict)

    def add(self, path: str, sketch: Sketch) -> None:
        """Take what the file at `path` imports and assigns."""
        for name in sketch.stored:
            self.stores.setdefault(name, set()).add(path)
        for target in {target for targets in sketch.imports.values() for target in targets}:
            if not target.startswith("torch."):
                self.names.setdefault(split(target)[1], set()).add(path)
        for module in sketch.modules:
            self.modules.setdefault(split(module)[1], set()).add(path)


def index(files: Iterable[SourceFile], glance: Callable[[str], bytes]) -> Index:
    """What files import and assign, with their bytes by path."""
    found = Index()
    for file in files:
        found.add(file.path, Sketch(glance(file.path)))
    return found


def is_imported(modules: Modules, path: str, name: str) -> bool:
    """Whether another file takes the top-level `name` of the module at `path`, or puts something in its place."""
    if any(_takes(modules, other, path, name) for other in _candidates(modules, path, name)):
        return True
    quoted = re.compile(rf"""["']([\w.]+)\.{name}["']""".encode())  # for `mock.patch` and the like
    return any(
        modules.finder.find(found[1].decode(), other) == path
        for other in sorted(modules.writers(path, f".{name}"))
        for found in quoted.finditer(modules.glance(other))
    )


def _candidates(modules: Modules, path: str, name: str) -> list[str]:
    """Files that may import the module at `path`, or `name` of it."""
    last, known = stem(path), _imported_by(modules, path, name)
    found = known.names.get(name, set()) | known.modules.get(last, set())
    found = found | known.names.get(last, set()) | known.modules.get("", set())
    return sorted(found - {path})


def _imported_by(modules: Modules, path: str, name: str) -> Index:
    """What the files import that may take `name` from the module at `path`."""
    if not name.startswith("_"):
        return modules.index(path)
    # No star import brings it: it takes a look at those that write it.
    found = Index()
    for other in modules.writers(path, name):
        sketch = modules.sketch(other)
        if sketch is not None:
            found.add(other, sketch)
    return found


def _takes(modules: Modules, other: str, path: str, name: str) -> bool:
    private, text = name.startswith("_"), modules.glance(other)
    if name.encode() not in text and (private or not Sketch(text).stars):
        return False
    sketch = modules.sketch(other)
    if sketch is None:
        return False
    targets = {target for found in sketch.imports.values() for target in found}
    if any(split(target)[1] == name and modules.finder.find(split(target)[0], other) == path for target in targets):
        return True
    if not private and any(modules.finder.find(star, other) == path for star in sketch.stars):
        return True
    if any(modules.finder.find(target, other) == path for target in {*targets, *sketch.dotted}):
        # Patches and `getattr` have the name in quotes.
        return any(f"{before}{name}".encode() in sketch.raw for before in ".\"'")
    # Whoever takes something else from the module reaches it through its package only.
    taken = any(modules.finder.find(module, other) == path for module in sketch.modules)
    through = rf"""\.{stem(path)}(?:\.{name}\b|\s*,\s*["']{name}["'])""".encode()
    return taken and re.search(through, sketch.raw) is not None


def uses(modules: Modules, path: str, name: str, torch: TorchRange) -> tuple[Use, ...] | None:
    """Where other files read the top-level `name` of the module at `path`, imports left out.

    None when one of them cannot be parsed, so that more uses may be out of sight.
    """
    found: list[Use] = []
    called = _names(modules, path)
    for other in _readers(modules, path, name):
        if name.encode() not in modules.glance(other):
            continue
        sketch = modules.sketch(other)
        if sketch is None:
            continue
        facts = modules.facts(other, torch)
        if facts is None:
            return None
        view = modules.view(other, torch)
        for node in _uses(facts, name, sketch):
            qualified = facts.names.qualified(node)
            if qualified is not None and view.origin(qualified) == (path, name):
                found.append(Use(facts, node, called(other)))
    return tuple(found)


def _names(modules: Modules, path: str) -> Callable[[str], str]:
    """How a report on the file at `path` calls files: those that the run does not look at as it calls that one."""
    shown = {file.path: file.shown for file in modules.files}
    relative = not os.path.isabs(shown.get(path, path))
    return lambda other: shown.get(other) or printable(os.path.relpath(other) if relative else other)


def setters(modules: Modules, path: str, name: str, torch: TorchRange) -> Iterator[tuple[ModuleFacts, str]]:
    """Files of the same project that may assign an attribute `name`, each with what to call it in a message."""
    called = _names(modules, path)
    nearest = modules.finder.nearest
    for other in sorted(modules.index(path).stores.get(name, set()) - {path}):
        same = nearest(os.path.dirname(other)) == nearest(os.path.dirname(path))
        facts = modules.facts(other, torch) if same else None
        if facts is not None:
            yield facts, called(other)


def _readers(modules: Modules, path: str, name: str) -> list[str]:
    """Files that may read `name` of the module at `path`, also from a package that takes it from there."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        current = waiting.pop()
        new = set(_candidates(modules, current, name)) - found - {path}
        found |= new
        packages = (other for other in new if other.endswith("__init__.py"))
        waiting += [other for other in packages if _takes(modules, other, current, name)]
    return sorted(found)


def _uses(facts: ModuleFacts, name: str, sketch: Sketch) -> Iterator[ast.Name | ast.Attribute]:
    """Where a function of this name, or of one that it was imported under, is read."""
    known = {alias for alias, targets in sketch.imports.items() if any(split(t)[1] == name for t in targets)} | {name}
    users = facts.structure.module.users
    for alias in sorted(known):
        for scope in users.get(alias, ()):
            yield from scope.uses[alias]
    yield from (node for node in facts.structure.attributes if node.attr == name and isinstance(node.ctx, ast.Load))
