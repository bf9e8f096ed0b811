"""FSDP851: what accelerate is told of FSDP, in its YAML, its plugin and its flags."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from fsdp_migrate.code.frameworks import KEYS, STRATEGIES, switches, truth
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.targets.frameworks.configs import Config, configs
from fsdp_migrate.targets.frameworks.flags import flags
from fsdp_migrate.targets.frameworks.switching import PREFIX, RESHARD, STATE, StoppedError, short, switch, yaml_edits
from fsdp_migrate.workspace.beside.yaml_text import Item, YamlText

_NAME = "accelerate"
_UNSAFE = (
    "FSDP2 shards each parameter by itself: rates, memory and checkpoints differ, and torch 2.6 and accelerate "
    f"{KEYS[_NAME].since} are needed"
)
_MESSAGE = f"accelerate is told to use FSDP1: FSDP2 is `fsdp_version: 2`, since accelerate {KEYS[_NAME].since}"


def _check(facts: ModuleFacts, card: RuleCard, *, converting: bool) -> Iterator[Finding]:
    for source, config in configs(facts, _NAME):
        yield from _rejected(facts, card, config)
        if converting and config.item is not None and config.parent.text("distributed_type") == "FSDP":
            yield from _converted(facts, card, source, config)
    yield from _of_plugins(facts, card, converting=converting)
    if converting:
        for flag in flags(
            facts, "accelerate", [f"--{PREFIX}{key}" for key in KEYS[_NAME].gone | {"sharding_strategy"}]
        ):
            verdict = manual("give `--fsdp_version 2` and `--fsdp_reshard_after_forward`, and leave this flag out")
            yield finding(facts, card, flag.word.span, flag.command, _MESSAGE, verdict, Severity.DEPRECATED)


def _version(config: Config) -> str | None:
    """The version in an `fsdp_config`, with or without `fsdp_` in front."""
    own = config.own
    return None if own is None else own.text(f"{PREFIX}version") or own.text("version")


def _rejected(facts: ModuleFacts, card: RuleCard, config: Config) -> Iterator[Finding]:
    """What `accelerate launch` stops at."""

    def found(item: Item, message: str, what: str) -> Finding:
        return finding(facts, card, item.key_span, item.key_span, message, manual(what), Severity.BREAKS)

    version = config.parent.get("fsdp_version")
    if version is not None:
        told = "accelerate stops at `fsdp_version` outside of `fsdp_config`, which is an unknown key there"
        yield found(version, told, "move it into `fsdp_config`")
    parallel = config.parent.get("parallelism_config")
    is_fsdp = config.parent.text("distributed_type") in (None, "FSDP")
    if parallel is not None and parallel.text is None and (not is_fsdp or _version(config) == "1"):
        told = "accelerate stops at `parallelism_config` without FSDP2, since it came with accelerate 1.10"
        yield found(parallel, told, "set `fsdp_version: 2` in `fsdp_config`, and `distributed_type: FSDP`")
    for item in () if config.own is None else config.own.items:
        name, word = short(item.key), item.text or ""
        if _version(config) == "2" and name == RESHARD and truth(word) is None:
            told = f"accelerate stops at `{item.key}: {word}`, which is true or false with `fsdp_version: 2`"
            yield found(item, told, _as_truth(word))
        if _version(config) == "2" and name == STATE and word.upper() == "LOCAL_STATE_DICT":
            told = "accelerate stops at LOCAL_STATE_DICT with `fsdp_version: 2` since accelerate 1.7"
            yield found(item, told, "choose SHARDED_STATE_DICT or FULL_STATE_DICT")


def _as_truth(word: str) -> str:
    shards = STRATEGIES.get(word.upper())
    return "write true or false" if shards is None else f"write {'true' if shards else 'false'}"


def _converted(facts: ModuleFacts, card: RuleCard, source: YamlText, config: Config) -> Iterator[Finding]:
    item, own = config.item, config.own
    if item is None or own is None or _version(config) == "2":
        return
    try:
        decided = switch(_NAME, {one.key: one.text for one in own.items})
        verdict = Verdict(Fix(yaml_edits(source, own, decided)), unsafe=_UNSAFE, note=decided.note)
    except StoppedError as error:
        verdict = manual(str(error))
    yield finding(facts, card, item.key_span, item.key_span, _MESSAGE, verdict, Severity.DEPRECATED)


def _of_plugins(facts: ModuleFacts, card: RuleCard, *, converting: bool) -> Iterator[Finding]:
    """What the plugin stops at when it is made, and plugins for FSDP1."""
    for one in switches(facts):
        if one.framework.name != _NAME:
            continue
        given = {keyword.arg: keyword.value for keyword in one.call.keywords if keyword.arg is not None}
        version = _constant(given.get("fsdp_version"))
        if "fsdp_version" in given and version is None:
            continue
        for told, what in _stops(given, version or 1):
            yield finding(facts, card, one.call, facts.statement(one.call), told, manual(what), Severity.BREAKS)
        if converting and version != 2:
            gone = [name for name in given if name in KEYS[_NAME].gone]
            also = f", and leave out {', '.join(f'`{name}`' for name in gone)}" if gone else ""
            verdict = manual(f"give `fsdp_version=2`, `{RESHARD}` for the strategy{also}")
            yield finding(facts, card, one.call, facts.statement(one.call), _MESSAGE, verdict, Severity.DEPRECATED)


def _stops(given: dict[str, ast.expr], version: object) -> Iterator[tuple[str, str]]:
    reshard = _constant(given.get(RESHARD))
    if version == 2 and isinstance(reshard, str) and truth(reshard) is None:
        yield f"accelerate stops at `{RESHARD}={reshard!r}` with `fsdp_version=2`", _as_truth(reshard)
    if version != 2 and isinstance(reshard, bool):
        yield f"accelerate stops at `{RESHARD}={reshard}` without `fsdp_version=2`", "give `fsdp_version=2` too"
    if version == 2 and _constant(given.get("forward_prefetch")) is not None:
        yield "accelerate stops at `forward_prefetch` with `fsdp_version=2`", "leave it out"
    if version == 2 and str(_constant(given.get(STATE))).upper() == "LOCAL_STATE_DICT":
        yield "accelerate stops at LOCAL_STATE_DICT with `fsdp_version=2`", "choose sharded or full state dicts"


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


_IMPORT = "from accelerate import FullyShardedDataParallelPlugin\n\n"
CARD = RuleCard(
    code="FSDP851",
    name="accelerate-config",
    summary="what accelerate is told of FSDP and stops at; with the target `fsdp2`, what tells it to use FSDP1",
    explanation=f"""\
In YAML (`fsdp_config`, `parallelism_config`), in `FullyShardedDataParallelPlugin(...)`, and in flags of
`accelerate launch` in scripts. Without a target only what accelerate stops at is found: `fsdp_version` outside of
`fsdp_config`, a strategy or LOCAL_STATE_DICT (since 1.7) with `fsdp_version: 2`, and `parallelism_config` (1.10)
without it.

`--target fsdp2` finds FSDP1, and rewrites YAML: `fsdp_version: 2` (accelerate {KEYS[_NAME].since}),
`fsdp_reshard_after_forward` for the strategy, FULL_STATE_DICT written out where it was the default, which changes, and
no `backward_prefetch`, `forward_prefetch`, `sync_module_states` and `use_orig_params`. `accelerate to-fsdp2` does that
too, but drops comments and order, takes HYBRID_SHARD and NO_SHARD for plain sharding, leaves LOCAL_STATE_DICT, and
does not write out the default. Here the first three of these stay as they are or are manual.""",
    applicability="unsafe or manual",
    severity=Severity.BREAKS,
    flags=(
        Example(
            before=_IMPORT
            + "plugin = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward='FULL_SHARD')\n"
        ),
        Example(before=_IMPORT + "plugin = FullyShardedDataParallelPlugin(reshard_after_forward=True)\n"),
    ),
    leaves=(
        _IMPORT + "plugin = FullyShardedDataParallelPlugin(sharding_strategy='FULL_SHARD')\n",
        _IMPORT + "plugin = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=True)\n",
    ),
    url="https://huggingface.co/docs/accelerate/concept_guides/fsdp1_vs_fsdp2",
)
_WORDS = ("FullyShardedDataParallelPlugin",)
_BESIDE = ("fsdp_config", "parallelism_config", "--fsdp_")
RULE = Rule(CARD, _WORDS, partial(_check, converting=False), beside=_BESIDE)
OF_FSDP2 = Rule(CARD._replace(floor="2.6"), _WORDS, partial(_check, converting=True), target="fsdp2", beside=_BESIDE)
