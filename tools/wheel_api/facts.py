"""All that is recorded of one release: dotted names and what each of them is."""

from __future__ import annotations

import ast
from typing import Any

from tools.wheel_api.classes import constructor, grows, instance_names, member_kind
from tools.wheel_api.deprecations import Deprecated, decorated, in_function, warned
from tools.wheel_api.modules import Binding, Module
from tools.wheel_api.names import dotted
from tools.wheel_api.release import Release
from tools.wheel_api.signatures import Function, signature

# Read whole, with all that lies below.
COVERED = tuple(
    """
    torch.amp torch.autocast_mode torch.cpu.amp torch.cuda.amp
    torch.distributed._composable torch.distributed._composable_state torch.distributed._functional_collectives
    torch.distributed._shard torch.distributed._sharded_tensor torch.distributed._sharding_spec
    torch.distributed._state_dict_utils torch.distributed._tensor
    torch.distributed.algorithms torch.distributed.checkpoint torch.distributed.device_mesh
    torch.distributed.distributed_c10d torch.distributed.fsdp torch.distributed.launch torch.distributed.optim
    torch.distributed.run torch.distributed.tensor torch.distributed.utils
    torch.nn.parallel torch.nn.utils.clip_grad torch.serialization torch.utils.checkpoint
    """.split()
)
# Read without what lies below: of other modules in them it is known that they are there, no more.
SHALLOW = ("torch.distributed",)
# Only what they take from the modules above is recorded; about their other names nothing is known.
PARTIAL = ("torch", "torch.cpu", "torch.cuda", "torch.nn", "torch.nn.utils", "torch.utils")

_VALUE_LENGTH = 60
Fact = dict[str, Any]


def facts(release: Release) -> dict[str, Fact]:
    """Everything recorded of `release`, by dotted name.

    A fact has a `kind`, and what applies of `signature`, `value`, `target`, `bases`, `deprecated`,
    `deprecated_parameters`, `optional`; a module has `module` ("whole", "shallow", "partial" or "unread") and the names
    it takes from outside of torch as `foreign`; a class has what only its instances have as `instance`.
    """
    return _Collector(release).collect()


class _Collector:
    def __init__(self, release: Release) -> None:
        self.release = release
        self.covered = release.within(COVERED)
        self.read = {*self.covered, *SHALLOW}
        self.found: dict[str, Fact] = {}
        self.members: dict[str, tuple[str, str]] = {}

    def collect(self) -> dict[str, Fact]:
        release = self.release
        for name in (*self.covered, *SHALLOW, *PARTIAL):
            if name in release.sources:
                release.module(name)
        for name in self.covered:
            self.module(name, "whole")
        for name in SHALLOW:
            if name in release.sources:
                self.module(name, "shallow")
        for name in PARTIAL:
            self.partial(name)
        for name, deprecation in self.members.items():
            if name in self.found:
                self.found[name]["deprecated"] = list(deprecation)
        return self.found

    def module(self, name: str, how: str) -> None:
        if name in self.release.redirects:
            self.alias(name, self.release.redirects[name])
            self.found[name].update(self.module_deprecation(self.release.module(name)))
            return
        module = self.release.module(name)
        fact = {"module": how, **self.module_deprecation(module)}
        foreign = []
        for part, held in module.names.items():
            if part.startswith("__") and part not in ("__all__", "__version__"):
                continue
            if held.kind == "alias" and not held.target.startswith("torch.") and not held.optional:
                foreign.append(part)
            elif held.kind != "annotation":
                self.binding(f"{name}.{part}", held)
        self.found[name] = {"kind": "module", **self.found.get(name, {}), **fact, "foreign": sorted(foreign)}
        self.submodules(name)

    def module_deprecation(self, module: Module) -> Fact:
        found = [deprecation for call in module.warnings if (deprecation := warned(call)) is not None]
        return {"deprecated": list(found[0])} if found else {}

    def submodules(self, name: str) -> None:
        depth = name.count(".") + 1
        below = {m for m in self.release.sources.modules if m.startswith(f"{name}.") and m.count(".") == depth}
        for module in sorted(below | {r for r in self.release.redirects if r.rpartition(".")[0] == name}):
            if module in self.release.redirects and module not in self.release.sources:
                self.alias(module, self.release.redirects[module])
            elif module not in self.read:
                self.found.setdefault(module, {"kind": "module"}).setdefault("module", "unread")

    def partial(self, name: str) -> None:
        if name not in self.release.sources:
            return
        self.found[name] = {"kind": "module", "module": "partial"}
        for part, held in self.release.module(name).names.items():
            if held.kind == "alias" and not part.startswith("__"):
                target, real = self.release.resolve(held.target)
                if real is not None and real.module in self.read and target != f"{name}.{part}":
                    self.binding(f"{name}.{part}", held)

    def binding(self, name: str, held: Binding) -> None:
        optional = {"optional": True} if held.optional else {}
        if held.kind == "alias":
            real, there = self.release.resolve(held.target)
            if real == name:
                return
            if held.node is not None and there is None and not real.startswith("torch._C."):
                # Assigned from something that only exists when the module runs.
                self.record(name, {"kind": "constant", **optional})
            else:
                more = {} if there is None or there.module in self.read else self.elsewhere(real, there)
                if there is not None and there.optional:
                    optional = {"optional": True}
                self.alias(name, real, more | optional)
        elif held.kind == "class":
            self.cls(name, held, optional)
        elif isinstance(held.node, Function):
            self.function(name, held, None, {"kind": "function", **optional})
        else:
            self.record(name, {"kind": "constant", **_value(held), **self.reading(held), **optional})

    def reading(self, held: Binding) -> Fact:
        """The deprecation of an object of which every use warns, because its class's `__getattribute__` does."""
        made = dotted(held.node.func) if isinstance(held.node, ast.Call) else None
        real, cls = self.release.resolve(f"{held.module}.{made}") if made else ("", None)
        read = self.release.body(real).get("__getattribute__") if cls is not None and cls.kind == "class" else None
        if read is None or not isinstance(read.node, Function):
            return {}
        itself = in_function(self.release, read, real).itself
        return {"deprecated": list(itself)} if itself else {}

    def record(self, name: str, fact: Fact) -> None:
        """Add to what is known of `name`: it may be a module as well."""
        self.found[name] = {**self.found.get(name, {}), **fact}

    def alias(self, name: str, target: str, more: Fact | None = None) -> None:
        self.record(name, {"kind": "alias", "target": target, **(more or {})})

    def elsewhere(self, real: str, held: Binding) -> Fact:
        """What is said of a thing where it is taken from a module that is not read."""
        if held.kind == "class":
            written = constructor(self.release, real)
            itself = decorated(held.node) if isinstance(held.node, ast.ClassDef) else None
        elif isinstance(held.node, Function):
            written, itself = signature(held.node, bound=False), decorated(held.node)
        else:
            return {}
        fact: Fact = {} if written is None else {"signature": written}
        return fact | ({"deprecated": list(itself)} if itself else {})

    def function(self, name: str, held: Binding, cls: str | None, fact: Fact) -> None:
        assert isinstance(held.node, Function)
        found = in_function(self.release, held, cls)
        self.members.update(found.members)
        written = signature(held.node, bound=fact["kind"] in ("method", "classmethod"), cls=cls or "")
        self.record(name, fact | {"signature": written} | _deprecated(found))

    def cls(self, name: str, held: Binding, more: Fact) -> None:
        if self.found.get(name, {}).get("kind") == "class":
            return
        assert isinstance(held.node, ast.ClassDef)
        bases = [*self.release.bases(name), *self.release.metaclass(name), *(["?"] if grows(held.node) else [])]
        written = constructor(self.release, name)
        fact = {
            "kind": "class",
            **more,
            **({} if written is None else {"signature": written}),
            **({"bases": bases} if bases else {}),
            "instance": sorted(instance_names(self.release, name)),
        }
        self.record(name, fact)
        for part, member in self.release.body(name).items():
            self.member(name, part, member)
        itself = decorated(held.node)
        if itself is not None:
            self.found[name]["deprecated"] = list(itself)
        else:
            inherited = self.found.get(f"{name}.__init__") or self.found.get(f"{name}.__new__") or {}
            self.found[name] |= {key: inherited[key] for key in inherited if key.startswith("deprecated")}
        for base in bases:
            self.base(base)

    def base(self, name: str) -> None:
        """Record the class `name`, of which something derives, wherever in the wheel it is."""
        real, held = self.release.resolve(name)
        if held is not None and held.kind == "class" and real not in self.found:
            self.cls(real, held, {})

    def member(self, cls: str, part: str, held: Binding) -> None:
        name = f"{cls}.{part}"
        kind = member_kind(self.release, cls, part, held)
        optional = {"optional": True} if held.optional else {}
        if kind == "instance" or (part.startswith("__") and not isinstance(held.node, Function)):
            return
        if kind == "class":
            self.cls(name, held, optional)
        elif kind == "alias":
            self.alias_member(name, held, optional)
        elif isinstance(held.node, Function) and kind != "property":
            self.function(name, held, cls, {"kind": kind, **optional})
        else:
            itself = decorated(held.node) if isinstance(held.node, Function) else None
            more = {"deprecated": list(itself)} if itself else {}
            self.record(name, {"kind": kind, **_value(held), **optional, **more})

    def alias_member(self, name: str, held: Binding, optional: Fact) -> None:
        real, there = self.release.resolve(held.target)
        if there is not None and real != name:
            self.alias(name, real, optional)
        else:
            self.record(name, {"kind": "constant", **optional})


def _deprecated(found: Deprecated) -> Fact:
    fact: Fact = {}
    if found.itself is not None:
        fact["deprecated"] = list(found.itself)
    if found.parameters:
        fact["deprecated_parameters"] = {name: list(found.parameters[name]) for name in sorted(found.parameters)}
    return fact


def _value(held: Binding) -> Fact:
    """The value of a short literal."""
    if isinstance(held.node, ast.Constant) and held.node.value is not ...:
        text = ast.unparse(held.node)
        return {"value": text} if len(text) <= _VALUE_LENGTH else {}
    return {}
