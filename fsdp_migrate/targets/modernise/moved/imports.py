"""How an import of moved names is written."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Sequence

from fsdp_migrate.code.import_texts import for_type_checking
from fsdp_migrate.code.torch_names import Import, bindings_of
from fsdp_migrate.code.unused_imports import is_exported, uses_of
from fsdp_migrate.code.version_style import version_test
from fsdp_migrate.edits import Edit, EditImport, MoveImport, RemovedUse, Replace, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.findings import Fix
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Verdict, manual
from fsdp_migrate.source import Span
from fsdp_migrate.targets.modernise.moved.calls import Stays, follow
from fsdp_migrate.targets.modernise.moved.cases import Case
from fsdp_migrate.targets.modernise.moved.uses import (
    can_rename,
    chains_through,
    module_for,
    patched_elsewhere,
    shared,
    used_of,
)
from fsdp_migrate.torch_api.data import is_module

_PARTIAL = "partial"


class Relocation(NamedTuple):
    """A name of a `from ... import` and its new full name; under `guard` the old one stays for older releases.

    `text` is how the new import writes it. `edits` are what has to change where the name is used, `removed_uses` the
    imported names that they take away; `before` are statements in front of the import, `then` those that run behind
    the new import only. `older` is a module that has the name on releases where the written one has not.
    """

    taken: Import
    new: str
    guard: bool
    text: str
    edits: tuple[Replace | RewriteCall, ...] = ()
    removed_uses: tuple[RemovedUse, ...] = ()
    before: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    older: str | None = None

    @property
    def module(self) -> str:
        """The module to import from."""
        return self.new.rpartition(".")[0]


def relocation(facts: ModuleFacts, taken: Import, case: Case) -> Relocation | Stays:
    """How a name of a `from ... import` moves with all its uses, or why it does not."""
    if taken.alias.name == "*":
        return Stays(f"this is a star import: import the names that you use from `{case.moved.new}`")
    if case.move.whole and is_module(taken.path):
        module = new_module(facts, taken, case)
        if isinstance(module, Stays):
            return module
        return Relocation(taken, *module, _text(module[0], taken.bound))
    new, bindings = case.moved.new or "", bindings_of(facts, taken)
    name = new.rpartition(".")[2]
    renames = name != taken.alias.name and taken.alias.asname is None and not case.guard and len(bindings) == 1
    written = name if renames and can_rename(facts, bindings[0], new) else None
    uses = [use for binding in bindings for use in uses_of(binding)]
    followed = [follow(facts, use, case, written) for use in uses]
    for stays in sorted((one for one in followed if isinstance(one, Stays)), key=lambda one: not one.as_value):
        return stays
    for binding in bindings:
        if case.move.calls_change and (others := shared(facts, binding)) is not None:
            return Stays(f"{others}, and `{new}` has other parameters: change all uses together")
        if case.move.adapts and is_exported(facts, binding):
            return Stays(f"other modules may take `{binding.name}` from here: `{new}` is another thing")
        if not binding.scope.is_module:  # It is looked up in torch each time.
            for use in uses_of(binding):
                if (patched := patched_elsewhere(facts, use, case)) is not None:
                    return Stays(patched)
    then: tuple[str, ...] = ()
    if case.guard and case.move.change == "custom":
        if (lines := _told_device(bindings[0])) is None:
            return Stays(
                f"the name `{_PARTIAL}` is already used here: pass `device_type` to the new decorators by hand"
            )
        then = lines
    moves = [one for one in followed if not isinstance(one, Stays)]
    if any(one.before for one in moves) and any(map(_has_torch, bindings)):
        return Stays(
            "the fix needs a dtype of `torch`, but `torch` is another object here: import torch under another name"
        )
    older = None if case.between is None else case.between.rpartition(".")[0]
    return Relocation(
        taken,
        new,
        case.guard or older is not None,
        _text(new, written or taken.bound),
        tuple(edit for one in moves for edit in one.edits),
        tuple(use for one in moves for use in one.removed_uses),
        tuple(line for one in moves for line in one.before),
        then,
        older,
    )


def _text(new: str, bound: str) -> str:
    """How the import of a name is written that is bound to `bound`."""
    name = new.rpartition(".")[2]
    return name if name == bound else f"{name} as {bound}"


def _has_torch(binding: Binding) -> bool:
    """Whether an import of torch beside that of a name may change what `torch` is somewhere."""
    scopes = (*binding.scope.enclosing(), *binding.scope.nested())
    return any("torch" in scope.bindings or "torch" in scope.uses for scope in scopes)


def _told_device(binding: Binding) -> tuple[str, ...] | None:
    """The statements that tell a decorator of torch.amp the device; None where `partial` is another thing."""
    told = f'{binding.name} = {_PARTIAL}({binding.name}, device_type="cuda")'
    known = next((scope.bindings[_PARTIAL] for scope in binding.scope.enclosing() if _PARTIAL in scope.bindings), [])
    if any(one.target != f"functools.{_PARTIAL}" for one in known):
        return None
    if len(known) == 1 and not known[0].conditional and known[0].position < binding.position:
        return (told,)
    return (f"from functools import {_PARTIAL}", told)


def new_module(facts: ModuleFacts, taken: Import, case: Case) -> tuple[str, bool] | Stays:
    """The module in the place of one that is imported as a whole, and whether the old one has to do on some release."""
    if case.move.same and taken.path == case.move.old:
        return case.moved.new or "", case.guard
    names = used_of(facts, taken, case)
    if isinstance(names, str):
        return Stays(names)
    module = module_for(case, names)
    if module is not None:
        return module
    lacking = [name for name in sorted(names) if module_for(case, {name}) is None] or sorted(names)
    return Stays(f"`{case.moved.new}` has no `{lacking[0]}` on every release: import the names that you use")


def relocated(facts: ModuleFacts, statement: ast.ImportFrom, relocations: Sequence[Relocation]) -> Verdict:
    """The verdict that moves some names of an import, the others staying where they are."""
    if any(one.guard for one in relocations) and for_type_checking(facts, statement):
        return manual("this import is for type checkers only: import from the place that their torch has")
    if not _in_place(statement, relocations) and (trouble := _import_trouble(facts, statement)) is not None:
        return manual(trouble)
    edits: list[Edit] = []
    for one in relocations:
        if one.module == statement.module and not one.guard:
            edits.append(_renamed(facts, statement, one))
            continue
        edit = move(facts, statement, one.taken.bound, one.module, one.text)._replace(before=_new(edits, one.before))
        if one.guard:
            names = [other.new for other in relocations if other.guard and other.module == one.module]
            test = version_test(facts, statement, names)
            fallback = one.older or statement.module or ""
            edit = edit._replace(fallback=fallback, test=test, then=_new(edits, one.then))
        edits.append(edit)
    uses = [edit for one in relocations for edit in one.edits]
    # An import that is only brought up to date may as well go.
    bindings = () if uses else (binding for one in relocations for binding in bindings_of(facts, one.taken))
    guarded = any(one.guard for one in relocations)
    moves = () if guarded else tuple((facts.source.span(one.node), one.name) for one in bindings)
    removed_uses = tuple(use for one in relocations for use in one.removed_uses)
    return Verdict(Fix((*edits, *uses), removed_uses, moves), below_floor=True)


def _renamed(facts: ModuleFacts, statement: ast.ImportFrom, one: Relocation) -> Edit:
    """Another name from the same module, which the import may have already."""
    if any(alias.name == one.text and alias.asname is None for alias in statement.names):
        return EditImport(facts.source.span(statement), remove=(one.taken.bound,), unit=facts.indent_unit)
    return Replace(facts.source.span(one.taken.alias), one.text)


def _new(edits: Sequence[Edit], lines: Sequence[str]) -> tuple[str, ...]:
    """The lines that no edit of the same import has yet."""
    had = {line for edit in edits if isinstance(edit, MoveImport) for line in (*edit.before, *edit.then)}
    return tuple(line for line in dict.fromkeys(lines) if line not in had)


def _in_place(statement: ast.ImportFrom, relocations: Sequence[Relocation]) -> bool:
    """Whether the import goes on as one statement."""
    if any(one.guard or one.before for one in relocations):
        return False
    modules = {one.module for one in relocations}
    return modules == {statement.module} or (len(modules) == 1 and len(relocations) == len(statement.names))


def replaced_module(facts: ModuleFacts, taken: Import, new: str, guard: bool) -> Verdict:
    """The verdict that moves one module of an `import` statement, and the chains that go through it."""
    source, alias, statement = facts.source, taken.alias, taken.statement
    span = source.span(alias)
    if not source.segment(alias).startswith(alias.name):
        return manual(f"the module is not written as a plain name: import `{new}`")
    if not guard:
        edits = [Replace(Span(span.start, span.start + len(alias.name.encode())), new)]
        for chain in () if taken.binds_path else chains_through(facts, taken):
            node = chain.part(taken.path)
            assert node is not None  # The chain starts with the path of the import.
            if source.has_comment(source.span(node)):
                return manual("a comment is inside a name of this module: move the comment")
            edits.append(Replace(source.span(node), new))
        return Verdict(Fix(tuple(edits)), below_floor=True)
    trouble = _import_trouble(facts, statement)
    if trouble is not None or len(statement.names) > 1 or not taken.binds_path:
        return manual(
            trouble
            or (f"only single names can be imported from either place: import the names that you use from `{new}`")
        )
    edit = move(facts, statement, taken.bound, "", f"{new} as {taken.bound}")
    fix = Fix((edit._replace(fallback="", test=version_test(facts, statement, [new])),))
    return Verdict(fix, below_floor=True)


def _has_own_lines(facts: ModuleFacts, statement: ast.stmt) -> bool:
    """Whether no other code stands on the lines of a statement."""
    source = facts.source
    span = source.span(statement)
    before = source.data[source.line_start(span.start) : span.start]
    next_line = bisect_right(source.line_starts, span.end)
    line_end = source.line_starts[next_line] if next_line < len(source.line_starts) else len(source.data)
    after = source.data[span.end : line_end].strip()
    return not before.strip() and (not after or after.startswith(b"#"))


def _import_trouble(facts: ModuleFacts, statement: ast.stmt) -> str | None:
    """Why an import cannot become several statements, None when it can."""
    if not _has_own_lines(facts, statement):
        return "the import shares its line with other code: give it a line of its own"
    return None


def move(facts: ModuleFacts, statement: ast.stmt, name: str, module: str, text: str | None = None) -> MoveImport:
    """The edit that imports a bound name from another module; `text` is how it is written there, if otherwise."""
    return MoveImport(
        facts.source.span(statement), name, module, facts.indentation(statement), facts.indent_unit, text=text
    )
