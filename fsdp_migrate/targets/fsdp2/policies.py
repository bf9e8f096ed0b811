"""Which modules an `auto_wrap_policy` of FSDP1 wraps, as a test that a loop over all modules can make."""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind, is_literal
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.names import is_in_package
from fsdp_migrate.facts.rebinding import changed_between, place_of
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Replacement, Span
from fsdp_migrate.splicing import splice

_NAMED = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
_PARTIAL = "functools.partial"
_BOOLS = frozenset(
    f"builtins.{name}" for name in ("isinstance", "issubclass", "hasattr", "callable", "any", "all", "bool")
)
_CONTAINERS = ("ModuleList", "ModuleDict", "Module")
_MODULE = "\0"  # the module in the text of a condition


class AtRunTime(Exception):
    """What an argument comes to is only known at run time; the message says which part of it."""


class Test(NamedTuple):
    """A condition on a module.

    One that is `loose` needs parentheses beside others; `names` are the expressions in it that come from the program.
    """

    text: str
    names: tuple[ast.expr, ...]
    loose: bool = False

    def of(self, module: str) -> str:
        """The condition on the module of this name."""
        return self.text.replace(_MODULE, module)


def read_policy(facts: ModuleFacts, given: ast.expr, at: ast.Call) -> Test | None:
    """The modules that a policy wraps below the root, None where there is no policy.

    Raises:
        AtRunTime: only the policy itself knows.
    """
    if is_literal(given, None):
        return None
    return _Reader(facts, at).test(given)


def followed(facts: ModuleFacts, node: ast.expr, at: ast.AST) -> ast.expr:
    """What a name is bound to, where all names in it mean the same at `at`; else the name itself."""
    value = facts.names.value(node) if isinstance(node, ast.Name) else None
    if value is None or not _means_the_same(facts, value, at):
        return node
    return value


def _means_the_same(facts: ModuleFacts, value: ast.expr, at: ast.AST) -> bool:
    """Whether the names in an expression that stands elsewhere have the same values at `at`."""
    scope, inside = facts.scope(at), set(ast.walk(value))
    end = place_of(facts.statement(at))  # which may bind one of them
    same_function = facts.function(value) is facts.function(at)
    for name in (one for one in inside if isinstance(one, ast.Name)):
        home = facts.scope(name).lookup(name.id)
        if home is not None and home.node in inside:
            continue
        if home is not None and scope.lookup(name.id) is not home:
            return False
        whole: ast.expr = name
        while isinstance(parent := facts.structure.parents[whole], ast.Attribute):
            whole = parent
        if same_function and changed_between(facts, whole, place_of(value), end):
            return False
    return True


def symbol(facts: ModuleFacts, node: ast.expr) -> str | None:
    """What an expression is called in FSDP's package or its module `wrap`, such as `ShardingStrategy.NO_SHARD`."""
    name = facts.names.qualified(node) if isinstance(node, _NAMED) else None
    if name is None or not is_in_package(name):
        return None
    parts = name.split(".")[3:]
    return ".".join(part for number, part in enumerate(parts) if number or part[:1].isupper() or len(parts) == 1)


class _Reader:
    def __init__(self, facts: ModuleFacts, at: ast.Call) -> None:
        self.facts, self.at = facts, at

    def test(self, given: ast.expr) -> Test:
        policy = followed(self.facts, given, self.at)
        if not isinstance(policy, ast.Call):
            raise AtRunTime(f"the policy `{ast.unparse(given)}`")
        if isinstance(policy.func, (ast.Name, ast.Attribute)) and self.facts.names.qualified(policy.func) == _PARTIAL:
            return self._partial(policy)
        name = symbol(self.facts, policy.func)
        if name == "ModuleWrapPolicy":
            return self._classes(self._argument(policy, "module_classes"))
        if name == "CustomPolicy":
            return self._function(self._argument(policy, "lambda_fn"), only_bool=True)
        raise AtRunTime(f"the policy `{ast.unparse(given)}`")

    def _argument(self, call: ast.Call, name: str) -> ast.expr:
        try:
            return bind(call, (name,), 1)[name].value
        except BindingError:
            raise AtRunTime(f"the policy `{ast.unparse(call)}`") from None

    def _partial(self, call: ast.Call) -> Test:
        function = symbol(self.facts, call.args[0]) if len(call.args) == 1 else None
        given = {one.arg: one.value for one in call.keywords}
        if function == "transformer_auto_wrap_policy" and set(given) == {"transformer_layer_cls"}:
            return self._classes(given["transformer_layer_cls"])
        if function == "lambda_auto_wrap_policy" and set(given) == {"lambda_fn"}:
            return self._function(given["lambda_fn"], only_bool=False)
        if function == "_or_policy" and set(given) == {"policies"}:
            parts = followed(self.facts, given["policies"], self.at)
            if isinstance(parts, (ast.List, ast.Tuple)) and parts.elts:
                tests = [self.test(one) for one in parts.elts]
                names = tuple(name for one in tests for name in one.names)
                return Test(" or ".join(one.text for one in tests), names, loose=len(tests) > 1)
        raise AtRunTime(f"the policy `{ast.unparse(call)}`")

    def _classes(self, given: ast.expr) -> Test:
        """Modules of some classes."""
        classes, source = followed(self.facts, given, self.at), self.facts.source
        items = classes.elts if isinstance(classes, (ast.Set, ast.List, ast.Tuple)) else []
        if items and all(pure(one) and not self._holds_only(one) for one in items):
            texts = [source.segment(one) for one in items]
            text = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
            return Test(f"isinstance({_MODULE}, {text})", tuple(items))
        raise AtRunTime(f"the classes `{ast.unparse(given)}` of the policy")

    def _holds_only(self, cls: ast.expr) -> bool:
        """Whether a class may be one of containers, which FSDP2 does not shard by themselves."""
        name = self.facts.names.qualified(cls) or ""
        return name.startswith("torch.nn.") and name.rpartition(".")[2] in _CONTAINERS

    def _function(self, given: ast.expr, *, only_bool: bool) -> Test:
        """Modules for which a function is true; only a `bool` counts where a dict would have a meaning of its own."""
        function = followed(self.facts, given, self.at)
        if isinstance(function, ast.Lambda) and (not only_bool or _is_bool(self.facts, function.body)):
            test = self._inlined(function)
            if test is not None:
                return test
        if pure(given) and not only_bool:
            return Test(f"{self.facts.source.segment(given)}({_MODULE})", (given,))
        raise AtRunTime(f"the function `{ast.unparse(given)}` of the policy")

    def _inlined(self, function: ast.Lambda) -> Test | None:
        """What a lambda of one line says of its module, where nothing in it has a scope of its own."""
        body, source = function.body, self.facts.source
        parameter, scope = _only_parameter(function), self.facts.scope(body)
        text = source.segment(body)
        if parameter is None or scope.children or "\n" in text or "\r" in text:
            return None
        start = source.span(body).start
        spans = sorted(source.span(use) for use in scope.uses.get(parameter, ()))
        named = [Replacement(Span(one.start - start, one.end - start), _MODULE) for one in spans]
        loose = isinstance(body, (ast.IfExp, ast.Lambda, ast.NamedExpr)) or (
            isinstance(body, ast.BoolOp) and isinstance(body.op, ast.Or)
        )
        return Test(splice(text.encode(), named).decode(), (body,), loose)


def _only_parameter(function: ast.Lambda) -> str | None:
    arguments = function.args
    plain = len(arguments.args) == 1 and not (arguments.posonlyargs or arguments.kwonlyargs or arguments.defaults)
    return arguments.args[0].arg if plain and not (arguments.vararg or arguments.kwarg) else None


def _is_bool(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether an expression is a `bool`, and nothing else that is true."""
    if isinstance(node, ast.BoolOp):
        return all(_is_bool(facts, one) for one in node.values)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool)
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Name) and facts.names.qualified(called) in _BOOLS
