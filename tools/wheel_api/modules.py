"""What a module binds when it is imported, found by following its statements without running them."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tools.wheel_api.conditions import truth
from tools.wheel_api.names import dotted, text_of

if TYPE_CHECKING:
    from tools.wheel_api.release import Release

OVERLOADS = ("overload", "typing.overload", "typing_extensions.overload", "torch.jit._overload", "_overload")


@dataclass(frozen=True)
class Binding:
    """What a name is bound to.

    `kind` is "alias" (of `target`), "module", "function", "class", "constant", or "annotation" for a name that is only
    declared. `optional`: some builds of torch, or some machines, lack it.
    """

    kind: str
    module: str
    node: ast.AST | None = None
    target: str = ""
    optional: bool = False


@dataclass
class Module:
    """A module after its import."""

    name: str
    package: bool
    names: dict[str, Binding] = field(default_factory=dict)
    exports: list[str] | None = None
    # Submodules that its own import imports: attributes of it from then on.
    loaded: list[str] = field(default_factory=list)
    warnings: list[ast.Call] = field(default_factory=list)
    # What the module sets on its classes after they are made: class, name, binding.
    patches: dict[str, dict[str, Binding]] = field(default_factory=dict)

    @property
    def public(self) -> Iterable[str]:
        """What a star import takes."""
        if self.exports is not None:
            return self.exports
        return [name for name in (*self.names, *self.loaded) if not name.startswith("_")]


def read(release: Release, module: Module, text: str) -> None:
    """Fill in `module`, whose source is `text`."""
    _Execution(release, module, module.names).run(ast.parse(text).body)


def class_body(release: Release, module: Module, name: str, node: ast.ClassDef) -> dict[str, Binding]:
    """What the body of the class binds; `name` is its dotted name."""
    names: dict[str, Binding] = {}
    _Execution(release, module, names, name).run(node.body)
    return names


class _Execution:
    """Runs the statements of one scope on its names."""

    def __init__(self, release: Release, module: Module, names: dict[str, Binding], scope: str | None = None) -> None:
        self.release = release
        self.module = module
        self.names = names
        self.scope = scope or module.name
        self.optional = False
        self.unrolled: dict[str, str] = {}

    def run(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            step = getattr(self, f"_{type(statement).__name__.lower()}", None)
            if step is not None:
                step(statement)

    def bind(self, name: str, kind: str, node: ast.AST | None = None, target: str = "", optional: bool = False) -> None:
        self.names[name] = Binding(kind, self.module.name, node, target, optional or self.optional)

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._load(alias.name)
            root = alias.name.partition(".")[0]
            self.bind(alias.asname or root, "alias", target=alias.name if alias.asname else root)

    def _importfrom(self, node: ast.ImportFrom) -> None:
        source = self.source(node)
        self._load(source)
        for alias in node.names:
            if alias.name == "*":
                self._star(source)
            else:
                self.bind(alias.asname or alias.name, "alias", target=f"{source}.{alias.name}")

    def _load(self, module: str) -> None:
        if module.startswith(f"{self.module.name}."):
            self.module.loaded.append(module.removeprefix(f"{self.module.name}.").partition(".")[0])

    def source(self, node: ast.ImportFrom) -> str:
        """The absolute name of the module that the statement imports from."""
        if not node.level:
            return node.module or ""
        parts = self.module.name.split(".")
        parts = parts[: len(parts) - node.level + self.module.package]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def _star(self, source: str) -> None:
        if source in self.release.sources:
            taken = self.release.module(source)
            for name in taken.public:
                optional = name in taken.names and taken.names[name].optional
                self.bind(name, "alias", target=f"{source}.{name}", optional=optional)
        elif source.partition(".")[0] in sys.stdlib_module_names:
            library = importlib.import_module(source)
            for name in getattr(library, "__all__", ()):
                self.bind(name, "alias", target=f"{source}.{name}")

    def _functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        written = [dotted(decorator) for decorator in node.decorator_list]
        setter = any(name and name.endswith((".setter", ".deleter")) for name in written)
        if not setter and not any(name in OVERLOADS for name in written):
            self.bind(node.name, "function", node)

    _asyncfunctiondef = _functiondef

    def _classdef(self, node: ast.ClassDef) -> None:
        self.bind(node.name, "class", node)

    def _assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assigned(target, node.value)

    def _annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assigned(node.target, node.value)
        elif isinstance(node.target, ast.Name) and node.target.id not in self.names:
            self.bind(node.target.id, "annotation", node)

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self._assigned(element, ast.Constant(...))
        elif isinstance(target, ast.Name):
            if target.id == "__all__":
                self.module.exports = self._strings(value)
            self._bind_value(target.id, value)
        elif isinstance(target, ast.Subscript) and dotted(target.value) == "sys.modules":
            self._redirect(target.slice, value)
        elif isinstance(target, ast.Attribute):
            owner = dotted(target.value)
            if owner in self.names and self.names[owner].kind == "class":
                self.module.patches.setdefault(owner, {})[target.attr] = Binding("constant", self.module.name, value)

    def _bind_value(self, name: str, value: ast.expr) -> None:
        chain = dotted(value)
        root = (chain or "").partition(".")[0]
        if chain is None or not (root in self.names or root in self.module.names):
            self.bind(name, "constant", value)
            return
        scope = self.scope if root in self.names else self.module.name
        if chain == name or f"{scope}.{chain}" == f"{self.scope}.{name}":
            return
        held = self.names.get(root)
        if root == chain and held is not None and held.kind == "alias":
            # What the name means now, not what it will be bound to later.
            self.bind(name, "alias", value, held.target)
        else:
            self.bind(name, "alias", value, f"{scope}.{chain}")

    def _redirect(self, key: ast.expr, value: ast.expr) -> None:
        name = text_of(key, self.unrolled)
        target = dotted(value)
        if isinstance(value, ast.Call) and value.args:
            target = text_of(value.args[0], self.unrolled)
        if name and target:
            root, dot, rest = target.partition(".")
            held = self.names.get(root)
            self.release.redirects[name] = f"{held.target}{dot}{rest}" if held is not None and held.target else target

    def _strings(self, value: ast.expr) -> list[str] | None:
        """The strings of a list that is written out, None when it is not."""
        if isinstance(value, (ast.List, ast.Tuple)):
            parts = [self._strings(e.value) if isinstance(e, ast.Starred) else _one(e) for e in value.elts]
        elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            parts = [self._strings(value.left), self._strings(value.right)]
        else:
            chain = dotted(value)
            if chain == "__all__":
                return list(self.module.exports or ())
            owner, _, last = (chain or "").rpartition(".")
            found = self.release.resolve(f"{self.module.name}.{owner}")[0] if last == "__all__" else ""
            return self.release.module(found).exports if found in self.release.sources else None
        return None if None in parts else [text for part in parts if part is not None for text in part]

    def _augassign(self, node: ast.AugAssign) -> None:
        if dotted(node.target) == "__all__":
            more = self._strings(node.value)
            self.module.exports = None if more is None else [*(self.module.exports or ()), *more]

    def _expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Call):
            return
        called = dotted(node.value.func)
        if called in ("__all__.extend", "__all__.append") and node.value.args:
            argument = node.value.args[0]
            more = self._strings(argument) if called.endswith("extend") else _one(argument)
            self.module.exports = [*(self.module.exports or ()), *(more or ())]
        elif called in ("warnings.warn", "warn") and not self.optional:
            self.module.warnings.append(node.value)

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self.names.pop(dotted(target) or "", None)

    def _with(self, node: ast.With) -> None:
        for item in node.items:
            if isinstance(item.optional_vars, ast.Name):
                self.bind(item.optional_vars.id, "constant", item.context_expr)
        self.run(node.body)

    def _for(self, node: ast.For) -> None:
        values = self._strings(node.iter) or self._strings(self._value_of(node.iter))
        if isinstance(node.target, ast.Name) and values:
            for value in values:
                self.unrolled[node.target.id] = value
                self._run_unrolled(node.body)
        else:
            self.run(node.body)
        self._assigned(node.target, ast.Constant(...))

    def _run_unrolled(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                text = text_of(statement.value, self.unrolled)
                if text is not None:
                    self.unrolled[statement.targets[0].id] = text
            self.run([statement])

    def _value_of(self, node: ast.expr) -> ast.expr:
        held = self.names.get(dotted(node) or "")
        return held.node if held is not None and isinstance(held.node, ast.expr) else node

    def _if(self, node: ast.If) -> None:
        held = self.names.get(dotted(node.test) or "")
        flag = held.node if held is not None and not held.optional else None
        holds = flag.value if isinstance(flag, ast.Constant) and isinstance(flag.value, bool) else truth(node.test)
        if holds is None:
            self._either(node.body, node.orelse)
        else:
            self.run(node.body if holds else node.orelse)

    def _try(self, node: ast.Try) -> None:
        if all(self._succeeds(statement) for statement in node.body):
            self.run(node.body)
            self.run(node.orelse)
        else:
            handlers = [statement for handler in node.handlers for statement in handler.body]
            self._either([*node.body, *node.orelse], handlers)
        self.run(node.finalbody)

    def _succeeds(self, statement: ast.stmt) -> bool:
        """Whether an import works with every build: what it takes is in the standard library or in the wheel."""
        if isinstance(statement, ast.Import):
            return all(self._there(alias.name) for alias in statement.names)
        if isinstance(statement, ast.ImportFrom):
            source = self.source(statement)
            return all(self._there(source, alias.name) for alias in statement.names)
        return not isinstance(statement, ast.Try) or all(self._succeeds(inner) for inner in statement.body)

    def _there(self, module: str, name: str | None = None) -> bool:
        if module.partition(".")[0] in sys.stdlib_module_names:
            return True
        if module not in self.release.sources:
            return False
        return name is None or self.release.resolve(f"{module}.{name}")[1] is not None

    def _either(self, first: list[ast.stmt], second: list[ast.stmt]) -> None:
        """Run both branches apart; what only one of them binds is optional."""
        before, before_optional = dict(self.names), self.optional
        self.optional = True
        self.run(first)
        one = dict(self.names)
        self.names.clear()
        self.names.update(before)
        self.run(second)
        other = dict(self.names)
        self.optional = before_optional
        self.names.clear()
        self.names.update(_merged(before, one, other, self.optional))


def _one(node: ast.expr) -> list[str] | None:
    text = text_of(node)
    return None if text is None else [text]


def _merged(
    before: Mapping[str, Binding], one: Mapping[str, Binding], other: Mapping[str, Binding], optional: bool
) -> dict[str, Binding]:
    merged = {}
    for name in {**one, **other}:
        old, left, right = before.get(name), one.get(name), other.get(name)
        merged[name] = (right if left is old else left) or left or right or before[name]
        if left is not None and right is not None and not (left is old and right is old):
            merged[name] = replace(merged[name], optional=optional and old is None)
    return merged
