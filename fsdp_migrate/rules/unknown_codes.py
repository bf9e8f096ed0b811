"""Codes in suppressing comments that no rule has: what they were to silence cannot be known."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.findings import Applicability, Finding
from fsdp_migrate.rules.index import ENTRIES
from fsdp_migrate.spelling import closest_rule
from fsdp_migrate.suppressions import Directive, Suppressions

_RULES = {entry.code: entry.name for entry in ENTRIES}
_PREFIX = "FSDP"
_KNOWN = frozenset(
    [*_RULES.values(), *(code[:length] for code in _RULES for length in range(len(_PREFIX), len(code) + 1))]
)


def is_ours(word: str, directive: Directive) -> bool:
    """Whether a code is one of this tool's, rather than another's that a `noqa` names too."""
    return directive.own or word.upper().startswith(_PREFIX)


def unknown(directive: Directive) -> tuple[str, ...]:
    """The codes in a comment that are to be this tool's, and that no rule has."""
    words = (word for word in directive.codes or () if is_ours(word, directive))
    return tuple(word for word in words if word.lower() not in _KNOWN and word.upper() not in _KNOWN)


def in_words(codes: tuple[str, ...]) -> str:
    """That no rule has these codes, with the ones that may be meant."""
    return f"no rule is called {' or '.join(code + closest_rule(code, _RULES) for code in codes)}"


def without_doubtful_fix(finding: Finding, suppressions: Suppressions) -> Finding:
    """The finding, without its fix where a comment with an unknown code may be there to silence it."""
    if finding.fix is None:
        return finding
    codes = next(_unknown_at(finding, suppressions), None)
    if codes is None:
        return finding
    reason = f"a comment here may be meant to silence this finding, but {in_words(codes)}"
    return finding._replace(applicability=Applicability.MANUAL, reason=reason, fix=None)


def _unknown_at(finding: Finding, suppressions: Suppressions) -> Iterator[tuple[str, ...]]:
    return (codes for directive in suppressions.at(finding) if (codes := unknown(directive)))
