"""Functions and classes of a project: what an expression is made from, who calls what, which class is kept where."""

from __future__ import annotations

import ast
import builtins
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.class_members import is_super
from fsdp_migrate.facts.names import LOCAL, STAR
from fsdp_migrate.facts.reaching import Reaching
from fsdp_migrate.facts.scopes import Binding, FunctionNode, Kind, Scope
from fsdp_migrate.records import NamedTuple

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts

T = TypeVar("T")
FunctionKind = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MOST_DEPTH = 30
# A parsed module takes some sixty bytes for each of its text. The most that a public program led to is 10 million.
MOST_TEXT = 16_000_000
_MOST_ROUNDS = 4
_MANY = 10
PROPERTIES = frozenset({"builtins.property", "functools.cached_property", "abc.abstractproperty"})
_PARTIAL = frozenset({"functools.partial", "functools.partialmethod"})
# Functions whose result is what their first argument is.
_OF_ITS_ARGUMENT = _PARTIAL | {"copy.copy", "copy.deepcopy"}
# Functions outside the project whose result may be an object of a class of the project.
_GIVING_BACK = frozenset(
    """
    instantiate prepare load loads getattr next vars pop get cast locate import_string partial wrap
    """.split()
)
# Builtins that get at the names of a scope, and whether they do so from the functions in it.
_SPYING = {"locals": False, "vars": False, "globals": True, "exec": True, "eval": True}
# Collections of modules that torch has.
MODULE_LISTS = ("torch.nn.ModuleList", "torch.nn.ModuleDict")
PLAIN_COLLECTIONS = ("builtins.dict", "builtins.list", "builtins.set", "collections.", *MODULE_LISTS)
_COPYING = frozenset(f"builtins.{name}" for name in "list tuple set sorted reversed iter".split())
_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
# Attributes that objects of unknown classes mostly have because they are dicts, lists, strings or files.
_COMMON = frozenset(dir(dict) + dir(list) + dir(str) + ["close", "read", "write", "flush"])
_FIELDS_OF = frozenset({"dataclasses.dataclass", "attr.s", "attrs.define", "attr.define", "attrs.frozen"})
_NAMED_TUPLES = frozenset({"typing.NamedTuple"})


class Value(NamedTuple):
    """An expression that gives a value, in the module of `facts`."""

    facts: ModuleFacts
    node: ast.expr


class Function(NamedTuple):
    """A function or lambda in the module of `facts`."""

    facts: ModuleFacts
    node: FunctionKind


class Class(NamedTuple):
    """A class in the module of `facts`."""

    facts: ModuleFacts
    node: ast.ClassDef


class Sort(Enum):
    """What an expression is, as far as its project tells."""

    FUNCTION = "function"
    CLASS = "class"
    INSTANCE = "instance"  # of a class of the project
    ELSEWHERE = "elsewhere"  # something that other packages define or return
    VALUE = "value"  # what is written out: a constant, a display, an operation
    UNKNOWN = "unknown"

    __hash__ = object.__hash__  # that of Enum is written in Python, and origins are kept in sets


class Origin(NamedTuple):
    """One thing that an expression may be: a node in the module of `facts`, or a full `name` of another package.

    A method that is `bound` was read off an instance.
    """

    sort: Sort
    facts: ModuleFacts
    node: ast.AST
    name: str | None = None
    bound: bool = False


class Site(NamedTuple):
    """A call of a function; `skipped` parameters have their values from elsewhere.

    The `shift` first arguments are not for the function (that of `partial`).
    """

    facts: ModuleFacts
    call: ast.Call
    skipped: int
    shift: int = 0


class Callers(NamedTuple):
    """Where a function is called; `elsewhere` are the reads of it that are not called on the spot."""

    sites: tuple[Site, ...]
    elsewhere: tuple[Value, ...]
    hidden: bool  # a file that may call it cannot be parsed


class TooMuchError(Exception):
    """What is asked takes more work than is allowed; the message says of what, where it is not the number of steps."""


class Answers:
    """Answers to questions that may lead back to themselves.

    Such a question is answered by what is known so far, and the first one is asked again until nothing new comes out.
    """

    def __init__(self) -> None:
        self._final: dict[tuple[str, object], object] = {}
        self._so_far: dict[tuple[str, object], object] = {}
        self._in_round: set[tuple[str, object]] = set()
        self._active: set[tuple[str, object]] = set()
        self._open = 0  # how often an answer was given that may not be all
        self._is_new = False
        self._left = math.inf

    @contextmanager
    def limited(self, most: float) -> Iterator[None]:
        """Allow so much work in the block, counted and not timed: it ends at the same place on every machine."""
        before, self._left = self._left, most
        try:
            yield
        finally:
            self._left = before

    @property
    def is_limited(self) -> bool:
        """Whether only so much work is allowed."""
        return self._left < math.inf

    def spend(self, work: int = 1) -> None:
        """Note that some work is about to be done.

        Raises:
            TooMuchError: it is more than is allowed.
        """
        self._left -= work
        if self._left < 0:
            raise TooMuchError

    @property
    def depth(self) -> int:
        """How many questions are being answered."""
        return len(self._active)

    def of(self, kind: str, about: object, find: Callable[[], T], nothing: T) -> T:
        """What `find` returns; `nothing` is what is known before."""
        key = (kind, about)
        if key in self._final:
            return cast("T", self._final[key])
        if key in self._in_round or key in self._active:
            self._open += 1
            return cast("T", self._so_far.get(key, nothing))
        self.spend()
        is_first = not self._active
        self._active.add(key)
        try:
            for _ in range(_MOST_ROUNDS):
                before = self._open
                found = find()
                if self._open == before:
                    self._final[key] = found
                    break
                self._is_new = self._is_new or self._so_far.get(key, nothing) != found
                self._so_far[key] = found
                self._in_round.add(key)
                if not is_first:
                    return found
                again, self._is_new = self._is_new, False
                self._in_round.clear()
                if not again:
                    break
            if is_first:
                self._final.update(self._so_far)
        finally:
            self._active.discard(key)
            if is_first:  # of what an error broke off, nothing is kept
                self._so_far.clear()
                self._in_round.clear()
                self._is_new = False
        return found


class Code:
    """Answers about the functions and classes of a project, each found once."""

    def __init__(self) -> None:
        self._reaching: dict[ModuleFacts, Reaching] = {}
        self._known = Answers()
        self._active_puts: set[ast.AST] = set()
        self._bindings: dict[ast.Name, list[Binding]] = {}
        self._in_order: dict[tuple[Scope, str], tuple[list[Binding], list[tuple[int, int]], list[Binding]]] = {}
        self._returned: dict[ast.AST, list[ast.expr]] = {}
        self._decorators: dict[ast.AST, frozenset[str | None]] = {}
        self._readers: dict[tuple[ModuleFacts, str], tuple[list[Value], bool]] = {}
        self._derived: dict[ast.ClassDef, list[Class]] = {}
        self._descendants: dict[ast.ClassDef, list[Class]] = {}
        self._own_methods: dict[ast.ClassDef, dict[str, list[Function]]] = {}
        self._methods: dict[tuple[ast.ClassDef, str], list[Function]] = {}
        self._bases: dict[ast.ClassDef, tuple[tuple[Class, ...], tuple[str | None, ...]]] = {}
        self._met: set[ModuleFacts] = set()
        self._text = 0  # how many bytes they have

    def limited(self, most: float) -> AbstractContextManager[None]:
        """See `Answers.limited`."""
        return self._known.limited(most)

    def spend(self, work: int = 1) -> None:
        """See `Answers.spend`."""
        self._known.spend(work)

    def _meet(self, modules: Iterable[ModuleFacts]) -> None:
        """Note that questions lead to some modules, which stay parsed from now on.

        Raises:
            TooMuchError: work is limited, and there is too much text in all that were met.
        """
        new = set(modules) - self._met
        self._met |= new
        self._text += sum(len(facts.source.data) for facts in new)
        if new and self._text > MOST_TEXT and self._known.is_limited:
            told = f"the code that this model and those before it go through is longer than {MOST_TEXT:,} bytes"
            raise TooMuchError(told)

    # Names.

    def reaching(self, facts: ModuleFacts) -> Reaching:
        """What may reach what in a module."""
        if facts not in self._reaching:
            self._reaching[facts] = Reaching(facts.structure.parents)
        return self._reaching[facts]

    def bindings(self, facts: ModuleFacts, name: ast.Name) -> list[Binding]:
        """The bindings in this module that a name may have where it is read."""
        if name not in self._bindings:
            home = facts.scope(name).lookup(name.id)
            found = [] if home is None else home.bindings[name.id]
            near = found if len(found) < _MANY else self._near(facts, found, name)
            self._bindings[name] = [one for one in near if self.may_reach(facts, one, near, name)]
        return self._bindings[name]

    def _near(self, facts: ModuleFacts, found: Sequence[Binding], name: ast.Name) -> Sequence[Binding]:
        """The bindings of a name from the last one that always comes above a place on, and those of loops around it."""
        home = found[0].scope
        if not _is_evaluated_in(facts.scope(name), home):
            return found
        key = (home, name.id)
        if key not in self._in_order:
            inside = [one for one in found if not isinstance(one.node, ast.arg) and _is_in(one, facts)]
            rest = [one for one in found if isinstance(one.node, ast.arg) or not _is_in(one, facts)]
            inside.sort(key=lambda one: one.position)
            self._in_order[key] = inside, [one.position for one in inside], rest
        inside, places, rest = self._in_order[key]
        reaching = self.reaching(facts)
        number = bisect_left(places, (name.lineno, name.col_offset))
        above = (reaching.start_of(inside[n].node, name, name.id) for n in range(number - 1, -1, -1))
        first = next((start for start in above if start is not None), None)
        others = [one for one in rest if first is None or not isinstance(one.node, ast.arg)]
        end = max((loop.end_lineno or 0 for loop in reaching.loops_around(name)), default=0)
        last = bisect_left(places, (end + 1, 0), number)
        return [*others, *inside[bisect_left(places, first or (0, 0)) : last]]

    def may_reach(self, facts: ModuleFacts, one: Binding, found: Sequence[Binding], name: ast.Name) -> bool:
        """Whether one of the bindings of a name may be in force where it is read."""
        home = one.scope
        if len(found) == 1 and one.kind is not Kind.ASSIGNMENT:
            return True
        if not _is_evaluated_in(facts.scope(name), home):
            return True
        inside = [other.node for other in found if not isinstance(other.node, ast.arg) and _is_in(other, facts)]
        reaching = self.reaching(facts)
        if isinstance(one.node, ast.arg):
            return not any(reaching.dominates(k, name, name.id) for k in inside)
        if one.node not in inside:
            return True  # bound by a function that declares it global
        return reaching.may_reach(one.node, name, name.id, inside)

    def loads(self, home: Scope, name: str) -> Iterator[ast.Name]:
        """Where a name of a scope is read in its module."""
        for scope in home.users.get(name, ()):
            if scope.lookup(name) is home:
                yield from scope.uses[name]

    def spying(self, facts: ModuleFacts, home: Scope, name: str) -> Iterator[ast.Call]:
        """The calls by which code may get at a name of a scope without writing it."""
        for builtin, inside in _SPYING.items():
            scopes = home.users.get(builtin, ()) if inside or home.is_module else (home,)
            for scope in scopes:
                for load in scope.uses.get(builtin, ()) if scope.lookup(builtin) is None else ():
                    call = facts.structure.parents.get(load)
                    if isinstance(call, ast.Call) and call.func is load and _spies(builtin, call, name):
                        yield call

    def readers(self, facts: ModuleFacts, name: str) -> tuple[list[Value], bool]:
        """Where other modules read a top-level name, and whether a file that may do so cannot be parsed."""
        key = (facts, name)
        if key not in self._readers:
            reads = None if facts.project is None else facts.project.reads(name)
            found = [] if reads is None else [Value(use.facts, use.node) for use in reads.uses]
            self._meet(one.facts for one in found)
            self._readers[key] = found, reads is not None and reads.hidden
        return self._readers[key]

    # What an expression is.

    def origins(self, facts: ModuleFacts, node: ast.expr) -> tuple[Origin, ...]:
        """All that an expression may be; `UNKNOWN` among them where it may be anything."""
        if self._known.depth > _MOST_DEPTH:
            return (Origin(Sort.UNKNOWN, facts, node),)
        return self._known.of("origins", node, lambda: tuple(dict.fromkeys(self._found(facts, node))), ())

    def _found(self, facts: ModuleFacts, node: ast.expr) -> Iterator[Origin]:
        if isinstance(node, ast.Name):
            yield from self._of_name(facts, node)
        elif isinstance(node, ast.Attribute):
            yield from self._of_attribute(facts, node)
        elif isinstance(node, ast.Call):
            yield from self._of_call(facts, node)
        elif isinstance(node, ast.IfExp):
            yield from (*self.origins(facts, node.body), *self.origins(facts, node.orelse))
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self.origins(facts, value)
        elif isinstance(node, (ast.NamedExpr, ast.Await)):
            yield from self.origins(facts, node.value)
        elif isinstance(node, ast.Subscript):
            yield from self._of_item(facts, node)
        elif isinstance(node, ast.Lambda):
            yield Origin(Sort.FUNCTION, facts, node)
        else:
            yield Origin(Sort.VALUE, facts, node)

    def _of_name(self, facts: ModuleFacts, node: ast.Name) -> Iterator[Origin]:
        bindings = self.bindings(facts, node)
        if not bindings:
            for symbol in facts.names.symbols(node):
                yield from self._of_symbol(facts, node, symbol)
            return
        for binding in bindings:
            yield from self._of_binding(facts, binding)

    def _of_symbol(self, facts: ModuleFacts, node: ast.AST, symbol: str | None) -> Iterator[Origin]:
        """What a full name of another module is."""
        if symbol is not None and symbol.startswith(f"{STAR}."):
            symbol = self._starred(facts, node, symbol.removeprefix(f"{STAR}.")) or symbol
        unbound = symbol is not None and symbol.startswith("builtins.") and not hasattr(builtins, symbol[9:])
        if symbol is None or unbound or symbol.startswith((STAR, LOCAL)):
            yield Origin(Sort.UNKNOWN, facts, node)
            return
        found = None
        if facts.project is not None and not symbol.startswith(("torch.", "builtins.")):
            found = facts.project.definition(symbol)
        if found is None:
            yield Origin(Sort.ELSEWHERE, facts, node, symbol)
            return
        self._meet([found[0]])
        for binding in found[1]:
            yield from self._of_binding(found[0], binding)
        if not found[1]:
            yield Origin(Sort.UNKNOWN, facts, node)

    def _starred(self, facts: ModuleFacts, node: ast.AST, name: str) -> str | None:
        """The full name of what the last star import brings, None where it is not known to bring it."""
        modules = [module for scope in facts.scope(node).enclosing() for module in reversed(scope.star_imports)]
        last = next(iter(modules), "")
        path = f"{last}{name}" if last.endswith(".") else f"{last}.{name}"
        return path if facts.project is not None and last and facts.project.definition(path) is not None else None

    def _of_binding(self, facts: ModuleFacts, binding: Binding) -> Iterator[Origin]:
        node = binding.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Origin(Sort.FUNCTION, facts, node)
        elif isinstance(node, ast.ClassDef):
            yield Origin(Sort.CLASS, facts, node)
        elif binding.kind is Kind.IMPORT:
            for target in facts.names.targets(binding):
                yield from self._of_symbol(facts, node, target)
        elif isinstance(node, ast.arg):
            yield from self._of_parameter(facts, node)
        elif binding.value is not None:
            yield from self.origins(facts, binding.value)
        else:
            yield from self._of_target(facts, node)

    def _of_target(self, facts: ModuleFacts, node: ast.AST) -> Iterator[Origin]:
        """What a name is that a loop or `with` binds."""
        parents = facts.structure.parents
        parent = parents.get(node)
        if isinstance(parent, ast.AugAssign):
            return  # what it was before, with something added
        if isinstance(parent, ast.withitem):
            yield from (one for one in self.origins(facts, parent.context_expr) if one.sort is not Sort.FUNCTION)
            return
        place = None
        if isinstance(parent, ast.Tuple) and isinstance(node, ast.expr):
            place, node, parent = parent.elts.index(node), parent, parents.get(parent)
        found: Sequence[Value] | None = None
        if isinstance(parent, (ast.For, ast.comprehension)) and node is parent.target:
            found = self._turns(facts, parent.iter, place)
        elif isinstance(parent, ast.Assign) and node in parent.targets and place is not None:
            found = self._unpacked(facts, parent.value, place)
        for value in found or ():
            yield from self.origins(value.facts, value.node)
        if not found:
            yield Origin(Sort.UNKNOWN, facts, node)

    def _unpacked(self, facts: ModuleFacts, value: ast.expr, place: int) -> Sequence[Value] | None:
        """What stands at a place of the tuples that a call of functions of the project returns."""
        callees = self.origins(facts, value.func) if isinstance(value, ast.Call) else ()
        functions = [Function(o.facts, o.node) for o in callees if isinstance(o.node, FunctionNode)]
        rows = [Value(one.facts, row) for one in functions for row in returned(one)]
        found = [Value(row.facts, row.node.elts[place]) for row in rows if _has_place(row.node, place)]  # type: ignore[attr-defined]
        return found if len(functions) == len(callees) and len(found) == len(rows) else None

    def unpacked_to(self, facts: ModuleFacts, target: ast.AST) -> Sequence[Value] | None:
        """What a call of functions of the project gives to a name among others; None where that is not seen."""
        parents = facts.structure.parents
        row = parents.get(target)
        statement = parents.get(row) if row is not None else None
        if not isinstance(row, ast.Tuple) or not isinstance(statement, ast.Assign) or target not in row.elts:
            return None
        return self._unpacked(facts, statement.value, row.elts.index(target))

    def _turns(self, facts: ModuleFacts, iterated: ast.expr, place: int | None) -> Sequence[Value] | None:
        """What a loop may assign in its turns: to its target, or to the one at a place in that."""
        if place is None:
            return self.elements(facts, iterated)
        if isinstance(iterated, ast.Call):
            name, given = facts.names.qualified(iterated.func), iterated.args
            if isinstance(iterated.func, ast.Attribute) and iterated.func.attr == "items" and place == 1:
                return self.elements(facts, iterated.func.value)
            if name == "builtins.enumerate" and place == 1 and given:
                return self.elements(facts, given[0])
            if name == "builtins.zip" and place < len(given):
                return self.elements(facts, given[place])
        rows = self.elements(facts, iterated) or ()
        found = [Value(row.facts, row.node.elts[place]) for row in rows if _has_place(row.node, place)]  # type: ignore[attr-defined]
        return found if len(found) == len(rows) else None

    def elements(self, facts: ModuleFacts, node: ast.expr) -> Sequence[Value] | None:
        """What a collection may hold (of a dict its values), None where that is not to be seen."""
        nothing: Sequence[Value] | None = ()  # `parts = dict(parts)` adds nothing
        return self._known.of("elements", node, lambda: self._found_elements(facts, node), nothing)

    def _found_elements(self, facts: ModuleFacts, node: ast.expr) -> Sequence[Value] | None:
        if isinstance(node, ast.Call):
            copied = facts.names.qualified(node.func) in _COPYING and node.args
            is_dict = isinstance(node.func, ast.Attribute) and node.func.attr == "values"
            if is_dict and isinstance(node.func, ast.Attribute):
                return self.elements(facts, node.func.value)
            return self.elements(facts, node.args[0]) if copied else None
        displays = [(facts, node)] if isinstance(node, _DISPLAYS) else []
        found: list[Value] = []
        if isinstance(node, (ast.Name, ast.Attribute)):
            for origin in self.origins(facts, node):
                if isinstance(origin.node, _DISPLAYS):
                    displays.append((origin.facts, origin.node))
                elif not (origin.name or "").startswith(PLAIN_COLLECTIONS):
                    return None
                elif isinstance(origin.node, ast.Call):
                    for given in origin.node.args[:1]:
                        inner = self.elements(origin.facts, given)
                        if inner is None:
                            return None
                        found += inner
                    found += (Value(origin.facts, one.value) for one in origin.node.keywords)
            found += self._put_into(facts, node)
        elif not displays:
            return None
        for other, display in displays:
            found += (Value(other, one) for one in _elements_of(display))
        return list(dict.fromkeys(found))

    def _put_into(self, facts: ModuleFacts, node: ast.Name | ast.Attribute) -> Iterator[Value]:
        """What is put into the collection in a name or attribute after it is made."""
        if node in self._active_puts:
            return
        self._active_puts.add(node)
        try:
            for other, target, value in self._puts(facts, node):
                if self._is_same(facts, node, other, target):
                    yield Value(other, value)
        finally:
            self._active_puts.discard(node)

    def _puts(
        self, facts: ModuleFacts, node: ast.Name | ast.Attribute
    ) -> Iterator[tuple[ModuleFacts, ast.expr, ast.expr]]:
        modules = {facts: None}
        if isinstance(node, ast.Attribute):
            for owner in self.origins(facts, node.value):
                if owner.sort is Sort.INSTANCE and isinstance(owner.node, ast.ClassDef):
                    modules.update((one.facts, None) for one in self.family(Class(owner.facts, owner.node)).values())
        for other in modules:
            for target, value in other.memo(_all_puts, partial(_all_puts, other)):
                if type(target) is type(node):
                    yield other, target, value

    def _is_same(self, facts: ModuleFacts, node: ast.expr, other: ModuleFacts, target: ast.expr) -> bool:
        """Whether two names or attributes may hold the same collection."""
        if isinstance(node, ast.Name) and isinstance(target, ast.Name):
            return node.id == target.id and facts.scope(node).lookup(node.id) is other.scope(target).lookup(target.id)
        if not isinstance(node, ast.Attribute) or not isinstance(target, ast.Attribute) or node.attr != target.attr:
            return False
        ours = [one for one in self.origins(facts, node.value) if one.sort is Sort.INSTANCE]
        families = [self.family(Class(o.facts, o.node)) for o in ours if isinstance(o.node, ast.ClassDef)]
        return any(one.node in family for one in self.origins(other, target.value) for family in families)

    def _of_parameter(self, facts: ModuleFacts, node: ast.arg) -> Iterator[Origin]:
        function = _function_of(facts, node)
        cls = self.class_of(Function(facts, function))
        if cls is not None and node is first_parameter(function) and not self.is_static(Function(facts, function)):
            sort = Sort.CLASS if self.is_class_method(Function(facts, function)) else Sort.INSTANCE
            yield Origin(sort, cls.facts, cls.node)
            return
        annotated = [c for c in self._annotated(facts, node) if c is not None]
        if annotated:
            yield from (Origin(Sort.INSTANCE, cls.facts, cls.node) for cls in annotated)
            return
        if node in (function.args.vararg, function.args.kwarg):
            yield Origin(Sort.UNKNOWN, facts, node)
            return
        callers = self.callers(Function(facts, function))
        given = [self.argument(site, Function(facts, function), node) for site in callers.sites]
        for value in given:
            if value is None:
                yield Origin(Sort.UNKNOWN, facts, node)
            else:
                yield from self.origins(value.facts, value.node)
        if not given or callers.elsewhere or callers.hidden:
            yield Origin(Sort.UNKNOWN, facts, node)

    def _annotated(self, facts: ModuleFacts, node: ast.arg) -> Iterator[Class | None]:
        """The classes of the project that an annotation names."""
        binding = Binding(node.arg, Kind.PARAMETER, node, facts.structure.starts[node])
        for option in facts.fsdp.object_classes.of_binding(binding):
            if isinstance(option, (ast.Name, ast.Attribute)) and option in facts.structure.parents:
                found = [one for one in self._of_type(facts, option) if one.sort is Sort.CLASS]
                yield from (Class(one.facts, one.node) for one in found if isinstance(one.node, ast.ClassDef))

    def _of_type(self, facts: ModuleFacts, node: ast.expr) -> tuple[Origin, ...]:
        try:
            return self.origins(facts, node)
        except KeyError:  # an annotation in quotes has no scope of its own
            return ()

    def _of_attribute(self, facts: ModuleFacts, node: ast.Attribute) -> Iterator[Origin]:
        if is_super(node.value):
            yield from self._of_super(facts, node)
            return
        owners = self.owners(facts, node.value)
        if node.attr == "__class__":
            yield from (one._replace(sort=Sort.CLASS) if one.sort is Sort.INSTANCE else one for one in owners)
            return
        if not any(one.sort in (Sort.INSTANCE, Sort.CLASS) for one in owners):
            symbols = facts.names.symbols(node)
            if symbols and not any(one is None or one.startswith((LOCAL, STAR)) for one in symbols):
                for symbol in symbols:
                    yield from self._of_symbol(facts, node, symbol)
                return
        for owner in owners:
            if owner.sort in (Sort.INSTANCE, Sort.CLASS):
                assert isinstance(owner.node, ast.ClassDef)
                yield from self.of_member(Class(owner.facts, owner.node), node.attr, owner.sort, facts, node)
            elif owner.sort is Sort.UNKNOWN:
                yield Origin(Sort.UNKNOWN, facts, node)
            else:
                yield Origin(Sort.ELSEWHERE, facts, node)

    def owners(self, facts: ModuleFacts, node: ast.expr) -> tuple[Origin, ...]:
        """What an expression may be that has attributes of its own: not None."""
        return tuple(one for one in self.origins(facts, node) if not is_literal(one.node, None))

    def _of_super(self, facts: ModuleFacts, node: ast.Attribute) -> Iterator[Origin]:
        around = facts.class_around(node)
        cls = None if around is None else Class(facts, around)
        found = [] if cls is None else list(self._above(cls, node.attr))
        for method in found:
            yield Origin(Sort.FUNCTION, method.facts, method.node, bound=True)
        if not found:
            yield Origin(Sort.ELSEWHERE, facts, node)

    def _above(self, cls: Class, name: str) -> Iterator[Function]:
        """The methods that `super()` may lead to in a class: its bases', and those behind it in derived ones."""
        seen = set()
        for low in self.descendants(cls):
            line = self.ancestors(low)
            number = next((n for n, one in enumerate(line) if one.node is cls.node), len(line))
            for method in (m for one in line[number + 1 :] for m in self.own_methods(one, name)):
                if method.node not in seen:
                    seen.add(method.node)
                    yield method
                break

    def of_member(self, cls: Class, name: str, sort: Sort, facts: ModuleFacts, node: ast.Attribute) -> Iterator[Origin]:
        """What instances of a class, or of those that derive from it, have under a name."""
        methods = self.methods(cls, name)
        for method in methods:
            if self.is_property(method):
                for value in self.returned(method):
                    yield from self.origins(method.facts, value)
            else:
                is_bound = sort is Sort.INSTANCE or self.is_class_method(method)
                yield Origin(Sort.FUNCTION, method.facts, method.node, bound=is_bound and not self.is_static(method))
        stores = self.stores(cls, name)
        for store in stores:
            yield from self.origins(store.facts, store.node)
        if not methods and not stores:
            outside = any(self.bases(one)[1] for one in self.family(cls).values())
            yield Origin(Sort.ELSEWHERE if outside else Sort.UNKNOWN, facts, node)

    def _of_call(self, facts: ModuleFacts, node: ast.Call) -> Iterator[Origin]:
        for callee in self.origins(facts, node.func):
            if callee.sort is Sort.CLASS:
                yield callee._replace(sort=Sort.INSTANCE)
            elif callee.sort is Sort.FUNCTION:
                assert isinstance(callee.node, FunctionNode)
                function = Function(callee.facts, callee.node)
                values = self.returned(function)
                for value in values:
                    yield from self.origins(function.facts, value)
                if not values:
                    yield Origin(Sort.VALUE, facts, node)
            elif callee.sort is Sort.ELSEWHERE:
                if callee.name == "builtins.type" and len(node.args) == 1:
                    found = self.owners(facts, node.args[0])
                    yield from (one._replace(sort=Sort.CLASS) if one.sort is Sort.INSTANCE else one for one in found)
                    continue
                if callee.name in _OF_ITS_ARGUMENT and node.args:
                    yield from self.origins(facts, node.args[0])
                    continue
                last = callee.name.rpartition(".")[2] if callee.name else getattr(node.func, "attr", "")
                sort = Sort.UNKNOWN if last in _GIVING_BACK else Sort.ELSEWHERE
                yield Origin(sort, facts, node, callee.name)
            elif callee.sort is Sort.INSTANCE:
                assert isinstance(callee.node, ast.ClassDef)
                called = self.methods(Class(callee.facts, callee.node), "__call__")
                yield from (origin for m in called for v in self.returned(m) for origin in self.origins(m.facts, v))
                if not called:
                    yield Origin(Sort.UNKNOWN, facts, node)
            else:
                yield Origin(Sort.UNKNOWN, facts, node)

    def _of_item(self, facts: ModuleFacts, node: ast.Subscript) -> Iterator[Origin]:
        found = self.elements(facts, node.value)
        for value in found or ():
            yield from self.origins(value.facts, value.node)
        if not found:
            yield Origin(Sort.UNKNOWN, facts, node)

    # Classes.

    def class_of(self, function: Function) -> Class | None:
        """The class whose method a function is."""
        parents = function.facts.structure.parents
        parent = parents.get(function.node)
        while isinstance(parent, (ast.If, ast.Try)):
            parent = parents.get(parent)
        is_method = isinstance(parent, ast.ClassDef) and not isinstance(function.node, ast.Lambda)
        return Class(function.facts, parent) if is_method and isinstance(parent, ast.ClassDef) else None

    def is_static(self, function: Function) -> bool:
        """Whether a method is a `staticmethod`."""
        return function_name(function) != "__new__" and "builtins.staticmethod" in self.decorators(function)

    def is_class_method(self, function: Function) -> bool:
        """Whether a method is a `classmethod`."""
        special = ("__new__", "__init_subclass__", "__class_getitem__")
        return function_name(function) in special or "builtins.classmethod" in self.decorators(function)

    def is_property(self, function: Function) -> bool:
        """Whether a method is called by reading an attribute."""
        return not PROPERTIES.isdisjoint(self.decorators(function))

    def decorators(self, function: Function) -> frozenset[str | None]:
        """The full names of the decorators of a function, None for one that has none."""
        found = getattr(function.node, "decorator_list", ())
        if not found:
            return frozenset()
        if function.node not in self._decorators:
            bare = (one.func if isinstance(one, ast.Call) else one for one in found)
            self._decorators[function.node] = frozenset(map(function.facts.names.qualified, bare))
        return self._decorators[function.node]

    def bases(self, cls: Class) -> tuple[tuple[Class, ...], tuple[str | None, ...]]:
        """The classes of the project that a class derives from directly, and the names of those of other packages."""
        if cls.node not in self._bases:
            self._bases[cls.node] = ((), ())
            try:
                self._bases[cls.node] = self._found_bases(cls)
            except (RecursionError, TooMuchError):
                del self._bases[cls.node]  # of what an error broke off, nothing is kept
                raise
        return self._bases[cls.node]

    def _found_bases(self, cls: Class) -> tuple[tuple[Class, ...], tuple[str | None, ...]]:
        inside: list[Class] = []
        outside: list[str | None] = []
        for base in cls.node.bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            for origin in self.origins(cls.facts, plain):
                if origin.sort is Sort.CLASS and isinstance(origin.node, ast.ClassDef):
                    inside.append(Class(origin.facts, origin.node))
                elif origin.name not in ("builtins.object", "typing.Generic", "abc.ABC", "typing.Protocol"):
                    outside.append(origin.name)
        return tuple(inside), tuple(outside)

    def ancestors(self, cls: Class) -> list[Class]:
        """A class and those of the project that it derives from, about in the order in which Python looks."""
        found: dict[ast.ClassDef, Class] = {}
        waiting = [cls]
        while waiting:
            current = waiting.pop(0)
            if current.node not in found:
                found[current.node] = current
                waiting += self.bases(current)[0]
        return list(found.values())

    def descendants(self, cls: Class) -> list[Class]:
        """A class and those of the project that derive from it."""
        if cls.node not in self._descendants:
            found: dict[ast.ClassDef, Class] = {}
            waiting = [cls]
            while waiting:
                current = waiting.pop()
                if current.node not in found:
                    found[current.node] = current
                    waiting += self._derived_from(current)
            self._descendants[cls.node] = list(found.values())
        return self._descendants[cls.node]

    def _derived_from(self, cls: Class) -> list[Class]:
        """The classes of the project that name a class among their bases."""
        if cls.node not in self._derived:
            self._derived[cls.node] = list(self._found_derived(cls))
        return self._derived[cls.node]

    def _found_derived(self, cls: Class) -> Iterator[Class]:
        name, scope = cls.node.name, cls.facts.scope(cls.node)
        reads = [Value(cls.facts, load) for load in self.loads(scope, name) if self._means(cls.facts, load, cls.node)]
        if scope.is_module and cls.facts.project is not None:
            reads += (Value(use.facts, use.node) for use in cls.facts.project.bases_written(name))
            self._meet(one.facts for one in reads)
        for read in reads:
            parents = read.facts.structure.parents
            child: ast.AST = read.node
            parent = parents.get(child)
            if isinstance(parent, ast.Subscript) and child is parent.value:
                child, parent = parent, parents.get(parent)
            if isinstance(parent, ast.ClassDef) and child in parent.bases:
                yield Class(read.facts, parent)

    def family(self, cls: Class) -> dict[ast.ClassDef, Class]:
        """The classes whose methods may see an instance of this class, or of one derived from it, as `self`."""
        return self._known.of("family", cls.node, lambda: self._found_family(cls), {cls.node: cls})

    def _found_family(self, cls: Class) -> dict[ast.ClassDef, Class]:
        return {one.node: one for low in self.descendants(cls) for one in self.ancestors(low)}

    def own_methods(self, cls: Class, name: str) -> Iterator[Function]:
        """The functions of this name in the body of a class."""
        if cls.node not in self._own_methods:
            found: dict[str, list[Function]] = {}
            bodies = [cls.node.body]
            while bodies:
                for statement in bodies.pop():
                    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        found.setdefault(statement.name, []).append(Function(cls.facts, statement))
                    elif isinstance(statement, (ast.If, ast.Try)):
                        bodies += [statement.body, statement.orelse]
            self._own_methods[cls.node] = found
        yield from self._own_methods[cls.node].get(name, ())

    def methods(self, cls: Class, name: str) -> list[Function]:
        """The methods that a call on an instance of a class, or of one derived from it, may run."""
        key = cls.node, name
        if key not in self._methods:
            found = [method for low in self.descendants(cls) for method in self.own_methods(low, name)]
            own = any(True for _ in self.own_methods(cls, name))
            above = () if own else (list(self.own_methods(one, name)) for one in self.ancestors(cls)[1:])
            found += next((methods for methods in above if methods), [])
            self._methods[key] = list(dict.fromkeys(found))
        return self._methods[key]

    def stores(self, cls: Class, name: str) -> tuple[Value, ...]:
        """What is assigned to an attribute of the instances of a class, as far as the project says that plainly."""
        return self._known.of("stores", (cls.node, name), lambda: tuple(self._found_stores(cls, name)), ())

    def _found_stores(self, cls: Class, name: str) -> Iterator[Value]:
        for one in self.family(cls).values():
            scope = one.facts.structure.starts.get(one.node.body[0])
            for binding in () if scope is None else scope.bindings.get(name, ()):
                if binding.value is not None:
                    yield Value(one.facts, binding.value)
            for store in one.facts.structure.stores_by_name.get(name, ()):
                if self.is_self(one, store.value):
                    value = stored_value(one.facts, store)
                    yield Value(one.facts, value if value is not None else store)
            if name in self.fields(one):
                for site in self.constructions(one):
                    given = self.field_argument(one, site, name)
                    if given is not None:
                        yield given

    def is_self(self, cls: Class, node: ast.expr) -> bool:
        """Whether an expression is the first parameter of a method of this very class."""
        if not isinstance(node, ast.Name):
            return False
        home = cls.facts.scope(node).lookup(node.id)
        if home is None or not isinstance(home.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        function = Function(cls.facts, home.node)
        first = first_parameter(home.node)
        if first is None or first.arg != node.id or self.is_static(function):
            return False
        around = self.class_of(function)
        return around is not None and around.node is cls.node

    def is_tuple(self, cls: Class) -> bool:
        """Whether a class is a named tuple."""
        return any(cls.facts.names.qualified(base) in _NAMED_TUPLES for base in cls.node.bases)

    def fields(self, cls: Class) -> tuple[str, ...]:
        """The fields that the constructor of a dataclass or named tuple takes, in order."""
        return self._known.of("fields", cls.node, lambda: self._found_fields(cls), ())

    def _found_fields(self, cls: Class) -> tuple[str, ...]:
        decorators = getattr(cls.node, "decorator_list", ())
        bare = [one.func if isinstance(one, ast.Call) else one for one in decorators]
        plain = any(cls.facts.names.qualified(one) in _FIELDS_OF for one in bare)
        plain = plain or self.is_tuple(cls)
        if not plain or next(iter(self.own_methods(cls, "__init__")), None) is not None:
            return ()
        inherited = [field for base in self.bases(cls)[0] for field in self.fields(base)]
        own = [s.target.id for s in cls.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
        return tuple(dict.fromkeys([*inherited, *own]))

    def constructions(self, cls: Class) -> Iterator[Value]:
        """The calls of a class."""
        for read in self.reads_of(cls.facts, cls.node)[0]:
            parent = read.facts.structure.parents.get(read.node)
            if isinstance(parent, ast.Call) and parent.func is read.node:
                yield Value(read.facts, parent)

    def field_argument(self, cls: Class, site: Value, name: str) -> Value | None:
        """What a call of a dataclass gives to a field."""
        call = site.node
        assert isinstance(call, ast.Call)
        fields = self.fields(cls)
        for number, argument in enumerate(call.args):
            if number < len(fields) and fields[number] == name:
                return Value(site.facts, argument)
        return next((Value(site.facts, k.value) for k in call.keywords if k.arg == name), None)

    # Reads of attributes.

    def attribute_reads(self, cls: Class, name: str) -> tuple[tuple[Value, bool], ...]:
        """Where an attribute of instances of a class may be read, each with whether the class is certain.

        `getattr(x, "name")` counts.
        """
        return self._known.of("reads", (cls.node, name), lambda: tuple(self._found_reads(cls, name)), ())

    def _found_reads(self, cls: Class, name: str) -> Iterator[tuple[Value, bool]]:
        family = self.family(cls)
        modules = {one.facts: None for one in family.values()}
        if cls.facts.project is not None:
            modules.update(dict.fromkeys(cls.facts.project.writing(name)))
            self._meet(modules)
        unknown = []
        for facts in modules:
            for node, owner in attribute_reads(facts, name):
                certain = self.is_instance(facts, owner, family)
                if certain:
                    yield Value(facts, node), True
                elif certain is None and name not in _COMMON:
                    unknown.append((Value(facts, node), owner))
        instances = self.instances(cls) if unknown else None
        for read, owner in unknown:
            if instances is None or owner in instances:
                yield read, instances is not None

    def instances(self, cls: Class) -> frozenset[ast.AST] | None:
        """All expressions that may be instances of a class, or of others of its family; None where some are unseen."""
        return None

    def is_instance(self, facts: ModuleFacts, node: ast.expr, family: dict[ast.ClassDef, Class]) -> bool | None:
        """Whether an expression is an instance of (or is) a class of a family; None where nothing tells."""
        origins = self.origins(facts, node)
        if any(one.sort in (Sort.INSTANCE, Sort.CLASS) and one.node in family for one in origins):
            return True
        return None if not origins or any(one.sort is Sort.UNKNOWN for one in origins) else False

    def spies(self, cls: Class) -> tuple[tuple[Value, frozenset[str] | None], ...]:
        """Where attributes of instances of a class are read by names that are not written there, each with the names.

        None where these are made at run time.
        """
        return self._known.of("spies", cls.node, lambda: tuple(self._found_spies(cls)), ())

    def _found_spies(self, cls: Class) -> Iterator[tuple[Value, frozenset[str] | None]]:
        family = self.family(cls)
        for facts in {one.facts: None for one in family.values()}:
            for call in facts.structure.calls:
                name = call.func.id if isinstance(call.func, ast.Name) else ""
                is_made = name == "getattr" and len(call.args) > 1 and not isinstance(call.args[1], ast.Constant)
                if is_made and self.is_instance(facts, call.args[0], family):
                    yield Value(facts, call), self.texts(facts, call.args[1])
                elif name == "vars" and call.args and self.is_instance(facts, call.args[0], family):
                    yield Value(facts, call), None
            for node, owner in attribute_reads(facts, "__dict__"):
                is_filled = getattr(facts.structure.parents[node], "attr", "") == "update"
                if not is_filled and self.is_instance(facts, owner, family):
                    yield Value(facts, node), None

    def texts(self, facts: ModuleFacts, node: ast.expr) -> frozenset[str] | None:
        """The strings that an expression may be, None where these are not all to be seen."""
        values = [getattr(one.node, "value", None) for one in self.origins(facts, node)]
        texts = [value for value in values if isinstance(value, str)]
        return frozenset(texts) if texts and len(texts) == len(values) else None

    def stores_in(self, facts: ModuleFacts, function: ast.AST) -> list[ast.Attribute]:
        """The attributes that a function assigns."""
        known = facts.memo(Code.stores_in, lambda: _stores_by_function(facts))
        return known.get(function, [])

    def handed_out(self, facts: ModuleFacts, function: ast.AST, name: str) -> Iterator[ast.Name]:
        """Where a function gives the object in a name away, or calls one of its methods."""
        scope = facts.structure.starts.get(function.body[0])  # type: ignore[attr-defined]
        for load in () if scope is None else scope.uses.get(name, ()):
            parent = facts.structure.parents[load]
            call = facts.structure.parents[parent]
            if not isinstance(parent, ast.Attribute) or (isinstance(call, ast.Call) and call.func is parent):
                yield load

    # Calls.

    def reads_of(self, facts: ModuleFacts, definition: ast.AST) -> tuple[list[Value], bool]:
        """Where a function or class is read by its name, in all modules."""
        scope = facts.scope(definition)
        name: str = definition.name  # type: ignore[attr-defined]
        found = [Value(facts, load) for load in self.loads(scope, name) if self._means(facts, load, definition)]
        if not scope.is_module:
            return found, False
        others, hidden = self.readers(facts, name)
        return [*found, *others], hidden

    def _means(self, facts: ModuleFacts, load: ast.Name, definition: ast.AST) -> bool:
        return any(one.node is definition for one in self.bindings(facts, load))

    def callers(self, function: Function) -> Callers:
        """Where a function is called."""
        nobody = Callers((), (), hidden=False)
        return self._known.of("callers", function.node, lambda: self._found_callers(function), nobody)

    def returned(self, function: Function) -> list[ast.expr]:
        """The expressions whose values a function returns."""
        if function.node not in self._returned:
            self._returned[function.node] = list(returned(function))
        return self._returned[function.node]

    def _found_callers(self, function: Function) -> Callers:
        if isinstance(function.node, ast.Lambda):
            return self._called(function, [Value(function.facts, function.node)], hidden=False)
        cls = self.class_of(function)
        if cls is None:
            reads, hidden = self.reads_of(function.facts, function.node)
            return self._called(function, reads, hidden=hidden)
        if function.node.name == "__init__":
            sites = [Site(one.facts, one.node, 1) for one in self._built(cls) if isinstance(one.node, ast.Call)]
            found = self._called(function, list(self._called_by_name(cls)), hidden=False)
            return found._replace(sites=(*sites, *found.sites))
        return self._called(function, [read for read, _ in self.attribute_reads(cls, function.node.name)], hidden=False)

    def _called_by_name(self, cls: Class) -> Iterator[Value]:
        """Where the constructor of a class is read: `Base.__init__`, and by `super()` in others of its family."""
        for read in self.reads_of(cls.facts, cls.node)[0]:
            parent = read.facts.structure.parents.get(read.node)
            if isinstance(parent, ast.Attribute) and parent.attr == "__init__":
                yield Value(read.facts, parent)
        for one in self.family(cls).values():
            for node, owner in attribute_reads(one.facts, "__init__") if one.node is not cls.node else ():
                if is_super(owner) and one.facts.class_around(node) is one.node:
                    yield Value(one.facts, node)

    def _built(self, cls: Class) -> Iterator[Value]:
        """The calls of a class, and of those that inherit its constructor."""
        for low in self.descendants(cls):
            if low.node is cls.node or next(iter(self.own_methods(low, "__init__")), None) is None:
                yield from self.constructions(low)

    def _called(self, function: Function, reads: Sequence[Value], *, hidden: bool) -> Callers:
        sites, elsewhere = [], []
        for read in reads:
            parent = read.facts.structure.parents.get(read.node)
            if isinstance(parent, ast.Call) and parent.func is read.node:
                sites.append(Site(read.facts, parent, self._skipped(function, read)))
            elif isinstance(parent, ast.Call) and parent.args and parent.args[0] is read.node:
                if read.facts.names.qualified(parent.func) in _PARTIAL:
                    sites.append(Site(read.facts, parent, self._skipped(function, read), 1))
                else:
                    elsewhere.append(read)
            elif not self._is_harmless(read, parent):
                elsewhere.append(read)
        return Callers(tuple(sites), tuple(elsewhere), hidden)

    def _is_harmless(self, read: Value, parent: ast.AST | None) -> bool:
        """Whether reading a function does not lead to a call of it: a class that is a base or tested for."""
        return isinstance(parent, (ast.ClassDef, ast.Attribute, ast.Compare))

    def _skipped(self, function: Function, read: Value) -> int:
        """How many parameters of a function have their values before its call: 1 for a bound method."""
        if self.class_of(function) is None or self.is_static(function):
            return 0
        if self.is_class_method(function) or not isinstance(read.node, ast.Attribute):
            return 1
        owners = self.origins(read.facts, read.node.value)
        return 0 if owners and all(one.sort is Sort.CLASS for one in owners) else 1

    def argument(self, site: Site, function: Function, parameter: ast.arg) -> Value | None:
        """What a call gives to a parameter, its default included; None where that is not to be seen."""
        arguments = function.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        for keyword in site.call.keywords:
            if keyword.arg == parameter.arg:
                return Value(site.facts, keyword.value)
        given = site.call.args[site.shift :]
        if parameter in positional:
            number = positional.index(parameter) - site.skipped
            if any(isinstance(one, ast.Starred) for one in given[: max(0, number) + 1]):
                return None
            if 0 <= number < len(given):
                return Value(site.facts, given[number])
        if any(keyword.arg is None for keyword in site.call.keywords):
            return None
        default = default_of(function.node, parameter)
        return None if default is None else Value(function.facts, default)


def function_name(function: Function) -> str:
    """The name of a function, none for a lambda."""
    return getattr(function.node, "name", "")


def first_parameter(function: FunctionKind) -> ast.arg | None:
    """The first positional parameter."""
    return next(iter([*function.args.posonlyargs, *function.args.args]), None)


def default_of(function: FunctionKind, parameter: ast.arg) -> ast.expr | None:
    """The default of a parameter."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip(reversed(positional), reversed(arguments.defaults)))
    defaults.update((a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None)
    return defaults.get(parameter)


def own_nodes(function: FunctionKind | ast.Module) -> Iterator[ast.AST]:
    """The nodes in the body of a function, those of functions and classes inside it left out."""
    body = function.body if isinstance(function.body, list) else [function.body]
    waiting: list[ast.AST] = list(reversed(body))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*FunctionNode, ast.ClassDef)):
            waiting += reversed(list(ast.iter_child_nodes(node)))


def returned(function: Function) -> Iterator[ast.expr]:
    """The expressions whose values a function returns."""
    if isinstance(function.node, ast.Lambda):
        yield function.node.body
        return
    for node in own_nodes(function.node):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value


def stored_value(facts: ModuleFacts, store: ast.Attribute) -> ast.expr | None:
    """What is assigned to an attribute, None where it is a part of something."""
    parent = facts.structure.parents.get(store)
    if isinstance(parent, (ast.Assign, ast.AnnAssign)):
        return parent.value
    if isinstance(parent, (ast.Tuple, ast.List)):
        statement = facts.structure.parents.get(parent)
        value = statement.value if isinstance(statement, ast.Assign) else None
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(parent.elts):
            return value.elts[parent.elts.index(store)]
    return None


def attribute_reads(facts: ModuleFacts, name: str) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Where a module reads an attribute of this name, each with what it is read off; by `getattr` too."""
    yield from ((node, node.value) for node in facts.structure.read_attributes.get(name, ()))
    yield from facts.memo(attribute_reads, lambda: _by_getattr(facts)).get(name, ())


def _by_getattr(facts: ModuleFacts) -> dict[str, list[tuple[ast.expr, ast.expr]]]:
    """The calls of `getattr` with a plain name, by that, each with what the attribute is read off."""
    found: dict[str, list[tuple[ast.expr, ast.expr]]] = {}
    for call in facts.structure.calls:
        text = call.args[1] if len(call.args) > 1 else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and getattr(call.func, "id", "") == "getattr":
            found.setdefault(text.value, []).append((call, call.args[0]))
    return found


def _spies(builtin: str, call: ast.Call, name: str) -> bool:
    """Whether a call of a builtin that may get at any name may get at this one.

    What `eval` is given at run time is taken for a number or a type.
    """
    if builtin == "vars":
        return not call.args
    if builtin not in ("eval", "exec"):
        return True
    text = call.args[0] if call.args else None
    return name in str(text.value) if isinstance(text, ast.Constant) else builtin == "exec"


def _has_place(node: ast.expr, place: int) -> bool:
    return isinstance(node, (ast.Tuple, ast.List)) and place < len(node.elts)


def _elements_of(display: ast.AST) -> Sequence[ast.expr]:
    """The values in a display or comprehension."""
    if isinstance(display, ast.Dict):
        return display.values
    if isinstance(display, (ast.List, ast.Tuple, ast.Set)):
        return display.elts
    return [display.value if isinstance(display, ast.DictComp) else display.elt]  # type: ignore[attr-defined]


def _all_puts(facts: ModuleFacts) -> list[tuple[ast.expr, ast.expr]]:
    """What a module puts into collections that are made before: each collection with the value."""
    found = []
    for item in facts.structure.subscripts:
        statement = facts.structure.parents[item]
        if isinstance(statement, ast.Assign) and item in statement.targets:
            found.append((item.value, statement.value))
    for method in ("append", "add", "appendleft", "insert", "setdefault"):
        for call in facts.structure.method_calls.get(method, ()):
            if call.args and isinstance(call.func, ast.Attribute):
                found.append((call.func.value, call.args[-1]))
    return found


def _stores_by_function(facts: ModuleFacts) -> dict[ast.AST, list[ast.Attribute]]:
    found: dict[ast.AST, list[ast.Attribute]] = {}
    for store in facts.structure.stores:
        if isinstance(store.ctx, ast.Store):
            found.setdefault(facts.function(store), []).append(store)
    return found


def _function_of(facts: ModuleFacts, node: ast.arg) -> FunctionKind:
    function = facts.structure.parents[facts.structure.parents[node]]
    assert isinstance(function, FunctionNode)
    return function


def _is_evaluated_in(scope: Scope | None, home: Scope) -> bool:
    """Whether what a scope reads is read while `home` runs: it is that, or comprehensions in it."""
    while scope is not None and scope is not home:
        if not isinstance(scope.node, _COMPREHENSIONS):
            return False
        scope = scope.parent
    return scope is home


def _is_in(binding: Binding, facts: ModuleFacts) -> bool:
    """Whether a binding stands in the function, class or module whose name it binds."""
    return _is_evaluated_in(facts.scope(binding.node), binding.scope)
