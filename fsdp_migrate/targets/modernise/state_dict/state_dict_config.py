"""FSDP202-204: the state-dict config objects.

Sources: catalogue cfg-positional-2.1 (2.1.2 api.py: dataclass inheritance put use_dtensor second),
sdt-config-type-check (`type(config)` has to be the expected class, 2.0 to 2.15), cfg-use-dtensor (2.1 only).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.argument_dicts import Construction, Given, bound_to, dict_scope, given_in
from fsdp_migrate.code.construction import PARTIAL
from fsdp_migrate.code.dropped_arguments import without
from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import Bound, is_literal, ordered_arguments
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual

_FULL_FIELDS = ("offload_to_cpu", "rank0_only")
_FULL_CLASSES = ("FullStateDictConfig", "FullOptimStateDictConfig")
_OPTIM_CLASS = {
    "FULL_STATE_DICT": "FullOptimStateDictConfig",
    "SHARDED_STATE_DICT": "ShardedOptimStateDictConfig",
    "LOCAL_STATE_DICT": "LocalOptimStateDictConfig",
}
_CLASSES = (
    *_FULL_CLASSES,
    "StateDictConfig",
    "ShardedStateDictConfig",
    "LocalStateDictConfig",
    "OptimStateDictConfig",
    "ShardedOptimStateDictConfig",
    "LocalOptimStateDictConfig",
)
_HAVING_FIELD = Version("2.1").release
_FIELD = "use_dtensor"
_BUILD = "since torch 2.2 the state is DTensor if the model has a mesh: build it with `FSDP(..., device_mesh=...)`"


def _constructions(facts: ModuleFacts, classes: tuple[str, ...]) -> Iterator[tuple[ast.Call, str, list[ast.expr]]]:
    """The calls that build one of the config `classes` or a `partial` of it, with the class and what it is given."""
    wanted = {f"{PACKAGE}.{name}": name for name in classes}
    for call in facts.structure.calls:
        cls, given = call.func, call.args
        if call.args and facts.names.qualified(call.func) == PARTIAL:
            cls, *given = call.args
        if isinstance(cls, (ast.Name, ast.Attribute)):
            name = wanted.get(facts.names.qualified(cls) or "")
            if name is not None and facts.reached(call):
                yield call, name, given


def check_positional(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find full configs built from two positions, the second of which once meant something else."""
    for call, name, given in _constructions(facts, _FULL_CLASSES):
        if len(given) != len(_FULL_FIELDS) or any(isinstance(argument, ast.Starred) for argument in given):
            continue
        bad = any(release.release[:2] == _HAVING_FIELD for release in facts.gates.alive(call))
        message = f"the second position of `{name}` is `rank0_only`, but `{_FIELD}` in torch 2.1: pass both by keyword"
        verdict = _named(facts, call) if given is call.args else manual("pass both to the `partial` by keyword")
        severity = Severity.CHANGES if bad else Severity.HINT
        yield finding(facts, card, call.func, facts.statement(call), message, verdict, severity)


def _named(facts: ModuleFacts, call: ast.Call) -> Verdict:
    arguments = [Argument(field, index) for index, field in enumerate(_FULL_FIELDS)]
    arguments += [
        Argument(keyword.arg, index)
        for index, keyword in enumerate(ordered_arguments(call))
        if isinstance(keyword, ast.keyword)
    ]
    return Verdict(Fix((RewriteCall(facts.source.span(call), None, tuple(arguments)),)))


def check_wrong_class(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find type settings whose optimizer config is of another class than the type takes."""
    for method in ("state_dict_type", "set_state_dict_type"):
        for setting in facts.fsdp.settings(method):
            if setting.optim_config is None or setting.type_name is None or not facts.reached(setting.call):
                continue
            config = facts.fsdp.config(setting.optim_config)
            expected = _OPTIM_CLASS.get(setting.type_name)
            if config is None or expected is None or config.cls == expected:
                continue
            message = f"`{setting.type_name}` does not accept `{config.cls}`: it needs `{expected}`"
            verdict = manual(f"pass `{expected}` with the fields that you need")
            place = setting.optim_config
            yield finding(facts, card, place, facts.statement(setting.call), message, verdict)


def check_use_dtensor(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the field that only torch 2.1 has."""
    for call, name, _ in _constructions(facts, _CLASSES):
        if all(release.release[:2] == _HAVING_FIELD for release in facts.gates.alive(call)):
            continue
        message = f"`{name}` accepts `{_FIELD}` in torch 2.1 only"
        for index, argument in enumerate(ordered_arguments(call)):
            if isinstance(argument, ast.keyword) and argument.arg == _FIELD:
                verdict = _without(facts, call, Bound(argument.value, index))
                yield finding(facts, card, argument.value, facts.statement(call), message, verdict)
        for given in _unpacked(facts, call):
            if given.name == _FIELD:
                verdict = manual(_BUILD if not is_literal(given.value, False) else "remove it from the dict")
                yield finding(facts, card, given.place, facts.statement(given.value), message, verdict)


def _unpacked(facts: ModuleFacts, call: ast.Call) -> Iterator[Given]:
    """The arguments in dicts that are unpacked into a call, written there or bound to a name."""
    for keyword in call.keywords:
        home = dict_scope(facts, keyword.value) if isinstance(keyword.value, ast.Name) else None
        if keyword.arg is None and home is not None:
            yield from bound_to(facts, home, ast.unparse(keyword.value), Construction(call), None)
        elif keyword.arg is None:
            yield from given_in(facts, keyword.value, Construction(call))


def _without(facts: ModuleFacts, call: ast.Call, field: Bound) -> Verdict:
    if not is_literal(field.value, False):
        return manual(_BUILD)
    return without(facts, call, field)


_IMPORT = "from torch.distributed.fsdp import FullStateDictConfig\n\n"

POSITIONAL = Rule(
    RuleCard(
        code="FSDP202",
        name="positional-state-dict-config",
        summary="a full state-dict config with two positional arguments",
        explanation="""\
`FullStateDictConfig(True, True)` means `offload_to_cpu, rank0_only` on every release but torch 2.1, where the second
position is `use_dtensor`: there every rank silently keeps the full state. Keywords mean the same on all releases. It
is a hint if torch 2.1 is not supported.""",
        applicability="safe",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=_IMPORT + "config = FullStateDictConfig(True, True)\n",
                after=_IMPORT + "config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)\n",
            ),
        ),
        leaves=(
            _IMPORT + "config = FullStateDictConfig(True)\n",
            _IMPORT + "config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)\n",
        ),
        url="https://pytorch.org/docs/stable/fsdp.html",
    ),
    scope="models",
    words=_FULL_CLASSES,
    check=check_positional,
)

WRONG_CLASS = Rule(
    RuleCard(
        code="FSDP203",
        name="wrong-optim-state-dict-config",
        summary="an optimizer config of the wrong class for the state-dict type",
        explanation="""\
FSDP compares the class of the config with the class that the type requires, and accepts no base class.
`OptimStateDictConfig()`, as in an old docstring of torch, raises RuntimeError under every type, and so does the class
of another type.""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(
            Example(
                before="""\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
from torch.distributed.fsdp.api import OptimStateDictConfig

def save(model):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, None, OptimStateDictConfig()):
        return model.state_dict()
""",
            ),
        ),
        leaves=(
            """\
from torch.distributed.fsdp import FullOptimStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType

def save(model):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, None, FullOptimStateDictConfig()):
        return model.state_dict()
""",
        ),
        url="https://pytorch.org/docs/stable/fsdp.html",
    ),
    words=("state_dict_type", "set_state_dict_type"),
    check=check_wrong_class,
)

USE_DTENSOR = Rule(
    RuleCard(
        code="FSDP204",
        name="use-dtensor-field",
        summary="`use_dtensor=` on a state-dict config, a field of torch 2.1 only",
        explanation="""\
The field exists in torch 2.1 only, and raises TypeError on every other release. `use_dtensor=False` is what the
others do anyway, so the fix removes it. `use_dtensor=True` needs a model that was built with a `device_mesh`, and
is manual.""",
        applicability="safe or manual",
        removed="2.2",
        severity=Severity.BREAKS,
        flags=(
            Example(
                before=_IMPORT + "config = FullStateDictConfig(rank0_only=True, use_dtensor=False)\n",
                after=_IMPORT + "config = FullStateDictConfig(rank0_only=True)\n",
            ),
            Example(before=_IMPORT + "config = FullStateDictConfig(use_dtensor=True)\n", note="needs a device mesh"),
        ),
        leaves=("from mylib import FullStateDictConfig\n\nconfig = FullStateDictConfig(use_dtensor=True)\n",),
        url="https://pytorch.org/docs/stable/fsdp.html",
    ),
    scope="models",
    words=(_FIELD,),
    check=check_use_dtensor,
)
