"""Finds the file of a module that another file imports."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from fsdp_migrate.workspace.filesystem import SKIPPED_FOLDERS

_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
_REPOSITORY_MARKS = (".git", ".hg")
_INIT = "__init__.py"
_SOURCES = "src"


class Finder:
    """Finds modules in the repository or project of the importing file.

    An absolute name is searched for where Python would, if the file's package were installed or its folder were first
    on the path: beside the outermost package around the file, in the file's folder, in each folder above and its `src`,
    and last in the packages beside those. If two places have the same rank, the module is unknown.
    """

    def __init__(self, named: Sequence[str] = ()) -> None:
        """`named` are the folders that the run was given."""
        self._named = tuple(os.path.abspath(folder) for folder in named)
        self._names: dict[str, frozenset[str]] = {}
        self._tops: dict[str, frozenset[str]] = {}
        self._limits: dict[str, str] = {}
        self._marked: dict[tuple[str, tuple[str, ...]], bool] = {}
        self._found: dict[tuple[str, str], str | None] = {}
        self._beside: dict[str, dict[str, set[str]]] = {}

    def find(self, module: str, path: str) -> str | None:
        """The file of `module` for an import in the file `path` (absolute), None if it is not in the project."""
        folder = os.path.dirname(path)
        key = (folder, module)
        if key not in self._found:
            self._found[key] = (
                self._relative(module, folder) if module.startswith(".") else self._absolute(module, folder)
            )
        return self._found[key]

    def _relative(self, module: str, folder: str) -> str | None:
        name = module.lstrip(".")
        for _ in range(len(module) - len(name) - 1):
            folder = os.path.dirname(folder)
        return self._below(folder, name.split(".")) if name else self._package(folder)

    def _absolute(self, module: str, folder: str) -> str | None:
        parts = module.split(".")
        if parts[0] not in self._tops_from(folder):
            return None
        for place in self._places(folder):
            found = self._below(place, parts)
            if found is not None:
                return found
        limit = self.limit(folder)
        for above in _upwards(folder, limit):
            places = self._packages_beside(above).get(parts[0], set())
            hits = {found for place in places if (found := self._below(place, parts)) is not None}
            if hits:
                return hits.pop() if len(hits) == 1 else None
        return None

    def _tops_from(self, folder: str) -> frozenset[str]:
        """The first parts of all absolute names that can be found from `folder`."""
        if folder not in self._tops:
            here = {name.removesuffix(".py") for place in self._places(folder) for name in self._names_in(place)}
            for above in _upwards(folder, self.limit(folder)):
                here |= self._packages_beside(above).keys()
            self._tops[folder] = frozenset(here - sys.stdlib_module_names)
        return self._tops[folder]

    def _places(self, folder: str) -> Iterator[str]:
        """The folders from which absolute imports may start, each once, the likeliest first."""
        seen: set[str] = set()
        above = [p for a in _upwards(folder, self.limit(folder)) for p in (a, os.path.join(a, _SOURCES))]
        for place in (self._beside_package(folder), folder, *above):
            if place not in seen:
                seen.add(place)
                yield place

    def _beside_package(self, folder: str) -> str:
        """The folder of the outermost package around the files of `folder`; `folder` itself if there is none."""
        while _INIT in self._names_in(folder) and os.path.dirname(folder) != folder:
            folder = os.path.dirname(folder)
        return folder

    def _below(self, place: str, parts: Sequence[str]) -> str | None:
        """The file of the module `parts`, searched from `place`."""
        for part in parts[:-1]:
            if part not in self._names_in(place):
                return None
            place = os.path.join(place, part)
        names, last = self._names_in(place), parts[-1]
        if last in names and (package := self._package(os.path.join(place, last))) is not None:
            return package
        return os.path.join(place, f"{last}.py") if f"{last}.py" in names else None

    def _package(self, folder: str) -> str | None:
        return os.path.join(folder, _INIT) if _INIT in self._names_in(folder) else None

    def _names_in(self, folder: str) -> frozenset[str]:
        if folder not in self._names:
            try:
                self._names[folder] = frozenset(os.listdir(folder))
            except OSError:
                self._names[folder] = frozenset()
        return self._names[folder]

    def limit(self, folder: str) -> str:
        """The topmost folder of the project: the root of the repository, or the nearest thing to it."""
        if folder not in self._limits:
            above = list(_upwards(folder, os.path.abspath(os.sep)))
            repository = next((a for a in above if self._has_any(a, _REPOSITORY_MARKS)), None)
            marked = [a for a in above if self._has_any(a, _PROJECT_FILES)]
            named = [a for a in above if a in self._named]
            nearest = [*marked[-1:], *named[-1:], self._beside_package(folder)]
            self._limits[folder] = repository or min(nearest, key=len)
        return self._limits[folder]

    def nearest(self, folder: str) -> str:
        """The innermost project around a folder: the first folder upwards with a project file or a repository."""
        above = _upwards(folder, self.limit(folder))
        marked = (a for a in above if self._has_any(a, (*_PROJECT_FILES, *_REPOSITORY_MARKS)))
        return next(marked, self.limit(folder))

    def unnamed(self, folder: str) -> str | None:
        """The root of the project around `folder`; None if nothing marks one, or if the run includes all of it."""
        limit = self.limit(folder)
        if any(above in self._named for above in _upwards(limit, os.path.abspath(os.sep))):
            return None
        return limit if self._has_any(limit, (*_REPOSITORY_MARKS, *_PROJECT_FILES)) else None

    def _has_any(self, folder: str, names: tuple[str, ...]) -> bool:
        if (folder, names) not in self._marked:
            self._marked[folder, names] = any(os.path.lexists(os.path.join(folder, name)) for name in names)
        return self._marked[folder, names]

    def _packages_beside(self, folder: str) -> dict[str, set[str]]:
        """The packages in the subfolders of `folder` and their `src`: the folders by name of the package."""
        if folder not in self._beside:
            found: dict[str, set[str]] = {}
            for name in self._names_in(folder) - SKIPPED_FOLDERS:
                if name.startswith(".") or "." in name:
                    continue
                for place in (os.path.join(folder, name), os.path.join(folder, name, _SOURCES)):
                    for inner in self._names_in(place):
                        if "." not in inner and self._package(os.path.join(place, inner)) is not None:
                            found.setdefault(inner, set()).add(place)
            self._beside[folder] = found
        return self._beside[folder]


def _upwards(folder: str, limit: str) -> Iterator[str]:
    """`folder` and the folders above it, up to `limit`."""
    while True:
        yield folder
        above = os.path.dirname(folder)
        if folder == limit or above == folder:
            return
        folder = above
