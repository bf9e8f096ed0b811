"""Whether a function surely ran before a program comes to a place."""

from __future__ import annotations

from textwrap import dedent

import pytest

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.called_before import surely_called
from fsdp_migrate.facts.project_code import Code
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange

NAMES = frozenset({"torch.cuda.set_device"})


def answer(text: str) -> bool:
    """Whether the device is surely set where the program calls `here`."""
    facts = ModuleFacts(Source(f"import torch\n{dedent(text)}".encode()), "a.py", TorchRange.parse(">=2.6"))
    place = next(call for call in facts.structure.calls if getattr(call.func, "id", "") == "here")
    return surely_called(facts, place, NAMES, Code())


@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda.set_device(0)\nhere()\n",
        "torch.cuda.set_device(0); here()\n",
        "with torch.no_grad():\n    torch.cuda.set_device(0)\nhere()\n",
        "if torch.cuda.is_available():\n    torch.cuda.set_device(0)\nhere()\n",
        "if device.type == 'cuda':\n    torch.cuda.set_device(0)\nhere()\n",
        "if a:\n    torch.cuda.set_device(0)\nelse:\n    torch.cuda.set_device(1)\nhere()\n",
        "torch.cuda.set_device(0)\nif a:\n    for b in c:\n        here()\n",
        "try:\n    torch.cuda.set_device(0)\nfinally:\n    pass\nhere()\n",
        "def setup():\n    torch.cuda.set_device(0)\nsetup()\nhere()\n",
        "def setup():\n    torch.cuda.set_device(0)\n    return 3\nrank = setup()\nhere()\n",
        "def f():\n    here()\ntorch.cuda.set_device(0)\nf()\n",
        "def f():\n    here()\ndef g():\n    torch.cuda.set_device(0)\n    f()\ng()\n",
        "class A:\n    def __init__(self):\n        torch.cuda.set_device(0)\n        self.f()\n"
        "    def f(self):\n        here()\n",
    ],
)
def test_it_was_called(text: str) -> None:
    assert answer(text)


@pytest.mark.parametrize(
    "text",
    [
        "here()\ntorch.cuda.set_device(0)\n",
        "if a:\n    torch.cuda.set_device(0)\nhere()\n",
        "for a in b:\n    torch.cuda.set_device(0)\nhere()\n",
        "a and torch.cuda.set_device(0)\nhere()\n",
        "f = lambda: torch.cuda.set_device(0)\nhere()\n",
        "def f():\n    torch.cuda.set_device(0)\nhere()\n",
        "def setup():\n    if a:\n        return\n    torch.cuda.set_device(0)\nsetup()\nhere()\n",
        "try:\n    a()\n    torch.cuda.set_device(0)\nexcept E:\n    pass\nhere()\n",
        "def f():\n    here()\ntorch.cuda.set_device(0)\nf()\ndef g():\n    f()\n",
        "def f():\n    here()\ntorch.cuda.set_device(0)\nrun(f)\n",
        "def f():\n    here()\n",
    ],
)
def test_it_may_not_have_been_called(text: str) -> None:
    assert not answer(text)
