"""What closures start from: calls of FSDP1's class, calls of `wrap`, and places that pass the class on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.objects import Escape, Value
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import is_notebook
from fsdp_migrate.targets.fsdp2.conversion import Construction

_WRAP = "torch.distributed.fsdp.wrap"
_ENABLE_WRAP, _WRAP_CALL = f"{_WRAP}.enable_wrap", f"{_WRAP}.wrap"
_TESTS = ("builtins.isinstance", "builtins.issubclass", "typing.cast")

_IN_NOTEBOOK = (
    "a notebook builds it, whose cells may run in any order",
    "build it in a module that the notebook imports, or convert the notebook by hand",
)


class Seed(NamedTuple):
    """Where the models of a closure come from.

    `units` are calls of `wrap`, which wrap parts of a model. `makers` are expressions that give what makes a model when
    it is called.
    """

    constructions: tuple[Construction, ...] = ()
    units: tuple[Construction, ...] = ()
    makers: tuple[Value, ...] = ()
    escapes: tuple[Escape, ...] = ()

    @property
    def values(self) -> tuple[Value, ...]:
        """The expressions that give a model, or a wrapped part of one."""
        return tuple(Value(one.facts, one.call) for one in (*self.constructions, *self.units))


def seeds_of(facts: ModuleFacts) -> Iterator[Seed]:
    """What begins in a module."""
    for call in facts.fsdp.constructions:
        if facts.reached(call):
            derived = _derived(facts, call.func)
            escapes = [Escape(facts, call, f"`{derived}` is a class that derives from FSDP")] if derived else []
            escapes += [Escape(facts, call, *_IN_NOTEBOOK)] if is_notebook(facts.path) else []
            yield Seed(constructions=(Construction(facts, call),), escapes=tuple(escapes))
    for call in facts.structure.calls:
        if facts.names.qualified(call.func) == _ENABLE_WRAP and _wraps_with_fsdp(facts, call):
            yield from _wrapped_inside(facts, call)
    for node in _class_reads(facts):
        if facts.reached(node) and _is_passed_on(facts, node):
            yield Seed(makers=(Value(facts, node),))


def _derived(facts: ModuleFacts, cls: ast.expr) -> str | None:
    """The name of the class that a construction is of, None for FSDP itself."""
    symbol = facts.names.qualified(cls)
    return ast.unparse(cls) if symbol is not None and facts.fsdp.is_subclass(symbol) else None


def _wraps_with_fsdp(facts: ModuleFacts, call: ast.Call) -> bool:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "wrapper_cls"]
    return any(facts.fsdp.is_class(one) for one in given)


def _wrapped_inside(facts: ModuleFacts, call: ast.Call) -> Iterator[Seed]:
    """The calls of `wrap` that stand in the block of `enable_wrap`."""
    block = facts.structure.parents[facts.structure.parents[call]]
    calls = [one for one in ast.walk(block) if isinstance(one, ast.Call)] if isinstance(block, ast.With) else []
    function = facts.function(call)
    found = [one for one in calls if facts.names.qualified(one.func) == _WRAP_CALL]
    own = [one for one in found if facts.function(one) is function]
    for one in own:
        yield Seed(units=(Construction(facts, one),))
    if not found or len(own) < len(found):
        reason = "`enable_wrap` reaches the calls of `wrap` in the functions that its block calls"
        yield Seed(units=(Construction(facts, call),), escapes=(Escape(facts, call, reason),))


def _class_reads(facts: ModuleFacts) -> Iterator[ast.Name | ast.Attribute]:
    """Where FSDP1's class is read under a name that an import gives it."""
    users = facts.structure.module.users
    for name in sorted({one.name for scope in facts.structure.module.nested() for one in facts.fsdp.imports(scope)}):
        for scope in users.get(name, ()):
            yield from (load for load in scope.uses[name] if facts.fsdp.is_class(load))
    for node in facts.structure.attributes:
        if node.attr == "FullyShardedDataParallel" and facts.fsdp.is_class(node):
            yield node


def _is_passed_on(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether the class goes somewhere where it may be called."""
    parents = facts.structure.parents
    child: ast.AST = node
    parent = parents[child]
    while isinstance(parent, (ast.Tuple, ast.BinOp)):
        child, parent = parent, parents[parent]
    if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is child):
        return False
    if isinstance(parent, ast.Assign) and (reads := reads_of_alias(facts, parent)) is not None:
        return any(_is_passed_on(facts, read) for read in reads)
    if isinstance(parent, ast.Call) and facts.names.qualified(parent.func) in _TESTS:
        return False
    if isinstance(parent, ast.keyword):
        call = parents[parent]
        return not (isinstance(call, ast.Call) and facts.names.qualified(call.func) == _ENABLE_WRAP)
    if isinstance(parent, (ast.Compare, ast.ClassDef, ast.match_case, ast.MatchClass)):
        return False
    return not _is_in_annotation(facts, node)


def reads_of_alias(facts: ModuleFacts, assignment: ast.Assign) -> list[ast.Name] | None:
    """The reads of the name that an assignment gives the class, None where it has others, or more may read it."""
    target, project = assignment.targets[0], facts.project
    home = facts.scope(target).lookup(target.id) if isinstance(target, ast.Name) else None
    if not isinstance(target, ast.Name) or home is None or home.is_class or len(home.bindings[target.id]) != 1:
        return None
    if len(assignment.targets) > 1 or (home.is_module and project is not None and project.is_imported(target.id)):
        return None
    inside = [inner for inner in home.nested() if inner.lookup(target.id) is home]
    return [use for inner in inside for use in inner.uses.get(target.id, ()) if isinstance(use.ctx, ast.Load)]


def _is_in_annotation(facts: ModuleFacts, node: ast.AST) -> bool:
    parents = facts.structure.parents
    child, parent = node, parents[node]
    while isinstance(parent, ast.expr):
        if isinstance(parent, ast.Subscript) and child is parent.slice:
            return True  # of a generic type
        child, parent = parent, parents[parent]
    annotated = getattr(parent, "annotation", None) is child or getattr(parent, "returns", None) is child
    return annotated or isinstance(parent, ast.arg)
