"""The target `fsdp2`: each model of FSDP1 with all that is done with it, as one transaction."""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.objects import ProjectCode
from fsdp_migrate.findings import Finding, Fix
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Verdict, finding, manual
from fsdp_migrate.source import Span, holds
from fsdp_migrate.targets.fsdp2.arms import check_arms
from fsdp_migrate.targets.fsdp2.checkpointing import check_checkpointing
from fsdp_migrate.targets.fsdp2.class_names import convert_names
from fsdp_migrate.targets.fsdp2.closures import GIVEN_UP, MOST_WORK, WORDS, closures, given_up
from fsdp_migrate.targets.fsdp2.construction import convert_construction
from fsdp_migrate.targets.fsdp2.conversion import Closure, Conversion, Options, changed, composed
from fsdp_migrate.targets.fsdp2.early_uses import convert_early_uses
from fsdp_migrate.targets.fsdp2.generated import comments_of, module_of
from fsdp_migrate.targets.fsdp2.model import RULE
from fsdp_migrate.targets.fsdp2.optimizers import check_optimizers
from fsdp_migrate.targets.fsdp2.parameters import convert_groups
from fsdp_migrate.targets.fsdp2.plain_modules import convert_plain_modules
from fsdp_migrate.targets.fsdp2.scalers import convert_scalers
from fsdp_migrate.targets.fsdp2.states import convert_states
from fsdp_migrate.targets.fsdp2.unused_functions import convert_unused_functions
from fsdp_migrate.targets.fsdp2.uses import convert_use
from fsdp_migrate.transactions import CreatedFile, Transaction
from fsdp_migrate.workspace.filesystem import FileError, SourceFile, printable

if TYPE_CHECKING:
    from fsdp_migrate.workspace.settings import Settings
    from fsdp_migrate.workspace.workspace import Workspace

NAME = "fsdp2"
# Findings that converted code may have: about the new state-dict functions, with what FSDP1's code had the same way.
_BRINGS = frozenset({"FSDP710", "FSDP711", "FSDP712", "FSDP713", "FSDP714", "FSDP715"})
_ESCAPE_STEP = "keep the model where it can be followed, or convert this part by hand"


class Place(NamedTuple):
    """A place as people read it: a file and a line, in a notebook that of a cell."""

    path: str
    line: int
    cell: int | None = None

    @classmethod
    def of(cls, path: str, facts: ModuleFacts, node: ast.AST) -> Place:
        """Where a node stands in a file of that name."""
        at = facts.source.location(facts.source.span(node).start)
        return cls(path, at.line, at.cell)

    @property
    def piece(self) -> str:
        """What lines are counted in: the file, or the cell of one."""
        return self.path if self.cell is None else f"{self.path}:cell {self.cell}"

    def __str__(self) -> str:
        return f"{self.piece}:{self.line}"


class Model(NamedTuple):
    """Models of FSDP1 that are converted together: all that is done with them, and what becomes of it."""

    closure: Closure
    conversion: Conversion
    shown: Mapping[str, str]

    @property
    def facts(self) -> ModuleFacts:
        """The module of the first construction."""
        return self.closure.constructions[0].facts

    @property
    def name(self) -> str:
        """What the program calls the model."""
        call = self.closure.constructions[0].call
        parent = self.facts.structure.parents.get(call)
        target = parent.targets[0] if isinstance(parent, ast.Assign) else getattr(parent, "target", None)
        if isinstance(target, (ast.Name, ast.Attribute)):
            return ast.unparse(target)
        return ast.unparse(call.args[0]) if call.args and isinstance(call.args[0], ast.Name) else "model"

    def place(self, facts: ModuleFacts, node: ast.AST) -> Place:
        """Where a node stands."""
        return Place.of(self.path(facts.path), facts, node)

    def path(self, path: str) -> str:
        """How findings name a file."""
        if path in self.shown:
            return self.shown[path]
        folder, name = os.path.split(path)
        beside = (os.path.dirname(shown) for known, shown in self.shown.items() if os.path.dirname(known) == folder)
        found = next(beside, None)
        return printable(os.path.relpath(path) if found is None else os.path.join(found, name))

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the models are built and something is done with them."""
        built = {self.place(one.facts, one.call) for one in self.closure.constructions}
        used = {self.place(one.facts, one.node) for one in self.closure.references}
        return tuple(sorted(built | used))

    def transaction(self) -> Transaction:
        """The finding, and the edits where nothing stops them."""
        conversion = self.conversion
        if conversion.walls:
            return Transaction(self._finding(self._stopped()), {})
        whats = dict.fromkeys(one.what for one in conversion.differences)
        fixes = {
            self.path(path): Fix(
                composed(edits),
                tuple(conversion.removed.get(path, ())),
                comments=tuple(conversion.comments.get(path, ())),
            )
            for path, edits in conversion.edits.items()
        }
        own = fixes[self.path(self.facts.path)]
        found = self._finding(Verdict(own, unsafe="; ".join(whats) or None))
        wrapping = frozenset(self.path(one.facts.path) for one in self.closure.constructions)
        return Transaction(found, {**fixes, **self._extended()}, (), _BRINGS, self._created(), apart=wrapping)

    def _created(self) -> tuple[CreatedFile, ...]:
        """The generated module, where it is needed and not there yet."""
        path = self.conversion.helper_path
        new, old = ("", "") if path is None else module_of(self.conversion, self.facts)
        if path is None or old is not None:
            return ()
        return (CreatedFile(SourceFile(os.path.abspath(path), self.path(path)), new),)

    def _extended(self) -> dict[str, Fix]:
        """More functions for the generated module that another model has."""
        path = self.conversion.helper_path
        new, old = ("", "") if path is None else module_of(self.conversion, self.facts)
        if path is None or old is None or new == old:
            return {}
        known = Counter(comments_of(old))
        comments = Counter(comments_of(new)) - known
        whole = Span(0, len(old.encode()))
        return {self.path(path): Fix((Replace(whole, new),), comments=tuple(comments.elements()))}

    def _stopped(self) -> Verdict:
        wall, *more = self.conversion.walls
        others = f"; {len(more)} more: `fsdp-migrate plan --target {NAME}` lists them" if more else ""
        return manual(f"{wall.reason} ({self.place(wall.facts, wall.node)}): {wall.step}{others}")

    def _finding(self, verdict: Verdict) -> Finding:
        construction = self.closure.constructions[0]
        facts, call = construction.facts, construction.call
        count = len({place.path for place in self.places})
        where = f"{len(self.places)} {'place' if len(self.places) == 1 else 'places'}"
        where += f" in {count} files" if count > 1 else ""
        message = f"`{self.name}` is a model of FSDP1, which PyTorch's documentation calls deprecated ({where})"
        found = finding(facts, RULE.card, call, facts.statement(call), message, verdict)
        return found._replace(path=self.path(found.path))


class ToFsdp2:
    """Models from FSDP1 to `fully_shard`."""

    name = NAME

    def transactions(self, workspace: Workspace) -> Iterator[Transaction]:
        """One for each model; one that something stops has no fixes."""
        if any(settings.selected(RULE.card.code) for _, settings in _asked_for(workspace)):
            for model in models(workspace):
                yield model.transaction()


def models(workspace: Workspace) -> Iterator[Model]:
    """The models of FSDP1 in the files that the target is asked for."""
    shown = {os.path.abspath(file.path): file.shown for file in workspace.files}
    options: dict[str, Options] = {}
    modules: list[ModuleFacts] = []
    unreadable: list[str] = []
    with workspace.modules.pinned():
        for file, settings in _asked_for(workspace):
            facts = workspace.modules.facts(os.path.abspath(file.path), settings.torch)
            if facts is None:
                unreadable.append(file.shown)
            else:
                modules += [facts, *_written_by(facts)]
                options[facts.path] = _options(settings)
        code = ProjectCode()

        @cache  # whether two closures are one is asked of their conversions
        def converted(closure: Closure) -> Conversion:
            own = {one.call for one in closure.constructions}
            alone = all(call in own for facts in modules for call in facts.fsdp.constructions)
            return _converted(closure, options[closure.constructions[0].facts.path], code, alone=alone)

        def changes(closure: Closure) -> frozenset[ast.expr]:
            return changed(closure, converted(closure))

        for closure in closures(modules, unreadable, code, changes):
            yield Model(closure, converted(closure), shown)


def _asked_for(workspace: Workspace) -> Iterator[tuple[SourceFile, Settings]]:
    """The modules that may wrap a model and are to be converted."""
    for file in workspace.code:
        try:
            raw = workspace.read(file)
        except FileError:
            continue  # which is told when it is planned
        if holds(raw, file.shown, WORDS):
            settings = workspace.settings(file, used=False)
            if settings.target == NAME:
                yield file, settings


def _written_by(facts: ModuleFacts) -> Iterator[ModuleFacts]:
    """The modules that cells of a notebook write to files."""
    for module in facts.source.modules[1:]:
        yield ModuleFacts(module, facts.path, facts.torch, facts.project)


def _options(settings: Settings) -> Options:
    return Options(settings.fsdp2_helper, settings.checkpoints == "keep", settings.all_parameters_used)


def _converted(closure: Closure, options: Options, code: ProjectCode, *, alone: bool) -> Conversion:
    conversion = Conversion(code=code, alone=alone)
    try:
        with code.limited(MOST_WORK):
            _convert(conversion, closure, options)
    except GIVEN_UP as error:
        conversion = Conversion(code=code, alone=alone)
        reason, step = given_up(error)
        for construction in closure.constructions:
            conversion.wall(construction.facts, construction.call, reason, step or _ESCAPE_STEP)
    return conversion


def _convert(conversion: Conversion, closure: Closure, options: Options) -> None:
    for construction in closure.constructions:
        convert_construction(conversion, closure, construction, options)
    check_arms(conversion, closure)
    convert_states(conversion, closure, options)
    convert_scalers(conversion, closure)
    convert_early_uses(conversion, closure)
    for reference in closure.references:
        if reference.node not in conversion.settled:
            convert_use(conversion, closure, reference, options)
    convert_plain_modules(conversion, closure, options)
    convert_groups(conversion, closure, options)
    check_optimizers(conversion, closure)
    check_checkpointing(conversion, closure)
    convert_unused_functions(conversion, closure, options)
    convert_names(conversion, closure, options)
    for escape in closure.escapes:
        conversion.wall(escape.facts, escape.node, escape.reason, escape.step or _ESCAPE_STEP)
