from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
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
    check_manual('p.add_argument(r"--local_rank")\n', OPTION, "not written as a plain")


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
    assert found.message.startswith("this text names `torch.distributed.launch`")
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


def test_an_option_that_is_given_in_short_would_stand_for_both() -> None:
    text = (
        "import torch.distributed.launch\nimport argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--local_rank')\np.parse_args(['--local', '1'])\n"
    )
    check_manual(text, "FSDP821", "abbreviates the option")
