"""FSDP1's `MixedPrecision` as policies of FSDP2: one for the root, and one for the modules below it."""

from __future__ import annotations

import ast
from collections.abc import Container

from fsdp_migrate.code.unused_imports import strings_naming, uses_of
from fsdp_migrate.edits import Edit, Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind, is_literal
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.scopes import Binding, Kind
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.targets.fsdp2.policies import AtRunTime, symbol

_FIELDS = (
    "param_dtype",
    "reduce_dtype",
    "buffer_dtype",
    "keep_low_precision_grads",
    "cast_forward_inputs",
    "cast_root_forward_inputs",
)
_READ = ("param_dtype", "reduce_dtype")
_KEPT = "keep_low_precision_grads"


class Impossible(Exception):
    """FSDP2 has nothing like it; the message is a reason and what to do."""

    def __init__(self, node: ast.AST, reason: str, step: str) -> None:
        super().__init__(reason)
        self.node, self.reason, self.step = node, reason, step


class Precision(NamedTuple):
    """The fields of a `MixedPrecision` as texts: which dtypes, and whether the root and the others cast inputs.

    Where `name` is not None, the object has a name that stays, and is made in the module `home`.
    """

    call: ast.Call
    dtypes: tuple[str, ...]
    param_dtype: str | None
    at_root: bool
    below: bool
    name: str | None = None
    home: ModuleFacts | None = None

    def fields(self, *, casts: bool) -> list[str]:
        """The arguments for a policy."""
        return [*self.dtypes, *([] if casts else ["cast_forward_inputs=False"])]

    def fields_below(self) -> list[str]:
        """The arguments for the policy below the root, from that of the root where this has a name."""
        if self.name is None:
            return self.fields(casts=self.below)
        dtypes = [f"{one.partition('=')[0]}={self.name}.{one.partition('=')[0]}" for one in self.dtypes]
        return self._replace(dtypes=tuple(dtypes)).fields(casts=self.below)

    @property
    def is_one(self) -> bool:
        """Whether the root and the others have the same policy."""
        return self.at_root == self.below


def read_precision(facts: ModuleFacts, given: ast.expr | None, users: Container[ast.Call]) -> Precision | None:
    """What a `mixed_precision` argument says, None where nothing is cast.

    An object with a name counts where all that is done with it is to give it to `users`, which become literal too.

    Raises:
        AtRunTime: that is known at run time only.
        Impossible: FSDP2 cannot do that.
    """
    if given is None or is_literal(given, None):
        return None
    if isinstance(given, ast.Call):
        return _fields(facts, given)
    home = _definition(facts, given, users)
    if home is None:
        raise AtRunTime(f"the precision `{ast.unparse(given)}`")
    return _fields(home.facts, home.call)._replace(name=facts.source.segment(given), home=home.facts)


def rewritten(precision: Precision, cls: str) -> list[Edit]:
    """The edits that make the object of a name the policy of the root."""
    if precision.home is None:
        return []
    text = f"{cls}({', '.join(precision.fields(casts=precision.at_root))})"
    return [Replace(precision.home.source.span(precision.call), text)]


def _fields(facts: ModuleFacts, call: ast.Call) -> Precision:
    if symbol(facts, call.func) != "MixedPrecision":
        raise AtRunTime(f"the precision `{ast.unparse(call)}`")
    try:
        given = {name: bound.value for name, bound in bind(call, _FIELDS, 0).items()}
    except BindingError:
        raise AtRunTime(f"the precision `{ast.unparse(call)}`") from None
    if not is_literal(given.get(_KEPT, ast.Constant(False)), False):
        raise Impossible(
            given[_KEPT],
            "FSDP2 has no `keep_low_precision_grads`: it keeps gradients in the dtype of their parameters",
            "remove it, and check whether training still fits into memory",
        )
    if not is_literal(given.get("buffer_dtype", ast.Constant(None)), None):
        raise AtRunTime("which buffers have a dtype to be saved in")
    param, reduce = (_dtype(facts, given.get(name)) for name in _READ)
    casts = [_flag(given.get(name), name, call) for name in _FIELDS[4:]]
    texts = {"param_dtype": param, "reduce_dtype": _reduced(facts, given, param, reduce)}
    return Precision(
        call,
        tuple(f"{name}={text}" for name, text in texts.items() if text is not None),
        param,
        at_root=casts[0] or casts[1] or param is None,
        below=casts[0] or param is None,
    )


def _dtype(facts: ModuleFacts, given: ast.expr | None) -> str | None:
    if given is None or is_literal(given, None):
        return None
    if not pure(given):
        raise AtRunTime(f"the dtype `{ast.unparse(given)}`")
    return facts.source.segment(given)


def _flag(given: ast.expr | None, name: str, call: ast.Call) -> bool:
    if given is None:
        return name == "cast_root_forward_inputs"
    if not isinstance(given, ast.Constant):
        raise AtRunTime(f"`{name}` in `{ast.unparse(call)}`")
    return bool(given.value)


def _reduced(facts: ModuleFacts, given: dict[str, ast.expr], param: str | None, reduce: str | None) -> str | None:
    """The dtype of reduction, which FSDP1 takes from the parameters where it has none."""
    if reduce is None:
        return param
    if param is None or _is_torch_dtype(facts, given["reduce_dtype"]):
        return reduce
    return f"{reduce} or {param}"


def _is_torch_dtype(facts: ModuleFacts, node: ast.expr) -> bool:
    name = facts.names.qualified(node) or ""
    return name.startswith("torch.") and name.count(".") == 1


class _Definition(NamedTuple):
    facts: ModuleFacts
    call: ast.Call


def _definition(facts: ModuleFacts, given: ast.expr, users: Container[ast.Call]) -> _Definition | None:
    """Where the object of a name is made, if that is given to nobody but `users`."""
    if not isinstance(given, ast.Name):
        return None
    bindings = facts.names.bindings(given)
    if len(bindings) != 1:
        return None
    binding, home = bindings[0], facts
    if binding.kind is Kind.IMPORT and binding.target is not None and facts.project is not None:
        found = facts.project.definition(binding.target)
        if found is None or len(found[1]) != 1:
            return None
        home, (binding,) = found
    call = binding.value
    if binding.kind is not Kind.ASSIGNMENT or not isinstance(call, ast.Call):
        return None
    if len(binding.scope.bindings[binding.name]) != 1 or binding.scope.is_class:
        return None
    uses = _all_uses(home, binding)
    return _Definition(home, call) if uses is not None and all(_is_given(*use, users) for use in uses) else None


def _all_uses(facts: ModuleFacts, binding: Binding) -> list[tuple[ModuleFacts, ast.expr]] | None:
    """Where a name of the project is read, None where there may be more such places."""
    if any(True for _ in strings_naming(facts, binding.name)):
        return None
    uses: list[tuple[ModuleFacts, ast.expr]] = [(facts, use) for use in uses_of(binding)]
    if binding.scope.is_module and facts.project is not None:
        more = facts.project.uses(binding.name)
        if more is None:
            return None
        uses += [(use.facts, use.node) for use in more]
    return uses


def _is_given(facts: ModuleFacts, use: ast.expr, users: Container[ast.Call]) -> bool:
    """Whether a use gives the object to one of `users`, or reads what a policy has too."""
    parent = facts.structure.parents[use]
    if isinstance(parent, ast.Attribute):
        return parent.attr in _READ and isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.keyword) and parent.arg == "mixed_precision":
        return facts.structure.parents[parent] in users
    return False
