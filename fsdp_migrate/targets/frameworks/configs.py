"""Which framework a YAML file configures FSDP for."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.workspace.beside.yaml_text import Item, Mapping, YamlText

CONFIG = "fsdp_config"
# A mapping with one of these keys beside `fsdp_config` is what the framework reads; the first that fits counts.
_KEYS = {
    "accelerate": ("distributed_type", "compute_environment"),
    "axolotl": ("base_model",),
    "composer": ("train_loader", "eval_loader", "max_duration", "max_seq_len", "models", "icl_tasks"),
    "transformers": ("fsdp", "output_dir", "per_device_train_batch_size"),
}


class Config(NamedTuple):
    """A mapping that a framework reads; `own` is its `fsdp_config`, at `item`, both None where it has none."""

    framework: str
    parent: Mapping
    item: Item | None
    own: Mapping | None


def configs(facts: ModuleFacts, framework: str) -> Iterator[tuple[YamlText, Config]]:
    """The configurations of a framework in a file of YAML."""
    source = facts.source
    if not isinstance(source, YamlText):
        return
    for parent in source.mappings:
        keys = {item.key for item in parent.items}
        item = parent.get(CONFIG)
        fitting = next((name for name, marks in _KEYS.items() if keys.intersection(marks)), None)
        if fitting == framework and (item is not None or fitting == "accelerate"):
            own = None if item is None else source.mapping(item.node)
            yield source, Config(fitting, parent, item, own)
