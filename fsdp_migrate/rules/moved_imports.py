"""How an import of moved names is written."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Fix
from fsdp_migrate.rules.card import Verdict, manual
from fsdp_migrate.rules.imports import for_type_checking
from fsdp_migrate.rules.moved_modules import Layout, import_text, import_trouble, module_span, written
from fsdp_migrate.rules.moved_uses import chains_through, renamed_uses
from fsdp_migrate.rules.torch_places import Import
from fsdp_migrate.source import Span


@dataclass(frozen=True)
class Relocation:
    """A name of a `from ... import` and its new full name; under `guard` the old one stays for older releases.

    `edits` are what has to change where the name is used.
    """

    taken: Import
    new: str
    guard: bool
    edits: tuple[Replace, ...] = ()

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
    edits = _in_place(facts, statement, texts)
    if edits is None:
        trouble = import_trouble(facts, statement)
        if trouble is not None:
            return manual(trouble)
        edits = [Replace(facts.source.span(statement), _statements(facts, statement, texts))]
    return Verdict(Fix((*edits, *uses)))


def _in_place(facts: ModuleFacts, statement: ast.ImportFrom, texts: dict[Relocation, str]) -> list[Replace] | None:
    """Edits inside the statement, None where it takes another one."""
    span = module_span(facts, statement)
    modules = {one.module for one in texts}
    if span is None or len(modules) > 1 or len(texts) < len(statement.names) or any(one.guard for one in texts):
        return None
    edits = [Replace(span, next(iter(modules)))] if modules != {statement.module} else []
    edits += [Replace(facts.source.span(one.taken.alias), text) for one, text in texts.items() if one.renames]
    return edits


def _statements(facts: ModuleFacts, statement: ast.ImportFrom, texts: dict[Relocation, str]) -> str:
    """The imports that take the place of the statement: the moved names by module, then what stays."""
    layout = Layout.of(facts, statement)
    old = statement.module or ""
    groups: dict[tuple[str, bool], list[Relocation]] = {}
    for one in texts:
        groups.setdefault((one.module, one.guard), []).append(one)
    lines = []
    for (module, guard), members in groups.items():
        names = [texts[one] for one in members]
        if guard:
            before = [written(one.taken.alias) for one in members]
            lines.append(
                _guarded(import_text(module, names, layout.inner), import_text(old, before, layout.inner), layout)
            )
        else:
            lines.append(import_text(module, names, layout))
    moved = {one.taken.alias for one in texts}
    rest = [written(alias) for alias in statement.names if alias not in moved]
    if rest:
        lines.append(import_text(old, rest, layout))
    return f"\n{layout.indent}".join(lines)


def _guarded(new: str, old: str, layout: Layout) -> str:
    inner = layout.inner.indent
    return f"try:\n{inner}{new}\n{layout.indent}except ImportError:\n{inner}{old}"


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
    layout = Layout.of(facts, statement)
    text = _guarded(f"import {new} as {taken.bound}", f"import {written(alias)}", layout)
    return Verdict(Fix((Replace(source.span(statement), text),)))
