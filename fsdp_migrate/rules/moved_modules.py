"""The modules of FlatParameter and its companions, release by release, and how an import of another one is written."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from packaging.version import Version

from fsdp_migrate.edits import MoveImport
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.torch_api.data import exists

FLAT_PARAMETER = "FlatParameter"


class Home(NamedTuple):
    """A module that FlatParameter was or is in: the first release with it and the first one without."""

    module: str
    added: str
    removed: str | None = None
    holds_companions: bool = True

    @property
    def path(self) -> str:
        """The module's full name."""
        return f"{PACKAGE}.{self.module}"

    @property
    def presence(self) -> str:
        """When the module is not there, in words."""
        return f"gone since torch {self.removed}" if self.removed is not None else f"new in torch {self.added}"

    @property
    def replacement(self) -> str:
        """Where the companions are when the module is not there, in words."""
        newest, older = COMPANIONS
        if self.removed is not None:
            return f"`{newest}` has taken its place in torch {HOMES[newest].added}"
        return f"before it was `{older}`"


HOMES = {
    home.module: home
    for home in (
        Home("flatten_params_wrapper", "1.11", removed="2.0"),
        Home("flat_param", "1.13", removed="2.2"),
        Home("_flat_param", "2.2"),
        Home("_optim_utils", "1.12", holds_companions=False),
    )
}
# Where the companions of FlatParameter are, the newest place first.
COMPANIONS = ("_flat_param", "flat_param")


def home_of(path: str | None) -> Home | None:
    """The row of the module with this full name, None when there is none."""
    return HOMES.get(path.removeprefix(f"{PACKAGE}.")) if path and path.startswith(f"{PACKAGE}.") else None


def lacking(home: Home, names: Iterable[str], releases: Iterable[Version]) -> list[Version]:
    """The releases in which the module, or one of these names in it, is missing."""
    paths = [home.path, *(f"{home.path}.{name}" for name in names)]
    return [release for release in sorted(releases) if any(exists(path, release) is False for path in paths)]


def companion_modules(names: Sequence[str], releases: Iterable[Version]) -> tuple[str, ...] | None:
    """The modules that together hold all these names in every release, the newest first; None when there are none."""
    having = {
        module: {r for r in releases if all(exists(f"{PACKAGE}.{module}.{name}", r) for name in names)}
        for module in COMPANIONS
    }
    wanted = set(releases)
    for module in COMPANIONS:
        if having[module] == wanted:
            return (module,)
    return COMPANIONS if set().union(*having.values()) == wanted else None


def bound(alias: ast.alias) -> str:
    """The name that a part of a `from ... import` binds."""
    return alias.asname or alias.name


def has_own_lines(facts: ModuleFacts, statement: ast.stmt) -> bool:
    """Whether no other code stands on the lines of a statement."""
    source = facts.source
    span = source.span(statement)
    before = source.data[source.line_start(span.start) : span.start]
    next_line = bisect_right(source.line_starts, span.end)
    line_end = source.line_starts[next_line] if next_line < len(source.line_starts) else len(source.data)
    after = source.data[span.end : line_end].strip()
    return not before.strip() and (not after or after.startswith(b"#"))


def import_trouble(facts: ModuleFacts, statement: ast.stmt) -> str | None:
    """Why an import cannot become several statements, None when it can."""
    if not has_own_lines(facts, statement):
        return "the import shares its line with other code: give it a line of its own"
    return None


def move(facts: ModuleFacts, statement: ast.stmt, name: str, module: str, text: str | None = None) -> MoveImport:
    """The edit that imports a bound name from another module; `text` is how it is written there, if otherwise."""
    return MoveImport(
        facts.source.span(statement), name, module, facts.indentation(statement), facts.indent_unit, text=text
    )
