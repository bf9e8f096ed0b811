"""Launching programs as `prove` does, without a repository."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath

from fsdp_migrate.injected.recorder.plan import Plan
from fsdp_migrate.prove import records
from fsdp_migrate.prove.launch import Home, Program, run
from fsdp_migrate.prove.records import Event, Run


@dataclass(frozen=True)
class Launched:
    home: Home
    run: Run

    def events(self, rank: int, kind: str) -> list[Event]:
        return list(self.run.ranks[rank].of(kind))

    def printed(self, rank: int) -> str:
        return self.run.ranks[rank].output


def launched(
    folder: Path,
    text: str | Path,
    *words: str,
    nproc: int = 1,
    timeout: float = 240,
    run: Callable[[Program, Home, Path, PurePath, Plan], object] = run,
    **plan: object,
) -> Launched:
    """Run a program, a text or a file, as `program.py` of a project at `folder / "tree"`, to its end.

    The timeout is enough for a machine that has other things to do.
    """
    tree, home = folder / "tree", Home(folder / "run")
    tree.mkdir(parents=True, exist_ok=True)
    (tree / "program.py").write_text(text if isinstance(text, str) else text.read_text())
    shutil.copytree(tree, home.copy)
    program = Program(("program.py", *words), nproc, timeout=timeout, environment={"OMP_NUM_THREADS": "1"})
    run(program, home, tree, PurePath("."), Plan(**plan))  # type: ignore[arg-type]
    return Launched(home, records.read(home.record))
