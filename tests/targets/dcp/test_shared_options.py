"""FSDP719: one options object for model and optimizer, where the types that a file sets have settings for each."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop, lint

IMPORT = """\
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_optimizer_state_dict, get_state_dict
)
from torch.distributed.fsdp import (
    FullOptimStateDictConfig, FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType
)

"""


def before(type_name: str, configs: str = "", asked: str = "FSDP.optim_state_dict(model, optim)") -> str:
    return (
        "def before(model, optim):\n"
        f"    with FSDP.state_dict_type(model, StateDictType.{type_name}{configs}):\n"
        f"        return model.state_dict(), {asked}\n\n\n"
    )


def after(fields: str) -> str:
    return (
        "def after(model, optim):\n"
        f"    options = StateDictOptions({fields})\n"
        "    weights = get_model_state_dict(model, options=options)\n"
        "    return weights, get_optimizer_state_dict(model, optim, options=options)\n"
    )


ON_RANK_0 = "offload_to_cpu=True, rank0_only=True"
MODEL = f", FullStateDictConfig({ON_RANK_0})"
BOTH = MODEL + f", FullOptimStateDictConfig({ON_RANK_0})"
FULL_ON_CPU = "full_state_dict=True, cpu_offload=True"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            before("FULL_STATE_DICT", MODEL),
            after(FULL_ON_CPU),
            "was on the CPU of every rank, and is on the CPU of rank 0",
        ),
        (
            before("FULL_STATE_DICT"),
            after("full_state_dict=True"),
            "the optimizer's state was on the CPU of every rank",
        ),
        (before("SHARDED_STATE_DICT"), after(""), "the optimizer's state was on the CPU, and is on the device"),
        (before("SHARDED_STATE_DICT"), after("cpu_offload=True"), "the model's state was on the device"),
        (
            before("FULL_STATE_DICT", MODEL),
            f"get_state_dict(model, optim, options=StateDictOptions({FULL_ON_CPU}))\n",
            "of every rank, and is on the CPU of rank 0",
        ),
    ],
)
def test_options_that_differ_from_one_of_the_configs_are_a_hint(old: str, new: str, says: str) -> None:
    check_manual(IMPORT + old + new, "FSDP719", "each with its own options")
    (found,) = lint(IMPORT + old + new, "FSDP719")
    assert (found.severity.value, says in found.message) == ("hint", True)


@pytest.mark.parametrize(
    "text",
    [
        before("FULL_STATE_DICT", BOTH) + after(FULL_ON_CPU),
        after(FULL_ON_CPU),
        before("FULL_STATE_DICT", MODEL, "None") + after(FULL_ON_CPU),  # the optimizer's state was never asked for
        before("FULL_STATE_DICT", MODEL) + after(""),  # another type
        before("FULL_STATE_DICT", ", config") + after(FULL_ON_CPU),
        before("FULL_STATE_DICT", MODEL) + after("full_state_dict=full, cpu_offload=True"),
        before("FULL_STATE_DICT", MODEL)
        + after(FULL_ON_CPU).replace("optim, options=options", f"optim, options=StateDictOptions({FULL_ON_CPU})"),
        before("FULL_STATE_DICT", MODEL) + f"get_state_dict(model, [], options=StateDictOptions({FULL_ON_CPU}))\n",
    ],
)
def test_options_of_their_own_and_configs_that_agree_are_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP719")
