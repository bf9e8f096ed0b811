"""What each torch release offers, and the range of releases a project supports."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from fsdp_migrate.records import NamedTuple

if TYPE_CHECKING:
    from packaging.version import Version

    from fsdp_migrate.torch_api.releases import PUBLISHED, RELEASES

__all__ = ["DEFAULT_RANGE", "PUBLISHED", "RELEASES", "RangeError", "Statement", "TorchRange"]

DEFAULT_RANGE = ">=2.1"


class RangeError(ValueError):
    """A torch range that cannot be used; the message is one line for the user."""


class Statement(NamedTuple):
    """Where a project states which releases it supports: the file as messages show it, the line, and what stands there.

    `line` is None where the file does not have it on one line.
    """

    file: str
    line: int | None
    text: str

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'} states {self.text}"


class TorchRange:
    """The torch releases that the code under analysis has to run on.

    Build one with `TorchRange.parse`; `text` is what the user wrote. It is `assumed` where nobody wrote anything and no
    project file says which releases are supported: then nothing speaks for the older ones. `stated` is where a project
    says it.
    """

    def __init__(self, text: str, *, assumed: bool = False, stated: Statement | None = None) -> None:
        self.text = text
        self.assumed = assumed
        self.stated = stated

    def stated_at(self, place: Statement) -> TorchRange:
        """The same range, and where a project says it."""
        return TorchRange(self.text, assumed=self.assumed, stated=place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchRange) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"TorchRange({self.text!r})"

    @classmethod
    def default(cls) -> TorchRange:
        """The range where nobody says which releases are supported."""
        return cls(DEFAULT_RANGE, assumed=True)

    @classmethod
    def parse(cls, text: str) -> TorchRange:
        """Read a version specifier such as ``>=2.1,<2.16``; a bare version means that release and newer.

        Raises:
            RangeError: not a specifier, or no known release lies in it.
        """
        text = text.strip()
        result = cls(f">={text}" if text[:1].isdigit() else text)
        try:
            known = result.releases
        except ValueError:
            raise RangeError(f"not a torch version range: {text!r}; write it like '>=2.1' or '>=2.1,<2.16'") from None
        if not text or not known:
            from fsdp_migrate.torch_api.releases import RELEASES

            span = f"{RELEASES[0]} to {RELEASES[-1]}"
            raise RangeError(f"no known torch release ({span}) is in {text!r}; write it like '>=2.1'")
        return result

    @cached_property
    def releases(self) -> tuple[Version, ...]:
        """The known releases inside the range, oldest first."""
        from packaging.version import Version

        from fsdp_migrate.torch_api.releases import PUBLISHED

        bound = self.text.removeprefix(">=")
        if bound != self.text and bound.replace(".", "").isdigit():  # as most are, and specifiers take long to load
            return tuple(release for release in PUBLISHED if release >= Version(bound))
        from packaging.specifiers import SpecifierSet

        specifier = SpecifierSet(self.text)
        return tuple(release for release in PUBLISHED if specifier.contains(release))

    @property
    def oldest(self) -> Version:
        """The oldest known release inside the range."""
        return self.releases[0]

    @property
    def newest(self) -> Version:
        """The newest known release inside the range."""
        return self.releases[-1]

    def newest_only(self, hints: bool) -> bool:
        """Whether only the newest release is in question: what older ones lack is a hint where nobody states them."""
        return self.assumed and not hints

    def __str__(self) -> str:
        return self.text


def __getattr__(name: str) -> Any:
    # A range is in the settings of every run; what compares versions is needed only where something is looked at.
    if name in ("PUBLISHED", "RELEASES"):
        from fsdp_migrate.torch_api import releases

        return getattr(releases, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
