"""What a program asks torch's state-dict implementation for.

On a CPU a dropped `offload_to_cpu` changes no device, so what was asked is compared as well as what came out.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch.distributed as dist
from torch.distributed.fsdp import _state_dict_utils, fully_sharded_data_parallel

_ASKED = ("rank0_only", "shard_state", "cpu_offload", "group")


class Recorder:
    """The requests of the program that runs now.

    Those for the optimizer and those for the model are each kept in order, apart from each other: moving one call in
    front of the other changes nothing.
    """

    def __init__(self) -> None:
        self._optimizer: list[str] = []
        self._model: list[str] = []

    def take(self) -> tuple[str, ...]:
        """The requests since the last `take`."""
        taken = (*self._optimizer, *self._model)
        self._optimizer.clear()
        self._model.clear()
        return taken

    def install(self) -> None:
        """Wrap the places where FSDP's public methods meet its implementation."""
        for name in ("_optim_state_dict", "_flatten_optim_state_dict"):
            original = getattr(fully_sharded_data_parallel, name)
            setattr(fully_sharded_data_parallel, name, self._recording(name.lstrip("_"), original))
        for kind in ("full", "local", "sharded"):
            name = f"_{kind}_pre_state_dict_hook"
            original = getattr(_state_dict_utils, name)
            setattr(_state_dict_utils, name, self._recording_model(kind, original))

    def _recording(self, name: str, original: Any) -> Any:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            asked = signature.bind(*args, **kwargs)
            asked.apply_defaults()
            told = [f"{key}={_told(asked.arguments[key])}" for key in _ASKED if key in asked.arguments]
            self._optimizer.append(f"{name}({', '.join(told)})")
            return original(*args, **kwargs)

        return wrapped

    def _recording_model(self, kind: str, original: Any) -> Any:
        @functools.wraps(original)
        def wrapped(fsdp_state: Any, *args: Any, **kwargs: Any) -> Any:
            config = fsdp_state._state_dict_config
            told = [f"{key}={getattr(config, key)}" for key in ("rank0_only", "offload_to_cpu") if hasattr(config, key)]
            request = f"state_dict({', '.join([kind, *told])})"
            # Every wrapped module is asked in turn; one line tells them all.
            if self._model[-1:] != [request]:
                self._model.append(request)
            return original(fsdp_state, *args, **kwargs)

        return wrapped


def _told(value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return str(value)
    ranks = dist.get_process_group_ranks(value)
    return "default" if ranks == list(range(dist.get_world_size())) else str(ranks)
