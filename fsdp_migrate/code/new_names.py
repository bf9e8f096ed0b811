"""How new code spells a name that the file may have already, whatever module it is from, and the import for it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from typing import NamedTuple

from fsdp_migrate.code.import_texts import CannotSupply, for_type_checking, free_name, is_alone
from fsdp_migrate.edits import EditImport, ImportBehind
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.facts.scopes import Binding, Kind, Scope

# Modules that `import torch` loads, so that their names can be reached through it.
_LOADED = ("torch.nn", "torch.amp", "torch.cuda", "torch.optim")


class Spelled(NamedTuple):
    """The text for a name, and the edits that make it valid."""

    text: str
    edits: tuple[EditImport | ImportBehind, ...] = ()


def spell(facts: ModuleFacts, path: str, at: ast.AST) -> Spelled:
    """Spell the full name `path` (`torch.nn.utils.clip_grad_norm_`) at `at` in the file's own way.

    The name itself is used where it is imported, else the nearest module of it that is; otherwise the name is imported.

    Raises:
        CannotSupply: no import can bring the name.
    """
    module, _, name = path.rpartition(".")
    for prefix in _prefixes(path):
        bound = _visible(facts, prefix, at)
        if bound is not None:
            return Spelled(bound + path[len(prefix) :])
    return spell_from(facts, module, name, at)


def spell_from(facts: ModuleFacts, module: str, name: str, at: ast.AST) -> Spelled:
    """Import `name` from `module`, which may be relative, at the top of the file.

    Raises:
        CannotSupply: there is no import at the top to put it next to, or the name is taken in many ways.
    """
    top = facts.structure.module
    for node in _at_top(facts, at):
        if isinstance(node, ast.ImportFrom) and "." * node.level + (node.module or "") == module:
            known = next((alias for alias in node.names if alias.name == name), None)
            if known is not None and len(top.bindings[known.asname or name]) == 1:
                return Spelled(known.asname or name)
            free, added = _added(facts, name, at)
            return Spelled(free, (EditImport(facts.source.span(node), add=(added,), unit=facts.indent_unit),))
    anchor = _anchor(facts, module, at)
    free, added = _added(facts, name, at)
    return Spelled(free, (ImportBehind(facts.source.span(anchor), module, (added,), "", facts.indent_unit),))


def _added(facts: ModuleFacts, name: str, at: ast.AST) -> tuple[str, str]:
    free = free_name(facts, name, [facts.structure.module], facts.scope(at))
    return free, name if free == name else f"{name} as {free}"


def _prefixes(path: str) -> Iterator[str]:
    """The full name itself and the modules around it, the nearest first, as far as importing them loads it."""
    yield path
    module = path.rpartition(".")[0]
    yield module
    if module.startswith(_LOADED):
        while "." in module:
            module = module.rpartition(".")[0]
            yield module


def _visible(facts: ModuleFacts, target: str, at: ast.AST) -> str | None:
    """The name under which an import that surely ran brings a module or a name of one."""
    scope = facts.scope(at)
    for outer in scope.enclosing():
        for name, bindings in outer.bindings.items():
            only = bindings[0] if len(bindings) == 1 else None
            if only is not None and _brings(facts, only, target, outer, at) and scope.lookup(name) is outer:
                return name
    return None


def _brings(facts: ModuleFacts, binding: Binding, target: str, home: Scope, at: ast.AST) -> bool:
    if binding.kind is not Kind.IMPORT or binding.target != target or binding.conditional:
        return False
    runs_first = home is not facts.scope(at) or binding.position < place_of(at)
    return runs_first and not for_type_checking(facts, binding.node)


def _at_top(facts: ModuleFacts, at: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    """The imports at the top level of the module that run before `at`."""
    top = facts.structure.module
    inside = facts.scope(at) is not top
    own = (node for node in facts.structure.imports if facts.structure.parents[node] is top.node)
    return [node for node in own if inside or place_of(node) < place_of(at)]


def _anchor(facts: ModuleFacts, module: str, at: ast.AST) -> ast.stmt:
    """The import that a new one goes behind: the last with a name before its own among its kin, else the last."""
    usable = [node for node in _at_top(facts, at) if is_alone(facts, node) and _may_stand_above(node)]
    if not usable:
        raise CannotSupply(f"there is no import at the top of the file to put one of `{module}` next to")
    root = module.split(".")[0]
    kin = [node for node in usable if _root(node) == root]
    alike = kin or [node for node in usable if _group(_root(node)) == _group(root)]
    before = [node for node in alike if isinstance(node, ast.Import) or (node.module or "") <= module]
    return (before or alike or usable)[-1]


def _group(root: str) -> str:
    """Which imports stand together: those of the standard library, of packages, of this one."""
    return "standard library" if root in sys.stdlib_module_names else "packages" if root else "own"


def _root(node: ast.Import | ast.ImportFrom) -> str:
    if isinstance(node, ast.Import):
        return node.names[0].name.split(".")[0]
    return "" if node.level else (node.module or "").split(".")[0]


def _may_stand_above(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether a new import may be put behind one: where more than `__future__` is."""
    return isinstance(node, ast.Import) or node.module != "__future__"
