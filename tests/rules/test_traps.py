"""Programs that a careless rewrite would break, each with the grade that it has to get."""

from __future__ import annotations

from textwrap import dedent

import pytest

from fsdp_migrate.findings import Applicability
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
from tests.rules.checks import check_manual, check_transformed, lint

H = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
NAMES = """\
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
"""
CONFIG = "FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)"
SETTING = f"FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, optim_state_dict_config={CONFIG})"
EXACT = f"with {SETTING}"


def grades(text: str, code: str) -> list[Applicability]:
    return [finding.applicability for finding in lint(text, code)]


def rewritten(text: str) -> str:
    settings = Settings(TorchRange.parse(">=2.1"))
    result = rewrite_bytes(dedent(text).encode(), "example.py", settings)
    assert result.error is None
    return result.raw.decode()


@pytest.mark.parametrize(
    "text",
    [
        # The optimizer is not there yet, or is another one by then.
        "osd = FSDP.shard_full_optim_state_dict(full, model)\noptim = Adam(model)\noptim.load_state_dict(osd)\n",
        "def f():\n    s = FSDP.shard_full_optim_state_dict(full, model)\n    global GO\n    GO = a\n    GO.load_state_dict(s)\n",
        "def f(self, full, model):\n    s = FSDP.shard_full_optim_state_dict(full, model)\n"
        "    self.optimizers = [Adam(model)]\n    self.optimizers[0].load_state_dict(s)\n",
        "def f(self, full, model):\n    s = FSDP.shard_full_optim_state_dict(full, model)\n"
        "    self.state = make()\n    self.state.optimizer.load_state_dict(s)\n",
        "def f(opts, full, model, i):\n    s = FSDP.shard_full_optim_state_dict(full, model)\n"
        "    for i in range(2):\n        opts[i].load_state_dict(s)\n",
        "def f(self, full):\n    s = FSDP.shard_full_optim_state_dict(full, self.model)\n"
        "    self.setup_optimizer()\n    self.optimizer.load_state_dict(s)\n",
        "def make():\n    global optim\n    optim = Adam()\n"
        "def f(full, model):\n    s = FSDP.shard_full_optim_state_dict(full, model)\n"
        "    make()\n    optim.load_state_dict(s)\n",
        "def f(on, full, model):\n    if on:\n        optim = Adam()\n    s = FSDP.shard_full_optim_state_dict(full, model)\n"
        "    if on:\n        optim.load_state_dict(s)\n",
        "def f(optim, other, full, model):\n    s = FSDP.shard_full_optim_state_dict(full, model)\n"
        "    optim.load_state_dict(s)\n    optim = other\n    optim.load_state_dict(s)\n",
        # The pair is of another model, or the state is for an optimizer out of sight.
        "def f(pairs):\n    for model, opt in pairs:\n        saved.append(FSDP.optim_state_dict(model, opt))\n"
        "    for model, _ in pairs:\n        yield FSDP.shard_full_optim_state_dict(saved.pop(0), model)\n",
        "def f(model, a, b, osd):\n    FSDP.optim_state_dict(model, a)\n"
        "    sh = FSDP.shard_full_optim_state_dict(osd, model)\n    restore(b, sh)\n",
        "def f(model, a, b, osd):\n    FSDP.optim_state_dict(model, a)\n"
        "    sh = FSDP.shard_full_optim_state_dict(osd, model)\n    def later():\n        b.load_state_dict(sh)\n",
        "def f(model, a, box, osd):\n    FSDP.optim_state_dict(model, a)\n"
        "    box['sh'] = FSDP.shard_full_optim_state_dict(osd, model)\n",
        "def f(model, other, osd):\n    a = Adam(params=other.parameters(), lr=1)\n"
        "    a.load_state_dict(FSDP.shard_full_optim_state_dict(osd, model))\n",
        "def f(model, a, osd):\n    a.load_state_dict(osd, FSDP.shard_full_optim_state_dict(osd, model))\n",
        # It is no optimizer at all.
        "import torch.distributed.checkpoint as dcp\n"
        "def f(osd, model):\n    dcp.load_state_dict(FSDP.shard_full_optim_state_dict(osd, model))\n",
        "def f(osd, model, lr_scheduler):\n    lr_scheduler.load_state_dict(FSDP.shard_full_optim_state_dict(osd, model))\n",
        "class T:\n    def f(self, osd, model):\n        self.load_state_dict(FSDP.shard_full_optim_state_dict(osd, model))\n",
    ],
)
def test_an_optimizer_that_is_not_certain_is_never_taken(text: str) -> None:
    assert grades(H + text, "FSDP103") == [Applicability.MANUAL]


@pytest.mark.parametrize(
    "text",
    [
        "def f(on, full, model):\n    if on:\n        optim = Adam()\n    else:\n        optim = SGD()\n"
        "    s = FSDP.shard_full_optim_state_dict(full, model)\n    optim.load_state_dict(s)\n",
        "def f(on, full, model):\n    if not on:\n        return\n    with ctx:\n        optim = Adam()\n"
        "    s = FSDP.shard_full_optim_state_dict(full, model)\n    optim.load_state_dict(s)\n",
        "def f(pairs, full):\n    for model, optim in pairs:\n"
        "        optim.load_state_dict(FSDP.shard_full_optim_state_dict(full, model))\n",
        "def f(self, full):\n    s = FSDP.shard_full_optim_state_dict(full, self.model)\n"
        "    self.log('loaded')\n    self.optimizer.load_state_dict(s)\n",
        *(
            f"def f(self, full):\n    s = FSDP.shard_full_optim_state_dict(full, self.model)\n"
            f"    self.{harmless}()\n    self.optimizer.load_state_dict(s)\n"
            for harmless in ("info", "debug", "warning", "print", "barrier", "load_state_dict", "wait_for_everyone")
        ),
        # Bound by whoever runs the text, as cells and scripts of a driver are.
        "def f(osd, model):\n    optim.load_state_dict(FSDP.shard_full_optim_state_dict(osd, model))\n",
        "def f(full, model):\n    optim = Adam(params=model.parameters())\n"
        "    optim.load_state_dict(FSDP.shard_full_optim_state_dict(full, model))\n",
        "optim = Adam(model)\nosd = FSDP.shard_full_optim_state_dict(full, model)\noptim.load_state_dict(osd)\n",
    ],
)
def test_an_optimizer_that_is_certain_is_taken(text: str) -> None:
    assert grades(H + text, "FSDP103") == [Applicability.SAFE]


def test_an_order_that_may_come_from_optim_input_is_unsafe_under_the_right_type_too() -> None:
    text = f"""{H}from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType

def load(model, osd, params, optim=None):
    config = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=False)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, None, config):
        return FSDP.shard_full_optim_state_dict(osd, model, params, optim)
"""
    assert grades(text, "FSDP103") == [Applicability.UNSAFE]
    assert grades(text.replace("=None)", ")"), "FSDP103") == [Applicability.SAFE]


def test_an_import_below_a_function_of_the_module_has_run_when_that_is_called() -> None:
    names = "FullOptimStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType"
    text = "def save(model, optim):\n    return FSDP.full_optim_state_dict(model, optim)\n\n\n"
    assert rewritten(f"{text}from torch.distributed.fsdp import {names}\n").count("import") == 1


def test_an_order_that_may_come_from_optim_input_makes_the_fix_unsafe() -> None:
    text = f"{H}def f(model, osd, groups, optim=None):\n    return FSDP.shard_full_optim_state_dict(osd, model, groups, optim)\n"
    assert grades(text, "FSDP103") == [Applicability.UNSAFE]


@pytest.mark.parametrize(
    "body",
    [
        f"{EXACT}:\n    if x:\n        FSDP.set_state_dict_type(model, t)\n    osd = CALL\n",
        f"{EXACT}:\n    for i in x:\n        osd = CALL\n        FSDP.set_state_dict_type(model, t)\n",
        f"{EXACT}:\n    helper(model)\n    osd = CALL\n",
        f"{EXACT}:\n    FSDP.state_dict_type(model, t).__enter__()\n    osd = CALL\n",
        f"{EXACT}:\n    try:\n        with FSDP.state_dict_type(model, t):\n            risky()\n    except ValueError:\n        pass\n"
        "    osd = CALL\n",
        "cfg = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)\ncfg.rank0_only = False\n"
        "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, None, cfg):\n    osd = CALL\n",
        f"with ExitStack() as stack:\n    x = stack.enter_context({SETTING}) if c else None\n    osd = CALL\n",
        f"with ExitStack() as stack:\n    c and stack.enter_context({SETTING})\n    osd = CALL\n",
        f"with ExitStack() as stack:\n    stack.enter_context({SETTING})\n    stack.close()\n    osd = CALL\n",
        f"{EXACT}:\n    yield 1\n    osd = CALL\n",
        f"{EXACT}:\n    await x\n    osd = CALL\n",
        "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, **kw):\n    osd = CALL\n",
        f"{EXACT}:\n    model = other\n    osd = CALL\n",
    ],
)
def test_a_context_that_may_be_disturbed_is_not_relied_on(body: str) -> None:
    call = "FSDP.full_optim_state_dict(model, optim)"
    indented = "".join(f"    {line}\n" for line in body.replace("CALL", call).splitlines())
    after = rewritten(f"{NAMES}async def f(model, optim, x, t, c, kw, other):\n{indented}")
    line = next(line for line in after.splitlines() if "FSDP.optim_state_dict(model, optim)" in line)
    before = after[: after.index(line)].rstrip().splitlines()
    assert before[-1].strip() == "):", after


def test_a_generator_inside_a_context_may_run_outside_of_it() -> None:
    text = f"{NAMES}def f(model, os):\n    {EXACT}:\n        g = (FSDP.full_optim_state_dict(model, o) for o in os)\n    list(g)\n"
    assert grades(text, "FSDP101") == [Applicability.MANUAL]


@pytest.mark.parametrize(
    "setting",
    [
        "with FSDP.state_dict_type(model.encoder, StateDictType.SHARDED_STATE_DICT):\n        osd = CALL",
        "FSDP.set_state_dict_type(model.encoder, StateDictType.SHARDED_STATE_DICT)\n    osd = CALL",
    ],
)
def test_a_type_on_a_part_of_the_model_is_manual(setting: str) -> None:
    text = setting.replace("CALL", "FSDP.full_optim_state_dict(model, optim)")
    assert grades(f"{NAMES}def f(model, optim):\n    {text}\n", "FSDP101") == [Applicability.MANUAL]


@pytest.mark.parametrize(
    "statement",
    [
        "use(b=CALL, *advance(model, optim))",
        "x = FSDP.full_optim_state_dict((model := models[0]), optim)",
        "x = FSDP.full_optim_state_dict(model, (optim := inner), rank0_only=optim is None)",
        'text = f"{len(CALL)=}"',
        "x = FSDP(net).full_optim_state_dict(model, optim)",
        "x = FSDP.full_optim_state_dict(model, optim, get_params(model))",
    ],
)
def test_what_would_run_in_another_order_or_twice_is_manual(statement: str) -> None:
    text = statement.replace("CALL", "FSDP.full_optim_state_dict(model, optim)")
    assert grades(f"{H}def f(self, model, optim, opts, sd, q):\n    {text}\n", "FSDP101") == [Applicability.MANUAL]


def test_a_call_in_a_case_guard_is_manual() -> None:
    text = f"{H}def f(x):\n    match x:\n        case {{'m': m, 'o': o}} if FSDP.full_optim_state_dict(m, o):\n            pass\n"
    assert grades(text, "FSDP101") == [Applicability.MANUAL]


@pytest.mark.parametrize(
    "text",
    [
        # Names that are imported elsewhere than where they are needed.
        f"def setup():\n    global FSDP\n    {H}\ndef f(m, o):\n    return FSDP.full_optim_state_dict(m, o)\n",
        "from torch.distributed.fsdp.fully_sharded_data_parallel import *\n"
        "def f(m, o):\n    return FullyShardedDataParallel.full_optim_state_dict(m, o)\n",
        # Subclasses with methods of their own under the new names.
        f"{H}class My(FSDP):\n    def optim_state_dict(self, optim): ...\n"
        "def f(m, o):\n    return My.full_optim_state_dict(m, o)\n",
        f"{H}class My(FSDP):\n    def state_dict_type(self): ...\n"
        "    def f(self, o):\n        return self.full_optim_state_dict(self, o)\n",
    ],
)
def test_names_that_would_not_be_there_are_manual(text: str) -> None:
    assert grades(text, "FSDP101") == [Applicability.MANUAL]


def test_an_import_in_the_other_arm_does_not_count() -> None:
    after = rewritten(
        f"""\
if flag:
    from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType
    {H.rstrip()}
else:
    from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel as FSDP

def f(m, o):
    return FSDP.full_optim_state_dict(m, o)
"""
    )
    arm = after[after.index("else:") : after.index("def f")]
    assert "StateDictType" in arm
    assert "FullOptimStateDictConfig" in arm


def test_the_third_position_of_sharded_is_a_group_whatever_else_its_name_says() -> None:
    text = f"{H}def f(net, optim, param_sync_group):\n    m = FSDP(net)\n    return FSDP.sharded_optim_state_dict(m, optim, param_sync_group)\n"
    assert "group=param_sync_group" in rewritten(text)


def test_an_optimizer_whose_name_speaks_of_groups_is_an_optimizer() -> None:
    text = f"{H}def f(osd, m, group_optimizer):\n    return FSDP.scatter_full_optim_state_dict(osd, m, None, group_optimizer)\n"
    assert "optim=group_optimizer, optim_state_dict=osd)" in rewritten(text)


@pytest.mark.parametrize(
    "handler",
    [
        "finally:\n        return None",
        "except NotImplementedError:\n        pass",
        "except (NotImplementedError, ValueError):\n        pass",
        "except ERRORS:\n        pass",
    ],
)
def test_every_way_to_swallow_the_error_is_found(handler: str) -> None:
    text = f"ERRORS = (RuntimeError, KeyError)\n{H}def f(m, o):\n    try:\n        x = FSDP.full_optim_state_dict(m, o)\n    {handler}\n"
    assert len(lint(text, "FSDP110")) == 1


def test_a_handler_whose_block_raises_swallows_nothing() -> None:
    text = f"{H}def f(m, o):\n    try:\n        x = FSDP.full_optim_state_dict(m, o)\n    except Exception as e:\n        with log():\n            raise ValueError from e\n"
    assert lint(text, "FSDP110") == ()


@pytest.mark.parametrize(
    "text",
    [
        f"{NAMES}def f(model, optim, full):\n    if full:\n"
        "        FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True))\n"
        "    else:\n        FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)\n"
        "    return FSDP.optim_state_dict(model, optim)\n",
        f"{NAMES}def f(model, optim, t):\n    with FSDP.state_dict_type(model, t, FullStateDictConfig(rank0_only=True)):\n"
        "        return FSDP.optim_state_dict(model, optim)\n",
        f"{NAMES}def f(model, optim):\n    cfg = FullStateDictConfig()\n    cfg.rank0_only = True\n"
        "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, cfg):\n"
        "        return FSDP.optim_state_dict(model, optim)\n",
        f"{NAMES}def f(model, optim):\n"
        "    ctx = FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True))\n"
        "    with ctx:\n        return FSDP.optim_state_dict(model, optim)\n",
    ],
)
def test_a_missing_optimizer_config_is_found_wherever_the_type_is_set(text: str) -> None:
    assert len(lint(text, "FSDP201")) == 1


def test_a_flag_is_not_copied_out_of_its_scope() -> None:
    text = (
        f"{NAMES}cfg = FullStateDictConfig(rank0_only=flag)\ndef f(model, optim, flag=False):\n"
        "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, cfg):\n"
        "        return FSDP.optim_state_dict(model, optim)\n"
    )
    assert grades(text, "FSDP201") == [Applicability.MANUAL]


@pytest.mark.parametrize(
    "path", ["mypkg.checkpoint.FSDP.full_optim_state_dict", "a.FullyShardedDataParallel.full_optim_state_dict"]
)
def test_a_path_to_patch_is_found_in_any_module(path: str) -> None:
    assert grades(f"mock.patch('{path}')\n", "FSDP101") == [Applicability.MANUAL]


def test_a_body_behind_a_backslash_is_split_too() -> None:
    after = rewritten(
        f"{H}def f(m, o, x):\n    if x: \\\n        osd = FSDP.full_optim_state_dict(m, o)\n    return osd\n"
    )
    assert "    if x:\n        with FSDP.state_dict_type(\n" in after


def test_a_comment_in_a_dropped_argument_stays_in_the_call() -> None:
    text = f"{H}def f(m, o):\n    return FSDP.full_optim_state_dict(m, o, rank0_only=(  # why\n        True))\n"
    assert rewritten(text).endswith("return FSDP.optim_state_dict(m, o\n            # why\n            )\n")


def test_a_call_with_more_arguments_than_it_has_parameters_for_is_manual() -> None:
    call = "FSDP.optim_state_dict_to_load(x, model, optim, optim_state_dict=osd)"
    assert grades(f"{H}def f(x, model, optim, osd):\n    return {call}\n", "FSDP107") == [Applicability.MANUAL]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "def f(cfg, optimizer, osd):\n    model = load(cfg)\n    FSDP.optim_state_dict_to_load(model, optimizer, osd)\n",
            "FSDP107",
        ),
        ("def f(model, optim, osd):\n    FSDP.optim_state_dict_to_load(model, optim, osd, False, True)\n", "FSDP111"),
        (
            "def f(model, optim, osd):\n    if (w := FSDP.optim_state_dict_to_load(model, optim, osd)):\n        pass\n",
            "FSDP111",
        ),
    ],
)
def test_correct_code_is_left_alone(text: str, code: str) -> None:
    assert lint(H + text, code) == ()


def test_arguments_with_effects_keep_their_order() -> None:
    after = rewritten(
        f"{H}import torch\ndef f(path, model, params):\n"
        "    return FSDP.optim_state_dict_to_load(torch.load(path), model, torch.optim.AdamW(params))\n"
    )
    assert "(optim_state_dict=torch.load(path), model=model, optim=torch.optim.AdamW(params))" in after


@pytest.mark.parametrize(
    "handler",
    ["except FileNotFoundError:\n        print('starting fresh')", "except (EOFError, OSError):\n        pass"],
)
def test_where_an_error_is_survived_nothing_but_the_call_stands_under_the_type(handler: str) -> None:
    after = rewritten(
        f"{H}import torch\ndef f(path, model, optim):\n    try:\n"
        "        optim.load_state_dict(FSDP.scatter_full_optim_state_dict(torch.load(path), model))\n"
        f"    {handler}\n"
    )
    assert "        full_osd = torch.load(path)\n        with FSDP.state_dict_type(\n" in after
    saved = rewritten(
        f"{H}import torch\ndef f(path, model, optim):\n    try:\n"
        f"        torch.save(FSDP.full_optim_state_dict(model, optim), path)\n    {handler}\n"
    )
    assert "        torch.save(optim_state, path)\n" in saved


@pytest.mark.parametrize(
    "imports",
    [
        f"import torch\nfrom packaging import version\nif version.parse(torch.__version__) >= version.parse('1.12'):\n    {H}"
        "else:\n    from fairscale.nn import FullyShardedDataParallel as FSDP\n",
        f"try:\n    {H}except ImportError:\n    from fairscale.nn import FullyShardedDataParallel as FSDP\n",
        f"try:\n    {H}except ImportError:\n    class FSDP: ...\n",
    ],
)
def test_a_fallback_that_no_supported_release_needs_makes_no_doubt(imports: str) -> None:
    assert grades(f"{imports}def f(m, o):\n    return FSDP.full_optim_state_dict(m, o)\n", "FSDP101") == [
        Applicability.SAFE
    ]


def test_a_call_inside_the_arguments_does_not_run_after_the_call() -> None:
    text = (
        f"{H}class T:\n    def f(self, path):\n"
        "        osd = FSDP.scatter_full_optim_state_dict(self.read(path), self.model)\n"
        "        self.optimizer.load_state_dict(osd)\n"
    )
    assert grades(text, "FSDP104") == [Applicability.SAFE]


def test_a_statement_that_puts_another_model_into_a_container_shares_its_context_with_none() -> None:
    after = rewritten(
        f"{H}def f(box, other, a, b):\n    box['m'], x = other, FSDP.full_optim_state_dict(box['m'], a)\n"
        "    y = FSDP.full_optim_state_dict(box['m'], b)\n    return x, y\n"
    )
    assert after.count("with FSDP.state_dict_type(") == 2


def test_a_call_over_lines_behind_a_colon_keeps_its_layout() -> None:
    after = rewritten(f"{H}def f(m, o): return FSDP.full_optim_state_dict(\n    m,  # whole\n    o,\n)\n")
    assert "        return FSDP.optim_state_dict(\n            m,  # whole\n            o,\n        )\n" in after


@pytest.mark.parametrize(
    "body",
    [
        "def f(opt: Wrapper, m, osd):\n    opt.load_state_dict(CALL)\n",
        "def f(o, m, osd):\n    opt = Wrapper(o)\n    opt.load_state_dict(CALL)\n",
        "class T:\n    def __init__(self, o):\n        self.opt = Wrapper(o)\n"
        "    def f(self, m, osd):\n        self.opt.load_state_dict(CALL)\n",
        "def f(self, m, osd):\n    self.optim_wrapper.load_state_dict(CALL)\n",
    ],
)
def test_what_only_wraps_an_optimizer_is_none(body: str) -> None:
    text = body.replace("CALL", "FSDP.scatter_full_optim_state_dict(osd, m)")
    assert grades(f"{H}class Wrapper:\n    pass\n{text}", "FSDP104") == [Applicability.MANUAL]


@pytest.mark.parametrize("name", ["ema_model", "engine", "self.trainer.strategy", "state", "runner"])
def test_what_loads_more_than_an_optimizer_is_none(name: str) -> None:
    text = f"def f(self, m, osd, ema_model, engine, state, runner):\n    {name}.load_state_dict(CALL)\n"
    text = text.replace("CALL", "FSDP.shard_full_optim_state_dict(osd, m)")
    assert grades(f"{H}{text}", "FSDP103") == [Applicability.MANUAL]


def test_a_subclass_of_an_optimizer_is_one() -> None:
    text = (
        f"{H}import torch\nclass Mine(torch.optim.Adam):\n    pass\n"
        "def f(opt: Mine, m, osd):\n    opt.load_state_dict(FSDP.scatter_full_optim_state_dict(osd, m))\n"
    )
    assert grades(text, "FSDP104") == [Applicability.SAFE]


@pytest.mark.parametrize(
    "text",
    [
        "from fairscale.nn import FullyShardedDataParallel as FSDP\n"
        "def f(net, o):\n    m = FSDP(net)\n    return m.full_optim_state_dict(m, o)\n",
        "from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel\n"
        "def f(m: XlaFullyShardedDataParallel, o):\n    return m.full_optim_state_dict(m, o)\n",
        f"{H}from megatron.core.distributed.custom_fsdp import FSDP as Other\n"
        "class T:\n    def __init__(self, net):\n        self.model = Other(net)\n"
        "    def f(self, o):\n        return self.model.full_optim_state_dict(self.model, o)\n",
    ],
)
def test_a_model_of_another_library_is_left_alone(text: str) -> None:
    assert lint(text, "FSDP101") == ()


@pytest.mark.parametrize("other", ["self.model = model", "self.model = FSDP(model)"])
def test_a_model_that_may_be_of_another_library_but_has_a_method_of_torch_is_rewritten(other: str) -> None:
    text = (
        f"{H}class T:\n    def wrap(self, model):\n        {other}\n        if self.xla:\n"
        "            from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as Xla\n"
        "            self.model = Xla(model)\n"
        "    def save(self, o):\n        return self.model.__class__.full_optim_state_dict(self.model, o)\n"
    )
    assert grades(text, "FSDP101") == [Applicability.SAFE]


def test_a_model_of_a_class_that_is_not_visible_is_not_rewritten() -> None:
    text = "from lib import FSDP\ndef f(net, o):\n    m = FSDP(net)\n    return m.full_optim_state_dict(m, o)\n"
    assert grades(text, "FSDP101") == [Applicability.MANUAL]


@pytest.mark.parametrize(
    "text",
    [
        f"{H}class T:\n    cls = FSDP\n    def f(self, m, o):\n        return T.cls.full_optim_state_dict(m, o)\n",
        f"{H}class My(FSDP):\n    @staticmethod\n"
        "    def full_optim_state_dict(m, o):\n        return super(My, My).full_optim_state_dict(m, o)\n",
        "import importlib\nFSDP = importlib.import_module('torch.distributed.fsdp').FullyShardedDataParallel\n"
        "def f(m, o):\n    return FSDP.full_optim_state_dict(m, o)\n",
    ],
)
def test_the_class_behind_an_attribute_super_or_a_module_by_name_is_not_missed(text: str) -> None:
    assert grades(text, "FSDP101") == [Applicability.MANUAL]


def test_a_name_that_several_imports_could_bring_is_imported_once() -> None:
    after = rewritten(
        f"{H}from torch.distributed.fsdp import FullyShardedDataParallel\n"
        "def f(m, o):\n    return FSDP.full_optim_state_dict(m, o)\n"
        "def g(m, o):\n    return FullyShardedDataParallel.full_optim_state_dict(m, o)\n"
    )
    assert after.count("    StateDictType,\n") == 1
    assert "from torch.distributed.fsdp import FullyShardedDataParallel\n" in after


@pytest.mark.parametrize("group", ["dist.group.WORLD", "dist.new_group([0, 1])", 'mesh["dp"].get_group()'])
def test_a_group_in_the_third_position_is_known_by_what_makes_it(group: str) -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
    text = f"{head}def save(model, optim, mesh):\n    return FSDP.optim_state_dict(model, optim, {{}})\n"
    check_transformed(text.format(group), text.format(f"group={group}"), "FSDP108")


@pytest.mark.parametrize("whole", ["nn.ModuleList([gen, disc])", 'nn.ModuleDict({"g": gen, "d": disc})', "Gan(gen)"])
def test_a_type_set_on_what_a_model_is_put_together_from_is_another_one_than_its(whole: str) -> None:
    text = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType\n\n"
        f"def save(gen, disc, optim):\n    both = {whole}\n"
        "    FSDP.set_state_dict_type(gen, StateDictType.SHARDED_STATE_DICT)\n"
        "    osd = FSDP.full_optim_state_dict(both, optim)\n    return osd\n"
    )
    check_manual(text, "FSDP101", "`gen` is a part of the model and has its own state-dict type")
    (other,) = lint(text.replace("type(gen", "type(third"), "FSDP101")
    assert other.applicability is Applicability.SAFE


@pytest.mark.parametrize(
    ("whole", "part"), [("self", "p.actor"), ("self.model", "trainer.model.encoder"), ("model", "model.encoder")]
)
def test_a_type_that_another_function_sets_on_a_part_of_the_model_stays(whole: str, part: str) -> None:
    text = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType\n\n"
        "class Policy:\n    def __init__(self, a):\n        self.actor = FSDP(a)\n\n"
        f"    def save(self, optim, model):\n        return FSDP.full_optim_state_dict({whole}, optim)\n\n\n"
        f"def main(p, trainer, model):\n    FSDP.set_state_dict_type({part}, StateDictType.SHARDED_STATE_DICT)\n"
    )
    check_manual(text, "FSDP101", f"`{part}` is a part of the model and has its own state-dict type")
    other = text.replace(f"type({part}", f"type({part.rpartition('.')[0]}_2.critic")
    (found,) = lint(other, "FSDP101")
    assert found.applicability is Applicability.SAFE


@pytest.mark.parametrize(
    ("imports", "kind"),
    [
        ("try:\n    {fsdp}, StateDictType\nexcept ImportError:\n    FSDP = StateDictType = None\n", "StateDictType"),
        ("{fsdp}\ntry:\n    {type}\nexcept ImportError:\n    StateDictType = None\n", "StateDictType"),
        (
            "{fsdp}\ntry:\n    import other\n    {type}\nexcept ImportError:\n    StateDictType = None\n",
            "FSDPStateDictType",
        ),
        (
            "{fsdp}\ntry:\n    {type}\n    import other\nexcept ImportError:\n    StateDictType = None\n",
            "FSDPStateDictType",
        ),
        (
            "{fsdp}\ntry:\n    {type}, fully_shard\nexcept ImportError:\n    StateDictType = None\n",
            "FSDPStateDictType",
        ),
        (
            "{fsdp}\ntry:\n    {type}\n    check(StateDictType)\nexcept Exception:\n    StateDictType = None\n",
            "FSDPStateDictType",
        ),
        ("{fsdp}\ntry:\n    {type}\n    import os\nexcept ImportError:\n    StateDictType = None\n", "StateDictType"),
        ("{fsdp}\ntry:\n    {type}\nexcept ImportError:\n    pass\nStateDictType = None\n", "FSDPStateDictType"),
    ],
)
def test_a_name_with_a_stand_in_for_want_of_it_is_used_where_it_surely_is_there(imports: str, kind: str) -> None:
    fsdp = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP"
    head = imports.format(fsdp=fsdp, type="from torch.distributed.fsdp import StateDictType")
    after = rewritten(f"{head}def f(m, o):\n    return FSDP.sharded_optim_state_dict(m, o)\nx = FSDP(net)\n")
    assert f"state_dict_type(m, {kind}.SHARDED_STATE_DICT)" in after
    assert (head in after) is (kind == "StateDictType")


@pytest.mark.parametrize("kept", ["osd", "y = osd; y"])
@pytest.mark.parametrize(
    ("head", "first", "second"),
    [("", "if a:", "else:"), ("", "if a:", "if b:"), ("match a:", "    case 1:", "    case 2:")],
)
def test_each_arm_loads_its_own_optimizer(head: str, first: str, second: str, kept: str) -> None:
    before, _, loaded = kept.rpartition("; ")

    def arm(opening: str, model: str, optim: str) -> str:
        body = [f"osd = FSDP.shard_full_optim_state_dict(full, {model})", before, f"{optim}.load_state_dict({loaded})"]
        return f"    {opening}\n" + "".join(f"            {line}\n" for line in body if line)

    top = f"    {head}\n" if head else ""
    after = rewritten(f"{H}def f(a, b, m, n, o, q, full):\n{top}{arm(first, 'm', 'o')}{arm(second, 'n', 'q')}")
    assert "model=m, optim=o, " in after
    assert "model=n, optim=q, " in after


@pytest.mark.parametrize(
    "body",
    [
        "    if turn: p.load_state_dict(x)\n        x = {call}\n        o.load_state_dict(x)",
        "    if turn:\n            x = {call}\n            o.load_state_dict(x)\n        else:\n            p.load_state_dict(x)",
    ],
)
def test_what_the_next_turn_of_a_loop_loads_counts_too(body: str) -> None:
    call = "FSDP.shard_full_optim_state_dict(full, model)"
    text = f"{H}def f(model, o, p, full, x):\n    for turn in range(2):\n    {body.format(call=call)}\n"
    check_manual(text, "FSDP103", "several optimizers are possible")
    fresh = text.replace("range(2):\n", "range(2):\n        x = full\n")
    assert grades(fresh, "FSDP103") == [Applicability.SAFE]


def test_a_result_that_cannot_be_followed_gets_no_optimizer_once_the_next_call_is_rewritten() -> None:
    call = "x = FSDP.shard_full_optim_state_dict(full, model)\n"
    text = (
        f"{H}def f(model, o, p, full):\n    {call}    for one in [x, full]:\n        p.load_state_dict(one)\n"
        f"    {call}    o.load_state_dict(x)\n"
    )
    assert grades(text, "FSDP103") == [Applicability.MANUAL, Applicability.SAFE]
    after = rewritten(text)
    assert after.count("optim=o") == 1
    assert f"    {call}    for one in" in after


@pytest.mark.parametrize("anew", ["if (x := full): p.load_state_dict(x)", "for x in full: p.load_state_dict(x)"])
def test_what_a_compound_statement_binds_for_its_body_is_another_state(anew: str) -> None:
    text = f"{H}def f(model, o, p, full):\n    x = FSDP.shard_full_optim_state_dict(full, model)\n    o.load_state_dict(x)\n"
    assert "optim=o" in rewritten(f"{text}    {anew}\n")
    check_manual(
        f"{text}    {anew.replace('x :=', 'y :=').replace('for x', 'for y')}\n", "FSDP103", "several optimizers"
    )


def test_a_state_that_is_converted_once_for_a_loop_over_optimizers_belongs_to_none_of_them() -> None:
    text = (
        f"{H}def f(model, optims, full):\n    x = None\n    for optim in optims:\n        if x is None:\n"
        "            x = FSDP.shard_full_optim_state_dict(full, model)\n        optim.load_state_dict(x)\n"
    )
    check_manual(
        text,
        "FSDP103",
        "the next iteration of the loop loads the same state into another `optim`: convert it in the loop",
    )
    assert "optim=optim" in rewritten(text.replace("if x is None", "with torch.no_grad()"))


def test_each_loop_around_a_state_may_bring_it_back() -> None:
    text = (
        f"{H}def f(model, o, p, full, y):\n    for _ in full:\n        x = full\n        for _ in range(2):\n"
        "            y, x = x, FSDP.shard_full_optim_state_dict(full, model)\n"
        "            p.load_state_dict(y)\n        o.load_state_dict(x)\n"
    )
    check_manual(text, "FSDP103", "several optimizers are possible")
