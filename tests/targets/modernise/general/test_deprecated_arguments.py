from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop, check_transformed, lint

CODE = "FSDP520"
PLANNER = "import torch.distributed.checkpoint as dcp\n"
STATE_DICT = "from torch.distributed.checkpoint.state_dict import "
FUNCTIONAL = "from torch.distributed import _functional_collectives as funcol\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("dcp.DefaultSavePlanner(True, dedup_replicated_tensors=True)", "dcp.DefaultSavePlanner(True)"),
        ("dcp.DefaultSavePlanner(False, True, True)", "dcp.DefaultSavePlanner(False, True)"),
        (
            "dcp.default_planner.DefaultSavePlanner(False, True, True, True)",
            "dcp.default_planner.DefaultSavePlanner(False, True, dedup_save_to_lowest_rank=True)",
        ),
    ],
)
def test_an_argument_of_the_planner_without_effect_is_dropped(before: str, after: str) -> None:
    check_transformed(f"{PLANNER}planner = {before}\n", f"{PLANNER}planner = {after}\n", CODE)


def test_what_older_planners_read_stays_with_them() -> None:
    before = f"{PLANNER}planner = dcp.DefaultSavePlanner(dedup_replicated_tensors=False)\n"
    check_manual(before, CODE, "before 2.3")
    check_transformed(before, f"{PLANNER}planner = dcp.DefaultSavePlanner()\n", CODE, torch=">=2.3")
    check_noop(before, CODE, torch=">=2.1,<2.3")
    check_manual(
        f"{PLANNER}planner = dcp.DefaultSavePlanner(dedup_replicated_tensors=f())\n",
        CODE,
        "unless its value has side effects",
    )


@pytest.mark.parametrize("function", ["get_state_dict", "get_model_state_dict", "get_optimizer_state_dict"])
def test_state_dicts_of_submodules(function: str) -> None:
    imported = f"{STATE_DICT}{function}\n"
    check_manual(f"{imported}{function}(model, submodules=parts, **options)\n", CODE, "keep the keys")
    check_noop(f"{imported}{function}(model, submodules=None)\n", CODE)
    check_noop(f"{imported}{function}(model, submodules=parts)\n", CODE, torch="<2.4,>=2.2")


@pytest.mark.parametrize(
    "call",
    [
        "set_model_state_dict(model, {model.encoder: state, model.decoder: other})",
        "set_model_state_dict(model, model_state_dict={model.layers[0]: state})",
        "set_model_state_dict(self.model, {self.model: state})",
        "set_state_dict(model, optim, model_state_dict={model.encoder: state}, optim_state_dict=more)",
    ],
)
def test_state_dicts_by_modules(call: str) -> None:
    check_manual(f"{STATE_DICT}set_model_state_dict, set_state_dict\n{call}\n", CODE, "before each key")


def test_a_dict_by_modules_that_has_a_name() -> None:
    check_manual(
        f"{STATE_DICT}set_model_state_dict\nparts = {{model.encoder: state}}\nset_model_state_dict(model, parts)\n",
        CODE,
        "before each key",
    )


@pytest.mark.parametrize("state", ["{name: w}", "{**state}", "{'a': w}", "{}", "state", "{prefix.key: w}"])
def test_other_state_dicts_are_left_alone(state: str) -> None:
    check_noop(f"{STATE_DICT}set_model_state_dict\nset_model_state_dict(model, {state})\n", CODE)


@pytest.mark.parametrize(
    "call",
    [
        "funcol.all_reduce(x, 'sum', [0, 1])",
        "funcol.all_gather_tensor(x, 0, group=[[0, 1], [2, 3]])",
        "funcol.all_reduce(x, 'sum', list(range(size)), 'tag')",
        "funcol.broadcast(x, 0, [rank for rank in range(size)])",
        "ranks = [0, 1]\nfuncol.all_reduce(x, 'sum', ranks)",
    ],
)
def test_groups_given_by_ranks(call: str) -> None:
    findings = lint(f"{FUNCTIONAL}{call}\n", CODE)
    assert [finding.message for finding in findings] == ["a list of ranks as `group` is deprecated since torch 2.3"]


@pytest.mark.parametrize("group", ["mesh", "(mesh, 0)", "dist.group.WORLD", "'0'", "dist.new_group([0, 1])"])
def test_groups_given_otherwise_are_left_alone(group: str) -> None:
    check_noop(f"{FUNCTIONAL}import torch.distributed as dist\nfuncol.all_reduce(x, 'sum', {group})\n", CODE)


def test_the_type_that_gather_enforces() -> None:
    imported = "from torch.distributed._shard.sharded_tensor import ShardedTensor\n"
    check_manual(f"{imported}tensor.gather(0, out, enforce_dtype=True)\n", CODE, "`dtype=`")
    check_noop(f"{imported}tensor.gather(0, out, enforce_dtype=False)\ntensor.gather(0, out)\n", CODE)
