from __future__ import annotations

import pytest

from fsdp_migrate.lint import lint_bytes, worth_linting
from fsdp_migrate.rules.changed_names import changed_names, has_changed, names_asked
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.torch_api.data import _parameters
from fsdp_migrate.workspace.settings import Settings
from tools.build_changed_names import derived_names, takes_all

FSDP = "torch.distributed.fsdp"


def test_the_stored_names_are_those_that_the_api_data_gives() -> None:
    stored = frozenset(names_asked(True)), changed_names()
    assert stored == derived_names(), "run `python -m tools.build_changed_names`"


def test_a_name_counts_as_changed_by_presence_or_by_signature() -> None:
    assert has_changed(f"{FSDP}.fully_shard")
    assert has_changed(f"{FSDP}.FullyShardedDataParallel")
    assert has_changed("torch.distributed.device_mesh")
    assert not has_changed(f"{FSDP}.wrap")
    assert not has_changed("torch.distributed.get_rank")
    assert not has_changed("torch.nn.Linear")


def test_a_member_counts_wherever_its_class_is_imported_from() -> None:
    assert has_changed(f"{FSDP}.FullyShardedDataParallel.optim_state_dict")
    assert has_changed(f"{FSDP}.fully_sharded_data_parallel.FullyShardedDataParallel.optim_state_dict")
    assert not has_changed(f"{FSDP}.FullyShardedDataParallel.no_sync_at_all")


def test_a_name_fails_with_the_newest_release_if_that_lacks_it_warns_or_takes_less() -> None:
    assert has_changed("torch.distributed._shard.checkpoint", newest_only=True)
    assert has_changed("torch.distributed.all_gather_coalesced", newest_only=True)
    assert has_changed("torch.distributed.tensor.parallel.parallelize_module", newest_only=True)
    assert has_changed(f"{FSDP}.fully_shard")
    assert not has_changed(f"{FSDP}.fully_shard", newest_only=True)


@pytest.mark.parametrize(
    ("old", "new", "takes"),
    [
        ("a, b", "a, b, c=None", True),
        ("a, *, b=1", "a, *, b=1, c=2", True),
        ("a, *, b=1", "a, b=1", True),
        ("a", "a, **options", True),
        ("a, b", "a", False),
        ("a, b", "a, c", False),
        ("a, b=1", "a, b", False),
        ("a", "a, *, b", False),
        ("a, b", "a, *, b", False),
        ("a, *, b=1", "a, *, b", False),
        ("a, *rest", "a, b=1, *rest", False),
        ("a, **options", "a", False),
    ],
)
def test_new_parameters_take_every_call_of_the_old_ones(old: str, new: str, takes: bool) -> None:
    assert takes_all(_parameters(new), _parameters(old)) is takes


_NEW = b"from torch.distributed.fsdp import fully_shard\n\nshard = fully_shard\n"
_GONE = b"from torch.distributed._shard.checkpoint import save_state_dict\n"


def test_what_only_older_releases_lack_makes_no_file_worth_a_look_where_nobody_states_them() -> None:
    assumed, stated = Settings(TorchRange.default(), ("FSDP600",)), Settings(TorchRange.parse(">=2.1"), ("FSDP600",))
    assert not worth_linting(_NEW, "x.py", assumed)
    assert worth_linting(_NEW, "x.py", assumed._replace(hints=True))
    assert worth_linting(_NEW, "x.py", stated)
    assert worth_linting(_GONE, "x.py", assumed)
    assert [one.code for one in lint_bytes(_NEW, "x.py", stated).findings] == ["FSDP600"]
