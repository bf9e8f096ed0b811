"""FSDP101-105: the optimizer-state methods that torch 2.0 replaced.

All of them ignore the state-dict type that is set on the model; their replacements obey it. The rewrite therefore
sets the type and the optimizer config that the old method stood for around exactly one call. Source: catalogue
osd-full, osd-sharded, osd-shard-full, osd-scatter, osd-flatten-sharded (torch 2.0.1 to 2.15.0,
torch/distributed/fsdp/fully_sharded_data_parallel.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.version import Version

from fsdp_migrate.edits import Argument, Context, Edit, Hoist, RewriteCall, Wrap
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, Bound, bind
from fsdp_migrate.facts.contexts import matching_context
from fsdp_migrate.facts.evaluation import calls_in, is_neutral, pure
from fsdp_migrate.facts.fsdp import Receiver
from fsdp_migrate.findings import Finding, Fix
from fsdp_migrate.rules.card import RuleCard, Verdict, finding, manual
from fsdp_migrate.rules.comments import loses_comment
from fsdp_migrate.rules.imports import CannotSupply, fresh_name, supply
from fsdp_migrate.rules.optimizer import NoOptimizer, find_optimizer
from fsdp_migrate.rules.placement import CannotPlace, Placement, place
from fsdp_migrate.rules.swallowed import swallowing_handler

FULL = "FULL_STATE_DICT"
SHARDED = "SHARDED_STATE_DICT"
FULL_CONFIG = "FullOptimStateDictConfig"
MESH_SINCE = Version("2.2")


@dataclass(frozen=True)
class Method:
    """A legacy method: its parameters on torch 2.x, and what its replacement needs.

    `older` is the signature up to torch 1.13 where another one was in use that long; `rank0_only` the value that
    the method stands for when the caller gives none, None under a sharded type.
    """

    name: str
    parameters: tuple[str, ...]
    required: int
    new: str
    type_name: str
    rank0_only: bool | None
    older: tuple[str, ...] | None = None

    @property
    def loads(self) -> bool:
        """Whether the method converts a state dict for loading."""
        return self.new == "optim_state_dict_to_load"

    @property
    def local(self) -> str:
        """The stem of the name that a hoisted result gets."""
        return "optim_state_to_load" if self.loads else "optim_state"


_DROPPED = ("optim_input", "rank0_only")
_SAVE, _LOAD = "optim_state_dict", "optim_state_dict_to_load"
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("full_optim_state_dict", ("model", "optim", "optim_input", "rank0_only", "group"), 2, _SAVE, FULL, True),
        Method(
            "sharded_optim_state_dict",
            ("model", "optim", "group"),
            2,
            _SAVE,
            SHARDED,
            None,
            older=("model", "optim", "optim_input", "group"),
        ),
        Method(
            "shard_full_optim_state_dict",
            ("full_optim_state_dict", "model", "optim_input", "optim"),
            2,
            _LOAD,
            FULL,
            False,
        ),
        Method(
            "scatter_full_optim_state_dict",
            ("full_optim_state_dict", "model", "optim_input", "optim", "group"),
            2,
            _LOAD,
            FULL,
            True,
            older=("full_optim_state_dict", "model", "optim_input", "group"),
        ),
        Method(
            "flatten_sharded_optim_state_dict",
            ("sharded_optim_state_dict", "model", "optim"),
            2,
            _LOAD,
            SHARDED,
            None,
            older=("sharded_optim_state_dict", "model", "optim_input", "optim"),
        ),
    )
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


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """The findings of one legacy method: `card` is that of the method named like it."""
    method = METHODS[card.name.replace("-", "_")]
    for planned in plans(facts):
        if planned.method is method:
            statement = facts.statement(planned.call)
            message = f"`{method.name}` is deprecated since torch {card.deprecated}: {_replacement(method)}"
            yield finding(facts, card, planned.call.func, statement, message, planned.verdict)
    yield from references(facts, card, method.name)


def _replacement(method: Method) -> str:
    text = f"use `FSDP.{method.new}` under `{method.type_name}`"
    if method.rank0_only is not None:
        text += " with an optimizer config that says which ranks hold the state"
    return text


def references(facts: ModuleFacts, card: RuleCard, method: str) -> Iterator[Finding]:
    """Uses of an FSDP method without a call: aliases, `partial`, `getattr` and strings for `mock.patch`."""
    message = f"`{method}` is deprecated since torch {card.deprecated}, and is used here without a call"
    verdict = manual("only a direct call can be rewritten: call the method here, or migrate where it is called")
    called = {id(call.func) for call in facts.structure.calls}
    for node in facts.structure.attributes:
        if node.attr != method or id(node) in called or not isinstance(node.ctx, ast.Load):
            continue
        if facts.fsdp.receiver(node, None) is not None and facts.reached(node):
            yield finding(facts, card, node, facts.statement(node), message, verdict)
    for constant in facts.structure.strings:
        if _names_method(facts, constant, method) and facts.reached(constant):
            yield finding(facts, card, constant, facts.statement(constant), message, verdict)


def _names_method(facts: ModuleFacts, constant: ast.Constant, method: str) -> bool:
    """Whether a string names the method for `getattr(FSDP, ...)` or as a dotted path to patch."""
    if not isinstance(constant.value, str):
        return False
    if constant.value.startswith("torch.") and constant.value.endswith(f"FullyShardedDataParallel.{method}"):
        return True
    call = facts.structure.parents.get(constant)
    if constant.value != method or not isinstance(call, ast.Call) or constant not in call.args[1:2]:
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in ("getattr", "setattr", "object", "delattr") and facts.fsdp.is_class(call.args[0])


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
        new_call = self._new_call(call, method, bound)
        if matching_context(self.facts, call, model, method.type_name, rank0_only):
            return Verdict(Fix((new_call,)), unsafe=self._mesh_doubt(method))
        kept = [argument.value for name, argument in bound.items() if name not in _DROPPED]
        placement = place(self.facts, call, kept, self.calls)
        context, imports = self._context(call, method, receiver, model, rank0_only)
        edits = (*imports, *placement.splits, self._placed(placement, method, new_call, context))
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

    def _new_call(self, call: ast.Call, method: Method, bound: dict[str, Bound]) -> RewriteCall:
        span = self.facts.source.span(call)
        group = bound.get("group")
        grouped = () if group is None else (Argument("group", group.index),)
        if not method.loads:
            by_index = sorted((bound[name].index, name) for name in ("model", "optim"))
            positional = len(call.args)
            kept = tuple(Argument(name if index >= positional else None, index) for index, name in by_index)
            return RewriteCall(span, method.new, (*kept, *grouped))
        state = method.parameters[0]
        optimizer = find_optimizer(self.facts, call, bound.get("optim"), bound["model"].value)
        given = bound.get("optim")
        is_given = given is not None and given.value is optimizer
        optim = Argument("optim", given.index) if is_given and given else Argument("optim", text=self._text(optimizer))
        arguments = [
            Argument("model", bound["model"].index),
            optim,
            Argument("optim_state_dict", bound[state].index),
            *grouped,
        ]
        if self.facts.source.has_comment(span):
            arguments.sort(key=lambda argument: len(bound) if argument.index is None else argument.index)
        return RewriteCall(span, method.new, tuple(arguments))

    def _context(
        self, call: ast.Call, method: Method, receiver: Receiver, model: ast.expr, rank0_only: str | None
    ) -> tuple[Context, tuple[Edit, ...]]:
        symbols = ["StateDictType"] if rank0_only is None else ["StateDictType", FULL_CONFIG]
        names = supply(self.facts, symbols, call, receiver)
        arguments = [self._text(model), f"{names.spelling['StateDictType']}.{method.type_name}"]
        if rank0_only is not None:
            config = f"{names.spelling[FULL_CONFIG]}(offload_to_cpu=True, rank0_only={rank0_only})"
            arguments.append(f"optim_state_dict_config={config}")
        return Context(f"{self._text(receiver.node)}.state_dict_type", tuple(arguments)), tuple(names.edits)

    def _placed(self, placement: Placement, method: Method, new_call: RewriteCall, context: Context) -> Wrap | Hoist:
        source, unit = self.facts.source, self.facts.indent_unit
        if placement.whole:
            return Wrap(source.span(placement.statement), context, placement.indent, unit, (new_call,))
        scope = self.facts.scope(placement.statement)
        given = self.given_names.setdefault(scope.node, set())
        name = fresh_name(scope, method.local, given)
        given.add(name)
        return Hoist(source.span(placement.statement).start, context, placement.indent, unit, name, new_call)

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
