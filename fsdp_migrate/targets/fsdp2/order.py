"""FSDP901 and FSDP902: what stands on the wrong side of `fully_shard`, or is missing behind it.

Measured on two ranks with torch 2.13: an optimizer from before moves nothing, since `fully_shard` puts other
parameters in the place of those that it holds. `to_empty` leaves whatever the memory held.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.sharded_models import comes_later, is_fully_shard
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_PARAMETERS = frozenset({"parameters", "named_parameters"})
# What can be done with a model without giving its parameters a value.
_READING = frozenset(
    "to_empty train eval parameters named_parameters buffers named_buffers requires_grad_ zero_grad to cuda cpu float "
    "half bfloat16 set_requires_gradient_sync set_modules_to_forward_prefetch unshard reshard state_dict".split()
)


def check_optimizer(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find optimizers of torch that hold the parameters of a model which is sharded only afterwards."""
    shards = [call for call in facts.structure.calls if call.args and is_fully_shard(facts, call)]
    for built in facts.structure.calls if shards else ():
        statement = facts.structure.parents[built]
        if not isinstance(statement, ast.Assign) or not _is_optimizer(facts, built):
            continue
        optimizer = ast.unparse(statement.targets[0])
        for shard in shards:
            model = ast.unparse(shard.args[0])
            if not _holds(built, model) or not comes_later(facts, statement, shard):
                continue
            if not _is_renewed(facts, optimizer, built, shard) and not _is_rebound(facts, shard, built):
                message = (
                    f"`{optimizer}` holds the parameters that `{model}` had before `fully_shard` "
                    f"(line {shard.lineno}): its steps change nothing, without an error"
                )
                way = "create the optimizer after `fully_shard`"
                yield finding(facts, card, built, facts.statement(built), message, manual(way))
                break


def _is_optimizer(facts: ModuleFacts, call: ast.Call) -> bool:
    if not isinstance(call.func, (ast.Name, ast.Attribute)):
        return False
    module, _, name = (facts.names.qualified(call.func) or "").rpartition(".")
    return f"{module}.".startswith("torch.optim.") and "lr_scheduler" not in module and name[:1].isupper()


def _holds(built: ast.Call, model: str) -> bool:
    """Whether an optimizer is given the parameters of a model, all of them or in groups."""
    given = [*built.args[:1], *(one.value for one in built.keywords if one.arg == "params")]
    parts = (part for one in given for part in ast.walk(one))
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in _PARAMETERS
        and ast.unparse(part.func.value) == model
        for part in parts
    )


def _is_renewed(facts: ModuleFacts, optimizer: str, built: ast.Call, shard: ast.Call) -> bool:
    """Whether the optimizer is built again, or given other parameters, anywhere below."""
    function = facts.function(built)
    for node in ast.walk(function):
        is_store = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)
        if is_store and ast.unparse(node) == optimizer and place_of(node) > place_of(shard):
            return True
        is_group = isinstance(node, ast.Attribute) and node.attr in ("param_groups", "add_param_group")
        if is_group and isinstance(node, ast.Attribute) and ast.unparse(node.value) == optimizer:
            return True
    return False


def _is_rebound(facts: ModuleFacts, shard: ast.Call, built: ast.Call) -> bool:
    """Whether what is sharded is another model than the one whose parameters the optimizer holds."""
    model = ast.unparse(shard.args[0])
    stores = (
        node
        for node in ast.walk(facts.function(shard))
        if isinstance(node, (ast.Name, ast.Attribute))
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node) == model
    )
    own = facts.statement(shard)
    return any(place_of(built) < place_of(one) < place_of(shard) and facts.statement(one) is not own for one in stores)


def check_meta(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find models that get memory by `to_empty` and run before anything gives their parameters a value."""
    shards = [call for call in facts.structure.calls if call.args and is_fully_shard(facts, call)]
    for empty in facts.structure.method_calls.get("to_empty", ()) if shards else ():
        assert isinstance(empty.func, ast.Attribute)
        model = empty.func.value
        if not isinstance(model, ast.Name) or not isinstance(facts.structure.parents[empty], ast.Expr):
            continue
        text, function = model.id, facts.function(empty)
        if not any(ast.unparse(one.args[0]) == text and facts.function(one) is function for one in shards):
            continue
        run = _first_run(facts, model, empty)
        if run is not None and not _may_be_filled(facts, model, empty, run):
            message = (
                f"`to_empty` sets no values, and nothing initialises or loads `{text}` before it runs in line "
                f"{run.lineno}"
            )
            way = "initialise parameters and buffers, or load a state dict, after `to_empty`"
            yield finding(facts, card, empty, facts.statement(empty), message, manual(way))


def _first_run(facts: ModuleFacts, model: ast.Name, empty: ast.Call) -> ast.Call | None:
    """The first call of the model below `to_empty` that surely follows it."""
    own = facts.statement(empty)
    for call in facts.structure.calls:
        if isinstance(call.func, ast.Name) and call.func.id == model.id and comes_later(facts, own, call):
            return call
    return None


def _may_be_filled(facts: ModuleFacts, model: ast.Name, empty: ast.Call, run: ast.Call) -> bool:
    """Whether something is done with the model, in any function, that may give its parameters a value."""
    home = facts.scope(model).lookup(model.id)
    scopes = facts.structure.module.nested()
    uses = [use for scope in scopes if scope.lookup(model.id) is home for use in scope.uses.get(model.id, ())]
    for use in uses:
        if facts.function(use) is facts.function(empty) and not place_of(empty) <= place_of(use) < place_of(run):
            continue
        parent = facts.structure.parents[use]
        if isinstance(parent, ast.Attribute) and parent.attr in _READING and _is_method_of(facts, parent):
            continue
        if isinstance(parent, ast.Call) and (is_fully_shard(facts, parent) or _only_reads(facts, parent)):
            continue
        return True
    return False


def _is_method_of(facts: ModuleFacts, attribute: ast.Attribute) -> bool:
    """Whether a method is called, and its result goes to an optimizer or nowhere: a loop may fill parameters."""
    call = facts.structure.parents[attribute]
    if not isinstance(call, ast.Call) or call.func is not attribute:
        return False
    if attribute.attr not in (*_PARAMETERS, "buffers", "named_buffers", "state_dict"):
        return True
    outer = facts.structure.parents[call]
    return isinstance(outer, ast.Call) and _is_optimizer(facts, outer)


def _only_reads(facts: ModuleFacts, call: ast.Call) -> bool:
    return isinstance(call.func, (ast.Name, ast.Attribute)) and facts.names.qualified(call.func) == "builtins.print"


_IMPORT = "import torch\nfrom torch.distributed.fsdp import fully_shard\n\n"
_URL = "https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
_TRAIN = "loss = model(batch).sum()\nloss.backward()\noptimizer.step()\n"
_BUILD = "optimizer = torch.optim.AdamW(model.parameters())\n"

OPTIMIZER = Rule(
    RuleCard(
        code="FSDP901",
        name="optimizer-before-fully-shard",
        summary="an optimizer that is created before `fully_shard` replaces its parameters",
        explanation="""\
`fully_shard` replaces the parameters of the module by DTensors. An optimizer that was created before holds the old
ones: `step()` changes nothing and `zero_grad()` clears nothing. Gradients add up, the loss does not change, and there
is no error (seen on torch 2.13).

FSDP1 with `use_orig_params=True` accepts this order; FSDP2 does not.""",
        applicability="manual",
        severity=Severity.CHANGES,
        flags=(Example(before=_IMPORT + _BUILD + "fully_shard(model)\n" + _TRAIN, torch=">=2.6"),),
        leaves=(_IMPORT + "fully_shard(model)\n" + _BUILD + _TRAIN,),
        url=_URL,
    ),
    scope="models",
    words=tuple(("fully_shard", f".{name}") for name in sorted(_PARAMETERS)),
    check=check_optimizer,
)

META = Rule(
    RuleCard(
        code="FSDP902",
        name="meta-model-never-initialised",
        summary="a sharded model from the meta device that runs after `to_empty` without initialisation",
        explanation="""\
`to_empty` allocates memory for a model from the meta device, and sets no values. Training starts from whatever it
held, also in buffers such as rotary tables, and there is no error. Initialise the modules (`reset_parameters`, the
model's own `init_weights`) or load a complete state dict, and set the buffers that it does not contain.

Reported if a function calls `to_empty` and then runs the model, with nothing in between.""",
        applicability="manual",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=_IMPORT
                + 'with torch.device("meta"):\n    model = Model()\n'
                + 'fully_shard(model)\nmodel.to_empty(device="cuda")\n'
                + _BUILD
                + _TRAIN,
                torch=">=2.6",
            ),
        ),
        leaves=(
            _IMPORT + 'fully_shard(model)\nmodel.to_empty(device="cuda")\nmodel.init_weights()\n' + _BUILD + _TRAIN,
            _IMPORT + 'fully_shard(model)\nmodel.to_empty(device="cuda")\nload(model)\n' + _BUILD + _TRAIN,
        ),
        url=_URL,
    ),
    scope="models",
    words=((".to_empty", "fully_shard"),),
    check=check_meta,
)
