"""Short ways to write the plan of a rewrite in a test."""

from __future__ import annotations

from collections.abc import Sequence

from fsdp_migrate.edits import Argument, Context, Edit, EditImport, Hoist, RemovedUse, Replace, RewriteCall, Wrap
from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.rewrite.materialise import replacements
from fsdp_migrate.source import Source, Span
from fsdp_migrate.splicing import splice

FULL = Context("FSDP.state_dict_type", ("model", "StateDictType.FULL_STATE_DICT"))
SHARDED = Context("FSDP.state_dict_type", ("model", "StateDictType.SHARDED_STATE_DICT"))
WIDE = Context(
    "FSDP.state_dict_type",
    (
        "model",
        "StateDictType.FULL_STATE_DICT",
        "optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)",
    ),
)


def span(source: Source, text: str, occurrence: int = 1) -> Span:
    """Where `text` stands in the source."""
    wanted, end = text.encode(), 0
    for _ in range(occurrence):
        start = source.data.index(wanted, end)
        end = start + len(wanted)
    return Span(start, end)


def apply(source: Source, edits: Sequence[Edit]) -> bytes:
    """The text after `edits`, as UTF-8."""
    return splice(source.data, replacements(source, edits))


def arguments(*plan: int | str | tuple[str, int]) -> tuple[Argument, ...]:
    """`0` is the first old argument, `("model", 0)` the same as a keyword, `"optim=optim"` a new one."""
    made = []
    for item in plan:
        if isinstance(item, int):
            made.append(Argument(None, item))
        elif isinstance(item, tuple):
            made.append(Argument(*item))
        else:
            keyword, equal, text = item.rpartition("=")
            made.append(Argument(keyword if equal else None, text=text))
    return tuple(made)


def renamed(source: Source, call: str, occurrence: int = 1, attribute: str = "new", keep: int = 2) -> RewriteCall:
    """The call under another name with its first `keep` arguments."""
    return RewriteCall(span(source, call, occurrence), attribute, arguments(*range(keep)))


def wrap(
    source: Source,
    statement: str,
    call: str | None,
    *,
    header: Context = FULL,
    indent: str = "",
    unit: str = "    ",
    occurrence: int = 1,
) -> Wrap:
    """Put a statement under `header` and rename the call in it."""
    place = span(source, statement, occurrence)
    inner: tuple[RewriteCall, ...] = ()
    if call is not None:
        start = place.start + statement.encode().index(call.encode())
        inner = (RewriteCall(Span(start, start + len(call.encode())), "new", arguments(0, 1)),)
    return Wrap(place, header, indent, unit, inner)


def hoist(
    source: Source,
    statement: str,
    call: str,
    name: str = "state",
    *,
    header: Context = FULL,
    indent: str = "",
    unit: str = "    ",
) -> Hoist:
    """Evaluate `call` in front of the statement that starts like `statement`."""
    return Hoist(span(source, statement).start, header, indent, unit, name, renamed(source, call))


def add(source: Source, statement: str, *names: str, unit: str = "    ") -> EditImport:
    """Add names to an import statement."""
    return EditImport(span(source, statement), add=names, unit=unit)


def remove(source: Source, statement: str, *names: str) -> EditImport:
    """Take names from an import statement."""
    return EditImport(span(source, statement), remove=names)


def replace(source: Source, old: str, new: str) -> Replace:
    """Put `new` in the place of `old`."""
    return Replace(span(source, old), new)


def finding(
    source: Source,
    place: Span,
    *edits: Edit,
    code: str = "FSDP101",
    applicability: Applicability = Applicability.SAFE,
    removed_uses: tuple[RemovedUse, ...] = (),
) -> Finding:
    """A finding at `place` that these edits fix."""
    start, end = source.position(place.start), source.position(place.end)
    return Finding(
        code=code,
        name="a-rule",
        message="a message",
        severity=Severity.BREAKS,
        applicability=applicability,
        reason=None if applicability is Applicability.SAFE else "a reason",
        path="x.py",
        span=place,
        statement=place,
        line=start.line,
        column=start.column,
        end_line=end.line,
        end_column=end.column,
        fix=Fix(edits, removed_uses) if edits else None,
    )
