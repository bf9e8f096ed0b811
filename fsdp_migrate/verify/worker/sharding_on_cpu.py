"""What `fully_shard` of older releases needs to be right on a CPU with gloo (measured on 2.6 to 2.9)."""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import Any

import torch
import torch.distributed as dist


def average() -> str:
    """Gloo adds up where FSDP2 asks for the mean, and says nothing."""
    for name in ("reduce_scatter_tensor", "all_reduce"):
        setattr(dist, name, _averaging(getattr(dist, name)))
    return "gloo gives sums where FSDP2 asks for means (torch before 2.9)"


def _averaging(original: Any) -> Any:
    @functools.wraps(original)
    def collective(*args: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, **options: Any) -> Any:
        is_mean = op == dist.ReduceOp.AVG
        work = original(*args, op=dist.ReduceOp.SUM if is_mean else op, group=group, **options)
        if is_mean:
            output: Any = args[0] if args else options.get("output", options.get("tensor"))
            if work is not None:
                work.wait()
            output.div_(dist.get_world_size(group))
        return work

    return collective


def keep_versions() -> str:
    """On GPUs gathering again leaves the versions of parameters as they are, on the CPU autograd sees a change."""
    groups: Any = importlib.import_module("torch.distributed.fsdp._fully_shard._fsdp_param_group")
    autograd: Any = torch.autograd
    original = groups.foreach_all_gather_copy_out

    @functools.wraps(original)
    def copy_out(gathered: Any, parameters: Any, group: Any) -> None:
        outputs = [output for one in parameters for output in getattr(one, "all_gather_outputs", ())]
        with contextlib.ExitStack() as kept:
            for output in outputs:
                kept.enter_context(autograd._unsafe_preserve_version_counter(output))
            original(gathered, parameters, group)

    groups.foreach_all_gather_copy_out = copy_out
    return "autograd takes parameters that are gathered again for changed ones (torch before 2.7)"
