"""The files of a run. Everything above asks here, and opens no file itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.source import SUFFIXES, holds, is_beside
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
    """Contents of files, their projects and settings, and the facts of modules.

    `overlay` has texts by absolute path that replace those on disk: what an editor has not saved, or what a change
    would make of a file.
    """

    def __init__(
        self,
        discovery: Discovery,
        configuration: Configuration | None = None,
        overlay: Mapping[str, bytes] | None = None,
        *,
        noting: bool = False,
    ) -> None:
        """`noting` says that the dependencies of answers are wanted, as for a cache."""
        self.discovery = discovery
        self.configuration = configuration or Configuration()
        self._overlay = dict(overlay or {})
        self._pinned: dict[str, bytes] = {}
        self._noting = noting
        self._parsed_by: Workspace | None = None

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files to check, in order of path."""
        return self.discovery.files

    @property
    def code(self) -> tuple[SourceFile, ...]:
        """Those of them that hold Python, in the same order."""
        return self.discovery.code

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
        """Whether the path of a file exists."""
        return os.path.abspath(file.path) in self._overlay or os.path.lexists(file.path)

    def pin(self, file: SourceFile, raw: bytes) -> None:
        """Keep the present text of a file: the others are linted with it, whatever is written later."""
        self._pinned[os.path.abspath(file.path)] = raw

    def patched(self, texts: Mapping[SourceFile, bytes]) -> Workspace:
        """The same workspace with other texts for some files, which need not exist."""
        overlay = {os.path.abspath(file.path): raw for file, raw in texts.items()}
        discovery = self.discovery.joined(texts)
        other = Workspace(discovery, self.configuration, {**self._overlay, **overlay}, noting=self._noting)
        other._pinned, other._projects, other._parsed_by = self._pinned, self._projects, self._parsed_by
        return other

    def beside(
        self,
        configuration: Configuration | None = None,
        files: tuple[SourceFile, ...] | None = None,
        overlay: Mapping[str, bytes] | None = None,
        *,
        noting: bool = False,
    ) -> Workspace:
        """A workspace with other settings, files or texts, which does not parse again what is pinned in this one."""
        discovery = self.discovery if files is None else self.discovery._replace(files=files)
        other = Workspace(discovery, configuration or self.configuration, overlay, noting=noting)
        other._parsed_by = self
        return other

    def settings(self, file: SourceFile, *, used: bool = True) -> Settings:
        """The settings of a file, with the torch range of its project if none is given for all.

        If the file itself is linted, its project is `used`, and named in reports.

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
        """The modules of the files, which follow imports."""
        from fsdp_migrate.workspace.modules import Modules

        beside = None if self._parsed_by is None else self._parsed_by.modules
        return Modules(self.code, self.discovery.folders, noting=self._noting, read=self.read, beside=beside)

    def modules_with(self, words: Sequence[bytes]) -> tuple[list[ModuleFacts], list[str]]:
        """The facts of the modules that contain one of some words, and the names of those that cannot be parsed.

        They have to be pinned as long as they are used.
        """
        found, unreadable = [], []
        for file in self.code:
            path = os.path.abspath(file.path)
            raw = self.modules.texts.glance(path) if file.raw is None else b""
            if holds(raw, path, words):
                facts = self.modules.facts(path, self.settings(file, used=False).torch)
                if facts is None:
                    unreadable.append(file.shown)
                else:
                    found.append(facts)
        return found, unreadable

    def view(self, file: SourceFile, settings: Settings) -> View | None:
        """The view of a file on the others of its project; text from stdin is located by its file name."""
        if is_beside(file.shown) or (file.raw is not None and not file.shown.endswith(SUFFIXES)):
            return None
        return self.modules.view(file.path if file.raw is None else file.shown, settings.torch)
