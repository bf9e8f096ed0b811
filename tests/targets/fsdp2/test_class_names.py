"""No name of FSDP1's class is left in the modules of a model that is converted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.fsdp2.programs import plan
from tests.targets.fsdp2.rewritten import models_of, rewritten

HEAD = "import torch.nn as nn\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
NEW = "import torch.nn as nn\nfrom torch.distributed.fsdp import fully_shard\n"
BUILT = "model = FSDP(nn.Linear(1, 1), use_orig_params=True)\n"
SHARDED = "model = fully_shard(nn.Linear(1, 1))\nmodel.set_reduce_scatter_unused_params(True)"


def becomes(root: Path, before: str) -> str:
    return rewritten(root, {"main.py": before})["main.py"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "def f(m: FSDP) -> FSDP:\n    return m.eval()\nf(model)\n",
            "def f(m: nn.Module) -> nn.Module:\n    return m.eval()\nf(model)\n",
        ),
        (
            "def f(m: 'FSDP | None'):\n    m.eval()\nf(model)\n",
            "def f(m: 'nn.Module | None'):\n    m.eval()\nf(model)\n",
        ),
        (
            "from typing import Union\nModel = Union[FSDP, None]\n",
            "from typing import Union\nModel = Union[nn.Module, None]\n",
        ),
        (
            "from typing import cast\ncast(FSDP, model).eval()\n",
            "from typing import cast\ncast(nn.Module, model).eval()\n",
        ),
        (
            "def f(m: list[FSDP]):\n    m[0].eval()\nf([model])\n",
            "def f(m: list[nn.Module]):\n    m[0].eval()\nf([model])\n",
        ),
    ],
)
def test_annotations_say_module(tmp_path: Path, before: str, after: str) -> None:
    text = becomes(tmp_path, HEAD + BUILT + before)
    assert "FullyShardedDataParallel" not in text
    assert text.endswith(after)


def test_an_import_for_type_checking_goes(tmp_path: Path) -> None:
    tree = {
        "main.py": HEAD + "from tools import freeze\n" + BUILT + "freeze(model)\n",
        "tools.py": """\
            from typing import TYPE_CHECKING

            import torch.nn as nn

            if TYPE_CHECKING:
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
                from torch import Tensor


            def freeze(model: "FSDP", x: "Tensor" = None) -> None:
                model.eval()
            """,
    }
    text = rewritten(tmp_path, tree)["tools.py"]
    assert "FSDP" not in text
    assert 'model: "nn.Module"' in text
    assert "from torch import Tensor" in text


def test_unused_imports_go(tmp_path: Path) -> None:
    head = HEAD + "from torch.distributed.fsdp import BackwardPrefetch, MixedPrecision\n"
    head += "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n"
    assert becomes(tmp_path, head + BUILT).startswith(NEW + "model = ")


def test_an_unused_import_takes_its_comment_along(tmp_path: Path) -> None:
    head = HEAD + "from torch.distributed.fsdp import (\n    LocalStateDictConfig,  # flat\n    ShardingStrategy,\n)\n"
    text = becomes(tmp_path, head + BUILT + "print(ShardingStrategy)\n")
    assert "# flat" not in text
    assert "ShardingStrategy,\n" in text


def test_a_test_of_another_object(tmp_path: Path) -> None:
    before = HEAD + BUILT + "def check(m):\n    return isinstance(m, (nn.Linear, FSDP))\n"
    assert becomes(tmp_path, before).endswith("    return isinstance(m, (nn.Linear, FSDPModule))\n")


def test_a_test_whether_it_could_be_imported(tmp_path: Path) -> None:
    imports = HEAD.replace("from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n", "")
    imports += "try:\n    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    before = imports + "except ImportError:\n    FSDP = None\n" + BUILT + "if FSDP is not None:\n    print(model)\n"
    assert becomes(tmp_path, before).endswith("if FSDPModule is not None:\n    print(model)\n")


@pytest.mark.parametrize(
    "use",
    [
        "FSDP is other",
        "FSDP.set_state_dict_type(other, x)",
        "wrap = functools.partial(FSDP, device_id=0)",
        "kinds = [FSDP]",
    ],
)
def test_another_use_of_the_class_is_a_wall(tmp_path: Path, use: str) -> None:
    (model,) = models_of(tmp_path, {"main.py": f"import functools\n{HEAD}{BUILT}{use}\n"})
    assert [wall.reason.partition(" in ")[0] for wall in model.conversion.walls] == ["FSDP1's class is used"]


def test_the_names_of_other_models_stay(tmp_path: Path) -> None:
    text = HEAD + BUILT + "other = FSDP(nn.Linear(1, 1))\nother._handle.reshard(True)\ndef f(m: FSDP): ...\n"
    first, second = models_of(tmp_path, {"main.py": text})
    assert first.conversion.walls == []
    assert second.conversion.walls != []


def test_a_function_that_nothing_calls_is_converted_along(tmp_path: Path) -> None:
    before = HEAD + BUILT + "def units(m):\n    return len(list(FSDP.fsdp_modules(m)))\n"
    text = becomes(tmp_path, before)
    assert "FullyShardedDataParallel" not in text
    assert "isinstance(module, FSDPModule)" in text


def test_a_function_that_nothing_calls_stops_nothing(tmp_path: Path) -> None:
    function = "def old(m):\n    FSDP.rekey_optim_state_dict(m, x, y)\n    return FSDP.get_state_dict_type(m)\n"
    text = becomes(tmp_path, HEAD + BUILT + function)
    assert text.endswith(function)
    assert "fully_shard(model)" in text


def notes(root: Path, program: str) -> list[str]:
    (model,) = models_of(root, {"main.py": HEAD + program})
    assert model.conversion.walls == []
    return [f"{one.node.lineno}: {one.what.partition(' FSDP1')[0]}" for one in model.conversion.notes]  # type: ignore[attr-defined]


def test_what_keeps_a_name_of_fsdp1_is_noted(tmp_path: Path) -> None:
    function = "def old(m):\n    FSDP.rekey_optim_state_dict(m, x, y)\n    return FSDP.get_state_dict_type(m)\n"
    left = "functions that nothing calls keep"
    assert notes(tmp_path, BUILT + function) == [f"5: {left}", f"6: {left}"]


@pytest.mark.parametrize(
    "kept",
    [
        "from torch.distributed.fsdp import StateDictType  # noqa: F401\n",
        "try:\n    from torch.distributed.fsdp import StateDictType\nexcept ImportError:\n    pass\n",
        "from torch.distributed.fsdp import (\n    StateDictType,  # noqa: F401\n)\n",
    ],
)
def test_an_import_that_is_kept_is_noted(tmp_path: Path, kept: str) -> None:
    line = 4 if kept.startswith("try") else 3
    assert notes(tmp_path, kept + BUILT) == [f"{line}: imports of"]


def test_a_star_import_is_noted(tmp_path: Path) -> None:
    assert notes(tmp_path, f"from torch.distributed.fsdp import *\n{BUILT}") == ["3: a star import still brings"]


def test_nothing_is_noted_of_what_goes_or_is_of_use(tmp_path: Path) -> None:
    uses = "from torch.distributed.fsdp import MixedPrecision, ShardingStrategy\nprint(ShardingStrategy)\n"
    assert notes(tmp_path, f"{uses}{BUILT}def units(m):\n    return len(list(FSDP.fsdp_modules(m)))\n") == []


ALIAS = """\
Sharded = FSDP


class Keeper:
    def __init__(self, model: Sharded):
        self.model = model

    def units(self):
        return Sharded.fsdp_modules(self.model)


"""


@pytest.mark.parametrize("wrap", ["FSDP", "Sharded"])
def test_another_name_of_the_class_goes_with_its_uses(tmp_path: Path, wrap: str) -> None:
    text = becomes(tmp_path, f"{HEAD}{ALIAS}{BUILT.replace('FSDP', wrap)}Keeper(model).units()\n")
    assert "Sharded" not in text
    assert "FullyShardedDataParallel" not in text
    assert "def __init__(self, model: nn.Module):" in text


def test_models_of_one_file_leave_no_name_together(tmp_path: Path) -> None:
    two = BUILT + BUILT.replace("model", "other").replace("FSDP", "Sharded")
    text = plan(tmp_path, f"{HEAD}{ALIAS}{two}Keeper(model).units()\nother.eval()\n").texts["train.py"]
    assert "Sharded" not in text
    assert "FullyShardedDataParallel" not in text


def test_a_name_that_other_files_import_stays(tmp_path: Path) -> None:
    tree = {
        "main.py": f"{HEAD}Sharded = FSDP\nimport tools\n{BUILT}tools.show(model)\n",
        "tools.py": "def show(model):\n    from main import Sharded\n\n    print(isinstance(model, Sharded))\n",
    }
    assert [model.conversion.walls != [] for model in models_of(tmp_path, tree)] == [True]
