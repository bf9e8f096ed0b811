"""What the tracer notes of programs, on a stub of torch."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fsdp_migrate.trace.records import Optimizer
from tests.trace.stub import ALL, FULL, SCATTER, Program

_OTHERS = ("3.10", "3.12", "3.13")
IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nimport torch\n"


def _pythons() -> list[str]:
    """This Python, and the others that are there: from 3.12 on calls are seen in another way."""
    found = [shutil.which(f"python{version}") for version in _OTHERS if sys.version[:4] != version]
    runs = [one for one in found if one and not subprocess.run([one, "-c", ""], capture_output=True).returncode]
    return [sys.executable, *runs]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.mark.parametrize("python", _pythons())
def test_a_call_is_noted_however_it_is_reached_and_nothing_that_torch_itself_calls(
    program: Program, python: str
) -> None:
    text = IMPORT + (
        "import functools, json\n"
        "name = json.loads('[\"full_optim_state_dict\"]')[0]\n"
        "registry = {'full': FSDP.full_optim_state_dict}\n"
        "model = FSDP(1); optim = torch.optim.AdamW(model.params)\n"
        "getattr(FSDP, name)(model, optim)\n"
        "registry['full'](model, optim=optim)\n"
        "for _ in range(3):\n"
        "    functools.partial(model.full_optim_state_dict, model)(optim)\n"
        "with FSDP.state_dict_type(model, 'sharded'):\n"
        "    pass\n"
        "torch.cuda.amp.autocast(False)\n"
        "print(FSDP.full_optim_state_dict(model, optim), FSDP.full_optim_state_dict.__doc__)\n"
    )
    done = program.run("import torch.cuda\n" + text, python=[python])
    assert done.stdout == "mangled Its text.\n"
    assert done.stderr == ""
    full = "full_optim_state_dict"
    wanted = [(full, None, 8, 1), (full, None, 9, 1), (full, None, 11, 3), ("state_dict_type", None, 12, 1)]
    assert program.lines == [*wanted, ("autocast", None, 14, 1), (full, None, 15, 1)]
    first = program.noted.trace.calls[0]
    assert first.api == FULL
    assert dict(first.given) == {
        "model": ("torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",),
        "optim": ("torch.optim.AdamW",),
    }
    assert program.noted.remarks == ()


@pytest.mark.parametrize("python", _pythons())
def test_a_context_manager_is_called_where_it_is_made_not_where_its_block_begins(program: Program, python: str) -> None:
    text = IMPORT + (
        "import contextlib\n"
        "@contextlib.contextmanager\n"
        "def other(module):\n    yield\n"
        "def made(model):\n"
        "    return FSDP.state_dict_type(model, state_dict_type='full', strict=True)\n"
        "with other(1), made(FSDP(1)) as model:\n"
        "    assert isinstance(model, FSDP)\n"
    )
    program.run(text, python=[python])
    assert program.lines == [("state_dict_type", None, 8, 1)]
    (call,) = program.noted.trace.calls
    assert sorted(call.given) == ["module", "state_dict_type"]


@pytest.mark.parametrize("python", _pythons())
def test_functions_stay_the_objects_that_they_are(program: Program, python: str) -> None:
    text = """\
import inspect, pickle, sys, traceback, warnings
import torch.distributed.fsdp.fully_sharded_data_parallel as module
FSDP = module.FullyShardedDataParallel
scatter = FSDP.scatter_full_optim_state_dict
class Mine(FSDP):
    def full_optim_state_dict(model, optim):
        return FSDP.full_optim_state_dict(model, optim)
assert {scatter: 1}[FSDP.scatter_full_optim_state_dict] and Mine.scatter_full_optim_state_dict is scatter
assert pickle.loads(pickle.dumps(scatter)) is scatter
assert str(inspect.signature(scatter)).startswith("(full_optim_state_dict, model, optim_input=None")
assert inspect.signature(FSDP.state_dict_type).parameters["strict"].annotation == "bool"
assert inspect.getsource(scatter).lstrip().startswith("@staticmethod")
assert not hasattr(scatter, "__wrapped__") and scatter.__code__.co_filename == module.__file__
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    made = scatter({}, Mine(1))
assert made() is FSDP
assert (caught[0].filename, caught[0].lineno) == (__file__, 16), caught[0]
assert Mine(1).full_optim_state_dict(None) == "mangled"
try:
    FSDP.full_optim_state_dict(1, 2)
except AttributeError as error:
    frames = [(one.name, one.line) for one in traceback.extract_tb(error.__traceback__)]
    assert frames[-1] == ("full_optim_state_dict", "return model.__private"), frames
    assert len(frames) == 3, frames
print("done")
"""
    assert program.run(text, python=[python]).stdout == "done\n"
    assert [line for _, _, line, _ in program.lines] == [16, 7, 21]


def test_a_library_that_calls_is_named_with_the_line_of_the_project_that_led_to_it(program: Program) -> None:
    library = program.packages / "accelerate" / "utils.py"
    library.parent.mkdir()
    library.write_text(IMPORT + "def save(model):\n    return FSDP.full_optim_state_dict(model, None)\n")
    text = (
        "from accelerate.utils import save\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "import threading\n"
        "def main():\n    save(FSDP(1))\nmain()\n"
        "thread = threading.Thread(target=FSDP.full_optim_state_dict, args=(FSDP(1), None))\n"
        "thread.start(); thread.join()\n"
    )
    program.run(text)
    by = "accelerate/utils.py:4"
    assert program.lines == [("full_optim_state_dict", by, 5, 1)]


def test_an_optimizer_that_was_not_given_is_named_as_the_caller_names_it(program: Program) -> None:
    text = IMPORT + (
        "import warnings; warnings.simplefilter('ignore')\n"
        "class Trainer:\n"
        "    def __init__(self):\n"
        "        self.model = FSDP(object(), object())\n"
        "        self.optim = torch.optim.AdamW(self.model.params)\n"
        "        self.other = torch.optim.AdamW([object()])\n"
        "    def load(self):\n"
        "        FSDP.scatter_full_optim_state_dict({}, self.model)\n"
        "    def both(self, optimizer):\n"
        "        FSDP.scatter_full_optim_state_dict({}, self.model)\n"
        "    def given(self, optimizer):\n"
        "        FSDP.scatter_full_optim_state_dict({}, self.model, optim=optimizer)\n"
        "one = Trainer()\none.load()\none.both(one.optim)\none.given(one.optim)\n"
    )
    program.run(text)
    found = {call.place.line: call.optimizers for call in program.noted.trace.calls if call.place}
    assert found == {
        10: (Optimizer(("self.optim",), "torch.optim.AdamW"),),
        12: (Optimizer(("optimizer", "self.optim"), "torch.optim.AdamW"),),
        14: None,
    }
    assert {call.api for call in program.noted.trace.calls} == {SCATTER}


def test_only_calls_with_the_arguments_that_are_asked_for_are_noted(program: Program) -> None:
    text = (
        "from torch.distributed.checkpoint.state_dict import get_state_dict\n"
        "get_state_dict(1)\nget_state_dict(1, submodules=None)\nget_state_dict(1, submodules={2})\n"
    )
    program.run(text)
    assert program.lines == [("get_state_dict", None, 4, 1)]
    program.run(text, apis={name: [[None, "submodules"]] for name in ALL if name.endswith("get_state_dict")})
    assert program.lines[1:] == [("get_state_dict", None, 2, 1), ("get_state_dict", None, 3, 1)]


def test_what_cannot_be_seen_is_said(program: Program) -> None:
    program.run("import torch.distributed.fsdp")
    assert program.noted.trace.unwatched == {"torch.distributed.fsdp.compiled": "it is not written in Python"}


def test_a_program_without_torch_leaves_no_notes(program: Program) -> None:
    program.run("import json")
    assert program.noted.trace.processes == 0
    assert [path.name for path in program.notes.iterdir()] == ["started"]


def test_forked_children_and_ranks_have_notes_of_their_own(program: Program) -> None:
    text = IMPORT + (
        "import os\n"
        "model = FSDP(1)\n"
        "FSDP.full_optim_state_dict(model, None)\n"
        "if os.fork() == 0:\n"
        "    os.environ['RANK'] = '3'\n"
        "    FSDP.full_optim_state_dict(model, None)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    program.run(text, RANK="2")
    found = {call.place.line: (call.times, call.ranks) for call in program.noted.trace.calls if call.place}
    assert found == {5: (1, (2,)), 8: (1, (3,))}
    (remark,) = program.noted.remarks
    assert remark.endswith("did not end by itself, and may have called more often than noted")


def test_a_killed_program_leaves_what_was_seen(program: Program) -> None:
    text = IMPORT + (
        "import os\nmodel = FSDP(1)\n"
        "for _ in range(100):\n    FSDP.full_optim_state_dict(model, None)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    program.run(text, code=-signal.SIGKILL)
    assert program.lines == [("full_optim_state_dict", None, 6, 64)]
    notes = next(program.notes.glob("*.jsonl"))
    whole = notes.read_bytes()
    notes.write_bytes(whole[: len(whole) - 10])
    assert program.lines == [("full_optim_state_dict", None, 6, 32)]
    assert "1 notes were cut off" in program.noted.remarks[0]


def test_a_fault_of_the_tracer_is_noted_and_does_not_reach_the_program(program: Program) -> None:
    text = IMPORT + "print(FSDP.full_optim_state_dict(FSDP(1), None))\n"
    assert program.run(text, apis={FULL: None}).stdout == "mangled\n"
    (remark,) = program.noted.remarks
    assert "TypeError in tracer.py:" in remark


def test_a_model_whose_parameters_cannot_be_read_is_noted_all_the_same(program: Program) -> None:
    text = IMPORT + (
        "class Broken(FSDP):\n    def parameters(self):\n        raise KeyError\n"
        "FSDP.scatter_full_optim_state_dict({}, Broken())\n"
    )
    program.run(text)
    assert [call.optimizers for call in program.noted.trace.calls] == [()]
    assert program.noted.remarks == ()


def test_values_are_not_noted(program: Program) -> None:
    text = IMPORT + (
        "from torch.distributed.checkpoint import save_state_dict\n"
        "save_state_dict({'secret-key': 'secret-value'})\n"
        "FSDP.full_optim_state_dict(FSDP('secret'), 'secret', rank0_only='secret')\n"
    )
    program.run(text)
    assert len(program.lines) == 2
    assert not any(b"secret" in path.read_bytes() for path in program.notes.iterdir())


def test_files_are_closed_and_given_away_as_the_program_likes(program: Program) -> None:
    text = IMPORT + (
        "import os\nmodel = FSDP(1)\n"
        "FSDP.full_optim_state_dict(model, None)\n"
        "os.closerange(3, 64)\n"
        "held = [os.open('mine', os.O_CREAT | os.O_RDWR) for _ in range(8)]\n"
        "FSDP.full_optim_state_dict(model, None)\n"
    )
    program.run(text)
    assert len(program.lines) == 2
    assert (program.root / "mine").read_bytes() == b""


@pytest.mark.parametrize("python", [one for one in _pythons() if "3.12" in one or "3.13" in one])
def test_the_lines_that_ran_are_known_from_python_3_12_on(program: Program, python: str) -> None:
    (program.root / "other.py").write_text("def never():\n    return 1\n\nvalue = [\n    2,\n]\n")
    text = "import other\nimport torch\ndef f(x):\n    if x:\n        return 1\n    return 2\nf(1)\nf(1)\n"
    program.run(text, python=[python])
    trace = program.noted.trace
    assert trace.sees_lines
    assert {path: sorted(lines) for path, lines in trace.lines.items()} == {
        "main.py": [1, 2, 3, 4, 5, 7, 8],
        "other.py": [1, 4, 5],
    }
    assert set(trace.files) == {"main.py", "other.py"}


def test_the_notes_of_a_program_that_is_elsewhere_are_of_no_place(program: Program, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text(IMPORT + "FSDP.full_optim_state_dict(FSDP(1), None)\n")
    program.run(f"import runpy\nexec(compile(open({str(outside)!r}).read(), {str(outside)!r}, 'exec'))\n")
    assert program.lines == [("full_optim_state_dict", f"outside.py:{3}", 2, 1)]
    assert os.path.exists(outside)
