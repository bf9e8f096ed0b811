from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

NIGHTLY, ATTEMPT = "FSDP615", "FSDP691"
OLD, NEW = "torch.distributed._fsdp", "torch.distributed.fsdp"


@pytest.mark.parametrize(
    "text",
    [
        "from {} import FullyShardedDataParallel as FSDP, CPUOffload\n",
        "from {}.fully_sharded_data_parallel import (\n    FullyShardedDataParallel as FSDP,  # the class\n)\n",
        "from {}.wrap import enable_wrap, wrap\n",
        "import {} as fsdp\n",
        "import {}.wrap as wrapping\n",
    ],
)
def test_the_package_of_nightlies_is_replaced_by_the_released_one(text: str) -> None:
    for torch in (">=1.13", ">=2.1"):
        check_transformed(text.format(OLD), text.format(NEW), NIGHTLY, torch=torch)
    (found,) = lint(text.format(OLD), NIGHTLY)
    assert found.severity is Severity.BREAKS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"from {OLD}.utils import chunk_and_pad\n", "find its successor"),
        (f"from {OLD}.flatten_params_wrapper import FlattenParamsWrapper\n", "find its successor"),
        (f"import {OLD}.wrap\n", f"import it from `{NEW}`"),
        ("from torch.distributed import _fsdp\n", f"import it from `{NEW}`"),
        (f"import os, {OLD} as fsdp\n", f"import it from `{NEW}`"),
    ],
)
def test_what_the_released_package_lacks_or_is_written_otherwise_is_manual(text: str, reason: str) -> None:
    check_manual(text, NIGHTLY, reason)


def test_an_attempt_at_the_package_of_nightlies_has_never_succeeded() -> None:
    text = "try:\n    from {} import FullyShardedDataParallel as FSDP\nexcept ImportError:\n    FSDP = None\n"
    check_transformed(text.format(OLD), text.format(NEW), NIGHTLY, unsafe=True)
    (found,) = lint(text.format(OLD), "FSDP")
    assert (found.code, found.severity) == (NIGHTLY, Severity.CHANGES)


CHECKPOINT = "torch.distributed.algorithms._checkpoint"


def attempt(body: str, handler: str) -> str:
    return f"import torch.distributed\ntry:\n    {body}\nexcept ImportError:\n    {handler}\nuse(wrapper)\n"


def test_an_attempt_that_no_supported_torch_lets_succeed_is_told_with_the_new_place() -> None:
    text = attempt(f"from {CHECKPOINT}._checkpoint_wrapper import checkpoint_wrapper as wrapper", "wrapper = None")
    check_manual(text, ATTEMPT, f"`{CHECKPOINT}.checkpoint_wrapper.checkpoint_wrapper`: import that")
    (found,) = lint(text, "FSDP")
    assert (found.code, found.severity, found.line) == (ATTEMPT, Severity.CHANGES, 3)
    assert "the handler at line 4 runs on every supported torch" in found.message
    check_noop(text, ATTEMPT, torch=">=1.11")


def test_without_another_place_it_is_a_hint() -> None:
    name = "_clear_grads_if_needed"
    text = attempt(f"from torch.distributed.fsdp._runtime_utils import {name} as wrapper", "wrapper = None")
    check_manual(text, ATTEMPT, "remove the `try`", torch=">=2.1")
    assert [one.severity for one in lint(text, ATTEMPT, ">=2.1")] == [Severity.HINT]
    check_noop(text, ATTEMPT, torch=">=2.0")


@pytest.mark.parametrize(
    ("body", "handler"),
    [
        (
            f"from {CHECKPOINT}._checkpoint_wrapper import checkpoint_wrapper as wrapper",
            f"from {CHECKPOINT}.checkpoint_wrapper import checkpoint_wrapper as wrapper",
        ),
        (f"from {CHECKPOINT}.checkpoint_wrapper import checkpoint_wrapper as wrapper", "wrapper = None"),
        (f"from {CHECKPOINT}._checkpoint_wrapper import checkpoint_wrapper", "wrapper = None"),
        ("from torch.distributed.fsdp import not_there as wrapper", "wrapper = None"),
        ("from fairscale.nn import checkpoint_wrapper as wrapper", "wrapper = None"),
    ],
)
def test_old_places_behind_new_ones_probes_and_other_names_are_left_alone(body: str, handler: str) -> None:
    check_noop(attempt(body, handler), ATTEMPT)


def test_what_is_new_in_a_later_torch_is_no_dead_attempt() -> None:
    text = attempt("from torch.distributed.fsdp import fully_shard as wrapper", "wrapper = None")
    check_noop(text, ATTEMPT, torch=">=2.1,<2.4")


def test_a_handler_that_raises_leaves_it_to_the_other_rules() -> None:
    text = attempt(f"from {CHECKPOINT}._checkpoint_wrapper import checkpoint_wrapper as wrapper", "raise")
    check_noop(text, ATTEMPT)
