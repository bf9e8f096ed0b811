from __future__ import annotations

import pytest

from fsdp_migrate.scan.needles import Haystack, Needles, Written

TEXT = Written(
    b"from torch.distributed.fsdp import fully_shard as shard\n"
    b"model. \\\n    module.to_empty(device)\nprefix + '_full_state_dict'\nimport torch.load_all\nx.last"
)


@pytest.mark.parametrize(
    "needles",
    [
        "fully_shard",
        ".module",
        ".to_empty",
        ".last",
        "*_state_dict",
        "torch.load",
        "import fully_shard",
        ("fully_shard", ".to_empty"),
        ("torch.load", "device"),
    ],
)
def test_needles_are_found_where_all_of_them_are(needles: Needles) -> None:
    assert TEXT.has(needles)
    assert Haystack([(needles, "rule"), ("absent", "other")]).found(TEXT) == {"rule"}


@pytest.mark.parametrize(
    "needles", ["shar", "_shard", "_state_dict", ".device", ".fully_shar", ".load", ("fully_shard", ".absent")]
)
def test_a_part_of_a_word_is_no_word_and_a_name_no_attribute(needles: Needles) -> None:
    assert not TEXT.has(needles)
    assert Haystack([(needles, "rule")]).found(TEXT) == set()
