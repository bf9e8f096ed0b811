"""Small functions that converted code calls: of the generated module where there is one, else the file's own."""

from __future__ import annotations

import ast

from fsdp_migrate.code.import_texts import CannotSupply, fresh_name
from fsdp_migrate.code.new_names import lines_above
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.targets.fsdp2 import generated
from fsdp_migrate.targets.fsdp2.use import PACKAGE, Use

_CONTEXT = "contextlib.contextmanager"
_CLASS = f"{PACKAGE}.FSDPModule"

# The text of each function: {name} is its name, the others are the names that it needs, by their full names.
_TEXTS = {
    "no_sync": (
        (_CONTEXT,),
        """\
@{contextmanager}
def {name}(model):
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)
""",
    ),
    "own_steps": (
        ("torch.is_tensor",),
        '''\
def {name}(optim_state):
    """Gives each parameter a `step` of its own: files of FSDP1 have one for all parameters of a unit."""
    for state in (optim_state or {{}}).get("state", {{}}).values():
        if {is_tensor}(state.get("step")):
            state["step"] = state["step"].clone()
    return optim_state
''',
    ),
    "whole": (
        ("torch.distributed.tensor.DTensor",),
        '''\
def {name}(norm):
    """The norm of all ranks: a DTensor, unless there are no gradients or the model is not sharded."""
    return norm.full_tensor() if isinstance(norm, {DTensor}) else norm
''',
    ),
    "unsharded": (
        (_CONTEXT, _CLASS),
        '''\
@{contextmanager}
def {name}(model):
    """Has the parameters whole, to be read: what is written to them is lost."""
    units = [module for module in model.modules() if isinstance(module, {FSDPModule})]
    for unit in units:
        unit.unshard()
    try:
        yield
    finally:
        for unit in units:
            unit.reshard()
''',
    ),
}
# What they call of Python's own.
_BUILTINS = dict.fromkeys(("unsharded", "whole"), ("isinstance",))


def helper(use: Use, name: str) -> str | None:
    """The name under which a function can be called at a use; None, and a wall, where it cannot be had.

    A file gets it unless the generated module is needed anyway, and has it.
    """
    facts, conversion = use.facts, use.conversion
    is_generated = conversion.helper_path is not None or use.options.helper == "always"
    if is_generated and name in generated.FUNCTIONS:
        return from_generated(use, name)
    needs, text = _TEXTS[name]
    place = _place(facts, use.node)
    spelled = {path.rpartition(".")[2]: use.spelled(path, place) for path in needs}
    if None in spelled.values() or not all(use.has_builtin(one, place) for one in _BUILTINS.get(name, ())):
        return None

    def written(name: str) -> str:
        return generated.indented(text.format(name=name, **spelled), facts.indent_unit)

    if f"\n{written(name)}" in facts.source.text:  # for another model
        return name
    free = fresh_name(facts.structure.module, name, ())
    start = lines_above(facts, place)
    use.put(start, start, f"{written(free)}\n\n")
    return free


def from_generated(use: Use, name: str) -> str | None:
    """The name of a function of the generated module at a use; None, and a wall, where it cannot be had."""
    try:
        return generated.helper(use.conversion, use.closure, use.facts, name, use.node)
    except CannotSupply as error:
        use.wall(f"`{name}` of the generated module is needed here", str(error))
        return None


def _place(facts: ModuleFacts, node: ast.AST) -> ast.stmt:
    """The statement of the module that a function goes in front of: the first definition, or that of the use."""
    for statement in facts.source.tree.body:
        is_definition = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if is_definition or facts.source.span(statement).contains(facts.source.span(node)):
            return statement
    raise AssertionError("a use stands in no statement of its module")
