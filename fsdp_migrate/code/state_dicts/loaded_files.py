"""Whether all ranks load one file.

A full model load is written with a broadcast, which gives every rank what rank 0 has. Where ranks of a model-parallel
program load files of their own, they would all get the parameters of rank 0.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fsdp_migrate.code.state_dicts.functions import Function, arguments_of, calls_of, parameter_of
from fsdp_migrate.code.state_dicts.settings import NotUnderstood
from fsdp_migrate.facts import ModuleFacts

_RANK = re.compile(r"(?:^|_)rank(?:_|$)", re.IGNORECASE)
_READERS = frozenset({"load", "load_file", "safe_open"})
_MOST_STEPS = 6


def check_same_on_all_ranks(facts: ModuleFacts, state: ast.expr) -> None:
    """Let pass a state dict that no rank chooses a file of its own for.

    Raises:
        NotUnderstood: ranks load different files.
    """
    for reader, path in _paths(facts, state, 0):
        word = _rank_in(reader, path, 0)
        if word is not None:
            raise NotUnderstood(
                f"`{word}` chooses the file that a rank loads, but the new function gives all ranks what rank 0 "
                "loads: load a sharded checkpoint, or a file that all ranks share"
            )


def _paths(facts: ModuleFacts, state: ast.expr, depth: int) -> Iterator[tuple[ModuleFacts, ast.expr]]:
    """The paths of the files that a state dict may be read from."""
    if depth > _MOST_STEPS:
        return
    if isinstance(state, ast.Name):
        for value in facts.names.definitions(state):
            yield from _paths(facts, value, depth + 1)
        for other, value in _given(facts, state):
            yield from _paths(other, value, depth + 1)
    elif isinstance(state, (ast.Subscript, ast.Attribute)):
        yield from _paths(facts, state.value, depth + 1)
    elif isinstance(state, ast.IfExp):
        yield from _paths(facts, state.body, depth + 1)
        yield from _paths(facts, state.orelse, depth + 1)
    elif isinstance(state, ast.Call):
        func = state.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if name in _READERS and arguments_of(state):
            yield facts, arguments_of(state)[0]
        elif isinstance(func, ast.Attribute):
            yield from _paths(facts, func.value, depth + 1)


def _given(facts: ModuleFacts, name: ast.Name) -> Iterator[tuple[ModuleFacts, ast.expr]]:
    """What the visible callers of a function pass for a parameter."""
    for binding in facts.names.bindings(name):
        function = facts.function(binding.node) if isinstance(binding.node, ast.arg) else None
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for caller in calls_of(facts, function):
                for value in arguments_of(caller.call):
                    if parameter_of(Function(facts, function), caller.call, value) is binding.node:
                        yield caller.facts, value


def _rank_in(facts: ModuleFacts, path: ast.expr, depth: int) -> str | None:
    """What of a path is named after a rank, itself or in what a name in it was bound to."""
    for part in ast.walk(path):
        name = part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")
        if _RANK.search(name):
            return name
        if isinstance(part, ast.Name) and depth < _MOST_STEPS:
            for value in facts.names.definitions(part):
                found = _rank_in(facts, value, depth + 1)
                if found is not None:
                    return found
    return None
