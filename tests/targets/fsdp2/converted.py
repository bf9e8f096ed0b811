"""Programs in which all uses of one model are converted, as strings."""

from __future__ import annotations

import ast
from textwrap import dedent

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.objects import Reference, Value
from fsdp_migrate.findings import Fix
from fsdp_migrate.planning.passes import carried_out
from fsdp_migrate.source import Source
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction, Conversion, Options
from fsdp_migrate.targets.fsdp2.uses import convert_use
from fsdp_migrate.torch_api import TorchRange

HEAD = "import torch\nimport torch.nn as nn\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"


class Converted:
    """What became of the uses of some models in a program; `others` are what they may be instead, as written there."""

    def __init__(self, program: str, *models: str, others: tuple[str, ...] = ()) -> None:
        text = HEAD + dedent(program)
        self.facts = ModuleFacts(Source(text.encode()), "example.py", TorchRange.parse(">=2.13"))
        nodes = [node for node in ast.walk(self.facts.source.tree) if isinstance(node, ast.expr)]
        arms = tuple(Value(self.facts, node) for node in nodes if ast.unparse(node) in others)
        uses = [node for node in nodes if ast.unparse(node) in (models or ("model",)) and self._is_used(node)]
        references = tuple(Reference(self.facts, node, arms) for node in uses)
        built = tuple(Construction(self.facts, call) for call in self.facts.fsdp.constructions)
        closure = Closure(built, references, (), ())
        self.conversion = Conversion()
        for reference in references:
            convert_use(self.conversion, closure, reference, Options())

    def _is_used(self, node: ast.expr) -> bool:
        parent = self.facts.structure.parents[node]
        is_passed = isinstance(parent, (ast.Assign, ast.Return)) or parent in self.facts.fsdp.constructions
        return isinstance(getattr(node, "ctx", None), ast.Load) and not is_passed

    @property
    def walls(self) -> list[str]:
        """The reasons that stop the conversion."""
        return [wall.reason for wall in self.conversion.walls]

    @property
    def differences(self) -> list[str]:
        """What is different afterwards."""
        return [one.what for one in self.conversion.differences]

    @property
    def text(self) -> str:
        """The program afterwards, without its head."""
        edits = self.conversion.edits.get("example.py", [])
        fix = Fix(tuple(edits), tuple(self.conversion.removed.get("example.py", ())))
        raw = carried_out(self.facts.source, "example.py", [fix]).raw.decode() if edits else self.facts.source.text
        ast.parse(raw)
        return raw.removeprefix(HEAD)


def check_becomes(before: str, after: str, *models: str) -> None:
    """All uses of the models (of `model`) are converted, without a difference."""
    found = Converted(before, *models)
    assert found.walls == []
    assert found.differences == []
    assert found.text == dedent(after)


def check_stays(program: str, *models: str) -> None:
    """The uses of the models do the same afterwards as they stand."""
    check_becomes(program, program, *models)


def check_wall(program: str, reason: str, *models: str, others: tuple[str, ...] = ()) -> None:
    """There is one wall, whose reason says `reason`."""
    found = Converted(program, *models, others=others)
    assert len(found.walls) == 1, found.walls
    assert reason in found.walls[0]
