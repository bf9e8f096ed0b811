"""Run programs before and after rewriting on real process groups, and show that every rank observes the same.

Importing this needs no torch; only the ranks do, which are processes of their own.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TextIO

from fsdp_migrate.verify.fixtures import Fixture, FixtureError, Header, find_fixtures, fixtures_root, read_fixture
from fsdp_migrate.verify.harness import Outcome, Progress, Result, RunSettings, verify
from fsdp_migrate.verify.launch import Rendezvous
from fsdp_migrate.verify.report import FORMATS, Bar
from fsdp_migrate.verify.stopping import stoppable
from fsdp_migrate.verify.verdicts import Verdict

__all__ = [
    "Fixture",
    "FixtureError",
    "Header",
    "Outcome",
    "Progress",
    "Rendezvous",
    "Result",
    "RunSettings",
    "Verdict",
    "find_fixtures",
    "fixtures_root",
    "proofs",
    "read_fixture",
    "run",
    "verify",
]


def run(
    settings: RunSettings,
    *,
    paths: Iterable[Path] = (),
    keyword: str | None = None,
    pairs: Sequence[Fixture] | None = None,
    output_format: str = "text",
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """What `fsdp-migrate verify` does: run, print, and return the exit code.

    `pairs` are programs handed in instead of found at `paths` (see `read_fixture`). 0: all fine and something ran;
    1: something is not, or nothing ran; 2: it could not start (one line on `err`); 130: interrupted,
    129 and 143: told to end by a signal.
    """
    out, err = out or sys.stdout, err or sys.stderr
    began = time.monotonic()
    try:
        fixtures = find_fixtures(paths, keyword) if pairs is None else list(pairs)
        if not fixtures:
            raise FixtureError(f"no fixture matches {keyword!r}; without -k all of them run")
        progress = Bar(err) if err.isatty() else None
        with stoppable():
            outcome = verify(fixtures, settings, progress)
    except FixtureError as error:
        err.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt as interrupt:
        err.write("interrupted; every rank has been stopped\n")
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    seconds = time.monotonic() - began
    err.writelines(f"error: {error}\n" for error in outcome.errors)
    if outcome.errors and not outcome.results:
        return 2
    out.write(FORMATS[output_format](outcome, seconds) + "\n")
    return 0 if outcome.succeeded else 1


def proofs(code: str) -> list[str]:
    """The names of the bundled fixtures that prove the rule `code`; empty where none are installed."""
    return [fixture.name for fixture in _bundled() if code in fixture.header.rules]


@cache
def _bundled() -> list[Fixture]:
    try:
        return find_fixtures()
    except FixtureError:
        return []
