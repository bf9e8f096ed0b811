"""Binding the arguments of a call to the parameters of a signature."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fsdp_migrate.records import NamedTuple


class Bound(NamedTuple):
    """An argument of a call: its value, and its number among positional and keyword arguments."""

    value: ast.expr
    index: int  # type: ignore[assignment]  # not the method of tuples


class BindingError(Exception):
    """The call does not fit the signature. The message completes "the call ..."."""


def ordered_arguments(call: ast.Call) -> list[ast.expr | ast.keyword]:
    """The arguments in the order of the source."""
    return sorted((*call.args, *call.keywords), key=lambda node: _start(node))


def is_literal(node: ast.AST | None, value: bool | None) -> bool:
    """Whether an expression is the literal `None`, `True` or `False`."""
    return isinstance(node, ast.Constant) and node.value is value


def is_written_out(call: ast.Call) -> bool:
    """Whether all arguments of a call are visible: nothing is unpacked."""
    return not any(isinstance(one, ast.Starred) for one in call.args) and all(
        one.arg is not None for one in call.keywords
    )


def names_given(keyword: ast.keyword) -> Iterator[str]:
    """The parameters that a keyword sets, or a dict display unpacked in its place."""
    if keyword.arg is not None:
        yield keyword.arg
    elif isinstance(keyword.value, ast.Dict):
        yield from (str(key.value) for key in keyword.value.keys if isinstance(key, ast.Constant))


def given_twice(names: Iterable[str]) -> list[str]:
    """The names that occur more than once, sorted."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def bind(call: ast.Call, parameters: Sequence[str], required: int) -> dict[str, Bound]:
    """The arguments of `call` by parameter; the first `required` of `parameters` have no default.

    Raises:
        BindingError: starred arguments, too many, unknown, doubled or missing ones.
    """
    bound: dict[str, Bound] = {}
    positional = 0
    for index, argument in enumerate(ordered_arguments(call)):
        if isinstance(argument, ast.keyword):
            name, value = argument.arg, argument.value
            if name is None:
                raise BindingError("passes `**kwargs`")
            if name not in parameters:
                raise BindingError(f"passes `{name}`, which no supported release has")
        else:
            if isinstance(argument, ast.Starred):
                raise BindingError("passes `*args`")
            if positional >= len(parameters):
                raise BindingError("passes more arguments than any supported release accepts")
            name, value = parameters[positional], argument
            positional += 1
        if name in bound:
            raise BindingError(f"passes `{name}` twice")
        bound[name] = Bound(value, index)
    missing = [name for name in parameters[:required] if name not in bound]
    if missing:
        raise BindingError(f"lacks `{missing[0]}`")
    return bound


def _start(node: ast.expr | ast.keyword) -> tuple[int, int]:
    return (node.lineno, node.col_offset)
