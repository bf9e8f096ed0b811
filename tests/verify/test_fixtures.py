"""Every bundled fixture does the same before and after rewriting, on 2 ranks (more where its header needs them)."""

from __future__ import annotations

import pytest

from fsdp_migrate.verify import Fixture, LaneError, Result, Settings, find_fixtures, verify
from fsdp_migrate.verify.axes import Axis, points
from fsdp_migrate.verify.harness import DEFAULT_WORLD

CASES = [(fixture, axis) for fixture in find_fixtures() for axis in points(max(DEFAULT_WORLD, fixture.header.world))]


@pytest.fixture(scope="module")
def results() -> dict[tuple[Fixture, Axis], Result]:
    """All fixtures in one launch per world size; torch is imported by its processes, never by the tests."""
    try:
        outcome = verify(find_fixtures(), Settings(device="cpu"))
    except LaneError as error:
        pytest.skip(str(error))
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
