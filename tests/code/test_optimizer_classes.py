"""The classes that an object may be of."""

from __future__ import annotations

import ast

from fsdp_migrate.code.optimizer_classes import classes_of
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange


def classes(text: str) -> list[str]:
    """The classes of what `show` is called with."""
    facts = ModuleFacts(Source(text.encode()), "x.py", TorchRange.default())
    (call,) = (one for one in facts.structure.calls if isinstance(one.func, ast.Name) and one.func.id == "show")
    return [cls.name for _, cls in classes_of(facts, call.args[0])]


def test_an_attribute_of_a_known_class() -> None:
    text = "class A:\n    pass\n\n\nclass B:\n    def __init__(self):\n        self.a = A()\n\n\nb = B()\nshow(b.a)\n"
    assert classes(text) == ["A"]


def test_names_that_are_made_of_each_other_come_to_an_end() -> None:
    text = "def f(one):\n    while one:\n        one = one.next\n    show(one.optimizer)\n"
    assert classes(text) == []
