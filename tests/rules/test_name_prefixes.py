from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

BOTH = "_fsdp_wrapped_module._fpw_module"
PREFIX = "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import _CHECKPOINT_PREFIX\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            f'x = name.replace("{BOTH}.", "")\n',
            'x = name.replace("_fsdp_wrapped_module.", "").replace("_fpw_module.", "")\n',
        ),
        (
            f"x = {{k.replace('{BOTH}.', ''): v for k, v in y}}\n",
            "x = {k.replace('_fsdp_wrapped_module.', '').replace('_fpw_module.', ''): v for k, v in y}\n",
        ),
        (f"x = model.{BOTH}\n", "x = model.module\n"),
        (f"x = self.net[0].{BOTH}.weight\n", "x = self.net[0].module.weight\n"),
    ],
)
def test_names_and_modules_lose_the_second_wrapper(before: str, after: str) -> None:
    check_transformed(before, after, "FSDP606")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'x = name.startswith("{BOTH}.")\n', "one after the other"),
        (f'x = name.replace("{BOTH}.", "", 1)\n', "one after the other"),
        (f'x = name.replace("{BOTH}", "")\n', "one after the other"),
        (f"x = name.replace(old='{BOTH}.', new='')\n", "one after the other"),
        (f'x = f"{BOTH}.{{name}}"\n', "one after the other"),
        (f"model.{BOTH} = 1\n", "cannot be set"),
        ("x = (model._fsdp_wrapped_module\n     ._fpw_module)\n", "unusual way"),
    ],
)
def test_other_uses_are_reported(text: str, reason: str) -> None:
    check_manual(text, "FSDP606", reason)


@pytest.mark.parametrize(
    "text",
    [
        f'"""Names were {BOTH}.x."""\n',
        'x = name.replace("_fsdp_wrapped_module.", "").replace("_fpw_module.", "")\n',
        f'PREFIXES = ("{BOTH}.", "_fsdp_wrapped_module.")\n',
        f"from fairscale.nn import FullyShardedDataParallel\nx = model.{BOTH}\ny = '{BOTH}.'\n",
        "class W:\n    def f(self):\n        self._fpw_module = self.m\n        return self._fpw_module\n",
    ],
)
def test_files_that_know_both_forms_or_are_about_another_fsdp_are_left_alone(text: str) -> None:
    check_noop(text, "FSDP606")


def test_up_to_torch_1_13_the_second_wrapper_is_there() -> None:
    text = f'x = name.replace("{BOTH}.", "")\ny = model.{BOTH}\n'
    check_noop(text, "FSDP606", torch=">=1.12,<2.0")
    assert [finding.severity for finding in lint(text, "FSDP606")] == [Severity.CHANGES, Severity.BREAKS]
    check_manual(text, "FSDP606", "needs torch>=1.13", torch=">=1.12")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"{PREFIX}x = n.replace(_CHECKPOINT_PREFIX + '.', '')\n", f"{PREFIX}x = n.replace(_CHECKPOINT_PREFIX, '')\n"),
        (f"{PREFIX}x = 'a.' + _CHECKPOINT_PREFIX + '.'\n", f"{PREFIX}x = 'a.' + _CHECKPOINT_PREFIX\n"),
        (
            "from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as w\n"
            "x = w._CHECKPOINT_PREFIX + '.'\n",
            "from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as w\nx = w._CHECKPOINT_PREFIX\n",
        ),
    ],
)
def test_the_second_dot_behind_the_checkpoint_prefix_goes(before: str, after: str) -> None:
    check_transformed(before, after, "FSDP608")
    assert {finding.severity for finding in lint(before, "FSDP608")} == {Severity.CHANGES}


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("x = f'{_CHECKPOINT_PREFIX}.'\n", "in an f-string"),
        ("x = f'{_CHECKPOINT_PREFIX}.weight'\n", "in an f-string"),
        ("x = _CHECKPOINT_PREFIX + '.weight'\n", "take the dot"),
        ("x = (_CHECKPOINT_PREFIX  # no dot\n     + '.')\n", "take the dot"),
    ],
)
def test_a_dot_that_is_part_of_more_is_reported(rest: str, reason: str) -> None:
    check_manual(PREFIX + rest, "FSDP608", reason)


@pytest.mark.parametrize(
    "rest",
    [
        "x = n.replace(_CHECKPOINT_PREFIX, '')\n",
        "x = _CHECKPOINT_PREFIX + 'weight'\n",
        "x = f'{_CHECKPOINT_PREFIX}weight'\n",
        "x = '.' + _CHECKPOINT_PREFIX\n",
        "x = a._CHECKPOINT_PREFIX + '.'\n",
    ],
)
def test_the_prefix_without_a_dot_behind_it_is_left_alone(rest: str) -> None:
    check_noop(PREFIX + rest, "FSDP608")


def test_up_to_torch_1_13_the_dot_is_wanted() -> None:
    text = f"{PREFIX}x = _CHECKPOINT_PREFIX + '.'\n"
    check_noop(text, "FSDP608", torch=">=1.13,<2.0")
    check_manual(text, "FSDP608", "needs torch>=2.0", torch=">=1.13")
