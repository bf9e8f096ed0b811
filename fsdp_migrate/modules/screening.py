"""Files that the byte test passes over although they hold something of torch, under a name that their project gave it.

Only modules that hold something of FSDP themselves give such names; a file that takes them from one holds them too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial

from fsdp_migrate import files
from fsdp_migrate.files import FileError, SourceFile
from fsdp_migrate.modules.sketch import Sketch, split, stem
from fsdp_migrate.modules.view import View, reads

# The last names of modules of torch whose names change.
_MODULES = frozenset(
    "distributed fsdp tensor _tensor _composable _shard distributed_c10d device_mesh checkpoint".split()
)
_STAR = b"import *"
_LETTER = re.compile(rb"\w")


def overlooked(
    seen: Sequence[SourceFile],
    passed: Sequence[SourceFile],
    view_of: Callable[[SourceFile], View],
    is_worth: Callable[[SourceFile, bytes], bool],
) -> Iterator[tuple[SourceFile, bytes]]:
    """The files of `passed` that `seen` ones give names of torch to, with their bytes.

    `is_worth` is the byte test, for a text in which these names are written as torch calls them.
    """
    waiting = list(passed)
    while seen and waiting:
        givers: dict[str, set[str]] = {}
        for file in seen:
            view = view_of(file)
            for name in _hidden(view, cache(partial(is_worth, file))):
                givers.setdefault(name, set()).add(view.path)
        words = [name.encode() for name in givers]
        found = []
        for file in waiting if givers else ():
            raw = _holding(file, words)
            lines = "" if raw is None else _taken(view_of(file), Sketch(raw), givers)
            if raw is not None and lines and is_worth(file, raw + lines.encode()):
                found.append(file)
                yield file, raw
        seen, waiting = found, [file for file in waiting if file not in found]


def _hidden(view: View, is_worth: Callable[[bytes], bool]) -> Iterator[str]:
    """The names of a file that the byte test would not take for what of torch is behind them."""
    for bound, target in view.everything_behind(view.gives):
        package, last = split(target)
        is_module = f"{package}.".startswith("torch.") and last in _MODULES
        is_hidden = is_module or (bound != last and is_worth(last.encode()))
        if bound != "*" and is_hidden and not is_worth(bound.encode()):
            yield bound


def _taken(view: View, sketch: Sketch, givers: Mapping[str, Collection[str]]) -> str:
    """Imports from torch itself for what a file takes from the files that give names."""
    paths = {path for found in givers.values() for path in found}
    stems = {stem(path) for path in paths}
    find = view.modules.finder.find
    stars = [star for star in sketch.stars if find(star, view.path) in paths]
    lines = [view.direct_import("*", star, partial(reads, sketch.raw, "*")) for star in stars]
    for bound, targets in sketch.imports.items():
        for target in targets:
            module, name = split(target)
            if (name in givers and module) or (name in stems and find(target, view.path) in paths):
                lines.append(view.direct_import(bound, target, partial(reads, sketch.raw, bound)))
    return "".join(lines)


def _holding(file: SourceFile, names: Sequence[bytes]) -> bytes | None:
    """The bytes of a file that holds one of the names as a word, or may bring it by a star import."""
    try:
        raw = files.read(file)
    except FileError:
        return None  # It has been told when it was read first.
    return raw if _STAR in raw or any(_is_written(name, raw) for name in names) else None


def _is_written(name: bytes, raw: bytes) -> bool:
    """Whether a text has a name as a word."""
    place = -1
    while (place := raw.find(name, place + 1)) >= 0:
        if not _LETTER.match(raw, place + len(name)) and not (place and _LETTER.match(raw, place - 1)):
            return True
    return False
