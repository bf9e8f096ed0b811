"""The imports and definitions of a module, found in its bytes without parsing them.

A sketch may see more than there is (in strings, in functions), never less of what is written in the usual ways: it
says which modules are worth a parse, and of most it says that they are not.
"""

from __future__ import annotations

import re
from functools import cached_property

from fsdp_migrate.written_names import closing

_FROM = re.compile(rb"from[ \t]*([.\w]+)[ \t]+import[ \t]*(\(|\*|(?:[^\r\n;#\\]|\\\r?\n)*)")
_IMPORT = re.compile(rb"^[ \t]*import[ \t]+((?:[^\r\n;#\\]|\\\r?\n)*)", re.MULTILINE)
_COMMENT = re.compile(rb"#[^\r\n]*")
_NAME = re.compile(r"(\w+)(?:\s+as\s+(\w+))?")
_MODULE = re.compile(r"([\w.]+)(?:\s+as\s+(\w+))?")
_DOTTED = re.compile(r"\(?\s*([A-Za-z_][\w.]*)\s*(.?)")


class Sketch:
    """What one module binds at its top level, as far as its bytes tell."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    @cached_property
    def imports(self) -> dict[str, tuple[str, ...]]:
        """The full names that each imported name may stand for, as `facts.scopes` writes them (`..dist.FSDP`)."""
        found: dict[str, list[str]] = {}
        for module, names in self._from_imports:
            prefix = module if module.endswith(".") else f"{module}."
            for name, alias in _NAME.findall(names):
                found.setdefault(alias or name, []).append(prefix + name)
        for match in _IMPORT.finditer(self.raw):
            for module, alias in _MODULE.findall(_text(match[1])):
                root = module.split(".")[0]
                found.setdefault(alias or root, []).append(module if alias else root)
        return {name: tuple(dict.fromkeys(targets)) for name, targets in found.items()}

    @cached_property
    def modules(self) -> frozenset[str]:
        """Every module that is imported, or that names are imported from, dots in front included."""
        plain = (_MODULE.findall(_text(match[1])) for match in _IMPORT.finditer(self.raw))
        return frozenset([module for module, _ in self._from_imports] + [m for found in plain for m, _ in found])

    @cached_property
    def stars(self) -> tuple[str, ...]:
        """The modules of star imports, the last one first."""
        return tuple(module for module, names in reversed(self._from_imports) if names.strip() == "*")

    def aliases(self, name: str) -> tuple[str, ...]:
        """The dotted names that are assigned to `name`, the heads of conditional expressions among them."""
        heads = (_DOTTED.match(value) for value in self.assigned(name))
        return tuple(head[1] for head in heads if head is not None and head[2] not in ("(", "[", "{", '"', "'"))

    def assigned(self, name: str) -> list[str]:
        """The rest of each line that assigns to `name`."""
        return self._matches(name, rb"[ \t]*(?::[^=\r\n]+)?=(?!=)[ \t]*([^\r\n]*)")

    def bases(self, name: str) -> tuple[str, ...]:
        """The dotted names of the bases of classes called `name`."""
        texts = self._matches(name, rb"[ \t]*\(([^)]*)\)", before=rb"class[ \t]+")
        return tuple(base.strip() for text in texts for base in text.split(",") if base.strip())

    def is_function(self, name: str) -> bool:
        """Whether a function of this name is defined."""
        return bool(self._matches(name, rb"[ \t]*(\()", before=rb"def[ \t]+"))

    @cached_property
    def _from_imports(self) -> list[tuple[str, str]]:
        found = []
        for match in _FROM.finditer(self.raw):
            names = match[2]
            if names == b"(":
                names = _COMMENT.sub(b"", self.raw[match.end() : closing(self.raw, match.end())])
            found.append((match[1].decode("ascii", "replace"), _text(names)))
        return found

    def _matches(self, name: str, after: bytes, before: bytes = b"") -> list[str]:
        word = name.encode()
        if word not in self.raw:
            return []
        pattern = re.compile(rb"^[ \t]*" + before + re.escape(word) + after, re.MULTILINE)
        return [_text(match[1]) for match in pattern.finditer(self.raw)]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace("\\", " ")


def split(name: str) -> tuple[str, str]:
    """The module and the last part of a full name; dots in front belong to the module."""
    dots = len(name) - len(name.lstrip("."))
    module, _, last = name[dots:].rpartition(".")
    return name[:dots] + module, last
