"""Whether what one place assigns to a name or attribute may still be there at another place of the same function."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from enum import Enum

from fsdp_migrate.facts.binding import Loop, binds, binds_inside
from fsdp_migrate.facts.scopes import TRIES

# The fields of a node in the order in which they are evaluated; of those in one stage only one is.
_STAGES: Mapping[type[ast.AST], tuple[tuple[str, ...], ...]] = {
    ast.If: (("test",), ("body", "orelse")),
    ast.IfExp: (("test",), ("body", "orelse")),
    ast.While: (("test",), ("body",), ("orelse",)),
    **dict.fromkeys((ast.For, ast.AsyncFor), (("iter",), ("target",), ("body",), ("orelse",))),
    **dict.fromkeys((ast.With, ast.AsyncWith), (("items",), ("body",))),
    **dict.fromkeys(TRIES, (("body",), ("handlers", "orelse"), ("finalbody",))),
    ast.Match: (("subject",), ("cases",)),
    ast.match_case: (("pattern",), ("guard",), ("body",)),
    ast.ExceptHandler: (("type",), ("body",)),
    ast.Assign: (("value",), ("targets",)),
    ast.AnnAssign: (("value",), ("target",), ("annotation",)),
    ast.AugAssign: (("value",), ("target",)),
    ast.NamedExpr: (("value",), ("target",)),
    ast.comprehension: (("iter",), ("target",), ("ifs",)),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp), (("generators",), ("elt",))),
    ast.DictComp: (("generators",), ("key", "value")),
}
# Of these one element is evaluated at most.
_ALTERNATIVES = ("handlers", "cases")


class Order(Enum):
    """How one place stands to another one, loops left out."""

    BEFORE = "before"
    AFTER = "after"
    APART = "apart"  # never both


class Reaching:
    """What may reach what in a module."""

    def __init__(self, parents: Mapping[ast.AST, ast.AST]) -> None:
        self.parents = parents
        self._chains: dict[ast.AST, tuple[ast.AST, ...]] = {}

    def may_reach(self, store: ast.AST, load: ast.AST, name: str, stores: Sequence[ast.AST]) -> bool:
        """Whether what `store` assigns to `name` may be there at `load`.

        `stores` are all places of the same function that assign to it; `name` is one, or dotted as in the text.
        """
        fork = self._fork(store, load)
        others = [other for other in stores if other is not store]
        if self.order(store, load) is Order.BEFORE and not self._leaves(store, fork.parent):
            between = (k for k in others if self.order(store, k) is Order.BEFORE)
            between = (k for k in between if self.order(k, load) is Order.BEFORE)
            whole = not _is_exceptional(fork)
            if not any(self._ends(k, store, load, name, whole=whole) for k in between):
                return True
        return any(self._comes_back(store, load, loop, name, others) for loop in self._loops(store, load))

    def order(self, one: ast.AST, other: ast.AST) -> Order:
        """Whether `one` runs before `other` where no loop comes back."""
        fork = self._fork(one, other)
        if fork.one is None or fork.other is None:
            return Order.BEFORE if fork.one is None else Order.AFTER
        stages = _STAGES.get(type(fork.parent))
        if stages is not None:
            first, second = (_field(fork.parent, child, stages) for child in (fork.one, fork.other))
            numbers = {field: number for number, fields in enumerate(stages) for field in fields}
            if numbers[first] != numbers[second]:
                return Order.BEFORE if numbers[first] < numbers[second] else Order.AFTER
            if (first != second or first in _ALTERNATIVES) and not isinstance(fork.parent, ast.DictComp):
                return Order.APART
        return Order.BEFORE if _place(fork.one) < _place(fork.other) else Order.AFTER

    def may_follow(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether `other` may run after `one` in the same run of their function."""
        return self.order(one, other) is Order.BEFORE or bool(self._loops(one, other))

    def _chain(self, node: ast.AST) -> tuple[ast.AST, ...]:
        """A node and what is around it, from the outside in."""
        known = self._chains.get(node)
        if known is None:
            parent = self.parents.get(node)
            known = self._chains[node] = (node,) if parent is None else (*self._chain(parent), node)
        return known

    def _fork(self, one: ast.AST, other: ast.AST) -> _Fork:
        """Where the ways to two nodes part."""
        first, second = self._chain(one), self._chain(other)
        number = 0
        while number < min(len(first), len(second)) and first[number] is second[number]:
            number += 1
        return _Fork(
            first[number - 1],
            first[number] if number < len(first) else None,
            second[number] if number < len(second) else None,
        )

    def _loops(self, one: ast.AST, other: ast.AST) -> list[Loop]:
        """The loops that come back from one node to the other."""
        fork = self._fork(one, other)
        inner = [child for child in (fork.one, fork.other) if child is not None]
        parent: ast.AST | None = fork.parent
        found = []
        while parent is not None and not isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            if isinstance(parent, Loop) and all(_comes_again(parent, child) for child in inner):
                found.append(parent)
            inner, parent = [parent], self.parents.get(parent)
        return found

    def _comes_back(self, store: ast.AST, load: ast.AST, loop: Loop, name: str, others: Sequence[ast.AST]) -> bool:
        """Whether what is stored in one turn of a loop is there in the next one."""
        if self._leaves(store, loop, ast.Return, ast.Raise, ast.Break):
            return False
        child = self._below(loop, load)
        if child is not None and binds_inside(loop, child, name):
            return False
        inside = [k for k in others if self._below(loop, k) is not None]
        return not any(self._ends(k, store, load, name) for k in inside)

    def _ends(self, other: ast.AST, store: ast.AST, load: ast.AST, name: str, *, whole: bool = True) -> bool:
        """Whether what `other` assigns always takes the place of what `store` did before it is read.

        The rest of the block around `store` is run as a `whole`.
        """
        if whole and self.follows(store, other, name) and self._fork(store, other).other not in self._chain(load):
            return True
        return self.dominates(other, load, name) and self._fork(other, load).one not in self._chain(store)

    def _below(self, outer: ast.AST, node: ast.AST) -> ast.AST | None:
        """The part of `outer` that `node` is in."""
        while (parent := self.parents.get(node)) is not None:
            if parent is outer:
                return node
            node = parent
        return None

    def dominates(self, store: ast.AST, load: ast.AST, name: str) -> bool:
        """Whether `load` is only reached behind what `store` is in, and that has certainly assigned the name."""
        fork = self._fork(store, load)
        if fork.other is None or fork.one is None:
            return False
        if binds_inside(fork.parent, fork.other, name):
            return True
        return _in_one_block(fork) and _place(fork.one) < _place(fork.other) and binds(fork.one, name)  # type: ignore[arg-type]

    def start_of(self, store: ast.AST, load: ast.AST, name: str) -> tuple[int, int] | None:
        """Where the statement begins that always assigns a name above `load` and has `store`; None where none does."""
        if not self.dominates(store, load, name):
            return None
        return _place(self._fork(store, load).one)

    def loops_around(self, node: ast.AST) -> list[Loop]:
        """The loops in the same function that a node is in."""
        found: list[Loop] = []
        for parent in reversed(self._chain(node)):
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                break
            if isinstance(parent, Loop):
                found.append(parent)
        return found

    def follows(self, store: ast.AST, other: ast.AST, name: str) -> bool:
        """Whether `other` is behind `store` in a block around that, and certainly assigns the name again."""
        fork = self._fork(store, other)
        return _in_one_block(fork) and _place(fork.one) < _place(fork.other) and binds(fork.other, name)  # type: ignore[arg-type]

    def _leaves(self, store: ast.AST, outer: ast.AST, *kinds: type[ast.stmt]) -> bool:
        """Whether a block around `store`, inside `outer`, ends by leaving the function."""
        child, parent = store, self.parents.get(store)
        while parent is not None and parent is not outer:
            if isinstance(parent, TRIES):
                return False
            block = _block(parent, child)
            if block and isinstance(block[-1], kinds or (ast.Return, ast.Raise)) and block[-1] is not child:
                return True
            child, parent = parent, self.parents.get(parent)
        return False


class _Fork:
    """The innermost node around two others, and the parts of it that they are in (None for the node itself)."""

    def __init__(self, parent: ast.AST, one: ast.AST | None, other: ast.AST | None) -> None:
        self.parent, self.one, self.other = parent, one, other


def _is_exceptional(fork: _Fork) -> bool:
    """Whether the second place may be got to from the midst of the block that has the first one."""
    is_handler = isinstance(fork.other, ast.ExceptHandler)
    return isinstance(fork.parent, TRIES) and (is_handler or fork.other in fork.parent.finalbody)


def _in_one_block(fork: _Fork) -> bool:
    if not isinstance(fork.one, ast.stmt) or not isinstance(fork.other, ast.stmt):
        return False
    return _block(fork.parent, fork.one) is _block(fork.parent, fork.other)


def _block(parent: ast.AST, child: ast.AST) -> Sequence[ast.stmt] | None:
    """The block of `parent` that has a statement, None where it has none."""
    if not isinstance(child, ast.stmt):
        return None
    for field in ("body", "orelse", "finalbody"):
        block = getattr(parent, field, None)
        if isinstance(block, list) and block and block[0].lineno <= child.lineno <= block[-1].lineno:
            return block
    return None


def _field(parent: ast.AST, child: ast.AST, stages: tuple[tuple[str, ...], ...]) -> str:
    """The field of `parent` that holds `child`."""
    fields = [field for fields in stages for field in fields]
    if isinstance(child, ast.stmt):
        block = _block(parent, child)
        return next(field for field in fields if getattr(parent, field) is block)
    found = (field for field in fields if _holds(getattr(parent, field), child))
    return next(found, fields[0])


def _holds(value: object, child: ast.AST) -> bool:
    return value is child or (isinstance(value, list) and child in value)


def _comes_again(loop: Loop, child: ast.AST) -> bool:
    """Whether a part of a loop runs in every turn."""
    return (
        child is getattr(loop, "test", None)
        or child is getattr(loop, "target", None)
        or (isinstance(child, ast.stmt) and _block(loop, child) is loop.body)
    )


def _place(node: ast.AST | None) -> tuple[int, int]:
    if isinstance(node, ast.comprehension):
        node = node.target
    if isinstance(node, ast.match_case):
        node = node.pattern
    if isinstance(node, ast.withitem):
        node = node.context_expr
    if isinstance(node, ast.arguments):
        return (0, 0)
    return (node.lineno, node.col_offset)  # type: ignore[union-attr]
