"""A call of FSDP1's class becomes calls of `fully_shard`, or of the generated module where values come at run time."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from packaging.version import Version

from fsdp_migrate.code.argument_roles import has_effect
from fsdp_migrate.code.dropped_arguments import kept_comment
from fsdp_migrate.code.import_texts import CannotSupply
from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, Bound, is_literal, ordered_arguments
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.facts.project_code import Code
from fsdp_migrate.rules.supported_releases import older, supported
from fsdp_migrate.targets.fsdp2.arguments import PARAMETERS, WITHOUT_MEANING, Given, written_out
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction, Conversion, Options
from fsdp_migrate.targets.fsdp2.devices import alternatives
from fsdp_migrate.targets.fsdp2.generated import SHARD, helper
from fsdp_migrate.targets.fsdp2.literal import Literal, read_literal
from fsdp_migrate.targets.fsdp2.policies import AtRunTime, followed, symbol
from fsdp_migrate.targets.fsdp2.precision import Impossible
from fsdp_migrate.targets.fsdp2.roles import is_inner, module_of
from fsdp_migrate.targets.fsdp2.sharding import Role, write_literal
from fsdp_migrate.targets.fsdp2.wrapping import convert_wraps

_FLOOR = Version("2.6")
_IGNORES = Version("2.7")
_FILLS_GRADIENTS = Version("2.13")
_NO_GRADIENT = (
    "before torch 2.13 a parameter without a gradient is not updated; FSDP1 used a zero gradient "
    "(--torch '>=2.13' or --all-parameters-used avoids it)"
)
_PREFETCHES = "BackwardPrefetch.BACKWARD_PRE"
_BACKWARD = (
    "FSDP2 gathers the next unit early in backward, as `BACKWARD_PRE` does: speed and memory may change, results do not"
)
_FORWARD = (
    "`forward_prefetch` goes, call `set_modules_to_forward_prefetch` on the units for it: speed may change, results do "
    "not"
)
_OFFLOADED = "parameters on the CPU: gradients are clipped there, and buffers stay on the device"


def convert_construction(
    conversion: Conversion, closure: Closure, construction: Construction, options: Options
) -> None:
    """Add what becomes of one call of FSDP1's class: edits, differences, or a wall."""
    _Converter(conversion, closure, construction, options).convert()


class _Converter:
    def __init__(self, conversion: Conversion, closure: Closure, construction: Construction, options: Options) -> None:
        self.conversion, self.closure, self.construction, self.options = conversion, closure, construction, options
        self.facts, self.call = construction
        self.inner = is_inner(closure, construction, conversion.code)

    def convert(self) -> None:
        facts, call, wall = self.facts, self.call, self.conversion.wall
        try:
            self._check_class()
            self._check_nesting()
            module = module_of(call)
            if module is not None:
                convert_wraps(self.conversion, self.closure, self.construction, module)
            try:
                given = written_out(facts, call)
                self._check_floor(given)
                self._as_literal(given)
            except AtRunTime as error:
                self._check_floor(None)
                self._at_run_time(str(error))
        except BindingError as error:
            wall(facts, call, f"the call {error}", "correct the call first")
        except Impossible as error:
            wall(facts, error.node, error.reason, error.step)
        except CannotSupply as error:
            wall(facts, call, str(error), "make the import possible first")

    def _check_class(self) -> None:
        """It is torch's class itself.

        Raises:
            Impossible: it may be another one.
        """
        symbols = self.facts.names.symbols(self.call.func)
        if symbols != {FSDP}:
            name = ast.unparse(self.call.func)
            raise Impossible(self.call, f"`{name}` is not FSDP's class itself", "call that class here")

    def _check_nesting(self) -> None:
        inside = {one for part in ast.iter_child_nodes(self.call) for one in ast.walk(part)}
        for other in self.closure.constructions:
            if other.call in inside:
                raise Impossible(other.call, "it is built inside another call of FSDP", "assign it to a variable first")

    def _check_floor(self, given: Given | None) -> None:
        """The oldest torch that has what is needed.

        Raises:
            Impossible: an older one is supported.
        """
        self._check_release(_FLOOR, f"`{PACKAGE}.fully_shard`")
        ignores = given is not None and any(
            not is_literal(given.values.get(name, ast.Constant(None)), None)
            for name in ("ignored_modules", "ignored_states")
        )
        if ignores:
            self._check_release(_IGNORES, "its argument `ignored_params`")

    def _check_release(self, floor: Version, what: str) -> None:
        early = () if self.facts.torch.assumed and floor == _FLOOR else older(self.facts, floor, self.call)
        if early:
            reason = f"{what} came with torch {floor}, but {supported(self.facts)}"
            raise Impossible(self.call, reason, f"require torch>={floor}")

    # --- written out

    def _as_literal(self, given: Given) -> None:
        if self.options.helper == "always":
            raise AtRunTime("everything, as was asked for")
        users = _literal_calls(self.closure, self.conversion.code)
        literal = read_literal(self.facts, self.call, given, users, self.conversion.code)
        self._check_role(literal)
        for name in WITHOUT_MEANING:
            if name in given.values and has_effect(self.facts, given.values[name]):
                raise AtRunTime(f"what `{ast.unparse(given.values[name])}` does")
        fills = not self.inner and not self._is_older_than(_FILLS_GRADIENTS) and not self.options.all_parameters_used
        write_literal(self.conversion, self.construction, given, literal, Role(bool(self.inner), fills))
        self._note_prefetching(given.values)
        if literal.offloads is not None:
            self.conversion.differs(self.facts, literal.offloads, _OFFLOADED)
        self._note_gradients()

    def _check_role(self, literal: Literal) -> None:
        if self.inner is None and literal.precision is not None and not literal.precision.is_one:
            self._stop_unknown_role()

    def _stop_unknown_role(self) -> None:
        raise Impossible(
            self.call,
            "it is not visible whether another call of FSDP wraps the result, and only the outermost one casts inputs",
            "pass `cast_forward_inputs=True` to `MixedPrecision`, or build the model in one place",
        )

    def _is_older_than(self, release: Version) -> bool:
        return bool(older(self.facts, release, self.call))

    def _note_gradients(self) -> None:
        if not self.inner and not self.options.all_parameters_used and self._is_older_than(_FILLS_GRADIENTS):
            self.conversion.differs(self.facts, self.call, _NO_GRADIENT)

    def _note_prefetching(self, values: Mapping[str, ast.expr]) -> None:
        """Prefetching that FSDP2 does otherwise, or leaves to methods of the model."""
        backward, forward = values.get("backward_prefetch"), values.get("forward_prefetch")
        if backward is not None and symbol(self.facts, followed(self.facts, backward, self.call)) != _PREFETCHES:
            self.conversion.note(self.facts, backward, _BACKWARD)
        if forward is not None and not is_literal(forward, False):
            self.conversion.note(self.facts, forward, _FORWARD)

    # --- through the generated module

    def _at_run_time(self, what: str) -> None:
        """Call the generated module with the arguments as they are."""
        facts, call = self.facts, self.call
        if self.options.helper == "never":
            step = "write it out in the call, or allow `--fsdp2-helper auto`"
            raise Impossible(call, f"{what} is only known at run time", step)
        keywords = {one.arg: one.value for one in call.keywords}
        casts = not is_literal(keywords.get("mixed_precision", ast.Constant(None)), None)
        if self.inner is None and (casts or (None in keywords and _is_written(self.facts, "MixedPrecision"))):
            self._stop_unknown_role()
        arguments, gone = self._kept_arguments()
        if self.inner:
            arguments.append(Argument("outermost", text="False"))
        name = helper(self.conversion, self.closure, facts, SHARD, call)
        self.conversion.edit(facts, [RewriteCall(facts.source.span(call), None, tuple(arguments), callee=name)])
        for node in (call.func, *gone):
            for part in ast.walk(node):
                if isinstance(part, ast.Name):
                    self.conversion.release(facts, part)
        self._note_at_run_time(keywords)
        self._note_prefetching(
            {**dict(zip(PARAMETERS, call.args)), **{one.arg or "": one.value for one in call.keywords}}
        )

    def _kept_arguments(self) -> tuple[list[Argument], list[ast.expr]]:
        """The arguments of the new call, and those of the old one that go."""
        kept, gone = [], list[ast.expr]()
        for index, one in enumerate(ordered_arguments(self.call)):
            value = one.value if isinstance(one, ast.keyword) else one
            if isinstance(one, ast.Starred):
                raise Impossible(
                    one, f"`{ast.unparse(one)}` is unpacked into positional arguments", "pass it by keyword"
                )
            name = one.arg if isinstance(one, ast.keyword) else PARAMETERS[index]
            droppable = name in WITHOUT_MEANING and not has_effect(self.facts, value)
            if droppable and kept_comment(self.facts, self.call, Bound(value, index)) is None:
                gone.append(value)
            else:
                kept.append(Argument(None if name == "module" and index == 0 and one is value else name, index))
        return kept, gone

    def _note_at_run_time(self, keywords: dict[str | None, ast.expr]) -> None:
        offload = keywords.get("cpu_offload")
        hidden = None in keywords and _is_written(self.facts, "CPUOffload")
        if hidden or (offload is not None and not all(_is_off(*one) for one in alternatives(self.facts, offload))):
            self.conversion.differs(self.facts, offload or self.call, _OFFLOADED)
        self._note_gradients()


def _is_off(facts: ModuleFacts, offload: ast.expr) -> bool:
    """Whether nothing is offloaded: None, or `CPUOffload(offload_params=False)`."""
    if is_literal(offload, None):
        return True
    if not isinstance(offload, ast.Call) or symbol(facts, offload.func) != "CPUOffload":
        return False
    values = [*offload.args, *(one.value for one in offload.keywords)]
    return all(is_literal(one, False) for one in values)


def _is_written(facts: ModuleFacts, word: str) -> bool:
    """Whether the project has a word."""
    own = word.encode() in facts.source.data
    return own or (facts.project is not None and facts.project.is_written(word))


def _literal_calls(closure: Closure, code: Code) -> frozenset[ast.Call]:
    """The constructions that are written out, where an object that they share is given to no other."""
    users = frozenset(one.call for one in closure.constructions)
    while True:
        left = frozenset(
            one.call for one in closure.constructions if one.call in users and _is_literal(one, users, code)
        )
        if left == users:
            return users
        users = left


def _is_literal(one: Construction, users: frozenset[ast.Call], code: Code) -> bool:
    try:
        read_literal(one.facts, one.call, written_out(one.facts, one.call), users, code)
    except (AtRunTime, BindingError):
        return False
    except Impossible:
        return True
    return True
