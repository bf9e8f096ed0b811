"""What makes a finding the same one after its code was moved or formatted: its rule and the meaning of its statement.

A key knows nothing of lines, blanks, comments, quotes, parentheses around a value or trailing commas, nor of the Python
that computed it.
"""

from __future__ import annotations

import ast
import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property

from fsdp_migrate.findings import Finding
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Source, Span

_BLOCKS = frozenset(["body", "orelse", "finalbody", "handlers", "cases"])
_SPELLING = frozenset(["ctx", "kind", "type_comment"])
_LENGTH = 16


class Numbered(NamedTuple):
    """A finding with its key, and how many findings of its file up to this one have the same."""

    finding: Finding
    key: str
    occurrence: int


def numbered(findings: Iterable[Finding], source: Source | None) -> Iterator[Numbered]:
    """The findings of one file, in order of place; where there is no text that parses their messages make the key."""
    seen: Counter[str] = Counter()
    known: dict[Source | None, _Statements | None] = {}
    for finding in findings:
        module = None if source is None else source.module_at(finding.span.start)
        if module not in known:
            known[module] = _statements(module)
        statements = known[module]
        key = _digest(finding.code, finding.message) if statements is None else statements.key(finding)
        seen[key] += 1
        yield Numbered(finding, key, seen[key])


def _statements(source: Source | None) -> _Statements | None:
    if source is None:
        return None
    try:
        source.tree  # noqa: B018 - parsing is what may fail
    except SyntaxError:
        return None
    return _Statements(source)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:_LENGTH]


class _Statements:
    """The statements of one text, to be asked which of them a finding stands in."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @cached_property
    def _ordered(self) -> list[tuple[Span, ast.stmt]]:
        nodes = (node for node in ast.walk(self.source.tree) if isinstance(node, ast.stmt))
        # Of two that start together the outer one comes first.
        return sorted(((self._span(node), node) for node in nodes), key=lambda pair: (pair[0].start, -pair[0].end))

    def _span(self, node: ast.stmt) -> Span:
        """Where a statement stands, its decorators included."""
        span = self.source.span(node)
        decorators = [self.source.span(decorator).start for decorator in getattr(node, "decorator_list", ())]
        return Span(min([span.start, *decorators]), span.end)

    @cached_property
    def _starts(self) -> list[int]:
        return [span.start for span, _ in self._ordered]

    def innermost(self, span: Span) -> ast.stmt | None:
        """The smallest statement around `span`."""
        for index in range(bisect_right(self._starts, span.start) - 1, -1, -1):
            around, node = self._ordered[index]
            if around.contains(span):
                return node
        return None

    def key(self, finding: Finding) -> str:
        """The hexadecimal digest of a finding's rule, statement and place in it."""
        statement = self.innermost(finding.span)
        return _digest(finding.code, self._around(statement, finding.span), self._piece(statement, finding.span))

    def _around(self, statement: ast.stmt | None, span: Span) -> str:
        """What the statement around a finding means; of an import only from where, since other names come and go."""
        if isinstance(statement, ast.ImportFrom) and self.source.span(statement) != span:
            return f"from {'.' * statement.level}{statement.module or ''}"
        return "" if statement is None else _meaning(statement)

    def _piece(self, statement: ast.stmt | None, span: Span) -> str:
        """What stands at `span`: the meaning of a node, and of anything else the text without blanks."""
        for node in ast.walk(statement) if statement is not None else ():
            if not hasattr(node, "lineno"):
                continue
            here = self.source.span(node)
            # Before Python 3.12 what is inside an f-string has the place of the whole, so the whole it is for all.
            if here == span or (isinstance(node, ast.JoinedStr) and here.contains(span)):
                return _meaning(node)
        return "".join(self.source.data[span.start : span.end].decode("utf-8", "replace").split())


def _meaning(node: ast.AST) -> str:
    """A statement's header or an expression as text that says what it means, not how it is written."""
    pieces: list[str] = []
    waiting: list[object] = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, ast.Constant):
            pieces.append(repr(item.value))
        elif isinstance(item, ast.AST):
            pieces.append(f"{type(item).__name__}(")
            waiting.append(_Text(")"))
            for name, value in reversed(list(_fields(item))):
                waiting += [value, _Text(f"{name}=")]
        elif isinstance(item, list):
            waiting += reversed(item)
        else:
            pieces.append(item if isinstance(item, _Text) else f"{item!r},")
    return "".join(pieces)


def _fields(node: ast.AST) -> Iterator[tuple[str, object]]:
    """The fields of a node that bear meaning, without its blocks, the names of an import in alphabetical order."""
    for name, value in ast.iter_fields(node):
        # Empty fields are left out: newer releases of Python have more of them.
        if name in _SPELLING or value is None or value == [] or (name in _BLOCKS and isinstance(value, list)):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)) and name == "names":
            value = sorted(value, key=lambda alias: (alias.name, alias.asname or ""))
        if isinstance(node, ast.JoinedStr) and isinstance(value, list):
            # Some releases of Python 3.12 have empty texts at its end.
            value = [part for part in value if not (isinstance(part, ast.Constant) and part.value == "")]
        yield name, value


class _Text(str):
    """A piece of the result, unlike a field's value that is a string."""

    __slots__ = ()
