"""The names of parameters, and what wrappers put in front of them."""

from __future__ import annotations

from collections.abc import Collection

DDP = "module"
"""What DistributedDataParallel puts in front of all names; a model may have a part of that name itself."""
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""What torch.compile, FSDP1 and activation checkpointing put into names, wherever they wrap."""


def prefixes(names: Collection[str]) -> dict[str, int]:
    """How many of `names` have which prefix."""
    counts = {f"{wrapper}.": sum(wrapper in name.split(".") for name in names) for wrapper in WRAPPERS}
    if _is_ddp(names):
        counts[f"{DDP}."] = len(names)
    return {prefix: count for prefix, count in counts.items() if count}


def stripped(names: Collection[str]) -> dict[str, str]:
    """Each of `names` without prefixes."""
    short = {name: _unwrapped(name) for name in names}
    if not _is_ddp(names):
        return short
    return {name: new.removeprefix(f"{DDP}.") for name, new in short.items()}


def _unwrapped(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _is_ddp(names: Collection[str]) -> bool:
    return bool(names) and all(_unwrapped(name).startswith(f"{DDP}.") for name in names)
