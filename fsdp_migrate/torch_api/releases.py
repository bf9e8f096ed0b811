"""The releases of torch that the data knows."""

from __future__ import annotations

from packaging.version import Version

# The releases that stand for their minors where people are told since when something holds.
RELEASES: tuple[Version, ...] = tuple(
    Version(release)
    for release in (
        "1.11.0 1.12.1 1.13.1 2.0.0 2.0.1 2.1.2 2.2.2 2.3.1 2.4.1 2.5.1 2.6.0 2.7.1 2.8.0 2.9.1 2.10.0 2.11.0 "
        "2.12.0 2.12.1 2.13.0 2.14.0 2.14.1 2.15.0"
    ).split()
)

# Further releases of these minors. They count where a project says which releases it runs on, and where code asks which
# release it runs on; the API data was read from all of them.
_FURTHER = "1.12.0 1.13.0 2.1.0 2.1.1 2.2.0 2.2.1 2.3.0 2.4.0 2.5.0 2.7.0 2.9.0"
PUBLISHED: tuple[Version, ...] = tuple(sorted({*RELEASES, *map(Version, _FURTHER.split())}))
