"""The calls that a state-dict type is set for, and whether all else under it leaves the model alone.

Whatever gets the model may ask it for a state dict, which then has the type that is set [55b]. So a block loses its
type only if every call in it is known: one of the table, one that does not get at the model, or a function of the
project that asks nothing for state.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from fsdp_migrate.code.argument_roles import has_effect, is_called_optimizer
from fsdp_migrate.code.legacy_methods import METHODS, Method
from fsdp_migrate.code.state_dicts.functions import Function, arguments_of, called, parameter_of, performed, reads_of
from fsdp_migrate.code.state_dicts.mapping import LOAD_MODEL, LOAD_OPTIMIZER, SAVE_MODEL, SAVE_OPTIMIZER
from fsdp_migrate.code.state_dicts.new_calls import GETTERS, SETTERS, full_names
from fsdp_migrate.code.state_dicts.settings import IN_SHARDS, InForce, NotUnderstood, Wanted
from fsdp_migrate.code.state_dicts.sharded_loads import ShardedLoad, is_only_for_load, sharded_load
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind, is_literal
from fsdp_migrate.facts.class_members import is_super
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.records import NamedTuple

_SAVE, _LOAD = "optim_state_dict", "optim_state_dict_to_load"
_SAVE_PARAMETERS = ("model", "optim", "optim_state_dict", "group")
_OLD_LOAD_PARAMETERS = ("optim_state_dict", "model", "optim")  # up to torch 2.0; with newer ones the call fails
_LOAD_PARAMETERS = ("model", "optim", "optim_state_dict", "is_named_optimizer", "load_directly", "group")
# What asks a model for state, whatever stands in front.
_STATE_METHODS = frozenset({"state_dict", "load_state_dict"})
_ASKING = frozenset(
    {_SAVE, _LOAD, "state_dict_type", "set_state_dict_type", "save_pretrained", "save_model", "save_checkpoint"}
)
# Objects with a state of their own, that no type changes.
_OTHERS = re.compile(
    r"(?:\w*_)?(?:lr_)?(?:scheduler|sched|scaler|loader|dataloader|sampler|dataset|tokenizer|callbacks?|metrics?|"
    r"timer|tracker|logger|queue|generator|config|cfg|args|progress)s?\w*",
    re.IGNORECASE,
)
# Objects beside a model that `save_pretrained` writes to files of their own.
_WITHOUT_MODEL = re.compile(r"(?:\w*_)?(?:tokenizer|processor|config|cfg)s?", re.IGNORECASE)
# Calls that get the model and do nothing with its state, or set a type of their own for it.
_INDIFFERENT = frozenset(
    """
    builtins.isinstance builtins.type builtins.id builtins.hasattr builtins.print builtins.repr builtins.str
    builtins.issubclass builtins.callable
    """.split()
).union(full_names(*GETTERS, *SETTERS))
_MODEL_METHODS = frozenset(
    "eval train parameters named_parameters buffers named_buffers zero_grad requires_grad_".split()
)
_LOGGING = frozenset(
    "log info debug warning error critical exception print print_rank_0 barrier wait_for_everyone join format".split()
)
_WITH_STATE = frozenset({"save_pretrained", "_save"})
_MOST_STEPS = 4


class StateCall(NamedTuple):
    """One call under a type: what it is called afterwards, and its parts.

    `module` is the model or the part of it (`is_part`) whose state it is; `state` what is loaded, and `strict` as it is
    written; `load` the call of `optimizer.load_state_dict` that takes the result of `call`; `reading` what reads the
    state from a folder, in shards. A call that ignores the type has settings of its `own`.
    """

    function: str
    call: ast.Call
    module: ast.expr
    optimizer: ast.expr | None = None
    state: ast.expr | None = None
    strict: ast.expr | None = None
    load: ast.Call | None = None
    own: InForce | None = None
    reading: ShardedLoad | None = None
    is_part: bool = False


class Reading:
    """The statements under one setting of a type."""

    def __init__(
        self,
        facts: ModuleFacts,
        statements: Iterable[ast.stmt],
        model: ast.expr,
        only: ast.Call | None = None,
        known: frozenset[ast.AST] = frozenset(),
        *,
        own_states: bool = False,
    ) -> None:
        """Take the statements apart, or `only` a call in them that ignores the type; `known` are parts to leave out.

        With `own_states` optimizers may give their states themselves.

        Raises:
            NotUnderstood: something among them may use the type in another way.
        """
        self.facts, self.model, self._own_states = facts, model, own_states
        self._model_text = ast.dump(facts.fsdp.followed(model))
        self._owners = {ast.dump(owner) for owner in _owners(model)}
        self.nodes = [node for statement in statements for node in performed(statement)]
        self.inside = frozenset(self.nodes)
        self._statements = list(statements)
        self.calls: list[StateCall] = []
        self._known: set[ast.AST] = set(known)
        if only is not None:
            self._take(only)
            return
        for call in sorted((node for node in self.nodes if isinstance(node, ast.Call)), key=place_of):
            self._take(call)
        for node in self.nodes:
            if node not in known or self._is_outside_matter(node):
                self._check(node)
        self.calls.sort(key=lambda one: place_of(one.call))

    def _is_model(self, node: ast.AST) -> bool:
        return isinstance(node, ast.expr) and ast.dump(self.facts.fsdp.followed(node)) == self._model_text

    def _is_part(self, node: ast.expr) -> bool:
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
            if self._is_model(node):
                return True
        return False

    def _take(self, call: ast.Call) -> None:
        if call in self._known or not isinstance(call.func, ast.Attribute):
            return
        owner, name = call.func.value, call.func.attr
        found: StateCall | None = None
        if name in _STATE_METHODS and (self._is_model(owner) or self._is_part(owner)):
            found = self._of_model(call, owner, name)
        elif name in (_SAVE, _LOAD):
            found = self._of_optimizer(call, name)
        elif name in METHODS:
            found = self._of_legacy(call, METHODS[name])
        if found is not None and self._own_states and is_only_for_load(self.facts, call):
            self._known.update(ast.walk(call))
        elif found is not None:
            self.calls.append(found)
            self._known.update(one for one in (found.call, found.load) if one is not None)
            if found.reading is not None:
                dropped = set(ast.walk(found.reading.dropped))
                self.calls = [one for one in self.calls if one.call not in dropped]

    def _of_model(self, call: ast.Call, owner: ast.expr, name: str) -> StateCall:
        text = ast.unparse(owner)
        if "_orig_mod" in text and not self._is_model(owner):
            raise NotUnderstood(
                f"`{text}` is a compiled model, and the new functions leave `_orig_mod.` out of its names: change it "
                "by hand"
            )
        if name == "state_dict":
            if call.args or call.keywords:
                raise NotUnderstood(f"`{ast.unparse(call)}` has arguments that the new function does not accept")
            return StateCall(SAVE_MODEL, call, owner, is_part=not self._is_model(owner))
        try:
            bound = bind(call, ("state_dict", "strict", "assign"), 1)
        except BindingError as error:
            raise NotUnderstood(f"`{text}.load_state_dict` {error}") from None
        if "assign" in bound and not is_literal(bound["assign"].value, False):
            raise NotUnderstood("the new function has no `assign=`: change it by hand")
        strict = bound.get("strict")
        return StateCall(
            LOAD_MODEL,
            call,
            owner,
            state=bound["state_dict"].value,
            strict=None if strict is None else strict.value,
            is_part=not self._is_model(owner),
        )

    def _of_optimizer(self, call: ast.Call, name: str) -> StateCall | None:
        parameters = _SAVE_PARAMETERS if name == _SAVE else _LOAD_PARAMETERS
        if name == _LOAD and len(call.args) > 2 and self._is_model(call.args[1]):
            parameters = (*_OLD_LOAD_PARAMETERS, *_LOAD_PARAMETERS[3:])
        try:
            bound = bind(call, parameters, 2 if name == _SAVE else 3)
        except BindingError as error:
            raise NotUnderstood(f"`{name}` {error}") from None
        model, optimizer = bound["model"].value, bound["optim"].value
        assert isinstance(call.func, ast.Attribute)
        receiver = self.facts.fsdp.receiver(call.func, model)
        if receiver is None or not self._is_model(model):
            return None
        if receiver.doubt is not None:
            raise NotUnderstood(f"{receiver.doubt}: only torch's FSDP can be rewritten")
        self._check_optimizer(optimizer)
        group = bound.get("group")
        if group is not None and not is_literal(group.value, None):
            raise NotUnderstood(
                f"`{name}` gets the group `{ast.unparse(group.value)}`, but the new function needs all ranks"
            )
        if name == _SAVE:
            given = bound.get("optim_state_dict")
            if given is not None and not self._is_own_state(given.value, optimizer):
                raise NotUnderstood(
                    f"`{ast.unparse(given.value)}` is not the optimizer's own state dict, which the new function uses"
                )
            self._known.update([] if given is None else [given.value])
            return StateCall(SAVE_OPTIMIZER, call, model, optimizer)
        named, directly = bound.get("is_named_optimizer"), bound.get("load_directly")
        if named is not None and not is_literal(named.value, False):
            raise NotUnderstood("a `NamedOptimizer` is loaded here, which the new functions do not support")
        state = bound["optim_state_dict"].value
        if directly is not None and not is_literal(directly.value, False):
            if not is_literal(directly.value, True) or not isinstance(self.facts.structure.parents[call], ast.Expr):
                raise NotUnderstood(
                    "it is not visible whether this call loads the optimizer: write `load_directly=True` or `False`"
                )
            load = None
        else:
            load = self._loading(call, optimizer)
        reading = sharded_load(self.facts, state, model, optimizer)
        own = None if reading is None else IN_SHARDS
        return StateCall(LOAD_OPTIMIZER, call, model, optimizer, state, load=load, own=own, reading=reading)

    def _of_legacy(self, call: ast.Call, method: Method) -> StateCall | None:
        """One of the methods before torch 2.0, each of which stands for one type and config."""
        try:
            bound = bind(call, method.parameters, method.required)
        except BindingError as error:
            raise NotUnderstood(f"`{method.name}` {error}") from None
        model, optim = bound["model"].value, bound.get("optim")
        assert isinstance(call.func, ast.Attribute)
        receiver = self.facts.fsdp.receiver(call.func, model)
        if receiver is None or receiver.doubt is not None or not self._is_model(model):
            return None
        rank0_only = bound.get("rank0_only")
        if rank0_only is not None and not isinstance(rank0_only.value, ast.Constant):
            raise NotUnderstood(f"`rank0_only` of `{method.name}` is decided at run time: write True or False")
        group, given = bound.get("group"), bound.get("optim_input")
        if (group is not None and not is_literal(group.value, None)) or (
            given is not None and has_effect(self.facts, given.value)
        ):
            raise NotUnderstood(f"`{method.name}` has arguments that the new function does not have")
        self._known.update(node for one in (given,) if one is not None for node in ast.walk(one.value))
        wanted = Wanted(True, bool(method.rank0_only if rank0_only is None else rank0_only.value.value))  # type: ignore[attr-defined]
        own = InForce(method.type_name, wanted, wanted if method.rank0_only is not None else Wanted(True, False))
        if optim is not None:
            self._check_optimizer(optim.value)
        if not method.loads:
            return None if optim is None else StateCall(SAVE_OPTIMIZER, call, model, optim.value, own=own)
        load = self._loading(call, None if optim is None else optim.value)
        assert isinstance(load.func, ast.Attribute)
        optimizer = load.func.value if optim is None else optim.value
        return StateCall(LOAD_OPTIMIZER, call, model, optimizer, bound[method.state].value, load=load, own=own)

    def _check_optimizer(self, optimizer: ast.expr) -> None:
        wrapper = next(self._wrappers(optimizer), None)
        if wrapper is not None:
            raise NotUnderstood(f"`{wrapper}` is not a `torch.optim.Optimizer`, which the new functions require")
        made = self.facts.names.value(optimizer) if isinstance(optimizer, ast.Name) else None
        for meaning in self.facts.names.meanings(made.func) if isinstance(made, ast.Call) else ():
            cls = None if meaning.binding is None else meaning.binding.node
            if isinstance(cls, ast.ClassDef) and not any(
                "Optim" in ast.unparse(b) or _is_torch_optim(self.facts, b) for b in cls.bases
            ):
                raise NotUnderstood(f"`{cls.name}` is not a `torch.optim.Optimizer`, which the new functions require")

    def _wrappers(self, optimizer: ast.expr) -> Iterator[str]:
        """What shows that an optimizer is around another one: its class, or that it gives what it wraps."""
        facts = self.facts
        yield from (told for told in self._told_classes(optimizer) if "Wrapper" in told)
        methods = facts.structure.method_calls
        for func in (call.func for name in methods if name.startswith("unwrap") for call in methods[name]):
            is_own = isinstance(func, ast.Attribute) and facts.fsdp.same_object(func.value, optimizer)
            if is_own and facts.function(func) is facts.function(optimizer):
                yield ast.unparse(optimizer)

    def _told_classes(self, optimizer: ast.expr) -> list[str]:
        """The classes that an annotation or an `isinstance` gives an optimizer."""
        facts = self.facts
        told = [ast.unparse(cls) for cls in facts.fsdp.object_classes.classes(optimizer)]
        for call in facts.structure.calls:
            asked = name_of(call.func) == "isinstance" and len(call.args) == 2
            if asked and facts.function(call) is facts.function(optimizer):
                told += [ast.unparse(call.args[1])] if facts.fsdp.same_object(call.args[0], optimizer) else []
        return told

    def _is_own_state(self, node: ast.expr, optimizer: ast.expr) -> bool:
        if is_literal(node, None):
            return True
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict"
        return is_call and not node.args and self.facts.fsdp.same_object(node.func.value, optimizer)  # type: ignore[attr-defined]

    def _loading(self, call: ast.Call, optimizer: ast.expr | None) -> ast.Call:
        """The call of the optimizer's `load_state_dict` that takes the converted state, which nothing else uses."""
        parent = self.facts.structure.parents[call]
        if (
            isinstance(parent, ast.Call)
            and self._loads(parent, optimizer)
            and isinstance(self.facts.structure.parents[parent], ast.Expr)
        ):
            return parent
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
            target = parent.targets[0]
            loads = [self.facts.structure.parents[use] for use in reads_of(self.facts, target)]
            if len(loads) == 1 and isinstance(loads[0], ast.Call) and self._loads(loads[0], optimizer):
                load = loads[0]
                statement = self.facts.statement(load)
                if isinstance(statement, ast.Expr) and statement.value is load and self._follows(parent, statement):
                    return load
        raise NotUnderstood(
            "`load_state_dict` of the optimizer is not the only use of the converted state: "
            "`set_optimizer_state_dict` loads it and returns nothing"
        )

    def _follows(self, one: ast.stmt, two: ast.stmt) -> bool:
        """Whether `two` stands behind `one`, or behind the `with` that `one` ends, and what is between says nothing."""
        parents = self.facts.structure.parents
        outer = parents[one]
        if isinstance(outer, ast.With) and two not in outer.body and self._sets_type(outer):
            behind = outer.body[outer.body.index(one) + 1 :]
            return all(map(self._is_of_no_consequence, behind)) and self._follows(outer, two)
        if outer is not parents[two]:
            return False
        for _, block in ast.iter_fields(outer):
            if isinstance(block, list) and one in block and two in block:
                between = block[block.index(one) + 1 : block.index(two)]
                return all(map(self._is_of_no_consequence, between))
        return False

    def _sets_type(self, block: ast.With) -> bool:
        settings = (self.facts.fsdp.setting(item.context_expr) for item in block.items)
        return block.body == self._statements or any(setting is not None for setting in settings)

    def _is_of_no_consequence(self, statement: ast.stmt) -> bool:
        return isinstance(statement, ast.Delete) or self._is_telling(statement)

    def _is_telling(self, statement: ast.stmt) -> bool:
        call = statement.value if isinstance(statement, ast.Expr) else None
        return isinstance(call, ast.Call) and (name_of(call.func) in _LOGGING)

    def _loads(self, call: ast.Call, optimizer: ast.expr | None) -> bool:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "load_state_dict":
            return False
        if len(call.args) != 1 or call.keywords:
            return False
        return optimizer is None or self.facts.fsdp.same_object(call.func.value, optimizer)

    def _check(self, node: ast.AST) -> None:
        """Let pass what leaves the type alone.

        Raises:
            NotUnderstood: this may not.
        """
        if isinstance(node, ast.Yield) and self._is_entered_by_others(node):
            name = self.facts.function_name(node)
            raise NotUnderstood(f"{name} sets the type for its callers: call the new functions there")
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)):
            raise NotUnderstood(
                f"other code runs while the type is set, at the `{_keyword(node)}` in line {node.lineno}"
            )
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and self._mentions(node):
            name = getattr(node, "name", "a lambda")
            raise NotUnderstood(f"`{name}` is defined in the block and uses the model: move it out")
        if isinstance(node, ast.Call) and node not in self._known:
            self._check_call(node)
        elif isinstance(node, (ast.Name, ast.Attribute)) and (self._is_model(node) or self._is_stored(node)):
            self._check_model(node)

    def _is_entered_by_others(self, node: ast.Yield) -> bool:
        decorators = getattr(self.facts.function(node), "decorator_list", ())
        return any(name_of(one) in ("contextmanager", "asynccontextmanager") for one in decorators)

    def _is_outside_matter(self, node: ast.AST) -> bool:
        """Whether something counts for all that is around it: others run, or the model is another one from there on."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._is_stored(node)
        return isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await))

    def _is_stored(self, node: ast.Name | ast.Attribute) -> bool:
        return not isinstance(node.ctx, ast.Load) and ast.unparse(node) == ast.unparse(self.model)

    def _mentions(self, function: ast.AST) -> bool:
        return any(self._is_model(node) for node in ast.walk(function))

    def _check_model(self, node: ast.Name | ast.Attribute) -> None:
        parent = self.facts.structure.parents[node]
        if not isinstance(node.ctx, ast.Load):
            raise NotUnderstood(
                f"line {node.lineno} assigns another model to `{ast.unparse(node)}`: use another name for it"
            )
        passed = isinstance(parent, (ast.Attribute, ast.Call, ast.keyword, ast.Subscript, ast.Compare))
        if not passed and not isinstance(parent, ast.FormattedValue):
            text = " ".join(ast.unparse(self.facts.statement(node)).split())[:60]
            raise NotUnderstood(f"the model is passed on while the type is set (`{text}`)")

    def _check_call(self, call: ast.Call) -> None:
        if self.facts.fsdp.setting(call) is not None:
            raise NotUnderstood("another type is set inside the block: split the block")
        qualified = self.facts.names.qualified(call.func)
        name = name_of(call.func)
        text = f"`{_short(call)}`"
        given = arguments_of(call)
        gets_model = any(self._is_model(one) or ast.dump(one) in self._owners for one in given)
        if self._is_model(call.func):
            return  # its forward
        if gets_model and qualified not in _INDIFFERENT and name not in _LOGGING:
            if name in _WITH_STATE and any(keyword.arg == "state_dict" for keyword in call.keywords):
                return
            function = called(self.facts, call.func)
            if function is None:
                raise NotUnderstood(f"{text} gets the model, and may ask it for a state dict of this type")
            asking = _asks_for_state(function, self.model, _MOST_STEPS) or _hands_on(function, call, self._is_model)
            if asking is not None:
                raise NotUnderstood(f"{text} gets the model, and may ask it for a state dict of this type (`{asking}`)")
        if _may_ask(call):
            raise NotUnderstood(f"{text} may ask a model for a state dict of this type")
        if isinstance(call.func, ast.Attribute):
            self._check_method(call, call.func, text)
        self._check_callee(call, text)

    def _check_method(self, call: ast.Call, func: ast.Attribute, text: str) -> None:
        owner = func.value
        if func.attr in _WITH_STATE and any(keyword.arg == "state_dict" for keyword in call.keywords):
            return
        if self._is_model(owner) or self._is_part(owner):
            if func.attr not in _MODEL_METHODS:
                raise NotUnderstood(f"{text} may ask the model for a state dict of this type")
        elif func.attr == "state_dict" and is_called_optimizer(owner):
            if self._own_states:
                return
            raise NotUnderstood(
                f"{text} has parameter numbers and flat shards, whatever the type is, and `get_optimizer_state_dict` "
                "gives another file: choose by hand"
            )
        elif (
            (ast.dump(owner) in self._owners or is_super(owner))
            and func.attr not in _LOGGING
            and called(self.facts, func) is None
        ):
            raise NotUnderstood(
                f"{text} is a method of what holds the model, and may ask it for a state dict of this type"
            )
        elif func.attr == "state_dict" and not has_own_state(owner) and self._may_be_model(owner):
            raise NotUnderstood(f"{text} may be a model that this type is set for, too")

    def _may_be_model(self, owner: ast.expr) -> bool:
        return self.facts.fsdp.is_instance(owner) or name_of(owner) == name_of(self.model)

    def _check_callee(self, call: ast.Call, text: str) -> None:
        function = called(self.facts, call.func)
        asking = None if function is None else _asks_for_state(function, self.model, _MOST_STEPS)
        if asking is not None:
            raise NotUnderstood(f"{text} asks for state while the type is set (`{asking}`): move it out of the block")


def _asks_for_state(function: Function, model: ast.expr, depth: int) -> str | None:
    """A call in a function, or in one that it calls, that may ask a model for its state."""
    for node in performed(function.node):
        if not isinstance(node, ast.Call):
            continue
        name = name_of(node.func)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name in _STATE_METHODS and owner is not None and not (is_called_optimizer(owner) or has_own_state(owner)):
            return _short(node)
        if _may_ask(node):
            return _short(node)
        inner = called(function.facts, node.func) if depth else None
        if inner is not None and inner.node is not function.node:
            asking = _asks_for_state(inner, model, depth - 1)
            if asking is not None:
                return asking
    return None


def _hands_on(function: Function, call: ast.Call, is_model: Callable[[ast.expr], bool]) -> str | None:
    """A call in a function that hands the model of its caller on to what is not visible."""
    given = arguments_of(call)
    parameters = [parameter_of(function, call, one) for one in given if is_model(one)]
    if None in parameters or len(parameters) != sum(map(is_model, given)):
        return _short(call)
    names = {parameter.arg for parameter in parameters if parameter is not None}
    for node in performed(function.node):
        if isinstance(node, ast.Call):
            inner = arguments_of(node)
            passed = any(isinstance(one, ast.Name) and one.id in names for one in inner)
            qualified = function.facts.names.qualified(node.func) or ""
            if passed and not qualified.startswith(("torch.", "builtins.")):
                return _short(node)
    return None


def _may_ask(call: ast.Call) -> bool:
    """Whether a call may ask a model for its state, by its name; tokenizers and configs are saved without."""
    if name_of(call.func) not in _ASKING or any(keyword.arg == "state_dict" for keyword in call.keywords):
        return False
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    return name_of(call.func) != "save_pretrained" or _WITHOUT_MODEL.fullmatch(name_of(owner)) is None


def has_own_state(node: ast.expr) -> bool:
    """Whether an object is called like those that have a state beside model and optimizer: schedulers and the like."""
    return _OTHERS.fullmatch(name_of(node)) is not None


def _owners(model: ast.expr) -> Iterator[ast.expr]:
    """What a model hangs on: `self` and `self.trainer` for `self.trainer.model`."""
    while isinstance(model, (ast.Attribute, ast.Subscript)):
        model = model.value
        yield model


def _is_torch_optim(facts: ModuleFacts, node: ast.expr) -> bool:
    return (facts.names.qualified(node) or "").startswith("torch.")


def name_of(node: ast.expr) -> str:
    """The last name of a chain, or of what a call calls."""
    if isinstance(node, ast.Call):
        return name_of(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 50 else f"{text[:47]}..."


def _keyword(node: ast.AST) -> str:
    return "await" if isinstance(node, ast.Await) else "yield"
