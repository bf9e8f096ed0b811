"""Starting the program as users do, in a process of its own, and trees to let it loose on."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner, Result

import fsdp_migrate
from fsdp_migrate.commands.cli import cli

COMMAND = [sys.executable, "-m", "fsdp_migrate"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(fsdp_migrate.__file__).parent.parent)}

LEGACY = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, optim):
    return FSDP.full_optim_state_dict(model, optim)
"""


def run(
    folder: Path, *arguments: str, powerless: bool = False, environment: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """Run the program in `folder`; `powerless` takes from root what other users do not have."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        preexec_fn=_give_up_powers if powerless else None,
        timeout=120,
    )


def _give_up_powers() -> None:
    if os.geteuid() == 0:
        drop_capability = 24  # PR_CAPBSET_DROP in linux/prctl.h
        for capability in range(41):
            ctypes.CDLL(None).prctl(drop_capability, capability, 0, 0, 0)


def call(folder: Path, *arguments: str) -> Result:
    """What the program does in `folder`, without a process of its own; a fault raises."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        return CliRunner().invoke(cli, arguments, catch_exceptions=False)
    finally:
        os.chdir(before)


def outcome(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """The exit code and what was said of failures."""
    result = call(folder, *arguments)
    return result.exit_code, result.stderr.splitlines()
