"""Which optimizer a converted state dict belongs to."""

from __future__ import annotations

import pytest

from fsdp_migrate.planning.rewriting import rewrite_source
from tests.rules.checks import check_manual

FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
CONVERTED = "FSDP.shard_full_optim_state_dict(osd, model)"


def load(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"{FSDP}\n\ndef load(osd, model, other, a, b):\n{lines}"


def is_taken(optimizer: str, body: str) -> bool:
    """Whether the rewritten call gets the optimizer."""
    new = f"FSDP.optim_state_dict_to_load(model=model, optim={optimizer}, optim_state_dict=osd)"
    return new in rewrite_source(load(body)).source


@pytest.mark.parametrize(
    "pair",
    [
        "FSDP.optim_state_dict(model, a)",
        "FSDP.optim_state_dict_to_load(model, a, b)",
        "FSDP.full_optim_state_dict(model, a)",
        "FSDP.sharded_optim_state_dict(model, a)",
        "FSDP.flatten_sharded_optim_state_dict(b, model, a)",
        "FSDP.scatter_full_optim_state_dict(b, model, None, a)",
        "FSDP.rekey_optim_state_dict(b, kind, model, None, a)",
        "FSDP.optim_state_dict(optim=a, model=model)",
        "model = wrap(model)\nFSDP.optim_state_dict(model, a)",
        "copy = model\nFSDP.optim_state_dict(copy, a)",
    ],
)
def test_another_call_of_fsdp_pairs_the_model_with_its_optimizer(pair: str) -> None:
    assert is_taken("a", f"{pair}\nreturn {CONVERTED}")


@pytest.mark.parametrize(
    "pair",
    [
        "FSDP.optim_state_dict(other, a)",
        "FSDP.optim_state_dict(a, model)",
        "other.optim_state_dict(model, a)",
        "FSDP.optim_state_dict(model, a)\nmodel = wrap(model)",
        "def inner():\n    FSDP.optim_state_dict(model, a)",
    ],
)
def test_a_call_about_something_else_pairs_nothing(pair: str) -> None:
    check_manual(load(f"{pair}\nreturn {CONVERTED}"), "FSDP103", "`load` has no visible optimizer")


@pytest.mark.parametrize(
    "body",
    [
        f"a.load_state_dict({CONVERTED})",
        f"a.load_state_dict(state_dict={CONVERTED})",
        f"s = {CONVERTED}\na.load_state_dict(s)",
        f"s = {CONVERTED}\nprint(s)\na.load_state_dict(s)\ns = b\nb.load_state_dict(s)",
        f"a.load_state_dict(s := {CONVERTED})",
        f"if (s := {CONVERTED}):\n    a.load_state_dict(s)",
        f"s = t = {CONVERTED}\na.load_state_dict(t)",
    ],
)
def test_what_the_result_is_loaded_into_gets_it(body: str) -> None:
    assert is_taken("a", body)


@pytest.mark.parametrize("display", ["{{'optim': {}}}", "({}, b)", "[{}]", "{{'a': ({}, b)}}"])
def test_a_result_that_is_returned_in_a_display_goes_nowhere_else(display: str) -> None:
    assert is_taken("a", f"FSDP.optim_state_dict(model, a)\nreturn {display.format(CONVERTED)}")
    assert is_taken("a", f"FSDP.optim_state_dict(model, a)\ns = {CONVERTED}\nreturn {display.format('s')}")
    check_manual(
        load(f"FSDP.optim_state_dict(model, a)\nkeep({display.format(CONVERTED)})"), "FSDP103", "no visible optimizer"
    )


def test_the_optimizer_that_is_passed_is_taken_whatever_it_is_called() -> None:
    call = "FSDP.scatter_full_optim_state_dict(osd, model, None, {})"
    assert is_taken("other", f"return {call.format('other')}")
    assert is_taken("other", f"s = {call.format('other')}\nother.load_state_dict(s)")
    assert is_taken("other.optimizer", f"s = {call.format('other.optimizer')}\na.load_state_dict(s)")
    text = load(f"s = {call.format('other')}\na.load_state_dict(s)")
    check_manual(text, "FSDP104", "is loaded into `a`, not into `other`")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"s = {CONVERTED}\na.load_state_dict(s)\nb.load_state_dict(s)", "several optimizers are possible"),
        (f"s = {CONVERTED}\ns = b\na.load_state_dict(s)", "`load` has no visible optimizer"),
        (f"return a.load_state_dict(b, {CONVERTED})", "`load` has no visible optimizer"),
        (f"return a.add({CONVERTED})", "`load` has no visible optimizer"),
        (
            f"s = {CONVERTED}\ns = FSDP.optim_state_dict_to_load(model, a, s)\na.load_state_dict(s)",
            "goes through `optim_state_dict_to_load`",
        ),
        (f"make().load_state_dict({CONVERTED})", "assign that to a variable before this call"),
        (f"model.load_state_dict({CONVERTED})", "which has no optimizer state"),
        (f"FSDP.optim_state_dict(model, a)\nkeep({CONVERTED})", "`load` has no visible optimizer"),
        (f"FSDP.optim_state_dict(model, a)\nFSDP.optim_state_dict(model, b)\nreturn {CONVERTED}", "several optimizers"),
    ],
)
def test_where_it_is_not_certain_which_one_is_meant_the_finding_is_manual(body: str, reason: str) -> None:
    check_manual(load(body), "FSDP103", reason)
