"""Modules inside a model: `FSDP.fsdp_modules(model)`, `model.modules()`, and what is done with each of them."""

from __future__ import annotations

import ast
from dataclasses import replace

from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.objects import EACH, EACH_SECOND, Path
from fsdp_migrate.facts.project_code import Origin
from fsdp_migrate.targets.fsdp2.gathering import release_class
from fsdp_migrate.targets.fsdp2.instances import FSDP_MODULE
from fsdp_migrate.targets.fsdp2.parameters import see_names
from fsdp_migrate.targets.fsdp2.use import Member, Use

_VARIABLES = ("module", "unit", "one")


def convert_units(use: Use, call: ast.Call) -> None:
    """`FSDP.fsdp_modules(model)` becomes a list of the modules that are sharded on their own."""
    given = [one for one in call.keywords if one.arg != "module"]
    if len(call.args) > 1 or not all(one.arg == "root_only" and is_literal(one.value, False) for one in given):
        use.wall("`fsdp_modules` may look for the roots only", "ask the model itself", call)
        return
    source = use.facts.source
    if source.has_comment(source.span(call)):
        use.wall(f"a comment is inside `{ast.unparse(call)}`", "move it before the statement", call)
        return
    cls = use.spelled(FSDP_MODULE)
    if cls is None or not use.has_builtin("isinstance"):
        return
    taken = {part.id for part in ast.walk(use.node) if isinstance(part, ast.Name)}
    name = next(one for one in _VARIABLES if one not in taken)
    span = source.span(call)
    use.put(*span, f"[{name} for {name} in {use.written}.modules() if isinstance({name}, {cls})]")
    release_class(use, call)
    see_all(use, call, EACH)


def convert_modules(use: Use, member: Member) -> None:
    """`model.modules()` and `model.named_modules()`, whose names had a prefix for each wrapped module around them."""
    if member.call is None:
        use.wall(f"`{ast.unparse(member.node)}` is passed on", "call it where the modules are needed", member.node)
    elif member.node.attr == "modules":
        see_all(use, member.call, EACH)
    else:
        see_all(use, member.call, EACH_SECOND)
        see_names(use, member.call)


def see_all(use: Use, given: ast.expr, path: Path = (), kinds: tuple[Origin, ...] = ()) -> None:
    """Convert what is done with modules that an expression gives; `kinds` are what they may be, if that is known."""
    followed = use.follow(given, path)
    for one in followed.references:
        use.see(replace(use.at(one), kinds=kinds))
    use.lose(f"a module of `{use.text}`", followed.escapes)
