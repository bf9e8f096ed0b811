"""FSDP614: the process groups of a device mesh, all at once.

Sources: catalogue dt-device-mesh; `get_dim_groups` of 2.1.2 (_tensor/device_mesh.py), `get_group` of 2.2.2, 2.3.1 and
2.4.1 (device_mesh.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.fallback_arms import is_old_arm
from fsdp_migrate.code.instance_members import is_given, is_mesh, is_of_unknown_class, made_by
from fsdp_migrate.code.torch_presence import READING, excused
from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal, is_written_out
from fsdp_migrate.findings import Applicability, Finding, Fix
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual

_ONE, _ALL, _OLD = "get_group", "get_all_groups", "get_dim_groups"
_ALL_SINCE, _ONE_SINCE = "2.4", "2.2"
# A tuple for each dimension: tag, ranks and, since 2.3, name of the group.
_INFOS, _INFOS_REMOVED = "_dim_group_infos", "2.8"
_SHAPES = ("mesh_shape", "mesh_dim_names")
_RESHAPING = ("view", "reshape")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find calls that are to give the groups of all dimensions, and the old method for one or all of them."""
    for call in facts.structure.method_calls.get(_ONE, ()):
        several = _gives_all(call) and is_mesh(facts, _owner(call)) and _has_several(facts, call)
        if several and _concerns(facts, call, _ALL_SINCE, _ALL):
            message = f"`{_ONE}()` of a mesh with several dimensions fails since torch {_ALL_SINCE}: use `{_ALL}()`"
            yield finding(facts, card, call.func, facts.statement(call), message, _renamed(facts, call, _ALL))
    for node in facts.structure.attributes:
        if node.attr not in (_OLD, _INFOS) or not isinstance(node.ctx, ast.Load) or is_given(facts, node.attr):
            continue
        certain = is_mesh(facts, node.value)
        if not (certain or is_of_unknown_class(facts, node.value)):
            continue
        if node.attr == _INFOS:
            yield from _infos(facts, card, node)
        elif _concerns(facts, node, _ONE_SINCE, _ONE):
            message = f"`DeviceMesh.{_OLD}` was removed in torch {_ONE_SINCE}: use `{_ONE}(mesh_dim)` or `{_ALL}()`"
            verdict, floor = _replaced(facts, node)
            if not certain:
                verdict = verdict._replace(
                    unsafe=f"nothing in this file says that `{ast.unparse(node.value)}` is a `DeviceMesh`"
                )
            of_old = card._replace(removed=_ONE_SINCE, floor=floor)
            yield finding(facts, of_old, node, facts.statement(node), message, verdict)


def _infos(facts: ModuleFacts, card: RuleCard, node: ast.Attribute) -> Iterator[Finding]:
    if _concerns(facts, node, _INFOS_REMOVED, _ONE):
        message = f"`DeviceMesh.{_INFOS}` was removed in torch {_INFOS_REMOVED}: use `{_ONE}(mesh_dim)`"
        verdict = manual("read `group_name` of the group, and call `get_process_group_ranks(group)` for the ranks")
        of_old = card._replace(removed=_INFOS_REMOVED, floor=None)
        yield finding(facts, of_old, node, facts.statement(node), message, verdict)


def _concerns(facts: ModuleFacts, node: ast.AST, since: str, new: str) -> bool:
    """Whether a release from `since` on gets to a node, and the file does not expect that it fails there."""
    if not any(release >= Version(since) for release in facts.gates.alive(node)):
        return False
    return not excused(facts, node, READING, too_new=False) and not is_old_arm(facts, node, new)


def _owner(call: ast.Call) -> ast.expr:
    assert isinstance(call.func, ast.Attribute)
    return call.func.value


def _gives_all(call: ast.Call) -> bool:
    """Whether a call names no dimension."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return is_written_out(call) and all(is_literal(value, None) for value in given)


def _replaced(facts: ModuleFacts, node: ast.Attribute) -> tuple[Verdict, str]:
    """What takes the place of `get_dim_groups`, and the oldest release that has it."""
    call = facts.structure.parents[node]
    if not isinstance(call, ast.Call) or call.func is not node or not is_written_out(call):
        return manual(
            f"use `{_ONE}(mesh_dim)` for the group of one dimension, or `{_ALL}()` for the list of all groups"
        ), _ONE_SINCE
    if _gives_all(call):
        return _renamed(facts, call, _ALL), _ALL_SINCE
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if any(isinstance(value, ast.Name) and facts.names.may_be_none(value) for value in given):
        return manual(f"use `{_ONE}` for one dimension, and `{_ALL}` if this is None"), _ONE_SINCE
    return _renamed(facts, call, _ONE), _ONE_SINCE


def _renamed(facts: ModuleFacts, call: ast.Call, new: str) -> Verdict:
    span = facts.source.span(call)
    if new == _ALL and facts.source.has_comment(span):
        return manual(f"a comment is inside the call: move the comment, and call `{_ALL}()`")
    kept = () if new == _ALL else tuple(Argument(None, index) for index in range(len(call.args)))
    named = () if new == _ALL else tuple(Argument(one.arg, len(call.args)) for one in call.keywords)
    return Verdict(Fix((RewriteCall(span, new, (*kept, *named)),)))


def _has_several(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a mesh is built with several dimensions, or the call's result is taken for a list."""
    built = made_by(facts, _owner(call))
    if built and all(_is_built_with_several(facts, one) for one in built):
        return True
    parent = facts.structure.parents[call]
    if isinstance(parent, ast.Assign):
        return all(isinstance(target, (ast.Tuple, ast.List)) for target in parent.targets)
    if isinstance(parent, (ast.For, ast.comprehension)):
        return parent.iter is call
    return isinstance(parent, (ast.Subscript, ast.Starred)) and parent.value is call


def _is_built_with_several(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a call of `init_device_mesh` or `DeviceMesh` shows several dimensions: their sizes, names or ranks."""
    shapes = [*call.args[1:2], *(one.value for one in call.keywords if one.arg in (*_SHAPES, "mesh"))]
    return any(_shows_several(facts, shape) for shape in shapes)


def _shows_several(facts: ModuleFacts, shape: ast.expr) -> bool:
    value = facts.names.value(shape) if isinstance(shape, ast.Name) else shape
    if isinstance(value, ast.Tuple):
        return len(value.elts) > 1
    if isinstance(value, ast.List):  # ranks, or sizes
        return len(value.elts) > 0 and all(isinstance(one, ast.List) for one in value.elts)
    method = value.func if isinstance(value, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr in _RESHAPING and len(getattr(value, "args", ())) > 1


_IMPORT = "from torch.distributed.device_mesh import DeviceMesh, init_device_mesh\n\n"
_BUILT = _IMPORT + 'mesh = init_device_mesh("cuda", (2, 4))\n'
_OLDER = "from torch.distributed._tensor import DeviceMesh\n\n\ndef group(mesh: DeviceMesh, dim: int):\n"

RULE = Rule(
    RuleCard(
        code="FSDP614",
        name="mesh-groups",
        summary="`get_group()` of a mesh with several dimensions, `get_dim_groups` or `_dim_group_infos`",
        explanation="""\
In torch 2.2 and 2.3 `DeviceMesh.get_group` without a dimension returned the list of all groups if the mesh has more
than one dimension. Since 2.4 that raises RuntimeError, and `get_all_groups()` returns the list. torch 2.0 and 2.1
had `get_dim_groups` for both: use `get_group` with a dimension (since 2.2) and `get_all_groups` without. The
private list `_dim_group_infos`, with name and ranks of each group, was removed in 2.8.

A mesh has several dimensions if it is built with a tuple of sizes or names, or if the result of the call is
unpacked, indexed or iterated over. An object is a mesh if the file builds it or annotates it, also as `Optional`.
`get_dim_groups` and `_dim_group_infos` are names of meshes only. They are reported on any other object, too, and the
fix is unsafe there.""",
        applicability="safe, unsafe or manual",
        removed=_ALL_SINCE,
        floor=_ALL_SINCE,
        flags=(
            Example(
                before=_BUILT + "groups = mesh.get_group()\n",
                after=_BUILT + "groups = mesh.get_all_groups()\n",
                torch=">=2.4",
            ),
            Example(
                before=_OLDER + "    return mesh.get_dim_groups(dim)\n",
                after=_OLDER + "    return mesh.get_group(dim)\n",
                torch=">=2.2",
            ),
            Example(
                before=_OLDER.replace("mesh: DeviceMesh", "mesh") + "    return mesh.get_dim_groups(dim)\n",
                after=_OLDER.replace("mesh: DeviceMesh", "mesh") + "    return mesh.get_group(dim)\n",
                note="the parameter has no annotation",
                applicability=Applicability.UNSAFE,
                torch=">=2.2",
            ),
            Example(before=_BUILT + "dp, tp = mesh.get_group()\n", note="torch 2.3 is supported", torch=">=2.2"),
            Example(before=_BUILT + "tag, ranks, name = mesh._dim_group_infos[0]\n", torch=">=2.3"),
        ),
        leaves=(
            _BUILT + "group = mesh.get_group(0)\n",
            _IMPORT + 'mesh = init_device_mesh("cuda", (8,))\ngroup = mesh.get_group()\n',
        ),
        url="https://pytorch.org/docs/stable/distributed.html#devicemesh",
    ),
    scope="near",
    words=tuple((f".{name}", made) for name in (_ONE, _OLD, _INFOS) for made in ("DeviceMesh", "init_device_mesh")),
    check=check,
)
