"""FSDP712, FSDP714: state dicts of an optimizer that has not stepped yet, which has no state.

Measured on two ranks with torch 2.4 to 2.13: `get_optimizer_state_dict` performs a step to make some, so training goes
on from step 1; `optimizer.state_dict()` is empty, so `dcp.load` has nothing to load into.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.argument_roles import is_called_optimizer
from fsdp_migrate.code.sharded_models import has_flat_parameters
from fsdp_migrate.code.state_dicts.new_calls import STATE_DICT, STATEFUL, URL, NewCall, full_names, new_calls, parts_of
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_READING = frozenset({"state_dict", "zero_grad", "add_param_group", "register_step_post_hook"})
_OLD = frozenset({"optim_state_dict", "sharded_optim_state_dict"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def check_saved(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find state that is taken from an optimizer in the lines below its construction, and saved."""
    for new in new_calls(facts):
        optimizer = new.arguments.get("optimizers")
        if new.function not in ("get_optimizer_state_dict", "get_state_dict") or not isinstance(optimizer, ast.Name):
            continue
        if _is_fresh(facts, optimizer, new.call) and _is_saved(facts, new):
            message = (
                f"`{optimizer.id}` has no state before its first step: `{new.function}` performs a step to create it, "
                "and training continues at step 1"
            )
            way = f"save the optimizer only if it has state (`if {optimizer.id}.state:`)"
            yield finding(facts, card, new.call, facts.statement(new.call), message, manual(way))


def check_loaded(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find `dcp.load` into the state dict of an optimizer that has no state, itself and inside a Stateful."""
    for new in new_calls(facts):
        if new.function != "load":
            continue
        for call, optimizer in _templates(facts, new):
            is_fresh = isinstance(optimizer, ast.Name) and _is_fresh(facts, optimizer, call)
            if is_fresh or _is_from_outside(facts, optimizer):
                severity = None if is_fresh else Severity.HINT
                yield _nothing_restored(facts, card, call, optimizer, severity)
    for cls in _statefuls(facts):
        for call in _of_optimizers(facts, cls):
            assert isinstance(call.func, ast.Attribute)
            yield _nothing_restored(facts, card, call, call.func.value, None)


def _nothing_restored(
    facts: ModuleFacts, card: RuleCard, call: ast.Call, optimizer: ast.expr, severity: Severity | None
) -> Finding:
    name = ast.unparse(optimizer)
    sure = "has no state yet" if severity is None else "has no state before its first step"
    # A file by name does not fit the numbers of flat parameters, which `optimizer.load_state_dict` notices.
    silent = "" if has_flat_parameters(facts) else ", and raises no error"
    message = f"`{name}` {sure}: `dcp.load` restores nothing of it{silent}"
    way = f"pass `get_optimizer_state_dict(model, {name})`, which creates the state that `dcp.load` fills"
    return finding(facts, card, call, facts.statement(call), message, manual(way), severity)


def _is_fresh(facts: ModuleFacts, optimizer: ast.Name, at: ast.Call) -> bool:
    """Whether a name is an optimizer of torch that was built in this function and that nothing could step since."""
    built = facts.names.value(optimizer)
    if not isinstance(built, ast.Call) or facts.function(built) is not facts.function(at):
        return False
    qualified = facts.names.qualified(built.func) or ""
    if not qualified.startswith("torch.optim.") or not _has_lazy_state(qualified.rpartition(".")[2], built):
        return False
    if any(isinstance(block, _LOOPS) and block not in facts.blocks_around(built) for block in facts.blocks_around(at)):
        return False
    home = facts.scope(optimizer).lookup(optimizer.id)
    scopes = facts.structure.module.nested()
    uses = [use for scope in scopes if scope.lookup(optimizer.id) is home for use in scope.uses.get(optimizer.id, ())]
    start, end = place_of(built), place_of(at)
    return not any(start < place_of(use) < end and not _keeps_fresh(facts, use) for use in uses)


def _has_lazy_state(cls: str, built: ast.Call) -> bool:
    """Whether an optimizer has state, and makes it in its first step."""
    if cls == "SGD":
        given = next((one.value for one in built.keywords if one.arg == "momentum"), None)
        return given is not None and not (isinstance(given, ast.Constant) and not given.value)
    return cls[:1].isupper() and cls not in ("Adagrad", "Optimizer")


def _keeps_fresh(facts: ModuleFacts, use: ast.Name) -> bool:
    """Whether what is done with an optimizer here leaves it without state."""
    parent = facts.structure.parents[use]
    if isinstance(parent, ast.Attribute):
        return parent.attr in _READING or parent.attr in ("param_groups", "state", "defaults")
    call = facts.structure.parents[parent] if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call) or call.func is use:
        return False
    called = facts.names.qualified(call.func) or ""
    is_new = any(one.call is call and one.function.startswith("get_") for one in new_calls(facts))
    return (
        called.startswith("torch.optim.lr_scheduler.") or called == "builtins.print" or is_new or _is_old(facts, call)
    )


def _is_old(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a call is FSDP1's own for the state of an optimizer."""
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr in _OLD and facts.fsdp.receiver(func, None) is not None


def _is_saved(facts: ModuleFacts, new: NewCall) -> bool:
    """Whether the function saves what it takes, and loads nothing into it."""
    function = facts.function(new.call)
    around = [one for one in new_calls(facts) if facts.function(one.call) is function]
    if any(one.function == "load" or one.function.startswith("set_") for one in around):
        return False
    others = (call for call in facts.structure.calls if facts.function(call) is function)
    saves = any(
        facts.names.qualified(call.func) == "torch.save" for call in others if isinstance(call.func, ast.Attribute)
    )
    return saves or any(one.function in ("save", "async_save") for one in around)


def _templates(facts: ModuleFacts, new: NewCall) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The state dicts of optimizers in what a `dcp.load` is given, with the optimizers."""
    for node in parts_of(facts, new):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "state_dict" and not node.args and not node.keywords:
                yield node, node.func.value
            elif _is_old(facts, node) and len(node.args) == 2:
                yield node, node.args[1]


def _is_from_outside(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether an attribute, or a parameter of the function, is called as optimizers are."""
    if not is_called_optimizer(node):
        return False
    if isinstance(node, ast.Attribute):
        return pure(node)
    bindings = facts.names.bindings(node) if isinstance(node, ast.Name) else []
    return bool(bindings) and all(isinstance(binding.node, ast.arg) for binding in bindings)


def _statefuls(facts: ModuleFacts) -> Iterator[ast.ClassDef]:
    """The classes of the file that derive from DCP's Stateful directly."""
    for function in facts.structure.functions:
        cls = facts.structure.parents[function]
        if function.name != "state_dict" or not isinstance(cls, ast.ClassDef):
            continue
        if any(facts.names.qualified(base) == STATEFUL for base in cls.bases):
            yield cls


def _of_optimizers(facts: ModuleFacts, cls: ast.ClassDef) -> Iterator[ast.Call]:
    """The calls `optimizer.state_dict()` in the `state_dict` of a class that nowhere makes the state itself."""
    text = facts.source.span(cls)
    if any(word in facts.source.data[text.start : text.end] for word in (b".step(", b"_init_optim", b"init_optim")):
        return
    for call in facts.structure.method_calls.get("state_dict", ()):
        function = facts.function(call)
        assert isinstance(call.func, ast.Attribute)
        is_own = facts.structure.parents.get(function) is cls and getattr(function, "name", "") == "state_dict"
        if is_own and not call.args and not call.keywords and is_called_optimizer(call.func.value):
            yield call


_IMPORT = f"""\
import torch
import torch.distributed.checkpoint as dcp
from {STATE_DICT} import get_optimizer_state_dict

"""
_BUILT = "optim = torch.optim.AdamW(model.parameters())\n"

SAVED = Rule(
    RuleCard(
        code="FSDP712",
        name="optimizer-saved-before-first-step",
        summary="`get_optimizer_state_dict` or `get_state_dict` of an optimizer that has not stepped yet",
        explanation="""\
An optimizer creates its state in its first step. Before that, `get_optimizer_state_dict` performs a step with learning
rate 0 (torch 2.2 and 2.3: with the real one, which changes the parameters). The state stays: the file says step 1,
Adam's counters are one ahead from then on, and hooks of the step run. SGD without momentum has no state.

A call whose result is a template for `dcp.load` is right, and not reported.""",
        applicability="manual",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=_IMPORT
                + _BUILT
                + 'dcp.save({"optim": get_optimizer_state_dict(model, optim)}, checkpoint_id=path)\n'
            ),
        ),
        leaves=(
            _IMPORT
            + _BUILT
            + "optim.step()\n"
            + 'dcp.save({"optim": get_optimizer_state_dict(model, optim)}, checkpoint_id=path)\n',
            _IMPORT
            + _BUILT
            + 'state = {"optim": get_optimizer_state_dict(model, optim)}\ndcp.load(state, checkpoint_id=path)\n',
        ),
        url=URL,
    ),
    words=("get_optimizer_state_dict", "get_state_dict"),
    check=check_saved,
    scope="distributed",
)

LOADED = Rule(
    RuleCard(
        code="FSDP714",
        name="optimizer-loaded-before-first-step",
        summary="`dcp.load` into the state dict of an optimizer that has not stepped yet",
        explanation="""\
`dcp.load` fills the dict that it is given. `optimizer.state_dict()`, and `FSDP.optim_state_dict` since torch 2.4, are
empty until the optimizer has stepped. Nothing is read from the file then, no error is raised, and training continues
with a new optimizer. The same holds for a `Stateful` whose `state_dict` returns `optimizer.state_dict()`. With the flat
parameters of `use_orig_params=False` and a file with state by name, `optimizer.load_state_dict` raises: the groups have
other sizes.

`get_optimizer_state_dict` creates the state that `dcp.load` fills. If the optimizer is a parameter or an attribute, the
finding is a hint: it may have stepped.""",
        applicability="manual",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=_IMPORT + _BUILT + 'state = {"optim": optim.state_dict()}\ndcp.load(state, checkpoint_id=path)\n'
            ),
            Example(
                before=_IMPORT
                + "from torch.distributed.checkpoint.stateful import Stateful\n\n\n"
                + "class OptimState(Stateful):\n    def state_dict(self):\n        return self.optimizer.state_dict()\n"
            ),
        ),
        leaves=(
            _IMPORT
            + _BUILT
            + 'state = {"optim": get_optimizer_state_dict(model, optim)}\ndcp.load(state, checkpoint_id=path)\n',
            _IMPORT
            + _BUILT
            + 'optim.step()\nstate = {"optim": optim.state_dict()}\ndcp.load(state, checkpoint_id=path)\n',
        ),
        url=URL,
    ),
    words=("Stateful",),
    check=check_loaded,
    scope="distributed",
    names=lambda: full_names("load"),
)
