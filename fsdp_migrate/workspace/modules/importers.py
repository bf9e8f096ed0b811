"""The files that import a module, and how they use it.

All files of the run, and the other files of the module's project, are read once. Only their imports are kept.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.facts import Reads, Use
from fsdp_migrate.workspace.filesystem import printable
from fsdp_migrate.workspace.modules.sketch import Sketch, split, stem

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.torch_api import TorchRange
    from fsdp_migrate.workspace.modules.view import ParsedModules


class Importers:
    """Finds the files that import the modules of a project."""

    def __init__(self, modules: ParsedModules) -> None:
        self._modules = modules
        self._texts = modules.texts
        self._programs: dict[str, frozenset[str]] = {}
        self._loaded: dict[str, frozenset[str]] = {}

    def program(self, path: str) -> frozenset[str]:
        """The files that imports connect with the module at `path`: those that lead to it, and all that these load."""
        if path not in self._programs:
            leading = _closure([path], self._importing)
            self._programs[path] = _closure(leading, self._imported)
        return self._programs[path]

    def _importing(self, path: str) -> Iterator[str]:
        """The files that import the module at `path`, or something in it."""
        return (other for other in self._candidates(path, stem(path)) if path in self._imported(other))

    def _imported(self, path: str) -> frozenset[str]:
        """The files that the imports of a file load, the packages around them included."""
        if path not in self._loaded:
            sketch = self._texts.sketch_of_imports(path)
            waiting = {*sketch.modules, *(target for targets in sketch.imports.values() for target in targets)}
            around = {name for one in waiting for name in _prefixes(one)}
            found = (self._texts.finder.find(name, path) for name in around)
            self._loaded[path] = frozenset(one for one in found if one is not None)
        return self._loaded[path]

    def is_imported(self, path: str, name: str) -> bool:
        """Whether another file imports the top-level `name` of the module at `path`, or replaces it."""
        taken = any(self._takes(other, path, name) for other in self._candidates(path, name))
        return taken or self._is_quoted(path, name)

    def takers(self, path: str, name: str) -> tuple[str, ...] | None:
        """The files that import the top-level `name` of the module at `path`; None where strings name it, too."""
        taken = (other for other in self._candidates(path, name) if self._takes(other, path, name))
        return None if self._is_quoted(path, name) else tuple(taken)

    def _is_quoted(self, path: str, name: str) -> bool:
        find = self._texts.finder.find
        told = self._texts.telling(path, name, _quoted)
        return any(find(owner, other) == path for other, owners in told for owner in owners)

    def _candidates(self, path: str, name: str) -> list[str]:
        """Files that may import the module at `path`, or `name` of it."""
        return sorted(self._texts.index(path).importing(name, stem(path)) - {path})

    def _takes(self, other: str, path: str, name: str) -> bool:
        private, text = name.startswith("_"), self._texts.glance(other)
        if name.encode() not in text and (private or not self._texts.sketch_of_imports(other).stars):
            return False
        sketch = self._texts.sketch(other)
        if sketch is None:
            return False
        find = self._texts.finder.find
        targets = {target for found in sketch.imports.values() for target in found}
        if any(split(target)[1] == name and find(split(target)[0], other) == path for target in targets):
            return True
        if not private and any(find(star, other) == path for star in sketch.stars):
            return True
        if any(find(target, other) == path for target in {*targets, *sketch.dotted}):
            # Patches and `getattr` have the name in quotes.
            return any(f"{before}{name}".encode() in sketch.raw for before in ".\"'")
        # Whoever takes something else from the module reaches it through its package only.
        taken = any(find(module, other) == path for module in sketch.modules)
        through = rf"""\.{stem(path)}(?:\.{name}\b|\s*,\s*["']{name}["'])""".encode()
        return taken and re.search(through, sketch.raw) is not None

    def patcher(self, path: str, name: str, old: str) -> str | None:
        """The file that patches `name` (in torch: `old`) in torch or in the module at `path`, None if none does."""
        owner = old.rpartition(".")[0]
        for other, found in self._texts.telling(path, name, _patched):
            if owner in found or any(self._goes_through(other, path, one) for one in found):
                return self._names(path)(other)
        return None

    def _goes_through(self, other: str, path: str, name: str) -> bool:
        """Whether a dotted name in a file means the module at `path`, or something in it."""
        while name.strip("."):
            if self._texts.finder.find(name, other) == path:
                return True
            name = split(name)[0]
        return False

    def uses(self, path: str, name: str, torch: TorchRange) -> tuple[Use, ...] | None:
        """The places in other files that read the top-level `name` of the module at `path`, without imports.

        None if one of them cannot be parsed, so that there may be more.
        """
        reads = self.reads(path, name, torch)
        certain = (use for use in reads.uses if use.facts.names.qualified(use.node) is not None)
        return None if reads.hidden else tuple(certain)

    def reads(self, path: str, name: str, torch: TorchRange) -> Reads:
        """The places in other files that may read the top-level `name` of the module at `path`, without imports."""
        found: list[Use] = []
        hidden = False
        for other, facts in self._parsed(self._readers(path, name), name, torch):
            if facts is None:
                hidden = True
            else:
                found += self._uses(other, facts, path, name, torch)
        return Reads(tuple(found), hidden)

    def bases_written(self, path: str, name: str, torch: TorchRange) -> Sequence[Use]:
        """Where other files read the top-level `name` of the module at `path` that may derive a class from it."""
        deriving = self._texts.deriving(path, name)
        readers = sorted(deriving.intersection(self._readers(path, name))) if deriving else ()
        parsed = self._parsed(readers, name, torch)
        return [use for other, facts in parsed if facts for use in self._uses(other, facts, path, name, torch)]

    def _parsed(self, paths: Iterable[str], name: str, torch: TorchRange) -> Iterator[tuple[str, ModuleFacts | None]]:
        """Those of some files that write a name, parsed; None for one that cannot be."""
        for other in paths:
            if name.encode() in self._texts.glance(other):
                yield other, self._modules.facts(other, torch)

    def _uses(self, other: str, facts: ModuleFacts, path: str, name: str, torch: TorchRange) -> Iterator[Use]:
        """The places in a file that read the top-level `name` of the module at `path`."""
        sketch, view, shown = self._texts.sketch(other), self._modules.view_at(other, torch), self._names(path)(other)
        for node in () if sketch is None else _reads(facts, name, sketch):
            symbols = facts.names.symbols(node)
            if any(symbol is not None and view.origin(symbol) == (path, name) for symbol in symbols):
                yield Use(facts, node, shown)

    def writing(self, path: str, word: str, torch: TorchRange) -> Iterator[ModuleFacts]:
        """The other files of the project that read an attribute of this name from anything but their `self`."""
        for other in self._texts.reading(path, word):
            facts = self._modules.facts(other, torch)
            if facts is not None:
                yield facts

    @cached_property
    def _shown(self) -> dict[str, str]:
        """The names of the files of the run, by their paths."""
        return {file.path: file.shown for file in self._texts.files}

    def _names(self, path: str) -> Callable[[str], str]:
        """The names of files in a report on the file at `path`."""
        shown = self._shown
        relative = not os.path.isabs(shown.get(path, path))
        return lambda other: shown.get(other) or printable(os.path.relpath(other) if relative else other)

    def setters(self, path: str, name: str, torch: TorchRange) -> Iterator[tuple[ModuleFacts, str]]:
        """The other files of the project that may assign an attribute `name`, each with its name for messages."""
        called = self._names(path)
        nearest = self._texts.finder.nearest
        for other, _ in self._texts.telling(path, name, _stores):
            same = nearest(os.path.dirname(other)) == nearest(os.path.dirname(path))
            facts = self._modules.facts(other, torch) if same else None
            if facts is not None:
                yield facts, called(other)

    def _readers(self, path: str, name: str) -> list[str]:
        """The files that may read `name` of the module at `path`, also through a package that imports it."""
        found: set[str] = set()
        waiting = [path]
        while waiting:
            current = waiting.pop()
            new = set(self._candidates(current, name)) - found - {path}
            found |= new
            packages = (other for other in new if other.endswith("__init__.py"))
            waiting += [other for other in packages if self._takes(other, current, name)]
        return sorted(found)


def _quoted(raw: bytes, name: str) -> list[str]:
    """What a name is read off in strings, as for `mock.patch`."""
    found = re.compile(rf"""["']([\w.]+)\.{name}["']""".encode()).finditer(raw)
    return [match[1].decode() for match in found]


def _patched(raw: bytes, name: str) -> set[str]:
    """What a text may patch a name in, by strings or with the name in one."""
    owned = re.compile(rf"""(?:object|[sg]etattr|delattr)\(\s*([\w.]+)\s*,\s*["']{name}["']""".encode())
    found = set(_quoted(raw, name))
    if objects := [match[1].decode() for match in owned.finditer(raw)]:
        imports = Sketch(raw).imports
        for head, dot, rest in (one.partition(".") for one in objects):
            found |= {f"{target}{dot}{rest}" for target in (head, *imports.get(head, ()))}
    return found


def _stores(raw: bytes, name: str) -> bool:
    """Whether a text assigns an attribute of this name."""
    return Sketch(raw).stores(name)


def _closure(starts: Iterable[str], step: Callable[[str], Iterable[str]]) -> frozenset[str]:
    """What some paths lead to, themselves included."""
    found = set(starts)
    waiting = [*found]
    while waiting:
        new = set(step(waiting.pop())) - found
        found |= new
        waiting += new
    return frozenset(found)


def _prefixes(name: str) -> Iterator[str]:
    """A dotted name, and those of the packages around it."""
    while name.strip("."):
        yield name
        name = split(name)[0]
    if name:
        yield name


def _reads(facts: ModuleFacts, name: str, sketch: Sketch) -> Iterator[ast.Name | ast.Attribute]:
    """Where something of this name, or of one that it was imported under, is read."""
    known = {name, *sketch.renamed.get(name, ())}
    users = facts.structure.module.users
    for alias in sorted(known):
        for scope in users.get(alias, ()):
            yield from scope.uses[alias]
    yield from facts.structure.read_attributes.get(name, ())
