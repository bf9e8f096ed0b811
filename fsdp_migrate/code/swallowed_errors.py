"""Whether an error raised at a place is caught and forgotten.

`FSDP.state_dict_type` does not restore the type when its block raises (torch 2.0 to 2.15; catalogue
sdt-exception-safety), and legacy methods may come to raise: code that goes on after an error sees the difference.
"""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.scopes import TRIES

# What saving or loading optimizer state may raise in torch (2.0 to 2.15), and what catches it as well.
_RAISED = frozenset(
    """
    builtins.BaseException builtins.Exception builtins.RuntimeError builtins.ValueError builtins.KeyError
    builtins.IndexError builtins.LookupError builtins.TypeError builtins.AttributeError builtins.AssertionError
    torch.OutOfMemoryError torch.cuda.OutOfMemoryError torch.distributed.DistError torch.distributed.DistBackendError
    torch.distributed.DistNetworkError torch.distributed.DistStoreError
    """.split()
)
_BROAD = frozenset({"builtins.RuntimeError", "builtins.Exception", "builtins.BaseException"})
_PROBING = frozenset({"builtins.TypeError", "builtins.AttributeError", "builtins.NotImplementedError"})
_LEAVING_CALLS = frozenset({"sys.exit", "os._exit", "builtins.exit", "builtins.quit", "os.abort"})
_SUPPRESS = "contextlib.suppress"


def swallowing_handler(facts: ModuleFacts, node: ast.AST) -> str | None:
    """Why an exception of an optimizer-state call at `node` would be swallowed, in words; None when it would not."""
    line = _handler(facts, node, _RAISED)
    if line is None:
        return None
    return (
        f"the handler at line {line} continues after an exception, and `state_dict_type` does not restore the type then"
    )


def legacy_handler(facts: ModuleFacts, node: ast.AST) -> int | None:
    """The line of the handler around `node` that would swallow the error of a legacy method, None without one.

    Handlers of TypeError and AttributeError count too, as code writes them to try out a signature.
    """
    return _handler(facts, node, _BROAD | _PROBING)


def _handler(facts: ModuleFacts, node: ast.AST, caught: frozenset[str]) -> int | None:
    """The line of the handler around `node` for one of the exceptions `caught` that goes on."""
    child, function = node, facts.function(node)
    while child is not function and child in facts.structure.parents:
        parent = facts.structure.parents[child]
        line = _swallows(facts, parent, child, caught)
        if line is not None:
            return line
        child = parent
    return None


def _swallows(facts: ModuleFacts, parent: ast.AST, child: ast.AST, caught: frozenset[str]) -> int | None:
    if isinstance(parent, TRIES) and child in parent.body:
        for handler in parent.handlers:
            if _catches(facts, handler.type, caught) and not _leaves(facts, handler.body):
                return handler.lineno
        if parent.finalbody and isinstance(parent.finalbody[-1], (ast.Return, ast.Break, ast.Continue)):
            return parent.finalbody[-1].lineno
    if isinstance(parent, (ast.With, ast.AsyncWith)) and child in parent.body:
        for item in parent.items:
            call = item.context_expr
            if not isinstance(call, ast.Call) or facts.names.qualified(call.func) != _SUPPRESS:
                continue
            if any(_catches(facts, argument, caught) for argument in call.args):
                return parent.lineno
    return None


def _catches(facts: ModuleFacts, node: ast.expr | None, caught: frozenset[str]) -> bool:
    if node is None:
        return True
    if isinstance(node, ast.Tuple):
        return any(_catches(facts, element, caught) for element in node.elts)
    if isinstance(node, ast.Name):
        values = facts.names.definitions(node)
        if any(isinstance(value, ast.Tuple) and _catches(facts, value, caught) for value in values):
            return True
    return facts.names.qualified(node) in caught


def _leaves(facts: ModuleFacts, body: list[ast.stmt]) -> bool:
    """Whether a handler certainly raises or ends the program."""
    last = body[-1]
    if isinstance(last, ast.Raise):
        return True
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return _leaves(facts, last.body)
    if isinstance(last, ast.If) and last.orelse:
        return _leaves(facts, last.body) and _leaves(facts, last.orelse)
    call = last.value if isinstance(last, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute)):
        return facts.names.qualified(call.func) in _LEAVING_CALLS
    return False
