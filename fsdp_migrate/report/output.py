"""Chooses the report of a plan, and where it is written."""

from __future__ import annotations

import os
from collections.abc import Iterator

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.report import Plan, plain, text

LINT_FORMATS = ("text", "concise", "json", "jsonl", "sarif", "github", "gitlab", "junit")
REWRITE_FORMATS = ("text", "concise", "json", "sarif")
_FOR_PEOPLE = ("text", "concise")
_TELLS_FAILURES = ("json", "sarif", "github", "junit")


class FileOptionError(Exception):
    """A file that an option names cannot be read or written. The message is one line for the user."""


class Output(NamedTuple):
    """The options of the report; without a `file` it goes to stdout."""

    format: str
    file: str | None
    quiet: bool

    @property
    def for_people(self) -> bool:
        """Whether the report is text rather than a document for another program."""
        return self.format in _FOR_PEOPLE

    def lint(self, plan: Plan, *, statistics: bool) -> None:
        """Report what `lint` found.

        Raises:
            FileOptionError: the file cannot be written.
        """
        if self.for_people and self.file is None:
            text.print_lint(plan, quiet=self.quiet, statistics=statistics, frames=self.format == "text")
            return
        document = _lint_document(self.format, plan, statistics)
        self._put(document, plan, plain.lint_summary(plan))

    def rewrite(self, plan: Plan) -> None:
        """Report what `rewrite` did and left.

        Raises:
            FileOptionError: the file cannot be written.
        """
        if self.for_people and self.file is None:
            text.print_rewrite(plan, quiet=self.quiet, frames=self.format == "text")
            return
        self._put(_rewrite_document(self.format, plan, self.quiet), plan, plain.rewrite_summary(plan, done=True))

    def preview(self, plan: Plan, *, diff: bool) -> None:
        """Report what `rewrite` would do: with `diff` as patches, otherwise only what prevents it.

        Raises:
            FileOptionError: the file cannot be written.
        """
        patches = dict(_patches(plan)) if diff else {}
        if self.format == "json":
            from fsdp_migrate.report import json_format

            self._put(json_format.rewrite_report(plan, patches), plan, [])
            return
        if self.file is not None:
            _write(self.file, b"".join(patches.values()))
        else:
            for patch in patches.values():
                text.print_diff(patch)
        text.print_unparsable(plan)
        text.print_failures(plan)
        if diff and not self.quiet:
            text.print_preview_summary(plan)

    def _put(self, document: str, plan: Plan, summary: list[str]) -> None:
        """Write the document; other messages go to stdout if the document does not."""
        if self.file is not None:
            write_text(self.file, document)
            text.print_closing(plan, summary, quiet=self.quiet)
            return
        text.write_bytes(_encoded(document))
        if self.format not in _TELLS_FAILURES:
            text.print_failures(plan)
            if not self.quiet:
                text.print_warnings(plan)
        if self.format != "json" and not self.quiet:
            text.print_gone(plan)


def check_place(path: str) -> None:
    """Make sure that a file can be written where it is to be, before there is something to write.

    Raises:
        FileOptionError: its folder is not there, or nothing can be made in it.
    """
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise FileOptionError(f"{path} cannot be written: No such file or directory")
    if not os.path.lexists(path) and not os.access(folder, os.W_OK):
        raise FileOptionError(f"{path} cannot be written: Permission denied")


def write_text(path: str, document: str) -> None:
    """Write `document` to a file; a regular file is replaced at once.

    Raises:
        FileOptionError: it cannot be written.
    """
    _write(path, _encoded(document))


def _write(path: str, raw: bytes) -> None:
    from fsdp_migrate import replacing  # only where a file is written

    target = os.path.realpath(path)
    try:
        if os.path.isfile(target):
            if not os.access(target, os.W_OK):
                raise PermissionError(0, "it is read-only")
            replacing.replace(target, raw)
            replacing.sync(os.path.dirname(target))
        elif not os.path.lexists(target) and os.access(os.path.dirname(target), os.W_OK):
            with replacing.prepared(target, raw, exists=False) as file:
                file.take_place_of(target)
        else:
            with open(target, "wb") as stream:
                stream.write(raw)
    except OSError as error:
        raise FileOptionError(f"{path} cannot be written: {error.strerror or error}") from None


def _patches(plan: Plan) -> Iterator[tuple[str, bytes]]:
    from fsdp_migrate.report import diff

    for change in plan.changes:
        name = diff.patch_name(plan.real_paths.get(change.path, change.path))
        yield change.path, diff.unified(name, change.before, change.after, created=change.created)


def _encoded(document: str) -> bytes:
    return f"{document}\n".encode("utf-8", "backslashreplace") if document else b""


def _lint_document(name: str, plan: Plan, statistics: bool) -> str:
    if name == "json":
        from fsdp_migrate.report import json_format

        return json_format.lint_report(plan, statistics=statistics)
    if name in _FOR_PEOPLE:
        return "\n".join(plain.statistics(plan) if statistics else map(plain.finding_line, plan.findings))
    return _document(name, plan)


def _rewrite_document(name: str, plan: Plan, quiet: bool) -> str:
    if name == "json":
        from fsdp_migrate.report import json_format

        return json_format.rewrite_report(plan)
    if name in _FOR_PEOPLE:
        return "\n".join(plain.rewrite_lines(plan, quiet=quiet))
    return _document(name, plan)


def _document(name: str, plan: Plan) -> str:
    """The findings as a document for another program."""
    if name == "jsonl":
        from fsdp_migrate.report import json_format

        return json_format.lines(plan)
    if name == "junit":
        from fsdp_migrate.report import junit

        return junit.report(plan)
    if name == "sarif":
        from fsdp_migrate.report import sarif

        return sarif.report(plan)
    if name == "github":
        from fsdp_migrate.report import github

        return github.report(plan)
    from fsdp_migrate.report import gitlab

    return gitlab.report(plan)
