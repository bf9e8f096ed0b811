"""The meaning of names and attribute chains of a module."""

from __future__ import annotations

import ast
import builtins
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.facts.binding import loops_to
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.looked_up_names import is_enum_member, look_up
from fsdp_migrate.facts.scopes import Binding, Kind, Scope, Structure, in_force, reaching
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.torch_api.data import first

if TYPE_CHECKING:
    from fsdp_migrate.facts.other_modules import ImportedNames

_MAX_DEPTH = 20
_MANY = 10
_MOST_MEANINGS = 100
LOCAL = "<file>"
# In the place of a module that a star import takes everything from and that is not at hand.
STAR = "<star>"

PACKAGE = "torch.distributed.fsdp"
# Names that the package itself exports, wherever below it a file takes them from.
PUBLIC = frozenset(
    {
        "FullyShardedDataParallel",
        "FlatParameter",
        "StateDictType",
        "StateDictConfig",
        "FullStateDictConfig",
        "LocalStateDictConfig",
        "ShardedStateDictConfig",
        "OptimStateDictConfig",
        "FullOptimStateDictConfig",
        "LocalOptimStateDictConfig",
        "ShardedOptimStateDictConfig",
        "OptimStateKeyType",
    }
)

# What `import *` brings of them (`__all__` of torch 2.2 to 2.15; of the package everything up to 2.1).
_STARRED = {
    PACKAGE: PUBLIC,
    f"{PACKAGE}.fully_sharded_data_parallel": frozenset({"FullyShardedDataParallel", "OptimStateKeyType"}),
}

# Where the names of a module stand when whoever imports it reads them.
_END = (1 << 62, 0)
_NOT_IMPORTED = ("torch", "builtins", LOCAL, STAR)


def canonical(qualified: str) -> str:
    """One name for one symbol: `torch.distributed.fsdp.<module>.X` becomes `torch.distributed.fsdp.X`."""
    if qualified.startswith(PACKAGE + "."):
        parts = qualified[len(PACKAGE) + 1 :].split(".")
        if len(parts) > 1 and parts[0] not in PUBLIC and parts[1] in PUBLIC:
            return ".".join([PACKAGE, *parts[1:]])
    return qualified


def is_in_package(module: str) -> bool:
    """Whether a text is the name of FSDP's package or of a module in it."""
    return f"{module}.".startswith(f"{PACKAGE}.")


class Meaning(NamedTuple):
    """One possible meaning of an expression.

    `qualified` is its dotted name as imported, None for anything else (a value, a parameter). `binding` is its import
    or definition. `owner` is the expression before the last attribute if it was reached through a module (`fsdp` in
    `fsdp.FullyShardedDataParallel`).
    """

    qualified: str | None
    binding: Binding | None = None
    owner: ast.expr | None = None

    @property
    def chain(self) -> str | None:
        """The text of `owner`."""
        return None if self.owner is None else ast.unparse(self.owner)

    @property
    def symbol(self) -> str | None:
        """The canonical form of `qualified`."""
        return None if self.qualified is None else canonical(self.qualified)


UNKNOWN = Meaning(None)


class Names:
    """Resolves the expressions of one module.

    `project` answers for names of other modules of the project; without it nothing is known about them.
    """

    def __init__(self, structure: Structure, project: ImportedNames | None = None) -> None:
        self.structure = structure
        self.project = project
        self._places: dict[tuple[Scope, str], list[tuple[int, int]]] = {}
        self._known: dict[ast.expr | tuple[Scope, str], tuple[Meaning, ...]] = {}
        self._known_in_part: dict[tuple[ast.expr | tuple[Scope, str], int], tuple[Meaning, ...]] = {}
        self._symbols: dict[ast.expr, frozenset[str | None]] = {}
        self._sets: dict[frozenset[str | None], frozenset[str | None]] = {}  # equal ones are kept once
        self._cut = 0  # how often a name was not followed to its end

    def meanings(self, node: ast.expr) -> tuple[Meaning, ...]:
        """All meanings of `node` at its place, without fallbacks to None or object."""
        return self._meanings(node, 0)

    def own_classes(self, node: ast.expr) -> list[ast.ClassDef]:
        """The classes of this module that `node` may mean."""
        found = [meaning.binding.node for meaning in self.meanings(node) if meaning.binding is not None]
        return [cls for cls in found if isinstance(cls, ast.ClassDef)]

    def symbols(self, node: ast.expr) -> frozenset[str | None]:
        """The canonical names that `node` may mean, None among them for anything else."""
        known = self._symbols.get(node)
        if known is None:
            found = frozenset([meaning.symbol for meaning in self._meanings(node, 0)])
            known = self._symbols[node] = self._sets.setdefault(found, found)
        return known

    def qualified(self, node: ast.expr) -> str | None:
        """The canonical name of `node`, None unless there is exactly one."""
        symbols = self.symbols(node)
        return next(iter(symbols)) if len(symbols) == 1 else None

    def definition(self, node: ast.Name) -> ast.expr | ast.FunctionDef | None:
        """The value or function that a name of this file is bound to, None unless it has exactly one binding."""
        bindings = self.bindings(node)
        if len(bindings) != 1:
            return None
        binding = bindings[0]
        if binding.kind is Kind.ASSIGNMENT:
            return binding.value
        return binding.node if isinstance(binding.node, ast.FunctionDef) else None

    def value(self, node: ast.Name) -> ast.expr | None:
        """The expression that a name is bound to, None unless it has one binding, a plain assignment."""
        definition = self.definition(node)
        return definition if isinstance(definition, ast.expr) else None

    def definitions(self, node: ast.Name) -> list[ast.expr]:
        """The values of all bindings of a name; none if one of them is not a plain assignment."""
        bindings = self.bindings(node)
        values = [binding.value for binding in bindings if binding.value is not None]
        return values if len(values) == len(bindings) else []

    def may_be_none(self, node: ast.Name) -> bool:
        """Whether a name is a parameter with the default None, or may be assigned None."""
        for binding in self.bindings(node):
            if is_literal(binding.value, None):
                return True
            if isinstance(binding.node, ast.arg) and _defaults_to_none(binding.node, self.structure.parents):
                return True
        return False

    def bindings(self, node: ast.Name) -> list[Binding]:
        """The bindings that a name may have at its place."""
        scope = self.structure.scope(node)
        home = scope.lookup(node.id)
        return [] if home is None else self._bindings(node, home, here=home is scope)

    def _bindings(self, node: ast.Name, home: Scope, here: bool) -> list[Binding]:
        found = home.bindings[node.id]
        if len(found) == 1:
            return found
        use = (node.lineno, node.col_offset) if here else None
        places = self._in_order(home, node.id) if use is not None and len(found) >= _MANY else []
        if use is None:
            return reaching(found, use)
        before = found[: bisect_left(places, use)] if places else [b for b in found if b.position < use]
        if not before:
            return list(found)
        later = self._brought_back(node, found) if found[-1].position > use else []
        return [*in_force(before), *later]

    def _brought_back(self, node: ast.Name, bindings: Sequence[Binding]) -> list[Binding]:
        """The later bindings of a name that reach its use in the next iteration of a loop around both."""
        bodies = [loop.body for loop in loops_to(node.id, node, self.structure.parents)]
        if not bodies:
            return []
        ends = [(body[0], body[-1].end_lineno or 0, body[-1].end_col_offset or 0) for body in bodies]
        spans = [((first.lineno, first.col_offset), (line, column)) for first, line, column in ends]
        later = [binding for binding in bindings if binding.position > (node.lineno, node.col_offset)]
        return [b for b in later if any(start <= b.position < end for start, end in spans)]

    def _in_order(self, scope: Scope, name: str) -> list[tuple[int, int]]:
        """The positions of the bindings of a name; none if they are not in the order of the text."""
        key = (scope, name)
        if key not in self._places:
            places = [binding.position for binding in scope.bindings[name]]
            self._places[key] = places if places == sorted(places) else []
        return self._places[key]

    def _meanings(self, node: ast.expr, depth: int) -> tuple[Meaning, ...]:
        if depth > _MAX_DEPTH:
            self._cut += 1
            return (UNKNOWN,)
        if isinstance(node, ast.Name):
            return self._name(node, depth)
        if isinstance(node, ast.Attribute):
            return self._remembered(node, depth, lambda: self._attributes(node, depth))
        if isinstance(node, ast.IfExp):
            return self._meanings(node.body, depth + 1) + self._meanings(node.orelse, depth + 1)
        if isinstance(node, (ast.Subscript, ast.Call)):
            return self._looked_up(node, depth)
        if isinstance(node, ast.BoolOp):
            return tuple(meaning for value in node.values for meaning in self._meanings(value, depth + 1))
        return () if is_literal(node, None) else (UNKNOWN,)

    def _remembered(
        self, key: ast.expr | tuple[Scope, str], depth: int, find: Callable[[], tuple[Meaning, ...]]
    ) -> tuple[Meaning, ...]:
        """The result of `find`, cached: for good, or for this depth if it reached the depth limit."""
        known = self._known.get(key)
        if known is not None:
            return known
        cut = self._cut
        known = self._known_in_part.get((key, depth))
        if known is not None:
            self._cut += 1
            return known
        known = _thinned(find())
        if cut == self._cut:
            self._known[key] = known
        else:
            self._known_in_part[key, depth] = known
        return known

    def _attributes(self, node: ast.Attribute, depth: int) -> tuple[Meaning, ...]:
        return tuple(m for base in self._meanings(node.value, depth + 1) for m in self._attribute(base, node))

    def _attribute(self, base: Meaning, node: ast.Attribute) -> tuple[Meaning, ...]:
        if base.qualified is None:
            return (UNKNOWN,)
        qualified = f"{base.qualified}.{node.attr}"
        found = self._through_project(qualified)
        if found is None:
            return (Meaning(qualified, base.binding, node.value),)
        return tuple(Meaning(other, base.binding) for other in found)

    def _looked_up(self, node: ast.Subscript | ast.Call, depth: int) -> tuple[Meaning, ...]:
        """The members of torch's enums that an item or `getattr` with a string may mean."""
        found = look_up(node)
        if found is None or not self._is_builtin(found.function, depth):
            return (UNKNOWN,)
        owners = self._meanings(found.owner, depth + 1)
        members = [Meaning(f"{owner.qualified}.{found.name}", owner.binding) for owner in owners]
        return tuple(m if is_enum_member(m.qualified or "") else UNKNOWN for m in members)

    def _is_builtin(self, node: ast.Name | None, depth: int) -> bool:
        """Whether a name means a builtin and nothing else."""
        if node is None:
            return True
        meanings = self._meanings(node, depth)
        return bool(meanings) and all(meaning.qualified == f"builtins.{node.id}" for meaning in meanings)

    def _name(self, node: ast.Name, depth: int) -> tuple[Meaning, ...]:
        scope = self.structure.scope(node)
        home = scope.lookup(node.id)
        if home is None or not home.bindings[node.id]:
            return self._unbound(scope, node.id)
        here = home is scope
        # Where it stands makes a difference only in its own scope, among several bindings.
        key = node if here and len(home.bindings[node.id]) > 1 else (home, node.id)
        return self._remembered(key, depth, lambda: self._all_bound(self._bindings(node, home, here), depth))

    def _all_bound(self, bindings: Sequence[Binding], depth: int) -> tuple[Meaning, ...]:
        return tuple(meaning for binding in bindings for meaning in self._bound(binding, depth))

    def _bound(self, binding: Binding, depth: int) -> tuple[Meaning, ...]:
        if binding.kind is Kind.IMPORT:
            return tuple(Meaning(target, binding) for target in self.targets(binding))
        if binding.kind is Kind.DEFINITION:
            return (Meaning(f"{LOCAL}.{binding.name}", binding),)
        if binding.value is None:
            return (UNKNOWN,)
        return () if is_absent(binding.value) else self._meanings(binding.value, depth + 1)

    def targets(self, binding: Binding) -> Sequence[str | None]:
        """The full names that an import may provide, followed through the project; none for other bindings."""
        if binding.target is None:
            return ()
        found = self._through_project(binding.target)
        return (binding.target,) if found is None else found

    def brings(self, binding: Binding, symbol: str) -> bool:
        """Whether an import provides `symbol`, a canonical name, and nothing else."""
        targets = self.targets(binding)
        return bool(targets) and all(target is not None and canonical(target) == symbol for target in targets)

    @cached_property
    def direct_imports(self) -> str:
        """Imports from torch itself for what this module may import from it through its project; nothing is parsed."""
        project = self.project
        if project is None:
            return ""
        scopes = list(self.structure.module.nested())
        bindings = (binding for scope in scopes for found in scope.bindings.values() for binding in found)
        named = {(binding.name, binding.target) for binding in bindings if binding.target is not None}
        plain = [alias for node in self.structure.imports if isinstance(node, ast.Import) for alias in node.names]
        named |= {(alias.name, alias.name) for alias in plain if alias.asname is None and "." in alias.name}
        named = {(name, target) for name, target in named if target.split(".")[0] != "torch"}
        named |= {("*", module) for scope in scopes for module in scope.star_imports}
        attributes = {node.attr for node in self.structure.attributes}
        return project.direct_imports(named, attributes, {name for scope in scopes for name in scope.uses})

    def exported(self, name: str) -> list[Binding]:
        """The bindings of a top-level name that importers may see."""
        found = self.structure.module.bindings.get(name)
        return reaching(found, _END) if found else []

    def meanings_of(self, binding: Binding) -> tuple[Meaning, ...]:
        """All meanings of one binding."""
        return self._bound(binding, 0)

    def starred(self, name: str) -> tuple[Meaning, ...]:
        """The meanings that star imports at the top level give a name that has no other binding."""
        return tuple(self._from_stars(self.structure.module, name))

    def hides_builtin(self, scope: Scope, name: str) -> bool:
        """Whether a name that Python has built in stands for something else in a scope."""
        return scope.lookup(name) is not None or any(self._from_stars(scope, name))

    def _through_project(self, target: str) -> Sequence[str | None] | None:
        if self.project is None or target.split(".")[0] in _NOT_IMPORTED:
            return None
        return self.project.meanings(target)

    def _unbound(self, scope: Scope, name: str) -> tuple[Meaning, ...]:
        return tuple(self._from_stars(scope, name)) or (Meaning(f"builtins.{name}"),)

    def _from_stars(self, scope: Scope, name: str) -> Iterator[Meaning]:
        """The meanings that the star imports visible from `scope` give an unbound name, none if they do not provide it.

        A module that is not available may provide any name, unless a known module provides it.
        """
        if scope.lookup(name) is not None:
            return
        hidden = False
        for module in (module for outer in scope.enclosing() for module in reversed(outer.star_imports)):
            if module.split(".")[0] == "torch":
                found: Sequence[str | None] | None = [f"{module}.{name}"] if _is_starred(module, name) else None
            else:
                path = module + name if module.endswith(".") else f"{module}.{name}"
                found = self._through_project(path)
                there = None if self.project is None else self.project.defines(path)
                found = [path] if found is None and there else found
                hidden = hidden or there is None
            if found is not None:
                yield from (Meaning(target) for target in found)
                return
        if hidden and not hasattr(builtins, name):
            yield Meaning(f"{STAR}.{name}")

    def stars(self, scope: Scope, name: str) -> str | None:
        """The FSDP name that only a star import provides to `scope` as `name`, None if there is none."""
        found = tuple(self._from_stars(scope, name))
        return found[0].symbol if len(found) == 1 else None


def _is_starred(module: str, name: str) -> bool:
    """Whether `import *` provides a name of a torch module, in some release, that is not a builtin."""
    if module in _STARRED:
        return name in _STARRED[module]
    return not (name.startswith("_") or hasattr(builtins, name)) and first(f"{module}.{name}") is not None


def _thinned(meanings: tuple[Meaning, ...]) -> tuple[Meaning, ...]:
    """At most two of each meaning: that is as uncertain as the thousands that loops can make.

    If there are too many different ones, the first are kept, and that there are others.
    """
    if len(meanings) <= _MANY:
        return meanings
    seen: dict[tuple[str | None, Binding | None], int] = {}
    left = []
    for meaning in meanings:
        times = seen.get((meaning.qualified, meaning.binding), 0)
        seen[meaning.qualified, meaning.binding] = times + 1
        if times < 2:
            left.append(meaning)
    return (*left[:_MOST_MEANINGS], UNKNOWN) if len(left) > _MOST_MEANINGS else tuple(left)


def _defaults_to_none(argument: ast.arg, parents: Mapping[ast.AST, ast.AST]) -> bool:
    arguments = parents[argument]
    assert isinstance(arguments, ast.arguments)
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip(reversed(positional), reversed(arguments.defaults)))
    defaults.update((a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None)
    default = defaults.get(argument)
    return is_literal(default, None)


def is_absent(value: ast.expr) -> bool:
    """Whether `value` only replaces a missing import (`FSDP = None`, `FlatParameter = object`)."""
    if isinstance(value, ast.Constant):
        return value.value is None or value.value is ...
    return isinstance(value, ast.Name) and value.id == "object"
