"""`isinstance(model, FSDP)` and what else asks whether a module is an FSDP model."""

from __future__ import annotations

import ast
import sys

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.project_code import Class, Origin, Sort
from fsdp_migrate.targets.fsdp2.guards import is_excluded
from fsdp_migrate.targets.fsdp2.kinds import kinds_of
from fsdp_migrate.targets.fsdp2.use import PACKAGE, Use

FSDP_MODULE = f"{PACKAGE}.FSDPModule"
# Every model of FSDP1 and of FSDP2 is an instance of these.
_BASES = frozenset({"torch.nn.Module", "torch.nn.modules.module.Module", "torch.nn.modules.Module", "builtins.object"})
_TORCH = "torch.nn."
# What modules are not.
_NO_MODULES = ("builtins.", "torch.optim.", "torch.Tensor", "numpy.")
# Classes of packages that wrap models, by how they end: what FSDP wraps is none of them.
_WRAPPERS = ("DataParallel", "DataParallelCPU", "Engine", "OptimizedModule", "FSDPModule")


def convert_isinstance(use: Use, call: ast.Call) -> None:
    """Ask for FSDPModule where the class of FSDP1 stands, alone or among others.

    Other classes stay: FSDP1's wrapper is no instance of the class of its module, but a model of FSDP2 is.
    """
    if len(call.args) != 2 or call.args[0] is not use.node:
        use.wall(f"`{ast.unparse(call)}` is not a plain test", "write `isinstance(model, FSDP)`")
        return
    convert_classes(use, call.args[1], mixed=bool(use.reference.others))
    if not use.inside and use.kinds is None and _may_come_true(use, call):
        reason = f"`{ast.unparse(call)}` is false for FSDP1's wrapper, and may be true for the module itself"
        use.wall(reason, f"ask before the model is wrapped, or ask `isinstance({use.text}, FSDP)` first", call)


def check_inside(use: Use) -> None:
    """Stop where the module that is wrapped is asked whether it is an FSDP model: it was none, and becomes one."""
    call = use.parent
    if not isinstance(call, ast.Call) or use.facts.names.qualified(call.func) != "builtins.isinstance":
        return
    if call.args[0] is not use.node or is_excluded(use):
        return
    if any(_is_fsdp(use.facts, cls) for cls in _classes(use.facts, call)):
        reason = f"`{ast.unparse(call)}` is false for the module inside of FSDP1's wrapper, which FSDP2 shards in place"
        use.wall(reason, "ask the model, or leave the test out", call)


def _classes(facts: ModuleFacts, call: ast.Call) -> list[ast.expr]:
    """The classes of a test, those in tuples that have a name among them."""
    found: list[ast.expr] = []
    for cls in (one for classes in call.args[1:] for one in _listed(classes)):
        value = facts.names.value(cls) if isinstance(cls, ast.Name) else None
        found += _listed(value) if isinstance(value, ast.Tuple) else [cls]
    return found


def _is_fsdp(facts: ModuleFacts, cls: ast.expr) -> bool:
    return isinstance(cls, (ast.Name, ast.Attribute)) and facts.fsdp.is_class(cls)


def _may_come_true(use: Use, call: ast.Call) -> bool:
    """Whether a test that is false for FSDP1's wrapper may be true for the module that it wraps."""
    asked = _classes(use.facts, call)
    if any(_is_fsdp(use.facts, cls) for cls in asked):
        return False
    code, kinds = use.conversion.code, kinds_of(use)
    origins = [origin for cls in asked for origin in code.origins(use.facts, cls)]
    if any(one.name in _BASES for one in origins):
        return False
    return any(_may_be(use, kind, cls) for cls in origins for kind in kinds)


def _may_be(use: Use, kind: Origin, cls: Origin) -> bool:
    """Whether what is wrapped may be an instance of a class."""
    if (cls.name or "").endswith(_WRAPPERS) or (cls.name or "").startswith(_NO_MODULES) or _is_no_module(use, cls):
        return False
    if (kind.name or "").startswith(_TORCH):
        return kind.name == cls.name
    if kind.sort is not Sort.INSTANCE or not isinstance(kind.node, ast.ClassDef):
        return True
    above = use.conversion.code.ancestors(Class(kind.facts, kind.node))
    if cls.sort is Sort.CLASS:
        return any(one.node is cls.node for one in above)
    outside = {name or "" for one in above for name in use.conversion.code.bases(one)[1]}
    return cls.name is None or any(name == cls.name or not name.startswith(_TORCH) for name in outside)


def _is_no_module(use: Use, cls: Origin) -> bool:
    """Whether no module is an instance of a class of the project: neither it nor what derives from it is one."""
    if cls.sort is not Sort.CLASS or not isinstance(cls.node, ast.ClassDef):
        return False
    code = use.conversion.code
    kin = [above for one in code.descendants(Class(cls.facts, cls.node)) for above in code.ancestors(one)]
    outside = (name or "" for one in kin for name in code.bases(one)[1])
    return not any(map(_decides_itself, kin)) and all(name.split(".")[0] in sys.stdlib_module_names for name in outside)


def _decides_itself(cls: Class) -> bool:
    """Whether a class may say of others that they are instances of it: by a metaclass, as an ABC or as a protocol."""
    return bool(cls.node.keywords) or any(ast.unparse(one).endswith(("ABC", "Protocol")) for one in cls.node.bases)


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
    if new is not None and use.has_builtin("isinstance"):
        span = source.span(call)
        use.put(span.start, span.end, f"isinstance({use.written}, {new})")
