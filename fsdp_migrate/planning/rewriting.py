"""Rewrites one file: the fixes of its findings change the text, and nothing else does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.lint import FileCheck
from fsdp_migrate.planning.drafts import Draft
from fsdp_migrate.planning.parts import RewriteResult
from fsdp_migrate.planning.passes import rewrite
from fsdp_migrate.source import Source, SourceError, declared_encoding
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
from fsdp_migrate.workspace.settings.settings import default_range

if TYPE_CHECKING:
    from fsdp_migrate.facts import ProjectModules
    from fsdp_migrate.planning.choosing import Chooser
    from fsdp_migrate.trace.seen import Seen

Text = TypeVar("Text", str, bytes)


@dataclass(frozen=True)
class Rewritten(Generic[Text]):
    """A rewritten source of the type that was given, with the findings that are fixed and left.

    With an `error`, such as a text that cannot be decoded, the source is the one that was given.
    """

    source: Text
    fixed: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    suppressed: int = 0
    error: str | None = None


def rewrite_bytes(
    raw: bytes,
    path: str,
    settings: Settings,
    project: ProjectModules | None = None,
    progress: Draft | None = None,
    chooser: Chooser | None = None,
    *,
    chosen: bool = False,
    seen: Seen | None = None,
) -> RewriteResult:
    """Rewrite one file's bytes; `path` is what the findings name, `project` knows the rest of the project.

    Bytes that were `chosen` are known to be worth it. Of the fixes that could be made a `chooser` takes some. `seen` is
    what a run of the program showed of these bytes.
    """

    def check(data: bytes, source: Source | None) -> FileCheck:
        is_first = data is raw
        shown = seen if is_first else None
        return FileCheck(data, path, settings, project, source, chosen=chosen and is_first, seen=shown)

    return rewrite(raw, path, settings, check, progress, chooser)


def rewrite_source(
    source: Text,
    path: str = "<string>",
    torch: str | TorchRange | None = None,
    unsafe_fixes: bool = False,
    hints: bool = False,
    target: str | None = None,
) -> Rewritten[Text]:
    """Rewrite a source text, `str` or `bytes`, for the torch releases in `torch` (such as ``">=2.1"``).

    Hints are fixed, and are among what is left, only with `hints`. `target` is what to move to beyond a newer torch.

    Raises:
        RangeError: `torch` is not a range of known releases.
    """
    supported = (
        torch if isinstance(torch, TorchRange) else (TorchRange.parse(torch) if torch else default_range(target))
    )
    settings = Settings(supported, hints=hints, unsafe_fixes=unsafe_fixes, target=target)
    if isinstance(source, bytes):
        result = rewrite_bytes(source, path, settings)
        return _rewritten(result.raw, result, hints)
    try:
        encoding = declared_encoding(source)
        result = rewrite_bytes(source.encode(encoding), path, settings)
    except (SourceError, UnicodeError) as error:
        return Rewritten(source, error=f"the text does not fit the encoding that it declares: {error}")
    return _rewritten(result.raw.decode(encoding), result, hints)


def _rewritten(source: Text, result: RewriteResult, hints: bool) -> Rewritten[Text]:
    left = tuple(finding for finding in result.left if hints or finding.severity is not Severity.HINT)
    return Rewritten(source, result.fixed, left, result.suppressed, result.error)
