"""Names of the table `moves`, wherever a file writes them: the one planner for names that moved or were renamed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from fsdp_migrate.code.fallback_arms import is_old_arm
from fsdp_migrate.code.torch_names import (
    Chain,
    Import,
    Quoted,
    bindings_of,
    chains,
    from_torch_star,
    imports,
    passed_on,
    quoted,
    reads,
)
from fsdp_migrate.code.torch_presence import (
    IMPORTING,
    READING,
    errors_of,
    excused,
    lacking,
    presence,
    running,
    severity,
)
from fsdp_migrate.code.unused_imports import removed_use, uses_of
from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import RuleCard, Verdict, finding, manual
from fsdp_migrate.source import Span
from fsdp_migrate.targets.modernise.moved.calls import Stays, follow, is_type, told_apart, torch_spelling
from fsdp_migrate.targets.modernise.moved.cases import Case, case_of
from fsdp_migrate.targets.modernise.moved.imports import Relocation, new_module, relocated, relocation, replaced_module
from fsdp_migrate.targets.modernise.moved.table import is_new_place, moved, old_names, older_places, row_of
from fsdp_migrate.targets.modernise.moved.uses import as_module, patch_trouble, patched_elsewhere
from fsdp_migrate.torch_api.data import exists, is_module
from fsdp_migrate.torch_api.words import span_of

_WORST_FIRST = tuple(Severity)


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the names of the rows of `card` in imports, attribute chains, strings and what the project passes on."""
    yield from _imported(facts, card)
    yield from _too_new(facts, card)
    yield from _chained(facts, card)
    yield from _looked_up(facts, card)
    yield from _passed_on(facts, card)


T = TypeVar("T", Import, Chain, Quoted)


def _of(facts: ModuleFacts, code: str, find: Callable[[ModuleFacts], Sequence[T]]) -> Sequence[T]:
    """What is found of the names in the rows of the rule `code`."""

    def by_code() -> dict[str, list[T]]:
        found: dict[str, list[T]] = {}
        for one in find(facts):
            if (row := row_of(one.path)) is not None:
                found.setdefault(row.code, []).append(one)
        return found

    return facts.memo((_of, find), by_code).get(code, ())


def _is_guarded(facts: ModuleFacts, node: ast.AST, errors: frozenset[str], case: Case) -> bool:
    if (
        case.move.when_used
        and case.moved.renames
        and is_old_arm(facts, node, (case.moved.new or "").rpartition(".")[2])
    ):
        return True
    # What only warns raises nothing that a handler could be there for.
    only_warns = case.move.when_used and not case.gone
    return not only_warns and excused(facts, node, errors, too_new=not case.gone)


def _imported(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    found: dict[ast.Import | ast.ImportFrom, list[tuple[Import, Case]]] = {}
    for taken in _of(facts, card.code, imports):
        case = case_of(facts, taken.path, taken.statement, card.code)
        if case is None or case.moved.old != taken.path:
            continue  # What lies in something that moved cannot be imported: only a module has names to give.
        fails = not case.move.when_used or case.gone
        guarded = fails and _is_guarded(facts, taken.statement, IMPORTING, case)
        if not guarded and not _is_harmless(facts, taken, case):
            found.setdefault(taken.statement, []).append((taken, case))
    for statement, cases in found.items():
        if isinstance(statement, ast.ImportFrom):
            yield from _from_imports(facts, card, statement, cases)
        else:
            yield from _module_imports(facts, card, statement, cases)


def _uses(facts: ModuleFacts, taken: Import) -> list[ast.expr]:
    return [use for binding in bindings_of(facts, taken) for use in uses_of(binding)]


def _is_harmless(facts: ModuleFacts, taken: Import, case: Case) -> bool:
    """Whether nothing that warns is done with the name, or the file chooses between the old and the new one itself."""
    if not case.move.when_used or case.gone:
        return False
    new, uses = case.moved.new or "", _uses(facts, taken)
    if case.moved.renames and any(is_old_arm(facts, use, new.rpartition(".")[2]) for use in uses):
        return True
    others = (one for own in bindings_of(facts, taken) for one in own.scope.bindings[own.name])
    return any(one.target == new for one in others) or not uses or not _is_told(facts, case, uses)


def _is_told(facts: ModuleFacts, case: Case, uses: Sequence[ast.expr]) -> bool:
    """Whether one of the uses is more than a test for the type of a region."""
    return case.move.change != "autocast" or any(not is_type(facts, use) for use in uses)


def _from_imports(
    facts: ModuleFacts, card: RuleCard, statement: ast.ImportFrom, cases: Sequence[tuple[Import, Case]]
) -> Iterator[Finding]:
    """One finding for the names that can move, and one for each that cannot."""
    plans = {taken: _plan(facts, taken, case) for taken, case in cases}
    leading = {one.module for one in plans.values() if isinstance(one, Relocation) and one.guard}
    for taken, case in cases:
        if case.follows and (case.moved.new or "").rpartition(".")[0] in leading:
            plans[taken] = relocation(facts, taken, case)
    movable: list[tuple[Relocation, Case]] = []
    for taken, case in cases:
        plan = plans[taken]
        if isinstance(plan, Relocation):
            movable.append((plan, case))
        elif case.move.calls_change and not case.gone and not case.guard:
            yield from _used(facts, card, _uses(facts, taken), case, plan)
        else:
            yield finding(facts, card, taken.alias, statement, case.message, manual(plan.reason), case.severity)
    for guard in (False, True):
        together = [(plan, case) for plan, case in movable if plan.guard is guard]
        if together:
            worst = min((case.severity for _, case in together), key=_WORST_FIRST.index)
            said = [case for _, case in together if case.severity is worst]
            verdict = relocated(facts, statement, [one for one, _ in together])
            for one, case in together:
                verdict = _at_risk(verdict, case.risk or told_apart(facts, _uses(facts, one.taken), case))
            place = together[0][0].taken.alias if len(together) == 1 else statement
            yield finding(facts, card, place, statement, _message(said), verdict, worst)


def _plan(facts: ModuleFacts, taken: Import, case: Case) -> Relocation | Stays:
    reason = case.hindrance
    return relocation(facts, taken, case) if reason is None else Stays(reason)


def _at_risk(verdict: Verdict, risk: str | None) -> Verdict:
    return verdict if risk is None or verdict.fix is None else verdict._replace(unsafe=verdict.unsafe or risk)


def _message(cases: Sequence[Case]) -> str:
    """One message for the names of one module."""
    first = cases[0]
    owners = {((case.moved.new or "").rpartition(".")[0], case.state) for case in cases}
    if len(cases) == 1 or len(owners) > 1 or any(case.moved.renames for case in cases):
        return "; ".join(case.message for case in cases)
    listed = ", ".join(f"`{case.moved.old.rpartition('.')[2]}`" for case in cases)
    old, new = first.moved.old.rpartition(".")[0], (first.moved.new or "").rpartition(".")[0]
    if first.severity is Severity.HINT and not first.gone:
        return f"{listed} of `{old}` are aliases of those of `{new}`"
    return f"{listed} of `{old}` are {first.state}: use those of `{new}`"


def _used(
    facts: ModuleFacts, card: RuleCard, uses: Sequence[ast.expr], case: Case, stays: Stays | None = None
) -> Iterator[Finding]:
    """A finding for each use of a name whose import stays: it is called through torch itself."""
    for node in uses:
        here = case_of(facts, case.moved.old, node, card.code)
        if here is None or _is_guarded(facts, node, READING, here) or not _is_told(facts, here, uses):
            continue
        if {meaning.qualified for meaning in facts.names.meanings(node)} != {case.moved.old}:
            verdict = manual(f"`{ast.unparse(node)}` may also be another object here")
        elif stays is not None and stays.as_value:
            verdict = manual(stays.reason)
        else:
            verdict = _renamed(facts, node, here, _through_torch(facts, node, here))
        yield finding(facts, card, node, facts.statement(node), here.message, verdict, here.severity)


def _through_torch(facts: ModuleFacts, node: ast.expr, case: Case) -> str | None:
    """The new name by way of the module torch, which brings what lies in its own modules; None for other names."""
    _, module, *rest = (case.moved.new or "").split(".")
    torch = torch_spelling(facts, node)
    return f"{torch}.{module}.{rest[0]}" if torch is not None and len(rest) == 1 and module != "distributed" else None


def _renamed(facts: ModuleFacts, node: ast.expr, case: Case, written: str | None) -> Verdict:
    """The verdict that calls one use of an old name by a chain of attributes."""
    followed = follow(facts, node, case, written)
    if isinstance(followed, Stays):
        return manual(followed.reason)
    if (trouble := patched_elsewhere(facts, node, case)) is not None:
        return manual(trouble)
    if written is None:
        new = case.moved.new or ""
        return manual(f"`torch` is not imported here: import it, or `{new.rpartition('.')[2]}` from `{_owner(new)}`")
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    same = isinstance(root, ast.Name) and written.split(".")[0] == root.id
    releases = (*followed.removed_uses, *(() if same else removed_use(facts, node)))
    verdict = Verdict(Fix(followed.edits, releases), below_floor=True)
    return _at_risk(verdict, told_apart(facts, [node], case))


def _owner(path: str) -> str:
    return path.rpartition(".")[0]


def _too_new(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find imports of new names that older supported releases have in the old place: the import can try both."""
    found: dict[ast.ImportFrom, list[tuple[Relocation, str, Severity]]] = {}
    for taken in imports(facts):
        statement = taken.statement
        if not is_new_place(taken.path, card.code):
            continue
        if not isinstance(statement, ast.ImportFrom) or excused(facts, statement, IMPORTING, too_new=True):
            continue
        missing = lacking(taken.path, facts.gates.alive(statement))
        if not missing or not exists(taken.path, max(facts.gates.alive(statement))):
            continue
        olds = (old for move, old in older_places(taken.path) if move.code == card.code)
        older = next((old for old in olds if all(exists(old, one) for one in missing)), None)
        if older is None or older.rpartition(".")[2] != taken.alias.name:
            continue
        grade = severity(facts, statement, missing, running(facts, statement) | set(missing))
        message = (
            f"`{taken.path}` is {presence(taken.path, missing)}: torch {span_of(missing)} has it in `{_owner(older)}`"
        )
        one = Relocation(taken, taken.path, True, _alias_text(taken), older=_owner(older))
        found.setdefault(statement, []).append((one, message, grade))
    for statement, together in found.items():
        verdict = relocated(facts, statement, [one for one, _, _ in together])
        place = together[0][0].taken.alias if len(together) == 1 else statement
        worst = min((grade for _, _, grade in together), key=_WORST_FIRST.index)
        message = "; ".join(message for _, message, _ in together)
        yield finding(facts, card, place, statement, message, verdict, worst)


def _alias_text(taken: Import) -> str:
    return taken.alias.name if taken.alias.asname is None else f"{taken.alias.name} as {taken.alias.asname}"


def _module_imports(
    facts: ModuleFacts, card: RuleCard, statement: ast.Import, cases: Sequence[tuple[Import, Case]]
) -> Iterator[Finding]:
    for taken, case in cases:
        verdict = manual(case.hindrance) if case.hindrance is not None else _module_verdict(facts, taken, case)
        yield finding(facts, card, taken.alias, statement, case.message, verdict, case.severity)


def _module_verdict(facts: ModuleFacts, taken: Import, case: Case) -> Verdict:
    new = case.moved.new or ""
    if not is_module(new):
        # A module may have hidden behind a function that has its name.
        return manual(f"`{new}` is not a module: import `{new.rpartition('.')[2]}` from `{_owner(new)}`")
    module = new_module(facts, taken, case)
    return manual(module.reason) if isinstance(module, Stays) else replaced_module(facts, taken, *module)


def _chained(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    plain = [taken.path for taken in imports(facts) if not taken.binds_path]
    found: list[tuple[Chain, ast.expr, Case]] = []
    for chain in _of(facts, card.code, chains):
        case = case_of(facts, chain.path, chain.root, card.code)
        node = None if case is None else chain.part(case.moved.old)
        if case is None or node is None or _is_told_at_import(chain, case, plain):
            continue
        if case.severity is Severity.HINT and chain.base == _owner(case.moved.old) != _owner(case.moved.new or ""):
            continue  # The module is imported by itself, and works.
        if not _is_guarded(facts, node, READING, case):
            found.append((chain, node, case))
    together: dict[tuple[str | None, str], list[ast.expr]] = {}
    for _, node, case in found:
        together.setdefault(_object(case), []).append(node)
    for chain, node, case in found:
        same = together[_object(case)]
        if case.move.when_used and not _is_told(facts, case, same):
            continue
        verdict = _chain_verdict(facts, chain, node, case, same)
        place = facts.template_around(node) or node
        yield finding(facts, card, place, facts.statement(node), case.message, verdict, case.severity)


def _object(case: Case) -> tuple[str | None, str]:
    """What all spellings of one object share: those of torch.cuda and of torch.cpu are two with one new name."""
    return case.moved.new, case.moved.old.split(".")[1]


def _is_told_at_import(chain: Chain, case: Case, plain: Sequence[str]) -> bool:
    """Whether the finding is that of the import that the chain comes through, which also fixes the chain."""
    through_plain = any(f"{chain.path}.".startswith(f"{path}.") and moved(path, case.releases[-1]) for path in plain)
    if chain.base == "torch" and through_plain:
        return True
    if case.gone:
        return all(exists(chain.base, release) is False for release in case.gone)
    return moved(chain.base, case.releases[-1]) is not None


def _chain_verdict(
    facts: ModuleFacts, chain: Chain, node: ast.expr, case: Case, together: Sequence[ast.expr]
) -> Verdict:
    new = case.moved.new or ""
    if case.hindrance is not None:
        return manual(case.hindrance)
    if facts.template_around(node) is not None:
        return manual("the name is inside an f-string: assign it to a variable first")
    if case.guard:
        return manual(
            f"{case.floor}: import `{case.moved.old.rpartition('.')[2]}` by name, so that the import can try "
            "both places"
        )
    trouble = _text_trouble(facts, case)
    if not (case.move.same and case.moved.old == case.move.old):
        trouble = patch_trouble(chain, case) or as_module(chain, case) or trouble
    if trouble is not None:
        return manual(trouble)
    if case.move.calls_change:
        stays = facts.memo((_staying, case), lambda: _staying(facts, case, together))
        if stays is not None:
            return manual(stays)
    written = _through_torch(facts, node, case)
    if new.startswith(f"{chain.base}."):
        written = f"{ast.unparse(chain.root)}.{new.removeprefix(f'{chain.base}.')}"
    elif written is None:
        return manual(f"`{new}` cannot be reached through `{ast.unparse(chain.root)}`: import it")
    return _renamed(facts, node, case, written)


def _staying(facts: ModuleFacts, case: Case, together: Sequence[ast.expr]) -> str | None:
    """Why the uses of one object cannot go on with its new name; None where they can, or each has its own reason."""
    followed = (follow(facts, other, case) for other in together)
    return next((one.reason for one in followed if isinstance(one, Stays) and one.as_value), None)


def _text_trouble(facts: ModuleFacts, case: Case) -> str | None:
    """Whether a string of the file names what warns by its old name, as for `mock.patch`."""
    old, new = (path.rpartition(".")[2] for path in (case.moved.old, case.moved.new or ""))
    if not case.move.when_used or old == new or old not in facts.memo(_last_names, lambda: _last_names(facts)):
        return None
    return f"a string here names it, too (as for `mock.patch`): use `{new}` in both places"


def _last_names(facts: ModuleFacts) -> frozenset[str]:
    """What stands behind the last dot of the strings that have one."""
    texts = (str(text.value).rpartition(".") for text in facts.structure.strings)
    return frozenset(last for _, dot, last in texts if dot)


def _is_told_of_owner(one: Quoted, case: Case) -> bool:
    """Whether what a name is read off has moved as well, which is said where that is imported or written."""
    return moved(_owner(one.path), case.releases[-1]) is not None


def _looked_up(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    for one in _of(facts, card.code, quoted):
        case = case_of(facts, one.path, one.node, card.code)
        if case is None or not (case.gone or one.reader) or (one.reader and _is_told_of_owner(one, case)):
            continue
        if not _is_guarded(facts, one.node, errors_of(one), case):
            verdict = _read_verdict(facts, one, case)
            yield finding(facts, card, one.node, facts.statement(one.node), case.message, verdict, case.severity)


def _read_verdict(facts: ModuleFacts, one: Quoted, case: Case) -> Verdict:
    """How the name goes on that a `getattr` reads."""
    old, new = one.path, case.moved.new or ""
    if case.hindrance is not None and one.reader is not None:
        return manual(case.hindrance)
    if one.reader is None or case.guard or case.move.whole or _owner(old) != _owner(new):
        return manual("a name in a string is not rewritten: update it together with the imports of the code")
    stays = follow(facts, one.reader, case)
    if isinstance(stays, Stays) or stays.edits:
        reason = stays.reason if isinstance(stays, Stays) else "its parameters were renamed"
        return manual(f"use `{new.rpartition('.')[2]}`: {reason}")
    start, end = facts.source.span(one.node)
    name = old.rpartition(".")[2]
    if facts.source.segment(one.node)[1:-1] != name:
        return manual(f"the name is not written as a plain string: use `{new.rpartition('.')[2]}`")
    asked = {constant for constant in facts.structure.strings if str(constant.value).rpartition(".")[2] == name}
    if any(store.attr == name for store in facts.structure.stores) or asked - {read.node for read, _ in reads(facts)}:
        return manual(f"the file also tests for or assigns the old name: use `{new.rpartition('.')[2]}` everywhere")
    return Verdict(Fix((Replace(Span(start + 1, end - 1), new.rpartition(".")[2]),)), below_floor=True)


def _passed_on(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find uses of what warns or is renamed, where a module of the project or a star import passes the name on."""
    names = old_names(card.code)
    for node, path in passed_on(facts):
        case = case_of(facts, path, node, card.code) if path in names else None
        starred = case is not None and from_torch_star(facts, node, path)
        if case is None or not (_is_told_through(case, starred) and _is_told(facts, case, [node])):
            continue
        if not _is_guarded(facts, node, READING, case):
            verdict = _passed_verdict(facts, node, case, starred)
            yield finding(facts, card, node, facts.statement(node), case.message, verdict, case.severity)


def _passed_verdict(facts: ModuleFacts, node: ast.expr, case: Case, starred: bool) -> Verdict:
    """The verdict on a name whose import is another file's, or a star."""
    if case.hindrance is not None:
        return manual(case.hindrance)
    written, new = _through_torch(facts, node, case), case.moved.new or ""
    if written is not None:
        return _renamed(facts, node, case, written)
    by = "a star import" if starred else "a module of the project"
    return manual(f"`{ast.unparse(node)}` comes from {by}: import `{new.rpartition('.')[2]}` from `{_owner(new)}`")


def _is_told_through(case: Case, starred: bool) -> bool:
    """Whether a name is said where it is used: what is gone fails at its import first, unless a star takes it."""
    if case.move.when_used:
        return True
    fails_at_import = moved(_owner(case.moved.old), case.releases[-1]) is not None
    return bool(case.gone) and (case.moved.renames or (starred and not fails_at_import))
