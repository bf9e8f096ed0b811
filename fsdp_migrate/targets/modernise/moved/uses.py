"""What a file does with a moved module or name, and who else may rely on a name that it imports."""

from __future__ import annotations

import ast
import re

from packaging.version import Version

from fsdp_migrate.code.torch_names import Chain, Import, bindings_of, chains
from fsdp_migrate.code.unused_imports import import_binding, is_exported, strings_naming, uses_of
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.targets.modernise.moved.calls import is_type
from fsdp_migrate.targets.modernise.moved.cases import Case
from fsdp_migrate.targets.modernise.moved.table import moved
from fsdp_migrate.torch_api.data import exists, is_module


def chains_through(facts: ModuleFacts, taken: Import) -> list[Chain]:
    """The attribute chains that a plain `import a.b.c` makes possible."""
    return [chain for chain in chains(facts) if f"{chain.path}.".startswith(f"{taken.path}.") and chain.base == "torch"]


def patch_trouble(chain: Chain, case: Case) -> str | None:
    """Why a module that gets something else in place of its own cannot be another module, None when it does not."""
    if not chain.patched or chain.path != case.moved.old or not is_module(case.moved.old):
        return None
    return f"the file replaces an attribute of `{chain.path}`: check whether torch reads it from `{case.moved.new}`"


def patched_elsewhere(facts: ModuleFacts, node: ast.expr, case: Case) -> str | None:
    """Why a use keeps the old name: another file patches it, as tests do, and would patch what is not used any more."""
    project = facts.project
    name = getattr(node, "attr", getattr(node, "id", None))
    other = None if project is None or name is None else project.patcher(name, case.moved.old)
    return None if other is None else f"{other} patches `{name}`: use `{case.moved.new}` in both places"


def as_module(chain: Chain, case: Case) -> str | None:
    """Why a chain that ends at a module that moved as a whole stays: anything of it may be used."""
    if chain.path != case.moved.old or not (case.move.whole and is_module(chain.path)):
        return None
    return f"`{chain.path}` is used as a module: import the names that you use"


def used_of(facts: ModuleFacts, taken: Import, case: Case) -> set[str] | str:
    """The names that the file takes from a module it imports, or why another module cannot be in its place."""
    if not taken.binds_path:
        return _chained(facts, taken, case)
    names: set[str] = set()
    for binding in bindings_of(facts, taken):
        if len(binding.scope.bindings[binding.name]) != 1:
            return f"`{binding.name}` is bound more than once: import the names that you use"
        for use in uses_of(binding):
            parent = facts.structure.parents[use]
            if not isinstance(parent, ast.Attribute) or not isinstance(parent.ctx, ast.Load):
                return f"`{binding.name}` is used as a module: import the names that you use"
            names.add(parent.attr)
    scope = facts.scope(taken.statement)
    local = scope.is_function and taken.bound not in scope.declared_global
    if not (case.gone or names or local):
        return (
            f"this file does not use `{taken.bound}`, and other code may use any attribute of it: change both together"
        )
    return names


def _chained(facts: ModuleFacts, taken: Import, case: Case) -> set[str] | str:
    names = set()
    for chain in chains_through(facts, taken):
        trouble = patch_trouble(chain, case) or as_module(chain, case)
        if trouble is not None:
            return trouble
        names.add(chain.path[len(case.moved.old) + 1 :].split(".")[0])
    return names


def module_for(case: Case, names: set[str]) -> tuple[str, bool] | None:
    """The module that has what a file uses of a moved one, and whether older releases still need the old one.

    None where no single module has all of it.
    """
    new = case.moved.new or ""
    if _offers(new, names, case.releases) and all(exists(new, release) for release in case.releases):
        return new, False
    found = [moved(f"{case.moved.old}.{name}", case.releases[-1]) for name in names]
    owners = {None if one is None or one.renames else (one.new or "").rpartition(".")[0] for one in found}
    if len(owners) == 1 and (owner := owners.pop()) is not None and _offers(owner, names, case.releases):
        return owner, False
    having = tuple(release for release in case.releases if exists(new, release))
    return (new, case.guard) if _offers(new, names, having) else None


def _offers(module: str, names: set[str], releases: tuple[Version, ...]) -> bool:
    return all(exists(f"{module}.{name}", release) for name in names for release in releases)


def can_rename(facts: ModuleFacts, binding: Binding, new: str) -> bool:
    """Whether every use of an imported name can be that of `new`, and nothing else relies on the old name."""
    uses = list(uses_of(binding))
    # What a file imports and does not use, it imports for others.
    if not uses or _is_declared(facts, binding) or not import_binding(facts, binding).removable:
        return False
    if _is_taken(binding, new):
        return False
    if not _is_all_within(facts, binding) or any(facts.template_around(use) is not None for use in uses):
        return False
    return not _is_shown(facts, binding.name)


def shared(facts: ModuleFacts, binding: Binding) -> str | None:
    """Who else may call an imported name, and would have to change as well; None where nobody does."""
    name = binding.name
    if len(binding.scope.bindings[name]) != 1 or binding.scope.is_class:
        return f"`{name}` is bound in several ways"
    if not _is_all_within(facts, binding):
        return f"`{name}` is also used where this import does not run"
    if _is_declared(facts, binding) or is_exported(facts, binding):
        return f"other modules may import `{name}` from here"
    if not all(is_type(facts, text) for text in strings_naming(facts, name)) or _is_shown(facts, name):
        return f"a string names `{name}`, too"
    return None


def _is_declared(facts: ModuleFacts, binding: Binding) -> bool:
    """Whether an import binds a name of another scope, under `global` or `nonlocal`."""
    return facts.scope(binding.node) is not binding.scope


def _is_all_within(facts: ModuleFacts, binding: Binding) -> bool:
    """Whether only releases that run an import use its name."""
    alive = facts.gates.alive(binding.node)
    return all(facts.gates.alive(use) <= alive for use in uses_of(binding))


def _is_shown(facts: ModuleFacts, name: str) -> bool:
    """Whether an example in a docstring, which may be run as a test, uses a name of the module."""
    word = re.compile(rf">>>[^\n]*\b{re.escape(name)}\b")
    return any(isinstance(text.value, str) and word.search(text.value) for text in facts.structure.strings)


def _is_taken(binding: Binding, new: str) -> bool:
    """Whether a name is bound or used anywhere that can see the binding, or that it can see, and not by its import."""
    name = new.rpartition(".")[2]
    for scope in binding.scope.enclosing():
        if scope.star_imports or any(one.target != new for one in scope.bindings.get(name, ())):
            return True
    if name in binding.scope.bindings:
        return False
    return any(name in scope.bindings or name in scope.uses for scope in binding.scope.nested())
