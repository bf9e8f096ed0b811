"""Whole training programs: rewritten they do the same, and one planted fault each is caught where it arises.

Each version is launched once, on two ranks; that of before is shared.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from fsdp_migrate import rewrite_source
from fsdp_migrate.prove import changes, compare, report, verdicts
from fsdp_migrate.prove.compare import Changed, Phase
from fsdp_migrate.prove.verdicts import Conclusion
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.verify.verdicts import Verdict
from tests.prove import forked
from tests.prove.launched import Launched, launched

pytest.importorskip("torch")

PROGRAMS = Path(__file__).parent / "programs"
KEEP = 10**8
Start = Callable[..., Launched]


def old(name: str) -> str:
    return (PROGRAMS / f"{name}.py").read_text()


@cache
def new(name: str) -> str:
    rewritten = rewrite_source(old(name), torch=TorchRange.parse(">=2.6"))
    assert rewritten.fixed
    assert not rewritten.left
    return rewritten.source


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Launches a text, from a copy of a folder that an earlier launch left."""

    def start(text: str, *words: str, left: Path | None = None, **plan: object) -> Launched:
        folder = tmp_path_factory.mktemp("launch")
        if left is not None:
            shutil.copytree(left, folder / "tree" / left.name)
        return launched(folder, text, *words, nproc=2, run=forked.run, keep=KEEP, **plan)

    return start


@pytest.fixture(scope="module")
def before(start: Start) -> Callable[[str], Launched]:
    """The first launch of a program as it was."""
    return cache(lambda name: start(old(name)))


@pytest.fixture(scope="module")
def resumed(start: Start, before: Callable[[str], Launched]) -> Callable[[str], Launched]:
    """A second start of the recipe, from the checkpoint of the first one."""
    left = before("recipe").home.copy / "checkpoints"
    return cache(lambda text: start(text, "--resume", left=left))


def concluded(one: Launched, other: Launched, changed: Changed | None = None, **phase: bool) -> Conclusion:
    return verdicts.judge(compare.compare([Phase("training", one.run, None, other.run, **phase)], changed))


@pytest.mark.parametrize("name", ["recipe", "events", "strategy", "accelerator"])
def test_a_rewritten_program_does_the_same(
    name: str, start: Start, before: Callable[[str], Launched], tmp_path: Path
) -> None:
    for side, text in (("old", old(name)), ("new", new(name))):
        (tmp_path / side).mkdir()
        (tmp_path / side / "program.py").write_text(text)
    _, lines = changes.changed_lines(tmp_path / "old", tmp_path / "new")
    after = start(new(name), lines=lines)
    changed = Changed({}, {path: frozenset(numbers) for path, numbers in lines.items()})
    conclusion = concluded(before(name), after, changed)
    assert conclusion.verdict is Verdict.SAME, report.as_text(conclusion)
    found = conclusion.comparison.phases[0]
    assert found.counts["loss"] == (12 if name == "recipe" else 6)
    assert {"norm", "step", "save", "final"} <= set(found.counts)
    assert conclusion.comparison.coverage.ran


def test_a_rewritten_program_goes_on_from_the_same_checkpoint(resumed: Callable[[str], Launched]) -> None:
    conclusion = concluded(resumed(old("recipe")), resumed(new("recipe")), resumes=True)
    assert conclusion.verdict is Verdict.SAME, report.as_text(conclusion)
    assert conclusion.comparison.phases[0].counts["load"] == 2


@dataclass(frozen=True)
class Fault:
    """A change of the rewritten program; in `told`, {before} and {after} are the lines of `marker`."""

    program: str
    change: tuple[str, str]
    told: str
    marker: str
    verdict: Verdict = Verdict.DIFFERS
    resumes: bool = False

    @property
    def text(self) -> str:
        assert new(self.program).count(self.change[0]) == 1
        return new(self.program).replace(*self.change)

    @property
    def expected(self) -> str:
        places = {side: f"program.py:{self._line(text)}" for side, text in self._sides.items()}
        return self.told.format(**places)

    @property
    def _sides(self) -> dict[str, str]:
        return {"before": old(self.program), "after": self.text}

    def _line(self, text: str) -> int:
        return text[: text.find(self.marker)].count("\n") + 1


FAULTS = {
    "rank0_only flipped": Fault(
        "events",
        ("FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=False)", "FullOptimStateDictConfig(True, True)"),
        "after step 3, rank 1, saved file ep0-ba3-rank1.pt: keys of state.optimizers.SGD, only before: state, "
        "param_groups at {after} (before: {before})",
        "torch.save(",
    ),
    "no clipping": Fault(
        "recipe",
        ("            model.clip_grad_norm_(config.max_norm)\n", ""),
        "step 1, rank 0, gradient norm: only before at {before}",
        "model.clip_grad_norm_",
    ),
    "a key renamed": Fault(
        "recipe",
        ('{"model": weights, "optimizer": state', '{"model": weights, "optim": state'),
        "after step 2, rank 0, saved file last.pt: keys, only before: optimizer; only after: optim "
        "at {after} (before: {before})",
        "torch.save(",
    ),
    "a collective on rank 0": Fault(
        "accelerator",
        ("        losses = accelerator.gather(loss)\n        print",
         "        if accelerator.is_main_process:\n            losses = accelerator.gather(loss)\n            print"),
        "collective 10 of the group of ranks 0, 1: rank 0: all_gather_into_tensor of float32[1] at {after}; "
        "rank 1: all_gather at program.py:",
        "dist.all_gather_into_tensor",
        Verdict.DESYNC,
    ),
    "a forgotten load": Fault(
        "recipe",
        ("    optimizer.load_state_dict(optim_state_to_load)\n", ""),
        "step 1, rank 0, learning rates: group 0, 0.005 -> 0.01, difference 0.005 at {after} (before: {before})",
        "optimizer.step()",
        resumes=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_a_planted_fault_is_named_where_it_arises(
    fault: Fault, start: Start, before: Callable[[str], Launched], resumed: Callable[[str], Launched]
) -> None:
    if fault.resumes:
        conclusion = concluded(resumed(old(fault.program)), resumed(fault.text), resumes=True)
    else:
        conclusion = concluded(before(fault.program), start(fault.text))
    assert conclusion.verdict is fault.verdict, report.as_text(conclusion)
    assert conclusion.detail.splitlines()[0].startswith(fault.expected)


def test_an_optimizer_from_before_the_wrap_is_named_by_the_first_loss_that_it_did_not_move(
    start: Start, before: Callable[[str], Launched]
) -> None:
    text = new("accelerator")
    text = text.replace(
        "        policy =", "        optimizer = optimizer_class(model.parameters(), **options)\n        policy ="
    )
    text = text.replace("return model, optimizer_class(model.parameters(), **options)", "return model, optimizer")
    conclusion = concluded(before("accelerator"), start(text))
    # Torch looks for its parameters only where the state is saved.
    assert conclusion.verdict is Verdict.CRASH
    first, earlier, *_ = conclusion.detail.splitlines()
    assert "KeyError: Parameter containing:" in first
    assert earlier.startswith("before that: step 2, rank 0, loss: 0.63")
