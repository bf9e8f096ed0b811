"""FSDP304: `_is_fsdp_flattened`, `_set_fsdp_flattened` and `FSDP_FLATTENED` where they no longer are.

torch 1.13 had them in `_utils` and, by import, in `fully_sharded_data_parallel`; since 2.0 they are in
`_common_utils`. The attribute that they read and set has kept its name (catalogue flat-fsdp-flattened-attr).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fsdp_migrate.edits import Edit, EditImport, Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.findings import Finding, Fix
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.rules.flat_parameter import ATTRIBUTE, attribute_test
from fsdp_migrate.rules.moved_modules import bound, home_of, import_trouble, move
from fsdp_migrate.rules.releases import import_binding, uses_of
from fsdp_migrate.torch_api.data import exists

TEST = "_is_fsdp_flattened"
NAMES = (TEST, "_set_fsdp_flattened", "FSDP_FLATTENED")
HOME = f"{PACKAGE}._common_utils"


class _Name(NamedTuple):
    """One imported name: the calls that become attribute tests, and whether an import is still needed then."""

    alias: ast.alias
    calls: tuple[ast.Call, ...]
    stays: bool


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find imports of the three names, and attribute chains to them, that fail in some supported release."""
    for statement in facts.structure.imports:
        if not isinstance(statement, ast.ImportFrom) or statement.level or statement.module is None:
            continue
        moved = [alias for alias in statement.names if alias.name in NAMES]
        fails = any(_fails(facts, statement, f"{statement.module}.{alias.name}") for alias in moved)
        if fails and not facts.gates.guarded_import(statement):
            verdict = _verdict(facts, statement, moved)
            yield finding(facts, card, statement, statement, _message(statement.module, moved), verdict)
    yield from _chains(facts, card)


def _message(module: str, moved: Sequence[ast.alias]) -> str:
    listed = ", ".join(f"`{alias.name}`" for alias in moved)
    return f"`{module}` has no {listed} since torch 2.0: the place is `{HOME}`"


def _fails(facts: ModuleFacts, node: ast.AST, path: str) -> bool:
    """Whether some supported release that reaches `node` does not have the name at `path`.

    A name that was never seen in its module counts as missing; other moved modules are FSDP303's.
    """
    module = path.rpartition(".")[0]
    if not module.startswith(f"{PACKAGE}.") or module == HOME or home_of(module) is not None:
        return False
    return any(not exists(path, release) for release in facts.gates.alive(node))


def _chains(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    for node in facts.structure.attributes:
        if node.attr not in NAMES:
            continue
        path = facts.names.qualified(node)
        if path is not None and _fails(facts, node, path):
            verdict = manual(f'test `getattr(..., "{ATTRIBUTE}", False)`, or import the name from `{HOME}`')
            message = _message(path.rpartition(".")[0], [ast.alias(node.attr)])
            yield finding(facts, card, node, facts.statement(node), message, verdict)


def _verdict(facts: ModuleFacts, statement: ast.ImportFrom, moved: Sequence[ast.alias]) -> Verdict:
    names = [_name(facts, statement, alias) for alias in moved]
    edits = _import_edits(facts, statement, names)
    if isinstance(edits, str):
        return manual(edits)
    calls = [call for name in names for call in name.calls]
    tests = (Replace(facts.source.span(call), attribute_test(facts, _tested(call))) for call in calls)
    return Verdict(Fix((*edits, *tests)))


def _name(facts: ModuleFacts, statement: ast.ImportFrom, alias: ast.alias) -> _Name:
    bound = alias.asname or alias.name
    bindings = facts.scope(statement).bindings.get(bound, [])
    if len(bindings) != 1 or bindings[0].node is not statement:
        return _Name(alias, (), stays=True)
    uses = list(uses_of(bindings[0]))
    calls = tuple(call for use in uses if (call := _plain_test(facts, use)) is not None) if alias.name == TEST else ()
    return _Name(alias, calls, len(calls) < len(uses) or not uses or not _removable(facts, bindings[0]))


def _removable(facts: ModuleFacts, binding: Binding) -> bool:
    return import_binding(facts, binding).removable


def _plain_test(facts: ModuleFacts, use: ast.Name) -> ast.Call | None:
    """The call that `use` is the function of, if its text can become an attribute test."""
    call = facts.structure.parents[use]
    if not isinstance(call, ast.Call) or call.func is not use or len(call.args) + len(call.keywords) != 1:
        return None
    if isinstance(_tested(call), ast.Starred) or (call.keywords and call.keywords[0].arg != "tensor"):
        return None
    nested = any(isinstance(node, ast.Name) and node.id == use.id for node in ast.walk(_tested(call)))
    if nested or facts.template_around(call) is not None or facts.source.has_comment(facts.source.span(call)):
        return None
    return call


def _tested(call: ast.Call) -> ast.expr:
    return call.args[0] if call.args else call.keywords[0].value


def _import_edits(facts: ModuleFacts, statement: ast.ImportFrom, names: Sequence[_Name]) -> list[Edit] | str:
    """The changes of the import, or why they cannot be made."""
    kept = [bound(name.alias) for name in names if name.stays]
    going = tuple(bound(name.alias) for name in names if not name.stays)
    trouble = import_trouble(facts, statement) if kept and len(kept) < len(statement.names) else None
    if trouble is not None:
        return trouble
    removals = [EditImport(facts.source.span(statement), remove=going)] if going else []
    return [*(move(facts, statement, name, HOME) for name in kept), *removals]


RULE = Rule(
    RuleCard(
        code="FSDP304",
        name="moved-fsdp-flattened",
        summary="`_is_fsdp_flattened` and its kin imported from a module that no longer has them",
        explanation=f"""\
torch 1.13 kept `_is_fsdp_flattened`, `_set_fsdp_flattened` and `FSDP_FLATTENED` in `torch.distributed.fsdp._utils`,
from where `fully_sharded_data_parallel` imported the first. Since torch 2.0 they are in `_common_utils`, which is right
and not reported.

A call `_is_fsdp_flattened(p)` becomes what it has always done, `getattr(p, "{ATTRIBUTE}", False)`, and needs no import.
What is passed on as a value is imported from `_common_utils`.""",
        applicability="safe or manual",
        removed="2.0",
        floor="2.0",
        flags=(
            Example(
                before="""\
from torch.distributed.fsdp._utils import _is_fsdp_flattened

def managed(params):
    return [p for p in params if not _is_fsdp_flattened(p)]
""",
                after=f"""\
def managed(params):
    return [p for p in params if not getattr(p, "{ATTRIBUTE}", False)]
""",
            ),
            Example(
                before="""\
from torch.distributed.fsdp._utils import FSDP_FLATTENED, _is_fsdp_flattened

def managed(params):
    return list(filter(_is_fsdp_flattened, params)), FSDP_FLATTENED
""",
                after="""\
from torch.distributed.fsdp._common_utils import FSDP_FLATTENED, _is_fsdp_flattened

def managed(params):
    return list(filter(_is_fsdp_flattened, params)), FSDP_FLATTENED
""",
            ),
        ),
        leaves=(
            """\
from torch.distributed.fsdp._common_utils import _is_fsdp_flattened

def managed(params):
    return [p for p in params if _is_fsdp_flattened(p)]
""",
        ),
        url="https://github.com/pytorch/pytorch/blob/v2.0.0/torch/distributed/fsdp/_common_utils.py",
    ),
    needles=NAMES,
    check=check,
)
