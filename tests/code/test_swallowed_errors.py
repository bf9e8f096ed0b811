"""Errors that are caught and forgotten: they make a fix unsafe (FSDP101-105), and a legacy call a trap (FSDP110)."""

from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability
from tests.rules.checks import check_manual, check_noop, lint

HEAD = """\
import contextlib
import sys
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

MANY = (KeyError, RuntimeError)


def save(model, optim):
"""
CALL = "osd = FSDP.full_optim_state_dict(model, optim)"


def tried(handler: str) -> str:
    lines = f"try:\n    {CALL}\n{handler}\nreturn osd\n"
    return HEAD + "".join(f"    {line}\n" for line in lines.splitlines())


def is_unsafe(text: str) -> bool:
    """Whether the fix is unsafe because of a handler."""
    (found,) = lint(text, "FSDP101")
    unsafe = found.applicability is Applicability.UNSAFE
    assert unsafe is ("does not restore the type then" in (found.reason or ""))
    return unsafe


@pytest.mark.parametrize(
    "caught",
    [
        "Exception",
        "BaseException",
        "RuntimeError",
        "(OSError, ValueError)",
        "KeyError as error",
        "MANY",
        "torch.cuda.OutOfMemoryError",
        "torch.OutOfMemoryError",
        "torch.distributed.DistBackendError",
    ],
)
def test_a_handler_that_goes_on_makes_the_fix_unsafe(caught: str) -> None:
    assert is_unsafe(tried(f"except {caught}:\n    osd = None"))
    assert not is_unsafe(tried(f"except {caught}:\n    log()\n    raise"))


@pytest.mark.parametrize("caught", ["OSError", "KeyboardInterrupt", "StopIteration", "(OSError, EOFError)"])
def test_a_handler_for_what_cannot_happen_there_does_not_matter(caught: str) -> None:
    assert not is_unsafe(tried(f"except {caught}:\n    osd = None"))


@pytest.mark.parametrize(
    ("body", "goes_on"),
    [
        ("pass", True),
        ("return None", True),
        ("raise", False),
        ("raise SystemExit from None", False),
        ("sys.exit(1)", False),
        ("if model:\n        raise\n    else:\n        sys.exit()", False),
        ("if model:\n        raise", True),
        ("if model:\n        raise\n    else:\n        pass", True),
        ("with lock:\n        raise", False),
        ("raise\n    pass", True),
    ],
)
def test_a_handler_goes_on_unless_it_ends_by_raising_or_leaving(body: str, goes_on: bool) -> None:
    assert is_unsafe(tried(f"except Exception:\n    {body}")) is goes_on


@pytest.mark.parametrize(
    ("around", "goes_on"),
    [
        ("with contextlib.suppress(RuntimeError):", True),
        ("with contextlib.suppress(OSError):", False),
        ("with contextlib.suppress(OSError, Exception):", True),
        ("with lock, contextlib.suppress(Exception):", True),
        ("with suppress(Exception):", False),
        ("for model in models:", False),
    ],
)
def test_what_suppress_catches_is_forgotten(around: str, goes_on: bool) -> None:
    assert is_unsafe(f"{HEAD}    {around}\n        {CALL}\n") is goes_on


@pytest.mark.parametrize(("end", "goes_on"), [("return None", True), ("close()", False), ("osd = 1", False)])
def test_a_finally_that_leaves_the_function_forgets_the_error(end: str, goes_on: bool) -> None:
    assert is_unsafe(tried(f"finally:\n    {end}")) is goes_on


def test_only_the_body_of_a_try_in_the_same_function_counts() -> None:
    handler = "except Exception:\n        pass\n"
    assert not is_unsafe(f"{HEAD}    try:\n        pass\n    {handler}    else:\n        {CALL}\n")
    assert not is_unsafe(f"{HEAD}    try:\n        pass\n    except Exception:\n        {CALL}\n")
    assert not is_unsafe(f"{HEAD}    try:\n        def inner():\n            {CALL}\n    {handler}")
    assert is_unsafe(
        f"{HEAD}    try:\n        try:\n            {CALL}\n        except OSError:\n            pass\n    {handler}"
    )


@pytest.mark.parametrize("caught", ["RuntimeError", "Exception", "TypeError", "AttributeError", "NotImplementedError"])
def test_a_legacy_call_whose_error_is_swallowed_is_reported(caught: str) -> None:
    check_manual(tried(f"except {caught}:\n    osd = None"), "FSDP110", "do not catch this error")
    check_noop(tried(f"except {caught}:\n    raise"), "FSDP110")


@pytest.mark.parametrize("caught", ["KeyError", "OSError", "ValueError"])
def test_a_handler_that_the_legacy_error_passes_is_left_alone(caught: str) -> None:
    check_noop(tried(f"except {caught}:\n    osd = None"), "FSDP110")


@pytest.mark.parametrize(
    "statement",
    [
        "FSDP.optim_state_dict_to_load(model, optim, osd)",
        "flat = FSDP.optim_state_dict_to_load(model, optim, osd)",
        "FSDP.shard_full_optim_state_dict(osd, model)",
        "FSDP.optim_state_dict_to_load(model, optim, osd, load_directly=False)",
        "FSDP.optim_state_dict_to_load(model, optim, osd, False, False)",
    ],
)
def test_a_converted_state_that_nothing_uses_is_reported(statement: str) -> None:
    check_manual(f"{HEAD}    {statement}\n", "FSDP111", "call `optimizer.load_state_dict(...)` with it")


@pytest.mark.parametrize(
    "statement",
    [
        "return FSDP.optim_state_dict_to_load(model, optim, osd)",
        "optim.load_state_dict(FSDP.optim_state_dict_to_load(model, optim, osd))",
        "flat = FSDP.optim_state_dict_to_load(model, optim, osd)\n    keep(flat)",
        "self.flat = FSDP.optim_state_dict_to_load(model, optim, osd)",
        "FSDP.optim_state_dict_to_load(model, optim, osd, load_directly=True)",
        "FSDP.optim_state_dict_to_load(model, optim, osd, load_directly=flag)",
        "FSDP.optim_state_dict_to_load(model, optim, osd, False, flag)",
        "FSDP.optim_state_dict(model, optim)",
        "other.optim_state_dict_to_load(a, b)",
    ],
)
def test_a_state_that_goes_somewhere_is_left_alone(statement: str) -> None:
    check_noop(f"{HEAD}    {statement}\n", "FSDP111")
