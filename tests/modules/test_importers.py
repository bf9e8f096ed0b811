from __future__ import annotations

from pathlib import Path

import pytest

from tests.modules.trees import PUBLIC, grow, report_of, rewritten

LOAD = f"""\
{PUBLIC}
def load(model, osd):
    return FSDP.scatter_full_optim_state_dict(osd, model)
"""
MAIN = "from ckpt import load\n\ndef main(model, optimizer, osd):\n    optimizer.load_state_dict(load(model, osd))\n"


def reason(tmp_path: Path, tree: dict[str, str]) -> str:
    grow(tmp_path, {"ckpt.py": LOAD, **tree})
    (finding,) = report_of(tmp_path, "ckpt.py").findings
    assert finding.code == "FSDP104"
    return finding.reason or ""


def test_callers_that_have_an_optimizer_are_named_with_the_parameter_to_add(tmp_path: Path) -> None:
    text = "import ckpt\n\nclass Trainer:\n    def resume(self, osd):\n        x = ckpt.load(self.model, osd)\n"
    tree = {"a.py": MAIN, "b.py": f"{text}        self.optim.load_state_dict(x)\n"}
    found = reason(tmp_path, tree)
    assert "add a parameter `optimizer`" in found
    assert f"`optimizer` in `main` ({tmp_path / 'a.py'}:4)" in found
    assert f"`self.optim` in `resume` ({tmp_path / 'b.py'}:5)" in found


def test_an_optimizer_that_every_caller_passes_is_named(tmp_path: Path) -> None:
    load = LOAD.replace("(model, osd):", "(model, osd, o):")
    head = "import torch\nfrom ckpt import load\n\ndef main(model, osd):\n"
    body = "    mine = torch.optim.AdamW(model.parameters())\n    load(model, osd, o=mine)\n"
    grow(tmp_path, {"a.py": head + body})
    assert "every caller of `load` passes an optimizer as `o`" in reason(tmp_path, {"ckpt.py": load})


def test_callers_in_the_same_file_count(tmp_path: Path) -> None:
    own = "\ndef main(model, opt, osd):\n    opt.load_state_dict(load(model, osd))\n"
    assert "pass `opt` in `main` (ckpt.py:7)" in reason(tmp_path, {"ckpt.py": LOAD + own})


@pytest.mark.parametrize(
    "other",
    [
        "from ckpt import load\n\ndef other(model, osd):\n    return load(model, osd)\n",
        "from ckpt import load\n\nLOADERS = {'full': load}\n",
        "from ckpt import load\n\ndef two(model, optimizer, gen_optimizer, osd):\n    return load(model, osd)\n",
    ],
)
def test_nothing_is_said_of_callers_unless_each_has_one_optimizer(other: str, tmp_path: Path) -> None:
    assert "parameter" not in reason(tmp_path, {"a.py": MAIN, "b.py": other})


def test_a_function_of_that_name_elsewhere_is_no_caller(tmp_path: Path) -> None:
    other = "from pickle import load\n\ndef other(path):\n    return load(path)\n"
    assert "add a parameter `optimizer`" in reason(tmp_path, {"a.py": MAIN, "b.py": other})


def test_a_facade_leads_to_callers(tmp_path: Path) -> None:
    tree = {"api/__init__.py": "from ckpt import load\n", "a.py": MAIN.replace("from ckpt", "from api")}
    assert "`optimizer` in `main`" in reason(tmp_path, tree)


def test_a_report_says_that_it_asked_who_imports_the_file(tmp_path: Path) -> None:
    grow(tmp_path, {"ckpt.py": LOAD, "a.py": MAIN})
    assert report_of(tmp_path, "ckpt.py").asked_all
    assert not report_of(tmp_path, "a.py").asked_all


@pytest.mark.parametrize(
    "line",
    [
        "from lib import FlatParameter",
        "from lib import *",
        "import lib\nlib.FlatParameter",
        "from .lib import FlatParameter",
        "import lib\n\ndef test(monkeypatch):\n    monkeypatch.setattr(lib, 'FlatParameter', Fake)",
        'import lib\nmock.patch.object(lib, "FlatParameter", Fake)',
        "def test(monkeypatch):\n    monkeypatch.setattr('lib.FlatParameter', Fake)",
        'mock.patch("lib.FlatParameter", Fake)',
    ],
)
def test_an_import_that_another_module_takes_stays(line: str, tmp_path: Path) -> None:
    text = "from torch.distributed.fsdp import FlatParameter\n\ndef flat(ps):\n    return {}\n"
    grow(tmp_path, {"lib.py": text.format("any(isinstance(p, FlatParameter) for p in ps)")})
    assert b"import FlatParameter" not in rewritten(tmp_path, "lib.py").raw
    grow(tmp_path, {"other.py": "mock.patch('library.FlatParameter')\nx.FlatParameter\n'lib.FlatParameters'\n"})
    assert b"import FlatParameter" not in rewritten(tmp_path, "lib.py").raw
    grow(tmp_path, {"user.py": f"{line}\n"})
    assert b"import FlatParameter" in rewritten(tmp_path, "lib.py").raw
