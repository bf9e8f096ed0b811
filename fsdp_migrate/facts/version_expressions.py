"""How each kind of expression gets its value in a version test."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from fsdp_migrate.facts import version_calls, version_homes
from fsdp_migrate.facts.version_values import ATTRIBUTES, METHODS, TorchVersion, Unknown, allows
from fsdp_migrate.torch_api import data

if TYPE_CHECKING:
    from fsdp_migrate.facts.version_tests import Evaluator

LOCAL = "<file>"
# Stands for an argument whose value is not known; it matters only if the function looks at it.
MISSING = object()

Env = Mapping[str, object]
Handler = Callable[["Evaluator", Any, Env], Any]


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
    held, gated = evaluator.flow.in_force(node, evaluator.release)
    evaluator.varies = evaluator.varies or gated
    return evaluator.agreed(evaluator.held(one, env) for one in held)


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
        known = version_calls.find(qualified)
        try:
            if known is not None:
                return known(evaluator, node, env)
            return version_homes.called(evaluator, qualified, node, env)
        except Unknown:
            if known is not None:
                return version_homes.called(evaluator, qualified, node, env)
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


VALUES: dict[type[ast.AST], Handler] = {
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
