"""The legacy optimizer-state methods as a table: their signatures and replacements.

Source: catalogue osd-full, osd-sharded, osd-shard-full, osd-scatter, osd-flatten-sharded (torch 1.12.1 to 2.15.0,
torch/distributed/fsdp/fully_sharded_data_parallel.py). A test checks the signatures against the API data.
"""

from __future__ import annotations

from fsdp_migrate.records import NamedTuple

FULL = "FULL_STATE_DICT"
SHARDED = "SHARDED_STATE_DICT"
# The first torch whose replacements obey the optimizer's config (catalogue osd-2.0-config-ignored).
FLOOR = "2.1"


class Method(NamedTuple):
    """A legacy method: its parameters on torch 2.x, and what its replacement needs.

    `older` is the signature up to torch 1.13 if it was another one; `rank0_only` the default of the method, None under
    a sharded type.
    """

    name: str
    parameters: tuple[str, ...]
    required: int
    new: str
    type_name: str
    rank0_only: bool | None
    older: tuple[str, ...] | None = None

    @property
    def loads(self) -> bool:
        """Whether the method converts a state dict for loading."""
        return self.new == "optim_state_dict_to_load"

    @property
    def state(self) -> str:
        """The parameter that takes the state dict of a loading method."""
        return self.parameters[0]

    @property
    def local(self) -> str:
        """The stem of the name that a hoisted result gets."""
        return "optim_state_to_load" if self.loads else "optim_state"


_SAVE, _LOAD = "optim_state_dict", "optim_state_dict_to_load"
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("full_optim_state_dict", ("model", "optim", "optim_input", "rank0_only", "group"), 2, _SAVE, FULL, True),
        Method(
            "sharded_optim_state_dict",
            ("model", "optim", "group"),
            2,
            _SAVE,
            SHARDED,
            None,
            older=("model", "optim", "optim_input", "group"),
        ),
        Method(
            "shard_full_optim_state_dict",
            ("full_optim_state_dict", "model", "optim_input", "optim"),
            2,
            _LOAD,
            FULL,
            False,
        ),
        Method(
            "scatter_full_optim_state_dict",
            ("full_optim_state_dict", "model", "optim_input", "optim", "group"),
            2,
            _LOAD,
            FULL,
            True,
            older=("full_optim_state_dict", "model", "optim_input", "group"),
        ),
        Method(
            "flatten_sharded_optim_state_dict",
            ("sharded_optim_state_dict", "model", "optim"),
            2,
            _LOAD,
            SHARDED,
            None,
            older=("sharded_optim_state_dict", "model", "optim_input", "optim"),
        ),
    )
}
