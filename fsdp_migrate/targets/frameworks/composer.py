"""FSDP854: what Composer and LLM Foundry are told of FSDP."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import partial

from fsdp_migrate.code.frameworks import KEYS, removed
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.targets.frameworks.configs import CONFIG, configs

_NAME = "composer"
_MESSAGE = (
    f"Composer is told to use FSDP1: FSDP2 is `FSDP_VERSION=2` in the environment, since Composer {KEYS[_NAME].since}"
)
_PARALLEL = "parallelism_config"
_MESH = "device_mesh"


def _check(facts: ModuleFacts, card: RuleCard, *, converting: bool) -> Iterator[Finding]:
    gone = removed(_NAME)
    for call in _trainers(facts):
        statement = facts.statement(call)
        for keyword in call.keywords:
            if keyword.arg == CONFIG:
                since, what = gone[CONFIG]
                told = f"Composer's Trainer does not take `{CONFIG}` since {since}"
                yield finding(facts, card, keyword, statement, told, manual(what), Severity.BREAKS)
            for key, own in _fsdp(keyword) if keyword.arg == _PARALLEL else ():
                names = _names(own)
                if _MESH in names:
                    yield finding(facts, card, own, statement, *_stop())
                if converting:
                    verdict = manual(_what(names))
                    yield finding(facts, card, key, statement, _MESSAGE, verdict, Severity.DEPRECATED)
    for _, config in configs(facts, _NAME):
        if config.own is None or config.item is None:
            continue
        for item in config.own.items:
            if item.key == _MESH:
                yield finding(facts, card, item.key_span, item.key_span, *_stop())
        if converting:
            span, verdict = config.item.key_span, manual(_what(item.key for item in config.own.items))
            yield finding(facts, card, span, span, _MESSAGE, verdict, Severity.DEPRECATED)


def _stop() -> tuple[str, Verdict, Severity]:
    since, what = removed(_NAME)[_MESH]
    return f"Composer's FSDP1 stops at `{_MESH}` since {since}", manual(what), Severity.BREAKS


def _what(names: Iterable[str]) -> str:
    """What to do about the keys of a configuration."""
    keys, names = KEYS[_NAME], list(names)
    strategy = ["write `sharding_strategy` as `reshard_after_forward`"] if "sharding_strategy" in names else []
    ignored = [name for name in names if name in keys.gone]
    unknown = [name for name in names if name not in keys.gone | keys.kept]
    told = ["set FSDP_VERSION=2", *strategy]
    told += [f"leave out what FSDP2 ignores ({', '.join(ignored)})"] if ignored else []
    told += [f"look at unknown keys ({', '.join(unknown)})"] if unknown else []
    return "; ".join(told)


def _trainers(facts: ModuleFacts) -> Iterator[ast.Call]:
    for call in facts.structure.calls:
        named = facts.names.qualified(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
        if named is not None and named.partition(".")[0] == _NAME and named.rpartition(".")[2] == "Trainer":
            yield call


def _fsdp(keyword: ast.keyword) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a dict has for FSDP1."""
    node = keyword.value
    for key, value in zip(node.keys, node.values) if isinstance(node, ast.Dict) else ():
        if isinstance(key, ast.Constant) and key.value == "fsdp":
            yield key, value


def _names(node: ast.expr) -> list[str]:
    keys = node.keys if isinstance(node, ast.Dict) else ()
    return [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]


_IMPORT = "from composer import Trainer\n\n"
CARD = RuleCard(
    code="FSDP854",
    name="composer-fsdp",
    summary="what Composer is told of FSDP and stops at; with the target `fsdp2`, what tells it to use FSDP1",
    explanation=f"""\
In `Trainer(parallelism_config={{'fsdp': {{...}}}})` of Composer, and in the `fsdp_config` of LLM Foundry's YAML.
Without a target only what Composer stops at is found: `Trainer(fsdp_config=...)` (since 0.27) and `device_mesh` (0.24).

`--target fsdp2` finds FSDP1. FSDP2 is chosen by the environment variable FSDP_VERSION=2 (Composer
{KEYS[_NAME].since}, read in 0.33), or by an `FSDP2Config`. It warns about other keys than its own and ignores them, the
strategy among them, so the finding names those that there are. It is manual. Sharded checkpoints of FSDP1 load only if
they were written with a device mesh.""",
    applicability="manual",
    severity=Severity.BREAKS,
    flags=(
        Example(before=_IMPORT + "trainer = Trainer(model, fsdp_config={'sharding_strategy': 'FULL_SHARD'})\n"),
        Example(before=_IMPORT + "trainer = Trainer(model, parallelism_config={'fsdp': {'device_mesh': [2, 4]}})\n"),
    ),
    leaves=(_IMPORT + "trainer = Trainer(model, parallelism_config={'fsdp': {'verbose': True}})\n",),
    url="https://docs.mosaicml.com/projects/composer/en/stable/notes/distributed_training.html",
)
_WORDS = (CONFIG, _PARALLEL)
_CALLED = tuple((word, "Trainer") for word in _WORDS)
RULE = Rule(CARD, _CALLED, partial(_check, converting=False), beside=_WORDS)
OF_FSDP2 = Rule(CARD._replace(floor="2.6"), _CALLED, partial(_check, converting=True), target="fsdp2", beside=_WORDS)
