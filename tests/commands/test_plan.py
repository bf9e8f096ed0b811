"""`fsdp-migrate plan --target fsdp2` model by model, and `verify --rewrite` with that target."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli

Run = Callable[..., Result]
TRAIN = """\
import torch
from build import sharded


def scenario(trial):
    model = sharded(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters())
    {use}
"""
BUILD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sharded(net):
    return FSDP(net)
"""


SAVE = """\
import torch
from build import sharded
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main():
    model = sharded(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters())
    return FSDP.optim_state_dict(model, optimizer)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    Path(".git").mkdir()

    def invoke(*arguments: str) -> Result:
        if arguments[0] == "plan" and "--target" not in arguments:
            arguments = ("plan", "--target", "fsdp2", *arguments[1:])
        return CliRunner().invoke(cli, [*arguments, "--isolated"] if arguments[0] != "verify" else list(arguments))

    return invoke


def by_model(result: Result) -> str:
    """What stands in a plan about each model."""
    return result.stdout.partition("\nModel by model:\n")[2]


def write(use: str) -> None:
    Path("train.py").write_text(TRAIN.format(use=use))
    Path("build.py").write_text(BUILD)


def test_a_program_that_converts_whole(run: Run) -> None:
    write("optimizer.step()")
    result = run("plan", "--target", "fsdp2", "--torch", ">=2.13", ".")
    assert result.exit_code == 1
    first, *_ = by_model(result).splitlines()
    assert first == "`net`, built at build.py:5 (2 places in 2 files): converts whole"
    assert "$ fsdp-migrate rewrite --target fsdp2 --torch='>=2.13' build.py train.py" in by_model(result)
    assert "\n1 model of FSDP1: 1 converts whole\n" in result.stdout


def test_what_stops_a_program_has_its_place_and_what_frees_it(run: Run) -> None:
    write("model.register_comm_hook(None, print)")
    result = run("plan", "--target", "fsdp2", "--torch", ">=2.13", ".")
    assert result.exit_code == 1
    (told,) = by_model(result).splitlines()
    assert told.endswith(": stopped (step 1)")
    title, step, todo, place, *_ = (line.strip() for line in result.stdout.partition("\n\n")[2].splitlines())
    assert title == "1. [you] Free `net`, built at build.py:5"
    assert step.startswith("`model.register_comm_hook` changes how gradients are communicated")
    assert todo.startswith("to do: ")
    assert place == "at train.py:8"


def test_code_that_is_nested_too_deeply_stops_the_model(run: Run) -> None:
    write(f"model{'.module' * 800}.eval()")
    result = run("plan", "--target", "fsdp2", ".")
    assert result.exit_code == 1
    assert "   the code that uses it is nested too deeply to be followed\n" in result.stdout


@pytest.mark.parametrize("step", ["closures", "target"])
def test_code_that_takes_too_many_steps_to_follow_stops_the_model(
    run: Run, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(f"fsdp_migrate.targets.fsdp2.{step}.MOST_WORK", 5)
    write("optimizer.step()")
    before = Path("train.py").read_text()
    result = run("plan", "--target", "fsdp2", "--torch", ">=2.13", ".")
    assert result.exit_code == 1
    assert "   it goes through so much code that 250,000 steps do not do to follow it\n" in result.stdout
    assert "to do: name the files of this program only, or convert it by hand" in result.stdout
    run("rewrite", "--target", "fsdp2", "--torch", ">=2.13", "--unsafe-fixes", ".")
    assert Path("train.py").read_text() == before


def test_the_document_has_the_same_content(run: Run) -> None:
    write("optimizer.step()")
    text = run("plan", "--torch", ">=2.6", ".").stdout
    document = json.loads(run("plan", "--torch", ">=2.6", "--output-format", "json", ".").stdout)
    (model,) = document["models"]
    assert (document["target"], model["name"], model["status"]) == (
        "fsdp2", "net", "converts whole, with differences to accept"
    )  # fmt: skip
    for step in model["steps"]:
        assert (step["command"] or step["text"]) in text
    assert document["summary"] in text


def test_the_steps_of_a_plan_can_be_taken(run: Run) -> None:
    write("optimizer.step()")
    document = json.loads(run("plan", "--torch", ">=2.13", "--output-format", "json", ".").stdout)
    (step,) = [step for step in document["models"][0]["steps"] if step["by"] == "fsdp-migrate"]
    _, *command = shlex.split(step["command"])
    assert run(*command).exit_code == 0
    result = run("plan", "--torch", ">=2.13", ".")
    assert (result.exit_code, by_model(result)) == (0, "")


def test_without_models_nothing_is_left(run: Run) -> None:
    Path("train.py").write_text("import torch\n")
    result = run("plan", ".")
    assert result.exit_code == 0
    assert result.stdout.endswith("\nno model of FSDP1\nnothing is left to do\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-",), "name files or folders instead of '-'"),
        (("--select", "FSDP1", "."), "--select is for findings"),
        (("--baseline", "known.json", "."), "--baseline is for findings"),
        (("--no-hints", "."), "--hints is for findings"),
    ],
)
def test_what_a_plan_is_not_for(run: Run, arguments: tuple[str, ...], told: str) -> None:
    result = run("plan", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_the_commands_of_a_plan_have_its_options(run: Run) -> None:
    write("optimizer.step()")
    options = ("--fsdp2-helper=never", "--checkpoints=new", "--all-parameters-used")
    document = json.loads(run("plan", "--torch=>=2.7", *options, "--output-format", "json", ".").stdout)
    check, convert = (shlex.split(step["command"]) for step in document["models"][0]["steps"])
    assert check[6:-2] == ["--torch-range=>=2.7", *options]
    assert convert[4:-2] == ["--torch=>=2.7", *options]


@pytest.mark.parametrize("option", ["--all-parameters-used", "--torch=>=2.13", "--torch=>=2.6"])
def test_the_comparison_of_a_plan_converts_what_it_says(run: Run, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write("optimizer.step()")
    monkeypatch.setattr("fsdp_migrate.verify.run", lambda *_, pairs, **__: 0 if pairs else 1)
    document = json.loads(run("plan", option, "--output-format", "json", ".").stdout)
    *_, check, _ = document["models"][0]["steps"]
    arguments = ["train.py" if one == "PROGRAM" else one for one in shlex.split(check["command"])[1:]]
    assert ("--unsafe-fixes" in arguments) == (option == "--torch=>=2.6")
    assert run(*arguments).exit_code == 0


def test_a_program_is_compared_before_it_is_converted(run: Run) -> None:
    write("optimizer.step()")
    document = json.loads(run("plan", "--torch", ">=2.6", "--output-format", "json", ".").stdout)
    check, convert = document["models"][0]["steps"][-2:]
    assert (check["title"], convert["title"]) == ("compare", "convert")
    # Without them there would be nothing to compare.
    assert "--unsafe-fixes" in check["command"]
    assert "--unsafe-fixes" in convert["command"]


def test_state_dicts_go_first_where_something_stops_the_model(run: Run) -> None:
    write("model.register_comm_hook(None, print)")
    Path("save.py").write_text(SAVE)
    step, *_ = json.loads(run("plan", "--torch", ">=2.2", "--output-format", "json", ".").stdout)["models"][0]["steps"]
    assert (step["title"], step["by"]) == ("already now", "fsdp-migrate")
    assert step["command"] == "fsdp-migrate rewrite --target dcp --torch='>=2.4' save.py"


def test_many_places_of_a_file_are_cut_short_in_the_text_alone(run: Run) -> None:
    write("\n    ".join(["model.register_comm_hook(None, print)"] * 50))
    text = run("plan", "--torch", ">=2.13", ".").stdout
    (shown, more) = re.findall(r" train\.py:([\d,]+) \(and (\d+) more\)", text)[0]
    assert len(shown.split(",")) + int(more) == 50
    assert int(more) > 0
    document = json.loads(run("plan", "--torch", ">=2.13", "--output-format", "json", ".").stdout)
    assert len(document["models"][0]["places"]) > 50
    for number in range(30):
        Path(f"other{number}.py").write_text(Path("train.py").read_text())
    assert "(and 11 more files)" in run("plan", "--torch", ">=2.13", ".").stdout


def test_a_file_that_does_not_parse_is_named(run: Run) -> None:
    write("optimizer.step()")
    Path("broken.py").write_text("from torch.distributed.fsdp import FullyShardedDataParallel\nx = (\n")
    result = run("plan", "broken.py")
    assert result.exit_code == 3
    assert "\n1 file cannot be looked at; the others have no model of FSDP1\n" in result.stdout
    assert result.stderr == "error: broken.py:2: the file does not parse: '(' was never closed\n"
    result = run("plan", ".")
    assert result.exit_code == 3
    assert "1 stopped" in result.stdout
    assert "to do: correct that file, or leave it out by `--exclude`" in result.stdout


def test_a_file_in_utf_16_is_named(run: Run) -> None:
    Path("train.py").write_text(BUILD, "utf-16")
    result = run("plan", ".")
    assert result.exit_code == 3
    assert "\n1 file cannot be looked at; the others have no model of FSDP1\n" in result.stdout
    assert result.stderr.startswith("error: train.py: cannot be decoded: it is UTF-16")


def notebook(*cells: str) -> str:
    code = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    return json.dumps({"cells": [{**code, "source": cell} for cell in cells], "metadata": {}, "nbformat": 4})


@pytest.mark.parametrize("first", ["", "%%writefile train.py\n"])
def test_a_model_that_a_notebook_builds_is_named(run: Run, first: str) -> None:
    cell = f"{first}from torch.distributed.fsdp import FullyShardedDataParallel\nmodel = FullyShardedDataParallel(net)"
    Path("train.ipynb").write_text(notebook("import torch", cell))
    result = run("plan", "--torch", ">=2.13", ".")
    assert result.exit_code == 1
    line = 3 if first else 2
    assert by_model(result).startswith(
        f"`model`, built at train.ipynb:cell 2:{line} (1 place in 1 file): stopped (step 1)\n"
    )
    assert "a notebook builds it" in result.stdout
    document = json.loads(run("plan", "--output-format", "json", ".").stdout)
    assert document["models"][0]["built"] == [{"path": "train.ipynb", "line": line, "cell": 2}]
    assert "a notebook builds it" in run("lint", "--target", "fsdp2", ".").stdout


def test_a_model_shares_the_fate_of_one_that_a_notebook_gives_to_the_same_code(run: Run) -> None:
    head = "import torch\nfrom steps import clip\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    use = "model = FSDP(torch.nn.Linear(2, 2))\nclip(model)\n"
    Path("steps.py").write_text("import torch\n\n\ndef clip(model):\n    model.clip_grad_norm_(1.0)\n")
    Path("train.py").write_text(head + use)
    assert "1 converts whole" in run("plan", "--torch", ">=2.13", ".").stdout
    Path("train.ipynb").write_text(notebook(head, use))
    assert "\n1 model of FSDP1: 1 stopped\n" in run("plan", "--torch", ">=2.13", ".").stdout


def test_verify_compares_with_all_modules_of_the_converted_program(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write("optimizer.step()")
    seen: dict[str, str] = {}

    def look(_settings: object, *, pairs: list[object], **_: object) -> int:
        (pair,) = pairs
        folder = pair.after.parent  # type: ignore[attr-defined]
        seen.update({path.name: path.read_text() for path in folder.iterdir()})
        return 0

    monkeypatch.setattr("fsdp_migrate.verify.run", look)
    arguments = ("--rewrite", "train.py", "--target", "fsdp2", "--unsafe-fixes")
    result = run("verify", *arguments)
    assert result.exit_code == 0, result.output
    assert seen["train.py"] == Path("train.py").read_text()
    assert "fully_shard(net)" in seen["build.py"]
    assert "FullyShardedDataParallel" in Path("build.py").read_text()


FRAMEWORKS = """\
from accelerate import FullyShardedDataParallelPlugin
from pytorch_lightning.strategies import FSDPStrategy
from transformers import TrainingArguments

plugin = FullyShardedDataParallelPlugin(sharding_strategy="FULL_SHARD")
strategy = FSDPStrategy()
arguments = TrainingArguments("out", fsdp="full_shard")
others = TrainingArguments("out")
"""


def test_a_program_of_a_framework_gets_its_setting(run: Run) -> None:
    Path("train.py").write_text(FRAMEWORKS)
    result = run("plan", ".")
    assert result.exit_code == 1
    assert "\nno model of FSDP1\n" in result.stdout
    document = json.loads(run("plan", "--output-format", "json", ".").stdout)
    found = {step["id"]: [one["line"] for one in step["findings"]] for step in document["steps"]}
    assert found == {"framework-accelerate": [5], "framework-transformers": [7], "framework-lightning": [6]}
    assert "give `fsdp_version=2`" in document["steps"][0]["todo"]
    assert "ModelParallelStrategy" in document["steps"][2]["todo"]
    (diff,) = document["steps"][1]["findings"][0]["diffs"]
    assert '+arguments = TrainingArguments("out", fsdp="full_shard", fsdp_config={"version": 2' in diff["diff"]


def test_what_a_framework_is_told_in_yaml_and_scripts_is_a_step_before_the_models(run: Run) -> None:
    write("model.register_comm_hook(None, print)")
    Path("plan.yaml").write_text("distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n")
    Path("start.sh").write_text("python -m torch.distributed.launch --use_env train.py\n")
    Path("go.sh").write_text("accelerate launch --fsdp_sharding_strategy 1 train.py\n")
    options = ("--torch", ">=2.13", "--output-format", "json", ".", "start.sh", "go.sh")
    found = {step["id"]: step for step in json.loads(run("plan", *options).stdout)["steps"]}
    assert list(found) == ["accept-FSDP822", "framework-accelerate", "blocker-1"]
    assert "+torchrun train.py" in found["accept-FSDP822"]["findings"][0]["diffs"][0]["diff"]
    step = found["framework-accelerate"]
    assert [one["path"] for one in step["findings"]] == ["go.sh", "plan.yaml"]
    assert "+  fsdp_version: 2" in step["findings"][1]["diffs"][0]["diff"]
    assert step["todo"].endswith("; 1 place without a fix: change by hand what the place says")
    _, *command = shlex.split(step["command"])
    run(*command)
    assert "fsdp_version: 2" in Path("plan.yaml").read_text()
    _, *check = shlex.split(step["check"])
    assert run(*check).exit_code == 1
    Path("go.sh").write_text("accelerate launch train.py\n")
    assert run(*check).exit_code == 0


def test_a_framework_whose_fixes_the_settings_allow_is_no_step_less(run: Run) -> None:
    Path("plan.yaml").write_text("distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n")
    Path("settings.toml").write_text('fixes = { FSDP851 = "safe" }\n')
    arguments = ["--torch", ">=2.13", "--config", "settings.toml", "--output-format", "json", "."]
    done = CliRunner().invoke(cli, ["plan", "--target", "fsdp2", *arguments], catch_exceptions=False)
    (step,) = json.loads(done.stdout)["steps"]
    assert (step["id"], step["by"]) == ("frameworks", "fsdp-migrate")
    assert "+  fsdp_version: 2" in step["diffs"][0]["diff"]


def test_a_trainer_whose_fsdp_comes_from_elsewhere_is_named(run: Run) -> None:
    Path("train.py").write_text(
        "from transformers import TrainingArguments\n\n\ndef arguments(fsdp, config):\n"
        "    yield TrainingArguments('out', fsdp=fsdp)\n"
        "    yield TrainingArguments('out', fsdp=fsdp, fsdp_config={'version': 2})\n"
    )
    (step,) = json.loads(run("plan", "--output-format", "json", ".").stdout)["steps"]
    assert (step["id"], [one["line"] for one in step["findings"]]) == ("framework-transformers", [5])


def test_rules_about_frameworks_alone_follow_no_model(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write("optimizer.step()")
    monkeypatch.setattr("fsdp_migrate.targets.fsdp2.target.models", None)
    result = run("lint", "--target", "fsdp2", "--select", "FSDP851", ".")
    assert (result.exit_code, result.exception) == (0, None)


def test_what_changes_speed_alone_is_a_note_once(run: Run) -> None:
    call = "FSDP(torch.nn.Linear(1, 1), forward_prefetch=True)"
    head = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    Path("train.py").write_text(f"{head}def build(x):\n    return {call} if x else {call}\nbuild(1).eval()\n")
    text = run("plan", "--torch", ">=2.13", ".").stdout
    assert text.count("  note: `forward_prefetch` goes") == 1
    assert "converts whole\n" in text
