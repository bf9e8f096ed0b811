"""The state-dict calls that a type is set for, taken apart."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from fsdp_migrate.code.argument_roles import has_effect
from fsdp_migrate.code.legacy_methods import METHODS, Method
from fsdp_migrate.code.state_dicts.bystanders import LOAD, LOGGING, SAVE, STATE_METHODS, Bystanders, name_of
from fsdp_migrate.code.state_dicts.functions import performed, reads_of
from fsdp_migrate.code.state_dicts.mapping import LOAD_MODEL, LOAD_OPTIMIZER, SAVE_MODEL, SAVE_OPTIMIZER
from fsdp_migrate.code.state_dicts.settings import IN_SHARDS, InForce, NotUnderstood, Wanted
from fsdp_migrate.code.state_dicts.sharded_loads import ShardedLoad, is_only_for_load, sharded_load
from fsdp_migrate.code.state_dicts.wrapped_optimizers import check_plain
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind, is_literal
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.records import NamedTuple

_SAVE_PARAMETERS = ("model", "optim", "optim_state_dict", "group")
_OLD_LOAD_PARAMETERS = ("optim_state_dict", "model", "optim")  # up to torch 2.0; with newer ones the call fails
_LOAD_PARAMETERS = ("model", "optim", "optim_state_dict", "is_named_optimizer", "load_directly", "group")


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
        self.nodes = [node for statement in statements for node in performed(statement)]
        self.inside = frozenset(self.nodes)
        self._statements = list(statements)
        self.calls: list[StateCall] = []
        self._known: set[ast.AST] = set(known)
        self._others = Bystanders(facts, model, self._known, own_states=own_states)
        if only is not None:
            self._take(only)
            return
        for call in sorted((node for node in self.nodes if isinstance(node, ast.Call)), key=place_of):
            self._take(call)
        for node in self.nodes:
            if node not in known or self._others.is_outside_matter(node):
                self._others.check(node)
        self.calls.sort(key=lambda one: place_of(one.call))

    def _take(self, call: ast.Call) -> None:
        if call in self._known or not isinstance(call.func, ast.Attribute):
            return
        owner, name = call.func.value, call.func.attr
        found: StateCall | None = None
        if name in STATE_METHODS and (self._others.is_model(owner) or self._others.is_part(owner)):
            found = self._of_model(call, owner, name)
        elif name in (SAVE, LOAD):
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
        if "_orig_mod" in text and not self._others.is_model(owner):
            raise NotUnderstood(
                f"`{text}` is a compiled model, and the new functions leave `_orig_mod.` out of its names: change it "
                "by hand"
            )
        if name == "state_dict":
            if call.args or call.keywords:
                raise NotUnderstood(f"`{ast.unparse(call)}` has arguments that the new function does not accept")
            return StateCall(SAVE_MODEL, call, owner, is_part=not self._others.is_model(owner))
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
            is_part=not self._others.is_model(owner),
        )

    def _of_optimizer(self, call: ast.Call, name: str) -> StateCall | None:
        parameters = _SAVE_PARAMETERS if name == SAVE else _LOAD_PARAMETERS
        if name == LOAD and len(call.args) > 2 and self._others.is_model(call.args[1]):
            parameters = (*_OLD_LOAD_PARAMETERS, *_LOAD_PARAMETERS[3:])
        try:
            bound = bind(call, parameters, 2 if name == SAVE else 3)
        except BindingError as error:
            raise NotUnderstood(f"`{name}` {error}") from None
        model, optimizer = bound["model"].value, bound["optim"].value
        assert isinstance(call.func, ast.Attribute)
        receiver = self.facts.fsdp.receiver(call.func, model)
        if receiver is None or not self._others.is_model(model):
            return None
        if receiver.doubt is not None:
            raise NotUnderstood(f"{receiver.doubt}: only torch's FSDP can be rewritten")
        check_plain(self.facts, optimizer)
        group = bound.get("group")
        if group is not None and not is_literal(group.value, None):
            raise NotUnderstood(
                f"`{name}` gets the group `{ast.unparse(group.value)}`, but the new function needs all ranks"
            )
        if name == SAVE:
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
        if receiver is None or receiver.doubt is not None or not self._others.is_model(model):
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
            check_plain(self.facts, optim.value)
        if not method.loads:
            return None if optim is None else StateCall(SAVE_OPTIMIZER, call, model, optim.value, own=own)
        load = self._loading(call, None if optim is None else optim.value)
        assert isinstance(load.func, ast.Attribute)
        optimizer = load.func.value if optim is None else optim.value
        return StateCall(LOAD_OPTIMIZER, call, model, optimizer, bound[method.state].value, load=load, own=own)

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
        return isinstance(call, ast.Call) and (name_of(call.func) in LOGGING)

    def _loads(self, call: ast.Call, optimizer: ast.expr | None) -> bool:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "load_state_dict":
            return False
        if len(call.args) != 1 or call.keywords:
            return False
        return optimizer is None or self.facts.fsdp.same_object(call.func.value, optimizer)
