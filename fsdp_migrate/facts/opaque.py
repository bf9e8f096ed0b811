"""Conditions that no torch version has a say in: most of them, and telling so takes less than evaluating them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.facts.version_calls import BUILTINS, find
from fsdp_migrate.facts.version_expressions import LOCAL, VALUES
from fsdp_migrate.torch_api.data import PACKAGE

if TYPE_CHECKING:
    from fsdp_migrate.facts.flags import ScopedNames

# Builtins that nobody can evaluate, whatever they are given.
_OPAQUE_BUILTINS = frozenset(
    f"builtins.{name}" for name in ("isinstance", "issubclass", "type", "id", "repr", "next", "iter", "vars", "dir")
)
_ASKING = ("builtins.hasattr", "builtins.getattr")
# Names are followed through so many assignments; the evaluator goes no further either.
_MAX_DEPTH = 40


class Opaque:
    """Tells the expressions of one module whose value is certainly unknown on every release.

    They come down to what a function is given, what a loop brings, or what something returns that knows nothing of
    torch's version. The evaluator would find the same, at greater length.
    """

    def __init__(self, names: ScopedNames, parents: Mapping[ast.AST, ast.AST]) -> None:
        self.names = names
        self.parents = parents
        self.elsewhere = getattr(names, "elsewhere", None)
        self._known: dict[Binding, bool] = {}
        self._silent: dict[str, bool] = {}
        self._depth = 0

    def holds(self, node: ast.expr) -> bool:
        """Whether the value of `node` is certainly unknown."""
        kind = type(node)
        if kind is ast.Name:
            return self._name(node)  # type: ignore[arg-type]
        if kind is ast.Attribute:
            return self.holds(node.value) and self._is_unknown(node)  # type: ignore[attr-defined]
        if kind is ast.Call:
            return self._call(node)  # type: ignore[arg-type]
        if kind is ast.BoolOp or kind is ast.IfExp:
            return all(map(self.holds, _arms(node)))  # type: ignore[arg-type]
        if kind is ast.Compare:
            # Of a chain the first comparison may settle it.
            operands = (node.left, *node.comparators)  # type: ignore[attr-defined]
            return len(operands) == 2 and any(map(self.holds, operands))
        if kind is ast.ListComp or kind is ast.GeneratorExp:
            return self.holds(node.generators[0].iter)  # type: ignore[attr-defined]
        parts = _PARTS.get(kind)
        if parts is None:
            return kind not in VALUES
        return any(self.holds(getattr(node, name)) for name in parts)

    def _name(self, node: ast.Name) -> bool:
        return all(map(self._binding, self.names.bindings(node))) and self._is_unknown(node)

    def _binding(self, binding: Binding) -> bool:
        if binding not in self._known:
            self._known[binding] = False  # for names that are bound to what they are part of
            if self._depth < _MAX_DEPTH:
                self._depth += 1
                self._known[binding] = self._is_bound_to_opaque(binding)
                self._depth -= 1
        return self._known[binding]

    def _is_bound_to_opaque(self, binding: Binding) -> bool:
        if binding.value is not None:
            return self.holds(binding.value)
        if binding.target is not None:
            return self._says_nothing(binding.target)
        target = self.parents.get(binding.node)
        statement = self.parents.get(target) if isinstance(target, (ast.Tuple, ast.List)) else None
        return not isinstance(statement, ast.Assign) or self.holds(statement.value)

    def _is_unknown(self, node: ast.expr) -> bool:
        qualified = self.names.qualified(node)
        return qualified is None or self._says_nothing(qualified)

    def _says_nothing(self, qualified: str) -> bool:
        """Whether a name tells nothing about torch's version, by itself or where the project binds it."""
        if qualified not in self._silent:
            self._silent[qualified] = not _may_tell(qualified) and self._is_homeless(qualified)
        return self._silent[qualified]

    def _is_homeless(self, qualified: str) -> bool:
        return self.elsewhere is None or self.elsewhere.home(qualified) is None

    def _call(self, call: ast.Call) -> bool:
        function = call.func
        if isinstance(function, ast.Name) and isinstance(
            self.names.definition(function), (ast.FunctionDef, ast.Lambda)
        ):
            return False
        qualified = self.names.qualified(function)
        if qualified is not None and not qualified.startswith(LOCAL) and not self._says_nothing(qualified):
            return self._known_call(qualified, call)
        return self.holds(function.value) if isinstance(function, ast.Attribute) else True

    def _known_call(self, qualified: str, call: ast.Call) -> bool:
        """Whether the result of calling something that may tell of the version is unknown all the same."""
        if qualified in _OPAQUE_BUILTINS:
            return True
        if qualified in _ASKING and call.args:
            owner = self.names.qualified(call.args[0])
            return owner is None or not owner.startswith("torch")
        module, _, name = qualified.rpartition(".")
        plain = module == "builtins" and name in BUILTINS and not call.keywords
        return plain and any(map(self.holds, call.args))


def _arms(node: ast.BoolOp | ast.IfExp) -> Iterable[ast.expr]:
    return node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse)


@cache
def _may_tell(qualified: str) -> bool:
    """Whether the name of a constant or function has to do with versions, or with what torch has."""
    module, _, name = qualified.rpartition(".")
    if module and ("torch" in name.lower() or name == "__version__" or module == "operator"):
        return True
    return f"{qualified}.".startswith(f"{PACKAGE}.") or find(qualified) is not None


# Of these, one part that is unknown makes the whole unknown.
_PARTS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Subscript: ("value",),
    ast.UnaryOp: ("operand",),
    ast.NamedExpr: ("value",),
    ast.BinOp: ("left", "right"),
    **dict.fromkeys(VALUES.keys() - {ast.Subscript, ast.UnaryOp, ast.NamedExpr, ast.BinOp}, ()),
}
