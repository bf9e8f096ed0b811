"""Transactions over several files: which of a target's proposals can be made, and the texts that they give.

They are made before the fixes of single files, which see the new texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Protocol

from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.lint import FileCheck, brought_by
from fsdp_migrate.planning.choosing import Chooser
from fsdp_migrate.planning.drafts import Draft, first_seen, shifted
from fsdp_migrate.planning.parts import Change, FilePlan, Part
from fsdp_migrate.planning.passes import carried_out
from fsdp_migrate.planning.selection import Claims
from fsdp_migrate.source import SourceError
from fsdp_migrate.splicing import RewriteError
from fsdp_migrate.suppressions import Suppressions
from fsdp_migrate.transactions import NewText, Transaction
from fsdp_migrate.workspace.filesystem import FileError, SourceFile
from fsdp_migrate.workspace.reading import read_source
from fsdp_migrate.workspace.workspace import Workspace

_MOST_ROUNDS = 20


class Target(Protocol):
    """A target that needs more than fixes of single files."""

    name: str

    def transactions(self, workspace: Workspace) -> Iterable[Transaction]:
        """The transactions for a workspace. One without fixes is a problem that no edit solves."""


class RefusedError(Exception):
    """A transaction cannot be made. The message is the reason, for the user."""


class Across:
    """The transactions of a target: `before` is the workspace as it was, `workspace` has the texts of those made."""

    def __init__(
        self,
        workspace: Workspace,
        target: Target,
        without: Mapping[str, str],
        files: Sequence[SourceFile],
        chooser: Chooser | None = None,
        *,
        rewriting: bool,
    ) -> None:
        """Make what can be made in `files`, and what the `chooser` takes of it.

        The files in `without` stay as they are, each for the reason given.
        """
        self.before = self.workspace = workspace
        self.without = without
        self.made: list[Transaction] = []
        self.possible: list[Transaction] = []
        self.left: list[Finding] = []
        self.suppressed: dict[str, int] = {}
        self._files = {file.shown: file for file in files}
        self._progress: dict[str, Draft] = {}
        self._created: dict[str, SourceFile] = {}
        self._answers: dict[tuple[str, str, int], bool] = {}
        for rounds in range(1, _MOST_ROUNDS + 1):
            self.suppressed.clear()
            proposed = [kept for one in target.transactions(self.workspace) if (kept := self._in_force(one))]
            self.possible, self.left = self._sorted_out(proposed)
            wanted = self.possible if chooser is None else [one for one in self.possible if self._taken(one, chooser)]
            chosen = _compatible(wanted)
            if not rewriting or not chosen or rounds == _MOST_ROUNDS:
                self.left += [one.finding for one in self.possible]
                break
            self._make(chosen)

    @property
    def created(self) -> tuple[SourceFile, ...]:
        """The files that the transactions create."""
        return tuple(self._created.values())

    def speaks_of(self, file: SourceFile) -> bool:
        """Whether a transaction or its finding concerns a file."""
        return file.shown in self._progress or any(finding.path == file.shown for finding in self.left)

    def progress(self, file: SourceFile) -> Draft | None:
        """The text of a file after the transactions, None if none changed it."""
        return self._progress.get(file.shown)

    def completed(self, plan: FilePlan) -> FilePlan:
        """The plan of a file, with the target's findings in it and the text from before the transactions."""
        path, result = plan.file.shown, plan.result
        if path in self.without:
            return plan._replace(failure=self.without[path])
        own = [finding for finding in self.left if finding.path == path]
        said = {(finding.code, finding.span) for finding in own}
        others = (finding for finding in result.left if (finding.code, finding.span) not in said)
        left = tuple(sorted((*others, *own), key=lambda finding: (finding.span.start, finding.code)))
        result = result._replace(left=left, suppressed=result.suppressed + self.suppressed.get(path, 0), report=None)
        if path in self._created:
            return plan._replace(before=b"", result=result, created=True)
        return plan._replace(
            before=self.before.read(plan.file) if path in self._progress else plan.before, result=result
        )

    def parts(self, plans: Iterable[FilePlan]) -> Iterator[Part]:
        """The plans of all files. Files that one transaction changes form one part."""
        group: dict[str, str] = {}
        for one in self.made:
            joined = {group.get(path, path) for path in one.paths}
            group = {path: min(joined) if home in joined else home for path, home in group.items()}
            group.update((path, min(joined)) for path in (*one.paths, *joined))
        members: dict[str, list[FilePlan]] = {}
        size = {home: sum(other == home for other in group.values()) for home in group.values()}
        for plan in plans:
            home = group.get(plan.file.shown)
            if home is None:
                own = (one for one in (*self.made, *self.possible) if one.finding.path == plan.file.shown)
                yield Part((plan,), tuple(own))
                continue
            members.setdefault(home, []).append(plan)
            if len(members[home]) == size[home]:
                ties = tuple(one for one in self.made if group[next(iter(one.fixes))] == home)
                yield Part(tuple(members.pop(home)), ties)

    def _in_force(self, one: Transaction) -> Transaction | None:
        """The transaction as settings and comments allow it, None if they silence it."""
        finding = one.finding
        file = self._files.get(finding.path)
        if file is None:
            return None
        settings = self.workspace.settings(file, used=False)
        if not settings.selected(finding.code) or (not settings.hints and finding.severity is Severity.HINT):
            return None
        source = read_source(self.workspace.read(file), file.shown)
        if Suppressions(source.module_at(finding.span.start)).silences(finding):
            self.suppressed[file.shown] = self.suppressed.get(file.shown, 0) + 1
            return None
        from fsdp_migrate.lint.module_check import graded

        grade = graded(finding, settings)
        fixes = {} if grade.applicability is Applicability.MANUAL else one.fixes
        if not fixes:
            return one._replace(finding=grade, fixes={}, creates=())
        return one._replace(finding=grade, fixes={finding.path: Fix(()), **fixes})

    def _sorted_out(self, proposed: Iterable[Transaction]) -> tuple[list[Transaction], list[Finding]]:
        """The transactions that may be made, and the findings of the others with the reason."""
        possible, left = [], []
        for one in proposed:
            try:
                if self._is_wanted(one):
                    self._texts([one])
                    possible.append(one)
                else:
                    left.append(one.finding)
            except RefusedError as error:
                left.append(one.finding._replace(applicability=Applicability.MANUAL, reason=str(error), fix=None))
        return possible, left

    def _is_wanted(self, one: Transaction) -> bool:
        """Whether a transaction has edits, and all of its files allow them."""
        if not one.fixes:
            return False
        for path in one.fixes:
            if path not in self._files:
                raise RefusedError(f"not made: it also changes {path}, which this run does not include")
            if path in self.without:
                raise RefusedError(f"not made: it also changes {path} ({self.without[path]})")
        for new in one.creates:
            if self.workspace.exists(new.file):
                raise RefusedError(f"not made: it would create {new.file.shown}, which exists already")
            if new.file.shown in self.without:
                raise RefusedError(f"not made: it needs {new.file.shown} ({self.without[new.file.shown]})")
        if one.grade is Applicability.SAFE:
            return True
        return all(self.workspace.settings(self._files[path], used=False).unsafe_fixes for path in one.fixes)

    def _taken(self, one: Transaction, chooser: Chooser) -> bool:
        place = one.finding.path, one.rule, one.finding.span.start
        if place not in self._answers:
            self._answers[place] = chooser.takes(one, one.finding, self._changes(one))
        return self._answers[place]

    def _changes(self, one: Transaction) -> Callable[[], list[Change]]:
        def changes() -> list[Change]:
            new = {new.file.shown for new in one.creates}
            return [
                Change(path, b"" if path in new else self._read(path), text.raw, path in new)
                for path, (_, text) in self._texts([one]).items()
            ]

        return changes

    def _make(self, chosen: Sequence[Transaction]) -> None:
        """Make all transactions that can be made together, at least the first."""
        try:
            texts, made = self._texts(chosen), chosen
        except RefusedError:
            texts, made = self._texts(chosen[:1]), chosen[:1]
        created = {new.file.shown: new.file for one in made for new in one.creates}
        self._files.update(created)
        self._created.update(created)
        for path, (progress, new) in texts.items():
            progress.change(new, [one.finding for one in made if one.finding.path == path])
            self._progress[path] = progress
            self._move_answers(path, new)
        for one in made:
            progress = self._progress.setdefault(one.finding.path, Draft(self._read(one.finding.path)))
            if one.finding not in progress.fixed:
                progress.fixed.append(one.finding)
        self.made += made
        self.workspace = self.workspace.patched({self._files[path]: new.raw for path, (_, new) in texts.items()})

    def _move_answers(self, path: str, new: NewText) -> None:
        """Keep what was said of a file's findings at their places in its new text."""
        said = {place: self._answers.pop(place) for place in list(self._answers) if place[0] == path}
        moved = shifted([offset for _, _, offset in said], new.replacements)
        for (_, code, _), offset, answer in zip(said, moved, said.values()):
            if offset is not None:
                self._answers[path, code, offset] = answer

    def _read(self, path: str) -> bytes:
        return self.workspace.read(self._files[path])

    def _texts(self, together: Sequence[Transaction]) -> dict[str, tuple[Draft, NewText]]:
        """The texts that transactions give if they are made together.

        Raises:
            RefusedError: a text does not parse, lacks a comment, or has a finding that none of them declares.
        """
        texts: dict[str, tuple[Draft, NewText]] = {}
        try:
            for path in dict.fromkeys(path for one in together for path in one.fixes):
                source = read_source(self._read(path), path)
                fixes = [one.fixes[path] for one in together if path in one.fixes]
                texts[path] = (
                    self._progress.get(path) or Draft(self._read(path)),
                    carried_out(source, path, fixes),
                )
        except RewriteError as error:
            raise RefusedError(error.reason) from None
        except (FileError, SourceError, SyntaxError) as error:
            raise RefusedError(f"not made: {path} cannot be changed: {error}") from None
        if all(new.raw == self._read(path) for path, (_, new) in texts.items()):
            raise RefusedError("internal: the edits change nothing; please report this")
        created = {new.file: new.text.encode() for one in together for new in one.creates}
        patches = {self._files[path]: new.raw for path, (_, new) in texts.items()}
        after = self.workspace.patched({**patches, **created})
        for path, (progress, new) in texts.items():
            progress.see(self._findings(self.workspace, path))
            own = [one for one in together if path in one.fixes]
            settings = self.workspace.settings(self._files[path], used=False)
            declared = {code for one in own for code in (*one.brings, *brought_by(one.rule, settings))}
            for finding in _brought(progress, new, self._findings(after, path)):
                if finding.code not in declared:
                    raise RefusedError(f"not made: it would add {finding.code} ({finding.name}) to {path}")
        for file, raw in created.items():
            texts[file.shown] = Draft(b""), NewText(raw, read_source(raw, file.shown), [])
        return texts

    def _findings(self, workspace: Workspace, path: str) -> Sequence[Finding]:
        file = self._files[path]
        settings = workspace.settings(file, used=False)._replace(hints=True)
        view = workspace.view(file, settings)
        with closing(FileCheck(workspace.read(file), path, settings, view)) as check:
            return check.report().findings


def _compatible(transactions: Iterable[Transaction]) -> list[Transaction]:
    """The transactions without those that touch the text of an earlier one."""
    chosen: list[Transaction] = []
    claims: dict[str, Claims] = {}
    for one in transactions:
        if {new.file for new in one.creates} & {new.file for other in chosen for new in other.creates}:
            continue
        if any(one.apart & other.apart for other in chosen):
            continue
        if not any(claims.setdefault(path, Claims()).oppose(e) for path, fix in one.fixes.items() for e in fix.edits):
            chosen.append(one)
            for path, fix in one.fixes.items():
                claims.setdefault(path, Claims()).add(fix.edits)
    return chosen


def _brought(progress: Draft, new: NewText, findings: Iterable[Finding]) -> list[Finding]:
    """The findings of a new text that the old text does not have."""
    known = {id(origin) for _, origin in progress.live}
    pairs = first_seen(progress.live, new.replacements, findings)
    return [finding for finding, origin in pairs if id(origin) not in known]
