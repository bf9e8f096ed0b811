"""Blocks under a type: which options each call gets, what makes a block stay, and how the text changes."""

from __future__ import annotations

from textwrap import indent

import pytest

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.lint import lint_source
from tests.targets.dcp.programs import BOTH_RANK_0, IMPORTS, RANK_0, block, found, only, rewritten

FULL, SHARDED = "StateDictType.FULL_STATE_DICT", "StateDictType.SHARDED_STATE_DICT"
STEP = "for batch in path:\n    optimizer.step()\n"
LOAD = "optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, path))"
LOAD_DIRECTLY = "FSDP.optim_state_dict_to_load(model, optimizer, path, load_directly=True)"
ON_RANK_0 = "if rank == 0:\n    torch.save(state, path)\n"


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        (FULL, "full_state_dict=True"),
        (f"{FULL}, FullStateDictConfig()", "full_state_dict=True"),
        (f"{FULL}, FullStateDictConfig(offload_to_cpu=False)", "full_state_dict=True"),
        (RANK_0, "full_state_dict=True, cpu_offload=True"),
        (f"{FULL}, FullStateDictConfig(True, True)", "full_state_dict=True, cpu_offload=True"),
        (SHARDED, None),
        (f"{SHARDED}, ShardedStateDictConfig(offload_to_cpu=True)", "cpu_offload=True"),
        (f"{SHARDED}, None, ShardedOptimStateDictConfig(offload_to_cpu=False)", None),
    ],
)
def test_a_saved_model_gets_the_options_of_its_config(setting: str, options: str | None) -> None:
    text = block(setting, "state = model.state_dict()", ON_RANK_0)
    assert only(text).applicability is Applicability.SAFE
    after = rewritten(text)
    assert "state_dict_type" not in after
    assert (f"StateDictOptions({options})" in after) if options else "get_model_state_dict(model)" in after


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        (BOTH_RANK_0, "full_state_dict=True, cpu_offload=True"),
        (FULL, "full_state_dict=True, cpu_offload=True"),
        (RANK_0, "full_state_dict=True, cpu_offload=True"),
        (f"{FULL}, None, FullOptimStateDictConfig(offload_to_cpu=False)", "full_state_dict=True"),
        (SHARDED, "cpu_offload=True"),
        (f"{SHARDED}, None, ShardedOptimStateDictConfig(offload_to_cpu=True)", "cpu_offload=True"),
        (f"{SHARDED}, None, ShardedOptimStateDictConfig(offload_to_cpu=False)", None),
    ],
)
def test_a_saved_optimizer_gets_the_options_of_its_own_config_or_default(setting: str, options: str | None) -> None:
    text = block(setting, "state = FSDP.optim_state_dict(model, optimizer)", ON_RANK_0, STEP)
    assert only(text).applicability is Applicability.SAFE
    after = rewritten(text)
    assert "state_dict_type" not in after
    wanted = f"StateDictOptions({options})" if options else "get_optimizer_state_dict(model, optimizer)"
    assert wanted in after


@pytest.mark.parametrize(
    ("setting", "call", "options", "applicability"),
    [
        (FULL, "model.load_state_dict(path)", "full_state_dict=True, broadcast_from_rank0=True", "safe"),
        (RANK_0, "model.load_state_dict(path)", "full_state_dict=True, broadcast_from_rank0=True", "safe"),
        (SHARDED, "model.load_state_dict(path)", None, "safe"),
        (FULL, LOAD, "full_state_dict=True", "unsafe"),
        (BOTH_RANK_0, LOAD_DIRECTLY, "full_state_dict=True, broadcast_from_rank0=True", "unsafe"),
        (SHARDED, LOAD, None, "unsafe"),
    ],
)
def test_loads_broadcast_from_rank_0_where_the_check_for_missing_keys_needs_it(
    setting: str, call: str, options: str | None, applicability: str
) -> None:
    text = block(setting, call)
    assert only(text).applicability.value == applicability
    after = rewritten(text, unsafe=True)
    assert "state_dict_type" not in after
    assert "optim_state_dict_to_load" not in after
    assert (f"StateDictOptions({options})" in after) if options else "StateDictOptions" not in after


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("StateDictType.LOCAL_STATE_DICT", "the new functions have no"),
        ("path", "chosen at run time"),
        (f"{FULL}, FullStateDictConfig(offload_to_cpu=True)", "CPU of every rank"),
        (f"{FULL}, FullStateDictConfig(rank0_only=True)", "device of rank 0"),
        (f"{FULL}, FullStateDictConfig(rank0_only=rank)", "`rank` in"),
        (f"{FULL}, path.config", "fields of `path.config` are not visible"),
        (f"{FULL}, ShardedStateDictConfig()", "needs `FullStateDictConfig`"),
        ("*path", "write out the arguments"),
    ],
)
def test_types_and_configs_without_a_successor_stay(setting: str, reason: str) -> None:
    finding = only(block(setting, "state = model.state_dict()"))
    assert finding.applicability is Applicability.MANUAL
    assert reason in (finding.reason or "")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("state = model.state_dict()\npath.save(model)", "`path.save(model)` gets the model"),
        ("state = model.state_dict()\nmodel.save_pretrained(path)", "may ask a model"),
        ("trainer.save_model()", "may ask a model"),
        ("state = model.state_dict(prefix='x')", "has arguments"),
        ("model.load_state_dict(path, assign=True)", "`assign=`"),
        ("state = FSDP.optim_state_dict(model, optimizer, group=path)", "gets the group"),
        ("state = FSDP.optim_state_dict(model, optimizer, path)", "is not the optimizer's own state dict"),
        ("state = model.state_dict(), optimizer.state_dict()", "parameter numbers"),
        ("state = FSDP.optim_state_dict_to_load(model, optimizer, path)\npath.send(state)", "is not the only use"),
        ("torch.save(path, rank)", "no visible code"),
        ("state = [model]\nmodel.state_dict()", "passed on"),
        ("model = path\nmodel.state_dict()", "another model"),
        ("yield model.state_dict()", "other code runs"),
        ("state = model._orig_mod.state_dict()", "compiled"),
        ("state = (lambda: model.state_dict())()", "defined in the block"),
        ("with FSDP.state_dict_type(path, StateDictType.FULL_STATE_DICT):\n    model.state_dict()", "another type"),
        ("FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)\nmodel.state_dict()", "another type"),
    ],
)
def test_a_block_stays_where_something_in_it_may_use_the_type_in_another_way(body: str, reason: str) -> None:
    finding = next(f for f in lint_source(block(SHARDED, body), "a.py", ">=2.4", target="dcp") if f.code == "FSDP210")
    assert finding.applicability is Applicability.MANUAL
    assert reason in (finding.reason or ""), finding.reason


INNER = """\
first = model.state_dict()
with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
    flat = model.state_dict()
with FSDP.state_dict_type(path, StateDictType.FULL_STATE_DICT):
    other = path.state_dict()
last = model.state_dict()
"""


def test_a_block_with_another_in_it_goes_by_its_own_calls_whatever_becomes_of_that_one() -> None:
    text = block(SHARDED, INNER)
    outer, local, inner = sorted(found(text), key=lambda finding: finding.line)
    assert [one.applicability.value for one in (outer, local, inner)] == ["safe", "manual", "safe"]
    assert (
        rewritten(text).partition("path):\n")[2]
        == """\
    first = get_model_state_dict(model)
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        flat = model.state_dict()
    other = get_model_state_dict(path, options=StateDictOptions(full_state_dict=True))
    last = get_model_state_dict(model)
"""
    )


@pytest.mark.parametrize("inside", ["model = path", "yield"])
def test_what_counts_for_the_outer_block_too_keeps_both(inside: str) -> None:
    inner = f"with FSDP.state_dict_type(model, {FULL}):\n    {inside}\n    flat = model.state_dict()\n"
    text = block(SHARDED, f"{inner}last = model.state_dict()")
    assert [one.applicability.value for one in found(text)] == ["manual", "manual"]


def test_a_type_that_is_decided_at_run_time_is_told_with_the_calls_to_choose_from() -> None:
    body = "a = model.state_dict()\nb = FSDP.optim_state_dict(model, optimizer)"
    assert only(block("path.type", body)).reason == (
        "the type is chosen at run time, so choose: `get_model_state_dict(model, options=...)` and "
        "`get_optimizer_state_dict(model, optimizer, options=...)` with "
        "`StateDictOptions(full_state_dict=True, cpu_offload=True)` for FULL_STATE_DICT on rank 0, "
        "`StateDictOptions(full_state_dict=True)` for FULL_STATE_DICT on every rank, "
        "none for SHARDED_STATE_DICT on the device, "
        "`StateDictOptions(cpu_offload=True)` for SHARDED_STATE_DICT on the CPU"
    )
    loads = only(block(f"{FULL}, path.config", f"model.load_state_dict(rank)\n{LOAD}")).reason
    assert loads == (
        "the fields of `path.config` are not visible, so choose: "
        "`set_model_state_dict(model, rank, options=...)` and "
        "`set_optimizer_state_dict(model, optimizer, optim_state_dict=path, options=...)` with "
        "`StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)` for FULL_STATE_DICT on rank 0, "
        "`StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)` and "
        "`StateDictOptions(full_state_dict=True)` for FULL_STATE_DICT on every rank"
    )
    assert "at run time, and `trainer.save_model()` may" in (
        only(block("path.type", "trainer.save_model()")).reason or ""
    )


def test_a_function_of_the_file_is_looked_into() -> None:
    asking = block(SHARDED, "state = model.state_dict()\nwrite(model)") + "\ndef write(m):\n    return m.state_dict()\n"
    assert "`m.state_dict()`" in (only(asking).reason or "")
    plain = block(SHARDED, "state = model.state_dict()\nwrite(model)") + "\ndef write(m):\n    print(m)\n"
    assert only(plain).applicability is Applicability.SAFE


def test_what_is_only_read_logged_or_given_a_state_dict_is_no_reason_to_stay() -> None:
    body = """\
    state = model.state_dict()
    if rank == 0:
        print("keys", len(state), model.config)
        model.save_pretrained(path, state_dict=state)
    dist.barrier()
    """
    text = block(RANK_0, body)
    assert only(text).applicability is Applicability.SAFE


def test_the_new_functions_take_no_type_from_the_block_around_them() -> None:
    new = "from torch.distributed.checkpoint.state_dict import get_model_state_dict\n"
    text = new + block(FULL, "shards = get_model_state_dict(model)\nstate = model.state_dict()")
    assert only(text).applicability is Applicability.SAFE
    after = rewritten(text)
    assert "shards = get_model_state_dict(model)\n" in after
    assert "state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))\n" in after


def test_versions_of_modules_that_are_read_keep_the_old_call() -> None:
    assert "`_metadata`" in (only(block(FULL, "state = model.state_dict()", "print(state._metadata)")).reason or "")
    for other in ("self", "snapshot"):
        text = block(FULL, f"state = model.state_dict()\n{other}._metadata = rank")
        assert only(text).applicability is Applicability.SAFE


def test_a_compiled_model_stays() -> None:
    text = block(SHARDED, "state = model.state_dict()", before="model = torch.compile(model)")
    assert "`torch.compile` in line" in (only(text).reason or "")


def test_a_block_on_one_rank_stays() -> None:
    text = (
        IMPORTS
        + f"""\
def f(model, rank):
    if rank != 0:
        return None
    with FSDP.state_dict_type(model, {FULL}):
        return model.state_dict()
"""
    )
    assert "only rank 0 reaches" in (only(text).reason or "")


@pytest.mark.parametrize(
    "before",
    [
        "state = torch.load(f'{path}/{mp_rank:02d}.pth', map_location='cpu')",
        "name = f'{path}/{path.get_tensor_parallel_rank()}'\nfile = name + '.pth'\nstate = torch.load(file)['model']",
        "state = load_file(os.path.join(path, str(rank)))",
    ],
)
def test_a_full_load_of_a_file_for_every_rank_stays(before: str) -> None:
    finding = only(block(FULL, "model.load_state_dict(state)", "", before))
    assert finding.applicability is Applicability.MANUAL
    assert "chooses the file that a rank loads" in (finding.reason or "")


@pytest.mark.parametrize(
    "before",
    [
        "state = torch.load(path, map_location=f'cuda:{local_rank}')",
        "state = torch.load(path) if rank == 0 else None",
        "state = torch.load(path)\nprint(rank)",
        "rank0_file = path + '.pth'\nstate = torch.load(rank0_file, weights_only=True)",
    ],
)
def test_a_full_load_of_one_file_is_safe(before: str) -> None:
    finding = only(block(FULL, "model.load_state_dict(state)", "", before))
    assert finding.applicability is Applicability.SAFE, finding.reason


def test_a_full_load_is_followed_to_the_file_that_a_caller_reads() -> None:
    text = block(FULL, "model.load_state_dict(path)") + "\n\nf(m, o, 0, torch.load(f'part-{mp_rank}.pth'))\n"
    assert "`mp_rank` chooses the file" in (only(text).reason or "")


def test_a_type_that_every_call_ignores_goes_whatever_it_is() -> None:
    text = block("path.type", "full = FSDP.full_optim_state_dict(model, optimizer)", before=STEP)
    assert only(text).applicability is Applicability.SAFE
    after = rewritten(text)
    assert "state_dict_type" not in after
    assert "full = get_optimizer_state_dict(model, optimizer, options=options)" in after


@pytest.mark.parametrize(
    "saving",
    ["full = FSDP.optim_state_dict(model, optimizer)", "full = FSDP.full_optim_state_dict(model, optimizer)"],
)
def test_what_gives_an_optimizer_that_it_wraps_is_none_of_torch(saving: str) -> None:
    text = block(BOTH_RANK_0, saving, before=f"{STEP}inner = optimizer.unwrap_model()")
    finding = only(text)
    assert finding.applicability is Applicability.MANUAL
    assert "is not a `torch.optim.Optimizer`" in (finding.reason or "")


def test_a_tokenizer_or_a_config_is_saved_without_state_of_the_model() -> None:
    body = "path.tokenizer.save_pretrained('x')\nconfig.save_pretrained('x')\nstate = model.state_dict()"
    assert only(block(RANK_0, body, ON_RANK_0)).applicability is Applicability.SAFE
    body = "path.save_pretrained('x')\nstate = model.state_dict()"
    assert only(block(RANK_0, body, ON_RANK_0)).applicability is Applicability.MANUAL


def test_comments_at_the_end_of_a_block_move_with_it() -> None:
    body = "state = model.state_dict()\n# the whole\n# of it"
    assert "    # the whole\n    # of it\n    if rank" in rewritten(block(RANK_0, body, ON_RANK_0))


def test_names_that_are_imported_in_front_of_a_call_come_before_its_options() -> None:
    text = """\
    class Trainer:
        def save(self, path):
            for batch in path:
                self.optimizer.step()
            # on all ranks
            full = self.model.__class__.full_optim_state_dict(self.model, self.optimizer)
            torch.save(full, path)
    """
    after = rewritten(text)
    assert 0 < after.index("import StateDictOptions") < after.index("StateDictOptions(")


def test_no_strict_load_of_a_full_dict_is_safe() -> None:
    finding = only(block(FULL, "model.load_state_dict(path, strict=False)"))
    assert finding.applicability is Applicability.UNSAFE
    assert "missing keys are no longer returned" in (finding.reason or "")
    assert only(block(SHARDED, "model.load_state_dict(path, strict=False)")).applicability is Applicability.SAFE


@pytest.mark.parametrize("state", ["path", "path['model']"])
def test_a_full_dict_that_is_used_after_loading_is_unsafe(state: str) -> None:
    finding = only(block(FULL, f"model.load_state_dict({state})", f"rank.load_state_dict({state})"))
    assert f"loading changes `{state}`" in (finding.reason or "")


def test_another_part_of_a_file_may_be_used_after_loading() -> None:
    finding = only(block(FULL, "model.load_state_dict(path['model'])", "print(path['epoch'])"))
    assert finding.applicability is Applicability.SAFE


def test_comments_stay_and_what_only_fed_the_block_goes() -> None:
    text = """\
import torch
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType

policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)


def save(model, rank, path):
    # all ranks
    with FSDP.state_dict_type(
        model,  # wrapped
        StateDictType.FULL_STATE_DICT,
        policy,
    ):
        # gather
        state = model.state_dict()  # here
    if rank == 0:
        torch.save(state, path)
"""
    assert (
        rewritten(text)
        == """\
import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)


def save(model, rank, path):
    # all ranks
    # wrapped
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    # gather
    state = get_model_state_dict(model, options=options)  # here
    if rank == 0:
        torch.save(state, path)
"""
    )


def test_comments_of_other_names_in_an_import_keep_no_unused_ones() -> None:
    text = """\
import torch
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
    StateDictType,
    FullStateDictConfig,  # the whole model
    LocalStateDictConfig,  # flat parameters
    # ShardedStateDictConfig,
)

policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
print(LocalStateDictConfig)


def save(model, rank, path):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
        state = model.state_dict()
    if rank == 0:
        torch.save(state, path)
"""
    after = rewritten(text)
    kept = "    LocalStateDictConfig,  # flat parameters\n    # ShardedStateDictConfig,\n"
    assert f"from torch.distributed.fsdp import (\n{kept})\n\nprint(Local" in after


def test_a_config_and_imports_with_other_uses_stay() -> None:
    text = """\
import torch
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType

policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
print(policy, StateDictType)


def save(model, rank, path):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
        state = model.state_dict()
    if rank == 0:
        torch.save(state, path)
"""
    after = rewritten(text)
    assert "from torch.distributed.fsdp import FullStateDictConfig, StateDictType\n" in after
    assert "policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)\n" in after


def test_one_line_several_managers_and_a_name_that_is_taken() -> None:
    text = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType

def get_model_state_dict(model):
    with torch.no_grad(), FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return model.state_dict()

def short(model):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT): return model.state_dict()
"""
    assert (
        rewritten(text)
        == """\
import torch
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict as torch_get_model_state_dict,
)

def get_model_state_dict(model):
    with torch.no_grad():
        return torch_get_model_state_dict(model)

def short(model):
    return torch_get_model_state_dict(model)
"""
    )


def test_a_converted_state_with_a_name_leaves_no_name_behind() -> None:
    body = """\
    flat = FSDP.optim_state_dict_to_load(model, optimizer, path)
    print("converted")
    optimizer.load_state_dict(flat)
    """
    after = rewritten(block(SHARDED, body, "del path, flat"), unsafe=True)
    assert "flat" not in after
    assert "    set_optimizer_state_dict(model, optimizer, optim_state_dict=path)\n    print(" in after
    assert "    del path\n" in after
    body = "path = FSDP.optim_state_dict_to_load(model, optimizer, path)\noptimizer.load_state_dict(path)\n"
    after = rewritten(block(SHARDED, body, "del path"), unsafe=True)
    assert after.endswith("    set_optimizer_state_dict(model, optimizer, optim_state_dict=path)\n    del path\n")


def test_without_the_target_it_is_a_hint_that_names_the_target() -> None:
    (finding,) = lint_source(block(SHARDED, "state = model.state_dict()"), "a.py", ">=2.4", hints=True)
    assert finding.severity is Severity.HINT
    assert "--target dcp" in (finding.reason or "")


def test_a_release_below_the_floor_makes_it_manual() -> None:
    text = block(FULL, "model.load_state_dict(path)")
    assert only(text, ">=2.4").applicability is Applicability.SAFE
    assert "needs torch>=2.4" in (only(text, ">=2.3").reason or "")
    assert only(block(FULL, "return model.state_dict()"), ">=2.2").applicability is Applicability.SAFE


def test_a_part_of_a_model_needs_a_newer_torch_than_the_whole() -> None:
    text = block(FULL, "return model.layers[0].state_dict()")
    assert only(text, ">=2.3").applicability is Applicability.SAFE
    assert "needs torch>=2.3" in (only(text, ">=2.2").reason or "")


def test_a_part_of_a_model_with_flat_parameters_may_raise() -> None:
    text = block(FULL, "return model.head.state_dict()")
    assert only(text, ">=2.5").applicability is Applicability.SAFE
    finding = only(f"{text}\n\nmodel = FSDP(net)\n", ">=2.5")
    assert finding.reason == "a part that is not wrapped by itself raises where parameters are flat"
    assert only(f"{text}\n\nmodel = FSDP(net, use_orig_params=True)\n", ">=2.5").applicability is Applicability.SAFE


def test_the_message_says_that_torch_2_4_still_warns() -> None:
    text = block(FULL, "return model.state_dict()")
    assert only(text, ">=2.4").message.endswith("use `get_model_state_dict` (on torch 2.4 these warn too)")
    assert only(text, ">=2.5").message.endswith("use `get_model_state_dict`")


def test_a_call_may_be_an_argument_of_another() -> None:
    body = "model.load_state_dict(model.state_dict())\n" + LOAD.replace(
        "path", "FSDP.optim_state_dict(model, optimizer)"
    )
    after = rewritten(block(SHARDED, body), unsafe=True)
    assert "    set_model_state_dict(model, get_model_state_dict(model))\n" in after
    nested = "get_optimizer_state_dict(model, optimizer, options=options)"
    assert f"    set_optimizer_state_dict(model, optimizer, optim_state_dict={nested})\n" in after


def test_a_context_that_a_function_makes_for_others_stays_and_the_message_names_it() -> None:
    managed = block(SHARDED, "yield", before="").replace("def f(", "@contextlib.contextmanager\ndef f(")
    assert "`f` sets the type for its callers" in (only(managed).reason or "")
    returned = IMPORTS + f"def f(model):\n    return FSDP.state_dict_type(model, {FULL})\n"
    assert "no visible code calls `f`" in (only(returned).reason or "")


def test_a_type_that_is_set_for_good_in_an_init_stays() -> None:
    text = (
        IMPORTS
        + f"""\
class Trainer:
    def __init__(self, model):
        self.model = FSDP(model)
        FSDP.set_state_dict_type(self.model, {FULL})

    def save(self):
        return self.model.state_dict()
"""
    )
    assert "`save` may use it, too" in (only(text).reason or "")


@pytest.mark.parametrize(
    ("between", "moves"), [("", True), ("print(path)\n", True), ("del path\n", True), ("scheduler.step()\n", False)]
)
def test_a_state_that_is_loaded_behind_its_block_is_loaded_in_its_place(between: str, moves: bool) -> None:
    convert = "state = FSDP.optim_state_dict_to_load(model, optimizer, path)"
    text = block(FULL, convert, f"{between}optimizer.load_state_dict(state)")
    finding = next(f for f in lint_source(text, "a.py", ">=2.4", target="dcp") if f.code == "FSDP210")
    assert (finding.applicability is Applicability.UNSAFE) == moves
    after = rewritten(text, unsafe=True)
    assert ("optimizer.load_state_dict" not in after) == moves
    assert ("set_optimizer_state_dict(model, optimizer, optim_state_dict=path" in after) == moves


OWN = """
class Part(torch.nn.Module):
    def {}(self{}):
        {}
"""


@pytest.mark.parametrize(
    "own",
    [
        OWN.format("_save_to_state_dict", ", state, prefix, keep", "state[prefix + 'version'] = torch.ones(1)"),
        OWN.format("state_dict", ", *given", "return {}"),
        "\ndef prepare(model, hook):\n    model._register_state_dict_hook(hook)\n",
        "\ndef prepare(model, hook):\n    model.head.register_state_dict_post_hook(hook)\n",
    ],
)
def test_a_model_that_may_add_keys_to_its_state_stays(own: str) -> None:
    text = block(SHARDED, "state = model.state_dict()") + own
    assert "may add keys to the state dict that name nothing" in (only(text).reason or "")
    assert only(block(SHARDED, "model.load_state_dict(path)") + own).applicability is Applicability.SAFE


@pytest.mark.parametrize(
    ("returned", "grade"), [("self.extra", "unsafe"), ("{'seen': 3}", "safe"), ("torch.ones(1)", "safe"), ("3", "safe")]
)
def test_extra_state_of_any_kind_is_unsafe_in_a_full_dict(returned: str, grade: str) -> None:
    own = OWN.format("get_extra_state", "", f"return {returned}")
    assert only(block(FULL, "state = model.state_dict()") + own).applicability.value == grade
    assert only(block(SHARDED, "state = model.state_dict()") + own).applicability is Applicability.SAFE


def test_a_type_is_set_for_good_where_a_function_gives_model_and_optimizer() -> None:
    text = (
        IMPORTS
        + f"""\
def f(path):
    model, optimizer = build(path)
    FSDP.set_state_dict_type(model, {SHARDED})
    torch.save(model.state_dict(), path)
"""
    )
    assert "    torch.save(get_model_state_dict(model), path)\n" in rewritten(text)
    assert only(text.replace("build(path)", "path")).applicability is Applicability.MANUAL


STACK = """\
import contextlib
{}

def f(model, other):
    with contextlib.ExitStack() as stack:
{}"""
ENTER = f"stack.enter_context(FSDP.state_dict_type(model, {SHARDED}))"


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (f"{ENTER}\nreturn model.state_dict()", "return get_model_state_dict(model)\n"),
        (f"# why\n{ENTER}\n# how\nreturn model.state_dict()", "# why\n# how\nreturn get_model_state_dict(model)\n"),
        (f"print(other)\n{ENTER}\nreturn model.state_dict()", "print(other)\nreturn get_model_state_dict(model)\n"),
    ],
)
def test_a_stack_that_only_served_the_type_goes_too(body: str, left: str) -> None:
    after = rewritten(STACK.format(IMPORTS, indent(f"{body}\n", " " * 8)))
    assert after.endswith(f"def f(model, other):\n{indent(left, '    ')}")
    assert "contextlib" not in after


@pytest.mark.parametrize("more", ["stack.enter_context(other)", "stack.callback(other)", "other(stack)"])
def test_a_stack_with_other_uses_stays(more: str) -> None:
    after = rewritten(STACK.format(IMPORTS, indent(f"{ENTER}\n{more}\nreturn model.state_dict()\n", " " * 8)))
    left = f"with contextlib.ExitStack() as stack:\n        {more}\n        return get_model_state_dict(model)\n"
    assert after.endswith(f"    {left}")


def test_two_models_on_one_stack_are_taken_apart() -> None:
    other = ENTER.replace("(model", "(other")
    text = STACK.format(IMPORTS, indent(f"{ENTER}\n{other}\nreturn model.state_dict(), other.state_dict()\n", " " * 8))
    assert [finding.applicability.value for finding in found(text)] == ["safe", "safe"]
    assert rewritten(text).endswith("return get_model_state_dict(model), get_model_state_dict(other)\n")


def test_of_two_types_in_one_with_the_last_counts() -> None:
    twice = f"FSDP.state_dict_type(model, {FULL}), FSDP.state_dict_type(model, {SHARDED})"
    text = IMPORTS + f"def f(model):\n    with {twice}:\n        return model.state_dict()\n"
    first, last = sorted(found(text), key=lambda finding: finding.column)
    assert "the same `with` sets another type" in (first.reason or "")
    assert last.applicability is Applicability.SAFE
    assert "return get_model_state_dict(model)\n" in rewritten(text)


NAMED = f"context = FSDP.state_dict_type(model, {SHARDED})\n"


def test_a_context_with_a_name_is_followed_to_where_it_is_entered() -> None:
    text = (
        IMPORTS + f"def f(model):\n    {NAMED}    print(model)\n    with context:\n        return model.state_dict()\n"
    )
    assert rewritten(text).endswith("def f(model):\n    print(model)\n    return get_model_state_dict(model)\n")


@pytest.mark.parametrize(
    "between",
    ["    model = make()\n", "    with context:\n        pass\n", "    other(context)\n", "    context = None\n"],
)
def test_a_context_with_a_name_stays_where_more_is_done_with_it(between: str) -> None:
    text = IMPORTS + f"def f(model):\n    {NAMED}{between}    with context:\n        return model.state_dict()\n"
    assert only(text).applicability is Applicability.MANUAL
    assert rewritten(text) == text


def test_a_context_that_is_chosen_at_run_time_is_told_as_such() -> None:
    chosen = f"FSDP.state_dict_type(model, {FULL}) if path else nullcontext()"
    text = IMPORTS + f"def f(model, path):\n    with {chosen}:\n        return model.state_dict()\n"
    assert "only known at run time: call the new functions where it is" in (only(text).reason or "")
