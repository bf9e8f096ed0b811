"""FSDP110 and FSDP111: optimizer state that gets lost without an error.

A legacy call whose error is swallowed restarts training with a fresh optimizer once the method raises (catalogue
section A; a change open upstream makes the five raise NotImplementedError, a RuntimeError). A converted state dict
that nothing loads was never of any use.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.legacy_methods import METHODS
from fsdp_migrate.code.optimizers import is_unused
from fsdp_migrate.code.swallowed_errors import legacy_handler
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual
from fsdp_migrate.targets.modernise.optimizer.legacy_plan import plans
from fsdp_migrate.targets.modernise.optimizer.to_load_order import METHOD as TO_LOAD

# The position of `load_directly` in `optim_state_dict_to_load` (torch 2.1 to 2.15).
_LOAD_DIRECTLY = 4
_LOADING = (*(name for name, method in METHODS.items() if method.loads), TO_LOAD)


def check_swallowed(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find legacy calls whose error a handler would swallow."""
    for planned in plans(facts):
        line = legacy_handler(facts, planned.call)
        if line is not None:
            message = (
                f"if `{planned.method.name}` raises, the handler at line {line} continues without the optimizer state"
            )
            verdict = manual("do not catch this error, or catch only the error of a missing file")
            yield finding(facts, card, planned.call.func, facts.statement(planned.call), message, verdict)


def check_discarded(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find converted state dicts that nothing uses."""
    for call in facts.structure.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _LOADING:
            continue
        arguments: list[ast.expr | None] = [*call.args[:2], *(k.value for k in call.keywords if k.arg == "model"), None]
        if not any(facts.fsdp.receiver(call.func, argument) is not None for argument in arguments):
            continue
        if not facts.reached(call) or _loads_directly(call) or not is_unused(facts, call):
            continue
        message = f"the result of `{call.func.attr}` is never used, so the optimizer state is not loaded"
        verdict = manual("call `optimizer.load_state_dict(...)` with it")
        yield finding(facts, card, call.func, facts.statement(call), message, verdict)


def _loads_directly(call: ast.Call) -> bool:
    flags = [keyword.value for keyword in call.keywords if keyword.arg == "load_directly"]
    flags += call.args[_LOAD_DIRECTLY : _LOAD_DIRECTLY + 1]
    return any(not is_literal(flag, False) for flag in flags)


_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"

SWALLOWED = Rule(
    RuleCard(
        code="FSDP110",
        name="swallowed-legacy-error",
        summary="a legacy optimizer-state call whose error is swallowed",
        explanation="""\
An upstream change that is not merged yet makes the legacy methods raise NotImplementedError, a RuntimeError. A `try`
that catches RuntimeError, Exception or everything and continues then restarts training with a new optimizer, without a
message. The same holds for TypeError and AttributeError handlers that were written to test the torch version. FSDP101
to FSDP105 are unsafe there, because `state_dict_type` does not restore the type after an exception.""",
        applicability="manual",
        deprecated="2.0",
        flags=(
            Example(
                before=_IMPORT
                + """\
def load(model, optim, osd):
    try:
        optim.load_state_dict(FSDP.shard_full_optim_state_dict(osd, model))
    except (KeyError, RuntimeError):
        print("starting with a fresh optimizer")
"""
            ),
        ),
        leaves=(
            _IMPORT
            + """\
def load(model, optim, osd):
    try:
        optim.load_state_dict(FSDP.shard_full_optim_state_dict(osd, model))
    except RuntimeError:
        print("cannot resume")
        raise
""",
            _IMPORT
            + """\
def load(model, optim, osd):
    try:
        optim.load_state_dict(FSDP.shard_full_optim_state_dict(osd, model))
    except FileNotFoundError:
        print("starting with a fresh optimizer")
""",
        ),
        url="https://github.com/pytorch/pytorch/pull/191712",
    ),
    words=tuple(METHODS),
    check=check_swallowed,
)

DISCARDED = Rule(
    RuleCard(
        code="FSDP111",
        name="discarded-optim-state",
        summary="a converted optimizer state dict that nothing loads",
        explanation="""\
The methods that prepare a state dict for loading only convert it; `optimizer.load_state_dict` loads it. If the result
is dropped, or assigned to a name that is never read, every resume starts with a new optimizer. A widely copied
tutorial had this bug.""",
        applicability="manual",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=_IMPORT
                + """\
def load(model, osd, rank):
    sharded = FSDP.scatter_full_optim_state_dict(osd, model)
    print("loaded on", rank)
"""
            ),
        ),
        leaves=(
            _IMPORT
            + """\
def load(model, optim, osd):
    sharded = FSDP.scatter_full_optim_state_dict(osd, model)
    optim.load_state_dict(sharded)
""",
            _IMPORT
            + """\
def load(model, optim, osd):
    FSDP.optim_state_dict_to_load(model, optim, osd, load_directly=True)
""",
        ),
        url="https://pytorch.org/docs/stable/fsdp.html",
    ),
    words=_LOADING,
    check=check_discarded,
)
