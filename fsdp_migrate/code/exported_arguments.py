"""Arguments in dicts of this file that other modules of the project pass to the constructor."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from fsdp_migrate.code.argument_dicts import (
    Construction,
    Given,
    bound_to,
    is_builtin_dict,
    merged,
    returned_by,
)
from fsdp_migrate.facts import ModuleFacts, Use

# The arguments that rules speak of, each with a word that is in the file where they do.
_TELLING = {
    "fsdp_auto_wrap_policy": b"fsdp_auto_wrap_policy",
    "ignored_parameters": b"ignored_parameters",
    "auto_wrap_policy": b"unwrapped_params",
    "sharding_strategy": b"NO_SHARD",
}
_NOWHERE = Construction(ast.Call(ast.Name("dict", ast.Load()), [], []))


def exported(facts: ModuleFacts, constructions: Callable[[ModuleFacts], Sequence[Construction]]) -> Iterator[Given]:
    """The arguments in dicts that the top level binds or returns, and another module unpacks into a construction."""
    project = facts.project
    told = {name for name, word in _TELLING.items() if word in facts.source.data}
    if project is None or not told:
        return
    for name in facts.structure.module.bindings:
        if not any(one.name in told for one in _made(facts, name, _NOWHERE)):
            continue
        for use in project.uses(name) or ():
            for one in constructions(use.facts):
                if use.facts.reached(one.call) and _takes(use, one.call):
                    doubt = f"{use.shown}:{use.node.lineno} imports it from here, and other code may, too"
                    yield from _made(facts, name, Construction(one.call, doubt))


def _made(facts: ModuleFacts, name: str, one: Construction) -> Iterator[Given]:
    """The arguments in the dict that a top-level name holds, or that its function returns."""
    bindings = facts.structure.module.bindings[name]
    if len(bindings) == 1 and isinstance(bindings[0].node, ast.FunctionDef):
        yield from returned_by(facts, bindings[0].node, one, None)
    else:
        yield from bound_to(facts, facts.structure.module, name, one, None)


def _takes(use: Use, call: ast.Call) -> bool:
    """Whether a call unpacks what is used, or what a function returns."""
    unpacked = (keyword.value for keyword in call.keywords if keyword.arg is None)
    return any(source is use.node for value in unpacked for source in _sources(use.facts, value, set()))


def _sources(facts: ModuleFacts, value: ast.expr, seen: set[ast.expr]) -> Iterator[ast.expr]:
    """The names that an unpacked dict is taken from."""
    if value in seen:
        return
    seen.add(value)
    if isinstance(value, ast.Call) and not is_builtin_dict(facts, value.func):
        yield value.func
        return
    if isinstance(value, (ast.Name, ast.Attribute)):
        yield value
        for definition in facts.names.definitions(value) if isinstance(value, ast.Name) else ():
            yield from _sources(facts, definition, seen)
    for part in merged(value):
        yield from _sources(facts, part, seen)
