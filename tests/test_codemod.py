from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from libcst import parse_module
from libcst.codemod import CodemodContext, CodemodTest, SkipFile

import fsdp_migrate
from fsdp_migrate import codemod
from fsdp_migrate.codemod import MigrateFsdp
from fsdp_migrate.planning.parts import RewriteResult
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.splicing import RewriteError
from fsdp_migrate.torch_api import RangeError, TorchRange
from fsdp_migrate.workspace.settings import ConfigError, Settings

BEFORE = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, optim):
    return FSDP.sharded_optim_state_dict(model, optim)


def order(model, optim, osd):
    return FSDP.optim_state_dict_to_load(osd, model, optim)
"""
ORDERED = BEFORE.replace("(osd, model, optim)", "(model=model, optim=optim, optim_state_dict=osd)")
AFTER = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


def save(model, optim):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return FSDP.optim_state_dict(model, optim)


def order(model, optim, osd):
    return FSDP.optim_state_dict_to_load(model=model, optim=optim, optim_state_dict=osd)
"""


class TestMigrateFsdp(CodemodTest):
    TRANSFORM = MigrateFsdp

    def test_safe_fixes_are_applied_and_the_rest_is_warned_of(self) -> None:
        context = CodemodContext(filename="pkg/train.py")
        self.assertCodemod(BEFORE, ORDERED, context_override=context)
        (warning,) = context.warnings
        assert warning.startswith("pkg/train.py:5:12: FSDP102 ")
        assert ", unsafe fix: " in warning

    def test_unsafe_fixes_are_applied_when_asked_for(self) -> None:
        self.assertCodemod(BEFORE, AFTER, unsafe_fixes=True, expected_warnings=[])

    def test_a_module_without_the_names_is_skipped(self) -> None:
        self.assertCodemod("x = 1\n", "x = 1\n", expected_skip=True)

    def test_rules_are_selected_and_ignored_as_on_the_command_line(self) -> None:
        self.assertCodemod(BEFORE, ORDERED, select=["optim-state-dict-to-load-order"], expected_warnings=[])
        self.assertCodemod(BEFORE, ORDERED, ignore=["FSDP102"], expected_warnings=[])
        self.assertCodemod(BEFORE, ORDERED, select=["FSDP1,FSDP2"], ignore=["fsdp102"], expected_warnings=[])

    def test_the_torch_range_decides_what_is_fixed(self) -> None:
        self.assertCodemod(BEFORE, BEFORE, select=["FSDP107"], torch="<2.1,>=2.0")
        self.assertCodemod(BEFORE, ORDERED, select=["FSDP107"], torch=TorchRange.parse(">=2.0"))

    def test_the_target_is_moved_to(self) -> None:
        with_ = "    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
        imported = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType\n\n\n"
        before = f"{imported}def state(model):\n{with_}        return model.state_dict()\n"
        after = (
            "from torch.distributed.checkpoint.state_dict import get_model_state_dict\n\n\n"
            "def state(model):\n    return get_model_state_dict(model)\n"
        )
        self.assertCodemod(before, after, target="dcp", torch=">=2.8", expected_warnings=[])
        self.assertCodemod(before, before, target="dcp", torch=">=2.1")
        self.assertCodemod(before, before)
        with pytest.raises(ConfigError, match="no target `ddp`"):
            MigrateFsdp(CodemodContext(), target="ddp")


def transform(raw: bytes) -> bytes:
    return MigrateFsdp(CodemodContext(), unsafe_fixes=True).transform_module(parse_module(raw)).bytes


@pytest.mark.parametrize(
    "raw",
    [
        AFTER.encode(),
        BEFORE.encode(),
        BEFORE.replace("\n", "\r\n").encode(),
        BEFORE.encode("utf-8-sig"),
        f"# coding: latin-1\n# café\n{BEFORE}".encode("latin-1"),
        BEFORE.replace("    ", "\t").encode(),
        f"name = 'ä€𝄞'\n{BEFORE}".rstrip().encode(),
    ],
    ids=["fixed", "plain", "crlf", "bom", "latin-1", "tabs", "no-last-newline"],
)
def test_the_bytes_are_those_of_the_rewrite_command(raw: bytes) -> None:
    settings = Settings(TorchRange.parse(">=2.1"), unsafe_fixes=True)
    assert transform(raw) == rewrite_bytes(raw, "a.py", settings).raw


def test_a_module_with_nothing_to_fix_is_given_back_as_it_is() -> None:
    module = parse_module(AFTER)
    assert MigrateFsdp(CodemodContext()).transform_module_impl(module) is module


def test_hints_are_no_warnings() -> None:
    command = MigrateFsdp(CodemodContext())
    command.transform_module(parse_module(AFTER))
    assert command.context.warnings == []


def test_an_encoding_that_the_text_declares_is_kept_when_it_was_parsed_from_a_string() -> None:
    text = f"# coding: latin-1\n# café\n{BEFORE}"
    new = MigrateFsdp(CodemodContext(), unsafe_fixes=True).transform_module(parse_module(text))
    assert new.code == f"# coding: latin-1\n# café\n{AFTER}"


def test_a_rewrite_that_fails_fails_the_codemod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codemod, "rewrite_bytes", lambda raw, *_: RewriteResult(raw, error="internal: x"))
    with pytest.raises(RewriteError, match="internal: x"):
        MigrateFsdp(CodemodContext()).transform_module(parse_module(BEFORE))


def test_settings_that_cannot_be_used_are_errors() -> None:
    with pytest.raises(RangeError, match="'soon'"):
        MigrateFsdp(CodemodContext(), torch="soon")
    with pytest.raises(ConfigError, match="FSDP888"):
        MigrateFsdp(CodemodContext(), ignore=["FSDP888"])


def test_a_skip_says_why() -> None:
    with pytest.raises(SkipFile, match="no FSDP names"):
        MigrateFsdp(CodemodContext()).transform_module(parse_module("import torch\n"))


def project(folder: Path) -> Path:
    """A project whose modules get FSDP from one another; gives the one that saves."""
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    package = folder / "lib"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "dist.py").write_text("from torch.distributed.fsdp import FullyShardedDataParallel as Wrapper\n")
    (package / "save.py").write_text(FOLLOWED.format(arguments="osd, model, optim"))
    return package / "save.py"


FOLLOWED = """\
from .dist import Wrapper


def order(model, optim, osd):
    return Wrapper.optim_state_dict_to_load({arguments})
"""


def test_names_are_followed_through_the_modules_of_the_project(tmp_path: Path) -> None:
    path = project(tmp_path)
    command = MigrateFsdp(CodemodContext(filename=str(path)))
    new = command.transform_module(parse_module(path.read_text()))
    assert new.code == FOLLOWED.format(arguments="model=model, optim=optim, optim_state_dict=osd")
    assert command.context.warnings == []


def test_a_module_that_has_all_names_from_its_project_is_not_skipped(tmp_path: Path) -> None:
    path = project(tmp_path)
    (path.parent / "old.py").write_text("from torch.distributed.fsdp import FlatParameter as Old\n")
    text = "from .old import Old\n\n\ndef check(ps):\n    return any(isinstance(p, Old) for p in ps)\n"
    command = MigrateFsdp(CodemodContext(filename=str(path)))
    new = command.transform_module(parse_module(text))
    assert new.code == 'def check(ps):\n    return any(getattr(p, "_fsdp_flattened", False) for p in ps)\n'


def test_without_a_filename_what_is_not_followed_is_warned_of(tmp_path: Path) -> None:
    text = project(tmp_path).read_text()
    command = MigrateFsdp(CodemodContext())
    assert command.transform_module(parse_module(text)).code == text
    (warning,) = command.context.warnings
    assert warning == "the context has no filename: modules of the project, which this one imports, are not followed"


def libcst_tool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(fsdp_migrate.__file__).parent.parent)}
    command = [sys.executable, "-m", "libcst.tool", "codemod", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_libcst_runs_it_over_a_project(tmp_path: Path) -> None:
    (tmp_path / ".libcst.codemod.yaml").write_text("modules: [fsdp_migrate]\nformatter: []\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "other.py").write_text("x = 1\n")
    # More than LibCST gives to one process.
    trainers = [tmp_path / "src" / f"train_{number}.py" for number in range(5)]
    for trainer in trainers:
        trainer.write_text(BEFORE)
    options = ["--torch", ">=2.1", "--select", "FSDP1", "--ignore", "FSDP102", "--no-format", "-j", "2"]
    run = libcst_tool(tmp_path, "codemod.MigrateFsdp", *options, "src")
    assert run.returncode == 0, run.stderr
    assert [trainer.read_text() for trainer in trainers] == [ORDERED] * 5
    assert "Transformed 5 files successfully" in run.stderr
    assert "Skipped 1 files" in run.stderr


def test_libcst_finds_it_by_its_full_name_and_shows_bad_options_in_a_line(tmp_path: Path) -> None:
    run = libcst_tool(tmp_path, "-x", "fsdp_migrate.codemod.MigrateFsdp", "--torch", "soon", ".")
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].endswith(
        "error: argument --torch: not a torch version range: 'soon'; write it like '>=2.1' or '>=2.1,<2.16'"
    )
