"""`try` statements about what torch has, and the releases that their handlers are for."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from packaging.version import Version

from fsdp_migrate.facts.releases.reach import Reach
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.torch_api import data

IMPORT, ATTRIBUTE = "import", "attribute"
_BROAD = frozenset({"Exception", "BaseException"})
_CATCHING = {
    IMPORT: frozenset({"ImportError", "ModuleNotFoundError", *_BROAD}),
    ATTRIBUTE: frozenset({"AttributeError", *_BROAD}),
}
# What code that probes for a name catches; a handler of anything else may run for reasons unrelated to torch.
_PROBES = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError", "NameError"})
_ALWAYS = frozenset(
    """
    torch torch.nn torch.nn.functional torch.nn.Module torch.nn.Parameter torch.nn.parallel torch.Tensor torch.optim
    torch.cuda torch.distributed torch.utils torch.utils.data torch.multiprocessing
    torch.nn.parallel.DistributedDataParallel torch.utils.data.DataLoader torch.optim.Optimizer
    """.split()
)
_DEFERRED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SEQUENTIAL = (ast.expr, ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.With, ast.withitem)
_CONDITIONAL = (ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_EXPECTING = frozenset({"suppress", "raises", "assertRaises", "assertRaisesRegex"})


class Need(NamedTuple):
    """Names of torch that must exist where `node` runs.

    `names` are imported from `module`. Without names it is unknown what the import needs. `index` counts the statements
    of the `try` body. `sure` says that nothing inside the statement can skip `node`.
    """

    node: ast.AST
    kind: str
    names: tuple[str, ...]
    module: str | None
    index: int  # type: ignore[assignment]  # not the method of tuples
    sure: bool

    def absent(self, release: Version) -> bool | None:
        """Whether `release` lacks one of the names; None if the data do not say."""
        found = [data.exists(name, release) for name in self.names]
        return True if False in found else None if None in found or not found else False

    def module_absent(self, release: Version) -> bool | None:
        """Whether `release` lacks the whole module, which is what raises ModuleNotFoundError."""
        return self.absent(release) if self.module is None else data.exists(self.module, release) is False


class Attempt:
    """One `try` statement, and the releases that take each of its parts."""

    def __init__(self, node: ast.Try, gates: Reach) -> None:
        self.node = node
        self.gates = gates

    @cached_property
    def needs(self) -> list[Need]:
        """What the body uses of torch and that may be missing, in order."""
        return [
            need for index, statement in enumerate(self.node.body) for need in self._needs(statement, index, sure=True)
        ]

    def _needs(self, node: ast.AST, index: int, sure: bool) -> Iterator[Need]:
        if isinstance(node, _DEFERRED):
            return
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for names, module in _imported(node):
                yield Need(node, IMPORT, names, module, index, sure)
            return
        sure = sure and isinstance(node, _SEQUENTIAL) and not isinstance(node, _CONDITIONAL)
        name = self._attribute(node)
        if name is not None:
            yield Need(node, ATTRIBUTE, (name,), None, index, sure)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            path = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            yield Need(node, IMPORT, (path,) if isinstance(path, str) else (), None, index, sure)
        for child in ast.iter_child_nodes(node):
            yield from self._needs(child, index, sure)

    def _attribute(self, node: ast.AST) -> str | None:
        """The dotted name that `FSDP.x` and `getattr(FSDP, "x")` read from the package."""
        owner, name = None, None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner, name = node.value, node.attr
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "getattr" and len(node.args) == 2:
            owner, name = node.args[0], getattr(node.args[1], "value", None)
        if owner is None or not isinstance(name, str) or not isinstance(owner, (ast.Name, ast.Attribute)):
            return None
        qualified = self.gates.names.qualified(owner)
        inside = qualified is not None and (qualified == data.PACKAGE or qualified.startswith(f"{data.PACKAGE}."))
        return f"{qualified}.{name}" if inside else None

    def reach(self, child: ast.AST) -> int:
        """The releases that may reach `child`, a statement or a handler of this `try`."""
        if isinstance(child, ast.ExceptHandler):
            return self._reach_handler(child)
        if child in self.node.body:
            return self.gates.everywhere & ~self.fails(self.node.body.index(child))
        if child in self.node.orelse:
            return self.gates.completes(self.node.body) & ~self.fails(len(self.node.body))
        return self.gates.everywhere

    def fails(self, count: int) -> int:
        """The releases on which one of the first `count` statements surely raises what a handler catches."""
        result = 0
        for need in self.needs:
            if need.index < count and need.sure:
                for handler in self.node.handlers:
                    result |= self._missing(need, handler)
        return result

    def _missing(self, need: Need, handler: ast.ExceptHandler) -> int:
        """The releases on which `handler` catches the error of this need."""
        caught = _caught(handler) & _CATCHING[need.kind]
        modules_only = caught == {"ModuleNotFoundError"}
        absent = need.module_absent if modules_only else need.absent
        return self._mask(release for release in self.gates.bits if caught and absent(release))

    def _mask(self, releases: Iterable[Version]) -> int:
        return sum(self.gates.bits[release] for release in releases)

    def _reach_handler(self, handler: ast.ExceptHandler) -> int:
        caught = _caught(handler)
        if not caught <= _PROBES and not (caught <= _BROAD and self._only_probes):
            return self.gates.everywhere
        needs = [need for need in self.needs if caught & {*_CATCHING[need.kind], "NameError"}]
        if any(need.absent(release) is None for need in needs for release in self.gates.bits):
            return self.gates.everywhere
        if not any(need.kind == IMPORT for need in needs) and not self._is_old_arm(handler, needs):
            return self.gates.everywhere
        result = 0
        for need in needs:
            missing = self._missing(need, handler)
            if "NameError" in caught:
                missing |= self._mask(release for release in self.gates.bits if need.absent(release))
            result |= missing and missing & self.gates.mask(need.node)
        for node in _run_by(self.node.body):
            if isinstance(node, ast.Raise):
                result |= self.gates.mask(node)
        return result

    @property
    def _only_probes(self) -> bool:
        """Whether only imports of the body can fail."""
        inert = (ast.Constant, ast.Name)
        return all(
            isinstance(s, (ast.Import, ast.ImportFrom, ast.Pass))
            or (isinstance(s, ast.Assign) and isinstance(s.value, inert))
            for s in self.node.body
        )

    def _is_old_arm(self, handler: ast.ExceptHandler, needs: list[Need]) -> bool:
        """Whether some release lacks what the body needs, and has what the handler needs.

        Only then is a handler of AttributeError a fallback for old releases; otherwise it is for other errors.
        """
        own = [need for statement in handler.body for need in self._needs(statement, 0, sure=False)]
        old = [release for release in self.gates.bits if any(need.absent(release) for need in needs)]
        return any(not any(need.absent(release) for need in own) for release in old)

    def surely(self, child: ast.AST, release: Version) -> bool:
        """Whether control surely reaches `child` on `release`, as far as torch's names decide it."""
        if isinstance(child, ast.ExceptHandler):
            return bool(self.fails(len(self.node.body)) & self._missing_any(child) & self.gates.bits[release])
        if child in self.node.finalbody:
            return True
        body = self.node.body
        count = body.index(child) if child in body else len(body)
        return all(need.absent(release) is False for need in self.needs if need.index < count)

    def _missing_any(self, handler: ast.ExceptHandler) -> int:
        result = 0
        for need in self.needs:
            result |= self._missing(need, handler)
        return result


def attempts_around(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> Iterator[ast.Try]:
    """The `try` statements with `node` in their body, innermost first."""
    child = node
    while (parent := parents.get(child)) is not None and not isinstance(parent, _DEFERRED):
        if isinstance(parent, ast.Try) and child in parent.body:
            yield parent
        child = parent


def expecting(
    node: ast.AST, errors: frozenset[str], parents: Mapping[ast.AST, ast.AST]
) -> Iterator[ast.With | ast.AsyncWith]:
    """The `with` statements in which one of the errors may be raised: `suppress` and pytest's `raises`."""
    child = node
    while (parent := parents.get(child)) is not None and not isinstance(parent, _DEFERRED):
        if isinstance(parent, (ast.With, ast.AsyncWith)) and child in parent.body:
            managers = (item.context_expr for item in parent.items)
            if any(_expects(manager, errors) for manager in managers):
                yield parent
        child = parent


def _expects(manager: ast.expr, errors: frozenset[str]) -> bool:
    if not isinstance(manager, ast.Call) or called(manager) not in _EXPECTING:
        return False
    return any(names_of_exceptions(argument) & errors for argument in manager.args)


def called(call: ast.Call) -> str | None:
    """The last name of the callee."""
    return getattr(call.func, "attr", getattr(call.func, "id", None))


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[tuple[str, ...], str | None]]:
    """Names and their module, for each thing that may be missing; no names if the data do not cover it."""
    found: list[tuple[str, str | None]] = []
    if isinstance(node, ast.Import):
        found.extend((alias.name, None) for alias in node.names)
    elif node.level or node.module is None:
        yield (), None
    else:
        module = node.module
        found.extend((module if alias.name == "*" else f"{module}.{alias.name}", module) for alias in node.names)
    for name, origin in found:
        if name not in _ALWAYS and name.split(".")[0] not in sys.stdlib_module_names:
            yield (name,), origin


def _caught(handler: ast.ExceptHandler) -> frozenset[str]:
    return names_of_exceptions(handler.type)


def names_of_exceptions(listed: ast.expr | None) -> frozenset[str]:
    """The last names of the exceptions of a handler or context manager; a bare `except` catches BaseException."""
    if listed is None:
        return frozenset({"BaseException"})
    types = listed.elts if isinstance(listed, ast.Tuple) else [listed]
    return frozenset(getattr(t, "attr", getattr(t, "id", "?")) for t in types)


def _run_by(statements: list[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes that running the statements evaluates, without the bodies of functions that they define."""
    stack: list[ast.AST] = list(statements)
    while stack:
        node = stack.pop()
        if not isinstance(node, _DEFERRED):
            yield node
            stack.extend(ast.iter_child_nodes(node))
