from __future__ import annotations

import ast
import re
from itertools import product

import pytest
from packaging.version import Version

from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.rules import find
from fsdp_migrate.targets.modernise.moved.moves import MOVES
from fsdp_migrate.targets.modernise.moved.rows import Move
from fsdp_migrate.targets.modernise.moved.table import is_module, moved, old_names
from fsdp_migrate.torch_api import RELEASES, TorchRange
from fsdp_migrate.torch_api.data import exists, first, kind, last, names, signature_text
from fsdp_migrate.workspace.settings import Settings

NEWEST = RELEASES[-1]
ROOT = "torch.distributed"


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.old)
def test_the_old_name_existed_and_the_newest_release_has_the_new_one(move: Move) -> None:
    assert move.had or first(move.old) is not None
    assert move.new is None or exists(move.new, NEWEST)
    assert move.meanwhile is None or move.whole or exists(move.meanwhile, NEWEST)
    if move.whole and move.new is not None:
        assert is_module(move.old)
        assert is_module(move.new)


@pytest.mark.parametrize("move", [move for move in MOVES if move.new is None], ids=lambda move: move.old)
def test_what_has_no_successor_is_gone_and_the_row_says_what_to_do(move: Move) -> None:
    assert last(move.old) is not None
    assert move.trap


PURE = [move for move in MOVES if move.new and not move.whole and not move.trap and not move.adapts and not move.had]


@pytest.mark.parametrize("move", PURE, ids=lambda move: move.old)
def test_a_pure_move_keeps_kind_and_parameters(move: Move) -> None:
    assert move.new is not None
    both = [release for release in RELEASES if exists(move.old, release) and exists(move.new, release)]
    if both:
        before = after = both[-1]
    else:
        before = last(move.old) or NEWEST
        after = next(release for release in RELEASES if release > before and exists(move.new, release))
    assert kind(move.old, before) == kind(move.new, after)
    assert signature_text(move.old, before) == signature_text(move.new, after)


def test_rows_are_unique_and_belong_to_a_card_and_a_catalogue_entry() -> None:
    assert len({move.old for move in MOVES}) == len(MOVES)
    for move in MOVES:
        assert find(move.code) is not None
        assert re.fullmatch(r"[a-z0-9]+(-[A-Za-z0-9]+)+", move.entry)
        assert old_names(move.code) >= {move.old}


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("_tensor", "_tensor", "tensor"),
        ("_tensor.DTensor", "_tensor.DTensor", "tensor.DTensor"),
        ("_tensor.DTensor.from_local", "_tensor.DTensor", "tensor.DTensor"),
        ("_tensor.DeviceMesh", "_tensor.DeviceMesh", "device_mesh.DeviceMesh"),
        ("_tensor.placement_types._Partial", "_tensor.placement_types._Partial", "tensor.Partial"),
        ("_tensor.ops.utils.prod", "_tensor.ops.utils.prod", "tensor._ops.utils.prod"),
        ("_composable.fsdp", "_composable.fsdp", "fsdp"),
        ("_composable.fsdp.fully_shard", "_composable.fsdp.fully_shard", "fsdp.fully_shard"),
        ("_composable.fsdp.fully_shard.state", "_composable.fsdp.fully_shard", "fsdp.fully_shard"),
        ("_composable.fsdp.fully_shard.FSDPModule", "_composable.fsdp.fully_shard.FSDPModule", "fsdp.FSDPModule"),
        ("_composable.fully_shard.fully_shard", "_composable.fully_shard.fully_shard", None),
        (
            "_shard.checkpoint.filesystem.FileSystemWriter.path",
            "_shard.checkpoint.filesystem.FileSystemWriter",
            "checkpoint.filesystem.FileSystemWriter",
        ),
    ],
)
def test_the_longest_row_that_fits_counts(path: str, old: str, new: str | None) -> None:
    found = moved(f"{ROOT}.{path}", NEWEST)
    assert found is not None
    assert (found.old, found.new) == (f"{ROOT}.{old}", None if new is None else f"{ROOT}.{new}")


@pytest.mark.parametrize(
    "path",
    [
        "_tensor.never_heard_of",
        "_tensor.get_bandwidth_factor",
        "fsdp",
        "fsdp.fully_shard",
        "_composable.replicate",
        "x",
    ],
)
def test_other_names_are_in_no_row(path: str) -> None:
    assert moved(f"{ROOT}.{path}", NEWEST) is None
    assert moved("builtins.print", Version("2.1")) is None


RANGES = (">=1.12", ">=1.13", ">=2.0", ">=2.1", ">=2.2", ">=2.3", ">=2.4", ">=2.1,<2.5", ">=2.0,<2.2", ">=2.4,<2.10")


KNOWN = [move for move in MOVES if not move.had]  # of the others the data has no old name


@pytest.mark.parametrize("move", KNOWN, ids=lambda move: move.old)
def test_an_import_that_tries_both_places_works_on_every_release_since_the_name_came(move: Move) -> None:
    owner, _, name = move.old.rpartition(".")
    texts = [(move.old, f"from {owner} import {name}\n\nprint({name})\n")]
    depth = move.old.count(".") + 1
    for path in (one for one in names(f"{move.old}.") if move.whole and one.count(".") == depth):
        inside = path.rpartition(".")[2]
        texts.append((path, f"from {move.old} import {inside}\n\nprint({inside})\n"))
        texts.append((path, f"import {move.old} as m\n\nprint(m.{inside})\n"))
    for (path, text), torch in product(texts, RANGES):
        settings = Settings(torch=TorchRange.parse(torch), select=(move.code,), hints=True, unsafe_fixes=True)
        after = rewrite_bytes(text.encode(), "example.py", settings).raw.decode()
        came = first(path)
        assert came is not None
        for release in settings.torch.releases if after != text else ():
            assert release < came or _runs(after, release), (text, torch, str(release), after)


def _runs(text: str, release: Version) -> bool:
    """Whether what a text imports, by either arm of a `try`, and what it reads of a module are in a release."""
    tree = ast.parse(text)
    used = [f".{node.attr}" for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    for statement in tree.body:
        arms = [statement.body, statement.handlers[0].body] if isinstance(statement, ast.Try) else [[statement]]
        paths = [[path for one in arm for path in _imported(one, used)] for arm in arms]
        if not any(all(exists(path, release) for path in arm) for arm in paths):
            return False
    return True


def _imported(statement: ast.stmt, used: list[str]) -> list[str]:
    if isinstance(statement, ast.ImportFrom):
        return [f"{statement.module}.{alias.name}" for alias in statement.names]
    if isinstance(statement, ast.Import):
        return [f"{alias.name}{name}" for alias in statement.names for name in (used or [""])]
    return []
