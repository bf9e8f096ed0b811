"""Members of a model that depend on what its construction says, and members that packages define."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.fsdp2.converted import Converted, check_becomes, check_stays, check_wall
from tests.targets.fsdp2.programs import plan

IMPORT = "from torch.distributed.fsdp import CPUOffload, MixedPrecision\n"
MIXED = f"{IMPORT}model = FSDP(Net(), use_orig_params=True, mixed_precision=MixedPrecision(torch.bfloat16))\n"
UNFREEZING = (
    "model.requires_grad_(True)\n",
    "for p in model.parameters():\n    p.requires_grad = True\n",
    "for n, p in model.named_parameters():\n    p.requires_grad_('head' in n)\n",
)


@pytest.mark.parametrize("unfreezing", UNFREEZING)
def test_parameters_are_unfrozen_before_the_model_runs(unfreezing: str) -> None:
    check_stays(MIXED + unfreezing + "model(batch)\n")


@pytest.mark.parametrize("unfreezing", UNFREEZING)
@pytest.mark.parametrize(
    "program",
    [
        "model(batch)\n{}",
        "for batch in data:\n    model(batch)\n    {}",
        "def unfreeze():\n    {}\nmodel(batch)\nunfreeze()\n",
    ],
)
def test_parameters_may_be_unfrozen_later(program: str, unfreezing: str) -> None:
    indented = unfreezing.strip().replace("\n", "\n    " if "\n    {}" in program else "\n")
    text = program.format(indented) + "\n"
    assert any("unfrozen" in wall for wall in Converted(MIXED + text).walls)
    check_stays(f"model = FSDP(Net(), use_orig_params=True)\n{text}")


@pytest.mark.parametrize(
    "freezing", ["model.requires_grad_(False)", "for p in model.parameters():\n    p.requires_grad = False"]
)
def test_freezing_is_fine(freezing: str) -> None:
    check_stays(f"{MIXED}model(batch)\n{freezing}\n")


@pytest.mark.parametrize("cast", ["model.half()", "model.to(torch.float32)", "model.to(device, dtype)"])
def test_a_model_in_mixed_precision_is_not_cast(cast: str) -> None:
    check_wall(f"{MIXED}{cast}\n", "casts parameters of a model in mixed precision")


def test_a_model_on_the_cpu_is_not_moved() -> None:
    check_stays("model = FSDP(Net())\nmodel.to(device)\n")
    program = f"{IMPORT}model = FSDP(Net(), cpu_offload=CPUOffload(True))\nmodel.to(device)\n"
    check_wall(program, "moves parameters that are kept on the CPU")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("model.summon_full_params(model)", "is called on the model"),
        ("model.add_module('head', nn.Linear(1, 1))", "changes a model that is sharded"),
        ("x = model.head.state_dict()", "gives or takes sharded tensors"),
        ("model.__class__.__name__", "asks for the class of a model"),
        ("x = model.get_parameter('head.weight').sum()", "reads the elements"),
    ],
)
def test_this_is_a_wall(program: str, reason: str) -> None:
    net = "class Net(nn.Module):\n    def __init__(self):\n        self.head = nn.Linear(1, 1)\n"
    check_wall(f"{net}model = FSDP(Net())\n{program}\n", reason)


LOSS = "torch.distributed.all_reduce(loss, group={group})\n"


def test_the_group_of_a_model_on_all_ranks() -> None:
    built = "model = FSDP(nn.Linear(1, 1), sharding_strategy=torch.distributed.fsdp.ShardingStrategy.NO_SHARD)\n"
    check_becomes(
        f"import torch.distributed as dist\n{built}{LOSS.format(group='model.process_group')}",
        f"import torch.distributed as dist\n{built}{LOSS.format(group='dist.group.WORLD')}",
    )


@pytest.mark.parametrize(
    "argument", ["device_mesh=mesh", "process_group=group", "sharding_strategy=strategy", "**more"]
)
def test_the_group_of_a_model_may_be_decided_at_run_time(tmp_path: Path, argument: str) -> None:
    built = f"def build(mesh, group, strategy, more):\n    return FSDP(torch.nn.Linear(1, 1), {argument})\n"
    head = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    done = plan(tmp_path, f"{head}{built}model = build(*x)\n{LOSS.format(group='model.process_group')}", unsafe=True)
    assert done.left == ()
    assert done.texts["train.py"].endswith(LOSS.format(group="group_of(model)"))


def test_the_group_of_what_may_be_a_ddp_model_is_a_wall() -> None:
    program = "model = FSDP(nn.Linear(1, 1))\nother = make()\nx = model.process_group\n"
    check_wall(program, "may also be a DDP model", others=("make()",))


def test_what_a_package_defines_is_declared() -> None:
    program = """
    from somewhere import Net
    model = FSDP(Net(), use_orig_params=True)
    table = model.rotary.compute(3)
    depth = 2 + model.depth
    """
    found = Converted(program)
    assert found.walls == []
    assert len(set(found.differences)) == 1
    assert "another package defines" in found.differences[0]


def test_the_class_of_a_model_that_is_saved_is_declared() -> None:
    found = Converted(
        "from transformers import AutoModel\nmodel = FSDP(AutoModel())\nmodel.save_pretrained(x, state_dict=y)\n"
    )
    assert found.walls == []
    assert "begins with `FSDP`" in found.differences[0]


def test_unfreezing_without_param_dtype_is_a_difference() -> None:
    program = """
    from torch.distributed.fsdp import MixedPrecision
    if torch.cuda.is_bf16_supported():
        policy = MixedPrecision(reduce_dtype=torch.bfloat16)
    else:
        policy = None
    model = FSDP(module, mixed_precision=policy)
    model(x).sum().backward()
    for p in model.parameters():
        p.requires_grad = True
    """
    done = Converted(program)
    assert not done.walls
    assert any("in their own dtype" in what for what in done.differences)
