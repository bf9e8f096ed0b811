"""`model.module`: with FSDP2 the model is its own module."""

from __future__ import annotations

import ast

from fsdp_migrate.source import Span
from fsdp_migrate.targets.fsdp2.guards import also_ddp, has_test
from fsdp_migrate.targets.fsdp2.use import Member, Use


def convert_unwrapping(use: Use, member: Member) -> None:
    """Leave `.module` out, and convert what is done with the module as what is done with the model.

    An arm that runs only where there is such a member stays: it is for other models then.
    """
    name = member.node.attr
    if name == "module" and (has_test(use, f"hasattr({use.text}, 'module')") or also_ddp(use, name)):
        return
    model = use.new or use.facts.source.segment(Span(member.start, member.end))
    followed = use.follow(member.node)
    for one in followed.references:
        use.see(use.of(member.node, model) if one.node is member.node else use.at(one))
    use.lose(f"the module in `{use.text}`", followed.escapes)
    end = use.facts.source.span(member.node).end
    if not use.is_claimed(Span(member.end, end)):
        use.put(member.end, end, "")


def convert_given_back(use: Use, call: ast.Call) -> None:
    """A call that gives the model: `getattr(model, "module", model)`, which has no such member, or a `cast`."""
    followed = use.follow(call)
    for one in followed.references:
        use.see(use.at(one))
    use.lose(f"the module in `{use.text}`", followed.escapes)
