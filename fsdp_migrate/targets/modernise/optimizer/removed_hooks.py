"""FSDP108 and FSDP109: what torch 2.1 changed around `optim_state_dict` without a warning.

Sources: catalogue osd-third-positional (2.0.1 FSDP.py:1693, 2.1.2:1741) and osd-hooks-removed (2.0.1:1765,1878).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.argument_roles import is_group, made_as_group
from fsdp_migrate.code.construction import PARTIAL
from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind, ordered_arguments
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Traced, Verdict, finding, manual
from fsdp_migrate.torch_api.data import exists

_SAVE = "optim_state_dict"
_PARAMETERS = ("model", "optim", "optim_state_dict", "group")


class Hook(NamedTuple):
    """A hook of torch 2.0 and the method that does its work since 2.1."""

    name: str
    new: str
    extra: tuple[Argument, ...] = ()


_HOOKS = {
    hook.name: hook
    for hook in (
        Hook("optim_state_dict_post_hook", _SAVE),
        Hook(
            "load_optim_state_dict_pre_hook",
            "optim_state_dict_to_load",
            (Argument("is_named_optimizer", text="True"),),
        ),
    )
}


def check_third_positional(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find process groups where 2.1 and newer take a state dict."""
    for call in facts.structure.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != _SAVE or len(call.args) != 3:
            continue
        third = call.args[2]
        if isinstance(third, ast.Starred) or not is_group(facts, third) or not facts.reached(call):
            continue
        if facts.fsdp.receiver(call.func, call.args[0]) is None:
            continue
        arguments = tuple(
            Argument(argument.arg if isinstance(argument, ast.keyword) else "group" if index == 2 else None, index)
            for index, argument in enumerate(ordered_arguments(call))
        )
        message = (
            f"the third position of `{_SAVE}` is a state dict since torch 2.1 (in 2.0 it was the process group): "
            "pass `group=`"
        )
        named = (
            f"only the name of `{ast.unparse(third)}` says that it is a process group: a state dict must not "
            "become `group=`"
        )
        unsafe = None if made_as_group(facts, third) else named
        verdict = Verdict(Fix((RewriteCall(facts.source.span(call), None, arguments),)), unsafe=unsafe)
        yield finding(facts, card, third, facts.statement(call), message, verdict)


def check_hooks(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the two hooks, called, in `functools.partial` or passed on."""
    for node in facts.structure.attributes:
        hook = _HOOKS.get(node.attr)
        if hook is None or not facts.reached(node):
            continue
        parent = facts.structure.parents[node]
        call = parent if isinstance(parent, ast.Call) else None
        model = call.args[0] if call is not None and call.func is node and call.args else None
        if facts.fsdp.receiver(node, model) is None:
            continue
        if call is not None and call.func is node:
            verdict = _called(facts, call, hook)
        elif call is not None and node in call.args[:1] and facts.names.qualified(call.func) == PARTIAL:
            verdict = _partial(facts, call, node, hook)
        else:
            verdict = manual(f"only a call or a `functools.partial` can be rewritten: use `FSDP.{hook.new}`")
        message = f"`{hook.name}` was removed in torch 2.1: use `FSDP.{hook.new}`"
        is_there = all(exists(f"{FSDP}.{hook.name}", release) for release in facts.gates.alive(node))
        severity = Severity.HINT if is_there else Severity.BREAKS
        yield finding(facts, card, node, facts.statement(node), message, verdict, severity)


def _called(facts: ModuleFacts, call: ast.Call, hook: Hook) -> Verdict:
    try:
        bound = bind(call, _PARAMETERS, 3)
    except BindingError as error:
        return manual(f"the call {error}")
    arguments = [Argument(name, bound[name].index) for name in _PARAMETERS if name in bound]
    arguments[3:3] = hook.extra
    has_group = "group" in bound and hook.new == _SAVE
    unsafe = "torch 2.0 ignored `group` here; the new method uses it" if has_group else None
    if facts.source.has_comment(facts.source.span(call)):
        arguments.sort(key=lambda argument: len(bound) if argument.index is None else argument.index)
    return Verdict(Fix((RewriteCall(facts.source.span(call), hook.new, tuple(arguments)),)), unsafe=unsafe)


def _partial(facts: ModuleFacts, call: ast.Call, node: ast.Attribute, hook: Hook) -> Verdict:
    if "\n" in facts.source.segment(node):
        return manual(f"the method name is split over several lines: use `FSDP.{hook.new}`")
    method = f"{facts.source.segment(node.value)}.{hook.new}"
    kept = [
        Argument(argument.arg if isinstance(argument, ast.keyword) else None, index)
        for index, argument in enumerate(ordered_arguments(call))
    ]
    arguments = (Argument(None, text=method), *kept[1:], *hook.extra)
    return Verdict(Fix((RewriteCall(facts.source.span(call), None, arguments),)))


_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"

THIRD_POSITIONAL = Rule(
    RuleCard(
        code="FSDP108",
        name="optim-state-dict-third-positional",
        summary="a process group as the third position of `optim_state_dict`",
        explanation="""\
`FSDP.optim_state_dict(model, optim, group)` is the order of torch 2.0. Since 2.1 the third position is a state dict,
and a process group there fails when the state is saved. `group=` means the same on both. The fix is safe if the file
creates the group (`dist.new_group()`, `dist.group.WORLD`) or annotates it as a `ProcessGroup`. It is unsafe if only
the name says so.""",
        applicability="safe or unsafe",
        removed="2.1",
        flags=(
            Example(
                before=_IMPORT
                + "def save(model, optim, group: ProcessGroup):\n"
                + "    return FSDP.optim_state_dict(model, optim, group)\n",
                after=_IMPORT
                + "def save(model, optim, group: ProcessGroup):\n"
                + "    return FSDP.optim_state_dict(model, optim, group=group)\n",
            ),
            Example(
                before=_IMPORT
                + "def save(model, optim, group):\n    return FSDP.optim_state_dict(model, optim, group)\n",
                after=_IMPORT
                + "def save(model, optim, group):\n    return FSDP.optim_state_dict(model, optim, group=group)\n",
                note="it is a group by its name only",
                applicability=Applicability.UNSAFE,
            ),
        ),
        leaves=(
            _IMPORT + "def save(model, optim):\n    return FSDP.optim_state_dict(model, optim, optim.state_dict())\n",
        ),
        url="https://github.com/pytorch/pytorch/pull/96534",
    ),
    words=(_SAVE,),
    check=check_third_positional,
)

HOOKS = Rule(
    RuleCard(
        code="FSDP109",
        name="optim-state-dict-hooks",
        summary="the optimizer-state hooks, removed in torch 2.1",
        explanation="""\
`FSDP.optim_state_dict_post_hook` and `load_optim_state_dict_pre_hook` exist in torch 2.0 only; 2.1 removed them
without a deprecation. Their successors are `optim_state_dict` and `optim_state_dict_to_load`, the latter with
`is_named_optimizer=True`, which the hook always used. The post hook ignored `group`. The fix is unsafe if one is
passed, because the new method uses it.""",
        applicability="safe, unsafe or manual",
        removed="2.1",
        floor="2.1",
        flags=(
            Example(
                before="import functools\n"
                + _IMPORT
                + "def hook(model):\n    return functools.partial(FSDP.load_optim_state_dict_pre_hook, model)\n",
                after="import functools\n" + _IMPORT + "def hook(model):\n"
                "    return functools.partial(FSDP.optim_state_dict_to_load, model, is_named_optimizer=True)\n",
            ),
            Example(before=_IMPORT + "hook = FSDP.optim_state_dict_post_hook\n", note="passed on without a call"),
        ),
        leaves=("def f(self):\n    return self.optim_state_dict_post_hook(1, 2, 3)\n",),
        url="https://pytorch.org/docs/2.1/fsdp.html",
    ),
    words=tuple(_HOOKS),
    check=check_hooks,
    calls=lambda: (Traced(f"{FSDP}.{hook}") for hook in _HOOKS),
)
