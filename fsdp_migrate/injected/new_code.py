"""New code for a function that is there: its own, with a call in front."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator
from types import CodeType
from typing import Any


def with_call(code: CodeType, hook: str) -> CodeType:
    """The code of a function that calls the builtin `hook` first, compiled from the source of its module.

    Raises:
        OSError, SyntaxError, LookupError: the source is not there, does not parse, or is another one.
    """
    with tokenize.open(code.co_filename) as stream:
        tree = ast.parse(stream.read())
    ways = [way for way in _ways_to(tree) if _first_line(way[-1]) == code.co_firstlineno]
    way = next(way for way in ways if way[-1].name == code.co_name) if ways else _missing(code)
    call = ast.Expr(ast.Call(ast.Name(hook, ast.Load()), [], []))
    way[-1].body.insert(0, ast.copy_location(call, way[-1].body[0]))
    ast.fix_missing_locations(call)
    _keep_only(tree, way)
    return _found_in(compile(tree, code.co_filename, "exec", dont_inherit=True), code)


def _missing(code: CodeType) -> Any:
    raise LookupError(f"{code.co_filename} has no {code.co_name} in line {code.co_firstlineno}")


def _ways_to(tree: ast.Module) -> Iterator[list[Any]]:
    """Every function of a module behind the functions and classes around it."""
    waiting: list[tuple[ast.AST, list[Any]]] = [(tree, [])]
    while waiting:
        node, around = waiting.pop()
        for child in ast.iter_child_nodes(node):
            holds = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            way = [*around, child] if holds else around
            if holds and not isinstance(child, ast.ClassDef):
                yield way
            waiting.append((child, way))


def _first_line(function: Any) -> int:
    line: int = min(node.lineno for node in (function, *function.decorator_list))
    return line


def _keep_only(tree: ast.Module, way: list[Any]) -> None:
    """Take away what the code of a function does not depend on: what stands beside it in modules and classes."""
    for outer, inner in zip((tree, *way), way):
        if isinstance(outer, (ast.Module, ast.ClassDef)):
            held = (one for one in outer.body if one is not inner and any(node is inner for node in ast.walk(one)))
            kept = next(held, inner)  # it may stand under an `if` or a `try`
            future = (one for one in outer.body if isinstance(one, ast.ImportFrom) and one.module == "__future__")
            outer.body = [*future, kept]
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return


def _found_in(outer: CodeType, wanted: CodeType) -> CodeType:
    """The code of the same function inside other code."""
    waiting = [outer]
    while waiting:
        for constant in waiting.pop().co_consts:
            if isinstance(constant, CodeType):
                if (constant.co_name, constant.co_firstlineno) == (wanted.co_name, wanted.co_firstlineno):
                    return constant
                waiting.append(constant)
    raise LookupError(f"{wanted.co_name} is not in its compiled module")
