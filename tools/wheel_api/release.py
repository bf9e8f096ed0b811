"""One torch release: its modules, read on demand, and what dotted names mean in it."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tools.wheel_api.modules import Binding, Module, class_body, read
from tools.wheel_api.names import dotted
from tools.wheel_api.wheels import Sources

_MAX_DEPTH = 40


class Release:
    """Resolves names in the modules of one release.

    `redirects` are the entries that modules make in `sys.modules`, once those modules have been read.
    """

    def __init__(self, name: str, sources: Sources) -> None:
        self.name = name
        self.sources = sources
        self.redirects: dict[str, str] = {}
        self._modules: dict[str, Module] = {}
        self._bodies: dict[str, dict[str, Binding]] = {}
        self._orders: dict[str, list[str]] = {}

    def module(self, name: str) -> Module:
        """The module `name`; half read when it is asked for while it is being read, as in Python."""
        if name not in self._modules:
            self._modules[name] = Module(name, name in self.sources.packages)
            read(self, self._modules[name], self.sources.text(name))
        return self._modules[name]

    def resolve(self, name: str, depth: int = 0) -> tuple[str, Binding | None]:
        """The name under which `name` is defined, and its definition if that lies in the wheel's Python files."""
        if depth > _MAX_DEPTH:
            return name, None
        if name in self.redirects:
            return self.resolve(self.redirects[name], depth + 1)
        owner, _, part = name.rpartition(".")
        if not owner:
            return name, Binding("module", name) if name in self.sources else None
        if owner in self.sources and owner not in self.redirects:
            return self._global(owner, part, depth)
        real, held = self.resolve(owner, depth + 1)
        if held is not None and held.kind == "class":
            return self._member(real, part, depth)
        if real != owner:
            return self.resolve(f"{real}.{part}", depth + 1)
        return name, None

    def _global(self, owner: str, part: str, depth: int) -> tuple[str, Binding | None]:
        name = f"{owner}.{part}"
        held = self.module(owner).names.get(part)
        if held is None or (held.kind == "alias" and held.target == name):
            return name, Binding("module", name) if name in self.sources else None
        if held.kind == "alias":
            return self.resolve(held.target, depth + 1)
        return name, held

    def _member(self, cls: str, part: str, depth: int) -> tuple[str, Binding | None]:
        for owner in self.mro(cls):
            held = self.body(owner).get(part)
            if held is not None:
                if held.kind == "alias":
                    return self.resolve(held.target, depth + 1)
                return f"{owner}.{part}", held
        return f"{cls}.{part}", None

    def body(self, cls: str) -> dict[str, Binding]:
        """What the class named `cls` binds itself, empty when it is not in the wheel's Python files."""
        if cls not in self._bodies:
            self._bodies[cls] = {}
            held = self.resolve(cls)[1]
            if held is not None and isinstance(held.node, ast.ClassDef):
                module = self.module(held.module)
                names = class_body(self, module, cls, held.node)
                patches = module.patches.get(held.node.name, {}) if cls == f"{held.module}.{held.node.name}" else {}
                self._bodies[cls] = {**names, **patches}
        return self._bodies[cls]

    def bases(self, cls: str) -> list[str]:
        """The real names of the base classes, `?` for what is computed."""
        held = self.resolve(cls)[1]
        if held is None or not isinstance(held.node, ast.ClassDef):
            return []
        return [self._base(held.module, base) for base in held.node.bases]

    def metaclass(self, cls: str) -> list[str]:
        """The real name of the metaclass that the class names, if it names one."""
        held = self.resolve(cls)[1]
        if held is None or not isinstance(held.node, ast.ClassDef):
            return []
        return [self._base(held.module, key.value) for key in held.node.keywords if key.arg == "metaclass"]

    def _base(self, module: str, node: ast.expr) -> str:
        chain = dotted(node.value if isinstance(node, ast.Subscript) else node)
        if chain is None:
            return "?"
        if chain.partition(".")[0] not in self.module(module).names:
            return f"builtins.{chain}"
        real = self.resolve(f"{module}.{chain}")[0]
        return f"typing.{real.removeprefix('typing_extensions.')}" if real.startswith("typing_extensions.") else real

    def mro(self, cls: str) -> list[str]:
        """The class and its bases, a base after all that derive from it."""
        if cls not in self._orders:
            order: list[str] = []
            self._visit(cls, order)
            self._orders[cls] = order[::-1]
        return self._orders[cls]

    def _visit(self, cls: str, order: list[str]) -> None:
        if cls not in order:
            for base in reversed(self.bases(cls)):
                self._visit(base, order)
            order.append(cls)

    def within(self, prefixes: Iterable[str]) -> list[str]:
        """The modules that are one of `prefixes`, or lie below one, in order."""
        return [m for m in self.sources.modules if any(m == p or m.startswith(f"{p}.") for p in prefixes)]
