"""Optimizers of a converted model: their classes, their place, and gradient scalers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.fsdp2.programs import check_becomes, check_stays, plan

HEAD = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"


def trained_by(optimizer: str, kept: bool = True, head: str = "") -> str:
    return (
        f"{HEAD}{head}\nmodel = FSDP(torch.nn.Linear(2, 2), use_orig_params={kept})\n"
        f"optimizer = {optimizer}(model.parameters())\n"
    )


@pytest.mark.parametrize("name", ["SGD", "AdamW", "RMSprop", "NAdam"])
def test_elementwise_optimizers_of_torch_stay(tmp_path: Path, name: str) -> None:
    assert plan(tmp_path, trained_by(f"torch.optim.{name}", kept=False)).left == ()


@pytest.mark.parametrize("name", ["LBFGS", "Adafactor", "Rprop"])
def test_optimizers_that_fail_on_sharded_parameters_stop_it(tmp_path: Path, name: str) -> None:
    check_stays(tmp_path, trained_by(f"torch.optim.{name}"), "which fails on sharded parameters")


def test_kernels_of_other_packages_stop_it(tmp_path: Path) -> None:
    head = "from apex.optimizers import FusedAdam\n"
    check_stays(tmp_path, trained_by("FusedAdam", head=head), "of apex updates parameters with its own kernels")


OWN = """\


class Own(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    {update}


"""


def test_an_own_optimizer_of_elementwise_methods_is_exact(tmp_path: Path) -> None:
    head = OWN.format(update='p.add_(p.grad.sign(), alpha=-group["lr"])')
    assert plan(tmp_path, trained_by("Own", kept=False, head=head)).left == ()


def test_an_own_optimizer_that_looks_at_shapes_is_a_difference_where_parameters_were_flat(tmp_path: Path) -> None:
    head = OWN.format(update='p.add_(p.grad / torch.linalg.matrix_norm(p.grad), alpha=-group["lr"])')
    (left,) = plan(tmp_path, trained_by("Own", kept=False, head=head)).left
    assert "parameters are no longer flat" in (left.reason or "")
    assert plan(tmp_path, trained_by("Own", head=head)).left == ()


BEFORE = (
    HEAD
    + """

def train(net, optimizer):
    optimizer.step()


def main(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{between}    {wrap}
    {use}
"""
)
WRAP = "net = FSDP(net, use_orig_params=True)"


def test_an_optimizer_from_before_moves_behind_the_wrap(tmp_path: Path) -> None:
    check_becomes(
        tmp_path,
        BEFORE.format(between="", wrap=WRAP, use="train(net, optimizer)"),
        """\
        import torch
        from torch.distributed.fsdp import fully_shard


        def train(net, optimizer):
            optimizer.step()


        def main(net):
            fully_shard(net)
            net.set_reduce_scatter_unused_params(True)  # as in FSDP1, no gradient counts as zero
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            train(net, optimizer)
        """,
    )


def test_an_optimizer_that_is_used_before_the_wrap_stops_it(tmp_path: Path) -> None:
    program = BEFORE.format(between="    show(optimizer)\n", wrap=WRAP, use="train(net, optimizer)")
    check_stays(tmp_path, program, "holds parameters from before sharding")


def test_an_optimizer_of_parameters_that_become_flat_stops_it(tmp_path: Path) -> None:
    program = BEFORE.format(between="", wrap="net = FSDP(net)", use="train(net, optimizer)")
    check_stays(tmp_path, program, "holds parameters from before sharding")


SCALED = HEAD + (
    "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\n\n"
    "model = FSDP(torch.nn.Linear(2, 2))\nscaler = ShardedGradScaler({arguments})\n"
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ('"cuda", 1024.0, 0.5, 2.0', '"cuda", init_scale=1024.0, backoff_factor=0.5, growth_factor=2.0'),
        ("enabled=fp16, process_group=group", "enabled=fp16"),
    ],
)
def test_the_scaler_is_that_of_torch(tmp_path: Path, old: str, new: str) -> None:
    done = plan(tmp_path, SCALED.format(arguments=old))
    assert done.left == ()
    assert f"scaler = torch.amp.GradScaler({new})" in done.texts["train.py"]
    assert "ShardedGradScaler" not in done.texts["train.py"]


def test_a_scaler_whose_arguments_are_not_visible_stops_it(tmp_path: Path) -> None:
    check_stays(tmp_path, SCALED.format(arguments="**options"), "are not all visible")


EARLY = """

def main(net, batches):
    {early}
    model = FSDP(net, use_orig_params=True)
    optimizer = torch.optim.SGD({given}, lr=0.1)
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("early", "given", "reason"),
    [
        ("kept = list(net.parameters())", "kept", "the optimizer holds parameters from before sharding"),
        ("kept = [p for p in net.parameters() if p.ndim > 1]", "kept", "the optimizer holds parameters from before"),
        (
            "known = {id(p) for p in net.parameters() if p.ndim > 1}",
            "[p for p in model.parameters() if id(p) in known]",
            "`id` identifies parameters that are replaced",
        ),
        ("for p in net.parameters(): p.no_decay = True", "model.parameters()", "`p.no_decay` is lost"),
        (
            "one, two = [], []\n    for p in net.parameters(): (one if p.ndim == 1 else two).append(p)",
            "two",
            "the optimizer holds parameters from before sharding",
        ),
        (
            "import torch_ema\n    average = torch_ema.ExponentialMovingAverage(net.parameters())",
            "model.parameters()",
            "is in a collection that is given to `torch_ema",
        ),
    ],
)
def test_parameters_from_before_that_are_needed_afterwards_stop_it(
    tmp_path: Path, early: str, given: str, reason: str
) -> None:
    check_stays(tmp_path, HEAD + EARLY.format(early=early, given=given), reason)


@pytest.mark.parametrize(
    "early",
    [
        "print(sum(p.numel() for p in net.parameters()))",
        "for p in net.parameters(): p.requires_grad = False",
        "names = [name for name, p in net.named_parameters() if p.requires_grad]",
        "for p in net.parameters(): torch.nn.init.zeros_(p)",
    ],
)
def test_what_is_over_before_the_model_is_wrapped_stays(tmp_path: Path, early: str) -> None:
    assert plan(tmp_path, HEAD + EARLY.format(early=early, given="model.parameters()")).reasons == []


BUILT_ELSEWHERE = """\
from {module} import build
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(batches):
    {targets} = build()
    model = FSDP(model, use_orig_params=True)
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()


main([])
"""
BUILD = """\
import torch


class Keeper:
    def __init__(self):
        self.model = torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)


def build():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer


def wrapped():
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    keeper = Keeper()
    keeper.model = FSDP(keeper.model, use_orig_params=True)
    keeper.optimizer.step()


{call}
"""


def test_an_optimizer_that_is_built_with_the_model_stops_it(tmp_path: Path) -> None:
    (tmp_path / "building.py").write_text(BUILD.format(call=""))
    program = BUILT_ELSEWHERE.format(module="building", targets="model, optimizer")
    assert any("holds parameters from before sharding" in one for one in plan(tmp_path, program, unsafe=True).reasons)


def test_an_optimizer_from_elsewhere_stops_it(tmp_path: Path) -> None:
    program = BUILT_ELSEWHERE.format(module="somewhere", targets="model, optimizer")
    check_stays(tmp_path, program, "it is not seen which parameters `optimizer` holds")


def test_an_optimizer_of_another_model_is_none_of_this_one(tmp_path: Path) -> None:
    program = BUILT_ELSEWHERE.format(module="somewhere", targets="model, other")
    program = program.replace("    for", "    optimizer = torch.optim.SGD(other.parameters())\n    for", 1)
    assert plan(tmp_path, "import torch\n" + program).reasons == []


def test_an_optimizer_of_a_model_in_an_attribute_stops_it(tmp_path: Path) -> None:
    check_stays(tmp_path, BUILD.format(call="wrapped()"), "holds parameters from before sharding")


EARLY_CLASS = """

class Net(torch.nn.Linear):
    def configure(self):
        return torch.optim.SGD([p for p in self.parameters() if p.ndim > 1], lr=0.1)


def main(batches):
    net = Net(2, 2)
    {early}
    model = FSDP(net, use_orig_params=True)
    optimizer = {late}
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("early", "late", "reason"),
    [
        ("built = net.configure()", "built", "the optimizer holds parameters from before"),
        ("weight = net.weight", "torch.optim.SGD([weight], lr=0.1)", "the optimizer holds parameters from before"),
        ("weight = net.weight", "print(weight)", "a parameter from before sharding is used here"),
        ("built = torch.optim.SGD([net.bias], lr=0.1)", "built", "the optimizer holds parameters from before"),
    ],
)
def test_parameters_of_parts_and_methods_from_before_stop_it(
    tmp_path: Path, early: str, late: str, reason: str
) -> None:
    check_stays(tmp_path, HEAD + EARLY_CLASS.format(early=early, late=late), reason)


TRAINER = """

class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(2, 2)

    def wrap(self):
        self.model = FSDP(self.model, use_orig_params=True)

    def build(self):
        return torch.optim.SGD(self.model.parameters(), lr=0.1)


trainer = Trainer()
{first}
{second}
"""


def test_methods_that_build_and_wrap_are_called_in_order(tmp_path: Path) -> None:
    wrap, build = "trainer.wrap()", "optimizer = trainer.build()"
    check_stays(tmp_path, HEAD + TRAINER.format(first=build, second=wrap), "may not be wrapped yet here")
    assert plan(tmp_path, HEAD + TRAINER.format(first=wrap, second=build)).left == ()


EVALUATED = """

@torch.no_grad()
def evaluate(model, batch):
    return model(batch).mean()


def train(model, batch):
    model(batch).mean().backward()


def main(net, batch):
    model = FSDP(net, use_orig_params=True)
    {first}(model, batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, batch)
    optimizer.step()
    evaluate(model, batch)
"""


def test_an_optimizer_is_built_before_the_model_is_evaluated(tmp_path: Path) -> None:
    check_stays(tmp_path, HEAD + EVALUATED.format(first="evaluate"), "may have run without gradients")
    assert plan(tmp_path, HEAD + EVALUATED.format(first="train")).left == ()


CHOSEN = """\
import sys

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

{lines}
for batch in ():
    model(batch).sum().backward()
    optimizer.step()
"""
WRAP_LINE = "model = FSDP(module, use_orig_params=True)\n"


@pytest.mark.parametrize(
    "build",
    [
        "optimizer = getattr(torch.optim, sys.argv[1])({0}.parameters(), lr=0.1)\n",
        "cls = getattr(torch.optim, sys.argv[1])\noptimizer = cls({0}.parameters(), lr=0.1)\n",
    ],
)
def test_a_class_of_torch_that_is_chosen_at_run_time_is_a_difference(tmp_path: Path, build: str) -> None:
    module = "module = torch.nn.Linear(2, 2)\n"
    behind = CHOSEN.format(lines=module + WRAP_LINE + build.format("model"))
    assert len(plan(tmp_path, behind).reasons) == 1
    assert plan(tmp_path, behind, unsafe=True).reasons == []
    early = CHOSEN.format(lines=module + build.format("module") + "print(optimizer)\n" + WRAP_LINE)
    check_stays(tmp_path, early, "holds parameters from before sharding")


SAVED = """
from torch.distributed.fsdp import StateDictType


def evaluate(model, batch):
    model.eval()
    with torch.no_grad():
        return model(batch).mean()


def main(net, batches):
    model = FSDP(net, use_orig_params=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        model(batch).mean().backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        {then}
    print(evaluate(model, batch))


main(torch.nn.Linear(2, 2), [])
"""
_TYPED = "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):"


@pytest.mark.parametrize(
    ("then", "number"),
    [
        ("evaluate(model, batch)", 0),
        ("evaluate(model, batch)\n        for p in model.parameters(): p.data.mul_(0.5)", 1),
        ("if batch: evaluate(model, batch)\n        model.load_state_dict({})", 1),
        (f"evaluate(model, batch)\n        {_TYPED} state = FSDP.optim_state_dict(model, optimizer)", 1),
        (
            f"evaluate(model, batch)\n        {_TYPED}\n            weights = model.state_dict()\n"
            "            state = FSDP.optim_state_dict(model, optimizer)",
            0,
        ),
    ],
)
def test_parameters_are_sharded_again_behind_an_evaluation(tmp_path: Path, then: str, number: int) -> None:
    reasons = plan(tmp_path, HEAD + SAVED.format(then=then), unsafe=True).reasons
    assert ["gets gathered parameters" in reason for reason in reasons] == [True] * number


GROUPS = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(net, batch):
    model = FSDP(net, use_orig_params=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(batch).backward()
    {lines}
"""
EACH = "for group in optimizer.param_groups:\n        for p in group['params']:\n            "


@pytest.mark.parametrize(
    "lines",
    [
        "for group in optimizer.param_groups:\n        group['lr'] = 0.2\n    print(optimizer.param_groups[0]['lr'])",
        f"{EACH}if p.grad is not None:\n                p.grad.mul_(0.5)",
    ],
)
def test_groups_may_be_read(tmp_path: Path, lines: str) -> None:
    assert plan(tmp_path, GROUPS.format(lines=lines)).left == ()


def test_parameters_of_groups_are_looked_at(tmp_path: Path) -> None:
    reason = "reads the elements of one rank or of all"
    check_stays(tmp_path, GROUPS.format(lines=f"{EACH}print(p.grad.norm() ** 2)"), reason)
    counted = "ps = [p for g in optimizer.param_groups for p in g['params']]\n    print(sum(p.numel() for p in ps))"
    (left,) = plan(tmp_path, GROUPS.format(lines=counted)).left
    assert "numbers of elements are those of whole parameters" in (left.reason or "")
