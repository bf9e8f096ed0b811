"""The imports and definitions of a module, found in its bytes without parsing.

A sketch may see too much (in strings, in functions), but never less than what is written in the usual ways. It tells
which modules are worth parsing; most are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from fsdp_migrate.patterns import pattern
from fsdp_migrate.scan.imports import COMMENT, closing, unix

_FROM = pattern(rb"from(?:[ \t]|\\\n)*([.\w]+)(?:[ \t]|\\\n)+import(?:[ \t]|\\\n)*(\(|\*|(?:[^\r\n;#\\]|\\\r?\n)*)")
# No pattern starts with an assertion: what starts with a literal is searched for much faster.
_IMPORT = pattern(rb"import[ \t]+((?:[^\r\n;#\\]|\\\r?\n)*)")
_STAR = pattern(rb"import[\s\\]*\*")
_ASSIGNED = pattern(rb"[ \t]*(?::[^=\r\n]+)?=(?!=)[ \t]*([^\r\n]*)")
_BASES = pattern(rb"[ \t]*\(([^)]*)\)")
_CLASS = pattern(rb"class\s+\w+[^(:]*\(([^)]*)\)")
_CALLED = pattern(rb"[ \t]*\(()")
# From here on a line starts behind its newline: `^` would be tried at every byte.
_TOP_LEVEL = pattern(rb"\n(?:class[ \t]+(\w+)[ \t]*\(|[ \t]*(\w+)[ \t]*=[ \t]*[A-Za-z_][\w.]*[ \t]*(?=[#\n]|if\b|\Z))")
_BINDING = pattern(
    rb"\n[ \t\f\v]*(?:(class|def|async[ \t]+def)[ \t]+([\w\x80-\xff]+)"
    rb"|([\w\x80-\xff]+)[ \t]*(?:=(?!=)|:[^=\n]+=(?!=)))"
)
_NEXT_BLOCK = pattern(rb"[\r\n][^ \t\r\n#)\]]")
_ANYTHING = pattern(rb"(?!\w)()")
_TEXT = pattern(rb"[\"']([.A-Za-z_][.\w]*)[\"']", re.ASCII)
_SEVERAL = pattern(rb"\n(\w+(?:[ \t]*[,=][ \t]*\w+)+)[ \t]*=(?!=)")
_WORDS = pattern(rb"\w+")
_NAMES = pattern(rb"[\w\x80-\xff]+")
_STORED = rb"\.%s[ \t]*=(?!=)"
_SET = rb"""setattr\([\s\w.]+,\s*["']%s["']"""
_OWN = (b"self", b"cls")
_NAME = pattern(r"(\w+)(?:\s+as\s+(\w+))?")
_MODULE = pattern(r"([\w.]+)(?:\s+as\s+(\w+))?")
_DOTTED = pattern(r"\(?\s*([A-Za-z_][\w.]*)\s*(.?)")

# What decides by torch's version has one of these words, or is a flag in a module that has; marks of tests may by one.
_VERSION_WORDS = pattern("(?<!onv)ersion|VERSION|TORCH|hasattr|Requirement|signature|skip(?:if|If|Unless)")
_FLAGS = ("True", "False")
# A function without a `self` in front, or a name in an import, in an assignment or in quotes.
_LAZY = pattern(
    rb"""def[ \t]+__getattr__[ \t]*\((?!\s*self\b)|(?<![.\w])__getattr__[ \t]*(?:[,=:;)\]"'#\\\n]|as\b|\Z)"""
)
# What is behind one of these alone on its line is in a doctest.
_PROMPTS = (b">>>", b"...")
_ASKING = (b"ersion", b"hasattr", b"ImportError", b"ModuleNotFoundError", b"AttributeError")
# What a star import takes of a module that says so in an `__all__`.
_GAP = rb"(?:[\s\\]|#[^\n]*\n)*"
_STRING = rb"""(?:"\w+"|'\w+')"""
# A list or tuple of plain strings, and nothing more on its last line.
_PLAIN = pattern(
    rb"__all__[ \t]*(?::[^=\n]*)?=[ \t]*[\[(]"
    + (_GAP + rb"(?:" + _STRING + _GAP + rb"," + _GAP + rb")*" + rb"(?:" + _STRING + _GAP + rb")?")
    + rb"[\])][ \t]*(?:#[^\n]*)?(?:\n|\Z)"
)
_QUOTED = pattern(rb"""["'](\w+)["']""")
_QUOTES = (b'"""', b"'''")


class Sketch:
    """The names that a module binds at its top level, as far as its bytes show."""

    def __init__(self, raw: bytes) -> None:
        self.raw = unix(raw)
        self._known: dict[tuple[str, str], list[str]] = {}

    @cached_property
    def imports(self) -> dict[str, tuple[str, ...]]:
        """The full names that each imported name may mean, in the form of `facts.scopes` (`..dist.FSDP`)."""
        found: dict[str, list[str]] = {}
        for module, names in self._from_imports:
            prefix = module if module.endswith(".") else f"{module}."
            for name, alias in _NAME.findall(names):
                found.setdefault(alias or name, []).append(prefix + name)
        for module, alias in self._plain_imports:
            root = module.split(".")[0]
            found.setdefault(alias or root, []).append(module if alias else root)
        return {name: tuple(dict.fromkeys(targets)) for name, targets in found.items()}

    @cached_property
    def names(self) -> frozenset[str]:
        """The names that may mean something else: imports, assignments from a name, derived classes."""
        bound = {(match[1] or match[2]).decode("utf-8", "replace") for match in _TOP_LEVEL.finditer(b"\n" + self.raw)}
        return frozenset(bound.union(self.imports))

    @cached_property
    def modules(self) -> frozenset[str]:
        """All modules that are imported, or that names are imported from, with leading dots."""
        return frozenset(module for module, _ in (*self._from_imports, *self._plain_imports))

    @property
    def dotted(self) -> frozenset[str]:
        """The modules that are used through their package: `import a.b` only binds `a`."""
        return frozenset(module for module, alias in self._plain_imports if not alias and "." in module)

    @cached_property
    def stars(self) -> tuple[str, ...]:
        """The modules of star imports, the last one first."""
        if _STAR.search(self.raw) is None:
            return ()
        return tuple(module for module, names in reversed(self._from_imports) if names.strip() == "*")

    def aliases(self, name: str) -> tuple[str, ...]:
        """The dotted names assigned to `name`, also in conditional expressions."""
        heads = (_DOTTED.match(value) for value in self.assigned(name))
        return tuple(head[1] for head in heads if head is not None and head[2] not in ("(", "[", "{", '"', "'"))

    def assigned(self, name: str) -> list[str]:
        """The rest of each line that assigns to `name`."""
        return self._found(name, "assigned", b"", _ASSIGNED)

    def bases(self, name: str) -> tuple[str, ...]:
        """The dotted names of the bases of classes called `name`."""
        texts = self._found(name, "bases", b"class", _BASES)
        return tuple(base.strip() for text in texts for base in text.split(",") if base.strip())

    @cached_property
    def renamed(self) -> dict[str, frozenset[str]]:
        """The names that imports bind to what is called otherwise, by the last part of its full name."""
        found: dict[str, set[str]] = {}
        for alias, targets in self.imports.items():
            for last in {split(target)[1] for target in targets} - {alias}:
                found.setdefault(last, set()).add(alias)
        return {last: frozenset(aliases) for last, aliases in found.items()}

    def is_function(self, name: str) -> bool:
        """Whether a function of this name is defined."""
        return bool(self._found(name, "function", b"def", _CALLED))

    def is_definition(self, name: str) -> bool:
        """Whether a function or class of this name is defined."""
        return self.is_function(name) or bool(self._found(name, "class", b"class", _ANYTHING))

    def tells(self, name: str) -> bool:
        """Whether the name is bound by a line that a sketch understands."""
        return name in self.imports or name in self.unpacked or self.is_definition(name) or bool(self.assigned(name))

    def asks_version(self, name: str) -> bool:
        """Whether a constant or function may depend on torch's version."""
        values = [*self.assigned(name), *(body.decode("utf-8", "replace") for body in self.bodies(name))]
        if any(_VERSION_WORDS.search(value) for value in values):
            return True
        is_flag = any(value.startswith(_FLAGS) for value in self.assigned(name))
        return is_flag and any(word in self.raw for word in _ASKING)

    @cached_property
    def loads_lazily(self) -> bool:
        """Whether the top level may bind `__getattr__`; methods of classes do not count."""
        return b"__getattr__" in self.raw and _LAZY.search(self.raw) is not None

    def is_lazy(self, name: str) -> bool:
        """Whether nothing binds the name, so that a `__getattr__` may provide it."""
        return self.loads_lazily and self.is_function("__getattr__") and not self.tells(name)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The strings that may name modules."""
        return tuple(dict.fromkeys(match[1].decode() for match in _TEXT.finditer(self.raw)))

    def stores(self, name: str) -> bool:
        """Whether an attribute of this name is assigned, except those of `self` and `cls`."""
        dots = (match.start() for match in re.finditer(_STORED % name.encode(), self.raw))
        others = any(not self.raw.endswith(_OWN, max(0, dot - len("self")), dot) for dot in dots)
        return others or re.search(_SET % name.encode(), self.raw) is not None

    @cached_property
    def unpacked(self) -> frozenset[str]:
        """The names that an assignment to several targets binds."""
        words = (word for match in _SEVERAL.finditer(b"\n" + self.raw) for word in _WORDS.findall(match[1]))
        return frozenset(word.decode("utf-8", "replace") for word in words)

    def bodies(self, name: str) -> list[bytes]:
        """The texts of the functions called `name`, by their indentation."""
        found = []
        for place, _ in self._places(name, b"def"):
            end = _NEXT_BLOCK.search(self.raw, place)
            found.append(self.raw[place : len(self.raw) if end is None else end.start()])
        return found

    @cached_property
    def _from_imports(self) -> list[tuple[str, str]]:
        found = []
        for match in _FROM.finditer(self.raw):
            if self.raw[match.start() - 1 : match.start()] == b" " and self._before(match.start()) in _PROMPTS:
                continue
            names = match[2]
            if names == b"(":
                names = COMMENT.sub(b"", self.raw[match.end() : closing(self.raw, match.end())])
            found.append((match[1].decode("ascii", "replace"), _text(names)))
        return found

    @cached_property
    def _plain_imports(self) -> list[tuple[str, str]]:
        matches = (match for match in _IMPORT.finditer(self.raw) if not self._before(match.start()))
        return [found for match in matches for found in _MODULE.findall(_text(match[1]))]

    def _found(self, name: str, what: str, keyword: bytes, behind: re.Pattern[bytes]) -> list[str]:
        """What `behind` captures where a line starts with the keyword and `name`."""
        if (name, what) not in self._known:
            found = self._places(name, keyword, behind)
            self._known[name, what] = [_text(match[1]) for _, match in found]
        return self._known[name, what]

    def _places(
        self, name: str, keyword: bytes, behind: re.Pattern[bytes] = _ANYTHING
    ) -> Iterator[tuple[int, re.Match[bytes]]]:
        """Where a line starts with the keyword and the word `name`, each with the match of `behind` after it."""
        word = name.encode()
        for place in self._bindings.get(keyword + b" " + word, ()):
            if (match := behind.match(self.raw, place + len(word))) is not None:
                yield place, match

    @cached_property
    def _bindings(self) -> dict[bytes, list[int]]:
        """The places where lines bind a word: its keyword (empty for an assignment), a blank and the word."""
        found: dict[bytes, list[int]] = {}
        for match in _BINDING.finditer(b"\n" + self.raw):
            keyword, word, place = match[1] or b"", match[2] or match[3], match.start(2 if match[1] else 3)
            found.setdefault(keyword.removeprefix(b"async").lstrip() + b" " + word, []).append(place - 1)
        return found

    def _before(self, place: int) -> bytes:
        """The text before a place on its line, without blanks and `async`."""
        start = self.raw.rfind(b"\n", 0, place) + 1
        return self.raw[start:place].strip().removeprefix(b"async").lstrip()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace("\\", " ")


def split(name: str) -> tuple[str, str]:
    """The module and the last part of a full name; leading dots belong to the module."""
    dots = len(name) - len(name.lstrip("."))
    module, _, last = name[dots:].rpartition(".")
    return name[:dots] + module, last


def stem(path: str) -> str:
    """The last part of the name of the module at `path`."""
    return path.replace("\\", "/").removesuffix(".py").removesuffix("/__init__").rpartition("/")[2]


def import_line(bound: str, name: str) -> str:
    """A line that imports `name` as `bound`; a star imports everything."""
    if bound == "*":
        return f"\nfrom {name} import *"
    module, last = split(name)
    return f"\nfrom {module} import {last} as {bound}" if module else f"\nimport {name} as {bound}"


def joined(module: str, name: str) -> str:
    """The full name of `name` in a module; the opposite of `split`."""
    return module + name if module.endswith(".") else f"{module}.{name}"


def is_torch(name: str) -> bool:
    """Whether a full name is torch or goes through it."""
    return name == "torch" or name.startswith("torch.")


def base_words(raw: bytes) -> set[str]:
    """All words between the parentheses of class statements."""
    found = {word for texts in _CLASS.findall(unix(raw)) for word in _NAMES.findall(texts)}
    return {word.decode("utf-8", "replace") for word in found}


def exported(raw: bytes) -> frozenset[str] | None:
    """The names in the `__all__` of a module; None if it has none, or if that is not a plain list of names."""
    if b"\r" in raw:
        raw = raw.replace(b"\r\n", b"\n")
    place = raw.find(b"__all__")
    if place < 0 or raw.find(b"__all__", place + 1) >= 0 or b"\r" in raw:
        return None
    if place and (raw[place - 1 : place] != b"\n" or raw[place - 2 : place - 1] == b"\\"):
        return None  # on some condition
    match = _PLAIN.match(raw, place)
    if match is None or any(_is_inside(raw, place, quotes) for quotes in _QUOTES):
        return None
    return frozenset(name.decode() for name in _QUOTED.findall(match[0]))


def _is_inside(raw: bytes, place: int, quotes: bytes) -> bool:
    """Whether a place may be inside a string of several lines."""
    start, end = (0, place) if place < len(raw) // 2 else (place, len(raw))
    return raw.count(quotes, start, end) % 2 == 1
