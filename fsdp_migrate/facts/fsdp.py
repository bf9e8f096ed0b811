"""A module's use of FSDP: the class under its many spellings, its instances, and state-dict contexts."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cached_property

from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.class_members import ObjectClasses, all_members, instance_of_class, is_super
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.names import LOCAL, PACKAGE, STAR, Meaning, Names, is_in_package
from fsdp_migrate.facts.narrowing import Checks, Narrowing
from fsdp_migrate.facts.other_modules import ForeignClass
from fsdp_migrate.facts.scopes import Binding, Kind, Scope, Structure
from fsdp_migrate.records import NamedTuple

FSDP = f"{PACKAGE}.FullyShardedDataParallel"
MESH = "device_mesh"
# Packages with an FSDP of their own.
OTHER_PACKAGES = frozenset({"fairscale", "torch_xla", "megatron", "megatron_fsdp", "deepspeed", "fairseq"})
_MOST_ASKED = 20
_CLASS_NAMES = ("FSDP", "FullyShardedDataParallel")
_COPIED = frozenset({"summon_full_params", "full_optim_state_dict"})
STATE_DICT_TYPE = f"{PACKAGE}.StateDictType"


class Receiver(NamedTuple):
    """The class (or instance) on which a static FSDP method is called.

    `meanings` are those that are torch's FSDP. `doubt` says, as a sentence, what else it may be, None if nothing.
    """

    node: ast.expr
    meanings: tuple[Meaning, ...]
    doubt: str | None = None


class Config(NamedTuple):
    """A state-dict config: its class (last name) and its arguments; `fields` is None if they cannot be read."""

    cls: str
    fields: dict[str, ast.expr]


class TypeSetting(NamedTuple):
    """A call of `FSDP.state_dict_type(...)` or `set_state_dict_type(...)`, with its arguments."""

    call: ast.Call
    model: ast.expr
    type_name: str | None
    config: ast.expr | None
    optim_config: ast.expr | None
    type_node: ast.expr | None = None


_SETTING_PARAMETERS = ("module", "state_dict_type", "state_dict_config", "optim_state_dict_config")


class Fsdp:
    """The FSDP facts of one module."""

    def __init__(self, structure: Structure, names: Names, reached: Callable[[ast.AST], bool]) -> None:
        """`reached` tells whether a supported release runs a node."""
        self.structure = structure
        self.names = names
        self.object_classes = ObjectClasses(names)
        self.reached = reached
        self._imports: dict[Scope, tuple[Binding, ...]] = {}
        self._settings: dict[str, list[TypeSetting]] = {}
        self._asked: set[ast.expr] = set()  # what `is_instance` is looking at
        self._checks: Checks = {}

    @cached_property
    def subclasses(self) -> dict[str, ast.ClassDef]:
        """The classes of this file that derive from FSDP, directly or not, by name."""
        classes = [
            binding.node
            for scope in self.structure.module.nested()
            for bindings in scope.bindings.values()
            for binding in bindings
            if isinstance(binding.node, ast.ClassDef) and binding.kind is Kind.DEFINITION
        ]
        known: dict[str, ast.ClassDef] = {}
        while True:
            derived = [c for c in classes if c.name not in known and any(self._is_base(b, known) for b in c.bases)]
            if not derived:
                return known
            known.update((c.name, c) for c in derived)

    @cached_property
    def copied_class(self) -> ast.ClassDef | None:
        """The class of this file that is a copy of torch's FSDP, with methods that only that has; None if none is."""
        found = self.structure.module.bindings.get(FSDP.rpartition(".")[2], ())
        classes = [b.node for b in found if isinstance(b.node, ast.ClassDef) and b.name not in self.subclasses]
        return next((cls for cls in classes if {getattr(one, "name", None) for one in cls.body} >= _COPIED), None)

    def _is_base(self, base: ast.expr, known: dict[str, ast.ClassDef]) -> bool:
        symbols = self.names.symbols(base)
        if FSDP in symbols or any(self._foreign(symbol) is not None for symbol in symbols):
            return True
        return any(symbol is not None and symbol.removeprefix(f"{LOCAL}.") in known for symbol in symbols)

    def _foreign(self, symbol: str | None) -> ForeignClass | None:
        """The subclass of FSDP in another module of the project that a name means."""
        if symbol is None or self.names.project is None or symbol.split(".")[0] in ("torch", "builtins", LOCAL, STAR):
            return None
        return self.names.project.subclass(symbol)

    def is_subclass(self, symbol: str) -> bool:
        """Whether a canonical name is a subclass of FSDP, in this file or in its project."""
        if symbol.startswith(f"{LOCAL}."):
            return symbol.removeprefix(f"{LOCAL}.") in self.subclasses
        return self._foreign(symbol) is not None

    def overriding(self, method: str) -> str | None:
        """The name of a subclass of FSDP, in this file or imported, that defines `method`; None if there is none."""
        own = ((name, all_members(cls, self.names)) for name, cls in self.subclasses.items())
        used = ((foreign.name, foreign.members) for foreign in self._foreign_used)
        return next((name for name, methods in (*own, *used) if method in methods), None)

    @cached_property
    def _foreign_used(self) -> tuple[ForeignClass, ...]:
        """The subclasses of FSDP that the file imports from its project."""
        targets = (target for binding in self._imports_anywhere for target in self.names.targets(binding))
        return tuple(foreign for target in targets if (foreign := self._foreign(target)) is not None)

    @cached_property
    def _imports_anywhere(self) -> tuple[Binding, ...]:
        bindings = (b for scope in self.structure.module.nested() for found in scope.bindings.values() for b in found)
        return tuple(binding for binding in bindings if binding.kind is Kind.IMPORT)

    @cached_property
    def imported(self) -> frozenset[str]:
        """The full names of all imports of the file, followed through the project."""
        targets = (target for binding in self._imports_anywhere for target in self.names.targets(binding))
        return frozenset(target for target in targets if target is not None)

    def is_class(self, node: ast.expr, member: str | None = None) -> bool:
        """Whether `node` is certainly FSDP, or a subclass that does not define `member`."""
        meanings = self._live_meanings(node)
        return bool(meanings) and all(self._names_class(meaning, member) for meaning in meanings)

    def _live_meanings(self, node: ast.expr) -> tuple[Meaning, ...]:
        """The meanings of `node`, without those of old arms of version checks and dead fallbacks."""
        meanings = self.names.meanings(node)
        if len(meanings) < 2:
            return meanings
        live = tuple(m for m in meanings if m.binding is None or self.reached(m.binding.node))
        return live or meanings

    def _names_class(self, meaning: Meaning, method: str | None = None) -> bool:
        symbol = meaning.symbol
        if symbol is None:
            return False
        if symbol == FSDP:
            return True
        if not symbol.startswith(f"{LOCAL}."):
            foreign = self._foreign(symbol)
            return foreign is not None and method not in foreign.members
        cls = self.subclasses.get(symbol.removeprefix(f"{LOCAL}."))
        return cls is not None and not (method and method in all_members(cls, self.names))

    def receiver(self, func: ast.expr, model: ast.expr | None) -> Receiver | None:
        """The FSDP class or instance of `func` (`FSDP.method`), None if it is something else.

        `model` is the call's model argument: `x.method(x, ...)` passes its own instance to a static method.
        """
        if not isinstance(func, ast.Attribute):
            return None
        node = func.value
        meanings = self._live_meanings(node) if isinstance(node, (ast.Name, ast.Attribute)) else ()
        classes = tuple(m for m in meanings if self._names_class(m, func.attr))
        if classes:
            others = sorted({_described(meaning) for meaning in meanings if meaning not in classes})
            text = ast.unparse(node)
            return Receiver(node, classes, f"`{text}` may also be {others[0]} here" if others else None)
        return self._instance_receiver(func, node, meanings, model)

    def _instance_receiver(
        self, func: ast.Attribute, node: ast.expr, meanings: tuple[Meaning, ...], model: ast.expr | None
    ) -> Receiver | None:
        instance = instance_of_class(node) or node
        if self.is_instance(instance, func.attr) or self._is_super_of_fsdp(node, func.attr):
            return Receiver(node, ())
        if any(meaning.qualified is not None for meaning in meanings) or not pure(instance):
            return None
        if model is None or ast.dump(instance) != ast.dump(model) or self._defined_here(func.attr):
            return None
        others = self._other_fsdps(instance)
        if others and all(other.split(".")[0] in OTHER_PACKAGES for other in others):
            return None
        return Receiver(node, (), f"`{ast.unparse(node)}` may be an instance of `{others[0]}`" if others else None)

    def _other_fsdps(self, node: ast.expr) -> list[str]:
        """The classes called FSDP that may not be torch's, if `node` can only be an object of these."""
        meanings = [meaning for cls in self.object_classes.all_classes(node) for meaning in self.names.meanings(cls)]
        named = [meaning.qualified or "" for meaning in meanings if not self._names_class(meaning)]
        if len(named) < len(meanings) or not all(name.endswith(_CLASS_NAMES) for name in named):
            return []
        return [name.removeprefix(f"{LOCAL}.") for name in named]

    def _is_super_of_fsdp(self, node: ast.expr, method: str) -> bool:
        """Whether `node` is the `super()` of a subclass of FSDP, and its `method` is FSDP's own."""
        outer: ast.AST | None = node if is_super(node) else None
        while outer is not None and not isinstance(outer, ast.ClassDef):
            outer = self.structure.parents.get(outer)
        return outer is not None and any(self.is_class(base, method) for base in outer.bases)

    def possible_receiver(self, func: ast.Attribute) -> Receiver | None:
        """The receiver of a method that only FSDP has, if the file does not show what the receiver is.

        None if it is something else, or if the file defines such a method itself, or does not use torch's FSDP.
        """
        node = func.value
        if not self.may_be_fsdp(node, func.attr):
            return None
        return Receiver(node, (), f"it is not visible here whether `{ast.unparse(node)}` is an FSDP module or class")

    def may_be_fsdp(self, node: ast.expr, method: str) -> bool:
        """Whether an unknown object may have a method that only FSDP has, as far as the file shows."""
        if self._defined_here(method):
            return False
        meanings = self.names.meanings(node)
        if any(self._names_class(meaning, method) for meaning in meanings):
            return True
        others = self._other_fsdps(node)
        if others and all(other.split(".")[0] in OTHER_PACKAGES for other in others):
            return False
        names = [meaning.qualified for meaning in meanings if meaning.qualified is not None]
        hidden = [name for name in names if name.startswith(STAR)]
        if not all(name in hidden or self._is_variable(name) for name in names):
            return False
        return self._uses_fsdp or bool(hidden)

    def may_be_unseen(self, method: str) -> bool:
        """Whether an object that is not visible may be FSDP with its own `method`, as far as the file shows."""
        return self._uses_fsdp and not self._defined_here(method)

    def _is_variable(self, name: str) -> bool:
        """Whether a name is assigned in this file or its project, so that it may be any object."""
        root, _, rest = name.partition(".")
        if root == LOCAL:
            return "." in rest  # what a class holds
        project = self.names.project
        return project is not None and root not in ("torch", "builtins") and project.is_variable(name)

    @cached_property
    def _uses_fsdp(self) -> bool:
        """Whether the file names torch's FSDP package, or imports from a module of its project that does."""
        targets = {binding.target or "" for binding in self._imports_anywhere}
        if any(name.startswith(PACKAGE) for name in (*targets, *self.imported)) or self._foreign_used:
            return True
        if any(isinstance(text.value, str) and is_in_package(text.value) for text in self.structure.strings):
            return True
        chains = (node for node in self.structure.attributes if node.attr == "fsdp")
        if any(self.names.qualified(node) == PACKAGE for node in chains):
            return True
        project = self.names.project
        return project is not None and any(project.names_fsdp(target) for target in sorted(targets))

    def _defined_here(self, method: str) -> bool:
        return any(function.name == method for function in self.structure.functions)

    def is_instance(self, node: ast.expr, method: str | None = None) -> bool:
        """Whether `node` is certainly an FSDP module: built, annotated or tested as one in this file, or its `self`.

        With a `method`, one whose class does not define it.
        """
        if node in self._asked or len(self._asked) > _MOST_ASKED:
            return False
        self._asked.add(node)
        try:
            return self._holds_instance(node, method)
        finally:
            self._asked.discard(node)

    def _holds_instance(self, node: ast.expr, method: str | None) -> bool:
        if isinstance(node, ast.Call):
            return self.is_class(node.func, method)
        if isinstance(node, ast.Subscript):
            return not isinstance(node.slice, ast.Slice) and self._narrowing(method).yields_models(node.value)
        if isinstance(node, ast.Attribute):
            built = any(self.is_class(cls, method) for cls in self.object_classes.classes(node))
        elif isinstance(node, ast.Name):
            built = any(self._binds_instance(binding, method) for binding in self.names.bindings(node))
        else:
            return False
        return built or self._narrowing(method).narrows(node)

    def is_tested(self, node: ast.Name | ast.Attribute) -> bool:
        """Whether a test, or a loop over FSDP models, shows that `node` is one at its place."""
        return self._narrowing(None).narrows(node)

    def _narrowing(self, method: str | None) -> Narrowing:
        return Narrowing(
            self.names,
            lambda cls: self.is_class(cls, method),
            lambda model: self.is_instance(model, method),
            self._checks,
        )

    def _binds_instance(self, binding: Binding, method: str | None) -> bool:
        if isinstance(binding.value, ast.Subscript):
            return self.is_instance(binding.value, method)
        if any(self.is_class(cls, method) for cls in self.object_classes.of_binding(binding)):
            return True
        cls = self._class_of_self(binding) if binding.kind is Kind.PARAMETER else None
        return cls is not None and not (method and method in all_members(cls, self.names))

    def _class_of_self(self, binding: Binding) -> ast.ClassDef | None:
        function = binding.scope.node
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not function.args.args:
            return None
        cls = self.structure.parents.get(function)
        if function.args.args[0] is not binding.node or not isinstance(cls, ast.ClassDef):
            return None
        return self.subclasses.get(cls.name)

    @cached_property
    def constructions(self) -> tuple[ast.Call, ...]:
        """Every `FSDP(module, ...)` of the file."""
        return tuple(call for call in self.structure.calls if self.is_class(call.func))

    @cached_property
    def builds_without_mesh(self) -> bool:
        """Whether the file builds FSDP models, and nothing in it can have a `device_mesh`."""
        named = any(keyword.arg == MESH for call in self.structure.calls for keyword in call.keywords)
        named = named or any(constant.value == MESH for constant in self.structure.strings)
        unpacked = any(keyword.arg is None for call in self.constructions for keyword in call.keywords)
        return bool(self.constructions) and not named and not unpacked

    def imports(self, scope: Scope) -> tuple[Binding, ...]:
        """The visible imports of torch's FSDP class, in the innermost scope around `scope` that has any."""
        found = (self._imports_in(outer) for outer in scope.enclosing())
        return next((bindings for bindings in found if bindings), ())

    def _imports_in(self, scope: Scope) -> tuple[Binding, ...]:
        if scope not in self._imports:
            bindings = (binding for found in scope.bindings.values() for binding in found)
            self._imports[scope] = tuple(binding for binding in bindings if self.names.brings(binding, FSDP))
        return self._imports[scope]

    def settings(self, method: str) -> Sequence[TypeSetting]:
        """The calls of `FSDP.<method>` that set a state-dict type."""
        if method not in self._settings:
            found = map(self.setting, self.structure.method_calls.get(method, ()))
            self._settings[method] = [setting for setting in found if setting is not None]
        return self._settings[method]

    def setting(self, node: ast.expr) -> TypeSetting | None:
        """`node` as a call of FSDP.state_dict_type or FSDP.set_state_dict_type, None if it is not one."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return None
        if node.func.attr not in ("state_dict_type", "set_state_dict_type"):
            return None
        arguments = dict(zip(_SETTING_PARAMETERS, node.args))
        arguments.update((k.arg, k.value) for k in node.keywords if k.arg is not None)
        model = arguments.get("module")
        if model is None or self.receiver(node.func, model) is None:
            return None
        return TypeSetting(
            call=node,
            model=model,
            type_name=self.type_name(arguments.get("state_dict_type")),
            config=_given(arguments.get("state_dict_config")),
            optim_config=_given(arguments.get("optim_state_dict_config")),
            type_node=arguments.get("state_dict_type"),
        )

    def type_name(self, node: ast.expr | None) -> str | None:
        """`FULL_STATE_DICT`, `SHARDED_STATE_DICT` or `LOCAL_STATE_DICT`, None if it is not visible."""
        qualified = None if node is None else self.names.qualified(node)
        prefix = f"{STATE_DICT_TYPE}."
        return qualified.removeprefix(prefix) if qualified is not None and qualified.startswith(prefix) else None

    def config(self, node: ast.expr) -> Config | None:
        """A config object, written here or where its name is bound; None if it is not visible."""
        if isinstance(node, ast.Name):
            definition = self.names.definition(node)
            if not isinstance(definition, ast.Call) or self._is_changed(node.id):
                return None
            node = definition
        if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
            return None
        qualified = self.names.qualified(node.func)
        if qualified is None or not qualified.startswith(f"{PACKAGE}.") or any(k.arg is None for k in node.keywords):
            return None
        # The order since torch 2.2; in 2.1 the second position was use_dtensor (catalogue: cfg-positional-2.1).
        fields = dict(zip(("offload_to_cpu", "rank0_only"), node.args))
        fields.update((k.arg, k.value) for k in node.keywords if k.arg is not None)
        return Config(qualified.rpartition(".")[2], fields)

    def _is_changed(self, name: str) -> bool:
        """Whether the file assigns an attribute of the object in `name`."""
        return any(isinstance(one.value, ast.Name) and one.value.id == name for one in self.structure.stores)

    def same_object(self, one: ast.expr, other: ast.expr) -> bool:
        """Whether two expressions mean one object, directly or through a name bound once to the other."""
        return ast.dump(self.followed(one)) == ast.dump(self.followed(other))

    def followed(self, node: ast.expr) -> ast.expr:
        """The expression that a name is bound to, if it is bound once and the expression is never assigned."""
        for _ in range(10):
            value = self.names.value(node) if isinstance(node, ast.Name) else None
            if value is None or not pure(value) or self._is_stored(value):
                break
            node = value
        return node

    def _is_stored(self, node: ast.expr) -> bool:
        text = ast.unparse(node)
        return any(ast.unparse(store) == text for store in self.structure.stores) and isinstance(node, ast.Attribute)


def _described(meaning: Meaning) -> str:
    if meaning.qualified is None:
        return "something else"
    if meaning.qualified.startswith(f"{STAR}."):
        return "a name from a star import"
    local = meaning.qualified.removeprefix(f"{LOCAL}.")
    return f"the `{local}` of this file" if local != meaning.qualified else meaning.qualified


def _given(node: ast.expr | None) -> ast.expr | None:
    return None if is_literal(node, None) else node
