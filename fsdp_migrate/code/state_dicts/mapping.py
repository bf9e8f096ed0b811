"""What every old call becomes: the table of the target `dcp`.

A row was run before and after on two ranks; `pairs` names the programs. Floors are the first torch on which old and
new hold the same.
"""

from __future__ import annotations

from fsdp_migrate.code.state_dicts.settings import FULL, SHARDED, InForce, NotUnderstood, Wanted
from fsdp_migrate.records import NamedTuple

SAVE_MODEL, SAVE_OPTIMIZER = "get_model_state_dict", "get_optimizer_state_dict"
LOAD_MODEL, LOAD_OPTIMIZER = "set_model_state_dict", "set_optimizer_state_dict"
OPTIONS = "StateDictOptions"
# The fields of `StateDictOptions`.
FULL_OPTION, _CPU, BROADCAST = "full_state_dict=True", "cpu_offload=True", "broadcast_from_rank0=True"


class Row(NamedTuple):
    """One way to write a call anew.

    `options` are the fields of `StateDictOptions`, `floor` the oldest torch that does the same with them. With
    `on_rank_0` the dicts of other ranks differ, so that rank 0 alone may use what comes; `unsafe` says what else does.
    """

    options: tuple[str, ...]
    floor: str
    on_rank_0: bool = False
    unsafe: str | None = None
    pairs: str = ""


_NO_STATE = "a parameter without state in the dict raises on every release; it raised on some only"
_LOADING = (
    "an optimizer that has not stepped performs a step with learning rate 0 first, which runs its hooks; "
    "another number of parameter groups than in the dict no longer raises; " + _NO_STATE
)

# By function, type, offload and rank0_only; None stands for either.
_ROWS: dict[tuple[str, str, bool | None, bool | None], Row] = {
    (SAVE_MODEL, FULL, False, False): Row((FULL_OPTION,), "2.2", pairs="01 05 26 46 61"),
    (SAVE_MODEL, FULL, True, True): Row((FULL_OPTION, _CPU), "2.2", on_rank_0=True, pairs="02 06 56 02b 27b 28b"),
    (SAVE_MODEL, SHARDED, False, None): Row((), "2.2", pairs="04 09 27 27w"),
    (SAVE_MODEL, SHARDED, True, None): Row((_CPU,), "2.3", pairs="04m 08m 28"),
    (SAVE_OPTIMIZER, FULL, True, True): Row((FULL_OPTION, _CPU), "2.2", pairs="06 06o 06g 49"),
    (SAVE_OPTIMIZER, FULL, True, False): Row((FULL_OPTION, _CPU), "2.3", on_rank_0=True, pairs="06b 07 44"),
    (SAVE_OPTIMIZER, FULL, False, False): Row((FULL_OPTION,), "2.2", pairs="28"),
    (SAVE_OPTIMIZER, SHARDED, True, None): Row((_CPU,), "2.2", pairs="08 08m 28 31"),
    (SAVE_OPTIMIZER, SHARDED, False, None): Row((), "2.2", pairs="08b"),
    # Without the broadcast missing keys pass unseen since torch 2.5 [14b 14c 14d].
    (LOAD_MODEL, FULL, None, None): Row((FULL_OPTION, BROADCAST), "2.4", pairs="11r 14r"),
    (LOAD_MODEL, SHARDED, None, None): Row((), "2.4", pairs="13 14s 60"),
    (LOAD_OPTIMIZER, FULL, None, False): Row((FULL_OPTION,), "2.4", unsafe=_LOADING, pairs="11 18 19 20 48 16b 58"),
    (LOAD_OPTIMIZER, FULL, None, True): Row((FULL_OPTION, BROADCAST), "2.4", unsafe=_LOADING, pairs="12 49 16b 58"),
    (LOAD_OPTIMIZER, SHARDED, None, None): Row((), "2.4", unsafe=_LOADING, pairs="13 31 16b 58"),
}
_WITHOUT = {
    (SAVE_MODEL, True, False): (
        "the new functions give no full state dict on the CPU of every rank (`cpu_offload` gives it to rank 0 only): "
        "use `rank0_only=True`, or move the result of "
        "`get_model_state_dict(..., StateDictOptions(full_state_dict=True))`"
    ),
    (
        SAVE_MODEL,
        False,
        True,
    ): "the new functions give no full state dict on the device of rank 0 alone: use `offload_to_cpu=True`",
    (
        SAVE_OPTIMIZER,
        False,
        True,
    ): "the new functions give no full optimizer state on the device of rank 0 alone: use `offload_to_cpu=True`",
}


def row_for(function: str, settings: InForce, *, nearest: bool = False) -> Row:
    """How a call is written anew that is called `function` then; `nearest` takes a row with other devices, too.

    Raises:
        NotUnderstood: the new functions have nothing for these settings.
    """
    wanted = settings.model if function in (SAVE_MODEL, LOAD_MODEL) else settings.optimizer
    for offload in (wanted.offload, None):
        for rank0_only in (wanted.rank0_only, None):
            row = _ROWS.get((function, settings.type_name, offload, rank0_only))
            if row is not None:
                return row
    if nearest and function == SAVE_MODEL and not wanted.rank0_only:
        told = "every rank gets the full state dict on its device instead of the CPU"
        return _ROWS[function, settings.type_name, False, False]._replace(unsafe=told)
    raise NotUnderstood(_WITHOUT[function, wanted.offload, wanted.rank0_only])


def decided_at_run_time(row: Row, flag: str) -> Row:
    """The row where a flag says whether the state leaves the device."""
    if FULL_OPTION not in row.options:
        return row._replace(options=tuple(f"cpu_offload={flag}" if one == _CPU else one for one in row.options))
    told = f"the full state is on the CPU of rank 0 even where `{flag}` is false"
    return row._replace(unsafe=told if row.unsafe is None else f"{told}; {row.unsafe}")


def on_every_rank(function: str, settings: InForce, use: str) -> Row:
    """The row for a full state that other ranks than 0 use: they have it, but not on the CPU [07 28]."""
    every = Wanted(False, False)
    row = row_for(function, settings._replace(model=every, optimizer=every))
    what = "state dict" if function == SAVE_MODEL else "optimizer state"
    return row._replace(unsafe=f"every rank gets the full {what} on its device instead of the CPU; {use}")
