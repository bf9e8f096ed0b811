from __future__ import annotations

import pytest

from fsdp_migrate.config import Settings
from fsdp_migrate.findings import Severity
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.runner.noqa import with_noqa
from fsdp_migrate.torch_api import TorchRange
from tests.notebook.build import notebook
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

ANY = TorchRange.parse(">=2.1")
OPTION = "FSDP821"
LAUNCH = "FSDP822"


def test_the_dashed_option_comes_first_in_the_quotes_of_the_other() -> None:
    check_transformed(
        """\
        parser.add_argument('--local_rank', type=int, dest="rank")
        """,
        """\
        parser.add_argument('--local-rank', '--local_rank', type=int, dest="rank")
        """,
        OPTION,
    )


def test_further_option_strings_are_manual() -> None:
    check_manual('p.add_argument("-r", "--local_rank")\n', OPTION, "first long option string")
    check_manual('p.add_argument(r"--local_rank")\n', OPTION, "unusual way")


def test_an_option_with_the_dash_anywhere_in_the_file_is_enough() -> None:
    check_noop('p.add_argument("--local_rank", "--local-rank")\n', OPTION)
    check_noop('p.add_argument("--local_rank")\np.add_argument("--local-rank", dest="local_rank")\n', OPTION)
    check_noop('p.add_argument("--local_rank_file")\n', OPTION)
    check_noop('command += ["--local_rank", "0"]\n', OPTION)


def test_before_torch_2_nothing_is_wrong() -> None:
    check_noop('p.add_argument("--local_rank")\n', OPTION, "<2.0")


def _severity(text: str) -> Severity:
    (found,) = lint(f'p.add_argument("--local_rank")\n{text}', OPTION)
    return found.severity


def test_it_breaks_only_where_the_launcher_is_named() -> None:
    assert _severity("p.parse_args()\n") is Severity.HINT
    assert _severity("p.parse_args()  # python -m torch.distributed.launch\n") is Severity.BREAKS
    assert _severity("p.parse_known_args()  # python -m torch.distributed.launch\n") is Severity.CHANGES


@pytest.mark.parametrize(
    "text",
    [
        'import os\n{}os.system("python -m torch.distributed.launch train.py")\n',
        "# Start it with python -m torch.distributed.launch.\n{}",
        '"""python -m torch.distributed.launch train.py"""\n{}',
    ],
)
def test_a_script_that_only_names_the_launcher_is_looked_at(text: str) -> None:
    source = text.format('import argparse\np = argparse.ArgumentParser()\np.add_argument("--local_rank")\n')
    for settings in (Settings(ANY), Settings(ANY, select=(OPTION[:-1],))):
        found = [one for one in lint_bytes(source.encode(), "train.py", settings).findings if one.code == OPTION]
        assert [one.severity for one in found] == [Severity.BREAKS]


def test_the_launcher_makes_no_other_rule_look() -> None:
    text = "# python -m torch.distributed.launch\nimport torch\nx = torch.cuda.amp.GradScaler()\n"
    assert lint_bytes(text.encode(), "train.py", Settings(ANY)).findings == ()


COMMAND = "python -m torch.distributed.launch train.py"


@pytest.mark.parametrize(
    "text",
    [
        "import torch.distributed.launch as launch\n",
        "from torch.distributed import launch\n",
        "from torch.distributed.launch import parse_args\n",
        'cmd = [sys.executable, "-m", "torch.distributed.launch", "--use_env"]\n',
        'cmd = [sys.executable, "-m"] + ["torch.distributed.launch", "train.py"]\n',
        'cmd.extend(["torch.distributed.launch", "train.py"])\n',
        'os.execvp(python, python, "-m", "torch.distributed.launch")\n',
        'runpy.run_module("torch.distributed.launch", run_name="__main__")\n',
        f'os.system("{COMMAND}")\n',
        'os.system(f"{python} -m torch.distributed.launch {script}")\n',
        f'subprocess.run("{COMMAND} {{}}".format(args).split(), check=True)\n',
        f'print_and_run("{COMMAND}")\n',
        f'print("{COMMAND}", file=script)\n',
        f'script.write("#!/bin/bash\\n{COMMAND}\\n")\n',
        f'TEMPLATE = """\\\n#SBATCH -N 2\n{COMMAND}\n"""\nopen("job.sh", "w").write(TEMPLATE)\n',
        f'command = "{COMMAND}"\nprint(command)\nos.system(command)\n',
        f'COMMAND = "{COMMAND}"\n',
    ],
)
def test_what_starts_the_launcher_is_reported(text: str) -> None:
    (found,) = lint(text, LAUNCH)
    assert found.severity is Severity.DEPRECATED
    assert found.fix is None


@pytest.mark.parametrize(
    "text",
    [
        f'"""Run `{COMMAND}`."""\n',
        f'def main():\n    """Start it.\n\n    $ {COMMAND}\n    """\n',
        f'logger.info("start it with %s", "{COMMAND}")\n',
        f'print("usage: " + "{COMMAND}")\n',
        f'print(f"usage: {COMMAND} {{name}}", file=sys.stderr)\n',
        f'sys.stderr.write("usage: {COMMAND}")\n',
        f'rank_zero_warn("{COMMAND}")\n',
        f'raise RuntimeError(f"start it with {COMMAND}")\n',
        'raise RuntimeError("Please use `torch.distributed.launch` for several GPUs")\n',
        f'assert world > 1, "{COMMAND}"\n',
        f'parser = argparse.ArgumentParser(usage="{COMMAND}")\n',
        f'parser.add_argument("--dist", help="as in {COMMAND}")\n',
        f'local_rank: int = field(default=-1, metadata={{"help": "set by {COMMAND}"}})\n',
        f'USAGE = textwrap.dedent("""\n    {COMMAND}\n""")\nprint(USAGE)\n',
        f'__doc__ = "{COMMAND}"\n',
    ],
)
def test_a_text_that_tells_people_to_start_it_is_a_hint(text: str) -> None:
    (found,) = lint(text, LAUNCH)
    assert found.severity is Severity.HINT
    assert found.message.startswith("this text tells people to start `torch.distributed.launch`")
    assert found.reason == "name `torchrun` instead"


@pytest.mark.parametrize(
    "text",
    [
        '"""A wrapper for torchrun or torch.distributed.launch, by reading rank and world size."""\n',
        "import torch.distributed.launcher\n",
        "from torch.distributed.launcher import elastic_launch\n",
        'os.system("python -m torch.distributed.launcher.api")\n',
        f'assert line.startswith("{COMMAND}")\n',
        'print("torch.distributed.launch was used")\n',
        'if "-m torch.distributed.launch" in line: ...\n',
        'if module in ("torch.distributed.launch", "torch.distributed.run"): ...\n',
        'MODULES = ["torch.distributed.run", "torch.distributed.launch"]\n',
    ],
)
def test_what_only_speaks_of_it_is_not(text: str) -> None:
    check_noop(text, LAUNCH)


def _in_notebook(*cells: str) -> list[tuple[Severity, int | None, int, int, int, int]]:
    settings = Settings(ANY, select=(LAUNCH,), hints=True)
    found = lint_bytes(notebook(*cells), "a.ipynb", settings).findings
    assert all(one.fix is None for one in found)
    return [(one.severity, one.cell, one.line, one.column, one.end_line, one.end_column) for one in found]


@pytest.mark.parametrize(
    "cell",
    [
        f"!{COMMAND}",
        f"x = 1\n!!{COMMAND}",
        f"out = !{COMMAND}",
        f"if x:\n    !{COMMAND}",
        f"%system {COMMAND}",
        "%run -m torch.distributed.launch train.py",
        f"%%capture\n!{COMMAND}",
        f"%%bash\n{COMMAND}",
        f"%%bash --bg\nset -e\n{COMMAND}",
        f"%%sh\n{COMMAND}",
        f"%%sx\n{COMMAND}",
        f"%%!\n{COMMAND}",
        f"%%script bash -x\n{COMMAND}",
        f"%%script /bin/sh\n{COMMAND}",
        f"%%time\n%%bash\n{COMMAND}",
        f"%sh\n{COMMAND}",
        f"%%writefile run.sh\n#!/bin/sh\n{COMMAND}",
        f"\u00e9 = 1\n!echo \u00e9; {COMMAND}",
    ],
)
def test_a_command_of_a_notebook_is_a_finding_at_its_place(cell: str) -> None:
    start = cell.index("-m torch")
    line, column = cell.count("\n", 0, start) + 1, start - cell.rfind("\n", 0, start)
    end = column + len("-m torch.distributed.launch")
    assert _in_notebook("import torch", cell) == [(Severity.DEPRECATED, 2, line, column, line, end)]


def test_a_command_of_several_lines_is_one_finding() -> None:
    assert _in_notebook("!python -m \\\n  torch.distributed.launch --nproc_per_node 2 train.py") == [
        (Severity.DEPRECATED, 1, 1, 9, 2, 27)
    ]
    twice = f"%%bash\n{COMMAND}\n{COMMAND}"
    assert [place[2] for place in _in_notebook(twice)] == [2, 3]


@pytest.mark.parametrize(
    "cell",
    [
        f"%%bash\n# {COMMAND}",
        f"!ls # {COMMAND}",
        "!python -m torch.distributed.launcher",
        f"%%html\n{COMMAND}",
        f"%%writefile README.md\n{COMMAND}",
        f"%%script perl\n{COMMAND}",
        "!torchrun train.py",
        f"# {COMMAND}",
    ],
)
def test_what_no_shell_of_a_notebook_runs_is_none(cell: str) -> None:
    assert _in_notebook("import torch", cell) == []


def test_names_in_a_command_are_nobodys() -> None:
    cells = ("from torch.distributed.fsdp import FlatParameter", f"!FlatParameter; {COMMAND}")
    found = lint_bytes(notebook(*cells), "a.ipynb", Settings(ANY, hints=True)).findings
    assert [one.code for one in found if one.cell == 2] == [LAUNCH]


def test_the_launcher_in_a_command_makes_the_option_break() -> None:
    cells = ('import argparse\np = argparse.ArgumentParser()\np.add_argument("--local_rank")', f"!{COMMAND}")
    found = lint_bytes(notebook(*cells), "a.ipynb", Settings(ANY)).findings
    assert [(one.code, one.severity) for one in found] == [
        (OPTION, Severity.BREAKS),
        (LAUNCH, Severity.DEPRECATED),
    ]


def test_a_comment_of_the_shell_silences_its_line() -> None:
    cell = f"%%bash\n{COMMAND} # noqa: {LAUNCH}\n{COMMAND}\n{COMMAND} \\\n  --x 1  # fsdp-migrate: ignore[{LAUNCH}]"
    assert [place[2] for place in _in_notebook(cell)] == [3]
    assert _in_notebook(f"!{COMMAND}  # noqa: {LAUNCH}", f"!echo '#noqa'; {COMMAND}") == [
        (Severity.DEPRECATED, 2, 1, 23, 1, 50)
    ]


def test_suppressing_what_is_found_leaves_commands_alone() -> None:
    raw = notebook("import os", f"!{COMMAND}\nos.system('{COMMAND}')")
    found = lint_bytes(raw, "a.ipynb", Settings(ANY, select=(LAUNCH,))).findings
    new = with_noqa(raw, found)
    assert new.count(b"noqa") == 1
    assert [one.line for one in lint_bytes(new, "a.ipynb", Settings(ANY, select=(LAUNCH,))).findings] == [1]
