"""Releases in words, for messages."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version

from fsdp_migrate.torch_api import PUBLISHED


def minor(release: Version) -> str:
    """A release by its minor: `2.1` for 2.1.2."""
    return f"{release.major}.{release.minor}"


def since(release: Version) -> str:
    """The first of some releases as people call it: `2.1` for 2.1.0, which opens the minor, but `2.1.2`."""
    return minor(release) if release == min(_of_minor(release)) else str(release)


def _of_minor(release: Version) -> list[Version]:
    return [known for known in PUBLISHED if known.release[:2] == release.release[:2]] or [release]


def span_of(releases: Sequence[Version]) -> str:
    """Some releases in words, all between the first and the last counted: `2.1 to 2.5`."""
    first, last = min(releases), max(releases)
    if first == last:
        return str(first) if len(_of_minor(first)) > 1 else minor(first)
    start, ends_minor = since(first), last == max(_of_minor(last))
    opens_minor = start == minor(first) or first.release[:2] != last.release[:2]
    end = minor(last) if ends_minor and opens_minor else str(last)
    return start if start == end else f"{start} to {end}"
