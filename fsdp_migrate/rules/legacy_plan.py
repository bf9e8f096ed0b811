"""How each legacy optimizer-state call of a module is rewritten, or why it cannot be.

All legacy methods ignore the state-dict type that is set on the model; their replacements obey it. A plan therefore
sets the type and the optimizer config that the old method stood for around exactly one call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from fsdp_migrate.edits import Argument, Context, Hoist, RewriteCall, Wrap
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, Bound, bind, is_literal
from fsdp_migrate.facts.contexts import matching_context
from fsdp_migrate.facts.evaluation import calls_in, is_reading, pure
from fsdp_migrate.facts.fsdp import FSDP, Receiver
from fsdp_migrate.facts.held import instance_of_class
from fsdp_migrate.facts.parts import type_set_on_part
from fsdp_migrate.findings import Fix
from fsdp_migrate.rules.callers import is_called_optimizer
from fsdp_migrate.rules.card import Verdict, manual
from fsdp_migrate.rules.dropped import kept_comment
from fsdp_migrate.rules.imports import CannotSupply, Supply, fresh_name, spelled, supply
from fsdp_migrate.rules.legacy_methods import FLOOR, METHODS, Method
from fsdp_migrate.rules.meshes import mesh_doubt
from fsdp_migrate.rules.optimizer import find_optimizer, loaded_into
from fsdp_migrate.rules.placement import CannotPlace, Placement, is_printed_as_code, place
from fsdp_migrate.rules.roles import has_effect, is_group, is_optim_input
from fsdp_migrate.rules.swallowed import goes_on_after_error, swallowing_handler
from fsdp_migrate.rules.usable import NoOptimizer

FULL_CONFIG = "FullOptimStateDictConfig"
_DROPPED = ("optim_input", "rank0_only")
# What an argument is called when it gets a name of its own.
_ARGUMENT_LOCALS = {
    "full_optim_state_dict": "full_osd",
    "sharded_optim_state_dict": "sharded_osd",
    "optim": "optimizer",
}


class Planned(NamedTuple):
    """A legacy call that is reached on the supported range, and what can be done about it."""

    call: ast.Call
    method: Method
    verdict: Verdict


class _Manual(Exception):
    """The call cannot be rewritten; the message says why and what to do."""


def plans(facts: ModuleFacts) -> tuple[Planned, ...]:
    """Every legacy call of the module with its verdict, in source order."""
    return facts.memo(plans, lambda: tuple(_Planner(facts).run()))


class _Planner:
    """Plans the rewrite of each legacy call of one module."""

    def __init__(self, facts: ModuleFacts) -> None:
        self.facts = facts
        found = (self._legacy(call) for call in facts.structure.calls)
        self.found = [one for one in found if one is not None]
        self.calls = frozenset(call for call, _, _ in self.found)
        self.given_names: dict[ast.AST, set[str]] = {}

    def run(self) -> Iterator[Planned]:
        for call, method, receiver in self.found:
            try:
                verdict = self._plan(call, method, receiver)._replace(note=self._note(call, method))
            except (_Manual, NoOptimizer, CannotPlace, CannotSupply) as reason:
                verdict = manual(str(reason))
            yield Planned(call, method, verdict)

    def _legacy(self, call: ast.Call) -> tuple[ast.Call, Method, Receiver] | None:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in METHODS:
            return None
        method = METHODS[call.func.attr]
        position = method.parameters.index("model")
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        model = keywords.get("model", call.args[position] if position < len(call.args) else None)
        receiver = self.facts.fsdp.receiver(call.func, model) or self.facts.fsdp.possible_receiver(call.func)
        if receiver is None or not self.facts.reached(call):
            return None
        return call, method, receiver

    def _plan(self, call: ast.Call, method: Method, receiver: Receiver) -> Verdict:
        self._check_receiver(method, receiver)
        bound = self._bound(call, method)
        model = bound["model"].value
        if not pure(model):
            raise _Manual(f"the model is `{ast.unparse(model)}`, which the rewrite would evaluate twice: name it first")
        self._check_arguments(call, bound)
        rank0_only = self._rank0_only(method, bound)
        optimizer = self._optimizer(call, method, bound)
        new_call = self._new_call(call, method, bound, optimizer)
        unsafe = mesh_doubt(self.facts, call, method, model) or self._order_doubt(method, bound)
        if is_printed_as_code(self.facts, call):
            raise _Manual("the call stands in an f-string that prints its own text (`=`): assign its result to a name")
        if matching_context(self.facts, call, model, method.type_name, rank0_only):
            return Verdict(Fix((new_call,)), unsafe=unsafe)
        part = type_set_on_part(self.facts, call, model)
        if part is not None:
            raise _Manual(f"another state-dict type is set on `{part}`, a part of the model: set one type on all of it")
        kept = [argument.value for name, argument in bound.items() if name not in _DROPPED]
        placement = place(self.facts, call, kept, self.calls, alone=goes_on_after_error(self.facts, call))
        names = supply(self.facts, self._symbols(rank0_only), call, receiver, FLOOR)
        context = self._context(call, method, receiver, model, rank0_only, names)
        prologue, new_call = self._evaluated_first(placement, bound, new_call)
        placed = self._placed(placement, method, new_call, context, (*names.prologue, *prologue))
        edits = (*names.edits, *placement.splits, placed)
        if names.prologue or prologue or not placement.whole:
            unsafe = unsafe or self._listing(call)
        return Verdict(Fix(edits), unsafe=unsafe or swallowing_handler(self.facts, call))

    def _listing(self, call: ast.Call) -> str | None:
        """Whether the function asks what its names are, of which there are more now."""
        scope = self.facts.scope(call)
        listed = next((use for use in scope.uses.get("locals", ()) if scope.lookup("locals") is None), None)
        return None if listed is None else f"`locals()` in line {listed.lineno} lists a name more"

    def _note(self, call: ast.Call, method: Method) -> str | None:
        """What to say of the comments at arguments that go."""
        bound = self._bound(call, method)
        notes = (kept_comment(self.facts, call, bound[name]) for name in _DROPPED if name in bound)
        return "; ".join(note for note in notes if note is not None) or None

    def _check_receiver(self, method: Method, receiver: Receiver) -> None:
        """The new methods have to be torch's own, on something that may be written twice."""
        if receiver.doubt is not None:
            raise _Manual(f"{receiver.doubt}: only torch's FSDP can be rewritten")
        if not pure(receiver.node) and instance_of_class(receiver.node) is None:
            text = ast.unparse(receiver.node)
            raise _Manual(f"`{text}` would be evaluated twice: call the method on the class")
        if all(meaning.symbol == FSDP for meaning in receiver.meanings) and receiver.meanings:
            return
        for name in (method.new, "state_dict_type"):
            cls = self.facts.fsdp.overriding(name)
            if cls is not None:
                raise _Manual(f"`{cls}` has its own `{name}`: call the method on FSDP itself")

    def _order_doubt(self, method: Method, bound: dict[str, Bound]) -> str | None:
        """Whether `optim` may be None, so that the order came from the `optim_input` that goes."""
        optim, optim_input = bound.get("optim"), bound.get("optim_input")
        if not method.loads or optim is None or optim_input is None or is_literal(optim_input.value, None):
            return None
        if isinstance(optim.value, ast.Name) and self.facts.names.may_be_none(optim.value):
            return f"where `{optim.value.id}` is None, the order came from `optim_input`, which goes"
        return None

    def _bound(self, call: ast.Call, method: Method) -> dict[str, Bound]:
        try:
            bound = bind(call, method.parameters, method.required)
        except BindingError as error:
            if method.older is None:
                raise _Manual(f"the call {error}") from None
            try:
                return bind(call, method.older, method.required)
            except BindingError:
                raise _Manual(f"the call {error}") from None
        return self._by_meaning(call, method, bound)

    def _by_meaning(self, call: ast.Call, method: Method, bound: dict[str, Bound]) -> dict[str, Bound]:
        """Read the one position that changed its meaning as what the argument says it is."""
        if method.older is None:
            return bound
        position = next(n for n, (a, b) in enumerate(zip(method.parameters, method.older)) if a != b)
        if len(call.args) != position + 1:
            return bound
        argument = call.args[position]
        wanted = method.older[position]
        grouped = is_group(self.facts, argument)
        as_older = is_optim_input(argument) and not grouped if wanted == "optim_input" else grouped
        return bind(call, method.older, method.required) if as_older else bound

    def _check_arguments(self, call: ast.Call, bound: dict[str, Bound]) -> None:
        """Arguments that go must do nothing; none may bind a name that another reads."""
        if "optim_input" in bound and has_effect(self.facts, bound["optim_input"].value):
            text = ast.unparse(bound["optim_input"].value)
            raise _Manual(f"`{text}` would no longer be evaluated: drop it by hand if it has no effect")
        assigned = {
            part.target.id: name
            for name, argument in bound.items()
            for part in ast.walk(argument.value)
            if isinstance(part, ast.NamedExpr)
        }
        for name, argument in bound.items():
            read = {part.id for part in ast.walk(argument.value) if isinstance(part, ast.Name)}
            if any(assigned[word] != name for word in read & assigned.keys()):
                raise _Manual("a name is bound with `:=` in one argument and used in another: bind it before the call")

    def _rank0_only(self, method: Method, bound: dict[str, Bound]) -> str | None:
        """The text of `rank0_only` for the config, which is evaluated before the other arguments."""
        if method.rank0_only is None:
            return None
        given = bound.get("rank0_only")
        if given is None:
            return str(method.rank0_only)
        moving = any(not is_reading(inner, self.facts.names) for inner in calls_in(given.value))
        if moving or any(isinstance(part, ast.NamedExpr) for part in ast.walk(given.value)):
            raise _Manual(f"`{ast.unparse(given.value)}` would be evaluated earlier: bind it to a name before the call")
        return self._text(given.value)

    def _text(self, node: ast.expr) -> str:
        """The source text of an expression, on one line."""
        text = self.facts.source.segment(node)
        return ast.unparse(node) if "\n" in text or "\r" in text else text

    def _optimizer(self, call: ast.Call, method: Method, bound: dict[str, Bound]) -> ast.expr | None:
        """The optimizer that a loading method's replacement needs."""
        if not method.loads:
            return None
        given = bound.get("optim")
        if given is not None and method.older is not None and given.index == len(method.older) - 1 < len(call.args):
            self._check_position(call, method, given.value)
        return find_optimizer(self.facts, call, given, bound["model"].value)

    def _check_position(self, call: ast.Call, method: Method, given: ast.expr) -> None:
        """The last position had another meaning once: an optimizer there is the one that gets the result."""
        others = [ast.unparse(node) for node in loaded_into(self.facts, call)]
        if others and ast.unparse(given) not in others and not is_called_optimizer(given):
            doubt = f"the result is loaded into `{others[0]}`, and not into `{ast.unparse(given)}`"
            raise _Manual(f"{doubt}: write the arguments by keyword")

    def _new_call(
        self, call: ast.Call, method: Method, bound: dict[str, Bound], optimizer: ast.expr | None
    ) -> RewriteCall:
        span = self.facts.source.span(call)
        group = bound.get("group")
        grouped = () if group is None else (Argument("group", group.index),)
        if optimizer is None:
            by_index = sorted((bound[name].index, name) for name in ("model", "optim"))
            positional = len(call.args)
            kept = tuple(Argument(name if index >= positional else None, index) for index, name in by_index)
            return RewriteCall(span, method.new, (*kept, *grouped))
        given = bound.get("optim")
        optim = Argument("optim", text=self._text(optimizer))
        if given is not None and given.value is optimizer:
            optim = Argument("optim", given.index)
        arguments = [
            Argument("model", bound["model"].index),
            optim,
            Argument("optim_state_dict", bound[method.state].index),
            *grouped,
        ]
        if self.facts.source.has_comment(span):
            arguments.sort(key=lambda argument: len(bound) if argument.index is None else argument.index)
        return RewriteCall(span, method.new, tuple(arguments))

    def _symbols(self, rank0_only: str | None) -> tuple[str, ...]:
        return ("StateDictType",) if rank0_only is None else ("StateDictType", FULL_CONFIG)

    def _context(
        self, call: ast.Call, method: Method, receiver: Receiver, model: ast.expr, rank0_only: str | None, names: Supply
    ) -> Context:
        arguments = [self._text(model), f"{names.spelling['StateDictType']}.{method.type_name}"]
        if rank0_only is not None:
            config = f"{names.spelling[FULL_CONFIG]}(offload_to_cpu=True, rank0_only={rank0_only})"
            arguments.append(f"optim_state_dict_config={config}")
        return Context(f"{self._setter(call, receiver)}.state_dict_type", tuple(arguments))

    def _setter(self, call: ast.Call, receiver: Receiver) -> str:
        """What `state_dict_type` is called on: a model's own attribute may hide the method, so the class is better."""
        named = spelled(self.facts, "FullyShardedDataParallel", call, receiver)
        is_instance = not receiver.meanings and isinstance(receiver.node, (ast.Name, ast.Attribute))
        return named if is_instance and named is not None else self._text(receiver.node)

    def _evaluated_first(
        self, placement: Placement, bound: dict[str, Bound], new_call: RewriteCall
    ) -> tuple[tuple[str, ...], RewriteCall]:
        """Assignments of the arguments that must not run under the context, and the call that takes their names."""
        lines, arguments = [], list(new_call.arguments)
        for name, argument in bound.items():
            if argument.value not in placement.first:
                continue
            if self.facts.source.has_comment(self.facts.source.span(argument.value)):
                raise _Manual(f"a comment stands in `{name}`, which has to be evaluated first: bind it to a name")
            local = self._fresh(placement.statement, _ARGUMENT_LOCALS.get(name, name))
            text = self._text(argument.value)
            lines.append(f"{local} = ({text})" if isinstance(argument.value, ast.NamedExpr) else f"{local} = {text}")
            arguments = [replace(a, index=None, text=local) if a.index == argument.index else a for a in arguments]
        return tuple(lines), new_call._replace(arguments=tuple(arguments))

    def _placed(
        self,
        placement: Placement,
        method: Method,
        new_call: RewriteCall,
        context: Context,
        prologue: tuple[str, ...],
    ) -> Wrap | Hoist:
        span, unit = self.facts.source.span(placement.statement), self.facts.indent_unit
        if placement.whole:
            return Wrap(span, context, placement.indent, unit, (new_call,), prologue)
        name = self._fresh(placement.statement, method.local)
        return Hoist(span.start, context, placement.indent, unit, name, new_call, prologue)

    def _fresh(self, statement: ast.stmt, stem: str) -> str:
        scope = self.facts.scope(statement)
        given = self.given_names.setdefault(scope.node, set())
        name = fresh_name(scope, stem, given)
        given.add(name)
        return name
