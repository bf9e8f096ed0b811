"""What tests of the target ask: the findings of a program, and what becomes of it."""

from __future__ import annotations

from textwrap import dedent, indent

from fsdp_migrate import rewrite_source
from fsdp_migrate.findings import Finding
from fsdp_migrate.lint import lint_source

IMPORTS = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
)


"""
RANK_0 = "StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)"
BOTH_RANK_0 = f"{RANK_0}, FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)"


# Up to torch 2.7 sharded state dicts are not the same on every rank.
TORCH = ">=2.8"


def block(setting: str, body: str, behind: str = "", before: str = "") -> str:
    """A function with a block under `setting` (what stands behind the model), and what is around it."""
    parts = [
        "def f(model, optimizer, rank, path):\n",
        indent(dedent(before), "    "),
        f"    with FSDP.state_dict_type(model, {setting}):\n",
        indent(dedent(body), "        "),
        indent(dedent(behind), "    "),
    ]
    return IMPORTS + "".join(part if part.endswith("\n") or not part else f"{part}\n" for part in parts)


def found(text: str, torch: str = TORCH) -> list[Finding]:
    """The findings of FSDP210."""
    return [finding for finding in lint_source(dedent(text), "a.py", torch, target="dcp") if finding.code == "FSDP210"]


def only(text: str, torch: str = TORCH) -> Finding:
    """The only finding of FSDP210."""
    (finding,) = found(text, torch)
    return finding


def rewritten(text: str, torch: str = TORCH, *, unsafe: bool = False) -> str:
    """The program after the rewrite, which a second one leaves as it is."""
    result = rewrite_source(dedent(text), "a.py", torch, unsafe, target="dcp")
    assert result.error is None
    again = rewrite_source(result.source, "a.py", torch, unsafe, target="dcp")
    assert again.source == result.source
    return result.source
