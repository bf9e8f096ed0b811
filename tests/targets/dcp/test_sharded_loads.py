"""`load_sharded_optimizer_state_dict` in a block."""

from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability
from tests.targets.dcp.programs import IMPORTS, block, only, rewritten

SHARDED = "StateDictType.SHARDED_STATE_DICT"
DCP = "import torch.distributed.checkpoint as dist_cp\n"
LOADER = "from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict\n"
READ = 'found = load_sharded_optimizer_state_dict({}, "optim", dist_cp.FileSystemReader(path){})\n'
LOAD = 'optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, found["optim"]))\n'


def program(read: str, load: str = LOAD, imports: str = DCP) -> str:
    return imports + LOADER + block(SHARDED, f"weights = model.state_dict()\n{read}{load}")


@pytest.mark.parametrize("weights", ["weights", "model.state_dict()"])
@pytest.mark.parametrize("planner", ["", ", dist_cp.DefaultLoadPlanner()"])
def test_a_template_that_load_fills_takes_its_place(weights: str, planner: str) -> None:
    text = program(READ.format(weights, planner))
    finding = only(text)
    assert finding.applicability is Applicability.UNSAFE
    assert "`planner=DefaultLoadPlanner(allow_partial_load=True)`, which accepts every missing key" in (
        finding.reason or ""
    )
    after = rewritten(text, unsafe=True)
    given = planner.replace(", ", ", planner=")
    assert (
        after.partition("get_model_state_dict(model)\n")[2]
        == f"""\
    found = {{"optim": get_optimizer_state_dict(model, optimizer)}}
    dist_cp.load(found, storage_reader=dist_cp.FileSystemReader(path){given})
    set_optimizer_state_dict(model, optimizer, optim_state_dict=found["optim"])
"""
    )
    assert "load_sharded_optimizer_state_dict" not in after


def test_a_state_that_is_loaded_directly_comes_in_the_same_way() -> None:
    directly = 'FSDP.optim_state_dict_to_load(model, optimizer, found["optim"], load_directly=True)\n'
    after = rewritten(program(READ.format("weights", ""), directly), unsafe=True)
    assert after.endswith('    set_optimizer_state_dict(model, optimizer, optim_state_dict=found["optim"])\n')
    assert "    dist_cp.load(found, " in after


def test_the_package_is_imported_where_it_has_no_name() -> None:
    imports = "from torch.distributed.checkpoint import FileSystemReader\n"
    text = program(READ.format("weights", "").replace("dist_cp.", ""), imports=imports)
    assert "    dist.checkpoint.load(found, storage_reader=FileSystemReader(path))\n" in rewritten(text, unsafe=True)
    after = rewritten(text.replace("import torch.distributed as dist\n", ""), unsafe=True)
    assert "from torch.distributed import checkpoint\n" in after
    assert "    checkpoint.load(found, storage_reader=FileSystemReader(path))\n" in after


@pytest.mark.parametrize(
    ("read", "load"),
    [
        (READ.format("weights", ""), f"print(found)\n{LOAD}"),
        (READ.format("weights", "").replace('"optim"', "path"), LOAD),
        (READ.format("fetch(weights)", ""), LOAD),
        (READ.format("weights", ", *rank"), LOAD),
        (READ.format("weights", ""), "optimizer = make(optimizer)\n" + LOAD),
    ],
)
def test_where_it_does_more_it_stays_and_what_it_gives_is_loaded(read: str, load: str) -> None:
    after = rewritten(program(read, load), unsafe=True)
    assert "= load_sharded_optimizer_state_dict(" in after
    assert 'set_optimizer_state_dict(model, optimizer, optim_state_dict=found["optim"])' in after
    assert "get_optimizer_state_dict" not in after


def test_what_is_read_in_another_function_stays() -> None:
    read = f"def read(weights, path):\n    return {READ.partition(' = ')[2].format('weights', '')}\n\n"
    load = LOAD.replace('found["optim"]', 'read(weights, path)["optim"]')
    text = DCP + LOADER + block(SHARDED, f"weights = model.state_dict()\n{load}").replace(IMPORTS, IMPORTS + read)
    after = rewritten(text, unsafe=True)
    assert "optim_state_dict=read(weights, path)" in after
    assert "get_optimizer_state_dict" not in after
