from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability, Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"


def rekey(arguments: str) -> str:
    return (
        f"{FSDP}\n\ndef load(model, osd, kind, params, optim):\n    return FSDP.rekey_optim_state_dict({arguments})\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("osd, kind, model, optim_input={}, optim=optim", "osd, kind, model, optim=optim"),
        ("osd, kind, model, {}, optim", "osd, kind, model, optim=optim"),
        (
            "osd, kind, model, {},  # order\n        optim",
            "osd, kind, model,\n        # order\n        optim=optim",
        ),
    ],
)
@pytest.mark.parametrize("given", ["params", "model.parameters()", "other.param_groups"])
def test_the_argument_goes_where_the_optimizer_is_passed(before: str, after: str, given: str) -> None:
    safe = rekey(before.format("optim.param_groups"))
    check_transformed(safe, rekey(after), "FSDP106")
    check_transformed(rekey(before.format(given)), rekey(after), "FSDP106", unsafe=True)
    (found,) = lint(rekey(before.format(given)), "FSDP106")
    assert found.reason == f"torch uses the order of `{given}`: the ids change if the optimizer has another order"


def test_what_the_optimizer_is_built_from_has_its_order() -> None:
    text = (
        f"{FSDP}from torch.optim import AdamW\n\n\ndef load(model, osd, kind):\n    optim = AdamW({{}}, lr=1.0)\n"
        "    return FSDP.rekey_optim_state_dict(osd, kind, model{}, optim=optim)\n"
    )
    given = "model.parameters()"
    check_transformed(text.format(given, f", optim_input={given}"), text.format(given, ""), "FSDP106")
    (found,) = lint(text.format("groups(model)", f", optim_input={given}"), "FSDP106")
    assert found.applicability is Applicability.UNSAFE


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("osd, kind, model, params", "torch assumes the order of `model.parameters()`"),
        ("osd, kind, model, params, None", "torch assumes the order of `model.parameters()`"),
        ("osd, kind, model, build(params), optim", "`build(params)` would no longer be evaluated"),
    ],
)
def test_what_the_argument_may_be_needed_for_is_manual(arguments: str, reason: str) -> None:
    check_manual(rekey(arguments), "FSDP106", reason)


@pytest.mark.parametrize("rest", ["", ", optim=optim", ", *params", ", optim=optim, optim_input=None", ", None, optim"])
def test_calls_without_it_are_left_alone(rest: str) -> None:
    check_noop(rekey(f"osd, kind, model{rest}"), "FSDP106")


def test_a_legacy_call_that_is_rewritten_loses_it_there() -> None:
    text = f"{FSDP}\n\ndef save(model, optim, params):\n    {{}}FSDP.full_optim_state_dict(model, optim, params)\n"
    check_noop(text.format("return "), "FSDP106")
    (found,) = lint(text.format("return lambda: "), "FSDP106")
    assert found.severity is Severity.DEPRECATED
