"""What runs of `prove` showed of the code that a plan is about."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from fsdp_migrate.migration.compared import read
from fsdp_migrate.migration.model import Proof
from fsdp_migrate.prove.copies import CopyError, commit_of, find_project
from fsdp_migrate.prove.subject import digest
from fsdp_migrate.report.output import FileOptionError

TO_COME, DONE, CHANGED = "to come", "done", "changed since"
_SHORT = 10  # letters of a commit


def proof(file: str) -> Proof:
    """What a file says that `prove` wrote.

    Raises:
        FileOptionError: it cannot be read, or is no such file.
    """
    kind = "what `prove --output-format json` writes"
    found = read(file, kind)
    verdict, detail, subject = found.get("verdict"), found.get("detail"), found.get("subject")
    if not isinstance(verdict, str) or not isinstance(detail, str):
        raise FileOptionError(f"{file} is not {kind}")
    short = detail.partition("\n")[0]
    if subject is None:
        return Proof(file, verdict, short, notes=("it does not say of which code: run `prove` again",))
    try:
        return _of_subject(file, verdict, short, subject)
    except (KeyError, TypeError, AttributeError):
        raise FileOptionError(f"{file} is not {kind}: what it says of its subject is incomplete") from None


def _of_subject(file: str, verdict: str, detail: str, subject: dict[str, Any]) -> Proof:
    try:
        project = find_project(Path.cwd())
        root, commit = project.root, commit_of(project, "HEAD")
    except CopyError:
        root, commit = Path.cwd(), None
    states = {one["path"]: _state(root / one["path"], one["before"], one["after"]) for one in subject["files"]}
    rewrite = subject["rewrite"]
    return Proof(
        file,
        verdict,
        detail,
        program=shlex.join(subject["program"]),
        files={os.path.realpath(root / path): state for path, state in states.items()},
        rewrites=rewrite is not None,
        target=None if rewrite is None else rewrite["target"],
        unsafe=rewrite is None or rewrite["unsafe_fixes"],
        notes=tuple(_notes(states, subject["commit"], commit)),
    )


def _state(path: Path, before: str | None, after: str | None) -> str:
    """Whether a file is as it was before the change, or after it."""
    now = digest(path)
    return TO_COME if now == before else DONE if now == after else CHANGED


def _notes(states: dict[str, str], made_at: str | None, commit: str | None) -> list[str]:
    changed = [path for path, state in states.items() if state == CHANGED]
    notes = []
    if set(states.values()) == {DONE}:
        notes.append("of what is done")
    if changed:
        notes.append(f"older than the code: {', '.join(changed)} changed since")
    if made_at != commit:
        here = "no commit" if commit is None else commit[:_SHORT]
        notes.append(f"made at {'no commit' if made_at is None else f'commit {made_at[:_SHORT]}'}, and {here} is here")
    return notes
