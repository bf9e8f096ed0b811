from __future__ import annotations

from fsdp_migrate.rules.changed_names import changed_names, derived_names, has_changed

FSDP = "torch.distributed.fsdp"


def test_the_stored_names_are_those_that_the_api_data_gives() -> None:
    assert changed_names() == derived_names(), "run `python -m tools.build_changed_names`"


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
