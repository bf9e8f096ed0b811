"""What a file does with a moved name, and whether that goes on with the new one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from fsdp_migrate.edits import Release, Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.rules.moved_cases import Case
from fsdp_migrate.rules.moves import is_module
from fsdp_migrate.rules.releases import import_binding, release, uses_of
from fsdp_migrate.rules.torch_places import Chain, Import, bindings_of, chains, torch_path
from fsdp_migrate.torch_api.data import exists

# What the new placement calls the reductions that both know.
_REDUCTIONS = frozenset({"SUM", "AVG", "MAX", "MIN", "PRODUCT"})


def trouble_with_import(facts: ModuleFacts, taken: Import, case: Case) -> str | None:
    """Why an import cannot be rewritten because of what the file does with the name, None when it can."""
    if taken.alias.name == "*":
        return f"a star import: name what is needed from `{case.moved.new}`"
    if not taken.binds_path:
        return _first(_chain_trouble(chain, case) for chain in chains_through(facts, taken))
    bindings = bindings_of(facts, taken)
    if case.move.whole and is_module(taken.path):
        used = any(True for binding in bindings for _ in uses_of(binding))
        scope = facts.scope(taken.statement)
        local = scope.is_function and taken.bound not in scope.declared_global
        if not (case.gone or used or local):
            return f"`{taken.bound}` is not used here, and whoever takes it from here may use anything of it"
        return _first(_module_trouble(facts, binding, case) for binding in bindings)
    uses = [use for binding in bindings for use in uses_of(binding)]
    return _first(trouble_with_use(facts, use, case) for use in uses)


def _first(troubles: Iterator[str | None]) -> str | None:
    return next((trouble for trouble in troubles if trouble is not None), None)


def chains_through(facts: ModuleFacts, taken: Import) -> list[Chain]:
    """The attribute chains that a plain `import a.b.c` makes possible."""
    return [chain for chain in chains(facts) if f"{chain.path}.".startswith(f"{taken.path}.") and chain.base == "torch"]


def patch_trouble(chain: Chain, case: Case) -> str | None:
    """Why a module that gets something else in place of its own cannot be another module, None when it does not."""
    if not chain.patched or chain.path != case.moved.old or not is_module(case.moved.old):
        return None
    return f"the file replaces what `{chain.path}` has: see whether `{case.moved.new}` is what reads it"


def _chain_trouble(chain: Chain, case: Case) -> str | None:
    """Why a chain through a module does not go on through the new one."""
    if (trouble := patch_trouble(chain, case)) is not None:
        return trouble
    rest = chain.path[len(case.moved.old) + 1 :].split(".")[0]
    if not rest:
        return as_module(chain, case)
    return None if _offers(case, rest) else f"`{chain.path}` is used too: import what is needed by name"


def as_module(chain: Chain, case: Case) -> str | None:
    """Why a chain that ends at a module that moved as a whole stays: anything of it may be used."""
    if chain.path != case.moved.old or not (case.move.whole and is_module(chain.path)):
        return None
    return f"`{chain.path}` is used as a module: import what is needed from it by name"


def _offers(case: Case, name: str) -> bool:
    """Whether the new module has a name wherever it is imported."""
    new = case.moved.new or ""
    return all(exists(f"{new}.{name}", release) for release in case.releases if exists(new, release))


def _module_trouble(facts: ModuleFacts, binding: Binding, case: Case) -> str | None:
    """What a module that is bound to a name is used for that the new one does not offer."""
    if len(binding.scope.bindings[binding.name]) != 1:
        return f"`{binding.name}` is bound more than once: import what is needed from it by name"
    for use in uses_of(binding):
        parent = facts.structure.parents[use]
        if not isinstance(parent, ast.Attribute) or not isinstance(parent.ctx, ast.Load):
            return f"`{binding.name}` is used as a module: import what is needed from it by name"
        if not _offers(case, parent.attr):
            return f"`{case.moved.new}` has no `{parent.attr}` on every release: import what is needed by name"
    return None


def trouble_with_use(facts: ModuleFacts, use: ast.expr, case: Case) -> str | None:
    """Why one use of the old name is not a use of the new one, None when it is."""
    move, parent = case.move, facts.structure.parents[use]
    if move.only is not None:
        if isinstance(parent, ast.Attribute) and parent.attr in move.only:
            return None
        return f"use `{move.new}`: {move.trap}"
    is_call = isinstance(parent, ast.Call) and parent.func is use
    if move.statement and not (is_call and isinstance(facts.structure.parents[parent], ast.Expr)):
        return f"use `{move.new}`: {move.trap}"
    if move.placement and is_call and not _is_portable(facts, parent, case):  # type: ignore[arg-type]
        return f'`{move.new}` takes the name of the reduction, such as "sum", and no `ReduceOp`'
    return None


def _is_portable(facts: ModuleFacts, call: ast.Call, case: Case) -> bool:
    """Whether a placement is made without an argument, or with one whose new form can be written."""
    if not call.args and not call.keywords:
        return True
    return not case.guard and reduction(facts, call) is not None


def reduction(facts: ModuleFacts, call: ast.Call) -> tuple[ast.expr, str] | None:
    """The only argument of a placement and the name that takes its place, None unless it is a plain `ReduceOp`."""
    values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "reduce_op")]
    path = torch_path(facts, values[0]) if len(values) == 1 and len(call.args) + len(call.keywords) == 1 else None
    owner, _, name = (path or "").rpartition(".")
    return (values[0], name.lower()) if owner.endswith(".ReduceOp") and name in _REDUCTIONS else None


def argument_edits(facts: ModuleFacts, taken: Import, case: Case) -> tuple[tuple[Replace, ...], tuple[Release, ...]]:
    """Edits of the arguments that the new name takes in another form, and the imported names that they take away."""
    edits: list[Replace] = []
    releases: list[Release] = []
    if not case.move.placement:
        return (), ()
    for use in (use for binding in bindings_of(facts, taken) for use in uses_of(binding)):
        call = facts.structure.parents[use]
        found = reduction(facts, call) if isinstance(call, ast.Call) and call.func is use else None
        if found is not None:
            edits.append(Replace(facts.source.span(found[0]), f'"{found[1]}"'))
            releases += release(facts, found[0])
    return tuple(edits), tuple(releases)


def renamed_uses(facts: ModuleFacts, taken: Import, name: str) -> tuple[Replace, ...] | None:
    """Edits that give every use of an imported name another one, None where that may change what something means."""
    bindings = bindings_of(facts, taken)
    if taken.alias.asname is not None or len(bindings) != 1:
        return None
    binding = bindings[0]
    if not import_binding(facts, binding).removable or _is_taken(binding, name):
        return None
    uses = list(uses_of(binding))
    # What a file imports and does not use, it imports for others.
    if not uses or any(facts.template_around(use) is not None for use in uses):
        return None
    return tuple(Replace(facts.source.span(use), name) for use in uses)


def _is_taken(binding: Binding, name: str) -> bool:
    """Whether a name is bound or used anywhere that can see the binding, or that it can see."""
    inside: Sequence[bool] = [name in scope.bindings or name in scope.uses for scope in binding.scope.nested()]
    return any(inside) or any(name in scope.bindings for scope in binding.scope.enclosing())
