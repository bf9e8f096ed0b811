"""The cards of FSDP101-105."""

from __future__ import annotations

from fsdp_migrate.code.legacy_methods import FLOOR
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.findings import Applicability
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Traced
from fsdp_migrate.targets.modernise.optimizer.legacy_calls import check
from fsdp_migrate.targets.modernise.optimizer.name_mentions import FIRST, KIND

_URL = "https://github.com/pytorch/pytorch/pull/191712"
_DEPRECATED = "2.0"
_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
_FULL_IMPORT = """\
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullyShardedDataParallel as FSDP,
    StateDictType,
)
"""
_SHARDED_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType\n"
_WARNS = """\


The methods are deprecated since torch 2.0, and an upstream change that is not merged yet makes them raise. The fix
adds `FSDP.state_dict_type`, which is deprecated since 2.4. Only this form gives the same values on the same ranks
and devices on every release since 2.1 (see FSDP210).

Comments and strings that name the method are hints, and so is a name for `getattr` that is built at run time."""


def _full_context(rank0_only: str) -> str:
    return f"""\
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only={rank0_only}),
    ):
"""


def _rule(code: str, method: str, applicability: str, explanation: str, flags: tuple[Example, ...]) -> Rule:
    card = RuleCard(
        code=code,
        name=method.replace("_", "-"),
        summary=f"`FSDP.{method}`, deprecated since torch 2.0",
        explanation=explanation + _WARNS,
        applicability=applicability,
        deprecated=_DEPRECATED,
        floor=FLOOR,
        brings=("FSDP210",),
        flags=flags,
        leaves=(
            "from fairscale.nn import FullyShardedDataParallel as FSDP\n\n\n"
            f"def f(a, b):\n    return FSDP.{method}(a, b, b)\n",
            f"class Trainer:\n    def {method}(self, a, b):\n        return self.{method}(b, a)\n",
        ),
        url=_URL,
    )
    hinted = (f"*{KIND}",) if method == FIRST else ()
    return Rule(card, (method,), check, calls=lambda: (Traced(f"{FSDP}.{method}"),), hinted=hinted)


FULL = _rule(
    "FSDP101",
    "full_optim_state_dict",
    "safe, unsafe or manual",
    """\
`FSDP.full_optim_state_dict` gathers the whole optimizer state, by default on rank 0 only; other ranks get `{}`. Its
replacement, `FSDP.optim_state_dict`, takes type, offload and ranks from the model's current settings. By default
they put the full state on *every* rank, so a bare rename exhausts host memory. The fix sets the type around the
call, with an optimizer config that has the `rank0_only` of the call (True if absent). `optim_input` is removed, and
`group` stays as a keyword.""",
    (
        Example(
            before=_IMPORT + "\n\ndef save(model, optim):\n    return FSDP.full_optim_state_dict(model, optim)\n",
            after=_FULL_IMPORT
            + "\n\ndef save(model, optim):\n"
            + _full_context("True")
            + "        return FSDP.optim_state_dict(model, optim)\n",
        ),
        Example(
            before=_IMPORT + "\n\ndef save(model, *args):\n    return FSDP.full_optim_state_dict(model, *args)\n",
            note="the arguments are not visible",
        ),
    ),
)

SHARDED = _rule(
    "FSDP102",
    "sharded_optim_state_dict",
    "safe, unsafe or manual",
    """\
`FSDP.sharded_optim_state_dict` gives every rank its shards, on the CPU. The fix calls `FSDP.optim_state_dict` under
`SHARDED_STATE_DICT`. If the model was built with a `device_mesh` (since torch 2.2), the new call returns DTensor and
the old one returned ShardedTensor. The fix is safe only if the file builds the FSDP model itself, without a mesh,
and no other file of the project names a `device_mesh` (or the function builds this very model).

The third position was `optim_input` in 1.13 and is `group` since 2.0.""",
    (
        Example(
            before=_IMPORT + "\n\ndef save(model, optim):\n    return FSDP.sharded_optim_state_dict(model, optim)\n",
            after=_SHARDED_IMPORT
            + """\


def save(model, optim):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return FSDP.optim_state_dict(model, optim)
""",
            note="the model may have a device mesh",
            applicability=Applicability.UNSAFE,
        ),
        Example(
            before=_IMPORT
            + """\


def run(module, optim):
    model = FSDP(module)
    return FSDP.sharded_optim_state_dict(model, optim)
""",
            after=_SHARDED_IMPORT
            + """\


def run(module, optim):
    model = FSDP(module)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return FSDP.optim_state_dict(model, optim)
""",
        ),
    ),
)


def _loading(method: str, context: str, imports: str, arguments: str = "osd, model") -> tuple[Example, ...]:
    return (
        Example(
            before=_IMPORT
            + "\n\ndef load(model, optim, osd):\n"
            + f"    flat = FSDP.{method}({arguments})\n    optim.load_state_dict(flat)\n",
            after=imports
            + f"""\


def load(model, optim, osd):
{context}\
        flat = FSDP.optim_state_dict_to_load(model=model, optim=optim, optim_state_dict=osd)
    optim.load_state_dict(flat)
""",
        ),
        Example(
            before=_IMPORT + f"\n\ndef convert(model, osd):\n    return FSDP.{method}(osd, model)\n",
            note="the optimizer is not visible",
        ),
    )


_OPTIMIZER = """

The fix takes the optimizer from `optim=`, from the object that the same function loads the result into, or from
another FSDP call there that pairs one optimizer with this model. Otherwise the finding is manual. Without `optim=`
the old method numbered parameters as `model.parameters()` does, and the new one as the optimizer's groups do. The
loaded state is the same, unless the groups have another order than the model: then the old call loaded the wrong
state, and the new one loads the right one."""

SHARD_FULL = _rule(
    "FSDP103",
    "shard_full_optim_state_dict",
    "safe, unsafe or manual",
    """\
`FSDP.shard_full_optim_state_dict` takes this rank's part of a full state dict that every rank has. Its replacement
`FSDP.optim_state_dict_to_load` needs the optimizer, and a `FULL_STATE_DICT` context with `rank0_only=False`: under
an outer `rank0_only=True` it would ignore the state of the other ranks."""
    + _OPTIMIZER,
    _loading("shard_full_optim_state_dict", _full_context("False"), _FULL_IMPORT),
)

SCATTER_FULL = _rule(
    "FSDP104",
    "scatter_full_optim_state_dict",
    "safe, unsafe or manual",
    """\
`FSDP.scatter_full_optim_state_dict` sends the parts of a full state dict from rank 0; other ranks may pass None. Its
replacement `FSDP.optim_state_dict_to_load` does so only under an optimizer config with `rank0_only=True`. Without it
the other ranks raise while rank 0 waits for them. The replacement also needs the optimizer."""
    + _OPTIMIZER
    + " The fourth position was `group` in torch 1.12 and is `optim` since 1.13.",
    _loading("scatter_full_optim_state_dict", _full_context("True"), _FULL_IMPORT),
)

FLATTEN_SHARDED = _rule(
    "FSDP105",
    "flatten_sharded_optim_state_dict",
    "safe, unsafe or manual",
    """\
`FSDP.flatten_sharded_optim_state_dict` converts a sharded state dict for this rank's optimizer. The fix calls
`FSDP.optim_state_dict_to_load` under `SHARDED_STATE_DICT`. The third position was `optim_input` in torch 1.13 and is
`optim` since 2.0."""
    + _OPTIMIZER,
    _loading(
        "flatten_sharded_optim_state_dict",
        "    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n",
        _SHARDED_IMPORT,
        "osd, model, optim",
    ),
)

RULES = (FULL, SHARDED, SHARD_FULL, SCATTER_FULL, FLATTEN_SHARDED)
