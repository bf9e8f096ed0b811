from __future__ import annotations

import pytest

from fsdp_migrate.edits import Wrap
from fsdp_migrate.findings import Applicability, Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
FULL_IMPORT = """\
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullyShardedDataParallel as FSDP,
    StateDictType,
)
"""
SHARDED_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType\n"


def context(indent: int, rank0_only: str = "True", model: str = "model", receiver: str = "FSDP") -> str:
    pad = " " * indent
    return (
        f"{pad}with {receiver}.state_dict_type(\n"
        f"{pad}    {model},\n"
        f"{pad}    StateDictType.FULL_STATE_DICT,\n"
        f"{pad}    optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only={rank0_only}),\n"
        f"{pad}):\n"
    )


NEW = "FSDP.optim_state_dict(model, optim)"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('self.parts["net"]', 'self.parts["net"]'),
        ("self.parts['net']", "self.parts['net']"),
        ("self.parts[\n        0\n    ]", "self.parts[0]"),
    ],
)
def test_a_model_is_written_into_the_context_as_it_stands_but_on_one_line(written: str, text: str) -> None:
    before = f"{IMPORT}\ndef save(self, optim):\n    return FSDP.full_optim_state_dict({written}, optim)\n"
    after = f"{FULL_IMPORT}\ndef save(self, optim):\n{context(4, model=text)}"
    moved = written.replace("\n    ", "\n        ")
    check_transformed(before, f"{after}        return FSDP.optim_state_dict({moved}, optim)\n", "FSDP101")


@pytest.mark.parametrize("other", ["torch.no_grad()", "torch.inference_mode()", "contextlib.nullcontext()"])
def test_a_context_that_has_nothing_to_do_with_types_does_not_disturb_one(other: str) -> None:
    text = f"""{IMPORT}
import contextlib
import torch
from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType

def save(model, optim):
    with FSDP.state_dict_type(
        model, StateDictType.FULL_STATE_DICT, None, FullOptimStateDictConfig(rank0_only=True)
    ), {other}:
        return FSDP.{{}}(model, optim)
"""
    after = text.format("optim_state_dict")
    check_transformed(text.format("full_optim_state_dict"), after, "FSDP101")


@pytest.mark.parametrize(
    ("code", "call", "told"),
    [
        ("FSDP101", "full_optim_state_dict(m, o)", "optim_state_dict` under `FULL_STATE_DICT`{}"),
        ("FSDP102", "sharded_optim_state_dict(m, o)", "optim_state_dict` under `SHARDED_STATE_DICT`"),
        ("FSDP103", "shard_full_optim_state_dict(osd, m)", "optim_state_dict_to_load` under `FULL_STATE_DICT`{}"),
        ("FSDP104", "scatter_full_optim_state_dict(osd, m)", "optim_state_dict_to_load` under `FULL_STATE_DICT`{}"),
        ("FSDP105", "flatten_sharded_optim_state_dict(osd, m)", "optim_state_dict_to_load` under `SHARDED_STATE_DICT`"),
    ],
)
def test_the_message_says_what_takes_the_place_of_a_method(code: str, call: str, told: str) -> None:
    (found,) = lint(f"{IMPORT}\nx = FSDP.{call}\n", code)
    old = call.partition("(")[0]
    assert found.message == f"`{old}` is deprecated since torch 2.0: use `FSDP." + told.format(
        " with an optimizer config"
    )
    assert found.severity is Severity.DEPRECATED


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("osd = {}", "osd = {}"),
        ("osd: dict = {}", "osd: dict = {}"),
        ("self.osd = {}", "self.osd = {}"),
        ('out["optim"] = {}', 'out["optim"] = {}'),
        ("a, b = 1, {}", "a, b = 1, {}"),
        ("out |= {}", "out |= {}"),
        ("return {}", "return {}"),
        ("{}", "{}"),
    ],
)
def test_a_statement_that_only_evaluates_the_call_is_wrapped(before: str, after: str) -> None:
    function = "import torch\n{imports}\n\ndef f(self, model, optim, out, path, step):\n{body}"
    old = before.format("FSDP.full_optim_state_dict(model, optim)")
    check_transformed(
        function.format(imports=IMPORT, body=f"    {old}\n"),
        function.format(imports=FULL_IMPORT, body=context(4) + f"        {after.format(NEW)}\n"),
        "FSDP101",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            'torch.save({{"m": model.state_dict(), "o": {}}}, path)',
            'torch.save({{"m": model.state_dict(), "o": {}}}, path)',
        ),
        ("upload({})", "upload({})"),
        ("x = (osd := {})", "x = (osd := {})"),
        ("if {}:\n        pass", "if {}:\n        pass"),
        ("for k in {}:\n        pass", "for k in {}:\n        pass"),
        ("return [k for k in {}]", "return [k for k in {}]"),
        ("out.update({})", "out.update({})"),
        ("return {} if step else upload(1)", None),
        ('state = {}["state"]', 'state = {}["state"]'),
        ('text = f"{{{}}}"', 'text = f"{{{}}}"'),
        ("out = {} | out", "out = {} | out"),
        ("yield {}", "yield {}"),
        ("x = {} or upload(1)", "x = {} or upload(1)"),
    ],
)
def test_a_call_among_others_is_hoisted_or_manual(before: str, after: str | None) -> None:
    function = "import torch\n{imports}\n\ndef f(model, optim, out, path, step):\n{body}"
    old = before.format("FSDP.full_optim_state_dict(model, optim)")
    text = function.format(imports=IMPORT, body=f"    {old}\n")
    if after is None:
        check_manual(text, "FSDP101", "conditional expression")
        return
    body = context(4) + f"        optim_state = {NEW}\n    {after.format('optim_state')}\n"
    check_transformed(text, function.format(imports=FULL_IMPORT, body=body), "FSDP101")


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("while {}:\n        pass", "`while`"),
        ("f = lambda: {}", "lambda"),
        ("x = [{} for _ in out]", "comprehension"),
        ("x = {} if step else None", "conditional expression"),
        ("x = step and {}", "`and` or `or`"),
        ("assert {}", "assertion"),
        ("if step:\n        pass\n    elif {}:\n        pass", "`elif`"),
        ("x = *train(model), {}", "`*train(model)` runs before"),
        ("x = (step := 2), {}", "`:=`"),
        ("def g(x={}):\n        pass", "default"),
    ],
)
def test_a_call_that_may_not_run_once_and_first_is_manual(statement: str, reason: str) -> None:
    call = "FSDP.full_optim_state_dict(model, optim)"
    check_manual(f"{IMPORT}\ndef f(model, optim, out, step):\n    {statement.format(call)}\n", "FSDP101", reason)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("*args", "`*args`"),
        ("model, optim, **kwargs", "`**kwargs`"),
        ("model", "lacks `optim`"),
        ("model, optim, foo=1", "`foo`"),
        ("model, optim, None, True, None, 1", "more arguments"),
        ("unwrap(model), optim", "twice"),
        ("model, optim, list(make())", "would no longer be evaluated"),
    ],
)
def test_arguments_that_cannot_be_followed_are_manual(arguments: str, reason: str) -> None:
    check_manual(
        f"{IMPORT}\ndef f(model, optim, args, kwargs):\n    return FSDP.full_optim_state_dict({arguments})\n",
        "FSDP101",
        reason,
    )


@pytest.mark.parametrize(
    ("arguments", "rank0_only", "new"),
    [
        ("model, optim", "True", "model, optim"),
        ("model, optim, None", "True", "model, optim"),
        ("model, optim, model.parameters()", "True", "model, optim"),
        ("model, optim, None, False", "False", "model, optim"),
        ("model, optim, rank0_only=flag", "flag", "model, optim"),
        ("model, optim, None, flag, pg", "flag", "model, optim, group=pg"),
        ("model, optim, group=pg", "True", "model, optim, group=pg"),
        ("optim=optim, model=model, rank0_only=not flag", "not flag", "optim=optim, model=model"),
    ],
)
def test_every_form_of_the_arguments_is_carried_over(arguments: str, rank0_only: str, new: str) -> None:
    check_transformed(
        f"{IMPORT}\ndef f(model, optim, flag, pg):\n    return FSDP.full_optim_state_dict({arguments})\n",
        f"{FULL_IMPORT}\ndef f(model, optim, flag, pg):\n"
        + context(4, rank0_only)
        + f"        return FSDP.optim_state_dict({new})\n",
        "FSDP101",
    )


def load(body: str, imports: str = IMPORT) -> str:
    return f"{imports}\ndef load(model, optim, osd, pg):\n{body}"


TO_LOAD = "FSDP.optim_state_dict_to_load(model=model, optim=optim, optim_state_dict=osd)"


@pytest.mark.parametrize(
    ("method", "rank0_only"), [("shard_full_optim_state_dict", "False"), ("scatter_full_optim_state_dict", "True")]
)
def test_loading_a_full_state_dict(method: str, rank0_only: str) -> None:
    check_transformed(
        load(f"    flat = FSDP.{method}(osd, model)\n    optim.load_state_dict(flat)\n"),
        load(context(4, rank0_only) + f"        flat = {TO_LOAD}\n    optim.load_state_dict(flat)\n", FULL_IMPORT),
        "FSDP10",
    )
    check_transformed(
        load(f"    return FSDP.{method}(osd, model, None, optim)\n"),
        load(context(4, rank0_only) + f"        return {TO_LOAD}\n", FULL_IMPORT),
        "FSDP10",
    )


def test_the_fourth_position_of_scatter_was_the_group() -> None:
    check_transformed(
        load("    optim.load_state_dict(FSDP.scatter_full_optim_state_dict(osd, model, None, pg))\n"),
        load(
            context(4)
            + f"        optim_state_to_load = {TO_LOAD[:-1]}, group=pg)\n"
            + "    optim.load_state_dict(optim_state_to_load)\n",
            FULL_IMPORT,
        ),
        "FSDP104",
    )


def test_flatten_sharded_takes_the_optimizer_third() -> None:
    body = "    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
    check_transformed(
        load("    return FSDP.flatten_sharded_optim_state_dict(osd, model, optim)\n"),
        load(body + f"        return {TO_LOAD}\n", SHARDED_IMPORT),
        "FSDP105",
    )


def test_the_optimizer_is_followed_through_one_assignment() -> None:
    check_transformed(
        load("    a = FSDP.scatter_full_optim_state_dict(osd, model)\n    b = a\n    optim.load_state_dict(b)\n"),
        load(context(4) + f"        a = {TO_LOAD}\n    b = a\n    optim.load_state_dict(b)\n", FULL_IMPORT),
        "FSDP104",
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    return FSDP.scatter_full_optim_state_dict(osd, model)\n", "`optim` is a parameter of `load`"),
        (
            "    a = FSDP.scatter_full_optim_state_dict(osd, model)\n    o = make(model)\n    o.load_state_dict(a)\n",
            "`o` is created after this call",
        ),
        (
            "    a, o = FSDP.scatter_full_optim_state_dict(osd, model), optim\n    o.load_state_dict(a)\n",
            "`o` is created by the statement of this call",
        ),
        (
            "    o = None\n    a = FSDP.scatter_full_optim_state_dict(osd, model)\n"
            "    o = make(model)\n    o.load_state_dict(a)\n",
            "`o` is still None",
        ),
        (
            "    a = FSDP.scatter_full_optim_state_dict(osd, model)\n"
            "    optim = make(model)\n    optim.load_state_dict(a)\n",
            "is reassigned",
        ),
        (
            "    a = FSDP.scatter_full_optim_state_dict(osd, model)\n"
            "    optim.load_state_dict(a)\n    pg.load_state_dict(a)\n",
            "several optimizers",
        ),
        (
            "    a = FSDP.scatter_full_optim_state_dict(osd, model)\n    model.load_state_dict(a)\n",
            "into the model",
        ),
        (
            "    a = FSDP.scatter_full_optim_state_dict(osd, model)\n"
            "    a = FSDP.rekey_optim_state_dict(a, kind, model)\n    optim.load_state_dict(a)\n",
            "goes through `rekey_optim_state_dict`",
        ),
    ],
)
def test_an_optimizer_that_is_not_certain_is_manual(body: str, reason: str) -> None:
    check_manual(load(body), "FSDP104", reason)


def test_a_helper_without_the_optimizer_says_that_nothing_is_loaded() -> None:
    check_manual(
        f"{IMPORT}\ndef load_optimizer(model, osd):\n    sharded = FSDP.scatter_full_optim_state_dict(osd, model)\n",
        "FSDP104",
        "`load_optimizer` has no visible optimizer and does not use the result",
    )


def test_the_optimizer_paired_with_the_model_elsewhere_in_the_function_is_taken() -> None:
    check_transformed(
        f"""{IMPORT}
def both(model, opt, osd):
    saved = FSDP.optim_state_dict(model, opt)
    return saved, FSDP.shard_full_optim_state_dict(osd, model)
""",
        f"""{FULL_IMPORT}
def both(model, opt, osd):
    saved = FSDP.optim_state_dict(model, opt)
{context(4, "False")}        return saved, {TO_LOAD.replace("optim=optim", "optim=opt")}
""",
        "FSDP103",
    )


def test_sharded_is_safe_only_where_the_model_is_built_without_a_mesh() -> None:
    text = (
        "{imports}\ndef f(module, optim, mesh):\n    {build}\n    return FSDP.sharded_optim_state_dict(model, optim)\n"
    )
    for build, grade in (
        ("model = FSDP(module)", Applicability.SAFE),
        ("model = FSDP(module, device_mesh=mesh)", Applicability.UNSAFE),
        ("model = FSDP(module, **mesh)", Applicability.UNSAFE),
        ("model = FSDP(module); wrap = partial(FSDP, device_mesh=mesh)", Applicability.SAFE),
        ("small = FSDP(module); model = partial(FSDP, device_mesh=mesh)(module)", Applicability.UNSAFE),
        ("small = FSDP(module); model = small; kwargs = {'device_mesh': mesh}", Applicability.UNSAFE),
        ("small = FSDP(module); model, _ = builders.build(module)", Applicability.UNSAFE),
        ("self.small = FSDP(module); model = make(module)", Applicability.SAFE),
    ):
        imports = f"import builders\n{IMPORT}\ndef make(module):\n    return FSDP(module)\n"
        (finding,) = lint(text.format(imports=imports, build=build), "FSDP102")
        assert finding.applicability is grade, build
    (finding,) = lint(text.format(imports=IMPORT, build="model = module"), "FSDP102")
    assert finding.applicability is Applicability.UNSAFE
    (finding,) = lint(text.format(imports=IMPORT, build="model = module"), "FSDP102", ">=2.1,<2.2")
    assert finding.applicability is Applicability.SAFE


def test_the_third_position_of_sharded_is_the_group() -> None:
    before = "{imports}\ndef f(module, optim, pg):\n    model = FSDP(module)\n{body}"
    for arguments, new in (("pg", ", group=pg"), ("module.parameters()", ""), ("None, pg", ", group=pg")):
        check_transformed(
            before.format(
                imports=IMPORT, body=f"    return FSDP.sharded_optim_state_dict(model, optim, {arguments})\n"
            ),
            before.format(
                imports=SHARDED_IMPORT,
                body="    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
                f"        return FSDP.optim_state_dict(model, optim{new})\n",
            ),
            "FSDP102",
        )


OUTER = "    with FSDP.state_dict_type(model, StateDictType.{}):\n"


def test_an_enclosing_sharded_context_does_not_leak_in() -> None:
    text = "{imports}\ndef f(model, optim):\n{body}"
    check_transformed(
        text.format(
            imports=SHARDED_IMPORT,
            body=OUTER.format("SHARDED_STATE_DICT") + "        osd = FSDP.full_optim_state_dict(model, optim)\n",
        ),
        text.format(
            imports=FULL_IMPORT,
            body=OUTER.format("SHARDED_STATE_DICT") + context(8) + f"            osd = {NEW}\n",
        ),
        "FSDP101",
    )


@pytest.mark.parametrize(
    ("config", "is_exact"),
    [
        ("None, FullOptimStateDictConfig(rank0_only=True)", True),
        ("None, FullOptimStateDictConfig(True, True)", True),
        ("optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)", True),
        ("None, FullOptimStateDictConfig()", False),
        ("None, FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=True)", False),
        ("None", False),
        ("None, config", False),
    ],
)
def test_only_an_enclosing_context_with_the_exact_config_is_used(config: str, is_exact: bool) -> None:
    text = "{imports}\ndef f(model, optim, config):\n{outer}{body}"
    outer = f"    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, {config}):\n"
    check_transformed(
        text.format(imports=FULL_IMPORT, outer=outer, body="        osd = FSDP.full_optim_state_dict(model, optim)\n"),
        text.format(
            imports=FULL_IMPORT,
            outer=outer,
            body=f"        osd = {NEW}\n" if is_exact else context(8) + f"            osd = {NEW}\n",
        ),
        "FSDP101",
    )


def test_a_context_for_another_model_is_not_used() -> None:
    text = "{imports}\ndef f(model, other, optim):\n{body}"
    outer = (
        "    with FSDP.state_dict_type(other, StateDictType.FULL_STATE_DICT, None, "
        "FullOptimStateDictConfig(rank0_only=True)):\n"
    )
    check_transformed(
        text.format(imports=FULL_IMPORT, body=outer + "        osd = FSDP.full_optim_state_dict(model, optim)\n"),
        text.format(imports=FULL_IMPORT, body=outer + context(8) + f"            osd = {NEW}\n"),
        "FSDP101",
    )


@pytest.mark.parametrize(
    "text",
    [
        "from fairscale.nn import FullyShardedDataParallel as FSDP\nFSDP.full_optim_state_dict(m, o)\n",
        "from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP\n"
        "FSDP.full_optim_state_dict(m, o)\n",
        "from .fsdp import FSDP\nFSDP.full_optim_state_dict(m, o)\n",
        "class FSDP:\n    @staticmethod\n    def full_optim_state_dict(m, o): ...\nFSDP.full_optim_state_dict(m, o)\n",
        "from torch.distributed.fsdp import fully_shard as FSDP\nFSDP.full_optim_state_dict(m, o)\n",
        f"{IMPORT}class T:\n    def full_optim_state_dict(self, m): ...\n"
        "    def g(self): self.full_optim_state_dict(self)\n",
        f"{IMPORT}full_optim_state_dict = load()\nf(full_optim_state_dict)\n",
        "# FSDP.full_optim_state_dict(m, o)\n'FSDP.full_optim_state_dict'\n",
    ],
)
def test_what_only_looks_alike_is_left_alone(text: str) -> None:
    check_noop(text, "FSDP10")


@pytest.mark.parametrize(
    "text",
    [
        f"{IMPORT}save = FSDP.full_optim_state_dict\n",
        f"{IMPORT}save = getattr(FSDP, 'full_optim_state_dict')\n",
        f"{IMPORT}save = vars(FSDP)['full_optim_state_dict']\n",
        f"{IMPORT}save = FSDP.__dict__['full_optim_state_dict']\n",
        f"{IMPORT}import operator\nsave = operator.methodcaller('full_optim_state_dict', model, optim)(FSDP)\n",
        f"{IMPORT}from operator import attrgetter\nsave = attrgetter('full_optim_state_dict')(FSDP)\n",
        f"{IMPORT}import functools\nsave = functools.partial(FSDP.full_optim_state_dict, rank0_only=False)\n",
        "from unittest import mock\n"
        "mock.patch('torch.distributed.fsdp.FullyShardedDataParallel.full_optim_state_dict')\n",
        f"{IMPORT}from unittest import mock\nmock.patch.object(FSDP, 'full_optim_state_dict')\n",
    ],
)
def test_a_reference_without_a_call_is_manual(text: str) -> None:
    check_manual(text, "FSDP101", "only a direct call can be rewritten")


SPELLINGS = [
    ("from torch.distributed.fsdp import FullyShardedDataParallel", "FullyShardedDataParallel"),
    ("from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel as F", "F"),
    ("import torch.distributed.fsdp", "torch.distributed.fsdp.FullyShardedDataParallel"),
    ("import torch.distributed.fsdp as fsdp", "fsdp.FullyShardedDataParallel"),
    ("from torch.distributed import fsdp", "fsdp.FullyShardedDataParallel"),
    ("import torch.distributed as dist", "dist.fsdp.FullyShardedDataParallel"),
    ("from torch.distributed import fsdp\nFSDP = fsdp.FullyShardedDataParallel", "FSDP"),
    (
        "try:\n    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "except ImportError:\n    FSDP = None",
        "FSDP",
    ),
    ("FSDP = None\nif available():\n    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP", "FSDP"),
    (IMPORT + "class Mine(FSDP):\n    pass", "Mine"),
]


@pytest.mark.parametrize(("imports", "receiver"), SPELLINGS)
def test_fsdp_is_found_under_every_spelling(imports: str, receiver: str) -> None:
    text = f"{imports}\n\ndef f(model, optim):\n    return {receiver}.full_optim_state_dict(model, optim)\n"
    (finding,) = lint(text, "FSDP101")
    assert finding.applicability is Applicability.SAFE, finding.reason


@pytest.mark.parametrize(
    "receiver", ["model", "type(model)", "model.__class__", "self.model", "type(self.model)", "self.model.__class__"]
)
def test_fsdp_is_found_through_an_instance(receiver: str) -> None:
    model = "self.model" if "self" in receiver else "model"
    text = f"{IMPORT}\ndef f(self, model, optim):\n    return {receiver}.full_optim_state_dict({model}, optim)\n"
    (finding,) = lint(text, "FSDP101")
    assert finding.applicability is Applicability.SAFE, finding.reason


def test_a_name_that_may_be_another_class_is_manual() -> None:
    check_manual(
        "if flag:\n    from fairscale.nn import FullyShardedDataParallel as FSDP\nelse:\n"
        "    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
        "def f(m, o):\n    return FSDP.full_optim_state_dict(m, o)\n",
        "FSDP101",
        "may also be fairscale",
    )


@pytest.mark.parametrize("receiver", ["wrapped", "self.cls", "super()", "make()", "ddp.module"])
def test_a_receiver_that_may_be_fsdp_is_manual(receiver: str) -> None:
    check_manual(
        f"{IMPORT}\ndef f(self, wrapped, ddp, m, o):\n    return {receiver}.full_optim_state_dict(m, o)\n",
        "FSDP101",
        "is not visible here",
    )


def test_a_taken_name_is_imported_under_another_one() -> None:
    check_transformed(
        f"{IMPORT}\nclass StateDictType:\n    pass\n\ndef f(module, optim):\n    model = FSDP(module)\n"
        "    return FSDP.sharded_optim_state_dict(model, optim)\n",
        """\
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
    StateDictType as FSDPStateDictType,
)

class StateDictType:
    pass

def f(module, optim):
    model = FSDP(module)
    with FSDP.state_dict_type(model, FSDPStateDictType.SHARDED_STATE_DICT):
        return FSDP.optim_state_dict(model, optim)
""",
        "FSDP102",
    )


def test_one_line_bodies_and_semicolons_are_split() -> None:
    check_transformed(
        f"{IMPORT}\ndef f(model, optim, flag):\n"
        "    if flag: a = 1; osd = FSDP.full_optim_state_dict(model, optim); b = 2  # note\n"
        "    a = 1; osd = FSDP.full_optim_state_dict(model, optim)\n",
        f"{FULL_IMPORT}\ndef f(model, optim, flag):\n"
        "    if flag:\n        a = 1\n"
        + context(8)
        + f"            osd = {NEW}\n        b = 2  # note\n    a = 1\n"
        + context(4)
        + f"        osd = {NEW}\n",
        "FSDP101",
    )


def test_neighbours_with_one_context_share_it() -> None:
    check_transformed(
        f"{IMPORT}\ndef f(model, a, b):\n"
        "    x = FSDP.full_optim_state_dict(model, a)\n"
        "    # the second one\n\n    y = FSDP.full_optim_state_dict(model, b)\n",
        f"{FULL_IMPORT}\ndef f(model, a, b):\n"
        + context(4)
        + "        x = FSDP.optim_state_dict(model, a)\n        # the second one\n\n"
        "        y = FSDP.optim_state_dict(model, b)\n",
        "FSDP101",
    )


@pytest.mark.parametrize(
    ("handler", "grade"),
    [
        ("except Exception:\n        pass", Applicability.UNSAFE),
        ("except RuntimeError as e:\n        log(e)", Applicability.UNSAFE),
        ("except:\n        pass", Applicability.UNSAFE),
        ("except (ValueError, RuntimeError):\n        pass", Applicability.UNSAFE),
        ("except Exception:\n        raise", Applicability.SAFE),
        ("except Exception:\n        log()\n        sys.exit(1)", Applicability.SAFE),
        ("except KeyError:\n        pass", Applicability.UNSAFE),
        ("except OSError:\n        pass", Applicability.SAFE),
        ("finally:\n        close()", Applicability.SAFE),
    ],
)
def test_an_error_that_would_be_swallowed_makes_the_fix_unsafe(handler: str, grade: Applicability) -> None:
    text = (
        f"import sys\n{IMPORT}\ndef f(m, o):\n    try:\n        x = FSDP.full_optim_state_dict(m, o)\n    {handler}\n"
    )
    (finding,) = lint(text, "FSDP101")
    assert finding.applicability is grade


def test_below_the_floor_there_is_no_fix() -> None:
    text = f"{IMPORT}\ndef f(m, o):\n    return FSDP.full_optim_state_dict(m, o)\n"
    check_manual(text, "FSDP101", "the replacement needs torch>=2.1", torch=">=1.13")
    (finding,) = lint(text, "FSDP101", ">=1.12,<2.0")
    assert finding.severity is Severity.HINT
    (finding,) = lint(text, "FSDP101")
    assert finding.severity is Severity.DEPRECATED


def test_an_argument_that_could_look_at_the_type_is_evaluated_first() -> None:
    check_transformed(
        load("    return FSDP.shard_full_optim_state_dict(read(osd), model, None, optim)\n"),
        load(
            "    full_osd = read(osd)\n"
            + context(4, "False")
            + f"        return {TO_LOAD.replace('=osd', '=full_osd')}\n",
            FULL_IMPORT,
        ),
        "FSDP103",
    )
    check_transformed(
        load("    return model.state_dict(), FSDP.shard_full_optim_state_dict(read(osd), model, None, optim)\n"),
        load(
            "    value = model.state_dict()\n    full_osd = read(osd)\n"
            + context(4, "False")
            + f"        optim_state_to_load = {TO_LOAD.replace('=osd', '=full_osd')}\n"
            + "    return value, optim_state_to_load\n",
            FULL_IMPORT,
        ),
        "FSDP103",
    )


def test_an_instance_whose_class_is_not_imported_gets_a_local_import() -> None:
    check_transformed(
        """\
        class Trainer:
            def state(self):
                return self.model.__class__.full_optim_state_dict(self.model, self.optim)
        """,
        """\
        class Trainer:
            def state(self):
                from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType
                with self.model.__class__.state_dict_type(
                    self.model,
                    StateDictType.FULL_STATE_DICT,
                    optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
                ):
                    return self.model.__class__.optim_state_dict(self.model, self.optim)
        """,
        "FSDP101",
    )


def test_the_type_is_set_through_the_class_where_the_call_is_on_an_instance() -> None:
    check_transformed(
        f"{IMPORT}\ndef f(model: FSDP, optim):\n    return model.full_optim_state_dict(model, optim)\n",
        f"{FULL_IMPORT}\ndef f(model: FSDP, optim):\n"
        + context(4)
        + "        return model.optim_state_dict(model, optim)\n",
        "FSDP101",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("osd if p else None, model", "osd if p else None"),
        ("osd['optim'], model", "osd['optim']"),
        ("p.osd[p.rank], model", "p.osd[p.rank]"),
        ("(osd := p), model", "(osd := p)"),
        ("osd := p, model", "(osd := p)"),
    ],
)
def test_what_only_reads_stays_and_can_become_a_keyword(before: str, after: str) -> None:
    text = "import torch\n{imports}\ndef f(model, optim, osd, p):\n{body}"
    check_transformed(
        text.format(
            imports=IMPORT,
            body=f"    flat = FSDP.scatter_full_optim_state_dict({before})\n    optim.load_state_dict(flat)\n",
        ),
        text.format(
            imports=FULL_IMPORT,
            body=context(4)
            + f"        flat = {TO_LOAD.replace('=osd', f'={after}')}\n    optim.load_state_dict(flat)\n",
        ),
        "FSDP104",
    )


@pytest.mark.parametrize(
    ("before", "first"),
    [
        ("torch.load(p)", "torch.load(p)"),
        ("(osd := torch.load(p))", "(osd := torch.load(p))"),
        ("{k: v for k, v in osd}", "{k: v for k, v in osd}"),
        ("osd['a']['b']", "osd['a']['b']"),
        ("osd if p.rank() else None", "osd if p.rank() else None"),
    ],
)
def test_what_runs_or_may_raise_is_evaluated_in_front_of_the_block(before: str, first: str) -> None:
    text = "import torch\n{imports}\ndef f(model, optim, osd, p):\n{body}"
    check_transformed(
        text.format(
            imports=IMPORT,
            body=f"    optim.load_state_dict(FSDP.scatter_full_optim_state_dict({before}, model, optim=optim))\n",
        ),
        text.format(
            imports=FULL_IMPORT,
            body=f"    full_osd = {first}\n"
            + context(4)
            + f"        optim_state_to_load = {TO_LOAD.replace('=osd', '=full_osd')}\n"
            + "    optim.load_state_dict(optim_state_to_load)\n",
        ),
        "FSDP104",
    )


@pytest.mark.parametrize("group", ["dist.group.WORLD", "trainer.dp_group", "GroupMember.WORLD"])
def test_a_group_in_the_place_of_the_optimizer_is_known_by_what_makes_it(group: str) -> None:
    before = (
        f"{IMPORT}\ndef load(model, optim, osd):\n"
        f"    a = FSDP.scatter_full_optim_state_dict(osd, model, None, {group})\n    optim.load_state_dict(a)\n"
    )
    new = f"FSDP.optim_state_dict_to_load(model=model, optim=optim, optim_state_dict=osd, group={group})"
    after = (
        f"{FULL_IMPORT}\ndef load(model, optim, osd):\n{context(4)}        a = {new}\n    optim.load_state_dict(a)\n"
    )
    check_transformed(before, after, "FSDP104")


def test_what_stands_in_the_place_of_the_optimizer_is_the_one_that_gets_the_result() -> None:
    call = "FSDP.scatter_full_optim_state_dict(osd, model, None, {})"
    text = f"{IMPORT}\ndef load(model, optim, osd, world):\n    optim.load_state_dict({call})\n"
    check_manual(text.format("world"), "FSDP104", "the result is loaded into `optim`, not into `world`")
    (wrapped,) = lint(text.format("optim.optimizer"), "FSDP104")
    assert wrapped.applicability is Applicability.SAFE


@pytest.mark.parametrize(
    ("head", "paired", "other"),
    [
        ("def load(model, g_opt, d_opt, osd):", "g_opt", "`d_opt`"),
        ("def load(model, optimizers, osd):", 'optimizers["g"]', "another one of `optimizers`"),
        (
            "class T:\n  def f(self):\n    self.d_optim = 1\n  def load(self, model, osd):",
            "self.optim",
            "`self.d_optim`",
        ),
    ],
)
def test_an_optimizer_that_only_the_model_points_to_has_to_be_the_only_one(head: str, paired: str, other: str) -> None:
    text = (
        f"{IMPORT}\n{head}\n      a = FSDP.optim_state_dict(model, {paired})\n"
        "      b = FSDP.shard_full_optim_state_dict(osd, model)\n      return a, b\n"
    )
    check_manual(text, "FSDP103", f"`{paired.replace(chr(34), chr(39))}` may be the optimizer, and so may {other}")
    (alone,) = lint(text.replace("d_opt, ", "").replace("self.d_opt", "self.b"), "FSDP103")
    assert (alone.fix is None) == ("[" in paired)


def test_an_operator_before_an_argument_with_an_effect_reads_nothing() -> None:
    text = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\ntry:\n"
        "    FSDP.full_optim_state_dict(model, optims[0]) or None\nexcept Exception:\n    osd = model\n"
    )
    assert [finding.code for finding in lint(text, "FSDP101")] == ["FSDP101"]


@pytest.mark.parametrize("method", ["enter_context", "push", "callback"])
def test_a_type_on_an_exit_stack_is_not_relied_on(method: str) -> None:
    text = f"""import contextlib
{FULL_IMPORT}
def save(model, optim):
    config = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with contextlib.ExitStack() as stack:
        stack.{method}(FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, None, config))
        return FSDP.full_optim_state_dict(model, optim)
"""
    (found,) = lint(text, "FSDP101")
    assert found.fix is not None
    assert [type(edit) for edit in found.fix.edits] == [Wrap]
