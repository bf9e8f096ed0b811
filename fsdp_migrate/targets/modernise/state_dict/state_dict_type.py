"""FSDP201 and FSDP210: the state-dict type and its configs.

Since torch 2.0 the optimizer state follows a config of its own, whose default puts the full state on every rank
whatever the model's config says (catalogue osd-full trap 1, RUNTIME table 1a; torch 2.1.2 to 2.15.0, api.py). The
two methods warn since 2.4 (catalogue sdt-deprecated).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from fsdp_migrate.code.import_texts import CannotSupply, supply
from fsdp_migrate.edits import Argument, Replace, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal, is_written_out, ordered_arguments
from fsdp_migrate.facts.contexts import enclosing_settings, is_in_force
from fsdp_migrate.facts.fsdp import FSDP, Receiver, TypeSetting
from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Traced, Verdict, finding, manual
from fsdp_migrate.source import Span

SETTERS = ("state_dict_type", "set_state_dict_type")
_CURRENT_METHODS = ("optim_state_dict", "optim_state_dict_to_load")
# The type whose configs have `rank0_only`, and the two configs (torch 2.1 to 2.15, api.py).
FULL = "FULL_STATE_DICT"
_OPTIM_CONFIG = "FullOptimStateDictConfig"
_MODEL_CONFIG = "FullStateDictConfig"
_FLOOR = "2.1"


def check_missing_config(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find type settings for rank 0 only that leave the optimizer at its default, all ranks."""
    for setting in _settings(facts):
        if setting.optim_config is not None or setting.config is None or not facts.reached(setting.call):
            continue
        config = facts.fsdp.config(setting.config)
        is_full = setting.type_name == FULL or (setting.type_name is None and config is not None)
        if not is_full or (config is not None and config.cls != _MODEL_CONFIG):
            continue
        rank0_only = config.fields.get("rank0_only") if config is not None else None
        if config is not None and (rank0_only is None or _is_false(rank0_only)):
            continue
        if not _handles_optimizer(facts, setting):
            continue
        message = (
            "the model config says which ranks hold the state, but there is no optimizer config: every rank "
            "gets the full optimizer state"
        )
        verdict = _mirrored(facts, setting, rank0_only)
        yield finding(facts, card, setting.call.func, facts.statement(setting.call), message, verdict)


def check_deprecated(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find every use of the two methods."""
    for setting in _settings(facts):
        if facts.reached(setting.call):
            message = (
                "`FSDP.state_dict_type` and `FSDP.set_state_dict_type` are deprecated since torch 2.4, but no "
                "release has removed them"
            )
            verdict = manual("`--target dcp` moves to their successor, torch.distributed.checkpoint.state_dict")
            yield finding(facts, card, setting.call.func, facts.statement(setting.call), message, verdict)


def _settings(facts: ModuleFacts) -> Iterator[TypeSetting]:
    for method in SETTERS:
        yield from facts.fsdp.settings(method)


def _is_false(node: ast.expr) -> bool:
    return is_literal(node, False)


def _handles_optimizer(facts: ModuleFacts, setting: TypeSetting) -> bool:
    """Whether optimizer state is saved or loaded by the current API while this very setting is in force."""
    for call in facts.structure.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _CURRENT_METHODS:
            continue
        if facts.function(call) is not facts.function(setting.call) or not _same_model(facts, call, setting.model):
            continue
        around = [other.call for other in enclosing_settings(facts, call) if other is not None]
        by_stack = setting.call not in around and _is_entered(facts, setting, call)
        if setting.call in around[:1] or (not around and (by_stack or _set_before(facts, setting, call))):
            return True
    return False


def _is_entered(facts: ModuleFacts, setting: TypeSetting, call: ast.Call) -> bool:
    """Whether a `stack.enter_context(...)` before the call sets the type."""
    outer = facts.structure.parents[setting.call]
    entered = isinstance(outer, ast.Call) and getattr(outer.func, "attr", "") == "enter_context"
    return entered and is_in_force(facts, setting, call)


def _set_before(facts: ModuleFacts, setting: TypeSetting, call: ast.Call) -> bool:
    """Whether `setting` is a `set_state_dict_type` for this model that may still be in force at `call`."""
    if setting.call.lineno >= call.lineno or not isinstance(facts.structure.parents[setting.call], ast.Expr):
        return False
    around = set(facts.blocks_around(call))
    for other in facts.fsdp.settings("set_state_dict_type"):
        between = setting.call.lineno < other.call.lineno < call.lineno
        same = between and facts.fsdp.same_object(other.model, setting.model)
        if same and facts.structure.parents[facts.statement(other.call)] in around:
            return False
    return True


def _same_model(facts: ModuleFacts, call: ast.Call, model: ast.expr) -> bool:
    keywords = [keyword.value for keyword in call.keywords if keyword.arg == "model"]
    candidates = keywords or list(call.args[:2])
    return any(
        facts.fsdp.same_object(candidate, model) and facts.fsdp.receiver(call.func, candidate) is not None
        for candidate in candidates
    )


def _mirrored(facts: ModuleFacts, setting: TypeSetting, rank0_only: ast.expr | None) -> Verdict:
    if rank0_only is None:
        return manual("it is not visible here whether the model config sets `rank0_only`: pass an optimizer config")
    call = setting.call
    if isinstance(setting.config, ast.Name) and not isinstance(rank0_only, ast.Constant):
        text = ast.unparse(rank0_only)
        return manual(
            f"`{text}` is local to the place that creates `{setting.config.id}`: add `optim_state_dict_config=`"
        )
    if not is_written_out(call):
        return manual("the call passes `*args` or `**kwargs`: add `optim_state_dict_config=`")
    if any(isinstance(part, ast.Call) for part in ast.walk(rank0_only)):
        return manual(f"`{ast.unparse(rank0_only)}` would be evaluated twice: assign it to a variable first")
    assert isinstance(call.func, ast.Attribute)
    receiver = facts.fsdp.receiver(call.func, setting.model) or Receiver(call.func.value, ())
    if receiver.doubt is not None:
        return manual(f"{receiver.doubt}: only torch's FSDP can be rewritten")
    try:
        names = supply(facts, [_OPTIM_CONFIG], call, receiver, _FLOOR)
        first = _in_front(facts, facts.statement(call), names.prologue)
    except CannotSupply as reason:
        return manual(str(reason))
    kept = []
    for index, argument in enumerate(ordered_arguments(call)):
        keyword = argument.arg if isinstance(argument, ast.keyword) else None
        is_none_placeholder = keyword == "optim_state_dict_config" or (keyword is None and index == 3)
        if not is_none_placeholder:
            kept.append(Argument(keyword, index))
    text = f"{names.spelling[_OPTIM_CONFIG]}(offload_to_cpu=True, rank0_only={ast.unparse(rank0_only)})"
    kept.append(Argument("optim_state_dict_config", text=text))
    edit = RewriteCall(facts.source.span(call), None, tuple(kept))
    return Verdict(
        Fix((*names.edits, *first, edit)), unsafe="ranks other than 0 then get an empty optimizer state dict"
    )


def _in_front(facts: ModuleFacts, statement: ast.stmt, lines: Sequence[str]) -> tuple[Replace, ...]:
    """The edit that puts `lines` in front of `statement`.

    Raises:
        CannotSupply: nothing can stand there.
    """
    if not lines:
        return ()
    source, start = facts.source, facts.source.span(statement).start
    shared = source.data[source.line_start(start) : start].strip(b" \t\f") or source.data.startswith(b"elif", start)
    if shared or facts.scope(statement).is_class:
        raise CannotSupply(f"`{_OPTIM_CONFIG}` cannot be imported before this statement: import it")
    return (Replace(Span(start, start), "".join(f"{line}\n{facts.indentation(statement)}" for line in lines)),)


_IMPORTS = """\
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType
"""

MISSING_CONFIG = Rule(
    RuleCard(
        code="FSDP201",
        name="missing-optim-state-dict-config",
        summary="a rank-0 state-dict type without an optimizer config",
        explanation="""\
`FullStateDictConfig(rank0_only=True)` only affects the model state. `FSDP.optim_state_dict` and
`optim_state_dict_to_load` use the optimizer config. Without one every rank builds the full optimizer state, which
needs host memory for one copy per rank, and loading expects the full dict on every rank.

The fix adds the missing config with the same `rank0_only`. It is unsafe because the other ranks then get `{}` and
have to handle it.""",
        applicability="unsafe or manual",
        floor=_FLOOR,
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=_IMPORTS
                + """\

def save(model, optim):
    config = FullStateDictConfig(rank0_only=True)
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        config,
    ):
        return FSDP.optim_state_dict(model, optim)
""",
                after="""\
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    StateDictType,
)

def save(model, optim):
    config = FullStateDictConfig(rank0_only=True)
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        config,
        optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    ):
        return FSDP.optim_state_dict(model, optim)
""",
                note="other ranks then get an empty dict",
                applicability=Applicability.UNSAFE,
            ),
        ),
        leaves=(
            _IMPORTS
            + """\

def save(model):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)):
        return model.state_dict()
""",
            _IMPORTS
            + """\

def save(model, optim):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=False)):
        return FSDP.optim_state_dict(model, optim)
""",
        ),
        url="https://pytorch.org/docs/stable/fsdp.html",
    ),
    words=SETTERS,
    check=check_missing_config,
)

DEPRECATED = Rule(
    RuleCard(
        code="FSDP210",
        name="state-dict-type-deprecated",
        summary="`FSDP.state_dict_type` and `FSDP.set_state_dict_type`, deprecated since torch 2.4",
        explanation="""\
Both methods give a FutureWarning since torch 2.4, which names `torch.distributed.checkpoint.state_dict` as their
successor. No release up to 2.15 removes them. The successor is not equivalent: it may step the optimizer to fill its
state, has no setting for full states on the CPU of every rank, and exists only since 2.2. Moving to it is a migration
of its own, so this is a hint. With `--target dcp` it is `deprecated`, and blocks that are understood as a whole are
rewritten (docs/dcp.md).

FSDP101 to FSDP105 write `FSDP.state_dict_type` on purpose: only this form gives the same values on the same ranks and
devices on every release since 2.1.""",
        applicability="manual",
        deprecated="2.4",
        severity=Severity.HINT,
        flags=(
            Example(
                before=_IMPORTS
                + """\

def save(model):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        return model.state_dict()
"""
            ),
        ),
        leaves=(
            """\
def configure(plugin):
    plugin.set_state_dict_type("FULL_STATE_DICT")
""",
        ),
        url="https://pytorch.org/docs/stable/distributed.checkpoint.html",
    ),
    words=SETTERS,
    check=check_deprecated,
    calls=lambda: (Traced(f"{FSDP}.{name}") for name in SETTERS),
)
