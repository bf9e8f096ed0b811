"""The edits that write the calls under one type anew."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Sequence

from fsdp_migrate.code.import_texts import fresh_name
from fsdp_migrate.code.outdent import block_span
from fsdp_migrate.code.state_dicts.calls import StateCall
from fsdp_migrate.code.state_dicts.mapping import FULL_OPTION, LOAD_OPTIMIZER, OPTIONS, SAVE_MODEL, SAVE_OPTIMIZER, Row
from fsdp_migrate.code.state_dicts.settings import NotUnderstood
from fsdp_migrate.code.state_dicts.sharded_loads import LOAD, ShardedLoad
from fsdp_migrate.edits import Argument, Replace, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import ordered_arguments
from fsdp_migrate.facts.evaluation import is_reading, pure
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Replacement, Span
from fsdp_migrate.splicing import splice

_WIDTH = 88
_STATE = "optim_state_dict"


class Anew(NamedTuple):
    """A call with its row."""

    old: StateCall
    row: Row


class Written(NamedTuple):
    """The edits of some calls, and assignments that have to stand in front of them."""

    edits: tuple[Replace | RewriteCall, ...]
    lines: tuple[str, ...]


def written(
    facts: ModuleFacts,
    calls: Sequence[Anew],
    spelling: dict[str, str],
    indent: str,
    given: set[str],
    full_loads: Callable[[ModuleFacts], str] | None = None,
    behind: ast.stmt | None = None,
) -> Written:
    """The edits for `calls`, whose statements will be indented by `indent`; `given` are local names that are taken.

    `full_loads` gives the name of a function that the optimizer state of a full load goes through. Options for a call
    in `behind` are among the lines, whatever comment stands above it.

    Raises:
        NotUnderstood: a comment stands where an edit would lose it.
    """
    writer = _Writer(facts, spelling, indent, full_loads)
    options = writer.locals(calls, given)
    writer.inner = {
        facts.source.span(call.old.call): writer.text(call, writer.named(call, options))
        for call in calls
        if any(other is not call and writer.holds(other, call) for other in calls)
    }
    outer = [call for call in calls if facts.source.span(call.old.call) not in writer.inner]
    edits = [edit for call in outer for edit in writer.edits(call, options)]
    lines = []
    in_front: dict[_Place, list[str]] = {}
    for text, name in options.items():
        users = [call for call in calls if writer.options(call) == text]
        alone = len(users) == 1 and facts.statement(users[0].old.call) is not behind
        place = writer.place_for(users[0]) if alone else None
        if place is None:
            lines.append(f"{name} = {text}")
        else:
            in_front.setdefault(place, []).append(f"{name} = {text}\n{place.indent}")
    edits += [Replace(Span(place.start, place.start), "".join(texts)) for place, texts in in_front.items()]
    return Written(tuple(edits), tuple(lines))


class _Place(NamedTuple):
    """Where a statement starts, and the whitespace in front of it."""

    start: int
    indent: str


class _Writer:
    def __init__(
        self, facts: ModuleFacts, spelling: dict[str, str], indent: str, full_loads: Callable[[ModuleFacts], str] | None
    ) -> None:
        self.facts, self.spelling, self.indent = facts, spelling, indent
        self.full_loads = full_loads
        self.inner: dict[Span, str] = {}  # the new texts of calls that are arguments of others

    def holds(self, one: Anew, other: Anew) -> bool:
        """Whether a call has another one among its arguments."""
        span = self.facts.source.span
        return span(one.old.load or one.old.call).contains(span(other.old.call))

    def named(self, call: Anew, options: dict[str, str]) -> str | None:
        """The options of a call, by their name if they have one."""
        text = self.options(call)
        return None if text is None else options.get(text, text)

    def place_for(self, call: Anew) -> _Place | None:
        """Where options stand that only one call takes: in front of its statement."""
        statement = self.facts.statement(call.old.call)
        block, start = block_span(self.facts, [statement]), self.facts.source.span(statement).start
        if block is None or isinstance(statement, ast.While) or self.facts.source.data.startswith(b"elif", start):
            return None
        return _Place(block.start, self.facts.indentation(statement))

    def locals(self, calls: Sequence[Anew], given: set[str]) -> dict[str, str]:
        """Names for the options that several calls share, or that make a line too long."""
        texts = Counter(text for call in calls if (text := self.options(call)) is not None)
        chosen: dict[str, str] = {}
        for call in calls:
            text = self.options(call)
            if text is None or text in chosen or not self._is_settled(call.old.strict):
                continue
            if texts[text] > 1 or self._is_long(call, text):
                scope = self.facts.scope(call.old.call)
                stem = (
                    "options" if len(texts) == 1 else f"{'model' if 'model' in call.old.function else 'optim'}_options"
                )
                chosen[text] = fresh_name(scope, stem, given)
                given.add(chosen[text])
        return chosen

    def _is_settled(self, strict: ast.expr | None) -> bool:
        """Whether what `strict` comes to is the same in front of the statement."""
        return strict is None or isinstance(strict, (ast.Constant, ast.Name))

    def _is_long(self, call: Anew, options: str) -> bool:
        source, start = self.facts.source, self.facts.source.span(call.old.call).start
        before = source.data[source.line_start(start) : start].decode().strip()
        return len(f"{self.indent}{before} {self.text(call, options)}") > _WIDTH

    def options(self, call: Anew) -> str | None:
        strict = call.old.strict
        fields = [*call.row.options, *([] if strict is None else [f"strict={self._source(strict)}"])]
        return f"{self.spelling[OPTIONS]}({', '.join(fields)})" if fields else None

    def text(self, call: Anew, options: str | None) -> str:
        """The whole of a new call."""
        old = call.old
        parts = [self._source(part) for part in (old.module, old.optimizer) if part is not None]
        if old.state is not None:
            state = self._source(old.state)
            if self.full_loads is not None and old.optimizer is not None and FULL_OPTION in call.row.options:
                state = f"{self.full_loads(self.facts)}({state})"
            parts.append(state if old.optimizer is None else f"{_STATE}={state}")
        parts += [] if options is None else [f"options={options}"]
        return f"{self.spelling[old.function]}({', '.join(parts)})"

    def _source(self, node: ast.expr) -> str:
        source, whole = self.facts.source, self.facts.source.span(node)
        inside = [(span, text) for span, text in self.inner.items() if whole.contains(span)]
        moved = [Replacement(Span(span.start - whole.start, span.end - whole.start), text) for span, text in inside]
        return splice(source.data[whole.start : whole.end], moved).decode() if moved else source.segment(node)

    def edits(self, call: Anew, named: dict[str, str]) -> list[Replace | RewriteCall]:
        options = self.named(call, named)
        if call.old.function == LOAD_OPTIMIZER:
            reading = call.old.reading
            return [*self._loading(call, options), *([] if reading is None else [self._filled(call.old, reading)])]
        self._check_comments(call.old.call)
        if call.old.function == SAVE_MODEL and not pure(call.old.module):
            self._check_evaluated_once(call.old.module)
        if any(self.facts.source.span(call.old.call).contains(span) for span in self.inner):
            return [Replace(self.facts.source.span(call.old.call), self.text(call, options))]
        return [self._rewritten(call.old, options)]

    def _check_evaluated_once(self, module: ast.expr) -> None:
        inner = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
        if not all(is_reading(node, self.facts.names) for node in inner):
            raise NotUnderstood(
                f"`{ast.unparse(module)}` would be evaluated once instead of twice: assign it to a variable first"
            )

    def _check_comments(self, node: ast.expr) -> None:
        if self.facts.source.has_comment(self.facts.source.span(node)):
            raise NotUnderstood(f"a comment is inside the call in line {node.lineno}: move the comment")

    def _rewritten(self, old: StateCall, options: str | None) -> RewriteCall:
        arguments = ordered_arguments(old.call)
        values = [one.value if isinstance(one, ast.keyword) else one for one in arguments]
        kept = [part for part in (old.module, old.optimizer, old.state) if part is not None]
        news = []
        for part in kept:
            index = next((number for number, value in enumerate(values) if value is part), None)
            news.append(Argument(None, text=self._source(part)) if index is None else Argument(None, index))
        news += [] if options is None else [Argument("options", text=options)]
        return RewriteCall(self.facts.source.span(old.call), None, tuple(news), callee=self.spelling[old.function])

    def _loading(self, call: Anew, options: str | None) -> list[Replace | RewriteCall]:
        """The conversion and `load_state_dict` become one call, in the place of the conversion."""
        facts, old = self.facts, call.old
        text = self.text(call, options)
        outer = old.call if old.load is None else old.load
        first = facts.statement(old.call)
        if old.load is None or facts.statement(old.load) is first:
            self._check_comments(outer)
            return [Replace(facts.source.span(outer), text)]
        assert isinstance(first, ast.Assign)
        assert isinstance(first.targets[0], ast.Name)
        self._check_comments(first.value)
        self._check_comments(outer)
        edits = [Replace(facts.source.span(first), text), removal(self.facts, facts.statement(outer))]
        return [*edits, *self._without_deletes(first.targets[0])]

    def _filled(self, old: StateCall, reading: ShardedLoad) -> Replace:
        """What a sharded load reads comes into a template by `load`, in the place of its statement."""
        self._check_comments(reading.call)
        parts = ", ".join(self._source(part) for part in (old.module, old.optimizer) if part is not None)
        arguments = [reading.name, f"storage_reader={self._source(reading.reader)}"]
        arguments += [] if reading.planner is None else [f"planner={self._source(reading.planner)}"]
        indent = self.facts.indentation(self.facts.statement(reading.call))
        template = f"{{{self._source(reading.key)}: {self.spelling[SAVE_OPTIMIZER]}({parts})}}"
        filling = f"{self.spelling[LOAD]}({', '.join(arguments)})"
        return Replace(self.facts.source.span(reading.call), f"{template}\n{indent}{filling}")

    def _without_deletes(self, target: ast.Name) -> list[Replace | RewriteCall]:
        """The name is not bound any more, so that no `del` may have it."""
        facts, edits = self.facts, list[Replace | RewriteCall]()
        home = facts.scope(target).lookup(target.id)
        if home is None or any(
            binding.node is not target and not _is_deleted(binding.node) for binding in home.bindings[target.id]
        ):
            return []
        for inner in facts.scope(target).nested():
            for use in [name for name in ast.walk(inner.node) if isinstance(name, ast.Name) and name.id == target.id]:
                statement = facts.structure.parents[use]
                if not isinstance(statement, ast.Delete):
                    continue
                left = [one for one in statement.targets if one is not use]
                if left:
                    text = f"del {', '.join(self._source(one) for one in left)}"
                    edits.append(Replace(facts.source.span(statement), text))
                else:
                    edits.append(removal(self.facts, statement))
        return list(dict.fromkeys(edits))


def removal(facts: ModuleFacts, statement: ast.stmt) -> Replace:
    """Take a statement away that does not stand first in its block, from the end of the line above it on.

    Raises:
        NotUnderstood: something else shares its line.
    """
    source, span = facts.source, facts.source.span(statement)
    start = source.line_start(span.start)
    above = source.data[:start].rstrip(b"\r\n")
    if source.data[start : span.start].strip(b" \t") or len(above) == start:
        raise NotUnderstood(
            f"`{ast.unparse(statement)}` shares line {statement.lineno} with other code: put it on its own line"
        )
    return Replace(Span(len(above), span.end), "")


def _is_deleted(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)
