"""Optimizers that the new functions do not take: those around another one, and classes of another kind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from fsdp_migrate.code.state_dicts.bystanders import name_of
from fsdp_migrate.code.state_dicts.settings import NotUnderstood
from fsdp_migrate.facts import ModuleFacts


def check_plain(facts: ModuleFacts, optimizer: ast.expr) -> None:
    """Let pass what is no optimizer around another one.

    Raises:
        NotUnderstood: it is one, or no optimizer of torch.
    """
    wrapper = next(_wrappers(facts, optimizer), None)
    if wrapper is not None:
        raise NotUnderstood(f"`{wrapper}` is not a `torch.optim.Optimizer`, which the new functions require")
    made = facts.names.value(optimizer) if isinstance(optimizer, ast.Name) else None
    for meaning in facts.names.meanings(made.func) if isinstance(made, ast.Call) else ():
        cls = None if meaning.binding is None else meaning.binding.node
        if isinstance(cls, ast.ClassDef) and not any(
            "Optim" in ast.unparse(b) or _is_torch_optim(facts, b) for b in cls.bases
        ):
            raise NotUnderstood(f"`{cls.name}` is not a `torch.optim.Optimizer`, which the new functions require")


def _wrappers(facts: ModuleFacts, optimizer: ast.expr) -> Iterator[str]:
    """What shows that an optimizer is around another one: its class, or that it gives what it wraps."""
    yield from (told for told in _told_classes(facts, optimizer) if "Wrapper" in told)
    methods = facts.structure.method_calls
    for func in (call.func for name in methods if name.startswith("unwrap") for call in methods[name]):
        is_own = isinstance(func, ast.Attribute) and facts.fsdp.same_object(func.value, optimizer)
        if is_own and facts.function(func) is facts.function(optimizer):
            yield ast.unparse(optimizer)


def _told_classes(facts: ModuleFacts, optimizer: ast.expr) -> list[str]:
    """The classes that an annotation or an `isinstance` gives an optimizer."""
    told = [ast.unparse(cls) for cls in facts.fsdp.object_classes.classes(optimizer)]
    for call in facts.memo(_class_tests, partial(_class_tests, facts)):
        if facts.function(call) is facts.function(optimizer):
            told += [ast.unparse(call.args[1])] if facts.fsdp.same_object(call.args[0], optimizer) else []
    return told


def _class_tests(facts: ModuleFacts) -> list[ast.Call]:
    """The calls of `isinstance`."""
    return [one for one in facts.structure.calls if name_of(one.func) == "isinstance" and len(one.args) == 2]


def _is_torch_optim(facts: ModuleFacts, node: ast.expr) -> bool:
    return (facts.names.qualified(node) or "").startswith("torch.")
