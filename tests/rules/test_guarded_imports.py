"""Imports that keep both worlds where the range starts below the floor of a fix."""

from __future__ import annotations

import pytest

from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

SCALER = "FSDP802"
CUSTOM = "FSDP803"
USED = """\
class F:
    @custom_fwd
    def forward(ctx):
        pass

    @custom_bwd
    def backward(ctx):
        pass
"""


def test_the_scaler_comes_from_where_it_is_and_positions_become_keywords() -> None:
    check_transformed(
        """\
        import torch.distributed
        from torch.cuda.amp import GradScaler, autocast

        first = GradScaler()
        second = GradScaler(
            2.0,  # large
            enabled=flag,
        )
        assert isinstance(first, GradScaler)
        """,
        """\
        import torch.distributed
        try:
            from torch.amp import GradScaler
        except ImportError:
            from torch.cuda.amp import GradScaler
        from torch.cuda.amp import autocast

        first = GradScaler()
        second = GradScaler(
            init_scale=2.0,  # large
            enabled=flag,
        )
        assert isinstance(first, GradScaler)
        """,
        SCALER,
    )


def test_a_scaler_under_another_name_in_a_function() -> None:
    text = "import torch.distributed\ndef build(scale):\n{}    return Scaler({}scale)\n"
    old = "    from torch.cuda.amp import GradScaler as Scaler\n"
    new = (
        "    try:\n        from torch.amp import GradScaler as Scaler\n"
        "    except ImportError:\n        from torch.cuda.amp import GradScaler as Scaler\n"
    )
    check_transformed(text.format(old, ""), text.format(new, "init_scale="), SCALER)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        ("GradScaler(*args)", "passes `*args`"),
        ("make(GradScaler)", "is not only called (line 4)"),
        ("class S(GradScaler):\n    def __init__(self):\n        super().__init__(2.0)", "`super().__init__`"),
    ],
)
def test_a_scaler_that_is_used_otherwise_is_manual(use: str, reason: str) -> None:
    text = f"import torch.distributed\nfrom torch.cuda.amp import GradScaler\nGradScaler(2.0)\n{use}\n"
    check_manual(text, SCALER, reason)


def test_a_subclass_without_positions_follows() -> None:
    text = "import torch.distributed\n{}class S(GradScaler):\n    def step(self):\n        super().step()\n"
    check_manual(
        text.format("from torch.cuda.amp import GradScaler\n"), SCALER, "`super().__init__`"
    )  # built elsewhere
    text += "s = S(init_scale=2.0)\n"
    new = "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n    from torch.cuda.amp import GradScaler\n"
    check_transformed(text.format("from torch.cuda.amp import GradScaler\n"), text.format(new), SCALER)


def test_an_attribute_chain_is_manual_and_says_what_helps() -> None:
    check_manual("import torch, torch.distributed\ntorch.cuda.amp.GradScaler()\n", SCALER, "by name")


def test_decorators_are_told_the_device_in_the_new_place() -> None:
    check_transformed(
        "import torch.distributed\nfrom torch.cuda.amp import custom_bwd, custom_fwd\n\n" + USED,
        "import torch.distributed\n"
        "try:\n    from torch.amp import custom_bwd, custom_fwd\n"
        "except ImportError:\n    from torch.cuda.amp import custom_bwd, custom_fwd\n"
        "else:\n    from functools import partial\n"
        '    custom_bwd = partial(custom_bwd, device_type="cuda")\n'
        '    custom_fwd = partial(custom_fwd, device_type="cuda")\n\n' + USED,
        CUSTOM,
    )


def test_a_partial_that_is_there_is_used_and_another_one_is_in_the_way() -> None:
    text = "from functools import partial\nimport torch.distributed\n{}\n@custom_fwd\ndef f(ctx):\n    pass\n"
    new = (
        "try:\n    from torch.amp import custom_fwd\nexcept ImportError:\n    from torch.cuda.amp import custom_fwd\n"
        'else:\n    custom_fwd = partial(custom_fwd, device_type="cuda")\n'
    )
    check_transformed(text.format("from torch.cuda.amp import custom_fwd\n"), text.format(new), CUSTOM)
    other = text.format("from torch.cuda.amp import custom_fwd\n").replace("from functools", "from other")
    check_manual(other, CUSTOM, "`partial` is already used here")


FLAG = """\
import torch
import torch.distributed
from packaging.version import Version

{}


def build():
    {}
    return GradScaler()
"""
GUARDED = "if NEW:\n        from torch.amp import GradScaler\n    else:\n        from torch.cuda.amp import GradScaler"
TRIED = GUARDED.replace("if NEW", "try").replace("else:", "except ImportError:")


def test_a_flag_of_the_file_that_says_the_same_is_used() -> None:
    old = "from torch.cuda.amp import GradScaler"
    flag = 'NEW = Version(torch.__version__) >= Version("2.3")'
    check_transformed(FLAG.format(flag, old), FLAG.format(flag, GUARDED), SCALER)
    other = flag.replace("2.3", "2.4")
    check_transformed(FLAG.format(other, old), FLAG.format(other, TRIED), SCALER)


GATED = "{}\n{}\n{}\nscaler = GradScaler()\n"
LIGHTNING = "lightning.fabric.utilities.imports import _TORCH_GREATER_EQUAL_2_1, _TORCH_GREATER_EQUAL_2_3"
OWN = "def at_least(version):\n    return Version(torch.__version__) >= Version(version)\n"


@pytest.mark.parametrize(
    ("above", "below", "test"),
    [
        ("from accelerate.utils import is_torch_version", 'NEW = is_torch_version("<", "2.1.0")', '(">=", "2.3.0")'),
        ("from u import is_torch_greater_or_equal", "assert is_torch_greater_or_equal('2.2')", "('2.3')"),
        ("import torch\nfrom packaging.version import Version\n" + OWN, 'assert at_least("2.2")', '("2.3")'),
        (f"from {LIGHTNING}", "print(_TORCH_GREATER_EQUAL_2_3)", ""),
        ("from lightning_utilities.core.imports import RequirementCache", 'x = RequirementCache("torch>=2.2")', None),
        (
            "import operator\nfrom lightning_utilities.core.imports import compare_version",
            'x = compare_version("torch", operator.ge, "2.1.0")',
            '("torch", operator.ge, "2.3.0")',
        ),
        (
            "import torch\nfrom packaging import version",
            'OLD = version.parse(torch.__version__) >= version.parse("2.2")',
            ' >= version.parse("2.3")',
        ),
    ],
)
def test_the_file_is_asked_for_the_version_as_it_asks_itself(above: str, below: str, test: str | None) -> None:
    before = GATED.format(above, "from torch.cuda.amp import GradScaler", below)
    after = GATED.format(
        above, "{}from torch.amp import GradScaler\n{}    from torch.cuda.amp import GradScaler", below
    )
    settings = Settings(torch=TorchRange.parse(">=2.1"), select=(SCALER,))
    text = rewrite_bytes(before.encode(), "m.py", settings).raw.decode()
    (condition,) = (line for line in text.splitlines() if line.startswith("if "))
    check_transformed(before, after.format(f"{condition}\n    ", "else:\n"), SCALER)
    assert condition.endswith(f'{test if test is not None else """("torch>=2.3")"""}:')


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ("", 'from u import is_torch_version\nassert is_torch_version(">=", "2.1")'),
        (
            "import torch",
            'if x:\n    from packaging import version\nversion.parse(torch.__version__) >= version.parse("2")',
        ),
        ("def f(is_torch_version):", '    return is_torch_version(">=", "2.1")'),
        ("from u import needs", 'assert needs("numpy>=2.1")'),
    ],
)
def test_a_test_that_is_not_at_hand_or_of_something_else_is_not_used(above: str, below: str) -> None:
    indent = "    " if above.endswith(":") else ""
    before = GATED.format(above, f"{indent}from torch.cuda.amp import GradScaler", below)
    before = before.replace("\nscaler", f"\n{indent}scaler")
    settings = Settings(torch=TorchRange.parse(">=2.1"), select=(SCALER,))
    text = rewrite_bytes(before.encode(), "m.py", settings).raw.decode()
    assert f"{indent}try:\n{indent}    from torch.amp import GradScaler" in text


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n    from torch.cuda.amp import GradScaler\n",
        "try:\n    from torch.cuda.amp import GradScaler\nexcept ImportError:\n    from torch.amp import GradScaler\n",
        "import torch\nif hasattr(torch.amp, 'GradScaler'):\n    from torch.amp import GradScaler\n"
        "else:\n    from torch.cuda.amp import GradScaler\n",
    ],
)
def test_what_is_guarded_already_is_left_alone(text: str) -> None:
    check_noop(f"import torch.distributed\n{text}scaler = GradScaler()\n", SCALER)


def test_a_comment_inside_the_import_goes_with_the_name() -> None:
    text = "import torch.distributed\nfrom torch.cuda.amp import (\n    GradScaler,  # scales\n)\nGradScaler()\n"
    after = (
        "import torch.distributed\ntry:\n    from torch.amp import GradScaler  # scales\nexcept ImportError:\n"
        "    from torch.cuda.amp import GradScaler\nGradScaler()\n"
    )
    check_transformed(text, after, SCALER)
    text = "import torch.distributed\nfrom torch.cuda.amp import (\n    custom_fwd,  # noqa: F401\n)\n"
    after = (
        "import torch.distributed\ntry:\n    from torch.amp import custom_fwd  # noqa: F401\nexcept ImportError:\n"
        "    from torch.cuda.amp import custom_fwd  # noqa: F401\nelse:\n    from functools import partial\n"
        '    custom_fwd = partial(custom_fwd, device_type="cuda")\n'
    )
    check_transformed(f"{text}f = custom_fwd(g)\n", f"{after}f = custom_fwd(g)\n", CUSTOM)


@pytest.mark.parametrize(
    ("code", "module", "old", "new", "use"),
    [
        ("FSDP811", "torch.distributed", "_all_gather_base", "all_gather_into_tensor", "(a, b)"),
        ("FSDP813", "torch.distributed.distributed_c10d", "_get_global_rank", "get_global_rank", "(g, 0)"),
        ("FSDP402", "torch.distributed.fsdp.wrap", "default_auto_wrap_policy", "size_based_auto_wrap_policy", ".x"),
    ],
)
def test_a_renamed_name_is_tried_first(code: str, module: str, old: str, new: str, use: str) -> None:
    text = f"def f():\n{{}}    return _[{old}{use}]\n"
    before = f"    from {module} import {old}\n"
    line = f"        from {module} import {new} as {old}\n"
    if len(line) > 89:
        line = f"        from {module} import (\n            {new} as {old},\n        )\n"
    after = f"    try:\n{line}    except ImportError:\n        from {module} import {old}\n"
    check_transformed(text.format(before), text.format(after), code, torch=">=1.11")
    assert lint(text.format(after), "FSDP", ">=1.11") == ()


def test_a_keyword_that_was_renamed_too_is_manual() -> None:
    text = "from torch.distributed.distributed_c10d import _get_global_rank\n_get_global_rank(g, rank=0)\n"
    check_manual(text, "FSDP813", "needs torch>=1.13", torch=">=1.12")


def test_a_renamed_module_is_tried_first() -> None:
    package = "torch.distributed.algorithms._checkpoint"
    names = "checkpoint_wrapper as wrap"
    check_transformed(
        f"from {package}._checkpoint_wrapper import {names}\n",
        f"try:\n    from {package}.checkpoint_wrapper import (\n        {names},\n    )\n"
        f"except ImportError:\n    from {package}._checkpoint_wrapper import (\n        {names},\n    )\n",
        "FSDP833",
        torch=">=1.11",
    )
    check_manual(f"from {package}._checkpoint_wrapper import *\n", "FSDP833", "a star import", torch=">=1.11")
