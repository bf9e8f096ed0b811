from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from fsdp_migrate.torch_api import RELEASES
from fsdp_migrate.torch_api.data import signature
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

COMPOSABLE = "from torch.distributed._composable import checkpoint\n"
MODULE = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
WRAP = f"from functools import partial\nfrom {MODULE} import CheckpointImpl, checkpoint_wrapper\n"


def test_the_data_agrees_with_the_cards() -> None:
    for release in RELEASES:
        known = signature("torch.distributed._composable.checkpoint", release) or ()
        if (2, 0) <= release.release[:2] <= (2, 4):
            assert any(one.name == "use_reentrant" for one in known) is (release.release[:2] == (2, 0))
        wrapper = {one.name: one.default for one in signature(f"{MODULE}.checkpoint_wrapper", release) or ()}
        if release.release[:2] >= (1, 12):
            wanted = "NO_REENTRANT" if release.release[:2] >= (2, 2) else "REENTRANT"
            assert wrapper["checkpoint_impl"] == f"CheckpointImpl.{wanted}"


def test_what_is_so_anyway_since_2_1_is_dropped() -> None:
    check_transformed(f"{COMPOSABLE}checkpoint(m, use_reentrant=False)\n", f"{COMPOSABLE}checkpoint(m)\n", "FSDP835")
    check_manual(f"{COMPOSABLE}checkpoint(m, use_reentrant=False)\n", "FSDP835", "needs torch>=2.1", torch=">=2.0")


@pytest.mark.parametrize("value", ["True", "flag"])
def test_a_reentrant_form_is_manual(value: str) -> None:
    text = f"{COMPOSABLE}checkpoint(m, use_reentrant={value})\n"
    check_manual(text, "FSDP835", "no reentrant implementation")
    assert [finding.severity for finding in lint(text, "FSDP835")] == [Severity.BREAKS]
    check_noop(text, "FSDP835", torch=">=2.0,<2.1")


def test_the_default_of_torch_2_0_is_another_one() -> None:
    (finding,) = lint(f"{COMPOSABLE}checkpoint(m)\n", "FSDP835", ">=2.0")
    assert finding.severity is Severity.CHANGES


def test_other_functions_of_the_name_are_left_alone() -> None:
    check_noop("from torch.utils.checkpoint import checkpoint\ncheckpoint(f, x, use_reentrant=False)\n", "FSDP835")
    check_noop(f"{COMPOSABLE}checkpoint(m, **options)\n", "FSDP835")


@pytest.mark.parametrize("call", ["checkpoint_wrapper(m)", "partial(checkpoint_wrapper, preserve_rng_state=False)"])
def test_torchs_own_choice_is_a_hint_where_it_changed(call: str) -> None:
    check_manual(f"{WRAP}f = {call}\n", "FSDP836", "for the same behaviour on all releases", torch=">=2.1")
    check_noop(f"{WRAP}f = {call}\n", "FSDP836", torch=">=2.2")


@pytest.mark.parametrize(
    "choose",
    [
        "f = checkpoint_wrapper(m, CheckpointImpl.REENTRANT if old else CheckpointImpl.NO_REENTRANT)\n",
        "f = partial(checkpoint_wrapper, checkpoint_impl={True: CheckpointImpl.REENTRANT}[old])\n",
        "kind = CheckpointImpl.REENTRANT if old else new\ncheckpoint_wrapper(m, kind)\ncheckpoint_wrapper(n, kind)\n",
    ],
)
def test_an_implementation_that_may_be_the_one_that_warned_is_told_once_where_it_is_written(choose: str) -> None:
    (found,) = lint(f"{WRAP}{choose}", "FSDP836", ">=2.6")
    assert (found.severity, found.line) == (Severity.HINT, 3)
    check_noop(f"{WRAP}kind = CheckpointImpl.NO_REENTRANT\nf = checkpoint_wrapper(m, kind)\n", "FSDP836")


@pytest.mark.parametrize("form", ["CheckpointImpl.REENTRANT", "CheckpointImpl['REENTRANT']"])
@pytest.mark.parametrize("call", ["checkpoint_wrapper(m, {0})", "partial(checkpoint_wrapper, checkpoint_impl={0})"])
def test_the_form_that_warned_is_deprecated_only_where_the_newest_warns(call: str, form: str) -> None:
    text = f"{WRAP}f = {call.format(form)}\n"
    assert [finding.severity for finding in lint(text, "FSDP836", ">=2.1")] == [Severity.HINT]
    assert [finding.severity for finding in lint(text, "FSDP836", ">=2.1,<2.11")] == [Severity.DEPRECATED]
    check_noop(text, "FSDP836", torch=">=2.11")


def test_the_implementation_may_come_from_a_dict() -> None:
    given = 'kw = {"checkpoint_impl": CheckpointImpl.REENTRANT}\nf = checkpoint_wrapper(m, **kw)\n'
    (found,) = lint(f"{WRAP}{given}", "FSDP836", ">=2.1,<2.11")
    assert (found.severity, found.line) == (Severity.DEPRECATED, 3)
    check_noop(f"{WRAP}kw = {{}}\nkw['checkpoint_impl'] = new\nf = checkpoint_wrapper(m, **kw)\n", "FSDP836")


@pytest.mark.parametrize("call", ["checkpoint_wrapper(m, checkpoint_fn=f)", "checkpoint_wrapper(m, **kw)", "other(m)"])
def test_calls_that_leave_nothing_to_torch_are_left_alone(call: str) -> None:
    check_noop(f"{WRAP}f = {call}\n", "FSDP836")
    check_noop(f"{WRAP}f = checkpoint_wrapper(m, CheckpointImpl.NO_REENTRANT)\n", "FSDP836")


@pytest.mark.parametrize("call", ["checkpoint_wrapper(m, {0}, f)", "partial(checkpoint_wrapper, m, {0}, f)"])
def test_the_form_does_not_count_where_another_function_checkpoints(call: str) -> None:
    check_noop(f"{WRAP}f = {call.format('CheckpointImpl.REENTRANT')}\n", "FSDP836")
    two = call.format("CheckpointImpl.REENTRANT").replace(", f)", ")")
    assert len(lint(f"{WRAP}f = {two}\n", "FSDP836")) == 1
