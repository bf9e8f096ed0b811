"""The modules of a project: read when a file imports from them, parsed when it matters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.workspace.filesystem import SourceFile, read
from fsdp_migrate.workspace.modules.texts import Texts

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.torch_api import TorchRange
    from fsdp_migrate.workspace.modules.importers import Importers
    from fsdp_migrate.workspace.modules.view import View

# A parsed module takes some fifty bytes for each of its text; what the largest files take is taken anyway.
_MOST_PARSED = 450_000


class Modules:
    """What the files of a project import from one another. None of them is imported or run.

    It is built from paths only, so that each process of a run can have its own.
    """

    def __init__(
        self,
        files: Sequence[SourceFile] = (),
        folders: Sequence[str] = (),
        *,
        noting: bool = True,
        read: Callable[[SourceFile], bytes] = read,
        beside: Modules | None = None,
    ) -> None:
        """`files` are all files of the run, `folders` those that it was given.

        `noting` says that the dependencies of answers are wanted, as for a cache. `read` gives the bytes of a file.
        What is pinned in the modules `beside` these is not parsed again where the texts are the same.
        """
        self.texts = Texts(files, folders, noting=noting, read=read)
        self._facts: dict[tuple[str, TorchRange], ModuleFacts | None] = {}
        self._views: dict[tuple[str, TorchRange], View] = {}
        self._active: set[object] = set()
        self._pins = 0
        self._pinned: dict[str, ModuleFacts] = {}
        self._beside = beside

    def view(self, path: str, torch: TorchRange) -> View:
        """The view of the file at `path` on the others, for a torch range."""
        return self.view_at(os.path.abspath(path), torch)

    def view_at(self, path: str, torch: TorchRange) -> View:
        """The same for an absolute path."""
        view = self._views.get((path, torch))
        if view is None:
            from fsdp_migrate.workspace.modules.view import View

            view = self._views[path, torch] = View(self, path, torch)
        return view

    def facts(self, path: str, torch: TorchRange) -> ModuleFacts | None:
        """The facts of the module at `path`, None if it cannot be read or parsed."""
        key = (path, torch)
        if key not in self._facts:
            facts = self._facts[key] = self._parsed(path, torch)
            if facts is not None and self._pins:
                self._pinned.setdefault(path, facts)
        return self._facts[key]

    def _parsed(self, path: str, torch: TorchRange) -> ModuleFacts | None:
        from fsdp_migrate.facts import ModuleFacts
        from fsdp_migrate.source import SourceError
        from fsdp_migrate.workspace.reading import read_source

        raw = self.texts.raw(path)
        if raw is None:
            return None
        known = self.kept(path, raw)
        try:
            source = read_source(raw, path) if known is None else known.source
            return ModuleFacts(source, path, torch, self.view_at(path, torch), known=known)
        except (SourceError, SyntaxError, RecursionError):
            return None

    def kept(self, path: str, raw: bytes) -> ModuleFacts | None:
        """Facts of the module at `path` that stay open longer than these modules, if it has this text there."""
        return None if self._beside is None else self._beside.pinned_facts(path, raw)

    def pinned_facts(self, path: str, raw: bytes) -> ModuleFacts | None:
        """Facts of a module that were made while everything is pinned, if it has this text; for whatever torch."""
        found = self._pinned.get(path)
        return found if found is not None and self.texts.raw(path) == raw else None

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep all texts and parsed modules during the block, because questions about them belong together."""
        self._pins += 1
        self.texts.keeping = True
        try:
            yield
        finally:
            self._pins -= 1
            self.texts.keeping = self._pins > 0
            if not self._pins:
                self._pinned.clear()

    def trim(self, room: int = 0) -> None:
        """Forget texts and parsed modules if there are many of them; nobody may be using one.

        Answers stay known, and a text is read again if it is needed. `room` is as in `trim_parsed`.
        """
        if not self._pins:
            self.texts.trim()
            self.trim_parsed(room)

    def trim_parsed(self, room: int = 0) -> None:
        """Forget parsed modules if there are many of them for a run that parses a file of `room` bytes next."""
        held = [facts for facts in self._facts.values() if facts is not None]
        if self._pins or sum(len(facts.source.data) for facts in held) + room < _MOST_PARSED:
            return
        for facts in held:
            facts.close()
        self._facts.clear()
        for view in self._views.values():
            view.forget_facts()

    @cached_property
    def importers(self) -> Importers:
        """The files that import a module."""
        from fsdp_migrate.workspace.modules.importers import Importers

        return Importers(self)

    @contextmanager
    def entering(self, question: object) -> Iterator[bool]:
        """Whether a question is asked for the first time on this way: modules may import one another in a circle."""
        first = question not in self._active
        self._active.add(question)
        try:
            yield first
        finally:
            if first:
                self._active.discard(question)
