"""Running a command so that its Python processes note which calls of torch they make."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fsdp_migrate import injected
from fsdp_migrate.injected.sitecustomize import ASKED_BY
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.trace.apis import apis
from fsdp_migrate.trace.notes import Noted, gathered, reason_for_nothing
from fsdp_migrate.trace.records import root_of

_VARIABLE = next(name for name, module in ASKED_BY.items() if module == "tracer")


class CommandError(Exception):
    """A command that cannot be started. The message is one line for the user."""


class Ran(NamedTuple):
    """How a command ended, what was noted, and why nothing was."""

    code: int
    noted: Noted
    nothing: str | None


def run(command: Sequence[str]) -> Ran:
    """Run a command to its end, and gather what its processes noted.

    Raises:
        CommandError: there is no such command.
    """
    with tempfile.TemporaryDirectory(prefix="fsdp-migrate-trace-") as name:
        folder = Path(name)
        code = _ended(command, {**os.environ, **environment(folder)})
        noted = gathered(folder)
        nothing = None if noted.trace.processes else reason_for_nothing(folder, tuple(command))
        return Ran(code, noted, nothing)


def environment(folder: Path) -> dict[str, str]:
    """What makes the processes of a command note their calls in a folder, for the repository around this one."""
    wanted = {name: [(w.traced.given, w.traced.missing) for w in several] for name, several in apis().items()}
    plan = folder / "plan.json"
    asked = {"folder": str(folder), "root": root_of(os.getcwd()), "apis": wanted}
    plan.write_text(json.dumps(asked), encoding="utf-8")
    here = os.path.dirname(os.path.abspath(injected.__file__))
    path = os.environ.get("PYTHONPATH")
    return {_VARIABLE: str(plan), "PYTHONPATH": os.pathsep.join([here, path] if path else [here])}


def _ended(command: Sequence[str], environment: dict[str, str]) -> int:
    """The exit code of a command, as a shell tells it. An interrupt is for the command, which gets it as well."""
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise CommandError(f"{command[0]}: {error.strerror}") from None

    def pass_on(number: int, _frame: Any) -> None:
        process.send_signal(number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                continue
            return code if code >= 0 else 128 - code
    finally:
        signal.signal(signal.SIGTERM, before)
