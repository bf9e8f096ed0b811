"""The settings of one file: the torch range, the rules in force, and which fixes are applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fsdp_migrate.findings import UNPARSABLE, Applicability, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.torch_api import TorchRange

if TYPE_CHECKING:
    from pathlib import Path

_EVERY = "FSDP"
# The targets, each with the torch range that it is for where nobody states one.
TARGETS = {"dcp": ">=2.4", "fsdp2": ">=2.6"}
# The targets that `rewrite` takes from the command line only, since they convert whole programs.
ASKED_FOR_ONLY = ("fsdp2",)
# What `fsdp2-helper` and `checkpoints` may say; the first is what holds where nobody says anything.
HELPERS = ("auto", "always", "never")
CHECKPOINTS = ("keep", "new")


class ConfigError(ValueError):
    """A setting that cannot be used. The message is one line for the user."""


class ConfigFileError(ConfigError):
    """A setting in a file that cannot be used; `path` is the shown path of the file."""

    def __init__(self, path: str, message: str) -> None:
        """The message is one line, without the file."""
        super().__init__(message)
        self.path = path


class Project(NamedTuple):
    """Files of a run that support the same torch range, and where the range comes from.

    `root` is their folder and `source` where the range comes from, both as shown to the user. `note` tells the user if
    the project supports more than the range. `warnings` name files that could not be understood.
    """

    root: str
    torch: TorchRange
    source: str
    note: str | None = None
    warnings: tuple[str, ...] = ()


class Layer(NamedTuple):
    """What one place states, the command line or a configuration file: None for everything else.

    The fields are the settings in `fsdp_migrate.workspace.settings.table`, which explains them. Patterns are as they
    were written; `baseline` is an absolute path.
    """

    torch: TorchRange | None = None
    target: str | None = None
    fsdp2_helper: str | None = None
    checkpoints: str | None = None
    all_parameters_used: bool | None = None
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    fixes: tuple[tuple[str, Applicability], ...] | None = None
    unsafe_fixes: bool | None = None
    hints: bool | None = None
    fail_on: Severity | None = None
    include: tuple[str, ...] | None = None
    scripts: bool | None = None
    exclude: tuple[str, ...] | None = None
    baseline: Path | None = None


class Settings(NamedTuple):
    """Everything besides its bytes that decides what is reported for a file, and what follows from it.

    `select`, `ignore` and `ignored_here` are code prefixes such as ``FSDP1`` or ``FSDP104`` (`selectors` makes them of
    what a user wrote); an empty `select` means all rules. `ignored_here` is for this file alone and always wins.
    `grades` say how far the fixes of some rules may be trusted, whatever the rules say themselves. `fail_on` is the
    least severe finding that makes the run fail; those that `baseline` lists do not. `target` is what code moves to
    beyond a newer torch; the three after it say how the target `fsdp2` does that (`table.py` has their meaning).
    """

    torch: TorchRange
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    hints: bool = False
    unsafe_fixes: bool = False
    ignored_here: tuple[str, ...] = ()
    grades: tuple[tuple[str, Applicability], ...] = ()
    fail_on: Severity = Severity.DEPRECATED
    baseline: Path | None = None
    target: str | None = None
    fsdp2_helper: str = HELPERS[0]
    checkpoints: str = CHECKPOINTS[0]
    all_parameters_used: bool = False

    @property
    def seeks_hints(self) -> bool:
        """Whether hints are looked for: if they are shown, or if a baseline may know some."""
        return self.hints or self.baseline is not None

    def selected(self, code: str) -> bool:
        """Whether the rule `code` is in force: the longest prefix that matches decides, `ignore` on a tie.

        A file that does not parse is always reported: it was not checked, so it must not pass as clean.
        """
        if code == UNPARSABLE:
            return True
        if code.startswith(self.ignored_here):
            return False
        if not self.select and not self.ignore:
            return True
        chosen = max((len(prefix) for prefix in self.select if code.startswith(prefix)), default=-1)
        ignored = max((len(prefix) for prefix in self.ignore if code.startswith(prefix)), default=-1)
        return (chosen if self.select else 0) > ignored

    def grade(self, code: str) -> Applicability | None:
        """The grade of the fixes of the rule `code`, None if the settings leave it to the rule."""
        fitting = [(len(prefix), grade) for prefix, grade in self.grades if code.startswith(prefix)]
        return max(fitting, key=lambda pair: pair[0])[1] if fitting else None

    def asked_for(self, code: str) -> bool:
        """Whether `select` names the rule `code` or its family, and not just all rules."""
        return any(len(prefix) > len(_EVERY) and code.startswith(prefix) for prefix in self.select)


def default_range(target: str | None) -> TorchRange:
    """The torch range if none is stated."""
    return TorchRange.default() if target is None else TorchRange(TARGETS[target], assumed=True)


def selectors(values: Iterable[str], rules: Mapping[str, str]) -> tuple[str, ...]:
    """The code prefixes for values of ``--select`` or ``--ignore``.

    Every value may contain several selectors separated by commas: codes, prefixes of codes, or names of rules. `rules`
    maps codes to names.

    Raises:
        ConfigError: a selector fits no rule.
    """
    found: list[str] = []
    for selector in (part.strip() for value in values for part in value.split(",")):
        if selector:
            prefix = code_prefix(selector, rules)
            if prefix not in found:
                found.append(prefix)
    return tuple(found)


def code_prefix(selector: str, rules: Mapping[str, str]) -> str:
    """The code, or prefix of codes, that a selector means.

    Raises:
        ConfigError: it fits no rule.
    """
    by_name = {name: code for code, name in rules.items()}
    if selector.lower() in by_name:
        return by_name[selector.lower()]
    prefix = selector.upper()
    if prefix and any(code.startswith(prefix) for code in rules):
        return prefix
    from fsdp_migrate.spelling import closest_rule  # only for messages

    hint = closest_rule(selector, rules)
    raise ConfigError(f"no rule is called {selector!r}{hint}; `fsdp-migrate rules` lists them")
