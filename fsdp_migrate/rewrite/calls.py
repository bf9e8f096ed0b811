"""Calls under another name with other arguments."""

from __future__ import annotations

from functools import lru_cache

import libcst as cst

from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.rewrite.commas import CommaList, Gap
from fsdp_migrate.splicing import NEWLINE, RewriteError

_SHORT = 500


def rewrite_call(text: str, edit: RewriteCall) -> str:
    """The text of a call after `edit`; layout and comments stay.

    Raises:
        RewriteError: `text` is not a call, or the plan reorders arguments that have comments.
    """
    call, printer, arguments = (_remembered if len(text) <= _SHORT else _taken_apart)(text)
    arguments = arguments.copy()
    head = text[: len(text) - len(str(arguments)) - len(")")]
    if f"{head}{arguments})" != text:
        raise RewriteError("a call does not print as it was written")
    old = [None if index is None else call.args[index] for index in (a.index for a in edit.arguments)]
    texts = [_argument(argument, arg, printer, len(old) == 1) for argument, arg in zip(edit.arguments, old)]
    _arrange(arguments, edit.arguments, texts)
    return f"{_head(call, edit, printer)}{arguments})"


def stands_alone(text: str) -> bool:
    """Whether an expression needs no parentheses around it to span its lines."""
    try:
        cst.parse_expression(text)
    except cst.ParserSyntaxError:
        return False
    return True


def _taken_apart(text: str) -> tuple[cst.Call, cst.Module, CommaList]:
    call, printer = _parse(text)
    return call, printer, _take_apart(call, printer)


# The same call is often written in many places. What is remembered is not to be changed.
_remembered = lru_cache(maxsize=256)(_taken_apart)


def _parse(text: str) -> tuple[cst.Call, cst.Module]:
    """The call, and a module that prints its parts with their own newlines."""
    newline = NEWLINE.search(text)
    printer = cst.Module([], default_newline=newline.group() if newline else "\n")
    try:
        # In parentheses, since a chain such as `a\n.b()` may rely on brackets outside of it.
        call = cst.parse_expression(f"({text})")
    except cst.ParserSyntaxError as error:
        raise RewriteError(f"cannot read the call again: {error.message}") from None
    if not isinstance(call, cst.Call):
        raise RewriteError("a call was expected")
    return call.with_changes(lpar=call.lpar[1:], rpar=call.rpar[:-1]), printer


def _take_apart(call: cst.Call, printer: cst.Module) -> CommaList:
    arguments = CommaList(printer.code_for_node(call.whitespace_before_args))
    for arg in call.args:
        arguments.items.append(_bare(arg, printer))
        before = printer.code_for_node(arg.whitespace_after_arg)
        if isinstance(arg.comma, cst.Comma):
            before += printer.code_for_node(arg.comma.whitespace_before)
            arguments.gaps.append(Gap(before, True, printer.code_for_node(arg.comma.whitespace_after)))
        else:
            arguments.gaps.append(Gap(before, False))
    return arguments


def _bare(arg: cst.Arg, printer: cst.Module) -> str:
    """An argument without its comma and what surrounds it."""
    empty = cst.SimpleWhitespace("")
    return printer.code_for_node(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=empty))


def _head(call: cst.Call, edit: RewriteCall, printer: cst.Module) -> str:
    """The callee, renamed, up to and including the opening parenthesis."""
    func = call.func
    if edit.attribute is not None:
        if not isinstance(func, cst.Attribute):
            raise RewriteError("the callee has no attribute to rename")
        func = func.with_changes(attr=func.attr.with_changes(value=edit.attribute))
    callee = printer.code_for_node(func) if edit.callee is None else edit.callee
    return f"{callee}{printer.code_for_node(call.whitespace_after_func)}("


def _argument(argument: Argument, old: cst.Arg | None, printer: cst.Module, alone: bool) -> str:
    """The text of one new argument; `old` has its expression, `alone` says that it is the only argument."""
    if old is None:
        value = argument.text or ""
        return f"{argument.keyword}={value}" if argument.keyword else value
    keyword = old.keyword.value if old.keyword else None
    bare_generator = isinstance(old.value, cst.GeneratorExp) and not old.value.lpar
    if keyword == argument.keyword and (alone or not bare_generator):
        return _bare(old, printer)
    if old.star:
        raise RewriteError("a starred argument cannot get a keyword")
    value = printer.code_for_node(old.value)
    if bare_generator or (isinstance(old.value, cst.NamedExpr) and not old.value.lpar):
        value = f"({value})"
    if argument.keyword is None:
        return value
    if keyword is None:
        return f"{argument.keyword}={value}"
    return f"{argument.keyword}{printer.code_for_node(old.equal)}{value}"  # type: ignore[arg-type]


def _arrange(arguments: CommaList, plan: tuple[Argument, ...], texts: list[str]) -> None:
    """Turn the old list into the planned one."""
    kept = [argument.index for argument in plan if argument.index is not None]
    if kept == sorted(kept):
        _keep_order(arguments, plan, texts)
    elif arguments.commented:
        raise RewriteError("arguments with comments cannot be reordered")
    else:
        _fill_places(arguments, texts)


def _keep_order(arguments: CommaList, plan: tuple[Argument, ...], texts: list[str]) -> None:
    kept = {argument.index for argument in plan}
    for index in reversed(range(len(arguments.items))):
        if index not in kept:
            arguments.remove(index)
    for position, (argument, text) in enumerate(zip(plan, texts)):
        if argument.index is None:
            arguments.insert(position, text)
        else:
            arguments.items[position] = text


def _fill_places(arguments: CommaList, texts: list[str]) -> None:
    """Put the texts, in their new order, where arguments stand now: the layout is that of the places."""
    while len(arguments.items) > len(texts):
        arguments.remove(len(arguments.items) - 1)
    places = len(arguments.items)
    arguments.items[:] = texts[:places]
    for text in texts[places:]:
        arguments.insert(len(arguments.items), text)
