"""The data against the torch that is installed: presence, absence and signatures of every name."""

from __future__ import annotations

import ast
import importlib
import inspect
import warnings
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version

from fsdp_migrate.targets.modernise.neighbours.autocast_state import FUNCTIONS
from fsdp_migrate.torch_api import PUBLISHED, data

pytestmark = pytest.mark.filterwarnings("ignore")

# Modules of the wheel whose import needs what a plain installation does not bring.
NEED_MORE = ("torch.distributed.tensor._ops.strategy_validation",)

# What `inspect.signature` says otherwise than the source, by where the thing is defined, and why.
OTHERWISE = {
    "torch._C": "made in C++",
    "torch.distributed._functional_collectives._wrap_tensor_autograd": "decorated without functools.wraps",
    "torch.distributed._shard.sharded_tensor.api.ShardedTensor": "`__new__` passes on what `__init__` spells out",
    "torch.distributed.optim.optimizer._script_local_optimizer_step": "compiled by torch.jit.script",
    "torch.distributed.tensor._api.DTensor.__init__": "decorated, with `self` among `*args`",
    "torch.distributed.tensor._collective_utils._mesh_get_process_group_impl": "None until it is registered",
    "torch.distributed.tensor.experimental._context_parallel._cp_custom_ops.flex_cp_allgather": "a custom operator",
    "torch.distributed.tensor.experimental._context_parallel._cp_custom_ops.flex_cp_allgather_backward": (
        "a custom operator"
    ),
    "torch.fx.graph_module.GraphModule": "`__new__` passes on what `__init__` spells out",
    "torch.nn.parallel.DistributedDataParallelCPU": "`@deprecated` puts a `__new__` in front of the constructor",
}


@pytest.fixture(scope="module")
def installed() -> Version:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    release = Version(Version(torch.__version__).base_version)
    if release not in PUBLISHED:
        pytest.skip(f"the data does not know torch {release}")
    if not torch.distributed.is_available():
        pytest.skip("this torch was built without torch.distributed")
    return release


@cache
def module(name: str) -> ModuleType | None:
    # Some of these modules insist on their warnings, whatever the filters say.
    with warnings.catch_warnings(record=True):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            return None


def found(name: str) -> Iterator[Any]:
    """Everything that the dotted name can mean: a module, or attributes of the modules that it begins with."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        held: Any = module(".".join(parts[:length]))
        try:
            for part in parts[length:] if held is not None else ():
                held = getattr(held, part)
        except AttributeError:
            continue
        if module(".".join(parts[:length])) is not None:
            yield held


def known(below: str = "torch") -> Iterator[str]:
    return (name for name in data.names(below) if not name.startswith(NEED_MORE))


def is_there(name: str) -> bool:
    return any(True for _ in found(name))


def thing(name: str) -> Any:
    """What the name means where it is not a module."""
    return next(held for held in found(name) if not isinstance(held, ModuleType))


def test_every_name_is_there_exactly_when_the_data_says_so(installed: Version) -> None:
    names = list(known())
    assert len(names) > 10_000
    wrong = [n for n in names if (said := data.exists(n, installed)) is not None and said is not is_there(n)]
    assert wrong == []


def test_of_few_names_the_data_cannot_tell_whether_they_are_there(installed: Version) -> None:
    names = list(known())
    unknown = [name for name in names if data.exists(name, installed) is None]
    assert len(unknown) < 0.02 * len(names), unknown


def test_nothing_that_is_there_counts_as_absent(installed: Version) -> None:
    wrong = []
    for name in known():
        for held in found(name) if data.exists(name, installed) else ():
            if isinstance(held, (ModuleType, type)):
                members = vars(held) if isinstance(held, ModuleType) else dir(held)
                wrong += [f"{name}.{part}" for part in members if data.exists(f"{name}.{part}", installed) is False]
    assert wrong == []


def test_every_signature_is_that_of_inspect(installed: Version) -> None:
    compared, wrong = 0, []
    for name in known():
        if not data.exists(name, installed) or data.signature(name, installed) is None:
            continue
        if (data.target(name, installed) or name).startswith(tuple(OTHERWISE)):
            continue
        compared += 1
        actual = parameters(thing(name), name, installed)
        said = [(p.name, p.has_default, p.kind.name) for p in data.signature(name, installed) or ()]
        if actual != said:
            wrong.append((name, said, actual))
    assert compared > 2_500
    assert wrong == []


def parameters(held: Any, name: str, release: Version) -> list[tuple[str, bool, str]]:
    listed = list(inspect.signature(held).parameters.values())
    if data.kind(name, release) == "method" and not inspect.ismethod(held):
        listed = listed[1:]
    return [(p.name, p.default is not p.empty, p.kind.name) for p in listed]


def test_defaults_that_are_literals_are_those_of_inspect(installed: Version) -> None:
    compared, wrong = 0, []
    for name in known("torch.distributed.fsdp"):
        said = data.signature(name, installed) if data.exists(name, installed) else None
        if said is None or (data.target(name, installed) or name).startswith(tuple(OTHERWISE)):
            continue
        actual = {p.name: p.default for p in inspect.signature(thing(name)).parameters.values()}
        for parameter in said:
            try:
                value = ast.literal_eval(parameter.default or "")
            except (ValueError, SyntaxError):
                continue
            compared += 1
            if actual[parameter.name] != value:
                wrong.append((name, parameter.name, value, actual[parameter.name]))
    assert compared > 250
    assert wrong == []


def test_the_exceptions_are_exceptions(installed: Version) -> None:
    if installed != Version("2.13.0"):
        pytest.skip("the table of exceptions was made with torch 2.13.0")
    for name in OTHERWISE.keys() - {"torch._C"}:
        said = data.signature(name, installed) or ()
        try:
            actual = parameters(thing(name), name, installed)
        except (TypeError, ValueError):
            continue
        assert actual != [(p.name, p.has_default, p.kind.name) for p in said], name


def test_where_names_lead_to_is_where_things_are_defined(installed: Version) -> None:
    wrong = []
    for name in known("torch.distributed.fsdp"):
        target = data.target(name, installed) if data.exists(name, installed) else None
        if target is None or target.startswith("torch._C") or target.partition(".")[0] != "torch":
            continue
        held = [id(one) for one in found(name)]
        if not any(id(one) in held for one in found(target)) and not callable(next(found(name))):
            wrong.append((name, target))
    assert wrong == []


@pytest.mark.parametrize("path", FUNCTIONS)
def test_a_function_for_one_device_warns_and_names_its_successor(path: str, installed: Version) -> None:
    if installed < Version("2.4"):
        pytest.skip("torch 2.4 deprecated them")
    function, torch = FUNCTIONS[path], module("torch")
    read = getattr(torch, function.new.replace("set_", "is_" if function.new.endswith("enabled") else "get_"))
    given = [read(function.device)] * function.takes
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(torch, path.removeprefix("torch."))(*given)
    assert [f"torch.{function.new}('{function.device}'" in str(one.message) for one in caught] == [True]
