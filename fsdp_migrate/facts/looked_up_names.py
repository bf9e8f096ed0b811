"""Names that are looked up by a string: `getattr(owner, "name")`, `Enum["NAME"]`, `vars(owner)["name"]`."""

from __future__ import annotations

import ast
from functools import cache

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.torch_api import RELEASES, data

# Enums that are made in C, of whose members the API data knows nothing.
_BUILT_IN = (".ReduceOp", ".RedOpType")
_FEWEST, _MOST = 2, 3


class LookUp(NamedTuple):
    """`name`, written as the string `text`, is looked up in `owner`, by a builtin `function` or as an item."""

    owner: ast.expr
    text: ast.expr
    name: str
    function: ast.Name | None = None


def look_up(node: ast.AST) -> LookUp | None:
    """The look-up that an expression makes, None if it makes none."""
    if isinstance(node, ast.Call):
        return _by_getattr(node)
    if not isinstance(node, ast.Subscript) or (name := _identifier(node.slice)) is None:
        return None
    owner = node.value
    if isinstance(owner, ast.Attribute) and owner.attr == "__dict__":
        return LookUp(owner.value, node.slice, name)
    if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "vars":
        return LookUp(owner.args[0], node.slice, name, owner.func) if len(owner.args) == 1 else None
    return LookUp(owner, node.slice, name)


def _by_getattr(call: ast.Call) -> LookUp | None:
    function = call.func
    if not isinstance(function, ast.Name) or function.id != "getattr" or call.keywords:
        return None
    if not _FEWEST <= len(call.args) <= _MOST or (name := _identifier(call.args[1])) is None:
        return None
    return LookUp(call.args[0], call.args[1], name, function)


def _identifier(node: ast.expr) -> str | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) and value.isidentifier() else None


@cache
def is_enum_member(name: str) -> bool:
    """Whether a full name is that of a member of one of torch's enums in some release."""
    if not name.startswith("torch."):
        return False
    if name.rpartition(".")[0].endswith(_BUILT_IN):
        return True
    return any(data.kind(name, release) == "enum-member" for release in RELEASES)
