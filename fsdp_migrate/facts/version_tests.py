"""What a condition comes to on a given torch release.

A small evaluator folds the forms in which people ask for torch's version: the version string and what is parsed from
it, helpers and constants known by their names, requirement checks, `hasattr` on FSDP. Flags and helpers of the same
file are followed to their definitions. Whatever else occurs makes the part that needs it unknown, never an error.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from packaging.version import Version

from fsdp_migrate.facts import version_homes, version_names
from fsdp_migrate.facts.version_expressions import LOCAL, MISSING, VALUES, Env
from fsdp_migrate.facts.version_values import Present, TorchVersion, Unknown
from fsdp_migrate.torch_api import data

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts

# The same release calls itself 2.1.2 or 2.1.2+cu118, depending on where it was installed from.
_BUILDS = ("", "+cu118")
_MAX_STEPS = 500
_MAX_DEPTH = 40


class Names(Protocol):
    """What the evaluator asks of the resolver of a module."""

    def qualified(self, node: ast.expr) -> str | None:
        """The dotted name of an expression, as imported: `torch.__version__`, `.imports.is_torch_version`."""

    def definition(self, node: ast.Name) -> ast.expr | ast.FunctionDef | None:
        """The expression or function that a name is bound to, None unless there is exactly one binding."""


@dataclass(frozen=True)
class Held:
    """What a name may hold: the value of an expression (item `index` of it, in an unpacking), or an imported name."""

    value: ast.expr | None = None
    index: int | None = None
    target: str | None = None


class Flow(Protocol):
    """What the evaluator asks of the control flow of a module, for names and functions with several outcomes."""

    def in_force(self, node: ast.Name, release: Version) -> tuple[Sequence[Held], bool]:
        """Everything that a name may hold on `release`, and whether that depends on the release.

        Nothing at all when one of the bindings is not understood.
        """

    def is_set(self, node: ast.Attribute, qualified: str) -> bool:
        """Whether the file gives the attribute that `node` reads, by its full name, another value."""

    def is_changed(self, node: ast.Name) -> bool:
        """Whether the file changes a list by one of its names."""

    def is_plain(self, function: ast.FunctionDef) -> bool:
        """Whether a call runs the body of a function and returns what it returns."""

    def returned(self, function: ast.FunctionDef, release: Version) -> tuple[Sequence[ast.expr], bool]:
        """Everything that a function may return on `release`, and whether that depends on the release.

        Nothing at all when it may also end without a value.
        """


class Outcome(NamedTuple):
    """A condition's value on a release (None: unknown), and whether another release could give another one."""

    value: bool | None
    varies: bool


def truth(test: ast.expr, release: Version, names: Names) -> bool | None:
    """Whether `test` is true when running on torch `release`, None when that takes more than the torch version."""
    return outcome(test, release, names).value


def outcome(test: ast.expr, release: Version, names: Names, flow: Flow | None = None) -> Outcome:
    """The outcome of `test` on `release`; `flow` lets it follow names that have several bindings."""
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
    """Evaluates expressions as they come out on one build of one torch release.

    `varies` becomes true once anything that differs between releases was looked at.
    """

    def __init__(self, release: Version, build: str, names: Names, flow: Flow | None) -> None:
        self.release = release
        self.build = build
        self.names = names
        self.flow = flow
        self.varies = False
        self._steps = 0
        self._depth = 0
        self._following: set[ast.expr] = set()

    def truth(self, node: ast.expr, env: Env) -> bool | None:
        """The truth value of `node`, None when unknown; it never raises."""
        try:
            return bool(self.condition(node, env))
        except Exception:
            # The expression is the user's: whatever goes wrong in it would go wrong when it runs.
            return None

    def condition(self, node: ast.expr, env: Env) -> Any:
        """The value of `node` where its truth is asked for.

        Raises:
            Unknown: as `value`, and when it is a setting of the program, which somebody may change: anything that
                neither depends on the torch version nor is written out on the spot (`while True`).
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
        """The value of what a name is bound to.

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

    def named(self, test: version_names.NamedTest) -> bool:
        """The outcome of a test that a name spells out.

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
        if module == "operator" and name in version_names.NAMES.values():
            return getattr(operator, name)
        if qualified.startswith(f"{data.PACKAGE}.") and self.exists(qualified):
            return Present()
        if module in ("", LOCAL):
            raise Unknown
        try:
            return self._by_name(name)
        except Unknown:
            return version_homes.value(self, qualified)

    def _by_name(self, name: str) -> Any:
        """The value of a constant whose name says what it holds.

        Raises:
            Unknown: it does not.
        """
        if (test := version_names.constant(name)) is not None:
            return self.named(test)
        if version_names.is_version(name):
            return self.torch_version()
        if name.strip("_").lower() in ("torch_major", "torch_minor"):
            return self.torch_version_part(name)
        raise Unknown

    def torch_version_part(self, name: str) -> int:
        """The value of a constant called TORCH_MAJOR or TORCH_MINOR."""
        self.varies = True
        return self.release.major if name.lower().endswith("major") else self.release.minor

    def agreed(self, candidates: Iterable[Any]) -> Any:
        """The value that all candidates have.

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
        """What calling a function of this file returns, or of the file that `home` evaluates."""
        home = self if home is None else home
        inner = _bound(self, function.args, call, env)
        if isinstance(function, ast.Lambda):
            return home.value(function.body, inner)
        if not (is_plain(function) if home.flow is None else home.flow.is_plain(function)):
            raise Unknown
        if home.flow is None:
            returned: Sequence[ast.expr] = _only_return(function)
        else:
            returned, gated = home.flow.returned(function, self.release)
            home.varies = home.varies or gated
        return home.agreed(home.value(node, inner) for node in returned)

    def within(self, facts: ModuleFacts) -> Evaluator:
        """An evaluator for another module, which goes on with the same budget."""
        gates = facts.gates
        inner = Evaluator(self.release, self.build, gates.names, gates.flags)
        inner._steps, inner._depth = self._steps, self._depth + 1
        return inner

    def held(self, held: Held, env: Env) -> Any:
        """The value of one of the things that a name may hold.

        Raises:
            Unknown: as `value`.
        """
        if held.target is not None:
            return self.symbol(held.target)
        if held.value is None:
            raise Unknown
        value = self.followed(held.value, env)
        return value if held.index is None else value[held.index]


def _bound(evaluator: Evaluator, args: ast.arguments, call: ast.Call, env: Env) -> Env:
    """The parameters with their arguments; those that cannot be evaluated are missing, which matters only if needed."""
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
    """Whether a call runs the body and returns what it returns: no generator, no decorator but a cache."""
    return is_undecorated(function) and not any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function)
    )


def is_undecorated(function: ast.FunctionDef) -> bool:
    """Whether a function has no decorator but a cache."""
    decorators = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    names = [getattr(d, "attr", getattr(d, "id", None)) for d in decorators]
    return all(name in ("cache", "lru_cache", "staticmethod") for name in names)


def _is_literal(node: ast.expr, env: Env) -> bool:
    """Whether nothing in `node` is looked up, parameters with known arguments aside."""
    for part in ast.walk(node):
        if isinstance(part, (ast.Attribute, ast.Call)):
            return False
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id not in env:
            return False
    return True


def _only_return(function: ast.FunctionDef) -> list[ast.expr]:
    """The value of the one return that a straight-line body ends with."""
    *before, end = function.body
    straight = all(isinstance(s, (ast.Expr, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)) for s in before)
    return [end.value] if straight and isinstance(end, ast.Return) and end.value is not None else []
