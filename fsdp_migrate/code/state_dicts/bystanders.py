"""What else stands under a state-dict type: code that leaves the model alone, or may ask it for state.

Whatever gets the model may ask it for a state dict, which then has the type that is set [55b]. So a block loses its
type only if every call in it is known: one of the table, one that does not get at the model, or a function of the
project that asks nothing for state.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from fsdp_migrate.code.argument_roles import is_called_optimizer
from fsdp_migrate.code.state_dicts.functions import Function, arguments_of, called, parameter_of, performed
from fsdp_migrate.code.state_dicts.new_calls import GETTERS, SETTERS, full_names
from fsdp_migrate.code.state_dicts.settings import NotUnderstood
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.class_members import is_super

SAVE, LOAD = "optim_state_dict", "optim_state_dict_to_load"
# What asks a model for state, whatever stands in front.
STATE_METHODS = frozenset({"state_dict", "load_state_dict"})
_ASKING = frozenset(
    {SAVE, LOAD, "state_dict_type", "set_state_dict_type", "save_pretrained", "save_model", "save_checkpoint"}
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
LOGGING = frozenset(
    "log info debug warning error critical exception print print_rank_0 barrier wait_for_everyone join format".split()
)
_WITH_STATE = frozenset({"save_pretrained", "_save"})
_MOST_STEPS = 4


class Bystanders:
    """What is not a state-dict call of `model`: `known` are nodes that are looked at elsewhere.

    With `own_states` optimizers may give their states themselves.
    """

    def __init__(self, facts: ModuleFacts, model: ast.expr, known: set[ast.AST], *, own_states: bool) -> None:
        self.facts, self.model, self.known, self._own_states = facts, model, known, own_states
        self._model_text = ast.dump(facts.fsdp.followed(model))
        self._owners = {ast.dump(owner) for owner in _owners(model)}

    def is_model(self, node: ast.AST) -> bool:
        """Whether an expression stands for the model."""
        return isinstance(node, ast.expr) and ast.dump(self.facts.fsdp.followed(node)) == self._model_text

    def is_part(self, node: ast.expr) -> bool:
        """Whether an expression stands for a part of the model."""
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
            if self.is_model(node):
                return True
        return False

    def check(self, node: ast.AST) -> None:
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
        if isinstance(node, ast.Call) and node not in self.known:
            self._check_call(node)
        elif isinstance(node, (ast.Name, ast.Attribute)) and (self.is_model(node) or self._is_stored(node)):
            self._check_model(node)

    def _is_entered_by_others(self, node: ast.Yield) -> bool:
        decorators = getattr(self.facts.function(node), "decorator_list", ())
        return any(name_of(one) in ("contextmanager", "asynccontextmanager") for one in decorators)

    def is_outside_matter(self, node: ast.AST) -> bool:
        """Whether something counts for all that is around it: others run, or the model is another one from there on."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._is_stored(node)
        return isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await))

    def _is_stored(self, node: ast.Name | ast.Attribute) -> bool:
        return not isinstance(node.ctx, ast.Load) and ast.unparse(node) == ast.unparse(self.model)

    def _mentions(self, function: ast.AST) -> bool:
        return any(self.is_model(node) for node in ast.walk(function))

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
        gets_model = any(self.is_model(one) or ast.dump(one) in self._owners for one in given)
        if self.is_model(call.func):
            return  # its forward
        if gets_model and qualified not in _INDIFFERENT and name not in LOGGING:
            if name in _WITH_STATE and any(keyword.arg == "state_dict" for keyword in call.keywords):
                return
            function = called(self.facts, call.func)
            if function is None:
                raise NotUnderstood(f"{text} gets the model, and may ask it for a state dict of this type")
            asking = _asks_for_state(function, self.model, _MOST_STEPS) or _hands_on(function, call, self.is_model)
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
        if self.is_model(owner) or self.is_part(owner):
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
            and func.attr not in LOGGING
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
        if name in STATE_METHODS and owner is not None and not (is_called_optimizer(owner) or has_own_state(owner)):
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
