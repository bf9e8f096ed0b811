"""`plan --prove`: what a run of `prove` showed stands at the steps whose changes it had, and says if it is old."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.prove.subject import Rewrite, differing
from tests.migration.test_plan import SAFE, UNSAFE, planned, steps

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    (tmp_path / "repository" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repository")
    git("init", "-q")
    Path("a.py").write_text(SAFE)
    Path("b.py").write_text(UNSAFE)
    commit()
    return lambda *arguments: CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


def git(*words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit() -> None:
    git("add", ".")
    git("commit", "-qm", "so")


def prove(tmp_path: Path, rewrite: Rewrite | None, **after: str) -> None:
    """Write what `prove` would say of the working tree and the same with other texts."""
    copies = tmp_path / "before", tmp_path / "after"
    for copy in copies:
        copy.mkdir(exist_ok=True)
        for name in ("a.py", "b.py"):
            (copy / name).write_bytes(Path(name).read_bytes())
    for name, text in after.items():
        (copies[1] / f"{name}.py").write_text(text)
    files = [{"path": path, "before": old, "after": new} for path, (old, new) in differing(*copies).items()]
    subject = {"program": ["train.py", "--steps", "4"], "commit": git("rev-parse", "HEAD"), "files": files}
    subject["rewrite"] = None if rewrite is None else asdict(rewrite)
    Path("proof.json").write_text(json.dumps({"verdict": "SAME", "detail": "", "subject": subject}))


def told(run: Run) -> dict[str, list[str]]:
    """The lines about proofs: those above the steps, and those of each step."""
    head, *blocks = run("plan", "--prove", "proof.json", ".").stdout.split("\n\n")
    lines = {"": head, **{block.partition("\n")[0].partition(" ")[0]: block for block in blocks}}
    return {name: [line.strip() for line in block.splitlines() if "prove:" in line] for name, block in lines.items()}


def test_a_rewrite_that_is_proven_is_named_at_its_step(run: Run, tmp_path: Path) -> None:
    prove(tmp_path, Rewrite(None, unsafe_fixes=False), a="pass\n")
    line = "prove: SAME of `train.py --steps 4` (proof.json)"
    assert told(run) == {"": [line], "1.": [f"{line}; for a.py"], "2.": []}
    document = planned(run, "--prove", "proof.json")
    found = steps(document)
    assert found["safe"]["proofs"] == [{"file": "proof.json", "paths": ["a.py"]}]
    assert found["accept-FSDP301"]["proofs"] == []
    (proof,) = document["proofs"]  # type: ignore[misc]
    assert proof["files"] == [{"path": "a.py", "state": "to come"}]


@pytest.mark.parametrize(
    ("rewrite", "proven"),
    [
        (Rewrite(None, unsafe_fixes=False), []),
        (Rewrite(None, unsafe_fixes=True), ["b.py"]),
        (Rewrite("fsdp2", unsafe_fixes=True), ["b.py"]),
        (None, ["b.py"]),
    ],
)
def test_an_unsafe_fix_is_proven_by_a_run_that_had_it(
    run: Run, tmp_path: Path, rewrite: Rewrite | None, proven: list[str]
) -> None:
    prove(tmp_path, rewrite, b="pass\n")
    (found,) = [step for name, step in steps(planned(run, "--prove", "proof.json")).items() if name != "safe"]
    assert [path for one in found["proofs"] for path in one["paths"]] == proven  # type: ignore[attr-defined]


def test_a_step_of_another_target_is_not_proven(run: Run, tmp_path: Path) -> None:
    prove(tmp_path, Rewrite("fsdp2", unsafe_fixes=True), a="pass\n")
    found = steps(planned(run, "--prove", "proof.json", "--target", "dcp"))
    assert all(step["proofs"] == [] for name, step in found.items() if name in ("states", "accept-FSDP101"))


def test_code_that_changed_since_is_named(run: Run, tmp_path: Path) -> None:
    prove(tmp_path, Rewrite(None, unsafe_fixes=False), a="pass\n")
    Path("a.py").write_text(f"# more\n{SAFE}")
    note = "older than the code: a.py changed since"
    assert note in told(run)[""][0]
    assert note in told(run)["1."][0]


def test_what_is_done_and_committed_says_of_which_commit_it_is(run: Run, tmp_path: Path) -> None:
    old = git("rev-parse", "HEAD")[:10]
    prove(tmp_path, Rewrite(None, unsafe_fixes=False), a="pass\n")
    Path("a.py").write_text("pass\n")
    commit()
    (line,) = told(run)[""]
    assert line.endswith(f"; of what is done; made at commit {old}, and {git('rev-parse', 'HEAD')[:10]} is here")


def test_a_plan_from_a_folder_below_names_the_same_files(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prove(tmp_path, Rewrite(None, unsafe_fixes=False), a="pass\n")
    monkeypatch.chdir("sub")
    document = json.loads(run("plan", "--prove", "../proof.json", "--output-format", "json", "..").stdout)
    assert steps(document)["safe"]["proofs"] == [{"file": "../proof.json", "paths": ["../a.py"]}]


def test_a_file_of_an_older_version_says_what_it_lacks(run: Run) -> None:
    Path("proof.json").write_text(json.dumps({"verdict": "SAME", "detail": ""}))
    assert told(run)[""] == ["prove: SAME (proof.json); it does not say of which code: run `prove` again"]


@pytest.mark.parametrize("subject", [5, {}, {"program": 5}, {"program": ["a"], "rewrite": None, "commit": None}])
def test_a_broken_subject_is_one_clear_line(run: Run, subject: object) -> None:
    Path("proof.json").write_text(json.dumps({"verdict": "SAME", "detail": "", "subject": subject}))
    result = run("plan", "--prove", "proof.json", ".")
    assert result.exit_code == 2
    assert "proof.json is not what `prove --output-format json` writes" in result.stderr
