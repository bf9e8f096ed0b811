"""The generated module against FSDP1: `python -m tests.verify.against_fsdp1 MODULE [CASE ...]`, on gloo.

Each case trains a net that FSDP1 wraps, and the same one that the module shards with the same arguments, and prints the
largest difference of losses, parameters and buffers as a line of JSON. The ranks are forks of one process.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch._dynamo  # the ranks are to find it loaded
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp.wrap import (
    CustomPolicy,
    ModuleWrapPolicy,
    always_wrap_policy,
    lambda_auto_wrap_policy,
    size_based_auto_wrap_policy,
)
from torch.distributed.tensor import DTensor

CPU = torch.device("cpu")
STEPS = 4
SECONDS = 60
BF16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
_MESH = ("replicate", "shard")


class Half(nn.Module):
    """A convolution and its normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        x = (x.float() * gain).to(x.dtype)  # which says whether `gain` was cast
        return x + torch.relu(self.norm(self.conv(x)))


class Scaled(nn.Module):
    """A parameter and a buffer of its own, and random values at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(4, 4))
        self.register_buffer("scale", torch.ones(4), persistent=False)
        self.register_buffer("shift", torch.ones(4))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.5)
        self.scale.fill_(1.5)
        self.shift.fill_(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.einsum("bct,cd->bdt", x, self.weight)
        return torch.tanh(y * self.scale[:, None].to(x.dtype) + self.shift[:, None].to(x.dtype))


class Net(nn.Module):
    """Something of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(3, 4, 1)
        self.halves = nn.ModuleList([Half(), Half()])
        self.scaled = nn.Sequential(Scaled(), Scaled())
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gain = torch.linspace(0.9, 1.1, x.shape[-1])
        x = self.first(x)
        for half in self.halves:
            x = half(x, gain)
        return self.last(self.scaled(x).to(x.dtype).mean(-1))


class Case(NamedTuple):
    """What a constructor is given, and how many ranks there are.

    The first weights vary with the rank, or are on the meta device. Of several data groups each gets its own batches.
    `clip` is a norm to clip to; `accumulates` is about two backward passes before a step.
    """

    arguments: dict[str, Any]
    ranks: int = 2
    varies: bool = False
    meta: bool = False
    data_groups: int = 1
    clip: float | None = None
    accumulates: bool = False


BY_CLASS = ModuleWrapPolicy({Half, Scaled})
SHARDED = {"auto_wrap_policy": BY_CLASS}


def _mixed(module: nn.Module) -> bool | dict[str, Any]:
    if isinstance(module, Scaled):
        precision = MixedPrecision(torch.bfloat16, torch.float32, cast_forward_inputs=True)
        return {"mixed_precision": precision, "sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
    return isinstance(module, Half)


def _initialise(module: nn.Module) -> None:
    module.to_empty(device=CPU, recurse=False)
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()


def _allocate(module: nn.Module) -> None:
    module.to_empty(device=CPU, recurse=False)


def cases() -> dict[str, Case]:
    """The cases that need no process group to be written down."""
    strategies = ShardingStrategy
    buffers = MixedPrecision(param_dtype=torch.float32, buffer_dtype=torch.bfloat16)
    return {
        "full": Case(SHARDED),
        "no_policy": Case({"mixed_precision": MixedPrecision(reduce_dtype=torch.bfloat16)}),
        "grad_op": Case({**SHARDED, "sharding_strategy": strategies.SHARD_GRAD_OP}),
        "no_shard": Case({**SHARDED, "sharding_strategy": strategies.NO_SHARD}),
        "precision": Case({**SHARDED, "mixed_precision": BF16}),
        "casts_below": Case(
            {**SHARDED, "mixed_precision": MixedPrecision(torch.bfloat16, torch.float32, cast_forward_inputs=True)}
        ),
        "buffers": Case({**SHARDED, "mixed_precision": buffers}),
        "size": Case({"auto_wrap_policy": functools.partial(size_based_auto_wrap_policy, min_num_params=40)}),
        "size_precision": Case(
            {
                "auto_wrap_policy": functools.partial(size_based_auto_wrap_policy, min_num_params=60),
                "mixed_precision": BF16,
            }
        ),
        "function": Case(
            {
                "auto_wrap_policy": functools.partial(
                    lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, nn.Conv1d)
                )
            }
        ),
        "always": Case({"auto_wrap_policy": always_wrap_policy}),
        "custom": Case({"auto_wrap_policy": CustomPolicy(lambda m: isinstance(m, (Half, nn.Linear)))}),
        "custom_dicts": Case({"auto_wrap_policy": CustomPolicy(_mixed)}),
        "synchronised": Case({**SHARDED, "sync_module_states": True}, varies=True),
        "synchronised_hybrid": Case({**SHARDED, "sync_module_states": True, "mesh": True}, 4, varies=True),
        "initialised": Case({**SHARDED, "param_init_fn": _initialise}, meta=True),
        "reset": Case(SHARDED, meta=True),
        "first_rank_has_weights": Case(
            {**SHARDED, "sync_module_states": True, "param_init_fn": "allocate"}, varies=True
        ),
        "ignored_modules": Case({**SHARDED, "ignored": "modules"}),
        "ignored_states": Case({**SHARDED, "ignored": "states"}),
        "ignored_size": Case(
            {
                "auto_wrap_policy": functools.partial(size_based_auto_wrap_policy, min_num_params=20),
                "ignored": "modules",
            }
        ),
        "group": Case({**SHARDED, "group": "world"}),
        "group_no_shard": Case({**SHARDED, "group": "world", "sharding_strategy": strategies.NO_SHARD}),
        "groups_of_replicas": Case({**SHARDED, "group": "data"}, 4, data_groups=2),
        "pair_of_groups": Case({**SHARDED, "group": "pair", "sharding_strategy": strategies._HYBRID_SHARD_ZERO2}, 4),
        "mesh": Case({**SHARDED, "mesh": "flat"}),
        "hybrid": Case({**SHARDED, "mesh": True}, 4),
        "hybrid_unnamed": Case({**SHARDED, "mesh": "unnamed"}, 4),
        "hybrid_by_devices": Case({**SHARDED, "sharding_strategy": strategies.HYBRID_SHARD}, 4),
        "unpacked": Case({**SHARDED, "limit_all_gathers": True, "forward_prefetch": False}),
        "accumulating": Case(SHARDED, accumulates=True),
        "accumulating_precision": Case(
            {**SHARDED, "mixed_precision": MixedPrecision(torch.bfloat16)}, accumulates=True
        ),
        "clipping": Case(SHARDED, clip=0.05),
        "clipping_ignored": Case({**SHARDED, "ignored": "modules"}, clip=0.05),
    }


def _given(case: Case, net: Net) -> dict[str, Any]:
    """The arguments, with what needs the process group or the net."""
    given = {**case.arguments, "device_id": CPU}
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh, group, ignored = (given.pop(name, None) for name in ("mesh", "group", "ignored"))
    if mesh in (True, "unnamed"):
        given.setdefault("sharding_strategy", ShardingStrategy.HYBRID_SHARD)
        names = {} if mesh == "unnamed" else {"mesh_dim_names": _MESH}
        given["device_mesh"] = init_device_mesh("cpu", (2, 2), **names)
    elif mesh is not None:
        given["device_mesh"] = init_device_mesh("cpu", (world,))
    if group == "world":
        given["process_group"] = dist.new_group(list(range(world)))
    elif group == "data":
        groups = [dist.new_group([first, first + 2]) for first in range(2)]
        given["process_group"] = groups[rank % 2]
    elif group == "pair":
        shards = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        replicas = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        given["process_group"] = (shards[rank // 2], replicas[rank % 2])
    if given.get("param_init_fn") == "allocate":
        given["param_init_fn"] = None if rank == 0 else _allocate
    if ignored == "modules":
        given["ignored_modules"] = [net.scaled[0]]
    elif ignored == "states":
        given["ignored_states"] = [net.scaled[0].weight, net.last.bias]
    return given


def _net(case: Case) -> Net:
    rank = dist.get_rank()
    torch.manual_seed(rank if case.varies else 0)
    if case.meta or (case.arguments.get("param_init_fn") == "allocate" and rank):
        with torch.device("meta"):
            return Net()
    return Net()


def _train(model: nn.Module, case: Case, no_sync: Any, clip: Any) -> list[float]:
    # The norm is a sum in another order, and Adam makes much of what rounding leaves of gradients that are zero.
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if case.clip is not None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(dist.get_rank() // case.data_groups)
    losses = []
    for _ in range(STEPS):
        if case.accumulates:
            with no_sync():
                model(torch.randn(4, 3, 5, generator=generator)).float().square().mean().backward()
        x = torch.randn(4, 3, 5, generator=generator)
        loss = nn.functional.cross_entropy(model(x).float(), torch.arange(4) % 2)
        loss.backward()
        if case.clip is not None:
            for parameter in model.get_submodule("scaled.0").parameters() if "ignored" in case.arguments else ():
                dist.all_reduce(parameter.grad)  # else each rank has a norm of its own
            losses.append(clip(case.clip).item())
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item())
    return losses


def compare(name: str, case: Case, build_old: Any, build_new: Any, module: Any = None) -> dict[str, Any]:
    """Train the nets that two functions wrap, and say how much their losses and values differ.

    Units, dtypes and what is sharded have to be the same. `module` has what FSDP1 has as methods.
    """
    net = _net(case)
    torch.manual_seed(7)
    old = build_old(net)
    old_losses = _train(old, case, old.no_sync, old.clip_grad_norm_)
    with FullyShardedDataParallel.state_dict_type(
        old, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=False)
    ):
        old_state = {key: value.clone() for key, value in old.state_dict().items()}
    old_units = sorted(
        name.replace("_fsdp_wrapped_module", "").replace("..", ".").strip(".")
        for name, one in old.named_modules()
        if isinstance(one, FullyShardedDataParallel) and not isinstance(one.module, (nn.ModuleList, nn.ModuleDict))
    )
    handles = FullyShardedDataParallel.fsdp_modules(old)
    is_whole = not any(one._handle is not None and one._handle.uses_sharded_strategy for one in handles)
    old_buffers = {key: value.clone() for key, value in old.named_buffers()}
    net = _net(case)
    torch.manual_seed(7)
    new = build_new(net)
    assert new is net
    assert old_units == sorted(name for name, one in new.named_modules() if isinstance(one, FSDPModule))
    shares = [p for p in new.parameters() if isinstance(p, DTensor)]
    assert is_whole == all(p.to_local().shape == p.shape for p in shares)
    no_sync, clip = (getattr(module, one, None) for one in ("no_sync", "clip_grad_norm_"))
    new_losses = _train(new, case, functools.partial(no_sync or print, new), functools.partial(clip or print, new))
    new_state = get_model_state_dict(new, options=StateDictOptions(full_state_dict=True))
    assert {k: v.dtype for k, v in old_state.items()} == {k: v.dtype for k, v in new_state.items()}
    buffers = {key.replace("_fsdp_wrapped_module.", ""): value for key, value in old_buffers.items()}
    new_buffers = dict(new.named_buffers())
    assert {k: b.dtype for k, b in buffers.items()} == {k: b.dtype for k, b in new_buffers.items()}
    pairs = [*((old_state[k], new_state[k]) for k in old_state), *((buffers[k], new_buffers[k]) for k in buffers)]
    return {
        "case": name,
        "losses": max(abs(a - b) for a, b in zip(old_losses, new_losses)),
        "values": max((a.double() - b.double()).abs().max().item() for a, b in pairs),
    }


def _generated(name: str, path: str) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("generated", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    case = cases()[name]
    return compare(
        name,
        case,
        lambda net: FullyShardedDataParallel(net, use_orig_params=True, **_given(case, net)),
        lambda net: module.shard(net, **_given(case, net)),
        module,
    )


def run(name: str, ranks: int, work: Callable[[], dict[str, Any]]) -> None:
    """Do some work on several ranks; print what it returns on the first, or what goes wrong."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = set()
    for rank in range(ranks):
        process = os.fork()
        if process == 0:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            os._exit(_on_rank(name, rank, work))
        processes.add(process)
    end = time.monotonic() + SECONDS
    while processes and time.monotonic() < end:
        process, _ = os.waitpid(-1, os.WNOHANG)
        processes.discard(process)
        time.sleep(0.02)
    for process in processes:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    if processes:
        print(json.dumps({"case": name, "error": "it hung"}), flush=True)


def _on_rank(name: str, rank: int, work: Callable[[], dict[str, Any]]) -> int:
    import torch.distributed.fsdp._init_utils as checks

    checks._check_module_states_for_sync_module_states = lambda *_: None  # FSDP1 refuses the CPU
    torch.cpu.device_count = lambda: 2  # what a node has
    try:
        dist.init_process_group("gloo")
        result, code = work(), 0
    except BaseException:
        result, code = {"case": name, "error": traceback.format_exc()}, 1
    if rank == 0:
        print(json.dumps(result), flush=True)
    return code


if __name__ == "__main__":
    torch.set_num_threads(1)
    with open(os.devnull, "w") as sys.stderr:  # FSDP1 warns much
        for chosen in sys.argv[2:] or cases():
            run(chosen, cases()[chosen].ranks, functools.partial(_generated, chosen, sys.argv[1]))
