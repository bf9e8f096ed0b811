from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import fsdp_migrate
from fsdp_migrate import lint as engine
from fsdp_migrate import runner
from fsdp_migrate.planning import cache, planner
from fsdp_migrate.planning.parts import CacheError
from fsdp_migrate.planning.planner import Effort
from fsdp_migrate.report import Plan
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.settings import Layer
from fsdp_migrate.workspace.settings.configuration import Configuration

LEGACY = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, optim):
    return FSDP.full_optim_state_dict(model, optim)
"""
USER = "from lib import Wrapped\n\nosd = Wrapped.full_optim_state_dict(model, optim)\n"


class Project:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.store = root / "code", root / "cache"
        self.root.mkdir()
        self.linted: list[str] = []
        self.screened: list[str] = []
        monkeypatch.chdir(self.root)
        monkeypatch.setattr(planner, "_MANY", 1)
        monkeypatch.setattr(cache, "_FRESH_NS", 0)
        real_lint, real_screen = engine.lint_bytes, engine.look_at
        monkeypatch.setattr(
            engine, "lint_bytes", lambda raw, path, *a, **k: self.linted.append(path) or real_lint(raw, path, *a, **k)
        )
        monkeypatch.setattr(
            engine, "look_at", lambda raw, path, *a: self.screened.append(path) or real_screen(raw, path, *a)
        )

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def lint(self, fixes: bool = False, folder: str = ".", **options: object) -> Plan:
        self.linted.clear()
        self.screened.clear()
        effort = Effort(cache=True, cache_dir=str(self.store), fixes=fixes)
        return runner.lint(filesystem.discover([folder]), Configuration(Layer(**options)), effort=effort)  # type: ignore[arg-type]

    @property
    def file(self) -> Path:
        (file,) = self.store.glob("*.json")
        return file


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path, monkeypatch)
    made.write("a.py", LEGACY)
    made.write("b.py", "x = 1\n")
    return made


def test_a_second_run_looks_at_nothing_and_says_the_same(project: Project) -> None:
    first = project.lint()
    assert (project.linted, set(project.screened)) == (["a.py"], {"a.py", "b.py"})
    second = project.lint()
    assert (project.linted, project.screened) == ([], ["a.py"])
    assert second == first
    assert [finding.code for finding in second.findings] == ["FSDP101"]


def test_a_changed_file_is_looked_at_again(project: Project) -> None:
    project.lint()
    project.write("b.py", LEGACY)
    plan = project.lint()
    assert "b.py" in project.linted
    assert [finding.path for finding in plan.findings] == ["a.py", "b.py"]
    project.write("a.py", LEGACY.replace("full_optim", "sharded_optim"))
    assert [finding.code for finding in project.lint().findings] == ["FSDP102", "FSDP101"]


def test_a_file_that_was_only_touched_is_known_by_its_contents(project: Project) -> None:
    project.write("a.py", LEGACY.replace("optim)\n", "*optim)\n"))  # which is manual: a fix asks for other modules
    project.lint()
    for name in ("a.py", "b.py"):
        os.utime(project.root / name, (1, 1))
    project.lint()
    assert project.linted == []
    assert "b.py" not in project.screened


def test_the_same_size_and_time_with_other_contents_is_told_apart(project: Project) -> None:
    status = (project.root / "b.py").stat()
    project.lint()
    project.write("b.py", "x = 2\n")
    os.utime(project.root / "b.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    project.lint()
    assert "b.py" in project.screened


def test_options_that_choose_what_is_shown_find_everything_known(project: Project) -> None:
    project.write("a.py", LEGACY + "\nFSDP.set_state_dict_type(m, t)\n")
    assert [finding.severity.value for finding in project.lint(hints=True).findings] == ["deprecated", "hint"]
    assert len(project.lint(hints=True, unsafe_fixes=True).findings) == 2
    assert project.linted == []


def test_hints_are_looked_for_where_an_earlier_run_did_not(project: Project) -> None:
    project.write("a.py", LEGACY + "\nFSDP.set_state_dict_type(m, t)\n")
    assert [finding.severity.value for finding in project.lint().findings] == ["deprecated"]
    assert [finding.severity.value for finding in project.lint(hints=True).findings] == ["deprecated", "hint"]


def test_other_rules_are_another_question(project: Project) -> None:
    project.lint()
    assert project.lint(select=("FSDP2",)).findings == ()
    assert len(project.lint().findings) == 1
    assert project.linted == []


def test_a_file_is_linted_again_when_a_module_that_it_imports_changes(project: Project) -> None:
    project.write("use.py", USER)
    project.write("lib.py", "Wrapped = object\n")
    assert [finding.path for finding in project.lint().findings] == ["a.py"]
    project.write("lib.py", "from torch.distributed.fsdp import FullyShardedDataParallel as Wrapped\n")
    assert [finding.path for finding in project.lint().findings] == ["a.py", "use.py"]
    (project.root / "lib.py").unlink()
    assert [finding.path for finding in project.lint().findings] == ["a.py"]


def test_a_module_that_several_reports_depend_on_is_not_read_for_each(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"one.py": USER, "two.py": USER, "lib.py": "from dist import *\n"}.items():
        project.write(name, text)
    project.write("dist.py", LEGACY + "Wrapped = FSDP\n")
    first = project.lint()
    assert {"one.py", "two.py"} <= {finding.path for finding in first.findings}
    read: list[str] = []
    digest_of = cache._digest_of
    monkeypatch.setattr(cache, "_digest_of", lambda path: read.append(os.path.basename(path)) or digest_of(path))
    assert project.lint() == first
    assert project.linted == []
    assert read == []  # that they are as they were was seen when they were looked at
    os.utime(project.root / "dist.py", (1, 1))
    assert project.lint() == first
    assert read == ["dist.py"]


def test_fixes_are_not_kept_so_who_wants_them_gets_a_new_report(project: Project) -> None:
    project.lint()
    (finding,) = project.lint(fixes=True).findings
    assert finding.fix is not None
    assert project.linted == ["a.py"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1, "files": {"x": 1}}', '{"format": 0, "files": {}}', "\0"]
)
def test_a_broken_cache_is_no_cache(project: Project, text: str) -> None:
    first = project.lint()
    project.file.write_text(text)
    assert project.lint() == first
    assert project.linted == ["a.py"]
    assert project.lint() == first
    assert project.linted == []


def test_a_report_that_makes_no_sense_is_made_anew(project: Project) -> None:
    first = project.lint()
    held = json.loads(project.file.read_text())
    for entry in held["files"].values():
        for report in entry[3].values():
            report["findings"] = [[1]]
    project.file.write_text(json.dumps(held))
    assert project.lint() == first


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_nobody_else_can_write_and_what_others_can_write_is_not_read(project: Project) -> None:
    project.lint()
    assert project.store.stat().st_mode & 0o777 == 0o700
    assert project.file.stat().st_mode & 0o777 == 0o600
    project.file.chmod(0o666)
    project.lint()
    assert project.linted == ["a.py"]
    project.store.chmod(0o777)
    with pytest.raises(CacheError, match="another user can write to it"):
        project.lint()


@pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")
def test_a_link_in_the_place_of_the_cache_is_not_followed(project: Project) -> None:
    project.lint()
    elsewhere = project.root.parent / "planted.json"
    project.file.rename(elsewhere)
    (project.store / elsewhere.name).unlink(missing_ok=True)
    first = next(iter(json.loads(elsewhere.read_text())["files"]))
    assert first
    name = cache._name()
    (project.store / f"{name}.json").symlink_to(elsewhere)
    project.lint()
    assert project.linted == ["a.py"]


@pytest.mark.parametrize("part", ["rules/card.py", "planning/cache.py", "source.py", "torch_api/fsdp.json.gz"])
def test_another_program_has_another_cache(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed, stat, name = Path(fsdp_migrate.__file__).parent / part, os.stat, cache._name()
    assert cache._name() == name

    def touched(path: str) -> object:
        found = stat(path)
        later = Path(path) == changed
        return SimpleNamespace(st_size=found.st_size, st_mtime_ns=found.st_mtime_ns + later)

    with monkeypatch.context() as patched:
        patched.setattr(cache.os, "stat", touched)
        other = cache._name()
    assert other != name


def test_a_folder_that_cannot_be_one_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot be used"):
        cache.Cache(str(tmp_path / "file"))


def test_a_file_written_just_now_is_not_taken_for_one_that_stays(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_FRESH_NS", 3_600_000_000_000)
    project.lint()
    project.lint()
    assert "b.py" in project.screened


def test_what_editors_and_tests_leave_in_a_folder_changes_nothing(project: Project) -> None:
    project.lint()
    (project.root / ".a.py.swp").write_text("")
    (project.root / "notes.txt").write_text("")
    (project.root.parent / "another project").mkdir()
    project.lint()
    assert project.linted == []


def test_a_new_module_may_be_one_that_is_imported(project: Project) -> None:
    project.write("use.py", USER)
    assert [finding.path for finding in project.lint().findings] == ["a.py"]
    project.write("lib.py", "from torch.distributed.fsdp import FullyShardedDataParallel as Wrapped\n")
    assert [finding.path for finding in project.lint().findings] == ["a.py", "use.py"]


@pytest.mark.parametrize("place", ["src/lib.py", "src/lib/__init__.py", "src/inner/lib.py", "packages/lib/__init__.py"])
def test_a_new_module_beside_the_folders_of_the_run_counts_too(place: str, project: Project) -> None:
    user = USER.replace("from lib", "from inner.lib") if "inner" in place else USER
    project.write(".git/HEAD", "")
    project.write("scripts/use.py", user)
    project.write("src/inner/__init__.py", "")
    project.write("packages/setup.py", "")
    project.lint(folder="scripts")
    assert project.lint(folder="scripts").findings == ()
    project.write(place, "from torch.distributed.fsdp import FullyShardedDataParallel as Wrapped\n")
    assert [finding.path for finding in project.lint(folder="scripts").findings] == ["scripts/use.py"]


def test_a_package_that_takes_the_place_of_a_module_elsewhere_is_noticed(project: Project) -> None:
    project.write(".git/HEAD", "")
    project.write("scripts/use.py", USER.replace("from lib", "from inner.lib"))
    project.write("src/inner/__init__.py", "")
    project.write("src/inner/lib.py", "from torch.distributed.fsdp import FullyShardedDataParallel as Wrapped\n")
    assert len(project.lint(folder="scripts").findings) == 1
    project.write("src/inner/lib/__init__.py", "class Wrapped:\n    pass\n")
    assert project.lint(folder="scripts").findings == ()


@pytest.mark.parametrize(("folder", "again"), [(".", []), ("lib", [os.path.join("lib", "flat.py")])])
def test_what_hangs_on_files_that_the_run_does_not_look_at_is_not_known(
    folder: str, again: list[str], project: Project
) -> None:
    project.write("pyproject.toml", "")
    head = "from torch.distributed.fsdp import FlatParameter\n"
    project.write("lib/flat.py", f"{head}\ndef is_flat(p):\n    return any(isinstance(p, FlatParameter) for p in p)\n")
    project.write("user.py", "from lib.flat import FlatParameter\n")
    first = project.lint(folder=folder)
    assert "FSDP301" in [finding.code for finding in first.findings]
    assert project.lint(folder=folder) == first
    assert project.linted == again


def test_what_another_module_starts_to_give_counts_where_its_name_is_written(project: Project) -> None:
    old = TorchRange.parse(">=1.12")
    project.write(
        "c.py", "import torch.distributed.fsdp as f\n\nf.FullyShardedDataParallel.full_optim_state_dict(m, *o)\n"
    )
    project.write("helper.py", "Wrapper = None\n")
    project.write("train.py", "from helper import Wrapper\n\nmodel = Wrapper(net)\n")
    assert "train.py" not in {finding.path for finding in project.lint(hints=True, torch=old).findings}
    project.write(
        "helper.py",
        "from torch.distributed.fsdp import FullyShardedDataParallel\n\nWrapper = FullyShardedDataParallel\n",
    )
    assert "train.py" in {finding.path for finding in project.lint(hints=True, torch=old).findings}
    assert "train.py" in project.linted
    project.write(
        "helper.py",
        "from torch.distributed.fsdp import FullyShardedDataParallel\n\nWrapper = Other = FullyShardedDataParallel\n",
    )
    project.lint(hints=True, torch=old)
    assert "c.py" not in project.linted
