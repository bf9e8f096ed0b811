from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop, lint

IMPORT = (
    "import functools\nfrom functools import partial\n"
    "from torch.distributed.fsdp import wrap\n"
    "from torch.distributed.fsdp.wrap import CustomPolicy, ModuleWrapPolicy, _or_policy\n"
)


@pytest.mark.parametrize(
    "text",
    [
        "partial(_or_policy, policies=[ModuleWrapPolicy({A}), f])\n",
        "functools.partial(wrap._or_policy, policies=(f, wrap.ModuleWrapPolicy({A})))\n",
        "ps = [ModuleWrapPolicy({A}), f]\npartial(_or_policy, policies=ps)\n",
        "p = ModuleWrapPolicy({A})\npartial(_or_policy, policies=[p, f])\n",
        "_or_policy(m, True, 3, [ModuleWrapPolicy({A})])\n",
    ],
)
def test_a_policy_object_breaks_where_torch_2_1_is_supported(text: str) -> None:
    check_manual(IMPORT + text, "FSDP407", "transformer_auto_wrap_policy")
    check_noop(IMPORT + text, "FSDP407", torch=">=2.2")


def test_a_custom_policy_can_never_be_called() -> None:
    text = IMPORT + "partial(_or_policy, policies=[CustomPolicy(f), g])\n"
    check_manual(text, "FSDP407", "lambda_auto_wrap_policy", torch=">=2.6")
    assert [finding.severity.value for finding in lint(text, "FSDP407", ">=2.6")] == ["breaks"]


@pytest.mark.parametrize(
    "text",
    [
        "partial(_or_policy, policies=[f, g])\n",
        "partial(_or_policy, policies=policies)\n",
        "partial(other, policies=[ModuleWrapPolicy({A})])\n",
        "def _or_policy(*args, **kwargs): ...\npartial(_or_policy, policies=[ModuleWrapPolicy({A})])\n",
        "FSDP(m, auto_wrap_policy=ModuleWrapPolicy({A}))\n",
    ],
)
def test_functions_and_other_lists_are_left_alone(text: str) -> None:
    check_noop(IMPORT + text, "FSDP407")
