"""FSDP907: a precision policy of FSDP2 that leaves the dtype of gradient reduction to the release.

Source: torch 2.15 distributed/fsdp/_fully_shard/_fsdp_api.py (`versionchanged` note of `reduce_dtype`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_written_out, ordered_arguments
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual

_CLASS = "MixedPrecisionPolicy"
_PATHS = frozenset({f"torch.distributed.fsdp.{_CLASS}", f"torch.distributed._composable.fsdp.{_CLASS}"})
_PARAMETERS = ("param_dtype", "reduce_dtype")
_CHANGED = "2.15"
# With it the reduction has the dtype of the gradients either way.
_FULL = ("torch.float32", "torch.float")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find policies that set `param_dtype` and not `reduce_dtype`."""
    for call in facts.structure.calls:
        if not isinstance(call.func, (ast.Name, ast.Attribute)) or facts.names.qualified(call.func) not in _PATHS:
            continue
        if not is_written_out(call) or not facts.reached(call):
            continue
        given: dict[str | None, ast.expr] = {one.arg: one.value for one in call.keywords}
        given.update(zip(_PARAMETERS, call.args))
        dtype = given.get("param_dtype")
        if dtype is None or "reduce_dtype" in given or isinstance(dtype, ast.Constant):
            continue
        if isinstance(dtype, (ast.Name, ast.Attribute)) and facts.names.qualified(dtype) in _FULL:
            continue
        is_new = any(release >= Version(_CHANGED) for release in facts.gates.alive(call))
        message = (
            f"without `reduce_dtype` gradients are reduced in `{ast.unparse(dtype)}` up to torch 2.14, "
            f"and in the dtype of their parameter since {_CHANGED}"
        )
        severity = Severity.CHANGES if is_new else Severity.HINT
        yield finding(facts, card, call, facts.statement(call), message, _verdict(facts, call, dtype), severity)


def _verdict(facts: ModuleFacts, call: ast.Call, dtype: ast.expr) -> Verdict:
    if not pure(dtype):
        return manual(f"assign `{ast.unparse(dtype)}` to a variable, and pass that as `reduce_dtype=`, too")
    kept = [
        Argument(one.arg if isinstance(one, ast.keyword) else None, index)
        for index, one in enumerate(ordered_arguments(call))
    ]
    place = next(n for n, one in enumerate(ordered_arguments(call)) if dtype in (one, getattr(one, "value", None)))
    arguments = (*kept[: place + 1], Argument("reduce_dtype", text=ast.unparse(dtype)), *kept[place + 1 :])
    if all(release < Version(_CHANGED) for release in facts.gates.alive(call)):
        return Verdict(Fix((RewriteCall(facts.source.span(call), None, arguments),)))
    only_new = all(release >= Version(_CHANGED) for release in facts.gates.alive(call))
    if only_new:
        return manual(f"pass `reduce_dtype=`: `torch.float32`, or `{ast.unparse(dtype)}` as before torch {_CHANGED}")
    return Verdict(
        Fix((RewriteCall(facts.source.span(call), None, arguments),)),
        unsafe=f"on torch {_CHANGED} gradients are then reduced as on older releases",
    )


_IMPORT = "import torch\nfrom torch.distributed.fsdp import MixedPrecisionPolicy\n\n"

RULE = Rule(
    RuleCard(
        code="FSDP907",
        name="reduce-dtype-not-given",
        summary="`MixedPrecisionPolicy` with `param_dtype` and without `reduce_dtype`",
        explanation="""\
Up to torch 2.14 FSDP2 reduces gradients in `param_dtype` if the policy has no `reduce_dtype`. Since torch 2.15 it
reduces them in the dtype of the parameter's gradient. For float32 parameters that is float32: other values, and twice
the traffic of bfloat16.

The fix writes what the releases up to 2.14 do. It is unsafe if torch 2.15 is supported, because it changes what that
release does. If only torch 2.15 and newer are supported, the finding is manual: the code does not show which dtype is
meant.""",
        applicability="safe, unsafe or manual",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=_IMPORT + "policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)\n",
                after=_IMPORT
                + "policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)\n",
                torch=">=2.6,<2.15",
            ),
            Example(
                before=_IMPORT + "policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)\n",
                note="torch 2.15 only",
                torch=">=2.15",
            ),
        ),
        leaves=(
            _IMPORT + "policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)\n",
            _IMPORT + "policy = MixedPrecisionPolicy(param_dtype=torch.float32)\n",
            _IMPORT + "policy = MixedPrecisionPolicy()\n",
        ),
        url="https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
    scope="models",
    words=(_CLASS,),
    check=check,
)
