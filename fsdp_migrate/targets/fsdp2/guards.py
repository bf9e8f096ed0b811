"""Whether a use gets nothing but models of the closure, although the variable may hold others on other arms."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.exits import leaves
from fsdp_migrate.facts.objects import ProjectCode, Value
from fsdp_migrate.facts.project_code import Function
from fsdp_migrate.facts.scopes import FunctionNode, Kind
from fsdp_migrate.targets.fsdp2.conversion import Test
from fsdp_migrate.targets.fsdp2.use import Use

_PARALLEL = "torch.nn.parallel."


def also_ddp(use: Use, member: str, *, visibly: bool = False) -> bool:
    """Whether a member that DDP models have too is used of what may be one, or `visibly` is; there is a wall then."""
    asked = _is_ddp if visibly else _may_be_ddp
    if not any(map(asked, use.reference.others)) or is_guarded(use):
        return False
    step = f"ask `isinstance({use.text}, FSDP)` in front of `{member}`, or keep the models in different variables"
    use.wall(f"`{use.text}` may also be a DDP model here", step)
    return True


def is_guarded(use: Use) -> bool:
    """Whether a test around the use says that it is an FSDP model: `isinstance`, or the test that it is built under."""
    facts, node = use.facts, use.node
    if isinstance(node, (ast.Name, ast.Attribute)) and facts.fsdp.is_tested(node):
        return True
    told = frozenset().union(*_known(use)).intersection(_tests(facts, node))
    others = [frozenset(_tests(other.facts, other.node)) for other in use.reference.others]
    return any(not any(test in tests for tests in others) for test in told)


def is_excluded(use: Use) -> bool:
    """Whether a test around the use says that it is none: the test that each model is built under, the other way."""
    if not use.reference.others:
        return False
    other = {(test, not outcome) for test, outcome in _tests(use.facts, use.node) if _is_setting(test)}
    return bool(other) and all(not other.isdisjoint(tests) for tests in _known(use))


def _known(use: Use) -> list[frozenset[Test]]:
    """The tests that each model is built under, with those that all calls are under of the function that returns it."""
    if use.conversion.tests is None:
        given = frozenset(one.node for one in (*use.closure.passed, *use.closure.references))
        code = use.conversion.code
        use.conversion.tests = [_tests_around(code, given, Value(*one), ()) for one in use.closure.constructions]
    return use.conversion.tests


def _tests_around(
    code: ProjectCode, given: frozenset[ast.expr], value: Value, seen: tuple[ast.AST, ...]
) -> frozenset[Test]:
    """The tests around an expression for a model, and around all calls that give on what its function returns."""
    own = frozenset(_tests(value.facts, value.node))
    function = value.facts.function(value.node)
    if not isinstance(function, FunctionNode) or function in seen:
        return own
    callers = code.callers(Function(value.facts, function))
    sites = [Value(site.facts, site.call) for site in callers.sites]
    if callers.elsewhere or callers.hidden or not sites or any(site.node not in given for site in sites):
        return own
    return own | frozenset.intersection(*(_tests_around(code, given, site, (*seen, function)) for site in sites))


def _is_setting(test: str) -> bool:
    """Whether a test looks at names, their attributes and constants alone, so that it comes out the same again."""
    parts = ast.walk(ast.parse(test, mode="eval"))
    return not any(isinstance(part, (ast.Call, ast.Await, ast.BinOp, ast.NamedExpr)) for part in parts)


def has_test(use: Use, test: str) -> bool:
    """Whether the use is evaluated only where a test, as it prints, is true."""
    return (test, True) in _tests(use.facts, use.node)


def _tests(facts: ModuleFacts, node: ast.AST) -> Iterator[Test]:
    """The conditions under which a node is evaluated in its function, as far as they are written around it."""
    child = node
    for parent in _around(facts, node):
        if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test:
            is_body = child is parent.body or (isinstance(parent.body, list) and child in parent.body)
            yield from _parts(parent.test, is_body)
        elif isinstance(parent, ast.While) and child is parent.body[0]:
            yield from _parts(parent.test, True)
        elif isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And):
            for value in parent.values[: parent.values.index(child)]:  # type: ignore[arg-type]
                yield from _parts(value, True)
        yield from _passed(parent, child)
        if isinstance(parent, FunctionNode):
            return
        child = parent


def _passed(parent: ast.AST, child: ast.AST) -> Iterator[Test]:
    """What the exits above a statement, in its block, say by not being taken."""
    for block in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
        if isinstance(block, list) and child in block:
            for above in block[: block.index(child)]:
                if isinstance(above, ast.If) and leaves(above.body):
                    yield from _parts(above.test, False)
                elif isinstance(above, ast.If) and leaves(above.orelse):
                    yield from _parts(above.test, True)


def _around(facts: ModuleFacts, node: ast.AST) -> Iterator[ast.AST]:
    while node in facts.structure.parents:
        node = facts.structure.parents[node]
        yield node


def _parts(test: ast.expr, outcome: bool) -> Iterator[Test]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand, not outcome)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is outcome:
        for value in test.values:
            yield from _parts(value, outcome)
    else:
        yield ast.unparse(test), outcome


def _is_ddp(other: Value) -> bool:
    """Whether a value is a DDP model for all to see."""
    node = _made(other)
    return isinstance(node, ast.Call) and (other.facts.names.qualified(node.func) or "").startswith(_PARALLEL)


def _made(other: Value) -> ast.expr:
    """The expression that makes a value."""
    made = other.facts.names.value(other.node) if isinstance(other.node, ast.Name) else None
    return other.node if made is None else made


def _may_be_ddp(other: Value) -> bool:
    """Whether a value may be a DDP model: not one that is built from a class of torch.nn or of the project."""
    facts, node = other.facts, _made(other)
    if is_literal(node, None):
        return False
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        return True
    qualified = facts.names.qualified(node.func) or ""
    if qualified.startswith("torch.nn."):
        return qualified.startswith(_PARALLEL)
    return not _is_class_of_project(facts, node.func)


def _is_class_of_project(facts: ModuleFacts, node: ast.expr) -> bool:
    for meaning in facts.names.meanings(node):
        binding = meaning.binding
        if binding is None:
            return False
        if isinstance(binding.node, ast.ClassDef):
            continue
        found = facts.project.definition(binding.target) if facts.project and binding.target else None
        is_class = found is not None and all(isinstance(one.node, ast.ClassDef) for one in found[1])
        if binding.kind is not Kind.IMPORT or not is_class:
            return False
    return True
