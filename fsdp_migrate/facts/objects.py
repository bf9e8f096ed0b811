"""Objects: all expressions of a project that may stand for what one expression makes, such as `FSDP(...)`.

An object is followed forward, from what gives it to what gets it, through names, attributes, containers that are
written out, calls and returns. In a function what is certainly over before the object is there does not count; else the
order plays no part. What cannot be followed is told as an escape.
"""

from __future__ import annotations

import ast
import builtins
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from fsdp_migrate.facts.narrowing import Checks, Narrowing
from fsdp_migrate.facts.project_code import (
    MODULE_LISTS,
    PLAIN_COLLECTIONS,
    Class,
    Code,
    Function,
    Origin,
    Sort,
    Value,
    default_of,
    first_parameter,
    stored_value,
)
from fsdp_migrate.facts.scopes import Binding, FunctionNode, Kind, Scope
from fsdp_migrate.records import NamedTuple

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts

__all__ = ["Escape", "Followed", "Gone", "Holder", "Nature", "Path", "ProjectCode", "Reference", "Value", "follow"]

BUDGET = 20_000
_MOST_OTHERS = 20
_DEEPEST = 6
_MOST_UNCERTAIN = 40
_MOST_ESCAPES = 30


class Reference(NamedTuple):
    """An expression, read in the module of `facts`, that may stand for the object.

    `others` are expressions whose value it may have instead: a plain model on another arm, another caller's argument.
    The expression itself is among them where it is not known what it is read off.
    """

    facts: ModuleFacts
    node: ast.expr
    others: tuple[Value, ...] = ()


class Escape(NamedTuple):
    """A place behind which the object cannot be followed; `reason` is a clause for the user: "it is kept in ...".

    `step` says what to do about it where that is not to keep the object in sight.
    """

    facts: ModuleFacts
    node: ast.AST
    reason: str
    step: str | None = None


class Holder(NamedTuple):
    """A class of the project whose instances hold the object, and the attribute in which one is put there."""

    cls: Class
    facts: ModuleFacts
    node: ast.expr


class Followed(NamedTuple):
    """Where an object goes.

    `references` are the expressions that something is done with: a member is read, it is called, it is an argument of
    something that is not a function of the project. One that only passes the object on (assigned, returned, given to a
    function of the project) is in `passed`. `made` are the calls of makers.
    """

    references: tuple[Reference, ...]
    passed: tuple[Reference, ...]
    escapes: tuple[Escape, ...]
    holders: tuple[Holder, ...] = ()
    made: tuple[Value, ...] = ()


class Nature(NamedTuple):
    """What is known of the objects that are followed.

    `is_class` knows their class in a test, `is_base` one that it derives from, `is_other` one that they are certainly
    not of. `methods` return the object itself; so do `functions` of other packages, given by their full names, with
    their first argument.
    """

    is_class: Callable[[ModuleFacts, ast.expr], bool] = lambda _facts, _node: False
    is_base: Callable[[ModuleFacts, ast.expr], bool] = lambda _facts, _node: False
    is_other: Callable[[ModuleFacts, ast.expr], bool] = lambda _facts, _node: False
    methods: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()


PLAIN = Nature()
_FEW = 3_000


class _Step(NamedTuple):
    """A part of the way from a value to the object in it: an item, what a call returns, what `with` enters."""

    kind: str
    key: object = None


_ANY = _Step("item", ...)
_ANY_ENTRY = _Step("entry", ...)  # of a dict: looping over it gives the keys
_ANY_KEY = _Step("key")
_BUILT = _Step("built")  # what a maker gives when it is called
_CALLED, _ENTERED, _AWAITED = _Step("called"), _Step("entered"), _Step("awaited")
Path = tuple[_Step, ...]

# Where the object is in what a seed gives: in each element, in each pair as its second part, as its first.
EACH: Path = (_ANY,)
EACH_SECOND: Path = (_ANY, _Step("item", 1))
EACH_FIRST: Path = (_ANY, _Step("item", 0))
EACH_OF_GROUPS: Path = (_ANY, _Step("entry", "params"), _ANY)  # the parameters in `param_groups` of an optimizer

_COPIES = frozenset(f"builtins.{name}" for name in "list tuple set frozenset reversed iter sorted filter".split())
_CHAINING = "itertools.chain"
_ITERATING = _COPIES | {"builtins.enumerate", "builtins.zip", "builtins.next", _CHAINING}
# What does not hand on what it gets.
_KEEPING = frozenset({"copy.deepcopy", "torch.save", "builtins.super", "builtins.vars", "builtins.hasattr"})
_LOOKING = frozenset(f"builtins.{name}" for name in "len bool id type isinstance print repr str hash callable".split())
# What takes a function, and does nothing with its result.
_DROPPING = frozenset({"spawn", "Thread", "Process", "launch", "elastic_launch", "start_processes", "Fire", "register"})
# Decorators that hand arguments and results on; others of torch do so too.
_TRANSPARENT = frozenset({"record", "rank_zero_only", "wraps", "main_process_only", "beartype", "typechecked"})
_TRANSPARENT_PACKAGES = ("torch", "functools", "builtins", "abc", "typing", "typing_extensions", "tqdm", "contextlib")
_DISPATCHING = frozenset({"functools.singledispatch", "functools.singledispatchmethod"})
_MANAGERS = frozenset({"contextlib.contextmanager", "contextlib.asynccontextmanager"})
# Attributes of functions that call nothing.
_OF_FUNCTIONS = frozenset({"cache_clear", "cache_info", "func", "args", "keywords"})
_KEPT = ("item", "entry", "key")
_LOOPED = ("item", "key")
_COLLECTING = frozenset({"append", "add", "insert", "appendleft", "extend", "update"})
_OF_PAIRS = ("builtins.dict", "collections.OrderedDict")
_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_SPECIAL = frozenset(
    {"__init__", "__call__", "forward", "__getitem__", "__getattr__", "__iter__", "__next__", "__new__"}
)
# Names of functions that are run from outside, and whose result nobody gets.
_ENTRIES = frozenset({"main", "cli", "cli_main", "worker", "fsdp_main"})


def follow(
    seeds: Iterable[Value],
    budget: int = BUDGET,
    nature: Nature = PLAIN,
    code: Code | None = None,
    path: Path = (),
    makers: Iterable[Value] = (),
    *,
    others: bool = True,
) -> Followed:
    """Where the objects go that some expressions give; `makers` give functions or classes that do so when called.

    `budget` is how many steps may be taken; where they do not do, that is an escape. `code` shares what is known of the
    project with other questions. `path` leads from what a seed gives to the objects that are meant (`EACH`). Without
    `others` the references do not say what they may be instead.
    """
    return _Following(tuple(seeds), nature, code or ProjectCode(), path, tuple(makers)).run(budget, others=others)


class Gone(NamedTuple):
    """Where the instances of a class go: the classes that hold some, and all expressions that may be one."""

    holders: tuple[Holder, ...]
    places: frozenset[ast.AST]


_NOT_GONE = Gone((), frozenset())


class ProjectCode(Code):
    """What is known of the code of a project, with where the instances of its classes go."""

    def instances(self, cls: Class) -> frozenset[ast.AST] | None:
        """See `Code.instances`."""
        return self._known.of("instances", cls.node, lambda: self._found_instances(cls), None)

    def _found_instances(self, cls: Class) -> frozenset[ast.AST] | None:
        every = self.family(cls).values()
        if not all(_is_plain_use(read) for one in every for read in self._all_reads(one)):
            return None
        following = _Whole(self._seeds(cls), PLAIN, self, (), ())
        try:
            following.go(_FEW)
        except _LostError:
            return None
        return frozenset(following.objects)

    def _seeds(self, cls: Class) -> tuple[Value, ...]:
        """Where the instances of a family of classes come from."""
        every = self.family(cls).values()
        return tuple(seed for one in every for seed in (*self.constructions(one), *self._selves(one)))

    def _all_reads(self, cls: Class) -> Iterator[Value | None]:
        """Where a class is read; None among them where more may be hidden."""
        reads, hidden = self.reads_of(cls.facts, cls.node)
        yield from reads
        if hidden:
            yield None

    def gone(self, cls: Class) -> Gone:
        """Where the instances of a class, and of others of its family, go as far as they are followed."""
        return self._known.of("gone", cls.node, lambda: self._found_gone(cls), _NOT_GONE)

    def _found_gone(self, cls: Class) -> Gone:
        following = _Following(self._seeds(cls), PLAIN, self, (), ())
        following.go(_FEW)
        return Gone(tuple(following.holders.values()), frozenset(following.objects))

    def _selves(self, cls: Class) -> Iterator[Value]:
        """Where the methods of a class do something else with `self` than to read its attributes."""
        for method in cls.node.body:
            if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            first = first_parameter(method)
            home = None if first is None else cls.facts.structure.starts.get(first)
            if first is None or home is None or self.is_static(Function(cls.facts, method)):
                continue
            for load in self.loads(home, first.arg):
                if not isinstance(cls.facts.structure.parents[load], ast.Attribute):
                    yield Value(cls.facts, load)


class _Following:
    """What has been found so far, and what is left to look at."""

    def __init__(
        self, seeds: tuple[Value, ...], nature: Nature, code: Code, path: Path, makers: tuple[Value, ...]
    ) -> None:
        self.seeds = seeds
        self.makers = makers
        self.path = path
        self.nature = nature
        self.code = code
        self.waiting: deque[tuple[ModuleFacts, ast.AST, Path]] = deque()
        self.seen: set[tuple[ast.AST, Path]] = set()
        self.objects: dict[ast.AST, ModuleFacts] = {}  # the expressions that may be the object
        self.used: dict[ast.expr, ModuleFacts] = {}
        self.passed: dict[ast.expr, ModuleFacts] = {}
        self.uncertain: set[ast.AST] = set()
        self.targets: set[ast.AST] = set()
        self.made: dict[ast.expr, ModuleFacts] = {}
        self.escapes: dict[tuple[ast.AST, str], Escape] = {}
        self.holders: dict[tuple[ast.AST, ast.AST], Holder] = {}
        self._narrowed: dict[ast.expr, bool | None] = {}

    def run(self, budget: int, *, others: bool) -> Followed:
        """Where the objects go, and what else each expression may be."""
        self.go(budget)
        alternatives = _Others(self).of if others else _no_others
        return Followed(
            tuple(Reference(facts, node, alternatives(facts, node)) for node, facts in self.used.items()),
            tuple(Reference(facts, node, alternatives(facts, node)) for node, facts in self.passed.items()),
            tuple(self.escapes.values()),
            tuple(self.holders.values()),
            tuple(Value(facts, node) for node, facts in self.made.items()),
        )

    def go(self, budget: int) -> None:
        """Follow until nothing is left."""
        for seed in self.seeds:
            self.flow(seed.facts, seed.node, self.path)
        for maker in self.makers:
            self.flow(maker.facts, maker.node, (_BUILT,))
        steps = 0
        while self.waiting:
            facts, node, path = self.waiting.popleft()
            steps += 1
            self.code.spend()
            if steps > budget:
                self.escape(facts, node, f"it was followed for {budget:,} steps and is still passed on")
                break
            if len(self.escapes) > _MOST_ESCAPES:
                self.escape(facts, node, f"it gets lost in more than {_MOST_ESCAPES} places, and is not followed on")
                break
            self.look(facts, node, path)

    def flow(self, facts: ModuleFacts, node: ast.AST, path: Path) -> None:
        """The object is in what `node` gives, at the end of `path`."""
        if len(path) > _DEEPEST:
            self.escape(facts, node, "it is kept in containers within containers")
            return
        if (node, path) in self.seen:
            return
        if not path:
            if self.narrowed(facts, node) is False:
                return
            self.objects[node] = facts
        self.seen.add((node, path))
        self.waiting.append((facts, node, path))

    def escape(self, facts: ModuleFacts, node: ast.AST, reason: str) -> None:
        """The object gets lost here."""
        self.escapes.setdefault((node, reason), Escape(facts, node, reason))

    def use(self, facts: ModuleFacts, node: ast.AST, path: Path) -> None:
        """Something is done with a value: with the object, or with a container that then has nothing to do with it."""
        if not path and isinstance(node, ast.expr):
            self.used[node] = facts

    def use_in(self, facts: ModuleFacts, node: ast.AST, _parent: ast.AST, path: Path) -> None:
        """What is around only looks at a value."""
        self.use(facts, node, path)

    def pass_on(self, facts: ModuleFacts, node: ast.AST, path: Path) -> None:
        if not path and isinstance(node, ast.expr):
            self.passed[node] = facts

    # What is around an expression.

    def look(self, facts: ModuleFacts, node: ast.AST, path: Path) -> None:
        """See what is done with the value of an expression."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.spread_function(Function(facts, node), path)
            return
        parent = facts.structure.parents[node]
        handler = _HANDLERS.get(type(parent))
        if handler is not None:
            handler(self, facts, node, parent, path)
        elif path and isinstance(parent, (ast.expr, ast.keyword, ast.match_case)):
            self.escape(facts, node, "it is kept in a collection that is used in another way")
        else:
            self.use(facts, node, path)

    def at_augmented(self, facts: ModuleFacts, node: ast.AST, parent: ast.AugAssign, path: Path) -> None:
        if not path:
            self.use(facts, node, path)
        elif not self.put(facts, node, parent.target, _anywhere(path)):
            self.escape(facts, node, f"it is kept in `{ast.unparse(parent.target)}`")

    def at_operation(self, facts: ModuleFacts, node: ast.AST, parent: ast.BinOp, path: Path) -> None:
        """Collections that are put together."""
        if path and path[0].kind in _KEPT:
            self.flow(facts, parent, _anywhere(path))
        else:
            self.use(facts, node, path)

    def at_assign(self, facts: ModuleFacts, node: ast.AST, parent: ast.Assign, path: Path) -> None:
        self.pass_on(facts, node, path)
        for target in parent.targets:
            self.bind(facts, target, path, node)

    def at_annotated(self, facts: ModuleFacts, node: ast.AST, parent: ast.AnnAssign, path: Path) -> None:
        if node is parent.value:
            self.pass_on(facts, node, path)
            self.bind(facts, parent.target, path, node)

    def at_walrus(self, facts: ModuleFacts, node: ast.AST, parent: ast.NamedExpr, path: Path) -> None:
        self.pass_on(facts, node, path)
        self.bind(facts, parent.target, path, node)
        self.flow(facts, parent, path)

    def at_expression(self, facts: ModuleFacts, node: ast.AST, parent: ast.Expr, path: Path) -> None:
        """A statement that drops its value."""
        self.pass_on(facts, node, path)

    def at_return(self, facts: ModuleFacts, node: ast.AST, parent: ast.Return, path: Path) -> None:
        self.pass_on(facts, node, path)
        function = facts.function(parent)
        if not isinstance(function, ast.Module):
            self.flow_result(Function(facts, function), path)  # type: ignore[arg-type]

    def at_lambda(self, facts: ModuleFacts, node: ast.AST, parent: ast.Lambda, path: Path) -> None:
        if node is parent.body:
            self.pass_on(facts, node, path)
            self.flow(facts, parent, (_CALLED, *path))

    def at_arguments(self, facts: ModuleFacts, node: ast.AST, parent: ast.arguments, path: Path) -> None:
        """The default of a parameter."""
        self.pass_on(facts, node, path)
        function = facts.structure.parents[parent]
        assert isinstance(function, FunctionNode)
        for parameter in (*parent.posonlyargs, *parent.args, *parent.kwonlyargs):
            if default_of(function, parameter) is node:
                self.bind_parameter(Function(facts, function), parameter, path)

    def at_yield(self, facts: ModuleFacts, node: ast.AST, parent: ast.Yield | ast.YieldFrom, path: Path) -> None:
        self.pass_on(facts, node, path)
        function = facts.function(parent)
        if isinstance(function, ast.Module):
            return
        made = Function(facts, function)  # type: ignore[arg-type]
        if not _MANAGERS.isdisjoint(self.code.decorators(made)):
            self.flow_result(made, (_ENTERED, *path))
        elif isinstance(parent, ast.Yield):
            self.flow_result(made, (_ANY, *path))
        else:
            self.flow_result(made, path)

    def at_await(self, facts: ModuleFacts, node: ast.AST, parent: ast.Await, path: Path) -> None:
        if path[:1] == (_AWAITED,):
            self.flow(facts, parent, path[1:])
        else:
            self.use(facts, node, path)

    def at_choice(self, facts: ModuleFacts, node: ast.AST, parent: ast.IfExp, path: Path) -> None:
        if node is parent.test:
            self.use(facts, node, path)
        else:
            self.pass_on(facts, node, path)
            self.flow(facts, parent, path)

    def at_bool(self, facts: ModuleFacts, node: ast.AST, parent: ast.BoolOp, path: Path) -> None:
        if node is parent.values[-1]:
            self.pass_on(facts, node, path)
        else:
            self.use(facts, node, path)
        if node is parent.values[-1] or isinstance(parent.op, ast.Or):
            self.flow(facts, parent, path)

    def at_sequence(
        self, facts: ModuleFacts, node: ast.AST, parent: ast.Tuple | ast.List | ast.Set, path: Path
    ) -> None:
        self.pass_on(facts, node, path)
        before = parent.elts[: parent.elts.index(node)]  # type: ignore[arg-type]
        fixed = not isinstance(parent, ast.Set) and not any(isinstance(one, ast.Starred) for one in before)
        if isinstance(parent, (ast.Tuple, ast.List)) and not isinstance(parent.ctx, ast.Load):
            self.use(facts, node, path)
        else:
            self.flow(facts, parent, (_Step("item", len(before)) if fixed else _ANY, *path))

    def at_starred(self, facts: ModuleFacts, node: ast.AST, parent: ast.Starred, path: Path) -> None:
        outer = facts.structure.parents[parent]
        if not path or path[0].kind != "item":
            self.use(facts, node, path)  # of a dict it takes the keys
        elif isinstance(outer, ast.Call):
            number = outer.args.index(parent)
            if isinstance(path[0].key, int) and not any(isinstance(one, ast.Starred) for one in outer.args[:number]):
                self.give(facts, parent, outer, number + path[0].key, path[1:])
            elif len(path) > 1 and facts.names.qualified(outer.func) == _CHAINING:
                self.give(facts, parent, outer, number, path[1:])  # whichever argument it is
            else:
                self.escape(facts, node, "it is among arguments that are unpacked with `*`")
        elif isinstance(outer, (ast.Tuple, ast.List, ast.Set)):
            self.flow(facts, outer, (_ANY, *path[1:]))

    def at_dict(self, facts: ModuleFacts, node: ast.AST, parent: ast.Dict, path: Path) -> None:
        if node in parent.keys:
            self.use(facts, node, path)
            self.escape(facts, node, "it is the key of a dict")
            return
        self.pass_on(facts, node, path)
        key = parent.keys[parent.values.index(node)]  # type: ignore[arg-type]
        if key is None:
            self.flow(facts, parent, path)
        else:
            self.flow(facts, parent, (_entry(key), *path))

    def at_subscript(self, facts: ModuleFacts, node: ast.AST, parent: ast.Subscript, path: Path) -> None:
        if node is parent.slice or not path:
            self.use(facts, node, path)
        elif path[0].kind in _KEPT and path[0] != _ANY_KEY and isinstance(parent.ctx, ast.Load):
            if isinstance(parent.slice, ast.Slice):
                self.flow(facts, parent, (_ANY, *path[1:]))
            elif _matches(path[0], _key(parent.slice)):
                self.flow(facts, parent, path[1:])

    def at_attribute(self, facts: ModuleFacts, node: ast.AST, parent: ast.Attribute, path: Path) -> None:
        call = facts.structure.parents[parent]
        called = call if isinstance(call, ast.Call) and call.func is parent else None
        if not path:
            self.use(facts, node, path)
            if called is not None and parent.attr in self.nature.methods:
                self.flow(facts, called, ())
            return
        if path[0].kind in _KEPT and called is not None:
            self.in_collection(facts, called, parent.attr, path)
        elif path[0] == _ENTERED and called is not None and parent.attr in ("__enter__", "__aenter__"):
            self.flow(facts, called, path[1:])
        elif not parent.attr.startswith("__") and parent.attr not in _OF_FUNCTIONS and not self._is_named(facts, node):
            self.escape(facts, node, f"`{ast.unparse(parent)}` may get at it")

    def _is_named(self, facts: ModuleFacts, node: ast.AST) -> bool:
        """Whether a collection is a named tuple of the project, whose attributes are followed by themselves."""
        origins = self.code.origins(facts, node) if isinstance(node, ast.expr) else ()
        return any(one.sort is Sort.INSTANCE for one in origins)

    def in_collection(self, facts: ModuleFacts, call: ast.Call, method: str, path: Path) -> None:
        """A method of a collection that holds the object is called."""
        if path[0] == _ANY_KEY:
            if method in ("items", "keys"):
                self.flow(facts, call, (_ANY, *((_Step("item", 0),) if method == "items" else ()), *path[1:]))
        elif method == "values":
            self.flow(facts, call, (_ANY, *path[1:]))
        elif method == "items":
            self.flow(facts, call, (_ANY, _Step("item", 1), *path[1:]))
        elif method in ("get", "pop", "setdefault", "__getitem__"):
            shifted = method == "pop" and path[0].kind == "item"
            if not call.args or shifted or _matches(path[0], _key(call.args[0])):
                self.flow(facts, call, path[1:])
        elif method == "popitem":
            self.flow(facts, call, (_Step("item", 1), *path[1:]))
        elif method == "copy":
            self.flow(facts, call, path)

    def at_call(self, facts: ModuleFacts, node: ast.AST, parent: ast.Call, path: Path) -> None:
        if node is parent.func:
            if path[:1] == (_BUILT,):
                self.made[parent] = facts
            if path[:1] in ((_CALLED,), (_BUILT,)):
                self.flow(facts, parent, path[1:])
            else:
                self.use(facts, node, path)
            return
        self.give(facts, node, parent, parent.args.index(node), path)  # type: ignore[arg-type]

    def at_keyword(self, facts: ModuleFacts, node: ast.AST, parent: ast.keyword, path: Path) -> None:
        call = facts.structure.parents[parent]
        if not isinstance(call, ast.Call):
            self.escape(facts, node, "it is given to the making of a class")
        elif parent.arg is not None:
            self.give(facts, node, call, parent.arg, path)
        elif path and path[0].kind == "entry" and isinstance(path[0].key, str):
            self.give(facts, node, call, path[0].key, path[1:])
        elif path:
            self.escape(facts, node, "it is among arguments that are unpacked with `**`")
        else:
            self.use(facts, node, path)

    def at_loop(self, facts: ModuleFacts, node: ast.AST, parent: ast.For | ast.AsyncFor, path: Path) -> None:
        if path and path[0].kind in _LOOPED:
            self.bind(facts, parent.target, path[1:], node)
        else:
            self.use(facts, node, path)

    def at_comprehension(self, facts: ModuleFacts, node: ast.AST, parent: ast.comprehension, path: Path) -> None:
        if node is parent.iter and path and path[0].kind in _LOOPED:
            self.bind(facts, parent.target, path[1:], node)
        else:
            self.use(facts, node, path)

    def at_elements(self, facts: ModuleFacts, node: ast.AST, parent: ast.expr, path: Path) -> None:
        """The element of a comprehension."""
        self.pass_on(facts, node, path)
        step = _ANY
        if isinstance(parent, ast.DictComp):
            step = _ANY_KEY if node is parent.key else _ANY_ENTRY
        self.flow(facts, parent, (step, *path))

    def at_with(self, facts: ModuleFacts, node: ast.AST, parent: ast.withitem, path: Path) -> None:
        if path[:1] == (_ENTERED,):
            if parent.optional_vars is not None:
                self.bind(facts, parent.optional_vars, path[1:], node)
            return
        self.use(facts, node, path)
        if not path and parent.optional_vars is not None:
            self.bind(facts, parent.optional_vars, path, node)

    def at_comparison(self, facts: ModuleFacts, node: ast.AST, parent: ast.Compare, path: Path) -> None:
        self.use(facts, node, path)

    def at_match(self, facts: ModuleFacts, node: ast.AST, parent: ast.Match, path: Path) -> None:
        self.use(facts, node, path)
        self.escape(facts, node, "a `match` statement takes it apart")

    def at_assert(self, facts: ModuleFacts, node: ast.AST, parent: ast.AST, path: Path) -> None:
        self.use(facts, node, path)

    # Calls.

    def give(self, facts: ModuleFacts, node: ast.AST, call: ast.Call, place: int | str, path: Path) -> None:
        """A value is an argument, by its number or keyword."""
        callees = self.code.origins(facts, call.func)
        functions = [one for one in callees if one.sort is Sort.FUNCTION]
        for callee in functions:
            assert isinstance(callee.node, FunctionNode)
            self.pass_on(facts, node, path)
            skipped = self._skipped(callee, facts, call)
            self.enter(Function(callee.facts, callee.node), skipped, facts, node, place, path)
        for callee in callees:
            if callee.sort is Sort.CLASS:
                assert isinstance(callee.node, ast.ClassDef)
                self.construct(Class(callee.facts, callee.node), facts, node, call, place, path)
            elif callee.sort is Sort.INSTANCE:
                self.call_instance(callee, facts, node, call, place, path)
            elif callee.sort is not Sort.FUNCTION:
                self.give_away(facts, node, call, callee, place, path)
        if not callees:
            self.give_away(facts, node, call, Origin(Sort.UNKNOWN, facts, call.func), place, path)

    def _skipped(self, callee: Origin, facts: ModuleFacts, call: ast.Call) -> int:
        """How many parameters in front are not for the arguments of a call."""
        if callee.bound:
            return 1
        return 0

    def call_instance(
        self, callee: Origin, facts: ModuleFacts, node: ast.AST, call: ast.Call, place: int | str, path: Path
    ) -> None:
        assert isinstance(callee.node, ast.ClassDef)
        cls = Class(callee.facts, callee.node)
        methods = self.code.methods(cls, "__call__") or self.code.methods(cls, "forward")
        for method in methods:
            self.pass_on(facts, node, path)
            self.enter(method, 1, facts, node, place, path)
        if not methods:
            self.give_away(facts, node, call, callee, place, path)

    def enter(
        self, function: Function, skipped: int, facts: ModuleFacts, node: ast.AST, place: int | str, path: Path
    ) -> None:
        """A value gets to the parameter of a function that an argument is for."""
        if not self.is_plain(function):
            self.escape(facts, node, f"{_called(function)} has a decorator that may replace it")
        arguments = function.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        if isinstance(place, int):
            number = place + skipped
            if number < len(positional):
                self.bind_parameter(function, positional[number], path)
            elif arguments.vararg is not None:
                inner = _Step("item", number - len(positional))
                self.bind_parameter(function, arguments.vararg, (inner, *path))
            return
        named = next((one for one in (*arguments.args, *arguments.kwonlyargs) if one.arg == place), None)
        if named is not None:
            self.bind_parameter(function, named, path)
        elif arguments.kwarg is not None:
            self.bind_parameter(function, arguments.kwarg, (_Step("entry", place), *path))

    def construct(
        self, cls: Class, facts: ModuleFacts, node: ast.AST, call: ast.Call, place: int | str, path: Path
    ) -> None:
        """A value is an argument of a class of the project."""
        fields = self.code.fields(cls)
        if fields:
            name = fields[place] if isinstance(place, int) and place < len(fields) else place
            if isinstance(name, str):
                self.pass_on(facts, node, path)
                self.keep(cls, name, facts, node, path, None)
                if self.code.is_tuple(cls):
                    self.flow(facts, call, (_Step("item", fields.index(name) if name in fields else ...), *path))
                return
        for above in self.code.ancestors(cls):
            methods = [*self.code.own_methods(above, "__init__"), *self.code.own_methods(above, "__new__")]
            for method in methods:
                self.pass_on(facts, node, path)
                self.enter(method, 1, facts, node, place, path)
            if methods:
                return
        self.give_away(facts, node, call, Origin(Sort.ELSEWHERE, facts, call.func, f"{cls.node.name}"), place, path)

    def give_away(
        self, facts: ModuleFacts, node: ast.AST, call: ast.Call, callee: Origin, place: int | str, path: Path
    ) -> None:
        """A value is an argument of something that is not of the project, or unknown."""
        name = callee.name or ""
        last = name.rpartition(".")[2] or getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name == "builtins.setattr" and place == 2:
            self.set_attribute(facts, node, call, path)
            return
        if last in _COLLECTING and isinstance(call.func, ast.Attribute):
            if self.collect(facts, node, call.func, path):
                return
            if last not in ("add", "update"):  # which are methods of much else
                self.use(facts, node, path)
                self.escape(facts, node, f"it is kept in `{ast.unparse(call.func.value)}`")
                return
        if name == "functools.partial" and place != 0:
            self.give_partly(facts, node, call, place, path)
            return
        if name == "builtins.dict" and isinstance(place, str):
            self.pass_on(facts, node, path)
            self.flow(facts, call, (_Step("entry", place), *path))
            return
        if not path:
            self.use(facts, node, path)
            if name in self.nature.functions and (place in (0, "model", "module")):
                self.flow(facts, call, ())
            if name == "contextlib.nullcontext":
                self.flow(facts, call, (_ENTERED,))
            return
        if path[0].kind in ("called", "built"):
            self.give_function(facts, node, call, name, last, path)
        elif path[0].kind in _KEPT:
            self.give_collection(facts, node, call, name, last, place, path)
        elif (path[0] == _AWAITED and last in ("run", "run_until_complete")) or (
            path[0] == _ENTERED and last in ("enter_context", "enter_async_context")
        ):
            self.flow(facts, call, path[1:])
        else:
            self.escape(facts, node, f"it is in something that is given to `{ast.unparse(call.func)}`")

    def give_function(
        self, facts: ModuleFacts, node: ast.AST, call: ast.Call, name: str, last: str, path: Path
    ) -> None:
        """A function that returns the object is an argument."""
        if name in ("functools.partial", "functools.lru_cache", "functools.cache", "functools.wraps"):
            self.flow(facts, call, path)
        elif last not in _DROPPING and name not in _LOOKING:
            what = "what makes it" if path[0] == _BUILT else "a function that returns it"
            self.escape(facts, node, f"{what} is given to `{ast.unparse(call.func)}`")

    def give_collection(
        self, facts: ModuleFacts, node: ast.AST, call: ast.Call, name: str, last: str, place: int | str, path: Path
    ) -> None:
        """A collection that holds the object is an argument."""
        if name in _OF_PAIRS and not isinstance(place, str):
            in_front = path[0].kind == "item" and path[1:2] == (_Step("item", 0),)
            step = _ANY_KEY if in_front else _ANY_ENTRY
            self.flow(facts, call, (step, *path[2:]) if path[0].kind == "item" else path)
        elif path[0] == _ANY_KEY and name in _ITERATING:
            self.give_collection(facts, node, call, name, last, place, (_ANY, *path[1:]))
        elif path[0].kind == "entry" and name in _ITERATING:
            pass  # they take the keys
        elif name in _COPIES:
            fixed = name in ("builtins.list", "builtins.tuple", "builtins.iter")
            self.flow(facts, call, path if fixed else (_ANY, *path[1:]))
        elif name == "builtins.enumerate":
            self.flow(facts, call, (_ANY, _Step("item", 1), *path[1:]))
        elif name == "builtins.zip" and isinstance(place, int):
            self.flow(facts, call, (_ANY, _Step("item", place), *path[1:]))
        elif name == "builtins.next":
            self.flow(facts, call, path[1:])
        elif name == _CHAINING and path[0].kind == "item":
            self.flow(facts, call, (_ANY, *path[1:]))
        elif name == f"{_CHAINING}.from_iterable" and [one.kind for one in path[:2]] == ["item", "item"]:
            self.flow(facts, call, (_ANY, *path[2:]))
        elif name in MODULE_LISTS:
            self.flow(facts, call, path)
        elif name not in _LOOKING:
            self.escape(facts, node, f"it is in a collection that is given to `{ast.unparse(call.func)}`")

    def give_partly(self, facts: ModuleFacts, node: ast.AST, call: ast.Call, place: int | str, path: Path) -> None:
        """A value is an argument of `partial`, for the function that this gets."""
        functions = [one for one in self.code.origins(facts, call.args[0]) if one.sort is Sort.FUNCTION]
        for one in functions:
            assert isinstance(one.node, FunctionNode)
            self.pass_on(facts, node, path)
            number = place - 1 if isinstance(place, int) else place
            self.enter(Function(one.facts, one.node), int(one.bound), facts, node, number, path)
        if not functions:
            self.use(facts, node, path)
            if path:
                self.escape(facts, node, f"it is in something that is given to `{ast.unparse(call.args[0])}`")

    def collect(self, facts: ModuleFacts, node: ast.AST, func: ast.Attribute, path: Path) -> bool:
        """A value is put into a collection by one of its methods; False where it is not seen to be a collection."""
        if func.attr in ("extend", "update"):
            return self.put(facts, node, func.value, path) if path else False
        return self.put(facts, node, func.value, (_ANY, *path))

    def put(self, facts: ModuleFacts, node: ast.AST, collection: ast.expr, path: Path) -> bool:
        """A value is put into a collection that is held by a name or attribute; False where it gets out of sight."""
        if isinstance(collection, ast.Subscript):  # of a dict, unless it has a number
            index = isinstance(collection.slice, ast.Constant) and isinstance(collection.slice.value, int)
            step = _key(collection.slice) if index else _entry(collection.slice)
            return self.put(facts, node, collection.value, (step, *path))
        if isinstance(collection, ast.IfExp):
            first, second = (self.put(facts, node, one, path) for one in (collection.body, collection.orelse))
            return first and second
        origins = self.code.origins(facts, collection)
        if not origins or not all(_is_collection(one) for one in origins):
            return False
        if isinstance(collection, ast.Name):
            home = facts.scope(collection).lookup(collection.id)
            if home is not None and not home.is_module:
                self.pass_on(facts, node, path[1:])
                for load in self.code.loads(home, collection.id):
                    self.flow(facts, load, path)
                return True
        if isinstance(collection, ast.Attribute):
            owners = self.code.owners(facts, collection.value)
            if owners and all(one.sort is Sort.INSTANCE for one in owners):
                self.pass_on(facts, node, path[1:])
                for one in owners:
                    assert isinstance(one.node, ast.ClassDef)
                    self.keep(Class(one.facts, one.node), collection.attr, facts, node, path, None)
                return True
        return False

    def set_attribute(self, facts: ModuleFacts, node: ast.AST, call: ast.Call, path: Path) -> None:
        """`setattr(owner, name, value)`."""
        names = self.code.texts(facts, call.args[1])
        if names is not None:
            self.pass_on(facts, node, path)
            for name in sorted(names):
                self.store(facts, node, call.args[0], name, path, None)
        else:
            self.use(facts, node, path)
            self.escape(facts, node, "it becomes an attribute whose name is made at run time")

    # Names and attributes.

    def bind(self, facts: ModuleFacts, target: ast.AST, path: Path, value: ast.AST) -> None:
        """A value is assigned to a target."""
        self.targets.add(target)
        if isinstance(target, ast.Name):
            self.bind_name(facts, target, path)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(facts, target, path, value)
        elif isinstance(target, ast.Starred):
            self.bind(facts, target.value, path, value)
        elif isinstance(target, ast.Attribute):
            self.store(facts, value, target.value, target.attr, path, target)
        elif isinstance(target, ast.Subscript):
            dicts = any(isinstance(one.node, ast.Dict) for one in self.code.origins(facts, target.value))
            step = _entry(target.slice) if dicts else _key(target.slice)
            if not self.put(facts, value, target.value, (step, *path)):
                self.escape(facts, target, f"it is kept in `{ast.unparse(target.value)}`")

    def unpack(self, facts: ModuleFacts, target: ast.Tuple | ast.List, path: Path, value: ast.AST) -> None:
        if not path or path[0].kind != "item":
            self.use(facts, value, path)
            return
        key = path[0].key
        size = len(value.elts) if isinstance(value, (ast.Tuple, ast.List)) else None
        starred = next((n for n, one in enumerate(target.elts) if isinstance(one, ast.Starred)), None)
        for number, one in enumerate(target.elts):
            if starred is None or number < starred:
                is_meant = not isinstance(key, int) or key == number
            elif number == starred:
                behind = len(target.elts) - number - 1
                is_meant = not isinstance(key, int) or (number <= key and (size is None or key < size - behind))
            else:
                is_meant = not isinstance(key, int) or size is None or key - size == number - len(target.elts)
            if is_meant:
                self.bind(facts, one, (_ANY, *path[1:]) if number == starred else path[1:], value)

    def bind_name(self, facts: ModuleFacts, target: ast.Name, path: Path) -> None:
        home = facts.scope(target).lookup(target.id)
        if home is None:
            return
        found = home.bindings[target.id]
        binding = next((one for one in found if one.node is target), None)
        if binding is not None:
            self.spread(facts, home, binding, path)

    def bind_parameter(self, function: Function, parameter: ast.arg, path: Path) -> None:
        home = function.facts.structure.starts[parameter]
        binding = next(one for one in home.bindings[parameter.arg] if one.node is parameter)
        self.spread(function.facts, home, binding, path)

    def spread(self, facts: ModuleFacts, home: Scope, binding: Binding, path: Path) -> None:
        """A name of a scope has the value; see where it is read."""
        name = binding.name
        for call in self.code.spying(facts, home, name):
            self.escape(facts, call, f"`{ast.unparse(call.func)}` may get at `{name}`")
        for load in self.code.loads(home, name):
            if binding in self.code.bindings(facts, load):
                self.flow(facts, load, path)
        if home.is_class:
            assert isinstance(home.node, ast.ClassDef)
            self.keep(Class(facts, home.node), name, facts, binding.node, path, None)
        elif home.is_module:
            others, hidden = self.code.readers(facts, name)
            for read in others:
                self.flow(read.facts, read.node, path)
            if hidden:
                self.escape(facts, binding.node, f"a file that may import `{name}` cannot be parsed")

    def store(
        self,
        facts: ModuleFacts,
        node: ast.AST,
        owner: ast.expr,
        name: str,
        path: Path,
        target: ast.Attribute | None,
    ) -> None:
        """A value becomes the attribute `name` of `owner`."""
        owners = self.code.owners(facts, owner)
        for one in owners:
            if one.sort in (Sort.INSTANCE, Sort.CLASS):
                assert isinstance(one.node, ast.ClassDef)
                self.keep(Class(one.facts, one.node), name, facts, node, path, target)
        if not owners or any(one.sort not in (Sort.INSTANCE, Sort.CLASS) for one in owners):
            self.escape(facts, target or node, f"it is kept in `{ast.unparse(owner)}.{name}`")

    def keep(
        self, cls: Class, name: str, facts: ModuleFacts, node: ast.AST, path: Path, target: ast.Attribute | None
    ) -> None:
        """Instances of a class have the value as an attribute; see where it is read."""
        if isinstance(node, ast.expr):
            self.holders.setdefault((cls.node, node), Holder(cls, facts, target or node))
        setters = [method for method in self.code.methods(cls, name) if self._is_setter(method, name)]
        for method in setters:
            parameters = method.node.args.args
            if len(parameters) > 1:
                self.bind_parameter(method, parameters[1], path)
        uncertain = []
        reads = self.code.attribute_reads(cls, name)
        self.code.spend(len(reads))
        for read, certain in reads:
            if target is not None and not self.may_reach(facts, target, read):
                continue
            if certain:
                self.flow(read.facts, read.node, path)
            else:
                uncertain.append(read)
        if len(uncertain) > _MOST_UNCERTAIN:
            self.escape(facts, node, f"`{name}` of objects of unknown classes is read in {len(uncertain)} places")
        else:
            for read in uncertain:
                self.uncertain.add(read.node)
                self.flow(read.facts, read.node, path)
        for place, names in self.code.spies(cls):
            if names is None:
                reason = f"attributes such as `{name}` are read by names made at run time"
                self.escape(place.facts, place.node, reason)
            elif name in names:
                self.flow(place.facts, place.node, path)

    def _is_setter(self, method: Function, name: str) -> bool:
        found = getattr(method.node, "decorator_list", ())
        return any(isinstance(one, ast.Attribute) and one.attr == "setter" for one in found)

    def may_reach(self, facts: ModuleFacts, target: ast.Attribute, read: Value) -> bool:
        """Whether what is stored in an attribute may be there where it is read."""
        if self._is_in_constructor(read) and facts.class_around(target) is not read.facts.class_around(read.node):
            return False  # code outside of the class gets an object once its constructor is over
        if read.facts is not facts or not isinstance(read.node, ast.Attribute):
            return True
        if facts.function(read.node) is not facts.function(target):
            return not self._is_before(facts, read.node)
        text = ast.unparse(target)
        if ast.unparse(read.node) != text:
            return True
        function = facts.function(target)
        stores = [one for one in self.code.stores_in(facts, function) if ast.unparse(one) == text]
        return self.code.reaching(facts).may_reach(target, read.node, text, stores)

    def _is_in_constructor(self, read: Value) -> bool:
        """Whether an attribute is read of the object that a constructor makes."""
        function = read.facts.function(read.node)
        if getattr(function, "name", "") != "__init__" or not isinstance(read.node, ast.Attribute):
            return False
        first = first_parameter(function)  # type: ignore[arg-type]
        return first is not None and isinstance(read.node.value, ast.Name) and first.arg == read.node.value.id

    def _is_before(self, facts: ModuleFacts, read: ast.Attribute) -> bool:
        """Whether a constructor that has just assigned an attribute reads it before other code gets the object."""
        function = facts.function(read)
        if getattr(function, "name", "") != "__init__" or not isinstance(read.value, ast.Name):
            return False
        first = first_parameter(function)  # type: ignore[arg-type]
        if first is None or first.arg != read.value.id:
            return False
        text = ast.unparse(read)
        reaching = self.code.reaching(facts)
        stores = [one for one in self.code.stores_in(facts, function) if ast.unparse(one) == text]
        above = [one for one in stores if reaching.dominates(one, read, text)]
        if not above:
            return False
        last = max(above, key=lambda one: (one.lineno, one.col_offset))
        return not any(
            (last.lineno, last.col_offset) < (load.lineno, load.col_offset) < (read.lineno, read.col_offset)
            for load in self.code.handed_out(facts, function, first.arg)
        )

    # Functions that return the object.

    def flow_result(self, function: Function, path: Path) -> None:
        """A function returns the value."""
        if isinstance(function.node, ast.Lambda):
            self.flow(function.facts, function.node, (_CALLED, *path))
            return
        if isinstance(function.node, ast.AsyncFunctionDef) and path[:1] not in ((_ANY,), (_ENTERED,)):
            path = (_AWAITED, *path)
        self.flow(function.facts, function.node, path)

    def spread_function(self, function: Function, path: Path) -> None:
        """See where a function is read that returns the value."""
        node = function.node
        assert not isinstance(node, ast.Lambda)
        if not self.is_plain(function):
            self.escape(function.facts, node, f"{_called(function)} has a decorator that may replace it")
        cls = self.code.class_of(function)
        if cls is not None and node.name in _SPECIAL:
            if node.name != "__init__":
                self.escape(function.facts, node, f"`{node.name}` returns it")
            return
        if cls is not None:
            inner = path if self.code.is_property(function) else (_CALLED, *path)
            reads = self.code.attribute_reads(cls, node.name)
            for read, certain in reads:
                if not certain:
                    self.uncertain.add(read.node)
                self.flow(read.facts, read.node, inner)
            if not reads:
                self.unseen(function)
            return
        found, hidden = self.code.reads_of(function.facts, node)
        for read in found:
            self.flow(read.facts, read.node, (_CALLED, *path))
        if hidden:
            self.escape(function.facts, node, f"a file that may call `{node.name}` cannot be parsed")
        if not found:
            self.unseen(function)

    def unseen(self, function: Function) -> None:
        """Nothing in the project calls a function that returns the object."""
        name = getattr(function.node, "name", "")
        made_here = any(seed.facts.function(seed.node) is function.node for seed in self.seeds)
        # Who has an instance gets at its attributes without such a method.
        if name not in _ENTRIES and (made_here or self.code.class_of(function) is None):
            self.escape(function.facts, function.node, f"`{name}` returns it, and nothing in the project calls that")

    def is_plain(self, function: Function) -> bool:
        """Whether the decorators of a function hand on arguments and results."""
        if isinstance(function.node, ast.Lambda):
            return True
        for decorator in function.node.decorator_list:
            bare = decorator.func if isinstance(decorator, ast.Call) else decorator
            if isinstance(bare, ast.Attribute) and bare.attr in ("setter", "getter", "deleter"):
                continue
            name = function.facts.names.qualified(bare) or ""
            if name.startswith("builtins.") and not hasattr(builtins, name.removeprefix("builtins.")):
                return False
            if name in _DISPATCHING:
                return False
            if name.split(".")[0] in _TRANSPARENT_PACKAGES or name.rpartition(".")[2] in _TRANSPARENT:
                continue
            if name == "hydra.main":
                continue
            made = [one for one in self.code.origins(function.facts, bare) if one.sort is Sort.FUNCTION]
            if not made or not all(_hands_on(one.node) for one in made):
                return False
        return True

    # Tests of the class.

    def narrowed(self, facts: ModuleFacts, node: ast.AST) -> bool | None:
        """True where a test around an expression makes certain that it is the object, False that it is not."""
        if self.nature is PLAIN or not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        if node not in self._narrowed:
            self._narrowed[node] = self._find_narrowed(facts, node)
        return self._narrowed[node]

    def _find_narrowed(self, facts: ModuleFacts, node: ast.Name | ast.Attribute) -> bool | None:
        nature = self.nature
        checks: Checks = facts.memo(follow, dict)
        narrowing = Narrowing(
            facts.names,
            lambda cls: nature.is_class(facts, cls),
            lambda _model: False,
            checks,
            lambda cls: nature.is_other(facts, cls),
            lambda cls: nature.is_base(facts, cls),
        )
        if narrowing.narrows(node):
            return True
        return False if narrowing.excludes(node) else None


class _LostError(Exception):
    """An object is not followed everywhere."""


class _Whole(_Following):
    """Follows objects as long as all of their way is seen.

    Raises:
        _LostError: one gets lost, or other packages get one, which may then turn up anywhere.
    """

    def escape(self, facts: ModuleFacts, node: ast.AST, reason: str) -> None:
        """See `_Following.escape`."""
        raise _LostError

    def use(self, facts: ModuleFacts, node: ast.AST, path: Path) -> None:
        """See `_Following.use`."""
        if path or not isinstance(node, ast.expr):
            return
        parent = facts.structure.parents[node]
        if isinstance(parent, ast.keyword):
            parent = facts.structure.parents[parent]
        if isinstance(parent, ast.Call) and parent.func is not node:
            callees = self.code.origins(facts, parent.func)
            if not callees or not all(one.name in _LOOKING or one.name in _KEEPING for one in callees):
                raise _LostError


def _no_others(_facts: ModuleFacts, _node: ast.expr) -> tuple[Value, ...]:
    return ()


class _Others:
    """What expressions that may be the object may be instead."""

    def __init__(self, following: _Following) -> None:
        self.following = following
        self.code = following.code
        self._near: dict[ast.expr, tuple[Value, ...]] = {}

    def of(self, facts: ModuleFacts, node: ast.expr) -> tuple[Value, ...]:
        """The other values of an expression that may be the object."""
        waiting, seen = [Value(facts, node)], {node}
        found: dict[Value, None] = {}
        while waiting and len(found) < _MOST_OTHERS:
            for value in self._from(waiting.pop()):
                if value.node not in self.following.objects or value.node in self.following.uncertain:
                    found[value] = None
                if value.node in self.following.objects and value.node not in seen:
                    seen.add(value.node)
                    waiting.append(value)
        return tuple(found)[:_MOST_OTHERS]

    def _from(self, value: Value) -> tuple[Value, ...]:
        """The values that an expression may have, as they are written where it gets them from."""
        if value.node not in self._near:
            is_certain = self.following.narrowed(value.facts, value.node)
            self._near[value.node] = () if is_certain else tuple(dict.fromkeys(self._found(*value)))
        return self._near[value.node]

    def _value(self, facts: ModuleFacts, node: ast.expr) -> Iterator[Value]:
        """A value that is the object, or is not made from it."""
        if node in self.following.objects or node not in self.following.targets:
            yield Value(facts, node)

    def _found(self, facts: ModuleFacts, node: ast.expr) -> Iterator[Value]:
        if any(seed.node is node for seed in self.following.seeds):
            return
        if node in self.following.uncertain:
            yield Value(facts, node)
        if isinstance(node, ast.Name):
            for binding in self.code.bindings(facts, node):
                yield from self._of_binding(facts, binding)
        elif isinstance(node, ast.Attribute):
            yield from self._of_attribute(facts, node)
        elif isinstance(node, ast.Call):
            yield from self._of_call(facts, node)
        elif isinstance(node, ast.IfExp):
            yield from (Value(facts, node.body), Value(facts, node.orelse))
        elif isinstance(node, ast.BoolOp):
            yield from (Value(facts, value) for value in node.values)
        elif isinstance(node, ast.NamedExpr):
            yield Value(facts, node.value)

    def _of_binding(self, facts: ModuleFacts, binding: Binding) -> Iterator[Value]:
        if binding.kind is Kind.IMPORT and facts.project is not None:
            for target in facts.names.targets(binding):
                found = facts.project.definition(target) if target is not None else None
                for one in () if found is None else found[1]:
                    yield from self._of_binding(found[0], one)  # type: ignore[index]
        elif isinstance(binding.node, ast.arg):
            yield from self._of_parameter(facts, binding.node)
        elif binding.value is not None:
            yield from self._value(facts, binding.value)

    def _of_parameter(self, facts: ModuleFacts, node: ast.arg) -> Iterator[Value]:
        made = facts.structure.parents[facts.structure.parents[node]]
        function = Function(facts, made)  # type: ignore[arg-type]
        for site in self.code.callers(function).sites:
            given = self.code.argument(site, function, node)
            if given is not None:
                yield from self._value(given.facts, given.node)

    def _of_attribute(self, facts: ModuleFacts, node: ast.Attribute) -> Iterator[Value]:
        for owner in self.code.origins(facts, node.value):
            if owner.sort in (Sort.INSTANCE, Sort.CLASS):
                assert isinstance(owner.node, ast.ClassDef)
                cls = Class(owner.facts, owner.node)
                for method in self.code.methods(cls, node.attr):
                    for value in self.code.returned(method) if self.code.is_property(method) else ():
                        yield from self._value(method.facts, value)
                for store in self._stores(cls, facts, node):
                    yield from self._value(store.facts, store.node)

    def _stores(self, cls: Class, facts: ModuleFacts, node: ast.Attribute) -> Iterator[Value]:
        """What may be there of all that is assigned to an attribute."""
        stores = self.code.stores(cls, node.attr)
        function, text = facts.function(node), ast.unparse(node)
        near = [one for one in self.code.stores_in(facts, function) if ast.unparse(one) == text]
        reaching = self.code.reaching(facts)
        if any(reaching.dominates(one, node, text) for one in near):
            there = {stored_value(facts, one) for one in near if reaching.may_reach(one, node, text, near)}
            yield from (store for store in stores if store.node in there)
            return
        around = facts.class_around(node)
        for store in stores:
            if not self._is_gone(store) and not self._is_hidden(store, facts, around, node.attr):
                yield store

    def _is_hidden(self, store: Value, facts: ModuleFacts, around: ast.ClassDef | None, name: str) -> bool:
        """Whether a base's constructor stores a value, and that of the class around always the object after it."""
        function = store.facts.function(store.node)
        above = store.facts.class_around(store.node)
        if getattr(function, "name", "") != "__init__" or around is None or above is None or above is around:
            return False
        cls = Class(facts, around)
        if above not in [one.node for one in self.code.ancestors(cls)]:
            return False
        for method in self.code.own_methods(cls, "__init__"):
            for own in self.code.stores_in(facts, method.node):
                is_made = own.attr == name and stored_value(facts, own) in self.following.objects
                if is_made and facts.structure.parents[facts.statement(own)] is method.node:
                    return True
        return False

    def _is_gone(self, store: Value) -> bool:
        """Whether the function that stores a value certainly stores the object over it."""
        target = store.facts.structure.parents.get(store.node)
        if not isinstance(target, ast.Assign) or len(target.targets) != 1:
            return False
        attribute = target.targets[0]
        function = store.facts.function(target)
        text = ast.unparse(attribute)
        for other in self.code.stores_in(store.facts, function):
            value = stored_value(store.facts, other)
            if value not in self.following.objects or ast.unparse(other) != text:
                continue
            if self.code.reaching(store.facts).follows(attribute, other, text):
                return True
        return False

    def _of_call(self, facts: ModuleFacts, node: ast.Call) -> Iterator[Value]:
        for callee in self.code.origins(facts, node.func):
            if callee.sort is Sort.FUNCTION:
                function = Function(callee.facts, callee.node)  # type: ignore[arg-type]
                for value in self.code.returned(function):
                    yield from self._value(function.facts, value)
        if isinstance(node.func, ast.Attribute) and node.func.value in self.following.objects:
            yield from self._value(facts, node.func.value)
        for argument in node.args[:1]:
            if argument in self.following.objects and self.code.origins(facts, node.func):
                yield from self._value(facts, argument)


_HANDLERS: dict[type[ast.AST], Callable[..., None]] = {
    ast.Assign: _Following.at_assign,
    ast.AnnAssign: _Following.at_annotated,
    ast.NamedExpr: _Following.at_walrus,
    ast.Expr: _Following.at_expression,
    ast.AugAssign: _Following.at_augmented,
    ast.BinOp: _Following.at_operation,
    **dict.fromkeys((ast.UnaryOp, ast.FormattedValue), _Following.use_in),
    ast.Return: _Following.at_return,
    ast.Lambda: _Following.at_lambda,
    ast.arguments: _Following.at_arguments,
    ast.Yield: _Following.at_yield,
    ast.YieldFrom: _Following.at_yield,
    ast.Await: _Following.at_await,
    ast.IfExp: _Following.at_choice,
    ast.BoolOp: _Following.at_bool,
    **dict.fromkeys((ast.Tuple, ast.List, ast.Set), _Following.at_sequence),
    ast.Starred: _Following.at_starred,
    ast.Dict: _Following.at_dict,
    ast.Subscript: _Following.at_subscript,
    ast.Attribute: _Following.at_attribute,
    ast.Call: _Following.at_call,
    ast.keyword: _Following.at_keyword,
    **dict.fromkeys((ast.For, ast.AsyncFor), _Following.at_loop),
    ast.comprehension: _Following.at_comprehension,
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp), _Following.at_elements),
    ast.withitem: _Following.at_with,
    ast.Compare: _Following.at_comparison,
    ast.Match: _Following.at_match,
}


def _is_plain_use(read: Value | None) -> bool:
    """Whether a class is called where it is read, or its instances are not made from there."""
    if read is None:
        return False
    parents = read.facts.structure.parents
    parent = parents.get(read.node)
    if isinstance(parent, ast.Call) and read.node in parent.args:
        return read.facts.names.qualified(parent.func) in (
            "builtins.isinstance",
            "builtins.issubclass",
            "builtins.super",
        )
    if isinstance(parent, (ast.Tuple, ast.List)):
        outer = parents.get(parent)
        return isinstance(outer, ast.Call) and read.facts.names.qualified(outer.func) == "builtins.isinstance"
    plain = (ast.Call, ast.ClassDef, ast.Attribute, ast.Compare, ast.arg, ast.AnnAssign, ast.Subscript, ast.BinOp)
    return isinstance(parent, (*plain, ast.FunctionDef, ast.AsyncFunctionDef))


def _key(node: ast.expr) -> _Step:
    """The step to an item."""
    return _Step("item", node.value) if isinstance(node, ast.Constant) else _ANY


def _anywhere(path: Path) -> Path:
    """The way into a collection that another one is added to: places in a list are others then."""
    return (_ANY, *path[1:]) if path[0].kind == "item" else path


def _entry(node: ast.expr) -> _Step:
    """The step to an entry of a dict."""
    return _Step("entry", node.value) if isinstance(node, ast.Constant) else _ANY_ENTRY


def _is_collection(origin: Origin) -> bool:
    """Whether something is a list, dict or the like that the project makes."""
    return isinstance(origin.node, _DISPLAYS) or (origin.name or "").startswith(PLAIN_COLLECTIONS)


def _matches(one: _Step, other: _Step) -> bool:
    """Whether two steps may lead to the same item."""
    return one.key == other.key or ... in (one.key, other.key) or (isinstance(other.key, int) and other.key < 0)


def _called(function: Function) -> str:
    return f"`{getattr(function.node, 'name', 'a lambda')}`"


def _hands_on(node: ast.AST) -> bool:
    """Whether a decorator of the project calls what it decorates with all the arguments that it gets."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute)):
            starred = any(isinstance(one, ast.Starred) for one in call.args)
            if starred and any(one.arg is None for one in call.keywords):
                return True
    return False
