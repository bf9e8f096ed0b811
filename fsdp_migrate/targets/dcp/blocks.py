"""How a `with FSDP.state_dict_type(...)` goes: its calls are written anew, and it is taken away."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from packaging.version import Version

from fsdp_migrate.code.outdent import block_span, line_end, text_before
from fsdp_migrate.code.unused_imports import removed_use, strings_naming
from fsdp_migrate.edits import Edit, ImportBinding, RemovedUse, RemoveStatement, Replace, Unwrap
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.contexts import enclosing_settings
from fsdp_migrate.facts.fsdp import Receiver, TypeSetting
from fsdp_migrate.findings import Fix
from fsdp_migrate.rules.card import Verdict
from fsdp_migrate.source import Span
from fsdp_migrate.targets.dcp.calls import Reading, StateCall
from fsdp_migrate.targets.dcp.compiled import compiled
from fsdp_migrate.targets.dcp.functions import reads_of
from fsdp_migrate.targets.dcp.mapping import LOAD_MODEL, OPTIONS, SAVE_MODEL, SAVE_OPTIMIZER, on_every_rank, row_for
from fsdp_migrate.targets.dcp.names import Supplied
from fsdp_migrate.targets.dcp.ranks import runs_on_rank_0_only
from fsdp_migrate.targets.dcp.settings import InForce, NotUnderstood, in_force
from fsdp_migrate.targets.dcp.steps import may_precede_first_step
from fsdp_migrate.targets.dcp.uses import used_elsewhere
from fsdp_migrate.targets.dcp.writing import Anew, written

# What wraps parts of a model for recomputation: the new functions know of it since torch 2.3 [20 20o].
_CHECKPOINTING = (b"checkpoint_wrapper", b"apply_activation_checkpointing")
_FLOOR_OF_PARTS = "2.3"


class Region(NamedTuple):
    """The statements that a setting is in force for.

    `statement` sets the type; `block` is the `with` that does so and ends with it, None for a setter.
    """

    statement: ast.stmt
    statements: list[ast.stmt]
    block: ast.With | None
    item: ast.withitem | None = None


class Planned:
    """What becomes of one setting: the calls, their new names, the floor and the verdict."""

    def __init__(self, facts: ModuleFacts, setting: TypeSetting) -> None:
        """Plan the rewrite of what is under a setting.

        Raises:
            NotUnderstood, CannotSupply: it has to stay.
        """
        self.facts, self.setting = facts, setting
        region = region_of(facts, setting)
        self.in_force = in_force(facts, setting)
        receiver = _receiver(facts, setting)
        self.calls = read(facts, region.statements, setting.model)
        self.anew = [anew(facts, call, self.in_force) for call in self.calls]
        check_flow(facts, setting.call)
        self.floor = floor_of(facts, self.anew)
        self.verdict = Verdict(self._fix(region, receiver), unsafe=differences(facts, self.anew))

    def _fix(self, region: Region, receiver: Receiver) -> Fix:
        facts, block = self.facts, region.block
        symbols = [call.old.function for call in self.anew]
        symbols += [OPTIONS] if any(call.row.options or call.old.strict for call in self.anew) else []
        names = Supplied(facts, symbols, region.statement, receiver)
        outdented = block is not None and len(block.items) == 1
        indent = facts.indentation(region.statement if outdented else region.statements[0])
        done = written(facts, self.anew, names.spelling, indent, set())
        edits: list[Edit] = [*names.edits]
        lines = (*names.lines, *done.lines)
        if block is None:
            edits += [_instead(facts, region.statement, lines), *done.edits]
        elif outdented:
            unwrap = _unwrap(facts, block, lines)
            inner = tuple(edit for edit in done.edits if unwrap.span.contains(edit.span))
            edits += [unwrap._replace(inner=inner), *(edit for edit in done.edits if edit not in inner)]
        else:
            assert region.item is not None
            edits += [_without_item(facts, block, region.item), *done.edits, *_in_front(facts, block.body[0], lines)]
        return Fix(tuple(edits), removed_uses(facts, self.setting, self.anew))


def anew(facts: ModuleFacts, call: StateCall, settings: InForce) -> Anew:
    """A call with its row.

    Raises:
        NotUnderstood: there is none.
    """
    settings = call.own or settings
    row = row_for(call.function, settings)
    if call.function == SAVE_OPTIMIZER and row.on_rank_0 and (use := used_elsewhere(facts, call.call)) is not None:
        row = on_every_rank(settings, use)
    return Anew(call, row)


def read(facts: ModuleFacts, statements: Sequence[ast.stmt], model: ast.expr) -> list[StateCall]:
    """The calls that a type is set for.

    Raises:
        NotUnderstood: other things may use it too, or none does in sight.
    """
    calls = Reading(facts, statements, model).calls
    if not calls:
        raise NotUnderstood("nothing under the type asks the model for state in sight: what it is set for is elsewhere")
    if any(node.attr == "_metadata" for node in facts.structure.attributes):
        raise NotUnderstood("`_metadata` of a state dict is read here, which a full one has no more")
    for method in ("state_dict", "load_state_dict"):
        cls = facts.fsdp.overriding(method)
        if cls is not None:
            raise NotUnderstood(f"`{cls}` has its own `{method}`, which the new functions would go through")
    return calls


def check_flow(facts: ModuleFacts, node: ast.AST) -> None:
    """Let pass what all ranks run with a model that is not compiled.

    Raises:
        NotUnderstood: it is another case.
    """
    where = compiled(facts, node)
    if where is not None:
        raise NotUnderstood(
            f"{where} may have made the model: the new functions leave `_orig_mod.` out of all names, so that "
            "files have other keys than before"
        )
    if runs_on_rank_0_only(facts, node):
        raise NotUnderstood("only rank 0 gets here, and the new functions need all ranks: move the calls out")


def floor_of(facts: ModuleFacts, calls: Sequence[Anew]) -> str:
    """The oldest torch on which the new calls do what the old ones did."""
    floors = [call.row.floor for call in calls]
    if any(mark in facts.source.data for mark in _CHECKPOINTING):
        floors.append(_FLOOR_OF_PARTS)
    return max(floors, key=Version)


def differences(facts: ModuleFacts, calls: Sequence[Anew]) -> str | None:
    """What may be observed after the rewrite, None where nothing is."""
    reasons: list[str] = []
    for call in calls:
        old, row = call
        if row.unsafe is not None:
            reasons.append(row.unsafe)
        if row.on_rank_0 and (use := used_elsewhere(facts, old.call)) is not None:
            what = "an empty dict" if old.function == SAVE_MODEL else "no optimizer state"
            reasons.append(f"ranks other than 0 get {what}: {use}")
        if old.function == SAVE_OPTIMIZER and (early := may_precede_first_step(facts, old.call)) is not None:
            reasons.append(f"an optimizer that has not stepped gets a state with one step in it: {early}")
        if old.function == LOAD_MODEL and _FULL_OPTION in row.options:
            reasons += _differences_of_full_load(facts, old)
    return "; ".join(dict.fromkeys(reasons)) or None


_FULL_OPTION = "full_state_dict=True"


def _differences_of_full_load(facts: ModuleFacts, call: StateCall) -> Iterator[str]:
    if call.strict is not None and not is_literal(call.strict, True):
        yield "names that the dict lacks are no longer listed, and with `use_orig_params=False` are an error"
    if (use := _used_again(facts, call)) is not None:
        yield use


def _used_again(facts: ModuleFacts, call: StateCall) -> str | None:
    """The dict that a full load writes into [25b], if it is used afterwards."""
    state = call.state
    if not isinstance(state, ast.Name):
        return None
    home = facts.scope(state).lookup(state.id)
    uses = [] if home is None else home.uses.get(state.id, [])
    behind = [use for use in uses if (use.lineno, use.col_offset) > (state.lineno, state.col_offset)]
    read = [use for use in behind if isinstance(use.ctx, ast.Load)]
    return f"loading changes `{state.id}`, which line {read[0].lineno} reads again" if read else None


def region_of(facts: ModuleFacts, setting: TypeSetting) -> Region:
    """What a setting is in force for.

    Raises:
        NotUnderstood: that is not plain to see.
    """
    parent = facts.structure.parents[setting.call]
    if isinstance(parent, ast.withitem):
        block = facts.structure.parents[parent]
        if not isinstance(block, ast.With) or parent.optional_vars is not None:
            raise NotUnderstood("only a plain `with` can be taken away")
        return Region(block, block.body, block, parent)
    if isinstance(parent, ast.Expr) and getattr(setting.call.func, "attr", "") == "set_state_dict_type":
        return _set_for_good(facts, setting, parent)
    if isinstance(parent, ast.Call) and isinstance(facts.structure.parents[parent], ast.Expr):
        return _on_stack(facts, parent)
    if isinstance(parent, ast.Return):
        name = facts.function_name(parent)
        raise NotUnderstood(f"{name} gives the context to its callers: let them call the new functions")
    raise NotUnderstood("the type is set elsewhere than where the context is made: enter it by `with` here")


def _set_for_good(facts: ModuleFacts, setting: TypeSetting, statement: ast.Expr) -> Region:
    """The rest of the function that makes the model, sets its type and is done with it."""
    function, model = facts.function(statement), setting.model
    body = getattr(function, "body", [])
    made = facts.names.bindings(model) if isinstance(model, ast.Name) else []
    is_own = bool(made) and all(facts.function(one.node) is function and one.value is not None for one in made)
    others = _others_asking(facts, setting)
    if others:
        raise NotUnderstood(
            f"the type stays set, and {others} may read it too: set it there, or call the new functions"
        )
    if not is_own:
        text = ast.unparse(model)
        raise NotUnderstood(
            f"`{text}` comes from elsewhere, where the type stays set: call the new functions there too"
        )
    if statement not in body:
        raise NotUnderstood("the type is set under a condition: set it where the model is made")
    rest = body[body.index(statement) + 1 :]
    if not rest:
        raise NotUnderstood("nothing under the type asks the model for state in sight")
    return Region(statement, rest, None)


def _others_asking(facts: ModuleFacts, setting: TypeSetting) -> str:
    """The other functions of the file that ask a model of the same name for state, as a list in words."""
    name, own = _last(setting.model), facts.function(setting.call)
    methods = facts.structure.method_calls
    calls = [*methods.get("state_dict", ()), *methods.get("load_state_dict", ())]
    of_model = [call for call in calls if isinstance(call.func, ast.Attribute) and _last(call.func.value) == name]
    of_class = [*methods.get("optim_state_dict", ()), *methods.get("optim_state_dict_to_load", ())]
    unset = [call for call in (*of_model, *of_class) if next(enclosing_settings(facts, call), None) is None]
    found = {facts.function_name(call) for call in unset if facts.function(call) is not own}
    return ", ".join(sorted(found)[:3])


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _on_stack(facts: ModuleFacts, entering: ast.Call) -> Region:
    """The statements behind `stack.enter_context(...)` in the `with` of the stack."""
    statement = facts.statement(entering)
    block, func = facts.structure.parents[statement], entering.func
    is_entering = isinstance(func, ast.Attribute) and func.attr == "enter_context" and len(entering.args) == 1
    if not is_entering or not isinstance(block, ast.With) or statement not in block.body:
        raise NotUnderstood("the context goes elsewhere than into a `with`: enter it here")
    stacks = [item for item in block.items if item.optional_vars is not None]
    if ast.unparse(func.value) not in [ast.unparse(item.optional_vars) for item in stacks if item.optional_vars]:  # type: ignore[attr-defined]
        raise NotUnderstood("the stack that the context is entered on ends elsewhere")
    rest = block.body[block.body.index(statement) + 1 :]
    if not rest:
        raise NotUnderstood("nothing under the type asks the model for state in sight")
    return Region(statement, rest, None)


def _instead(facts: ModuleFacts, statement: ast.stmt, lines: Sequence[str]) -> Edit:
    """What stands in the place of a statement that sets a type."""
    span = facts.source.span(statement)
    if facts.source.has_comment(span):
        raise NotUnderstood("a comment stands inside the call: move it out")
    indent = facts.indentation(statement)
    return Replace(span, f"\n{indent}".join(lines)) if lines else RemoveStatement(span)


def _receiver(facts: ModuleFacts, setting: TypeSetting) -> Receiver:
    receiver = facts.fsdp.receiver(setting.call.func, setting.model)
    assert receiver is not None
    if receiver.doubt is not None:
        raise NotUnderstood(f"{receiver.doubt}: only torch's FSDP can be rewritten")
    return receiver


def _unwrap(facts: ModuleFacts, block: ast.With, lines: Sequence[str]) -> Unwrap:
    source, statement = facts.source, facts.source.span(block)
    indent, old = facts.indentation(block), facts.indentation(block.body[0])
    body = block_span(facts, block.body)
    if body is None:  # on the line of the `with`
        body, old = Span(source.span(block.body[0]).start, line_end(facts, statement.end)), indent
        if facts.statement(block.body[-1]).lineno != facts.statement(block.body[0]).lineno:
            raise NotUnderstood("the statements of the block share lines: put each on its own")
    if text_before(facts, statement.start) != indent:
        raise NotUnderstood("the `with` shares its line with other code: put it on its own")
    whole = Span(statement.start, max(line_end(facts, statement.end), body.end))
    header = Span(whole.start, body.start)
    comments = [text for span, text in source.comments if header.contains(span)]
    return Unwrap(whole, body, old, indent, prologue=(*comments, *lines))


def _without_item(facts: ModuleFacts, block: ast.With, item: ast.withitem) -> Replace:
    """Take one context manager out of a `with` of several."""
    spans = [facts.source.span(one.context_expr) for one in block.items]
    ends = [facts.source.span(one.optional_vars or one.context_expr).end for one in block.items]
    index = block.items.index(item)
    span = Span(spans[0].start, spans[1].start) if index == 0 else Span(ends[index - 1], ends[index])
    if facts.source.has_comment(span) or facts.source.data[span.start : span.end].count(b"(") != facts.source.data[
        span.start : span.end
    ].count(b")"):
        raise NotUnderstood("the context managers of this `with` are written in an unusual way: split it")
    return Replace(span, "")


def _in_front(facts: ModuleFacts, statement: ast.stmt, lines: Sequence[str]) -> list[Replace]:
    if not lines:
        return []
    start, indent = facts.source.span(statement).start, facts.indentation(statement)
    if text_before(facts, start) != indent:
        raise NotUnderstood("the statements of the block share a line with the `with`: put them on their own")
    return [Replace(Span(start, start), "".join(f"{line}\n{indent}" for line in lines))]


def removed_uses(facts: ModuleFacts, setting: TypeSetting | None, calls: Sequence[Anew]) -> tuple[RemovedUse, ...]:
    """The uses of names that go: in the call that sets the type, and of FSDP in calls of its methods."""
    gone: list[ast.expr] = [] if setting is None else [setting.call]
    gone += [call.old.call.func for call in calls if call.old.optimizer is not None]
    names = [node for one in gone for node in ast.walk(one) if isinstance(node, ast.Name)]
    model = set() if setting is None else set(ast.walk(setting.model))
    found = [one for node in names if node not in model for one in (*removed_use(facts, node), *_config(facts, node))]
    return tuple(dict.fromkeys(found))


def _config(facts: ModuleFacts, node: ast.Name) -> list[RemovedUse]:
    """The removed use of a config that is made by itself, by an assignment without any other effect."""
    if facts.fsdp.config(node) is None:
        return []
    (binding, *more) = facts.names.bindings(node)
    statement, home = facts.structure.parents.get(binding.node), binding.scope
    single = isinstance(statement, ast.AnnAssign) or (isinstance(statement, ast.Assign) and len(statement.targets) == 1)
    if more or not single or home.is_class or any(True for _ in strings_naming(facts, node.id)):
        return []
    project = facts.project
    if home.is_module and project is not None and project.is_imported(node.id):
        return []
    assert isinstance(statement, ast.stmt)
    assert isinstance(binding.node, ast.Name)
    uses = tuple(sorted(facts.source.span(use) for use in reads_of(facts, binding.node)))
    inside = [one for one in ast.walk(statement) if isinstance(one, ast.Name)]
    then = tuple(each for one in inside for each in removed_use(facts, one))
    return [RemovedUse(facts.source.span(node), ImportBinding(facts.source.span(statement), node.id, uses, True, then))]
