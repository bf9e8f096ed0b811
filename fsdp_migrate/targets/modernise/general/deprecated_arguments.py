"""FSDP520: arguments that warn, of functions which are not deprecated themselves.

Sources: 2.2.2 to 2.14.1 checkpoint/state_dict.py (`submodules`, state dicts by modules), checkpoint/default_planner.py,
_functional_collectives.py (`_resolve_group_name`, `_resolve_group`) and _shard/sharded_tensor/api.py (`gather`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from packaging.version import Version

from fsdp_migrate.code.dropped_arguments import without
from fsdp_migrate.code.torch_names import calls_ending_in, last_words, torch_path
from fsdp_migrate.code.torch_presence import having
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, Bound, bind, is_literal, ordered_arguments
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Traced, Verdict, finding, manual
from fsdp_migrate.torch_api.data import signature

_STATE_DICT = "torch.distributed.checkpoint.state_dict"
_PLANNERS = tuple(f"torch.distributed.checkpoint{inner}.DefaultSavePlanner" for inner in ("", ".default_planner"))
_COLLECTIVES = """
    all_gather_into_tensor_coalesced all_gather_single all_gather_single_autograd all_gather_single_coalesced
    all_gather_tensor all_gather_tensor_autograd all_reduce all_reduce_coalesced all_to_all_single
    all_to_all_single_autograd broadcast permute_tensor reduce_scatter_single reduce_scatter_single_autograd
    reduce_scatter_single_coalesced reduce_scatter_tensor reduce_scatter_tensor_autograd reduce_scatter_tensor_coalesced
""".split()
_DEDUP = "dedup_replicated_tensors"
# Up to this release, exclusive, the argument says whether replicated tensors are saved once.
_DEDUP_ENDS = Version("2.3")
_DTYPE = "enforce_dtype"
_LISTS = (ast.List, ast.ListComp)


class _Argument(NamedTuple):
    """A parameter of some functions, since when it warns, what it warns about, and what to do."""

    functions: tuple[str, ...]
    parameter: str
    since: str
    what: str
    advice: str
    warns: Callable[[ModuleFacts, ast.Call, ast.expr], bool]


def _is_given(facts: ModuleFacts, call: ast.Call, value: ast.expr) -> bool:
    return not is_literal(value, None)


def _is_true(facts: ModuleFacts, call: ast.Call, value: ast.expr) -> bool:
    return _is_given(facts, call, value) and not is_literal(value, False)


def _is_list(facts: ModuleFacts, call: ast.Call, value: ast.expr) -> bool:
    """Whether a value is a list of ranks, as far as this file tells."""
    if isinstance(value, ast.Name):
        values = [binding.value for binding in facts.names.bindings(value)]
        return bool(values) and all(one is not None and _makes_list(facts, one) for one in values)
    return _makes_list(facts, value)


def _makes_list(facts: ModuleFacts, value: ast.expr) -> bool:
    listed = isinstance(value, ast.Call) and facts.names.qualified(value.func) == "builtins.list"
    return listed or isinstance(value, _LISTS)


def _is_by_module(facts: ModuleFacts, call: ast.Call, value: ast.expr) -> bool:
    """Whether a value is a dict whose keys are modules: the model of the call, or what is read off it."""
    if isinstance(value, ast.Name):
        definition = facts.names.definition(value)
        return isinstance(definition, ast.Dict) and _is_by_module(facts, call, definition)
    if not isinstance(value, ast.Dict) or not call.args or not value.keys or value.keys[0] is None:
        return False
    key: ast.expr = value.keys[0]
    model = ast.dump(call.args[0])
    while isinstance(key, (ast.Attribute, ast.Subscript)) and ast.dump(key) != model:
        key = key.value
    return ast.dump(key) == model


_FILTER = "take the whole state dict, and keep the keys with the prefix of the submodule"
_BY_NAME = "pass one dict with the keys of the model: put the name of the submodule before each key"
_GROUP = "create the group once, with `new_group` on every rank or as a DeviceMesh, and pass it"
_ARGUMENTS = (
    _Argument(
        tuple(f"{_STATE_DICT}.get_{part}state_dict" for part in ("", "model_", "optimizer_")),
        "submodules",
        "2.4",
        "`submodules` is",
        _FILTER,
        _is_given,
    ),
    _Argument(
        tuple(f"{_STATE_DICT}.set_{part}state_dict" for part in ("", "model_")),
        "model_state_dict",
        "2.4",
        "a state dict by modules is",
        _BY_NAME,
        _is_by_module,
    ),
    _Argument(
        tuple(f"torch.distributed._functional_collectives.{name}" for name in _COLLECTIVES),
        "group",
        "2.3",
        "a list of ranks as `group` is",
        _GROUP,
        _is_list,
    ),
    _Argument(_PLANNERS, _DEDUP, "2.3", f"`{_DEDUP}`, which has no effect, is", "", _is_given),
)
_BY_PATH = {path: argument for argument in _ARGUMENTS for path in argument.functions}
_WORDS = last_words(_BY_PATH)


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find calls that pass one of the arguments."""
    named = set(calls_ending_in(facts, _WORDS))
    for call in facts.structure.calls:
        argument = _BY_PATH.get(torch_path(facts, call.func) or "") if call in named else None
        if argument is not None:
            yield from _of_function(facts, card, call, argument)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "gather":
            yield from _of_gather(facts, card, call)


def _of_function(facts: ModuleFacts, card: RuleCard, call: ast.Call, argument: _Argument) -> Iterator[Finding]:
    parameters = _parameters(torch_path(facts, call.func) or "")
    bound = _bound(call, argument.parameter, parameters)
    if bound is None or not argument.warns(facts, call, bound.value) or not _warned(facts, call, argument.since):
        return
    verdict = manual(argument.advice) if argument.advice else _without(facts, call, bound, parameters)
    yield _finding(facts, card, call, bound.index, f"{argument.what} deprecated since torch {argument.since}", verdict)


def _of_gather(facts: ModuleFacts, card: RuleCard, call: ast.Call) -> Iterator[Finding]:
    """`ShardedTensor.gather`, told by a keyword that nothing else has."""
    bound = _bound(call, _DTYPE, None)
    if bound is not None and _is_true(facts, call, bound.value) and _warned(facts, call, "2.2"):
        message = f"`{_DTYPE}` of `ShardedTensor.gather` is deprecated since torch 2.2"
        yield _finding(facts, card, call, bound.index, message, manual("pass the type itself, `dtype=`"))


def _finding(facts: ModuleFacts, card: RuleCard, call: ast.Call, index: int, message: str, verdict: Verdict) -> Finding:
    return finding(facts, card, ordered_arguments(call)[index], facts.statement(call), message, verdict)


def _warned(facts: ModuleFacts, call: ast.Call, since: str) -> bool:
    return any(release >= Version(since) for release in facts.gates.alive(call))


def _parameters(path: str) -> list[str]:
    """The parameters of the newest release that has the function."""
    found = signature(path, having(path)[-1]) if having(path) else None
    return [parameter.name for parameter in found or ()]


def _bound(call: ast.Call, parameter: str, parameters: list[str] | None) -> Bound | None:
    for index, argument in enumerate(ordered_arguments(call)):
        if isinstance(argument, ast.keyword) and argument.arg == parameter:
            return Bound(argument.value, index)
    try:
        return bind(call, parameters or (), 0).get(parameter)
    except BindingError:
        return None


def _without(facts: ModuleFacts, call: ast.Call, bound: Bound, parameters: list[str]) -> Verdict:
    value = bound.value
    if not isinstance(value, ast.Constant):
        return manual(f"remove `{_DEDUP}`, unless its value has side effects")
    if value.value is not True and any(release < _DEDUP_ENDS for release in facts.gates.alive(call)):
        return manual(
            f"torch before {_DEDUP_ENDS} saves replicated tensors on every rank with it: remove it when you drop "
            "those releases"
        )
    return without(facts, call, bound, parameters)


_PLANNER = "from torch.distributed.checkpoint import DefaultSavePlanner\n\n"
_PARTS = f"from {_STATE_DICT} import get_model_state_dict, set_model_state_dict\n\n"
_FUNCTIONAL = "import torch.distributed._functional_collectives as funcol\n\n"

RULE = Rule(
    RuleCard(
        code="FSDP520",
        name="deprecated-argument",
        summary="a deprecated argument of a function that is not deprecated",
        explanation="""\
* `submodules=` of `get_model_state_dict`, `get_optimizer_state_dict` and `get_state_dict` is deprecated since torch
  2.4, and so is a dict by modules for `set_model_state_dict` and `set_state_dict`.
* A list of ranks as the group of a functional collective is deprecated since 2.3. A group, a mesh or a name is the
  same group on every call; `new_group` has to be called on every rank.
* `DefaultSavePlanner(dedup_replicated_tensors=...)` has no effect since 2.3, which only logs a warning, and saves
  replicated tensors once. The fix removes True, the default of older releases. Other values stay while torch 2.2 is
  supported.
* `enforce_dtype=` of `ShardedTensor.gather` is deprecated since 2.2, which added `dtype=`.""",
        applicability="safe or manual",
        severity=Severity.DEPRECATED,
        flags=(
            Example(
                before=_PLANNER + "planner = DefaultSavePlanner(dedup_replicated_tensors=True)\n",
                after=_PLANNER + "planner = DefaultSavePlanner()\n",
            ),
            Example(before=_PARTS + "state = get_model_state_dict(model, submodules={model.encoder})\n"),
            Example(before=_PARTS + "set_model_state_dict(model, {model.encoder: state})\n"),
            Example(before=_FUNCTIONAL + 'y = funcol.all_reduce(x, "sum", [0, 1])\n'),
        ),
        leaves=(
            _PLANNER + "planner = DefaultSavePlanner(flatten_state_dict=False)\n",
            _PARTS + "state = get_model_state_dict(model, submodules=None)\n",
            _PARTS + 'set_model_state_dict(model, {"encoder.weight": weight})\n',
            _FUNCTIONAL + 'y = funcol.all_reduce(x, "sum", mesh)\n',
        ),
        url="https://pytorch.org/docs/stable/distributed.checkpoint.html",
    ),
    scope="near",
    words=(_DTYPE,),
    names=lambda: _BY_PATH,
    calls=lambda: (Traced(path, given=a.parameter) for path, a in _BY_PATH.items() if a.warns is _is_given),
    check=check,
)
