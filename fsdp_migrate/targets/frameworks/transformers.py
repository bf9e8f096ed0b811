"""FSDP852: what the Trainer of transformers is told of FSDP, in `TrainingArguments`, YAML and flags."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial

from fsdp_migrate.code.frameworks import KEYS, OTHER_STRATEGIES, STRATEGIES, removed, switches
from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.source import Span
from fsdp_migrate.targets.frameworks.configs import CONFIG, configs
from fsdp_migrate.targets.frameworks.flags import flags
from fsdp_migrate.targets.frameworks.switching import RESHARD, STRATEGY, StoppedError, short, switch

_NAME = "transformers"
_SINCE = KEYS[_NAME].since
# The first version whose default is FSDP2, and that takes no strategy besides its two.
_DEFAULT = "5.10"
_MESSAGE = f"the Trainer is told to use FSDP1: FSDP2 is `version` 2 in `fsdp_config`, since transformers {_SINCE}"
_UNSAFE = (
    f"FSDP2 shards each parameter by itself: rates, memory and checkpoints differ, and transformers {_SINCE} is needed"
)
_UNCLEAR = "`fsdp` is given from elsewhere; if it is on, it is FSDP1 without `version` 2 in `fsdp_config`"
_WHERE_ON = "set `version` to 2 and `reshard_after_forward` in `fsdp_config` where `fsdp` turns it on"
_OWN_FLAG = re.compile(r"(?<!\S)--fsdp(?![\w-])")
_OPTIONS = {"full_shard", "shard_grad_op", "auto_wrap", "offload"}


def _check(facts: ModuleFacts, card: RuleCard, *, converting: bool) -> Iterator[Finding]:
    gone = removed(_NAME)
    for call in _calls(facts):
        statement = facts.statement(call)
        given = {keyword.arg: keyword for keyword in call.keywords if keyword.arg is not None}
        for name in given.keys() & gone.keys():
            since, what = gone[name]
            told = f"`{name}` was removed in transformers {since}"
            yield finding(facts, card, given[name], statement, told, manual(what), Severity.BREAKS)
        strategy = _word(given.get("fsdp"))
        config = given.get(CONFIG)
        version = _version(config)
        if converting and version != 2 and "fsdp" in given and not isinstance(given["fsdp"].value, ast.Constant):
            yield finding(facts, card, given["fsdp"], statement, _UNCLEAR, manual(_WHERE_ON), Severity.DEPRECATED)
        if version == 2 or strategy is None:
            continue
        other = _other(strategy)
        if other is not None and version is None and not converting:
            yield finding(facts, card, given["fsdp"], statement, _stop(other), _choose(other), Severity.BREAKS)
        if converting:
            verdict = _verdict(facts, given["fsdp"], config, strategy)
            yield finding(facts, card, given["fsdp"], statement, _MESSAGE, verdict, Severity.DEPRECATED)
    for flag in flags(facts, "", ("--fsdp", *(f"--{name}" for name in gone))):
        name = flag.word.text.partition("=")[0].removeprefix("--")
        if name in gone:
            if _OWN_FLAG.search(flag.beside) is None or "accelerate" in flag.beside:
                continue  # flags of other programs, and of `accelerate launch`, have these names too
            told, what = f"`--{name}` was removed in transformers {gone[name][0]}", gone[name][1]
            yield finding(facts, card, flag.word.span, flag.command, told, manual(what), Severity.BREAKS)
        elif (other := _other(flag.value)) is not None:
            yield finding(facts, card, flag.word.span, flag.command, _stop(other), _choose(other), Severity.BREAKS)
        elif converting and _OPTIONS.intersection(flag.value.split()):
            verdict = manual("give a file with `version` 2 and `reshard_after_forward` as `--fsdp_config`")
            yield finding(facts, card, flag.word.span, flag.command, _MESSAGE, verdict, Severity.DEPRECATED)
    if converting:
        for _, found in configs(facts, _NAME):
            if found.item is not None and found.own is not None and found.own.text("version") is None:
                verdict = manual("set `version: 2` and `reshard_after_forward` in it, and leave out keys of FSDP1 only")
                span = found.item.key_span
                yield finding(facts, card, span, span, _MESSAGE, verdict, Severity.DEPRECATED)


def _calls(facts: ModuleFacts) -> Iterator[ast.Call]:
    """The calls that make arguments, whether they turn FSDP on or not."""
    found = [one.call for one in switches(facts) if one.framework.name == _NAME]
    yield from found
    for call in facts.structure.calls:
        named = facts.names.qualified(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
        is_ours = (named or "").startswith(f"{_NAME}.") and (named or "").endswith("TrainingArguments")
        if call not in found and is_ours and removed(_NAME).keys() & {keyword.arg for keyword in call.keywords}:
            yield call


def _word(keyword: ast.keyword | None) -> str | None:
    value = None if keyword is None else keyword.value
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value else None


def _other(options: str) -> str | None:
    """The strategy among some options that only FSDP1 has."""
    return next((word for word in options.split() if word.upper() in OTHER_STRATEGIES), None)


def _stop(other: str) -> str:
    return f"the Trainer stops at `{other}` without `version` 1 in `fsdp_config` since transformers {_DEFAULT}"


def _choose(other: str) -> Verdict:
    return manual(f"FSDP2 has no {other}: choose full_shard or shard_grad_op, or set `version` to 1")


def _pairs(config: ast.keyword | None) -> dict[str, ast.expr] | None:
    """The keys of a dict that is written out, None for anything else."""
    if config is None:
        return {}
    if not isinstance(config.value, ast.Dict):
        return None
    found = {}
    for key, value in zip(config.value.keys, config.value.values):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        found[key.value] = value
    return found


def _version(config: ast.keyword | None) -> int | None:
    """The version in a dict; 0 where it is not visible."""
    pairs = _pairs(config)
    if pairs is None:
        return 0
    value = next((value for key, value in pairs.items() if short(key) == "version"), None)
    if value is None:
        return None
    word = str(value.value) if isinstance(value, ast.Constant) else ""
    return int(word) if word in ("1", "2") else 0


def _verdict(facts: ModuleFacts, fsdp: ast.keyword, config: ast.keyword | None, options: str) -> Verdict:
    pairs = _pairs(config)
    if pairs is None:
        return manual("set `version` to 2 and `reshard_after_forward` where `fsdp_config` is made")
    words = {key: str(value.value) if isinstance(value, ast.Constant) else None for key, value in pairs.items()}
    strategies = [word for word in options.split() if word.upper() in STRATEGIES | OTHER_STRATEGIES]
    try:
        known = {key: word for key, word in words.items() if short(key) != RESHARD or word is None}
        decided = switch(_NAME, known, strategies[0] if strategies else "FULL_SHARD")
    except StoppedError as error:
        return manual(str(error))
    new = f'"version": 2, "{RESHARD}": {decided.reshard}'
    if config is None or not isinstance(config.value, ast.Dict):
        end = facts.source.span(fsdp).end
        return Verdict(Fix((Replace(Span(end, end), f", {CONFIG}={{{new}}}"),)), unsafe=_UNSAFE)
    gone = {*decided.gone, *(key for key in pairs if short(key) in ("version", RESHARD, STRATEGY))}
    edits = (*_without(facts, config.value, gone), _first(facts, config.value, new, left=len(pairs) > len(gone)))
    return Verdict(Fix(edits), unsafe=_UNSAFE, note=decided.note)


def _first(facts: ModuleFacts, node: ast.Dict, text: str, *, left: bool) -> Replace:
    """New keys in front of those of a dict; `left` says that some of these stay."""
    start = facts.source.span(node).start + 1
    return Replace(Span(start, start), f"{text}, " if left else text)


def _without(facts: ModuleFacts, node: ast.Dict, gone: set[str]) -> Iterator[Replace]:
    """Take keys out of a dict: each with what follows up to the next key, at the end with what is in front."""
    spans = [
        (key.value in gone, facts.source.span(key).start, facts.source.span(value).end)
        for key, value in zip(node.keys, node.values)
        if isinstance(key, ast.Constant)
    ]
    last = max((number for number, (goes, *_) in enumerate(spans) if not goes), default=-1)
    for number, (goes, start, _) in enumerate(spans):
        if goes and number < last:
            yield Replace(Span(start, spans[number + 1][1]), "")
    if spans and last < len(spans) - 1:
        start = spans[last][2] if last >= 0 else spans[0][1]
        yield Replace(Span(start, spans[-1][2]), "")


_IMPORT = "from transformers import TrainingArguments\n\n"
CARD = RuleCard(
    code="FSDP852",
    name="transformers-fsdp",
    summary="what the Trainer of transformers is told of FSDP and stops at; with target `fsdp2`, what asks for FSDP1",
    explanation=f"""\
In `TrainingArguments(fsdp=..., fsdp_config={{...}})`, in the flags `--fsdp` of scripts, and in YAML with the same keys.
Without a target only what transformers stops at is found: the arguments `fsdp_min_num_params` and
`fsdp_transformer_layer_cls_to_wrap`, removed in 5.0, and strategies besides full_shard and shard_grad_op without
`version` 1 since {_DEFAULT}, where FSDP2 became the default.

`--target fsdp2` finds FSDP1. Its fix writes `version` 2 and `reshard_after_forward` into a dict that is written out,
and takes out `backward_prefetch`, `forward_prefetch`, `limit_all_gathers`, `sync_module_states` and
`use_orig_params`. Other keys stay. The string of `fsdp` stays too: before {_DEFAULT} only it asks for wrapping. From
5.0 up to {_DEFAULT} FSDP2 saves sharded state dicts if `FSDP_STATE_DICT_TYPE` does not say otherwise.""",
    applicability="unsafe or manual",
    severity=Severity.BREAKS,
    flags=(
        Example(before=_IMPORT + "args = TrainingArguments('out', fsdp='hybrid_shard auto_wrap')\n"),
        Example(
            before=_IMPORT
            + "args = TrainingArguments('out', fsdp='full_shard', fsdp_transformer_layer_cls_to_wrap='Block')\n"
        ),
    ),
    leaves=(
        _IMPORT + "args = TrainingArguments('out', fsdp='full_shard auto_wrap')\n",
        _IMPORT + "args = TrainingArguments('out', fsdp='no_shard', fsdp_config={'version': 1})\n",
    ),
    url="https://huggingface.co/docs/transformers/fsdp",
)
_WORDS = ("fsdp_config", *removed(_NAME), "full_shard", "shard_grad_op", "hybrid_shard", "no_shard")
_BESIDE = ("fsdp",)
RULE = Rule(CARD, _WORDS, partial(_check, converting=False), beside=_BESIDE)
_CONVERTED = partial(_check, converting=True)
OF_FSDP2 = Rule(CARD._replace(floor="2.6"), (*_WORDS, "fsdp="), _CONVERTED, target="fsdp2", beside=_BESIDE)
