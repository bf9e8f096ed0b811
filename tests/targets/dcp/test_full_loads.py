"""FSDP710 and FSDP711: full state dicts with a broadcast that not all ranks join, or without one."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop, lint

IMPORT = "from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict, set_state_dict\n"
BOTH = "options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)"


def set_both(weights: str, options: str = BOTH) -> str:
    return f"set_state_dict(model, optim, model_state_dict={weights}, optim_state_dict=moments, {options})\n"


@pytest.mark.parametrize(
    ("above", "weights"),
    [
        ("", "full if rank == 0 else {}"),
        ("", "dict() if rank else full"),
        ("weights = {}\nif rank == 0:\n    weights = torch.load(path)\n", "weights"),
        ('file = torch.load(path) if rank == 0 else {"model": {}, "optim": {}}\n', 'file["model"]'),
    ],
)
def test_a_model_dict_that_is_empty_on_some_ranks_is_found(above: str, weights: str) -> None:
    check_manual(IMPORT + above + set_both(weights), "FSDP710", "set_optimizer_state_dict")


@pytest.mark.parametrize(
    "text",
    [
        set_both("torch.load(path)"),
        set_both("full if rank == 0 else {}", "options=StateDictOptions(full_state_dict=True)"),
        "weights = {}\n" + set_both("weights"),  # on every rank: the optimizer only
        "weights = {}\nweights.update(full)\n" + set_both("weights"),
        "weights = {}\nif rank == 0:\n    weights = full\nweights['a'] = a\n" + set_both("weights"),
        set_both("full if rank == 0 else {}", "options=options"),
        "for _ in range(2):\n    x = x if x else y\n    x = x['a']\n    " + set_both("x"),
        "x = y if y else y\ny = x if x else {}\n" + set_both("x['a']['b']"),
        f"set_model_state_dict(model, full if rank == 0 else {{}}, {BOTH})\n",
    ],
)
def test_other_loads_are_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP710")


def test_another_function_of_that_name_is_left() -> None:
    check_noop("import torch.distributed\nfrom mine import set_state_dict\n" + set_both("x if y else {}"), "FSDP710")


@pytest.mark.parametrize(
    "text",
    [
        "set_model_state_dict(model, full, options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n",
        "options = StateDictOptions(full_state_dict=True)\nset_model_state_dict(model, full, options=options)\n",
        "missing = set_model_state_dict(model, full, options=StateDictOptions(full_state_dict=True, strict=False))\n",
    ],
)
def test_a_full_load_without_a_broadcast_is_a_hint(text: str) -> None:
    check_manual(IMPORT + text, "FSDP711", "broadcast_from_rank0=True")
    (found,) = lint(IMPORT + text, "FSDP711")
    assert found.severity.value == "hint"


@pytest.mark.parametrize(
    "text",
    [
        f"set_model_state_dict(model, full, {BOTH})\n",
        f"set_model_state_dict(model, full, {BOTH.replace('True)', 'flag)')})\n",
        "set_model_state_dict(model, full, options=StateDictOptions(full_state_dict=True, strict=False))\n",
        "options = StateDictOptions(full_state_dict=True)\noptions.broadcast_from_rank0 = True\n"
        "set_model_state_dict(model, full, options=options)\n",
        "set_model_state_dict(model, full, options=StateDictOptions(full_state_dict=True, **more))\n",
        "set_model_state_dict(model, shards)\n",
    ],
)
def test_a_load_that_is_checked_or_cannot_be_told_is_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP711")


def test_below_torch_2_5_missing_keys_are_noticed() -> None:
    text = "set_model_state_dict(model, full, options=StateDictOptions(full_state_dict=True))\n"
    check_noop(IMPORT + text, "FSDP711", torch=">=2.3,<2.5")


def test_flat_parameters_lose_buffers_only() -> None:
    fsdp = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    load = "set_model_state_dict(model, full, options=StateDictOptions(full_state_dict=True))\n"
    (flat,) = lint(IMPORT + fsdp + "model = FSDP(net)\n" + load, "FSDP711")
    assert flat.message.startswith("missing buffers of a full state dict")
    (named,) = lint(IMPORT + fsdp + "model = FSDP(net, use_orig_params=True)\n" + load, "FSDP711")
    assert named.message.startswith("missing keys of a full state dict")
