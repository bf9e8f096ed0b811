"""FSDP690: arms of version checks that only a torch older than the supported ones runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.outdent import block_span, line_end, text_before
from fsdp_migrate.edits import Unwrap
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.source import Span

_UNSAFE = "the code for older torch releases is removed"
# What makes a function another one by standing in it, whether it runs or not.
_BINDING = (ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal)
# Parts of a condition that more than the torch version goes into.
_DOING = (ast.BoolOp, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find `if` statements on the torch version whose outcome is the same from the oldest supported release on."""
    for node in facts.structure.choices:
        if (dead := _dead_arm(facts, node)) and facts.reached(node):
            body = dead is node.body
            asked = facts.source.segment(node.test)
            subject = f"`{asked}`" if "\n" not in asked else "this condition"
            fate = "false; its body" if body else "true; its else"
            message = f"on torch{facts.torch} {subject} is always {fate} never runs"
            yield finding(facts, card, node.test, node, message, _verdict(facts, node, dead))


def _dead_arm(facts: ModuleFacts, node: ast.If) -> list[ast.stmt] | None:
    """The block that only releases older than the supported ones run, None if there is none."""
    true, false = facts.gates.sides(node.test)
    if true == false == facts.gates.everywhere:
        return None
    older = sum(bit for release, bit in facts.gates.bits.items() if release < facts.torch.oldest)
    for block, runs in ((node.body, true), (node.orelse, false)):
        # A release newer than the range counts too: an arm that waits for one is not dead.
        if block and runs and runs & older == runs:
            return block if block[0] not in _run_by_first_patch(facts, node) else None
    return None


def _run_by_first_patch(facts: ModuleFacts, node: ast.If) -> list[ast.stmt]:
    """The statements that may run on the x.y.0 of the oldest supported release, which need not be a known one."""
    oldest = facts.torch.oldest
    first = Version(f"{oldest.major}.{oldest.minor}.0")
    truth = facts.memo((check, first), lambda: facts.gates_of((first,))).truth(node.test, first)
    return [*(node.body if truth is not False else ()), *(node.orelse if truth is not True else ())]


def _verdict(facts: ModuleFacts, node: ast.If, dead: list[ast.stmt]) -> Verdict:
    source = facts.source
    live = node.orelse if dead is node.body else node.body
    if any(isinstance(part, _DOING) for part in ast.walk(node.test)):
        return manual("the condition tests more than the torch version: remove the dead part by hand")
    if not live:
        return manual("nothing replaces the statement: remove it")
    statement, block = source.span(node), block_span(facts, live)
    chained = isinstance(live[0], ast.If) and source.data.startswith(b"elif", source.span(live[0]).start)
    if chained or not source.data.startswith(b"if", statement.start):
        return manual("it is part of an elif chain: remove the arm by hand")
    if block is None or facts.indentation(node) != text_before(facts, statement.start):
        return manual("the arms share lines with other code: remove the dead arm by hand")
    whole = Span(statement.start, max(line_end(facts, statement.end), block.end))
    if any(source.has_comment(gap) for gap in (Span(whole.start, block.start), Span(block.end, whole.end))):
        return manual("the removed code contains comments: move them, or remove the arm by hand")
    if any(isinstance(part, _BINDING) for lost in dead for part in ast.walk(lost)):
        return manual("the dead arm declares names of the function around it: remove it by hand")
    old, new = facts.indentation(live[0]), facts.indentation(node)
    return Verdict(Fix((Unwrap(whole, block, old, new),)), unsafe=_UNSAFE)


_BEFORE = """\
import torch
from packaging.version import Version
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def to_load(model, optim, osd):
    if Version(torch.__version__) >= Version("2.1"):
        return FSDP.optim_state_dict_to_load(model, optim, osd)
    else:
        return FSDP.scatter_full_optim_state_dict(osd, model)
"""

CARD = RuleCard(
    code="FSDP690",
    name="dead-version-gate",
    summary="an arm of a version check that no supported torch runs",
    explanation="""\
Every supported torch gives the same answer to this version check, so one of its arms is dead. Checks for a torch newer
than the supported range are not reported.

The fix replaces the statement by the other arm. Imports and helpers that become unused stay. It is manual if comments
would be lost with the dead arm, or if the check is part of a longer condition or of an `elif` chain.""",
    applicability="unsafe or manual",
    severity=Severity.HINT,
    flags=(
        Example(
            before=_BEFORE,
            after="""\
import torch
from packaging.version import Version
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def to_load(model, optim, osd):
    return FSDP.optim_state_dict_to_load(model, optim, osd)
""",
            applicability=Applicability.UNSAFE,
        ),
        Example(before=_BEFORE.replace("    else:", "    else:  # torch 2.0"), note="a comment would go"),
    ),
    leaves=(_BEFORE.replace('Version("2.1")', 'Version("2.4")'),),
)

# The old arms are what the rules about FSDP pass over.
RULE = Rule(CARD, (), check, scope="everywhere")
