"""Which functions `trace` looks for, and what the docs say of the rest."""

from __future__ import annotations

import re
from pathlib import Path

from fsdp_migrate.code.legacy_methods import METHODS
from fsdp_migrate.torch_api.data import first
from fsdp_migrate.trace.apis import apis, untraced
from tests.trace.stub import AUTOCAST, SUBMODULES, TYPE

DOCS = Path(__file__).parents[2] / "docs" / "trace.md"
_CLASS = TYPE.rpartition(".")[0]


def codes(name: str) -> list[str]:
    return [watched.rule.card.code for watched in apis()[name]]


def test_every_function_is_in_some_release_of_torch() -> None:
    assert [name for name in apis() if first(name) is None] == []


def test_the_tables_of_the_rules_are_what_is_looked_for() -> None:
    methods = {name: codes(f"{_CLASS}.{name}") for name in METHODS}
    assert list(methods.values()) == [[f"FSDP10{n}"] for n in range(1, 6)]
    assert codes(TYPE) == ["FSDP210"]
    assert codes(AUTOCAST) == ["FSDP801"]
    # What only the data tell is the general rule's, where no other speaks.
    assert codes("torch.distributed.distributed_c10d.all_gather_coalesced") == ["FSDP610"]


def test_an_argument_may_be_what_makes_a_call_a_place() -> None:
    (submodules,) = apis()[SUBMODULES]
    assert (submodules.traced.given, submodules.traced.missing) == ("submodules", None)
    (checkpoint,) = apis()["torch.utils.checkpoint.checkpoint"]
    assert (checkpoint.traced.given, checkpoint.traced.missing) == (None, "use_reentrant")


def test_names_that_are_one_function_with_the_new_ones_are_not_looked_for() -> None:
    for name in ("torch.distributed.tensor._api.distribute_tensor", "torch.distributed.fsdp._flat_param.FlatParameter"):
        assert name not in apis()


def test_the_docs_list_the_rules_that_no_call_shows() -> None:
    listed = re.findall(r"FSDP\d{3}", DOCS.read_text().partition("<!-- untraced -->")[2].partition("\n\n")[0])
    assert listed == [rule.card.code for rule in untraced()]
