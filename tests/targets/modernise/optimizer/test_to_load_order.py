from __future__ import annotations

from itertools import permutations

import pytest

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

CODE = "FSDP107"
FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
KEYWORDS = "model={}, optim={}, optim_state_dict={}"


def load(arguments: str, before: str = "") -> str:
    return f"{FSDP}\n\ndef load(a, b, c, flag):\n{before}    return FSDP.optim_state_dict_to_load({arguments})\n"


@pytest.mark.parametrize("order", list(permutations(["model", "optim", "osd"])))
@pytest.mark.parametrize("torch", [">=2.1", ">=2.0,<2.1"])
def test_arguments_get_keywords_unless_every_release_takes_their_order(order: tuple[str, ...], torch: str) -> None:
    right = ("model", "optim", "osd") if torch == ">=2.1" else ("osd", "model", "optim")
    text = load(", ".join(order))
    if order == right:
        check_noop(text, CODE, torch=torch)
    else:
        check_transformed(text, load(KEYWORDS.format("model", "optim", "osd")), CODE, torch=torch)
    check_transformed(text, load(KEYWORDS.format("model", "optim", "osd")), CODE, torch=">=2.0")


@pytest.mark.parametrize(
    ("place", "names"),
    [
        (0, ["model", "base_model", "model2", "net", "my_net", "network", "module", "fsdp", "wrapped", "self.model"]),
        (1, ["optim", "optimizer", "my_optimizer", "opt", "adam", "adamw", "sgd", "self.optimizer"]),
        (2, ["state", "optim_state", "model_state", "osd", "full_osd", "sd", "blob", "ckpt", "checkpoint", "_OSD"]),
    ],
)
def test_what_an_argument_is_shows_in_its_name(place: int, names: list[str]) -> None:
    for name in names:
        known = ["model", "optim", "osd"]
        known[place] = name
        # The last of the three is then the one that is left over.
        known[(place + 1) % 3] = "a"
        old_order = ", ".join([known[2], known[0], known[1]])
        check_transformed(load(old_order), load(KEYWORDS.format(*known)), CODE)


@pytest.mark.parametrize(
    ("before", "arguments", "after"),
    [
        ("a = torch.load(b)", "a, c, optim", ("c", "optim", "a")),
        ("a = FSDP.full_optim_state_dict(model, optim)", "a, c, optim", ("c", "optim", "a")),
        ("a = torch.optim.Adagrad(b)", "osd, c, a", ("c", "a", "osd")),
        ("a = AdamW(b)", "osd, c, a", ("c", "a", "osd")),
        ("a = FSDP(b)", "c, a, optim", ("a", "optim", "c")),
        ("", "a['optim'], model, c", ("model", "c", "a['optim']")),
        ("", "{'state': a}, model, c", ("model", "c", "{'state': a}")),
    ],
)
def test_what_an_argument_is_shows_in_what_it_holds(before: str, arguments: str, after: tuple[str, ...]) -> None:
    before = f"    {before}\n" if before else ""
    check_transformed(load(arguments, before), load(KEYWORDS.format(*after), before), CODE)


@pytest.mark.parametrize(
    ("parameters", "right"),
    [
        ("module: nn.Module, stateful: Optimizer, state: Any", "module, stateful, state"),
        ("checkpointed: Optional[nn.Module], b: Optimizer | None, c", "checkpointed, b, c"),
        ("a, b: torch.optim.AdamW, c: Mapping[str, Any]", "a, b, c"),
    ],
)
def test_what_an_argument_is_shows_in_its_annotation(parameters: str, right: str) -> None:
    model, optim, state = right.split(", ")
    head = f"{FSDP}\nimport torch\nfrom torch import nn\nfrom torch.optim import Optimizer\n\ndef load({parameters}):\n"
    text = head + "    return FSDP.optim_state_dict_to_load({})\n"
    check_noop(text.format(right), CODE, torch=">=2.2")
    after = text.format(KEYWORDS.format(model, optim, state))
    check_transformed(text.format(f"{state}, {model}, {optim}"), after, CODE, torch=">=2.2")


@pytest.mark.parametrize("arguments", ["a, b, c", "a, b, optim", "model, net, c", "osd, *a", "osd, model, optim, **a"])
def test_what_is_not_certain_is_manual(arguments: str) -> None:
    check_manual(load(arguments), CODE, "it is not clear which argument", torch=">=2.0")


def test_what_torch_2_0_took_behind_the_three_gets_keywords_too() -> None:
    after = "model=model, optim=optim, optim_state_dict=osd, is_named_optimizer=flag"
    check_transformed(load("osd, model, optim, flag"), load(after), CODE)
    check_transformed(load("osd, model, optim, flag, pg"), load(f"{after}, group=pg"), CODE)
    check_manual(load("osd, model, optim, False, flag"), CODE, "the fifth position is the process group in torch 2.0")
    check_noop(load("model, optim, osd, False, flag"), CODE)
    check_noop(load("model, optim, osd, flag"), CODE)


def test_a_group_that_is_taken_for_load_directly_is_told() -> None:
    before = load("model, optim, osd, False, c.group.WORLD")
    (found,) = lint(before, CODE)
    assert (found.severity, found.reason) == (Severity.CHANGES, "this call no longer loads the optimizer")
    after = load("model=model, optim=optim, optim_state_dict=osd, is_named_optimizer=False, group=c.group.WORLD")
    check_transformed(before, after, CODE, unsafe=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("osd, self.model, make(a)", "optim_state_dict=osd, model=self.model, optim=make(a)"),
        ("osd, model, make(b := a)", "optim_state_dict=osd, model=model, optim=make(b := a)"),
        ("osd, model, make(a)", "model=model, optim=make(a), optim_state_dict=osd"),
    ],
)
def test_arguments_change_places_only_where_nobody_can_tell(before: str, after: str) -> None:
    check_transformed(load(before), load(after), CODE)


@pytest.mark.parametrize("arguments", ["osd, a, b", "a, b, c"])
def test_an_arm_for_old_releases_alone_may_have_their_order(arguments: str) -> None:
    gated = load(arguments, "    if torch.__version__ < '2.1':\n    ").replace("def load", "import torch\n\ndef load")
    gated = f"{gated}    return FSDP.optim_state_dict_to_load(a, b, osd)\n"
    check_noop(gated, CODE, torch=">=2.0")
    check_manual(gated.replace(arguments, "a, b, osd"), CODE, "it is not clear which argument", torch=">=2.0")
