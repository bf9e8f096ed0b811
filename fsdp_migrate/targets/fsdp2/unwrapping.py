"""`model.module`: with FSDP2 the model is its own module."""

from __future__ import annotations

import ast
from dataclasses import replace

from fsdp_migrate.facts.looked_up_names import look_up
from fsdp_migrate.facts.objects import Reference
from fsdp_migrate.source import Span
from fsdp_migrate.targets.fsdp2.guards import also_ddp, has_test
from fsdp_migrate.targets.fsdp2.use import Member, Use


def convert_unwrapping(use: Use, member: Member) -> None:
    """Leave `.module` out, and convert what is done with the module as what is done with the model.

    An arm that runs only where there is such a member stays: it is for other models then.
    """
    name = member.node.attr
    if name == "module" and has_test(use, f"hasattr({use.text}, 'module')"):
        return
    statement = use.facts.statement(use.node)
    if isinstance(statement, ast.Assign) and isinstance(use.facts.structure.parents[statement], ast.While):
        told = f"the loop around `{ast.unparse(statement)}` would not end: FSDP2 has no wrapper to take off"
        use.wall(told, "write it with `if`, or loop while `hasattr(model, 'module')`")
        return
    if name == "module" and also_ddp(use, name):
        return
    model = use.new or use.facts.source.segment(Span(member.start, member.end))
    followed = use.follow(member.node)
    for one in followed.references:
        part = use.of(member.node, model) if one.node is member.node else use.at(one)
        use.see(replace(part, inside=not _is_earlier(use, one)))
    use.lose(f"the module in `{use.text}`", followed.escapes)
    end = use.facts.source.span(member.node).end
    if not use.is_claimed(Span(member.end, end)):
        use.put(member.end, end, "")


def _is_earlier(use: Use, one: Reference) -> bool:
    """Whether a variable of the same function is read before it gets the module: it is the model there."""
    if not isinstance(one.node, ast.Name) or use.facts.function(one.node) is not use.facts.function(use.node):
        return False
    return not use.conversion.code.reaching(use.facts).may_follow(use.node, one.node)


def convert_given_back(use: Use, call: ast.Call) -> None:
    """A call that gives the model: `getattr(model, "module", model)`, which has no such member, or a `cast`."""
    followed = use.follow(call)
    is_inside = use.inside or look_up(call) is not None
    for one in followed.references:
        use.see(replace(use.at(one), inside=is_inside and not _is_earlier(use, one)))
    use.lose(f"the module in `{use.text}`", followed.escapes)
