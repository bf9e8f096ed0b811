"""Programs that leave sharding to a framework: FSDP2 is a setting there, and not a change of this code.

Source: accelerate's concept guide `fsdp1_vs_fsdp2`, Lightning's page of `ModelParallelStrategy`, Composer's notes on
FSDP2; what each of them changes was read in their sources (mapping O23, O24).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from fsdp_migrate.facts import ModuleFacts


class Framework(NamedTuple):
    """A framework: what its FSDP1 is called, and what to set for FSDP2."""

    name: str
    classes: tuple[str, ...]
    keyword: str | None
    change: str


FRAMEWORKS = (
    Framework(
        "accelerate",
        ("FullyShardedDataParallelPlugin",),
        None,
        "set `fsdp_version=2`; `accelerate to-fsdp2` converts a YAML file, but loses HYBRID_SHARD and NO_SHARD",
    ),
    Framework(
        "transformers",
        ("TrainingArguments", "Seq2SeqTrainingArguments"),
        "fsdp",
        "set `fsdp_version` to 2 in `fsdp_config`; names of strategies become `reshard_after_forward`",
    ),
    Framework(
        "lightning",
        ("FSDPStrategy",),
        None,
        "use `ModelParallelStrategy`, and call `fully_shard` in `configure_model`",
    ),
    Framework(
        "composer",
        ("Trainer",),
        "parallelism_config",
        "give the settings under `fsdp2`; checkpoints of FSDP1 load if they were written with a device mesh",
    ),
)
# The packages that a framework goes by.
_PACKAGES = {"lightning": ("lightning", "pytorch_lightning", "lightning_fabric")}
WORDS = tuple(name.encode() for one in FRAMEWORKS for name in one.classes)


class Switch(NamedTuple):
    """A place where a framework is told to use FSDP1."""

    facts: ModuleFacts
    call: ast.Call
    framework: Framework


def switches(facts: ModuleFacts) -> Iterator[Switch]:
    """The places in a module."""
    for call in facts.structure.calls:
        named = facts.names.qualified(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
        package, name = (named or "").partition(".")[0], (named or "").rpartition(".")[2]
        for one in FRAMEWORKS:
            is_given = one.keyword in {None, *(keyword.arg for keyword in call.keywords)}
            if is_given and name in one.classes and package in _PACKAGES.get(one.name, (one.name,)):
                yield Switch(facts, call, one)
