"""YAML with the place of every key and value. Nothing is constructed: tags are names, and aliases are not expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import NoReaderError, Span
from fsdp_migrate.workspace.beside.text import BesideText

if TYPE_CHECKING:
    import ast

    from ruamel.yaml.nodes import Node

# In bytes. The reader takes a second for half of it, and no configuration is as long.
LONGEST_YAML = 200_000
_HASH = re.compile(rb"(?:^|(?<=[ \t\r\n]))#[^\r\n]*")


class Item(NamedTuple):
    """A key of a mapping with its value; `text` is the value where it is one word, None where it has parts."""

    key: str
    text: str | None
    node: Node
    key_span: Span
    span: Span


class Mapping(NamedTuple):
    """A mapping: its items in order; `in_lines` if each of them starts a line, and none is shared by an anchor."""

    items: tuple[Item, ...]
    in_lines: bool

    def get(self, key: str) -> Item | None:
        """The last item of a key, which is the one that counts."""
        return next((item for item in reversed(self.items) if item.key == key), None)

    def text(self, key: str) -> str | None:
        """The word that is the value of a key."""
        item = self.get(key)
        return None if item is None else item.text


class YamlText(BesideText):
    """One file of YAML, which may hold several documents."""

    @cached_property
    def tree(self) -> ast.Module:
        """An empty module.

        Raises:
            SyntaxError: it is no YAML, or longer than `LONGEST_YAML`.
            NoReaderError: there is nothing to read it with.
        """
        self.documents  # noqa: B018 - parsing is what may fail
        return super().tree

    @cached_property
    def documents(self) -> list[Node]:
        """The root of each document.

        Raises:
            SyntaxError: as for `tree`.
        """
        if len(self.data) > LONGEST_YAML:
            raise SyntaxError(f"it has more than {LONGEST_YAML // 1000} kB, too much for a configuration")
        try:
            from ruamel.yaml import YAML
            from ruamel.yaml.error import MarkedYAMLError, YAMLError
        except ImportError:
            raise NoReaderError("ruamel.yaml is missing") from None
        try:
            return [node for node in YAML(typ="safe", pure=True).compose_all(self.text) if node is not None]
        except MarkedYAMLError as error:
            mark = error.problem_mark
            place = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
            raise SyntaxError(error.problem or "no YAML", ("<unknown>", *place, None)) from None
        except (YAMLError, RecursionError, ValueError) as error:
            said = "too deeply nested" if isinstance(error, RecursionError) else str(error)
            raise SyntaxError(" ".join(said.split())) from None

    @cached_property
    def mappings(self) -> list[Mapping]:
        """All mappings, the outer ones first, each once however often it is named."""
        return [self.mapping(node) for node in self._nodes if _is_mapping(node)]

    def mapping(self, node: Node) -> Mapping:
        """What a node holds, nothing where it is no mapping."""
        if not _is_mapping(node):
            return Mapping((), in_lines=False)
        items = tuple(
            Item(key.value, _word(value), value, self._span(key), self._behind(key, value))
            for key, value in node.value
            if _word(key) is not None
        )
        whole = len(items) == len(node.value) and not getattr(node, "flow_style", False)
        anchored = any(one.anchor is not None or one.key == "<<" for one in _anchored(node, items))
        starts = {self.line_start(item.key_span.start) for item in items}
        return Mapping(items, whole and not anchored and len(starts) == len(items))

    def _behind(self, key: Node, value: Node) -> Span:
        """Where a value is written; for an alias just behind its key."""
        span = self._span(value)
        end = self._span(key).end
        return span if span.start >= end else Span(end, end)

    def _span(self, node: Node) -> Span:
        return Span(self.at(node.start_mark.index), self.at(node.end_mark.index))

    @cached_property
    def _nodes(self) -> list[Node]:
        found: dict[int, Node] = {}
        waiting = list(reversed(self.documents))
        while waiting:
            node = waiting.pop()
            if id(node) not in found:
                found[id(node)] = node
                waiting += reversed(list(_parts(node)))
        return list(found.values())

    @property
    def comment_spans(self) -> list[Span]:
        """Where the comments are: at a `#` behind blank space that is in no scalar."""
        scalars = sorted(self._span(node) for node in self._nodes if not isinstance(node.value, list))
        found = []
        for match in _HASH.finditer(self.data):
            if not any(span.start <= match.start() < span.end for span in scalars):
                found.append(Span(*match.span()))
        return found

    @property
    def comment_lines(self) -> set[int]:
        """The lines that a comment can end: those that do not end inside of a scalar."""
        return self._lines_without(self._span(node) for node in self._nodes if not isinstance(node.value, list))


class _Marked(NamedTuple):
    anchor: str | None
    key: str


def _anchored(node: Node, items: tuple[Item, ...]) -> Iterator[_Marked]:
    yield _Marked(node.anchor, "")
    yield from (_Marked(item.node.anchor, item.key) for item in items)


def _is_mapping(node: Node) -> bool:
    return isinstance(node.value, list) and all(isinstance(part, tuple) for part in node.value)


def _word(node: Node) -> str | None:
    return None if isinstance(node.value, list) else node.value


def _parts(node: Node) -> Iterator[Node]:
    """The nodes in a node."""
    for part in node.value if isinstance(node.value, list) else ():
        yield from part if isinstance(part, tuple) else (part,)
