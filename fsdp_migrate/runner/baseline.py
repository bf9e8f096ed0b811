"""Baselines: findings that a team knows, so that only new ones make a run fail.

An entry is a rule, a path and the meaning of the statement (`fsdp_migrate.fingerprints`), with a count. Moving or
formatting code does not change it. If there are more occurrences than the count, the later ones are new.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsdp_migrate.findings import UNPARSABLE, Finding, Severity
from fsdp_migrate.fingerprints import numbered
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.report import Known, Plan, source_of
from fsdp_migrate.report.output import FileOptionError, write_text
from fsdp_migrate.report.places import below
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.filesystem import Discovery, printable
from fsdp_migrate.workspace.settings import Settings
from fsdp_migrate.workspace.settings.configuration import Configuration

if TYPE_CHECKING:
    from fsdp_migrate.planning.choosing import Chooser
    from fsdp_migrate.planning.parts import Change
    from fsdp_migrate.transactions import Transaction

VERSION = 1
_LONGEST_TEXT = 80


class Recorded(NamedTuple):
    """The identity of a finding; `path` is relative to the baseline's folder, with slashes."""

    path: str
    rule: str
    key: str


class Baseline:
    """The findings that a file says are known, compared with those of a plan, file by file."""

    def __init__(self, file: str, counts: Mapping[Recorded, int], texts: Mapping[Recorded, str]) -> None:
        """`counts` says how often each entry occurs, `texts` how its statement is shown.

        What a run meets is kept: `places` has the findings that are known.
        """
        self.file = file
        self.counts = counts
        self.texts = dict(texts)
        self.occurring: Counter[Recorded] = Counter()
        self.hidden: set[Recorded] = set()
        self.met = 0
        self.places: set[tuple[str, str, int]] = set()

    def unknown(self, path: str, raw: bytes, findings: Sequence[Finding], *, hints: bool) -> tuple[Finding, ...]:
        """The findings of one file that are not in the baseline, in order of place; without `hints` no hints."""
        where, source = _path(path, self.file), source_of(raw, path)
        left = []
        for finding, key, _ in numbered(sorted(findings, key=lambda finding: finding.place), source):
            # A file that does not parse is never known: nothing is said about it, so it must not pass for clean.
            if finding.code == UNPARSABLE or self._is_new(Recorded(where, finding.code, key), finding, source, hints):
                left.append(finding)
            else:
                self.places.add(place_of(finding))
        return tuple(left)

    def _is_new(self, entry: Recorded, finding: Finding, source: Source | None, hints: bool) -> bool:
        shown = hints or finding.severity is not Severity.HINT
        self.occurring[entry] += 1
        if entry not in self.texts:
            self.texts[entry] = _text(finding, source)
        if not shown:
            self.hidden.add(entry)
        if self.occurring[entry] > self.counts.get(entry, 0):
            return True
        self.met += shown
        return False

    def known(self, scope: RunScope | None = None) -> Known:
        """How many findings it knows; only with a `scope` also the entries that no longer occur."""
        return Known(_shown(self.file), self.met, () if scope is None else self._gone(scope.covers(self.file)))

    def renew(self, scope: RunScope) -> Known:
        """Record all findings of the run, and remove entries that no longer occur.

        Hints that are not shown stay if they were recorded. So do entries in files that the run did not look at.

        Raises:
            FileOptionError: the file cannot be written.
        """
        covered = scope.covers(self.file)
        taken = {entry: n for entry, n in self.occurring.items() if entry not in self.hidden or entry in self.counts}
        kept = {entry: n for entry, n in self.counts.items() if entry not in taken and not covered(entry)}
        write_text(self.file, _document({**kept, **taken}, self.texts))
        return Known(_shown(self.file), sum(taken.values()), self._gone(covered))

    def _gone(self, covered: Callable[[Recorded], bool]) -> tuple[str, ...]:
        """A line for each entry that occurs less often than recorded."""
        lines = []
        for entry, count in sorted(self.counts.items()):
            missing = count - self.occurring[entry]
            if missing > 0 and covered(entry):
                line = f"{entry.path}: {entry.rule} {self.texts.get(entry, '')}".rstrip()
                lines.append(printable(line if missing == count else f"{line} ({missing} of {count})"))
        return tuple(lines)


class Unknown:
    """Asks another chooser, but not about findings at the places that baselines know: these stay."""

    def __init__(self, chooser: Chooser, known: Iterable[tuple[str, str, int]]) -> None:
        """`known` has the places as `Baseline.places` has them."""
        self._chooser = chooser
        self._known = frozenset(known)
        self.silences = chooser.silences

    def takes(self, transaction: Transaction, first: Finding, changes: Callable[[], Sequence[Change]]) -> bool:
        """As `Chooser.takes`."""
        return place_of(first) not in self._known and self._chooser.takes(transaction, first, changes)


def place_of(finding: Finding) -> tuple[str, str, int]:
    """The path, the rule and the offset of a finding: what tells it from others of its run."""
    return finding.path, finding.code, finding.span.start


@dataclass(frozen=True)
class RunScope:
    """What a run looked at: only there can it say that an entry is gone.

    `files` were looked at, and `failed` could not be. All files in `folders` were found. `settings` say for which
    rules.
    """

    files: frozenset[str]
    failed: frozenset[str]
    folders: tuple[str, ...]
    settings: Settings

    @classmethod
    def of(cls, discovery: Discovery, configuration: Configuration, plan: Plan) -> RunScope:
        """What the run of `plan` looked at, with the rules that a configuration file turns off: they find nothing."""
        options = configuration.options
        failed = {failure.path for failure in plan.failures} | {f.path for f in plan.findings if f.code == UNPARSABLE}
        return cls(
            frozenset(_absolute(file.shown) for file in discovery.files),
            frozenset(_absolute(path) for path in failed),
            tuple(os.path.realpath(folder) for folder in discovery.folders),
            Settings(TorchRange.default(), options.select or (), options.ignore or ()),
        )

    def covers(self, file: str) -> Callable[[Recorded], bool]:
        """Whether an entry of the baseline `file` would have been found if it still occurred."""
        home = _home(file)

        def covered(entry: Recorded) -> bool:
            path = os.path.normpath(os.path.join(home, entry.path))
            if path in self.failed or not self.settings.selected(entry.rule):
                return False
            inside = any(below(path, folder) for folder in self.folders)
            return inside or path in self.files or not os.path.exists(path)

        return covered


def load(file: str, *, missing_ok: bool = False) -> Baseline:
    """Read a baseline; if `missing_ok`, one that does not exist is empty.

    Raises:
        FileOptionError: there is none, or it is not one.
    """
    if missing_ok and not os.path.lexists(file):
        return Baseline(file, {}, {})
    try:
        with open(file, encoding="utf-8") as stream:
            document = json.load(stream)
        counts, texts = _read(document)
    except FileNotFoundError:
        name = _shown(file)
        raise FileOptionError(
            f"there is no baseline {name}; `fsdp-migrate lint --write-baseline {name}` writes one"
        ) from None
    except OSError as error:
        raise FileOptionError(f"the baseline {_shown(file)} cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FileOptionError(f"{_shown(file)} is not a baseline that this version of fsdp-migrate can read") from None
    return Baseline(file, counts, texts)


def _text(finding: Finding, source: Source | None) -> str:
    """The statement of a finding on one line."""
    if source is None:
        return ""
    source = source.module_at(finding.statement.start)
    statement = source.data[finding.statement.start : finding.statement.end].decode("utf-8", "replace")
    line = printable(" ".join(statement.split()))
    return line if len(line) <= _LONGEST_TEXT else line[: _LONGEST_TEXT - 3] + "..."


def _home(file: str) -> str:
    return os.path.dirname(_absolute(file))


def _shown(file: str) -> str:
    """The path of a baseline in messages, relative to the current folder if it is below it."""
    return printable(below(file, os.getcwd()) or file)


def _absolute(path: str) -> str:
    """The path of a file, with the links to its folder resolved."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def _path(path: str, file: str) -> str:
    """The path of a file in entries: relative to the baseline's folder, wherever the run was started."""
    return below(_absolute(path), _home(file)) or _absolute(path).replace(os.sep, "/")


def _document(counts: Mapping[Recorded, int], texts: Mapping[Recorded, str]) -> str:
    # Not in order of place: code that moves within its file changes nothing here.
    ordered = sorted(counts, key=lambda entry: (entry.path, entry.rule, texts.get(entry, ""), entry.key))
    entries = [{**entry._asdict(), "count": counts[entry], "text": texts.get(entry, "")} for entry in ordered]
    return json.dumps({"version": VERSION, "findings": entries}, indent=2, ensure_ascii=False)


def _read(document: Any) -> tuple[dict[Recorded, int], dict[Recorded, str]]:
    if document["version"] != VERSION:
        raise ValueError("another version")
    counts: dict[Recorded, int] = {}
    texts: dict[Recorded, str] = {}
    for row in document["findings"]:
        entry = Recorded(*(_string(row[name]) for name in Recorded._fields))
        counts[entry] = counts.get(entry, 0) + int(row["count"])
        texts[entry] = _string(row.get("text", ""))
    return counts, texts


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value
