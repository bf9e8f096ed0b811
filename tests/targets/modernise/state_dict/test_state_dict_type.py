from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

IMPORT = """\
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    StateDictType,
)
"""
CONFIG = "FullOptimStateDictConfig(offload_to_cpu=True, rank0_only={})"


def inside(arguments: str, body: str = "FSDP.optim_state_dict(model, optim)") -> str:
    return f"""{IMPORT}
def f(model, optim, config, flag, stack):
    with FSDP.state_dict_type({arguments}):
        return {body}
"""


FULL = "model, StateDictType.FULL_STATE_DICT"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FullStateDictConfig(rank0_only=True)", "True"),
        ("FullStateDictConfig(True, True)", "True"),
        ("FullStateDictConfig(offload_to_cpu=True, rank0_only=flag)", "flag"),
        ("state_dict_config=FullStateDictConfig(rank0_only=not flag)", "not flag"),
    ],
)
def test_the_optimizer_config_mirrors_the_models(before: str, after: str) -> None:
    check_transformed(
        inside(f"{FULL}, {before}"),
        inside(f"{FULL}, {before}, optim_state_dict_config={CONFIG.format(after)}"),
        "FSDP201",
        unsafe=True,
    )


def test_a_config_behind_a_name_is_followed() -> None:
    text = (
        IMPORT
        + """
policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)

def f(model, optim):
    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, policy{})
    return FSDP.optim_state_dict_to_load(model, optim, {{}})
"""
    )
    check_transformed(
        text.format(""),
        text.format(f", optim_state_dict_config={CONFIG.format('True')}"),
        "FSDP201",
        unsafe=True,
    )


def test_the_fix_is_unsafe_and_says_why() -> None:
    (finding,) = lint(inside(f"{FULL}, FullStateDictConfig(rank0_only=True)"), "FSDP201")
    assert finding.applicability is Applicability.UNSAFE
    assert finding.reason == "ranks other than 0 then get an empty optimizer state dict"


def test_a_config_that_is_not_visible_is_manual() -> None:
    check_manual(inside(f"{FULL}, config"), "FSDP201", "not visible here")
    check_manual(inside(f"{FULL}, FullStateDictConfig(rank0_only=flag())"), "FSDP201", "evaluated twice")


@pytest.mark.parametrize(
    "text",
    [
        inside(FULL),
        inside(f"{FULL}, FullStateDictConfig()"),
        inside(f"{FULL}, FullStateDictConfig(rank0_only=False)"),
        inside(f"{FULL}, FullStateDictConfig(rank0_only=True), FullOptimStateDictConfig()"),
        inside("model, StateDictType.SHARDED_STATE_DICT, config"),
        inside(f"{FULL}, FullStateDictConfig(rank0_only=True)", "model.state_dict()"),
        inside(f"{FULL}, FullStateDictConfig(rank0_only=True)", "FSDP.full_optim_state_dict(model, optim)"),
        inside(f"{FULL}, FullStateDictConfig(rank0_only=True)", "FSDP.optim_state_dict(other, optim)"),
        IMPORT
        + """
def f(model, optim):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)):
        weights = model.state_dict()
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            return weights, FSDP.optim_state_dict(model, optim)
""",
        IMPORT
        + """
def f(model, optim):
    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True))
    weights = model.state_dict()
    FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    return weights, FSDP.optim_state_dict(model, optim)
""",
    ],
)
def test_settings_that_say_nothing_wrong_of_the_optimizer_are_left_alone(text: str) -> None:
    check_noop(text, "FSDP201")


def test_a_setting_on_an_exit_stack_is_found() -> None:
    text = (
        IMPORT
        + """
from contextlib import ExitStack

def f(model, optim):
    with ExitStack() as stack:
        stack.enter_context(
            FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True))
        )
        return FSDP.optim_state_dict(model, optim)
"""
    )
    assert [finding.line for finding in lint(text, "FSDP201")] == [13]


def test_every_use_of_the_two_methods_is_a_hint() -> None:
    findings = lint(inside(FULL), "FSDP210")
    assert [finding.severity.value for finding in findings] == ["hint"]
    check_noop("plugin.set_state_dict_type('FULL_STATE_DICT')\nmodel.state_dict_type = 1\n", "FSDP210")


def test_the_config_is_imported_where_fsdp_is_reached_through_a_model_only() -> None:
    program = """\
        from torch.distributed.fsdp import FullStateDictConfig, StateDictType

        class Trainer:
            def save(self, model, optim):
                config = FullStateDictConfig(rank0_only=True)
        {}        with model.state_dict_type(model, StateDictType.FULL_STATE_DICT, config{}):
                    return model.optim_state_dict(model, optim)
        """
    imported = "        from torch.distributed.fsdp import FullOptimStateDictConfig\n        "
    given = ", optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)"
    check_transformed(program.format("", ""), program.format(imported, given), "FSDP201", unsafe=True)


def test_the_config_is_not_imported_into_a_line_with_other_code() -> None:
    check_manual(
        """\
        from torch.distributed.fsdp import FullStateDictConfig, StateDictType

        def save(model, optim):
            config = FullStateDictConfig(rank0_only=True); model.set_state_dict_type(
                model, StateDictType.FULL_STATE_DICT, config
            )
            return model.optim_state_dict(model, optim)
        """,
        "FSDP201",
        "cannot be imported before this statement",
    )
