"""Rewriting: findings with fixes become a new text, and nothing else in the text changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from fsdp_migrate.config import Settings
from fsdp_migrate.findings import Finding
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.rewrite.engine import RewriteResult, rewrite
from fsdp_migrate.source import SourceError, declared_encoding
from fsdp_migrate.torch_api import DEFAULT_RANGE, TorchRange

__all__ = ["RewriteResult", "Rewritten", "rewrite_bytes", "rewrite_source"]

Text = TypeVar("Text", str, bytes)


@dataclass(frozen=True)
class Rewritten(Generic[Text]):
    """A rewritten source text, of the type that was given, with the findings that are gone and those that are left.

    With an `error` (the text cannot be decoded, say) the source is the one that was given.
    """

    source: Text
    fixed: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    suppressed: int = 0
    error: str | None = None


def rewrite_bytes(raw: bytes, path: str, settings: Settings) -> RewriteResult:
    """Rewrite one file's bytes; `path` is what the findings name."""
    return rewrite(raw, path, settings, lint_bytes)


def rewrite_source(
    source: Text, path: str = "<string>", torch: str | TorchRange | None = None, unsafe_fixes: bool = False
) -> Rewritten[Text]:
    """Rewrite a source text, `str` or `bytes`, for the torch releases in `torch` (such as ``">=2.1"``).

    Raises:
        RangeError: `torch` is not a range of known releases.
    """
    supported = torch if isinstance(torch, TorchRange) else TorchRange.parse(torch or DEFAULT_RANGE)
    settings = Settings(supported, unsafe_fixes=unsafe_fixes)
    if isinstance(source, bytes):
        result = rewrite_bytes(source, path, settings)
        return Rewritten(result.raw, result.fixed, result.left, result.suppressed, result.error)
    try:
        encoding = declared_encoding(source)
        result = rewrite_bytes(source.encode(encoding), path, settings)
    except (SourceError, UnicodeEncodeError) as error:
        return Rewritten(source, error=f"the text does not fit the encoding that it declares: {error}")
    return Rewritten(result.raw.decode(encoding), result.fixed, result.left, result.suppressed, result.error)
