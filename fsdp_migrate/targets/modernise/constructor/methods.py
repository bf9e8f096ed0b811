"""FSDP503 and FSDP505: gradient clipping and full parameters of a model that this file wraps in FSDP.

Sources: catalogue clip-grad-norm (`nn.utils.clip_grad_norm_` sees the shards of one rank only) and summon-full-params
(a static method since torch 1.12, whose first parameter is the module).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.construction import constructs
from fsdp_migrate.code.unused_imports import removed_use
from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.binding import surely_bound
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.facts.scopes import Binding, Kind
from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.source import Span
from fsdp_migrate.targets.modernise.constructor.clip_places import is_excused
from fsdp_migrate.targets.modernise.constructor.constructor import NO_SHARD

CLIP = "clip_grad_norm_"
SUMMON = "summon_full_params"
_OLD_CLIP = "clip_grad_norm"
_CLIPS = tuple(f"torch.nn.utils.{path}{name}" for path in ("", "clip_grad.") for name in (CLIP, _OLD_CLIP))
_PASSING_ON = ("builtins.list", "builtins.tuple", "builtins.iter", "builtins.filter")
_INNER = "module"
_MOST_STEPS = 5
_OWN_ARGUMENTS = frozenset({"max_norm", "norm_type"})
_FAIRSCALE_ARGUMENTS = "volatile"


def check_clip(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find clipping by the norm of one rank's shards."""
    for call in facts.structure.calls:
        if not isinstance(call.func, (ast.Name, ast.Attribute)) or facts.names.qualified(call.func) not in _CLIPS:
            continue
        parameters = _parameters_argument(call)
        model = _model_of(parameters) or _model_behind(facts, parameters)
        if parameters is None or model is None or not facts.reached(call):
            continue
        model = _outer(facts, model)
        built = _surely_built(facts, model)
        declared = not built and _is_declared(facts, model)
        if not (built or declared) or any(_is_whole(facts, made) for made in built) or is_excused(facts, call):
            continue
        text = facts.source.segment(model)
        message = (
            f"`{facts.source.segment(call.func)}` uses the norm of this rank's shards of `{text}`, not the norm "
            "of the whole model"
        )
        verdict = _clip_verdict(facts, call, parameters, text)
        doubt = "FSDP's own method clips all parameters" if _model_of(parameters) is None else None
        doubt = f"this holds unless the model is built with {NO_SHARD}" if declared else doubt
        if doubt is not None:
            verdict = manual(f"{doubt}: use `{text}.{CLIP}(...)`, which reduces the norm over all ranks")
        yield finding(facts, card, call.func, facts.statement(call), message, verdict)


def _parameters_argument(call: ast.Call) -> ast.expr | ast.keyword | None:
    if call.args:
        return call.args[0]
    return next((keyword for keyword in call.keywords if keyword.arg == "parameters"), None)


def _model_of(parameters: ast.expr | ast.keyword | None) -> ast.Name | ast.Attribute | None:
    """`M` in `M.parameters()`."""
    value = parameters.value if isinstance(parameters, ast.keyword) else parameters
    if not isinstance(value, ast.Call) or value.args or value.keywords or not isinstance(value.func, ast.Attribute):
        return None
    model = value.func.value
    return model if value.func.attr == "parameters" and isinstance(model, (ast.Name, ast.Attribute)) else None


def _model_behind(facts: ModuleFacts, value: ast.AST | None, depth: int = 0) -> ast.Name | ast.Attribute | None:
    """`M` where `M.parameters()` are filtered, copied or have a name before they are passed on."""
    if isinstance(value, ast.keyword):
        value = value.value
    if isinstance(value, ast.Name):
        value = facts.names.value(value)
    elif isinstance(value, ast.Call) and facts.names.qualified(value.func) in _PASSING_ON and value.args:
        value = value.args[-1]
    elif isinstance(value, (ast.ListComp, ast.GeneratorExp)) and len(value.generators) == 1:
        (part,) = value.generators
        value = part.iter if ast.unparse(value.elt) == ast.unparse(part.target) else None
    else:
        return None
    found = _model_of(value) if isinstance(value, ast.expr) else None
    return found or (_model_behind(facts, value, depth + 1) if depth < _MOST_STEPS else None)


def _outer(facts: ModuleFacts, model: ast.Name | ast.Attribute) -> ast.Name | ast.Attribute:
    """`M` for `M.module` of a model that this file builds: what it wraps has the same parameters."""
    outer = model.value if isinstance(model, ast.Attribute) and model.attr == _INNER else None
    return outer if isinstance(outer, (ast.Name, ast.Attribute)) and _surely_built(facts, outer) else model


def _surely_built(facts: ModuleFacts, model: ast.expr) -> list[ast.Call]:
    """The constructions of FSDP that `model` may come from, empty unless it can come from nothing else."""
    if isinstance(model, ast.Name):
        return _built_name(facts, model)
    if isinstance(model, ast.Attribute):
        return _built_attribute(facts, model)
    return []


def _is_declared(facts: ModuleFacts, model: ast.Name | ast.Attribute) -> bool:
    """Whether `model` is FSDP's by the annotation of a parameter, or by a test: not one of many, as in a loop."""
    bindings = facts.names.bindings(model) if isinstance(model, ast.Name) else []
    if all(binding.kind is not Kind.OTHER for binding in bindings) and facts.fsdp.is_tested(model):
        return True
    argument = bindings[0].node if len(bindings) == 1 else None
    annotation = argument.annotation if isinstance(argument, ast.arg) else None
    return isinstance(annotation, (ast.Name, ast.Attribute)) and facts.fsdp.is_class(annotation)


def _built_name(facts: ModuleFacts, model: ast.Name) -> list[ast.Call]:
    home = facts.scope(model).lookup(model.id)
    bindings = facts.names.bindings(model)
    if home is None or any(not _is_construction(facts, binding.value) for binding in bindings):
        return []
    if home is facts.scope(model):
        sure = surely_bound(model.id, model, facts.structure.parents)
    else:
        sure = not any(binding.conditional for binding in bindings)
    return [b.value for b in bindings if isinstance(b.value, ast.Call)] if sure and _each_builds(bindings) else []


def _each_builds(bindings: list[Binding]) -> bool:
    return bool(bindings) and all(isinstance(binding.value, ast.Call) for binding in bindings)


def _is_construction(facts: ModuleFacts, value: ast.expr | None) -> bool:
    return (
        isinstance(value, ast.Call)
        and constructs(facts, value.func)
        and facts.names.symbols(value.func) == {FSDP}
        and facts.reached(value)
    )


def _built_attribute(facts: ModuleFacts, model: ast.Attribute) -> list[ast.Call]:
    """Constructions assigned to an attribute such as `self.model`, if nothing else is assigned to it."""
    text = ast.unparse(model)
    calls = []
    for store in facts.structure.attributes:
        if isinstance(store.ctx, ast.Load) or ast.unparse(store) != text:
            continue
        statement = facts.structure.parents[store]
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        around = facts.blocks_around(store)
        if not _is_construction(facts, value) or any(isinstance(block, (ast.If, ast.Try)) for block in around):
            return []
        assert isinstance(value, ast.Call)
        calls.append(value)
    return calls if _same_class(facts, model, calls) else []


def _same_class(facts: ModuleFacts, node: ast.AST, calls: list[ast.Call]) -> bool:
    """Whether a place and all constructions lie in the same class (or all outside of any)."""
    return len({facts.class_around(place) for place in (node, *calls)}) == 1


def _is_whole(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a model is built without sharding, whose parameters are whole on every rank."""
    values = (*call.args[2:3], *(keyword.value for keyword in call.keywords))
    return any((facts.names.qualified(v) or ast.unparse(v)).endswith(f".{NO_SHARD}") for v in values)


def _clip_verdict(facts: ModuleFacts, call: ast.Call, first: ast.expr | ast.keyword, model: str) -> Verdict:
    advice = f"use `{model}.{CLIP}(...)`, which reduces the norm over all ranks"
    source = facts.source
    others = [*call.args[1:], *(keyword for keyword in call.keywords if keyword is not first)]
    if any(isinstance(other, ast.keyword) and other.arg not in _OWN_ARGUMENTS for other in others):
        return manual(f"FSDP's own method does not have these options: {advice}")
    if any(isinstance(other, ast.Starred) for other in others) or not others or len(call.args) > 3:
        return manual(advice)
    following = min(source.span(other).start for other in others)
    between = Span(source.span(first).start, following)
    gap = source.data[source.span(first).end : following]
    if gap.strip() != b"," or source.has_comment(between) or "\n" in model:
        return manual(f"the parameters cannot be removed from this call automatically: {advice}")
    edits = (Replace(source.span(call.func), f"{model}.{CLIP}"), Replace(between, ""))
    unsafe = "gradients are clipped by another norm, that of the whole model"
    return Verdict(Fix(edits, removed_uses=removed_use(facts, call.func)), unsafe=unsafe)


def check_summon(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the method called on a model without handing it the model."""
    for call in facts.structure.calls:
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != SUMMON or not facts.reached(call):
            continue
        if call.args or any(keyword.arg in (None, "module") for keyword in call.keywords):
            continue
        built = _surely_built(facts, func.value)
        if built or facts.fsdp.is_instance(func.value, SUMMON):
            verdict = _summon_verdict(facts, call, func.value, built[0].func if built else func.value)
            message = f"`{SUMMON}` is a static method of torch's FSDP and needs the module as an argument"
            yield finding(facts, card, func, facts.statement(call), message, verdict)


def _may_be_other(facts: ModuleFacts, model: ast.expr) -> bool:
    """Whether what holds an FSDP model somewhere in the file may hold something else where it stands."""
    if isinstance(model, (ast.Name, ast.Attribute)) and facts.fsdp.is_tested(model):
        return False
    classes = facts.fsdp.object_classes.classes(model)
    return not isinstance(model, ast.Name) or not all(map(facts.fsdp.is_class, classes))


def _summon_verdict(facts: ModuleFacts, call: ast.Call, held: ast.expr, owner: ast.expr) -> Verdict:
    """The call of the method on `owner`, the class of what `held` is or that itself, with the module."""
    source = facts.source
    model, cls = source.segment(held), source.segment(owner)
    if any(keyword.arg == _FAIRSCALE_ARGUMENTS for keyword in call.keywords):
        return manual(
            f"fairscale's `{_FAIRSCALE_ARGUMENTS}=True` is `writeback=False` in torch: call "
            f"`{cls}.{SUMMON}({model})` with it"
        )
    root = owner
    while isinstance(root, ast.Attribute):
        root = root.value
    seen = isinstance(root, ast.Name) and facts.scope(call).lookup(root.id) is facts.scope(owner).lookup(root.id)
    seen = seen and not (owner is held and _may_be_other(facts, held))
    opening = source.data.find(b"(", source.span(call.func).end)
    plain = not source.data[source.span(call.func).end : opening].strip() and "\n" not in model + cls
    if not seen or not plain:
        return manual(f"call `{SUMMON}` on the class and pass `{model}`")
    inserted = _first_argument(facts, call, opening + 1, model)
    return Verdict(Fix((Replace(source.span(held), cls), inserted)))


def _first_argument(facts: ModuleFacts, call: ast.Call, start: int, text: str) -> Replace:
    """The edit that puts `text` in front of all arguments, on a line of its own where they have theirs."""
    if not call.keywords:
        return Replace(Span(start, start), text)
    source = facts.source
    first = min(source.span(keyword).start for keyword in call.keywords)
    indent = source.segment(Span(source.line_start(first), first))
    if source.line_start(first) > start and not indent.strip():
        return Replace(Span(first, first), f"{text},\n{indent}")
    return Replace(Span(start, start), f"{text}, ")


_BUILT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\nmodel = FSDP(module)\n"
_URL = "https://pytorch.org/docs/stable/fsdp.html"

CLIPPING = Rule(
    RuleCard(
        code="FSDP503",
        name="clip-grad-norm",
        summary="`torch.nn.utils.clip_grad_norm_` on the parameters of an FSDP model",
        explanation="""\
The parameters of an FSDP model are the shards of one rank. `torch.nn.utils.clip_grad_norm_` computes their norm
without the other ranks, so every rank scales its gradients by another, wrong factor. `model.clip_grad_norm_(max_norm)`
reduces the norm over all ranks.

It is reported if a name certainly holds a model that this file wraps, or if a parameter is annotated as one. The fix
is unsafe, because training continues with other gradients. FSDP2 (`fully_shard`) is the opposite: there the function
of `torch.nn.utils` is right.""",
        applicability="unsafe or manual",
        floor="2.0",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before="import torch\n" + _BUILT + "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
                after=_BUILT + "model.clip_grad_norm_(1.0)\n",
                applicability=Applicability.UNSAFE,
            ),
            Example(
                before="import torch\n"
                + _BUILT
                + "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)\n",
                note="FSDP's method has no such option",
            ),
        ),
        leaves=(
            "import torch\n\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
            "import torch\n"
            + _BUILT.replace("(module)", "(module) if sharded else module")
            + "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        ),
        url=_URL,
    ),
    scope="models",
    words=(_OLD_CLIP, f"{_OLD_CLIP}_"),
    check=check_clip,
)

SUMMONING = Rule(
    RuleCard(
        code="FSDP505",
        name="summon-full-params-without-module",
        summary="`model.summon_full_params()` without the module",
        explanation="""\
In fairscale `summon_full_params` is a method of the model. In torch it is a static method since 1.12 and takes the
module as its first argument, so `model.summon_full_params()` raises TypeError on every release. The fix changes calls
on a model that this file wraps to `FSDP.summon_full_params(model)`. If only a test, a loop, an annotation or the class
around shows that it is a model of FSDP, the call gets the model as its argument.""",
        applicability="safe or manual",
        floor="1.12",
        severity=Severity.BREAKS,
        flags=(
            Example(
                before=_BUILT + "with model.summon_full_params():\n    save(model)\n",
                after=_BUILT + "with FSDP.summon_full_params(model):\n    save(model)\n",
            ),
            Example(before=_BUILT + "with model.summon_full_params(volatile=True):\n    save(model)\n"),
        ),
        leaves=(
            _BUILT + "with model.summon_full_params(model):\n    save(model)\n",
            "from fairscale.nn import FullyShardedDataParallel as FSDP\n\nmodel = FSDP(module)\n"
            "with model.summon_full_params():\n    save(model)\n",
        ),
        url=_URL,
    ),
    scope="models",
    words=(SUMMON,),
    check=check_summon,
)
