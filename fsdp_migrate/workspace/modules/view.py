"""What one file can learn of the other modules of its project: the answers to `facts.elsewhere.Elsewhere`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fsdp_migrate.facts.class_members import members_behind
from fsdp_migrate.facts.other_modules import ForeignClass, Use
from fsdp_migrate.facts.scopes import Kind
from fsdp_migrate.findings import Consulted
from fsdp_migrate.workspace.modules.classes import FSDP_CLASS, foreign_class
from fsdp_migrate.workspace.modules.late import loaded_late
from fsdp_migrate.workspace.modules.meanings import exported_meanings
from fsdp_migrate.workspace.modules.reach import Reach, reach_of
from fsdp_migrate.workspace.modules.sketch import Sketch, import_line, is_torch, joined, split
from fsdp_migrate.workspace.modules.through import behind_modules

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.facts.scopes import Binding
    from fsdp_migrate.torch_api import TorchRange
    from fsdp_migrate.workspace.modules.project import Modules

_MOST_STEPS = 10


class View:
    """The project as the file at `path` sees it, for a torch range.

    Whatever is looked into is noted in `asked`.
    """

    def __init__(self, modules: Modules, path: str, torch: TorchRange) -> None:
        self.modules = modules
        self.path = path
        self.torch = torch
        self.asked: set[str] = set()
        self.asked_all = False
        self._meanings: dict[str, Sequence[str | None] | None] = {}
        self._subclasses: dict[str, ForeignClass | None] = {}
        self._members: dict[str, frozenset[str]] = {}
        self._behind: dict[str, frozenset[str]] = {}
        self._homes: dict[str, tuple[ModuleFacts, str] | None] = {}
        self._reach: Reach | None = None

    @property
    def asked_beyond(self) -> bool:
        """See `Elsewhere.asked_beyond`."""
        return self.asked_all and self.modules.is_in_part(self.path)

    @property
    def consulted(self) -> tuple[Consulted, ...]:
        """The other files that the answers so far depend on, in order of path; none where nobody wants to know."""
        if not self.modules.noting:
            return ()
        paths, waiting = {self.path}, [self.path]
        while waiting:
            for path in self.modules.view_at(waiting.pop(), self.torch).asked - paths:
                paths.add(path)
                waiting.append(path)
        return tuple(Consulted(path, self.modules.digest(path)) for path in sorted(paths - {self.path}))

    def meanings(self, name: str) -> Sequence[str | None] | None:
        """See `Elsewhere.meanings`."""
        if name not in self._meanings:
            self._meanings[name] = None
            self._meanings[name] = self._found_meanings(name)
        return self._meanings[name]

    def _found_meanings(self, name: str) -> Sequence[str | None] | None:
        found = self.module_of(name)
        if found is None or not self._other(found[0]).behind(found[1]):
            return None
        path, inner = found
        with self.modules.entering((path, inner)) as first:
            facts = self.modules.facts(path, self.torch) if first else None
            return None if facts is None else exported_meanings(facts, inner, name)

    def direct_import(self, bound: str, name: str, reads: Callable[[str], bool]) -> str:
        """See `Elsewhere.direct_import`."""
        if is_torch(name):
            return ""
        behind: set[tuple[str, str]] = set()
        found = None if bound == "*" else self.module_of(name)
        if found is not None:
            behind |= {(bound, target) for target in self._other(found[0]).all_behind(found[1])}
        module = self._file_of(name)
        if module is not None:
            other = self._other(module)
            behind |= other.everything_behind(reads) | behind_modules(other, reads)
        return "".join(import_line(alias, target) for alias, target in sorted(behind))

    def behind(self, name: str) -> frozenset[str]:
        """The full names of torch that a top-level name of this file may stand for, as far as the bytes tell."""
        if name not in self._behind:
            self._behind[name] = frozenset()  # for modules that import one another in a circle
            self._behind[name] = frozenset(self._found_behind(name))
        return self._behind[name]

    def _found_behind(self, name: str) -> Iterator[str]:
        sketch = self.modules.sketch(self.path)
        if sketch is None or not self.may_bring(name):
            return
        brought = set(self._followed(sketch.imports.get(name, ())))
        yield from brought
        if brought:
            return  # What is assigned where the import fails makes no difference here.
        yield from self._followed(self.star_targets(sketch, name))
        for alias in sketch.aliases(name):
            yield from self._behind_dotted(sketch, alias, name)
        if name in sketch.unpacked:
            facts = self.modules.facts(self.path, self.torch)
            found = () if facts is None else exported_meanings(facts, name, "")
            yield from (target for target in found or () if target)

    def may_bring(self, name: str) -> bool:
        """Whether a top-level name is written here or where it may come from by star imports; most names are not."""
        word, sketch = name.encode(), self.modules.sketch(self.path)
        if sketch is not None and word in sketch.raw:
            return True
        if self.reach.open or name in self.reach.names:
            return True
        self.asked |= self.reach.paths
        sketches = (self.modules.sketch(path) for path in self.reach.others)
        return any(one is not None and word in one.raw for one in sketches)

    @property
    def reach(self) -> Reach:
        """The files that the star imports of this one lead to, directly and through others."""
        if self._reach is None:
            self._reach = reach_of(self)
        return self._reach

    def star_module(self, star: str) -> str | None:
        """The file of the module of a star import, None when it is not in the project."""
        return None if is_torch(star) else self._file_of(star)

    def star_targets(self, sketch: Sketch, name: str) -> Iterator[str]:
        """The full names that a top-level name may have by the star imports of this file."""
        for star in sketch.stars:
            path = self.star_module(star)
            taken = None if path is None else self.modules.starred(path)
            if path is not None:
                self.asked.add(path)
            if taken is None or name in taken:
                yield joined(star, name)

    def _behind_dotted(self, sketch: Sketch, dotted: str, name: str) -> Iterator[str]:
        """What is behind an expression of this file; `name` is what it is for, and not followed again."""
        head, _, rest = dotted.partition(".")
        if head == "torch":
            yield dotted
        elif rest:
            yield from self._followed([f"{target}.{rest}" for target in sketch.imports.get(head, ())])
            yield from (f"{target}.{rest}" for target in self.behind(head))
        elif head != name:
            yield from self.behind(head)

    def _followed(self, targets: Iterable[str]) -> Iterator[str]:
        for target in targets:
            found = None if is_torch(target) else self.module_of(target)
            if found is not None:
                yield from self._other(found[0]).behind(found[1])
            elif is_torch(target):
                yield target

    def all_behind(self, name: str) -> frozenset[str]:
        """As `behind`, with what the classes of this name derive from."""
        behind, sketch = self.behind(name), self.modules.sketch(self.path)
        bases = () if sketch is None or behind else sketch.bases(name)
        derived = (target for base in bases if sketch for target in self._behind_dotted(sketch, base, name))
        return behind.union(derived)

    def everything_behind(self, reads: Callable[[str], bool]) -> frozenset[tuple[str, str]]:
        """The names of this file that are read and may stand for something of torch, each with that; stars included."""
        sketch = self.modules.sketch(self.path)
        if sketch is None:
            return frozenset()
        found = {(bound, target) for bound in sketch.names if reads(bound) for target in self.all_behind(bound)}
        with self.modules.entering((self.path, "*")) as first:
            for star in sketch.stars if first else ():
                module = self.modules.finder.find(star, self.path)
                if is_torch(star):
                    found.add(("*", star))
                elif module is not None:
                    found |= self._other(module).everything_behind(reads)
        return frozenset(found)

    def gives(self, name: str) -> bool:
        """Whether this file itself gives something the name: takes it from torch, under another name, or assigns it."""
        sketch = self.modules.sketch(self.path)
        targets = () if sketch is None else sketch.imports.get(name, ())
        return not targets or any(is_torch(target) or split(target)[1] != name for target in targets)

    def _other(self, path: str) -> View:
        """Another file as a module of the project, noted as looked into."""
        self.asked.add(path)
        return self.modules.view_at(path, self.torch)

    def written(self, raw: bytes) -> bytes:
        """A text of this file with imports from torch itself for what it imports from torch through its project."""
        sketch = Sketch(raw)
        named = {(bound, target) for bound, targets in sketch.imports.items() for target in targets}
        named |= {("*", star) for star in sketch.stars}
        named |= {(module, module) for module in sketch.dotted}
        return raw + "".join(self.direct_import(*one, partial(reads, raw, one[0])) for one in sorted(named)).encode()

    def is_own(self, name: str) -> bool:
        """See `Elsewhere.is_own`."""
        if is_torch(name):
            return False
        return self.modules.finder.find(name, self.path) is not None or self.module_of(name) is not None

    def defines(self, name: str) -> bool | None:
        """See `Elsewhere.defines`."""
        found = self.module_of(name)
        if found is None:
            return None
        facts = self.modules.facts(found[0], self.torch)
        if facts is None or facts.structure.module.star_imports:
            return None
        return found[1] in facts.structure.module.bindings

    def is_variable(self, name: str) -> bool:
        """See `Elsewhere.is_variable`."""
        found = self.origin(name)
        if found is None:
            outer, inner = split(name)
            path = self.finds(outer) if outer.strip(".") else None
            module = None if path is None else self.modules.sketch(path)
            return self.module_of(outer) is not None if module is None else module.is_late(inner)
        sketch = self.modules.sketch(found[0])
        return sketch is not None and bool(sketch.assigned(found[1])) and not sketch.is_function(found[1])

    def is_optional(self, name: str) -> bool:
        """See `Elsewhere.is_optional`."""
        view, found = self, self.module_of(name)
        for _ in range(_MOST_STEPS):
            facts = None if found is None else self.modules.facts(found[0], self.torch)
            if found is None or facts is None:
                return False
            path, inner = found
            view.asked.add(path)
            bindings = facts.names.exported(inner)
            assigned = [one for one in bindings if one.kind not in (Kind.IMPORT, Kind.DEFINITION)]
            meanings = [facts.names.meanings_of(one) for one in assigned]
            if any(not known or any(one.qualified is None for one in known) for known in meanings):
                return True
            view, sketch = self.modules.view_at(path, self.torch), self.modules.sketch(path)
            stars = () if bindings or sketch is None else view.star_targets(sketch, inner)
            targets = (*(one.target for one in bindings if one.target is not None), *stars)
            found = next((one for target in targets if (one := view.module_of(target)) is not None), None)
        return False

    def names_fsdp(self, name: str) -> bool:
        """See `Elsewhere.names_fsdp`."""
        found = None if is_torch(name) else self.origin(name) or self.module_of(name)
        path = self.finds(name) if found is None else found[0]
        if path is None or path == self.path:
            return False
        self.asked.add(path)
        return FSDP_CLASS.encode() in (self.modules.raw(path) or b"")

    def finds(self, module: str) -> str | None:
        """The file of a module as this file imports it, None when it is not in the project."""
        return self.modules.finder.find(module, self.path)

    def subclass(self, name: str) -> ForeignClass | None:
        """See `Elsewhere.subclass`."""
        if name not in self._subclasses:
            self._subclasses[name] = None
            self._subclasses[name] = foreign_class(self, name)
        return self._subclasses[name]

    def members(self, name: str) -> frozenset[str]:
        """See `Elsewhere.members`."""
        if name not in self._members:
            self._members[name] = frozenset()
            if (found := self.module_of(name)) is not None:
                self.asked.add(found[0])
                facts = self.modules.facts(found[0], self.torch)
                bound = [] if facts is None else facts.names.exported(found[1])
                self._members[name] = frozenset() if facts is None else members_behind(facts.names, bound)
        return self._members[name]

    def definition(self, name: str) -> tuple[ModuleFacts, Sequence[Binding]] | None:
        """See `Elsewhere.definition`."""
        found = self.origin(name)
        facts = None if found is None else self.modules.facts(found[0], self.torch)
        return None if found is None or facts is None else (facts, facts.names.exported(found[1]))

    def home(self, name: str) -> tuple[ModuleFacts, str] | None:
        """See `Elsewhere.home`."""
        if name not in self._homes:
            self._homes[name] = None
            self._homes[name] = self._found_home(name)
        return self._homes[name]

    def _found_home(self, name: str) -> tuple[ModuleFacts, str] | None:
        found = self.origin(name)
        if found is None:
            return None
        path, inner = found
        sketch = self.modules.sketch(path)
        facts = self.modules.facts(path, self.torch) if sketch is not None and sketch.asks_version(inner) else None
        return None if facts is None else (facts, inner)

    def forget_facts(self) -> None:
        """Keep no facts of modules."""
        self._homes.clear()

    def origin(self, name: str) -> tuple[str, str] | None:
        """The file that defines or assigns what is imported as `name`, and its name there; None when none does."""
        view, found = self, self.module_of(name)
        for _ in range(_MOST_STEPS):
            if found is None:
                return None
            path, inner = found
            view.asked.add(path)
            sketch = self.modules.sketch(path)
            if sketch is None or sketch.is_definition(inner) or sketch.assigned(inner):
                return None if sketch is None else found
            view = self.modules.view_at(path, self.torch)
            targets = (*sketch.imports.get(inner, ()), *view.star_targets(sketch, inner))
            found = next((one for target in targets if (one := view.module_of(target)) is not None), None)
        return None

    def is_imported(self, name: str) -> bool:
        """See `Elsewhere.is_imported`."""
        from fsdp_migrate.workspace.modules.importers import is_imported

        self.asked_all = True
        return is_imported(self.modules, self.path, name)

    def is_written(self, word: str) -> bool:
        """See `Elsewhere.is_written`."""
        self.asked_all = True
        return bool(self.modules.writers(self.path, word))

    def patcher(self, name: str, old: str) -> str | None:
        """See `Elsewhere.patcher`."""
        from fsdp_migrate.workspace.modules.importers import patcher

        self.asked_all = True
        return patcher(self.modules, self.path, name, old)

    def setters(self, name: str) -> Sequence[tuple[ModuleFacts, str]]:
        """See `Elsewhere.setters`."""
        from fsdp_migrate.workspace.modules.importers import setters

        self.asked_all = True
        return tuple(setters(self.modules, self.path, name, self.torch))

    def uses(self, name: str) -> Sequence[Use] | None:
        """See `Elsewhere.uses`."""
        from fsdp_migrate.workspace.modules.importers import uses

        self.asked_all = True
        return uses(self.modules, self.path, name, self.torch)

    def module_of(self, name: str) -> tuple[str, str] | None:
        """The file of the module that a full name goes through, and the name in it; None outside the project."""
        module, inner = split(name)
        path = self._file_of(module) if module and not is_torch(name) else None
        if path is None:
            return None
        sketch = self.modules.sketch(path)
        if sketch is None or not sketch.is_late(inner):
            return path, inner
        self.asked.add(path)
        return loaded_late(self.modules, path, sketch, inner) or (path, inner)

    def _file_of(self, module: str) -> str | None:
        """The file of another module of the project, None when it is none."""
        path = self.modules.finder.find(module, self.path)
        if path is None and module.strip("."):
            path = self._renamed_module(module)
        return None if path == self.path else path

    def _renamed_module(self, module: str) -> str | None:
        """The file of a module that a package has under another name (`from . import distributed as dist`)."""
        outer, inner = split(module)
        path = self._file_of(outer) if outer else None
        sketch = None if path is None else self.modules.sketch(path)
        if path is None or sketch is None:
            return None
        self.asked.add(path)
        targets = [target for target in sketch.imports.get(inner, ()) if not is_torch(target)]
        found = [self.modules.finder.find(target, path) for target in targets]
        return found[0] if len(found) == 1 else None


def reads(raw: bytes, bound: str, name: str) -> bool:
    """Whether a text may read `name` off a module that is called `bound`, or by itself where it imports a star."""
    return (name if bound == "*" else f".{name}").encode() in raw or name == "*"
