from __future__ import annotations

import pytest
from packaging.version import Version

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import RELEASES, TorchRange
from fsdp_migrate.torch_api.data import exists
from fsdp_migrate.workspace.settings import Settings
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

PACKAGE = "torch.distributed.fsdp"
PUBLIC = f"from {PACKAGE} import FlatParameter"
PAIR = """\
try:
    from torch.distributed.fsdp._flat_param import {0}
except ImportError:
    from torch.distributed.fsdp.flat_param import {0}
"""
USE = "\n\ndef f(p: FlatParameter):\n    return p\n"


@pytest.mark.parametrize(
    "name", ["FlatParamHandle", "HandleShardingStrategy", "HandleTrainingState", "ParamInfo", "SharedParamInfo"]
)
def test_companions_are_in_one_of_two_modules_and_flat_parameter_in_the_package(name: str) -> None:
    for release in RELEASES:
        if release >= Version("1.13"):
            assert any(exists(f"{PACKAGE}.{module}.{name}", release) for module in ("_flat_param", "flat_param"))
        assert exists(f"{PACKAGE}.FlatParameter", release) is (release >= Version("1.12"))


@pytest.mark.parametrize("module", ["flat_param", "flatten_params_wrapper", "_flat_param"])
def test_flat_parameter_comes_from_the_package(module: str) -> None:
    for before, after in (
        (f"from {PACKAGE}.{module} import FlatParameter", PUBLIC),
        (f"from {PACKAGE}.{module} import FlatParameter as FP", f"{PUBLIC} as FP"),
        (f"from {PACKAGE}.{module} import FlatParameter  # the class", f"{PUBLIC}  # the class"),
        (
            f"from {PACKAGE}.{module} import (\n    FlatParameter,  # the class\n)",
            f"from {PACKAGE} import (\n    FlatParameter,  # the class\n)",
        ),
        (f"import os; from {PACKAGE}.{module} import FlatParameter", f"import os; {PUBLIC}"),
        (f"from {PACKAGE}.{module} \\\n    import FlatParameter", f"{PUBLIC}"),
        (f"if ok:\n    from {PACKAGE}.{module} import FlatParameter", f"if ok:\n    {PUBLIC}"),
        (f"if TYPE_CHECKING:\n    from {PACKAGE}.{module} import FlatParameter", f"if TYPE_CHECKING:\n    {PUBLIC}"),
        (f"def g():\n\tfrom {PACKAGE}.{module} import FlatParameter", f"def g():\n\t{PUBLIC}"),
    ):
        text = "from typing import TYPE_CHECKING\n{}" + USE
        check_transformed(text.format(before), text.format(after), "FSDP303")
        (finding,) = lint(text.format(before), "FSDP303")
        seen = Severity.HINT if "if TYPE_CHECKING" in before else Severity.BREAKS
        assert (finding.severity, finding.applicability) == (seen, Applicability.SAFE)
        assert f"{PACKAGE}.{module}" in finding.message


@pytest.mark.parametrize(
    ("module", "torch"), [("_optim_utils", ">=2.1"), ("_flat_param", ">=2.2"), ("flat_param", ">=1.13,<2.2")]
)
def test_a_private_module_that_every_release_has_is_a_hint(module: str, torch: str) -> None:
    text = f"from {PACKAGE}.{module} import FlatParameter{USE}"
    (finding,) = lint(text, "FSDP303", torch)
    assert finding.severity is Severity.HINT
    assert "is an alias of" in finding.message
    check_transformed(text, PUBLIC + USE, "FSDP303", torch=torch)


@pytest.mark.parametrize(
    ("before", "after", "torch"),
    [
        ("from torch.distributed.fsdp.flat_param import FlatParamHandle\n", PAIR.format("FlatParamHandle"), ">=2.1"),
        ("from torch.distributed.fsdp.flat_param import ParamInfo as P\n", PAIR.format("ParamInfo as P"), ">=2.1"),
        ("from torch.distributed.fsdp._flat_param import ParamInfo\n", PAIR.format("ParamInfo"), ">=2.1"),
        (
            "from torch.distributed.fsdp.flat_param import ParamInfo\n",
            "from torch.distributed.fsdp._flat_param import ParamInfo\n",
            ">=2.2",
        ),
        (
            "from torch.distributed.fsdp.flatten_params_wrapper import FlatParamHandle\n",
            "from torch.distributed.fsdp.flat_param import FlatParamHandle\n",
            ">=1.13,<2.2",
        ),
        (
            "class C:\n\tdef f(self):\n"
            "\t\tfrom torch.distributed.fsdp.flat_param import (\n\t\t\tParamInfo, SharedParamInfo,\n\t\t)\n",
            "class C:\n\tdef f(self):\n\t\ttry:\n"
            "\t\t\tfrom torch.distributed.fsdp._flat_param import (\n"
            "\t\t\t\tParamInfo,\n\t\t\t\tSharedParamInfo,\n\t\t\t)\n"
            "\t\texcept ImportError:\n"
            "\t\t\tfrom torch.distributed.fsdp.flat_param import (\n"
            "\t\t\t\tParamInfo,\n\t\t\t\tSharedParamInfo,\n\t\t\t)\n",
            ">=2.1",
        ),
    ],
)
def test_companions_come_from_whichever_module_has_them(before: str, after: str, torch: str) -> None:
    check_transformed(before, after, "FSDP303", torch=torch)
    assert [finding.severity for finding in lint(before, "FSDP303", torch)] == [Severity.BREAKS]


def test_a_mixed_import_is_split() -> None:
    check_transformed(
        f"from {PACKAGE}.flat_param import FlatParamHandle, FlatParameter as FP, ParamInfo\n",
        f"from {PACKAGE} import FlatParameter as FP\n" + PAIR.format("FlatParamHandle, ParamInfo"),
        "FSDP303",
    )
    found = lint(f"from {PACKAGE}.flat_param import FlatParamHandle, FlatParameter\n", "FSDP303")
    assert [f.message.split(": ")[1] for f in found] == [
        f"use `{PACKAGE}._flat_param.FlatParamHandle`",
        f"use `{PACKAGE}.FlatParameter`",
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"from {PACKAGE} import FlatParameter\n",
        f"from {PACKAGE}.fully_sharded_data_parallel import FlatParameter\n",
        PAIR.format("FlatParameter"),
        PAIR.format("FlatParamHandle"),
        f"try:\n    from {PACKAGE}.flat_param import FlatParamHandle\n"
        "except ImportError:\n    FlatParamHandle = None\n",
        f"try:\n    from {PACKAGE}.flat_param import FlatParamHandle\n"
        f"except ModuleNotFoundError:\n    from {PACKAGE}._flat_param import FlatParamHandle\n",
        "import torch\nfrom packaging.version import parse\nif parse(torch.__version__) >= parse('2.2'):\n"
        f"    from {PACKAGE}._flat_param import FlatParamHandle\nelse:\n"
        f"    from {PACKAGE}.flat_param import FlatParamHandle\n",
        "from fairscale.nn.misc.flatten_params_wrapper import FlatParameter\n",
        "from .flat_param import FlatParameter, FlatParamHandle\n",
        "from mylib.torch.distributed.fsdp.flat_param import FlatParameter\n",
        f'"""FlatParameter was in {PACKAGE}.flat_param."""\n',
        "x = model.flat_param.FlatParameter\n",
    ],
)
def test_what_is_right_or_guarded_or_another_module_is_left_alone(text: str) -> None:
    check_noop(text, "FSDP303")


def test_the_second_arm_of_two_outdated_ones_is_moved() -> None:
    text = (
        "try:\n    from torch.distributed.fsdp.flatten_params_wrapper import FlatParameter\n"
        "except ImportError:\n    from torch.distributed.fsdp{} import FlatParameter\n"
    )
    check_transformed(text.format(".flat_param"), text.format(""), "FSDP303")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "import torch.distributed.fsdp.flat_param as m\n\ndef f(p: m.FlatParameter): ...\n",
            "import torch.distributed.fsdp as m\n\ndef f(p: m.FlatParameter): ...\n",
        ),
        (
            "import os, torch.distributed.fsdp.flat_param as m\n\ndef f(p: m.FlatParameter): ...\n",
            "import os, torch.distributed.fsdp as m\n\ndef f(p: m.FlatParameter): ...\n",
        ),
        (
            "from torch.distributed.fsdp import flat_param as m\n\ndef f(p: m.FlatParameter): ...\n",
            "from torch.distributed import fsdp as m\n\ndef f(p: m.FlatParameter): ...\n",
        ),
        (
            "from torch.distributed.fsdp import flat_param\n\ndef f(p: flat_param.FlatParameter): ...\n",
            "from torch.distributed import fsdp as flat_param\n\ndef f(p: flat_param.FlatParameter): ...\n",
        ),
        (
            "import torch.distributed.fsdp.flat_param\n\nx: torch.distributed.fsdp.flat_param.FlatParameter\n",
            "import torch.distributed.fsdp\n\nx: torch.distributed.fsdp.FlatParameter\n",
        ),
        (
            "from torch.distributed import fsdp\n\ndef f(p: fsdp.flat_param.FlatParameter): ...\n",
            "from torch.distributed import fsdp\n\ndef f(p: fsdp.FlatParameter): ...\n",
        ),
    ],
)
def test_a_module_is_replaced_by_the_package_where_only_flat_parameter_is_used(before: str, after: str) -> None:
    check_transformed(before, after, "FSDP303")


def test_a_chain_follows_a_companion_where_one_module_always_has_it() -> None:
    text = "from torch.distributed import fsdp\n\nx = fsdp.{}.FlatParamHandle\n"
    check_transformed(text.format("flat_param"), text.format("_flat_param"), "FSDP303", torch=">=2.2")
    check_manual(text.format("flat_param"), "FSDP303", "so that the import can try both places")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("from torch.distributed.fsdp.flat_param import *\n", "star import"),
        ("import os; from torch.distributed.fsdp.flat_param import FlatParamHandle\n", "shares its line"),
        ("if ok: from torch.distributed.fsdp.flat_param import FlatParamHandle\n", "shares its line"),
        ("import torch.distributed.fsdp.flat_param as m\nf(m)\n", "`m` is used as a module"),
        ("x = mock.patch('torch.distributed.fsdp.flat_param.FlatParameter')\n", "in a string"),
        ("x = importlib.import_module('torch.distributed.fsdp.flat_param')\n", "in a string"),
    ],
)
def test_what_has_no_one_right_text_is_manual(text: str, reason: str) -> None:
    check_manual(text, "FSDP303", reason)


BOTH = ("FSDP301", "FSDP303")
ISINSTANCE = "\n\ndef f(ps):\n    return any(isinstance(p, FlatParameter) for p in ps)\n"
ATTRIBUTE = 'def f(ps):\n    return any(getattr(p, "_fsdp_flattened", False) for p in ps)\n'


def _rewrite(text: str, *select: str, unsafe: bool = False) -> tuple[str, list[str], list[str]]:
    settings = Settings(TorchRange.parse(">=2.1"), select=select, unsafe_fixes=unsafe)
    result = rewrite_bytes(text.encode(), "example.py", settings)
    assert result.error is None
    assert rewrite_bytes(result.raw, "example.py", settings).raw == result.raw
    return result.raw.decode(), [f.code for f in result.fixed], [f.code for f in result.left]


def test_an_import_that_isinstance_alone_needed_goes_instead_of_moving() -> None:
    text = f"from {PACKAGE}.flat_param import FlatParameter{ISINSTANCE}"
    assert _rewrite(text, *BOTH) == (ATTRIBUTE, ["FSDP303", "FSDP301"], [])
    assert [
        f.applicability.value for f in lint_bytes(text.encode(), "x", Settings(TorchRange.parse(">=2.1"))).findings
    ] == ["safe", "safe"]


def test_without_the_other_rule_the_import_moves() -> None:
    text = f"from {PACKAGE}.flat_param import FlatParameter{ISINSTANCE}"
    assert _rewrite(text, "FSDP303") == (PUBLIC + ISINSTANCE, ["FSDP303"], [])
    suppressed = text.replace("in ps)\n", "in ps)  # noqa: FSDP301\n")
    assert _rewrite(suppressed, *BOTH)[0] == PUBLIC + ISINSTANCE.replace("in ps)\n", "in ps)  # noqa: FSDP301\n")


def test_without_unsafe_fixes_the_import_moves_and_with_them_it_goes() -> None:
    text = f"from {PACKAGE}.flat_param import FlatParameter\n\n\ndef f(p):\n    assert isinstance(p, FlatParameter)\n"
    moved, fixed, left = _rewrite(text, *BOTH)
    assert (moved, fixed, left) == (text.replace(".flat_param", ""), ["FSDP303"], ["FSDP301"])
    gone = 'def f(p):\n    assert getattr(p, "_fsdp_flattened", False)\n'
    assert _rewrite(text, *BOTH, unsafe=True) == (gone, ["FSDP303", "FSDP301"], [])
    assert _rewrite(moved, *BOTH, unsafe=True)[0] == gone


def test_an_import_with_another_use_moves() -> None:
    text = f"from {PACKAGE}.flat_param import FlatParameter{ISINSTANCE}"
    annotated = text.replace("(ps)", "(ps: FlatParameter)")
    assert _rewrite(annotated, *BOTH)[0] == f"{PUBLIC}\n\n" + ATTRIBUTE.replace("(ps)", "(ps: FlatParameter)", 1)


def test_of_a_mixed_import_only_the_needless_name_goes() -> None:
    text = f"from {PACKAGE}.flat_param import FlatParameter, ParamInfo{ISINSTANCE}"
    assert _rewrite(text, *BOTH)[0] == PAIR.format("ParamInfo") + "\n" + ATTRIBUTE


def test_an_import_with_a_comment_moves_rather_than_goes() -> None:
    text = f"from {PACKAGE}.flat_param import FlatParameter  # noqa: F401{ISINSTANCE}"
    assert _rewrite(text, *BOTH)[0] == f"{PUBLIC}  # noqa: F401\n\n{ATTRIBUTE}"


@pytest.mark.parametrize(
    ("text", "torch", "message"),
    [
        (
            f"from {PACKAGE}.flat_param import ParamInfo\n",
            ">=2.1",
            f"`{PACKAGE}.flat_param.ParamInfo` is removed in torch 2.2: use `{PACKAGE}._flat_param.ParamInfo`",
        ),
        (
            f"from {PACKAGE}._flat_param import ParamInfo\n",
            ">=2.1",
            f"`{PACKAGE}._flat_param.ParamInfo` is new in torch 2.2: torch 2.1 has it in `{PACKAGE}.flat_param`",
        ),
        (
            f"from {PACKAGE}._flat_param import FlatParameter\n",
            ">=2.1",
            f"`{PACKAGE}._flat_param.FlatParameter` is new in torch 2.2: use `{PACKAGE}.FlatParameter`",
        ),
    ],
)
def test_the_message_says_what_is_where(text: str, torch: str, message: str) -> None:
    assert [finding.message for finding in lint(text, "FSDP303", torch)] == [message]


def test_the_place_in_between_is_tried_where_neither_of_the_others_is() -> None:
    text = "from torch.distributed.fsdp.flatten_params_wrapper import FlatParamHandle\n"
    check_transformed(text, PAIR.format("FlatParamHandle"), "FSDP303")


_PROBE = "from torch.distributed.fsdp.flat_param import FlatParamHandle"
_QUESTIONS = {
    "the answer follows": "def f():\n    try:\n        {}\n    except ImportError:\n        return 0\n    return 1\n",
    "the body answers": "def f():\n    try:\n        {}  # noqa: F401\n        return True\n    except Exception:\n"
    "        log('none')\n        return False\n",
    "the else answers": "def f():\n    try:\n        {}\n    except ImportError:\n        pass\n"
    "    else:\n        log('old')\n        return 'old', 1\n    return 'new', -1\n",
    "a flag is set": "HAS = False\ntry:\n    {}\n    HAS = True\nexcept (ImportError, OSError):\n    pass\n",
    "errors are suppressed": "HAS = False\nwith suppress(ImportError):\n    {}\n    HAS = True\n",
    "a test wants it to fail": "def test_gone():\n    with pytest.raises(ImportError):\n        {}\n",
}


@pytest.mark.parametrize("question", _QUESTIONS)
def test_an_import_that_only_asks_which_torch_this_is_stays(question: str) -> None:
    check_noop(_QUESTIONS[question].format(_PROBE), "FSDP303")
    check_noop(_QUESTIONS[question].format("from torch.distributed.fsdp._utils import _is_fsdp_flattened"), "FSDP304")


def test_one_whose_failing_nobody_catches_is_no_question() -> None:
    text = f"try:\n    {_PROBE}\n    HAS = True\nexcept KeyError:\n    HAS = False\n"
    assert {finding.code for finding in lint(text, "FSDP303")} == {"FSDP303"}
