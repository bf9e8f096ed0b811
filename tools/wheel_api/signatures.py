"""Signatures as text: parameters as they are written, without annotations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef


def signature(function: Function, *, bound: bool, cls: str = "") -> str:
    """`a, *, b=1, **c`; the first parameter is left out when `bound`, and `cls` mangles names that start with `__`."""
    parts = list(_written(function.args))
    if cls:
        own = cls.rpartition(".")[2].lstrip("_")
        parts = [re.sub(r"^__(?!\w*__(=|$))", f"_{own}__", part) for part in parts]
    if bound and parts and not parts[0].startswith("*"):
        del parts[0]
        if parts[:1] == ["/"]:
            del parts[0]
    return ", ".join(parts)


def _written(args: ast.arguments) -> Iterator[str]:
    positional = [*args.posonlyargs, *args.args]
    required = len(positional) - len(args.defaults)
    for number, arg in enumerate(positional):
        yield _parameter(arg.arg, args.defaults[number - required] if number >= required else None)
        if number + 1 == len(args.posonlyargs):
            yield "/"
    if args.vararg or args.kwonlyargs:
        yield f"*{args.vararg.arg if args.vararg else ''}"
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield _parameter(arg.arg, default)
    if args.kwarg:
        yield f"**{args.kwarg.arg}"


def _parameter(name: str, default: ast.expr | None) -> str:
    return name if default is None else f"{name}={ast.unparse(default)}"
