"""What becomes of state-dict calls of FSDP1: those under a type, which goes with them, and single ones.

`of_setting` and `of_call` are what targets ask. Both give edits with their grade, or the reason why all stays.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from fsdp_migrate.code.import_texts import CannotSupply
from fsdp_migrate.code.new_names import spell
from fsdp_migrate.code.outdent import block_span, line_end, text_before, with_comments_below
from fsdp_migrate.code.state_dicts.calls import Reading, StateCall
from fsdp_migrate.code.state_dicts.choices import choices
from fsdp_migrate.code.state_dicts.differences import Difference, check_flow, differences, floor_of
from fsdp_migrate.code.state_dicts.functions import flow, reads_of
from fsdp_migrate.code.state_dicts.loaded_files import check_same_on_all_ranks
from fsdp_migrate.code.state_dicts.mapping import (
    BROADCAST,
    LOAD_MODEL,
    OPTIONS,
    SAVE_MODEL,
    SAVE_OPTIMIZER,
    decided_at_run_time,
    on_every_rank,
    row_for,
)
from fsdp_migrate.code.state_dicts.names import Supplied
from fsdp_migrate.code.state_dicts.regions import Region, region_of
from fsdp_migrate.code.state_dicts.settings import (
    NEVER_SET,
    Follow,
    InForce,
    NotUnderstood,
    Undecided,
    as_written,
    in_force,
    type_of,
)
from fsdp_migrate.code.state_dicts.sharded_loads import LOAD, PACKAGE
from fsdp_migrate.code.state_dicts.uses import used_elsewhere
from fsdp_migrate.code.state_dicts.writing import Anew, removal, written
from fsdp_migrate.code.unused_imports import removed_use, strings_naming
from fsdp_migrate.edits import (
    Edit,
    EditImport,
    ImportBehind,
    ImportBinding,
    RemovedUse,
    RemoveStatement,
    Replace,
    Unwrap,
)
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.fsdp import Receiver, TypeSetting
from fsdp_migrate.findings import Fix
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Verdict
from fsdp_migrate.source import Span

Result = TypeVar("Result")


class Names(Protocol):
    """How new code spells some names: as `Supplied`."""

    spelling: dict[str, str]
    edits: tuple[EditImport | ImportBehind, ...]
    lines: tuple[str, ...]


class Manner(NamedTuple):
    """How calls are rewritten, where a target has its own way.

    `names` spells names at a place where a receiver is FSDP. `takes_compiled` takes models whose keys change, `flags`
    expressions that decide at run time whether the state leaves the device, `takes_idle` types of blocks that ask the
    model for nothing, though optimizers for their own states. `full_loads` gives the name, in a module, of a function
    that the optimizer state of a full load goes through; it is asked only where there is one.
    """

    names: Callable[[ModuleFacts, Iterable[str], ast.AST, Receiver], Names] = Supplied
    takes_compiled: bool = False
    flags: bool = False
    takes_idle: bool = False
    full_loads: Callable[[ModuleFacts], str] | None = None


USUAL = Manner()


class SettingAt(NamedTuple):
    """A setting in the module of `facts`; `follow` says what the parameters of the function around it stand for."""

    facts: ModuleFacts
    setting: TypeSetting
    follow: Follow = as_written


class Rewritten(NamedTuple):
    """What becomes of some calls: the fix with its grade, the oldest torch that it holds on, and the calls.

    `differences` are the reasons of the grade, one by one.
    """

    verdict: Verdict
    floor: str
    calls: tuple[StateCall, ...]
    differences: tuple[Difference, ...] = ()

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the new functions, in the order of the calls."""
        return tuple(dict.fromkeys(call.function for call in self.calls))


def of_setting(facts: ModuleFacts, setting: TypeSetting, manner: Manner = USUAL) -> Rewritten | str:
    """What becomes of a type that is set and of all that it is set for, or why it stays."""

    def found() -> Rewritten:
        receiver = facts.fsdp.receiver(setting.call.func, setting.model)
        assert receiver is not None
        if receiver.doubt is not None:
            raise NotUnderstood(f"{receiver.doubt}: only torch's FSDP can be rewritten")
        return of_context(facts, setting.call, setting.model, SettingAt(facts, setting), receiver, manner)

    return or_reason(facts, (of_setting, setting.call, manner), found)


def of_context(
    facts: ModuleFacts,
    call: ast.Call,
    model: ast.expr,
    setting: SettingAt,
    receiver: Receiver,
    manner: Manner,
) -> Rewritten:
    """What becomes of a call that sets a type for `model`, and of all that it is set for; `setting` says which type.

    Raises:
        NotUnderstood, CannotSupply: it stays; where the type is chosen at run time, with the calls to choose from.
    """
    region = region_of(facts, call, model)
    is_idle = manner.takes_idle and region.block is not None
    if is_idle and not _asked(facts, region.statements, model, own_states=True):
        return _of_region(facts, region, model, NEVER_SET, receiver, call, manner)
    try:
        flags = manner.flags and setting.follow is as_written
        settings = in_force(setting.facts, setting.setting, setting.follow, flags=flags)
    except Undecided as reason:
        try:
            calls = read(facts, region.statements, model)
        except NotUnderstood as other:
            raise NotUnderstood(f"{reason}, and {other}") from None
        if any(call.own is None for call in calls):
            name = type_of(setting.facts, setting.setting, setting.follow)
            raise NotUnderstood(f"{reason}, so choose: {choices(calls, name)}") from None
        settings = NEVER_SET  # every call ignores the type
    return _of_region(facts, region, model, settings, receiver, call, manner)


def of_call(
    facts: ModuleFacts,
    call: ast.Call,
    model: ast.expr,
    manner: Manner = USUAL,
    inside: Sequence[tuple[ast.Call, ast.expr]] = (),
    settings: InForce = NEVER_SET,
) -> Rewritten | str:
    """What becomes of a single call that no type is set for, or that ignores it; `model` is FSDP's. Or why it stays.

    `inside` are such calls among its arguments, with their models, which are rewritten with it. `settings` are in force
    where a type is set elsewhere.
    """
    together = ((call, model), *inside)
    key = of_call, together, manner, settings
    return or_reason(facts, key, lambda: _of_calls(facts, together, manner, settings))


def or_reason(facts: ModuleFacts, key: Hashable, found: Callable[[], Result]) -> Result | str:
    """What `found` gives, or the reason why it gives nothing; asked once."""

    def attempt() -> Result | str:
        try:
            return found()
        except (NotUnderstood, CannotSupply) as reason:
            return str(reason)

    return facts.memo(key, attempt)


def _of_region(
    facts: ModuleFacts,
    region: Region,
    model: ast.expr,
    settings: InForce,
    receiver: Receiver,
    gone: ast.Call,
    manner: Manner,
) -> Rewritten:
    """The rewrite of what is under a type; `gone` is the call that sets it and goes.

    Raises:
        NotUnderstood, CannotSupply: it has to stay.
    """
    if manner.takes_idle and region.block is not None:
        found = _asked(facts, region.statements, model, own_states=True)
    else:
        found = read(facts, region.statements, model)
    calls = [anew(facts, call, settings, manner) for call in found]
    check_flow(facts, gone, calls, takes_compiled=manner.takes_compiled)
    block = region.block
    outdented = block is not None and len(block.items) == 1
    names = _supplied(facts, calls, region.statement, receiver, manner)
    indent = facts.indentation(region.statement if outdented else region.statements[0])
    behind = region.statements[0] if names.lines and not outdented else None
    done = written(facts, calls, names.spelling, indent, set(), manner.full_loads, behind)
    edits: list[Edit] = [*names.edits]
    lines = (*names.lines, *done.lines)
    if block is None:
        edits += [_instead(facts, region.statement, lines), *done.edits]
    elif outdented:
        entering = None if region.statement is block else region.statement
        outdent = unwrap(facts, block, lines, entering)
        inner = tuple(edit for edit in done.edits if outdent.span.contains(edit.span))
        edits += [outdent._replace(inner=(*outdent.inner, *inner)), *(one for one in done.edits if one not in inner)]
    else:
        assert region.item is not None
        edits += [_without_item(facts, block, region.item), *done.edits, *_in_front(facts, block.body[0], lines)]
    if region.named is not None:
        edits.append(_instead(facts, region.named, ()))
    leaving: list[ast.expr] = [gone]
    if block is not None and region.statement is not block and isinstance(region.item, ast.withitem):
        leaving.append(region.item.context_expr)
    return _graded(facts, calls, Fix(tuple(edits), removed_uses(facts, calls, leaving, model)))


def _of_calls(
    facts: ModuleFacts, together: Sequence[tuple[ast.Call, ast.expr]], manner: Manner, settings: InForce
) -> Rewritten:
    call, model = together[0]
    receiver = facts.fsdp.receiver(call.func, model)
    calls = []
    for one, own in together:
        found = [anew(facts, each, settings, manner) for each in Reading(facts, (), own, one).calls]
        if not found:
            raise NotUnderstood(f"`{ast.unparse(one.func)}` does not belong to the model")
        calls += found
    if any(one.old.function in (SAVE_MODEL, LOAD_MODEL) for one in calls):
        check_kind(facts, call)
    check_flow(facts, call, calls, takes_compiled=manner.takes_compiled)
    statement = facts.statement(call)
    names = _supplied(facts, calls, call, receiver or Receiver(model, ()), manner)
    behind = statement if names.lines else None
    done = written(facts, calls, names.spelling, facts.indentation(statement), set(), manner.full_loads, behind)
    edits: list[Edit] = [*names.edits, *done.edits, *_in_front(facts, statement, (*names.lines, *done.lines))]
    return _graded(facts, calls, Fix(tuple(edits), removed_uses(facts, calls)))


def _supplied(facts: ModuleFacts, calls: Sequence[Anew], at: ast.AST, receiver: Receiver, manner: Manner) -> Names:
    symbols = [call.old.function for call in calls]
    symbols += [OPTIONS] if any(call.row.options or call.old.strict for call in calls) else []
    readings = [call.old.reading for call in calls if call.old.reading is not None]
    names = manner.names(facts, [*symbols, *([SAVE_OPTIMIZER] if readings else [])], at, receiver)
    if readings:
        package = spell(facts, PACKAGE, readings[0].call)
        names.spelling[LOAD] = f"{package.text}.{LOAD}"
        names.edits += package.edits
    return names


def _graded(facts: ModuleFacts, calls: Sequence[Anew], fix: Fix) -> Rewritten:
    found = differences(facts, calls)
    verdict = Verdict(fix, unsafe="; ".join(one.text for one in found) or None)
    return Rewritten(verdict, floor_of(facts, calls), tuple(call.old for call in calls), found)


def anew(facts: ModuleFacts, call: StateCall, settings: InForce, manner: Manner = USUAL) -> Anew:
    """A call with its row.

    Raises:
        NotUnderstood: there is none.
    """
    settings = call.own or settings
    row = row_for(call.function, settings, nearest=manner.flags)
    use = used_elsewhere(facts, call.call) if row.on_rank_0 else None
    if use is not None and (call.function == SAVE_OPTIMIZER or use.of_groups):
        row = on_every_rank(call.function, settings, use.reason)
    if call.state is not None and BROADCAST in row.options and call.function == LOAD_MODEL:
        check_same_on_all_ranks(facts, call.state)
    flag = (settings.model if call.function == SAVE_MODEL else settings.optimizer).flag
    if flag is not None and call.function in (SAVE_MODEL, SAVE_OPTIMIZER):
        _check_visible(facts, flag, call.call)
        row = decided_at_run_time(row, ast.unparse(flag))
    return Anew(call, row)


def _check_visible(facts: ModuleFacts, flag: ast.expr, at: ast.AST) -> None:
    """Let an expression pass that means the same at another place.

    Raises:
        NotUnderstood: it may not.
    """
    for name in (one for one in ast.walk(flag) if isinstance(one, ast.Name)):
        if facts.scope(name).lookup(name.id) is not facts.scope(at).lookup(name.id):
            raise NotUnderstood(f"`{name.id}` is not visible where the state dict is made: create the config there")


def read(facts: ModuleFacts, statements: Sequence[ast.stmt], model: ast.expr) -> list[StateCall]:
    """The calls that a type is set for.

    Raises:
        NotUnderstood: other things may use it too, or none does in sight.
    """
    calls = _asked(facts, statements, model)
    if not calls:
        raise NotUnderstood("no visible code asks the model for state here: call the new functions where it does")
    return calls


def _asked(
    facts: ModuleFacts, statements: Sequence[ast.stmt], model: ast.expr, *, own_states: bool = False
) -> list[StateCall]:
    """The calls that a type is set for, if there are some; see `Reading`.

    Raises:
        NotUnderstood: other things may use it too.
    """
    known = _of_inner_types(facts, statements, model)
    calls = Reading(facts, statements, model, known=known, own_states=own_states).calls
    if calls:
        check_kind(facts, calls[0].call)
    return calls


def _of_inner_types(facts: ModuleFacts, statements: Sequence[ast.stmt], model: ast.expr) -> frozenset[ast.AST]:
    """What types that are set for a block in these statements decide on, whatever is set around it.

    Raises:
        NotUnderstood: what such a type decides on is not plain to see.
    """
    found: set[ast.AST] = set()
    for node in (part for statement in statements for part in ast.walk(statement)):
        setting = facts.fsdp.setting(node) if isinstance(node, ast.Call) and node not in found else None
        if setting is None or isinstance(facts.structure.parents[setting.call], ast.Expr):
            continue
        if facts.fsdp.same_object(setting.model, model):
            inside = region_of(facts, setting.call, setting.model).statements
            found.update((setting.call, *(part for one in inside for part in ast.walk(one))))
            continue
        inner = of_setting(facts, setting)
        if isinstance(inner, str):
            raise NotUnderstood(f"another type is set in line {setting.call.lineno} and stays: split the block")
        found.update((setting.call, *(call.call for call in inner.calls)))
        found.update(call.load for call in inner.calls if call.load is not None)
    return frozenset(found)


def check_kind(facts: ModuleFacts, node: ast.AST) -> None:
    """Let pass models whose state dict is torch's, which the new functions make as well.

    Raises:
        NotUnderstood: the file, or one that leads to `node`, has another.
    """
    for other, shown in flow(facts, node):
        read = other.memo(_reads_versions, partial(_first_read, other))
        if read is not None:
            place = f"line {read.lineno}" if other is facts else f"{shown}:{read.lineno}"
            raise NotUnderstood(
                f"{place} reads `_metadata` of a state dict, which a full one of the new functions does not have"
            )
    for method in ("state_dict", "load_state_dict"):
        cls = facts.fsdp.overriding(method)
        if cls is not None:
            raise NotUnderstood(f"`{cls}` defines its own `{method}`, which the new functions would call")


def _first_read(facts: ModuleFacts) -> ast.Attribute | None:
    return next((one for one in facts.structure.attributes if _reads_versions(one)), None)


def _reads_versions(node: ast.Attribute) -> bool:
    """Whether the versions of modules are read off a state dict, not something that an object calls alike."""
    is_read = node.attr == "_metadata" and isinstance(node.ctx, ast.Load)
    return is_read and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))


def _instead(facts: ModuleFacts, statement: ast.stmt, lines: Sequence[str]) -> Edit:
    """What stands in the place of a statement that sets a type."""
    span = facts.source.span(statement)
    if facts.source.has_comment(span):
        raise NotUnderstood("a comment is inside the call: move the comment")
    indent = facts.indentation(statement)
    return Replace(span, f"\n{indent}".join(lines)) if lines else RemoveStatement(span)


def unwrap(facts: ModuleFacts, block: ast.With, lines: Sequence[str], entering: ast.stmt | None = None) -> Unwrap:
    """The statements of a block in the place of its `with`, behind `lines` and the comments of its header.

    The statement `entering` goes, which enters a context on the stack that the `with` makes.

    Raises:
        NotUnderstood: lines are shared with other code.
    """
    source, statement = facts.source, facts.source.span(block)
    indent, old = facts.indentation(block), facts.indentation(block.body[0])
    is_first = entering is block.body[0]
    body = block_span(facts, block.body[is_first:])
    if body is None:  # on the line of the `with`
        body, old = Span(source.span(block.body[0]).start, line_end(facts, statement.end)), indent
        if facts.statement(block.body[-1]).lineno != facts.statement(block.body[0]).lineno:
            raise NotUnderstood("the statements of the block share a line: put each on its own line")
    elif len(old) > len(indent):
        body = with_comments_below(facts, body, old)
    if text_before(facts, statement.start) != indent:
        raise NotUnderstood("the `with` shares its line with other code: put it on its own line")
    whole = Span(statement.start, max(line_end(facts, statement.end), body.end))
    header = Span(whole.start, body.start)
    comments = [text for span, text in source.comments if header.contains(span)]
    inner = () if entering is None or is_first else (removal(facts, entering),)
    return Unwrap(whole, body, old, indent, inner, (*comments, *lines))


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
    if text_before(facts, start) != indent or facts.source.data.startswith(b"elif", start):
        raise NotUnderstood(f"no line can be added before line {statement.lineno}")
    return [Replace(Span(start, start), "".join(f"{line}\n{indent}" for line in lines))]


def removed_uses(
    facts: ModuleFacts, calls: Sequence[Anew], leaving: Sequence[ast.expr] = (), stays: ast.expr | None = None
) -> tuple[RemovedUse, ...]:
    """The uses of names that go: in expressions that go as a whole, but for the model, and of FSDP in calls."""
    gone = [*leaving]
    gone += [call.old.call.func for call in calls if call.old.optimizer is not None]
    for reading in (call.old.reading for call in calls if call.old.reading is not None):
        gone += [reading.call.func, reading.dropped]
    names = [node for one in gone for node in ast.walk(one) if isinstance(node, ast.Name)]
    model = set() if stays is None else set(ast.walk(stays))
    found = [one for node in names if node not in model for one in removed_names(facts, node)]
    return tuple(dict.fromkeys(found))


def removed_names(facts: ModuleFacts, node: ast.Name) -> tuple[RemovedUse, ...]:
    """The release of an imported name, or of that of a config."""
    return (*removed_use(facts, node), *_config(facts, node))


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
