"""Calls in version tests: parsers of versions, helpers of libraries, and questions about what torch has."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from packaging.version import Version

from fsdp_migrate.facts.releases import named_tests
from fsdp_migrate.facts.releases.reach import Resolver
from fsdp_migrate.facts.releases.values import (
    Distribution,
    LooseVersion,
    Present,
    Signature,
    StrictVersion,
    TorchVersion,
    Unknown,
)
from fsdp_migrate.torch_api import data


class Evaluating(Protocol):
    """Evaluates expressions on one build of one release; see `evaluator.Evaluator`."""

    release: Version
    names: Resolver
    varies: bool

    def value(self, node: ast.expr, env: Mapping[str, object]) -> Any:
        """The value of `node`."""

    def torch_version(self) -> TorchVersion:
        """torch.__version__ of this build."""

    def exists(self, name: str) -> bool:
        """Whether this release has the dotted name."""

    def named(self, test: named_tests.NamedTest) -> bool:
        """The outcome of a test that a name states."""


_Call = Callable[["Evaluating", ast.Call, Mapping[str, object]], Any]


def find(qualified: str) -> _Call | None:
    """The evaluation of a call of the imported `qualified`, None if it is unknown.

    Helpers of other libraries are known by their last name, because projects have their own copies of them.
    """
    module, _, name = qualified.rpartition(".")
    if module == "builtins" and name in BUILTINS:
        return _builtin(BUILTINS[name])
    if qualified in _BY_PATH:
        return _BY_PATH[qualified]
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name == "parse" and "version" in module:
        return _parsed(Version)
    symbol = named_tests.function(name)
    if symbol is not None:
        return _named_comparison(symbol)
    test = named_tests.constant(name)
    if test is not None:
        return lambda evaluator, node, env: evaluator.named(test)
    if named_tests.is_version(name):
        return lambda evaluator, node, env: evaluator.torch_version()
    return None


def _argument(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object], index: int, *keywords: str) -> Any:
    """The value of an argument by position or keyword.

    Raises:
        Unknown: it is absent, or its value is not known.
    """
    if any(isinstance(argument, ast.Starred) for argument in node.args):
        raise Unknown
    if index < len(node.args):
        return evaluator.value(node.args[index], env)
    for keyword in node.keywords:
        if keyword.arg in keywords:
            return evaluator.value(keyword.value, env)
    raise Unknown


def _qualified(evaluator: Evaluating, node: ast.Call) -> str:
    """The dotted name of the first argument, an object of torch."""
    qualified = evaluator.names.qualified(node.args[0]) if node.args else None
    if qualified is None:
        raise Unknown
    return qualified


def _parsed(kind: Callable[[str], Any]) -> _Call:
    return lambda evaluator, node, env: kind(_argument(evaluator, node, env, 0, "version", "version_str", "vstring"))


def _builtin(function: Callable[..., Any]) -> _Call:
    def call(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> Any:
        if node.keywords:
            raise Unknown
        values = [_argument(evaluator, node, env, index) for index in range(len(node.args))]
        if function is not bool and any(isinstance(value, Present) for value in values):
            raise Unknown
        return function(*values)

    return call


def _map(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> list[Any]:
    qualified = _qualified(evaluator, node)
    function = {"builtins.int": int, "builtins.str": str, "builtins.float": float}.get(qualified)
    if function is None or len(node.args) != 2:
        raise Unknown
    return [function(item) for item in _argument(evaluator, node, env, 1)]


def _named_comparison(symbol: str) -> _Call:
    def call(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> bool:
        wanted = _argument(evaluator, node, env, 0, "version", "library_version", "min_version", "torch_version")
        evaluator.varies = True
        result = named_tests.passes(symbol, evaluator.release, Version(str(wanted)))
        if result is None:
            raise Unknown
        return result

    return call


def _is_torch_version(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> bool:
    """`is_torch_version(">=", "2.1")` of accelerate, transformers and diffusers."""
    symbol = _argument(evaluator, node, env, 0, "operation")
    wanted = _argument(evaluator, node, env, 1, "version")
    return bool(named_tests.COMPARISONS[symbol](Version(evaluator.torch_version()), Version(str(wanted))))


def _compare_version(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> bool:
    """`compare_version("torch", operator.ge, "2.1.0")` of Lightning, `compare_versions("torch", ">=", "2.1")`."""
    package = _argument(evaluator, node, env, 0, "package", "library_or_version")
    compare = _argument(evaluator, node, env, 1, "op", "operation")
    wanted = _argument(evaluator, node, env, 2, "version", "requirement_version")
    compare = named_tests.COMPARISONS[compare] if isinstance(compare, str) else compare
    return bool(compare(_version_of(evaluator, package), Version(str(wanted))))


def _version_of(evaluator: Evaluating, package: object) -> Version:
    if isinstance(package, Version):
        return package
    if package == "torch":
        return Version(evaluator.torch_version())
    raise Unknown


def _requirement(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> bool:
    """`RequirementCache("torch>=2.1")` of lightning_utilities."""
    from packaging.requirements import Requirement  # takes longer to load than most files take

    requirement = Requirement(_argument(evaluator, node, env, 0, "requirement"))
    if requirement.name.lower() != "torch":
        raise Unknown
    return requirement.specifier.contains(Version(evaluator.torch_version()), prereleases=True)


def _installed(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> str:
    if _argument(evaluator, node, env, 0, "distribution_name", "name", "package_name") != "torch":
        raise Unknown
    return str(evaluator.torch_version())


def _distribution(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> Distribution:
    return Distribution(_installed(evaluator, node, env))


def _package_version(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> Any:
    """A project's own `get_package_version("torch")`, which may return a string or a parsed version."""
    _installed(evaluator, node, env)
    return evaluator.torch_version()


def _hasattr(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> bool:
    return evaluator.exists(f"{_qualified(evaluator, node)}.{_argument(evaluator, node, env, 1)}")


def _getattr(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> Any:
    if _hasattr(evaluator, node, env):
        return Present()
    return _argument(evaluator, node, env, 2)


def _callable(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> bool:
    value = _argument(evaluator, node, env, 0)
    if isinstance(value, Present):
        return True
    if value is None:
        return False
    raise Unknown


def _signature(evaluator: Evaluating, node: ast.Call, env: Mapping[str, object]) -> Signature:
    parameters = data.signature(_qualified(evaluator, node), evaluator.release)
    evaluator.varies = True
    if parameters is None:
        raise Unknown
    return Signature(tuple(parameter.name for parameter in parameters))


BUILTINS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (int, float, str, bool, tuple, list, len, any, all, min, max)
}

_BY_PATH: dict[str, _Call] = {
    "builtins.map": _map,
    "builtins.hasattr": _hasattr,
    "builtins.getattr": _getattr,
    "builtins.callable": _callable,
    "inspect.signature": _signature,
    "inspect.getfullargspec": _signature,
    "importlib.metadata.version": _installed,
    "importlib_metadata.version": _installed,
    "importlib.metadata.distribution": _distribution,
    "importlib_metadata.distribution": _distribution,
    "pkg_resources.get_distribution": _distribution,
    **{f"operator.{name}": _builtin(named_tests.COMPARISONS[symbol]) for symbol, name in named_tests.NAMES.items()},
}

_BY_NAME: dict[str, _Call] = {
    "Version": _parsed(Version),
    "parse_version": _parsed(Version),
    "digit_version": _parsed(Version),
    "LooseVersion": _parsed(LooseVersion),
    "StrictVersion": _parsed(StrictVersion),
    "TorchVersion": _parsed(TorchVersion),
    "is_torch_version": _is_torch_version,
    "compare_version": _compare_version,
    "_compare_version": _compare_version,
    "compare_versions": _compare_version,
    "RequirementCache": _requirement,
    "get_package_version": _package_version,
    "_get_package_version": _package_version,
}
