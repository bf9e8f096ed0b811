"""FSDP853: strategies of Lightning for FSDP."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from fsdp_migrate.code.frameworks import LIGHTNING_PACKAGES, removed, switches
from fsdp_migrate.edits import EditImport, Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual

_NAME = "lightning"
_OLD, _NEW = "FSDPStrategy", "ModelParallelStrategy"
_FLAGS = ("fsdp", "fsdp_cpu_offload")
_MESSAGE = f"Lightning's {_OLD} uses FSDP1: FSDP2 is `{_NEW}`, since Lightning 2.4"
_BY_HAND = (
    f"override `configure_model` in the module, call `fully_shard` there, and give `{_NEW}(data_parallel_size=..., "
    "tensor_parallel_size=1)` with the number of all processes"
)
_UNSAFE = (
    "FSDP2 shards each parameter by itself: rates, memory and checkpoints differ, and clipping and compiling are "
    "those of the new strategy"
)
# Arguments that both strategies have, or that a literal says all about.
_SAME = ("process_group_backend", "timeout")


def _check(facts: ModuleFacts, card: RuleCard, *, converting: bool) -> Iterator[Finding]:
    gone = removed(_NAME)
    for trainer, value in _trainers(facts):
        word = value.value if isinstance(value, ast.Constant) else None
        statement = facts.statement(trainer)
        if isinstance(word, str) and word in gone:
            since, what = gone[word]
            new = "fsdp_cpu_offload" if "offload" in word else "fsdp"
            span = facts.source.span(value)
            written = facts.source.segment(span)
            fix = Fix((Replace(span, written.replace(word, new)),))
            verdict = Verdict(fix, unsafe="the Trainer stopped here; the strategy of Lightning 2 has other defaults")
            told = f"the strategy `{word}` was removed in Lightning {since}: {what}"
            yield finding(facts, card, value, statement, told, verdict, Severity.BREAKS)
        elif converting and word in _FLAGS:
            yield finding(facts, card, value, statement, _MESSAGE, manual(_BY_HAND), Severity.DEPRECATED)
    if converting:
        for one in switches(facts):
            if one.framework.name == _NAME:
                verdict = _verdict(facts, one.call)
                statement = facts.statement(one.call)
                yield finding(facts, card, one.call.func, statement, _MESSAGE, verdict, Severity.DEPRECATED)


def _trainers(facts: ModuleFacts) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The trainers of Lightning, each with its strategy."""
    for call in facts.structure.calls:
        named = facts.names.qualified(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
        package, name = (named or "").partition(".")[0], (named or "").rpartition(".")[2]
        if package in LIGHTNING_PACKAGES and name in ("Trainer", "Fabric"):
            yield from ((call, keyword.value) for keyword in call.keywords if keyword.arg == "strategy")


def _verdict(facts: ModuleFacts, call: ast.Call) -> Verdict:
    """The new strategy, where the module shards itself and the number of processes is written down."""
    processes = next((_processes(one) for one, value in _trainers(facts) if value is call), None)
    if processes is None or not _shards_itself(facts):
        return manual(_BY_HAND)
    arguments = [f"data_parallel_size={processes}", "tensor_parallel_size=1"]
    state = "full"
    for keyword in call.keywords:
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if keyword.arg == "state_dict_type" and value in ("full", "sharded"):
            state = str(value)
        elif keyword.arg in _SAME:
            arguments.append(f"{keyword.arg}={facts.source.segment(keyword.value)}")
        elif not (keyword.arg in ("cpu_offload", "sharding_strategy") and value in (False, "FULL_SHARD")):
            return manual(f"`{keyword.arg}` is for `fully_shard` in `configure_model`; then use `{_NEW}`")
    if call.args:
        return manual(_BY_HAND)
    arguments += ["save_distributed_checkpoint=False"] if state == "full" else []
    written = f"{_NEW}({', '.join(arguments)})"
    if isinstance(call.func, ast.Attribute):
        written = f"{facts.source.segment(call.func.value)}.{written}"
        return Verdict(Fix((Replace(facts.source.span(call), written),)), unsafe=_UNSAFE)
    statement = _import(facts, call.func)
    if statement is None:
        return manual(f"import `{_NEW}`, and use it: `{written}`")
    uses = [node for node in ast.walk(facts.source.tree) if isinstance(node, ast.Name) and node.id == _OLD]
    edit = EditImport(facts.source.span(statement), (_NEW,), (_OLD,) if len(uses) == 1 else ())
    return Verdict(Fix((Replace(facts.source.span(call), written), edit)), unsafe=_UNSAFE)


def _processes(trainer: ast.Call) -> int | None:
    """The number of processes of a trainer, where it is written down."""
    given = {keyword.arg: keyword.value for keyword in trainer.keywords}
    number = 1
    for name, least in (("devices", None), ("num_nodes", 1)):
        node = given.get(name)
        value = least if node is None else node.value if isinstance(node, ast.Constant) else None
        if type(value) is not int or value < 1:
            return None
        number *= value
    return number


def _shards_itself(facts: ModuleFacts) -> bool:
    """Whether a `configure_model` in the file calls `fully_shard`."""
    named = (node for node in facts.structure.calls if _last(node.func) == "fully_shard")
    return any(getattr(facts.function(node), "name", None) == "configure_model" for node in named)


def _last(node: ast.expr) -> str | None:
    return getattr(node, "attr", getattr(node, "id", None))


def _import(facts: ModuleFacts, name: ast.expr) -> ast.ImportFrom | None:
    """The import that binds the name of the old strategy as it is."""
    for statement in facts.structure.imports if getattr(name, "id", None) == _OLD else ():
        names = statement.names if isinstance(statement, ast.ImportFrom) else ()
        if isinstance(statement, ast.ImportFrom) and any(one.name == _OLD and one.asname is None for one in names):
            return statement
    return None


_IMPORT = "from lightning.pytorch import Trainer\n\n"
CARD = RuleCard(
    code="FSDP853",
    name="lightning-fsdp",
    summary="a strategy for FSDP that Lightning removed; with the target `fsdp2`, one that uses FSDP1",
    explanation=f"""\
`Trainer(strategy="fsdp_native")` stops since Lightning 2.0, where it is called `"fsdp"`.

`--target fsdp2` finds `{_OLD}` and `strategy="fsdp"`. Lightning's FSDP2 is `{_NEW}` (Lightning 2.4, read in 2.6): the
module calls `fully_shard` in `configure_model`, and the strategy only makes the device mesh. The fix writes the new
strategy if the file has such a `configure_model`, the strategy stands in a `Trainer` or `Fabric` with `devices` as a
number, and no other argument of FSDP1 is given. `state_dict_type="full"`, the default of FSDP1, becomes
`save_distributed_checkpoint=False`. Everything else is manual.""",
    applicability="unsafe or manual",
    severity=Severity.BREAKS,
    flags=(
        Example(
            before=_IMPORT + 'trainer = Trainer(strategy="fsdp_native")\n',
            after=_IMPORT + 'trainer = Trainer(strategy="fsdp")\n',
            applicability=Applicability.UNSAFE,
        ),
    ),
    leaves=(_IMPORT + 'trainer = Trainer(strategy="fsdp")\n',),
    url="https://lightning.ai/docs/pytorch/stable/advanced/model_parallel/tp_fsdp.html",
)
_WORDS = (_OLD, "fsdp_native", *(f"strategy={quote}fsdp" for quote in "'\""))
RULE = Rule(CARD, _WORDS, partial(_check, converting=False))
OF_FSDP2 = Rule(CARD._replace(floor="2.6"), _WORDS, partial(_check, converting=True), target="fsdp2")
