"""Which branch of a module's top level runs, as far as the source tells."""

from __future__ import annotations

import ast

from tools.wheel_api.names import dotted


def truth(test: ast.expr) -> bool | None:
    """Whether `test` holds in an ordinary build of torch on Linux; None when that depends."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = truth(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        return _combined(test)
    if isinstance(test, ast.Compare):
        return _compared(test)
    if isinstance(test, ast.Call):
        return _called(test)
    return {"TYPE_CHECKING": False, "typing.TYPE_CHECKING": False, "IS_WINDOWS": False}.get(dotted(test) or "")


def _combined(test: ast.BoolOp) -> bool | None:
    values = [truth(value) for value in test.values]
    decisive = isinstance(test.op, ast.Or)
    if decisive in values:
        return decisive
    return None if None in values else not decisive


def _compared(test: ast.Compare) -> bool | None:
    left, right = dotted(test.left), test.comparators[0]
    known = {"sys.platform": "linux", "sys.executable": "python", "__name__": ""}.get(left or "")
    if known is None or len(test.ops) != 1 or not isinstance(right, ast.Constant):
        return None
    equal = known == right.value
    return equal if isinstance(test.ops[0], ast.Eq) else not equal if isinstance(test.ops[0], ast.NotEq) else None


def _called(test: ast.Call) -> bool | None:
    name = dotted(test.func) or ""
    # PyPI's builds have torch.distributed and its RPC, with everything that starts them in the C++ part.
    if name.rpartition(".")[2] == "is_available" and name in (
        "is_available",
        "dist.is_available",
        "torch.distributed.is_available",
        "torch.distributed.rpc.is_available",
        "dist.rpc.is_available",
    ):
        return True
    if name.rpartition(".")[2] in ("_running_with_deploy", "running_with_deploy"):
        return False
    if name == "hasattr" and len(test.args) == 2 and isinstance(test.args[1], ast.Constant):
        owner, attribute = dotted(test.args[0]), str(test.args[1].value)
        return True if (owner == "torch._C" and attribute.endswith("_init")) or owner == "torch" else None
    return None
