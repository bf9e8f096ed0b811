"""FSDP501-507: the arguments of FSDP's constructor.

Sources: catalogue wrap-fsdp-auto-wrap-policy-arg, ctor-ignored-parameters, ctor-positional, ctor-no-sharding and
ctor-backward-prefetch-default; the signatures are in the API data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from packaging.version import Version

from fsdp_migrate.code.argument_dicts import Given
from fsdp_migrate.code.construction import PARTIAL, constructions, given
from fsdp_migrate.code.possible_values import choice
from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal, ordered_arguments
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.torch_api.data import signature

OLD_POLICY, POLICY = "fsdp_auto_wrap_policy", "auto_wrap_policy"
OLD_IGNORED, IGNORED, IGNORED_MODULES = "ignored_parameters", "ignored_states", "ignored_modules"
ORDER_1_11 = ("module", "process_group", "cpu_offload", POLICY, "backward_prefetch")
ORDER = ("module", "process_group", "sharding_strategy", "cpu_offload", POLICY, "backward_prefetch", "mixed_precision")
NO_SHARD = "NO_SHARD"

_FIRST_FREE = 2  # module and process_group have kept their places
_CLASS = "FullyShardedDataParallel"
_CLASSES = {
    "CPUOffload": "cpu_offload",
    "ShardingStrategy": "sharding_strategy",
    "BackwardPrefetch": "backward_prefetch",
    "MixedPrecision": "mixed_precision",
    "ModuleWrapPolicy": POLICY,
    "CustomPolicy": POLICY,
}


def takes(parameter: str, release: Version) -> bool:
    """Whether the constructor of `release` has a parameter."""
    return any(known.name == parameter for known in signature(FSDP, release) or ())


def _old_arguments(facts: ModuleFacts, name: str) -> Iterator[Given]:
    """Arguments of a name that some release that runs the call does not take, each place once."""
    seen = set()
    for one in given(facts):
        if one.name == name and one.place not in seen:
            releases = facts.gates.alive(one.call) & facts.gates.alive(one.holder)
            if any(not takes(name, release) for release in releases):
                seen.add(one.place)
                yield one


def _verdict(facts: ModuleFacts, one: Given, name: str) -> Verdict:
    if one.doubt is not None:
        return manual(f"{one.doubt}: rename the argument to `{name}` if it is FSDP's")
    edit = one.renamed(facts, name)
    if edit is None:
        return manual(f"the name is not written as a plain keyword here: change it to `{name}`")
    return Verdict(Fix((edit,)))


def _beside(facts: ModuleFacts, one: Given, name: str) -> bool:
    """Whether the call of an argument is given another one too."""
    return any(
        other.call is one.call and other.name == name and not is_literal(other.value, None) for other in given(facts)
    )


def check_policy(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the policy under the name of torch 1.11."""
    for one in _old_arguments(facts, OLD_POLICY):
        verdict = _verdict(facts, one, POLICY)
        if _beside(facts, one, POLICY):
            verdict = manual(f"`{POLICY}` is passed, too: remove one of them")
        message = f"FSDP's `{OLD_POLICY}` was renamed to `{POLICY}` in torch 1.12"
        yield finding(facts, card, one.place, facts.statement(one.holder), message, verdict, Severity.BREAKS)


def check_ignored(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the ignored parameters under the name of torch 2.0."""
    for one in _old_arguments(facts, OLD_IGNORED):
        verdict = _verdict(facts, one, IGNORED)
        if _beside(facts, one, IGNORED):
            verdict = manual(f"`{IGNORED}` is passed, too: remove one of them")
        elif _beside(facts, one, IGNORED_MODULES):
            verdict = manual(
                f"FSDP accepts only one of `{IGNORED_MODULES}` and `{IGNORED}`: pass all parameters in one of them"
            )
        message = f"FSDP's `{OLD_IGNORED}` was renamed to `{IGNORED}` in torch 2.1"
        yield finding(facts, card, one.place, facts.statement(one.holder), message, verdict, Severity.BREAKS)


def check_positions(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find positions in the order of torch 1.11, recognised by the classes of the values."""
    for call in constructions(facts):
        positions = list(_positions(facts, call))
        if len(positions) <= _FIRST_FREE:
            continue
        meant = [_meant(facts, argument) for argument in positions]
        wrong = [n for n, name in enumerate(meant) if name is not None and n >= _FIRST_FREE and name != _at(ORDER, n)]
        if not wrong or not any(release >= Version("1.12") for release in facts.gates.alive(call)):
            continue
        place = positions[wrong[0]]
        message = (
            f"position {wrong[0] + 1} of FSDP is `{_at(ORDER, wrong[0])}` since torch 1.12, but this is a "
            f"`{meant[wrong[0]]}`"
        )
        yield finding(facts, card, place, facts.statement(call), message, _keywords(facts, call, meant))


def _positions(facts: ModuleFacts, call: ast.Call) -> Iterator[ast.expr]:
    """The arguments by position, up to those that `*rest` brings from elsewhere."""
    for argument in call.args:
        value = argument.value if isinstance(argument, ast.Starred) else None
        if isinstance(value, ast.Name):
            value = facts.names.value(value)
        if isinstance(value, (ast.Tuple, ast.List)) and not any(isinstance(one, ast.Starred) for one in value.elts):
            yield from value.elts
        elif isinstance(argument, ast.Starred):
            return
        else:
            yield argument


def _at(order: Sequence[str], position: int) -> str:
    return order[position] if position < len(order) else IGNORED_MODULES


def _meant(facts: ModuleFacts, node: ast.expr) -> str | None:
    """The parameter that a value is for, as its class says; None when it does not."""
    value = facts.fsdp.followed(node)
    if isinstance(value, ast.Name):
        value = facts.names.value(value) or value
    if isinstance(value, ast.Call):
        callee = facts.names.qualified(value.func) if isinstance(value.func, (ast.Name, ast.Attribute)) else None
        if callee == PARTIAL and value.args:
            return _policy_function(facts, value.args[0])
        return _CLASSES.get((callee or "").rpartition(".")[2]) if _is_torch(callee) else None
    if isinstance(value, (ast.Name, ast.Attribute)):
        qualified = facts.names.qualified(value)
        if qualified is not None and _is_torch(qualified) and isinstance(value, ast.Attribute):
            return _CLASSES.get(qualified.split(".")[-2])
        return _policy_function(facts, value)
    return None


def _is_torch(name: str | None) -> bool:
    return name is not None and name.startswith(f"{PACKAGE}.")


def _policy_function(facts: ModuleFacts, node: ast.expr) -> str | None:
    qualified = facts.names.qualified(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    return POLICY if qualified is not None and _is_torch(qualified) and qualified.endswith("_policy") else None


def _keywords(facts: ModuleFacts, call: ast.Call, meant: Sequence[str | None]) -> Verdict:
    """The call with keywords behind its process group."""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return manual("the call passes `*args`: use keywords")
    if all(name in (None, _at(ORDER_1_11, n)) for n, name in enumerate(meant) if n >= _FIRST_FREE):
        names: list[str | None] = [None, None, *ORDER_1_11[_FIRST_FREE : len(call.args)]]
    else:
        names = [None, None, *meant[_FIRST_FREE:]]
    chosen = names[_FIRST_FREE:]
    taken = {keyword.arg for keyword in call.keywords}
    if len(call.args) > len(names) or None in chosen or len(set(chosen)) < len(chosen) or taken & set(chosen):
        return manual("the parameter of some positions is not clear: pass them by keyword")
    arguments = [
        Argument(argument.arg if isinstance(argument, ast.keyword) else names[index], index)
        for index, argument in enumerate(ordered_arguments(call))
        if not (isinstance(argument, ast.keyword) and argument.arg is None)
    ]
    if any(keyword.arg is None for keyword in call.keywords):
        return manual("the call passes `**kwargs`, which may contain the same arguments: pass them by keyword")
    return Verdict(Fix((RewriteCall(facts.source.span(call), None, tuple(arguments)),)))


def check_no_shard(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find models that are built without sharding."""
    values = [(one.value, one.holder) for one in given(facts) if one.name == "sharding_strategy"]
    values += [(call.args[_FIRST_FREE], call) for call in constructions(facts) if len(call.args) > _FIRST_FREE]
    seen = set()
    for value, holder in values:
        node = choice(facts, value, _NO_SHARD_NAMES)
        if node is not None and node not in seen and facts.reached(node) and facts.reached(holder):
            seen.add(node)
            message = f"`{NO_SHARD}` is deprecated since torch 2.3: use `DistributedDataParallel`"
            verdict = manual("check the migration: DDP has other parameter names and no `MixedPrecision` like FSDP's")
            yield finding(facts, card, node, facts.statement(node), message, verdict)


_NO_SHARD_NAMES = tuple(
    f"{module}.ShardingStrategy.{NO_SHARD}"
    for module in (PACKAGE, f"{PACKAGE}.api", f"{PACKAGE}.fully_sharded_data_parallel")
)
# The parameters whose default changed, and since when (catalogue ctor-backward-prefetch-default and its neighbour).
_DEFAULTS = (
    ("backward_prefetch", "2.0", "None", "BackwardPrefetch.BACKWARD_PRE"),
    ("limit_all_gathers", "2.1", "False", "True"),
)


def check_defaults(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find constructions for releases on both sides of a changed default that do not choose for themselves."""
    for call in constructions(facts):
        names = {one.name for one in given(facts) if one.call is call}
        if any(keyword.arg is None for keyword in call.keywords) or len(call.args) > _FIRST_FREE:
            continue
        releases = facts.gates.alive(call)
        for name, since, old, new in _DEFAULTS:
            having = [release for release in releases if takes(name, release)]
            spans = any(r < Version(since) for r in having) and any(r >= Version(since) for r in having)
            if spans and name not in names:
                message = f"the default of `{name}` is `{old}` before torch {since} and `{new}` since"
                verdict = manual(f"pass `{name}=`; speed and memory differ, results do not")
                yield finding(facts, card, call.func, facts.statement(call), message, verdict)


_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
_URL = "https://pytorch.org/docs/stable/fsdp.html"

OLD_POLICY_ARGUMENT = Rule(
    RuleCard(
        code="FSDP501",
        name="fsdp-auto-wrap-policy-argument",
        summary="`fsdp_auto_wrap_policy=`, renamed to `auto_wrap_policy` in torch 1.12",
        explanation="""\
torch 1.11 named the argument `fsdp_auto_wrap_policy`. Every later release raises TypeError. The fix renames it in
calls of FSDP, in `functools.partial(FSDP, ...)`, `enable_wrap(wrapper_cls=FSDP, ...)` and `wrap(...)`, and in a
dict that the same function builds and unpacks into one of them. Arguments of this name in other libraries are left
alone.""",
        applicability="safe or manual",
        removed="1.12",
        floor="1.12",
        flags=(
            Example(
                before=_IMPORT + f"model = FSDP(model, {OLD_POLICY}=policy)\n",
                after=_IMPORT + f"model = FSDP(model, {POLICY}=policy)\n",
            ),
            Example(
                before=_IMPORT + f'kwargs = {{"{OLD_POLICY}": policy}}\nmodel = FSDP(model, **kwargs)\n',
                after=_IMPORT + f'kwargs = {{"{POLICY}": policy}}\nmodel = FSDP(model, **kwargs)\n',
            ),
        ),
        leaves=(f'plugin = Plugin({OLD_POLICY}="TRANSFORMER_BASED_WRAP")\n',),
        url=_URL,
    ),
    scope="models",
    words=(OLD_POLICY, _CLASS),
    check=check_policy,
)

IGNORED_PARAMETERS = Rule(
    RuleCard(
        code="FSDP502",
        name="ignored-parameters",
        summary="`ignored_parameters=`, renamed to `ignored_states` in torch 2.1",
        explanation="""\
Only torch 2.0 has `ignored_parameters`. torch 2.1 renamed it without a deprecation, and every later release raises
TypeError. `ignored_states` accepts the same parameters, or modules. FSDP rejects it together with
`ignored_modules`; such calls are manual.""",
        applicability="safe or manual",
        removed="2.1",
        floor="2.1",
        flags=(
            Example(
                before=_IMPORT + f"model = FSDP(model, {OLD_IGNORED}=frozen)\n",
                after=_IMPORT + f"model = FSDP(model, {IGNORED}=frozen)\n",
            ),
            Example(
                before=_IMPORT + f"model = FSDP(model, {OLD_IGNORED}=frozen, {IGNORED_MODULES}=heads)\n",
                note=f"with `{IGNORED_MODULES}`",
            ),
        ),
        leaves=(f"session = CachedSession({OLD_IGNORED}=['key'])\n",),
        url="https://github.com/pytorch/pytorch/pull/102056",
    ),
    scope="models",
    words=(OLD_IGNORED, _CLASS),
    check=check_ignored,
)

POSITIONS = Rule(
    RuleCard(
        code="FSDP504",
        name="constructor-positions",
        summary="positions of FSDP's constructor in the order of torch 1.11",
        explanation="""\
torch 1.12 inserted `sharding_strategy` before `cpu_offload`. A call written for 1.11, such as `FSDP(model, group,
CPUOffload(offload_params=True))`, passes the offload as the strategy since then. The class of a value shows which
parameter it was meant for. If that fits the order of 1.11, or every class is known, the fix turns the positions after
the process group into keywords.""",
        applicability="safe or manual",
        removed="1.12",
        floor="1.12",
        flags=(
            Example(
                before="from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP\n\n"
                "model = FSDP(model, group, CPUOffload(offload_params=True), policy)\n",
                after="from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP\n\n"
                "model = FSDP(model, group, cpu_offload=CPUOffload(offload_params=True), auto_wrap_policy=policy)\n",
            ),
        ),
        leaves=(
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n"
            "model = FSDP(model, group, ShardingStrategy.FULL_SHARD)\n",
            _IMPORT + "model = FSDP(model, group, offload)\n",
        ),
        url=_URL,
    ),
    scope="models",
    words=(_CLASS,),
    check=check_positions,
)

UNSHARDED = Rule(
    RuleCard(
        code="FSDP506",
        name="no-shard",
        summary="a model built with `ShardingStrategy.NO_SHARD`",
        explanation="""\
FSDP without sharding is deprecated since torch 2.3 (a FutureWarning since 2.4) on more than one rank. The warning
recommends `DistributedDataParallel`. DDP has other state-dict keys, and handles precision and clipping in another way,
so this is not rewritten.""",
        applicability="manual",
        deprecated="2.3",
        flags=(
            Example(
                before="from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n"
                "model = FSDP(model, sharding_strategy=ShardingStrategy.NO_SHARD)\n"
            ),
        ),
        leaves=(
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n"
            "whole = model.sharding_strategy == ShardingStrategy.NO_SHARD\n",
        ),
        url=_URL,
    ),
    scope="models",
    words=(NO_SHARD,),
    check=check_no_shard,
)

DEFAULTS = Rule(
    RuleCard(
        code="FSDP507",
        name="changed-constructor-defaults",
        summary="a constructor default that differs between supported releases",
        explanation="""\
`backward_prefetch` is `BACKWARD_PRE` by default since torch 2.0, and was `None` before. `limit_all_gathers` is True by
default since 2.1. Speed and memory change, results do not. This is a hint, and only given if the supported range
includes both defaults and the call does not choose.""",
        applicability="manual",
        severity=Severity.HINT,
        leaves=(_IMPORT + "model = FSDP(model)\n",),
        url=_URL,
    ),
    scope="models",
    words=(_CLASS,),
    check=check_defaults,
)
