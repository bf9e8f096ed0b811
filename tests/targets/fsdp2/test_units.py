"""Modules inside a model, its own module, and tests for its class."""

from __future__ import annotations

import pytest

from tests.targets.fsdp2.converted import Converted, check_becomes, check_stays, check_wall

IMPORTS = "import copy\nimport deepspeed\nfrom ..policies.ac import apply_checkpointing\n"
BUILT = "model = FSDP(Net())\n"
IMPORT = "from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel as FSDP\n"


def becomes(before: str, after: str) -> None:
    found = Converted(f"{BUILT}{before}\n")
    assert found.walls == found.differences == []
    assert found.text == f"import torch\nimport torch.nn as nn\n{IMPORT}{BUILT}{after}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("assert isinstance(model, FSDP)", "assert isinstance(model, FSDPModule)"),
        (
            "if isinstance(model, (nn.Linear, FSDP)):\n    pass",
            "if isinstance(model, (nn.Linear, FSDPModule)):\n    pass",
        ),
        (
            "units = list(FSDP.fsdp_modules(model))",
            "units = list([module for module in model.modules() if isinstance(module, FSDPModule)])",
        ),
        (
            "for m in model.modules():\n    if isinstance(m, FSDP):\n        n += 1",
            "for m in model.modules():\n    if isinstance(m, FSDPModule):\n        n += 1",
        ),
        ('if hasattr(model, "_fsdp_wrapped_module"):\n    pass', "if isinstance(model, FSDPModule):\n    pass"),
    ],
)
def test_what_asks_for_the_class(before: str, after: str) -> None:
    becomes(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = model.module(batch)", "x = model(batch)"),
        ("x = model._fsdp_wrapped_module(batch)", "x = model(batch)"),
        ("model.module.eval()", "model.eval()"),
        ("plain = model.module\nplain.train()", "plain = model\nplain.train()"),
        ("x = model.forward(batch)", "x = model(batch)"),
        ("model.module.clip_grad_norm_(1.0)", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
    ],
)
def test_what_looks_behind_the_wrapper(before: str, after: str) -> None:
    check_becomes(f"{BUILT}{before}\n", f"{BUILT}{after}\n")


@pytest.mark.parametrize(
    "program",
    [
        "plain = model.module if hasattr(model, 'module') else model",
        "plain = getattr(model, 'module', model)\nplain.eval()",
        "while hasattr(model, 'module'):\n    model = model.module",
        "for n, m in model.named_modules():\n    if isinstance(m, nn.Dropout) and 'head' in n:\n        m.p = 0.0",
        "print(len(list(model.modules())))",
        "if model is None:\n    pass",
        "model.train()\nmodel.zero_grad(set_to_none=True)\nmodel.to(device)\nmodel.cuda(rank)",
        "logger.info('%s', model)\nprint(f'{model}')",
        "compiled = torch.compile(other)",
        "out = model(batch, mask=None)",
        "model.half()",
        "model.forward",
        "print(type(model))\nlogger.info(f'{type(model).__name__}')",
        "print(f'{model.__class__.__name__}')",
        "model.to(torch.bfloat16)",
    ],
)
def test_this_stays_as_it_is(program: str) -> None:
    check_stays(f"{BUILT}{program}\n")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("if type(model) is FSDP:\n    pass", "asks for the class"),
        ("name = model.__class__.__name__", "`model.__class__` asks for the class"),
        ("copy.deepcopy(model)", "copies a sharded model"),
        ("torch.optim.swa_utils.AveragedModel(model)", "copies a sharded model"),
        ("ddp = torch.nn.parallel.DistributedDataParallel(model)", "wraps a sharded model"),
        (
            "engine = deepspeed.initialize(model=model)",
            "`deepspeed.initialize` gets the model, and is not among the files",
        ),
        ("apply_checkpointing(model)", "`..policies.ac.apply_checkpointing` gets the model, and is not"),
        ("torch.save(model, path)", "pickles"),
        ("model.check_is_root()", "part of FSDP1"),
        ("model._handle.reshard(True)", "part of FSDP1"),
        ("model.register_comm_hook(None, hook)", "how gradients are communicated"),
        ("model.apply(init)", "gathers parameters in FSDP1"),
        ("model.cpu()", "moves parameters"),
        ("for m in model.children():\n    pass", "gives the wrapped module"),
        ("roots = FSDP.fsdp_modules(model, root_only=True)", "roots only"),
        ("getattr(model, name)", "whose name is not written"),
        (
            "while isinstance(model, (FSDP, DDP)):\n    model = model.module",
            "the loop around `model = model.module` would",
        ),
        ("self.plain = model.module", "the module in `model` cannot be followed"),
        ("for n, m in model.named_modules():\n    n.split('.')", "has a prefix"),
        ("model.config = other", "assigned on the model"),
    ],
)
def test_this_is_a_wall(program: str, reason: str) -> None:
    check_wall(f"{IMPORTS}{BUILT}{program}\n", reason)


def test_a_ddp_model_keeps_its_module() -> None:
    program = (
        "from torch.nn.parallel import DistributedDataParallel\n"
        "model = FSDP(Net()) if sharded else DistributedDataParallel(Net())\n"
    )
    arms = ("DistributedDataParallel(Net())",)
    check_wall(f"{program}model.module.eval()\n", "also be a DDP model", others=arms)
    guarded = f"{program}plain = model.module if hasattr(model, 'module') else model\n"
    assert Converted(guarded, others=arms).walls == []


@pytest.mark.parametrize(
    "program",
    [
        "while hasattr(model, 'module'):\n    model = model.module",
        "for block in model.modules():\n    for block in block:\n        block.train()",
    ],
)
def test_a_part_that_leads_back_to_itself_comes_to_an_end(program: str) -> None:
    assert Converted(f"{BUILT}{program}\n").walls == []


@pytest.mark.parametrize(
    "check", ["lambda m: type(m) is Block", "partial(chosen, Block)", "lambda m: m.__class__ == Block"]
)
def test_checkpointing_does_not_ask_for_classes(check: str) -> None:
    program = f"""
        from functools import partial
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

        def chosen(cls, module):
            return type(module) is cls

        model = FSDP(Net())
        apply_activation_checkpointing(model, check_fn={check})
    """
    assert ["the class of a module" in wall for wall in Converted(program).walls] == [True]
    assert Converted(program.replace(check, "lambda m: isinstance(m, Block)")).walls == []


def test_a_test_of_modules_needs_the_isinstance_of_python() -> None:
    check_wall("def isinstance(x, y): ...\nprint(FSDP.fsdp_modules(model))\n", "`isinstance` is needed here")
    check_wall("isinstance = print\nprint(hasattr(model, '_handle'))\n", "`isinstance` is needed here")
