from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, lint

CODE = "FSDP841"
ARGS = "import argparse\nimport torch\nargs = argparse.ArgumentParser().parse_args()\nstate = torch.load(p)\n"
FSDP = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType

def save(model):
    with FSDP.state_dict_type(model, StateDictType.{0}):
        torch.save(model.state_dict(), path)
    torch.load(path)
"""


def _severity(text: str, torch: str = ">=2.1") -> Severity:
    (found,) = lint(text, CODE, torch)
    return found.severity


@pytest.mark.parametrize(
    "saved",
    [
        "torch.save({'model': sd, 'args': args}, p)\n",
        "torch.save(dict(model=sd, args=args), p)\n",
        "torch.save(args, p)\n",
        "checkpoint = {'args': args}\ntorch.save(checkpoint, p)\n",
    ],
)
def test_a_namespace_saved_by_the_same_file_breaks(saved: str) -> None:
    assert _severity(ARGS + saved) is Severity.BREAKS


@pytest.mark.parametrize("saved", ["", "torch.save({'args': vars(args)}, p)\n", "torch.save(model.state_dict(), p)\n"])
def test_what_is_not_known_is_a_hint(saved: str) -> None:
    assert _severity(ARGS + saved) is Severity.HINT


def test_what_is_saved_to_another_file_says_nothing() -> None:
    assert _severity(f"{ARGS}torch.save(args, other)\n") is Severity.HINT
    text = ARGS.replace("load(p)", "load(join(d, 'optimizer.pt'))")
    assert _severity(f"{text}torch.save(args, join(d, 'args.bin'))\n") is Severity.HINT
    assert _severity(f"{text}torch.save(args, join(out, 'optimizer.pt'))\n") is Severity.BREAKS
    saves = "def save(p):\n    torch.save(args, p)\n"
    assert _severity(ARGS + saves) is Severity.HINT


def test_a_sharded_state_dict_breaks_and_a_full_one_does_not() -> None:
    assert _severity(FSDP.format("SHARDED_STATE_DICT")) is Severity.BREAKS
    assert _severity(FSDP.format("LOCAL_STATE_DICT")) is Severity.BREAKS
    assert _severity(FSDP.format("FULL_STATE_DICT")) is Severity.HINT


def test_a_load_that_decides_by_itself_is_left_alone() -> None:
    check_noop("import torch\ntorch.load(p, weights_only=False)\ntorch.load(p, pickle_module=dill)\n", CODE)
    check_noop("import torch\ntorch.load(p, **options)\n", CODE)
    check_noop("import numpy\nnumpy.load(p)\nself.load(p)\n", CODE)


def test_before_torch_2_6_everything_loads() -> None:
    check_noop("import torch\ntorch.load(p)\n", CODE, "<2.6")


def test_nothing_is_ever_written() -> None:
    check_manual(ARGS, CODE, "weights_only=False")


def _message(text: str) -> str:
    (found,) = lint(text, CODE)
    return found.message


def test_the_message_names_the_file_and_the_line_that_saves_what_is_refused() -> None:
    start = "`torch.load` of `path` fails since torch 2.6, where `weights_only` is True by default: line 6 saves "
    assert _message(FSDP.format("SHARDED_STATE_DICT")) == f"{start}a sharded state dict to it"
    saved = "torch.save(obj={'args': args}, f=f'{run}/last.pt')\n"
    assert _message(ARGS.replace("load(p)", "load(f=f'{run}/last.pt')") + saved) == (
        "`torch.load` of `f'{run}/last.pt'` fails since torch 2.6, where `weights_only` is True by default: "
        "line 5 saves an `argparse.Namespace` to it"
    )
    assert _message(ARGS) == "`torch.load` of `p` accepts only tensors and plain values since torch 2.6"
    long = f"load(os.path.join({'directory_of_checkpoints, ' * 3}name))"
    assert (
        _message(ARGS.replace("load(p)", long)) == "`torch.load` accepts only tensors and plain values since torch 2.6"
    )
