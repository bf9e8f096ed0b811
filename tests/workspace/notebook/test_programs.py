from __future__ import annotations

import gc
import weakref

import pytest

from fsdp_migrate.findings import Applicability
from fsdp_migrate.fingerprints import numbered
from fsdp_migrate.planning.noqa import with_noqa
from fsdp_migrate.workspace.reading import read_source

from .build import IMPORT, NEW, OLD, found, linted, notebook, rewritten, sources
from .test_rewriting import CALL, WITH

USE = f"def f(model, optim, osd):\n    return {OLD}\n"
PLACE = ("FSDP107", 2, 4, 12)


@pytest.mark.parametrize(
    "magic",
    [
        *("%%writefile train.py", "%%file train.py", "%%writefile -a train.py", "%%writefile --append a/train.py"),
        *("%%writefile 'my train.py'", "%%file train.pyi", "%%writefile train.py -a", "%%file\ttrain.py "),
    ],
)
def test_a_python_file_that_a_cell_writes_is_checked_and_rewritten(magic: str) -> None:
    raw = notebook("x = 1", f"{magic}\n{IMPORT}{USE}", "!torchrun train.py")
    assert found(raw) == [PLACE]
    assert rewritten(raw).raw == raw.replace(OLD.encode(), NEW.encode())


def test_its_names_are_its_own() -> None:
    assert found(notebook(IMPORT, f"%%writefile a.py\n{USE}")) == []
    assert found(notebook(f"%%writefile a.py\n{IMPORT}", USE)) == []
    assert found(notebook(f"%%writefile a.py\n{IMPORT}", f"%%writefile b.py\n{USE}")) == []
    assert found(notebook(f"%%writefile a.py\n{IMPORT}", f"%%writefile a.py\n{USE}")) == []


def test_cells_that_add_to_a_file_are_one_module_with_it() -> None:
    whole = f"x = [\n{OLD},\n"
    raw = notebook(f"%%file a.py\n{IMPORT}", "y = 1", f"%%writefile -a ./a.py\n{whole}", "%%file -a a.py\n1]\nprint(x)")
    assert found(raw) == [("FSDP107", 3, 3, 1)]
    assert rewritten(raw).raw == raw.replace(OLD.encode(), NEW.encode())


def test_imports_and_blocks_go_into_the_cells_of_the_file() -> None:
    before = f"%%writefile a.py\n{IMPORT}\n{CALL}"
    after = sources(rewritten(notebook(IMPORT + CALL, before, f"%%file -a a.py\n{CALL}\nprint(osd)")).raw)
    names = ("FullOptimStateDictConfig", "FullyShardedDataParallel as FSDP", "StateDictType")
    imports = f"from torch.distributed.fsdp import (\n{''.join(f'    {name},{chr(10)}' for name in names)})\n"
    # The value of the first cell's last line is assigned, so nothing is shown below it.
    assert after == [
        f"{imports}{WITH}",
        f"%%writefile a.py\n{imports}\n{WITH}",
        f"%%file -a a.py\n{WITH}\nprint(osd)",
    ]


def test_no_value_is_shown_below_a_cell_that_writes_a_file() -> None:
    value = CALL.removeprefix("osd = ")
    shown, written = linted(notebook(f"{IMPORT}{value}", f"%%writefile a.py\n{IMPORT}{value}")).findings
    assert (shown.applicability, written.applicability) == (Applicability.UNSAFE, Applicability.SAFE)


def test_a_file_that_does_not_parse_is_reported_if_it_holds_names_of_fsdp() -> None:
    raw = notebook(f"{IMPORT}{USE}", f"%%writefile a.py\n{IMPORT}if x\n")
    (finding, broken) = linted(raw).findings
    assert (broken.code, broken.cell, broken.line, broken.column) == ("FSDP001", 2, 3, 5)
    assert finding.reason == "cell 2 does not parse: fix it first"
    assert rewritten(raw).raw == raw
    raw = notebook(f"{IMPORT}{USE}", "%%writefile a.py\nif x\n")
    assert rewritten(raw).raw == raw.replace(OLD.encode(), NEW.encode())


def test_magics_inside_a_file_are_no_magics() -> None:
    (broken,) = linted(notebook(f"%%writefile a.py\n{IMPORT}!ls")).findings
    assert (broken.code, broken.line) == ("FSDP001", 3)


def test_comments_of_a_file_silence_what_is_in_it() -> None:
    use = f"{IMPORT}{USE}"
    report = linted(notebook(f"%%writefile a.py\n# fsdp-migrate: ignore-file\n{use}", use))
    assert ([finding.cell for finding in report.findings], report.suppressed) == ([2], 1)
    raw = notebook(use, f"%%writefile a.py\n{use}")
    silent = with_noqa(raw, linted(raw).findings)
    assert sources(silent) == [source.replace(OLD, f"{OLD}  # noqa: FSDP107") for source in sources(raw)]
    assert (linted(silent).findings, linted(silent).suppressed) == ((), 2)


def test_keys_of_findings_come_from_the_text_of_their_file() -> None:
    raw = notebook(f"%%writefile a.py\n{IMPORT}{USE}", f"%%writefile b.py\n{IMPORT}x = {OLD}\n")
    keys = [entry.key for entry in numbered(linted(raw).findings, read_source(raw, "a.ipynb"))]
    moved = notebook("x = 1", f"%%writefile c.py\n\n{IMPORT}{USE}")
    assert len(set(keys)) == 2
    assert [entry.key for entry in numbered(linted(moved).findings, read_source(moved, "a.ipynb"))] == keys[:1]


def test_what_was_read_of_a_notebook_goes_without_looking_for_garbage() -> None:
    source = read_source(notebook(f"%%writefile a.py\n{IMPORT}{USE}"), "a.ipynb")
    here, written = map(weakref.ref, source.modules)
    assert source.module_at(30) is written()
    gc.disable()
    try:
        del source
        assert (here(), written()) == (None, None)
    finally:
        gc.enable()
