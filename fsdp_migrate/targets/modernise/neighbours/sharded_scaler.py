"""FSDP804: `ShardedGradScaler` built from positions, in front of which torch 2.3 put another one.

Source: catalogue amp-sharded-scaler (2.2.2 and 2.3.1 sharded_grad_scaler.py:85 and 84).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from packaging.version import Version

from fsdp_migrate.code.made_calls import Made, made_calls
from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import ordered_arguments
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual

_NAME = "ShardedGradScaler"
_QUALIFIED = f"torch.distributed.fsdp.sharded_grad_scaler.{_NAME}"
_DEVICE_FIRST = "2.3"
_POSITIONS = ("init_scale", "backoff_factor", "growth_factor", "growth_interval", "enabled", "process_group")
# A growth factor is above 1, and as the backoff factor that it becomes it is refused.
_REFUSED_FROM = _POSITIONS.index("growth_factor") + 1
_DEVICE = "device"


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find scalers with positional arguments that some release reads otherwise."""
    for made in made_calls(facts, None):
        call, func, args = made.call, made.seen.func, made.seen.args
        if not args or not _builds(facts, func):
            continue
        alive = facts.gates.alive(call)
        older = any(release < Version(_DEVICE_FIRST) for release in alive)
        newer = any(release >= Version(_DEVICE_FIRST) for release in alive)
        statement = facts.statement(call)
        if _is_device(args[0]):
            if older:
                message = (
                    f"the first position of `{_NAME}` is `device` since torch {_DEVICE_FIRST}; older releases "
                    "have no `device`"
                )
                verdict = manual(f"pass no device before torch {_DEVICE_FIRST}, and pass the arguments by keyword")
                yield finding(facts, card, func, statement, message, verdict, Severity.BREAKS)
        elif alive:
            message = f"the first position of `{_NAME}` is `init_scale` before torch {_DEVICE_FIRST} and `device` since"
            severity = _severity(made.seen) if newer else Severity.HINT
            yield finding(facts, card, func, statement, message, _verdict(facts, made), severity)


def _builds(facts: ModuleFacts, func: ast.expr) -> bool:
    """Whether a call of `func` reaches the constructor: the class, one that inherits it, or `super().__init__`."""
    if facts.names.qualified(func) == _QUALIFIED:
        return True
    if isinstance(func, ast.Attribute) and func.attr == "__init__" and isinstance(func.value, ast.Call):
        is_super = getattr(func.value.func, "id", None) == "super"
        return is_super and _derives(facts.structure.parents.get(facts.function(func)), facts)
    bindings = facts.names.bindings(func) if isinstance(func, ast.Name) else []
    cls = bindings[0].node if len(bindings) == 1 else None
    return _derives(cls, facts) and all(getattr(member, "name", None) != "__init__" for member in cls.body)


def _derives(cls: ast.AST | None, facts: ModuleFacts) -> TypeGuard[ast.ClassDef]:
    return isinstance(cls, ast.ClassDef) and [facts.names.qualified(base) for base in cls.bases] == [_QUALIFIED]


def _severity(call: ast.Call) -> Severity:
    return Severity.BREAKS if len(call.args) >= _REFUSED_FROM else Severity.CHANGES


def _is_device(first: ast.expr) -> bool:
    """Whether the first argument was meant as the device, and the call written for newer releases."""
    if isinstance(first, ast.Constant):
        return isinstance(first.value, str)
    return _DEVICE in ast.unparse(first).lower()


def _verdict(facts: ModuleFacts, made: Made) -> Verdict:
    call = made.seen
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return manual("the call passes `*args`: pass the arguments by keyword")
    if made.partial:
        return manual("a caller of the partial may pass more positions: pass the arguments by keyword in both")
    if len(call.args) > len(_POSITIONS):
        return manual("the call passes more arguments than `ShardedGradScaler` accepted before: pass them by keyword")
    if not _is_number(call.args[0]):
        written = ast.unparse(call.args[0])
        return manual(f"`{written}` may be a scale or a device: pass it as `{_POSITIONS[0]}=` or `{_DEVICE}=`")
    names = dict(zip(call.args, _POSITIONS))
    arguments = tuple(
        Argument(argument.arg if isinstance(argument, ast.keyword) else names.get(argument), index)
        for index, argument in enumerate(ordered_arguments(made.call))
    )
    return Verdict(Fix((RewriteCall(facts.source.span(made.call), None, arguments),)))


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("float", "int", "pow")
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return "scale" in name.lower() or (isinstance(node, ast.Constant) and isinstance(node.value, (int, float)))


_IMPORT = f"from torch.distributed.fsdp.sharded_grad_scaler import {_NAME}\n\n"

RULE = Rule(
    RuleCard(
        code="FSDP804",
        name="positional-sharded-grad-scaler",
        summary="positional arguments of `ShardedGradScaler`, which torch 2.3 moved by one",
        explanation="""\
Up to torch 2.2 the first position is `init_scale`. Since 2.3 it is `device`, and the others follow.
`ShardedGradScaler(1024.0)` is accepted all the same: the device is then 1024.0, and the scale starts at 65536.
Keywords mean the same on all releases. Note that `backoff_factor` comes before `growth_factor`; in `GradScaler` it is
the other way round.

It is a hint if no torch 2.3 or newer is supported. It is manual if the first argument may be a scale or a device.""",
        applicability="safe or manual",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=_IMPORT + "scaler = ShardedGradScaler(1024.0, 0.5, enabled=True)\n",
                after=_IMPORT + "scaler = ShardedGradScaler(init_scale=1024.0, backoff_factor=0.5, enabled=True)\n",
            ),
            Example(
                before=_IMPORT + "def build(first):\n    return ShardedGradScaler(first)\n",
                note="a scale or a device",
            ),
        ),
        leaves=(
            _IMPORT + "scaler = ShardedGradScaler(init_scale=1024.0)\n",
            "from fairscale.optim.grad_scaler import ShardedGradScaler\n\nscaler = ShardedGradScaler(1024.0)\n",
        ),
        url="https://github.com/pytorch/pytorch/blob/main/torch/distributed/fsdp/sharded_grad_scaler.py",
    ),
    scope="models",
    words=(_NAME,),
    check=check,
)
