"""Inner units: parts of a model that are wrapped by themselves before the model that they are in is."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from fsdp_migrate.facts.objects import Escape, Followed, ProjectCode
from fsdp_migrate.facts.project_code import Class
from fsdp_migrate.targets.fsdp2.conversion import Construction
from fsdp_migrate.targets.fsdp2.seeds import Seed

_MODULES = ("Module", "Model", "Sequential", "ModuleList", "ModuleDict")


class Inner:
    """Which constructions are of parts of the models of others."""

    def __init__(self, constructions: Sequence[Construction], code: ProjectCode) -> None:
        self.constructions = constructions
        self.code = code
        self._known: dict[ast.ClassDef, list[Construction]] = {}

    def outer(self, one: Construction) -> list[Construction]:
        """The constructions of models that a unit is a part of."""
        found = [*self._in_function(one), *self._around(one)]
        return [other for other in dict.fromkeys(found) if other is not one]

    def settled(self, followed: Followed, seed: Seed) -> Followed:
        """What is told of models, without what does not matter for inner units, and with what does for others."""
        inner = [one for one in (*seed.constructions, *seed.units) if self.outer(one)]
        own = {part for one in inner for part in ast.walk(one.facts.statement(one.call))}
        escapes = [escape for escape in followed.escapes if escape.node not in own]
        # One that is lost anyhow is not worth the search.
        for holder in () if escapes else followed.holders:
            if self._is_module(holder.cls) and not self._wrapping(holder.cls):
                name = holder.cls.node.name
                reason = f"it becomes a part of `{name}`, a module that FSDP does not wrap as a whole"
                escapes.append(Escape(holder.facts, holder.node, reason))
        return followed._replace(escapes=tuple(escapes))

    def _in_function(self, one: Construction) -> Iterator[Construction]:
        """Those of the name in whose attribute or item a unit is put."""
        target = _target(one)
        root = None if target is None else _root(target)
        if root is None:
            return
        facts = one.facts
        home, function = facts.scope(root).lookup(root.id), facts.function(one.call)
        for other in self.constructions:
            given = other.call.args[0] if other.call.args else next((k.value for k in other.call.keywords), None)
            if (
                other.facts is not facts
                or facts.function(other.call) is not function
                or not isinstance(given, ast.Name)
            ):
                continue
            same = given.id == root.id and facts.scope(given).lookup(given.id) is home
            if same and self.code.reaching(facts).may_follow(one.call, other.call):
                yield other

    def _around(self, one: Construction) -> Iterator[Construction]:
        """Those of the class in whose method a unit is made."""
        around = one.facts.class_around(one.call)
        cls = None if around is None else Class(one.facts, around)
        if cls is not None and self._is_module(cls):
            yield from self._wrapping(cls)

    def _wrapping(self, cls: Class) -> list[Construction]:
        """The constructions that wrap instances of a class, or of one that holds them."""
        if cls.node not in self._known:
            waiting, seen, found = [cls], {cls.node}, list[Construction]()
            while waiting and not found:
                gone = self.code.gone(waiting.pop())
                found = [one for one in self.constructions if not gone.places.isdisjoint(_wrapped(one))]
                above = [holder.cls for holder in gone.holders if holder.cls.node not in seen]
                waiting += [one for one in above if self._is_module(one)]
                seen.update(one.node for one in above)
            self._known[cls.node] = found
        return self._known[cls.node]

    def _is_module(self, cls: Class) -> bool:
        """Whether a class may be one of torch's modules, as far as its bases tell."""
        names = (name for one in self.code.ancestors(cls) for name in self.code.bases(one)[1])
        return any(name is None or name.startswith("torch.nn.") or name.endswith(_MODULES) for name in names)


def _wrapped(one: Construction) -> list[ast.expr]:
    """What a construction wraps."""
    return [*one.call.args[:1], *(keyword.value for keyword in one.call.keywords if keyword.arg == "module")]


def _target(one: Construction) -> ast.expr | None:
    """The attribute or item that a unit is put in."""
    parent = one.facts.structure.parents[one.call]
    target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
    return target if isinstance(target, (ast.Attribute, ast.Subscript)) else None


def _root(node: ast.expr) -> ast.Name | None:
    """The name that a chain of attributes and items begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node if isinstance(node, ast.Name) else None
