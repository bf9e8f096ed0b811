"""What becomes of all that a project does with a model: one use at a time, by what stands around the reference."""

from __future__ import annotations

import ast

from fsdp_migrate.facts.objects import EACH, Reference
from fsdp_migrate.targets.fsdp2.conversion import Closure, Conversion, Options
from fsdp_migrate.targets.fsdp2.functions import convert_argument
from fsdp_migrate.targets.fsdp2.guards import is_excluded
from fsdp_migrate.targets.fsdp2.instances import check_inside
from fsdp_migrate.targets.fsdp2.members import MEMBERS
from fsdp_migrate.targets.fsdp2.parts import check_call, convert_forwarded, convert_store, defines, is_no_module
from fsdp_migrate.targets.fsdp2.units import see_all
from fsdp_migrate.targets.fsdp2.use import Use, member_of


def convert_use(
    conversion: Conversion, closure: Closure, reference: Reference, options: Options, *, inside: bool = False
) -> None:
    """Add to `conversion` what one reference to a model of `closure` needs: edits, differences, or a wall.

    `inside` says that it stands for the module that is wrapped, and not for the model.
    """
    convert(Use(conversion, closure, reference, options, see=convert, inside=inside))


def convert(use: Use) -> None:
    """Convert one use of a model, or of a module in one."""
    key = use.node, use.kinds, use.new
    if use.inside:  # if it may be the model itself too, it has been looked at as that
        check_inside(use)
    if key in use.conversion.looked_at or is_excluded(use) or _is_asked_in_time(use):
        return
    use.conversion.looked_at.add(key)  # modules in a module may be the same ones in the next turn of a loop
    parent = use.parent
    if isinstance(parent, ast.Attribute):
        _convert_member(use, parent)
    elif isinstance(parent, ast.keyword):
        call = use.facts.structure.parents[parent]
        if isinstance(call, ast.Call):
            convert_argument(use, call)
    elif isinstance(parent, ast.Call):
        if parent.func is not use.node:
            convert_argument(use, parent)
        else:
            check_call(use)
    elif isinstance(parent, ast.Subscript) and parent.value is use.node:
        see_all(use, parent)
    elif isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)) and parent.iter is use.node:
        see_all(use, use.node, EACH)
    elif not isinstance(parent, _HARMLESS) and not is_no_module(use):
        use.wall(f"it is not clear what `{ast.unparse(parent)}` does with `{use.text}`", "write it in plain steps")


def _is_asked_in_time(use: Use) -> bool:
    """Whether the use is in an argument of a construction, such as a policy, where nothing is sharded yet."""
    built = {one.call for one in use.closure.constructions if one.facts is use.facts}
    node: ast.AST = use.node
    while node in use.facts.structure.parents and not isinstance(node, ast.stmt):
        node = use.facts.structure.parents[node]
        if node in built:
            return True
    return False


# Looking at whether there is a model, showing it, and naming it without doing anything.
_HARMLESS = (
    ast.Compare,
    ast.BoolOp,
    ast.UnaryOp,
    ast.If,
    ast.IfExp,
    ast.While,
    ast.Assert,
    ast.FormattedValue,
    ast.Expr,
)


def _convert_member(use: Use, attribute: ast.Attribute) -> None:
    is_own = use.kinds is not None and defines(use, attribute.attr)
    handler = convert_forwarded if is_own else MEMBERS.get(attribute.attr, convert_forwarded)
    if not isinstance(attribute.ctx, ast.Load):
        convert_store(use, attribute)
        return
    member = member_of(use)
    if member is not None:
        handler(use, member)
