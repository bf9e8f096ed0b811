from __future__ import annotations

import gzip
import json
import subprocess
import sys
from importlib.resources import files
from itertools import pairwise

import pytest
from packaging.version import Version

from fsdp_migrate.torch_api import PUBLISHED, RELEASES, data
from fsdp_migrate.torch_api.data import Deprecation, ParameterKind

PACKAGE = "torch.distributed.fsdp"
FSDP = f"{PACKAGE}.FullyShardedDataParallel"
AREAS = sorted(set(data.AREAS.values()))


def present(name: str) -> str:
    """The releases that have `name`, as text."""
    return " ".join(str(release) for release in RELEASES if data.exists(name, release))


def parameters(name: str, release: str) -> str:
    found = data.signature(name, Version(release))
    assert found is not None
    return ", ".join(parameter.name + "=" * parameter.has_default for parameter in found)


def test_the_data_was_read_from_the_releases_that_ranges_are_made_of() -> None:
    assert data.releases() == PUBLISHED
    assert set(RELEASES) < set(PUBLISHED)


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
    ("name", "why"),
    [
        ("torch.nn.Module", "torch.nn is not covered"),
        ("torch.compile", "torch itself is covered where it takes from covered modules only"),
        ("torch.distributed.elastic.agent", "a submodule without rows"),
        ("os.path", "not torch"),
        (f"{FSDP}.__doc__", "everything has a docstring"),
        (f"{FSDP}._is_root", "set on instances"),
        (f"{PACKAGE}.MixedPrecision.never_heard_of.more", "what an unknown member has"),
        ("torch.distributed.ReduceOp.SUM", "defined in C++"),
        ("torch.distributed.Backend.MINE", "backends are registered on the class"),
        ("torch.distributed.tensor.DTensor.storage_offset", "inherited from a class in C++"),
    ],
)
def test_what_the_data_cannot_tell(name: str, why: str) -> None:
    expected = False if "never_heard_of" in name else None
    assert data.exists(name, Version("2.6.0")) is expected, why
    assert data.signature(name, Version("2.6.0")) is None
    assert data.deprecation(name, Version("2.6.0")) is None


@pytest.mark.parametrize(
    "name",
    [
        f"{PACKAGE}.never_heard_of",
        f"{PACKAGE}x",
        f"{FSDP}.never_heard_of",
        f"{PACKAGE}.wrap.never_heard_of",
        f"{PACKAGE}.never_heard_of.more",
        "torch.distributed.tensor.parallel.never_heard_of",
    ],
)
def test_what_a_covered_module_or_class_never_had_is_absent(name: str) -> None:
    assert data.exists(name, Version("2.1.2")) is False
    assert data.first(name) is None
    assert data.last(name) is None
    assert data.history(name) == {}


def test_what_a_module_takes_from_elsewhere_is_there() -> None:
    assert data.exists(f"{PACKAGE}.fully_sharded_data_parallel.functools", Version("2.1.2")) is True
    assert data.exists(f"{PACKAGE}._common_utils.dist.get_rank", Version("2.1.2")) is True


def test_a_name_that_some_builds_lack_is_unknown_where_it_occurs_and_absent_before() -> None:
    name = "torch.distributed.ProcessGroupXCCL"
    assert data.exists(name, Version("2.5.1")) is False
    assert data.exists(name, Version("2.6.0")) is None
    assert next(iter(data.history(name))) == Version("2.6.0")


def test_an_unknown_patch_release_counts_as_the_known_one_of_its_minor() -> None:
    moved = f"{PACKAGE}.flat_param"
    assert data.exists(moved, Version("2.1.9")) is True
    assert data.exists(moved, Version("2.2.9")) is False
    assert data.exists(f"{FSDP}.optim_state_dict", Version("1.13.2")) is False
    assert data.exists(moved, Version("2.1.0.dev20230801")) is True


def test_what_changed_inside_a_minor_is_known() -> None:
    name = "torch.distributed.checkpoint.load_sharded_optimizer_state_dict"
    assert data.signature_text(name, Version("2.1.0")) == "model_state_dict, optimizer_key, storage_reader"
    assert data.signature_text(name, Version("2.1.1")) == (
        "model_state_dict, optimizer_key, storage_reader, planner=None"
    )
    gone = f"{PACKAGE}._runtime_utils._validate_and_get_hybrid_shard_state"
    assert [data.exists(gone, Version(release)) for release in ("2.2.0", "2.2.1")] == [True, False]


def test_a_release_newer_than_the_data_counts_as_the_newest_and_an_older_one_has_nothing() -> None:
    assert data.exists(FSDP, Version("3.1")) is True
    assert data.exists(FSDP, Version("1.9.0")) is not True


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


def test_parameters_know_how_they_take_their_argument_and_their_default() -> None:
    found = data.signature(f"{PACKAGE}.fully_shard", Version("2.6.0"))
    assert found is not None
    assert found[0] == data.Parameter("module", False, ParameterKind.POSITIONAL_OR_KEYWORD)
    assert found[1] == data.Parameter("mesh", True, ParameterKind.KEYWORD_ONLY, "None")
    wrapped = data.signature(f"{FSDP}.forward", Version("2.6.0"))
    assert wrapped is not None
    assert [p.kind.name for p in wrapped] == ["VAR_POSITIONAL", "VAR_KEYWORD"]
    assert data.signature_text("torch.load", Version("2.0.1")) == (
        "f, map_location=None, pickle_module=None, *, weights_only=False, **pickle_load_args"
    )


def test_signature_of_a_function_outside_the_covered_modules_is_known_where_they_take_it() -> None:
    assert data.signature_text("torch.distributed.rendezvous", Version("2.6.0")) == (
        "url, rank=-1, world_size=-1, **kwargs"
    )


def test_a_constructor_is_made_of_the_fields_of_all_dataclasses_that_it_inherits() -> None:
    text = data.signature_text(f"{PACKAGE}.ShardedOptimStateDictConfig", Version("2.1.2"))
    assert text == "offload_to_cpu=True, use_dtensor=False"
    assert data.signature_text(f"{PACKAGE}.fully_shard.MixedPrecisionPolicy", Version("2.15.0")) is None
    policy = data.signature_text(f"{PACKAGE}.MixedPrecisionPolicy", Version("2.15.0"))
    assert policy is not None
    assert policy.endswith("cast_forward_inputs=True, *, param_dtype_override_fn=None")


@pytest.mark.parametrize(
    ("name", "release", "expected"),
    [
        (FSDP, "2.1.2", f"{PACKAGE}.fully_sharded_data_parallel.FullyShardedDataParallel"),
        (f"{PACKAGE}.fully_sharded_data_parallel.FullyShardedDataParallel", "2.1.2", None),
        (f"{PACKAGE}.FlatParameter", "2.1.2", f"{PACKAGE}.flat_param.FlatParameter"),
        (f"{PACKAGE}.FlatParameter", "2.2.2", f"{PACKAGE}._flat_param.FlatParameter"),
        (f"{FSDP}.state_dict", "2.1.2", "torch.nn.modules.module.Module.state_dict"),
        ("torch.distributed._shard.checkpoint.save_state_dict", "1.13.1", None),
        (
            "torch.distributed._shard.checkpoint.save_state_dict",
            "2.13.0",
            "torch.distributed.checkpoint.state_dict_saver.save_state_dict",
        ),
        (
            "torch.distributed._sharding_spec.ChunkShardingSpec",
            "2.13.0",
            "torch.distributed._shard.sharding_spec.chunk_sharding_spec.ChunkShardingSpec",
        ),
        ("torch.distributed._tensor.experimental", "2.13.0", "torch.distributed.tensor.experimental"),
        ("torch.distributed.ReduceOp", "2.13.0", "torch._C._distributed_c10d.ReduceOp"),
        (f"{PACKAGE}.never_heard_of", "2.13.0", None),
    ],
)
def test_where_a_name_leads_to(name: str, release: str, expected: str | None) -> None:
    found = data.target(name, Version(release))
    if name.endswith("_shard.checkpoint.save_state_dict") and release == "1.13.1":
        assert found == "torch.distributed._shard.checkpoint.state_dict_saver.save_state_dict"
    else:
        assert found == expected


def test_a_package_that_has_a_function_and_a_module_of_one_name_has_what_either_offers() -> None:
    name = "torch.distributed._composable.fully_shard"
    assert data.kind(name, Version("2.5.1")) == "function"
    assert data.exists(f"{name}.fully_shard", Version("2.5.1")) is True
    assert data.exists(f"{name}.never_heard_of", Version("2.5.1")) is False
    assert data.last(f"{name}.fully_shard") == Version("2.5.1")
    assert data.target("torch.distributed._composable.fsdp.fully_shard", Version("2.5.1")) == (
        "torch.distributed._composable.fsdp.fully_shard.fully_shard"
    )


OPTIM_INPUT = "The `optim_input` argument is deprecated and will be removed after PyTorch 1.13."


@pytest.mark.parametrize(
    ("name", "categories", "start"),
    [
        (f"{FSDP}.full_optim_state_dict", {"2.0.0": "UserWarning", "2.4.1": "FutureWarning"}, "``FullyShardedData"),
        (f"{FSDP}.optim_state_dict", {}, ""),
        (f"{FSDP}.state_dict_type", {"2.4.1": "FutureWarning"}, "FSDP.state_dict_type() and FSDP.set_state_dict_t"),
        (f"{PACKAGE}.ShardingStrategy.NO_SHARD", {"2.3.1": "UserWarning", "2.4.1": "FutureWarning"}, "The `NO_SHARD`"),
        (
            "torch.distributed._composable.fully_shard",
            {"2.3.1": "UserWarning", "2.4.1": "FutureWarning", "2.6.0": None},
            "`torch.distributed._composable.fully_shard` is being deprecated",
        ),
        ("torch.cuda.amp.autocast", {"2.4.1": "FutureWarning"}, "`torch.cuda.amp.autocast(args...)` is deprecated."),
        (
            "torch.distributed._all_gather_base",
            {"1.13.1": "UserWarning", "2.4.1": "FutureWarning"},
            "`torch.distributed._all_gather_base` is a private function",
        ),
        (
            "torch.distributed.all_gather_into_tensor",
            {"2.13.0": "FutureWarning", "2.15.0": None},
            "",
        ),
        (
            "torch.distributed.checkpoint.save_state_dict",
            {"2.2.2": "UserWarning", "2.4.1": "FutureWarning"},
            "`save_state_dict` is deprecated",
        ),
        ("torch.distributed.reduce_op", {"1.11.0": "UserWarning", "2.4.1": "FutureWarning"}, "`torch.distributed.red"),
        ("torch.distributed._shard.checkpoint", {"2.0.0": "DeprecationWarning"}, "`torch.distributed._shard.checkp"),
        (f"{PACKAGE}.FSDPModule.set_reduce_scatter_divide_factor", {"2.8.0": "DeprecationWarning"}, "Use `set_gradi"),
        ("torch.nn.utils.clip_grad_norm", {"1.11.0": "UserWarning", "2.4.1": "FutureWarning"}, "`torch.nn.utils.cli"),
    ],
)
def test_deprecations_by_release(name: str, categories: dict[str, str | None], start: str) -> None:
    found = [data.deprecation(name, release) for release in RELEASES]
    changes = {str(RELEASES[0]): found[0]} if found[0] else {}
    for (_, before), (release, now) in pairwise(zip(RELEASES, found)):
        if (before and before.category) != (now and now.category):
            changes[str(release)] = now
    assert {release: warning and warning.category for release, warning in changes.items()} == categories
    newest = data.deprecation(name, RELEASES[-1]) or next((w for w in reversed(found) if w), None)
    assert (newest.text if newest else "").startswith(start)


def test_text_of_a_warning_names_what_it_is_about() -> None:
    found = data.deprecation(f"{FSDP}.scatter_full_optim_state_dict", Version("2.13.0"))
    assert found == Deprecation(
        "FutureWarning",
        "``FullyShardedDataParallel.scatter_full_optim_state_dict``is being deprecated and is replaced by "
        "``FullyShardedDataParallel.optim_state_dict_to_load``. "
        "``FullyShardedDataParallel.scatter_full_optim_state_dict`` may be removed after PyTorch 2.2.",
    )


def test_deprecated_parameters() -> None:
    name = f"{FSDP}.full_optim_state_dict"
    assert data.deprecated_parameters(name, Version("1.12.1")) == {}
    for release, category in (("1.13.1", "UserWarning"), ("2.3.1", "UserWarning"), ("2.13.0", "FutureWarning")):
        found = data.deprecated_parameters(name, Version(release))
        assert list(found) == ["optim_input"]
        assert found["optim_input"].category == category
        assert found["optim_input"].text.startswith(OPTIM_INPUT)


def test_what_the_package_exports_by_release() -> None:
    assert data.first(f"{PACKAGE}.FullOptimStateDictConfig") == Version("2.1.2")
    assert data.first(f"{PACKAGE}.api.FullOptimStateDictConfig") == Version("2.0.0")
    assert data.exists("torch.amp", Version("1.11.0")) is False
    assert data.exists("torch.amp.GradScaler", Version("2.2.2")) is False
    assert data.exists("torch.amp.GradScaler", Version("2.3.1")) is True


def test_values_of_short_constants() -> None:
    name = f"{PACKAGE}.fully_sharded_data_parallel.FLAT_PARAM"
    assert data.value(name, Version("1.13.1")) == "'flat_param'"
    assert data.value(name, Version("2.0.1")) == "'_flat_param'"


def test_history_has_one_state_for_each_release_that_has_the_name() -> None:
    history = data.history(f"{FSDP}.optim_state_dict_to_load")
    assert list(history) == [release for release in PUBLISHED if release >= Version("2.0")]
    old, new = history[Version("2.0.1")], history[Version("2.1.2")]
    assert old.kind == new.kind == "staticmethod"
    assert old.signature == "optim_state_dict, model, optim, is_named_optimizer=False, group=None"
    assert new.signature == (
        "model, optim, optim_state_dict, is_named_optimizer=False, load_directly=False, group=None"
    )
    assert new.target == f"{PACKAGE}.fully_sharded_data_parallel.FullyShardedDataParallel.optim_state_dict_to_load"


def test_names_below_a_prefix_come_from_all_areas_that_it_spans() -> None:
    below = set(data.names(f"{PACKAGE}.wrap"))
    assert f"{PACKAGE}.wrap.ModuleWrapPolicy" in below
    assert all(name == f"{PACKAGE}.wrap" or name.startswith(f"{PACKAGE}.wrap.") for name in below)
    everything = set(data.names("torch.distributed"))
    assert {"torch.distributed.all_reduce", "torch.distributed.tensor.DTensor", FSDP} <= everything
    assert not {"torch.load", "torch.amp.GradScaler"} & everything
    assert {"torch.load", "torch.amp.GradScaler"} <= set(data.names())


@pytest.mark.parametrize("area", AREAS)
def test_files_are_sorted_compact_and_made_of_known_words(area: str) -> None:
    raw = files("fsdp_migrate.torch_api").joinpath(f"{area}.json.gz").read_bytes()
    table = json.loads(gzip.decompress(raw))
    assert table["releases"].split() == [str(release) for release in PUBLISHED]
    names = list(table["names"])
    assert names == sorted(names)
    assert {data.area_of(name) for name in names} == {area}
    words = {"in", "optional", "kind", "signature", "value", "target", "bases", "deprecated", "deprecated_parameters"}
    assert {key for row in table["names"].values() for key in row} <= {*words, "module", "foreign", "instance"}
    kinds = {kind for row in table["names"].values() for kind in row["kind"].values()}
    assert kinds <= set(
        "alias class classmethod constant enum-member field function method module property staticmethod".split()
    )
    assert len(raw) < 100_000


def test_every_signature_can_be_read() -> None:
    for name in data.names():
        for release, state in data.history(name).items():
            assert (data.signature(name, release) is None) is (state.signature is None), name


def test_only_the_area_that_is_asked_for_is_loaded() -> None:
    code = (
        "from packaging.version import Version\n"
        "from fsdp_migrate.torch_api import data\n"
        "loaded = []\n"
        "load = data._load\n"
        "data._load = lambda area: loaded.append(area) or load(area)\n"
        "assert not loaded\n"
        f"assert data.exists('{FSDP}.optim_state_dict', Version('2.1.2'))\n"
        "print(*sorted(set(loaded)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["fsdp"]
