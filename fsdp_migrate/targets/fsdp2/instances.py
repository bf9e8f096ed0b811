"""`isinstance(model, FSDP)` and what else asks whether a module is an FSDP model."""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.targets.fsdp2.use import PACKAGE, Use

FSDP_MODULE = f"{PACKAGE}.FSDPModule"


def convert_isinstance(use: Use, call: ast.Call) -> None:
    """Ask for FSDPModule where the class of FSDP1 stands, alone or among others; other classes stay."""
    if len(call.args) != 2 or call.args[0] is not use.node:
        use.wall(f"`{ast.unparse(call)}` is not a plain test", "write `isinstance(model, FSDP)`")
        return
    convert_classes(use, call.args[1], mixed=bool(use.reference.others))


def convert_classes(use: Use, classes: ast.expr, *, mixed: bool) -> None:
    """Put FSDPModule for the class of FSDP1 in the second argument of `isinstance`.

    What is `mixed` may be a model that stays with FSDP1, if the project has others.
    """
    facts, stays = use.facts, mixed and not use.conversion.alone
    listed = _listed(classes)
    for cls in listed:
        if isinstance(cls, ast.Name) and isinstance(value := facts.names.value(cls), ast.Tuple):
            convert_classes(use, value, mixed=mixed)
        elif isinstance(cls, (ast.Name, ast.Attribute)) and facts.fsdp.is_class(cls):
            if stays and _names_fsdp2(facts):
                step = "convert all models together, or by hand"
                use.wall(f"`{ast.unparse(cls)}` tells models of FSDP1 from others here", step, cls)
            elif (new := use.spelled(FSDP_MODULE, cls)) is not None:
                _put(use, cls, new, stays=stays)
        elif isinstance(cls, ast.Starred):
            use.wall(f"`{ast.unparse(cls)}` is among the classes", "write them out")


def _put(use: Use, cls: ast.expr, new: str, *, stays: bool) -> None:
    """Put another class for one, or beside it where that one `stays`."""
    span = use.facts.source.span(cls)
    if not stays:
        use.put(span.start, span.end, new)
        use.conversion.release(use.facts, cls)
        return
    around = use.facts.structure.parents[cls]
    if isinstance(around, (ast.Tuple, ast.BinOp)):
        use.put(span.end, span.end, f"{', ' if isinstance(around, ast.Tuple) else ' | '}{new}")
    else:
        use.put(span.start, span.end, f"({use.facts.source.segment(cls)}, {new})")


def _names_fsdp2(facts: ModuleFacts) -> bool:
    """Whether a file speaks of FSDP2, so that its tests may tell models of the two apart."""
    return any(word in facts.source.data for word in (b"fully_shard", b"FSDPModule", b"fsdp2"))


def _listed(classes: ast.expr) -> list[ast.expr]:
    """The classes of a test, those of nested tuples and of unions (`A | B`) too."""
    if isinstance(classes, ast.Tuple):
        return [cls for one in classes.elts for cls in _listed(one)]
    if isinstance(classes, ast.BinOp) and isinstance(classes.op, ast.BitOr):
        return [*_listed(classes.left), *_listed(classes.right)]
    return [classes]


def ask_instead(use: Use, call: ast.Call) -> None:
    """Put `isinstance(model, FSDPModule)` for a call that asks whether a model has a member of FSDP1's class."""
    source = use.facts.source
    if source.has_comment(source.span(call)):
        use.wall(f"a comment is inside `{ast.unparse(call)}`", "move the comment")
        return
    new = use.spelled(FSDP_MODULE)
    if new is not None:
        span = source.span(call)
        use.put(span.start, span.end, f"isinstance({use.written}, {new})")
