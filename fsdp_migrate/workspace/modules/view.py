"""What one file can know of the other modules of its project: the answers to `facts.project.ProjectModules`."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from fsdp_migrate.facts import Reads, Use
from fsdp_migrate.facts.class_members import all_members, members_behind
from fsdp_migrate.facts.names import LOCAL, Meaning
from fsdp_migrate.facts.other_modules import ForeignClass
from fsdp_migrate.facts.scopes import Kind
from fsdp_migrate.findings import Consulted
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.scan.imports import import_lines
from fsdp_migrate.workspace.modules.sketch import Sketch, import_line, is_torch, joined, split

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.facts.scopes import Binding
    from fsdp_migrate.torch_api import TorchRange
    from fsdp_migrate.workspace.modules.carried import Carried
    from fsdp_migrate.workspace.modules.texts import Texts

_MOST_STEPS = 10
_ATTRIBUTE = re.compile(rb"\.(\w+)")
_WORD = re.compile(rb"\w+")
_FSDP_CLASS = "FullyShardedDataParallel"
# The questions on the way here, each a file and a name in it or a base written there: classes may go in circles.
_Seen = set[tuple[str, str]]


class Importing(Protocol):
    """Answers about the importers of a module, by its path."""

    def program(self, path: str) -> frozenset[str]:
        """The files that imports connect with the module: those that lead to it, and all that these load."""

    def is_imported(self, path: str, name: str) -> bool:
        """Whether another file imports the top-level `name` of the module, or replaces it."""

    def takers(self, path: str, name: str) -> Sequence[str] | None:
        """The files that take the top-level `name` of the module; None where strings name it too."""

    def uses(self, path: str, name: str, torch: TorchRange) -> Sequence[Use] | None:
        """The places in other files that read the top-level `name` of the module; None if there may be more."""

    def reads(self, path: str, name: str, torch: TorchRange) -> Reads:
        """The places in other files that may read the top-level `name` of the module."""

    def bases_written(self, path: str, name: str, torch: TorchRange) -> Sequence[Use]:
        """Where other files that may derive a class from the top-level `name` of the module read that."""

    def writing(self, path: str, word: str, torch: TorchRange) -> Iterator[ModuleFacts]:
        """The other files of the project that read an attribute of this name from anything but their `self`."""

    def patcher(self, path: str, name: str, old: str) -> str | None:
        """The file that patches `name` (in torch: `old`) in torch or in the module, None if none does."""

    def setters(self, path: str, name: str, torch: TorchRange) -> Iterator[tuple[ModuleFacts, str]]:
        """The other files of the project that may assign an attribute `name`, each with its name for messages."""


class ParsedModules(Protocol):
    """The modules of a project, with their texts, facts and views."""

    texts: Texts

    @property
    def importers(self) -> Importing:
        """The files that import them."""

    def facts(self, path: str, torch: TorchRange) -> ModuleFacts | None:
        """The facts of the module at `path`, None if it cannot be read or parsed."""

    def kept(self, path: str, raw: bytes) -> ModuleFacts | None:
        """Facts of a module that stay open anyway, if it has this text there."""

    def view_at(self, path: str, torch: TorchRange) -> View:
        """The view of the file at `path` on the others."""

    def entering(self, question: object) -> AbstractContextManager[bool]:
        """Whether a question is asked for the first time on this way: modules may import one another in a circle."""


class StarReach(NamedTuple):
    """The files whose top-level names a module gets by star imports, itself included.

    Some give it only their `names`. The `others` may give it any name that they write. If it is `open`, it may have any
    name at all, from torch or from a `__getattr__`.
    """

    paths: frozenset[str]
    names: frozenset[str]
    others: frozenset[str]
    open: bool


class View:
    """The project as the file at `path` sees it, for a torch range.

    Every file that it looks into is noted in `asked`.
    """

    def __init__(self, modules: ParsedModules, path: str, torch: TorchRange) -> None:
        self.modules = modules
        self.texts = modules.texts
        self.path = path
        self.torch = torch
        self.asked: set[str] = set()
        self.asked_all = False
        self._meanings: dict[str, Sequence[str | None] | None] = {}
        self._subclasses: dict[str, ForeignClass | None] = {}
        self._members: dict[str, frozenset[str]] = {}
        self._behind: dict[str, frozenset[str]] = {}
        self._homes: dict[str, tuple[ModuleFacts, str] | None] = {}
        self._reach: StarReach | None = None

    @property
    def asked_beyond(self) -> bool:
        """See `ProjectModules.asked_beyond`."""
        return self.asked_all and self.texts.is_in_part(self.path)

    @property
    def consulted(self) -> tuple[Consulted, ...]:
        """The other files that the answers so far depend on, in order of path; none if that is not wanted."""
        if not self.texts.noting:
            return ()
        paths, waiting = {self.path}, [self.path]
        while waiting:
            for path in self.modules.view_at(waiting.pop(), self.torch).asked - paths:
                paths.add(path)
                waiting.append(path)
        return tuple(Consulted(path, self.texts.digest(path)) for path in sorted(paths - {self.path}))

    def meanings(self, name: str) -> Sequence[str | None] | None:
        """See `ProjectModules.meanings`."""
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
            return None if facts is None else _exported_meanings(facts, inner, name)

    def direct_imports(self, named: Iterable[tuple[str, str]], attributes: Set[str], used: Set[str]) -> str:
        """See `ProjectModules.direct_imports`."""
        carried = None if self.texts.is_in_part(self.path) else self.texts.carried
        given = frozenset[str]() if carried is None else carried.words.keys()
        through_module, through_star = not given.isdisjoint(attributes), not given.isdisjoint(used)
        lines = []
        for bound, name in sorted(named):
            if is_torch(name):
                continue
            through = through_star if bound == "*" else split(name)[1] in given
            through = through or (through_module and carried is not None and self._may_be_module(name, carried))
            if through or carried is None or self._is_beyond(name, carried):
                lines.append(self._direct_import(bound, name, used if bound == "*" else attributes))
        return "".join(lines)

    def _may_be_module(self, name: str, carried: Carried) -> bool:
        return self.texts.finder.find(name, self.path) is not None or split(name)[1] in carried.renamed

    def _is_beyond(self, name: str, carried: Carried) -> bool:
        """Whether what is imported is in a file of the project that is not part of the run."""
        find = self.texts.finder.find
        home = find(name, self.path) or find(split(name)[0], self.path)
        return home is not None and home not in carried.files

    def _direct_import(self, bound: str, name: str, words: Set[str]) -> str:
        def reads(name: str) -> bool:
            return name == "*" or name in words

        behind: set[tuple[str, str]] = set()
        found = None if bound == "*" else self.module_of(name)
        if found is not None:
            behind |= {(bound, target) for target in self._other(found[0]).all_behind(found[1])}
        module = self._file_of(name)
        if module is not None:
            other = self._other(module)
            behind |= other.everything_behind(reads) | _behind_modules(other, reads)
        return "".join(import_line(alias, target) for alias, target in sorted(behind))

    def behind(self, name: str) -> frozenset[str]:
        """The full names of torch that a top-level name of this file may mean, by the bytes."""
        if name not in self._behind:
            self._behind[name] = frozenset()  # for modules that import one another in a circle
            self._behind[name] = frozenset(self._found_behind(name))
        return self._behind[name]

    def _found_behind(self, name: str) -> Iterator[str]:
        sketch = self.texts.sketch(self.path)
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
            found = () if facts is None else _exported_meanings(facts, name, "")
            yield from (target for target in found or () if target)

    def may_bring(self, name: str) -> bool:
        """Whether a top-level name is written in this file, or in a file that its star imports reach."""
        word, sketch = name.encode(), self.texts.sketch(self.path)
        if sketch is not None and word in sketch.raw:
            return True
        if self.reach.open or name in self.reach.names:
            return True
        self.asked |= self.reach.paths
        sketches = (self.texts.sketch(path) for path in self.reach.others)
        return any(one is not None and word in one.raw for one in sketches)

    @property
    def reach(self) -> StarReach:
        """The files that the star imports of this one reach, directly and through others."""
        if self._reach is None:
            self._reach = _star_reach(self)
        return self._reach

    def star_module(self, star: str) -> str | None:
        """The file of a star-imported module, None if it is not in the project."""
        return None if is_torch(star) else self._file_of(star)

    def star_targets(self, sketch: Sketch, name: str) -> Iterator[str]:
        """The full names that a top-level name may mean by the star imports of this file."""
        for star in sketch.stars:
            path = self.star_module(star)
            taken = None if path is None else self.texts.starred(path)
            if path is not None:
                self.asked.add(path)
            if taken is None or name in taken:
                yield joined(star, name)

    def _behind_dotted(self, sketch: Sketch, dotted: str, name: str) -> Iterator[str]:
        """The names of torch behind an expression of this file; `name` is being looked up, and not followed again."""
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
        """The same as `behind`, with the base classes of this name."""
        behind, sketch = self.behind(name), self.texts.sketch(self.path)
        bases = () if sketch is None or behind else sketch.bases(name)
        derived = (target for base in bases if sketch for target in self._behind_dotted(sketch, base, name))
        return behind.union(derived)

    def everything_behind(self, reads: Callable[[str], bool]) -> frozenset[tuple[str, str]]:
        """The names read in this file that may mean something of torch, each with that; star imports included."""
        sketch = self.texts.sketch(self.path)
        if sketch is None:
            return frozenset()
        found = {(bound, target) for bound in sketch.names if reads(bound) for target in self.all_behind(bound)}
        with self.modules.entering((self.path, "*")) as first:
            for star in sketch.stars if first else ():
                module = self.texts.finder.find(star, self.path)
                if is_torch(star):
                    found.add(("*", star))
                elif module is not None:
                    found |= self._other(module).everything_behind(reads)
        return frozenset(found)

    def gives(self, name: str) -> bool:
        """Whether this file itself defines the name: by an import from torch, by an alias, or by an assignment."""
        sketch = self.texts.sketch(self.path)
        targets = () if sketch is None else sketch.imports.get(name, ())
        return not targets or any(is_torch(target) or split(target)[1] != name for target in targets)

    def _other(self, path: str) -> View:
        """The view of another file, noted as looked into."""
        self.asked.add(path)
        return self.modules.view_at(path, self.torch)

    def written(self, raw: bytes) -> bytes:
        """A text of this file with imports from torch itself for what it imports from torch through its project."""
        sketch = Sketch(import_lines(raw))
        named = {(bound, target) for bound, targets in sketch.imports.items() for target in targets}
        named |= {("*", star) for star in sketch.stars}
        named |= {(module, module) for module in sketch.dotted}
        attributes = {word.decode("utf-8", "replace") for word in _ATTRIBUTE.findall(raw)}
        used = {word.decode("utf-8", "replace") for word in _WORD.findall(raw)} if sketch.stars else set()
        return raw + self.direct_imports(named, attributes, used).encode()

    def is_own(self, name: str) -> bool:
        """See `ProjectModules.is_own`."""
        if is_torch(name):
            return False
        return self.texts.finder.find(name, self.path) is not None or self.module_of(name) is not None

    def may_pass_on(self, name: str) -> bool:
        """See `ProjectModules.may_pass_on`."""
        if is_torch(name):
            return False
        carried = None if self.texts.is_in_part(self.path) else self.texts.carried
        if carried is None:
            return self.is_own(name)
        if split(name)[1] in carried.words or self._is_beyond(name, carried):
            return True
        return self._file_of(name) is not None

    def defines(self, name: str) -> bool | None:
        """See `ProjectModules.defines`."""
        found = self.module_of(name)
        if found is None:
            return None
        facts = self.modules.facts(found[0], self.torch)
        if facts is None or facts.structure.module.star_imports:
            return None
        return found[1] in facts.structure.module.bindings

    def is_variable(self, name: str) -> bool:
        """See `ProjectModules.is_variable`."""
        found = self.origin(name)
        if found is None:
            outer, inner = split(name)
            path = self.finds(outer) if outer.strip(".") else None
            module = None if path is None else self.texts.sketch(path)
            return self.module_of(outer) is not None if module is None else module.is_lazy(inner)
        sketch = self.texts.sketch(found[0])
        return sketch is not None and bool(sketch.assigned(found[1])) and not sketch.is_function(found[1])

    def is_optional(self, name: str) -> bool:
        """See `ProjectModules.is_optional`."""
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
            view, sketch = self.modules.view_at(path, self.torch), self.texts.sketch(path)
            stars = () if bindings or sketch is None else view.star_targets(sketch, inner)
            targets = (*(one.target for one in bindings if one.target is not None), *stars)
            found = next((one for target in targets if (one := view.module_of(target)) is not None), None)
        return False

    def names_fsdp(self, name: str) -> bool:
        """See `ProjectModules.names_fsdp`."""
        found = None if is_torch(name) else self.origin(name) or self.module_of(name)
        path = self.finds(name) if found is None else found[0]
        if path is None or path == self.path:
            return False
        self.asked.add(path)
        return _FSDP_CLASS.encode() in (self.texts.raw(path) or b"")

    def may_bring_fsdp(self, raw: bytes) -> bool:
        """Whether FSDP may come to a text of this file out of sight: from a module that names it, or by a star."""
        sketch = Sketch(import_lines(raw))
        if any(not is_torch(star) and self.star_module(star) is None for star in sketch.stars):
            return True
        return any(self.names_fsdp(target) for targets in sketch.imports.values() for target in targets)

    def kept(self, raw: bytes) -> ModuleFacts | None:
        """See `ProjectModules.kept`."""
        return self.modules.kept(self.path, raw)

    def finds(self, module: str) -> str | None:
        """See `ProjectModules.finds`."""
        return self.texts.finder.find(module, self.path)

    def module(self, name: str) -> ModuleFacts | None:
        """See `ProjectModules.module`."""
        path = self.finds(name)
        if path is None:
            return None
        self.asked.add(path)
        return self.modules.facts(path, self.torch)

    def text_of(self, path: str) -> str | None:
        """See `ProjectModules.text_of`."""
        path = os.path.abspath(path)
        self.asked.add(path)
        raw = self.texts.raw(path)
        try:
            return None if raw is None else raw.decode()
        except UnicodeDecodeError:
            return None

    def subclass(self, name: str) -> ForeignClass | None:
        """See `ProjectModules.subclass`."""
        if name not in self._subclasses:
            self._subclasses[name] = None
            self._subclasses[name] = _foreign_class(self, name)
        return self._subclasses[name]

    def members(self, name: str) -> frozenset[str]:
        """See `ProjectModules.members`."""
        if name not in self._members:
            self._members[name] = frozenset()
            if (found := self.module_of(name)) is not None:
                self.asked.add(found[0])
                facts = self.modules.facts(found[0], self.torch)
                bound = [] if facts is None else facts.names.exported(found[1])
                self._members[name] = frozenset() if facts is None else members_behind(facts.names, bound)
        return self._members[name]

    def definition(self, name: str) -> tuple[ModuleFacts, Sequence[Binding]] | None:
        """See `ProjectModules.definition`."""
        found = self.origin(name)
        facts = None if found is None else self.modules.facts(found[0], self.torch)
        return None if found is None or facts is None else (facts, facts.names.exported(found[1]))

    def home(self, name: str) -> tuple[ModuleFacts, str] | None:
        """See `ProjectModules.home`."""
        if name not in self._homes:
            self._homes[name] = None
            self._homes[name] = self._found_home(name)
        return self._homes[name]

    def _found_home(self, name: str) -> tuple[ModuleFacts, str] | None:
        found = self.origin(name)
        if found is None:
            return None
        path, inner = found
        sketch = self.texts.sketch(path)
        facts = self.modules.facts(path, self.torch) if sketch is not None and sketch.asks_version(inner) else None
        return None if facts is None else (facts, inner)

    def function(self, name: str) -> tuple[ModuleFacts, ast.FunctionDef | ast.AsyncFunctionDef] | None:
        """See `ProjectModules.function`."""
        found = self.origin(name)
        facts = None if found is None else self.modules.facts(found[0], self.torch)
        bindings = [] if facts is None or found is None else facts.structure.module.bindings.get(found[1], [])
        node = bindings[0].node if len(bindings) == 1 else None
        if facts is None or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        return facts, node

    def forget_facts(self) -> None:
        """Keep no facts of modules."""
        self._homes.clear()

    def origin(self, name: str) -> tuple[str, str] | None:
        """The file that defines or assigns what is imported as `name`, and its name there; None if no file does."""
        view, found = self, self.module_of(name)
        for _ in range(_MOST_STEPS):
            if found is None:
                return None
            path, inner = found
            view.asked.add(path)
            sketch = self.texts.sketch(path)
            if sketch is None or sketch.is_definition(inner) or sketch.assigned(inner):
                return None if sketch is None else found
            view = self.modules.view_at(path, self.torch)
            targets = (*sketch.imports.get(inner, ()), *view.star_targets(sketch, inner))
            found = next((one for target in targets if (one := view.module_of(target)) is not None), None)
        return None

    def is_imported(self, name: str) -> bool:
        """See `ProjectModules.is_imported`."""
        self.asked_all = True
        return self.modules.importers.is_imported(self.path, name)

    def takers(self, name: str) -> Sequence[str] | None:
        """See `ProjectModules.takers`."""
        self.asked_all = True
        return self.modules.importers.takers(self.path, name)

    def is_written(self, word: str) -> bool:
        """See `ProjectModules.is_written`."""
        self.asked_all = True
        return bool(self.texts.writers(self.path, word))

    def is_in_program(self, word: str) -> bool:
        """See `ProjectModules.is_in_program`."""
        self.asked_all = True
        writers = self.texts.writers(self.path, word)
        return bool(writers) and not writers.isdisjoint(self.modules.importers.program(self.path))

    def having(self, word: str) -> Sequence[ModuleFacts]:
        """See `ProjectModules.having`."""
        self.asked_all = True
        found = (self.modules.facts(path, self.torch) for path in sorted(self.texts.writers(self.path, word)))
        return tuple(facts for facts in found if facts is not None)

    def patcher(self, name: str, old: str) -> str | None:
        """See `ProjectModules.patcher`."""
        self.asked_all = True
        return self.modules.importers.patcher(self.path, name, old)

    def setters(self, name: str) -> Sequence[tuple[ModuleFacts, str]]:
        """See `ProjectModules.setters`."""
        self.asked_all = True
        return tuple(self.modules.importers.setters(self.path, name, self.torch))

    def uses(self, name: str) -> Sequence[Use] | None:
        """See `ProjectModules.uses`."""
        self.asked_all = True
        return self.modules.importers.uses(self.path, name, self.torch)

    def reads(self, name: str) -> Reads:
        """See `ProjectModules.reads`."""
        self.asked_all = True
        return self.modules.importers.reads(self.path, name, self.torch)

    def writing(self, word: str) -> Sequence[ModuleFacts]:
        """See `ProjectModules.writing`."""
        self.asked_all = True
        return tuple(self.modules.importers.writing(self.path, word, self.torch))

    def bases_written(self, name: str) -> Sequence[Use]:
        """See `ProjectModules.bases_written`."""
        self.asked_all = True
        return self.modules.importers.bases_written(self.path, name, self.torch)

    def module_of(self, name: str) -> tuple[str, str] | None:
        """The file of the module in a full name, and the name in it; None outside the project."""
        module, inner = split(name)
        path = self._file_of(module) if module and not is_torch(name) else None
        if path is None:
            return None
        sketch = self.texts.sketch(path)
        if sketch is None or not sketch.is_lazy(inner):
            return path, inner
        self.asked.add(path)
        return _lazily_loaded(self.texts, path, sketch, inner) or (path, inner)

    def _file_of(self, module: str) -> str | None:
        """The file of another module of the project, None if it is not one."""
        path = self.texts.finder.find(module, self.path)
        if path is None and module.strip("."):
            path = self._renamed_module(module)
        return None if path == self.path else path

    def _renamed_module(self, module: str) -> str | None:
        """The file of a module that a package imports under another name (`from . import distributed as dist`)."""
        outer, inner = split(module)
        path = self._file_of(outer) if outer else None
        sketch = None if path is None else self.texts.sketch(path)
        if path is None or sketch is None:
            return None
        self.asked.add(path)
        targets = [target for target in sketch.imports.get(inner, ()) if not is_torch(target)]
        found = [self.texts.finder.find(target, path) for target in targets]
        return found[0] if len(found) == 1 else None


def _star_reach(view: View) -> StarReach:
    """The files that the star imports of one file reach, directly and through others."""
    texts, waiting, is_open = view.texts, [view], False
    names: set[str] = set()
    paths, others = {view.path}, {view.path}
    while waiting:
        current = waiting.pop()
        sketch = texts.sketch(current.path)
        for star in () if sketch is None else sketch.stars:
            is_open = is_open or star.split(".")[0] == "torch"
            found = current.star_module(star)
            if found is None or found in paths:
                continue
            paths.add(found)
            taken = texts.starred(found)
            if taken is not None:
                names |= taken
                continue
            others.add(found)
            text = texts.sketch(found)
            is_open = is_open or (text is not None and text.loads_lazily)
            waiting.append(view.modules.view_at(found, view.torch))
    return StarReach(frozenset(paths), frozenset(names), frozenset(others), is_open)


def _behind_modules(view: View, reads: Callable[[str], bool]) -> set[tuple[str, str]]:
    """The names of torch that are read from modules of the project, or from modules in these."""
    found: set[tuple[str, str]] = set()
    waiting, seen = [view], {view.path}
    while waiting:
        current = waiting.pop()
        sketch = view.texts.sketch(current.path)
        bound = () if sketch is None else bound_modules(current, sketch)
        for path in {path for name, path in bound if reads(name)} - seen:
            seen.add(path)
            current.asked.add(path)
            waiting.append(view.modules.view_at(path, view.torch))
            found |= waiting[-1].everything_behind(reads)
    return found


def bound_modules(view: View, sketch: Sketch) -> Iterator[tuple[str, str]]:
    """The names that a file binds to modules of its project, with their files."""
    for bound, targets in sketch.imports.items():
        for target in targets:
            path = None if is_torch(target) else view.texts.finder.find(target, view.path)
            if path is not None and path != view.path:
                yield bound, path


def _lazily_loaded(texts: Texts, path: str, sketch: Sketch, name: str) -> tuple[str, str] | None:
    """The file and the name there of a lazily loaded name of the module at `path`, as far as its texts show."""
    for text in sketch.texts:
        for module in (f".{text}", text):
            found = texts.finder.find(module, path) if text.strip(".") else None
            other = None if found is None or found == path else texts.sketch(found)
            if found is not None and other is not None and other.tells(name):
                return found, name
    return None


def _exported_meanings(facts: ModuleFacts, name: str, asked: str) -> Sequence[str | None] | None:
    """The full names that a top-level name of a module means; None if the module defines it."""
    bindings = facts.names.exported(name)
    if len(bindings) > 1:
        bindings = [binding for binding in bindings if facts.reached(binding.node)] or bindings
    meanings = [meaning for binding in bindings for meaning in facts.names.meanings_of(binding)]
    if not bindings:
        meanings = list(facts.names.starred(name))
    names = [meaning.qualified for meaning in meanings]
    if not any(qualified is not None and is_torch(qualified) for qualified in names):
        return None
    own = {binding for binding in bindings if binding.kind is Kind.DEFINITION}
    return tuple(dict.fromkeys(asked if m.binding in own or _is_relative(m) else m.qualified for m in meanings))


def _is_relative(meaning: Meaning) -> bool:
    """Whether a name makes sense in its own module only."""
    return meaning.qualified is not None and meaning.qualified.startswith((LOCAL, "."))


def _foreign_class(view: View, name: str) -> ForeignClass | None:
    """The subclass of FSDP that the file of `view` imports as `name`, None if it is not one."""
    found = _derived(view, name, set())
    facts = None if found is None else view.modules.facts(found[0], view.torch)
    if found is None or facts is None:
        return None
    inner = found[1]
    cls = facts.fsdp.subclasses.get(inner)
    if cls is None or not any(binding.node is cls for binding in facts.names.exported(inner)):
        return None
    return ForeignClass(inner, all_members(cls, facts.names))


def _derived(view: View, name: str, seen: _Seen) -> tuple[str, str] | None:
    """The file and name of a class that, by the bytes, derives from FSDP."""
    found = view.module_of(name)
    if found is None or found in seen:
        return None
    seen.add(found)
    path, inner = found
    view.asked.add(path)
    sketch = view.texts.sketch(path)
    other = view.modules.view_at(path, view.torch)
    if sketch is None or not other.may_bring(inner):
        return None
    if any(_may_be_fsdp(other, base, seen) for base in sketch.bases(inner)):
        return found
    targets = (*sketch.imports.get(inner, ()), *other.star_targets(sketch, inner))
    followed = (_derived(other, target, seen) for target in targets)
    return next((one for one in followed if one is not None), None)


def _may_be_fsdp(view: View, base: str, seen: _Seen) -> bool:
    """Whether a base class, as written in the file of `view`, may be FSDP or a subclass of it."""
    sketch, question = view.texts.sketch(view.path), (view.path, f"base {base}")
    if sketch is None or question in seen:
        return False
    seen.add(question)
    if any(_may_be_fsdp(view, inner, seen) for inner in sketch.bases(base) if inner != base):
        return True
    head, _, rest = base.partition(".")
    if any(alias == "FSDP" or alias.endswith(_FSDP_CLASS) for alias in sketch.aliases(head)):
        return True
    imported = [f"{target}.{rest}" if rest else target for target in sketch.imports.get(head, ())]
    if any(is_torch(target) and target.endswith(_FSDP_CLASS) for target in imported):
        return True
    if any(is_torch(module) for module in sketch.stars):
        return True
    starred = [joined(module, base) for module in sketch.stars]
    project = [target for target in (*imported, *starred) if not is_torch(target)]
    return any(_derived(view, target, seen) is not None or _is_fsdp(view, target) for target in project)


def _is_fsdp(view: View, name: str) -> bool:
    return any(meaning is not None and meaning.endswith(_FSDP_CLASS) for meaning in view.meanings(name) or ())
