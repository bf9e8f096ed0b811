"""Programs that serve FSDP2 already, on another arm: they are left as they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.sharded_models import is_fully_shard
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.facts.objects import ProjectCode, Reference
from fsdp_migrate.facts.project_code import Sort
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction, Conversion

_CLASS = f"{PACKAGE}.FSDPModule"
_REASON = "the program has an arm for FSDP2 already"
_STEP = "remove the arm for FSDP1 by hand, or keep both"


def check_arms(conversion: Conversion, closure: Closure) -> None:
    """Stop the conversion of models that may be sharded by `fully_shard` instead."""
    places = [place for one in closure.constructions for place in _beside(one)]
    places += [place for one in closure.references for place in _of_reference(conversion.code, one)]
    for facts, node in {id(node): (facts, node) for facts, node in places}.values():
        conversion.wall(facts, node, _REASON, _STEP)


def _beside(construction: Construction) -> Iterator[tuple[ModuleFacts, ast.AST]]:
    """The calls of `fully_shard` for the same model in the function of a construction."""
    facts, call = construction.facts, construction.call
    function, statement = facts.function(call), facts.statement(call)
    names = {ast.unparse(one) for one in call.args[:1]}
    names |= {ast.unparse(one) for one in getattr(statement, "targets", ())}
    for other in facts.structure.calls:
        if not other.args or ast.unparse(other.args[0]) not in names or facts.function(other) is not function:
            continue
        if is_fully_shard(facts, other):
            yield facts, other


def _of_reference(code: ProjectCode, one: Reference) -> Iterator[tuple[ModuleFacts, ast.AST]]:
    """A test for `FSDPModule`, and functions that shard what the model may be instead."""
    facts, parent = one.facts, one.facts.structure.parents[one.node]
    if isinstance(parent, ast.Call) and facts.names.qualified(parent.func) == "builtins.isinstance":
        classes = [part for given in parent.args[1:] for part in ast.walk(given)]
        if any(isinstance(part, (ast.Name, ast.Attribute)) and _is_class(facts, part) for part in classes):
            yield facts, parent
    for value in one.others:
        if isinstance(value.node, ast.Call):
            if is_fully_shard(value.facts, value.node):
                yield value.facts, value.node
            for origin in code.origins(value.facts, value.node.func):
                if origin.sort is Sort.FUNCTION and _shards(origin.facts, origin.node):
                    yield value.facts, value.node


def _is_class(facts: ModuleFacts, node: ast.Name | ast.Attribute) -> bool:
    return facts.names.qualified(node) == _CLASS


def _shards(facts: ModuleFacts, function: ast.AST) -> bool:
    return any(is_fully_shard(facts, call) and facts.function(call) is function for call in facts.structure.calls)
