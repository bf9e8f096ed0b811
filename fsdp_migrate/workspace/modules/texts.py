"""The texts of a project, read when they are needed, and what their bytes show."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

from fsdp_migrate.patterns import pattern
from fsdp_migrate.scan.imports import import_lines
from fsdp_migrate.workspace.disk import digest
from fsdp_migrate.workspace.filesystem import FileError, SourceFile, discover
from fsdp_migrate.workspace.modules.finder import Finder
from fsdp_migrate.workspace.modules.sketch import Sketch, base_words, exported, split

if TYPE_CHECKING:
    from fsdp_migrate.workspace.modules.carried import Carried

T = TypeVar("T")
_MOST_READ = 12_000_000
# What is read off something else than `self`, and what stands in quotes, as for `getattr`.
_READ = pattern(rb"\.(?<!(?<![0-9A-Za-z])self\.)([\w\x80-\xff]+)")
_QUOTED = pattern(rb"[\"'](?=([\w\x80-\xff]+)[\"'])")
# An import of modules that stand beside the file.
_BESIDE = pattern(rb"from(?:[ \t]|\\\n)*\.+(?:[ \t]|\\\n)+import")


class Index:
    """Files by the modules and names that they import, as the import lines of all of them tell."""

    def __init__(self, lines: Mapping[str, bytes]) -> None:
        self._lines = lines
        self._imported: dict[str, frozenset[str]] = {}
        self._having: dict[str, frozenset[str]] = {}

    def importing(self, *words: str) -> set[str]:
        """The files that import a name or a module that is called like one of the words, or modules beside them."""
        return set(self._beside).union(*map(self._with, words))

    def _with(self, word: str) -> frozenset[str]:
        if word not in self._having:
            wanted = word.encode()
            self._having[word] = frozenset(
                path for path, lines in self._lines.items() if wanted in lines and word in self._words(path)
            )
        return self._having[word]

    def _words(self, path: str) -> frozenset[str]:
        """The last parts of what a file imports, and of the modules that it imports from; those of torch aside."""
        if path not in self._imported:
            sketch = Sketch(self._lines[path])
            targets = (target for targets in sketch.imports.values() for target in targets)
            own = (target for target in targets if not target.startswith("torch."))
            self._imported[path] = frozenset(split(name)[1] for name in (*own, *sketch.modules))
        return self._imported[path]

    @cached_property
    def _beside(self) -> frozenset[str]:
        return frozenset(path for path, lines in self._lines.items() if _BESIDE.search(lines))

    @cached_property
    def renamed(self) -> dict[str, set[str]]:
        """The files by the names of what they import under another name."""
        found: dict[str, set[str]] = {}
        for path, lines in self._lines.items():
            for name in Sketch(lines).renamed if b"as" in lines else ():
                found.setdefault(name, set()).add(path)
        return found


class Texts:
    """What the files of a project say, unparsed. Each is read once.

    `carried` is the map of what the files of the run have of torch, None while there is none.
    """

    def __init__(
        self, files: Sequence[SourceFile], folders: Sequence[str], *, noting: bool, read: Callable[[SourceFile], bytes]
    ) -> None:
        """As `Modules`."""
        self.noting = noting
        self.finder = Finder(folders)
        self._read = read
        self._files = files
        self._raw: dict[str, bytes | None] = {}
        self._sketches: dict[str, Sketch | None] = {}
        self._starred: dict[str, frozenset[str] | None] = {}
        self._digests: dict[str, str] = {}
        self._indexes: dict[str | None, Index] = {}
        self._writers: dict[tuple[str | None, str], frozenset[str]] = {}
        self._told: dict[tuple[str | None, str, object], list[tuple[str, object]]] = {}
        self._reading: dict[str | None, dict[bytes, list[str]]] = {}
        self._deriving: dict[str | None, dict[str, set[str]]] = {}
        self._all: dict[str | None, tuple[SourceFile, ...]] = {}
        self.carried: Carried | None = None
        self.keeping = False  # all texts that are read

    @cached_property
    def files(self) -> tuple[SourceFile, ...]:
        """All that the run looks at, by absolute paths."""
        return tuple(file._replace(path=os.path.abspath(file.path)) for file in self._files if file.raw is None)

    def sketch(self, path: str) -> Sketch | None:
        """The sketch of a file, None if it cannot be read."""
        if path not in self._sketches:
            raw = self.raw(path)
            self._sketches[path] = None if raw is None else Sketch(raw)
        return self._sketches[path]

    def raw(self, path: str) -> bytes | None:
        """The bytes of a file when it was first read, None if it cannot be read."""
        if path not in self._raw:
            self._raw[path] = self._bytes(path)
        return self._raw[path]

    def glance(self, path: str) -> bytes:
        """The bytes of one of many files, which are kept only for `keeping`; none if it cannot be read."""
        raw = self.raw(path) if self.keeping or path in self._raw else self._bytes(path)
        return b"" if raw is None else raw

    def starred(self, path: str) -> frozenset[str] | None:
        """The names in the `__all__` of a module; None if it has none, or cannot be read.

        The bytes of a module that has one are not kept: there may be thousands.
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

    def trim(self) -> None:
        """Forget texts if there are many; one that is needed again is read again."""
        if sum(len(raw) for raw in self._raw.values() if raw is not None) >= _MOST_READ:
            for path in self._raw if self.noting else ():
                self.digest(path)
            self._raw.clear()
            self._sketches.clear()

    def _bytes(self, path: str) -> bytes | None:
        try:
            return self._read(SourceFile(path, path))
        except FileError:
            return None

    def index(self, path: str) -> Index:
        """The imports of the run's files, and of the other files in the project of the file at `path`."""
        root = self.finder.unnamed(os.path.dirname(path))
        if root not in self._indexes:
            self._indexes[root] = Index({file.path: self._import_lines(file.path) for file in self._all_with(root)})
        return self._indexes[root]

    def sketch_of_imports(self, path: str) -> Sketch:
        """A sketch of the lines of a file that import something."""
        return Sketch(self._import_lines(path))

    def _import_lines(self, path: str) -> bytes:
        known = None if self.carried is None else self.carried.imports.get(path)
        return import_lines(self.glance(path)) if known is None else known

    def writers(self, path: str, word: str) -> frozenset[str]:
        """The other files (of those in `index`) that contain a word."""
        return self._writing(self.finder.unnamed(os.path.dirname(path)), word) - {path}

    def _writing(self, root: str | None, word: str) -> frozenset[str]:
        if (root, word) not in self._writers:
            paths = (file.path for file in self._all_with(root))
            self._writers[root, word] = frozenset(one for one in paths if word.encode() in self.glance(one))
        return self._writers[root, word]

    def telling(self, path: str, word: str, tell: Callable[[bytes, str], T]) -> Iterator[tuple[str, T]]:
        """The other files whose texts `tell` something with a word, each with that, in order of path.

        Each text is asked once: many places may ask the same of all files.
        """
        root = self.finder.unnamed(os.path.dirname(path))
        key = (root, word, tell)
        if key not in self._told:
            found = ((other, tell(self.glance(other), word)) for other in sorted(self._writing(root, word)))
            self._told[key] = [(other, told) for other, told in found if told]
        yield from ((other, cast("T", told)) for other, told in self._told[key] if other != path)

    def reading(self, path: str, word: str) -> list[str]:
        """The other files (of those in `index`) that may read an attribute of this name off something but `self`."""
        root = self.finder.unnamed(os.path.dirname(path))
        if root not in self._reading:
            found = self._reading[root] = {}
            for other in sorted(file.path for file in self._all_with(root)):
                raw = self.glance(other)
                for one in {*_READ.findall(raw), *_QUOTED.findall(raw)}:
                    found.setdefault(one, []).append(other)
        return [other for other in self._reading[root].get(word.encode(), ()) if other != path]

    def deriving(self, path: str, name: str) -> set[str]:
        """The other files (of those in `index`) that may derive a class from `name` of the file at `path`."""
        root = self.finder.unnamed(os.path.dirname(path))
        if root not in self._deriving:
            found = self._deriving[root] = {}
            for file in self._all_with(root):
                for word in base_words(self.glance(file.path)):
                    found.setdefault(word, set()).add(file.path)
        return (self._deriving[root].get(name, set()) | self.index(path).renamed.get(name, set())) - {path}

    def is_in_part(self, path: str) -> bool:
        """Whether the run includes only a part of the project of the file at `path`."""
        return self.finder.unnamed(os.path.dirname(path)) is not None

    def _all_with(self, root: str | None) -> tuple[SourceFile, ...]:
        """The files of the run, and the others of a project."""
        if root not in self._all:
            self._all[root] = (*self.files, *self._others(root))
        return self._all[root]

    def _others(self, root: str | None) -> Iterator[SourceFile]:
        """The files of a project that are not in the run."""
        known = {file.path for file in self.files}
        yield from (file for file in discover([root]).code if file.path not in known) if root is not None else ()
