"""What becomes of one model and all that is done with it: the edits, what stops them, and what they change."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from fsdp_migrate.code.unused_imports import removed_use, removed_value
from fsdp_migrate.edits import Edit, RemovedUse, Replace, RewriteCall, Unwrap, touched
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.objects import Escape, Followed, Path, ProjectCode, Reference
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Span

Test = tuple[str, bool]  # a condition as it prints, and how it comes out


class Closure(NamedTuple):
    """Models that are converted together, and all that the project does with them.

    `constructions` are the calls of FSDP1's class. `references` are the expressions that stand for the models and that
    something is done with; `passed` only pass them on.
    """

    constructions: tuple[Construction, ...]
    references: tuple[Reference, ...]
    passed: tuple[Reference, ...]
    escapes: tuple[Escape, ...]


class Construction(NamedTuple):
    """A call of FSDP1's class."""

    facts: ModuleFacts
    call: ast.Call


class Wall(NamedTuple):
    """A place that stops the conversion: why, and what frees it."""

    facts: ModuleFacts
    node: ast.AST
    reason: str
    step: str


class Difference(NamedTuple):
    """A change of behaviour that `--unsafe-fixes` accepts; `what` is the same text at each place of its kind."""

    facts: ModuleFacts
    node: ast.AST
    what: str


class Options(NamedTuple):
    """What the user wants: `helper` is "auto", "always" or "never"; whether loads still read files of FSDP1."""

    helper: str = "auto"
    reads_old_checkpoints: bool = True
    all_parameters_used: bool = False


@dataclass
class Conversion:
    """What is collected while a closure is looked at; nothing is written if there is a wall."""

    edits: dict[str, list[Edit]] = field(default_factory=dict)
    walls: list[Wall] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    notes: list[Difference] = field(default_factory=list)  # what changes no results
    helper: set[str] = field(default_factory=set)  # the functions that are needed of the generated module
    helper_path: str | None = None  # its path, as findings name paths
    removed: dict[str, list[RemovedUse]] = field(default_factory=dict)  # uses of imported names that go
    comments: dict[str, list[str]] = field(default_factory=dict)  # those that the new texts have more
    looked_at: set[object] = field(default_factory=set)  # uses that are converted, or about to be
    settled: set[ast.AST] = field(default_factory=set)  # references of which no more is to be said
    alone: bool = True  # the project builds no other models of FSDP1
    code: ProjectCode = field(default_factory=ProjectCode)  # what is known of the project
    followed: dict[tuple[ast.expr, Path], Followed] = field(default_factory=dict)  # where parts of models go
    parts: set[tuple[ast.expr, bool]] = field(default_factory=set)  # uses of parts that have been converted
    optimizers: dict[ast.Call, tuple[Reference, ...]] = field(default_factory=dict)  # what builds them, and their uses
    looked: set[ast.AST] = field(default_factory=set)  # the tensors that have been looked at
    methods: set[ast.AST] = field(default_factory=set)  # those of modules that have been looked at
    tests: list[frozenset[Test]] | None = None  # under which each model is built
    own: frozenset[ast.AST] | None = None  # the expressions for parameters of the models, once they are looked for

    def edit(self, facts: ModuleFacts, edits: Iterable[Edit]) -> None:
        """Change the module of `facts`."""
        self.edits.setdefault(facts.path, []).extend(edits)

    def comment(self, facts: ModuleFacts, texts: Iterable[str]) -> None:
        """Note that edits write these comments."""
        self.comments.setdefault(facts.path, []).extend(texts)

    def release(self, facts: ModuleFacts, node: ast.expr, kept: Container[ast.AST] = ()) -> None:
        """Note that an edit takes the use of a name away: the import goes with the last one.

        So does the assignment of an object that is `kept` only in parts.
        """
        found = removed_use(facts, node)
        if isinstance(node, ast.Name):
            found += removed_value(facts, node, kept)
        self.removed.setdefault(facts.path, []).extend(found)

    def wall(self, facts: ModuleFacts, node: ast.AST, reason: str, step: str) -> None:
        """Stop the conversion."""
        wall = Wall(facts, _placed(facts, node), reason, step)
        if wall not in self.walls:
            self.walls.append(wall)

    def differs(self, facts: ModuleFacts, node: ast.AST, what: str) -> None:
        """Note a change of behaviour."""
        self.differences.append(Difference(facts, _placed(facts, node), what))

    def note(self, facts: ModuleFacts, node: ast.AST, what: str) -> None:
        """Note what changes no results, such as speed and names that stay, and needs no consent."""
        self.notes.append(Difference(facts, _placed(facts, node), what))


def _placed(facts: ModuleFacts, node: ast.AST) -> ast.AST:
    """The node, or the one around it that has a place in the text: the `for` of a comprehension has none."""
    while not hasattr(node, "lineno") and node in facts.structure.parents:
        node = facts.structure.parents[node]
    return node


def composed(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Edits of one module, those within a block that loses its `with` inside of the edit that takes it away."""
    every = _joined(dict.fromkeys(edits))
    for outer in [one for one in every if isinstance(one, Unwrap)]:
        inner = [one for one in every if isinstance(one, (Replace, RewriteCall)) and outer.block.contains(one.span)]
        every = [one for one in every if one not in inner]
        every[every.index(outer)] = outer._replace(inner=(*outer.inner, *inner))
    return tuple(every)


def _joined(edits: Iterable[Edit]) -> list[Edit]:
    """The edits, with one for all functions that are put in front of the same statement."""
    rest: list[Edit] = []
    functions: dict[Span, str] = {}
    for edit in edits:
        if isinstance(edit, Replace) and edit.span.start == edit.span.end and edit.text.endswith("\n"):
            functions[edit.span] = functions.get(edit.span, "") + edit.text
        else:
            rest.append(edit)
    return [*(Replace(span, text) for span, text in functions.items()), *rest]


def changed(closure: Closure, conversion: Conversion) -> frozenset[ast.expr]:
    """The expressions for models of a closure at which a conversion changes something, or is stopped."""
    spans: dict[str, list[Span]] = {
        path: [span for edit in edits for span in touched(edit)] for path, edits in conversion.edits.items()
    }
    places = [(one.facts, one.node) for one in conversion.walls]
    places += [(one.facts, one.node) for one in conversion.differences]
    for facts, node in places:
        spans.setdefault(facts.path, []).append(facts.source.span(node))
    found = []
    for reference in (*closure.references, *closure.passed):
        source, zone = reference.facts.source, reference.facts.source.span(_use(reference))
        own = source.span(reference.node)
        if any(zone.overlaps(span) or span.contains(own) for span in spans.get(reference.facts.path, ())):
            found.append(reference.node)
    return frozenset(found)


def _use(reference: Reference) -> ast.expr:
    """The expression in which something is done with a model: a member of it, a call."""
    parents, node = reference.facts.structure.parents, reference.node
    while isinstance(parent := parents.get(node), (ast.Attribute, ast.keyword, ast.Call)):
        if isinstance(parent, ast.Call):
            return parent
        node = parent  # type: ignore[assignment]
    return node
