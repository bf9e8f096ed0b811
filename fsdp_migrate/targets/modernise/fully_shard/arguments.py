"""FSDP510-512: setters and arguments of FSDP2 that were renamed, became keywords, or are honoured since.

Sources: catalogue fs2-divide-factor (2.8.0 FS.py:502), fs2-setter-recurse (2.3.1, 2.4.1) and fs2-reshard-default (2.8.0
_fsdp_state.py:183).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.sharded_models import is_fully_shard
from fsdp_migrate.edits import Argument, Replace, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Traced, Verdict, finding, manual
from fsdp_migrate.source import Span

OLD_FACTOR, FACTOR = "set_reduce_scatter_divide_factor", "set_gradient_divide_factor"
SETTERS = ("set_requires_gradient_sync", "set_requires_all_reduce", "set_reshard_after_backward")
_RESHARD = "reshard_after_forward"
_FACTOR_SINCE, _KEYWORD_SINCE, _HONOURED_SINCE = Version("2.8"), Version("2.4"), Version("2.8")
_KEEP_FACTOR = (
    "the new name needs torch>=2.8, and the old name works on all releases since 2.5: rename it when you "
    "require torch>=2.8"
)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def _defined_here(facts: ModuleFacts, method: str) -> bool:
    return any(function.name == method for function in facts.structure.functions)


def check_factor(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the setter under the name that torch 2.8 deprecated; a file that knows the new name too is left alone."""
    knows_new = any(node.attr == FACTOR for node in facts.structure.attributes)
    knows_new = knows_new or any(constant.value == FACTOR for constant in facts.structure.strings)
    if knows_new or _defined_here(facts, OLD_FACTOR):
        return
    for node in facts.structure.attributes:
        if node.attr != OLD_FACTOR or not isinstance(node.ctx, ast.Load) or not facts.reached(node):
            continue
        end = facts.source.span(node).end
        everywhere = all(release >= _FACTOR_SINCE for release in facts.gates.alive(node))
        if everywhere:
            verdict = Verdict(Fix((Replace(Span(end - len(OLD_FACTOR), end), FACTOR),)))
        else:
            verdict = Verdict(manual=_KEEP_FACTOR, below_floor=True)
        message = (
            f"`{OLD_FACTOR}` was renamed to `{FACTOR}` in torch 2.8, where it also became the whole divisor under HSDP"
        )
        severity = Severity.DEPRECATED if everywhere else Severity.HINT
        yield finding(facts, card, node, facts.statement(node), message, verdict, severity)


def check_recurse(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find `recurse` passed by position."""
    for call in facts.structure.calls:
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in SETTERS or len(call.args) != 2 or call.keywords:
            continue
        if any(isinstance(argument, ast.Starred) for argument in call.args) or _defined_here(facts, func.attr):
            continue
        if not any(release >= _KEYWORD_SINCE for release in facts.gates.alive(call)):
            continue
        verdict = Verdict(
            Fix((RewriteCall(facts.source.span(call), None, (Argument(None, 0), Argument("recurse", 1))),))
        )
        if not _uses_fsdp2(facts):
            verdict = manual("this file imports nothing of FSDP2: pass `recurse=` if this is its setter")
        message = f"`{func.attr}` accepts `recurse` only by keyword since torch 2.4"
        yield finding(facts, card, call.args[1], facts.statement(call), message, verdict)


def _uses_fsdp2(facts: ModuleFacts) -> bool:
    """Whether the file imports something of FSDP2."""
    return any(
        target.startswith("torch.distributed._composable.fsdp")
        or (target.startswith("torch.distributed.fsdp.") and target.endswith((".fully_shard", ".FSDPModule")))
        for target in facts.fsdp.imported
    )


def check_reshard(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find what may be a root and is told to reshard, after a loop over the layers it holds."""
    calls = [call for call in facts.structure.calls if is_fully_shard(facts, call)]
    for call in calls:
        keyword = next((keyword for keyword in call.keywords if keyword.arg == _RESHARD), None)
        if keyword is None or not isinstance(keyword.value, ast.Constant) or keyword.value.value is not True:
            continue
        releases = facts.gates.alive(call)
        spans = any(r < _HONOURED_SINCE for r in releases) and any(r >= _HONOURED_SINCE for r in releases)
        if spans and _follows_a_loop(facts, call, calls) and not _lies_in_another(facts, call, calls):
            message = "`reshard_after_forward=True` of the root module is ignored up to torch 2.7 and applied since 2.8"
            verdict = manual(
                "remove the argument for the same behaviour on all releases; since 2.8 it costs one more all-gather"
            )
            yield finding(facts, card, keyword.value, facts.statement(call), message, verdict)


def _follows_a_loop(facts: ModuleFacts, call: ast.Call, calls: list[ast.Call]) -> bool:
    """Whether `call` stands in no loop, behind a loop of the same function that shards what lies inside."""
    if _in_loop(facts, call):
        return False
    function = facts.function(call)
    before = (one for one in calls if one.lineno < call.lineno and facts.function(one) is function)
    return any(_in_loop(facts, one) for one in before)


def _lies_in_another(facts: ModuleFacts, call: ast.Call, calls: list[ast.Call]) -> bool:
    """Whether `call` shards an attribute of what the function shards as well, or of the module it is a method of."""
    module = _sharded(call)
    function = facts.function(call)
    outer = [_sharded(one) for one in calls if facts.function(one) is function]
    cls = facts.class_around(call)
    if cls is not None and _is_module(facts, cls, calls):
        outer.append("self")
    return any(module.startswith(f"{owner}.") for owner in outer if owner)


def _is_module(facts: ModuleFacts, cls: ast.ClassDef, calls: list[ast.Call]) -> bool:
    """Whether objects of a class look like modules, and not like trainers that have one."""
    if any(_sharded(call) == "self" and facts.class_around(call) is cls for call in calls):
        return True
    names = [getattr(base, "attr", getattr(base, "id", "")) for base in cls.bases]
    has_forward = any(isinstance(part, ast.FunctionDef) and part.name == "forward" for part in cls.body)
    return has_forward or any(name.endswith(("Module", "Model")) for name in names)


def _sharded(call: ast.Call) -> str:
    """What a call shards, as text; empty where it is not written as the first argument or by its name."""
    named = (keyword.value for keyword in call.keywords if keyword.arg == "module")
    module = next(named, None) if not call.args else call.args[0]
    return "" if module is None else ast.unparse(module)


def _in_loop(facts: ModuleFacts, call: ast.Call) -> bool:
    return any(isinstance(block, _LOOPS) for block in facts.blocks_around(call))


_URL = "https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
_IMPORT = "from torch.distributed.fsdp import FSDPModule, fully_shard\n\n"
_FACTOR_BEFORE = _IMPORT + f"model.{OLD_FACTOR}(8.0)\n"
_RECURSE_BEFORE = _IMPORT + "model.set_requires_gradient_sync(last, False)\n"
_RESHARD_BEFORE = _IMPORT + "for layer in model.layers:\n    fully_shard(layer)\nfully_shard(model{})\n"

DIVIDE_FACTOR = Rule(
    RuleCard(
        code="FSDP510",
        name="reduce-scatter-divide-factor",
        summary="`set_reduce_scatter_divide_factor`, renamed to `set_gradient_divide_factor` in torch 2.8",
        explanation="""\
torch 2.8 renamed the method and deprecated the old name, which is an alias of the new one. It also changed what the
factor means under HSDP, for both names. Up to 2.7 the all-reduce between replicas averages as well; since 2.8 the
factor is the whole divisor. Code that ran with HSDP on 2.7 or older needs the factor times the number of replicas.

This is a hint while older releases are supported. A file that already uses `set_gradient_divide_factor` is left
alone.""",
        applicability="safe or manual",
        deprecated="2.8",
        floor="2.8",
        flags=(
            Example(before=_FACTOR_BEFORE, after=_FACTOR_BEFORE.replace(OLD_FACTOR, FACTOR), torch=">=2.8"),
            Example(before=_FACTOR_BEFORE, note="older releases are supported"),
        ),
        leaves=(
            f'if hasattr(model, "{FACTOR}"):\n    model.{FACTOR}(8.0)\nelse:\n    model.{OLD_FACTOR}(8.0)\n',
            f"class Model:\n    def {OLD_FACTOR}(self, factor):\n        self.inner.{OLD_FACTOR}(factor)\n",
        ),
        url=_URL,
    ),
    words=(OLD_FACTOR,),
    check=check_factor,
    calls=lambda: (Traced(f"{PACKAGE}.FSDPModule.{OLD_FACTOR}"),),
)

RECURSE = Rule(
    RuleCard(
        code="FSDP511",
        name="positional-recurse",
        summary="`recurse` by position in a setter of FSDP2",
        explanation="""\
torch 2.3 accepted `recurse` of `set_requires_gradient_sync` and `set_requires_all_reduce` by position. Since 2.4 it is
keyword-only, as it always was in `set_reshard_after_backward`, and a position raises TypeError. The keyword works on
all releases.""",
        applicability="safe or manual",
        removed="2.4",
        flags=(
            Example(
                before=_RECURSE_BEFORE,
                after=_RECURSE_BEFORE.replace("last, False", "last, recurse=False"),
            ),
            Example(before="model.set_requires_all_reduce(last, False)\n", note="nothing of FSDP2 is imported"),
        ),
        leaves=(
            _IMPORT + "model.set_requires_gradient_sync(last, recurse=False)\n",
            _IMPORT + "model.set_reshard_after_forward(False, False)\n",
        ),
        url=_URL,
    ),
    words=SETTERS,
    check=check_recurse,
)

RESHARD_ROOT = Rule(
    RuleCard(
        code="FSDP512",
        name="reshard-after-forward-of-the-root",
        summary="an explicit `reshard_after_forward=True` for the root module of FSDP2",
        explanation="""\
Up to torch 2.7 the root module is never resharded after forward, whatever the argument says. Since 2.8 the default is
None, which means the same, but an explicit True is applied: backward gathers the root once more. Results are equal.
This is a hint, given for a call after a loop that shards the layers.""",
        applicability="manual",
        severity=Severity.HINT,
        flags=(Example(before=_RESHARD_BEFORE.format(", reshard_after_forward=True")),),
        leaves=(
            _RESHARD_BEFORE.format(""),
            _RESHARD_BEFORE.format(", reshard_after_forward=False"),
            _IMPORT + "fully_shard(model, reshard_after_forward=True)\n",
        ),
        url=_URL,
    ),
    scope="near",
    words=(_RESHARD,),
    check=check_reshard,
)
