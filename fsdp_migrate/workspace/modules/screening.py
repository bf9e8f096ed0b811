"""Finds files that pass the byte test as clean, but use torch under names of other modules.

Only modules that use FSDP themselves give such names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from fsdp_migrate.source import lines_of
from fsdp_migrate.workspace.filesystem import FileError
from fsdp_migrate.workspace.modules.sketch import Sketch, split, stem
from fsdp_migrate.workspace.modules.view import View, bound_modules, reads

if TYPE_CHECKING:
    from fsdp_migrate.workspace.filesystem import SourceFile

# The last names of modules of torch whose names change.
_MODULES = frozenset(
    "distributed fsdp tensor _tensor _composable _shard distributed_c10d device_mesh checkpoint".split()
)
# What may stand between `import` and a name that it takes: the beginning of its parentheses or of its line.
_BETWEEN = rb"(?:[\s\\]*\((?:[^)#]|#[^\r\n]*[\r\n])*?|(?:[^\n]|(?<=\\)\n|(?<=\\\r)\n)*?)"


class _Given(NamedTuple):
    """The names that modules define for things of torch, with the paths and last names of the modules."""

    names: set[str]
    paths: set[str]
    stems: set[str]

    def has(self, target: str) -> bool:
        """Whether a full name is one of these names of a module."""
        module, name = split(target)
        return bool(module) and name in self.names


def overlooked(
    seen: Sequence[SourceFile],
    passed: Sequence[SourceFile],
    view_of: Callable[[SourceFile], View],
    is_worth: Callable[[SourceFile, bytes], bool],
    read: Callable[[SourceFile], bytes],
) -> Iterator[SourceFile]:
    """The files of `passed` that import names of torch from `seen` files.

    `is_worth` is the byte test, for a text in which these names are replaced by torch's.
    """
    waiting = list(passed)
    packages = [file for file in (*seen, *passed) if file.path.endswith("__init__.py")]
    while seen and waiting:
        names: set[str] = set()
        paths: set[str] = set()
        for file in seen:
            view = view_of(file)
            hidden = set(_hidden(view, cache(partial(is_worth, file))))
            names |= hidden
            paths |= {view.path} if hidden else set()
        given = _with_packages(_Given(names, paths, {stem(path) for path in paths}), packages, view_of, read)
        importing = _importing(given)
        found = []
        for file in waiting if names else ():
            raw = _holding(read, file, importing)
            lines = "" if raw is None else _taken(partial(view_of, file), Sketch(lines_of(raw, file.path)), given)
            if raw is not None and lines and is_worth(file, raw + lines.encode()):
                found.append(file)
                yield file
        seen, waiting = found, [file for file in waiting if file not in found]


def _with_packages(
    given: _Given,
    packages: Sequence[SourceFile],
    view_of: Callable[[SourceFile], View],
    read: Callable[[SourceFile], bytes],
) -> _Given:
    """The same, with the packages that import one of the modules: they offer its names as `package.module.name`."""
    while given.names:
        importing = _importing(given)
        names, paths = set(given.names), set(given.paths)
        for file in packages:
            raw = _holding(read, file, importing)
            if raw is not None:
                view = view_of(file)
                modules = bound_modules(view, Sketch(lines_of(raw, file.path)))
                giving = {name for name, path in modules if path in given.paths}
                names |= giving
                paths |= {view.path} if giving else set()
        if names == given.names and paths == given.paths:
            break
        given = _Given(names, paths, {stem(path) for path in paths})
    return given


def _hidden(view: View, is_worth: Callable[[bytes], bool]) -> Iterator[str]:
    """The names of a file that mean something of torch, but do not look like it in the bytes."""
    for bound, target in view.everything_behind(view.gives):
        package, last = split(target)
        is_module = f"{package}.".startswith("torch.") and last in _MODULES
        is_hidden = is_module or (bound != last and is_worth(last.encode()))
        if bound != "*" and is_hidden and not is_worth(bound.encode()):
            yield bound


def _taken(view_of: Callable[[], View], sketch: Sketch, given: _Given) -> str:
    """Imports from torch itself, for what a file imports from the files that give names."""
    stars = [star for star in sketch.stars if star.endswith(".") or split(star)[1] in given.stems]
    imports = [(bound, target) for bound, targets in sketch.imports.items() for target in targets]
    imports += [(module, module) for module in sketch.dotted]
    named = [one for one in imports if given.has(one[1]) or split(one[1])[1] in given.stems]
    if not stars and not named:
        return ""
    view = view_of()
    find = view.texts.finder.find
    stars = [star for star in stars if find(star, view.path) in given.paths]
    lines = [view.direct_import("*", star, partial(reads, sketch.raw, "*")) for star in stars]
    for bound, target in named:
        if given.has(target) or find(target, view.path) in given.paths:
            lines.append(view.direct_import(bound, target, partial(reads, sketch.raw, bound)))
    return "".join(lines)


def _importing(given: _Given) -> re.Pattern[bytes]:
    """A pattern for imports of one of the names, of a module that gives one, and of stars."""
    any_word = "|".join(map(re.escape, sorted(given.names | given.stems))).encode()
    return re.compile(rb"import(?:[\s\\]*\*|" + _BETWEEN + rb"(?<!\w)(?:" + any_word + rb")(?!\w))")


def _holding(read: Callable[[SourceFile], bytes], file: SourceFile, importing: re.Pattern[bytes]) -> bytes | None:
    """The bytes of a file if it has an import that the pattern matches."""
    try:
        raw = read(file)
    except FileError:
        return None  # It has been told when it was read first.
    return raw if importing.search(raw) else None
