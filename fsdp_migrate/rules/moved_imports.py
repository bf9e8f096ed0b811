"""How an import of moved names is written."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fsdp_migrate.edits import Release, Replace, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.findings import Fix
from fsdp_migrate.rules.card import Verdict, manual
from fsdp_migrate.rules.imports import for_type_checking
from fsdp_migrate.rules.moved_modules import import_trouble, move
from fsdp_migrate.rules.moved_uses import chains_through, renamed_uses
from fsdp_migrate.rules.torch_places import Import, imports
from fsdp_migrate.rules.version_style import version_test
from fsdp_migrate.source import Span


class Relocation(NamedTuple):
    """A name of a `from ... import` and its new full name; under `guard` the old one stays for older releases.

    `edits` are what has to change where the name is used, `releases` the imported names that they take away;
    `then` are statements that run behind the new import only.
    """

    taken: Import
    new: str
    guard: bool
    edits: tuple[Replace, ...] = ()
    releases: tuple[Release, ...] = ()
    then: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The module to import from."""
        return self.new.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The name to import."""
        return self.new.rpartition(".")[2]

    @property
    def renames(self) -> bool:
        """Whether the name itself changes."""
        return self.name != self.taken.alias.name

    def text(self, bound: str) -> str:
        """How the new name is written in the import, bound to `bound`."""
        return self.name if self.name == bound else f"{self.name} as {bound}"


def relocated(facts: ModuleFacts, statement: ast.ImportFrom, relocations: Sequence[Relocation]) -> Verdict:
    """The verdict that moves some names of an import, the others staying where they are."""
    if any(one.guard for one in relocations) and for_type_checking(facts, statement):
        return manual("only a type checker sees this import: write the place that the torch it sees has")
    uses: list[Replace] = []
    texts: dict[Relocation, str] = {}
    for one in relocations:
        renamed = renamed_uses(facts, one.taken, one.name) if one.renames and not one.guard else None
        uses += (*one.edits, *(renamed or ()))
        texts[one] = one.text(one.taken.bound if renamed is None else one.name)
    if not _in_place(statement, relocations) and (trouble := import_trouble(facts, statement)) is not None:
        return manual(trouble)
    edits = []
    for one, text in texts.items():
        edit = move(facts, statement, one.taken.bound, one.module, text if one.renames else None)
        if one.guard:
            names = [other.new for other in relocations if other.guard and other.module == one.module]
            test = version_test(facts, statement, names)
            edit = edit._replace(fallback=statement.module or "", test=test, then=one.then)
        edits.append(edit)
    return Verdict(Fix((*edits, *uses), tuple(release for one in relocations for release in one.releases)))


def _in_place(statement: ast.ImportFrom, relocations: Sequence[Relocation]) -> bool:
    """Whether the import goes on as one statement."""
    modules = {one.module for one in relocations}
    return len(modules) == 1 and len(relocations) == len(statement.names) and not any(one.guard for one in relocations)


def kept_both(
    facts: ModuleFacts,
    moved: Mapping[Binding, str],
    edits: Sequence[Replace | RewriteCall] = (),
    then: Sequence[str] = (),
) -> Verdict:
    """The verdict that lets names of one import come from their new place where that is, and else from the old one.

    `edits` are what has to change where the names are used, so that it runs on both; `then` as for `Relocation`.
    """
    statement = next(iter(moved)).node
    by_name = {one.bound: one for one in imports(facts) if one.statement is statement}
    if not isinstance(statement, ast.ImportFrom) or any(binding.name not in by_name for binding in moved):
        return manual("only a `from ... import` can try both places: import the name by itself")
    *_, last = moved
    relocations = [
        Relocation(by_name[binding.name], new, guard=True, then=tuple(then) if binding is last else ())
        for binding, new in moved.items()
    ]
    verdict = relocated(facts, statement, relocations)
    if verdict.fix is None:
        return verdict._replace(below_floor=True)
    return Verdict(verdict.fix._replace(edits=(*verdict.fix.edits, *edits)), below_floor=True)


def replaced_module(facts: ModuleFacts, taken: Import, new: str, guard: bool) -> Verdict:
    """The verdict that moves one module of an `import` statement, and the chains that go through it."""
    source, alias, statement = facts.source, taken.alias, taken.statement
    span = source.span(alias)
    if not source.segment(alias).startswith(alias.name):
        return manual(f"the module is written in an unusual way: import `{new}`")
    if not guard:
        edits = [Replace(Span(span.start, span.start + len(alias.name.encode())), new)]
        for chain in () if taken.binds_path else chains_through(facts, taken):
            node = chain.part(taken.path)
            assert node is not None  # The chain starts with the path of the import.
            if source.has_comment(source.span(node)):
                return manual("a comment stands in a name that goes through the module: move it out")
            edits.append(Replace(source.span(node), new))
        return Verdict(Fix(tuple(edits)))
    trouble = import_trouble(facts, statement)
    if trouble is not None or len(statement.names) > 1 or not taken.binds_path:
        return manual(trouble or f"only names can come from either place: import what is needed from `{new}` by name")
    edit = move(facts, statement, taken.bound, "", f"{new} as {taken.bound}")
    return Verdict(Fix((edit._replace(fallback="", test=version_test(facts, statement, [new])),)))
