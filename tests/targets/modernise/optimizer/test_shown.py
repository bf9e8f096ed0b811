"""FSDP101-105: what the project shows of optimizers, parts of models, configs and meshes decides the grade."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.findings import Applicability
from fsdp_migrate.planning.rewriting import rewrite_source
from tests.rules.checks import lint
from tests.workspace.modules.trees import findings_of, grow

FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
NAMES = "from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType\n" + FSDP
LOAD = "load_state_dict(FSDP.scatter_full_optim_state_dict(osd, model))\n"
SAFE, UNSAFE, MANUAL = Applicability.SAFE, Applicability.UNSAFE, Applicability.MANUAL

WRAPPERS = """\
import torch

class ScheduledOptim:
    def __init__(self, o):
        self.o = o
    def load_state_dict(self, state):
        self.o.load_state_dict(state)

class Warm(ScheduledOptim):
    pass

class Delegating:
    @property
    def param_groups(self):
        return self.o.param_groups

class Mine(torch.optim.Adam):
    pass

def annotated(o) -> ScheduledOptim:
    return wrap(o)

def returned(o):
    made = ScheduledOptim(o)
    return made

def own(model):
    return Mine(model.parameters())
"""


@pytest.mark.parametrize(
    ("body", "grade"),
    [
        (f"def f(model, o, osd):\n    w = ScheduledOptim(o)\n    w.{LOAD}", MANUAL),
        (f"def f(model, o, osd):\n    w = wrappers.Warm(o)\n    w.{LOAD}", MANUAL),
        (f"def f(model, w: ScheduledOptim, osd):\n    w.{LOAD}", MANUAL),
        (f"def f(model, w: 'ScheduledOptim | None', osd):\n    w.{LOAD}", MANUAL),
        (f"def f(model, w: Optional[ScheduledOptim], osd):\n    w.{LOAD}", MANUAL),
        (f"def f(model, o, osd):\n    w = wrappers.annotated(o)\n    w.{LOAD}", MANUAL),
        (f"def f(model, o, osd):\n    w = wrappers.returned(o)\n    w.{LOAD}", MANUAL),
        (f"def f(model, w, osd):\n    w.{LOAD}\ndef main(m, o, s):\n    f(m, ScheduledOptim(o), s)\n", MANUAL),
        (f"def f(model, o, warm, osd):\n    w = ScheduledOptim(o) if warm else o\n    w.{LOAD}", MANUAL),
        (f"class S:\n    w: ScheduledOptim\ndef f(model, s: S, osd):\n    s.w.{LOAD}", MANUAL),
        (f"def f(model, w: wrappers.Delegating, osd):\n    w.{LOAD}", SAFE),
        (f"def f(model, w: Mine, osd):\n    w.{LOAD}", SAFE),
        (f"def f(model, osd):\n    w = wrappers.own(model)\n    w.{LOAD}", SAFE),
        (f"def f(model, w: torch.optim.Optimizer, osd):\n    w.{LOAD}", SAFE),
        (f"def f(model, w: torch.optim.lr_scheduler.StepLR, osd):\n    w.{LOAD}", MANUAL),
        (f"def f(model, w, osd):\n    w.{LOAD}\ndef main(m, o, s):\n    f(m, o, s)\n", SAFE),
    ],
)
def test_what_a_state_is_loaded_into_is_judged_by_its_class_in_the_project(
    body: str, grade: Applicability, tmp_path: Path
) -> None:
    head = (
        f"import torch\nimport wrappers\nfrom typing import Optional\nfrom wrappers import Mine, ScheduledOptim\n{FSDP}"
    )
    grow(tmp_path, {"wrappers.py": WRAPPERS, "resume.py": head + body})
    (found,) = [one for one in findings_of(tmp_path, "resume.py") if one.code == "FSDP104"]
    assert found.applicability is grade
    assert grade is SAFE or "which is not an optimizer" in (found.reason or "")


@pytest.mark.parametrize(
    ("assignment", "grade"),
    [
        ("self.wrap(o)", MANUAL),
        ("ScheduledOptim(o)", MANUAL),
        ("other", MANUAL),
        ("o", SAFE),
        ("Mine(model.parameters())", SAFE),
    ],
)
def test_so_is_an_attribute_by_all_that_sets_it(assignment: str, grade: Applicability, tmp_path: Path) -> None:
    base = f"""\
from wrappers import Mine, ScheduledOptim

class Base:
    def __init__(self, model, o, other):
        self.model = model
        self.optimizer = {assignment}
    def wrap(self, o):
        return ScheduledOptim(o)
"""
    trainer = f"""\
from base import Base
{FSDP}
class Trainer(Base):
    def load(self, osd):
        self.optimizer.load_state_dict(FSDP.scatter_full_optim_state_dict(osd, self.model))
"""
    main = "from base import Base\nfrom wrappers import ScheduledOptim\nBase(m, o, other=ScheduledOptim(o))\n"
    grow(tmp_path, {"wrappers.py": WRAPPERS, "base.py": base, "train.py": trainer, "main.py": main})
    (found,) = [one for one in findings_of(tmp_path, "train.py") if one.code == "FSDP104"]
    assert found.applicability is grade


def test_callers_in_other_files_show_what_they_pass(tmp_path: Path) -> None:
    resume = f"{FSDP}def resume(model, opt, osd):\n    opt.{LOAD}"
    main = "from resume import resume\nfrom wrappers import ScheduledOptim\nresume(m, ScheduledOptim(o), s)\n"
    grow(tmp_path, {"wrappers.py": WRAPPERS, "resume.py": resume, "main.py": main})
    (found,) = [one for one in findings_of(tmp_path, "resume.py") if one.code == "FSDP104"]
    assert found.applicability is MANUAL
    assert "is an instance of `ScheduledOptim`, which is not an optimizer" in (found.reason or "")


SET = "FSDP.set_state_dict_type({}, StateDictType.SHARDED_STATE_DICT)"


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        (f"for b in FSDP.fsdp_modules(model)[1:]:\n    {SET.format('b')}", "b"),
        (f"for i, b in enumerate(model.blocks):\n    {SET.format('b')}", "b"),
        (f"[{SET.format('m')} for m in model.modules()]", "m"),
        (SET.format("model.get_submodule('x')"), "model.get_submodule('x')"),
        (f"part = model.get_submodule('x')\n{SET.format('part')}", "part"),
        (f"part = model.blocks[0].mlp\n{SET.format('part')}", "part"),
        (f"model.encoder = part\n{SET.format('part')}", "part"),
        (f"model.add_module('e', part)\n{SET.format('part')}", "part"),
        (f"setattr(model, 'e', part)\n{SET.format('part')}", "part"),
        (f"{SET.format('net.encoder')}\nmodel = FSDP(net)", "net.encoder"),
        (f"net.encoder = part\nmodel = FSDP(net)\n{SET.format('part')}", "part"),
        (f"model = FSDP(Net(part))\n{SET.format('part')}", "part"),
        ("FSDP.set_state_dict_type(model.a, StateDictType.FULL_STATE_DICT, None, config)", "model.a"),
        (f"def shard(b):\n    {SET.format('b')}\nfor block in model.blocks:\n    shard(block)", "b"),
        (f"def shard(m):\n    {SET.format('m')}\nshard(model)", None),
        (f"for m in (model, net):\n    {SET.format('m')}", None),
        (SET.format("model"), None),
        (f"m = model\n{SET.format('m')}", None),
        (SET.format("part"), None),
        (f"part = FSDP(nets.disc)\nmodel = FSDP(nets.gen)\n{SET.format('part')}", None),
        (f"wrapped = FSDP(model)\n{SET.format('wrapped')}", None),
        ("with FSDP.state_dict_type(model.a, StateDictType.SHARDED_STATE_DICT):\n    save(model.a.state_dict())", None),
    ],
)
def test_a_type_on_a_part_of_the_model_is_found_however_it_is_reached(lines: str, part: str | None) -> None:
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    call = "    return FSDP.full_optim_state_dict(model, optim)\n"
    for text in (
        f"{NAMES}def f(model, optim, net, part, nets, config):\n{body}{call}",
        f"{NAMES}def f(model, optim):\n{call}def g(model, net, part, nets, config):\n{body}",
    ):
        (found,) = lint(text, "FSDP101")
        assert found.applicability is (SAFE if part is None else MANUAL)
        assert part is None or f"`{part}` is a part of the model and has its own state-dict type" in (
            found.reason or ""
        )


LITERAL = "FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)"
CHANGE = "FSDP.get_state_dict_type(model).optim_state_dict_config.rank0_only = False"


@pytest.mark.parametrize(
    ("head", "config", "inside", "exact"),
    [
        ("", LITERAL, "", True),
        ("", LITERAL, "weights = model.state_dict()", True),
        ("", LITERAL, CHANGE, False),
        ("", LITERAL, "tweak(model)", False),
        ("", "config", "", False),
        (f"config = {LITERAL}", "config", "", False),
        (f"config = {LITERAL}", "config", "config.rank0_only = False", False),
    ],
)
def test_a_type_around_a_call_counts_with_a_config_that_nothing_can_have_changed(
    head: str, config: str, inside: str, exact: bool
) -> None:
    body = f"""\
    {head or "pass"}
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, None, {config}):
        {inside or "pass"}
        return FSDP.full_optim_state_dict(model, optim)
"""
    after = rewrite_source(f"{NAMES}def f(model, optim, config):\n{body}").source
    assert after.count("    with FSDP.state_dict_type(") == (1 if exact else 2)


@pytest.mark.parametrize(
    ("build", "grade"),
    [
        ("def f(net, optim):\n    model = FSDP(net)", SAFE),
        ("small = FSDP(net)\ndef f(model, optim):\n    pass", UNSAFE),
    ],
)
def test_a_mesh_in_another_file_counts_unless_the_model_is_built_here(
    build: str, grade: Applicability, tmp_path: Path
) -> None:
    save = f"{FSDP}{build}\n    return FSDP.sharded_optim_state_dict(model, optim)\n"
    grow(tmp_path, {"save.py": save, "build.py": "OPTIONS = dict(mesh=None)\n"})
    assert [one.applicability for one in findings_of(tmp_path, "save.py") if one.code == "FSDP102"] == [SAFE]
    grow(tmp_path, {"build.py": f"{FSDP}def build(net, mesh):\n    return FSDP(net, device_mesh=mesh)\n"})
    assert [one.applicability for one in findings_of(tmp_path, "save.py") if one.code == "FSDP102"] == [grade]


@pytest.mark.parametrize(
    ("arguments", "new"),
    [
        ("osd, model, None, None, group", ", group=group"),
        ("osd, model, None, None", ""),
        ("osd, model, model.parameters(), None, None", ", group=None"),
    ],
)
def test_all_positions_of_scatter_may_be_given(arguments: str, new: str) -> None:
    head = f"{NAMES}def f(model, optim, osd, group):\n    flat = "
    after = rewrite_source(
        f"{head}FSDP.scatter_full_optim_state_dict({arguments})\n    optim.load_state_dict(flat)\n"
    ).source
    assert f"FSDP.optim_state_dict_to_load(model=model, optim=optim, optim_state_dict=osd{new})" in after
