"""FSDP612 and FSDP613: what DTensor's functions take otherwise than before.

Sources: catalogue dt-partial (2.10 made placements C++ classes) and dt-distribute-module-fns (2.3.1 _tensor/api.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from packaging.version import Version

from fsdp_migrate.code.torch_names import calls_ending_in, last_words, torch_path
from fsdp_migrate.code.torch_presence import running, severity
from fsdp_migrate.code.unused_imports import removed_use, uses_of
from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.scopes import Kind
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, floor_or, manual
from fsdp_migrate.source import Span
from fsdp_migrate.targets.modernise.moved.calls import reads_reduction, reduction

_TENSOR = ("torch.distributed.tensor", "torch.distributed._tensor")
_PARTIALS = frozenset(f"{module}{inner}.Partial" for module in _TENSOR for inner in ("", ".placement_types"))
_DISTRIBUTE = frozenset(f"{module}{inner}.distribute_module" for module in _TENSOR for inner in ("", ".api", "._api"))
_WORDS = last_words(_PARTIALS | _DISTRIBUTE)
_STRICT = Version("2.10")
_THREE = Version("2.3")
_CALLBACKS = ("input_fn", "output_fn")
_FIRST_CALLBACK = 3  # module, device_mesh and partition_fn stand in front of them
_OLD_COUNT = 2
_BOTH = "accept `*args` and check their number"


def check_partial(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find placements built from a `ReduceOp`."""
    for call in calls_ending_in(facts, _WORDS):
        if torch_path(facts, call.func) not in _PARTIALS:
            continue
        values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "reduce_op")]
        path = torch_path(facts, values[0]) if values else None
        if path is None or ".ReduceOp." not in path or not facts.reached(call):
            continue
        named = reduction(facts, call)
        verdict = manual("pass the name of a reduction: sum, avg, min, max or product")
        if (compared := reads_reduction(facts)) is not None:
            verdict = manual(compared)
        elif named is not None:
            edits = (Replace(facts.source.span(values[0]), f'"{named[1]}"'),)
            verdict = Verdict(Fix(edits, removed_uses=removed_use(facts, values[0])))
        message = "`Partial` takes the name of a reduction; a `ReduceOp` fails since torch 2.10"
        strict = any(one >= _STRICT for one in facts.gates.alive(call))
        grade = Severity.BREAKS if strict else Severity.CHANGES
        yield finding(facts, card, values[0], facts.statement(call), message, verdict, grade)


def check_callbacks(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find callbacks of `distribute_module` that take other arguments than some release hands them."""
    for call in calls_ending_in(facts, _WORDS):
        if torch_path(facts, call.func) not in _DISTRIBUTE or any(isinstance(a, ast.Starred) for a in call.args):
            continue
        releases = running(facts, call)
        early = tuple(sorted(release for release in releases if release < _THREE))
        for name, value in _callbacks(call):
            function, bound = _function(facts, value)
            if function is None:
                continue
            if _takes_two(function.args, bound) and len(early) < len(releases):
                message = f"`distribute_module` passes the module to `{name}` as first argument since torch 2.3"
                verdict = _with_module(facts, function, value)
                yield finding(facts, card, value, facts.statement(call), message, verdict)
            elif _needs_three(function.args, bound) and early:
                message = (
                    f"`distribute_module` does not pass the module to `{name}` before torch 2.3, so this "
                    "function fails there"
                )
                verdict = floor_or(facts, _BOTH, str(_THREE))._replace(below_floor=True)
                grade = severity(facts, call, early, releases)
                yield finding(facts, card, value, facts.statement(call), message, verdict, grade)


def _callbacks(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    yield from zip(_CALLBACKS, call.args[_FIRST_CALLBACK:])
    yield from ((k.arg, k.value) for k in call.keywords if k.arg in _CALLBACKS)


def _function(facts: ModuleFacts, node: ast.expr) -> tuple[ast.FunctionDef | ast.Lambda | None, bool]:
    """The function of this file that a callback is, if it is one for certain, and whether it has its object already."""
    if isinstance(node, ast.Lambda):
        return node, False
    if isinstance(node, ast.Attribute):
        return _method(facts, node)
    bindings = facts.names.bindings(node) if isinstance(node, ast.Name) else []
    only = bindings[0] if len(bindings) == 1 and bindings[0].kind is Kind.DEFINITION else None
    return (only.node if only is not None and isinstance(only.node, ast.FunctionDef) else None), False


def _method(facts: ModuleFacts, node: ast.Attribute) -> tuple[ast.FunctionDef | None, bool]:
    """The method that `self.name` is in the class around it, or `Class.name` in that, if it has its own signature."""
    through_self = getattr(node.value, "id", None) == "self"
    cls: ast.AST | None = facts.structure.parents.get(facts.function(node))
    if not through_self:
        own = facts.names.own_classes(node.value)
        cls = own[0] if len(own) == 1 == len(facts.names.meanings(node.value)) else None
    body = cls.body if isinstance(cls, ast.ClassDef) else []
    found = [one for one in body if isinstance(one, ast.FunctionDef) and one.name == node.attr]
    kinds = [facts.names.qualified(one) for one in found[0].decorator_list] if len(found) == 1 else [None]
    if kinds not in ([], ["builtins.staticmethod"], ["builtins.classmethod"]):
        return None, False
    return found[0], kinds == ["builtins.classmethod"] or (through_self and not kinds)


def _takes_two(arguments: ast.arguments, bound: bool) -> bool:
    plain = [*arguments.posonlyargs, *arguments.args]
    return len(plain) == _OLD_COUNT + bound and not (arguments.vararg or arguments.kwarg or arguments.kwonlyargs)


def _needs_three(arguments: ast.arguments, bound: bool) -> bool:
    plain = [*arguments.posonlyargs, *arguments.args]
    return len(plain) - len(arguments.defaults) > _OLD_COUNT + bound


def _with_module(facts: ModuleFacts, function: ast.FunctionDef | ast.Lambda, value: ast.expr) -> Verdict:
    """The function with one more parameter in front, if nothing else calls it."""
    project = facts.project
    if isinstance(function, ast.FunctionDef):
        imported = project is not None and function in facts.source.tree.body and project.is_imported(function.name)
        bindings = facts.names.bindings(value) if isinstance(value, ast.Name) else []
        uses = [use for binding in bindings for use in uses_of(binding)]
        if imported or function.decorator_list or not uses or not _only_callbacks(facts, uses):
            method = isinstance(value, ast.Attribute)
            why = "the method may be called elsewhere" if method else "the function is decorated or used elsewhere"
            return manual(f"{why}: add the module as its first parameter")
    name = _free_name(facts, function)
    start = facts.source.span([*function.args.posonlyargs, *function.args.args][0]).start
    return Verdict(Fix((Replace(Span(start, start), f"{name}, "),)))


def _only_callbacks(facts: ModuleFacts, uses: Sequence[ast.Name]) -> bool:
    """Whether all uses of a function are as callbacks of `distribute_module`."""
    holders = {use: facts.structure.parents[use] for use in uses}
    calls = [
        facts.structure.parents[holder] if isinstance(holder, ast.keyword) and holder.arg in _CALLBACKS else holder
        for holder in holders.values()
    ]
    given = {value for call in calls if isinstance(call, ast.Call) for _, value in _callbacks(call)}
    return all(
        isinstance(call, ast.Call) and torch_path(facts, call.func) in _DISTRIBUTE for call in calls
    ) and given >= set(uses)


def _free_name(facts: ModuleFacts, function: ast.FunctionDef | ast.Lambda) -> str:
    taken = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    taken |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    return next(name for name in ("module", "_module", "_owner", "_module_of_the_callback") if name not in taken)


_URL = "https://pytorch.org/docs/stable/distributed.tensor.html"
_PARTIAL_IMPORT = "from torch.distributed import ReduceOp\nfrom torch.distributed.tensor import Partial\n\n"
_PARTIAL_AFTER = "from torch.distributed.tensor import Partial\n\n"
_MODULE_IMPORT = "from torch.distributed.tensor import distribute_module\n\n"
_TWO = _MODULE_IMPORT + "def shard_input(inputs, mesh):\n    return inputs\n\n\n"
_CALL = "distribute_module(model, mesh, input_fn=shard_input)\n"

PARTIAL_OF_REDUCE_OP = Rule(
    RuleCard(
        code="FSDP612",
        name="partial-of-reduce-op",
        summary="`Partial(ReduceOp...)`, where DTensor's placement takes a string",
        explanation="""\
Since torch 2.4, where `_Partial` was renamed to `Partial`, its argument is the name of the reduction. Up to 2.9 a
`ReduceOp` is accepted silently and fails when the tensor is redistributed. Since 2.10 it raises TypeError. The fix
turns `ReduceOp.AVG` into `"avg"`, and so on.""",
        applicability="safe or manual",
        removed="2.10",
        floor=None,
        flags=(
            Example(
                before=_PARTIAL_IMPORT + "placement = Partial(ReduceOp.AVG)\n",
                after=_PARTIAL_AFTER + 'placement = Partial("avg")\n',
                torch=">=2.5",
            ),
            Example(before=_PARTIAL_IMPORT + "placement = Partial(ReduceOp.BAND)\n", torch=">=2.5"),
        ),
        leaves=(_PARTIAL_AFTER + 'placements = [Partial(), Partial("sum"), Partial(operation)]\n',),
        url=_URL,
    ),
    scope="near",
    words=(("ReduceOp", "Partial"),),
    check=check_partial,
)

CALLBACKS = Rule(
    RuleCard(
        code="FSDP613",
        name="distribute-module-callbacks",
        summary="an `input_fn` or `output_fn` of `distribute_module` without the module as first parameter",
        explanation="""\
Since torch 2.3 the callbacks of `distribute_module` take the module, the inputs (or outputs) and the mesh. Callbacks
with two parameters still work and give a FutureWarning (a UserWarning in 2.3). The fix adds the parameter to a lambda,
and to a function of the file that has no other use. Before 2.3 callbacks are called without the module: those with
three required parameters are reported if such a release is supported.""",
        applicability="safe or manual",
        deprecated="2.3",
        floor="2.3",
        flags=(
            Example(
                before=_TWO + _CALL,
                after=_TWO.replace("(inputs", "(module, inputs") + _CALL,
                torch=">=2.5",
            ),
            Example(
                before=_MODULE_IMPORT + "distribute_module(model, mesh, None, lambda inputs, mesh: inputs)\n",
                after=_MODULE_IMPORT + "distribute_module(model, mesh, None, lambda module, inputs, mesh: inputs)\n",
                torch=">=2.5",
            ),
            Example(before=_TWO + _CALL + "shard_input(batch, mesh)\n", note="called elsewhere too", torch=">=2.5"),
        ),
        leaves=(_TWO.replace("(inputs", "(module, inputs") + _CALL,),
        url=_URL,
    ),
    scope="near",
    words=("distribute_module",),
    check=check_callbacks,
)
RULES = (PARTIAL_OF_REDUCE_OP, CALLBACKS)
