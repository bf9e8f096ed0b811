from __future__ import annotations

import pytest

from fsdp_migrate.code.sharded_models import is_fully_shard
from fsdp_migrate.code.torch_names import calls_ending_in, torch_path
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange

FULLY_SHARD = "torch.distributed.fsdp.fully_shard"


@pytest.mark.parametrize(
    "value", ["fsdp.fully_shard", "fsdp.fully_shard if ready else None", "ready and fsdp.fully_shard or None"]
)
def test_calls_are_found_by_the_last_word_also_where_the_callee_is_chosen(value: str) -> None:
    text = f"import torch.distributed.fsdp as fsdp\n\nshard = {value}\nshard(model)\nfsdp.other(model)\nprint(model)\n"
    facts = ModuleFacts(Source(text.encode()), "x.py", TorchRange.default())
    found = calls_ending_in(facts, ("fully_shard",))
    assert [call.lineno for call in found] == [4]
    if "and" not in value:
        assert torch_path(facts, found[0].func) == FULLY_SHARD
        assert is_fully_shard(facts, found[0])
