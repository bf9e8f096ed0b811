"""What is done with the parameters of a model: what stays, what is declared, what stops the conversion."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.fsdp2.converted import Converted, check_becomes, check_stays, check_wall
from tests.targets.fsdp2.rewritten import models_of

BUILT = "model = FSDP(Net(), use_orig_params=True)\n"
FLAT = "model = FSDP(Net())\n"
SHAPES = "shapes and numbers of elements are those of whole parameters, not of the pieces on a rank"


@pytest.mark.parametrize(
    "program",
    [
        "for p in model.parameters():\n    p.requires_grad = False",
        "for p in model.parameters():\n    p.grad = None",
        "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.data.mul_(1 / dist.get_world_size())",
        "for p in model.parameters():\n    if p.grad is not None:\n        p.grad /= args.accumulation",
        "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)",
        "optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()))",
        "optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)",
        "trained = [p for p in model.parameters() if p.requires_grad]\noptimizer = torch.optim.SGD(trained, 0.1)",
        "groups = [{'params': [p for n, p in model.named_parameters() if 'bias' in n]}]\ntorch.optim.SGD(groups, 0.1)",
        "def build(model):\n    decay = []\n    for n, p in model.named_parameters():\n        if n.endswith('bias'):\n"
        "            decay.append(p)\n    return torch.optim.SGD(decay, 0.1)\n",
        "print([p.dtype for p in model.parameters()])",
        "device = next(model.parameters()).device",
        "torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)",
        "for p in model.parameters():\n    p.data.copy_(p.data.clone().to(torch.float32))",
        "for n, p in model.named_parameters():\n    if any(s in n for s in SKIP):\n        p.requires_grad_(False)",
        "for n, p in model.named_parameters():\n    n = n.replace('_fsdp_wrapped_module.', '')\n    ok = n == 'a'",
        "for n, p in model.named_parameters():\n    n = '.'.join(x for x in n.split('.') if not x.startswith('_'))",
        "for n, p in model.named_parameters():\n    n = [x for x in n.split('.') if x != '_fsdp_wrapped_module'][0]",
        "for n, p in model.named_parameters():\n    n = [x for x in n.split('.') if 'fsdp' not in x]",
        "for p in model.parameters():\n    print(p)",
        "def build():\n    a, b = [], []\n    for n, p in model.named_parameters():\n"
        "        (a if 'bias' in n else b).append(p)\n    torch.optim.SGD([{'params': a}, {'params': b}], 0.1)",
        "torch.optim.SGD(itertools.chain(model.parameters(), head.parameters()), 0.1)",
        "torch.optim.SGD(itertools.chain.from_iterable([model.parameters(), head.parameters()]), 0.1)",
        "torch.optim.SGD(itertools.chain(*[model.parameters(), head.parameters()]), 0.1)",
        "torch.optim.SGD([{'params': model.parameters()}, {'params': head.parameters()}], 0.1, foreach=True)",
        "for p in model.parameters():\n    p.register_hook(print)",
        "optimizer.add_param_group({'params': model.parameters()})",
        "x = any(p.requires_grad for p in model.parameters())",
    ],
)
def test_this_stays_as_it_is(program: str) -> None:
    check_stays(f"import itertools\nimport torch.distributed as dist\n{BUILT}{program}\n")


def test_an_average_of_two_sharded_models_stays() -> None:
    program = """
    model, ema = FSDP(Net()), FSDP(Net())
    for averaged, p in zip(ema.parameters(), model.parameters()):
        averaged.data.mul_(args.decay).add_(p.data, alpha=1 - args.decay)
        averaged.lerp_(p, 0.1)
    """
    check_stays(program, "model", "ema")


def test_an_average_by_name_stays() -> None:
    check_stays(
        """
        def update_ema(ema, model, decay=0.99):
            averages = dict(ema.named_parameters())
            for name, p in model.named_parameters():
                averages[name].mul_(decay).add_(p.data, alpha=1 - decay)
        """,
        "model",
        "ema",
    )


@pytest.mark.parametrize(
    "program",
    [
        "total = sum(p.numel() for p in model.parameters())",
        "decay = [p for p in model.parameters() if p.ndim >= 2]\ntorch.optim.SGD(decay, 0.1)",
        "print([p.shape for p in model.parameters()])",
    ],
)
def test_shapes_are_declared(program: str) -> None:
    found = Converted(f"{BUILT}{program}\n")
    assert found.walls == []
    assert found.differences == [SHAPES]


@pytest.mark.parametrize("test", ["'bias' in n", "n.endswith('bias')", "any(s in n for s in SKIP)"])
def test_names_are_declared_where_fsdp1_had_flat_parameters(test: str) -> None:
    program = f"groups = [p for n, p in model.named_parameters() if {test}]\ntorch.optim.SGD(groups, 0.1)\n"
    assert Converted(BUILT + program).differences == []
    found = Converted(FLAT + program)
    assert found.walls == []
    assert [what.partition(",")[0] for what in found.differences] == ["names of parameters are those of the module"]


@pytest.mark.parametrize("test", ["'layers.0.fc1' in n", "n.endswith('blocks.3.bias')"])
def test_a_part_of_a_name_that_goes_across_a_unit_is_declared(test: str) -> None:
    found = Converted(
        f"{BUILT}for n, p in model.named_parameters():\n    if {test}:\n        p.requires_grad = False\n"
    )
    assert found.walls == []
    assert "kept apart" in found.differences[0]


def test_the_function_that_clipped_by_a_local_norm_now_does_by_the_global_one() -> None:
    built = f"{BUILT}loss.backward()\n"
    found = Converted(f"{built}norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n")
    assert found.walls == []
    assert len(found.differences) == 1
    assert found.text == f"{built}norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()\n"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("for p in model.parameters():\n    total += p.grad.norm() ** 2", "reads the elements"),
        ("for p in model.parameters():\n    total += p.grad.data.float().norm(2).item()", "reads the elements"),
        ("for p in model.parameters():\n    dist.all_reduce(p.grad)", "to a collective"),
        ("for p in model.parameters():\n    dist.broadcast(p.data, 0)", "to a collective"),
        ("for p in model.parameters():\n    p.data.add_(torch.randn(3))", "mixes a sharded parameter"),
        ("for p in model.parameters():\n    p.data.copy_(torch.load(path))", "mixes a sharded parameter"),
        ("for p, q in zip(model.parameters(), stored):\n    p.data.copy_(q)", "mixes a sharded parameter"),
        ("for p, q in zip(model.parameters(), stored):\n    p.data = q", "puts another tensor"),
        ("for p in model.parameters():\n    p[0] = 0", "indexes a sharded parameter"),
        ("for p in model.parameters():\n    x = p.detach().numpy()", "differs for a sharded parameter"),
        ("for p in model.parameters():\n    if p.no_weight_decay:\n        pass", "lost with the old parameter"),
        ("flat = torch.cat([p.detach() for p in model.parameters()])", "given to `torch.cat`"),
        ("nn.utils.parameters_to_vector(model.parameters())", "gets parameters"),
        ("self.parameters = list(model.parameters())", "cannot be followed"),
        ("average = ExponentialMovingAverage(model.parameters(), decay=0.9)", "gets parameters"),
        ("f = model.parameters", "is passed on"),
        ("for n, p in model.named_parameters():\n    if n.startswith('head'):\n        pass", "has a prefix"),
        ("for n, p in model.named_parameters():\n    if n == 'head.weight':\n        pass", "has a prefix"),
        (
            "for n, p in model.named_parameters():\n    x = [s for s in n.split('.') if s.startswith('_')]",
            "has a prefix",
        ),
        ("for n, p in model.named_parameters():\n    x = [s for s in n.split('.') if s != '0']", "has a prefix"),
        ("for p in itertools.chain(model.parameters(), head.parameters()):\n    x = p.norm()", "reads the elements"),
        (
            "torch.optim.SGD(itertools.chain(model.parameters(), head.parameters()), 0.1, fused=True)",
            "of other modules",
        ),
        ("for p in model.parameters():\n    if isinstance(p, FlatParameter):\n        pass", "flat parameters"),
        ("def groups(model):\n    return list(model.parameters())", "nothing in the project calls"),
    ],
)
def test_this_is_a_wall(program: str, reason: str) -> None:
    imports = "import itertools\nimport torch.distributed as dist\n"
    imports += "from torch.distributed.fsdp._flat_param import FlatParameter\n"
    check_wall(f"{imports}{BUILT}{program}\n", reason)


def test_a_norm_of_parameters_of_two_modules_is_a_wall() -> None:
    clip = "nn.utils.clip_grad_norm_(list(model.parameters()) + list(head.parameters()), 1.0)"
    found = Converted(f"{BUILT}{clip}\n")
    assert ["together with those of the model" in one for one in found.walls] == [True]


def test_the_norm_of_another_model_is_not_looked_at() -> None:
    program = f"{BUILT}for p in teacher.parameters():\n    total += p.norm()\n"
    check_becomes(program, program)


def test_groups_that_are_collected_in_a_dict_stay(tmp_path: Path) -> None:
    program = """
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    def groups_of(model):
        groups = {}
        for n, p in model.named_parameters():
            name = "decay" if "bias" not in n else "plain"
            if name not in groups:
                groups[name] = {"params": [], "weight_decay": 0.0}
            groups[name]["params"].append(p)
        return list(groups.values())

    model = FSDP(torch.nn.Linear(1, 1), use_orig_params=True)
    optimizer = torch.optim.AdamW(groups_of(model))
    """
    (model,) = models_of(tmp_path, {"main.py": program})
    assert model.conversion.walls == model.conversion.differences == []
