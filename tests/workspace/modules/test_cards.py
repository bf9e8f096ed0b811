"""Every card's example, with its imports of torch moved to another module of a project."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.rules import RULES
from fsdp_migrate.rules.card import Example, RuleCard
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
from tests.workspace.modules.trees import grow, modules_of


def split(text: str) -> tuple[str, str]:
    """A module with the top-level imports of torch of `text`, and the rest with imports from that module."""
    lines, library = text.splitlines(keepends=True), []
    for node in ast.parse(text).body:
        names = [alias.asname or alias.name for alias in getattr(node, "names", ())]
        from_torch = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch"
        plain = isinstance(node, ast.Import) and all(name == "torch" or "." not in name for name in names)
        if (from_torch or (plain and "torch" in ast.unparse(node))) and "*" not in names:
            library.append(ast.unparse(node))
            lines[node.lineno - 1 : node.end_lineno] = ["\n"] * ((node.end_lineno or 0) - node.lineno + 1)
            lines[node.lineno - 1] = f"from lib import {', '.join(names)}\n"
    return "\n".join([*library, ""]), "".join(lines)


def examples() -> Iterator[object]:
    for rule in RULES:
        for number, example in enumerate(rule.card.flags):
            try:
                library, rest = split(example.before)
            except SyntaxError:
                continue
            if library.strip():
                yield pytest.param(rule.card, example, library, rest, id=f"{rule.card.code}-{number}")


@pytest.mark.parametrize(("card", "example", "library", "rest"), list(examples()))
def test_a_fix_asks_nothing_of_another_module_that_it_does_not_have(
    card: RuleCard, example: Example, library: str, rest: str, tmp_path: Path
) -> None:
    grow(tmp_path, {"lib.py": library, "train.py": rest})
    torch = TorchRange.parse(example.torch)
    settings = Settings(torch, select=(card.code,), hints=True, unsafe_fixes=True)
    view = modules_of(tmp_path).view(str(tmp_path / "train.py"), torch)
    result = rewrite_bytes(rest.encode(), "train.py", settings, view)
    assert result.error is None
    before, after = (taken(text) for text in (rest, result.raw.decode()))
    assert after <= before
    assert undefined(result.raw.decode()) <= undefined(rest)


def taken(text: str) -> set[str]:
    """The names that a text takes from the other module."""
    imports = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.module == "lib")
    return {alias.name for node in imports for alias in node.names}


def undefined(text: str) -> set[str]:
    """The names that a text reads and does not bind anywhere."""
    tree = ast.parse(text)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    imported = (node for node in ast.walk(tree) if isinstance(node, ast.alias))
    bound |= {(alias.asname or alias.name).split(".")[0] for alias in imported} | set(dir(builtins))
    bound |= {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return {node.id for node in names} - bound - {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


@pytest.mark.parametrize(
    "code", ["FSDP101", "FSDP104", "FSDP201", "FSDP301", "FSDP401", "FSDP501", "FSDP503", "FSDP804"]
)
def test_what_is_used_is_found_through_another_module(code: str, tmp_path: Path) -> None:
    (rule,) = (rule for rule in RULES if rule.card.code == code)
    library, rest = split(rule.card.flags[0].before)
    grow(tmp_path, {"lib.py": library, "train.py": rest})
    torch = TorchRange.parse(rule.card.flags[0].torch)
    view = modules_of(tmp_path).view(str(tmp_path / "train.py"), torch)
    report = lint_bytes(rest.encode(), "train.py", Settings(torch, select=(code,)), view)
    assert {finding.code for finding in report.findings} == {code}
