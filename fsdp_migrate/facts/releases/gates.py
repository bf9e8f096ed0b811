"""The torch releases that reach a piece of code: version checks, early exits, and fallbacks for what torch lacks."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from packaging.version import Version

from fsdp_migrate.facts.releases.attempts import Attempt
from fsdp_migrate.facts.releases.evaluator import outcome
from fsdp_migrate.facts.releases.flags import Flags
from fsdp_migrate.facts.releases.reach import Reach, Resolver
from fsdp_migrate.facts.releases.skipped_tests import Skips
from fsdp_migrate.torch_api import RELEASES

_EXITS = frozenset("sys.exit os._exit os.abort builtins.exit builtins.quit pytest.skip pytest.fail pytest.exit".split())
_EXIT_NAMES = frozenset(name.rpartition(".")[2] for name in _EXITS)
# Context managers after which control goes on although their body raised.
_SWALLOWING = frozenset({"suppress", "raises", "assertRaises", "assertRaisesRegex", "warns"})
_BLOCKS = ("body", "orelse", "finalbody")


class Gates:
    """The releases of a range that can reach each node of a module.

    A condition that depends on more than the torch version may go either way. Code that no release reaches (after a
    `return`, under `if False`) counts as alive: it is no old arm. The API data tell what a handler of ImportError or
    AttributeError is for. Names with several bindings (`HAS_FSDP = True` in a try, `= False` in its handler) are
    followed if `names` has a method `bindings`, as `facts.names.Names` has.

    Inside, a set of releases is an integer with one bit for each known release, also outside the range: the releases
    that take an old arm show what it is for.
    """

    def __init__(
        self,
        tree: ast.Module,
        names: Resolver,
        releases: tuple[Version, ...],
        parents: Mapping[ast.AST, ast.AST] | None = None,
        apart: Callable[[ast.AST, ast.AST], bool] | None = None,
    ) -> None:
        """`parents` is built from `tree` if it is not given.

        `apart` tells whether one of two statements is run even if the other fails, as with cells.
        """
        self.releases = releases
        known = sorted({*RELEASES, *releases})
        self.bits: Mapping[Version, int] = {release: 1 << place for place, release in enumerate(known)}
        self.everywhere = sum(self.bits.values())
        self.names: Resolver = _Remembered(names)
        self.parents = parents if parents is not None else _parents(tree)
        self._apart = apart
        self.flags = Flags(names, self)
        self.skips = Skips(self)
        self._alive: dict[ast.AST, int] = {}
        self._sets: dict[int, frozenset[Version]] = {}
        self._blocks: dict[tuple[ast.AST, str], _Block] = {}
        self._sides: dict[ast.expr, tuple[int, int]] = {}
        self._attempts: dict[ast.Try, Attempt] = {}
        self._pending: set[ast.AST] = set()

    def alive(self, node: ast.AST) -> frozenset[Version]:
        """The releases of the range on which control can reach `node`."""
        mask = self.mask(node)
        if mask not in self._sets:
            self._sets[mask] = frozenset(release for release in self.releases if mask & self.bits[release])
        return self._sets[mask]

    def truth(self, test: ast.expr, release: Version) -> bool | None:
        """The value of a condition on `release`, None if it depends on more than the torch version."""
        return outcome(test, release, self.names, self.flags).value

    def mask(self, node: ast.AST) -> int:
        """`alive` as bits."""
        chain: list[ast.AST] = []
        current: ast.AST | None = node
        while current is not None and current not in self._alive:
            chain.append(current)
            current = self.parents.get(current)
        result = self.everywhere if current is None else self._alive[current]
        for child in reversed(chain):
            parent = self.parents.get(child)
            if parent is not None and result:
                result &= self._edge(parent, child)
            self._alive[child] = result
        return result

    def translated(self, foreign: Reach, mask: int) -> int:
        """A result of another module's gates, in the bits of these."""
        return sum(bit for release, bit in self.bits.items() if mask & foreign.bits.get(release, mask))

    def sides(self, test: ast.expr) -> tuple[int, int]:
        """The releases on which a condition may be true, and those on which it may be false."""
        if test in self._sides:
            return self._sides[test]
        if test in self._pending:
            return self.everywhere, self.everywhere
        self._pending.add(test)
        try:
            self._sides[test] = self._evaluate(test)
        finally:
            self._pending.discard(test)
        return self._sides[test]

    def _evaluate(self, test: ast.expr) -> tuple[int, int]:
        true = false = 0
        for release, bit in self.bits.items():
            found = outcome(test, release, self.names, self.flags)
            if not found.varies:
                return self.everywhere, self.everywhere
            true |= bit if found.value is not False else 0
            false |= bit if found.value is not True else 0
        return true, false

    def attempt(self, node: ast.Try) -> Attempt:
        """The facts about a `try` statement."""
        if node not in self._attempts:
            self._attempts[node] = Attempt(node, self)
        return self._attempts[node]

    def completes(self, block: Iterable[ast.stmt]) -> int:
        """The releases on which control may reach the end of `block`."""
        return self._all(self._passes(statement) for statement in block)

    def _all(self, masks: Iterable[int]) -> int:
        result = self.everywhere
        for mask in masks:
            result &= mask
        return result

    def _edge(self, parent: ast.AST, child: ast.AST) -> int:
        """The releases on which control may go from the start of `parent` to `child`."""
        edge = _EDGES.get(type(parent))
        result = self.everywhere if edge is None else edge(self, parent, child)
        if isinstance(child, ast.stmt) and result:
            result &= self._before(parent, child)
        return result

    def _edge_if(self, parent: ast.If | ast.IfExp | ast.While, child: ast.AST) -> int:
        if child is parent.test:
            return self.everywhere
        body = parent.body if isinstance(parent.body, list) else [parent.body]
        if child in body:
            return self.sides(parent.test)[0]
        # A loop's else runs after any number of turns, whatever the condition was at first.
        return self.everywhere if isinstance(parent, ast.While) else self.sides(parent.test)[1]

    def _edge_bool_op(self, parent: ast.BoolOp, child: ast.AST) -> int:
        side = 0 if isinstance(parent.op, ast.And) else 1
        before = itertools.takewhile(lambda value: value is not child, parent.values)
        return self.everywhere if child is parent.op else self._all(self.sides(value)[side] for value in before)

    def _edge_assert(self, parent: ast.Assert, child: ast.AST) -> int:
        return self.sides(parent.test)[1] if child is parent.msg else self.everywhere

    def _edge_comprehension(self, parent: ast.ListComp | ast.SetComp | ast.GeneratorExp, child: ast.AST) -> int:
        if child is not parent.elt:
            return self.everywhere
        return self._all(self.sides(test)[0] for generator in parent.generators for test in generator.ifs)

    def _edge_try(self, parent: ast.Try, child: ast.AST) -> int:
        return self.attempt(parent).reach(child)

    def _edge_function(self, parent: ast.FunctionDef | ast.AsyncFunctionDef, child: ast.AST) -> int:
        return self.skips.reach(parent) if isinstance(child, ast.stmt) else self.everywhere

    def _before(self, parent: ast.AST, child: ast.stmt) -> int:
        """The releases that the statements before `child` in its block let pass."""
        for name in _BLOCKS:
            statements = getattr(parent, name, None)
            if isinstance(statements, list):
                block = self._blocks.get((parent, name))
                if block is None:
                    block = self._blocks[parent, name] = _Block(statements, self.everywhere)
                if child in block.places:
                    return self._prefix(block, block.places[child], isinstance(parent, ast.Module))
        return self.everywhere

    def _prefix(self, block: _Block, place: int, outermost: bool) -> int:
        while len(block.prefixes) <= place:
            done = len(block.prefixes)
            before, after = block.statements[done - 1 : done + 1]
            if outermost and self._apart is not None and self._apart(before, after):
                following = self.everywhere
            else:
                following = block.prefixes[-1] & self._passes_on(before)
            # Following a flag may come back to this block and get further, with less known than now.
            del block.prefixes[done:]
            block.prefixes.append(following)
        return block.prefixes[place]

    def _passes_on(self, statement: ast.stmt) -> int:
        """As `_passes`, but code after an exit that no version check decides counts as reached."""
        passed = self._passes(statement)
        return passed if passed or self._asks(statement) else self.everywhere

    def _asks(self, statement: ast.stmt) -> bool:
        both = (self.everywhere, self.everywhere)
        tests = [node.test for node in ast.walk(statement) if isinstance(node, (ast.If, ast.Assert))]
        return any(self.sides(test) != both for test in tests)

    def _passes(self, statement: ast.stmt) -> int:
        """The releases on which control may continue after `statement`, once it is reached."""
        passes = _PASSES.get(type(statement))
        return self.everywhere if passes is None else passes(self, statement)

    def _passes_not(self, statement: ast.stmt) -> int:
        return 0

    def _passes_expression(self, statement: ast.Expr | ast.Assign) -> int:
        call = statement.value
        if not isinstance(call, ast.Call):
            return self.everywhere
        name = getattr(call.func, "attr", getattr(call.func, "id", None))
        exits = name == "skipTest" or (name in _EXIT_NAMES and self.names.qualified(call.func) in _EXITS)
        return 0 if exits else self.everywhere

    def _passes_if(self, statement: ast.If) -> int:
        # A loop and no recursion, since a chain of elif may be longer than the stack is deep.
        arms = [statement]
        while len(arms[-1].orelse) == 1 and isinstance(following := arms[-1].orelse[0], ast.If):
            arms.append(following)
        bodies = [self.completes(arm.body) for arm in arms]
        last = self.completes(arms[-1].orelse)
        if all(mask == self.everywhere for mask in (*bodies, last)):
            return self.everywhere
        result, reached = 0, self.everywhere
        for arm, body in zip(arms, bodies):
            true, false = self.sides(arm.test)
            result |= reached & true & body
            reached &= false
        return result | (reached & last)

    def _passes_with(self, statement: ast.With | ast.AsyncWith) -> int:
        functions = [i.context_expr.func for i in statement.items if isinstance(i.context_expr, ast.Call)]
        if any(getattr(f, "attr", getattr(f, "id", None)) in _SWALLOWING for f in functions):
            return self.everywhere
        passed = self.completes(statement.body)
        # What is raised inside, any other context manager may stop as well.
        raises = passed != self.everywhere and any(isinstance(node, ast.Raise) for node in ast.walk(statement))
        return self.everywhere if raises else passed

    def _passes_assert(self, statement: ast.Assert) -> int:
        return self.sides(statement.test)[0]

    def _passes_try(self, statement: ast.Try) -> int:
        result = self.completes(statement.body) & self.completes(statement.orelse)
        handlers = [self.completes(handler.body) for handler in statement.handlers]
        if not all(mask == self.everywhere for mask in (result, *handlers)):
            attempt = self.attempt(statement)
            result &= ~attempt.fails(len(statement.body))
            for handler, mask in zip(statement.handlers, handlers):
                result |= mask and mask & attempt.reach(handler)
        return result & self.completes(statement.finalbody)


class _Block:
    """A block of statements, with the releases that reach each of them, as far as asked."""

    def __init__(self, statements: list[ast.stmt], everywhere: int) -> None:
        self.statements = statements
        self.places = {statement: place for place, statement in enumerate(statements)}
        self.prefixes = [everywhere]


class _Remembered:
    """A resolver with a cache."""

    def __init__(self, names: Resolver) -> None:
        self.definition = names.definition
        self.project = names.project
        self._resolve = names.qualified
        self._known: dict[ast.expr, str | None] = {}

    def qualified(self, node: ast.expr) -> str | None:
        if node not in self._known:
            self._known[node] = self._resolve(node)
        return self._known[node]


def _parents(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


_EDGES: dict[type[ast.AST], Callable[[Gates, Any, Any], int]] = {
    ast.If: Gates._edge_if,
    ast.IfExp: Gates._edge_if,
    ast.While: Gates._edge_if,
    ast.BoolOp: Gates._edge_bool_op,
    ast.Assert: Gates._edge_assert,
    ast.ListComp: Gates._edge_comprehension,
    ast.SetComp: Gates._edge_comprehension,
    ast.GeneratorExp: Gates._edge_comprehension,
    ast.Try: Gates._edge_try,
    ast.FunctionDef: Gates._edge_function,
    ast.AsyncFunctionDef: Gates._edge_function,
}

_PASSES: dict[type[ast.stmt], Callable[[Gates, Any], int]] = {
    ast.Return: Gates._passes_not,
    ast.Raise: Gates._passes_not,
    ast.Continue: Gates._passes_not,
    ast.Break: Gates._passes_not,
    ast.Expr: Gates._passes_expression,
    ast.Assign: Gates._passes_expression,
    ast.If: Gates._passes_if,
    ast.With: Gates._passes_with,
    ast.AsyncWith: Gates._passes_with,
    ast.Assert: Gates._passes_assert,
    ast.Try: Gates._passes_try,
}
