"""How new code spells a name that the file may have already, whatever module it is from, and the import for it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import partial

from fsdp_migrate.code.import_texts import CannotSupply, for_type_checking, free_name, is_alone
from fsdp_migrate.edits import EditImport, ImportBehind
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.facts.scopes import Binding, Kind, Scope
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Span

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
        CannotSupply: the file's first statements share a line, or the name is taken in many ways.
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
    span = facts.source.span(anchor) if anchor is not None else _opening(facts)
    free, added = _added(facts, name, at)
    is_first = span.start == span.end
    return Spelled(free, (ImportBehind(span, module, (added,), "", facts.indent_unit, ahead=is_first),))


def lines_above(facts: ModuleFacts, statement: ast.stmt) -> int:
    """Where the lines of a statement start: its decorators, and comments right above that do not open the file."""
    source = facts.source
    start = first = source.line_start(facts.header(statement).start)
    while start > 0 and source.data[source.line_start(start - 1) : start].startswith(b"#"):
        start = source.line_start(start - 1)
    return start or first


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
        for only in facts.memo((_imports, outer), partial(_imports, outer)):
            if _brings(facts, only, target, outer, at) and scope.lookup(only.name) is outer:
                return only.name
    return None


def _imports(scope: Scope) -> list[Binding]:
    """The imports of a scope whose names nothing else binds."""
    only = (bindings[0] for bindings in scope.bindings.values() if len(bindings) == 1)
    return [one for one in only if one.kind is Kind.IMPORT and not one.conditional]


def _brings(facts: ModuleFacts, binding: Binding, target: str, home: Scope, at: ast.AST) -> bool:
    if binding.target != target:
        return False
    runs_first = home is not facts.scope(at) or binding.position < place_of(at)
    return runs_first and not for_type_checking(facts, binding.node)


def _at_top(facts: ModuleFacts, at: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    """The imports at the top level of the module that run before `at`."""
    top = facts.structure.module
    inside = facts.scope(at) is not top
    own = (node for node in facts.structure.imports if facts.structure.parents[node] is top.node)
    return [node for node in own if inside or place_of(node) < place_of(at)]


def _anchor(facts: ModuleFacts, module: str, at: ast.AST) -> ast.stmt | None:
    """The import that a new one goes behind: the last with a name before its own among its kin, else the last."""
    usable = [node for node in _at_top(facts, at) if is_alone(facts, node) and _may_stand_above(node)]
    if not usable:
        return None
    root = module.split(".")[0]
    kin = [node for node in usable if _root(node) == root]
    alike = kin or [node for node in usable if _group(_root(node)) == _group(root)]
    before = [node for node in alike if isinstance(node, ast.Import) or (node.module or "") <= module]
    return (before or alike or usable)[-1]


def _opening(facts: ModuleFacts) -> Span:
    """What a first import goes behind: docstring and `__future__`; in a file without, the place above all statements.

    Raises:
        CannotSupply: they share a line with other code.
    """
    body = facts.source.tree.body
    first = 0 if ast.get_docstring(facts.source.tree, clean=False) is None else 1
    while isinstance(body[first], ast.ImportFrom) and getattr(body[first], "module", "") == "__future__":
        first += 1
    if first == 0:
        start = lines_above(facts, body[0])
        return Span(start, start)
    if not is_alone(facts, body[first - 1]):
        raise CannotSupply(f"line {body[first - 1].lineno} has several statements: put each on a line of its own")
    return facts.source.span(body[first - 1])


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
