"""What the module's own class defines, read through the model: attributes, modules, parameters, methods."""

from __future__ import annotations

import pytest

from tests.targets.fsdp2.converted import Converted, check_stays, check_wall

NET = """
from torch.distributed.fsdp import ShardingStrategy

class Block(nn.Module):
    def __init__(self, config):
        self.config = config
        self.gate = nn.Parameter(torch.zeros(3))
        self.linear = nn.Linear(3, 3)

class Net(nn.Module):
    def __init__(self, config):
        self.config = config
        self.depth = 3
        self.head = nn.Linear(3, 5)
        self.blocks = nn.ModuleList(Block(config) for _ in range(3))
        self.first = Block(config)

    def freeze_head(self):
        for p in self.head.parameters():
            p.requires_grad = False

    def describe(self):
        return f"{self.depth} blocks, {len(self.blocks)}"

    def reset(self):
        self.freeze_head()
        for block in self.blocks:
            block.linear.weight.data.zero_()

    def encode(self, x):
        return self.head(x)

    def score(self, x):
        return self(x).sum()

    def norm(self):
        return self.head.weight.norm().item()

    def whole(self):
        return self.encode(1)

    @property
    def width(self):
        return self.config.width

model = FSDP(Net(config), use_orig_params=True)
"""


@pytest.mark.parametrize(
    "program",
    [
        "x = model.depth",
        "x = model.config.width",
        "x = model.head.in_features",
        "model.head.weight.requires_grad_(False)",
        "model.head.bias.data.zero_()",
        "for block in model.blocks:\n    block.linear.weight.data.mul_(0.5)",
        "for i, block in enumerate(model.blocks):\n    block.gate.data.fill_(i)",
        "model.blocks[0].train()",
        "print(len(model.blocks))",
        "model.freeze_head()",
        "print(model.describe())",
        "model.reset()",
        "x = model.width",
        "first = model.first\nfirst.gate.requires_grad = False",
        "y = model.first(batch)",
        "for m in model.modules():\n    if isinstance(m, Block):\n        m.linear.eval()\n        m.config.drop = 0",
    ],
)
def test_this_stays_as_it_is(program: str) -> None:
    check_stays(f"{NET}{program}\n")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("mean = model.head.bias.mean()", "reads the elements"),
        ("mean = model.blocks[0].gate.mean()", "not known what `model.blocks[0].gate.mean` does"),
        ("model.encode(batch)", "runs `self.head` outside of forward"),
        ("model.whole()", "runs `self.head` outside of forward"),
        ("model.score(batch)", "runs `self` outside of forward"),
        ("model.norm()", "reads the elements"),
        ("model.generate(batch)", "runs modules outside of forward"),
        ("model.unknown(batch)", "defines `unknown` of `model`"),
        ("model.save_pretrained(path)", "would save parameters that are sharded"),
        ("f = model.encode", "is passed on"),
        ("model.depth = 4", "assigned on the model"),
        ("model.first.depth = 4", "assigned on the model"),
        ("for m in model.modules():\n    m.reset_parameters()", "not known what `m.reset_parameters` does"),
        ("model.first.gate[0] = 1", "indexes a sharded parameter"),
    ],
)
def test_this_is_a_wall(program: str, reason: str) -> None:
    check_wall(f"{NET}{program}\n", reason)


def test_a_parameter_may_be_read_where_it_is_gathered() -> None:
    found = Converted(
        f"{NET}with FSDP.summon_full_params(model, writeback=False):\n    x = model.head.bias.mean().item()\n"
    )
    assert found.walls == found.differences == []


def test_a_method_may_set_attributes_of_its_module() -> None:
    net = NET.replace("    def reset(self):\n", "    def reset(self):\n        self.depth = 4\n")
    check_stays(f"{net}model.reset()\n")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ('if hasattr(model, "set_requires_gradient_sync"):\n    pass', "looks for `set_requires_gradient_sync`"),
        ('f = getattr(model, "parameters")', "looks for `parameters`"),
        ('getattr(model, "head").weight.sum()', "reads the elements"),
    ],
)
def test_what_is_looked_up_by_name(program: str, reason: str) -> None:
    check_stays(f'{NET}if hasattr(model, "head"):\n    pass\nx = getattr(model, "depth", 0)\n')
    check_wall(f"{NET}{program}\n", reason)


@pytest.mark.parametrize("read", ["model.first, 'size', 224", "model.first, 'kind', 'none'", "part, 'tied', False"])
def test_what_has_a_number_or_a_text_instead_is_no_module(read: str) -> None:
    check_stays(f"import torchvision\n{NET}for part in model.modules():\n    torchvision.resize(getattr({read}))\n")


@pytest.mark.parametrize("read", ["model.first, 'extra', None", "model.first, 'gate', 0", "part, 'gate', 0"])
def test_what_may_be_a_module_or_a_parameter_is_followed(read: str) -> None:
    program = f"import torchvision\n{NET}for part in model.modules():\n    torchvision.resize(getattr({read}))\n"
    check_wall(program, "`torchvision.resize` gets the model")


@pytest.mark.parametrize("function", ["zeros_", "constant_"])
def test_parameters_may_be_set_to_a_constant(function: str) -> None:
    check_stays(f"{NET}nn.init.{function}(model.head.bias)\n")


def test_random_initialisation_is_declared() -> None:
    found = Converted(f"{NET}nn.init.normal_(model.head.weight, std=0.02)\n")
    assert found.walls == []
    assert "other numbers" in found.differences[0]


def test_a_policy_asks_before_anything_is_sharded() -> None:
    check_stays(
        """
        from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy
        import functools
        model = FSDP(
            Unknown(),
            auto_wrap_policy=functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.unknown()),
        )
        """
    )


def test_numbers_of_the_module_can_be_computed_with() -> None:
    check_stays(f"{NET}width = 2 * model.config.width + model.depth\n")


def test_a_module_that_a_registry_makes_is_found_by_its_method() -> None:
    net = NET.replace("FSDP(Net(config)", "FSDP(create(args.model)")
    check_stays(f"{net}model.freeze_head()\n")
    check_wall(f"{net}model.encode(x)\n", "runs `self.head` outside of forward")
    check_wall(f"{net}model.unknown(x)\n", "defines `unknown` of `model`")


def test_the_own_parameters_of_modules_are_read() -> None:
    check_stays(
        f"{NET}for m in model.modules():\n    for n, p in m._parameters.items():\n"
        "        p.requires_grad = n != 'bias'\n"
    )
    check_wall(f"{NET}model.first._parameters['gate'] = other\n", "may change parameters that are sharded")
    check_wall(f"{NET}x = [p.sum() for p in model.first._parameters.values()]\n", "reads the elements")


@pytest.mark.parametrize(
    "program",
    [
        "for m in model.modules():\n    m.weight = other",
        "for m in model.modules():\n    m.gate = nn.Parameter(other)",
        "for m in model.modules():\n    m.linear = nn.Linear(1, 1)",
    ],
)
def test_a_new_part_is_a_wall(program: str) -> None:
    check_wall(f"{NET}{program}\n", "puts a new part into a model")


def test_a_method_that_is_called_like_one_of_a_logger_is_not_known() -> None:
    check_wall(f"{NET}import tracker\ntracker.log(model)\n", "tracker")


@pytest.mark.parametrize("made", ["create(args.model)", "Net(config)"])
def test_the_config_of_a_module_is_data(made: str) -> None:
    net = NET.replace("FSDP(Net(config)", f"FSDP({made}")
    check_stays(f"{net}import tracker\ntracker.config.update({{'width': model.config.width}})\n")
