"""State of a converted model and of its optimizer: by the functions of `torch.distributed.checkpoint.state_dict`."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.targets.fsdp2.programs import plan

HEAD = """\
import torch
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
)


"""
MAIN = """

def main(net, batches):
    model = FSDP(net, use_orig_params={kept})
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        model(batch).backward()
        optimizer.step()
    {use}
"""
CONFIGS = "FullStateDictConfig({0}), FullOptimStateDictConfig({0})"


def function_afterwards(folder: Path, function: str, use: str, kept: bool = True, unsafe: bool = False) -> str:
    """What becomes of a function in a program that trains a model and then does something with it."""
    done = plan(folder, HEAD + dedent(function) + MAIN.format(use=use, kept=kept), unsafe=unsafe)
    assert done.reasons == []
    text = done.texts["train.py"]
    assert "FullyShardedDataParallel" not in text
    return text[text.index("def save" if "def save" in text else "def load") : text.index("\n\ndef main")].strip()


def reason_of(folder: Path, function: str, use: str, kept: bool = True) -> str:
    """Why such a program is not converted, even with differences."""
    (reason,) = plan(folder, HEAD + dedent(function) + MAIN.format(use=use, kept=kept), unsafe=True).reasons
    return reason


SAVE = """\
def save(model, optimizer, path):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, {configs}):
        weights = model.state_dict()
        state = FSDP.optim_state_dict(model, optimizer)
    if torch.distributed.get_rank() == 0:
        torch.save([weights, state], path)
"""
SAVED = """\
def save(model, optimizer, path):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)
    state = get_optimizer_state_dict(model, optimizer, options=options)
    if torch.distributed.get_rank() == 0:
        torch.save([weights, state], path)"""


@pytest.mark.parametrize(
    "offload", ["True", "torch.cuda.is_available()", 'torch.device("cuda").type == "cuda"', 'DEVICE.type != "cpu"']
)
def test_a_full_save_on_rank_0(tmp_path: Path, offload: str) -> None:
    configs = CONFIGS.format(f"offload_to_cpu={offload}, rank0_only=True")
    assert function_afterwards(tmp_path, SAVE.format(configs=configs), 'save(model, optimizer, "x")') == SAVED


def test_a_flag_of_unknown_meaning_is_a_difference(tmp_path: Path) -> None:
    program = SAVE.format(configs=CONFIGS.format("offload_to_cpu=OFFLOAD, rank0_only=True"))
    (left,) = plan(tmp_path, HEAD + program + MAIN.format(use='save(model, optimizer, "x")', kept=True)).left
    assert left.reason == "the full state is on the CPU of rank 0 even where `OFFLOAD` is false"
    assert function_afterwards(tmp_path, program, 'save(model, optimizer, "x")', unsafe=True) == SAVED


def test_a_flag_goes_on_deciding_for_sharded_state(tmp_path: Path) -> None:
    function = """\
    def save(model):
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(offload_to_cpu=OFF)):
            return model.state_dict()
    """
    text = function_afterwards(tmp_path, function, "write(save(model))")
    assert "return get_model_state_dict(model, options=StateDictOptions(cpu_offload=OFF))" in text


def test_configs_may_come_from_a_function(tmp_path: Path) -> None:
    function = f"""\
    def configs():
        on_cpu = torch.cuda.is_available()
        return {CONFIGS.format("offload_to_cpu=on_cpu, rank0_only=True")}


    """
    save = SAVE.format(configs="*configs()")
    assert function_afterwards(tmp_path, dedent(function) + save, 'save(model, optimizer, "x")') == SAVED


LOAD = f"""\
def load(model, optimizer, state):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, {CONFIGS.format("")}):
        state = FSDP.optim_state_dict_to_load(model, optimizer, state)
    optimizer.load_state_dict(state)
"""
USE_LOAD = 'load(model, optimizer, torch.load("x"))'


def test_flat_parameters_shared_a_step_so_each_gets_its_own(tmp_path: Path) -> None:
    text = function_afterwards(tmp_path, LOAD, USE_LOAD, kept=False)
    assert "optim_state_dict=own_steps(state)" in text
    assert plan(tmp_path, HEAD + LOAD + MAIN.format(use=USE_LOAD, kept=False)).texts["train.py"].count("def own") == 1


def test_a_file_gets_all_the_functions_that_it_needs(tmp_path: Path) -> None:
    trainers = """\
    class Trainer:
        def __init__(self, net):
            self.model = net

        def train(self):
            optimizer = torch.optim.AdamW(self.model.parameters())
            print(torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).item())
            load(self.model, optimizer, torch.load("x"))


    class Sharded(Trainer):
        def __init__(self, net):
            super().__init__(net)
            self.model = FSDP(net)


    Sharded(net()).train()
    """
    text = plan(tmp_path, f"{HEAD}{LOAD}\n\n{dedent(trainers)}", unsafe=True).texts["train.py"]
    assert [line for line in text.splitlines() if line.startswith("def ")] == [
        "def own_steps(optim_state):",
        "def whole(norm):",
        "def load(model, optimizer, state):",
    ]


def test_a_name_that_is_used_again_for_another_state(tmp_path: Path) -> None:
    function = """\
    def load(model, optimizer, path):
        if path.exists():
            state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load(path))
            optimizer.load_state_dict(state)
        state = {"step": 1}
        print(state)
    """
    text = function_afterwards(tmp_path, function, 'load(model, optimizer, "x")')
    assert "set_optimizer_state_dict(model, optimizer, optim_state_dict=torch.load(path)" in text
    function = function.replace('state = {"step": 1}', 'state = {"step": 1} if path.empty() else state')
    assert "is not the only use of the converted state" in reason_of(tmp_path, function, 'load(model, optimizer, "x")')


def test_models_share_a_function(tmp_path: Path) -> None:
    two = MAIN.format(use=USE_LOAD, kept=False)
    two += two.replace("main", "other").replace("model", "second").replace("load(second", "reload(second")
    reload = LOAD.replace("load(", "reload(", 1)
    text = plan(tmp_path, f"{HEAD}{LOAD}\n\n{reload}{two}", unsafe=True).texts["train.py"]
    assert text.count("def own_steps") == 1
    assert text.count("own_steps(state)") == 2
    assert "FullyShardedDataParallel" not in text


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("dtype", "`moments` of `Adam` in a parameter group raises: it is no tensor, number or string"),
        ("torch.bfloat16", "`moments` of `Adam` in a parameter group raises: it is no tensor, number or string"),
        ("lambda step: step", "`moments` of `Adam` in a parameter group raises: it is no tensor, number or string"),
        ("lr", None),
        ("'bf16'", None),
    ],
)
@pytest.mark.parametrize("defaults", ["{{'lr': lr, 'moments': {}}}", "dict(lr=lr, moments={})"])
def test_a_dtype_among_the_groups_of_an_optimizer_raises(
    tmp_path: Path, defaults: str, value: str, told: str | None
) -> None:
    own = f"""\
class Adam(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1, dtype=torch.bfloat16):
        super().__init__(params, {defaults.format(value)})


"""
    save = SAVE.format(configs=CONFIGS.format("offload_to_cpu=True, rank0_only=True"))
    main = MAIN.format(use='save(model, optimizer, "x")', kept=True).replace("torch.optim.AdamW", "Adam")
    (left,) = plan(tmp_path, HEAD + own + save + main).left or [None]
    assert (left and left.reason) == told


def test_original_parameters_had_a_step_each(tmp_path: Path) -> None:
    text = function_afterwards(tmp_path, LOAD, USE_LOAD)
    assert "optim_state_dict=state" in text


def test_a_state_dict_without_a_type_is_a_full_one(tmp_path: Path) -> None:
    text = function_afterwards(tmp_path, "def save(model):\n    return model.state_dict()\n", "save(model)")
    assert "return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))" in text


def test_the_model_in_a_compiled_one_is_asked(tmp_path: Path) -> None:
    function = """\
    def load(model, state):
        model = torch.compile(model)
        model._orig_mod.load_state_dict(state, strict=False)
        return model._orig_mod.state_dict()
    """
    text = function_afterwards(tmp_path, function, "load(model, torch.load('x'))", unsafe=True)
    assert "set_model_state_dict(model._orig_mod, state, options=" in text
    assert "strict=False" in text
    assert "return get_model_state_dict(model._orig_mod, options=" in text


def test_an_optimizer_state_that_is_read_in_a_block_and_loaded_behind_it(tmp_path: Path) -> None:
    function = """\
    def load(model, optimizer, reader):
        from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict

        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            found = load_sharded_optimizer_state_dict(model.state_dict(), "optim", reader)
        optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, found["optim"]))
    """
    use = "load(model, optimizer, make())"
    (left,) = plan(tmp_path, HEAD + dedent(function) + MAIN.format(use=use, kept=False)).left
    assert "such as the `initial_lr` of a scheduler that is made later" in (left.reason or "")
    text = function_afterwards(tmp_path, function, use, kept=False, unsafe=True)
    assert text.endswith(
        """\
    found = {"optim": get_optimizer_state_dict(model, optimizer)}
    checkpoint.load(found, storage_reader=reader)
    set_optimizer_state_dict(model, optimizer, optim_state_dict=found["optim"])"""
    )


def test_local_state_has_no_successor(tmp_path: Path) -> None:
    function = """\
    def save(model):
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            return model.state_dict()
    """
    assert "have no `LOCAL_STATE_DICT`" in reason_of(tmp_path, function, "save(model)")


def test_a_type_under_which_the_model_is_not_asked_goes(tmp_path: Path) -> None:
    function = """\
    def save(model, optimizer, path):
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            name = f"{path}/{torch.distributed.get_rank()}.pt"
            torch.save(optimizer.state_dict(), name)
    """
    assert function_afterwards(tmp_path, function, "save(model, optimizer, 'x')", unsafe=True) == dedent(
        """\
        def save(model, optimizer, path):
            name = f"{path}/{torch.distributed.get_rank()}.pt"
            torch.save(optimizer.state_dict(), name)"""
    )


def test_a_type_stays_where_others_may_ask_the_model(tmp_path: Path) -> None:
    function = """\
    def save(model, keep):
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            keep(model)
    """
    assert "may ask it for a state dict of this type" in reason_of(tmp_path, function, "save(model, print)")


def test_a_save_before_the_first_step_is_a_difference(tmp_path: Path) -> None:
    save = SAVE.format(configs=CONFIGS.format("offload_to_cpu=True, rank0_only=True"))
    program = (
        HEAD + save + MAIN.format(use="pass", kept=True).replace("    for", '    save(model, optimizer, "0")\n    for')
    )
    (left,) = plan(tmp_path, program).left
    assert "an optimizer that has not stepped" in (left.reason or "")


def test_state_that_an_optimizer_gives_by_itself_is_a_difference(tmp_path: Path) -> None:
    function = "def save(optimizer, rank):\n    torch.save(optimizer.state_dict(), f'{rank}.pt')\n"
    (left,) = plan(tmp_path, HEAD + function + MAIN.format(use="save(optimizer, 0)", kept=True)).left
    assert "each rank reads its own new files only" in (left.reason or "")
    assert plan(tmp_path, HEAD + function + MAIN.format(use="save(optimizer, 0)", kept=True), unsafe=True).left == ()


def test_other_edits_in_a_block_that_goes_are_made_too(tmp_path: Path) -> None:
    function = """\
    def save(model):
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            if isinstance(model, FSDP):
                return model.state_dict()
    """
    text = function_afterwards(tmp_path, function, "save(model)")
    assert "    if isinstance(model, FSDPModule):\n        return get_model_state_dict(model" in text.replace(
        "FSDPMod", "FSDPMod"
    )


def test_a_type_is_set_for_good_until_the_name_gets_another_model(tmp_path: Path) -> None:
    setter = "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig())"
    program = f"""{HEAD}
def build():
    model = FSDP(torch.nn.Linear(2, 2), use_orig_params=True)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


model, optimizer = build()
{setter}
weights = model.state_dict()
model, optimizer = build()
{setter}
model.load_state_dict(weights)
"""
    done = plan(tmp_path, program)
    assert done.reasons == []
    text = done.texts["train.py"]
    assert "weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))" in text
    assert "set_model_state_dict(model, weights, options=" in text
    assert "set_state_dict_type" not in text


def test_arguments_in_the_order_of_torch_2_0(tmp_path: Path) -> None:
    function = """\
    def load(model, optimizer, path):
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            state = FSDP.optim_state_dict_to_load(torch.load(path), model, optimizer)
            optimizer.load_state_dict(state)
    """
    text = function_afterwards(tmp_path, function, "load(model, optimizer, 'x')", unsafe=True)
    assert "set_optimizer_state_dict(model, optimizer, " in text
    assert "FSDP" not in text
