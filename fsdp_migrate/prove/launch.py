"""Running one version of a program under torch's elastic launcher, with the recorder in its ranks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath

import fsdp_migrate.injected
from fsdp_migrate.injected.recorder.plan import Plan
from fsdp_migrate.verify.launch import Rendezvous
from fsdp_migrate.verify.stopping import stop
from fsdp_migrate.verify.worker import leftovers

INJECTED = Path(fsdp_migrate.injected.__file__).parent
PLAN_VARIABLE = "FSDP_MIGRATE_PROVE"
FORMAT = 1
GRACE = 5.0  # seconds beyond the timeout in which the ranks write their stacks
POLL = 0.1
# What says that a process is a rank; prove itself may run in one.
_RANK = (
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)


class LaunchError(ValueError):
    """A program cannot be started; the message is one line for the user."""


@dataclass(frozen=True)
class Program:
    """What to run: the words behind `--`, as torchrun takes them, and how.

    `nproc` is the number of ranks of this machine, `timeout` is in seconds. `environment` is set in addition.
    """

    words: tuple[str, ...]
    nproc: int = 2
    rendezvous: Rendezvous = field(default_factory=Rendezvous)
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 600.0


@dataclass(frozen=True)
class Home:
    """The folder of one run."""

    folder: Path

    @property
    def copy(self) -> Path:
        """The version of the project that runs, which programs also write into."""
        return self.folder / "project"

    @property
    def record(self) -> Path:
        """What the ranks record."""
        return self.folder / "record"

    @property
    def temporary(self) -> Path:
        """Where the program's temporary files go."""
        return leftovers.temporary_files(self.folder)

    @property
    def plan(self) -> Path:
        """What the recorder is to do; its path marks the processes of the run."""
        return self.folder / "plan.json"


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A folder for the runs, that is gone afterwards with all processes of theirs, even if this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix="fsdp-migrate-prove-")).resolve()
    command = [sys.executable, leftovers.__file__, str(folder), f"{PLAN_VARIABLE}={folder}{os.sep}"]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, cwd="/")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait()


def run(program: Program, home: Home, tree: Path, inside: PurePath, plan: Plan) -> float:
    """Run `program` in `home.copy`, a copy of the project at `tree`, from the folder `inside` it; the seconds it took.

    `plan` is what the recorder is to do; where things are is filled in here.

    Raises:
        LaunchError: no rank came as far as to start Python.
        KeyboardInterrupt: as it came, once no process is left.
    """
    home.record.mkdir(parents=True)
    home.temporary.mkdir(exist_ok=True)
    (home.copy / inside).mkdir(parents=True, exist_ok=True)  # git knows no empty folders
    deadline = time.time() + program.timeout
    where = {"folder": str(home.record), "copy": str(home.copy), "tree": str(tree), "deadline": deadline}
    home.plan.write_text(json.dumps({**asdict(plan), **where}), encoding="utf-8")
    exits = home.folder / "exits.json"
    began = time.time()
    with (home.folder / "launch.output").open("wb") as output:
        process = subprocess.Popen(
            _command(program, home, tree, exits),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(program, home, tree, plan),
            cwd=home.copy / inside,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(program.timeout + GRACE)
            code = process.poll()
        finally:
            stop(process)
            left = leftovers.kill_marked(f"{PLAN_VARIABLE}={home.plan}\0")
    failed = json.loads(exits.read_text(encoding="utf-8")) if exits.exists() else {}
    seconds = time.time() - began
    told = _ended(program, home, code, failed, len(left))
    if not any(home.record.glob("output-*.txt")):
        raise LaunchError(f"no rank was started: {_last_words(home)}")
    (home.record / "launch.json").write_text(json.dumps(told), encoding="utf-8")
    return seconds


def _command(program: Program, home: Home, tree: Path, exits: Path) -> list[str]:
    words = [in_copy(word, home, tree) for word in program.words]
    options = [*program.rendezvous.arguments(), "--nproc-per-node", str(program.nproc), "--max-restarts", "0"]
    launcher = [program.python, str(INJECTED / "launcher.py"), str(exits)]
    return [*launcher, *options, "--monitor-interval", str(POLL), *words]


def in_copy(word: str, home: Home, tree: Path) -> str:
    """A path in the user's tree as it is in the copy, where the copy has it; any other word as it is."""
    for prefix, path in (
        ("", word),
        *([(word.partition("=")[0] + "=", word.partition("=")[2])] if "=" in word else []),
    ):
        inside = _inside(path, tree)
        if inside is not None and os.path.lexists(home.copy / inside):
            return prefix + str(home.copy / inside)
    return word


def _inside(path: str, tree: Path) -> PurePath | None:
    """The place in the tree of an absolute path to it, which may lead there by links; None for any other."""
    parents = PurePath(path).parents if os.path.isabs(path) else ()
    root = next((parent for parent in parents if os.path.realpath(parent) == str(tree)), None)
    return None if root is None else PurePath(path).relative_to(root)


def _environment(program: Program, home: Home, tree: Path, plan: Plan) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not (name in _RANK or name.startswith("TORCHELASTIC_"))
    }
    given = {name: in_copy(value, home, tree) for name, value in program.environment.items()}
    environment = {**kept, **given}
    folders = [in_copy(folder, home, tree) for folder in environment.get("PYTHONPATH", "").split(os.pathsep) if folder]
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(INJECTED), *folders]),
        PLAN_VARIABLE: str(home.plan),
        "TMPDIR": str(home.temporary),
        # Nothing but what the program writes is to be new in the copy.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if sys.platform == "linux" and program.rendezvous.nnodes == 1:
        # Gloo looks up the machine's name otherwise, which not every container can answer.
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if plan.deterministic:
        environment["PYTHONHASHSEED"] = "0"
        environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return environment


def _ended(program: Program, home: Home, code: int | None, failed: Mapping[str, int], left: int) -> dict[str, object]:
    """How the launch ended. Where one rank fails, the launcher stops the others, if they have not ended before."""
    first = (program.rendezvous.node_rank or 0) * program.nproc
    found = {int(path.stem.partition("-")[2]) for path in home.record.glob("output-*.txt")}
    ranks = sorted({*map(int, failed), *found, *(range(first, first + program.nproc) if not found else ())})
    exits = {str(rank): failed.get(str(rank), 0 if code == 0 else _own_end(home, rank)) for rank in ranks}
    return {
        "format": FORMAT,
        "world": program.nproc * program.rendezvous.nnodes,
        "exit": code,
        "timed_out": code is None,
        "ranks": exits,
        "stopped": [int(rank) for rank, ended in exits.items() if ended is None],
        "hindrances": list(_hindrances(home, left if code is not None else 0)),
    }


def _hindrances(home: Home, left: int) -> Iterator[str]:
    """Why the record may miss what matters."""
    children = home.record / "children.jsonl"
    if children.exists():
        own = "the program starts ranks of its own, which are not recorded"
        yield f"{own}: give what runs in each of them, as for torchrun, and the number as --nproc"
    elif left and not any('{"e": "step"' in path.read_text("utf-8") for path in home.record.glob("rank-*.jsonl")):
        processes = "a process" if left == 1 else f"{left} processes"
        yield f"the program left {processes} behind, stopped now: what it does in the background is not recorded"


def _own_end(home: Home, rank: int) -> int | None:
    """The exit code that a rank recorded before it was told to end, if it came to its end by then."""
    path = home.record / f"rank-{rank}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    last = json.loads(lines[-1]) if lines and lines[-1].startswith('{"e": "end"') else {}
    return last.get("code")


def _last_words(home: Home) -> str:
    lines = (home.folder / "launch.output").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "nothing was printed"


def interrupted(interrupt: KeyboardInterrupt) -> int:
    """The exit code of a command that a signal ended (see `stoppable`)."""
    return 128 + int(interrupt.args[0] if interrupt.args else signal.SIGINT)
