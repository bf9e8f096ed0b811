"""The files of a run as it sees them: what is above asks here and opens no file itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.source import SUFFIXES
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.filesystem import Discovery, SourceFile
from fsdp_migrate.workspace.settings.configuration import Configuration

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.workspace.modules import Modules
    from fsdp_migrate.workspace.modules.view import View
    from fsdp_migrate.workspace.projects import Projects
    from fsdp_migrate.workspace.settings import Project, Settings


class Workspace:
    """Contents of files, the projects that they are in with their settings, and facts of modules.

    An `overlay` holds texts, by absolute path, that count instead of those on the disk: what an editor has not saved,
    or what a change would make of a file.
    """

    def __init__(
        self,
        discovery: Discovery,
        configuration: Configuration | None = None,
        overlay: Mapping[str, bytes] | None = None,
        *,
        noting: bool = False,
    ) -> None:
        """`noting` says whether anybody wants to know which files an answer depends on, as a cache does."""
        self.discovery = discovery
        self.configuration = configuration or Configuration()
        self._overlay = dict(overlay or {})
        self._pinned: dict[str, bytes] = {}
        self._noting = noting

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files to look at, in order of path."""
        return self.discovery.files

    def read(self, file: SourceFile) -> bytes:
        """The bytes of a file.

        Raises:
            FileError: it cannot be read, or is no regular file.
        """
        if file.raw is None and (self._overlay or self._pinned):
            path = os.path.abspath(file.path)
            held = self._overlay.get(path, self._pinned.get(path))
            if held is not None:
                return held
        return filesystem.read(file)

    def exists(self, file: SourceFile) -> bool:
        """Whether there is something at the path of a file."""
        return os.path.abspath(file.path) in self._overlay or os.path.lexists(file.path)

    def pin(self, file: SourceFile, raw: bytes) -> None:
        """Keep the text of a file as it is now: whatever is written later, the others are looked at beside this one."""
        self._pinned[os.path.abspath(file.path)] = raw

    def patched(self, texts: Mapping[SourceFile, bytes]) -> Workspace:
        """The same files with other texts for some of them, and such as there are not yet."""
        overlay = {os.path.abspath(file.path): raw for file, raw in texts.items()}
        discovery = self.discovery.joined(texts)
        other = Workspace(discovery, self.configuration, {**self._overlay, **overlay}, noting=self._noting)
        other._pinned, other._projects = self._pinned, self._projects
        return other

    def settings(self, file: SourceFile, *, used: bool = True) -> Settings:
        """The settings of a file, with the torch range of its project where none was given for all.

        The project counts as `used`, and is named in reports, where the file itself is linted.

        Raises:
            ConfigFileError: a configuration file cannot be used.
        """
        settings = self.configuration.of(file)
        if self.configuration.options.torch is not None:
            return settings
        return settings._replace(torch=self._projects.of(file, used=used, target=settings.target).torch)

    @property
    def projects(self) -> tuple[Project, ...]:
        """The projects of the files that were linted so far."""
        return self._projects.used if "_projects" in self.__dict__ else ()

    @cached_property
    def _projects(self) -> Projects:
        from fsdp_migrate.workspace.projects import Projects  # not needed where no file is worth a closer look

        return Projects(self.configuration.files)

    @cached_property
    def modules(self) -> Modules:
        """What the files import from one another."""
        from fsdp_migrate.workspace.modules import Modules

        return Modules(self.files, self.discovery.folders, noting=self._noting, read=self.read)

    def modules_with(self, words: Sequence[bytes]) -> tuple[list[ModuleFacts], list[str]]:
        """The facts of the modules that have one of some words, and what to call those that cannot be parsed.

        They are to be pinned for as long as anything in them is looked at.
        """
        found, unreadable = [], []
        for file in self.files:
            path = os.path.abspath(file.path)
            raw = self.modules.texts.glance(path) if file.raw is None else b""
            if any(word in raw for word in words):
                facts = self.modules.facts(path, self.settings(file, used=False).torch)
                if facts is None:
                    unreadable.append(file.shown)
                else:
                    found.append(facts)
        return found, unreadable

    def view(self, file: SourceFile, settings: Settings) -> View | None:
        """What a file can learn of the others of its project; a text from stdin belongs where its name says."""
        if file.raw is not None and not file.shown.endswith(SUFFIXES):
            return None
        return self.modules.view(file.path if file.raw is None else file.shown, settings.torch)
