"""FSDP855 and FSDP856: YAML of axolotl and of torchtune."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdp_migrate.code.frameworks import KEYS, removed
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Rule, RuleCard, finding, manual
from fsdp_migrate.targets.frameworks.configs import CONFIG, Config, configs
from fsdp_migrate.targets.frameworks.switching import RESHARD, STRATEGY, StoppedError, short, switch
from fsdp_migrate.workspace.beside.yaml_text import YamlText

_AXOLOTL = "axolotl"
_PIN = "cpu_offload_pin_memory"
_MESSAGE = (
    "axolotl is told to use FSDP1, which it deprecates: FSDP2 is `fsdp_version: 2`, since axolotl "
    f"{KEYS[_AXOLOTL].since}"
)


def _check_axolotl(facts: ModuleFacts, card: RuleCard, *, converting: bool) -> Iterator[Finding]:
    for _, config in configs(facts, _AXOLOTL):
        if config.item is None or config.own is None:
            continue
        if "2" in (config.parent.text("fsdp_version"), config.own.text("fsdp_version"), config.own.text("version")):
            continue
        for item in config.own.items:
            if item.key == _PIN and (item.text or "").lower() == "false":
                told, verdict = f"axolotl stops at `{_PIN}: false` without `fsdp_version: 2`", manual("set it")
                yield finding(facts, card, item.key_span, item.key_span, told, verdict, Severity.BREAKS)
        if converting:
            span, verdict = config.item.key_span, manual(_steps(config))
            yield finding(facts, card, span, span, _MESSAGE, verdict, Severity.DEPRECATED)


def _steps(config: Config) -> str:
    """What to do about the keys of a configuration."""
    assert config.own is not None
    try:
        decided = switch(_AXOLOTL, {item.key: item.text for item in config.own.items})
    except StoppedError as error:
        return str(error)
    steps = [f"set `fsdp_version: 2` beside `{CONFIG}`"]
    if any(short(item.key) == STRATEGY for item in config.own.items) or not decided.reshard:
        steps.append(f"write the strategy as `{RESHARD}: {str(decided.reshard).lower()}`")
    if any(item.key != short(item.key) for item in config.own.items):
        steps.append("write keys without `fsdp_`")
    steps += [f"leave out {', '.join(f'`{key}`' for key in decided.gone)}"] if decided.gone else []
    steps += ["leave out `fsdp`"] if config.parent.get("fsdp") is not None else []
    steps += [decided.note] if decided.note else []
    return "; ".join(steps)


def _check_torchtune(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    source = facts.source
    for name, (since, what) in removed("torchtune").items():
        for mapping in source.mappings if isinstance(source, YamlText) else ():
            if (item := mapping.get(name)) is not None:
                told = f"torchtune does not read `{name}` since {since}"
                yield finding(facts, card, item.key_span, item.key_span, told, manual(what), Severity.DEPRECATED)


def _nothing(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    return iter(())


AXOLOTL_CARD = RuleCard(
    code="FSDP855",
    name="axolotl-fsdp",
    summary="axolotl's YAML: a key that it stops at; with the target `fsdp2`, what tells it to use FSDP1",
    explanation=f"""\
In YAML with `base_model` and `fsdp_config`. Without a target only `{_PIN}: false` without `fsdp_version: 2` is found,
which axolotl stops at.

`--target fsdp2` finds FSDP1, which axolotl deprecates and is about to remove. The finding is manual, and says what to
do with the keys that there are: `fsdp_version: 2` beside `fsdp_config` (axolotl {KEYS[_AXOLOTL].since}), keys without
`fsdp_`, `reshard_after_forward` for the strategy, and no `sync_module_states`, `use_orig_params` and prefetching. Keys
that axolotl's schema does not know are ignored without a word (read in 0.18: `utils/schemas/fsdp.py`), so the finding
names them.""",
    applicability="manual",
    severity=Severity.BREAKS,
    url="https://docs.axolotl.ai/docs/multi-gpu.html",
)
TORCHTUNE_CARD = RuleCard(
    code="FSDP856",
    name="torchtune-fsdp",
    summary="with the target `fsdp2`: a key for FSDP1 in torchtune's YAML",
    explanation="""\
The recipes of torchtune use FSDP2 since 0.3, so there is nothing to convert. `--target fsdp2` finds
`memory_efficient_fsdp_wrap`, which they do not read since 0.5 (read in 0.7: `recipes/`). The finding is manual. Such a
file is only read if it is named, or has `fsdp_config`, `fsdp_version` or `parallelism_config` in it too.""",
    applicability="manual",
    severity=Severity.DEPRECATED,
    url="https://docs.pytorch.org/torchtune/stable/",
)
_AXOLOTL_WORDS, _TORCHTUNE_WORDS = (CONFIG,), tuple(removed("torchtune"))
RULES = (
    Rule(AXOLOTL_CARD, (), partial(_check_axolotl, converting=False), beside=_AXOLOTL_WORDS),
    Rule(AXOLOTL_CARD, (), partial(_check_axolotl, converting=True), target="fsdp2", beside=_AXOLOTL_WORDS),
    Rule(TORCHTUNE_CARD, (), _nothing, beside=_TORCHTUNE_WORDS),
    Rule(TORCHTUNE_CARD, (), _check_torchtune, target="fsdp2", beside=_TORCHTUNE_WORDS),
)
