"""The plan of a rewrite: which bytes become what, decided from the syntax tree alone.

Nothing here needs LibCST. `fsdp_migrate.rewrite` turns a plan into text; until then lint, the reports and the
overlap check see the same spans that rewriting will touch.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Span


class Replace(NamedTuple):
    """Put `text` where `span` is (an empty span inserts); a bare line feed in it becomes the newline of that line."""

    span: Span
    text: str


class Argument(NamedTuple):
    """One argument of a rewritten call: the expression at `index` among the old ones, or new `text`.

    Old arguments are numbered as they stand in the source, positional and keyword alike.
    """

    keyword: str | None
    index: int | None = None  # type: ignore[assignment]  # not the method of tuples
    text: str | None = None


class RewriteCall(NamedTuple):
    """Give the call at `span` another attribute name and other arguments, in the given order.

    `attribute` replaces the last name of the callee (`FSDP.old(...)` becomes `FSDP.attribute(...)`); None keeps it.
    `callee`, where there is one, replaces the whole callee, which has no comment inside.
    Comments inside the call stay with the argument they follow; a plan never drops an argument that has one.
    """

    span: Span
    attribute: str | None
    arguments: tuple[Argument, ...]
    callee: str | None = None


class Context(NamedTuple):
    """The context manager of a `with`, as text: `callee(arguments...)`."""

    callee: str
    arguments: tuple[str, ...]


class Wrap(NamedTuple):
    """Put the statement at `span` into `with header:`; `inner` edits lie within it.

    Neighbours with the same header, nothing but blank lines and comments between them, share one `with`.
    `span` runs from the statement's first byte (after its indentation) to its last, without a trailing comment.
    `indent` is the whitespace in front of the statement, `unit` one level of this file's indentation; `prologue` are
    statements of one line that go in front of the `with`.
    """

    span: Span
    header: Context
    indent: str
    unit: str
    inner: tuple[Replace | RewriteCall, ...]
    prologue: tuple[str, ...] = ()


class Unwrap(NamedTuple):
    """Put the statements at `block` in the place of the compound statement at `span` that they are a block of.

    Both spans start behind their first line's indentation, `old` for the block and `new` for the statement. `inner`
    edits lie within the block; `prologue` are statements or comments of one line that go in front.
    """

    span: Span
    block: Span
    old: str
    new: str
    inner: tuple[Replace | RewriteCall, ...] = ()
    prologue: tuple[str, ...] = ()


class RemoveStatement(NamedTuple):
    """Take the statement at `span` away, with its lines where nothing else stands on them.

    Its comments stay. Those of a function go: they are its `comments` then, None for a simple statement.
    """

    span: Span
    comments: tuple[str, ...] | None = None


class Hoist(NamedTuple):
    """Evaluate the call at `call.span` before the statement that starts at `at`, and use its value through `name`.

    Emits `with header:` and the assignment in front of the statement; a second hoist to the same place with the
    same header shares the `with`. The call's own place is taken by `name`. `prologue` as for `Wrap`.
    """

    at: int
    header: Context
    indent: str
    unit: str
    name: str
    call: RewriteCall
    prologue: tuple[str, ...] = ()


class EditImport(NamedTuple):
    """Change the names that the import at `span` brings in.

    `add` are names as they are written (`StateDictType`, `StateDictType as FSDPStateDictType`), and are for
    `from ... import` only; `remove` are bound names (what the alias binds). `unit` is one level of this file's
    indentation. `instead` are bound names with those of `add` that take their places and their comments. `comments` are
    those that go with the names that they follow. Edits of one statement from several findings are united.
    """

    span: Span
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    unit: str = "    "
    instead: tuple[tuple[str, str], ...] = ()
    comments: tuple[str, ...] = ()


class EditComment(NamedTuple):
    """Put `text` where `span` is, which holds the comment `old` and nothing else but blank space.

    `text` is a comment too, or empty: but for `EditImport` and `RemoveStatement` this is the only edit
    that may take a comment away.
    """

    span: Span
    old: str
    text: str


class ImportBehind(NamedTuple):
    """Import the names `add` from `module` in a statement of its own, behind the import at `span`, or `ahead` of it.

    That import stands alone on its lines. Edits of one statement and module are united. In a file without imports
    `span` is its docstring or `__future__`, or empty where the first statement starts.
    """

    span: Span
    module: str
    add: tuple[str, ...]
    indent: str
    unit: str = "    "
    ahead: bool = False


class MoveImport(NamedTuple):
    """Import the bound name `name` of the import at `span` from `module` instead, with its comments.

    `text` is how the new import writes the name, where that differs. `fallback` is a module that has the name where
    `module` does not: the new import runs if `test` is true, without a test in a `try`, and `then` are statements
    behind it. `before` are statements in front of all. The statements are of one line each. Without a module it is a
    plain `import`. Edits of one statement from several findings are united: a statement whose names all move to one
    module keeps its layout; else it shares its lines with no other code.
    """

    span: Span
    name: str
    module: str
    indent: str
    unit: str = "    "
    before: tuple[str, ...] = ()
    text: str | None = None
    fallback: str | None = None
    test: str | None = None
    then: tuple[str, ...] = ()


class ImportBinding(NamedTuple):
    """A name that the import at `statement` binds, and every place that uses it.

    `removable` is False for a name that must stay even if nothing uses it (re-exported, in `__all__`, guarded). An
    assignment of something without effect is such a binding too; `then` are the uses of other names that go with it.
    """

    statement: Span
    name: str
    uses: tuple[Span, ...]
    removable: bool
    then: tuple[RemovedUse, ...] | None = None

    def __hash__(self) -> int:
        return hash((self.statement, self.name, self.removable))  # uses are many, and these tell enough


class RemovedUse(NamedTuple):
    """The use of an imported name, at `span`, that a fix takes away; the import goes with the last of them."""

    span: Span
    binding: ImportBinding


Edit = (
    Replace
    | RewriteCall
    | Wrap
    | Unwrap
    | RemoveStatement
    | Hoist
    | EditImport
    | ImportBehind
    | MoveImport
    | EditComment
)


def touched(edit: Edit) -> tuple[Span, ...]:
    """The spans of the original that `edit` claims for itself."""
    if isinstance(edit, Hoist):
        return (Span(edit.at, edit.at), edit.call.span)
    return (edit.span,)


def texts_of(edit: Edit) -> Iterator[str]:
    """The code that an edit writes, imports and comments apart."""
    if isinstance(edit, Replace):
        yield edit.text
    elif isinstance(edit, RewriteCall):
        yield from (argument.text for argument in edit.arguments if argument.text is not None)
        yield edit.callee or ""
    elif isinstance(edit, (Wrap, Unwrap, Hoist)):
        yield from (line for line in edit.prologue if not line.startswith("#"))
        if not isinstance(edit, Unwrap):
            yield from (edit.header.callee, *edit.header.arguments)
        yield from (text for one in _inner(edit) for text in texts_of(one))


def _inner(edit: Wrap | Unwrap | Hoist) -> tuple[Replace | RewriteCall, ...]:
    return (edit.call,) if isinstance(edit, Hoist) else edit.inner
