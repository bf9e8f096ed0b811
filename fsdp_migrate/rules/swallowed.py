"""Whether an error raised at a place is caught and forgotten.

`FSDP.state_dict_type` does not restore the type when its block raises (torch 2.0 to 2.15; catalogue
sdt-exception-safety), and legacy methods may come to raise: code that goes on after an error sees the difference.
"""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts

_BROAD = frozenset({"builtins.RuntimeError", "builtins.Exception", "builtins.BaseException"})
_LEAVING_CALLS = frozenset({"sys.exit", "os._exit", "builtins.exit", "builtins.quit", "os.abort"})
_SUPPRESS = "contextlib.suppress"


def swallowing_handler(facts: ModuleFacts, node: ast.AST) -> str | None:
    """Why an exception at `node` would be swallowed in its function, in words; None when it would not."""
    child, function = node, facts.function(node)
    while child is not function and child in facts.structure.parents:
        parent = facts.structure.parents[child]
        line = _swallows(facts, parent, child)
        if line is not None:
            return (
                f"the error handler at line {line} goes on, and `state_dict_type` does not restore the type "
                "after an exception"
            )
        child = parent
    return None


def _swallows(facts: ModuleFacts, parent: ast.AST, child: ast.AST) -> int | None:
    if isinstance(parent, ast.Try) and child in parent.body:
        for handler in parent.handlers:
            if _is_broad(facts, handler.type) and not _leaves(facts, handler.body):
                return handler.lineno
    if isinstance(parent, (ast.With, ast.AsyncWith)) and child in parent.body:
        for item in parent.items:
            call = item.context_expr
            if not isinstance(call, ast.Call) or not isinstance(call.func, (ast.Name, ast.Attribute)):
                continue
            if facts.names.qualified(call.func) == _SUPPRESS and any(_is_broad(facts, arg) for arg in call.args):
                return parent.lineno
    return None


def _is_broad(facts: ModuleFacts, node: ast.expr | None) -> bool:
    if node is None:
        return True
    if isinstance(node, ast.Tuple):
        return any(_is_broad(facts, element) for element in node.elts)
    return isinstance(node, (ast.Name, ast.Attribute)) and facts.names.qualified(node) in _BROAD


def _leaves(facts: ModuleFacts, body: list[ast.stmt]) -> bool:
    """Whether a handler certainly raises or ends the program."""
    last = body[-1]
    if isinstance(last, ast.Raise):
        return True
    if isinstance(last, ast.If) and last.orelse:
        return _leaves(facts, last.body) and _leaves(facts, last.orelse)
    call = last.value if isinstance(last, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute)):
        return facts.names.qualified(call.func) in _LEAVING_CALLS
    return False
