from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate import __version__, replacing
from fsdp_migrate.commands.cli import cli
from fsdp_migrate.rules import RULES
from tests import stub_engine

Run = Callable[..., Result]

EVERYTHING = "a = SAFE\nb = UNSAFE\nc = MANUAL\nd = HINT\ne = MANUAL  # noqa\n"


@pytest.fixture(autouse=True)
def _stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stub_engine.install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path(".git").mkdir()


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin, catch_exceptions=False)

    return invoke


def write(**texts: str) -> None:
    for name, text in texts.items():
        Path(f"{name}.py").write_text(text)


# --- lint ------------------------------------------------------------------------------------------------------------


def test_lint_prints_one_line_a_finding_and_a_summary(run: Run) -> None:
    write(b="\nx = SAFE\n", a=EVERYTHING, clean="x = 1\n")
    result = run("lint")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "a.py:1:5: FSDP101 `SAFE` is old [deprecated, fixable]",
        "a.py:2:5: FSDP201 `UNSAFE` is old [changes, unsafe fix: other ranks get {}]",
        "a.py:3:5: FSDP104 `MANUAL` is old [deprecated, manual: no optimizer in `load`]",
        "b.py:2:5: FSDP101 `SAFE` is old [deprecated, fixable]",
        "Found 4 findings in 2 of 3 files: 2 fixable, 1 unsafe to fix, 1 manual; "
        "1 suppressed by comments; hints were not looked for (--hints).",
        "`fsdp-migrate rewrite` fixes 2, with --unsafe-fixes 1 more; add --diff for a preview.",
    ]
    assert result.stderr == ""


def test_lint_of_clean_files_says_so(run: Run) -> None:
    write(a="x = 1\n", b="x = 2\n")
    result = run("lint", ".")
    assert (result.exit_code, result.stdout) == (0, "No findings in 2 files; hints were not looked for (--hints).\n")


def test_lint_says_what_a_clean_run_passed_over(run: Run) -> None:
    write(a="x = SAFE  # noqa\ny = HINT\n")
    result = run("lint", "a.py")
    assert (result.exit_code, result.stdout) == (
        0,
        "No findings in 1 file; 1 suppressed by comments; hints were not looked for (--hints).\n",
    )


def test_lint_says_when_there_was_nothing_to_check(run: Run) -> None:
    Path("notes.txt").write_text("SAFE\n")
    result = run("lint")
    assert (result.exit_code, result.stdout) == (0, "No Python files to check.\n")


def test_hints_are_shown_on_demand_and_never_fail_a_run(run: Run) -> None:
    write(a="x = HINT\n")
    result = run("lint", "--hints")
    assert result.exit_code == 0
    assert result.stdout == "a.py:1:5: FSDP210 `HINT` is old [hint]\nNo findings in 1 file; 1 hint.\n"


def test_quiet_leaves_findings_and_errors(run: Run) -> None:
    write(a="x = SAFE\n", b="UNDECODABLE\n")
    result = run("lint", "-q")
    assert result.exit_code == 3
    assert result.stdout == "a.py:1:5: FSDP101 `SAFE` is old [deprecated, fixable]\n"
    assert result.stderr == "error: b.py: not valid utf-8\n"


def test_statistics_counts_instead_of_listing(run: Run) -> None:
    write(a=EVERYTHING, b="MANUAL\nMANUAL\n")
    result = run("lint", "--statistics", "-q", "--hints")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "3  FSDP104  scatter (3 manual)",
        "1  FSDP101  full-optim-state-dict (1 fixable)",
        "1  FSDP201  missing-config (1 unsafe to fix)",
        "1  FSDP210  state-dict-type (1 hint)",
    ]


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        (["--select", "FSDP1"], ["FSDP101", "FSDP104"]),
        (["--select", "fsdp104,FSDP2"], ["FSDP201", "FSDP104"]),
        (["--select", "scatter-full-optim-state-dict"], ["FSDP104"]),
        (["--ignore", "FSDP1"], ["FSDP201"]),
        (["--select", "FSDP101", "--ignore", "FSDP1"], ["FSDP101"]),
        (["--select", "FSDP1", "--ignore", "FSDP101", "--ignore", "FSDP2"], ["FSDP104"]),
    ],
)
def test_rules_are_selected_by_code_by_its_start_or_by_name(run: Run, options: list[str], codes: list[str]) -> None:
    write(a=EVERYTHING)
    result = run("lint", "-q", *options)
    assert [line.split()[1] for line in result.stdout.splitlines()] == codes


def test_exit_zero_forgives_findings_but_not_failures(run: Run) -> None:
    write(a="x = SAFE\n")
    assert run("lint", "--exit-zero").exit_code == 0
    write(b="UNDECODABLE\n")
    assert run("lint", "--exit-zero").exit_code == 3


@pytest.mark.parametrize(
    ("text", "fails_on"),
    [
        ("BROKEN_API", ["breaks", "changes", "deprecated", "hint"]),
        ("UNSAFE", ["changes", "deprecated", "hint"]),
        ("MANUAL", ["deprecated", "hint"]),
        ("HINT", ["hint"]),
        ("x", []),
    ],
)
def test_fail_on_says_from_which_severity_on_a_finding_makes_the_exit_code_1(
    run: Run, text: str, fails_on: list[str]
) -> None:
    write(a=f"{text}\n")
    for command in (["lint"], ["rewrite"]):
        failing = [on for on in ("breaks", "changes", "deprecated", "hint") if run(*command, "--fail-on", on).exit_code]
        assert failing == fails_on


def test_hints_that_make_a_run_fail_are_what_it_found(run: Run) -> None:
    write(a="HINT\n", b="")
    result = run("lint", "--fail-on", "hint")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (1, "Found 1 hint in 1 of 2 files.")


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_a_folder_for_the_cache_is_blamed_on_what_named_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(a="x = SAFE\n")
    Path("store").mkdir()
    Path("store").chmod(0o777)
    assert "Invalid value for --cache-dir: " in run("lint", "--cache-dir", "store").stderr
    monkeypatch.setenv("FSDP_MIGRATE_CACHE_DIR", "store")
    result = run("lint")
    assert (result.exit_code, "--cache-dir" in result.stderr) == (2, False)
    assert "Invalid value for FSDP_MIGRATE_CACHE_DIR: " in result.stderr


def test_fail_on_hides_nothing_and_shows_the_hints_that_make_a_run_fail(run: Run) -> None:
    write(a="MANUAL\nHINT\n")
    codes = [line.split()[1] for line in run("lint", "-q", "--fail-on", "breaks").stdout.splitlines()]
    assert codes == ["FSDP104"]
    codes = [line.split()[1] for line in run("lint", "-q", "--fail-on", "hint").stdout.splitlines()]
    assert codes == ["FSDP104", "FSDP210"]


def test_a_file_that_fails_is_3_whatever_fails_a_run(run: Run) -> None:
    write(a="UNDECODABLE\n")
    assert run("lint", "--fail-on", "breaks").exit_code == 3


def test_lint_reads_stdin(run: Run) -> None:
    result = run("lint", "-q", "-", stdin="x = 1\ny = SAFE\n")
    assert (result.exit_code, result.stdout) == (1, "<stdin>:2:5: FSDP101 `SAFE` is old [deprecated, fixable]\n")
    named = run("lint", "-q", "--stdin-filename", "src/train.py", "-", stdin="SAFE")
    assert named.stdout == "src/train.py:1:1: FSDP101 `SAFE` is old [deprecated, fixable]\n"


# --- lint, as JSON ---------------------------------------------------------------------------------------------------


def test_json_is_one_object_with_every_field(run: Run) -> None:
    write(a="# \u00e4\nx = '\u00e4' + SAFE\n", b="MANUAL # noqa\nUNSAFE\n", bad="UNDECODABLE\n")
    result = run("lint", "--output-format", "json", "--torch", ">=2.1,<2.16")
    assert result.exit_code == 3
    assert json.loads(result.stdout) == {
        "schema_version": 1,
        "tool_version": __version__,
        "torch": ">=2.1,<2.16",
        "torch_ranges": {},
        "notes": [],
        "floors": [],
        "warnings": [],
        "findings": [
            {
                "code": "FSDP101",
                "name": "full-optim-state-dict",
                "path": "a.py",
                "cell": None,
                "line": 2,
                "column": 11,
                "end_line": 2,
                "end_column": 15,
                "message": "`SAFE` is old",
                "severity": "deprecated",
                "applicability": "safe",
                "reason": None,
                "settled": None,
                "url": "https://example.org/safe",
            },
            {
                "code": "FSDP201",
                "name": "missing-config",
                "path": "b.py",
                "cell": None,
                "line": 2,
                "column": 1,
                "end_line": 2,
                "end_column": 7,
                "message": "`UNSAFE` is old",
                "severity": "changes",
                "applicability": "unsafe",
                "reason": "other ranks get {}",
                "settled": None,
                "url": None,
            },
        ],
        "errors": [{"path": "bad.py", "message": "not valid utf-8"}],
        "files_checked": 2,
        "suppressed": 1,
    }
    assert result.stderr == ""


def test_json_of_a_clean_run(run: Run) -> None:
    write(a="x = HINT\n")
    document = json.loads(run("lint", "--output-format", "json").stdout)
    assert (document["findings"], document["errors"], document["files_checked"]) == ([], [], 1)
    assert document["torch"] == ">=2.1"


def test_json_holds_hints_on_demand_and_statistics(run: Run) -> None:
    write(a=EVERYTHING)
    document = json.loads(run("lint", "--output-format", "json", "--hints", "--statistics").stdout)
    assert [(finding["code"], finding["severity"]) for finding in document["findings"]][-1] == ("FSDP210", "hint")
    assert document["statistics"][0] == {"code": "FSDP101", "name": "full-optim-state-dict", "count": 1}


# --- failures --------------------------------------------------------------------------------------------------------


def test_one_bad_file_does_not_keep_the_others_from_being_done(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(a="CRASH\n", b="BROKEN\n", d="UNDECODABLE\n", e="x = SAFE\n")
    os.mkfifo("c.py")
    result = run("lint", "a.py", "b.py", "c.py", "d.py", "e.py")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[:3] == [
        "b.py:1:1: FSDP001 `BROKEN` is old [breaks, manual: fix the syntax error]",
        "e.py:1:5: FSDP101 `SAFE` is old [deprecated, fixable]",
        "Found 2 findings in 2 of 2 files: 1 fixable, 1 manual; hints were not looked for (--hints); 3 files failed.",
    ]
    a, c, d = result.stderr.splitlines()
    assert a.startswith(
        "error: a.py: a bug in fsdp-migrate, please report it: KeyError: 'no such\\nscope' (stub_engine.py:"
    )
    assert (c, d) == ("error: c.py: cannot be read: not a regular file", "error: d.py: not valid utf-8")


def test_rewrite_goes_on_past_bad_files_and_leaves_them_alone(run: Run) -> None:
    write(a="CRASH SAFE\n", b="BROKEN SAFE\n", d="UNDECODABLE SAFE\n", e="x = SAFE\n")
    result = run("rewrite")
    assert result.exit_code == 3
    assert [Path(f"{name}.py").read_text() for name in "abde"] == [
        "CRASH SAFE\n",
        "BROKEN SAFE\n",
        "UNDECODABLE SAFE\n",
        "x = DONE\n",
    ]
    assert "e.py:1:5: FSDP101 `SAFE` is old [fixed]" in result.stdout.splitlines()
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == ["a.py", "d.py"]


@pytest.mark.parametrize(
    "arguments", [["rewrite", "--check"], ["rewrite", "--diff", "-q"], ["lint", "--statistics", "-q"]]
)
def test_failure_wins_over_findings_and_is_named_where_findings_are_not_listed(run: Run, arguments: list[str]) -> None:
    write(a="x = SAFE\n", b="BROKEN\n", c="UNDECODABLE\n")
    result = run(*arguments)
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        "b.py:1:1: FSDP001 `BROKEN` is old [breaks, manual: fix the syntax error]",
        "error: c.py: not valid utf-8",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lint", "nowhere.py"], "Path 'nowhere.py' does not exist."),
        (["lint", "--torch", "banana"], "not a torch version range: 'banana'; write it like '>=2.1' or '>=2.1,<2.16'"),
        (["lint", "--torch", "<1.0"], "is in '<1.0'"),
        (["lint", "--select", "FSDP110x"], "no rule is called 'FSDP110x' (did you mean FSDP"),
        (["rewrite", "--ignore", "scater-full-optim-state-dict"], "(did you mean scatter-full-optim-state-dict?)"),
        (
            ["lint", "--output-format", "yaml"],
            "'yaml' is not one of 'text', 'concise', 'json', 'jsonl', 'sarif', 'github', 'gitlab', 'junit'",
        ),
        (["lint", "-", "a.py"], "'-' (stdin) cannot be combined with other paths"),
        (["lint", "--stdin-filename", "a.py", "a.py"], "give '-' as the path"),
        (["rewrite", "--diff", "--output-format", "sarif"], "cannot be combined"),
        (
            ["explain", "scater-full-optim-state-dict"],
            "(did you mean scatter-full-optim-state-dict?)",
        ),
        (["api", "fully_shart"], "has 'fully_shart' in a module that is covered (did you mean fully_shard?)"),
        (["api", "flat_param", "--torch", ">=2.2"], "torch>=2.2 has no 'flat_param'; it is in torch 1.13 to 2.1"),
        (["frobnicate"], "No such command 'frobnicate'"),
    ],
)
def test_bad_usage_is_told_in_one_line_and_exits_with_2(run: Run, arguments: list[str], message: str) -> None:
    write(a="x = SAFE\n")
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in " ".join(result.stderr.split("Error: ")[1].split())
    assert Path("a.py").read_text() == "x = SAFE\n"


# --- rewrite ---------------------------------------------------------------------------------------------------------


def test_rewrite_writes_and_lists_what_was_fixed_and_what_is_left(run: Run) -> None:
    write(a=EVERYTHING, b="x = SAFE\n", clean="x = 1\n")
    result = run("rewrite", ".")
    assert result.exit_code == 1
    assert Path("a.py").read_text() == EVERYTHING.replace("a = SAFE", "a = DONE")
    assert result.stdout.splitlines() == [
        "a.py:1:5: FSDP101 `SAFE` is old [fixed]",
        "a.py:2:5: FSDP201 `UNSAFE` is old [changes, unsafe fix: other ranks get {}]",
        "a.py:3:5: FSDP104 `MANUAL` is old [deprecated, manual: no optimizer in `load`]",
        "b.py:1:5: FSDP101 `SAFE` is old [fixed]",
        "Fixed 2 findings in 2 of 3 files; 2 findings left: 1 unsafe to fix, 1 manual; "
        "1 suppressed by comments; hints were not looked for (--hints).",
        "Read the reasons of the unsafe fixes; `fsdp-migrate rewrite --unsafe-fixes` fixes 1 more.",
    ]


def test_rewrite_exits_with_0_when_nothing_is_left_and_a_second_run_changes_nothing(run: Run) -> None:
    write(a="x = SAFE\ny = HINT\n")
    assert run("rewrite").exit_code == 0
    before = os.stat("a.py")
    again = run("rewrite")
    assert (again.exit_code, again.stdout) == (
        0,
        "Nothing to rewrite in 1 file; hints were not looked for (--hints).\n",
    )
    after = os.stat("a.py")
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_unsafe_fixes_are_applied_on_demand(run: Run) -> None:
    write(a="x = UNSAFE\n")
    assert run("rewrite").exit_code == 1
    assert Path("a.py").read_text() == "x = UNSAFE\n"
    assert run("rewrite", "--unsafe-fixes").exit_code == 0
    assert Path("a.py").read_text() == "x = DONE\n"


def test_rewrite_quiet_lists_only_what_is_left(run: Run) -> None:
    write(a="x = SAFE\ny = MANUAL\n")
    result = run("rewrite", "--quiet")
    assert result.stdout == "a.py:2:5: FSDP104 `MANUAL` is old [deprecated, manual: no optimizer in `load`]\n"


def test_rewrite_exit_zero_still_rewrites(run: Run) -> None:
    write(a="x = SAFE\ny = MANUAL\n")
    assert run("rewrite", "--exit-zero").exit_code == 0
    assert Path("a.py").read_text() == "x = DONE\ny = MANUAL\n"


def test_rewrite_json_adds_what_was_fixed(run: Run) -> None:
    write(a="x = SAFE\ny = MANUAL\n")
    document = json.loads(run("rewrite", "--output-format", "json").stdout)
    assert [(finding["code"], finding["line"]) for finding in document["fixed"]] == [("FSDP101", 1)]
    assert [(finding["code"], finding["line"]) for finding in document["findings"]] == [("FSDP104", 2)]
    assert document["files_changed"] == ["a.py"]


def test_diff_prints_what_would_change_and_writes_nothing(run: Run) -> None:
    write(a="x = 1\ny = SAFE\nz = MANUAL\n", clean="x = MANUAL\n")
    result = run("rewrite", "--diff")
    assert result.exit_code == 1
    assert result.stdout == "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n x = 1\n-y = SAFE\n+y = DONE\n z = MANUAL\n"
    assert (
        result.stderr
        == "Would fix 1 finding in 1 of 2 files; 2 findings left: 2 manual; hints were not looked for (--hints).\n"
    )
    assert Path("a.py").read_text() == "x = 1\ny = SAFE\nz = MANUAL\n"
    assert run("rewrite", "--diff", "-q").stderr == ""


def test_diff_and_check_exit_with_0_when_nothing_would_change(run: Run) -> None:
    write(a="x = MANUAL\n")
    diff = run("rewrite", "--diff")
    assert (diff.exit_code, diff.stdout) == (0, "")
    assert (
        diff.stderr == "Nothing to rewrite in 1 file; 1 finding left: 1 manual; hints were not looked for (--hints).\n"
    )
    check = run("rewrite", "--check")
    assert (check.exit_code, check.stdout, check.stderr) == (0, "", "")


def test_check_tells_only_by_its_exit_code(run: Run) -> None:
    write(a="x = SAFE\n")
    result = run("rewrite", "--check")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "")
    assert Path("a.py").read_text() == "x = SAFE\n"


def test_rewrite_of_stdin_prints_the_new_text_byte_for_byte(run: Run) -> None:
    result = run("rewrite", "-", stdin=b"x = 'caf\xc3\xa9'\r\ny = SAFE\r\nz = MANUAL")
    assert result.exit_code == 1
    assert result.stdout_bytes == b"x = 'caf\xc3\xa9'\r\ny = DONE\r\nz = MANUAL"
    assert result.stderr == "<stdin>:3:5: FSDP104 `MANUAL` is old [deprecated, manual: no optimizer in `load`]\n"


@pytest.mark.parametrize(("text", "code"), [("x = 1\n", 0), ("BROKEN\n", 3), ("UNDECODABLE\n", 3), ("CRASH\n", 3)])
def test_rewrite_of_stdin_gives_the_text_back_whatever_happens(run: Run, text: str, code: int) -> None:
    result = run("rewrite", "-", stdin=text)
    assert (result.exit_code, result.stdout) == (code, text)


@pytest.mark.parametrize("command", ["lint", "rewrite"])
def test_a_text_from_nowhere_that_imports_relatively_is_told_what_is_not_followed(run: Run, command: str) -> None:
    code = "if x:\n    from .dist import FSDP\n"
    note = "note: modules of the project, which the text imports, are followed only with --stdin-filename\n"
    assert run(command, "-", stdin=code).stderr == note
    assert run(command, "-q", "-", stdin=code).stderr == ""
    assert run(command, "--stdin-filename", "a.py", "-", stdin=code).stderr == ""
    assert run(command, "-", stdin="# from .dist\nfrom torch import nn\n").stderr == ""
    assert run(command, "-", stdin="from .dist import\n").stderr == ""


@pytest.mark.parametrize("command", ["lint", "rewrite"])
def test_a_notebook_from_nowhere_is_not_taken_for_python(run: Run, command: str) -> None:
    notebook = json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    result = run(command, "-", stdin=notebook)
    told = "error: <stdin>: this is a notebook: give its name with --stdin-filename NAME.ipynb\n"
    assert (result.exit_code, result.stderr) == (3, told)
    assert command == "lint" or result.stdout == notebook
    assert run(command, "-", stdin='{"cells": 1}\n').exit_code == 0


def test_rewrite_of_stdin_shows_a_diff_or_checks(run: Run) -> None:
    diff = run("rewrite", "--diff", "--stdin-filename", "t.py", "-", stdin="SAFE\n")
    assert (diff.exit_code, diff.stdout) == (1, "--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-SAFE\n+DONE\n")
    check = run("rewrite", "--check", "-", stdin="SAFE\n")
    assert (check.exit_code, check.stdout) == (1, "")


def test_rewrite_keeps_mode_and_link(run: Run) -> None:
    Path("real").mkdir()
    Path("real/a.py").write_text("x = SAFE\n")
    Path("real/a.py").chmod(0o755)
    Path("link.py").symlink_to("real/a.py")
    assert run("rewrite", "link.py").exit_code == 0
    assert os.readlink("link.py") == "real/a.py"
    assert Path("real/a.py").read_text() == "x = DONE\n"
    assert stat.S_IMODE(os.stat("real/a.py").st_mode) == 0o755


def test_a_file_that_changes_during_the_run_is_left_as_it_now_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(a="x = SAFE\n", b="x = SAFE\n")
    replace = replacing.replace

    def edit_then_replace(target: str, new: bytes, old: bytes) -> None:
        if target.endswith("a.py"):
            Path("a.py").write_text("x = SAFE  # typed meanwhile\n")
        replace(target, new, old)

    monkeypatch.setattr(replacing, "replace", edit_then_replace)
    result = run("rewrite")
    assert result.exit_code == 3
    assert Path("a.py").read_text() == "x = SAFE  # typed meanwhile\n"
    assert Path("b.py").read_text() == "x = DONE\n"
    assert result.stderr == "error: a.py: not rewritten: it changed while fsdp-migrate was running; run again\n"
    assert result.stdout.splitlines() == [
        "b.py:1:5: FSDP101 `SAFE` is old [fixed]",
        "Fixed 1 finding in 1 of 1 file; hints were not looked for (--hints); 1 file failed.",
    ]
    assert sorted(os.listdir()) == [".git", "a.py", "b.py"]


# --- the rest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [[], ["lint"], ["rewrite"], ["explain"], ["rules"], ["api"], ["verify"]])
def test_every_help_has_an_example(run: Run, command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    examples = result.stdout.split("Examples:\n")[1]
    assert examples.lstrip().startswith("fsdp-migrate ")


def test_api_tells_about_a_name_as_text_and_as_json(run: Run) -> None:
    result = run("api", "FSDP.optim_state_dict_post_hook")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:2] == [
        "torch.distributed.fsdp.FullyShardedDataParallel.optim_state_dict_post_hook (staticmethod)",
        "  In torch 2.0",
    ]
    answer = json.loads(run("api", "torch.load", "--torch", ">=2.4", "--output-format", "json").stdout)["answers"][0]
    assert [row["parameters"] for row in answer["signatures"]] == [
        "f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **pickle_load_args"
    ]


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"fsdp-migrate {__version__}\n"


def test_explain_says_once_what_safe_assumes(run: Run) -> None:
    assert run("explain", "FSDP104").stdout.count("that the call of torch returns") == 1
    assert "docs/safe.md" in run("explain", "FSDP104").stdout
    assert "docs/safe.md" not in run("explain", "FSDP110").stdout  # manual only


def test_explain_names_the_fixtures_that_prove_a_rule(run: Run) -> None:
    result = run("explain", "FSDP105")
    assert "Proven by `fsdp-migrate verify -k FSDP105`:" in result.stdout
    assert "  flatten-sharded-optim-state-dict/all-keywords" in result.stdout
    assert "Proven by" not in run("explain", "FSDP001").stdout


def test_verify_has_nothing_to_compare_where_rewriting_changes_nothing(run: Run) -> None:
    Path("train.py").write_text("from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n")
    result = run("verify", "--rewrite", "train.py")
    assert result.exit_code == 2
    assert "train.py: rewriting changes nothing, so there is nothing to compare" in result.stderr


def test_verify_refuses_options_that_something_is_missing_for(run: Run) -> None:
    result = run("verify", "--nnodes", "2")
    assert result.exit_code == 2
    assert "Error: --nnodes needs --rdzv-endpoint HOST:PORT, the address of the rendezvous" in result.stderr
    result = run("verify", "--unsafe-fixes")
    assert result.exit_code == 2
    assert "Error: --unsafe-fixes is for --rewrite: fixtures say themselves what they need" in result.stderr


def test_verify_takes_paths_or_a_program_to_rewrite_but_not_both(run: Run) -> None:
    Path("before.py").write_text("x = 1\n")
    result = run("verify", ".", "--rewrite", "before.py")
    assert result.exit_code == 2
    assert "not both" in result.stderr


@pytest.mark.parametrize("last", ["", "def main(trial):\n    pass\n", "# scenario\n"])
def test_verify_of_a_program_without_a_scenario_starts_no_ranks(
    run: Run, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdp_migrate.verify.run", lambda *_, **__: pytest.fail("started"))
    Path("train.py").write_text(f"SAFE\n{last}")
    result = run("verify", "--rewrite", "train.py")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2,
        "Error: train.py: has no function scenario(trial), which the ranks run",
    )


@pytest.mark.parametrize("last", ["def scenario(trial): ...", "from cases import *", "import x as scenario"])
def test_verify_of_a_program_that_may_have_a_scenario_starts_ranks(
    run: Run, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdp_migrate.verify.run", lambda *_, **__: 0)
    Path("train.py").write_text(f"SAFE\n{last}\n")
    assert run("verify", "--rewrite", "train.py").exit_code == 0


def listed(result: Result) -> list[str]:
    assert result.exit_code == 0
    return [line.split()[0] for line in result.stdout.splitlines()]


def test_explain_lists_the_rules_that_the_start_of_a_code_or_a_word_fits(run: Run) -> None:
    family = [rule.card.code for rule in RULES if rule.card.code.startswith("FSDP1")]
    assert listed(run("explain", "FSDP1")) == listed(run("explain", "fsdp1")) == family
    assert listed(run("explain", "clip")) == ["FSDP503", "FSDP509"]
    assert {"FSDP301", "FSDP302", "FSDP303"} <= set(listed(run("explain", "FlatParameter")))


def test_explain_explains_a_rule_that_alone_fits_a_word(run: Run) -> None:
    assert run("explain", "clip-grad-norm-result").stdout == run("explain", "norm-result").stdout
    assert run("explain", "clip-grad-norm").stdout.startswith("FSDP503 clip-grad-norm\n")


def test_rules_can_be_selected_as_for_lint(run: Run) -> None:
    chosen = ["FSDP101", "FSDP102", "FSDP503"]
    assert listed(run("rules", "--select", "FSDP101,clip-grad-norm", "--select", "FSDP102")) == chosen
    document = json.loads(run("rules", "--select", "FSDP812", "--output-format", "json").stdout)
    assert [rule["code"] for rule in document["rules"]] == ["FSDP812"]
    assert document["changes"]
    assert all("FSDP812" in change["codes"] for change in document["changes"])
    refused = run("rules", "--select", "FSDP00000")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "no rule is called 'FSDP00000'" in refused.stderr


def test_a_text_from_stdin_in_another_language_is_told_to_be_that(run: Run) -> None:
    result = run("lint", "--stdin-filename", "run.zsh", "-", stdin="set -e\npython -m torch.distributed.launch\n")
    told = "not Python (its name ends in .zsh, and it does not parse): only Python files and notebooks are checked"
    assert (result.exit_code, result.stderr) == (3, f"error: run.zsh: {told}\n")
