"""`model.parameters()` and its kin: what is done with parameters, with their names, and with collections of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.objects import EACH, EACH_FIRST, EACH_OF_GROUPS, EACH_SECOND, Escape, Reference
from fsdp_migrate.facts.project_code import Class
from fsdp_migrate.targets.fsdp2.conversion import Closure, Conversion, Options
from fsdp_migrate.targets.fsdp2.gathering import is_gathered
from fsdp_migrate.targets.fsdp2.norms import made_whole
from fsdp_migrate.targets.fsdp2.optimizers import convert_optimizer, is_optimizer, takes_parameters
from fsdp_migrate.targets.fsdp2.said import keeps_parameters
from fsdp_migrate.targets.fsdp2.tensors import PATHS, Tensors
from fsdp_migrate.targets.fsdp2.use import Member, Use, is_result_used

PREFIX = "_fsdp_wrapped_module"
_NAMES = "names of parameters are those of the module, not of flat parameters"
_ACROSS = "parts of names that go across a wrapped module are found, which a prefix of FSDP1 kept apart"
_FIRST = "the first part of names of parameters is read, which is a prefix of FSDP1 where the module itself was wrapped"
_ELEMENT = re.compile(r"\d\.\w")
_CLIPPED = (
    "`clip_grad_norm_` of torch.nn.utils clips by the norm of all gradients; with FSDP1 it is the norm of one rank's"
)
_UTILS = "torch.nn.utils"
_CLIP = frozenset(f"{_UTILS}.{name}" for name in ("clip_grad_norm_", "clip_grad.clip_grad_norm_", "get_total_norm")) | {
    f"{_UTILS}.clip_grad.get_total_norm"
}
_FINE = frozenset({f"{_UTILS}.clip_grad_value_", f"{_UTILS}.clip_grad.clip_grad_value_"})
_TAKES_PARAMETERS = frozenset({"add_param_group"})
_TOGETHER = frozenset({"foreach", "fused"})  # optimizers that update many tensors at once
_TELLING = frozenset({"startswith", "split", "rsplit", "partition", "index", "find", "removeprefix", "lstrip"})
_ENDINGS = frozenset({"endswith"})


def convert_parameters(use: Use, member: Member) -> None:
    """Look at all that is done with the parameters of a model."""
    if member.call is None:
        use.wall(f"`{ast.unparse(member.node)}` is passed on", "call it where the parameters are needed", member.node)
        return
    followed = use.follow(member.call, PATHS[member.node.attr])
    for one in followed.references:
        look_at(use, one)
    for escape in followed.escapes:
        _convert_collection(use, escape)
    if member.node.attr == "named_parameters":
        see_names(use, member.call, flat=not keeps_parameters(use.closure))


def convert_own_parameters(use: Use, member: Member) -> None:
    """`module._parameters`, the dict of a module's own parameters, of which only the values are looked at."""
    parents = use.facts.structure.parents
    attribute = parents[member.node]
    call = parents[attribute]
    path = _OF_DICT.get(attribute.attr) if isinstance(attribute, ast.Attribute) else None
    if path is None or not isinstance(call, ast.Call) or call.func is not attribute:
        step = "set them before the model is wrapped, or read them by `parameters(recurse=False)`"
        use.wall(f"`{ast.unparse(attribute)}` may change parameters that are sharded", step, member.node)
        return
    followed = use.follow(call, path)
    for one in followed.references:
        look_at(use, one)
    for escape in followed.escapes:
        _convert_collection(use, escape)


def convert_groups(conversion: Conversion, closure: Closure, options: Options) -> None:
    """Look at all that is done with the parameters that `param_groups` of an optimizer gives, outside of its class."""
    for one in [one for references in conversion.optimizers.values() for one in references]:
        groups, around = one.facts.structure.parents[one.node], one.facts.class_around(one.node)
        if not isinstance(groups, ast.Attribute) or groups.attr != "param_groups":
            continue
        if around is not None and is_optimizer(conversion.code, Class(one.facts, around)):
            continue
        use = Use(conversion, closure, Reference(one.facts, groups), options)
        followed = use.follow(groups, EACH_OF_GROUPS)
        for each in followed.references:
            look_at(use, each)
        for escape in followed.escapes:
            _convert_collection(use, escape)


_OF_DICT = {"values": EACH, "items": EACH_SECOND}


def look_at(use: Use, one: Reference) -> None:
    """What is done with one parameter of a model."""
    here = use.at(one)
    Tensors(here, is_gathered(here.facts, use.root, one.node)).look(one.node)


def see_names(use: Use, collection: ast.expr, *, flat: bool = False) -> None:
    """What is done with the names in a collection of pairs, which may be those of `flat` parameters."""
    followed = use.follow(collection, EACH_FIRST)
    for one in followed.references:
        _convert_name(use.at(one), flat)
    for escape in followed.escapes:
        if isinstance(escape.node, ast.expr) and not is_gathered(escape.facts, use.root, escape.node):
            here = use.at(Reference(escape.facts, escape.node))
            here.wall(f"names with a prefix of FSDP1 cannot be followed: {escape.reason}", _TAKE_AWAY)


_TAKE_AWAY = f'remove the prefix first: `name.replace("{PREFIX}.", "")`'


def _convert_name(use: Use, flat: bool) -> None:
    """What is done with the name of a parameter or module, which had a prefix for each wrapped module around it."""
    facts, node = use.facts, use.node
    parent = facts.structure.parents[node]
    method = parent.attr if isinstance(parent, ast.Attribute) else None
    if method == "replace" or is_gathered(facts, use.root, node):
        return  # by which the prefix goes
    is_part = isinstance(parent, ast.Compare) and node is not parent.left and _asks_in(parent)
    is_without = method == "split" and _leaves_prefix_out(facts.structure.parents, parent)
    if is_part or is_without or method in _ENDINGS:
        if flat:
            use.differs(_NAMES, parent)
        elif not is_without and any(_goes_across(one) for one in ast.walk(_asked(facts.structure.parents, parent))):
            use.differs(_ACROSS, parent)
    elif use.kinds is not None and method == "split" and _is_first(facts.structure.parents, parent):
        use.differs(_FIRST, parent)
    elif method in _TELLING or isinstance(parent, (ast.Compare, ast.BinOp)) or _is_indexed(parent, node):
        use.wall(f"`{ast.unparse(parent)}` looks at a name that has a prefix of FSDP1", _TAKE_AWAY)


def _asked(parents: Mapping[ast.AST, ast.AST], parent: ast.AST) -> ast.AST:
    """The comparison, or the call of a method, that looks at a name."""
    return parents[parent] if isinstance(parent, ast.Attribute) else parent


def _is_first(parents: Mapping[ast.AST, ast.AST], split: ast.AST) -> bool:
    """Whether of a name that is split only the first part is read: what is in a module has a name of its own there."""
    call = parents[split]
    part = parents[call]
    number = part.slice if isinstance(part, ast.Subscript) and part.value is call else None
    return isinstance(number, ast.Constant) and number.value == 0


def _leaves_prefix_out(parents: Mapping[ast.AST, ast.AST], split: ast.AST) -> bool:
    """Whether the parts of a name are looped over without the prefix of FSDP1: `if not part.startswith("_")`."""
    loop = parents[parents[split]]
    if not isinstance(loop, ast.comprehension) or loop.iter is not parents[split]:
        return False
    return isinstance(loop.target, ast.Name) and any(_rejects_prefix(loop.target.id, test) for test in loop.ifs)


def _rejects_prefix(name: str, test: ast.expr) -> bool:
    """Whether a test of the text `name` is certainly false for the prefix of FSDP1."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        call = test.operand
        is_start = isinstance(call, ast.Call) and ast.unparse(call.func) == f"{name}.startswith" and len(call.args) == 1
        return is_start and any(PREFIX.startswith(one) for one in _texts(call.args[0]))  # type: ignore[attr-defined]
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    left, right = test.left, test.comparators[0]
    if isinstance(test.ops[0], ast.NotIn) and ast.unparse(right) == name:
        return any(one in PREFIX for one in _texts(left))
    return ast.unparse(left) == name and isinstance(test.ops[0], (ast.NotEq, ast.NotIn)) and PREFIX in _texts(right)


def _texts(node: ast.expr) -> list[str]:
    """The text that is written out, or the texts in a collection; none where something else is among them."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return []
    texts = [value] if isinstance(value, str) else value
    return [*texts] if isinstance(texts, (list, tuple, set)) and all(isinstance(one, str) for one in texts) else []


def _goes_across(node: ast.AST) -> bool:
    """Whether a text has an element of a list in front of what is in it, which a wrapped module would be."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_ELEMENT.search(node.value))


def _asks_in(comparison: ast.Compare) -> bool:
    return all(isinstance(op, (ast.In, ast.NotIn)) for op in comparison.ops)


def _is_indexed(parent: ast.AST, node: ast.expr) -> bool:
    return isinstance(parent, ast.Subscript) and parent.value is node


def _convert_collection(use: Use, escape: Escape) -> None:
    """Parameters that are used as a whole: the collection is what stands at the place of the escape."""
    facts, node = escape.facts, escape.node
    parent = facts.structure.parents.get(node)
    if isinstance(parent, ast.keyword):
        parent = facts.structure.parents[parent]
    if isinstance(parent, ast.Call) and isinstance(node, ast.expr) and parent.func is not node:
        _give(use.at(Reference(facts, node)), parent)
    else:
        use.lose(f"what holds parameters of `{use.text}`", [escape])


def _check_mixed(use: Use, call: ast.Call, does: str) -> None:
    """There is a wall where a function works on the parameters of another module at the same time."""
    facts, node = use.facts, use.node
    given = facts.names.value(node) if isinstance(node, ast.Name) else node
    parts = [] if given is None else list(ast.walk(given))
    if any(isinstance(part, ast.Dict) for part in parts):
        return  # groups, one after the other
    own = {one.node for one in use.closure.references}
    asked = [part.value for part in parts if isinstance(part, ast.Attribute) and part.attr in PATHS]
    if any(own.isdisjoint(ast.walk(one)) for one in asked):
        told = f"`{ast.unparse(call.func)}` {does} parameters of other modules together with those of the model"
        use.wall(told, "call it once for each: DTensors and other tensors do not mix", call)


def _give(use: Use, call: ast.Call) -> None:
    """Parameters that are given to a function."""
    facts = use.facts
    named = facts.names.qualified(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
    method = call.func.attr if isinstance(call.func, ast.Attribute) else None
    if takes_parameters(use.conversion.code, facts, call):
        convert_optimizer(use.conversion, use.closure, facts, call)
        if any(one.arg in _TOGETHER and not is_literal(one.value, False) for one in call.keywords):
            _check_mixed(use, call, "updates")
        return
    if named in _CLIP:
        _check_mixed(use, call, "takes the norm of")
    if named in _FINE or method in _TAKES_PARAMETERS:
        return
    if named in _CLIP:
        use.differs(_CLIPPED, call)
        whole = made_whole(use, call) if is_result_used(use, call) else None
        if whole is not None:
            start, end = facts.source.span(call)
            use.put(start, start, whole.before)
            use.put(end, end, whole.behind)
    else:
        step = "check whether it works with DTensors"
        use.wall(f"`{ast.unparse(call.func)}` gets parameters of the model", step, call)
