"""The torch releases that the project of a file supports: as its configuration states, otherwise as its files say."""

from __future__ import annotations

import os
import re

from fsdp_migrate.torch_api import Statement
from fsdp_migrate.workspace.filesystem import SourceFile
from fsdp_migrate.workspace.project_files import display
from fsdp_migrate.workspace.projects.inference import NO_PROJECT, inferred, listing
from fsdp_migrate.workspace.settings import Project
from fsdp_migrate.workspace.settings.configuration import located
from fsdp_migrate.workspace.settings.nearest import ConfigFiles
from fsdp_migrate.workspace.settings.settings import default_range

_REPOSITORY_MARKS = frozenset([".git", ".hg"])


class Projects:
    """The projects of the files of a run; every folder is read once.

    If the configuration of a file states a range, it counts. Otherwise the nearest folder counts that describes a
    package or names torch, up to the root of the repository.
    """

    def __init__(self, configured: ConfigFiles | None = None) -> None:
        self._configured = configured or ConfigFiles()
        self._used: dict[str, Project] = {}
        self._of_folder: dict[str, Project] = {}
        self._names: dict[str, frozenset[str]] = {}
        self._inferred: dict[str, Project | None] = {}

    @property
    def used(self) -> tuple[Project, ...]:
        """The projects of the files that were linted themselves, in order of their roots."""
        return tuple(self._used[root] for root in sorted(self._used))

    def of(self, file: SourceFile, *, used: bool = True, target: str | None = None) -> Project:
        """The project of a file, which need not exist: text from stdin has the project of its file name.

        It is not `used` if the file is only read for others. A `target` has its own range if none is stated.

        Raises:
            ConfigFileError: the configuration file cannot be used.
        """
        folder = os.path.dirname(located(file))
        if folder not in self._of_folder:
            self._of_folder[folder] = self._stated(folder) or self._inferred_above(folder) or NO_PROJECT
        project = _for_target(self._of_folder[folder], target)
        if used:
            self._used[project.root] = project
        return project

    def _stated(self, folder: str) -> Project | None:
        config = self._configured.at(folder)
        if config is None or config.layer.torch is None:
            return None
        from fsdp_migrate.workspace.projects.mentions import line_of  # needed only where a file names torch

        where = display(config.path)
        line = line_of(config.path, rf"^\s*[\"']?torch[\"']?\s*=.*{re.escape(str(config.values['torch']))}")
        torch = config.layer.torch.stated_at(Statement(where, line, f"torch{config.layer.torch}"))
        return Project(display(config.folder), torch, f"set in {where}")

    def _inferred_above(self, folder: str) -> Project | None:
        if folder not in self._inferred:
            above, names = os.path.dirname(folder), self._names_in(folder)
            found = inferred(folder, names)
            if found is None and above != folder and names.isdisjoint(_REPOSITORY_MARKS):
                found = self._inferred_above(above)
            self._inferred[folder] = found
        return self._inferred[folder]

    def _names_in(self, folder: str) -> frozenset[str]:
        if folder not in self._names:
            self._names[folder] = listing(folder)
        return self._names[folder]


def _for_target(project: Project, target: str | None) -> Project:
    """A project with the range of a target if none is stated, or with a note that the stated one is too old."""
    if target is None:
        return project
    torch, asked = default_range(target), f"--target {target}"
    if project.torch.assumed:
        nowhere = project.root == NO_PROJECT.root
        states = "no project file states a" if nowhere else f"{project.root} states no"
        note = f"torch{torch} is assumed for {asked}: {states} torch range"
        return project._replace(torch=torch, source=f"{asked}; {project.source}", note=note)
    if project.torch.oldest < torch.oldest:
        note = f"{project.source}, and {asked} is for torch{torch}: pass --torch '{torch}' to see what it fixes"
        return project._replace(note=note)
    return project
