"""Whether a function of another package surely ran before a program comes to a place, whatever the way."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from fsdp_migrate.facts.evaluation import evaluated_before, evaluated_conditionally
from fsdp_migrate.facts.project_code import Code, Function, Sort
from fsdp_migrate.facts.scopes import TRIES, FunctionNode

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts

_BLOCKS = ("body", "orelse", "finalbody")
_MOST_DEPTH = 8
_AVAILABLE = frozenset({"torch.cuda.is_available", "torch.accelerator.is_available"})


def surely_called(facts: ModuleFacts, node: ast.AST, names: Container[str | None], code: Code) -> bool:
    """Whether one of the functions `names` was called, wherever the program comes from, before it evaluates `node`.

    That a function is only called where there is an accelerator does not count as a condition.
    """
    return _Search(names, code).before(facts, node, 0)


class _Search:
    def __init__(self, names: Container[str | None], code: Code) -> None:
        self.names, self.code = names, code
        self.known: dict[ast.AST, bool] = {}

    def before(self, facts: ModuleFacts, node: ast.AST, depth: int) -> bool:
        """Whether one was called before `node`, in its function or in all that call this."""
        child, parents = node, facts.structure.parents
        while child in parents and not isinstance(child, FunctionNode):
            parent = parents[child]
            earlier = (one for one in _block(parent, child) if self.calls(facts, one, depth))
            if next(earlier, None) is not None:
                return True
            child = parent
        return isinstance(child, FunctionNode) and self._before_callers(facts, child, depth)

    def _before_callers(self, facts: ModuleFacts, function: ast.AST, depth: int) -> bool:
        if function in self.known or depth > _MOST_DEPTH or isinstance(function, ast.Lambda):
            return self.known.get(function, False)
        self.known[function] = True  # a call from inside the function itself adds nothing
        callers = self.code.callers(Function(facts, function))  # type: ignore[arg-type]
        found = bool(callers.sites) and not callers.hidden and not callers.elsewhere
        found = found and all(self._before_site(one.facts, one.call, depth + 1) for one in callers.sites)
        self.known[function] = found
        return found

    def _before_site(self, facts: ModuleFacts, call: ast.Call, depth: int) -> bool:
        statement = facts.statement(call)
        earlier = evaluated_before(call, statement, facts.structure.parents)
        if any(isinstance(one, ast.expr) and self.calls(facts, one, depth) for one in earlier):
            return True
        return self.before(facts, call, depth)

    def calls(self, facts: ModuleFacts, part: ast.AST, depth: int) -> bool:
        """Whether running a statement or expression surely calls one of the functions."""
        if isinstance(part, (ast.With, ast.AsyncWith)):
            return any(self.calls(facts, one, depth) for one in (*part.items, *part.body))
        if isinstance(part, ast.If):
            tests = [one for one in ast.walk(part.test) if isinstance(one, ast.Call)]
            body = any(self.calls(facts, one, depth) for one in part.body)
            if any(_named(facts, one) in _AVAILABLE for one in tests) or _asks_for_cuda(part.test):
                return body
            return body and any(self.calls(facts, one, depth) for one in part.orelse)
        if isinstance(part, TRIES):
            return any(self.calls(facts, one, depth) for one in (*part.body[:1], *part.finalbody))
        if isinstance(part, (ast.For, ast.AsyncFor, ast.While, *FunctionNode, ast.ClassDef)):
            return False
        return any(self._is_call(facts, one, depth) for one in _performed(facts, part))

    def _is_call(self, facts: ModuleFacts, call: ast.Call, depth: int) -> bool:
        if _named(facts, call) in self.names:
            return True
        if depth > _MOST_DEPTH or not isinstance(call.func, (ast.Name, ast.Attribute)):
            return False
        origins = self.code.origins(facts, call.func)
        functions = [one for one in origins if one.sort is Sort.FUNCTION]
        if (
            len(origins) != 1
            or not functions
            or not isinstance(functions[0].node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ):
            return False
        home, function = functions[0].facts, functions[0].node
        return any(self.calls(home, one, depth + 1) for one in _until_exit(function.body))


def _block(parent: ast.AST, child: ast.AST) -> list[ast.stmt]:
    """The statements before `child` in its block."""
    for name in _BLOCKS:
        block = getattr(parent, name, None)
        if isinstance(block, list) and child in block:
            return block[: block.index(child)]
    return []


def _until_exit(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a function up to the first that may leave it."""
    for statement in body:
        yield statement
        if any(isinstance(one, ast.Return) for one in ast.walk(statement)):
            return


def _performed(facts: ModuleFacts, part: ast.AST) -> Iterator[ast.Call]:
    """The calls that evaluating a simple statement or an expression makes in any case."""
    for one in ast.walk(part):
        if isinstance(one, ast.Call) and facts.function(one) is facts.function(part):
            statement = facts.statement(one)
            if evaluated_conditionally(one, statement, facts.structure.parents) is None:
                yield one


def _named(facts: ModuleFacts, call: ast.Call) -> str | None:
    return facts.names.qualified(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None


def _asks_for_cuda(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and any(
        isinstance(one, ast.Constant) and one.value == "cuda" for one in (test.left, *test.comparators)
    )
