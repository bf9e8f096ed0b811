"""Starting ranks, following them, and leaving nothing behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fsdp_migrate.verify.lanes import Lane
from fsdp_migrate.verify.stopping import stop
from fsdp_migrate.verify.verdicts import Report
from fsdp_migrate.verify.worker import leftovers, protocol
from fsdp_migrate.verify.worker.protocol import LaunchPlan, RankRecord

WORKER = Path(__file__).parent / "worker" / "__main__.py"
POLL = 0.1  # seconds between two looks at the records
OUTPUT = 1500  # characters told of what a rank printed
IDLE = 120.0  # seconds beyond two scenario timeouts without any sign of life after which a launch is given up


@dataclass(frozen=True)
class Rendezvous:
    """How the launchers of several machines find each other; passed through to torch's elastic launcher."""

    nnodes: int = 1
    node_rank: int | None = None
    endpoint: str | None = None
    backend: str | None = None

    def arguments(self) -> list[str]:
        """The options of `torch.distributed.run`."""
        if self.nnodes == 1 and self.endpoint is None:
            return ["--standalone"]
        options = {
            "--nnodes": str(self.nnodes),
            "--node-rank": None if self.node_rank is None else str(self.node_rank),
            "--rdzv-endpoint": self.endpoint,
            "--rdzv-backend": self.backend or "c10d",
            "--rdzv-id": "fsdp-migrate-verify",
        }
        return [part for name, value in options.items() if value is not None for part in (name, value)]


def is_elastic(device: str, rendezvous: Rendezvous) -> bool:
    """Whether torch's elastic launcher starts the ranks: CUDA cannot be forked, nor can another machine."""
    return device != "cpu" or rendezvous != Rendezvous()


class Launch:
    """One set of ranks of one interpreter, on a folder that exists as long as the `with` block.

    On one machine's CPU the ranks are forked; on GPUs and for several machines torch's elastic launcher starts them.
    `debug` has torch check every collective before it runs.
    """

    def __init__(self, lane: Lane, plan: LaunchPlan, rendezvous: Rendezvous, *, debug: bool) -> None:
        self._lane = lane
        self._rendezvous = rendezvous
        self._plan = plan
        self._debug = debug

    def __enter__(self) -> Launch:
        self._temporary = tempfile.TemporaryDirectory(prefix="fsdp-migrate-verify-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name).resolve()
        self._plan = replace(self._plan, folder=str(self._folder), harness=os.getpid())
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def run(self, finished: Callable[[int], None]) -> None:
        """Run the plan to its end; `finished` is told the number of each point that is through.

        Raises:
            KeyboardInterrupt: as it came, once no rank is left.
        """
        plan_file = self._folder / "plan.json"
        self._plan.write(plan_file)
        leftovers.temporary_files(self._folder).mkdir()
        with (self._folder / "launch.output").open("wb") as output:
            process = subprocess.Popen(
                self._command(plan_file),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                cwd=self._folder,
                start_new_session=True,
            )
            try:
                self._follow(process, finished)
            finally:
                stop(process)
                leftovers.kill_all(self._folder)

    def _command(self, plan_file: Path) -> list[str]:
        if not is_elastic(self._plan.device, self._rendezvous):
            return [self._lane.python, str(WORKER), "fork", str(plan_file)]
        per_node = self._plan.world // self._rendezvous.nnodes
        restarts = ["--nproc-per-node", str(per_node), "--max-restarts", str(len(self._plan.points) + 1)]
        launcher = [self._lane.python, "-m", "torch.distributed.run", *self._rendezvous.arguments(), *restarts]
        return [*launcher, "--monitor-interval", "0.2", str(WORKER), "rank", str(plan_file)]

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "TMPDIR": str(leftovers.temporary_files(self._folder)), "PYTHONUNBUFFERED": "1"}
        environment.setdefault("OMP_NUM_THREADS", "1")
        environment.setdefault("TORCH_DISTRIBUTED_DEBUG", "DETAIL" if self._debug else "OFF")
        environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        if sys.platform == "linux" and self._rendezvous.nnodes == 1:
            # Gloo looks up the machine's name otherwise, which not every container can answer.
            environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        return environment

    def _follow(self, process: subprocess.Popen[bytes], finished: Callable[[int], None]) -> None:
        tail = _Tail(protocol.record_file(self._folder, self._first_rank))
        patience = 2 * self._plan.timeout + IDLE
        quiet_since = time.monotonic()
        while True:
            ended = process.poll() is not None
            for event in tail.events():
                quiet_since = time.monotonic()
                if event.get("event") == "end":
                    finished(int(str(event["point"])))
            if ended or time.monotonic() - quiet_since > patience:
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL)

    @property
    def _first_rank(self) -> int:
        return (self._rendezvous.node_rank or 0) * (self._plan.world // self._rendezvous.nnodes)

    @property
    def started(self) -> bool:
        """Whether any rank came as far as the first scenario."""
        return any(protocol.record_file(self._folder, rank).is_file() for rank in range(self._plan.world))

    def workarounds(self) -> list[str]:
        """What the ranks worked around in torch."""
        events = protocol.read_events(protocol.hello_file(self._folder))
        return [str(note) for note in events[0]["workarounds"]] if events else []

    def records(self) -> Iterator[tuple[int, list[RankRecord]]]:
        """What the ranks reported about each point of the plan, by its number."""
        by_rank = [protocol.records(self._folder, rank) for rank in range(self._plan.world)]
        for point in self._plan.points:
            yield point.number, [known.get(point.number, RankRecord(rank)) for rank, known in enumerate(by_rank)]

    def report(self, report: Report, point: int) -> Report:
        """`report`, with how ranks ended and what they left behind, if they did not come to the end of `point`."""
        if all(record.finished for record in report.ranks):
            return report
        ranks = range(self._plan.world)
        printed = {rank: protocol.part(protocol.output_file(self._folder, rank), point) for rank in ranks}
        return replace(
            report,
            exits={end.rank: end for end in protocol.exits(self._folder) if end.point == point},
            stacks={rank: protocol.part(protocol.stack_file(self._folder, rank), point) for rank in ranks},
            output="\n".join(f"rank {rank} printed:\n{text[-OUTPUT:]}" for rank, text in printed.items() if text),
        )

    def last_words(self) -> str:
        """The last line that a rank or the launcher printed."""
        files = [protocol.output_file(self._folder, rank) for rank in range(self._plan.world)]
        told = ""
        for file in [self._folder / "launch.output", *files]:
            told += file.read_text(encoding="utf-8", errors="replace").strip() if file.is_file() else ""
        return (told or "nothing was printed").splitlines()[-1].strip()


class _Tail:
    """The new events of a growing file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def events(self) -> list[dict[str, object]]:
        """The complete lines since the last call."""
        if not self._path.is_file():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        return protocol.parse_events(complete.decode("utf-8", errors="replace"))
