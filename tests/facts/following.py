"""Programs that say in comments where an object goes.

The object is what `OBJECT()` gives. A line with `# here` has a reference; one with `# lost` an escape.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.objects import PLAIN, Followed, Nature, Value, follow
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.modules import Modules

RANGE = TorchRange.parse(">=2.6")
BUDGET = 5_000


def parsed(text: str) -> ModuleFacts:
    return ModuleFacts(Source(dedent(text).encode()), "main.py", RANGE)


def seeds_in(facts: ModuleFacts) -> list[Value]:
    return [Value(facts, call) for call in facts.structure.calls if ast.unparse(call.func) == "OBJECT"]


def followed(text: str, nature: Nature = PLAIN, budget: int = BUDGET) -> Followed:
    """Where the objects of one module go."""
    return follow(seeds_in(parsed(text)), budget, nature)


def marked(text: str, mark: str) -> list[int]:
    return [number for number, line in enumerate(dedent(text).splitlines(), 1) if f"# {mark}" in line]


def check(text: str, nature: Nature = PLAIN) -> Followed:
    """The references and escapes are where the comments say, and nowhere else."""
    found = followed(text, nature)
    assert sorted({one.node.lineno for one in found.references}) == marked(text, "here")
    assert sorted({one.node.lineno for one in found.escapes}) == marked(text, "lost"), found.escapes  # type: ignore[attr-defined]
    return found


def check_tree(root: Path, tree: Mapping[str, str], nature: Nature = PLAIN) -> Followed:
    """The same for a project whose `main.py` makes the object."""
    for name, text in {"pyproject.toml": "", **tree}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    modules = Modules(filesystem.discover([str(root)]).files, [str(root)])
    facts = modules.facts(str(root / "main.py"), RANGE)
    assert facts is not None
    found = follow(seeds_in(facts), BUDGET, nature)
    wanted = {(name, line) for name, text in tree.items() for line in marked(text, "here")}
    assert {(_name(root, one.facts), one.node.lineno) for one in found.references} == wanted
    lost = {(name, line) for name, text in tree.items() for line in marked(text, "lost")}
    assert {(_name(root, one.facts), one.node.lineno) for one in found.escapes} == lost, found.escapes  # type: ignore[attr-defined]
    return found


def _name(root: Path, facts: ModuleFacts) -> str:
    return Path(facts.path).relative_to(root).as_posix()


def others(found: Followed, line: int) -> list[str]:
    """What the references of a line may be instead."""
    return sorted(ast.unparse(one.node) for r in found.references if r.node.lineno == line for one in r.others)
