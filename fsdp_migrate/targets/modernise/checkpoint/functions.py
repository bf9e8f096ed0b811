"""FSDP703: `save_state_dict` and `load_state_dict` of distributed checkpointing.

Sources: catalogue dcp-save-load; state_dict_saver.py and state_dict_loader.py of 2.2.2 to 2.13.0. `save` and `load`
call `state_dict` and `load_state_dict` of the values that have both. Up to 2.3 `load` leaves values that are no tensors
as they were; in 2.4 and 2.5 it puts the state in the place of the object. `load` gives its planner a copy of the dict,
and takes back the keys that were there before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from packaging.version import Version

from fsdp_migrate.code.dropped_arguments import kept_comment
from fsdp_migrate.code.fallback_arms import arms_beside
from fsdp_migrate.code.import_texts import CannotSupply, fresh_name, is_alone
from fsdp_migrate.code.plain_values import is_stateful, unplain
from fsdp_migrate.code.torch_names import bindings_of, calls_ending_in, imports, reads, torch_path
from fsdp_migrate.code.unused_imports import removed_use, uses_of
from fsdp_migrate.edits import Argument, Edit, ImportBehind, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, Bound, bind, is_literal
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.facts.scopes import Binding, Kind, Scope
from fsdp_migrate.findings import Applicability, Finding, Fix
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Traced, Verdict, finding, manual
from fsdp_migrate.rules.supported_releases import older, only_older

_PACKAGE = "torch.distributed.checkpoint"
_PACKAGES = (_PACKAGE, "torch.distributed._shard.checkpoint")
_DEPRECATED = "2.2"
_NO_DIST_SINCE = Version("2.7")
_STATEFUL_SINCE = "2.6"


class _Function(NamedTuple):
    """An old function, its successor, the parameter for the storage, and the oldest torch with the same results."""

    old: str
    new: str
    storage: str
    planner: str
    floor: str
    expanded: str

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the old function, in their order."""
        return ("state_dict", self.storage, "process_group", "coordinator_rank", "no_dist", "planner")


_SAVE = _Function(
    "save_state_dict",
    "save",
    "storage_writer",
    "DefaultSavePlanner",
    "2.2",
    "`save` stores that state dict key by key; `save_state_dict` pickled the object",
)
_LOAD = _Function(
    "load_state_dict",
    "load",
    "storage_reader",
    "DefaultLoadPlanner",
    "2.4",
    "`load` calls its `load_state_dict()`; `load_state_dict` replaced the object in the dict",
)
_MODULES = {_SAVE: "state_dict_saver", _LOAD: "state_dict_loader"}
_ALIAS = "dcp"
_TARGETS = {
    f"{package}{module}.{function.old}": function
    for package in _PACKAGES
    for function, name in _MODULES.items()
    for module in ("", f".{name}")
}


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find calls of the old functions, and what else is done with them."""
    for node, function in _places(facts):
        if only_older(facts, node, _DEPRECATED) or _is_old_arm(facts, node, function):
            continue
        message = f"`{_PACKAGE}.{function.old}` is deprecated since torch {_DEPRECATED}: use `{function.new}`"
        verdict, floor = _verdict(facts, node, function)
        yield finding(facts, card._replace(floor=floor), node, facts.statement(node), message, verdict)


def _places(facts: ModuleFacts) -> Iterator[tuple[ast.Name | ast.Attribute | ast.Constant, _Function]]:
    """Where one of the functions is read, under whatever name, and called through a module of the project."""
    words = {function.old for function in _MODULES}
    nodes: list[ast.expr] = [node for node in facts.structure.attributes if node.attr in words]
    for taken in imports(facts):
        if taken.path in _TARGETS:
            nodes += [use for binding in bindings_of(facts, taken) for use in uses_of(binding)]
    nodes += [call.func for call in calls_ending_in(facts, words)]
    for node in (places := dict.fromkeys(nodes)):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        function = _TARGETS.get(torch_path(facts, node) or "")
        # What is assigned is told where that is done.
        if function is not None and (not isinstance(node, ast.Name) or facts.names.value(node) not in places):
            yield node, function
    yield from ((one.node, _TARGETS[one.path]) for one, _ in reads(facts) if one.path in _TARGETS)


def _is_old_arm(facts: ModuleFacts, node: ast.AST, function: _Function) -> bool:
    """Whether the file chooses by itself between the old function and the new one."""
    parts = (part for arm in arms_beside(facts, node) for part in ast.walk(arm))
    return any(_names_new(facts, part, function) for part in parts)


def _names_new(facts: ModuleFacts, part: ast.AST, function: _Function) -> bool:
    """Whether `part` is the new function, an import of it, or a string that may ask for it."""
    new = {old.replace(function.old, function.new) for old, one in _TARGETS.items() if one is function}
    if isinstance(part, ast.alias):
        statement = facts.structure.parents[part]
        return f"{getattr(statement, 'module', '')}.{part.name}" in new
    if isinstance(part, ast.Constant) and part.value == function.new:
        call = facts.structure.parents[part]
        asked = call.args[0] if isinstance(call, ast.Call) and len(call.args) > 1 else None
        return asked is not None and f"{torch_path(facts, asked)}.{function.new}" in new
    return isinstance(part, (ast.Name, ast.Attribute)) and torch_path(facts, part) in new


def _verdict(facts: ModuleFacts, node: ast.expr, function: _Function) -> tuple[Verdict, str]:
    """How a use goes on, and the oldest release on which it is the same there."""
    call, floor = facts.structure.parents[node], function.floor
    if not isinstance(call, ast.Call) or call.func is not node:
        return manual(f"this is not a direct call: use `{function.new}` with `{function.storage}=` by keyword"), floor
    try:
        bound = bind(call, function.parameters, 2)
    except BindingError as error:
        return manual(f"the call {error}: write `{function.new}(state, {function.storage}=...)`"), floor
    if (trouble := _trouble(facts, call, bound, function)) is not None:
        return manual(trouble), floor
    state = bound["state_dict"].value
    objects = list(unplain(facts, state))
    for value in objects:
        if is_stateful(facts, value):
            return manual(f"`{ast.unparse(value)}` has a `state_dict()`: {function.expanded}"), floor
    try:
        callee, edits = _spelled(facts, call, function)
    except CannotSupply as error:
        return manual(str(error)), floor
    keep = [(name, one) for name, one in bound.items() if not _is_dropped(call, name, one)]
    dropped = (one for name, one in bound.items() if _is_dropped(call, name, one))
    notes = (kept_comment(facts, call, one) for one in dropped)
    arguments = tuple(
        Argument(None if name == "state_dict" and _is_position(call, one) else name, one.index) for name, one in keep
    )
    attribute = function.new if callee is None else None
    removed = removed_use(facts, node) if isinstance(node, ast.Name) else ()
    fix = Fix((RewriteCall(facts.source.span(call), attribute, arguments, callee), *edits), removed)
    if objects and function is _LOAD:
        floor = _STATEFUL_SINCE
    note = next((note for note in notes if note is not None), None)
    return Verdict(fix, unsafe=_difference(facts, bound, objects, function), note=note), floor


def _trouble(facts: ModuleFacts, call: ast.Call, bound: dict[str, Bound], function: _Function) -> str | None:
    """Why the arguments of a call cannot be given to the new function, None where they can."""
    rank, alone = bound.get("coordinator_rank"), bound.get("no_dist")
    if rank is not None and not _is_dropped(call, "coordinator_rank", rank):
        return (
            f"`{function.new}` has no `coordinator_rank` since torch 2.3: remove it; rank 0 then coordinates, "
            "and the files are the same"
        )
    if alone is not None and not _is_dropped(call, "no_dist", alone) and older(facts, _NO_DIST_SINCE, call):
        return (
            f"`{function.new}` accepts `no_dist` since torch {_NO_DIST_SINCE}: require that release, or "
            "remove `no_dist` if no process group is initialised"
        )
    planner = bound.get("planner")
    if planner is not None and (_class_of(facts, planner.value) or "").endswith("._EmptyStateDictLoadPlanner"):
        return (
            "`load` gives the planner a copy of the state dict, so keys that the planner adds are lost: keep this call"
        )
    return None


def _is_dropped(call: ast.Call, name: str, one: Bound) -> bool:
    """Whether an argument is a default that the new function has no parameter for, or that only filled a position."""
    if name == "coordinator_rank":
        return isinstance(one.value, ast.Constant) and type(one.value.value) is int and one.value.value == 0
    if name == "no_dist":
        return is_literal(one.value, False)
    return name in ("process_group", "planner") and is_literal(one.value, None) and _is_position(call, one)


def _is_position(call: ast.Call, one: Bound) -> bool:
    return any(one.value is argument for argument in call.args)


def _difference(
    facts: ModuleFacts, bound: dict[str, Bound], objects: list[ast.expr], function: _Function
) -> str | None:
    """What may differ after the rewrite, None where nothing does."""
    storage, planner = bound[function.storage].value, bound.get("planner")
    if objects:
        written = _shown(objects[0])
        may = "may hold an object with" if objects[0] is bound["state_dict"].value else "may have"
        return f"`{written}` {may} a `state_dict()`: {function.expanded}"
    if not (_class_of(facts, storage) or "").startswith(_PACKAGES):
        written = _shown(storage)
        return (
            f"`{function.new}` calls `reset(checkpoint_id)` of `{written}`: a class of your own has to define it "
            "(FSDP701)"
        )
    if planner is None or is_literal(planner.value, None):
        return None
    if (_class_of(facts, planner.value) or "").rpartition(".")[2] != function.planner:
        return f"`{function.new}` gives the planner a copy of the state dict: keys that the planner adds are lost"
    return None


def _shown(value: ast.expr) -> str:
    """A value for a message, a call without its arguments."""
    return f"{ast.unparse(value.func)}(...)" if isinstance(value, ast.Call) and value.args else ast.unparse(value)


def _class_of(facts: ModuleFacts, value: ast.expr) -> str | None:
    """The class of torch that an object is built from, in the call or where its name is bound."""
    built = facts.names.value(value) if isinstance(value, ast.Name) else value
    return torch_path(facts, built.func) if isinstance(built, ast.Call) else None


def _spelled(facts: ModuleFacts, call: ast.Call, function: _Function) -> tuple[str | None, list[Edit]]:
    """The new function as it is written at a call, None for the same chain with another end; imports for that.

    Raises:
        CannotSupply: no import of the file can bring it.
    """
    if isinstance(call.func, ast.Attribute):
        module = torch_path(facts, call.func.value)
        if module is None:
            raise CannotSupply(_of_project(call.func, function))
        return None, []
    assert isinstance(call.func, ast.Name)
    bindings = facts.names.bindings(call.func)
    if len(bindings) != 1 or (bindings[0].target or "") not in _TARGETS:
        raise CannotSupply(_of_project(call.func, function))
    (taken,) = bindings
    visible = _visible(facts, call)
    if visible is not None:
        return f"{visible}.{function.new}", []
    statement = taken.node
    assert isinstance(statement, ast.ImportFrom)
    if taken.scope.is_class or not is_alone(facts, statement):
        raise CannotSupply(
            f"this import cannot be extended: import `{_PACKAGE}` as a module and call its `{function.new}`"
        )
    name = fresh_name(taken.scope, _ALIAS, ())
    package, _, module = _PACKAGE.rpartition(".")
    added = ImportBehind(
        facts.source.span(statement),
        package,
        (f"{module} as {name}",),
        facts.indentation(statement),
        facts.indent_unit,
    )
    return f"{name}.{function.new}", [added]


def _visible(facts: ModuleFacts, call: ast.Call) -> str | None:
    """The name of the package at a call, None where the file does not import it there as a module."""
    scope = facts.scope(call)
    for outer in scope.enclosing():
        for binding in facts.memo((_visible, outer), partial(_packages, outer)):
            before = outer is not scope or binding.position < place_of(call)
            if before and scope.lookup(binding.name) is outer:
                return binding.name
    return None


def _packages(scope: Scope) -> list[Binding]:
    """The names of a scope that mean the package and nothing else."""
    only = (bindings[0] for bindings in scope.bindings.values() if len(bindings) == 1)
    return [one for one in only if one.target in _PACKAGES and not one.conditional and one.kind is Kind.IMPORT]


def _of_project(node: ast.expr, function: _Function) -> str:
    return f"`{ast.unparse(node)}` comes from a module of the project: use `{function.new}` of `{_PACKAGE}`"


_DCP = f"import {_PACKAGE} as dcp\n\n"
_SAVING = """\
from torch.distributed.checkpoint import FileSystemWriter, save_state_dict

def save(model, path):
    save_state_dict({"model": model.state_dict()}, FileSystemWriter(path))
"""
_LOADING = """\
state = {"model": model.state_dict(), "step": 0}
dcp.load_state_dict(state_dict=state, storage_reader=dcp.FileSystemReader(path), no_dist=False)
"""

RULE = Rule(
    RuleCard(
        code="FSDP703",
        name="dcp-save-state-dict",
        summary="`save_state_dict` and `load_state_dict` of distributed checkpointing",
        explanation="""\
Deprecated since torch 2.2 in favour of `save` and `load`. The files are the same, and each function reads what the
other wrote. The storage becomes a keyword, `process_group` and `planner` stay, and `coordinator_rank=0` and
`no_dist=False` are removed. `no_dist=True` needs torch 2.7, which has it again: without it a job of several ranks
hangs.

`save` and `load` look at each value of the dict, and call its `state_dict` and `load_state_dict` if it has both. A
scheduler that used to be pickled as a whole is then stored by the keys of its state. The fix is safe if all values are
visibly numbers, tensors, containers or results of `state_dict()` calls, and storage and planner are torch's own.

`load` of torch 2.2 and 2.3 does not load values other than tensors. The finding is manual on those releases.""",
        applicability="safe, unsafe or manual",
        deprecated=_DEPRECATED,
        flags=(
            Example(
                before=_SAVING,
                after=_SAVING.replace(
                    ", save_state_dict\n", f"\nfrom torch.distributed import checkpoint as {_ALIAS}\n"
                )
                .replace("    save_state_dict(", f"    {_ALIAS}.save(")
                .replace("FileSystemWriter(path)", "storage_writer=FileSystemWriter(path)"),
                torch=">=2.2",
            ),
            Example(
                before=_DCP + _LOADING,
                after=_DCP + _LOADING.replace(".load_state_dict", ".load").replace(", no_dist=False", ""),
                torch=">=2.4",
            ),
            Example(
                before=_DCP + "dcp.save_state_dict(state, dcp.FileSystemWriter(path))\n",
                after=_DCP + "dcp.save(state, storage_writer=dcp.FileSystemWriter(path))\n",
                note="the values are not visible",
                applicability=Applicability.UNSAFE,
                torch=">=2.2",
            ),
            Example(
                before=_DCP + "dcp.load_state_dict(state, reader, no_dist=True)\n",
                note="torch 2.6 is supported",
                torch=">=2.4",
            ),
        ),
        leaves=(_DCP + "dcp.save(state, storage_writer=writer)\n", "optim.load_state_dict(state)\n"),
        url="https://pytorch.org/docs/stable/distributed.checkpoint.html",
    ),
    words=(),
    check=check,
    names=lambda: _TARGETS,
    calls=lambda: map(Traced, _TARGETS),
)
