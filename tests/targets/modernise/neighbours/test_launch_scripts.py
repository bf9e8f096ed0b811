from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.findings import Applicability
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.noqa import with_noqa
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

SETTINGS = Settings(TorchRange.parse(">=2.1"), unsafe_fixes=True)
LAUNCH = "-m torch.distributed.launch"


def rewritten(text: str, path: str = "run.sh") -> str:
    result = rewrite_bytes(text.encode(), path, SETTINGS)
    assert result.error is None
    assert rewrite_bytes(result.raw, path, SETTINGS).raw == result.raw
    return result.raw.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"python {LAUNCH} --nproc_per_node 2 --use_env t.py --use_env", "torchrun --nproc_per_node 2 t.py --use_env"),
        (f"X=1 python3.11 {LAUNCH} --use-env t.py | tee log", "X=1 torchrun t.py | tee log"),
        (f"$(which python3) {LAUNCH} --use_env t.py", "$(which python3) -m torch.distributed.run t.py"),
        (f'"${{PY:-python}}" -u {LAUNCH} --use_env t.py', '"${PY:-python}" -u -m torch.distributed.run t.py'),
        (f"python {LAUNCH} \\\n  --use_env \\\n  t.py \\\n  'a b'", "torchrun \\\n  t.py \\\n  'a b'"),
        (f"python {LAUNCH} --use_env \\\r\n  t.py", "torchrun \\\r\n  t.py"),
        (f"a && python {LAUNCH} $ARGS --use_env t.py; b", "a && torchrun $ARGS t.py; b"),
    ],
)
def test_the_launcher_becomes_torchrun_with_use_env(before: str, after: str) -> None:
    assert rewritten(f"{before}\n") == f"{after}\n"


def test_recipes_and_docker_files_are_scripts_too() -> None:
    assert rewritten(f"all:\n\t@python {LAUNCH} --use_env t.py\n", "Makefile") == "all:\n\t@torchrun t.py\n"
    assert rewritten(f"RUN python {LAUNCH} --use_env t.py\n", "docker/Dockerfile.gpu") == "RUN torchrun t.py\n"


@pytest.mark.parametrize(
    "text",
    [
        f"python {LAUNCH} t.py",
        f"python {LAUNCH} $PROGRAM",
        f'LAUNCHER="python {LAUNCH} --use_env"',
        f"cat <<'EOF'\ndon't\npython {LAUNCH} --use_env t.py\nEOF",
        'CMD ["python", "-m", "torch.distributed.launch", "--use_env", "t.py"]',
    ],
)
def test_what_is_not_understood_stays_and_is_manual(text: str) -> None:
    findings = lint_bytes(f"{text}\n".encode(), "run.sh", SETTINGS).findings
    assert [(one.code, one.applicability) for one in findings] == [("FSDP822", Applicability.MANUAL)]
    assert rewritten(f"{text}\n") == f"{text}\n"


@pytest.mark.parametrize("text", [f"# it's python {LAUNCH} t.py", "pkill -f torch.distributed.launch", "torchrun t.py"])
def test_comments_and_other_uses_of_the_name_are_left_alone(text: str) -> None:
    assert lint_bytes(f"{text}\n".encode(), "run.sh", SETTINGS).findings == ()


@pytest.mark.parametrize("started", ["src/t.py", "-m src.t"])
def test_the_started_program_is_looked_up(started: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "scripts").mkdir()
    program, script = tmp_path / "src" / "t.py", f"python {LAUNCH} --nproc_per_node 2 {started}\n"
    program.write_text("import os\n\nrank = os.environ['LOCAL_RANK']\n")
    assert rewritten(script, "scripts/run.sh") == f"torchrun --nproc_per_node 2 {started}\n"
    program.write_text("import argparse\n")
    (finding,) = lint_bytes(script.encode(), "scripts/run.sh", SETTINGS).findings
    assert "does not read LOCAL_RANK" in (finding.reason or "")


def test_a_comment_silences_a_command_and_is_written_behind_its_last_line() -> None:
    text = f"python {LAUNCH} \\\n  t.py\n"
    silent = with_noqa(text.encode(), lint_bytes(text.encode(), "run.sh", SETTINGS).findings)
    assert silent.decode() == f"python {LAUNCH} \\\n  t.py  # noqa: FSDP822\n"
    report = lint_bytes(silent, "run.sh", SETTINGS)
    assert (report.findings, report.suppressed) == ((), 1)
