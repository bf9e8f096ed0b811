"""State-dict types that are set on a part of a model only."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from fsdp_migrate.facts.changes import place_of
from fsdp_migrate.facts.contexts import enclosing_settings

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts

_SELF = ("self", "cls")


def type_set_on_part(facts: ModuleFacts, node: ast.AST, model: ast.expr) -> str | None:
    """The part of `model` that has a type of its own: set around `node`, before it, or elsewhere for good.

    `model.encoder` is one, and so is what `model` is put together from: `model = nn.ModuleList([encoder, decoder])`.

    FSDP refuses to set a type on a module whose parts have different ones (torch 2.0 to 2.15,
    fully_sharded_data_parallel.py `set_state_dict_type`).
    """
    before = [
        setting
        for setting in facts.fsdp.settings("set_state_dict_type")
        if facts.function(setting.call) is facts.function(node) and place_of(setting.call) < place_of(node)
    ]
    whole = ast.dump(facts.fsdp.followed(model))
    built = facts.names.value(model) if isinstance(model, ast.Name) else None
    inside = {ast.dump(one) for one in ast.walk(built)} if isinstance(built, ast.Call) else set()
    for setting in (*enclosing_settings(facts, node), *before):
        if setting is not None and ast.dump(setting.model) in inside:
            return ast.unparse(setting.model)
        part = facts.fsdp.followed(setting.model) if setting is not None else None
        inner = part
        while isinstance(inner, (ast.Attribute, ast.Subscript)):
            inner = inner.value
            if ast.dump(inner) == whole and part is not None:
                return ast.unparse(part)
    return _set_elsewhere(facts, node, model)


def _set_elsewhere(facts: ModuleFacts, node: ast.AST, model: ast.expr) -> str | None:
    """The part of `model` that another function of the file sets a type on and leaves it so.

    Functions share models by what they call them: `self.model` has the part `trainer.model.encoder`, and an object
    that is a model itself has those of its attributes.
    """
    whole = _path(facts.fsdp.followed(model))
    if whole is None:
        return None
    own = _attributes_of_self(facts, node) if not whole else frozenset()
    for setting in facts.fsdp.settings("set_state_dict_type"):
        part = (
            _path(facts.fsdp.followed(setting.model))
            if facts.function(setting.call) is not facts.function(node)
            else None
        )
        if part and (part[-1] in own or _has(part[:-1], whole)):
            return ast.unparse(setting.model)
    return None


def _path(node: ast.expr) -> tuple[str, ...] | None:
    """The names of an attribute chain from its root, without the `self` of a method; None for anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return tuple(names) if node.id in _SELF else (node.id, *names)


def _has(path: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    """Whether `whole` is somewhere in a path."""
    return bool(whole) and any(path[i : i + len(whole)] == whole for i in range(len(path)))


def _attributes_of_self(facts: ModuleFacts, node: ast.AST) -> frozenset[str]:
    """The attributes that the class around `node` gives its objects."""
    cls: ast.AST | None = node
    while cls is not None and not isinstance(cls, ast.ClassDef):
        cls = facts.structure.parents.get(cls)
    stores = [part for part in ast.walk(cls) if isinstance(part, ast.Attribute)] if cls is not None else []
    return frozenset(
        one.attr
        for one in stores
        if isinstance(one.ctx, ast.Store) and isinstance(one.value, ast.Name) and one.value.id in _SELF
    )
