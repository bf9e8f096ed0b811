from __future__ import annotations

import pytest
from packaging.version import Version

from fsdp_migrate.findings import Severity
from fsdp_migrate.targets.modernise.constructor.constructor import (
    IGNORED,
    OLD_IGNORED,
    OLD_POLICY,
    ORDER,
    ORDER_1_11,
    POLICY,
    takes,
)
from fsdp_migrate.torch_api import RELEASES
from fsdp_migrate.torch_api.data import signature
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

CLASS = "torch.distributed.fsdp.FullyShardedDataParallel"
FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
NAMES = (
    "from torch.distributed.fsdp import (BackwardPrefetch, CPUOffload, FullyShardedDataParallel as FSDP,\n"
    "    MixedPrecision, ShardingStrategy)\n"
    "from torch.distributed.fsdp.wrap import ModuleWrapPolicy, always_wrap_policy\n"
)


def test_the_signatures_are_as_the_rules_say() -> None:
    for release in RELEASES:
        names = [parameter.name for parameter in signature(CLASS, release) or ()]
        order = ORDER_1_11 if release < Version("1.12") else ORDER
        assert [n.replace(OLD_POLICY, POLICY) for n in names[: len(order)]] == list(order)
        assert takes(OLD_POLICY, release) is (release < Version("1.12"))
        assert takes(OLD_IGNORED, release) is (Version("2.0") <= release < Version("2.1"))
        assert takes(IGNORED, release) is (release >= Version("2.1"))


@pytest.mark.parametrize(("code", "old", "new"), [("FSDP501", OLD_POLICY, POLICY), ("FSDP502", OLD_IGNORED, IGNORED)])
@pytest.mark.parametrize(
    "text",
    [
        "m = FSDP(x, {}=p)\n",
        "m = FSDP(x, a, **{{'{}': p, **other}})\n",
        'm = FSDP(x, **dict({}=p, k="{{}}"))\n',
        "kw = {{}}\nkw['{}'] = p\nm = FSDP(x, **kw)\n",
        "kw = dict({}=p)\nif a:\n    kw = {{}}\nm = FSDP(x, **kw)\nn = FSDP(y, **kw)\n",
        "from functools import partial\nmake = partial(FSDP, {}=p)\n",
        "KW = dict({}=p)\ndef f(x):\n    return FSDP(x, **KW)\n",
        "from functools import partial\nshard = partial(FSDP, a=1)\nm = shard(x, {}=p)\n",
        "kw = dict(a=1)\nkw.update({}=p)\nm = FSDP(x, **kw)\n",
        'kw = dict(a=1)\nkw.update({{"{}": p}}, b=2)\nm = FSDP(x, **kw)\n',
        "from torch.distributed.fsdp.wrap import enable_wrap, wrap\n"
        "with enable_wrap(wrapper_cls=FSDP, {}=p):\n    m = wrap(x)\n",
        "from torch.distributed.fsdp.wrap import enable_wrap\n"
        "kw = dict(wrapper_cls=FSDP, {}=p)\nwith enable_wrap(**kw):\n    pass\n",
        "from torch.distributed.fsdp.wrap import wrap\nm = wrap(x, {}=p)\n",
        "class Mine(FSDP):\n    pass\nm = Mine(x, {}=p)\n",
        "class Mine(FSDP):\n    def __init__(self, x):\n        super().__init__(x, {}=p)\n",
        "class Mine(FSDP, Mixin):\n    def __init__(self, x):\n        super().__init__(x, {}=p)\n",
        "class Mine(Mixin, FSDP):\n    def __init__(self, x):\n        FSDP.__init__(self, x, {}=p)\n",
        "def build(x, **kw):\n    kw['{}'] = p\n    return FSDP(x, **kw)\n",
        "kw = {{'a': 1}}\nkw |= {{'{}': p}}\nm = FSDP(x, **kw)\n",
        "kw = {{'a': 1}}\nkw.setdefault('{}', p)\nm = FSDP(x, **kw)\n",
        "kw = {{**other, **{{'{}': p}}}}\nm = FSDP(x, **kw)\n",
        "m = FSDP(x, **(other | {{'{}': p}}))\n",
        "m = FSDP(x, **dict(other, **dict({}=p)))\n",
        "m = FSDP(x, **(dict({}=p) if other else {{}}))\n",
        "m = FSDP(x, **{{**settings(), '{}': p}})\n",
    ],
)
def test_the_argument_is_renamed_wherever_fsdp_gets_it(code: str, old: str, new: str, text: str) -> None:
    check_transformed(FSDP + text.format(old), FSDP + text.format(new), code)
    (found,) = lint(FSDP + text.format(old), code)
    assert found.severity is Severity.BREAKS


@pytest.mark.parametrize(("code", "old"), [("FSDP501", OLD_POLICY), ("FSDP502", OLD_IGNORED)])
@pytest.mark.parametrize(
    "text",
    [
        "m = Plugin(x, {}=p)\n",
        "kw = dict({}=p)\nm = Plugin(x, **kw)\n",
        "kw = dict({}=p)\n",
        "def build(x, kw):\n    kw['{}'] = p\n    return FSDP(x, **kw)\n",
        "args = TrainingArguments(fsdp=FSDP(x), {}='auto')\n",
        "class Mine(FSDP):\n    def __init__(self, x, {0}):\n        super().__init__(x)\nm = Mine(x, {0}=p)\n",
        "def FSDP(x, {}):\n    pass\nFSDP(x, {}=p)\n",
        "import torch\nfrom packaging.version import Version\n"
        "if Version(torch.__version__) < Version('1.12'):\n    m = FSDP(x, {}=p)\n",
    ],
)
def test_arguments_of_others_are_left_alone(code: str, old: str, text: str) -> None:
    if code == "FSDP502" and "Version" in text:
        text = text.replace("< Version('1.12')", "< Version('2.1')")
    check_noop((FSDP + text).replace("{}", old).replace("{0}", old), code)


@pytest.mark.parametrize(
    ("code", "text", "reason"),
    [
        ("FSDP501", f"m = FSDP(x, {OLD_POLICY}=p, {POLICY}=q)\n", f"`{POLICY}` is passed, too"),
        ("FSDP502", f"m = FSDP(x, {OLD_IGNORED}=p, {IGNORED}=q)\n", f"`{IGNORED}` is passed, too"),
        ("FSDP502", f"m = FSDP(x, {OLD_IGNORED}=p, ignored_modules=q)\n", "FSDP accepts only one of"),
        ("FSDP501", f"kw = dict({OLD_POLICY}=p)\nm = FSDP(x, **kw)\nprint(kw)\n", "used for more than building"),
        ("FSDP501", f"kw = {{'{OLD_POLICY}': p}}\nm = FSDP(x, **kw)\nn = f(x, **kw)\n", "used for more than building"),
        ("FSDP501", "kw = {'fsdp_' 'auto_wrap_policy': p}\nm = FSDP(x, **kw)\n", "not written as a plain keyword"),
        (
            "FSDP501",
            f"if a:\n    from fairscale.nn import FullyShardedDataParallel as FSDP\nm = FSDP(x, {OLD_POLICY}=p)\n",
            "may also be another class",
        ),
    ],
)
def test_what_may_go_elsewhere_is_reported(code: str, text: str, reason: str) -> None:
    check_manual(FSDP + text, code, reason)


def test_ignored_modules_none_does_not_count() -> None:
    text = "m = FSDP(x, {}=p, ignored_modules=None)\n"
    check_transformed(FSDP + text.format(OLD_IGNORED), FSDP + text.format(IGNORED), "FSDP502")


def test_releases_that_take_the_old_name_are_content() -> None:
    check_manual(FSDP + f"m = FSDP(x, {OLD_POLICY}=p)\n", "FSDP501", "needs torch>=1.12", torch=">=1.11")
    check_noop(FSDP + f"m = FSDP(x, {OLD_IGNORED}=p)\n", "FSDP502", torch=">=2.0,<2.1")
    check_noop(FSDP + f"m = FSDP(x, {OLD_POLICY}=p)\n", "FSDP501", torch=">=1.11,<1.12")
    check_manual(FSDP + f"m = FSDP(x, {OLD_IGNORED}=p)\n", "FSDP502", "needs torch>=2.1", torch=">=2.0")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("g, CPUOffload()", "g, cpu_offload=CPUOffload()"),
        ("g, off, always_wrap_policy", "g, cpu_offload=off, auto_wrap_policy=always_wrap_policy"),
        (
            "g, None, ModuleWrapPolicy({A}), BackwardPrefetch.BACKWARD_POST, device_id=0",
            "g, cpu_offload=None, auto_wrap_policy=ModuleWrapPolicy({A}), "
            "backward_prefetch=BackwardPrefetch.BACKWARD_POST, device_id=0",
        ),
        (
            "g, MixedPrecision(), ShardingStrategy.FULL_SHARD",
            "g, mixed_precision=MixedPrecision(), sharding_strategy=ShardingStrategy.FULL_SHARD",
        ),
    ],
)
def test_positions_get_keywords_by_what_they_are(before: str, after: str) -> None:
    check_transformed(f"{NAMES}m = FSDP(x, {before})\n", f"{NAMES}m = FSDP(x, {after})\n", "FSDP504")


@pytest.mark.parametrize(
    "arguments",
    [
        "g, ShardingStrategy.FULL_SHARD, CPUOffload(), always_wrap_policy, BackwardPrefetch.BACKWARD_PRE",
        "g, strategy, offload",
        "g, None, None, p",
        "g, *rest",
        "g, cpu_offload=CPUOffload()",
    ],
)
def test_positions_in_the_order_of_today_or_unknown_stay(arguments: str) -> None:
    check_noop(f"{NAMES}m = FSDP(x, {arguments})\n", "FSDP504")


def test_positions_that_torch_1_11_runs_stay_in_its_order() -> None:
    text = FSDP + "from torch.distributed.fsdp import CPUOffload\nm = FSDP(x, group, CPUOffload())\n"
    check_manual(text, "FSDP504", "needs torch>=1.12", torch=">=1.11")
    check_transformed(text, text.replace("CPUOffload())", "cpu_offload=CPUOffload())"), "FSDP504", torch=">=1.12")


def test_positions_that_do_not_say_what_they_are_are_reported() -> None:
    check_manual(f"{NAMES}m = FSDP(x, g, MixedPrecision(), p)\n", "FSDP504", "by keyword")
    check_manual(f"{NAMES}m = FSDP(x, g, CPUOffload(), **kw)\n", "FSDP504", "by keyword")


@pytest.mark.parametrize(
    "use",
    [
        "sharding_strategy=ShardingStrategy.NO_SHARD",
        "g, ShardingStrategy.NO_SHARD",
        "sharding_strategy=ShardingStrategy.NO_SHARD if one else ShardingStrategy.FULL_SHARD",
        'sharding_strategy=ShardingStrategy["NO_SHARD"]',
        'g, getattr(ShardingStrategy, "NO_SHARD")',
        'sharding_strategy=getattr(ShardingStrategy, "NO_SHARD", None)',
        'sharding_strategy=ShardingStrategy["NO_SHARD"] if one else ShardingStrategy.FULL_SHARD',
    ],
)
def test_a_model_without_sharding_is_reported(use: str) -> None:
    check_manual(f"{NAMES}m = FSDP(x, {use})\n", "FSDP506", "DDP has other parameter names")


def test_a_strategy_chosen_before_is_followed_to_where_it_is_written() -> None:
    text = f"{NAMES}if a:\n    s = ShardingStrategy.NO_SHARD\nelse:\n    s = other\nm = FSDP(x, sharding_strategy=s)\n"
    (found,) = lint(text, "FSDP506")
    assert (found.line, found.severity) == (5, Severity.DEPRECATED)
    (found,) = lint(text, "FSDP506", torch=">=2.1,<2.3")
    assert found.severity is Severity.HINT


@pytest.mark.parametrize(
    "choice",
    [
        'FSDP(x, sharding_strategy={"ddp": ShardingStrategy.NO_SHARD, "full": ShardingStrategy.FULL_SHARD}[kind])',
        "FSDP(x, sharding_strategy=KINDS[kind])",
        'FSDP(x, sharding_strategy=KINDS["none"])',
        "FSDP(x, sharding_strategy=KINDS.get(kind))",
        'FSDP(x, sharding_strategy={}.get("ddp", ShardingStrategy.NO_SHARD))',
        "FSDP(x, sharding_strategy=dict(none=ShardingStrategy.NO_SHARD)[kind])",
        "FSDP(x, sharding_strategy=(ShardingStrategy.NO_SHARD, None)[0])",
        "FSDP(x, sharding_strategy=kind or ShardingStrategy.NO_SHARD)",
        "FSDP(x, sharding_strategy=(kind := ShardingStrategy.NO_SHARD))",
        "kind = KINDS[kind]; return FSDP(x, sharding_strategy=kind)",
        "kind = ShardingStrategy.NO_SHARD if x else kind; return FSDP(x, sharding_strategy=kind)",
    ],
)
def test_a_strategy_taken_from_a_dict_may_be_each_of_its_values(choice: str) -> None:
    kinds = 'KINDS = {"full": ShardingStrategy.FULL_SHARD, "none": ShardingStrategy.NO_SHARD}\n'
    (found,) = lint(f"{NAMES}{kinds}def f(x, kind):\n    {choice}\n", "FSDP506")
    assert found.severity is Severity.DEPRECATED


HELPER = """\
def get(cfg):
    if cfg.plain:
        return ShardingStrategy.NO_SHARD
    return ShardingStrategy.FULL_SHARD
"""


@pytest.mark.parametrize(
    "use",
    [
        "m = FSDP(x, sharding_strategy=get(cfg))\n",
        "m = FSDP(x, None, get(cfg))\n",
        "s = get(cfg)\nm = FSDP(x, sharding_strategy=s)\n",
        "def twice(x):\n    s = get(x)\n    return s\nm = FSDP(x, sharding_strategy=twice(cfg))\n",
        "class T:\n    def __init__(self, cfg):\n        self.s = get(cfg)\n"
        "    def wrap(self, x):\n        return FSDP(x, sharding_strategy=self.s)\n",
        "kwargs = dict(sharding_strategy=get(cfg))\nm = FSDP(x, **kwargs)\n",
        "m = FSDP(x, sharding_strategy=get(a))\nn = FSDP(y, sharding_strategy=get(b))\n",
    ],
)
def test_a_strategy_that_a_function_returns_is_reported_there(use: str) -> None:
    (found,) = lint(f"{NAMES}{HELPER}{use}", "FSDP506")
    line = HELPER.splitlines()[2]
    assert (found.line, found.column) == (NAMES.count("\n") + 3, line.index("Sharding") + 1)


def test_a_strategy_that_a_method_returns_is_reported_there() -> None:
    method = HELPER.replace("(cfg)", "(self)").replace("\n", "\n    ").rstrip()
    text = (
        f"{NAMES}class T:\n    {method}\n    def wrap(self, x):\n        return FSDP(x, sharding_strategy=self.get())\n"
    )
    (found,) = lint(text, "FSDP506")
    assert found.line == NAMES.count("\n") + 4


@pytest.mark.parametrize(
    "text",
    [
        HELPER + "m = FSDP(x, sharding_strategy=other.get(cfg))\n",
        HELPER + "m = FSDP(x)\nprint(get(cfg))\n",
        HELPER + "m = FSDP(x, sharding_strategy=str(get(cfg)))\n",
        HELPER + "def f(get):\n    return FSDP(x, sharding_strategy=get(cfg))\n",
        "def get(c):\n    def inner():\n        return ShardingStrategy.NO_SHARD\n    return c.strategy\n"
        "m = FSDP(x, sharding_strategy=get(cfg))\n",
        "def get(c):\n    return get(c)\nNO_SHARD = 0\nm = FSDP(x, sharding_strategy=get(cfg))\n",
        "class A:\n    def f(self):\n        self.s = ShardingStrategy.NO_SHARD\n"
        "class B:\n    def f(self, x):\n        return FSDP(x, sharding_strategy=self.s)\n",
    ],
)
def test_what_another_function_or_object_has_is_not_the_strategy(text: str) -> None:
    check_noop(NAMES + text, "FSDP506")


def test_what_a_dict_has_beside_the_strategies_is_no_matter() -> None:
    kinds = 'KINDS = {"full": ShardingStrategy.FULL_SHARD, **more}\nNONE = {"none": ShardingStrategy.NO_SHARD}\n'
    check_noop(f"{NAMES}{kinds}m = FSDP(x, sharding_strategy=KINDS[kind])\n", "FSDP506")
    check_noop(f"{NAMES}{kinds}m = FSDP(x, sharding_strategy={{**NONE, 'full': 1}}['full'])\n", "FSDP506")
    kinds = 'KINDS = {"full": ShardingStrategy.FULL_SHARD, "none": ShardingStrategy.NO_SHARD}\n'
    check_noop(f"{NAMES}{kinds}m = FSDP(x, sharding_strategy=KINDS['full'])\n", "FSDP506")


def test_changed_defaults_are_hints_only_where_the_range_spans_them() -> None:
    found = lint(FSDP + "m = FSDP(x)\n", "FSDP507", torch=">=1.13")
    assert [(f.severity, f.message.split("`")[1]) for f in found] == [
        (Severity.HINT, "backward_prefetch"),
        (Severity.HINT, "limit_all_gathers"),
    ]
    (found_2_0,) = lint(FSDP + "m = FSDP(x)\n", "FSDP507", torch=">=2.0")
    assert "`limit_all_gathers` is `False` before torch 2.1" in found_2_0.message
    check_noop(FSDP + "m = FSDP(x, limit_all_gathers=True)\n", "FSDP507", torch=">=2.0")
    check_noop(FSDP + "m = FSDP(x, **kw)\n", "FSDP507", torch=">=1.13")
    check_noop(FSDP + "m = FSDP(x)\n", "FSDP507", torch="<2.0,>=1.13")


@pytest.mark.parametrize(
    "cls",
    [
        "class M(FSDP):\n    def __new__(cls, m, fsdp_auto_wrap_policy=None):\n        return super().__new__(cls)\n",
        "class M(FSDP, metaclass=Meta):\n    pass\n",
        "class M(FSDP):\n    def __init__(self, m, fsdp_auto_wrap_policy=None, **rest):\n"
        "        super().__init__(m, **rest)\n",
    ],
)
def test_an_argument_that_a_subclass_takes_itself_is_left_alone(cls: str) -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    check_noop(f"{head}{cls}x = M(net, fsdp_auto_wrap_policy=p)\n", "FSDP501")


@pytest.mark.parametrize(
    "call",
    [
        "FSDP(m, None, CPUOffload(), *rest)",
        "FSDP(m, *(None, CPUOffload()))",
        "given = (None, CPUOffload())\nFSDP(m, *given)",
        "FSDP(m, None, *[CPUOffload(), p])",
    ],
)
def test_positions_in_front_of_a_rest_or_in_a_tuple_are_seen(call: str) -> None:
    head = "from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP\n"
    check_manual(f"{head}{call}\n", "FSDP504", "the call passes `*args`")


@pytest.mark.parametrize(
    "call", ["FSDP(m, None, *rest)", "FSDP(m, *rest, CPUOffload())", "FSDP(m, *(None, None), *rest)"]
)
def test_what_a_rest_brings_from_elsewhere_is_left_alone(call: str) -> None:
    head = "from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP\n"
    check_noop(f"{head}{call}\n", "FSDP504")
