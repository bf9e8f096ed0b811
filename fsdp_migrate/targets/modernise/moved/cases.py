"""What the table of moves means for a name at one place of a file and one range of releases."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from packaging.version import Version

from fsdp_migrate.code.import_texts import for_type_checking
from fsdp_migrate.code.torch_presence import having, lacking, presence
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.targets.modernise.moved.rows import Move
from fsdp_migrate.targets.modernise.moved.table import Moved, moved
from fsdp_migrate.torch_api import PUBLISHED
from fsdp_migrate.torch_api.data import Parameter, ParameterKind, deprecation, exists, signature
from fsdp_migrate.torch_api.words import minor, since, span_of


class Case(NamedTuple):
    """A moved name and the releases that run it, oldest first.

    `gone` are those that lack the old name and `early` those that lack the new one.
    """

    moved: Moved
    releases: tuple[Version, ...]
    gone: tuple[Version, ...]
    early: tuple[Version, ...]
    severity: Severity

    @property
    def move(self) -> Move:
        """The row."""
        return self.moved.move

    @property
    def guard(self) -> bool:
        """Whether neither name will do alone."""
        return bool(self.early) and len(self.gone) < len(self.releases)

    @property
    def nowhere(self) -> list[Version]:
        """The releases that have none of the places."""
        between = self.moved.meanwhile
        neither = [release for release in self.gone if release in self.early]
        return [release for release in neither if between is None or not exists(between, release)]

    @property
    def between(self) -> str | None:
        """The place that has it where neither of the others does, None where there is no need of one."""
        return self.moved.meanwhile if self.early and not self.guard and not self.nowhere else None

    @property
    def message(self) -> str:
        """What is wrong with the old name, and what to use."""
        old, new = self.moved.old, self.moved.new
        if not self.gone and self.severity is Severity.HINT:
            return f"`{old}` is an alias of `{new}`"
        return f"`{old}` is {self.state}" + ("" if new is None else f": use `{new}`")

    @property
    def state(self) -> str:
        """What became of the old name, in words."""
        if self.move.had is not None:
            return f"removed in torch {self.move.had[1]}"
        if self.gone:
            return presence(self.moved.old, self.gone)
        warning = (release for release in PUBLISHED if _warns(self.moved.old, release))
        return f"deprecated since torch {since(first)}" if (first := next(warning, None)) else "an alias"

    @property
    def floor(self) -> str:
        """In words, that some releases lack the new name."""
        least = next((release for release in self.releases if release > self.early[-1]), self.releases[-1])
        return f"the replacement needs torch>={since(least)}, but this code also runs on torch {span_of(self.early)}"

    @property
    def hindrance(self) -> str | None:
        """Why it is manual whatever the file does with the name, None when it is not."""
        move, new = self.move, self.moved.new
        if new is None:
            return move.trap
        if move.trap is not None and not move.adapts:
            return f"use `{new}`: {move.trap}"
        last = max(_having(self.moved))  # before it came neither is missed
        if neither := [release for release in self.nowhere if release > last]:
            return f"torch {span_of(neither)} has neither `{self.moved.old}` nor `{new}`: remove the use"
        if self.severity is Severity.HINT and self.early and not self.gone:
            return (
                f"keep the old name, which every release has: torch {minor(self.early[-1])} does not have the "
                "new one yet"
            )
        return None

    @property
    def follows(self) -> bool:
        """Whether it needs no move, but goes along with names of the same import that do."""
        return self.severity is Severity.HINT and bool(self.early) and self.releases[-1] not in self.early

    @property
    def risk(self) -> str | None:
        """Why a fix is unsafe, None when it is not."""
        move, old, new = self.move, self.moved.old, self.moved.new
        told = move.calls_change or move.change == "reduction" or move.ignores_arguments or move.had is not None
        if not self.gone or new is None or told:
            return None
        if _takes_the_same(old, having(old)[-1], new, self.releases[-1]):
            return None
        return f"`{new}` has other parameters than `{old}`"


def case_of(facts: ModuleFacts, path: str, node: ast.AST, code: str) -> Case | None:
    """What the rows of the rule `code` say of a name written at `node`, None when it needs no move there."""
    found = moved(path, facts.torch.newest)
    if found is None or found.move.code != code:
        return None
    releases = tuple(sorted(facts.gates.alive(node)))
    had = _having(found)
    gone = tuple(release for release in lacking(found.old, releases) if release not in had)
    if not releases or (gone and not had):
        return None  # No release has ever had it, which is not this table's matter.
    early = _without(found.new, releases)
    if found.meanwhile is not None and len(_without(found.meanwhile, releases)) < len(early):
        found = found._replace(new=found.meanwhile)
        early = _without(found.new, releases)
    too_new = bool(gone) and (releases[-1] not in gone or had[-1] > releases[-1])
    if too_new and (early or found.new is None or found.move.whole):
        return None  # FSDP600 tells of what is too new.
    severity = _severity(facts, found, node, releases, gone)
    if severity is None or (releases[-1] in early and not gone):
        return None  # The old name is the right one.
    return Case(found, releases, gone, early, severity)


def _having(found: Moved) -> tuple[Version, ...]:
    """The releases that have the old name."""
    if found.move.had is None:
        return having(found.old)
    first, end = map(Version, found.move.had)
    return tuple(release for release in PUBLISHED if first <= release < end)


def _without(name: str | None, releases: Sequence[Version]) -> tuple[Version, ...]:
    """The releases that are not known to have a name, none if there is no name."""
    return () if name is None else tuple(release for release in releases if not exists(name, release))


def _severity(
    facts: ModuleFacts, found: Moved, node: ast.AST, releases: Sequence[Version], gone: Sequence[Version]
) -> Severity | None:
    if not gone and not any(_warns(found.old, release) for release in releases):
        # One arm of several may well use a stand-in.
        improvable = found.new is not None and len(releases) == len(facts.torch.releases)
        return Severity.HINT if improvable else None
    if for_type_checking(facts, node):
        return Severity.HINT
    return Severity.BREAKS if gone else Severity.DEPRECATED


def _warns(path: str, release: Version) -> bool:
    """Whether using a name, or importing a module that it is in, gives a warning."""
    while path.count(".") > 1:
        if exists(path, release) and deprecation(path, release) is not None:
            return True
        path = path.rpartition(".")[0]
    return False


def _takes_the_same(old: str, before: Version, new: str, now: Version) -> bool:
    """Whether what was a call of `old` is one of `new`, as far as the names of the parameters tell."""
    theirs, ours = signature(old, before), signature(new, now)
    if theirs is None or ours is None or any(parameter.kind is ParameterKind.VAR_KEYWORD for parameter in ours):
        return True
    names, places = {parameter.name for parameter in theirs}, _positions(theirs)
    lost = {parameter.name for parameter in theirs if parameter.kind is ParameterKind.KEYWORD_ONLY}
    lost -= {parameter.name for parameter in ours}
    added = [parameter for parameter in ours if not parameter.has_default and parameter.name not in names]
    return _positions(ours)[: len(places)] == places and not lost and not added


def _positions(parameters: Sequence[Parameter]) -> list[str]:
    by_position = (ParameterKind.POSITIONAL_ONLY, ParameterKind.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in by_position]
