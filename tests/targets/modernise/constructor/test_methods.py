from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

FSDP = (
    "import torch\nimport torch.nn as nn\n"
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n"
)
BUILT = FSDP + "m = FSDP(x)\n"
CLIP = "nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n"


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("nn.utils.clip_grad_norm_(m.parameters(), 1.0)", "m.clip_grad_norm_(1.0)"),
        ("norm = torch.nn.utils.clip_grad_norm_(m.parameters(), c, 1)", "norm = m.clip_grad_norm_(c, 1)"),
        ("nn.utils.clip_grad_norm_(m.module.parameters(), 1.0)", "m.clip_grad_norm_(1.0)"),
        (
            "if not cfg.fsdp: pass\nelse: nn.utils.clip_grad_norm_(m.parameters(), c)",
            "if not cfg.fsdp: pass\nelse: m.clip_grad_norm_(c)",
        ),
        ("nn.utils.clip_grad_norm(m.parameters(), 1.0)", "m.clip_grad_norm_(1.0)"),
        ("nn.utils.clip_grad_norm_(m.parameters(), norm_type=1)", "m.clip_grad_norm_(norm_type=1)"),
        ("nn.utils.clip_grad_norm_(parameters=m.parameters(), max_norm=c)", "m.clip_grad_norm_(max_norm=c)"),
        ("f = lambda: nn.utils.clip_grad_norm_(m.parameters(), c)", "f = lambda: m.clip_grad_norm_(c)"),
    ],
)
def test_clipping_is_left_to_the_model(call: str, after: str) -> None:
    used = BUILT + "keep = torch, nn\n"
    check_transformed(f"{used}{call}\n", f"{used}{after}\n", "FSDP503", unsafe=True)
    (found,) = lint(f"{BUILT}{call}\n", "FSDP503")
    assert found.severity is Severity.CHANGES
    assert found.reason == "gradients are clipped by another norm, that of the whole model"


def test_an_import_that_clipping_needed_goes() -> None:
    for import_, call in (
        ("from torch.nn.utils import clip_grad_norm_", "clip_grad_norm_"),
        ("import torch.nn.utils as u", "u.clip_grad_norm_"),
    ):
        before = f"{BUILT}{import_}\n{call}(m.parameters(), 1.0)\n"
        check_transformed(before, BUILT + "m.clip_grad_norm_(1.0)\n", "FSDP503", unsafe=True)


@pytest.mark.parametrize(
    "arguments", ["m.parameters(), c, foreach=True", "m.parameters(), *c", "max_norm=c, parameters=m.parameters()"]
)
def test_clipping_that_does_not_fit_the_method_is_reported(arguments: str) -> None:
    check_manual(f"{BUILT}nn.utils.clip_grad_norm_({arguments})\n", "FSDP503", "norm over all ranks")


@pytest.mark.parametrize(
    ("before", "parameters"),
    [
        ("", "list(m.parameters())"),
        ("", "[p for p in m.parameters() if p.requires_grad]"),
        ("", "(p for p in m.parameters())"),
        ("", "filter(lambda p: p.requires_grad, m.parameters())"),
        ("ps = m.parameters()\n", "ps"),
        ("ps = [p for p in m.parameters() if p.grad is not None]\n", "parameters=ps"),
    ],
)
def test_clipping_what_is_chosen_of_the_parameters_is_reported(before: str, parameters: str) -> None:
    text = f"{BUILT}{before}nn.utils.clip_grad_norm_({parameters}, max_norm=1.0)\n"
    check_manual(text, "FSDP503", "FSDP's own method clips all parameters: use `m.clip_grad_norm_(...)`")


@pytest.mark.parametrize(
    "text",
    [
        CLIP,
        "m = FSDP(x)\nnn.utils.clip_grad_norm_([f(p) for p in m.parameters()], 1.0)\n",
        "m = FSDP(x)\nps = m.parameters()\nif a:\n    ps = x.parameters()\nnn.utils.clip_grad_norm_(ps, 1.0)\n",
        "m = FSDP(x) if a else x\n" + CLIP,
        "if a:\n    m = FSDP(x)\nelse:\n    m = x\n" + CLIP,
        "if a:\n    m = FSDP(x)\n" + CLIP,
        "def f(m):\n    if a:\n        m = FSDP(m)\n    " + CLIP,
        "def f(m):\n    " + CLIP,
        "m = fully_shard(x)\n" + CLIP,
        "m = FSDP(x, sharding_strategy=ShardingStrategy.NO_SHARD)\n" + CLIP,
        "m = FSDP(x, sharding_strategy=ShardingStrategy['NO_SHARD'])\n" + CLIP,
        "m = FSDP(x)\nif isinstance(m, FSDP):\n    m.clip_grad_norm_(1.0)\nelse:\n    " + CLIP,
        "m = FSDP(x)\nif not isinstance(m, FSDP):\n    " + CLIP,
        "m = FSDP(x)\ndef f():\n    if hasattr(m, 'clip_grad_norm_'):\n        return m.clip_grad_norm_(1.0)\n    "
        + CLIP,
        "m = FSDP(x)\ntry:\n    m.clip_grad_norm_(1.0)\nexcept AttributeError:\n    " + CLIP,
        "m = FSDP(x)\nm.clip_grad_norm_(1.0) if cfg.fsdp else " + CLIP,
        "m = FSDP(x)\nwith FSDP.summon_full_params(m, with_grads=True):\n    " + CLIP,
        "m = FSDP(x)\nnn.utils.clip_grad_norm_(x.parameters(), 1.0)\n",
        "m = FSDP(x)\nm.clip_grad_norm_(1.0)\n",
        "nn.utils.clip_grad_norm_(FSDP(x).parameters(), 1.0)\n",
        "m = FSDP(x)\nnn.utils.clip_grad_norm_(m.trainable(), 1.0)\n",
        "m = FSDP(x)\ndef clip_grad_norm_(p, c):\n    pass\nclip_grad_norm_(m.parameters(), 1.0)\n",
        "class T:\n    def __init__(self, m):\n        self.m = m\n        if a:\n            self.m = FSDP(m)\n"
        "    def f(self):\n        nn.utils.clip_grad_norm_(self.m.parameters(), 1.0)\n",
        "class T:\n    def __init__(self, m):\n        self.m = FSDP(m)\n"
        "class U:\n    def f(self):\n        nn.utils.clip_grad_norm_(self.m.parameters(), 1.0)\n",
    ],
)
def test_clipping_that_gets_no_shards_of_an_fsdp_model_is_left_alone(text: str) -> None:
    check_noop(FSDP + text, "FSDP503")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("m.summon_full_params()", "FSDP.summon_full_params(m)"),
        ("m.summon_full_params(recurse=False)", "FSDP.summon_full_params(m, recurse=False)"),
        ("m.summon_full_params( recurse=False)", "FSDP.summon_full_params(m,  recurse=False)"),
    ],
)
def test_the_module_is_handed_to_the_static_method(before: str, after: str) -> None:
    check_transformed(f"{BUILT}with {before}:\n    pass\n", f"{BUILT}with {after}:\n    pass\n", "FSDP505")
    (found,) = lint(f"{BUILT}with {before}:\n    pass\n", "FSDP505")
    assert found.severity is Severity.BREAKS
    check_manual(f"{BUILT}with {before}:\n    pass\n", "FSDP505", "needs torch>=1.12", torch=">=1.11")


@pytest.mark.parametrize(
    "text",
    [
        "for m in FSDP.fsdp_modules(x):\n    {}\n",
        "def f(m):\n    if not isinstance(m, FSDP):\n        return\n    {}\n",
        "def f(m: 'FSDP | None'):\n    {}\n",
        "class C(FSDP):\n    def f(m):\n        {}\n",
    ],
)
def test_what_is_known_to_be_a_model_is_handed_to_its_own_method(text: str) -> None:
    before, after = (text.format(f"m.summon_full_params({one}).__enter__()") for one in ("", "m"))
    check_transformed(FSDP + before, FSDP + after, "FSDP505")


@pytest.mark.parametrize(
    "text",
    [
        "class T:\n    model: FSDP\n    def f(self):\n        self.model.summon_full_params()\n",
        "from fairscale.nn import FullyShardedDataParallel as Other\n"
        "m = FSDP(x)\nif a:\n    m = Other(x)\nm.summon_full_params()\n",
    ],
)
def test_what_may_be_something_else_is_not_handed_over(text: str) -> None:
    check_manual(FSDP + text, "FSDP505", "call `summon_full_params` on the class")


def test_a_class_that_is_not_seen_from_the_call_is_reported() -> None:
    text = """\
    class T:
        def __init__(self, m):
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            self.m = FSDP(m)

        def f(self):
            with self.m.summon_full_params():
                pass
    """
    check_manual(text, "FSDP505", "pass `self.m`")


@pytest.mark.parametrize(
    "text",
    [
        "with x.summon_full_params():\n    pass\n",
        "with m.summon_full_params(m):\n    pass\n",
        "with FSDP.summon_full_params(module=m):\n    pass\n",
        "with m.summon_full_params(*a):\n    pass\n",
        "with m.summon_full_params(**a):\n    pass\n",
    ],
)
def test_full_parameters_of_others_or_with_a_module_are_left_alone(text: str) -> None:
    check_noop(BUILT + text, "FSDP505")


def test_a_parameter_that_is_annotated_as_an_fsdp_model_is_reported() -> None:
    text = FSDP + "from torch import nn\ndef step(m: {}, n: int):\n    " + CLIP
    check_manual(text.format("FSDP"), "FSDP503", "this holds unless the model is built with NO_SHARD")
    for annotation in ("Optional[FSDP]", "nn.Module", "'FSDP | None'"):
        check_noop(text.format(annotation), "FSDP503")
    check_noop(text.format("FSDP").replace("    nn.", "    m = other(m)\n    nn."), "FSDP503")


@pytest.mark.parametrize(
    ("test", "is_fsdp"),
    [
        ("cfg.fsdp", True),
        ("cfg.fsdp is not None", True),
        ("cfg.strategy == 'fsdp'", True),
        ("'fsdp' in cfg.strategy", True),
        ("not not cfg.fsdp", True),
        ("not cfg.fsdp", False),
        ("cfg.fsdp is None", False),
        ("cfg.fsdp == False", False),
        ("cfg.strategy != 'fsdp'", False),
        ("'fsdp' not in cfg.strategy", False),
        ("not cfg.fsdp or cfg.fast", False),
    ],
)
def test_a_test_about_fsdp_says_on_which_side_models_are_clipped_wrongly(test: str, is_fsdp: bool) -> None:
    texts = [f"if {test}:\n    {CLIP}", f"if {test}:\n    pass\nelse:\n    {CLIP}"]
    texts.append(f"def f():\n    if {test}:\n        return\n    {CLIP}")
    found = [bool(lint(BUILT + text, "FSDP503")) for text in texts]
    assert found == [is_fsdp, not is_fsdp, not is_fsdp]
