"""What torch's FSDP needs to run correctly on a CPU with gloo. Never installed where the ranks have GPUs.

FSDP1 was written for CUDA. On a CPU two of its copies to the CPU are no copies, and then both the legacy and the
current API agree on wrong values; the oldest supported releases also miss pieces that only CUDA needs. Nothing that
decides what a state dict contains is replaced.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from . import sharding_on_cpu
from .kinds import FlatParamHandle, cpu


def install() -> list[str]:
    """Install what this release needs; returns one line for each workaround."""
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    done = [_copy_before_freeing()]
    if release >= (2, 2):
        done.append(_copy_gathered_state())
    if not hasattr(cpu, "memory_summary"):
        cpu.memory_summary = lambda *_, **__: ""  # asked for in torch's debug mode
    if release < (2, 4):
        done.append(_inert_cuda())
    if release < (2, 7):
        done.append(_inert_streams())
    if release < (2, 3):
        done.append(_flat_collectives())
    if (2, 6) <= release < (2, 9):
        done.append(sharding_on_cpu.average())
    if release == (2, 6):
        done.append(sharding_on_cpu.keep_versions())
    return done


def _copy_before_freeing() -> str:
    """`FlatParamHandle.to_cpu` frees the storage that its "copy" still uses (torch before 2.14)."""
    original = FlatParamHandle.to_cpu

    @contextlib.contextmanager
    def to_cpu(self: Any) -> Iterator[None]:
        if self.flat_param.device.type == "cpu":
            yield
        else:
            with original(self):
                yield

    FlatParamHandle.to_cpu = to_cpu
    return "offload_to_cpu of a state dict frees memory that is still in use"


def _copy_gathered_state() -> str:
    """`_allgather_orig_param_states` gathers every state into one buffer and relies on `.cpu()` to copy it."""
    from torch.distributed.fsdp import _optim_utils as utils

    original = utils._unflatten_orig_param_states

    @functools.wraps(original)
    def unflatten(
        fsdp_param_info: Any, output_states: Any, state_name: str, shard_state: bool, to_save: bool, cpu_offload: bool
    ) -> None:
        original(fsdp_param_info, output_states, state_name, shard_state, to_save, cpu_offload)
        if not to_save or shard_state or not cpu_offload:
            return
        for state in output_states.values():
            value = state.get(state_name)
            if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                state[state_name] = value.detach().clone()

    utils._unflatten_orig_param_states = unflatten
    return "gathered optimizer states of one parameter share one buffer (use_orig_params=True)"


def _inert_cuda() -> str:
    """The optimizer state of torch 2.1 to 2.3 calls torch.cuda with `use_orig_params=True`, whatever the device."""
    torch.cuda.memory_summary = lambda *_, **__: ""
    torch.cuda.synchronize = lambda *_, **__: None
    return "the optimizer state calls torch.cuda (torch before 2.4)"


class _Inert:
    """A stream or an event of a device that has none: everything is already done."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Inert:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def query(self) -> bool:
        """Whether all work is done: always."""
        return True

    def record_event(self, event: Any = None) -> Any:
        """An event after the work so far."""
        return event or _Inert()

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    record = synchronize = wait = wait_stream = wait_event = _nothing


def _inert_streams() -> str:
    """`torch.cpu.Stream` takes no arguments in torch 2.1 and 2.2, and has no events until 2.7, which FSDP2 records."""
    only = _Inert()
    cpu.Stream = _Inert
    cpu.Event = _Inert
    cpu.current_stream = lambda *_: only
    cpu.stream = lambda *_: contextlib.nullcontext()
    return "the streams of torch.cpu do not have the methods that FSDP calls (torch before 2.7)"


def _flat_collectives() -> str:
    """Gloo of torch 2.1 and 2.2 has no flat all-gather and reduce-scatter, and no all-gather of uneven parts."""
    from torch.distributed import distributed_c10d as c10d

    replaced = {
        "all_gather": _uneven_all_gather(c10d.all_gather),
        "all_gather_into_tensor": _all_gather_flat,
        "reduce_scatter_tensor": _reduce_scatter_flat,
    }
    for name, function in replaced.items():
        for module in (dist, c10d):
            setattr(module, name, function)
    return "gloo has no flat collectives (torch before 2.3)"


class _Done:
    """A collective that has already finished."""

    def wait(self, *_: Any) -> bool:
        """Return at once."""
        return True


def _all_gather_flat(output: torch.Tensor, part: torch.Tensor, group: Any = None, async_op: bool = False) -> Any:
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, part, group=group)
    output.copy_(torch.cat([gathered.reshape(-1) for gathered in parts]).view_as(output))
    return _Done() if async_op else None


def _reduce_scatter_flat(
    output: torch.Tensor, whole: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    total = whole.clone()
    dist.all_reduce(total, op=op, group=group)
    output.copy_(total.reshape(-1).chunk(dist.get_world_size(group))[dist.get_rank(group)].view_as(output))
    return _Done() if async_op else None


def _uneven_all_gather(original: Any) -> Any:
    def all_gather(parts: list[torch.Tensor], part: torch.Tensor, group: Any = None, async_op: bool = False) -> Any:
        if len({gathered.numel() for gathered in parts}) == 1:
            return original(parts, part, group=group, async_op=async_op)
        for source, gathered in enumerate(parts):
            if source == dist.get_rank(group):
                gathered.copy_(part)
            if gathered.numel():
                rank = source if group is None else dist.get_global_rank(group, source)
                dist.broadcast(gathered, rank, group=group)
        return _Done() if async_op else None

    return all_gather
