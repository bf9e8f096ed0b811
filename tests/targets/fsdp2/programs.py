"""Whole programs, as strings, that are planned with the target as the commands do it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import fsdp_migrate
from fsdp_migrate.findings import Finding


class Planned(NamedTuple):
    """The texts of a program afterwards, by file, and what is left of its models of FSDP1."""

    texts: dict[str, str]
    left: tuple[Finding, ...]

    @property
    def reasons(self) -> list[str]:
        """Why models stay as they are."""
        return [one.reason or "" for one in self.left]


def plan(folder: Path, program: str | Mapping[str, str], *, torch: str = ">=2.13", unsafe: bool = False) -> Planned:
    """Plan the conversion of a program: one file `train.py`, or several by name."""
    files = {"train.py": program} if isinstance(program, str) else program
    (folder / ".git").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))
    found = fsdp_migrate.plan(folder, torch, unsafe_fixes=unsafe, target="fsdp2")
    assert found.failures == ()
    changed = {str(Path(one.path).relative_to(folder)): one.after.decode() for one in found.changes}
    texts = {name: dedent(text) for name, text in files.items()} | changed
    return Planned(texts, tuple(one for one in found.findings if one.code == "FSDP900"))


def check_becomes(folder: Path, before: str, after: str, *, unsafe: bool = False) -> None:
    """A program of one file is converted, and stays so."""
    done = plan(folder, before, unsafe=unsafe)
    assert done.left == ()
    assert done.texts == {"train.py": dedent(after)}
    again = plan(folder, after, unsafe=unsafe)
    assert again == Planned({"train.py": dedent(after)}, ())


def check_stays(folder: Path, program: str, reason: str, *, unsafe: bool = True) -> None:
    """A program stays as it is, for a reason."""
    done = plan(folder, program, unsafe=unsafe)
    assert done.texts == {"train.py": dedent(program)}
    (found,) = done.reasons
    assert reason in found
