from __future__ import annotations

import importlib
import inspect
import time
import warnings
from typing import Any

import pytest
from packaging.version import Version

from fsdp_migrate.torch_api import RELEASES, data

PACKAGE = "torch.distributed.fsdp"
FSDP = f"{PACKAGE}.FullyShardedDataParallel"
INSTALLED = Version("2.13.0")


def present(name: str) -> str:
    """The releases that have `name`, as text."""
    return " ".join(str(release) for release in RELEASES if data.exists(name, release))


def parameters(name: str, release: str) -> str:
    found = data.signature(name, Version(release))
    assert found is not None
    return ", ".join(parameter.name + "=" * parameter.has_default for parameter in found)


def test_the_data_was_read_from_the_releases_that_ranges_are_made_of() -> None:
    assert data.releases() == RELEASES


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        (f"{FSDP}.full_optim_state_dict", "1.12.1", None),
        (f"{FSDP}.sharded_optim_state_dict", "1.13.1", None),
        (f"{FSDP}.optim_state_dict", "2.0.0", None),
        (f"{FSDP}.optim_state_dict_post_hook", "2.0.0", "2.0.1"),
        (f"{PACKAGE}.FlatParameter", "1.12.1", None),
        (f"{PACKAGE}.flat_param", "1.13.1", "2.1.2"),
        (f"{PACKAGE}.flat_param.FlatParameter", "1.13.1", "2.1.2"),
        (f"{PACKAGE}._flat_param.FlatParameter", "2.2.2", None),
        (f"{PACKAGE}.flatten_params_wrapper.FlatParameter", "1.12.1", "1.12.1"),
        (f"{PACKAGE}.fully_shard", "2.6.0", None),
        (f"{PACKAGE}.wrap.ModuleWrapPolicy", "2.0.0", None),
    ],
)
def test_first_and_last_release(name: str, first: str, last: str | None) -> None:
    assert data.first(name) == Version(first)
    assert data.last(name) == (Version(last) if last else None)


def test_a_name_that_went_and_came_back_is_absent_in_between() -> None:
    name = f"{PACKAGE}.fully_sharded_data_parallel.HandleTrainingState"
    gap = ["2.0.0", "2.0.1", "2.1.2", "2.2.2", "2.3.1"]
    assert [data.exists(name, Version(release)) for release in gap] == [False] * 5
    assert data.exists(name, Version("1.13.1"))
    assert data.exists(name, Version("2.4.1"))


def test_members_are_found_through_the_alias_of_their_class() -> None:
    assert present(f"{PACKAGE}.fully_sharded_data_parallel.StateDictType.FULL_STATE_DICT") == " ".join(
        str(release) for release in RELEASES[1:]
    )


def test_members_that_a_class_inherits_from_outside_are_there() -> None:
    # FSDP overrides Module.state_dict up to 1.13 only; Module has it ever since.
    assert data.exists(f"{FSDP}.state_dict", Version("2.1.2")) is True
    assert data.first(f"{FSDP}.apply") == RELEASES[0]


def test_a_field_of_one_minor_is_there_in_that_minor_only() -> None:
    assert present(f"{PACKAGE}.FullStateDictConfig.use_dtensor") == "2.1.2"


@pytest.mark.parametrize(
    "name",
    [
        "torch.nn.Module",
        "torch.distributed.fsdpx",
        f"{FSDP}.never_heard_of",
        f"{FSDP}.__doc__",
        f"{PACKAGE}.fully_sharded_data_parallel.functools",
        f"{PACKAGE}._common_utils.dist.get_rank",
    ],
)
def test_outside_of_its_names_the_data_says_nothing(name: str) -> None:
    assert data.exists(name, Version("2.1.2")) is None
    assert data.first(name) is None
    assert data.last(name) is None
    assert data.signature(name, Version("2.1.2")) is None


def test_what_the_package_never_exported_is_absent() -> None:
    assert data.exists(f"{PACKAGE}.never_heard_of", Version("2.1.2")) is False


def test_an_unknown_patch_release_counts_as_the_known_one_of_its_minor() -> None:
    moved = f"{PACKAGE}.flat_param"
    assert data.exists(moved, Version("2.1.0")) is True
    assert data.exists(moved, Version("2.2.0")) is False
    assert data.exists(f"{FSDP}.optim_state_dict", Version("1.13.0")) is False


def test_a_release_newer_than_the_data_counts_as_the_newest_and_an_older_one_has_nothing() -> None:
    assert data.exists(FSDP, Version("3.1")) is True
    assert data.exists(FSDP, Version("1.9.0")) is False


@pytest.mark.parametrize(
    ("method", "release", "expected"),
    [
        ("full_optim_state_dict", "1.12.1", "model, optim, optim_input=, rank0_only="),
        ("full_optim_state_dict", "1.13.1", "model, optim, optim_input=, rank0_only=, group="),
        ("sharded_optim_state_dict", "1.13.1", "model, optim, optim_input=, group="),
        ("sharded_optim_state_dict", "2.0.0", "model, optim, group="),
        ("scatter_full_optim_state_dict", "1.12.1", "full_optim_state_dict, model, optim_input=, group="),
        ("scatter_full_optim_state_dict", "2.1.2", "full_optim_state_dict, model, optim_input=, optim=, group="),
        ("shard_full_optim_state_dict", "2.1.2", "full_optim_state_dict, model, optim_input=, optim="),
        ("flatten_sharded_optim_state_dict", "1.13.1", "sharded_optim_state_dict, model, optim_input=, optim="),
        ("flatten_sharded_optim_state_dict", "2.0.0", "sharded_optim_state_dict, model, optim"),
        ("optim_state_dict", "2.0.1", "model, optim, group="),
        ("optim_state_dict", "2.1.2", "model, optim, optim_state_dict=, group="),
        ("optim_state_dict_to_load", "2.0.1", "optim_state_dict, model, optim, is_named_optimizer=, group="),
        (
            "optim_state_dict_to_load",
            "2.1.2",
            "model, optim, optim_state_dict, is_named_optimizer=, load_directly=, group=",
        ),
        ("state_dict_type", "1.12.1", "module, state_dict_type, state_dict_config="),
        ("state_dict_type", "2.0.0", "module, state_dict_type, state_dict_config=, optim_state_dict_config="),
    ],
)
def test_signatures_by_release(method: str, release: str, expected: str) -> None:
    assert parameters(f"{FSDP}.{method}", release) == expected


def test_signature_of_a_class_is_that_of_its_constructor() -> None:
    assert parameters(f"{PACKAGE}.FullStateDictConfig", "2.1.2") == "offload_to_cpu=, use_dtensor=, rank0_only="
    assert parameters(f"{PACKAGE}.FullStateDictConfig", "2.2.2") == "offload_to_cpu=, rank0_only="


def test_parameters_know_how_they_take_their_argument() -> None:
    found = data.signature(f"{PACKAGE}.fully_shard", Version("2.6.0"))
    assert found is not None
    assert found[0] == data.Parameter("module", False, data.ParameterKind.POSITIONAL_OR_KEYWORD)
    assert found[1] == data.Parameter("mesh", True, data.ParameterKind.KEYWORD_ONLY)
    wrapped = data.signature(f"{FSDP}.forward", Version("2.6.0"))
    assert wrapped is not None
    assert [p.kind.name for p in wrapped] == ["VAR_POSITIONAL", "VAR_KEYWORD"]


def test_loading_takes_milliseconds() -> None:
    data._load.cache_clear()
    start = time.perf_counter()
    data._load()
    assert time.perf_counter() - start < 0.1


@pytest.fixture(scope="module")
def torch() -> Any:
    module = pytest.importorskip("torch", reason="torch is not installed")
    if Version(module.__version__).release[:2] != INSTALLED.release[:2]:
        pytest.skip(f"checks torch {INSTALLED}, torch {module.__version__} is installed")
    return module


def look_up(name: str) -> Any:
    parts = name.split(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for length in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:length]))
            except ModuleNotFoundError:
                continue
            for part in parts[length:]:
                found = getattr(found, part)
            return found
    raise AttributeError(name)


def is_installed(name: str) -> bool:
    try:
        look_up(name)
    except AttributeError:
        return False
    return True


def test_every_name_is_in_the_installed_torch_exactly_when_the_data_says_so(torch: Any) -> None:
    names = list(data._load()["names"])
    assert len(names) > 1500
    wrong = [name for name in names if data.exists(name, INSTALLED) is not is_installed(name)]
    assert wrong == []


def test_the_data_misses_no_public_name_of_the_installed_torch(torch: Any) -> None:
    for module in (PACKAGE, f"{PACKAGE}.wrap", f"{PACKAGE}.api", f"{PACKAGE}.fully_sharded_data_parallel"):
        for name in look_up(module).__all__:
            assert data.exists(f"{module}.{name}", INSTALLED) is True, f"{module}.{name}"


@pytest.mark.parametrize(
    "method",
    [
        "full_optim_state_dict",
        "sharded_optim_state_dict",
        "shard_full_optim_state_dict",
        "scatter_full_optim_state_dict",
        "flatten_sharded_optim_state_dict",
        "optim_state_dict",
        "optim_state_dict_to_load",
        "rekey_optim_state_dict",
        "state_dict_type",
        "set_state_dict_type",
        "summon_full_params",
        "fsdp_modules",
        "clip_grad_norm_",
        "register_comm_hook",
        "__init__",
    ],
)
def test_signatures_are_those_of_the_installed_torch(torch: Any, method: str) -> None:
    name = f"{FSDP}.{method}"
    installed = [p for p in inspect.signature(look_up(name)).parameters.values() if p.name != "self"]
    found = data.signature(name, INSTALLED)
    assert found is not None
    assert [(p.name, p.has_default, p.kind.name) for p in found] == [
        (p.name, p.default is not p.empty, p.kind.name) for p in installed
    ]
