"""FSDP601 to FSDP609: names of the table `moves`, wherever a file writes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import RuleCard, Verdict, finding, manual
from fsdp_migrate.rules.moved_cases import Case, case_of
from fsdp_migrate.rules.moved_imports import Relocation, relocated, replaced_module
from fsdp_migrate.rules.moved_uses import (
    argument_edits,
    as_module,
    patch_trouble,
    trouble_with_import,
    trouble_with_use,
)
from fsdp_migrate.rules.moves import is_module, moved
from fsdp_migrate.rules.torch_places import Chain, Import, Quoted, chains, imports, quoted
from fsdp_migrate.rules.torch_presence import IMPORTING, READING, errors_of, excused
from fsdp_migrate.torch_api.data import exists

_WORST_FIRST = tuple(Severity)


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the names of the rows of `card` in imports, attribute chains and strings."""
    yield from _imported(facts, card)
    yield from _chained(facts, card)
    yield from _looked_up(facts, card)


def _is_guarded(facts: ModuleFacts, node: ast.AST, errors: frozenset[str], case: Case) -> bool:
    return excused(facts, node, errors, too_new=not case.gone)


def _imported(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    found: dict[ast.Import | ast.ImportFrom, list[tuple[Import, Case]]] = {}
    for taken in imports(facts):
        case = case_of(facts, taken.path, taken.statement, card.code)
        if case is None or case.moved.old != taken.path:
            continue  # What lies in something that moved cannot be imported: only a module has names to give.
        if not _is_guarded(facts, taken.statement, IMPORTING, case):
            found.setdefault(taken.statement, []).append((taken, case))
    for statement, cases in found.items():
        if isinstance(statement, ast.ImportFrom):
            yield from _from_imports(facts, card, statement, cases)
        else:
            yield from _module_imports(facts, card, statement, cases)


def _from_imports(
    facts: ModuleFacts, card: RuleCard, statement: ast.ImportFrom, cases: Sequence[tuple[Import, Case]]
) -> Iterator[Finding]:
    """One finding for the names that can move, and one for each that cannot."""
    troubles = {taken: case.hindrance or trouble_with_import(facts, taken, case) for taken, case in cases}
    leading = {_module(case) for taken, case in cases if troubles[taken] is None and case.guard}
    for taken, case in cases:
        if case.follows and _module(case) in leading:
            troubles[taken] = trouble_with_import(facts, taken, case)
    movable = [(taken, case) for taken, case in cases if troubles[taken] is None]
    for taken, case in cases:
        reason = troubles[taken]
        if reason is not None:
            yield finding(facts, card, taken.alias, statement, case.message, manual(reason), case.severity)
    if movable:
        worst = min((case.severity for _, case in movable), key=_WORST_FIRST.index)
        said = [case for _, case in movable if case.severity is worst]
        relocations = [
            Relocation(taken, case.moved.new or "", case.guard, *argument_edits(facts, taken, case))
            for taken, case in movable
        ]
        verdict = _at_risk(relocated(facts, statement, relocations), [case for _, case in movable])
        place = movable[0][0].alias if len(movable) == 1 else statement
        yield finding(facts, card, place, statement, _message(said), verdict, worst)


def _module(case: Case) -> str:
    """The module that has the new name."""
    return (case.moved.new or "").rpartition(".")[0]


def _at_risk(verdict: Verdict, cases: Sequence[Case]) -> Verdict:
    risk = next((case.risk for case in cases if case.risk is not None), None)
    return verdict if risk is None or verdict.fix is None else Verdict(verdict.fix, unsafe=risk)


def _message(cases: Sequence[Case]) -> str:
    """One message for the names of one module."""
    first = cases[0]
    owners = {((case.moved.new or "").rpartition(".")[0], case.state) for case in cases}
    if len(cases) == 1 or len(owners) > 1 or any(case.moved.renames for case in cases):
        return "; ".join(case.message for case in cases)
    listed = ", ".join(f"`{case.moved.old.rpartition('.')[2]}`" for case in cases)
    old, new = first.moved.old.rpartition(".")[0], (first.moved.new or "").rpartition(".")[0]
    if first.severity is Severity.HINT and not first.gone:
        return f"{listed} of `{old}` only stand in for those of `{new}`"
    return f"{listed} of `{old}` are {first.state}: their place is `{new}`"


def _no_module(new: str) -> str | None:
    """Why `import` cannot name the new place: a module may have hidden behind a function that has its name."""
    owner, _, name = new.rpartition(".")
    return None if is_module(new) else f"`{new}` is no module: import `{name}` from `{owner}`"


def _module_imports(
    facts: ModuleFacts, card: RuleCard, statement: ast.Import, cases: Sequence[tuple[Import, Case]]
) -> Iterator[Finding]:
    for taken, case in cases:
        reason = case.hindrance or _no_module(case.moved.new or "") or trouble_with_import(facts, taken, case)
        if reason is not None:
            verdict = manual(reason)
        else:
            verdict = _at_risk(replaced_module(facts, taken, case.moved.new or "", case.guard), [case])
        yield finding(facts, card, taken.alias, statement, case.message, verdict, case.severity)


def _chained(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    plain = [taken.path for taken in imports(facts) if not taken.binds_path]
    for chain in chains(facts):
        case = case_of(facts, chain.path, chain.root, card.code)
        node = None if case is None else chain.part(case.moved.old)
        if case is None or node is None or _is_told_at_import(chain, case, plain):
            continue
        if _is_guarded(facts, node, READING, case):
            continue
        reason = case.hindrance or _chain_trouble(facts, chain, node, case)
        verdict = manual(reason) if reason is not None else _at_risk(_chain_fix(facts, chain, node, case), [case])
        place = facts.template_around(node) or node
        yield finding(facts, card, place, facts.statement(node), case.message, verdict, case.severity)


def _is_told_at_import(chain: Chain, case: Case, plain: Sequence[str]) -> bool:
    """Whether the finding is that of the import that the chain comes through, which also mends the chain."""
    through_plain = any(f"{chain.path}.".startswith(f"{path}.") and moved(path, case.releases[-1]) for path in plain)
    if chain.base == "torch" and through_plain:
        return True
    if case.gone:
        return all(exists(chain.base, release) is False for release in case.gone)
    return moved(chain.base, case.releases[-1]) is not None


def _chain_trouble(facts: ModuleFacts, chain: Chain, node: ast.expr, case: Case) -> str | None:
    new = case.moved.new or ""
    if facts.template_around(node) is not None:
        return "the name stands in an f-string: take it out"
    if not new.startswith(f"{chain.base}."):
        return f"`{ast.unparse(chain.root)}` does not lead to `{new}`: import that"
    if case.guard:
        return "only an import can try both places: import the name"
    if facts.source.has_comment(facts.source.span(node)):
        return "a comment stands in the name: move it out"
    return patch_trouble(chain, case) or as_module(chain, case) or trouble_with_use(facts, node, case)


def _chain_fix(facts: ModuleFacts, chain: Chain, node: ast.expr, case: Case) -> Verdict:
    rest = (case.moved.new or "").removeprefix(f"{chain.base}.")
    return Verdict(Fix((Replace(facts.source.span(node), f"{ast.unparse(chain.root)}.{rest}"),)))


def _is_told_of_owner(one: Quoted, case: Case) -> bool:
    """Whether what a name is read off has moved as well, which is said where that is imported or written."""
    return moved(one.path.rpartition(".")[0], case.releases[-1]) is not None


def _looked_up(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    for one in quoted(facts):
        case = case_of(facts, one.path, one.node, card.code)
        if case is None or not (case.gone or one.reader) or (one.reader and _is_told_of_owner(one, case)):
            continue
        if not _is_guarded(facts, one.node, errors_of(one), case):
            verdict = manual("a name in a string is not rewritten: it has to follow what the code imports")
            yield finding(facts, card, one.node, facts.statement(one.node), case.message, verdict, case.severity)
