"""Records of a small training, as the recorder writes them, without running any."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy

from fsdp_migrate.prove import records
from fsdp_migrate.prove.records import Run

WEIGHT, BIAS = "layers.0.weight", "layers.0.bias"
NAMES = (WEIGHT, BIAS)


@dataclass
class Recorder:
    """Writes the record of one run; `world` ranks of one machine."""

    folder: Path
    world: int = 2
    events: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    keep: bool = True

    def __post_init__(self) -> None:
        (self.folder / "tensors").mkdir(parents=True)
        for rank in range(self.world):
            self.add(rank, "start", format=records.FORMAT, rank=rank, world=self.world)

    def add(self, rank: int, kind: str, /, step: int = 0, at: tuple[str, int] | None = None, **data: Any) -> None:
        own = self.events.setdefault(rank, [])
        own.append({"e": kind, "n": len(own) + 1, "step": step, **({"at": list(at)} if at else {}), **data})

    def tensor(self, array: Any, *, device: str = "cpu", dtype: str = "", **more: Any) -> dict[str, Any]:
        array = numpy.asarray(array, None if dtype else "float32")
        node = {"t": "tensor", "dtype": dtype or str(array.dtype), "shape": list(array.shape), "device": device}
        return {**node, "kind": "Tensor", "digest": self.bytes(array), "numel": array.size, **more}

    def shards(self, whole: Any, *parts: tuple[int, int], kind: str = "DTensor") -> dict[str, Any]:
        """A tensor of which this rank has some rows."""
        whole = numpy.asarray(whole, "float32")
        pieces = [
            {"offset": [start, 0], "shape": [stop - start, whole.shape[1]], "digest": self.bytes(whole[start:stop])}
            for start, stop in parts
        ]
        return {**self.tensor(whole), "kind": kind, "shards": pieces}

    def bytes(self, array: Any) -> str:
        raw = numpy.ascontiguousarray(array).tobytes()
        digest = hashlib.sha256(raw).hexdigest()
        if self.keep:
            (self.folder / "tensors" / f"{digest}.bin").write_bytes(raw)
        return digest

    def end(
        self, *, exits: dict[int, int | None] | None = None, timed_out: bool = False, unended: tuple[int, ...] = ()
    ) -> Run:
        exits = exits or dict.fromkeys(range(self.world), 0)
        for rank, events in self.events.items():
            if rank not in unended:
                self.add(rank, "end", events[-1]["step"], reason="finished", code=0)
            text = "".join(json.dumps(event) + "\n" for event in events)
            (self.folder / f"rank-{rank}.jsonl").write_text(text)
        worst = next((code for code in exits.values() if code), 0)
        launch = {"format": records.FORMAT, "world": self.world, "exit": worst, "timed_out": timed_out}
        (self.folder / "launch.json").write_text(json.dumps({**launch, "ranks": exits, "stopped": []}))
        return records.read(self.folder)


def mapping(children: dict[str, Any]) -> dict[str, Any]:
    return {"t": "dict", "k": [[key, child] for key, child in children.items()]}


def value(of: object) -> dict[str, Any]:
    text = repr(of) if not isinstance(of, str) else of
    digest = hashlib.sha256(f"{type(of).__name__} {text}".encode()).hexdigest()
    return {"t": "value", "type": type(of).__name__, "repr": text, "digest": digest}


@dataclass(frozen=True)
class Script:
    """A training: what a migration may break in it, and the lines that it is written in."""

    steps: int = 3
    world: int = 2
    losses: Callable[[int, int], float] = lambda step, rank: 2.0 / (step + 1) + rank / 8
    norms: bool = True
    saved_on: tuple[int, ...] = (0,)
    full_on: tuple[int, ...] = (0, 1)
    key: str = "optimizer"
    loads: bool = True
    nudge: float = 0.0  # added to exp_avg in what rank 1 saves
    only_on_rank_0: bool = False  # a collective
    moved: int = 0  # lines

    def line(self, number: int) -> tuple[str, int]:
        return ("train.py", number + self.moved)


def record(folder: Path, script: Script | None = None, *, keep: bool = True) -> Run:
    script = script or Script()
    recorder = Recorder(folder, script.world, keep=keep)
    for rank in range(script.world):
        _train(recorder, script, rank)
    return recorder.end()


def _weights(step: int) -> dict[str, Any]:
    return {WEIGHT: numpy.full((4, 2), 1.0 / (step + 1)), BIAS: numpy.full(2, 0.5 / (step + 1))}


def _train(recorder: Recorder, script: Script, rank: int) -> None:
    def add(kind: str, step: int, line: int, /, **data: Any) -> None:
        recorder.add(rank, kind, step, script.line(line), **data)

    recorder.add(rank, "group", id="0", ranks=list(range(script.world)))
    if script.loads:
        add("load", 0, 20, api="torch.load", path="start.pt", tree=mapping(_tensors(recorder, 0)))
    for step in range(script.steps):
        add("collective", step, 40, group="0", kind="all_gather_into_tensor", dtype="float32", numel=10)
        loss = script.losses(step, rank)
        add("loss", step, 44, value=float(loss).hex(), dtype="float32")
        if script.only_on_rank_0 and rank == 0 and step == 1:
            add("collective", step, 50, group="0", kind="all_reduce", dtype="float32", numel=1)
        add("collective", step, 44, group="0", kind="reduce_scatter_tensor", dtype="float32", numel=10)
        if script.norms:
            add("norm", step, 46, value=float(loss * 2).hex(), dtype="float32")
        add("step", step, 48, lr=[0.1 / (step + 1)], optimizer=0, skipped=False)
        recorder.add(rank, "cost", step + 1, seconds=0.1, peak=2**20, memory="rss")
    add("warning", script.steps, 80, category="FutureWarning", text="`state_dict_type` is deprecated")
    if rank in script.saved_on:
        add("save", script.steps, 88, api="torch.save", path="last.pt", tree=_checkpoint(recorder, script, rank))
    for of, tree in (("model", mapping(_tensors(recorder, script.steps))), ("optimizer", _optimizer(recorder, 3, 0))):
        recorder.add(rank, "final", script.steps, of=of, index=0, tree=tree)
    recorder.add(rank, "covered", script.steps, files={"train.py": [40 + script.moved, 88 + script.moved]})


def _tensors(recorder: Recorder, step: int) -> dict[str, Any]:
    return {name: recorder.tensor(array) for name, array in _weights(step).items()}


def _optimizer(recorder: Recorder, step: int, nudge: float) -> dict[str, Any]:
    state = {
        name: mapping({"step": value(step), "exp_avg": recorder.tensor(array / 4 + nudge)})
        for name, array in _weights(step).items()
    }
    groups = [mapping({"lr": value(0.1), "params": _list([value(name) for name in NAMES])})]
    return mapping({"state": mapping(state), "param_groups": _list(groups)})


def _list(members: list[Any]) -> dict[str, Any]:
    return {"t": "list", "k": [[str(index), member] for index, member in enumerate(members)]}


def _checkpoint(recorder: Recorder, script: Script, rank: int) -> dict[str, Any]:
    if rank not in script.full_on:
        return mapping({"model": mapping({}), script.key: mapping({}), "epoch": value(1)})
    model = mapping(_tensors(recorder, script.steps))
    nudge = script.nudge if rank == 1 else 0.0
    return mapping({"model": model, script.key: _optimizer(recorder, script.steps, nudge), "epoch": value(1)})
