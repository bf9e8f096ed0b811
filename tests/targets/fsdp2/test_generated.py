"""The module that is written beside the one that wraps: its text, its name, who imports it how."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from fsdp_migrate.targets.fsdp2.conversion import Options
from fsdp_migrate.targets.fsdp2.generated import CLIP, GROUP, NO_SYNC, SHARD, functions_of, text
from tests.targets.fsdp2.building import converted, project_of, texts
from tests.targets.fsdp2.rewritten import after_transaction, models_of

ALL = (SHARD, NO_SYNC, CLIP, GROUP)
SOME = [chosen for number in (1, 2, 3, 4) for chosen in itertools.combinations(ALL, number)]
IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
WRAPS = (
    f"{IMPORT}\n\ndef build(model, policy):\n    return FSDP(model, auto_wrap_policy=policy, limit_all_gathers=True)\n"
)
USED = Options(all_parameters_used=True)


@pytest.mark.parametrize("functions", SOME)
def test_it_has_what_is_asked_for_and_what_that_needs(functions: tuple[str, ...]) -> None:
    written = text(functions)
    defined = {node.name for node in ast.parse(written).body if isinstance(node, ast.FunctionDef)}
    assert {name for name in defined if not name.startswith("_")} == set(functions)
    assert functions_of(written) == set(functions)


def test_it_is_formatted_and_clean(tmp_path: Path) -> None:
    for functions in SOME:
        (tmp_path / f"{'_'.join(functions)}.py").write_text(text(functions))
    for command in (["format", "--check"], ["check", "--select", "E,F,I,B,UP,D1,PIE,RET,SIM"]):
        arguments = [sys.executable, "-m", "ruff", *command, "--isolated", "--line-length", "88", str(tmp_path)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_what_somebody_changed_is_not_taken_for_it() -> None:
    written = text([NO_SYNC])
    assert functions_of(written.replace("False", "0")) is None
    assert functions_of("def shard(model): ...\n") is None
    assert functions_of("def (") is None
    assert functions_of("") is None


@pytest.mark.parametrize(
    ("path", "others", "module"),
    [
        ("train.py", {}, "fsdp2"),
        ("src/train.py", {"src/data.py": "x = 1\n"}, "fsdp2"),
        ("pkg/train.py", {"pkg/__init__.py": ""}, ".fsdp2"),
        ("pkg/train.py", {"fsdp2.py": "x = 1\n"}, "fsdp2_2"),
        ("pkg/train.py", {"pkg/__init__.py": "", "pkg/fsdp2.py": "x = 1\n"}, ".fsdp2_2"),
        ("pkg/train.py", {"pkg/fsdp2/__init__.py": ""}, "fsdp2_2"),
        ("train.py", {"fsdp2.py": text([NO_SYNC])}, "fsdp2"),
        ("train.py", {"fsdp2.py": text([NO_SYNC]) + "\nmore = 1\n"}, "fsdp2_2"),
    ],
)
def test_it_lies_beside_the_module_that_wraps(tmp_path: Path, path: str, others: dict[str, str], module: str) -> None:
    modules = project_of(tmp_path, {path: WRAPS, **others})
    conversion = converted({path: modules[path]}, USED)
    assert conversion.walls == []
    assert conversion.helper == {SHARD}
    assert conversion.helper_path == str((tmp_path / path).parent / f"{module.lstrip('.')}.py")
    (new,) = texts({path: modules[path]}, conversion).values()
    assert new == (
        f"from {module} import shard\n\n\ndef build(model, policy):\n    return shard(model, auto_wrap_policy=policy)\n"
    )


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("from .data import load\n", ".fsdp2"),
        ("from . import data\n", ".fsdp2"),
        ("from pkg.data import load\n", "pkg.fsdp2"),
        ("import pkg.data\n", "pkg.fsdp2"),
        ("from data import load\n", "fsdp2"),
    ],
)
def test_it_is_imported_as_its_neighbours_are(tmp_path: Path, line: str, module: str) -> None:
    files = {"pkg/train.py": line + WRAPS, "pkg/data.py": "def load(): ...\n"}
    if not line.startswith("from data"):
        files["pkg/__init__.py"] = ""
    modules = project_of(tmp_path, files)
    new = texts(modules, converted({"pkg/train.py": modules["pkg/train.py"]}, USED))["pkg/train.py"]
    assert f"from {module} import shard\n" in new


def test_a_script_in_a_package_takes_it_as_it_takes_its_other_modules(tmp_path: Path) -> None:
    script = f'{WRAPS}\n\nif __name__ == "__main__":\n    build(net, rule)\n'
    files = {"pkg/__init__.py": "", "pkg/train.py": script, "pkg/data.py": "", "pkg/other.py": ""}
    alone = converted(project_of(tmp_path, files), USED)
    assert ["runs by its path or as a module" in f"{wall.reason} {wall.step}" for wall in alone.walls] == [True]
    modules = project_of(tmp_path, files | {"pkg/train.py": "import data\n" + script})
    assert "from fsdp2 import shard\n" in texts(modules, converted(modules, USED))["pkg/train.py"]


def test_a_name_that_is_taken_gets_another_one(tmp_path: Path) -> None:
    modules = project_of(tmp_path, {"train.py": WRAPS.replace("\n\n\n", "\n\ndef shard(): ...\n\n\n")})
    new = texts(modules, converted(modules, USED))["train.py"]
    assert "from fsdp2 import shard as torch_shard\n" in new
    assert "    return torch_shard(model, auto_wrap_policy=policy)\n" in new


PROGRAM = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(net, policy, batches):
    model = FSDP(net, auto_wrap_policy=policy, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()
"""


def rewrite(*options: str) -> str:
    command = [sys.executable, "-m", "fsdp_migrate", "rewrite", "--target", "fsdp2", "--torch", ">=2.13", *options, "."]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_written_with_the_program_that_needs_it(folder: Path) -> None:
    (folder / "train.py").write_text(PROGRAM)
    rewrite()
    assert (folder / "fsdp2.py").read_text() == text([SHARD])
    assert "    model = shard(net, auto_wrap_policy=policy)\n" in (folder / "train.py").read_text()
    before = {path.name: path.read_text() for path in folder.glob("*.py")}
    rewrite()
    assert {path.name: path.read_text() for path in folder.glob("*.py")} == before


def test_two_programs_share_it(folder: Path) -> None:
    (folder / "one.py").write_text(PROGRAM)
    (folder / "two.py").write_text(PROGRAM)
    rewrite()
    assert sorted(path.name for path in folder.glob("*.py")) == ["fsdp2.py", "one.py", "two.py"]
    assert (folder / "one.py").read_text() == (folder / "two.py").read_text()


def test_a_module_of_an_earlier_run_gets_more(folder: Path) -> None:
    (folder / "fsdp2.py").write_text(text([NO_SYNC]))
    (folder / "train.py").write_text(PROGRAM)
    rewrite()
    assert (folder / "fsdp2.py").read_text() == text([SHARD, NO_SYNC])


def test_there_is_none_if_the_user_wants_none(folder: Path) -> None:
    (folder / "train.py").write_text(PROGRAM)
    report = rewrite("--fsdp2-helper", "never")
    assert "the policy `policy` is only known at run time" in report
    assert (folder / "train.py").read_text() == PROGRAM
    assert not (folder / "fsdp2.py").exists()


@pytest.mark.parametrize("unit", ["\t", "  ", "        "])
def test_it_is_indented_as_the_file_that_wraps(unit: str) -> None:
    written = text(ALL, unit)
    assert {line[: len(line) - len(line.lstrip())].replace(unit, "") for line in written.splitlines()} == {""}
    assert written.split() == text(ALL).split()
    ast.parse(written)
    assert functions_of(written) == set(ALL)


def test_functions_in_the_file_and_beside_it_are_indented_as_the_file(tmp_path: Path) -> None:
    program = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
def main(policy):
\tmodel = FSDP(torch.nn.Linear(1, 1), auto_wrap_policy=policy)
\twith FSDP.summon_full_params(model, writeback=False):
\t\tprint(1)
main(1)
"""
    (model,) = models_of(tmp_path, {"main.py": program})
    assert "\n\tunits = [" in after_transaction(model)
    (created,) = model.transaction().creates
    assert "\n\tif device_id is None:\n" in created.text
    assert "\n    " not in after_transaction(model) + created.text
