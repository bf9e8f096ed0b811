from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_noop, check_transformed, lint

CODE = "FSDP702"
DCP = "import torch.distributed.checkpoint as dcp\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("dcp.save(state, writer)", "dcp.save(state, storage_writer=writer)"),
        ("dcp.load(state, make(path))", "dcp.load(state, storage_reader=make(path))"),
        ("dcp.state_dict_saver.save(state, w)", "dcp.state_dict_saver.save(state, storage_writer=w)"),
        ("dcp.save(state, w, planner=p)", "dcp.save(state, storage_writer=w, planner=p)"),
        ("x = dcp.save(\n    state,\n    w,  # here\n)", "x = dcp.save(\n    state,\n    storage_writer=w,  # here\n)"),
    ],
)
def test_the_storage_gets_its_keyword(before: str, after: str) -> None:
    check_transformed(f"{DCP}{before}\n", f"{DCP}{after}\n", CODE, torch=">=2.2")


def test_two_positions_warn_and_do_not_break() -> None:
    found = lint(f"{DCP}dcp.save(state, writer)\n", "FSDP", ">=2.3")
    assert [(one.code, one.severity) for one in found] == [(CODE, Severity.DEPRECATED)]


@pytest.mark.parametrize(
    "call",
    [
        "dcp.save(state, storage_writer=writer)",
        "dcp.save(state)",
        "dcp.save(*state)",
        "dcp.save(state, writer, coordinator_rank=0)",
        "dcp.save(state, writer, **options)",
        "dcp.async_save(state, writer)",
        "torch.save(state, path)",
        "model.save(state, path)",
    ],
)
def test_other_calls_are_left_alone(call: str) -> None:
    check_noop(f"import torch\n{DCP}{call}\n", CODE, torch=">=2.2")


def test_where_positions_are_the_only_order_nothing_is_said() -> None:
    check_noop(f"{DCP}dcp.save(state, writer)\n", CODE, torch=">=2.2,<2.3")


def test_what_newer_releases_reject_is_told_as_that() -> None:
    (found,) = lint(f"{DCP}dcp.save(state, writer, coordinator_rank=0)\n", "FSDP", ">=2.3")
    assert (found.code, found.severity) == ("FSDP500", Severity.BREAKS)
