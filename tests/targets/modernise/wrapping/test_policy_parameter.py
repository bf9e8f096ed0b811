from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from fsdp_migrate.targets.modernise.wrapping.policy_parameter import NEW, OLD
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

CODE = "FSDP401"
FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
DEF = f"def big(module, recurse, {OLD}):\n    return recurse or {OLD} > 9\n"
RENAMED = DEF.replace(OLD, NEW)


@pytest.mark.parametrize(
    "use",
    [
        "m = FSDP(x, auto_wrap_policy=big)\n",
        "m = FSDP(x, fsdp_auto_wrap_policy=big)\n",
        "m = FSDP(x, None, None, None, big)\n",
        "m = FSDP(x, **{'auto_wrap_policy': big})\n",
        "m = FSDP(x, **dict(auto_wrap_policy=big))\n",
        "kw = dict(auto_wrap_policy=big)\nm = FSDP(x, **kw)\n",
        "policy = big if x else None\nm = FSDP(x, auto_wrap_policy=policy)\n",
        "from functools import partial\nmake = partial(FSDP, auto_wrap_policy=big)\n",
        "from functools import partial\npolicy = partial(big)\nstrategy = Strategy(auto_wrap_policy=policy)\n",
        "from torch.distributed.fsdp.wrap import enable_wrap, wrap\n"
        "with enable_wrap(wrapper_cls=FSDP, auto_wrap_policy=big):\n    m = wrap(x)\n",
    ],
)
def test_a_function_that_fsdp_gets_is_renamed(use: str) -> None:
    check_transformed(FSDP + DEF + use, FSDP + RENAMED + use, CODE)


def test_the_name_is_wrong_since_torch_2_0() -> None:
    text = FSDP + DEF + "m = FSDP(x, auto_wrap_policy=big)\n"
    check_noop(text, CODE, torch=">=1.13,<2.0")
    check_transformed(text, text.replace(OLD, NEW), CODE, torch=">=2.0,<2.1")


def test_uses_follow_the_scoping_rules() -> None:
    before = f"""\
    def build(x, {OLD}):
        def big(module, recurse, {OLD}=0):
            {OLD} -= 1
            inner = lambda {OLD}={OLD}: {OLD}
            taken = [{OLD} for {OLD} in range({OLD})]
            late = lambda: {OLD}
            return self.{OLD} + f(unwrapped_params={OLD})
        return FSDP(x, auto_wrap_policy=big), {OLD}
    """
    after = f"""\
    def build(x, {OLD}):
        def big(module, recurse, {NEW}=0):
            {NEW} -= 1
            inner = lambda {OLD}={NEW}: {OLD}
            taken = [{OLD} for {OLD} in range({NEW})]
            late = lambda: {NEW}
            return self.{OLD} + f(unwrapped_params={NEW})
        return FSDP(x, auto_wrap_policy=big), {OLD}
    """
    header = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n    "
    check_transformed("    " + header + before.lstrip(), "    " + header + after.lstrip(), CODE)


@pytest.mark.parametrize(
    "text",
    [
        f"class Named:\n    def __call__(self, module, recurse, {OLD}):\n        return {OLD} > self.least\n",
        f"def make(least):\n    def big(module, recurse, {OLD}):\n        return {OLD} > least\n    return big\n",
    ],
)
def test_a_policy_that_a_class_or_function_makes_is_manual(text: str) -> None:
    check_manual(
        f"{FSDP}{text}FSDP(x, auto_wrap_policy=made(9))\n", CODE, "it is not visible whether FSDP gets this function"
    )


def test_calls_by_position_change_nothing() -> None:
    use = "m = FSDP(x, auto_wrap_policy=big)\nassert big(m, True, 3)\n"
    check_transformed(FSDP + DEF + use, FSDP + RENAMED + use, CODE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DEF, "it is not visible whether FSDP gets this function"),
        (
            f"from torch_xla.distributed.fsdp import X\n{DEF}FSDP(x, auto_wrap_policy=big)\nX(auto_wrap_policy=big)\n",
            "line 6 uses it for something other than FSDP",
        ),
        (
            DEF + "def get():\n    return big\nFSDP(x, auto_wrap_policy=big)\n",
            "line 5 uses it for something other than FSDP",
        ),
        ("@cached\n" + DEF + "FSDP(x, auto_wrap_policy=big)\n", "a decorator may call it"),
        (DEF + "big = wrapped(1)\nFSDP(x, auto_wrap_policy=big)\n", "it is not visible whether FSDP gets"),
        (
            f"class P:\n    def policy(self, module, recurse, {OLD}):\n        return {OLD} > 3\n",
            "it is not visible whether FSDP gets this function",
        ),
        (
            DEF.replace("    return", f"    {NEW} = 3\n    return") + "FSDP(x, auto_wrap_policy=big)\n",
            f"the function already uses `{NEW}`",
        ),
        (
            DEF.replace("    return", f"    print(f'{{{OLD}}}')\n    return") + "FSDP(x, auto_wrap_policy=big)\n",
            "an f-string in it uses",
        ),
        (
            DEF.replace("    return", f"    print(locals()['{OLD}'])\n    return") + "FSDP(x, auto_wrap_policy=big)\n",
            "a string in it names",
        ),
        (
            DEF.replace("    return", f"    def g():\n        nonlocal {OLD}\n    return")
            + "FSDP(x, auto_wrap_policy=big)\n",
            "an inner function declares",
        ),
    ],
)
def test_what_is_not_surely_only_a_policy_is_reported(text: str, reason: str) -> None:
    check_manual(FSDP + text, CODE, reason)


@pytest.mark.parametrize(
    "text",
    [
        DEF,
        "from torch_xla.distributed.fsdp import XlaFSDP as FSDP\n" + DEF + "FSDP(x, auto_wrap_policy=big)",
        FSDP + "from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel\n" + DEF,
        FSDP + f"def big(module, recurse, {OLD}=0, {NEW}=0):\n    return {OLD} > 9\nFSDP(x, auto_wrap_policy=big)\n",
        FSDP + f"def big(module, recurse, {OLD}=0, **kw):\n    return {OLD} > 9\nFSDP(x, auto_wrap_policy=big)\n",
        FSDP + f"def count({OLD}):\n    return {OLD}\n",
        FSDP + "import torch\nfrom packaging.version import Version\n"
        "if Version(torch.__version__) < Version('2.0'):\n    " + DEF.replace("\n    ", "\n        ")
        + "    FSDP(x, auto_wrap_policy=big)\n",
    ],
)  # fmt: skip
def test_what_takes_the_new_name_or_belongs_to_others_is_left_alone(text: str) -> None:
    check_noop(text, CODE)


@pytest.mark.parametrize("callee", ["size_based_auto_wrap_policy(", "functools.partial(size_based_auto_wrap_policy, "])
def test_the_keyword_of_torchs_own_policies_is_renamed(callee: str) -> None:
    text = (
        "import functools\nfrom torch.distributed.fsdp.wrap import size_based_auto_wrap_policy\n"
        "p = {}module=m, recurse=True, {}=3)\n"
    )
    check_transformed(text.format(callee, OLD), text.format(callee, NEW), CODE)
    (finding,) = lint(text.format(callee, OLD), CODE)
    assert finding.severity is Severity.BREAKS


def test_torch_1_alone_is_content() -> None:
    check_noop(FSDP + DEF + "FSDP(x, auto_wrap_policy=big)\n", CODE, torch=">=1.12,<2.0")


def test_below_the_floor_policies_are_manual() -> None:
    check_manual(f"{FSDP}{DEF}m = FSDP(n, auto_wrap_policy=big)\n", CODE, "needs torch>=2.0", torch=">=1.12")


def test_a_function_that_takes_both_names_has_to_drop_the_old_one() -> None:
    text = DEF.replace(OLD + ")", f"{OLD}, {NEW})")
    check_manual(f"{FSDP}{text}FSDP(x, auto_wrap_policy=big)\n", CODE, f"remove `{OLD}`")


_KEYS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def big({parameters}):
    return {value} > 100

m = FSDP(n, auto_wrap_policy=big)
"""


@pytest.mark.parametrize(
    ("parameters", "value"),
    [
        ("module, recurse, **kwargs", 'kwargs["unwrapped_params"]'),
        ("module, recurse, **kwargs", 'kwargs.get("unwrapped_params", 0)'),
        ("*args, **options", 'options.pop("unwrapped_params")'),
    ],
)
def test_the_old_name_looked_up_in_keywords_is_reported(parameters: str, value: str) -> None:
    check_manual(_KEYS.format(parameters=parameters, value=value), "FSDP401", "read `nonwrapped_numel`")


@pytest.mark.parametrize(
    "value",
    [
        'kwargs.get("nonwrapped_numel", kwargs.get("unwrapped_params"))',
        'other["unwrapped_params"]',
        'log("unwrapped_params", kwargs)',
    ],
)
def test_other_uses_of_the_old_name_as_a_key_are_left_alone(value: str) -> None:
    check_noop(_KEYS.format(parameters="module, recurse, **kwargs", value=value), "FSDP401")
