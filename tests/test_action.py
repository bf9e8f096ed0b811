"""The GitHub action: its shell steps are run here as they stand in action.yml."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
LEGACY = (
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nFSDP.full_optim_state_dict(model, optim)\n"
)

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the steps are bash")


class Job:
    """A job with a checkout, which runs steps as a runner does."""

    def __init__(self, folder: Path, **inputs: str) -> None:
        self.checkout = folder / "checkout"
        self.temporary = folder / "temp"
        for made in (self.checkout, self.temporary):
            made.mkdir()
        self.inputs = {name: spec["default"] for name, spec in ACTION["inputs"].items()} | inputs
        self.outputs: dict[str, str] = {}
        self.variables: dict[str, str] = {}

    def value(self, expression: str) -> str:
        """What a `${{ }}` is: an input, an output of a step, or the folder of the action."""
        if expression == "github.action_path":
            return str(ROOT)
        kind, name = expression.split(".", 1)
        return self.inputs[name] if kind == "inputs" else self.outputs[expression.rsplit(".", 1)[1]]

    def run(self, name: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a step in the checkout, as `bash -e -o pipefail`."""
        step = STEPS[name]
        given = {
            key: re.sub(r"\$\{\{ (.+?) \}\}", lambda match: self.value(match[1]), value)
            for key, value in step.get("env", {}).items()
        }
        files = {key: self.temporary / key for key in ("GITHUB_ENV", "GITHUB_OUTPUT")}
        given |= {key: str(path) for key, path in files.items()} | {"RUNNER_TEMP": str(self.temporary)}
        result = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=self.checkout,
            env=os.environ | self.variables | given | (environment or {}),
            capture_output=True,
            text=True,
        )
        for key, into in (("GITHUB_ENV", self.variables), ("GITHUB_OUTPUT", self.outputs)):
            if files[key].exists():
                into.update(line.split("=", 1) for line in files[key].read_text().splitlines())
        return result


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The command as the install step leaves it, from this checkout."""
    path = tmp_path / "fsdp-migrate"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m fsdp_migrate "$@"\n')
    path.chmod(0o755)
    return str(path)


def linted(job: Job, program: str) -> subprocess.CompletedProcess[str]:
    job.variables["FSDP_MIGRATE"] = program
    return job.run("Lint")


def test_no_input_is_text_of_a_script() -> None:
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")


def test_every_input_is_used_and_every_output_has_a_step() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    for name, spec in ACTION["inputs"].items():
        assert f"inputs.{name} " in text
        assert spec["description"]
    assert {value["value"] for value in ACTION["outputs"].values()} == {
        "${{ steps.lint.outputs.exit-code }}",
        "${{ steps.lint.outputs.sarif }}",
    }


def test_findings_are_written_as_sarif_and_fail_the_job_after_the_upload(tmp_path: Path, program: str) -> None:
    job = Job(tmp_path)
    (job.checkout / "a.py").write_text(LEGACY)
    result = linted(job, program)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Found 1 finding in 1 of 1 file: 1 fixable;")
    assert job.outputs == {"exit-code": "1", "sarif": str(job.temporary / "fsdp-migrate.sarif")}
    (run,) = json.loads(Path(job.outputs["sarif"]).read_text())["runs"]
    assert [found["ruleId"] for found in run["results"]] == ["FSDP101"]
    assert list(STEPS) == ["Install", "Lint", "Upload", "Result"]
    assert STEPS["Upload"]["uses"].startswith("github/codeql-action/upload-sarif@v")
    assert STEPS["Upload"]["with"]["sarif_file"] == "${{ steps.lint.outputs.sarif }}"
    assert job.run("Result").returncode == 1


def test_clean_code_passes(tmp_path: Path, program: str) -> None:
    job = Job(tmp_path)
    (job.checkout / "a.py").write_text("x = 1\n")
    assert linted(job, program).returncode == 0
    assert job.run("Result").returncode == 0


def test_paths_and_options_are_passed_on_as_they_are(tmp_path: Path, program: str) -> None:
    job = Job(tmp_path, paths="a b.py\n$(touch pwned)\n-q.py", args=" --torch >=2.2\n--select *;touch,FSDP1 ")
    for name in ("a b.py", "$(touch pwned)", "-q.py"):
        (job.checkout / name).write_text(LEGACY)
    result = linted(job, program)
    assert result.returncode == 2
    assert "no rule is called '*;touch'" in result.stderr
    job.inputs["args"] = "--torch >=2.2 --exit-zero"
    assert linted(job, program).stdout.startswith("Found 3 findings in 3 of 3 files")
    assert job.outputs["exit-code"] == "0"
    assert sorted(path.name for path in job.checkout.iterdir()) == ["$(touch pwned)", "-q.py", "a b.py"]


def test_a_file_that_fails_is_reported_and_fails_the_job(tmp_path: Path, program: str) -> None:
    job = Job(tmp_path)
    (job.checkout / "a.py").write_text(LEGACY + "x = (\n")
    assert linted(job, program).returncode == 0
    assert job.run("Result").returncode == 3


def test_annotations_are_commands_in_the_log(tmp_path: Path, program: str) -> None:
    job = Job(tmp_path, annotate="true", upload="false")
    (job.checkout / "a.py").write_text(LEGACY)
    assert "\n::warning title=FSDP101 (full-optim-state-dict),file=a.py,line=2," in linted(job, program).stdout
    assert STEPS["Upload"]["if"] == "${{ inputs.upload == 'true' }}"


def test_the_action_installs_itself_into_an_environment_of_its_own(tmp_path: Path) -> None:
    job = Job(tmp_path, python=sys.executable)
    # The build backend and the dependencies are those of this environment: nothing is fetched.
    offline = {
        "PYTHONPATH": sysconfig.get_paths()["purelib"],
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_CACHE_DIR": "1",
    }
    result = job.run("Install", offline)
    assert result.returncode == 0, result.stderr
    assert Path(job.variables["FSDP_MIGRATE"]).is_relative_to(job.temporary)
    (job.checkout / "a.py").write_text(LEGACY)
    job.variables["PYTHONPATH"] = offline["PYTHONPATH"]
    assert job.run("Lint").returncode == 0
    assert job.run("Result").returncode == 1
