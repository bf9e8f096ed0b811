from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from fsdp_migrate.rules.policy_parameter import NEW, OLD
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
        "from functools import partial\nfrom torch.distributed.fsdp.wrap import _or_policy\n"
        "m = FSDP(x, auto_wrap_policy=partial(_or_policy, policies=[big, other]))\n",
        "from torch.distributed.fsdp.wrap import enable_wrap, wrap\n"
        "with enable_wrap(wrapper_cls=FSDP, auto_wrap_policy=big):\n    m = wrap(x)\n",
        "from torch.distributed._composable import fully_shard\nfully_shard(x, policy=big)\n",
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


IN_CLASS = (
    f"class Named:\n    def __call__(self, module, recurse, {OLD}):\n        return recurse or {OLD} > self.least\n"
)
MADE = f"def make(least):\n    def big(module, recurse, {OLD}):\n        return {OLD} > least\n    return big\n"


@pytest.mark.parametrize("text", [IN_CLASS + "Made = Named()\n", MADE + "Made = make(9)\n"])
@pytest.mark.parametrize(
    "use", ["FSDP(x, auto_wrap_policy=Made)\n", "Made(m, recurse=True, {}=3)\nFSDP(x, None, None, None, Made)\n"]
)
def test_instances_and_results_are_followed(text: str, use: str) -> None:
    check_transformed(FSDP + text + use.format(OLD), FSDP + text.replace(OLD, NEW) + use.format(NEW), CODE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (IN_CLASS + "class Other(Named):\n    pass\nFSDP(x, auto_wrap_policy=Named())\n", "not every use of it"),
        (IN_CLASS + "print(Named())\nFSDP(x, auto_wrap_policy=Named())\n", "not every use of it"),
        (
            IN_CLASS + f"    def f(self):\n        self(1, {OLD}=2)\nFSDP(x, auto_wrap_policy=Named())\n",
            "not every use",
        ),
        (MADE + "register(make)\nFSDP(x, auto_wrap_policy=make(9))\n", "not every use of it"),
        (
            IN_CLASS.replace("__call__", "wraps") + "    def f(self):\n        FSDP(x, auto_wrap_policy=self.wraps)\n",
            "`wraps` is an attribute of a class",
        ),
    ],
)
def test_instances_and_results_that_go_elsewhere_too_are_reported(text: str, reason: str) -> None:
    check_manual(FSDP + text, CODE, reason)


def test_direct_calls_by_keyword_follow() -> None:
    use = "m = FSDP(x, auto_wrap_policy=big)\nassert big(module=m, recurse=True, {}=3)\n"
    check_transformed(FSDP + DEF + use.format(OLD), FSDP + RENAMED + use.format(NEW), CODE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DEF, "nothing here shows that FSDP gets it"),
        (DEF + "def get():\n    return big\nFSDP(x, auto_wrap_policy=big)\n", "not every use of it"),
        ("@cached\n" + DEF + "FSDP(x, auto_wrap_policy=big)\n", "a decorator may call it"),
        (DEF + "big = wrapped(1)\nFSDP(x, auto_wrap_policy=big)\n", "bound more than once"),
        (
            f"class P:\n    def policy(self, module, recurse, {OLD}):\n        return {OLD} > 3\n",
            "nothing here shows that FSDP gets it",
        ),
        (
            DEF.replace("    return", f"    {NEW} = 3\n    return") + "FSDP(x, auto_wrap_policy=big)\n",
            f"`{NEW}` is taken in it",
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
            "a function inside it declares",
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
        FSDP + DEF + "from torch_xla.distributed.fsdp import X\nFSDP(x, auto_wrap_policy=big)\nX(auto_wrap_policy=big)",
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


BOTH = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"


def test_below_the_floor_a_policy_takes_either_name() -> None:
    check_transformed(
        BOTH + "def big(module, recurse, unwrapped_params: int):\n"
        '    """Wrap what is big."""\n    return recurse or unwrapped_params > 100\n\n\n'
        "m = FSDP(n, auto_wrap_policy=big)\n",
        BOTH + "def big(module, recurse, unwrapped_params: int = None, nonwrapped_numel: int = None):\n"
        '    """Wrap what is big."""\n    if unwrapped_params is None:\n        unwrapped_params = nonwrapped_numel\n'
        "    return recurse or unwrapped_params > 100\n\n\n"
        "m = FSDP(n, auto_wrap_policy=big)\n",
        "FSDP401",
        torch=">=1.12",
    )


def test_below_the_floor_what_is_not_read_is_only_taken() -> None:
    text = BOTH + "m = FSDP(n, auto_wrap_policy=lambda module, recurse, unwrapped_params{}: recurse)\n"
    check_transformed(text.format(""), text.format("=None, nonwrapped_numel=None"), "FSDP401", torch=">=1.12")


@pytest.mark.parametrize(
    "policy",
    [
        "lambda module, recurse, unwrapped_params: unwrapped_params > 1",
        "lambda module, unwrapped_params, recurse: recurse",
        "lambda module, recurse=True, unwrapped_params=0: recurse",
    ],
)
def test_below_the_floor_other_policies_are_manual(policy: str) -> None:
    check_manual(f"{BOTH}m = FSDP(n, auto_wrap_policy={policy})\n", "FSDP401", "needs torch>=2.0", torch=">=1.12")


@pytest.mark.parametrize(
    ("parameters", "value"),
    [
        ("module, recurse, **kwargs", 'kwargs["unwrapped_params"]'),
        ("module, recurse, **kwargs", 'kwargs.get("unwrapped_params", 0)'),
        ("*args, **options", 'options.pop("unwrapped_params")'),
    ],
)
def test_the_old_name_looked_up_in_keywords_is_reported(parameters: str, value: str) -> None:
    text = f"{BOTH}def big({parameters}):\n    return {value} > 100\n\n\nm = FSDP(n, auto_wrap_policy=big)\n"
    check_manual(text, "FSDP401", "look for `nonwrapped_numel`")


@pytest.mark.parametrize(
    "value",
    [
        'kwargs.get("nonwrapped_numel", kwargs.get("unwrapped_params"))',
        'other["unwrapped_params"]',
        'log("unwrapped_params", kwargs)',
    ],
)
def test_other_uses_of_the_old_name_as_a_key_are_left_alone(value: str) -> None:
    text = f"{BOTH}def big(module, recurse, **kwargs):\n    return {value}\n\n\nm = FSDP(n, auto_wrap_policy=big)\n"
    check_noop(text, "FSDP401")
