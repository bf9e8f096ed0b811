"""How each legacy optimizer-state call of a module is rewritten, or why it cannot be.

All legacy methods ignore the state-dict type that is set on the model; their replacements obey it. A plan therefore
sets the type and the optimizer config that the old method stood for around exactly one call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from packaging.version import Version

from fsdp_migrate.edits import Argument, Context, Hoist, RewriteCall, Wrap
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, Bound, bind
from fsdp_migrate.facts.contexts import matching_context
from fsdp_migrate.facts.evaluation import calls_in, is_neutral, pure
from fsdp_migrate.facts.fsdp import Receiver
from fsdp_migrate.findings import Fix
from fsdp_migrate.rules.card import Verdict, manual
from fsdp_migrate.rules.comments import loses_comment
from fsdp_migrate.rules.imports import CannotSupply, Supply, fresh_name, spelled, supply
from fsdp_migrate.rules.legacy_methods import METHODS, SHARDED, Method
from fsdp_migrate.rules.optimizer import NoOptimizer, find_optimizer
from fsdp_migrate.rules.placement import CannotPlace, Placement, place
from fsdp_migrate.rules.swallowed import swallowing_handler

FULL_CONFIG = "FullOptimStateDictConfig"
MESH_SINCE = Version("2.2")
_DROPPED = ("optim_input", "rank0_only")
# What an argument is called when it gets a name of its own.
_ARGUMENT_LOCALS = {
    "full_optim_state_dict": "full_osd",
    "sharded_optim_state_dict": "sharded_osd",
    "optim": "optimizer",
}


@dataclass(frozen=True)
class Planned:
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
                verdict = self._plan(call, method, receiver)
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
        receiver = self.facts.fsdp.receiver(call.func, model)
        if receiver is None or not self.facts.reached(call):
            return None
        return call, method, receiver

    def _plan(self, call: ast.Call, method: Method, receiver: Receiver) -> Verdict:
        if receiver.doubt is not None:
            raise _Manual(f"{receiver.doubt}: only torch's FSDP can be rewritten")
        bound = self._bound(call, method)
        model = bound["model"].value
        if not pure(model):
            raise _Manual(f"the model is `{ast.unparse(model)}`, which the rewrite would evaluate twice: name it first")
        self._check_dropped(call, bound)
        rank0_only = self._rank0_only(call, method, bound)
        optimizer = self._optimizer(call, method, bound)
        new_call = self._new_call(call, method, bound, optimizer)
        if matching_context(self.facts, call, model, method.type_name, rank0_only):
            return Verdict(Fix((new_call,)), unsafe=self._mesh_doubt(method))
        kept = [argument.value for name, argument in bound.items() if name not in _DROPPED]
        placement = place(self.facts, call, kept, self.calls)
        names = supply(self.facts, self._symbols(rank0_only), call, receiver)
        context = self._context(call, method, receiver, model, rank0_only, names)
        prologue, new_call = self._evaluated_first(placement, bound, new_call)
        placed = self._placed(placement, method, new_call, context, (*names.prologue, *prologue))
        edits = (*names.edits, *placement.splits, placed)
        return Verdict(Fix(edits), unsafe=self._mesh_doubt(method) or swallowing_handler(self.facts, call))

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
        as_older = _is_optim_input(argument) if wanted == "optim_input" else is_group(self.facts, argument)
        return bind(call, method.older, method.required) if as_older else bound

    def _check_dropped(self, call: ast.Call, bound: dict[str, Bound]) -> None:
        """Arguments that go must neither do anything nor take a comment with them."""
        dropped = [bound[name] for name in _DROPPED if name in bound]
        for argument in dropped:
            if any(not is_neutral(c, self.facts.names) and not _is_optim_input(c) for c in calls_in(argument.value)):
                text = ast.unparse(argument.value)
                raise _Manual(f"`{text}` would no longer be evaluated: drop it by hand if it has no effect")
        if any(loses_comment(self.facts, call, argument) for argument in dropped):
            raise _Manual("a comment stands at an argument that goes: move the comment out of the call")

    def _rank0_only(self, call: ast.Call, method: Method, bound: dict[str, Bound]) -> str | None:
        if method.rank0_only is None:
            return None
        given = bound.get("rank0_only")
        return str(method.rank0_only) if given is None else self._text(given.value)

    def _text(self, node: ast.expr) -> str:
        """The source text of an expression, on one line."""
        text = self.facts.source.segment(node)
        return ast.unparse(node) if "\n" in text or "\r" in text else text

    def _optimizer(self, call: ast.Call, method: Method, bound: dict[str, Bound]) -> ast.expr | None:
        """The optimizer that a loading method's replacement needs."""
        if not method.loads:
            return None
        return find_optimizer(self.facts, call, bound.get("optim"), bound["model"].value)

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
        is_given = given is not None and given.value is optimizer
        optim = Argument("optim", given.index) if is_given and given else Argument("optim", text=self._text(optimizer))
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
        return tuple(lines), replace(new_call, arguments=tuple(arguments))

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

    def _mesh_doubt(self, method: Method) -> str | None:
        """Why a sharded save may give another tensor type: with a device mesh it is DTensor from torch 2.2 on."""
        if method.loads or method.type_name != SHARDED or self.facts.torch.newest < MESH_SINCE:
            return None
        if self.facts.fsdp.builds_without_mesh:
            return None
        return (
            "if the model was built with a `device_mesh`, the new call returns DTensor where the old one "
            "returned ShardedTensor"
        )


def _is_optim_input(node: ast.expr) -> bool:
    """Whether an argument is what the optimizer was built from, by its name or as `module.parameters()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("parameters", "named_parameters")
    text = ast.unparse(node)
    return "optim_input" in text or "param" in text.rpartition(".")[2]


def is_group(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether an argument is a process group, by its name or by what made it."""
    if isinstance(node, ast.Name):
        definition = facts.names.definition(node)
        if isinstance(definition, ast.Call):
            node = definition.func
    name = ast.unparse(node).rpartition(".")[2].lower()
    return ("group" in name and "param" not in name) or name == "pg" or name.endswith("_pg") or name.startswith("pg_")
