"""What a program's ranks record: with any wrapper the same, by the same names."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.prove.trees import Branch, Node, Tensor, Value
from tests.prove import forked
from tests.prove.launched import Launched, launched

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

KINDS = ("none", "ddp", "flat", "orig", "fsdp2")
PROGRAM = Path(__file__).parent / "wrapped.py"
PARAMETERS = {
    "embedding.weight",
    *(f"blocks.{number}.{name}" for number in (0, 1) for name in ("linear.weight", "linear.bias")),
    *(f"blocks.{number}.{name}" for number in (0, 1) for name in ("norm.weight", "norm.bias")),
    "head.weight",
}
LINE = next(number for number, line in enumerate(PROGRAM.read_text().splitlines(), 1) if "warnings.warn" in line)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """The program, once, with all wrappers, on two ranks."""
    lines = {"program.py": [LINE - 1, LINE]}
    return launched(tmp_path_factory.mktemp("wrapped"), PROGRAM, *KINDS, nproc=2, lines=lines, keep=10**7)


def children(node: Node) -> Mapping[str, Node]:
    assert isinstance(node, Branch)
    return node.children


def digests(node: Node) -> Any:
    """A tree as what it holds."""
    if isinstance(node, Branch):
        return {name: digests(child) for name, child in node.children.items()}
    return node.text if isinstance(node, Value) else (node.dtype, node.shape, node.kind, node.pieces[0].digest)


def finals(ran: Launched, of: str) -> dict[tuple[int, str], Node]:
    """The final states of one kind by rank and wrapper."""
    found = {
        (rank, event.data["index"]): event.data["tree"]
        for rank in (0, 1)
        for event in ran.events(rank, "final")
        if event.data["of"] == of
    }
    assert sorted(found) == list(product((0, 1), range(len(KINDS))))
    return {(rank, KINDS[index]): tree for (rank, index), tree in found.items()}


def test_the_run_has_no_problems(ran: Launched) -> None:
    assert ran.run.problems == ()
    assert (ran.run.exit, ran.run.timed_out) == (0, False)
    for rank in (0, 1):
        assert ran.events(rank, "fault") == []
        assert [event.data["reason"] for event in ran.events(rank, "end")] == ["finished"]


def test_models_end_with_the_same_full_parameters_whatever_wraps_them(ran: Launched) -> None:
    found = {where: digests(tree) for where, tree in finals(ran, "model").items()}
    expected = found[0, "none"]
    assert set(expected) == {*PARAMETERS, "scale"}
    assert expected["embedding.weight"][:3] == ("float32", (11, 7), "Tensor")
    for where, names in found.items():
        assert names == expected, where


def test_optimizers_end_with_the_same_full_state_by_name(ran: Launched) -> None:
    found = {where: digests(tree) for where, tree in finals(ran, "optimizer").items()}
    expected = found[0, "none"]
    assert set(expected["state"]) == PARAMETERS
    assert set(expected["state"]["head.weight"]) == {"step", "exp_avg", "exp_avg_sq"}
    assert expected["state"]["head.weight"]["exp_avg"][1] == (3, 7)
    (group,) = expected["param_groups"].values()
    assert sorted(group["params"].values()) == sorted(map(repr, PARAMETERS))
    for where, state in found.items():
        assert state == expected, where


@pytest.mark.parametrize("kind", ["loss", "step"])
def test_losses_and_rates_are_those_of_the_training(ran: Launched, kind: str) -> None:
    for rank in (0, 1):
        events = [event.data for event in ran.events(rank, kind)]
        assert len(events) == 2 * len(KINDS)
        told = [(data.get("value"), data.get("lr")) for data in events]
        assert told == told[:2] * len(KINDS)
        assert told[0] != told[1]
    assert [event.data["lr"] for event in ran.events(0, "step")][:2] == [[0.25], [0.125]]


def test_norms_are_those_of_all_gradients_on_every_rank(ran: Launched) -> None:
    # Shards are added up in another order.
    told = [[float.fromhex(event.data["value"]) for event in ran.events(rank, "norm")] for rank in (0, 1)]
    assert told[0] == told[1]
    assert told[0] == pytest.approx(told[0][:2] * len(KINDS), rel=1e-6)
    assert told[0][0] != pytest.approx(told[0][1])


def test_what_is_saved_is_recorded_as_it_is_given_on_the_ranks_that_save(ran: Launched) -> None:
    saved = {
        rank: [(e.data["api"], e.data["path"], e.data["tree"]) for e in ran.events(rank, "save")] for rank in (0, 1)
    }
    assert [(api, path) for api, path, _ in saved[0]] == [
        ("torch.save", "none.pt"),
        ("torch.save", "ddp.pt"),
        ("dcp.save", "saved-flat"),
        ("dcp.save", "saved-fsdp2"),
    ]
    assert [api for api, *_ in saved[1]] == ["dcp.save", "dcp.save"]
    for number, (kind, (_, _, tree)) in product((0, 1), zip(("ShardedTensor", "DTensor"), saved[1])):
        weight = children(children(tree)["model"])["embedding.weight"]
        assert isinstance(weight, Tensor)
        assert (weight.kind, weight.shape, weight.pieces[0].offset) == (kind, (11, 7), (6, 0)), number
    files = {path.name for path in (ran.home.record / "tensors").iterdir()}
    assert f"{weight.pieces[0].digest}.bin" in files


def test_what_is_loaded_is_what_was_saved(ran: Launched) -> None:
    for rank in (0, 1):
        (loaded,) = ran.events(rank, "load")
        assert digests(loaded.data["tree"]) == digests(ran.events(rank, "save")[-1].data["tree"])
        assert (loaded.data["api"], loaded.data["path"]) == ("dcp.load", "saved-fsdp2")


def test_collectives_are_the_programs_own_and_the_same_on_all_ranks(ran: Launched) -> None:
    told = [[(e.data["kind"], e.data["numel"], e.at) for e in ran.events(rank, "collective")] for rank in (0, 1)]
    assert told[0] == told[1]
    gathers, scatters = (
        {e for e in told[0] if e[0].startswith(kind) and e[1]} for kind in ("all_gather_", "reduce_scatter")
    )
    assert gathers
    assert scatters
    # What is put together for the final state comes from no line of the program but the last one of `train`.
    destroys = next(n for n, line in enumerate(PROGRAM.read_text().splitlines(), 1) if "destroy_process_group" in line)
    assert destroys not in {at.line for *_, at in told[0] if at}


def test_places_are_lines_of_the_project(ran: Launched) -> None:
    (warned,) = [event for event in ran.events(0, "warning") if event.data["text"] == "at the end in out"]
    assert (warned.at.path, warned.at.line, warned.data["category"]) == ("program.py", LINE, "UserWarning")
    assert {event.data["files"]["program.py"] for event in ran.events(0, "covered")} == {frozenset([LINE - 1, LINE])}
    assert all(event.at and event.at.path == "program.py" for event in ran.events(1, "loss"))


CLIPPING = """
import torch, torch.distributed.checkpoint.state_dict

parts = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]
parameters = [parameter for part in parts for parameter in part.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
# It takes a step, which is none of the training.
torch.distributed.checkpoint.state_dict.get_optimizer_state_dict(torch.nn.Sequential(*parts), optimizer)
for _ in range(2):
    sum(part(torch.ones(2)).sum() for part in parts).backward()
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters])
    for part in parts:
        torch.nn.utils.clip_grads_with_norm_(part.parameters(), max_norm=1.0, total_norm=norm)
    optimizer.step()
    optimizer.zero_grad()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
"""


def test_a_norm_that_the_program_clips_to_part_by_part_is_recorded_once(tmp_path: Path) -> None:
    pytest.importorskip("torch", minversion="2.6")
    made = launched(tmp_path, CLIPPING, run=forked.run)
    assert (made.run.problems, made.run.steps) == ((), 2)
    norms = made.events(0, "norm")
    assert [float.fromhex(event.data["value"]) for event in norms] == [pytest.approx(12**0.5), 0.0] * 2
