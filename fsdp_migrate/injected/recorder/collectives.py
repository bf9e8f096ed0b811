"""The collectives of each process group, in the order in which this rank calls them."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

from .journal import Journal

# What torch gives to a call that is a collective, and to no message between two ranks.
_MARKS = frozenset(
    {"async_op", "obj", "object_list", "object_gather_list", "scatter_object_output_list", "wait_all_ranks"}
)
_NONE = ("_", "send", "recv")
_ALSO = frozenset({"barrier", "_all_gather_base", "_reduce_scatter_base"})
# The parameters that have what a rank gives, and the functions to which ranks may give more or less by right.
_GIVEN = ("input_tensor", "input", "tensor")
_UNEVEN = frozenset({"all_gather", "all_to_all", "all_to_all_single", "gather", "scatter"})
ROOTS = ("src", "dst")


def install(journal: Journal, module: Any) -> None:
    """Record the calls of the functions of torch.distributed's module `distributed_c10d`."""
    groups: set[str] = set()
    inside = threading.local()

    @journal.guarded("collectives")
    def record(kind: str, given: str | None, arguments: dict[str, Any]) -> None:
        group = arguments.get("group") or module.group.WORLD
        if not isinstance(group, module.ProcessGroup):
            return  # torch says what is wrong with it, or that this rank is not in it
        name = str(group.group_name)
        if name not in groups:
            groups.add(name)
            journal.event("group", id=name, ranks=module.get_process_group_ranks(group))
        about = _described(arguments.get(given) if given else None)
        root = next((arguments[root] for root in ROOTS if arguments.get(root) is not None), None)
        about |= {} if root is None else {"root": root}
        journal.event("collective", flush=True, group=name, kind=kind, **about)

    def recorded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(original).parameters)
        given = next((one for one in _GIVEN if one in parameters and name not in _UNEVEN), None)

        @functools.wraps(original)
        def collective(*arguments: Any, **named: Any) -> Any:
            # Some are made of others; while torch compiles, they are not called at all.
            if getattr(inside, "call", False) or _is_compiling():
                return original(*arguments, **named)
            record(name, given, {**dict(zip(parameters, arguments)), **named})
            inside.call = True
            try:
                return original(*arguments, **named)
            finally:
                inside.call = False

        return collective

    for name, original in list(vars(module).items()):
        # Not isinstance: an object of torch's warns where it is asked for its class.
        if type(original) is FunctionType and original.__module__ == module.__name__ and _is_collective(name, original):
            setattr(module, name, recorded(name, original))


def _is_collective(name: str, function: FunctionType) -> bool:
    if name in _ALSO or name.startswith(_NONE):
        return name in _ALSO
    parameters = inspect.signature(function).parameters
    return "group" in parameters and not _MARKS.isdisjoint(parameters)


def _is_compiling() -> bool:
    compiler = getattr(sys.modules["torch"], "compiler", None)
    return compiler is not None and hasattr(compiler, "is_compiling") and bool(compiler.is_compiling())


def _described(tensor: Any) -> dict[str, Any]:
    if not hasattr(tensor, "numel"):
        return {"dtype": None, "numel": None}
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "numel": tensor.numel()}
