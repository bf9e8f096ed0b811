from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.findings import Applicability, Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint
from tests.workspace.modules.trees import findings_of, grow

CODE = "FSDP703"
DCP = "import torch\nimport torch.distributed.checkpoint as dcp\n"
WRITER = "dcp.FileSystemWriter(path)"
READER = "dcp.FileSystemReader(path)"
MODEL = '{"model": model.state_dict()}'


def save(state: str, writer: str = WRITER) -> str:
    return f"{DCP}dcp.save_state_dict({state}, {writer})\n"


def grade(text: str, torch: str = ">=2.6") -> Applicability:
    (found,) = lint(text, CODE, torch)
    return found.applicability


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"save_state_dict({MODEL}, {WRITER})", f"save({MODEL}, storage_writer={WRITER})"),
        (f"load_state_dict({MODEL}, {READER})", f"load({MODEL}, storage_reader={READER})"),
        (
            f"save_state_dict(storage_writer={WRITER}, state_dict={MODEL})",
            f"save(storage_writer={WRITER}, state_dict={MODEL})",
        ),
        (
            f"save_state_dict({MODEL}, {WRITER}, group, 0, False, dcp.DefaultSavePlanner())",
            f"save({MODEL}, storage_writer={WRITER}, process_group=group, planner=dcp.DefaultSavePlanner())",
        ),
        (
            f"load_state_dict({MODEL}, {READER}, None, coordinator_rank=0, no_dist=False, planner=None)",
            f"load({MODEL}, storage_reader={READER}, planner=None)",
        ),
        (
            f"load_state_dict(\n    {MODEL},  # parts\n    {READER},  # from here\n)",
            f"load(\n    {MODEL},  # parts\n    storage_reader={READER},  # from here\n)",
        ),
    ],
)
def test_arguments_go_where_the_new_function_has_them(before: str, after: str) -> None:
    check_transformed(f"{DCP}x = dcp.{before}\n", f"{DCP}x = dcp.{after}\n", CODE, torch=">=2.4")


@pytest.mark.parametrize(
    ("head", "call"),
    [
        ("import torch.distributed.checkpoint as dist_cp\n", "dist_cp"),
        ("from torch.distributed import checkpoint\n", "checkpoint"),
        ("import torch.distributed.checkpoint\n", "torch.distributed.checkpoint"),
        ("import torch.distributed as dist\nimport torch.distributed.checkpoint\n", "dist.checkpoint"),
        ("import torch.distributed.checkpoint as dcp\n", "dcp.state_dict_saver"),
        ("from torch.distributed.checkpoint import state_dict_saver\n", "state_dict_saver"),
        ("import torch.distributed._shard.checkpoint as dist_cp\n", "dist_cp"),
        ("try:\n    import torch.distributed.checkpoint as d\nexcept ImportError:\n    d = None\n", "d"),
    ],
)
def test_a_chain_keeps_its_beginning(head: str, call: str) -> None:
    text = head + "from torch.distributed.checkpoint import FileSystemWriter\n{}({{}}, {}FileSystemWriter(path))\n"
    before, after = text.format(f"{call}.save_state_dict", ""), text.format(f"{call}.save", "storage_writer=")
    check_transformed(before, after, CODE, torch=">=2.2")


CHECKPOINT = "from torch.distributed.checkpoint import "
NEW = "from torch.distributed import checkpoint as dcp\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"{CHECKPOINT}save_state_dict\n", NEW),
        (f"{CHECKPOINT}FileSystemWriter, save_state_dict\n", f"{CHECKPOINT}FileSystemWriter\n{NEW}"),
        (f"{CHECKPOINT}state_dict_saver\n{CHECKPOINT}save_state_dict\n", f"{CHECKPOINT}state_dict_saver\n{NEW}"),
        (f"{CHECKPOINT.replace('checkpoint', 'checkpoint.state_dict_saver')}save_state_dict\n", NEW),
        (f"{NEW}{CHECKPOINT}save_state_dict\n", NEW),
        (
            f"if True:\n    {CHECKPOINT}save_state_dict\n",
            f"if True:\n    {CHECKPOINT}save_state_dict\n    {NEW}",
        ),
    ],
)
def test_a_function_by_name_is_called_through_its_module(before: str, after: str) -> None:
    text = "\ndef keep(state, path):\n    {}({{}}, {}FileSystemWriter(path))\n"
    check_transformed(
        before + text.format("save_state_dict", ""),
        after + text.format("dcp.save", "storage_writer="),
        CODE,
        unsafe="FileSystemWriter" not in before,
        torch=">=2.2",
    )


def test_a_name_goes_from_an_import_that_moves_too() -> None:
    head = "from torch.distributed{}checkpoint import FileSystemWriter{}\n"
    text = "def save(model, path):\n    {}({{'model': model.state_dict()}}, {}FileSystemWriter(path))\n"
    before = head.format("._shard.", ", save_state_dict") + text.format("save_state_dict", "")
    after = head.format(".", "\nfrom torch.distributed import checkpoint as dcp")
    check_transformed(before, after + text.format("dcp.save", "storage_writer="), "FSDP", torch=">=2.4")


def test_the_module_gets_a_free_name() -> None:
    text = f"{CHECKPOINT}save_state_dict as store\n\ndef f(dcp):\n    return {{}}({{{{}}}}, {{}}dcp)\n"
    new = "from torch.distributed import checkpoint as dcp_2\n\ndef f(dcp):\n    return {}({{}}, {}dcp)\n"
    check_transformed(
        text.format("store", ""), new.format("dcp_2.save", "storage_writer="), CODE, unsafe=True, torch=">=2.2"
    )


@pytest.mark.parametrize(
    "state",
    [
        "{}",
        "model.state_dict()",
        "FSDP.optim_state_dict(model, optim)",
        '{"optim": FSDP.optim_state_dict(model, optim), **model.state_dict()}',
        '{"step": 3, "lr": x * 2, "name": f"{x}", "list": [sched], "nested": {"sched": sched}}',
        '{"n": int(x), "loss": loss.item(), "w": w.detach(), "t": torch.zeros(3), "ok": x > 3}',
        '{"rng": torch.get_rng_state(), "all": torch.cuda.get_rng_state_all() if x else None}',
        'dict(model.state_dict(), step=1) | {"a": None}',
        "{k: v for k, v in model.state_dict().items() if k}",
        "{k: v.detach() for k, v in model.named_parameters()}",
    ],
)
def test_visibly_plain_values_are_safe(state: str) -> None:
    assert grade(save(state), ">=2.2") is Applicability.SAFE


@pytest.mark.parametrize(
    "made",
    [
        "state = {'model': model.state_dict()}\nif x:\n    state['step'] = 1\nstate.update(lr=0.1)\n",
        "step = 0\nfor epoch in range(9):\n    step += 1\nstate = {'epoch': epoch, 'model': model.state_dict()}\n",
        "state = None\nif x:\n    state = model.state_dict()\n    print(state)\n    torch.save(state, path)\n",
        "state = {'a': 1}\nstate['b'] = state['a']\nstate['c'] = state['b']\n",
        "w = model.state_dict()\nstate = {'w': w, 'first': w['a']}\n",
        "def make_state_dict(m):\n    return {'m': m.state_dict()}\nstate = make_state_dict(model)\n",
    ],
)
def test_plain_values_are_followed_through_names(made: str) -> None:
    text = f"{DCP}{made}dcp.save_state_dict(state, {WRITER})\n"
    assert grade(text) is Applicability.SAFE


@pytest.mark.parametrize(
    ("made", "state"),
    [
        ("", "state"),
        ("", "{'a': app}"),
        ("", "{'a': self.step}"),
        ("", "{'a': 1, **other}"),
        ("", "{'a': torch.compile(x)}"),
        ("", "{k: v for k, v in app.items()}"),
        ("", "make(model)"),
        ("import lib\n", "lib.get_state_dict(model)"),
        ("state = {}\nstate['a'] = app\n", "state"),
        ("state = {}\nstate.update({'a': app})\n", "state"),
        ("state = {}\nstate |= other\n", "state"),
        ("state = made()\nstate = {**state, 'a': 1}\n", "state"),
        ("a = made()\na = a\nstate = {'a': a}\n", "state"),
        ("from lib import add_scheduler\nstate = {}\nadd_scheduler(state)\n", "state"),
        ("state = {}\ntarget = state\ntarget['a'] = app\n", "state"),
        ("state = model.state_dict()\nif x:\n    state = other\n", "state"),
        ("class App:\n    def state_dict(self):\n        return {'app': self}\napp = App()\n", "app.state_dict()"),
        ("def get_state_dict(m):\n    return {'m': m}\n", "get_state_dict(model)"),
    ],
)
def test_what_may_have_a_state_of_its_own_is_unsafe(made: str, state: str) -> None:
    text = f"{DCP}{made}dcp.save_state_dict({state}, {WRITER})\n"
    (found,) = lint(text, CODE, ">=2.2")
    assert found.applicability is Applicability.UNSAFE
    assert "a `state_dict()`: `save` stores that state dict" in (found.reason or "")


def test_a_parameter_is_plain_by_its_annotation() -> None:
    text = f"{DCP}def f(epoch{{}}, path):\n    dcp.save_state_dict({{{{'epoch': epoch}}}}, {WRITER})\n"
    assert grade(text.format(": int")) is Applicability.SAFE
    assert grade(text.format(": Epoch")) is Applicability.UNSAFE
    assert grade(text.format("")) is Applicability.UNSAFE


@pytest.mark.parametrize(
    "made",
    [
        "sched = torch.optim.lr_scheduler.StepLR(optim, 3)\n",
        "sched = torch.nn.Linear(2, 2)\n",
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nsched = FSDP(net)\n",
    ],
)
def test_what_has_a_state_of_its_own_is_manual(made: str) -> None:
    text = f"{DCP}{made}dcp.save_state_dict({{'sched': sched}}, {WRITER})\n"
    check_manual(text, CODE, "`sched` has a `state_dict()`: `save` stores that state dict", torch=">=2.2")


@pytest.mark.parametrize("made", ["", "class Writer(dcp.FileSystemWriter): ...\nwriter = Writer(path)\n"])
def test_a_storage_that_may_be_of_the_project_is_unsafe(made: str) -> None:
    text = f"{DCP}{made}dcp.save_state_dict({MODEL}, writer)\n"
    (found,) = lint(text, CODE, ">=2.2")
    assert found.applicability is Applicability.UNSAFE
    assert "`reset(checkpoint_id)` of `writer`" in (found.reason or "")
    bound = f"{DCP}writer = {WRITER}\ndcp.save_state_dict({MODEL}, writer)\n"
    assert grade(bound) is Applicability.SAFE


def test_a_planner_that_fills_an_empty_dict_has_no_successor() -> None:
    planner = "from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner\nstate = {}\n"
    call = f"dcp.load_state_dict(state, {READER}, planner={{}})\n"
    filling = f"{DCP}{planner}{call.format('_EmptyStateDictLoadPlanner()')}"
    check_manual(filling, CODE, "keys that the planner adds are lost", torch=">=2.6")
    (found,) = lint(f"{DCP}state = {{}}\n{call.format('Mine()')}", CODE, ">=2.6")
    assert (found.applicability, "keys that the planner adds" in (found.reason or "")) == (Applicability.UNSAFE, True)


def test_the_oldest_torch_decides() -> None:
    load = f"{DCP}dcp.load_state_dict({{}}, {READER})\n"
    check_manual(load.format(MODEL), CODE, "needs torch>=2.4", torch=">=2.3")
    assert grade(load.format(MODEL), ">=2.4") is Applicability.SAFE
    check_manual(load.format("state"), CODE, "needs torch>=2.6", torch=">=2.5")
    assert grade(load.format("state"), ">=2.6") is Applicability.UNSAFE
    check_manual(save(MODEL), CODE, "needs torch>=2.2", torch=">=2.1")
    assert grade(save(MODEL), ">=2.2") is Applicability.SAFE


@pytest.mark.parametrize("value", ["True", "alone"])
def test_one_process_alone_needs_its_argument(value: str) -> None:
    before = f"{DCP}dcp.load_state_dict({MODEL}, {READER}, no_dist={value})\n"
    check_manual(before, CODE, "accepts `no_dist` since torch 2.7", torch=">=2.6")
    after = f"{DCP}dcp.load({MODEL}, storage_reader={READER}, no_dist={value})\n"
    check_transformed(before, after, CODE, torch=">=2.7")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (f"dcp.save_state_dict(*state, {WRITER})", "the call passes `*args`"),
        (f"dcp.save_state_dict({MODEL}, {WRITER}, **options)", "the call passes `**kwargs`"),
        (f"dcp.save_state_dict({MODEL}, {WRITER}, coordinator_rank=1)", "has no `coordinator_rank`"),
        (f"dcp.save_state_dict({MODEL}, {WRITER}, group, rank)", "has no `coordinator_rank`"),
        ("store = dcp.save_state_dict", "this is not a direct call: use `save`"),
        ("getattr(dcp, 'save_state_dict')(state, writer)", "this is not a direct call: use `save`"),
        ("from mylib import f\nf(dcp.save_state_dict)", "this is not a direct call: use `save`"),
    ],
)
def test_other_uses_are_manual(call: str, reason: str) -> None:
    check_manual(f"{DCP}{call}\n", CODE, reason, torch=">=2.7")


def test_a_comment_at_an_argument_that_goes_stays_in_the_call() -> None:
    before = f"{DCP}dcp.save_state_dict({MODEL}, {WRITER}, no_dist=False  # all\n)\n"
    (found,) = lint(before, CODE, ">=2.7")
    assert found.message.endswith("; the comment at `no_dist` stays in the call")
    assert found.applicability is Applicability.SAFE


def test_a_function_that_is_kept_under_a_name_is_told_once() -> None:
    found = lint(f"{DCP}store = dcp.save_state_dict\nstore(state, writer)\n", "FSDP", ">=2.7")
    assert [(one.code, one.line) for one in found] == [(CODE, 3)]


@pytest.mark.parametrize("call", [f"dcp.save_state_dict({MODEL}, {WRITER})", "f = dcp.load_state_dict"])
def test_it_speaks_for_the_general_rule(call: str) -> None:
    found = lint(f"{DCP}{call}\n", "FSDP", ">=2.2")
    assert [(one.code, one.severity) for one in found] == [(CODE, Severity.DEPRECATED)]
    named = f"{CHECKPOINT}load_state_dict\nload_state_dict({MODEL}, reader)\n"
    assert [one.code for one in lint(named, "FSDP", ">=2.2")] == [CODE]


@pytest.mark.parametrize(
    "text",
    [
        "model.load_state_dict(state)\n",
        "dcp.save(state, storage_writer=writer)\n",
        "from torch.distributed.checkpoint import save_state_dict\n",
        "if hasattr(dcp, 'save'):\n    dcp.save(s, storage_writer=w)\nelse:\n    dcp.save_state_dict(s, w)\n",
        "try:\n    dcp.save(s, storage_writer=w)\nexcept AttributeError:\n    dcp.save_state_dict(s, w)\n",
        "if torch.__version__ < '2.2':\n    dcp.save_state_dict(s, w)\n",
        "try:\n    from torch.distributed.checkpoint import load as f\nexcept ImportError:\n"
        "    from torch.distributed.checkpoint import load_state_dict as f\nf(s, w)\n",
    ],
)
def test_new_calls_and_old_arms_are_left_alone(text: str) -> None:
    check_noop(f"{DCP}{text}", CODE, torch=">=2.1")


def test_another_save_in_the_other_arm_is_no_choice() -> None:
    text = f"{DCP}if mode == 'save':\n    dcp.save_state_dict({MODEL}, {WRITER})\nelse:\n    torch.save(s, path)\n"
    assert grade(text) is Applicability.SAFE


def test_what_a_test_patches_stays() -> None:
    text = (
        f"{DCP}from unittest import mock\n"
        "with mock.patch('torch.distributed.checkpoint.save_state_dict'):\n"
        f"    dcp.save_state_dict({MODEL}, {WRITER})\n"
    )
    check_manual(text, CODE, "replaces it with an object of your own", torch=">=2.2")


@pytest.mark.parametrize(
    ("facade", "line", "grade"),
    [
        ("from torch.distributed.checkpoint import save_state_dict", "from lib import save_state_dict as f", "manual"),
        ("from torch.distributed.checkpoint import save_state_dict as s", "import lib\nf = lib.s", "manual"),
        ("import torch.distributed.checkpoint as dcp", "from lib import dcp", "safe"),
        ("import torch.distributed.checkpoint as dcp", "import lib\ndcp = lib.dcp", "safe"),
    ],
)
def test_it_is_seen_through_a_module_of_the_project(facade: str, line: str, grade: str, tmp_path: Path) -> None:
    called = "dcp.save_state_dict" if grade == "safe" else "f"
    grow(tmp_path, {"lib.py": f"{facade}\n", "train.py": f"{DCP}{line}\n{called}({MODEL}, {WRITER})\n"})
    found = findings_of(tmp_path, "train.py", ">=2.2")
    assert [(one.code, one.applicability.value) for one in found] == [(CODE, grade)]
