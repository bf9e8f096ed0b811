from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.findings import Applicability
from tests.workspace.modules.trees import PUBLIC, SAVE, codes_of, findings_of, grow

WRAPPED = SAVE.replace("FSDP.", "Wrapped.")


@pytest.mark.parametrize(
    "lib",
    [
        f"{PUBLIC}class Wrapped(FSDP):\n    pass\n",
        "import torch.distributed.fsdp as fsdp\nclass Wrapped(fsdp.FullyShardedDataParallel):\n    pass\n",
        f"{PUBLIC}class Base(FSDP):\n    pass\nclass Wrapped(Base):\n    pass\n",
        "from base import Base\nclass Wrapped(Base):\n    pass\n",
        "from torch.distributed.fsdp import *\nclass Wrapped(FullyShardedDataParallel):\n    pass\n",
    ],
)
def test_a_subclass_in_another_module_is_fsdp(lib: str, tmp_path: Path) -> None:
    grow(tmp_path, {"lib.py": lib, "base.py": f"{PUBLIC}class Base(FSDP):\n    pass\n"})
    grow(tmp_path, {"train.py": f"from lib import Wrapped\n{WRAPPED}"})
    assert codes_of(tmp_path, "train.py") == ["FSDP101"]


def test_a_base_that_is_fsdp_on_one_of_two_ways_is_asked_for(tmp_path: Path) -> None:
    base = f"import x\nif x.new:\n    {PUBLIC}    Base = FSDP\nelse:\n    Base = x.other()\n"
    lib = "from base import Base\nclass Wrapped(Base):\n    pass\n"
    grow(tmp_path, {"base.py": base, "lib.py": lib, "train.py": f"from lib import Wrapped\n{WRAPPED}"})
    assert codes_of(tmp_path, "train.py") == ["FSDP101"]


def test_a_subclass_of_a_subclass_elsewhere_is_fsdp(tmp_path: Path) -> None:
    lib = f"{PUBLIC}class Wrapped(FSDP):\n    pass\n"
    text = f"import lib\n\nclass Mine(lib.Wrapped):\n    pass\n\n{SAVE.replace('FSDP.', 'Mine.')}"
    grow(tmp_path, {"lib.py": lib, "train.py": text})
    assert codes_of(tmp_path, "train.py") == ["FSDP101"]


def test_a_method_that_the_class_has_of_its_own_is_left_alone(tmp_path: Path) -> None:
    own = "    @staticmethod\n    def full_optim_state_dict(model, optim): ...\n"
    lib = f"{PUBLIC}class Base(FSDP):\n{own}\nclass Wrapped(Base):\n    pass\n"
    grow(tmp_path, {"lib.py": lib, "train.py": f"from lib import Wrapped\n{WRAPPED}"})
    assert codes_of(tmp_path, "train.py") == []


def test_what_a_class_elsewhere_overrides_keeps_the_call_from_being_rewritten(tmp_path: Path) -> None:
    own = "    @staticmethod\n    def optim_state_dict(model, optim): ...\n"
    grow(tmp_path, {"lib.py": f"{PUBLIC}class Wrapped(FSDP):\n{own}"})
    grow(tmp_path, {"train.py": f"from lib import Wrapped\n{WRAPPED}"})
    (finding,) = findings_of(tmp_path, "train.py")
    assert finding.applicability is Applicability.MANUAL
    assert "`Wrapped` defines its own `optim_state_dict`" in (finding.reason or "")


def test_a_model_built_from_a_subclass_elsewhere_is_an_instance(tmp_path: Path) -> None:
    lib = f"{PUBLIC}class Wrapped(FSDP):\n    pass\n"
    text = "from lib import Wrapped\n\ndef save(net, optim):\n    model = Wrapped(net)\n"
    grow(tmp_path, {"lib.py": lib, "train.py": f"{text}    return model.full_optim_state_dict(model, optim)\n"})
    assert codes_of(tmp_path, "train.py") == ["FSDP101"]


def test_an_attribute_that_the_class_gives_its_objects_is_not_that_of_fsdp(tmp_path: Path) -> None:
    body = "    def __init__(self, net, kind):\n        self.state_dict_type = kind\n        super().__init__(net)\n"
    grow(tmp_path, {"lib.py": f"{PUBLIC}class Wrapped(FSDP):\n{body}"})
    text = "from lib import Wrapped\n\ndef kind(model: Wrapped, full):\n    return model.state_dict_type == full\n"
    grow(tmp_path, {"train.py": text})
    assert codes_of(tmp_path, "train.py") == []


def test_other_classes_are_not_fsdp(tmp_path: Path) -> None:
    lib = f"{PUBLIC}from torch import nn\nclass Wrapped(nn.Module):\n    pass\n"
    grow(tmp_path, {"lib.py": lib, "train.py": f"{PUBLIC}from lib import Wrapped\n{WRAPPED}"})
    assert codes_of(tmp_path, "train.py") == []


@pytest.mark.parametrize(
    ("lib", "mixins"),
    [
        (f"{PUBLIC}class Mixin:\n{{own}}\nclass Wrapped(Mixin, FSDP):\n    pass\n", ""),
        (f"{PUBLIC}from mixins import Mixin\n\nclass Wrapped(Mixin, FSDP):\n    pass\n", "class Mixin:\n{own}"),
        (f"{PUBLIC}import mixins\n\nclass Wrapped(mixins.Mixin, FSDP):\n    pass\n", "class Mixin:\n{own}"),
        (f"{PUBLIC}from again import Mixin\n\nclass Wrapped(Mixin, FSDP):\n    pass\n", "class Mixin:\n{own}"),
        (f"{PUBLIC}from again import Sub\n\nclass Wrapped(Sub, FSDP):\n    pass\n", "class Mixin:\n{own}"),
    ],
)
@pytest.mark.parametrize("name", ["full_optim_state_dict", "state_dict_type"])
def test_what_comes_from_another_base_is_not_that_of_fsdp(lib: str, mixins: str, name: str, tmp_path: Path) -> None:
    own = f"    @staticmethod\n    def {name}(*args): ...\n"
    again = "from mixins import Mixin\nimport again\n\nclass Sub(Mixin, again.Sub):\n    pass\n"
    grow(tmp_path, {"lib.py": lib.format(own=own), "mixins.py": mixins.format(own=own), "again.py": again})
    grow(tmp_path, {"train.py": f"from lib import Wrapped\n{WRAPPED}"})
    reasons = [finding.reason or "" for finding in findings_of(tmp_path, "train.py")]
    own_type = "`Wrapped` defines its own `state_dict_type`: call the method on FSDP itself"
    assert reasons == ([own_type] if name == "state_dict_type" else [])
