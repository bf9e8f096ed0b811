"""The names under which the modules of a run have something of torch that rules look for.

One map for all of them. It is built from the modules that write torch's names, and carried on to those that import
such a name from another one, word by word. So a file that takes none of these words gets nothing of torch from its
project, and only the others are worth a closer look.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set

from fsdp_migrate.scan.imports import COMMENT, unix
from fsdp_migrate.scan.names import Names
from fsdp_migrate.workspace.modules.sketch import Sketch, is_torch, split, stem

_STAR = "*"
_DISTRIBUTED = "torch.distributed"
_INIT = "__init__.py"
# Imports of something else than torch: the module and the names.
_TAKING = re.compile(
    rb"from(?:[ \t]|\\\n)+(?!torch[\s.])([.\w]+)(?:[ \t]|\\\n)+import\b[ \t\\\n]*(\([^)]*\)|(?:[^\n\\]|\\\n)*)"
    rb"|import[ \t]+((?:[^\n\\]|\\\n)*)"
)
_OF_TORCH = re.compile(r"\s*torch\b")
_WORD = re.compile(r"\w+")
_RENAMED = re.compile(r"\bas[ \t]+(\w+)")
_CHAIN = re.compile(r"[A-Za-z_][\w.]*")
# Functions and classes at the top level, behind their first line.
_BODY = re.compile(rb"(\n(?:async[ \t]+def|def|class)[ \t][^\n]*)(?:\n(?:[ \t#)][^\n]*)?(?=\n|\Z))+")
_CLASS = re.compile(rb"\nclass[ \t]+(\w+)[ \t]*\(([^)]*)\)")
# Lines that bind a name to a chain of names, or several at once.
_BOUND = re.compile(
    rb"\n[ \t]*(?:(\w+)[ \t]*(?::[^=\n]+)?=(?!=)[ \t]*\(?[ \t]*([A-Za-z_][\w.]*)(?![\w.]|[ \t]*[(\[{\"'])"
    rb"|(\w+(?:[ \t]*[,=][ \t]*\w+)+)[ \t]*=(?!=)([^\n]*))"
)
# The last names of modules of torch whose names change.
_MODULES = frozenset(
    "distributed fsdp tensor _tensor _composable _shard distributed_c10d device_mesh checkpoint".split()
)


class Wanted:
    """What rules look for in torch, as far as names tell."""

    def __init__(
        self, speaks: Callable[[str], bool], words: Callable[[str], Set[bytes]], names: Names, *, near: bool
    ) -> None:
        """`speaks` says whether a text has words that make a file worth a look, `words` which; `names` are full names.

        All of torch.distributed is wanted where it makes a difference what is `near` to it.
        """
        self.speaks = speaks
        self._words = words
        self._near = near
        self._names = names
        self._owners = names.members.keys() - {"torch"}
        self._beside = [one for one in self._owners if one.startswith("torch.") and not one.startswith(_DISTRIBUTED)]
        self._known: dict[str, bool] = {}

    def __contains__(self, target: str) -> bool:
        """Whether rules may look for a full name of torch, or for something in it."""
        if target not in self._known:
            named = target in self._names or target in self._owners
            self._known[target] = named or (self._near and target.startswith(_DISTRIBUTED)) or self.speaks(target)
        return self._known[target]

    def may_be_in(self, imports: bytes) -> bool:
        """Whether import lines may take something of it from torch."""
        text = imports.decode("utf-8", "replace")
        return "torch" in text and (self.speaks(text) or any(owner in text for owner in self._beside))

    def names(self, target: str) -> bool:
        """Whether rules may look for this very name."""
        return target in self._names or self.speaks(target.rpartition(".")[2])

    def of(self, module: str) -> Set[str]:
        """The names that a star import of a module of torch may bring."""
        return self._names.of(module)

    def hides(self, word: str, target: str) -> bool:
        """Whether a word that stands for something of torch does not look like it."""
        package, last = split(target)
        is_module = self._near and f"{package}.".startswith("torch.") and last in _MODULES
        whole = {one for one in self._words(target) if one.startswith(b"torch.")}
        return (is_module and not self.speaks(word)) or bool(whole) or not self._words(last) <= self._words(word)


class Carried:
    """The map: `words` with the full names of torch behind them, in any of the `files`, and what imports renamed."""

    def __init__(
        self, imports: Mapping[str, bytes], near: Set[str], read: Callable[[str], bytes], wanted: Wanted
    ) -> None:
        """`imports` are the import lines of all files by path; those that are `near` may write torch's names."""
        self.files: Set[str] = imports.keys()
        self.words: dict[str, frozenset[str]] = {}
        self.imports, self._near, self._read, self._wanted = imports, near, read, wanted
        self._origins: dict[str, frozenset[str]] = {}
        self._starred: dict[str, frozenset[str]] = {}
        self._taken: dict[str, frozenset[str]] = {}
        self.renamed = {
            name for lines in imports.values() for name in _RENAMED.findall(lines.decode("utf-8", "replace"))
        }
        for path, lines in imports.items():
            self._origins[path], self._starred[path], self._taken[path] = _words(lines)
        self._givers: dict[str, frozenset[str]] = {}
        self._find_words()

    def _find_words(self) -> None:
        sources = frozenset[str]().union(*self._origins.values(), *self._taken.values())
        modules = [path for path in self.files if stem(path) in sources]
        near = self._near if _DISTRIBUTED in self._wanted else ()
        waiting = [path for path in modules if path in near or self._wanted.may_be_in(self.imports[path])]
        while waiting:
            before = frozenset(self.words)
            for path in waiting:
                self._take_in(path)
            new = self.words.keys() - before
            waiting = [path for path in modules if new and not new.isdisjoint(self._taken[path])]

    def _take_in(self, path: str) -> None:
        """Note what one module has, as far as it is known what the others have."""
        found = dict[str, frozenset[str]]()
        sketch = Sketch(self.imports[path])
        bound = [(name, target) for name, targets in sketch.imports.items() for target in targets if target != name]
        bound += [(name, f"{star}.{name}") for star in sketch.stars if is_torch(star) for name in self._wanted.of(star)]
        for name, target in bound:
            known = {target} if is_torch(target) and target in self._wanted else ()
            behind = frozenset(known if is_torch(target) else self.words.get(split(target)[1], ()))
            if behind:
                found[name] = found.get(name, frozenset()) | behind
        raw = b"\n" + unix(self._read(path)) if found or path in self._near else b""
        for match in (*_CLASS.finditer(raw), *_BOUND.finditer(_BODY.sub(rb"\1", raw))):
            names, values = (group.decode("utf-8", "replace") for group in match.groups() if group is not None)
            behind = frozenset(one for chain in _CHAIN.findall(values) for one in self._behind(chain, found))
            if behind:
                found.update((name, found.get(name, frozenset()) | behind) for name in _WORD.findall(names))
        self.words.update((name, self.words.get(name, frozenset()) | behind) for name, behind in found.items())
        self._givers[path] = frozenset(found)

    def _behind(self, chain: str, found: Mapping[str, frozenset[str]]) -> Iterable[str]:
        """The full names of torch that a chain of names in a module may stand for."""
        head, dot, rest = chain.partition(".")
        if head == "torch":
            return (chain,) if chain in self._wanted else ()
        if head in found:
            whole = (target + dot + rest for target in found[head])
            return (*found[head], *(name for name in whole if self._wanted.names(name)))
        return self.words.get(chain.rpartition(".")[2], ()) if dot else ()

    def takers(self) -> list[str]:
        """The files that may get something of torch under a name that does not look like it; to be asked once."""
        found = list(self._takers())
        for noted in (self._origins, self._starred, self._taken):
            noted.clear()  # They take a tenth of the memory of a run.
        return found

    def _takers(self) -> Iterator[str]:
        hidden = {word for word, targets in self.words.items() if any(self._wanted.hides(word, one) for one in targets)}
        giving = [path for path, words in self._givers.items() if not hidden.isdisjoint(words)]
        modules = {name for path in giving for name in (stem(path), "" if path.endswith(_INIT) else stem(path))}
        packages = [path for path in self.files if path.endswith(_INIT)]
        while reached := [path for path in packages if not modules.isdisjoint(self._taken[path])]:
            # A package gives what is in its modules as `package.module.name`.
            packages = [path for path in packages if path not in reached]
            for path in reached:
                imports = Sketch(self.imports[path]).imports.items()
                hidden |= {name for name, targets in imports if any(split(one)[1] in modules for one in targets)}
            modules |= {stem(path) for path in reached}
        words = b"(?:" + b"|".join(re.escape(word.encode()) for word in sorted(hidden)) + rb")\b"
        written, read = re.compile(rb"\b" + words), re.compile(rb"(?<!torch)\.[\s\\]*" + words)
        for path, taken in self._taken.items() if hidden else ():
            if not hidden.isdisjoint(taken):
                yield path
            elif not modules.isdisjoint(self._starred[path]):
                if written.search(self._read(path)):
                    yield path
            elif not modules.isdisjoint(taken) and read.search(self._read(path)):
                yield path


def _words(lines: bytes) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The words of the modules that names are taken from, the last ones of those that give all; the names taken."""
    origins, starred, taken = set[str](), set[str](), set[str]()
    for match in _TAKING.finditer(COMMENT.sub(b"", lines)):
        module, names, modules = ("" if one is None else one.decode("utf-8", "replace") for one in match.groups())
        origins.update(_WORD.findall(module))
        plain = (one for one in modules.split(",") if not _OF_TORCH.match(one))
        taken.update(word for text in (names, *plain) for word in _WORD.findall(text))
        if _STAR in names:
            starred.add(module.rpartition(".")[2])
    return frozenset(origins), frozenset(starred), frozenset(taken)
