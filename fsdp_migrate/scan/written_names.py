"""Whether a file may write one of some names of torch, found in its bytes without parsing them.

Imports, attribute chains, what `getattr` reads, items, and assignments of these are recognised by their form alone,
in comments and strings too and whatever the scope. So a file may be taken for one that writes a name although it does
not, but not the other way round, however it is laid out, but for a comment in the middle of a chain.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise

from fsdp_migrate.scan.imports import COMMENT, closing
from fsdp_migrate.scan.names import Names
from fsdp_migrate.scan.needles import Written, behind_dots

_GAP = rb"(?:[ \t\f]|\\\r?\n)*"
_SPACE = rb"(?:[ \t\f]|\\\r?\n)+"
_PATH = rb"torch(?:" + _GAP + rb"\." + _GAP + rb"\w+)*"
_REST_OF_LINE = rb"(?:[^\r\n;#\\]|\\\r?\n)*"
# No pattern starts with an assertion: what starts with a literal is searched for much faster.
_FROM = re.compile(
    rb"from" + _SPACE + rb"(" + _PATH + rb")" + _SPACE + rb"import" + _GAP + rb"(\(|" + _REST_OF_LINE + rb")"
)
_IMPORT = re.compile(rb"import" + _SPACE + rb"(" + _REST_OF_LINE + rb")")
_AS = _SPACE + rb"as" + _SPACE + rb"(\w+)"
_IMPORTED_NAME = re.compile(rb"(\w+)(?:\s+as\s+(\w+))?")
_IMPORTED_MODULE = re.compile(rb"(" + _PATH + rb")(?:" + _AS + rb")?")
# Attributes may stand on lines of their own; behind the dot a line ends only by a backslash.
_ATTRIBUTES = re.compile(rb"(?:(?:\s|\\)*\." + _GAP + rb"[A-Za-z_]\w*)+")
# A comment goes to the end of its line: if it could stop before, a row of `#` could be taken apart in 2**n ways.
_BETWEEN = rb"(?:\s|\\|#[^\r\n]*(?![^\r\n]))*"
# What `getattr(module, "name")`, `vars(module)["name"]` and an item of an enum read.
_READ = re.compile(_BETWEEN + rb"(?:,|\[|\)" + _BETWEEN + rb"\[)" + _BETWEEN + rb"""[uUrR]?(["'])([A-Za-z_]\w*)\1""")
_NAMESPACE = b".__dict__"
_STAR = b"*"
# The target of an assignment, at the end of what stands in front of its value.
_ASSIGNED = re.compile(rb"(?:\A|[;:=(])[ \t]*(\w+)[ \t]*(?::[^=]*)?=\Z")
# What stands in front of or behind a value that is chosen, and the parenthesis of a call.
_CHOSEN = (b"else", b"or", b"and")
_BEHIND = re.compile(_BETWEEN + rb"(?:\(|(?:if|or|and)\b)")
_IN_FRONT = re.compile(rb"\(" + _BETWEEN + rb"\Z")
# The arguments of a call without strings in them.
_ARGUMENTS = re.compile(rb"\s*\(((?:[^()\"']|\((?:[^()\"']|\([^()\"']*\))*\))*)\)")
_BLANK = re.compile(rb"[\s\\]+")
_LONGEST_TARGET = 200
# How often a name may be assigned to another one.
_MOST_ASSIGNMENTS = 2
_WORD_BYTES = frozenset(bytes((n,)) for n in range(256) if n > 127 or chr(n).isalnum() or chr(n) == "_")
_NO_START = _WORD_BYTES | {b"."}


class Vocabulary:
    """Names to look for: full names (`torch.distributed.fsdp.fully_shard`), and members of classes (`Class.member`)."""

    def __init__(self, names: Names, objects: Collection[str] = ()) -> None:
        """A name that stands for a module stands for all that is in it.

        `objects` are classes whose members count wherever a file that names the class reads them.
        """
        self._names = names
        self.objects = objects
        # What may still lead to one of the names: their owners, wherever a class was imported from.
        self._leads: set[str] = set()
        for owner in names.members:
            while owner not in self._leads:
                self._leads.add(owner)
                owner = owner.rpartition(".")[0]

    def is_written(self, raw: bytes) -> bool:
        """Whether the bytes of a Python file, in any encoding that keeps ASCII, may write one of the names."""
        if b"torch" not in raw:
            return False
        return any(self._holds(path, raw, called=called) for path, called in self._paths(raw)) or self._reads(raw)

    def _holds(self, path: bytes, raw: bytes, *, called: bool) -> bool:
        """Whether a full name goes through one of those looked for; `called` if what it stands for may be called."""
        parts = path.decode("ascii", "replace").split(".")
        owner, last = parts[0], len(parts) - 1
        for number, (before, part) in enumerate(pairwise(parts), 1):
            for marked in (self._names.marked(owner), self._names.marked(before)):
                if part in marked and _counts(marked[part], raw, called=called and number == last):
                    return True
            owner += "." + part
        return False

    def _reads(self, raw: bytes) -> bool:
        """Whether a member of a class is read where the file may have an object of it."""
        classes = [cls for cls in self.objects if cls.encode() in raw]
        if not classes:
            return False
        text = Written(raw)
        return any(
            text.has(f".{name}") and (words is None or _is_called_with(raw, name.encode(), words))
            for cls in classes
            for name, words in self._names.marked(cls).items()
        )

    def _leads_on(self, path: bytes) -> bool:
        name = path.decode("ascii", "replace")
        return name in self._leads or name.rpartition(".")[2] in self._leads or name in self._names

    def _brought(self, module: bytes, raw: bytes) -> Iterator[bytes]:
        """The names that a star import may bring and the file may read."""
        names = (name.encode() for name in self._names.of(module.decode("ascii", "replace")))
        return (module + b"." + name for name in names if name in raw)

    def _paths(self, raw: bytes) -> Iterator[tuple[bytes, bool]]:
        """The full names that the file may write, as far as they may lead to one of those looked for.

        Each with whether it may be called there, under this name or another one.
        """
        roots: set[tuple[bytes, bytes]] = {(b"torch", b"torch")}
        for name, path in _imports(raw):
            if path.endswith(_STAR):
                yield from ((brought, True) for brought in self._brought(path[:-2], raw))
            else:
                yield path, False
            if name is not None:
                roots.add((name, path))
        known: set[tuple[bytes, bytes]] = set()
        for _ in range(_MOST_ASSIGNMENTS + 1):
            assigned = set()
            for name, base in roots - known:
                for target, attributes, called in _uses(raw, name) if self._leads_on(base) else ():
                    yield base + attributes, called
                    if target is not None:
                        assigned.add((target, base + attributes))
            known |= roots
            roots = assigned


def _counts(words: tuple[bytes, ...] | None, raw: bytes, *, called: bool) -> bool:
    """Whether a name counts that is written, by what is known of it."""
    return words is None or (called and any(word in raw for word in words))


def _is_called_with(raw: bytes, name: bytes, words: tuple[bytes, ...]) -> bool:
    """Whether an attribute is called with one of some keywords, or may be."""
    calls = (_ARGUMENTS.match(raw, end) for end in behind_dots(raw, name))
    return any(call is None or b"**" in call[1] or any(word in call[1] for word in words) for call in calls)


def _imports(raw: bytes) -> Iterator[tuple[bytes | None, bytes]]:
    """What imports take from torch: the name bound to it, None where that is `torch` itself, and the full name."""
    for match in _FROM.finditer(raw):
        module, names = _BLANK.sub(b"", match[1]), match[2]
        yield None, module
        if names == b"(":
            names = COMMENT.sub(b"", raw[match.end() : closing(raw, match.end())])
        if names.strip() == _STAR:
            yield None, module + b"." + _STAR
        for name, bound in _IMPORTED_NAME.findall(names.replace(b"\\", b" ")):
            yield bound or name, module + b"." + name
    for match in _IMPORT.finditer(raw):
        for module, bound in _IMPORTED_MODULE.findall(match[1]):
            yield bound or None, _BLANK.sub(b"", module)


def _uses(raw: bytes, name: bytes) -> Iterator[tuple[bytes | None, bytes, bool]]:
    """Where a name is written: the name that it is assigned to with its attributes, if any, and the attributes.

    What a call may read off it by a string is one more of them. At last whether what they stand for may be called.
    """
    partial = b"partial" in raw
    end = 0
    while (start := raw.find(name, end)) >= 0:
        end = start + len(name)
        if raw[end : end + 1] in _WORD_BYTES or (start and raw[start - 1 : start] in _NO_START):
            continue
        attributes = _ATTRIBUTES.match(raw, end)
        after = end if attributes is None else attributes.end()
        if (read := _READ.match(raw, after)) is not None:
            owner = b"" if attributes is None else _BLANK.sub(b"", attributes[0]).removesuffix(_NAMESPACE)
            yield None, owner + b"." + read[2], True
        line = raw[max(0, start - _LONGEST_TARGET) : start].rstrip(b" \t\r\n\\(")
        bound = line.endswith(b"=")
        assigned = _ASSIGNED.search(line[line.rfind(b"\n") + 1 :]) if bound else None
        called = (
            bound
            or line.endswith(_CHOSEN)
            or _BEHIND.match(raw, after) is not None
            or (partial and _IN_FRONT.search(raw, max(0, start - _LONGEST_TARGET), start) is not None)
        )
        if attributes is not None or assigned is not None or called:
            target = None if assigned is None else assigned[1]
            yield target, b"" if attributes is None else _BLANK.sub(b"", attributes[0]), called
