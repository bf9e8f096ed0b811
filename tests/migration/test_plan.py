"""`fsdp-migrate plan`: where the code stands, steps in order, and their commands."""

from __future__ import annotations

import ast
import errno
import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from fsdp_migrate import source
from fsdp_migrate.commands.cli import cli
from fsdp_migrate.facts import project_code

Run = Callable[..., Result]
ROOT = Path(__file__).parent.parent.parent
SCHEMA = json.loads((ROOT / "docs" / "plan.schema.json").read_text())
SAFE = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def gathered(model, optim):
    return FSDP.full_optim_state_dict(model, optim)
"""
UNSAFE = """\
from torch.distributed.fsdp import FlatParameter, FullyShardedDataParallel as FSDP


def flat(model: FSDP):
    return [p for p in model.parameters() if isinstance(p, FlatParameter)]
"""
MODEL = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(hook):
    model = FSDP(torch.nn.Linear(2, 2))
    {use}
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    Path(".git").mkdir()

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)

    return invoke


def planned(run: Run, *arguments: str) -> dict[str, object]:
    document = json.loads(run("plan", "--output-format", "json", *arguments, ".").stdout)
    jsonschema.validate(document, SCHEMA)
    assert isinstance(document, dict)
    return document


def steps(document: dict[str, object]) -> dict[str, dict[str, object]]:
    return {step["id"]: step for step in document["steps"]}  # type: ignore[attr-defined]


def obey(run: Run, command: object) -> Result:
    program, *words = shlex.split(str(command))
    assert program == "fsdp-migrate"
    return run(*words)


def test_steps_come_in_order_and_lead_to_the_end(run: Run) -> None:
    Path("a.py").write_text(SAFE)
    Path("requirements.txt").write_text("torch>=2.2\n")
    document = planned(run)
    (step,) = document["steps"]  # type: ignore[misc]
    assert (step["id"], step["by"], step["rules"]) == ("safe", "fsdp-migrate", ["FSDP101"])
    assert document["numbers"]["safe"] == 1  # type: ignore[index]
    assert obey(run, step["check"]).exit_code == 1
    assert obey(run, step["command"]).exit_code == 0
    assert obey(run, step["check"]).exit_code == 0
    assert run("plan", ".").exit_code == 0


def test_the_diffs_of_a_step_are_what_its_command_does(run: Run) -> None:
    Path("a.py").write_text(SAFE)
    step = steps(planned(run))["safe"]
    patch = "".join(one["diff"] for one in step["diffs"])  # type: ignore[attr-defined]
    subprocess.run(["git", "init", "-q", "."], check=True)
    subprocess.run(["git", "apply"], input=patch, text=True, check=True)
    by_diff = Path("a.py").read_text()
    Path("a.py").write_text(SAFE)
    obey(run, step["command"])
    assert Path("a.py").read_text() == by_diff != SAFE


def test_an_unsafe_fix_has_its_diff_and_what_differs(run: Run) -> None:
    Path("a.py").write_text(UNSAFE)
    step = steps(planned(run))["accept-FSDP301"]
    (found,) = step["findings"]  # type: ignore[misc]
    assert "+++ b/a.py" in found["diffs"][0]["diff"]
    assert found["reason"]
    assert obey(run, step["command"]).exit_code == 0
    assert obey(run, step["check"]).exit_code == 0
    assert not planned(run)["steps"]


def test_lines_of_a_later_step_are_those_that_the_earlier_ones_leave(run: Run) -> None:
    Path("a.py").write_text(SAFE + UNSAFE)
    found = steps(planned(run))
    assert found["accept-FSDP301"]["after"] == ["safe"]
    line = found["accept-FSDP301"]["findings"][0]["line"]  # type: ignore[index]
    obey(run, found["safe"]["command"])
    assert "isinstance" in Path("a.py").read_text().splitlines()[line - 1]
    assert "lines are those once step 1 is done" not in run("plan", ".").stdout


def test_a_step_whose_files_stay_as_they_are_comes_after_none(run: Run) -> None:
    Path("a.py").write_text(SAFE)
    Path("b.py").write_text(UNSAFE)
    assert steps(planned(run))["accept-FSDP301"]["after"] == []


def test_things_that_stop_the_same_models_are_one_step(run: Run) -> None:
    both = "model.register_comm_hook(None, hook)\n    hook(model.{name})"
    Path("a.py").write_text(MODEL.format(use=both.format(name="no_such")))
    Path("b.py").write_text(MODEL.format(use=both.format(name="no_other")))
    document = planned(run, "--target", "fsdp2", "--torch", ">=2.13")
    first, *others = steps(document).values()
    assert first["frees"] == {"stopped": 2, "alone": 0}
    assert [len(one["causes"]) for one in (first, *others)] == [1, 1, 1]  # type: ignore[arg-type]
    text = run("plan", "--target", "fsdp2", "--torch", ">=2.13", ".").stdout
    assert text.count("`model.register_comm_hook` changes how gradients are communicated") == 1
    assert text.count(": stopped (steps 1, ") == 2


def test_a_lower_bound_that_settles_findings_is_the_first_step(run: Run) -> None:
    Path("requirements.txt").write_text("torch>=2.1\n")
    Path("a.py").write_text("from torch.distributed._composable.fsdp import fully_shard\n\nprint(fully_shard)\n")
    first = planned(run)["steps"][0]  # type: ignore[index]
    assert first["id"] == "floor"
    assert first["places"] == [{"path": "requirements.txt", "line": 1}]
    assert "starts at 2." in first["todo"]


def test_a_target_that_needs_a_newer_torch_says_so_first(run: Run) -> None:
    Path("requirements.txt").write_text("torch>=2.1\n")
    Path("a.py").write_text(MODEL.format(use="model.eval()"))
    found = steps(planned(run, "--target", "fsdp2"))
    assert list(found) == ["floor-of-target", "accept-fsdp2"]
    # What comes then is for that torch.
    assert "--torch='>=2.6'" in str(found["accept-fsdp2"]["command"])
    Path("requirements.txt").write_text("torch>=2.6\n")
    (step,) = steps(planned(run, "--target", "fsdp2")).values()
    assert "--torch" not in str(step["command"])


def test_state_dicts_are_a_step_of_their_own(run: Run) -> None:
    Path("a.py").write_text(
        f"import torch\nfrom torch.distributed.fsdp import StateDictType\n{SAFE}\n\ndef keep(model):\n"
        "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n        weights = model.state_dict()\n"
        "    torch.save(weights, 'f')\n"
    )
    found = steps(planned(run, "--target", "dcp"))
    assert list(found) == ["states", "accept-FSDP101"]
    assert found["accept-FSDP101"]["after"] == ["states"]
    for step in found.values():
        assert obey(run, step["command"]).exit_code in (0, 1)
    assert "get_optimizer_state_dict" in Path("a.py").read_text()


def test_what_stops_models_says_how_many_it_frees(run: Run) -> None:
    Path("a.py").write_text(MODEL.format(use="model.register_comm_hook(None, hook)"))
    Path("b.py").write_text(MODEL.format(use="model.register_comm_hook(None, hook)"))
    Path("c.py").write_text(MODEL.format(use="model.eval()"))
    document = planned(run, "--target", "fsdp2", "--torch", ">=2.13")
    found = steps(document)
    assert list(found) == ["convert", "blocker-1"]
    assert found["blocker-1"]["frees"] == {"stopped": 2, "alone": 2}
    assert "fully_shard" in found["convert"]["findings"][0]["diffs"][0]["diff"]  # type: ignore[index]
    assert document["numbers"]["programs"] == 3  # type: ignore[index]


def test_packages_say_which_parts_of_torch_they_use(run: Run) -> None:
    Path("lib/train").mkdir(parents=True)
    for name in ("lib/__init__.py", "lib/train/__init__.py"):
        Path(name).write_text("")
    Path("lib/train/a.py").write_text(
        "import torch\nimport torch.distributed.checkpoint as dcp\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard\n"
        "print(torch.amp.autocast, dcp, fully_shard, FullyShardedDataParallel)\n"
    )
    (package,) = planned(run)["packages"]  # type: ignore[misc]
    assert package["name"] == "lib/train"
    assert package["uses"] == {"FSDP1": 1, "FSDP2": 1, "DCP": 1, "launch": 0, "amp": 1}


def test_options_are_repeated_in_commands(run: Run) -> None:
    Path("a.py").write_text(SAFE)
    step = steps(planned(run, "--torch", ">=2.2,<2.8", "--isolated"))["safe"]
    assert shlex.split(str(step["command"]))[2:] == ["--torch=>=2.2,<2.8", "--isolated", "."]


def test_the_target_may_stand_in_the_settings(run: Run) -> None:
    Path("a.py").write_text(MODEL.format(use="model.eval()"))
    Path("fsdp-migrate.toml").write_text('target = "fsdp2"\n')
    assert planned(run)["target"] == "fsdp2"


@pytest.mark.parametrize("name", ["plan.json", "plan.txt"])
def test_the_suffix_of_the_file_decides_the_format(run: Run, name: str) -> None:
    Path("a.py").write_text(SAFE)
    assert run("plan", "-o", name, ".").exit_code == 1
    assert Path(name).read_text().startswith("{") == (name == "plan.json")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-o", "plan.xyz"), "the suffix of plan.xyz is no format"),
        (("-o", "none/plan.json"), "none/plan.json cannot be written: No such file or directory"),
        (("-o", "."), "'.' is a directory"),
        (("--output-format", "html"), "a page goes into a file"),
    ],
)
def test_what_is_wrong_with_the_file_is_told_before_the_plan_is_made(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.setattr("fsdp_migrate.migration.making.migration", None)
    result = run("plan", *arguments, ".")
    assert (result.exit_code, told in result.stderr) == (2, True)


@pytest.mark.parametrize("name", ["plan.txt", "plan.md", "plan.json", "plan.html"])
def test_a_full_disk_is_one_line_and_leaves_the_old_plan(run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def full(descriptor: int, new: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Path("a.py").write_text(SAFE)
    Path(name).write_text("the old one")
    monkeypatch.setattr("fsdp_migrate.replacing._write_all", full)
    for path in (name, f"new-{name}"):
        result = run("plan", "-o", path, ".")
        assert result.exit_code == 2
        assert f"{path} cannot be written: No space left on device" in result.stderr
    assert sorted(os.listdir()) == sorted([".git", "a.py", name])
    assert Path(name).read_text() == "the old one"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("name", ["text", "markdown", "json", "html"])
def test_a_device_that_takes_nothing_is_one_line(run: Run, name: str) -> None:
    Path("a.py").write_text(SAFE)
    result = run("plan", "--output-format", name, "-o", "/dev/full", ".")
    assert result.exit_code == 2
    assert "/dev/full cannot be written: No space left on device" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--prove", "none.json"), "none.json cannot be read: No such file or directory"),
        (("--prove", "a.py"), "a.py is not what `prove --output-format json` writes"),
    ],
)
def test_bad_usage_is_one_clear_line(run: Run, arguments: tuple[str, ...], told: str) -> None:
    Path("a.py").write_text(SAFE)
    result = run("plan", *arguments, ".")
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_a_plan_is_compared_with_an_earlier_one(run: Run) -> None:
    Path("a.py").write_text(SAFE)
    run("plan", "-o", "old.json", ".")
    Path("a.py").write_text("\n\n" + UNSAFE)
    found = planned(run, "--since", "old.json")["since"]
    assert [one["text"].split()[1] for one in found["done"]] == ["FSDP101"]  # type: ignore[index]
    assert [one["text"].split()[1] for one in found["new"]] == ["FSDP301"]  # type: ignore[index]
    result = run("plan", "--target", "dcp", "--since", "old.json", ".")
    assert result.exit_code == 2
    assert "old.json is a plan for a newer torch, and this one is for dcp" in result.stderr


def test_what_is_parsed_to_follow_the_models_is_not_parsed_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("main.py").write_text(MODEL.format(use="hook.kept = model"))
    parsed: list[str] = []
    parse = source.parse

    def counted(text: str) -> ast.Module:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(source, "parse", counted)
    assert planned(run, "--target", "fsdp2")["models"]
    assert parsed.count(Path("main.py").read_text()) == 1


def test_a_model_that_goes_through_too_much_code_is_stopped_with_a_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("train.py").write_text("def fit(model):\n    model.train()\n")
    Path("main.py").write_text("from train import fit\n" + MODEL.format(use="fit(model)"))
    monkeypatch.setattr(project_code, "MOST_TEXT", 20)
    plan = planned(run, "--target", "fsdp2")
    assert "is longer than 20 bytes" in json.dumps(plan)
    assert "name the files of this program only" in json.dumps(plan)
