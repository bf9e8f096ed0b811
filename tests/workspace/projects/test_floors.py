"""What is said of the floor that a project states: its place, what raising it settles, and `lint --min-torch`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.workspace.projects import Projects
from tests.trees import plant, project_of

NEW_26 = "from torch.distributed import get_default_backend_for_device\n"
NEW_210 = "from torch.distributed.fsdp import share_comm_ctx\n"
GONE = "from torch.distributed.fsdp._runtime_utils import _clear_grads_if_needed\n"
LATE = "def f():\n    from torch.distributed import get_default_backend_for_device\n"
RENAMED = "import torch.distributed as dist\ndist._all_gather_base(a, b)\n"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("requirements.txt", "# torch>=2.3\nnumpy\ntorch>=2.3  # for FSDP\n", "requirements.txt:3 states torch>=2.3"),
        ("requirements/base.txt", "torch>=2.3\n", "requirements/base.txt:1 states torch>=2.3"),
        ("requirements.txt", "torch >= 2.3 ; python_version > '3.9'\n", "requirements.txt:1 states torch>=2.3"),
        ("requirements.txt", "torch>=2.3 \\\n  --hash=sha256:0\n", "requirements.txt:1 states torch>=2.3"),
        ("pyproject.toml", '[project]\ndependencies = [\n  "torch>2.3",\n]\n', "pyproject.toml:3 states torch>2.3"),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^2.3"\n', "pyproject.toml:2 states torch>=2.3"),
        (
            "pyproject.toml",
            '[tool.poetry.dependencies.torch]\nversion = "^2.3"\n',
            "pyproject.toml states torch>=2.3",
        ),
        ("Pipfile", '[packages]\nnumpy = "*"\ntorch = ">=2.3"\n', "Pipfile:3 states torch>=2.3"),
        ("setup.cfg", "[options]\ninstall_requires =\n  torch~=2.3.1\n", "setup.cfg:3 states torch>=2.3.1"),
        ("setup.py", "setup(\n    install_requires=['torch>=2.3'],\n)\n", "setup.py:2 states torch>=2.3"),
        ("environment.yml", "dependencies:\n  - pytorch>=2.3\n", "environment.yml:2 states torch>=2.3"),
        ("pyproject.toml", '[tool.fsdp-migrate]\nhints = true\ntorch = "2.3"\n', "pyproject.toml:3 states torch>=2.3"),
        ("fsdp-migrate.toml", 'torch = ">=2.3,<2.9"\n', "fsdp-migrate.toml:1 states torch>=2.3,<2.9"),
    ],
)
def test_the_floor_is_named_with_file_and_line(name: str, text: str, place: str) -> None:
    stated = project_of("train.py", {name: text}).torch.stated
    assert str(stated) == place


@pytest.mark.parametrize("text", ["torch\n", "torch==2.3.0\n", "numpy\n"])
def test_where_no_floor_is_stated_none_is_named(text: str) -> None:
    assert project_of("train.py", {"requirements.txt": text}).torch.stated is None


def test_a_floor_below_what_is_checked_is_named_too() -> None:
    assert str(project_of("train.py", {"requirements.txt": "torch>=1.13\n"}).torch.stated).endswith("torch>=1.13")


def tree() -> None:
    files = {f"m{number}.py": NEW_26 for number in range(3)}
    plant({**files, "requirements.txt": "torch>=2.3\n", "n.py": NEW_210, "o.py": GONE, "p.py": LATE, "q.py": RENAMED})


SUMMARY = "requirements.txt:1 states torch>=2.3; >=2.6 would settle 3 of 6 findings, >=2.10 would settle 4"


def test_one_line_sums_up_what_a_floor_would_settle_and_hints_do_not_count() -> None:
    tree()
    result = run("lint", "--hints")
    assert result.stdout.splitlines()[-1] == f"{SUMMARY}."
    assert run("lint", "--quiet").stdout.count("states") == 4  # each place says it, the line is not printed
    document = json.loads(run("lint", "--output-format", "json").stdout)
    assert document["floors"] == [
        {
            "path": "requirements.txt",
            "line": 1,
            "states": "torch>=2.3",
            "findings": 6,
            "settled": [{"torch": ">=2.6", "findings": 3}, {"torch": ">=2.10", "findings": 4}],
            "message": SUMMARY,
        }
    ]
    assert [finding["settled"] for finding in document["findings"]] == ["2.6", "2.6", "2.6", "2.10", None, None]


def test_what_the_line_promises_is_what_another_floor_gives() -> None:
    tree()
    for torch, left in ((">=2.3", 6), (">=2.6", 3), (">=2.10", 2)):
        assert len(json.loads(run("lint", "--torch", torch, "--output-format", "json").stdout)["findings"]) == left


def test_every_project_has_a_line_of_its_own_and_none_where_a_floor_settles_nothing() -> None:
    torch = {"a": ">=2.3", "b": ">=2.1", "c": ">=2.6", "d": ""}
    plant({f"{name}/requirements.txt": f"torch{bound}\n" for name, bound in torch.items()})
    plant({f"{name}/m.py": NEW_26 for name in torch})
    lines = run("lint").stdout.splitlines()
    assert [line for line in lines if "would settle" in line] == [
        "a/requirements.txt:1 states torch>=2.3; >=2.6 would settle 1 of 1 finding.",
        "b/requirements.txt:1 states torch>=2.1; >=2.6 would settle 1 of 1 finding.",
    ]


def test_what_a_rewrite_leaves_is_summed_up_and_a_baseline_leaves_nothing() -> None:
    tree()
    assert run("rewrite", "--diff").stderr.splitlines()[-1] == f"{SUMMARY.replace('of 6', 'of 5')}."
    run("lint", "--write-baseline", "known.json")
    assert "would settle" not in run("lint", "--baseline", "known.json").stdout


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("FSDP600", NEW_26),
        ("FSDP500", "from torch.distributed.fsdp import FullyShardedDataParallel as F\nF(m, device_mesh=mesh)\n"),
    ],
)
def test_a_finding_that_leaves_the_floor_to_the_user_names_it(code: str, text: str) -> None:
    plant({"requirements.txt": "torch>=2.1\n", "m.py": text})
    (line,) = (line for line in run("lint").stdout.splitlines() if code in line)
    assert line.endswith(" (requirements.txt:1 states torch>=2.1)]")
    assert "(requirements" not in run("lint", "--torch", ">=2.1").stdout


def test_a_fix_that_the_floor_forbids_names_it() -> None:
    load = "import torch.distributed.checkpoint as dcp\ndcp.load_state_dict({'a': 1}, dcp.FileSystemReader('x'))\n"
    plant({"requirements.txt": "\ntorch>=2.2\n", "m.py": load})
    assert "needs torch>=2.4, but requirements.txt:2 states torch>=2.2" in run("lint").stdout


def test_a_floor_that_moves_to_another_line_is_named_there_with_a_cache() -> None:
    plant({"requirements.txt": "torch>=2.3\n", "m.py": NEW_26})
    cached = ("lint", "--cache", "--cache-dir", "cache")
    assert "(requirements.txt:1 states" in run(*cached).stdout
    plant({"requirements.txt": "numpy\ntorch>=2.3\n"})
    assert "(requirements.txt:2 states" in run(*cached).stdout
    assert ">=2.6 would settle 1 of 1 finding" in run(*cached).stdout


def test_the_lowest_floor_is_told_with_the_places_that_decide_it() -> None:
    tree()
    result = run("lint", "--min-torch")
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            ".: torch>=2.10 is the lowest floor on which nothing is missing; requirements.txt:1 states torch>=2.3",
            "  n.py:1:36: FSDP600 `torch.distributed.fsdp.share_comm_ctx` is new in torch 2.10",
            "  with any lower bound, 1 finding breaks on the newest torch: `fsdp-migrate lint` lists them",
        ],
    )
    (answer,) = json.loads(run("lint", "--min-torch", "--output-format", "json").stdout)["projects"]
    assert (answer["min_torch"], answer["breaks_anyway"]) == ("2.10", 1)
    assert [finding["path"] for finding in answer["decided_by"]] == ["n.py"]


def test_the_lowest_floor_may_be_below_the_stated_one_and_each_project_has_its_own() -> None:
    plant({"a/requirements.txt": "torch>=2.9\n", "a/m.py": NEW_26, "b/setup.py": "", "b/m.py": "x = 1\n"})
    assert [line for line in run("lint", "--min-torch").stdout.splitlines() if line[0] != " "] == [
        "(no project): torch>=1.11 misses nothing",
        "a: torch>=2.6 is the lowest floor on which nothing is missing; a/requirements.txt:1 states torch>=2.9",
    ]
    assert "misses nothing" in run("lint", "--min-torch", "--torch", ">=2.7", "a").stdout


def test_code_behind_its_own_check_decides_no_floor() -> None:
    plant(
        {
            "m.py": f"try:\n    {NEW_26}except ImportError:\n    fully_shard = None\n",
        }
    )
    assert run("lint", "--min-torch").stdout == "(no project): torch>=1.11 misses nothing\n"


def test_a_file_that_fails_is_told_and_what_does_not_go_together_too() -> None:
    plant({"m.py": "FSDP.full_optim_state_dict(\n", "n.py": NEW_26})
    result = run("lint", "--min-torch")
    assert (result.exit_code, result.stderr) == (3, "error: m.py: the file does not parse: '(' was never closed\n")
    assert run("lint", "--min-torch", "--statistics").exit_code == 2
    assert run("lint", "--min-torch", "--output-format", "sarif").exit_code == 2


def test_projects_without_files_state_nothing() -> None:
    assert Projects().used == ()
