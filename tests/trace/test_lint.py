"""`lint --trace`: what a run shows is used, and said."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.planning import cache, planner
from fsdp_migrate.trace.records import Call, Optimizer, Place, Trace, document
from fsdp_migrate.workspace.disk import digest
from tests.trace.stub import AUTOCAST, FULL, SAVE, SCATTER, TYPE

Lint = Callable[..., Result]

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"


class Project:
    """A repository with a file `a.py` and a trace of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / ".git").mkdir()
        self.calls: list[Call] = []
        self.files: dict[str, str] = {}

    def write(self, text: str, name: str = "a.py") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.files[name] = digest(text.encode())

    def saw(self, api: str, text: str, name: str = "a.py", *, exact: bool = True, **more: Any) -> None:
        """A call of `api` at the first place of `text`."""
        source = (self.root / name).read_text()
        start = source.index(text)
        lines = source[:start].splitlines(keepends=True) or [""]
        if lines[-1].endswith("\n"):
            lines.append("")
        line, column, end = len(lines), len(lines[-1]), text.count("\n")
        span = line, column, line + end, len(text) - text.rfind("\n") - 1 if end else column + len(text)
        place = Place(name, line, "f", span if exact else None)
        defaults = {"by": None, "times": 2, "ranks": (0, 1), "given": {}, "optimizers": None}
        self.calls.append(Call(api, place, **{**defaults, **more}))

    def save(self, name: str = "uses.json", **more: Any) -> None:
        trace = Trace(calls=tuple(self.calls), files=self.files, sees_lines=False, processes=1, torch=("2.13.0",))
        (self.root / name).write_text(document(Trace(**{**vars(trace), **more})))

    def lint(self, *arguments: str, command: str = "lint") -> Result:
        options = ("--isolated", "--no-cache", "-q", "--trace", "uses.json")
        return CliRunner().invoke(cli, [command, *options, *arguments], catch_exceptions=False)

    def lines(self, *arguments: str) -> list[str]:
        self.save()
        return self.lint(*arguments).stdout.splitlines()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


def test_what_is_reached_by_a_text_of_a_config_is_a_finding_with_its_line(project: Project) -> None:
    project.write(
        "import json\nimport lib\n\n\n"
        "def load(osd, model):\n    return getattr(lib.cls, json.loads(x)['f'])(osd, model)\n"
    )
    assert project.lines() == []
    project.saw(SCATTER, "getattr(lib.cls, json.loads(x)['f'])(osd, model)")
    (line,) = project.lines()
    assert line == (
        "a.py:6:12: FSDP104 a run called `FullyShardedDataParallel.scatter_full_optim_state_dict` here (2 times, "
        "ranks 0, 1), which the source does not show: it is deprecated since torch 2.0 [deprecated, manual, ran: call "
        "it here by its name, which can be rewritten, or change what chooses it]"
    )
    assert project.lint().exit_code == 1
    assert project.lines("--select", "FSDP101") == []
    project.write(Path("a.py").read_text().replace("(osd, model)\n", "(osd, model)  # noqa: FSDP104\n"))
    assert project.lines() == []


def test_what_lint_sees_is_not_told_twice(project: Project) -> None:
    project.write(
        IMPORT
        + "import contextlib\n"
        + "import torch\n"
        + "alias = FSDP.full_optim_state_dict\n"
        + "def f(model, optim):\n"
        + "    a = FSDP.full_optim_state_dict(model, optim)\n"
        + "    b = alias(model, optim)\n"
        + "    with FSDP.state_dict_type(\n        model, 1):\n        model.state_dict()\n"
        + "    with torch.cuda.amp.autocast():\n        pass\n"
    )
    before = [line.partition(" [")[0] for line in project.lines("--hints")]
    project.saw(FULL, "FSDP.full_optim_state_dict(model, optim)")
    project.saw(FULL, "alias(model, optim)")
    # What Python knows of a `with` is the whole of it.
    project.saw(TYPE, "with FSDP.state_dict_type(\n        model, 1):\n        model.state_dict()")
    project.saw(AUTOCAST, "torch.cuda.amp.autocast()")
    assert [line.partition(" [")[0] for line in project.lines("--hints")] == before
    for call in list(project.calls):
        assert call.place is not None
        project.calls.append(call._replace(place=call.place._replace(span=None)))
    assert [line.partition(" [")[0] for line in project.lines("--hints")] == before


def test_a_place_that_no_supported_torch_runs_is_left_alone(project: Project) -> None:
    project.write(
        "import torch\nfrom packaging.version import Version\n\n\ndef f(fsdp, model):\n"
        "    if Version(torch.__version__) < Version('1.12'):\n        return fsdp['full'](model)\n"
    )
    project.saw(FULL, "fsdp['full'](model)")
    assert project.lines("--torch", ">=2.1") == []


def test_a_call_by_a_library_is_told_at_the_line_that_led_to_it(project: Project) -> None:
    project.write("import accelerate\n\n\ndef save(model):\n    accelerate.save(\n        model)\n")
    project.saw(FULL, "accelerate.save(\n        model)", by="accelerate/utils/fsdp_utils.py:12", ranks=(), times=1)
    (line,) = project.lines()
    assert line == (
        "a.py:5:5: FSDP101 a run called `FullyShardedDataParallel.full_optim_state_dict` from here, through "
        "accelerate/utils/fsdp_utils.py:12 (once): it is deprecated since torch 2.0 [deprecated, manual, ran: it is "
        "that library's call: use a release of it without, or another way]"
    )


def test_rules_beside_fsdp_speak_where_they_would_by_the_source(project: Project) -> None:
    text = "def f(cls, save):\n    cls['amp']()\n    save['old']({})\n"
    project.write(text)
    project.saw(AUTOCAST, "cls['amp']()")
    project.saw(SAVE, "save['old']({})")
    assert [line.split()[:2] for line in project.lines()] == [["a.py:3:5:", "FSDP703"]]
    project.write(f"import torch.distributed\n{text}")
    project.calls.clear()
    project.saw(AUTOCAST, "cls['amp']()")
    assert [line.split()[:2] for line in project.lines()] == [["a.py:3:5:", "FSDP801"]]


DOUBTFUL = IMPORT + "\n\ndef save(cls, model, optim):\n    return cls.full_optim_state_dict(model, optim)\n"


@pytest.mark.parametrize("exact", [True, False])
def test_a_doubt_that_the_run_decided_is_decided_and_the_fix_says_so(project: Project, exact: bool) -> None:
    project.write(DOUBTFUL)
    (line,) = project.lines()
    assert "manual: it is not visible here whether `cls` is an FSDP module or class" in line
    project.saw(FULL, "cls.full_optim_state_dict(model, optim)", exact=exact)
    (line,) = project.lines()
    assert line.endswith("[deprecated, unsafe fix, ran: only a run shows that `cls` is torch's FSDP here]")
    assert project.lint("--diff", command="rewrite").stdout == ""
    diff = project.lint("--diff", "--unsafe-fixes", command="rewrite").stdout
    assert "+        return cls.optim_state_dict(model, optim)" in diff


def test_a_call_of_something_else_decides_nothing(project: Project) -> None:
    project.write(DOUBTFUL)
    project.saw(SCATTER, "cls.full_optim_state_dict(model, optim)")
    assert not any("unsafe fix" in line for line in project.lines())


LOADING = IMPORT + "\n\ndef load(trainer, model, osd):\n    return FSDP.scatter_full_optim_state_dict(osd, model)\n"
SCATTERED = "FSDP.scatter_full_optim_state_dict(osd, model)"


def test_the_optimizer_that_was_seen_makes_an_unsafe_fix(project: Project) -> None:
    project.write(LOADING)
    (line,) = project.lines()
    assert "manual: `load` has no visible optimizer" in line
    project.saw(SCATTER, SCATTERED, optimizers=(Optimizer(("trainer.optim", "optim"), "torch.optim.AdamW"),))
    (line,) = project.lines()
    told = "only a run shows that `optim` (torch.optim.AdamW) is the model's optimizer here"
    assert line.endswith(f"[deprecated, unsafe fix, ran: {told}]")
    result = project.lint("--unsafe-fixes", command="rewrite")
    assert "FSDP.optim_state_dict_to_load(model=model, optim=optim, optim_state_dict=osd)" in Path("a.py").read_text()
    assert result.exit_code == 0


@pytest.mark.parametrize(
    "optimizers",
    [None, (), (Optimizer(("a",), "AdamW"), Optimizer(("b",), "SGD"))],
    ids=["not looked for", "none", "two"],
)
def test_no_optimizer_or_several_make_none(project: Project, optimizers: Any) -> None:
    project.write(LOADING)
    project.saw(SCATTER, SCATTERED, optimizers=optimizers)
    assert "manual" in project.lines()[0]


def test_two_calls_of_a_line_that_name_different_optimizers_make_none(project: Project) -> None:
    project.write(LOADING)
    for name in ("a", "b"):
        project.saw(SCATTER, SCATTERED, optimizers=(Optimizer((name,), "AdamW"),))
    assert "manual" in project.lines()[0]


def test_findings_say_whether_their_code_ran(project: Project) -> None:
    text = LOADING + "\n\ndef save(model, optim):\n    return FSDP.full_optim_state_dict(\n        model, optim)\n"
    project.write(text)
    project.write(LOADING, "never.py")
    lines = {"a.py": frozenset({1, 4, 5})}
    del project.files["never.py"]
    project.save(sees_lines=True, lines=lines)
    told = [line.partition(" [")[2].partition(":")[0] for line in project.lint().stdout.splitlines()]
    assert told == ["deprecated, manual, ran", "deprecated, fixable, did not run]", "deprecated, manual, did not run"]
    found = json.loads(project.lint("--output-format", "json").stdout)["findings"]
    assert [(one["path"], one["ran"], one["by_run"]) for one in found] == [
        ("a.py", True, False),
        ("a.py", False, False),
        ("never.py", False, False),
    ]
    # Where nobody looked, only the lines of calls are known.
    project.save(lines=lines)
    told = [line.partition(" [")[2].partition(":")[0] for line in project.lint().stdout.splitlines()]
    assert told == ["deprecated, manual, ran", "deprecated, fixable]", "deprecated, manual"]


def test_what_was_recorded_of_a_file_that_changed_does_not_count_and_is_counted(project: Project) -> None:
    project.write("def f(cls):\n    cls['x']()\n")
    project.write(DOUBTFUL, "b.py")
    project.saw(FULL, "cls['x']()")
    project.saw(FULL, "cls.full_optim_state_dict(model, optim)", "b.py")
    project.save()
    Path("a.py").write_text("# new\ndef f(cls):\n    cls['x']()\n")
    options = ["lint", "--isolated", "--no-cache", "--trace", "uses.json"]
    result = CliRunner().invoke(cli, [*options, "."], catch_exceptions=False)
    assert result.stdout.splitlines()[-1] == (
        "The trace has calls at 1 place; the code of 1 of 1 finding ran; 1 file changed since, so that 1 place more "
        "did not count."
    )
    told = json.loads(project.lint("--output-format", "json").stdout)["trace"]
    assert told == {"places": 1, "elsewhere": 0, "left_out": 1, "changed": ["a.py"]}
    told = json.loads(project.lint("--output-format", "json", "a.py").stdout)["trace"]
    assert told["elsewhere"] == 1


def test_stdin_counts_only_if_it_is_what_ran(project: Project) -> None:
    project.write("def f(cls):\n    cls['x']()\n")
    project.saw(FULL, "cls['x']()")
    project.save()
    options = ["lint", "--isolated", "-q", "--trace", "uses.json", "--stdin-filename", "a.py", "-"]
    for text, found in (("def f(cls):\n    cls['x']()\n", 1), ("def f(cls):\n    cls['y']()\n", 0)):
        result = CliRunner().invoke(cli, options, input=text, catch_exceptions=False)
        assert result.stdout.count("FSDP101") == found


def test_several_traces_count_together(project: Project) -> None:
    project.write("def f(cls):\n    cls['x']()\n    cls['y']()\n")
    for name, text in (("uses.json", "cls['x']()"), ("more.json", "cls['y']()")):
        project.calls.clear()
        project.saw(FULL, text)
        project.save(name)
    assert len(project.lint("--trace", "more.json").stdout.splitlines()) == 2


def test_the_trace_is_a_part_of_what_the_cache_goes_by(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_MANY", 1)
    monkeypatch.setattr(cache, "_FRESH_NS", 0)
    project.write(DOUBTFUL)
    project.write("def f(cls):\n    cls['x']()\n", "b.py")
    project.saw(FULL, "cls.full_optim_state_dict(model, optim)")
    project.saw(FULL, "cls['x']()", "b.py")
    project.save()
    plain = ["lint", "--isolated", "-q", "--cache-dir", str(project.root / "cache")]
    traced = [*plain, "--trace", "uses.json"]
    runs = [CliRunner().invoke(cli, arguments).stdout for arguments in (plain, traced, traced, plain, traced)]
    without, first, second, again, last = runs
    assert without == again
    assert first == second == last
    assert "manual" in without
    assert [line.split()[0] for line in first.splitlines()] == ["a.py:5:12:", "b.py:2:5:"]
    assert "unsafe fix, ran" in first


@pytest.mark.parametrize(
    ("text", "told"),
    [(None, "uses.json: No such file"), ("{}", "this is not a trace"), ("x", "this is not JSON")],
)
def test_a_trace_that_cannot_be_used_ends_the_run(project: Project, text: str | None, told: str) -> None:
    if text is not None:
        Path("uses.json").write_text(text)
    for command in ("lint", "rewrite"):
        result = project.lint(command=command)
        assert (result.exit_code, result.stdout) == (2, "")
        assert told in result.stderr.splitlines()[-1]


def test_a_trace_of_another_repository_ends_the_run(project: Project) -> None:
    project.files = {"src/train.py": "1"}
    project.save()
    result = project.lint()
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        f"Error: uses.json: this trace is of another repository: {os.path.realpath(project.root)} has none of its "
        "files (src/train.py)"
    )


def test_a_hundred_thousand_places_are_no_trouble(project: Project) -> None:
    project.write("def f(cls):\n    cls['x']()\n")
    project.saw(FULL, "cls['x']()")
    (one,) = project.calls
    assert one.place is not None
    project.calls += [one._replace(place=one.place._replace(path=f"p{n % 900}.py", line=n)) for n in range(100_000)]
    assert len(project.lines()) == 1


def test_notebooks_and_files_that_do_not_parse_have_no_places(project: Project) -> None:
    project.write("def f(cls:\n    cls['x']()\n")
    project.saw(FULL, "cls['x']()")
    (line,) = project.lines()
    assert "FSDP001" in line
    cell = {"cell_type": "code", "source": "cls['x']()", "metadata": {}, "outputs": [], "execution_count": None}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    project.write(json.dumps(notebook), "n.ipynb")
    project.saw(FULL, "cls['x']()", "n.ipynb")
    assert len(project.lines()) == 1
