"""The value of a condition on a given torch release.

A small evaluator covers the ways in which people test torch's version: the version string and what is parsed from it,
helpers and constants known by name, requirement checks, `hasattr` on FSDP. Flags and helpers of the file are followed
to their definitions. Anything else makes the part that needs it unknown, and is never an error.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from packaging.version import Version

from fsdp_migrate.facts.releases import calls, named_tests
from fsdp_migrate.facts.releases.reach import BoundValue, Flow, ForeignModule, Resolver
from fsdp_migrate.facts.releases.values import ATTRIBUTES, METHODS, Present, TorchVersion, Unknown, allows
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.torch_api import data

# The same release calls itself 2.1.2 or 2.1.2+cu118, depending on where it was installed from.
_BUILDS = ("", "+cu118")
_MAX_STEPS = 500
_MAX_DEPTH = 40
LOCAL = "<file>"
# Stands for an argument or constant whose value is not known; it matters only if something looks at it.
MISSING = object()

Env = Mapping[str, object]


class Outcome(NamedTuple):
    """A condition's value on a release (None: unknown), and whether it may differ on another one."""

    value: bool | None
    varies: bool


def truth(test: ast.expr, release: Version, names: Resolver) -> bool | None:
    """Whether `test` is true on torch `release`, None if more than the torch version decides it."""
    return outcome(test, release, names).value


def outcome(test: ast.expr, release: Version, names: Resolver, flow: Flow | None = None) -> Outcome:
    """The outcome of `test` on `release`; `flow` follows names with several bindings."""
    found: set[bool] = set()
    for build in _BUILDS:
        evaluator = Evaluator(release, f"{release}{build}", names, flow)
        value = evaluator.truth(test, {})
        if not evaluator.varies:
            return Outcome(value, False)
        if value is not None:
            found.add(value)
    return Outcome(found.pop() if len(found) == 1 else None, True)


class Evaluator:
    """Evaluates expressions on one build of one torch release.

    `varies` is true once something was read that differs between releases.
    """

    def __init__(self, release: Version, build: str, names: Resolver, flow: Flow | None) -> None:
        self.release = release
        self.build = build
        self.names = names
        self.flow = flow
        self.varies = False
        self._steps = 0
        self._depth = 0
        self._following: set[ast.expr] = set()

    def truth(self, node: ast.expr, env: Env) -> bool | None:
        """The truth value of `node`, None if it is unknown; it never raises."""
        try:
            return bool(self.condition(node, env))
        except Exception:
            # The expression is the user's: whatever goes wrong in it would go wrong when it runs.
            return None

    def condition(self, node: ast.expr, env: Env) -> Any:
        """The value of `node` as a condition.

        Raises:
            Unknown: as `value`, and for a setting of the program, which somebody may change: anything that neither
                depends on the torch version nor is a literal (`while True`).
        """
        value, varies = self.watched(node, env)
        if not varies and not _is_literal(node, env):
            raise Unknown
        return value

    def watched(self, node: ast.expr, env: Env) -> tuple[Any, bool]:
        """The value of `node` and whether it may differ between releases.

        Raises:
            Unknown: as `value`.
        """
        before, self.varies = self.varies, False
        try:
            return self.value(node, env), self.varies
        finally:
            self.varies = self.varies or before

    def value(self, node: ast.expr, env: Env) -> Any:
        """The value of `node`.

        Raises:
            Unknown: it depends on something else than the torch version. Any other exception is one that evaluating
                the expression raises.
        """
        handler = VALUES.get(type(node))
        self._steps += 1
        if handler is None or self._steps > _MAX_STEPS or self._depth > _MAX_DEPTH:
            raise Unknown
        self._depth += 1
        try:
            return handler(self, node, env)
        finally:
            self._depth -= 1

    def followed(self, definition: ast.expr, env: Env) -> Any:
        """The value that a name is bound to.

        Raises:
            Unknown: as `value`, and when the name occurs in its own definition.
        """
        if definition in self._following:
            raise Unknown
        self._following.add(definition)
        try:
            return self.value(definition, env)
        finally:
            self._following.discard(definition)

    def torch_version(self) -> TorchVersion:
        """torch.__version__ of this build."""
        self.varies = True
        return TorchVersion(self.build)

    def exists(self, name: str) -> bool:
        """Whether this release has the dotted name.

        Raises:
            Unknown: the API data does not cover it.
        """
        self.varies = self.varies or name.startswith(f"{data.PACKAGE}.")
        found = data.exists(name, self.release)
        if found is None:
            raise Unknown
        return found

    def named(self, test: named_tests.NamedTest) -> bool:
        """The outcome of a test that a name states.

        Raises:
            Unknown: the name does not settle it for this release.
        """
        self.varies = True
        result = test.holds(self.release)
        if result is None:
            raise Unknown
        return result

    def symbol(self, qualified: str) -> Any:
        """The value of an imported name.

        Raises:
            Unknown: it is not one that depends on the torch version.
        """
        if qualified in ("torch.__version__", "torch.torch_version.__version__"):
            return self.torch_version()
        if qualified == "torch.version.__version__":
            return str(self.torch_version())
        module, _, name = qualified.rpartition(".")
        if module == "operator" and name in named_tests.NAMES.values():
            return getattr(operator, name)
        if qualified.startswith(f"{data.PACKAGE}.") and self.exists(qualified):
            return Present()
        if module in ("", LOCAL):
            raise Unknown
        try:
            return self._by_name(name)
        except Unknown:
            return _imported_value(self, qualified)

    def _by_name(self, name: str) -> Any:
        """The value of a constant whose name states it.

        Raises:
            Unknown: it does not.
        """
        if (test := named_tests.constant(name)) is not None:
            return self.named(test)
        if named_tests.is_version(name):
            return self.torch_version()
        if name.strip("_").lower() in ("torch_major", "torch_minor"):
            return self.torch_version_part(name)
        raise Unknown

    def torch_version_part(self, name: str) -> int:
        """The value of a constant called TORCH_MAJOR or TORCH_MINOR."""
        self.varies = True
        return self.release.major if name.lower().endswith("major") else self.release.minor

    def agreed(self, candidates: Iterable[Any]) -> Any:
        """The common value of all candidates.

        Raises:
            Unknown: they differ, or there is none.
        """
        values = list(candidates)
        if not values or any(type(other) is not type(values[0]) for other in values[1:]):
            raise Unknown
        if isinstance(values[0], Present) or all(other == values[0] for other in values[1:]):
            return values[0]
        raise Unknown

    def called(
        self, function: ast.FunctionDef | ast.Lambda, call: ast.Call, env: Env, home: Evaluator | None = None
    ) -> Any:
        """The result of a call of a function in this file, or in the file that `home` evaluates."""
        home = self if home is None else home
        inner = _bound(self, function.args, call, env)
        if isinstance(function, ast.Lambda):
            return home.value(function.body, inner)
        if not (is_plain(function) if home.flow is None else home.flow.is_plain(function)):
            raise Unknown
        return home.value(_only_return(function), inner)

    def within(self, module: ForeignModule) -> Evaluator:
        """An evaluator for another module with the same budget."""
        gates = module.gates
        inner = Evaluator(self.release, self.build, gates.names, gates.flags)
        inner._steps, inner._depth = self._steps, self._depth + 1
        return inner

    def bound(self, bound: BoundValue, env: Env) -> Any:
        """The value of one binding of a name.

        Raises:
            Unknown: as `value`.
        """
        if bound.target is not None:
            return self.symbol(bound.target)
        if bound.value is None:
            raise Unknown
        value = self.followed(bound.value, env)
        return value if bound.index is None else value[bound.index]


def _bound(evaluator: Evaluator, args: ast.arguments, call: ast.Call, env: Env) -> Env:
    """The parameters with the values of their arguments; unknown ones are missing, and only matter if they are used."""
    if args.vararg or args.kwarg or any(isinstance(argument, ast.Starred) for argument in call.args):
        raise Unknown
    positional = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    given: dict[str, tuple[ast.expr, Env]] = {}
    for name, default in zip(reversed(positional), reversed(args.defaults)):
        given[name] = (default, {})
    for arg, keyword_default in zip(args.kwonlyargs, args.kw_defaults):
        if keyword_default is not None:
            given[arg.arg] = (keyword_default, {})
    given.update((name, (value, env)) for name, value in zip(positional, call.args))
    for keyword in call.keywords:
        if keyword.arg is None:
            raise Unknown
        given[keyword.arg] = (keyword.value, env)
    bound = dict.fromkeys([*positional, *(arg.arg for arg in args.kwonlyargs)], MISSING)
    for name, (node, scope) in given.items():
        try:
            value, varies = evaluator.watched(node, scope)
        except Exception:
            continue
        # A switch that the caller looks up is a setting, not something the version decides.
        if varies or _is_literal(node, scope) or not isinstance(value, (bool, type(None))):
            bound[name] = value
    return bound


def is_plain(function: ast.FunctionDef) -> bool:
    """Whether a call runs the body and returns its result: no generator, and no decorator except a cache."""
    return is_undecorated(function) and not any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function)
    )


def is_undecorated(function: ast.FunctionDef) -> bool:
    """Whether a function has no decorator except a cache."""
    decorators = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    names = [getattr(d, "attr", getattr(d, "id", None)) for d in decorators]
    return all(name in ("cache", "lru_cache", "staticmethod") for name in names)


def _is_literal(node: ast.expr, env: Env) -> bool:
    """Whether nothing in `node` is looked up, except parameters with known arguments."""
    for part in ast.walk(node):
        if isinstance(part, (ast.Attribute, ast.Call)):
            return False
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id not in env:
            return False
    return True


def _only_return(function: ast.FunctionDef) -> ast.expr:
    """The value of the only return, at the end of a body without branches.

    Raises:
        Unknown: the body has another form.
    """
    *before, end = function.body
    straight = all(isinstance(s, (ast.Expr, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)) for s in before)
    if not straight or not isinstance(end, ast.Return) or end.value is None:
        raise Unknown
    return end.value


def _imported_value(evaluator: Evaluator, qualified: str) -> Any:
    """The value of an imported constant, evaluated in its own module.

    Raises:
        Unknown: it is not bound in the project, or does not follow from the torch version.
    """
    found = _home(evaluator, qualified)
    if found is None or _is_settled(*found):
        raise Unknown
    module, name = found
    outcome = module.memo((_imported_value, name, evaluator.build), lambda: _outcome(evaluator, module, name))
    if outcome is None:
        raise Unknown
    evaluator.varies = True
    return outcome[0]


def _outcome(evaluator: Evaluator, module: ForeignModule, name: str) -> tuple[Any] | None:
    """The value of a name at the end of its module, None if it is unknown or equal on all releases."""
    inner = evaluator.within(module)
    bound, gated = module.gates.flags.bound_to(module.names.exported(name), evaluator.release)
    try:
        result = inner.agreed(inner.bound(one, {}) for one in bound)
    except Exception:
        # The expression is the user's: whatever goes wrong in it would go wrong when it runs.
        result = MISSING
    if not (gated or inner.varies):
        _settled(module).add(name)
        return None
    return None if result is MISSING else (result,)


def _imported_call(evaluator: Evaluator, qualified: str, call: ast.Call, env: Env) -> Any:
    """The result of a call of an imported helper.

    Raises:
        Unknown: it is not defined in the project, or more than the torch version decides what it returns.
    """
    found = _home(evaluator, qualified)
    if found is None or _is_settled(*found):
        raise Unknown
    module, name = found
    bindings = module.names.exported(name)
    inner = evaluator.within(module)
    try:
        if len(bindings) != 1 or not isinstance(bindings[0].node, ast.FunctionDef):
            raise Unknown
        result = evaluator.called(bindings[0].node, call, env, inner)
    finally:
        if not inner.varies:
            _settled(module).add(name)
    if not inner.varies:
        raise Unknown
    evaluator.varies = True
    return result


def _settled(module: ForeignModule) -> set[str]:
    """The names of a module that were found not to depend on torch's version."""
    return module.memo(_settled, set[str])


def _is_settled(module: ForeignModule, name: str) -> bool:
    return name in _settled(module)


def _home(evaluator: Evaluator, qualified: str) -> tuple[ForeignModule, str] | None:
    project = evaluator.names.project
    return None if project is None else project.home(qualified)


_Handler = Callable[["Evaluator", Any, Env], Any]


def _constant(evaluator: Evaluator, node: ast.Constant, env: Env) -> Any:
    return node.value


def _name(evaluator: Evaluator, node: ast.Name, env: Env) -> Any:
    value = _named(evaluator, node, env)
    if isinstance(value, list) and evaluator.flow is not None and evaluator.flow.is_changed(node):
        raise Unknown
    return value


def _named(evaluator: Evaluator, node: ast.Name, env: Env) -> Any:
    qualified = evaluator.names.qualified(node)
    if qualified is not None and not qualified.startswith(data.PACKAGE):
        try:
            return evaluator.symbol(qualified)
        except Unknown:
            if not qualified.startswith(LOCAL):
                raise
    definition = evaluator.names.definition(node)
    if isinstance(definition, ast.expr):
        return evaluator.followed(definition, env)
    if node.id in env:
        if env[node.id] is MISSING:
            raise Unknown
        return env[node.id]
    if evaluator.flow is None:
        raise Unknown
    bound, gated = evaluator.flow.in_force(node, evaluator.release)
    evaluator.varies = evaluator.varies or gated
    return evaluator.agreed(evaluator.bound(one, env) for one in bound)


def _attribute(evaluator: Evaluator, node: ast.Attribute, env: Env) -> Any:
    qualified = evaluator.names.qualified(node)
    is_set = qualified is not None and evaluator.flow is not None and evaluator.flow.is_set(node, qualified)
    if qualified is not None and not is_set:
        try:
            return evaluator.symbol(qualified)
        except Unknown:
            pass
    value = evaluator.value(node.value, env)
    if isinstance(value, TorchVersion):
        value = Version(value)
    if not allows(ATTRIBUTES, value, node.attr):
        raise Unknown
    return getattr(value, node.attr)


def _call(evaluator: Evaluator, node: ast.Call, env: Env) -> Any:
    if isinstance(node.func, ast.Name):
        definition = evaluator.names.definition(node.func)
        if isinstance(definition, (ast.FunctionDef, ast.Lambda)):
            return evaluator.called(definition, node, env)
    qualified = evaluator.names.qualified(node.func)
    if qualified is not None and not qualified.startswith(LOCAL):
        known = calls.find(qualified)
        try:
            if known is not None:
                return known(evaluator, node, env)
            return _imported_call(evaluator, qualified, node, env)
        except Unknown:
            if known is not None:
                return _imported_call(evaluator, qualified, node, env)
    if not isinstance(node.func, ast.Attribute):
        raise Unknown
    owner = evaluator.value(node.func.value, env)
    if not allows(METHODS, owner, node.func.attr) or any(keyword.arg is None for keyword in node.keywords):
        raise Unknown
    arguments = [evaluator.value(argument, env) for argument in node.args]
    keywords = {str(keyword.arg): evaluator.value(keyword.value, env) for keyword in node.keywords}
    return getattr(owner, node.func.attr)(*arguments, **keywords)


def _compare(evaluator: Evaluator, node: ast.Compare, env: Env) -> bool:
    operands = [node.left, *node.comparators]
    unknown = False
    for number, op in enumerate(node.ops):
        try:
            (left, one), (right, other) = (evaluator.watched(operand, env) for operand in operands[number : number + 2])
            # `torch.__version__ == TORCH_VERSION`: one of them must be another version than the name says.
            if one and other:
                raise Unknown
            if not _COMPARE[type(op)](left, right):
                return False
        except Exception:
            unknown = True
    if unknown:
        raise Unknown
    return True


def _is(left: object, right: object) -> bool:
    singletons = (None, True, False)
    if not any(side is single for side in (left, right) for single in singletons):
        raise Unknown
    return left is right


def _contains(left: Any, right: Any) -> bool:
    # `"dev" in torch.__version__`: nightlies and builds are not among the known releases.
    if isinstance(left, str) and isinstance(right, str) and any(character.isalpha() for character in left):
        raise Unknown
    return left in right


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.GtE: operator.ge,
    ast.Gt: operator.gt,
    ast.In: _contains,
    ast.NotIn: lambda left, right: not _contains(left, right),
    ast.Is: _is,
    ast.IsNot: lambda left, right: not _is(left, right),
}


def _bool_op(evaluator: Evaluator, node: ast.BoolOp, env: Env) -> Any:
    decisive = isinstance(node.op, ast.Or)
    value: Any = None
    unknown = False
    for part in node.values:
        try:
            value = evaluator.condition(part, env)
            if bool(value) is decisive:
                return decisive if unknown else value
        except Exception:
            # A later part may still decide.
            unknown = True
    if unknown:
        raise Unknown
    return value


def _unary(evaluator: Evaluator, node: ast.UnaryOp, env: Env) -> Any:
    if isinstance(node.op, ast.Not):
        return not evaluator.condition(node.operand, env)
    value = evaluator.value(node.operand, env)
    if not isinstance(node.op, ast.USub) or not isinstance(value, (int, float)):
        raise Unknown
    return -value


def _if_exp(evaluator: Evaluator, node: ast.IfExp, env: Env) -> Any:
    test = evaluator.truth(node.test, env)
    arms = [node.body] if test else [node.orelse] if test is False else [node.body, node.orelse]
    return evaluator.agreed(evaluator.value(arm, env) for arm in arms)


def _binary(evaluator: Evaluator, node: ast.BinOp, env: Env) -> Any:
    left, right = evaluator.value(node.left, env), evaluator.value(node.right, env)
    kinds: tuple[type, ...] = (str, tuple, list) if isinstance(node.op, ast.Add) else ()
    kinds += (bool,) if isinstance(node.op, (ast.BitAnd, ast.BitOr)) else (int, float)
    if not any(isinstance(left, kind) and isinstance(right, kind) for kind in kinds):
        raise Unknown
    return _BINARY[type(node.op)](left, right)


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}


def _sequence(evaluator: Evaluator, node: ast.Tuple | ast.List | ast.Set, env: Env) -> Any:
    kind = {ast.Tuple: tuple, ast.List: list, ast.Set: list}[type(node)]
    return kind(evaluator.value(element, env) for element in node.elts)


def _subscript(evaluator: Evaluator, node: ast.Subscript, env: Env) -> Any:
    value = evaluator.value(node.value, env)
    if not isinstance(value, (str, tuple, list)):
        raise Unknown
    return value[evaluator.value(node.slice, env)]


def _slice(evaluator: Evaluator, node: ast.Slice, env: Env) -> slice:
    return slice(
        *(None if part is None else evaluator.value(part, env) for part in (node.lower, node.upper, node.step))
    )


def _comprehension(evaluator: Evaluator, node: ast.ListComp | ast.GeneratorExp, env: Env) -> list[Any]:
    generator = node.generators[0]
    if len(node.generators) > 1 or generator.is_async or not isinstance(generator.target, ast.Name):
        raise Unknown
    result = []
    for item in evaluator.value(generator.iter, env):
        inner = {**env, generator.target.id: item}
        if all(evaluator.value(condition, inner) for condition in generator.ifs):
            result.append(evaluator.value(node.elt, inner))
    return result


def _joined(evaluator: Evaluator, node: ast.JoinedStr, env: Env) -> str:
    return "".join(str(evaluator.value(part, env)) for part in node.values)


def _formatted(evaluator: Evaluator, node: ast.FormattedValue, env: Env) -> str:
    if node.format_spec is not None or node.conversion not in (-1, ord("s")):
        raise Unknown
    return str(evaluator.value(node.value, env))


def _walrus(evaluator: Evaluator, node: ast.NamedExpr, env: Env) -> Any:
    return evaluator.value(node.value, env)


VALUES: dict[type[ast.AST], _Handler] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.Compare: _compare,
    ast.BoolOp: _bool_op,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.IfExp: _if_exp,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Set: _sequence,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.JoinedStr: _joined,
    ast.FormattedValue: _formatted,
    ast.NamedExpr: _walrus,
}
