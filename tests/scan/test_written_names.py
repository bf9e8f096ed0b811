from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.rules.index import ENTRIES
from fsdp_migrate.scan.names import listed
from fsdp_migrate.scan.written_names import Vocabulary, closing
from fsdp_migrate.screen import Screen

GONE = Vocabulary(listed(["torch.distributed.fsdp.flat_param", "torch.distributed.reduce_all", "FSDP.old_method"]))


@pytest.mark.parametrize(
    "text",
    [
        "from torch.distributed.fsdp.flat_param import X",
        "from torch.distributed.fsdp import flat_param",
        "from torch.distributed.fsdp import (\n    a,  # not (this) one\n    flat_param as m,\n)",
        "from torch.distributed.fsdp import (a, b)\nfrom torch.distributed import (  # )\n    reduce_all,\n)",
        "from torch.distributed import a, \\\n    reduce_all",
        "from torch . distributed import reduce_all",
        "import os, torch.distributed.fsdp.flat_param as m, sys",
        "import torch.distributed.fsdp.flat_param",
        "import torch\ntorch.distributed.reduce_all(x)",
        "import torch\ntorch.distributed \\\n    .reduce_all(x)",
        "import torch\n(torch\n .distributed\n .reduce_all)",
        "import torch.distributed as dist\ndist.reduce_all(x)",
        "import torch.distributed as dist\ngetattr(dist, 'reduce_all')(x)",
        "import torch.distributed as dist\nvars(dist)['reduce_all'](x)",
        "import torch.distributed as dist\nvars(dist) [ # all\n'reduce_all'](x)",
        "import torch.distributed as dist\ndist.__dict__['reduce_all'](x)",
        "import torch.distributed as dist\ndist['reduce_all'](x)",
        'import torch\ngetattr(\n    torch.distributed,  # here\n    "reduce_all",\n)',
        "from torch import distributed as dist\ndist.reduce_all(x)",
        "from torch import distributed\nx = [distributed.reduce_all]",
        "import torch\ndist = torch.distributed\nother = dist\nother.reduce_all(x)",
        "import torch\ndist: object = torch.distributed\ndist.reduce_all(x)",
        "import torch\na = b = torch.distributed\na.reduce_all(x)",
        "import torch\nif (d := torch.distributed):\n    d.reduce_all(x)",
        "import torch\n# ends with torch.\ntorch.distributed.reduce_all(x)",
        "from torch.distributed.fsdp import FSDP as F\nF.old_method(x)",
        "from torch.anywhere import FSDP\nclass A:\n    f = FSDP.old_method",
        "patch('torch.distributed.reduce_all')",
        "from torch.distributed import reduce_all\r\nx = 1\r\n",
    ],
)
def test_a_file_that_writes_a_name_is_taken_for_one(text: str) -> None:
    assert GONE.is_written(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "from torch.distributed.fsdp import FullyShardedDataParallel",
        "import torch\nflat_param = torch.distributed.fsdp\nx.flat_param",
        "import torch.distributed as dist\nself.reduce_all(dist)",
        "import torch.distributed as dist\nredist.reduce_all(x)",
        "import torch.distributed as dist\nx.dist.reduce_all(x)",
        "from mytorch.distributed import reduce_all",
        "from torch.distributed import reduce_all_of_it",
        "from .torch.distributed import reduce_all",
        "from torch.distributed.fsdp import FSDP\nmodel.old_method()",
        "old_method = reduce_all = flat_param",
        "",
    ],
)
def test_a_file_that_only_uses_the_same_words_is_not(text: str) -> None:
    assert not GONE.is_written(text.encode())


CALLED = Vocabulary(listed(["torch.distributed.tensor.Mesh(dim,old", "Mesh.size(dim"]), ("Mesh",))
MESH = "from torch.distributed.tensor import Mesh as M\n"


@pytest.mark.parametrize(
    "use",
    [
        "M(dim=1)",
        "(M\n  # here\n  (x, dim=1))",
        "make = M\nmake(dim=1)",
        "make = M if dim else None",
        "make = (\n    None\n    if dim\n    else M\n)",
        "make = other or M\nmake(dim=1)",
        "partial(M, dim=1)",
        "partial(\n    # all\n    M,\n    dim=1)",
        "import torch\ngetattr(torch.distributed.tensor, 'Mesh')(dim=1)",
        "M.size(x, dim=1)",
        "def f(x: M):\n    return x.size(dim=1)",
        "def f(x: M):\n    return x.size(**dim)",
        "def f(x: M):\n    return x.size(')', dim=1)",
    ],
)
def test_a_name_that_counts_where_it_is_called_is_found_where_it_may_be(use: str) -> None:
    assert CALLED.is_written(f"{MESH}{use}\n".encode())


@pytest.mark.parametrize(
    "use",
    [
        "M(1)",
        "isinstance(dim, M)",
        "def f(x: M, dim=1) -> M: ...",
        "old = M.other(dim=1)",
        "def f(x: M):\n    return x.size(1), x.size(len(2))[0:dim]",
        "def f(x: M, y):\n    return x.size(), y(dim=1)",
    ],
)
def test_a_name_that_counts_where_it_is_called_is_not_found_elsewhere(use: str) -> None:
    assert not CALLED.is_written(f"{MESH}{use}\n".encode())


def test_no_names_are_never_written() -> None:
    assert not Vocabulary(listed([])).is_written(b"import torch\ntorch.distributed.barrier()")


def test_a_chain_of_names_that_stand_for_themselves_comes_to_an_end() -> None:
    assert not GONE.is_written(b"import torch\nx = torch.distributed\nx = x.fsdp\nx = x.fsdp.x\n" * 50)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("from torch.distributed.fsdp import fully_shard", True),
        ("from torch.distributed import checkpoint as dcp\ndcp.save(x)", True),
        ("import torch.distributed as dist\ndist.all_reduce(x)\ndist.get_rank()", False),
        ("import torch.distributed as dist\nlogger.save(fully_shard, checkpoint)", False),
        ("import torch\ntorch.amp.is_autocast_available('cpu')", False),
        ("import torch.distributed\ntorch.amp.is_autocast_available('cpu')", True),
        ("from torch.distributed._tensor import DTensor", True),
    ],
)
def test_a_file_is_looked_at_for_names_of_torch_that_changed_and_no_others(text: str, passes: bool) -> None:
    rules = tuple(entry for entry in ENTRIES if entry.names != ())
    assert Screen(rules).passes(text.encode()) is passes


def test_what_the_screen_lets_pass_of_this_package_is_little() -> None:
    package = Path(__file__).parents[2] / "fsdp_migrate" / "rewrite"
    assert not any(GONE.is_written(path.read_bytes()) for path in package.glob("*.py"))


@pytest.mark.parametrize("row", ["#" * 5000, "# " * 5000, "\\ " * 5000, "#\n" * 5000])
def test_rows_of_number_signs_behind_a_name_are_passed_over_in_no_time(row: str) -> None:
    assert not GONE.is_written(f"import torch.distributed as dist\nx = dist  {row}\n".encode())
    assert GONE.is_written(f"import torch.distributed as dist\ngetattr(dist  {row}\n,  {row}\n'reduce_all')\n".encode())


def test_many_imports_that_stay_open_take_no_more_than_their_length() -> None:
    opened = b"from torch.x import (\n"
    assert closing(opened * 50, len(opened)) == len(opened) * 50
    found = [len(range(start, closing(opened * 2000, start))) for start in range(0, len(opened) * 2000, len(opened))]
    assert max(found) == 2000
