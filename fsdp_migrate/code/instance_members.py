"""Members of objects whose class is visible in the file: FSDP models, FSDP2 modules, meshes, sharded tensors."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache

from fsdp_migrate.code.torch_names import imports, torch_path
from fsdp_migrate.code.torch_presence import having
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.annotations import options, texts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.facts.scopes import Kind
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.changed_names import names_asked
from fsdp_migrate.torch_api.unread import WARNINGS

# Classes by a path that the oldest releases have, and the newest ones as a stand-in.
FSDP2 = "torch.distributed._composable.fsdp.FSDPModule"
MESH = "torch.distributed._tensor.DeviceMesh"
_NEW_MESH = "torch.distributed.device_mesh.DeviceMesh"
MESHES = "torch.distributed.device_mesh._MeshEnv"
_OTHER_FSDP2 = ("torch.distributed.fsdp.fully_shard", "torch.distributed.fsdp.FSDPModule")
_MAX_DEPTH = 3
_MESH_NAMES = ("DeviceMesh", "init_device_mesh")
_ALL_MESHES = "torch.distributed.device_mesh._mesh_resources"
SHARDED = "torch.distributed._shard.sharded_tensor.api.ShardedTensor"
# The class, and the functions of its package that make one.
_SHARDED_NAMES = frozenset("ShardedTensor empty ones zeros full rand randn init_from_local_shards".split())
STRATEGY = "torch.distributed.tensor._op_schema.TupleStrategy"
# Names of setters are FSDP2's own; others, such as `unshard`, may belong to anything.
_OWN = "set_"


def members_used(facts: ModuleFacts) -> tuple[tuple[str, ast.Attribute], ...]:
    """Attributes of such objects that changed between releases, with their full names, in order."""
    return facts.memo(members_used, lambda: tuple(_members(facts)))


def _members(facts: ModuleFacts) -> Iterator[tuple[str, ast.Attribute]]:
    fsdp2, meshes, changed = _uses_fsdp2(facts), _uses_meshes(facts), _changed_members(facts.newest_only)
    for node in facts.structure.attributes:
        if node.attr not in changed or not isinstance(node.ctx, ast.Load) or is_given(facts, node.attr):
            continue
        if facts.fsdp.is_instance(node.value, node.attr):
            yield f"{FSDP}.{node.attr}", node
        elif fsdp2 and node.attr.startswith(_OWN) and having(f"{FSDP2}.{node.attr}"):
            yield f"{FSDP2}.{node.attr}", node
        elif meshes and torch_path(facts, node.value) == _ALL_MESHES:
            yield f"{MESHES}.{node.attr}", node
        elif meshes and is_mesh(facts, node.value):
            yield f"{_mesh_class(facts, node.attr)}.{node.attr}", node
        elif having(f"{STRATEGY}.{node.attr}") and _names_class(facts, STRATEGY):
            yield f"{STRATEGY}.{node.attr}", node
        elif node.attr in sharded_members() and _holds(facts, node.value, _is_sharded_path):
            yield f"{SHARDED}.{node.attr}", node


@cache
def _changed_members(newest_only: bool) -> frozenset[str]:
    """The members of these classes in question."""
    classes = (FSDP, FSDP2, MESH, _NEW_MESH, MESHES, STRATEGY)
    owners = {*classes, *(cls.rpartition(".")[2] for cls in classes)}
    return sharded_members().union(*map(names_asked(newest_only).of, owners))


@cache
def sharded_members() -> frozenset[str]:
    """The members of sharded tensors that warn; `to`, `view` and others are members of any tensor."""
    return frozenset(name.rpartition(".")[2] for name in WARNINGS if name.startswith(f"{SHARDED}."))


def _mesh_class(facts: ModuleFacts, member: str) -> str:
    """The class of meshes, under its newer path for newer members if the file imports no older one."""
    if any(taken.path.startswith(MESH.rpartition(".")[0]) for taken in imports(facts)):
        return MESH
    newer, older = having(f"{_NEW_MESH}.{member}"), having(f"{MESH}.{member}")
    return _NEW_MESH if newer and newer[0] == older[0] else MESH


def is_given(facts: ModuleFacts, name: str) -> bool:
    """Whether the file defines a member of this name: a method, an assigned attribute, or one that it tests for."""
    return name in facts.memo(is_given, lambda: _given(facts))


def _given(facts: ModuleFacts) -> set[str]:
    structure = facts.structure
    named = [function.name for function in structure.functions] + [node.attr for node in structure.stores]
    return {constant.value for constant in structure.strings if isinstance(constant.value, str)}.union(named)


def _uses_fsdp2(facts: ModuleFacts) -> bool:
    owner = FSDP2.rpartition(".")[0]
    return any(taken.path.startswith(owner) or taken.path in _OTHER_FSDP2 for taken in imports(facts))


def _uses_meshes(facts: ModuleFacts) -> bool:
    return any("mesh" in taken.path.lower() or taken.path.startswith("torch.distributed") for taken in imports(facts))


def _names_class(facts: ModuleFacts, path: str) -> bool:
    """Whether the file imports a class, from any of the modules that it was in."""
    return any(taken.path.rpartition(".")[2] == path.rpartition(".")[2] for taken in imports(facts))


def is_mesh(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether `node` can only be device meshes, or None: it is built or annotated as such in this file."""
    while isinstance(node, ast.Subscript):  # some dimensions of it
        node = node.value
    return _holds(facts, node, _is_mesh_path)


_IsPath = Callable[[str | None], bool]


def _holds(facts: ModuleFacts, node: ast.expr, is_path: _IsPath, depth: int = 0) -> bool:
    """Whether `node` can only be what a name of torch builds or annotates, or None."""
    if depth > _MAX_DEPTH:
        return False
    if isinstance(node, ast.Call):
        return is_path(torch_path(facts, node.func))
    bound = [one for one in _bound(facts, node) if one.annotation is not None or not is_literal(one.value, None)]
    return bool(bound) and all(_binds(facts, one, is_path, depth) for one in bound)


def is_of_unknown_class(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether the file does not show the class of `node`: a parameter without annotation, or the result of a call."""
    return all(one.annotation is None and one.value is None for one in _bound(facts, node))


def made_by(facts: ModuleFacts, node: ast.expr) -> list[ast.Call]:
    """The calls that build `node`, none if it may be something else."""
    values = [node] if isinstance(node, ast.Call) else [one.value for one in _bound(facts, node)]
    calls = [value for value in values if isinstance(value, ast.Call)]
    return calls if len(calls) == len(values) else []


class _Bound(NamedTuple):
    """What a name or an attribute is bound to in one place, and the annotation there."""

    annotation: ast.expr | None
    value: ast.expr | None


def _bound(facts: ModuleFacts, node: ast.expr) -> list[_Bound]:
    """What the file binds a name to, or an attribute that is written like `node`."""
    if isinstance(node, ast.Name):
        bindings = facts.names.bindings(node)
        places = [one.node if one.kind is Kind.PARAMETER else facts.structure.parents[one.node] for one in bindings]
        return [_Bound(getattr(place, "annotation", None), one.value) for place, one in zip(places, bindings)]
    if not isinstance(node, ast.Attribute):
        return []
    same = (
        one for one in facts.structure.stores if one.attr == node.attr and ast.dump(one.value) == ast.dump(node.value)
    )
    statements = [facts.structure.parents[one] for one in same]
    return [_Bound(getattr(one, "annotation", None), getattr(one, "value", None)) for one in statements]


def _binds(facts: ModuleFacts, bound: _Bound, is_path: _IsPath, depth: int) -> bool:
    if bound.annotation is not None and (paths := list(_class_paths(facts, bound.annotation))):
        return all(is_path(path) for path in paths)
    return isinstance(bound.value, (ast.Name, ast.Call)) and _holds(facts, bound.value, is_path, depth + 1)


def _class_paths(facts: ModuleFacts, cls: ast.expr) -> Iterator[str | None]:
    """The full names in torch of the classes that an annotation allows, None for others and nothing for None."""
    for option in options(cls):
        if isinstance(option, ast.Constant) and isinstance(option.value, str):
            yield from (_path_of_text(facts, cls, text) for text in texts(option.value))
        else:
            yield torch_path(facts, option)


def _path_of_text(facts: ModuleFacts, cls: ast.expr, text: str) -> str | None:
    """The full name of a quoted annotation, None unless one import provides it."""
    root, dot, rest = text.partition(".")
    home = facts.scope(cls).lookup(root)
    targets = {binding.target for binding in home.bindings[root]} if home is not None else set()
    return f"{targets.pop()}{dot}{rest}" if len(targets) == 1 else None


def _is_mesh_path(path: str | None) -> bool:
    return path is not None and path.startswith("torch.distributed.") and path.rpartition(".")[2] in _MESH_NAMES


def _is_sharded_path(path: str | None) -> bool:
    package, _, name = (path or "").rpartition(".")
    return name in _SHARDED_NAMES and SHARDED.startswith(f"{package}.")
