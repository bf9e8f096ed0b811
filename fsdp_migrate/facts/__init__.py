"""The facts of a module: everything that rules ask, computed on demand from one parse and one walk."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from fsdp_migrate.facts.fsdp import Fsdp
from fsdp_migrate.facts.names import Names
from fsdp_migrate.facts.other_modules import ImportedNames
from fsdp_migrate.facts.scopes import Binding, FunctionNode, Scope, Structure
from fsdp_migrate.facts.walk import build
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Source, Span
from fsdp_migrate.torch_api import TorchRange

if TYPE_CHECKING:
    from packaging.version import Version

    from fsdp_migrate.facts.releases.gates import Gates
    from fsdp_migrate.findings import Consulted

T = TypeVar("T")

_TEMPLATES = ("JoinedStr", "TemplateStr")
_COMPOUND_HEADERS = ("body", "orelse", "handlers", "finalbody", "cases")


class ModuleFacts:
    """The facts of one module for one torch range.

    `path` is the path in findings. `project` answers for other modules of the project (none by default). Without
    `hints` rules need not look for hints. `seen` is what a run of the program was seen calling here, if there was one.
    `known` are other facts of this source that are open for longer: its nodes and scopes are theirs.
    """

    def __init__(
        self,
        source: Source,
        path: str,
        torch: TorchRange,
        project: ProjectModules | None = None,
        *,
        hints: bool = True,
        seen: SeenCalls | None = None,
        known: ModuleFacts | None = None,
    ) -> None:
        """Parse `source`.

        Raises:
            SyntaxError: the source does not parse.
        """
        self.source = source
        self.path = path
        self.torch = torch
        self.project = project
        self.hints = hints
        self.seen = seen
        self.known = known
        self.structure: Structure = build(source.tree) if known is None else known.structure
        self.names = Names(self.structure, project)
        self.fsdp = Fsdp(self.structure, self.names, self.reached)
        self._memo: dict[object, object] = {}
        self._gates: list[Gates] = []

    @property
    def newest_only(self) -> bool:
        """Whether the general rules only look for what the newest release is at odds with."""
        return self.torch.newest_only(self.hints)

    @cached_property
    def gates(self) -> Gates:
        """The releases of the range that reach each node."""
        return self.gates_of(self.torch.releases)

    def gates_of(self, releases: tuple[Version, ...]) -> Gates:
        """The same for other releases; only until the facts are closed."""
        from fsdp_migrate.facts.releases.gates import Gates  # needed only where something is found

        apart = self.source.runs_apart
        self._gates.append(Gates(self.source.tree, self.names, releases, self.structure.parents, apart))
        return self._gates[-1]

    @cached_property
    def written(self) -> bytes:
        """The text, with imports from torch itself for what the module imports from torch through its project."""
        return self.source.written + self.names.direct_imports.encode()

    @cached_property
    def indent_unit(self) -> str:
        """One level of indentation as this file writes it, four spaces when it has none."""
        for function in (*self.structure.functions, *ast.walk(self.source.tree)):
            body = getattr(function, "body", None)
            if isinstance(function, ast.stmt) and isinstance(body, list) and body:
                outer, inner = self.indentation(function), self.indentation(body[0])
                if inner.startswith(outer) and len(inner) > len(outer):
                    return inner[len(outer) :]
        return "    "

    def indentation(self, statement: ast.stmt) -> str:
        """The whitespace at the start of the line of `statement`."""
        start = self.source.span(statement).start
        line = self.source.data[self.source.line_start(start) : start]
        return line[: len(line) - len(line.lstrip(b" \t\f"))].decode().replace("\f", "")

    def memo(self, key: object, compute: Callable[[], T]) -> T:
        """The result of `compute`, computed once for each key, so that rules share work."""
        if key not in self._memo:
            self._memo[key] = compute()
        return cast("T", self._memo[key])

    def close(self) -> None:
        """Free everything: reference cycles would wait for the garbage collector."""
        if self.known is None:
            for scope in list(self.structure.module.nested()):
                scope.__dict__.clear()
            self.structure.__dict__.clear()
        for part in (*self._gates, self):
            part.__dict__.clear()

    def reached(self, node: ast.AST) -> bool:
        """Whether a supported release runs `node` (False in the old arm of a version check)."""
        return bool(self.gates.alive(node))

    def calls_in(self, node: ast.AST) -> tuple[ast.Call, ...]:
        """The calls in a node, itself among them, the outer ones first."""
        return self.memo((ast.Call, node), lambda: tuple(part for part in ast.walk(node) if isinstance(part, ast.Call)))

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement around `node` (itself, if it is one)."""
        while not isinstance(node, ast.stmt):
            node = self.structure.parents[node]
        return node

    def blocks_around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The statements, handlers and functions around `node`, innermost first, up to its function."""
        function = self.function(node)
        current = node
        while current is not function and current in self.structure.parents:
            current = self.structure.parents[current]
            yield current

    def function(self, node: ast.AST) -> ast.AST:
        """The innermost function or lambda around `node`, otherwise the module."""
        current: ast.AST | None = self.structure.parents.get(node)
        while current is not None and not isinstance(current, FunctionNode):
            current = self.structure.parents.get(current)
        return current if current is not None else self.source.tree

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class around `node` (itself, if it is one), None if there is none."""
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.ClassDef):
            current = self.structure.parents.get(current)
        return current

    def template_around(self, node: ast.AST) -> ast.expr | None:
        """The f-string or t-string around `node`, None if there is none."""
        current = node
        while not isinstance(current, ast.stmt):
            if type(current).__name__ in _TEMPLATES:
                return cast("ast.expr", current)
            current = self.structure.parents[current]
        return None

    def function_name(self, node: ast.AST) -> str:
        """The name of the function around `node` for messages, or "this module"."""
        function = self.function(node)
        name = getattr(function, "name", None)
        return f"`{name}`" if name else "this lambda" if isinstance(function, ast.Lambda) else "this module"

    def scope(self, node: ast.AST) -> Scope:
        """The scope in which `node` is evaluated."""
        return self.structure.scope(node)

    def header(self, statement: ast.stmt) -> Span:
        """The span of a statement without its inner blocks; a suppression may be on these lines."""
        span = self.source.span(statement)
        decorators = getattr(statement, "decorator_list", ())
        start = min([span.start, *(self.source.span(d).start for d in decorators)])
        inner = [child for name in _COMPOUND_HEADERS for child in getattr(statement, name, ()) if child is not None]
        starts = [self.source.span(child).start for child in inner if hasattr(child, "lineno")]
        if starts and self.source.line_start(min(starts)) > start:
            return Span(start, self.source.line_start(min(starts)))
        return Span(start, span.end)


class SeenCalls(Protocol):
    """What a run of the program called, by the calls in the text."""

    def called(self, call: ast.Call, api: str) -> bool:
        """Whether a call was one of a function of torch, at least once."""

    def optimizer(self, call: ast.Call, api: str) -> tuple[str, str] | None:
        """A name that the optimizer of the model had wherever the call was seen, and its type."""


class Use(NamedTuple):
    """A place where another module reads a name: its facts, the node, and the file's name for messages."""

    facts: ModuleFacts
    node: ast.expr
    shown: str


class Reads(NamedTuple):
    """The places where other modules read a name. There may be more, `hidden` in a file that cannot be parsed."""

    uses: Sequence[Use]
    hidden: bool


class ProjectModules(ImportedNames, Protocol):
    """Answers about the other modules of a project."""

    asked_all: bool

    @property
    def asked_beyond(self) -> bool:
        """Whether an answer so far depends on files of the project that are not in the run."""

    @property
    def consulted(self) -> Sequence[Consulted]:
        """The files that the answers so far depend on."""

    def written(self, raw: bytes) -> bytes:
        """The text of the asking module with `direct_imports` for its imports, found without parsing."""

    def may_bring_fsdp(self, raw: bytes) -> bool:
        """Whether a text of the asking module may get FSDP from modules that name it, or by a star import."""

    def kept(self, raw: bytes) -> ModuleFacts | None:
        """Facts of the asking module that stay open anyway, if it has this text there."""

    def finds(self, module: str) -> str | None:
        """The file of a module that the asking one imports, None if it is not in the project."""

    def module(self, name: str) -> ModuleFacts | None:
        """The module of this name for the asking one, None if it is not in the project."""

    def text_of(self, path: str) -> str | None:
        """The text of a file, None if it cannot be read."""

    def is_own(self, name: str) -> bool:
        """Whether `name` is a module of the project, or is reached through one."""

    def may_pass_on(self, name: str) -> bool:
        """Whether `name` is a module of the project, or one has something of torch under it that rules look for."""

    def is_optional(self, name: str) -> bool:
        """Whether a module of the project that provides `name` binds something else without torch."""

    def definition(self, name: str) -> tuple[ModuleFacts, Sequence[Binding]] | None:
        """The module of the project that defines or assigns `name`, and its binding there."""

    def function(self, name: str) -> tuple[ModuleFacts, ast.FunctionDef | ast.AsyncFunctionDef] | None:
        """The function `name` of a module of the project, if nothing else there has the name."""

    def is_imported(self, name: str) -> bool:
        """Whether another module of the project imports the top-level `name` of the asking module."""

    def takers(self, name: str) -> Sequence[str] | None:
        """The files of other modules that take the asking one's top-level `name`; None where strings name it too."""

    def is_written(self, word: str) -> bool:
        """Whether another file of the project contains a word."""

    def is_in_program(self, word: str) -> bool:
        """Whether a word is in another file that may run with the asking module, as imports tell."""

    def having(self, word: str) -> Sequence[ModuleFacts]:
        """The other files of the project that have a word, as far as they can be parsed."""

    def patcher(self, name: str, old: str) -> str | None:
        """The file that patches `name` of the asking module (in torch: `old`) there or in torch, None if none does."""

    def setters(self, name: str) -> Sequence[tuple[ModuleFacts, str]]:
        """Other modules that may assign an attribute `name`, each with its name for messages."""

    def uses(self, name: str) -> Sequence[Use] | None:
        """The places where other modules read `name` of the asking module; None if there may be more."""

    def reads(self, name: str) -> Reads:
        """The places where other modules may read the top-level `name` of the asking module."""

    def writing(self, word: str) -> Sequence[ModuleFacts]:
        """The other modules of the project that read an attribute of this name from anything but their `self`."""

    def bases_written(self, name: str) -> Sequence[Use]:
        """The places where modules that may derive a class from `name` of the asking module read it."""
