"""Where a file uses the names of torch.cuda.amp and torch.cpu.amp, and how it can write those of torch.amp."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fsdp_migrate.edits import Argument
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import ordered_arguments
from fsdp_migrate.facts.scopes import Binding, Kind, Scope
from fsdp_migrate.rules.card import Verdict
from fsdp_migrate.rules.floors import only_older
from fsdp_migrate.rules.releases import uses_of
from fsdp_migrate.rules.torch_places import imports

DEPRECATED = "2.4"
NEW_MODULE = "torch.amp"
# The submodules are where the names are defined; files of old take them from there.
_MODULES = {
    f"torch.{device}.amp{inner}": device
    for device in ("cuda", "cpu")
    for inner in ("", ".autocast_mode", ".grad_scaler")
}
_ASSERTIONS = ("assertIsInstance", "assertNotIsInstance")
_SHARDED = "ShardedGradScaler"
NO_TORCH = "`torch` itself is not imported here: import it"


class Place(NamedTuple):
    """A use of an old name: the name or attribute chain, its last part and the device that it stands for.

    `doubt` says what else it may be, None when nothing.
    """

    node: ast.Name | ast.Attribute
    name: str
    device: str
    doubt: str | None

    @property
    def old(self) -> str:
        """The old name for messages."""
        return f"torch.{self.device}.amp.{self.name}"

    @property
    def new(self) -> str:
        """The new name for messages."""
        return f"{NEW_MODULE}.{self.name}"


def places(facts: ModuleFacts, names: tuple[str, ...]) -> Iterator[Place]:
    """The uses of the old `names` that a release with the deprecation may run, in no order.

    Fallbacks that try the new name first are left out, and so is what only older releases run.
    """
    wanted = {f"{module}.{name}": (name, device) for module, device in _MODULES.items() for name in names}
    for node in _uses(facts, names, wanted.keys()):
        qualified = [meaning.qualified for meaning in facts.names.meanings(node)]
        known = {wanted[name] for name in qualified if name in wanted}
        new_is_tried = any(name is not None and f"{name}.".startswith(f"{NEW_MODULE}.") for name in qualified)
        asked_for = isinstance(facts.structure.parents[node], ast.Compare)  # `autocast is None`
        if len(known) != 1 or new_is_tried or asked_for or only_older(facts, node, DEPRECATED):
            continue
        name, device = next(iter(known))
        others = len(known) != len({wanted.get(other or "") for other in qualified})
        yield Place(node, name, device, f"`{ast.unparse(node)}` may be something else here" if others else None)


def _uses(facts: ModuleFacts, names: tuple[str, ...], wanted: object) -> Iterator[ast.Name | ast.Attribute]:
    yield from (node for node in facts.structure.attributes if node.attr in names)
    seen: set[ast.Name] = set()
    for scope in facts.structure.module.nested():
        for bindings in scope.bindings.values():
            for binding in bindings:
                if binding.kind is Kind.IMPORT and binding.target in wanted:  # type: ignore[operator]
                    seen.update(uses_of(binding))
    yield from seen


def torch_spelling(facts: ModuleFacts, place: Place) -> str | None:
    """How the module torch is called at a place, None when it is not imported there."""
    root: ast.expr = place.node
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and facts.names.qualified(root) == "torch":
        return root.id
    scope = facts.scope(place.node)
    for outer in scope.enclosing():
        for name, bindings in outer.bindings.items():
            is_torch = scope.lookup(name) is outer and all(binding.target == "torch" for binding in bindings)
            if is_torch and any(_ran(facts, binding, outer, place) for binding in bindings):
                return name
    return None


def _ran(facts: ModuleFacts, binding: Binding, home: Scope, place: Place) -> bool:
    """Whether an import of torch ran when control reaches `place`."""
    node = place.node
    here = (node.lineno, node.col_offset)
    if home is not facts.scope(node):
        return not binding.conditional and home.is_module
    return not binding.conditional and binding.position < here


def text_trouble(facts: ModuleFacts, node: ast.Name | ast.Attribute) -> str | None:
    """Why the text of a name cannot be replaced, None when it can."""
    if facts.template_around(node) is not None:
        return "it stands in an f-string, whose quotes the new text may not fit: take it out"
    if "\n" in facts.source.segment(node):
        return "the name is written over several lines: put it on one"
    return None


def is_type(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether a class is named as a type only: in an annotation, or as what `isinstance` tests for."""
    child: ast.AST = node
    parent = facts.structure.parents[child]
    while isinstance(parent, (ast.Subscript, ast.Tuple, ast.BinOp)):
        child, parent = parent, facts.structure.parents[parent]
    if isinstance(parent, ast.Call):
        asserted = getattr(parent.func, "attr", None) in _ASSERTIONS
        tested = asserted or facts.names.qualified(parent.func) in ("builtins.isinstance", "builtins.issubclass")
        return tested and child in parent.args[1:]
    return child in (getattr(parent, "annotation", None), getattr(parent, "returns", None))


def told_apart(facts: ModuleFacts, places: Iterable[Place], verdict: Verdict) -> Verdict:
    """The verdict of a scaler, unsafe where a test tells it from `ShardedGradScaler`, which is one of the new class."""
    if verdict.fix is None or not any(taken.path.endswith(_SHARDED) for taken in imports(facts)):
        return verdict
    tests = [_test_of(facts, place.node) for place in places if is_type(facts, place.node)]
    if all(test is None or _SHARDED in ast.unparse(test) for test in tests):
        return verdict
    return verdict._replace(unsafe=f"since torch 2.3 a {_SHARDED} passes the test for the new class, but not the old")


def _test_of(facts: ModuleFacts, node: ast.AST) -> ast.Call | None:
    """The call of `isinstance` or the like around a class, None for an annotation."""
    while isinstance(node, (ast.expr, ast.keyword)):
        node = facts.structure.parents[node]
        if isinstance(node, ast.Call):
            return node
    return None


def call_of(facts: ModuleFacts, place: Place) -> ast.Call | None:
    """The call of which a place is the callee."""
    parent = facts.structure.parents[place.node]
    return parent if isinstance(parent, ast.Call) and parent.func is place.node else None


def kept(call: ast.Call) -> tuple[Argument, ...]:
    """All arguments of a call as they are."""
    return tuple(
        Argument(argument.arg if isinstance(argument, ast.keyword) else None, index)
        for index, argument in enumerate(ordered_arguments(call))
    )


def takes_keywords(facts: ModuleFacts, cls: ast.ClassDef) -> bool:
    """Whether the base of a subclass is known to get no positions, be it from its own constructor or its callers."""
    calls = [node for node in ast.walk(cls) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    if any(call.func.attr == "__init__" and call.args for call in calls if isinstance(call.func, ast.Attribute)):
        return False
    if any(isinstance(node, ast.FunctionDef) and node.name == "__init__" for node in cls.body):
        return True
    own = [binding for binding in facts.scope(cls).bindings[cls.name] if binding.node is cls]
    elsewhere = facts.names.elsewhere
    if elsewhere is not None and elsewhere.is_imported(cls.name):
        return False
    parents = [facts.structure.parents[use] for binding in own for use in uses_of(binding)]
    if not parents:  # whoever builds it is in a file that this run may not see
        return False
    return not any(isinstance(parent, ast.ClassDef) or getattr(parent, "args", None) for parent in parents)
