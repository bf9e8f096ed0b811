"""The modules of a project, read where a file imports from them and parsed where that may matter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.workspace.disk import digest
from fsdp_migrate.workspace.filesystem import FileError, SourceFile, discover, read
from fsdp_migrate.workspace.modules.exports import exported
from fsdp_migrate.workspace.modules.finder import Finder
from fsdp_migrate.workspace.modules.sketch import Sketch

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.torch_api import TorchRange
    from fsdp_migrate.workspace.modules.importers import Index
    from fsdp_migrate.workspace.modules.view import View

# A parsed module takes some fifty bytes for each of its text; what the largest files take is taken anyway.
_MOST_PARSED = 450_000
_MOST_READ = 12_000_000


class Modules:
    """What the files of a project import from one another; nothing under analysis is imported or run.

    Files are read when something is asked about them, once. Built from paths alone, so that each process of a run can
    have one of its own.
    """

    def __init__(
        self,
        files: Sequence[SourceFile] = (),
        folders: Sequence[str] = (),
        *,
        noting: bool = True,
        read: Callable[[SourceFile], bytes] = read,
    ) -> None:
        """`files` are all that the run looks at, `folders` those that it was asked to look into.

        `noting` says whether anybody wants to know what the answers depend on, as a cache does; `read` gives bytes.
        """
        self.noting = noting
        self._read = read
        self._files = files
        self.finder = Finder(folders)
        self._raw: dict[str, bytes | None] = {}
        self._sketches: dict[str, Sketch | None] = {}
        self._starred: dict[str, frozenset[str] | None] = {}
        self._facts: dict[tuple[str, TorchRange], ModuleFacts | None] = {}
        self._views: dict[tuple[str, TorchRange], View] = {}
        self._digests: dict[str, str] = {}
        self._active: set[object] = set()
        self._indexes: dict[str | None, Index] = {}
        self._writers: dict[tuple[str | None, str], frozenset[str]] = {}
        self._all: dict[str | None, tuple[SourceFile, ...]] = {}

    @cached_property
    def files(self) -> tuple[SourceFile, ...]:
        """All that the run looks at, by absolute paths."""
        return tuple(file._replace(path=os.path.abspath(file.path)) for file in self._files if file.raw is None)

    def view(self, path: str, torch: TorchRange) -> View:
        """What the file at `path` can learn of the others, for a torch range."""
        return self.view_at(os.path.abspath(path), torch)

    def view_at(self, path: str, torch: TorchRange) -> View:
        """As `view`, for an absolute path."""
        view = self._views.get((path, torch))
        if view is None:
            from fsdp_migrate.workspace.modules.view import View

            view = self._views[path, torch] = View(self, path, torch)
        return view

    def sketch(self, path: str) -> Sketch | None:
        """What the bytes of a file tell, None when it cannot be read."""
        if path not in self._sketches:
            raw = self.raw(path)
            self._sketches[path] = None if raw is None else Sketch(raw)
        return self._sketches[path]

    def raw(self, path: str) -> bytes | None:
        """The bytes of a file as they were when it was first asked for, None when it cannot be read."""
        if path not in self._raw:
            self._raw[path] = self._bytes(path)
        return self._raw[path]

    def glance(self, path: str) -> bytes:
        """The same for a look at many files, whose bytes are not kept; nothing of one that cannot be read."""
        raw = self._raw[path] if path in self._raw else self._bytes(path)
        return b"" if raw is None else raw

    def starred(self, path: str) -> frozenset[str] | None:
        """The names that a star import takes by the `__all__` of a module; None when it has none, or cannot be read.

        The bytes of one that says so are not kept: there may be thousands that are asked for nothing else.
        """
        if path not in self._starred:
            raw = self._raw[path] if path in self._raw else self._bytes(path)
            names = self._starred[path] = None if raw is None else exported(raw)
            if names is None:
                self._raw.setdefault(path, raw)
            elif self.noting:
                self._digests.setdefault(path, digest(raw or b""))
        return self._starred[path]

    def digest(self, path: str) -> str:
        """A digest of the bytes of a file, of nothing when it cannot be read."""
        if path not in self._digests:
            self._digests[path] = digest(self.raw(path) or b"")
        return self._digests[path]

    def facts(self, path: str, torch: TorchRange) -> ModuleFacts | None:
        """The facts of the module at `path`, None when it cannot be read or parsed."""
        key = (path, torch)
        if key not in self._facts:
            self._facts[key] = self._parsed(path, torch)
        return self._facts[key]

    def _parsed(self, path: str, torch: TorchRange) -> ModuleFacts | None:
        from fsdp_migrate.facts import ModuleFacts
        from fsdp_migrate.source import SourceError
        from fsdp_migrate.workspace.reading import read_source

        raw = self.raw(path)
        try:
            return None if raw is None else ModuleFacts(read_source(raw, path), path, torch, self.view_at(path, torch))
        except (SourceError, SyntaxError, RecursionError):
            return None

    def trim(self, room: int = 0) -> None:
        """Let go of texts and of parsed modules once they are many; whoever was given one must be done with it.

        What was answered stays known, and a text that is asked for again is read again. `room` as in `trim_parsed`.
        """
        if sum(len(raw) for raw in self._raw.values() if raw is not None) >= _MOST_READ:
            for path in self._raw if self.noting else ():
                self.digest(path)
            self._raw.clear()
            self._sketches.clear()
        self.trim_parsed(room)

    def trim_parsed(self, room: int = 0) -> None:
        """Let go of parsed modules if there are many of them for a run that parses a file of `room` bytes next."""
        held = [facts for facts in self._facts.values() if facts is not None]
        if sum(len(facts.source.data) for facts in held) + room < _MOST_PARSED:
            return
        for facts in held:
            facts.close()
        self._facts.clear()
        for view in self._views.values():
            view.forget_facts()

    def _bytes(self, path: str) -> bytes | None:
        try:
            return self._read(SourceFile(path, path))
        except FileError:
            return None

    def index(self, path: str) -> Index:
        """What the files of the run, and others of the project that the file at `path` is in, import."""
        from fsdp_migrate.workspace.modules.importers import index

        root = self.finder.unnamed(os.path.dirname(path))
        if root not in self._indexes:
            self._indexes[root] = index(self._all_with(root), self.glance)
        return self._indexes[root]

    def writers(self, path: str, word: str) -> frozenset[str]:
        """Which other files than the one at `path` have a word, of the same ones as for `index`."""
        root = self.finder.unnamed(os.path.dirname(path))
        if (root, word) not in self._writers:
            paths = (file.path for file in self._all_with(root))
            self._writers[root, word] = frozenset(one for one in paths if word.encode() in self.glance(one))
        return self._writers[root, word] - {path}

    def is_in_part(self, path: str) -> bool:
        """Whether the run looks at a part only of the project that the file at `path` is in."""
        return self.finder.unnamed(os.path.dirname(path)) is not None

    def _all_with(self, root: str | None) -> tuple[SourceFile, ...]:
        """The files of the run, and the others of a project."""
        if root not in self._all:
            self._all[root] = (*self.files, *self._others(root))
        return self._all[root]

    def _others(self, root: str | None) -> Iterator[SourceFile]:
        """The files of a project that the run does not look at."""
        known = {file.path for file in self.files}
        yield from (file for file in discover([root]).files if file.path not in known) if root is not None else ()

    @contextmanager
    def entering(self, question: object) -> Iterator[bool]:
        """Whether a question is new on the way here: modules may import one another in a circle."""
        first = question not in self._active
        self._active.add(question)
        try:
            yield first
        finally:
            if first:
                self._active.discard(question)
