from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli

HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
FULL = "state = FSDP.full_optim_state_dict(model, optim)\n"
SHARDED = "shard = FSDP.sharded_optim_state_dict(model, optim)\n"
# Hints: `FSDP.state_dict_type` warns, and nothing takes that away yet; a rule that finds nothing but hints.
HINT = "FSDP.set_state_dict_type(model, kind, one, two)\n"
ONLY_HINTS = "import torch\n\nif torch.__version__ < '2.0':\n    pass\n"
BASELINE = "known.json"

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".git").mkdir()


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin, catch_exceptions=False)


def lint(*arguments: str) -> Result:
    return run("lint", "--baseline", BASELINE, *arguments)


def write(name: str, *lines: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + "".join(lines))


def renew(*arguments: str) -> Result:
    return run("lint", "--write-baseline", BASELINE, *arguments)


def entries() -> list[tuple[str, str, int, str]]:
    rows = json.loads(Path(BASELINE).read_text())["findings"]
    return [(row["path"], row["rule"], row["count"], row["text"]) for row in rows]


def test_only_new_findings_are_reported_and_fail() -> None:
    write("a.py", FULL)
    written = renew()
    assert (written.exit_code, written.stdout) == (0, "Wrote known.json with 1 finding.\n")
    assert entries() == [("a.py", "FSDP101", 1, FULL.strip())]
    known = lint()
    assert (known.exit_code, known.stderr) == (0, "")
    assert known.stdout == "No new findings in 1 file; 1 known from known.json; hints were not looked for (--hints).\n"
    write("a.py", FULL, SHARDED)
    new = lint("-q")
    assert (new.exit_code, new.stdout.split(" `")[0]) == (1, "a.py:3:9: FSDP102")


def test_moving_and_formatting_code_keeps_its_entry() -> None:
    write("a.py", FULL, SHARDED)
    renew()
    before = Path(BASELINE).read_bytes()
    call = "    state = FSDP.full_optim_state_dict(\n        model,\n        optim,\n    )\n"
    write("a.py", "import os\n\n", SHARDED, "def save(model, optim):\n    # why\n", call)
    assert lint().exit_code == 0
    renew()
    assert Path(BASELINE).read_bytes() == before


def test_one_occurrence_more_than_is_known_is_new() -> None:
    write("a.py", FULL, FULL)
    renew()
    assert entries() == [("a.py", "FSDP101", 2, FULL.strip())]
    write("a.py", FULL, FULL, FULL)
    result = lint("-q")
    assert [line.split(":")[1] for line in result.stdout.splitlines()] == ["4"]


def test_the_same_code_in_another_file_is_new() -> None:
    write("a.py", FULL)
    renew()
    write("b.py", FULL)
    assert lint("-q").stdout.startswith("b.py:2:9: FSDP101")


def test_entries_that_no_longer_occur_are_named_and_leave_with_the_next_writing() -> None:
    write("a.py", FULL, FULL, SHARDED)
    write("gone.py", FULL)
    renew()
    write("a.py", FULL)
    os.unlink("gone.py")
    gone = [
        f"known.json: no longer in the code: a.py: FSDP101 {FULL.strip()} (1 of 2)",
        f"known.json: no longer in the code: a.py: FSDP102 {SHARDED.strip()}",
        f"known.json: no longer in the code: gone.py: FSDP101 {FULL.strip()}",
    ]
    result = lint()
    assert (result.exit_code, result.stderr.splitlines()) == (0, gone)
    assert lint("-q").stderr == ""
    assert len(entries()) == 3
    assert renew().stderr.splitlines() == gone
    assert entries() == [("a.py", "FSDP101", 1, FULL.strip())]


def test_a_run_over_some_files_or_rules_says_nothing_of_the_others() -> None:
    write("src/a.py", FULL, SHARDED)
    write("src/b.py", FULL)
    write("other/c.py", FULL)
    renew()
    everything = entries()
    write("src/a.py")
    write("src/b.py")
    Path("other/c.py").unlink()
    assert "other/c.py" in lint("src/a.py").stderr
    write("other/c.py")
    assert [line.split()[6] for line in lint("src/a.py").stderr.splitlines()] == ["src/a.py:"] * 2
    assert [line.split()[7] for line in lint("--select", "FSDP102").stderr.splitlines()] == ["FSDP102"]
    renew("--select", "FSDP101", "src/a.py")
    assert entries() == [row for row in everything if row[:2] != ("src/a.py", "FSDP101")]


def test_a_file_that_a_named_folder_no_longer_offers_is_gone_from_it() -> None:
    write("src/a.py", FULL)
    renew()
    Path(".gitignore").write_text("src/\n")
    assert lint(".").stderr == f"known.json: no longer in the code: src/a.py: FSDP101 {FULL.strip()}\n"


def test_paths_start_from_the_baseline_wherever_the_run_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write("src/a.py", FULL)
    renew()
    assert lint(str(tmp_path / "src")).exit_code == 0
    monkeypatch.chdir(tmp_path / "src")
    result = run("lint", "--baseline", "../known.json", "a.py")
    assert (result.exit_code, result.stderr) == (0, "")
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert run("lint", "--baseline", str(link / BASELINE), str(link / "src" / "a.py")).exit_code == 0


@pytest.mark.parametrize(("text", "code"), [(HINT, "FSDP210"), (ONLY_HINTS, "FSDP690")])
def test_hints_are_known_where_they_are_wanted_and_never_take_an_entry_away(text: str, code: str) -> None:
    write("a.py", text)
    renew()
    assert entries() == []
    assert "hints were not looked for" in lint().stdout
    renew("--hints")
    assert [row[1] for row in entries()] == [code]
    for options in ([], ["--hints"], ["--fail-on", "hint"]):
        result = lint(*options)
        assert (result.exit_code, result.stderr) == (0, "")
        assert code not in result.stdout
    renew()
    assert [row[1] for row in entries()] == [code]


def test_a_file_that_does_not_parse_is_never_known_and_keeps_its_entries() -> None:
    write("a.py", FULL)
    renew()
    write("a.py", "x = (\n")
    for result in (lint(), renew()):
        assert result.exit_code == 3
        assert "FSDP001" in result.stdout + result.stderr
        assert "no longer in the code" not in result.stderr
    assert entries() == [("a.py", "FSDP101", 1, FULL.strip())]


def test_rewriting_mends_what_is_known_and_reports_only_what_is_not() -> None:
    manual = "def load(m, osd):\n    return FSDP.scatter_full_optim_state_dict(osd, m)\n"
    write("a.py", FULL, manual)
    renew()
    result = run("rewrite", "--baseline", BASELINE)
    assert (result.exit_code, result.stderr) == (0, "")
    assert (
        result.stdout.splitlines()[-1]
        == "Fixed 1 finding in 1 of 1 file; 1 known from known.json; hints were not looked for (--hints)."
    )
    assert "FSDP.optim_state_dict" in Path("a.py").read_text()
    write("b.py", manual)
    assert run("rewrite", "--baseline", BASELINE).exit_code == 1


def test_a_configured_baseline_is_used_for_its_own_part_of_the_tree() -> None:
    for name in ("one", "two"):
        write(f"{name}/a.py", FULL)
        Path(f"{name}/fsdp-migrate.toml").write_text(f'baseline = "{BASELINE}"\n')
        assert run("lint", "--write-baseline", f"{name}/{BASELINE}", name).exit_code == 0
    result = run("lint")
    assert (result.exit_code, result.stdout) == (
        0,
        "No new findings in 2 files; 1 known from one/known.json; 1 known from two/known.json"
        "; hints were not looked for (--hints).\n",
    )
    write("two/a.py", FULL, SHARDED)
    assert run("lint", "-q").stdout.startswith("two/a.py:3:9: FSDP102")
    assert run("lint", "-q", "--isolated").stdout.count("FSDP10") == 3


def test_json_counts_what_is_known_and_names_what_is_gone() -> None:
    write("a.py", FULL)
    renew()
    write("a.py")
    document = json.loads(lint("--output-format", "json").stdout)
    assert (document["known"], document["no_longer_there"]) == (0, [f"a.py: FSDP101 {FULL.strip()}"])
    assert "known" not in json.loads(run("lint", "--output-format", "json").stdout)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no baseline known.json; `fsdp-migrate lint --write-baseline known.json` writes one"),
        ("{", "known.json is not a baseline that this version of fsdp-migrate can read"),
        ('{"version": 2, "findings": []}', "known.json is not a baseline that this version of fsdp-migrate can read"),
        ('{"version": 1, "findings": [{"path": 1}]}', "known.json is not a baseline"),
        ("\xff", "known.json is not a baseline"),
        ("[" * 100_000, "known.json is not a baseline"),
    ],
)
@pytest.mark.parametrize("command", ["lint", "rewrite"])
def test_a_baseline_that_cannot_be_used_stops_the_run_before_anything_is_done(
    command: str, text: str | None, message: str
) -> None:
    write("a.py", FULL)
    if text is not None:
        Path(BASELINE).write_bytes(text.encode("latin-1"))
    result = run(command, "--baseline", BASELINE)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())
    assert Path("a.py").read_text() == HEAD + FULL
    if text is not None:
        assert renew().exit_code == 2
        assert Path(BASELINE).read_bytes() == text.encode("latin-1")


def test_what_cannot_be_written_is_told_in_one_line() -> None:
    write("a.py", FULL)
    result = run("lint", "--write-baseline", "nowhere/known.json")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2,
        f"Error: {Path.cwd()}/nowhere/known.json cannot be written: No such file or directory",
    )


@pytest.mark.parametrize(
    "more",
    [["--baseline", BASELINE], ["--statistics"], ["--add-noqa"], ["--output-format", "json"], ["--output-file", "x"]],
)
def test_writing_a_baseline_reports_nothing(more: list[str]) -> None:
    result = renew(*more)
    assert result.exit_code == 2
    assert "--write-baseline reports no findings: give no --baseline, --add-noqa, --stat" in result.stderr
    assert more[0] in result.stderr.split("give no")[1]
    assert not Path(BASELINE).exists()


def test_a_hostile_statement_is_printable_in_the_baseline() -> None:
    write("a.py", "state = FSDP.full_optim_state_dict('\x1b[31m\u202e', optim)\n")
    renew()
    write("a.py")
    assert entries()[0][3] == "state = FSDP.full_optim_state_dict('\ufffd[31m\ufffd', optim)"
    assert "\x1b" not in lint().stderr
