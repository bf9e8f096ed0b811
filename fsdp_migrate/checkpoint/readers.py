"""What reads a part of a checkpoint, and what does not: facts about torch, by layout."""

from __future__ import annotations

from typing import NamedTuple

from fsdp_migrate.checkpoint.contents import Format
from fsdp_migrate.checkpoint.layout import DECOUPLED, Keys, Kind, Layout, Part


class Readers(NamedTuple):
    """What reads a part, what does not, and what happens to those that try."""

    reads: tuple[str, ...]
    not_: tuple[str, ...]
    hazards: tuple[str, ...]


_AGAIN = ("to read it elsewhere, run the program that wrote it again and save under FULL_STATE_DICT",)
_FOLDERS = "dcp.load: it reads folders"
_FILE = "torch.load: convert makes a file"
_BY_NAME = "they look state up by name; convert with --parameter-names"
_TABLE: dict[tuple[Format, Kind, Layout, Keys | None], tuple[tuple[str, ...], tuple[str, ...]]] = {
    (Format.FULL, Kind.MODEL, Layout.FULL, None): (
        (
            "model.load_state_dict of the model without wrappers, or of FSDP1 under FULL_STATE_DICT",
            "set_model_state_dict with full_state_dict=True, broadcast_from_rank0=True (torch 2.4 and newer)",
        ),
        (_FOLDERS,),
    ),
    (Format.FULL, Kind.OPTIMIZER, Layout.FULL, Keys.NAME): (
        (
            "FSDP.optim_state_dict_to_load (torch 2.1 and newer)",
            "set_optimizer_state_dict with full_state_dict=True (torch 2.4 and newer)",
        ),
        (
            "optimizer.load_state_dict: it takes the entries in their order, whatever their names",
            _FOLDERS,
        ),
    ),
    (Format.FULL, Kind.OPTIMIZER, Layout.FULL, Keys.NUMBER): (
        ("load_state_dict of an optimizer whose groups hold the same parameters in the same order, without FSDP",),
        (
            f"FSDP.optim_state_dict_to_load and set_optimizer_state_dict: {_BY_NAME}",
            _FOLDERS,
        ),
    ),
    (Format.FULL, Kind.OPTIMIZER, Layout.FULL, Keys.FLATTENED): (
        (
            "set_optimizer_state_dict with full_state_dict=True and flatten_optimizer_state_dict=True (torch 2.4 "
            "and newer)",
        ),
        ("FSDP.optim_state_dict_to_load, optimizer.load_state_dict",),
    ),
    (Format.DCP, Kind.MODEL, Layout.FULL, None): (
        (
            "dcp.load into get_model_state_dict, or into model.state_dict() of FSDP1 under SHARDED_STATE_DICT; any "
            "number of ranks",
        ),
        (_FILE,),
    ),
    (Format.DCP, Kind.OPTIMIZER, Layout.FULL, Keys.NAME): (
        (
            "dcp.load into get_optimizer_state_dict (torch 2.4 and newer); any number of ranks",
            "load_sharded_optimizer_state_dict (FSDP1)",
        ),
        (
            "dcp.load into optimizer.state_dict() or FSDP.optim_state_dict of an optimizer without state: it restores "
            "nothing",
            _FILE,
        ),
    ),
    (Format.DCP, Kind.OPTIMIZER, Layout.FULL, Keys.NUMBER): (
        (
            "dcp.load into optimizer.state_dict() of an optimizer that has made a step, with the same parameters in "
            "the same order",
        ),
        (f"get_optimizer_state_dict, load_sharded_optimizer_state_dict: {_BY_NAME}",),
    ),
    (Format.DCP, Kind.OPTIMIZER, Layout.FULL, Keys.FLATTENED): (
        ("dcp.load into get_optimizer_state_dict with flatten_optimizer_state_dict=True (torch 2.4 and newer)",),
        ("dcp.load into get_optimizer_state_dict without it, load_sharded_optimizer_state_dict",),
    ),
}
_SHARDS = (
    ("torch.load with weights_only=False on each rank of a job with as many ranks, under SHARDED_STATE_DICT",),
    ("a job with another number of ranks, one process alone, weights_only=True, convert",),
    _AGAIN,
)
_LOCAL = (
    ("the program that wrote it, with the same wrapping and as many ranks",),
    ("FSDP2, DDP, models without wrappers, torch.distributed.checkpoint.state_dict, convert",),
    _AGAIN,
)


def readers(part: Part, stored: Format) -> Readers:
    """What reads `part`, and what does not."""
    if part.layout is Layout.LOCAL:
        return Readers(*_LOCAL)
    if part.layout is Layout.SHARDED and stored is Format.FULL:
        return Readers(*_SHARDS)
    reads, not_ = _TABLE[stored, part.kind, Layout.FULL, part.keys]
    return Readers(reads, not_, tuple(_hazards(part, stored)))


def _hazards(part: Part, stored: Format) -> list[str]:
    found = []
    if part.prefixes:
        found.append(
            "names with prefixes: get_model_state_dict and related functions use names without them (torch 2.3 "
            "and newer); convert removes them"
        )
    steps = sum(len(group) for group in part.shared if all(_is_step(name) for name in group))
    if steps:
        found.append(
            f"{steps} entries share {_steps(part)} `step`: after loading into FSDP2, use_orig_params=True or a model "
            "without wrappers each parameter increments it for all, without an error; convert separates them"
        )
    if len(part.shared) > _steps(part):
        found.append(
            "entries other than `step` share a tensor: FSDP1 on a CPU writes such files, and their values are wrong"
        )
    if part.undecoupled and stored is Format.DCP:
        found.append(
            f"groups have no {DECOUPLED}: dcp.load into get_optimizer_state_dict of Adam or AdamW raises `Missing key` "
            "(torch 2.7 and newer) without DefaultLoadPlanner(allow_partial_load=True); convert adds it"
        )
    return found


def _is_step(entry: str) -> bool:
    return entry.rpartition(".")[2] == "step"


def _steps(part: Part) -> int:
    return sum(all(_is_step(name) for name in group) for group in part.shared)
