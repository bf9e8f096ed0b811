"""The harness catches what it is there to catch, says what it was, and goes on."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsdp_migrate.verify import RunSettings, find_fixtures, verify
from tests.verify.misbehaving import CHANGING, ENDING
from tests.verify.programs import ALIKE, DIFFERENT, FAILING, FINE, HANGING, Caught


def judge_all(programs: list[Caught], folder: Path, timeout: float) -> dict[str, tuple[str, str]]:
    """Verdict and detail of each pair, all from one launch; use_orig_params=True only, to be quick."""
    for program in programs:
        case = folder / program.name
        case.mkdir()
        for name, text in program.files().items():
            (case / name).write_text(text.replace("# expect", "# needs: use_orig_params=True\n# expect"))
    outcome = verify(find_fixtures([folder]), RunSettings(device="cpu", timeout=timeout))
    if outcome.errors:
        pytest.skip(outcome.errors[0])
    ran = [result for result in outcome.results if result.axis.use_orig_params]
    return {r.fixture.before.parent.name: (r.verdict.value, r.judgement.detail) for r in ran}


ALL = [*DIFFERENT, *ALIKE, *FAILING, *CHANGING, *ENDING, FINE]


@pytest.fixture(scope="module")
def judged() -> Iterator[dict[str, tuple[str, str]]]:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        found = judge_all(ALL, Path(one), timeout=30)
        yield {**judge_all([*HANGING, FINE], Path(other), timeout=8), **found}


@pytest.mark.parametrize("program", [*ALL, *HANGING], ids=lambda program: program.name)
def test_a_program_gets_its_verdict_and_message(program: Caught, judged: dict[str, tuple[str, str]]) -> None:
    verdict, detail = judged[program.name]
    assert verdict == program.verdict, detail
    assert re.search(program.message, detail), detail
