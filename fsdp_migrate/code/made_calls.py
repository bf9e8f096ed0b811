"""Calls as the callee sees them: through `functools.partial`, and with unpacked dict displays."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from fsdp_migrate.code.construction import PARTIAL
from fsdp_migrate.code.torch_names import calls_ending_in
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import ordered_arguments
from fsdp_migrate.records import NamedTuple


class Made(NamedTuple):
    """A call in the file; `seen` is the same call with its callee and its readable arguments.

    `call` is in the file; if it is `partial`, its first argument is the callee. If it is `unread`, some arguments
    cannot be read. If there may be `more`, others may be added.
    """

    call: ast.Call
    seen: ast.Call
    unread: bool
    more: bool = False

    @property
    def partial(self) -> bool:
        """Whether `call` is a call of `partial`."""
        return self.seen.func is not self.call.func

    def number(self, argument: ast.expr | ast.keyword) -> int | None:
        """The number of an argument among those of `call`, None if it comes from a dict."""
        own = ordered_arguments(self.call)
        return own.index(argument) if argument in own else None


def made_calls(facts: ModuleFacts, words: Container[str] | None, callees: Container[ast.expr] = ()) -> Iterator[Made]:
    """The calls of the file in its order, all or those whose callee's `torch_path` may end in one of some words.

    Those of `callees` are among them in any case.
    """
    names = facts.memo(_names_of_partial, lambda: _names_of_partial(facts))
    wanted = set(facts.structure.calls if words is None else calls_ending_in(facts, words))
    for call in facts.structure.calls:
        direct = call in wanted or call.func in callees
        if direct or (call.args and _last(call.func) in names):
            made = _made(facts, call, names)
            if direct or made.partial:
                yield made


def _names_of_partial(facts: ModuleFacts) -> Container[str]:
    """The names and attributes that may be `functools.partial`."""
    own = PARTIAL.rpartition(".")[2]
    if own.encode() not in facts.source.data:
        return ()
    bound = [one for scope in facts.structure.module.nested() for found in scope.bindings.values() for one in found]
    renamed = (one.name for one in bound if (one.target or "").endswith(own) or _last(one.value) == own)
    return frozenset((own, *renamed))


def _last(node: ast.expr | None) -> str | None:
    return getattr(node, "attr", getattr(node, "id", None))


def _made(facts: ModuleFacts, call: ast.Call, names_of_partial: Container[str]) -> Made:
    func, args, partial = call.func, call.args, False
    if (
        args
        and _last(func) in names_of_partial
        and isinstance(func, (ast.Name, ast.Attribute))
        and facts.names.qualified(func) == PARTIAL
    ):
        partial = isinstance(args[0], (ast.Name, ast.Attribute))
        func, args = (args[0], args[1:]) if partial else (func, args)
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    if not (partial or unpacked):
        return Made(call, call, any(isinstance(one, ast.Starred) for one in args))
    keywords = [one for keyword in call.keywords for one in _keywords(facts, keyword)]
    seen = ast.copy_location(ast.Call(func, args, [one for one in keywords if one.arg is not None]), call)
    unread = any(one.arg is None for one in keywords) or any(isinstance(one, ast.Starred) for one in args)
    return Made(call, seen, unread, partial or unread or any(isinstance(value, ast.Name) for value in unpacked))


def _keywords(facts: ModuleFacts, keyword: ast.keyword) -> Iterator[ast.keyword]:
    """The keywords that one is or unpacks; itself if not all of it can be read."""
    value = keyword.value
    if keyword.arg is None and isinstance(value, ast.Name):
        value = facts.names.value(value) or value
    if keyword.arg is None and isinstance(value, ast.Dict):
        for key, item in zip(value.keys, value.values):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                one = ast.copy_location(ast.keyword(key.value, item), key)
                one.end_lineno, one.end_col_offset = item.end_lineno, item.end_col_offset
                yield one
            else:
                yield keyword
    elif keyword.arg is None and isinstance(value, ast.Call) and facts.names.qualified(value.func) == "builtins.dict":
        yield from value.keywords
        yield from (keyword for _ in value.args)
    else:
        yield keyword
