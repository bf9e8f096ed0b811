"""FSDP611: members that FSDP models had in torch 1.x or 2.0 and have no more, and functions that took their handles.

Sources: catalogue priv-handles, priv-lazy-init, priv-methods-removed-2.0, comm-hook, sd-1x-private-methods and
priv-module-attr. A test holds methods and functions against the API data. Attributes are not in it: they were compared
in the wheels of 1.12.1, 1.13.1, 2.0.1, 2.1.2 and 2.6.0, in the files that the table names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.instance_members import is_given
from fsdp_migrate.code.torch_names import calls_ending_in, last_words
from fsdp_migrate.code.torch_presence import READING, excused
from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.torch_api.data import signature

_HANDLE = "handle"
PARAMS_WITH_GRAD = "params_with_grad"
_GATHER = "use `FSDP.summon_full_params(model, recurse=False)`, which gathers the parameters of one module"
_FUNCTION = "torch 2.0 replaced it by a private function: check what you need it for"
_WITH_GRAD = "write `[p for p in model.parameters() if p.grad is not None]`"
_RENAMED = "it was renamed to `{}` in torch 2.1"
_OF_HANDLE = "use `_handle.{}`, an attribute of the module's only handle"
_STREAMS = "use `_unshard_stream`, `_pre_unshard_stream`, `_post_backward_stream` or `_default_stream`"
_EXEC_ORDER = "torch 2.0 removed wrapping by execution order: use another wrap policy"
_FACTOR = "it was renamed to `_gradient_predivide_factor` or `_gradient_postdivide_factor` in torch 2.1"
_TYPED = "set the state-dict type with `FSDP.state_dict_type` and call `{}`"


class Member(NamedTuple):
    """A member, the release that took it away, and what to do; `own` names belong to nothing else than FSDP."""

    name: str
    removed: str
    advice: str
    own: bool = False
    method: bool = True


def _attribute(name: str, removed: str, advice: str, own: bool = False) -> Member:
    return Member(name, removed, advice, own, method=False)


MEMBERS: tuple[Member, ...] = (
    Member("_lazy_init", "2.0", "call `_lazy_init(model, model)` of `torch.distributed.fsdp._runtime_utils`"),
    Member("_summon_full_params", "2.0", _GATHER, own=True),
    Member("_rebuild_full_params", "1.13", _GATHER, own=True),
    Member("_free_full_params", "1.13", _GATHER, own=True),
    Member("_use_param_local_shard", "1.13", _FUNCTION, own=True),
    Member("_prep_grads_for_backward", "1.13", _FUNCTION, own=True),
    Member("_cast_buffers", "2.0", _FUNCTION),
    Member("_wait_for_post_backward", "2.0", _FUNCTION),
    Member("_wait_for_previous_optim_step", "2.0", _FUNCTION, own=True),
    Member("_get_shard", "1.13", _FUNCTION),
    Member("_shard_parameters", "1.13", _FUNCTION),
    Member("_reshard", "2.0", _FUNCTION),
    Member("_mixed_precision_enabled_for_params", "2.0", "read `model.mixed_precision`", own=True),
    Member("_mixed_precision_enabled_for_reduce", "2.0", "read `model.mixed_precision`", own=True),
    Member(
        "_get_default_comm_hook",
        "2.0",
        ("use `register_comm_hook` to set a hook; the default hook needs no call"),
        own=True,
    ),
    Member("_get_default_comm_hook_state", "2.0", "pass the state to `register_comm_hook`", own=True),
    Member("_local_state_dict", "2.0", _TYPED.format("state_dict")),
    Member("_load_local_state_dict", "2.0", _TYPED.format("load_state_dict"), own=True),
    Member("_sharded_state_dict", "2.0", _TYPED.format("state_dict")),
    Member("_load_sharded_state_dict", "2.0", _TYPED.format("load_state_dict"), own=True),
    Member(PARAMS_WITH_GRAD, "2.0", _WITH_GRAD, own=True),
    # Set by torch 2.0.1, _common_utils.py (_FSDPState) and _init_utils.py (_init_core_state, _init_runtime_state,
    # _init_prefetching_state, _init_process_group_state), and by no file of 2.1.2.
    _attribute("_handles", "2.1", "use `_handle`, the module's only handle or None"),
    _attribute("_fully_sharded_module_to_handles", "2.1", _RENAMED.format("_fully_sharded_module_to_handle"), own=True),
    _attribute("_handles_prefetched", "2.1", _OF_HANDLE.format("_prefetched"), own=True),
    _attribute("_needs_pre_backward_unshard", "2.1", _OF_HANDLE.format("_needs_pre_backward_unshard")),
    _attribute("_needs_pre_forward_unshard", "2.1", _OF_HANDLE.format("_needs_pre_forward_unshard")),
    _attribute("_ran_pre_backward_hook", "2.1", _OF_HANDLE.format("_ran_pre_backward_hook")),
    _attribute("_streams", "2.1", _STREAMS),
    _attribute("_stream_to_name", "2.1", _STREAMS, own=True),
    _attribute("_communication_hook", "2.1", _RENAMED.format("_comm_hook"), own=True),
    _attribute("_communication_hook_state", "2.1", _RENAMED.format("_comm_hook_state"), own=True),
    _attribute("_hook_registered", "2.1", "test `_comm_hook`, which is None if no hook is registered"),
    # Set by torch 1.13.1, fully_sharded_data_parallel.py, and by no file of 2.0.1.
    _attribute("_full_param_ctx", "2.0", _GATHER, own=True),
    _attribute("_ignored_param_names", "2.0", "use `_ignored_params`, the parameters themselves", own=True),
    _attribute("_fsdp_params_exec_order", "2.0", _EXEC_ORDER, own=True),
    _attribute("_param_exec_order_policy", "2.0", _EXEC_ORDER, own=True),
    _attribute("_param_exec_order_prep_stage", "2.0", _EXEC_ORDER, own=True),
    # Set by torch 1.12.1, fully_sharded_data_parallel.py, and by no file of 1.13.1.
    _attribute("_require_backward_grad_sync", "1.13", "it was renamed to `_sync_gradients` in torch 1.13", own=True),
    _attribute("_orig_buffer_dtypes", "1.13", "it was renamed to `_buffer_name_to_orig_dtype` in torch 1.13", own=True),
    _attribute("_pre_backward_hook_has_run", "1.13", _FUNCTION),
    _attribute("_need_rebuild_full_params", "1.13", _FUNCTION, own=True),
    _attribute("_fsdp_graph_order", "1.13", "use `_exec_order_data`, which records the order", own=True),
    _attribute("_my_fsdp_idx_in_graph", "1.13", "use `_exec_order_data`, which records the order", own=True),
    _attribute("gradient_predivide_factor", "1.13", _FACTOR),
    _attribute("gradient_postdivide_factor", "1.13", _FACTOR),
    _attribute("numel_padded_per_param", "1.13", "use `_numels_with_padding` of the flat parameter"),
)
# Functions that took a list of handles up to torch 2.0.1 and take one handle in its place since 2.1, in these files.
OF_HANDLES: tuple[str, ...] = tuple(
    f"{PACKAGE}.{name}"
    for name in """
    _common_utils._get_sharding_strategy _runtime_utils._get_training_state _runtime_utils._post_forward
    _runtime_utils._post_forward_reshard _runtime_utils._pre_backward_hook _runtime_utils._pre_forward
    _runtime_utils._pre_forward_unshard _runtime_utils._register_pre_backward_hooks _runtime_utils._reshard
    _runtime_utils._reshard_grads _runtime_utils._unshard _runtime_utils._unshard_grads
    _unshard_param_utils._writeback_to_local_shard
    """.split()
)
_WORDS_OF_HANDLES = last_words(OF_HANDLES)
ONE_HANDLE_SINCE = Version("2.1")
_BY_NAME = {member.name: member for member in MEMBERS}


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find members read off FSDP models or their class, and those of FSDP alone off anything in a file with FSDP."""
    for node in facts.structure.attributes:
        member = _BY_NAME.get(node.attr)
        if member is None or not isinstance(node.ctx, ast.Load) or is_given(facts, node.attr):
            continue
        known = facts.fsdp.is_instance(node.value, node.attr) or _is_class(facts, node)
        if not known and not (member.own and facts.fsdp.possible_receiver(node) is not None):
            continue
        gone = any(release >= Version(member.removed) for release in facts.gates.alive(node))
        if gone and not excused(facts, node, READING, too_new=False):
            message = f"`{member.name}` of FSDP was removed in torch {member.removed}"
            verdict = _inlined(facts, node) if known and member.name == PARAMS_WITH_GRAD else manual(member.advice)
            yield finding(facts, card, node, facts.statement(node), message, verdict)
    yield from _of_handles(facts, card)


def _of_handles(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find calls that pass several handles to a function that takes one, in a file that does not ask what there is."""
    if is_given(facts, "_handles") or is_given(facts, "_handle"):
        return
    for call in calls_ending_in(facts, _WORDS_OF_HANDLES):
        path = facts.names.qualified(call.func)
        if path not in OF_HANDLES or max(facts.gates.alive(call), default=Version("0")) < ONE_HANDLE_SINCE:
            continue
        names = [parameter.name for parameter in signature(path, ONE_HANDLE_SINCE) or ()]
        given = call.args[names.index(_HANDLE) :][:1]
        if given and _are_several(given[0]) and not excused(facts, call, READING, too_new=False):
            message = f"`{path}` takes one handle since torch {ONE_HANDLE_SINCE}, and a list of handles before"
            verdict = manual("pass `_handle`, the module's only handle; skip the call if it is None")
            yield finding(facts, card, call.func, facts.statement(call), message, verdict)


def _are_several(node: ast.expr) -> bool:
    """Whether an argument is a list of handles, by its form or its name."""
    if isinstance(node, (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp)):
        return True
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Slice)
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return f"{_HANDLE}s" in name


def _is_class(facts: ModuleFacts, node: ast.Attribute) -> bool:
    return isinstance(node.value, (ast.Name, ast.Attribute)) and facts.fsdp.is_class(node.value, node.attr)


def _inlined(facts: ModuleFacts, node: ast.Attribute) -> Verdict:
    """The list that the property was."""
    source = facts.source
    model = source.segment(node.value)
    if facts.template_around(node) is not None or not pure(node.value) or "\n" in source.segment(node):
        return manual(_WITH_GRAD)
    return Verdict(Fix((Replace(source.span(node), f"[p for p in {model}.parameters() if p.grad is not None]"),)))


_BUILT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\nmodel = FSDP(module)\n"

RULE = Rule(
    RuleCard(
        code="FSDP611",
        name="removed-fsdp-member",
        summary="a private member of FSDP models that torch 2.0 or 2.1 removed, or a list of their handles",
        explanation="""\
torch 2.0 replaced most private methods of `FullyShardedDataParallel` by functions in private modules
(`_runtime_utils`, `_unshard_param_utils`, `_state_dict_utils`). torch 2.1 replaced the list `_handles` by a single
`_handle` and moved the state of handles to its attributes. Functions such as `_runtime_utils._unshard` take one handle
since. FSDP looks up unknown attributes in the wrapped module, so the error may name the user's class.

The property `params_with_grad` is replaced by an equal list. All other members are manual, and the reason names the
replacement. A member is reported on models that this file builds with FSDP. It is reported on any other object, too,
if no other class has such a name and the file imports FSDP.""",
        applicability="safe or manual",
        removed="2.0",
        severity=Severity.BREAKS,
        flags=(
            Example(
                before=_BUILT + "grads = [p.grad for p in model.params_with_grad]\n",
                after=_BUILT + "grads = [p.grad for p in [p for p in model.parameters() if p.grad is not None]]\n",
            ),
            Example(before=_BUILT + "for handle in model._handles:\n    print(handle.flat_param)\n"),
            Example(before=_BUILT + "model._lazy_init()\n"),
            Example(
                before="""\
from torch.distributed.fsdp._runtime_utils import _reshard

def free(module, handles):
    _reshard(module, handles, [True for _ in handles])
"""
            ),
        ),
        leaves=(
            _BUILT + 'handles = model._handles if hasattr(model, "_handles") else [model._handle]\n',
            "import torch\n\ntorch.cuda._lazy_init()\n",
        ),
        url="https://github.com/pytorch/pytorch/blob/v2.0.0/torch/distributed/fsdp/fully_sharded_data_parallel.py",
    ),
    scope="models",
    words=(
        *(f".{name}" for name in _BY_NAME),
        *sorted(_WORDS_OF_HANDLES),
    ),
    check=check,
)
