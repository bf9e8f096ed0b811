"""FSDP611: members that FSDP models had in torch 1.x or 2.0 and have no more.

Sources: catalogue priv-handles, priv-lazy-init, priv-methods-removed-2.0, comm-hook, sd-1x-private-methods and
priv-module-attr. A test holds the methods against the API data; attributes that `__init__` sets are not in it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from packaging.version import Version

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.rules.instance_members import is_given
from fsdp_migrate.rules.torch_presence import READING, excused

PARAMS_WITH_GRAD = "params_with_grad"
_GATHER = "`FSDP.summon_full_params(model, recurse=False)` gathers the parameters of one module"
_FUNCTION = "torch 2.0 made it a function of a private module: see what it is needed for"
_WITH_GRAD = "write `[p for p in model.parameters() if p.grad is not None]`"
_RENAMED = "it is called `{}` since torch 2.1"
_TYPED = "set the state-dict type with `FSDP.state_dict_type`, and call `{}`"


class Member(NamedTuple):
    """A member, the release that took it away, and what to do; `own` names belong to nothing else than FSDP."""

    name: str
    removed: str
    advice: str
    own: bool = False
    method: bool = True


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
    Member("_get_default_comm_hook", "2.0", "`register_comm_hook` sets a hook; the default needs none", own=True),
    Member("_get_default_comm_hook_state", "2.0", "`register_comm_hook` takes the state", own=True),
    Member("_local_state_dict", "2.0", _TYPED.format("state_dict")),
    Member("_load_local_state_dict", "2.0", _TYPED.format("load_state_dict"), own=True),
    Member("_sharded_state_dict", "2.0", _TYPED.format("state_dict")),
    Member("_load_sharded_state_dict", "2.0", _TYPED.format("load_state_dict"), own=True),
    Member(PARAMS_WITH_GRAD, "2.0", _WITH_GRAD, own=True),
    Member("_handles", "2.1", "`_handle` is the one handle of a module, or None", method=False),
    Member("_communication_hook", "2.1", "it is called `_comm_hook` since torch 2.1", own=True, method=False),
    Member(
        "_communication_hook_state", "2.1", "it is called `_comm_hook_state` since torch 2.1", own=True, method=False
    ),
    Member("gradient_predivide_factor", "1.13", _FUNCTION, method=False),
    Member("numel_padded_per_param", "1.13", "the flat parameter knows it, `_numels_with_padding`", method=False),
)
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
            message = f"FSDP has no `{member.name}` since torch {member.removed}"
            verdict = _inlined(facts, node) if known and member.name == PARAMS_WITH_GRAD else manual(member.advice)
            yield finding(facts, card, node, facts.statement(node), message, verdict)


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
        summary="a private method or attribute of FSDP models that torch 2.0 or 2.1 removed",
        explanation="""\
torch 2.0 turned most private methods of `FullyShardedDataParallel` into functions of private modules
(`_runtime_utils`, `_unshard_param_utils`, `_state_dict_utils`), and 2.1 replaced the list `_handles` by the one
`_handle`. Since FSDP looks up unknown attributes in the module that it wraps, the error may name the user's class.

The property `params_with_grad` becomes the list that it was. All others are manual: the finding says what has taken
their place. A member is reported on what this file builds as an FSDP model, and, where no other class has such a
name, on anything else in a file that imports FSDP.""",
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
        ),
        leaves=(
            _BUILT + 'handles = model._handles if hasattr(model, "_handles") else [model._handle]\n',
            "import torch\n\ntorch.cuda._lazy_init()\n",
        ),
        url="https://github.com/pytorch/pytorch/blob/v2.0.0/torch/distributed/fsdp/fully_sharded_data_parallel.py",
    ),
    needles=tuple(_BY_NAME),
    check=check,
)
