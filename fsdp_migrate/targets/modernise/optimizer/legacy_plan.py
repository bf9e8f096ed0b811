"""How each legacy optimizer-state call of a module is rewritten, or why it cannot be.

All legacy methods ignore the state-dict type that is set on the model; their replacements obey it. A plan therefore
sets the type and the optimizer config that the old method stood for around exactly one call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from fsdp_migrate.code.argument_roles import has_effect, is_called_optimizer, is_group, is_optim_input
from fsdp_migrate.code.dropped_arguments import kept_comment
from fsdp_migrate.code.import_texts import CannotSupply, Supply, fresh_name, spelled, supply
from fsdp_migrate.code.legacy_methods import FLOOR, METHODS, Method
from fsdp_migrate.code.optimizers import find_optimizer, loaded_into
from fsdp_migrate.code.placement import CannotPlace, Placement, is_printed_as_code, place
from fsdp_migrate.code.same_optimizer import NoOptimizer
from fsdp_migrate.code.swallowed_errors import swallowing_handler
from fsdp_migrate.edits import Argument, Context, Edit, Hoist, Replace, RewriteCall, Wrap
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, Bound, bind, is_literal
from fsdp_migrate.facts.class_members import instance_of_class
from fsdp_migrate.facts.contexts import matching_context
from fsdp_migrate.facts.evaluation import is_still, pure
from fsdp_migrate.facts.fsdp import FSDP, Receiver
from fsdp_migrate.facts.model_parts import type_set_on_part
from fsdp_migrate.findings import Fix
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Verdict, manual
from fsdp_migrate.targets.modernise.optimizer.dtensor_state import mesh_doubt

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


class _Optimizer(NamedTuple):
    """The optimizer for a call: its text, the only evidence that it is the one, and the argument that it is."""

    text: str
    evidence: str | None = None
    given_at: int | None = None


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
        evidence = self._check_receiver(call, method, receiver)
        bound = self._bound(call, method)
        model = bound["model"].value
        if not pure(model):
            raise _Manual(
                f"the rewrite would evaluate the model `{ast.unparse(model)}` twice: assign it to a variable first"
            )
        self._check_arguments(call, bound)
        optimizer = self._optimizer(call, method, bound)
        new_call = self._new_call(call, method, bound, optimizer)
        evidence = evidence or (None if optimizer is None else optimizer.evidence)
        unsafe = evidence or mesh_doubt(self.facts, call, method, model) or self._order_doubt(method, bound)
        if is_printed_as_code(self.facts, call):
            raise _Manual(
                "the call is inside an f-string with `=`, which prints the source text of the call: assign its "
                "result to a variable first"
            )
        if matching_context(self.facts, call, model, method.type_name, self._rank0_only(method, bound, {})):
            if not all(is_still(argument.value) for argument in bound.values()):
                new_call = new_call._replace(arguments=_in_order(new_call.arguments, bound))
            return Verdict(Fix((new_call,)), unsafe=unsafe)
        part = type_set_on_part(self.facts, call, model)
        if part is not None:
            raise _Manual(
                f"`{part}` is a part of the model and has its own state-dict type: set the type on the whole model"
            )
        kept = sorted((one for name, one in bound.items() if name != "optim_input"), key=lambda one: one.index)
        placement = place(self.facts, call, [argument.value for argument in kept], self.calls)
        first = self._named_first(placement, bound)
        rank0_only = self._rank0_only(method, bound, first)
        names = supply(self.facts, self._symbols(rank0_only), call, receiver, FLOOR)
        context = self._context(call, method, receiver, first.get(model) or self._text(model), rank0_only, names)
        arguments = tuple(
            new._replace(index=None, text=first[old.value]) if old is not None and old.value in first else new
            for new in new_call.arguments
            for old in [next((one for one in kept if one.index == new.index), None)]
        )
        prologue = tuple(f"{name} = {self._assignable(node)}" for node, name in first.items())
        given = {argument.value for argument in kept}
        replaced = tuple(self._replaced(node, name) for node, name in first.items() if node not in given)
        new_call = new_call._replace(arguments=arguments)
        placed = self._placed(placement, method, (*replaced, new_call), context, (*names.prologue, *prologue))
        edits = (*names.edits, *placement.splits, *placed)
        return Verdict(Fix(edits), unsafe=unsafe or swallowing_handler(self.facts, call))

    def _note(self, call: ast.Call, method: Method) -> str | None:
        """What to say of the comments at arguments that go."""
        bound = self._bound(call, method)
        notes = (kept_comment(self.facts, call, bound[name]) for name in _DROPPED if name in bound)
        return "; ".join(note for note in notes if note is not None) or None

    def _check_receiver(self, call: ast.Call, method: Method, receiver: Receiver) -> str | None:
        """The new methods have to be torch's own, on something that may be written twice.

        Where only a run shows that they are, the result says so.
        """
        evidence = None
        if receiver.doubt is not None:
            if self.facts.seen is None or not self.facts.seen.called(call, f"{FSDP}.{method.name}"):
                raise _Manual(f"{receiver.doubt}: only torch's FSDP can be rewritten")
            evidence = f"only a run shows that `{ast.unparse(receiver.node)}` is torch's FSDP here"
        if not pure(receiver.node) and instance_of_class(receiver.node) is None:
            text = ast.unparse(receiver.node)
            raise _Manual(f"`{text}` would be evaluated twice: call the method on the class")
        if all(meaning.symbol == FSDP for meaning in receiver.meanings) and receiver.meanings:
            return evidence
        for name in (method.new, "state_dict_type"):
            cls = self.facts.fsdp.overriding(name)
            if cls is not None:
                raise _Manual(f"`{cls}` defines its own `{name}`: call the method on FSDP itself")
        return evidence

    def _order_doubt(self, method: Method, bound: dict[str, Bound]) -> str | None:
        """Whether `optim` may be None, so that the order came from the `optim_input` that goes."""
        optim, optim_input = bound.get("optim"), bound.get("optim_input")
        if not method.loads or optim is None or optim_input is None or is_literal(optim_input.value, None):
            return None
        if isinstance(optim.value, ast.Name) and self.facts.names.may_be_none(optim.value):
            return f"if `{optim.value.id}` is None, `optim_input` gave the parameter order, and it is removed"
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
            raise _Manual(f"`{text}` would no longer be evaluated: remove it yourself if it has no effect")
        assigned = {
            part.target.id: name
            for name, argument in bound.items()
            for part in ast.walk(argument.value)
            if isinstance(part, ast.NamedExpr)
        }
        for name, argument in bound.items():
            read = {part.id for part in ast.walk(argument.value) if isinstance(part, ast.Name)}
            if any(assigned[word] != name for word in read & assigned.keys()):
                raise _Manual("one argument binds a name with `:=` and another uses it: bind the name before the call")

    def _rank0_only(self, method: Method, bound: dict[str, Bound], first: Mapping[ast.expr, str]) -> str | None:
        """The text of `rank0_only` for the config."""
        if method.rank0_only is None:
            return None
        given = bound.get("rank0_only")
        return str(method.rank0_only) if given is None else first.get(given.value) or self._text(given.value)

    def _text(self, node: ast.expr) -> str:
        """The source text of an expression, on one line."""
        text = self.facts.source.segment(node)
        return ast.unparse(node) if "\n" in text or "\r" in text else text

    def _optimizer(self, call: ast.Call, method: Method, bound: dict[str, Bound]) -> _Optimizer | None:
        """The optimizer that a loading method's replacement needs."""
        if not method.loads:
            return None
        given = bound.get("optim")
        if (
            given is not None
            and method.older is not None
            and given.index == len(method.older) - 1 == len(call.args) - 1
            and not is_literal(given.value, None)
        ):
            self._check_position(call, method, given.value)
        try:
            found = find_optimizer(self.facts, call, given, bound["model"].value)
        except NoOptimizer:
            seen = None if self.facts.seen is None else self.facts.seen.optimizer(call, f"{FSDP}.{method.name}")
            if seen is None:
                raise
            name, cls = seen
            return _Optimizer(name, f"only a run shows that `{name}` ({cls}) is the model's optimizer here")
        return _Optimizer(
            self._text(found), given_at=given.index if given is not None and given.value is found else None
        )

    def _check_position(self, call: ast.Call, method: Method, given: ast.expr) -> None:
        """The last position had another meaning once: an optimizer there is the one that gets the result."""
        others = [ast.unparse(node) for node in loaded_into(self.facts, call)]
        if others and ast.unparse(given) not in others and not is_called_optimizer(given):
            doubt = f"the result is loaded into `{others[0]}`, not into `{ast.unparse(given)}`"
            raise _Manual(f"{doubt}: pass the arguments by keyword")

    def _new_call(
        self, call: ast.Call, method: Method, bound: dict[str, Bound], optimizer: _Optimizer | None
    ) -> RewriteCall:
        span = self.facts.source.span(call)
        group = bound.get("group")
        grouped = () if group is None else (Argument("group", group.index),)
        if optimizer is None:
            by_index = sorted((bound[name].index, name) for name in ("model", "optim"))
            positional = len(call.args)
            kept = tuple(Argument(name if index >= positional else None, index) for index, name in by_index)
            return RewriteCall(span, method.new, (*kept, *grouped))
        optim = Argument("optim", optimizer.given_at, optimizer.text if optimizer.given_at is None else None)
        arguments = [
            Argument("model", bound["model"].index),
            optim,
            Argument("optim_state_dict", bound[method.state].index),
            *grouped,
        ]
        if self.facts.source.has_comment(span):
            return RewriteCall(span, method.new, _in_order(arguments, bound))
        return RewriteCall(span, method.new, tuple(arguments))

    def _symbols(self, rank0_only: str | None) -> tuple[str, ...]:
        return ("StateDictType",) if rank0_only is None else ("StateDictType", FULL_CONFIG)

    def _context(
        self, call: ast.Call, method: Method, receiver: Receiver, model: str, rank0_only: str | None, names: Supply
    ) -> Context:
        arguments = [model, f"{names.spelling['StateDictType']}.{method.type_name}"]
        if rank0_only is not None:
            config = f"{names.spelling[FULL_CONFIG]}(offload_to_cpu=True, rank0_only={rank0_only})"
            arguments.append(f"optim_state_dict_config={config}")
        return Context(f"{self._setter(call, receiver)}.state_dict_type", tuple(arguments))

    def _setter(self, call: ast.Call, receiver: Receiver) -> str:
        """What `state_dict_type` is called on: a model's own attribute may hide the method, so the class is better."""
        named = spelled(self.facts, "FullyShardedDataParallel", call, receiver)
        is_instance = not receiver.meanings and isinstance(receiver.node, (ast.Name, ast.Attribute))
        return named if is_instance and named is not None else self._text(receiver.node)

    def _named_first(self, placement: Placement, bound: dict[str, Bound]) -> dict[ast.expr, str]:
        """The names of what is evaluated in front of the block, in order."""
        parameters = {argument.value: name for name, argument in bound.items()}
        named: dict[ast.expr, str] = {}
        for node in placement.first:
            if self.facts.source.has_comment(self.facts.source.span(node)):
                text = " ".join(ast.unparse(node).split())
                raise _Manual(
                    f"`{text}` has to be evaluated first, and a comment is inside it: assign it to a variable"
                )
            parameter = parameters.get(node)
            stem = self._stem(node) if parameter is None else _ARGUMENT_LOCALS.get(parameter, parameter)
            named[node] = self._fresh(placement.statement, stem)
        return named

    def _stem(self, node: ast.expr) -> str:
        """What the value of an expression is called: after its key or keyword, else after what it is read off."""
        parent = self.facts.structure.parents[node]
        if isinstance(parent, ast.keyword) and parent.arg is not None:
            return parent.arg
        if isinstance(parent, ast.Dict) and node in parent.values:
            key = parent.keys[parent.values.index(node)]
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and f"{key.value}_value".isidentifier():
                return f"{key.value}_value"
        return node.attr.lstrip("_") or "value" if isinstance(node, ast.Attribute) else "value"

    def _assignable(self, node: ast.expr) -> str:
        text = self._text(node)
        return f"({text})" if isinstance(node, ast.NamedExpr) else text

    def _replaced(self, node: ast.expr, name: str) -> Replace:
        """A name in the place of an expression, apart from the words beside it."""
        span, data = self.facts.source.span(node), self.facts.source.data
        before = " " if data[span.start - 1 : span.start].isalnum() else ""
        after = " " if data[span.end : span.end + 1].isalnum() else ""
        return Replace(span, f"{before}{name}{after}")

    def _placed(
        self,
        placement: Placement,
        method: Method,
        inner: tuple[Replace | RewriteCall, ...],
        context: Context,
        prologue: tuple[str, ...],
    ) -> tuple[Edit, ...]:
        span, unit = self.facts.source.span(placement.statement), self.facts.indent_unit
        if placement.whole:
            return (Wrap(span, context, placement.indent, unit, inner, prologue),)
        name = self._fresh(placement.statement, method.local)
        *replaced, call = inner
        assert isinstance(call, RewriteCall)
        return (*replaced, Hoist(span.start, context, placement.indent, unit, name, call, prologue))

    def _fresh(self, statement: ast.stmt, stem: str) -> str:
        scope = self.facts.scope(statement)
        given = self.given_names.setdefault(scope.node, set())
        name = fresh_name(scope, stem, given)
        given.add(name)
        return name


def _in_order(arguments: Iterable[Argument], bound: dict[str, Bound]) -> tuple[Argument, ...]:
    """Arguments in the order in which the old call evaluated them, new ones last."""
    return tuple(sorted(arguments, key=lambda one: len(bound) if one.index is None else one.index))
