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
        (f'x = name.startswith("{BOTH}.")\n', "if torch 1.x is supported, then"),
        (f'x = name.replace("{BOTH}.", "", 1)\n', "if torch 1.x is supported, then"),
        (f'x = name.replace("{BOTH}", "")\n', "if torch 1.x is supported, then"),
        (f"x = name.replace(old='{BOTH}.', new='')\n", "if torch 1.x is supported, then"),
        (f'x = f"{BOTH}.{{name}}"\n', "if torch 1.x is supported, then"),
        (f"model.{BOTH} = 1\n", "cannot be assigned"),
        ("x = (model._fsdp_wrapped_module\n     ._fpw_module)\n", "not written as a plain"),
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
        (
            f"if a:\n    {PREFIX}else:\n    {PREFIX}x = n.replace(_CHECKPOINT_PREFIX + '.', '')\n",
            f"if a:\n    {PREFIX}else:\n    {PREFIX}x = n.replace(_CHECKPOINT_PREFIX, '')\n",
        ),
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
        ("x = f'{_CHECKPOINT_PREFIX}.'\n", "inside an f-string"),
        ("x = f'{_CHECKPOINT_PREFIX}.weight'\n", "inside an f-string"),
        ("x = _CHECKPOINT_PREFIX + '.weight'\n", "remove the dot"),
        ("x = (_CHECKPOINT_PREFIX  # no dot\n     + '.')\n", "remove the dot"),
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
        "if not _CHECKPOINT_PREFIX.endswith('.'):\n    x = n.replace(_CHECKPOINT_PREFIX + '.', '')\n",
        "x = _CHECKPOINT_PREFIX if _CHECKPOINT_PREFIX.endswith('.') else f'{_CHECKPOINT_PREFIX}.'\n",
    ],
)
def test_the_prefix_without_a_dot_behind_it_is_left_alone(rest: str) -> None:
    check_noop(PREFIX + rest, "FSDP608")


def test_up_to_torch_1_13_the_dot_is_wanted() -> None:
    text = f"{PREFIX}x = _CHECKPOINT_PREFIX + '.'\n"
    check_noop(text, "FSDP608", torch=">=1.13,<2.0")
    check_manual(text, "FSDP608", "needs torch>=2.0", torch=">=1.13")


def test_the_inner_prefix_alone_matches_nothing_either() -> None:
    check_manual("def f(n):\n    return n.replace('_fpw_module.', '')\n", "FSDP606", "if torch 1.x is supported, then")
    check_noop("def f(n):\n    return n.replace('_fpw_module.', '').replace('_fsdp_wrapped_module.', '')\n", "FSDP606")


@pytest.mark.parametrize(
    "test",
    [
        "n == '_fpw_module'",
        "'_fpw_module' != n",
        "'_fpw_module' in n.split('.')",
        "'_fpw_module' not in n.split('.')",
        "n.split('.')[0] == '_fpw_module'",
    ],
)
def test_the_inner_wrapper_is_no_whole_name_either(test: str) -> None:
    text = f"def f(n):\n    return {test}\n"
    check_manual(text, "FSDP606", "test for `_fsdp_wrapped_module`")
    check_noop(text, "FSDP606", torch=">=1.13,<2.0")
    check_noop(f"{text}OUTER = '_fsdp_wrapped_module'\n", "FSDP606")
    check_noop(f"class W:\n    def __init__(self, m):\n        self._fpw_module = m\n{text}", "FSDP606")
    check_noop(f"import fairscale\n{text}", "FSDP606")


@pytest.mark.parametrize("test", ["'_fpw_module' in n", "n in ('_fpw_module', 'x')", "getattr(n, '_fpw_module')"])
def test_what_is_no_whole_name_is_left_alone(test: str) -> None:
    check_noop(f"def f(n):\n    return {test}\n", "FSDP606")


@pytest.mark.parametrize("test", ["n == 'flat_param'", "n.endswith('.flat_param')", "n.startswith('flat_param')"])
def test_a_test_for_the_old_name_of_the_flat_parameter_is_reported(test: str) -> None:
    check_manual(f"import torch.distributed\ndef f(n):\n    return {test}\n", "FSDP606", "test for both")
    check_noop(f"import torch.distributed\ndef f(n):\n    return {test} or n == '_flat_param'\n", "FSDP606")
    check_noop(f"def f(n):\n    return {test}\n", "FSDP606")


@pytest.mark.parametrize("test", ["'flat_param' in n", "n.endswith('flat_param')", "getattr(m, 'flat_param', None)"])
def test_what_the_new_name_fits_too_is_left_alone(test: str) -> None:
    check_noop(f"import torch.distributed\ndef f(n, m):\n    return {test}\n", "FSDP606")


@pytest.mark.parametrize(
    "body",
    [
        "    try:\n        return m._fsdp_wrapped_module._fpw_module\n"
        "    except AttributeError:\n        return m.module\n",
        "    if hasattr(m._fsdp_wrapped_module, '_fpw_module'):\n        return m._fsdp_wrapped_module._fpw_module\n"
        "    return m.module\n",
    ],
)
def test_code_that_serves_both_wrappers_is_left_alone(body: str) -> None:
    text = f"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\ndef inner(m: FSDP):\n{body}"
    assert not [one for one in lint(text, "FSDP606") if "_fpw_module` is gone" in one.message]


FSDP_HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"


def test_the_inner_wrapper_is_seen_on_a_model_itself() -> None:
    before = FSDP_HEAD + "w = FSDP(net)._fpw_module.weight\nmodel = FSDP(net)\nx = model._fpw_module\n"
    check_transformed(before, before.replace("._fpw_module", ".module"), "FSDP606")
    check_noop(FSDP_HEAD + "x = wrapper._fpw_module\n", "FSDP606")


def test_the_inner_wrapper_is_seen_where_getattr_reads_it() -> None:
    for owner in ("FSDP(net)", "m._fsdp_wrapped_module"):
        check_manual(FSDP_HEAD + f"x = getattr({owner}, '_fpw_module')\n", "FSDP606", "write `.module`")
        check_noop(FSDP_HEAD + f"x = getattr({owner}, '_fpw_module', None)\n", "FSDP606")
