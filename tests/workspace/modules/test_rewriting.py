from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from fsdp_migrate.findings import Applicability
from tests.workspace.modules.trees import PUBLIC, SAVE, findings_of, grow, rewritten

BODY = """\
def save(model, optim):
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    ):
        return FSDP.optim_state_dict(model, optim)
"""
ADDED = "from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType\n"


def result(tmp_path: Path, head: str, dist: str = PUBLIC, body: str = SAVE) -> str:
    grow(tmp_path, {"mylib/__init__.py": "", "mylib/dist.py": dist, "train.py": head + body})
    return rewritten(tmp_path, "train.py").raw.decode()


@pytest.mark.parametrize(
    ("head", "fsdp"),
    [
        ("from mylib.dist import FSDP\n", "FSDP"),
        ("from mylib.dist import FSDP  # ours\n", "FSDP"),
        ("from mylib.dist import (\n    FSDP,\n)\n", "FSDP"),
        ("from mylib import dist\n", "dist.FSDP"),
        ("import mylib.dist as dist\n", "dist.FSDP"),
        ("import mylib.dist\n", "mylib.dist.FSDP"),
    ],
)
def test_what_only_torch_has_is_imported_from_torch(head: str, fsdp: str, tmp_path: Path) -> None:
    text = result(tmp_path, head, body=SAVE.replace("FSDP", fsdp))
    assert text == head + ADDED + BODY.replace("FSDP.", f"{fsdp}.")


@pytest.mark.parametrize(
    "line", ["from mylib.dist import FSDP\n", "import mylib.dist\n", "from mylib.dist import FSDP; x = 1\n"]
)
def test_an_import_from_torch_at_the_top_takes_the_names(line: str, tmp_path: Path) -> None:
    head = f"from torch.distributed.fsdp import StateDictType\n\n{line}"
    body = SAVE.replace("FSDP", "mylib.dist.FSDP") if line.startswith("import") else SAVE
    text = result(tmp_path, head, body=body)
    assert text.startswith(f"{ADDED}\n{line}def save")


@pytest.mark.parametrize(
    "head",
    [
        "try:\n    from torch.distributed.fsdp import MixedPrecision\nexcept ImportError:\n    pass\n{}",
        "if x:\n    from torch.distributed.fsdp import MixedPrecision\n{}",
        "from torch.distributed.fsdp.api import MixedPrecision\n{}",
        "from .torch.distributed.fsdp import MixedPrecision\n{}",
        "def f():\n    from torch.distributed.fsdp import MixedPrecision\n{}",
    ],
)
def test_an_import_from_torch_that_may_not_run_is_not_added_to(head: str, tmp_path: Path) -> None:
    head = head.format("from mylib.dist import FSDP\n")
    text = result(tmp_path, head)
    assert text.startswith(head + "from torch.distributed.fsdp import FullOptimStateDictConfig")


def test_an_import_from_torch_behind_the_use_is_not_added_to(tmp_path: Path) -> None:
    behind = "from torch.distributed.fsdp import MixedPrecision\n"
    text = result(tmp_path, "from mylib.dist import FSDP\n", body=SAVE + behind)
    assert text == "from mylib.dist import FSDP\n" + ADDED + BODY + behind


def test_names_stay_in_the_guard_of_the_import_that_brought_fsdp(tmp_path: Path) -> None:
    head = "from torch.distributed.fsdp import MixedPrecision\n\ntry:\n    from mylib.dist import FSDP\n"
    text = result(tmp_path, f"{head}except ImportError:\n    FSDP = None\n")
    assert text.startswith(f"{head}    {ADDED}except ImportError:")


def test_a_name_that_the_module_has_as_well_is_used_where_it_is_imported(tmp_path: Path) -> None:
    dist = PUBLIC + "from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType\n"
    head = "from mylib.dist import FSDP, FullOptimStateDictConfig, StateDictType\n"
    assert result(tmp_path, head, dist) == head + BODY


def test_a_module_of_torch_that_is_reached_through_the_project_gives_chains(tmp_path: Path) -> None:
    dist = "from torch.distributed import fsdp\n"
    text = result(
        tmp_path, "from mylib.dist import fsdp\n", dist, SAVE.replace("FSDP", "fsdp.FullyShardedDataParallel")
    )
    assert "fsdp.StateDictType.FULL_STATE_DICT" in text
    assert text.startswith("from mylib.dist import fsdp\ndef save")


def test_the_new_import_stands_in_the_scope_and_guard_of_the_old_one(tmp_path: Path) -> None:
    text = """\
        def save(model, optim, full):
            if full:
                from mylib.dist import FSDP

                return FSDP.full_optim_state_dict(model, optim)
        """
    found = result(tmp_path, "", body=dedent(text))
    assert "        from mylib.dist import FSDP\n        from torch.distributed.fsdp import Full" in found


def test_several_calls_share_one_new_import(tmp_path: Path) -> None:
    load = "def load(model, optim, osd):\n    optim.load_state_dict(FSDP.shard_full_optim_state_dict(osd, model))\n"
    found = result(tmp_path, "from mylib.dist import FSDP\n", body=SAVE + load)
    assert found.count("torch.distributed.fsdp") == 1
    assert "shard_full" not in found


def test_an_import_that_shares_its_line_is_left_alone(tmp_path: Path) -> None:
    head = "from mylib.dist import FSDP; FSDP\n"
    assert result(tmp_path, head) == head + SAVE
    (finding,) = findings_of(tmp_path, "train.py")
    assert finding.applicability is Applicability.MANUAL
    assert "shares its line" in (finding.reason or "")


def test_a_subclass_elsewhere_is_rewritten_with_imports_from_torch(tmp_path: Path) -> None:
    dist = f"{PUBLIC}class Wrapped(FSDP):\n    pass\n"
    head = "from mylib.dist import Wrapped\n"
    text = result(tmp_path, head, dist, SAVE.replace("FSDP", "Wrapped"))
    assert text == head + ADDED + BODY.replace("FSDP.", "Wrapped.")


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    text = result(tmp_path, "from mylib.dist import FSDP\n")
    (tmp_path / "train.py").write_text(text)
    again = rewritten(tmp_path, "train.py")
    assert again.raw.decode() == text
    assert again.left == () or {finding.code for finding in again.left} == {"FSDP210"}


def test_crlf_stays(tmp_path: Path) -> None:
    grow(tmp_path, {"mylib/__init__.py": "", "mylib/dist.py": PUBLIC})
    (tmp_path / "train.py").write_bytes(f"from mylib.dist import FSDP\n{SAVE}".replace("\n", "\r\n").encode())
    raw = rewritten(tmp_path, "train.py").raw
    assert raw.count(b"\n") == raw.count(b"\r\n") == 9


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("_all_gather_base", "torch.distributed"),
        ("reduce_op.SUM", "torch.distributed"),
        ("default_auto_wrap_policy", "torch.distributed.fsdp.wrap"),
        ("_FSDPPolicy", "torch.distributed.fsdp.wrap"),
    ],
)
def test_an_attribute_of_a_module_of_the_project_keeps_its_name(name: str, home: str, tmp_path: Path) -> None:
    first = name.split(".")[0]
    grow(tmp_path, {"lib.py": f"import {home} as home\nfrom {home} import {first}\n"})
    grow(tmp_path, {"train.py": f"import torch.distributed.fsdp\nimport lib\n\nprint(lib.{name})\n"})
    (finding,) = findings_of(tmp_path, "train.py")
    assert finding.fix is None
    assert f"`lib.{first}` comes from a module of the project: import" in (finding.reason or "")
    grow(tmp_path, {"train.py": f"import torch.distributed.fsdp\nimport lib\n\nprint(lib.home.{name})\n"})
    (finding,) = findings_of(tmp_path, "train.py")
    assert finding.fix is not None


@pytest.mark.parametrize(
    ("use", "safe"),
    [
        ("big(module=m, recurse=False, unwrapped_params=3)", False),
        ("print(big)", False),
        ("big(m, False, 3)", False),
    ],
)
def test_a_policy_that_another_module_may_call_by_the_old_name_keeps_it(use: str, safe: bool, tmp_path: Path) -> None:
    policy = "def big(module, recurse, unwrapped_params):\n    return recurse or unwrapped_params > 9\n\n"
    grow(tmp_path, {"lib.py": f"{PUBLIC}\n{policy}m = FSDP(n, auto_wrap_policy=big)\n"})
    grow(tmp_path, {"test_lib.py": f"from lib import big\n\n{use}\n"})
    (finding,) = findings_of(tmp_path, "lib.py")
    assert finding.code == "FSDP401"
    assert finding.applicability is (Applicability.SAFE if safe else Applicability.MANUAL)
    assert safe or "uses it for something other than FSDP" in (finding.reason or "")


@pytest.mark.parametrize(("use", "safe"), [("from lib import enter\nenter(x, mesh)\n", False), ("import lib\n", True)])
def test_a_callback_that_another_module_imports_keeps_its_parameters(use: str, safe: bool, tmp_path: Path) -> None:
    text = "from torch.distributed.tensor import distribute_module\n\ndef enter(inputs, mesh):\n    return inputs\n\n"
    grow(tmp_path, {"lib.py": f"{text}distribute_module(m, mesh, input_fn=enter)\n", "train.py": use})
    (finding,) = findings_of(tmp_path, "lib.py", ">=2.5")
    assert finding.code == "FSDP613"
    assert (finding.fix is not None) == safe


OPTIONAL = """\
try:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    HAS_FSDP = True
except ImportError:
    FSDP, HAS_FSDP = None, False
"""
GUARDED = """\
def save(model, optim):
    if HAS_FSDP and isinstance(model, FSDP):
        return FSDP.full_optim_state_dict(model, optim)
    return optim.state_dict()
"""
GUARDED_AFTER = (
    GUARDED.partition("        return")[0]
    + """\
        from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType
        with FSDP.state_dict_type(
            model,
            StateDictType.FULL_STATE_DICT,
            optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
        ):
            return FSDP.optim_state_dict(model, optim)
    return optim.state_dict()
"""
)


@pytest.mark.parametrize("module", ["mylib.dist", "mylib.facade"])
def test_names_come_where_they_are_used_if_the_module_that_brings_fsdp_goes_on_without_torch(
    module: str, tmp_path: Path
) -> None:
    head = f"from {module} import FSDP, HAS_FSDP\n\n\n"
    facade = "from .dist import FSDP, HAS_FSDP\n"
    grow(
        tmp_path,
        {
            "mylib/__init__.py": "",
            "mylib/dist.py": OPTIONAL,
            "mylib/facade.py": facade,
            "train.py": head + GUARDED,
            "whole.py": "from mylib import dist\n\n\n"
            + GUARDED.replace("FSDP", "dist.FSDP").replace("HAS_dist", "dist.HAS"),
            "needy.py": f"from torch.distributed.fsdp import StateDictType\n{head}{GUARDED}",
        },
    )
    assert rewritten(tmp_path, "train.py").raw.decode() == head + GUARDED_AFTER
    assert "        from torch.distributed.fsdp import Full" in rewritten(tmp_path, "whole.py").raw.decode()
    # What cannot do without torch anyway takes them as ever.
    assert rewritten(tmp_path, "needy.py").raw.decode().startswith(f"{ADDED}{head}")


def test_names_that_another_fix_imports_at_the_top_are_not_imported_where_they_are_used(tmp_path: Path) -> None:
    """A local import would make the name local to the function that uses it before."""
    head = "from mylib.facade import FSDP\nfrom mylib.dist import FSDP as Real\n"
    body = """

def save(model, optim):
    one = {}.full_optim_state_dict(model, optim)
    two = {}.full_optim_state_dict(model, optim)
    return one, two
"""
    grow(tmp_path, {"mylib/__init__.py": "", "mylib/dist.py": PUBLIC, "mylib/facade.py": OPTIONAL})
    for first, second in (("FSDP", "Real"), ("Real", "FSDP")):
        grow(tmp_path, {"train.py": head + body.format(first, second)})
        after = rewritten(tmp_path, "train.py").raw.decode()
        assert after.startswith(f"{head}{ADDED}\n\n")
        assert after.count("import FullOptimStateDictConfig") == 1
        assert after.count("optim_state_dict(model, optim)") == after.count("with ") == 2


def test_a_name_goes_although_another_import_follows_its_statement(tmp_path: Path) -> None:
    test = "    ok = any({} for p in model.parameters())\n"
    head, body = SAVE.split("\n", 1)
    text = f"from mylib.dist import FSDP, FlatParameter\n{head}\n{{}}{body}"
    grow(
        tmp_path,
        {"mylib/__init__.py": "", "mylib/dist.py": f"{PUBLIC}from torch.distributed.fsdp import FlatParameter\n"},
    )
    grow(tmp_path, {"train.py": text.format(test.format("isinstance(p, FlatParameter)"))})
    after = rewritten(tmp_path, "train.py").raw.decode()
    assert after.startswith(f"from mylib.dist import FSDP\n{ADDED}{head}\n    ok = any(getattr(p, ")
