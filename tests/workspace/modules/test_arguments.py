"""Arguments of FSDP's constructor in dicts that another module of the project unpacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.findings import Applicability
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.modules import Modules
from tests.workspace.modules.trees import PUBLIC, codes_of, grow, report_of, rewritten

DICT = "KW = {'fsdp_auto_wrap_policy': policy}\n"
RETURNED = "def get_kwargs():\n    return {'fsdp_auto_wrap_policy': policy}\n"
BUILT = "def get_kwargs():\n    kw = dict(a=1)\n    kw['fsdp_auto_wrap_policy'] = policy\n    return kw\n"


def project(tmp_path: Path, config: str, train: str) -> Path:
    tree = {"lib/__init__.py": "", "lib/config.py": f"from .policies import policy\n\n{config}"}
    return grow(tmp_path, {**tree, "lib/train.py": f"{PUBLIC}{train}"})


@pytest.mark.parametrize(
    ("config", "train"),
    [
        (DICT, "from .config import KW\nm = FSDP(x, **KW)\n"),
        (DICT, "from . import config\nm = FSDP(x, **config.KW)\n"),
        (DICT, "from .config import KW as kw\nm = FSDP(x, **{**kw, 'device_id': 0})\n"),
        (DICT, "from .config import KW\nkw = dict(KW, device_id=0)\nm = FSDP(x, **kw)\n"),
        (DICT, "from .config import KW\nm = FSDP(x, **(KW | other))\n"),
        (DICT, "from functools import partial\nfrom .config import KW\nmake = partial(FSDP, **KW)\n"),
        ("KW = {}\nKW['fsdp_auto_wrap_policy'] = policy\n", "from .config import KW\nm = FSDP(x, **KW)\n"),
        (RETURNED, "from .config import get_kwargs\nm = FSDP(x, **get_kwargs())\n"),
        (RETURNED, "import lib.config\ndef f(x):\n    kw = lib.config.get_kwargs()\n    return FSDP(x, **kw)\n"),
        (BUILT, "from .config import get_kwargs\nm = FSDP(x, **get_kwargs())\n"),
    ],
)
def test_an_old_argument_is_reported_where_its_name_is_written(config: str, train: str, tmp_path: Path) -> None:
    project(tmp_path, config, train)
    (found,) = report_of(tmp_path, "lib/config.py").findings
    assert (found.code, found.applicability) == ("FSDP501", Applicability.MANUAL)
    assert "lib/train.py:" in (found.reason or "")
    assert rewritten(tmp_path, "lib/config.py").raw == (tmp_path / "lib/config.py").read_bytes()


@pytest.mark.parametrize(
    "train",
    [
        "from .config import KW\nm = Other(x, **KW)\n",
        "from .config import KW\nprint(KW)\nm = FSDP(x)\n",
        "from .config import KW\nm = FSDP(x, config=KW)\n",
        "from .config import KW\nm = FSDP(x, **convert(KW))\n",
        "from .other import KW\nm = FSDP(x, **KW)\n",
        "KW = {}\nm = FSDP(x, **KW)\n",
        "import torch\nfrom .config import KW\nif torch.__version__ < '2.0':\n    m = FSDP(x, **KW)\n",
    ],
)
def test_a_dict_that_does_not_get_to_fsdp_is_left_alone(train: str, tmp_path: Path) -> None:
    project(tmp_path, DICT, train)
    assert codes_of(tmp_path, "lib/config.py", ">=2.1") == []


def test_a_strategy_in_another_module_is_reported_there(tmp_path: Path) -> None:
    config = "from torch.distributed.fsdp import ShardingStrategy as S\nKW = dict(sharding_strategy=S.NO_SHARD)\n"
    project(tmp_path, config, "from .config import KW\nm = FSDP(x, **KW)\n")
    assert codes_of(tmp_path, "lib/config.py", ">=2.1") == ["FSDP506"]


@pytest.mark.parametrize("given", ["lib/config.py", "."])
def test_a_file_is_called_by_its_place_seen_from_here_whatever_was_given(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, DICT, "from .config import KW\nm = FSDP(x, **KW)\n")
    monkeypatch.chdir(tmp_path)
    modules = Modules(filesystem.discover([given]).files, [given])
    (found,) = report_of(Path(), "lib/config.py", modules=modules).findings
    assert (found.reason or "").startswith(f"{Path('lib/train.py')}:3 imports it from here")
    modules = Modules(filesystem.discover([str(tmp_path / "lib/config.py")]).files, [])
    (found,) = report_of(tmp_path, "lib/config.py", modules=modules).findings
    assert (found.reason or "").startswith(f"{tmp_path / 'lib/train.py'}:3 imports it from here")


POLICY = "def mine(module, recurse, unwrapped_params):\n    return unwrapped_params > 9\n"


@pytest.mark.parametrize(
    ("train", "applicability"),
    [
        ("from .config import KW\nm = FSDP(x, **KW)\n", Applicability.SAFE),
        ("from .config import mine\nm = FSDP(x, auto_wrap_policy=mine)\n", Applicability.MANUAL),
    ],
)
def test_a_policy_that_another_module_gives_to_fsdp(train: str, applicability: Applicability, tmp_path: Path) -> None:
    config = f"from torch.distributed.fsdp.wrap import wrap\n{POLICY}KW = {{'auto_wrap_policy': mine}}\n"
    project(tmp_path, config, train)
    (found,) = report_of(tmp_path, "lib/config.py").findings
    assert (found.code, found.applicability) == ("FSDP401", applicability)
