"""Every bundled fixture does the same before and after rewriting, on 2 ranks (more where its header needs them)."""

from __future__ import annotations

import pytest

from fsdp_migrate.verify import Fixture, Result, RunSettings, find_fixtures, verify
from fsdp_migrate.verify.axes import Axis, points
from fsdp_migrate.verify.harness import DEFAULT_WORLD

FIXTURES = find_fixtures()
CASES = [(fixture, axis) for fixture in FIXTURES for axis in points(max(DEFAULT_WORLD, fixture.header.world))]


@pytest.fixture(scope="module")
def results() -> dict[tuple[Fixture, Axis], Result]:
    """All fixtures in one launch per world size; torch is imported by its processes, never by the tests."""
    outcome = verify(FIXTURES, RunSettings(device="cpu"))
    if outcome.errors:
        pytest.skip(outcome.errors[0])
    return {(result.fixture, result.axis): result for result in outcome.results}


@pytest.mark.parametrize(
    ("fixture", "axis"),
    CASES,
    ids=[f"{fixture.name}-{'original' if axis.use_orig_params else 'flat'}" for fixture, axis in CASES],
)
def test_a_fixture_is_fine_on_every_rank(
    fixture: Fixture, axis: Axis, results: dict[tuple[Fixture, Axis], Result]
) -> None:
    judgement = results[fixture, axis].judgement
    assert judgement.verdict.fine, f"{judgement.verdict.value}: {judgement.detail}"


def test_a_fixture_that_saves_and_loads_is_fine_on_four_ranks_in_every_configuration() -> None:
    (fixture,) = [one for one in FIXTURES if one.name == "shard-full-optim-state-dict/paired-with-a-save"]
    outcome = verify([fixture], RunSettings(nproc=4, device="cpu", full=True))
    if outcome.errors:
        pytest.skip(outcome.errors[0])
    told = [f"{r.verdict.value} {r.axis}: {r.judgement.detail}" for r in outcome.results]
    assert len(told) == 16
    assert [line for line in told if not line.startswith("SAME ")] == []
    assert all(result.checked >= 3 for result in outcome.results)
