"""Programs that leave sharding to a framework: FSDP2 is a setting there, and not a change of this code.

All of it was read in the frameworks' sources: accelerate 1.5 to 1.15 (`utils/dataclasses.py`, `commands/launch.py`,
`commands/to_fsdp2.py`, the guide `fsdp1_vs_fsdp2`), transformers 4.57 to 5.24 (`training_args.py`), Lightning 2.6
(`strategies/fsdp.py`, `strategies/model_parallel.py`), Composer 0.33 (`utils/parallelism.py`, `trainer/trainer.py`,
the note `fsdp2`), axolotl 0.18 (`utils/schemas/`, the page `multi-gpu`), torchtune 0.7 (`recipes/`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.records import NamedTuple


class Framework(NamedTuple):
    """A framework: what its FSDP1 is called, and the argument that turns it on where that is not all it is for."""

    name: str
    classes: tuple[str, ...]
    keyword: str | None = None


FRAMEWORKS = (
    Framework("accelerate", ("FullyShardedDataParallelPlugin",)),
    Framework("transformers", ("TrainingArguments", "Seq2SeqTrainingArguments"), "fsdp"),
    Framework("lightning", ("FSDPStrategy",)),
    Framework("composer", ("Trainer",), "parallelism_config"),
)


class Keys(NamedTuple):
    """What the FSDP2 of a framework makes of the keys that its FSDP1 has, without `fsdp_` in front of them.

    `since` is its first version with FSDP2. It reads the keys `kept`, and ignores or rejects those that are `gone`.
    """

    since: str
    kept: frozenset[str]
    gone: frozenset[str]


_OF_FSDP1 = ("backward_prefetch", "forward_prefetch", "sync_module_states", "use_orig_params", "limit_all_gathers")
_OF_BOTH = """
    version reshard_after_forward sharding_strategy state_dict_type auto_wrap_policy transformer_layer_cls_to_wrap
    min_num_params cpu_ram_efficient_loading activation_checkpointing
""".split()
KEYS = {
    "accelerate": Keys(
        "1.6",
        frozenset([*_OF_BOTH, "offload_params", "ignored_modules"]),
        frozenset([*_OF_FSDP1, "backward_prefetch_policy"]),
    ),
    "transformers": Keys("5.0", frozenset([*_OF_BOTH, "cpu_offload"]), frozenset(_OF_FSDP1)),
    "axolotl": Keys(
        "0.12",
        frozenset([*_OF_BOTH, "offload_params", "cpu_offload_pin_memory", "final_state_dict_type"]),
        frozenset([*_OF_FSDP1, "backward_prefetch_policy"]),
    ),
    "composer": Keys(
        "0.31",
        frozenset(
            """
            activation_checkpointing activation_cpu_offload device_mesh load_monolith_rank0_only mixed_precision
            reshard_after_forward sharding_strategy state_dict_type verbose
            """.split()
        ),
        frozenset(
            """
            activation_checkpointing_reentrant auto_wrap backward_prefetch backward_prefetch_limit cpu_offload
            data_parallel_replicate_degree data_parallel_shard_degree forward_prefetch forward_prefetch_limit
            ignored_modules keep_low_precision_grads limit_all_gathers load_planner process_group save_planner
            sharded_ckpt_prefix_dir sync_module_states te_checkpoint_wrapper te_shard_fp8_weight use_orig_params
            """.split()
        ),
    ),
}
# What a strategy of FSDP1 is as `reshard_after_forward`; the others are no strategy of `fully_shard`.
STRATEGIES = {"FULL_SHARD": True, "1": True, "SHARD_GRAD_OP": False, "2": False}
OTHER_STRATEGIES = {
    "NO_SHARD": "it is DDP",
    "3": "it is NO_SHARD, which is DDP",
    "HYBRID_SHARD": "it needs a device mesh with a `dp_replicate_size`",
    "4": "it is HYBRID_SHARD, which needs a device mesh with a `dp_replicate_size`",
    "HYBRID_SHARD_ZERO2": "it needs a device mesh with a `dp_replicate_size`",
    "5": "it is HYBRID_SHARD_ZERO2, which needs a device mesh with a `dp_replicate_size`",
}
# Arguments and flags that versions stopped to take: framework, name, first version without it, what to do.
REMOVED = (
    (
        "transformers",
        "fsdp_transformer_layer_cls_to_wrap",
        "5.0",
        "give `transformer_layer_cls_to_wrap` in `fsdp_config`",
    ),
    ("transformers", "fsdp_min_num_params", "5.0", "give `min_num_params` in `fsdp_config`"),
    ("composer", "fsdp_config", "0.27", "give it as `parallelism_config={'fsdp': ...}`"),
    ("composer", "device_mesh", "0.24", "give `data_parallel_shard_degree` and `data_parallel_replicate_degree`"),
    ("lightning", "fsdp_native", "2.0", 'use `"fsdp"`'),
    ("lightning", "fsdp_native_full_shard_offload", "2.0", 'use `"fsdp_cpu_offload"`'),
    (
        "torchtune",
        "memory_efficient_fsdp_wrap",
        "0.5",
        "take it out: recipes of torchtune use FSDP2, and do not read it",
    ),
)
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def removed(framework: str) -> dict[str, tuple[str, str]]:
    """The names that a framework stopped to take, with the first version without them and what to do."""
    return {name: (since, what) for one, name, since, what in REMOVED if one == framework}


def truth(word: str) -> bool | None:
    """What a word means to the frameworks as true or false."""
    return True if word.lower() in _TRUE else False if word.lower() in _FALSE else None


# The packages that a framework goes by.
LIGHTNING_PACKAGES = ("lightning", "pytorch_lightning", "lightning_fabric")
_PACKAGES = {"lightning": LIGHTNING_PACKAGES}


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
