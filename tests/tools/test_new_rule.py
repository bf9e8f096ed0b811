from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fsdp_migrate.rules import RULES
from fsdp_migrate.verify.fixtures import Condition, Fails, find_fixtures
from tools.new_rule import ROOT, SOME_METHOD, Refused, checked, main, scaffold

TAKEN = {rule.card.code for rule in RULES}
MANUAL, SAFE, GONE, FREE = sorted({f"FSDP{number}" for number in range(500, 600)} - TAKEN)[-4:]
# About methods that no rule of the project is about.
STARTED = (
    [MANUAL, "fsdp-modules", "a call of `FSDP.fsdp_modules`"],
    [SAFE, "started-rewrite", "an old name.", "--method", "named_buffers", "--rewrites", "named_parameters"],
    [GONE, "started-gone", "a method of torch 1.12", "--method", "_get_chunk", "--rewrites", "get_state_dict_type"],
)
NAMES = [name for _, name, *_ in STARTED]
FAMILY = "targets/modernise/constructor"


def run(folder: Path, *arguments: str, text: str = "") -> str:
    """What a Python module prints, run in `folder` with the code there."""
    command = [sys.executable, "-m", *arguments]
    result = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True)
    assert result.returncode == int("lint" in arguments), result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what rules and their tests need, with three rules started in it."""
    root = tmp_path_factory.mktemp("tree")
    for folder in ("fsdp_migrate", "tools", "tests/rules", "tests/workspace/modules"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("tests/workspace/__init__.py", "tests/__init__.py", "tests/test_fixtures.py", "pyproject.toml"):
        shutil.copy(ROOT / file, root / file)
    for arguments in STARTED:
        run(root, "tools.new_rule", *arguments)
    return root


def test_rules_and_fixtures_pass_their_tests_as_they_are_started(tree: Path) -> None:
    words = " or ".join([*NAMES, *(name.replace("-", "_") for name in NAMES)])
    output = run(tree, "pytest", "-q", "-p", "no:cacheprovider", "tests", "-k", words)
    of_their_own, of_their_cards = 2 + 3 + 3, 3 * 4
    assert "failed" not in output
    assert int(re.search(r"(\d+) passed", output)[1]) >= of_their_own + of_their_cards + len(find_fixtures([tree]))


def test_a_rule_that_rewrites_gets_two_fixtures(tree: Path) -> None:
    assert [f.name for f in find_fixtures([tree], SAFE)] == ["started-rewrite/attribute-chain", "started-rewrite/first"]
    assert [f.name for f in find_fixtures([tree], MANUAL)] == ["fsdp-modules/first"]


def test_started_files_are_linted_formatted_and_typed(tree: Path) -> None:
    modules = [f"fsdp_migrate/{FAMILY}/{name.replace('-', '_')}.py" for name in NAMES]
    tests = [f"tests/{FAMILY}/test_{name.replace('-', '_')}.py" for name in NAMES]
    run(tree, "ruff", "check", *modules, *tests)
    run(tree, "ruff", "format", "--check", *modules, *tests)
    run(tree, "mypy", "--follow-imports=silent", *modules)


def test_a_started_rule_is_explained(tree: Path) -> None:
    output = run(tree, "fsdp_migrate", "explain", MANUAL)
    assert output.startswith(f"{MANUAL} fsdp-modules\na call of `FSDP.fsdp_modules`\n")
    rewriting = run(tree, "fsdp_migrate", "explain", SAFE)
    assert "an old name\n" in rewriting
    assert "Rewritten code needs" not in rewriting


def test_a_started_fixture_is_rewritten_as_its_after_says(tree: Path) -> None:
    for fixture in find_fixtures([tree], SAFE):
        assert fixture.after is not None
        assert fixture.header.left == ()
        before = fixture.before.read_text()
        assert ".named_buffers(model)" in before
        assert run(tree, "fsdp_migrate", "rewrite", "-", text=before) == fixture.after.read_text()


def test_a_started_fixture_without_a_rewrite_declares_what_is_left(tree: Path) -> None:
    (fixture,) = find_fixtures([tree], MANUAL)
    assert fixture.after is None
    assert fixture.header.rules == fixture.header.left == (MANUAL,)
    assert fixture.header.fails == ()
    assert str(fixture.header.evidence[0]).endswith("FullyShardedDataParallel.fsdp_modules")
    assert f": {MANUAL} " in run(tree, "fsdp_migrate", "lint", str(fixture.before))


def test_a_method_that_torch_removed_makes_a_rule_and_a_fixture_that_say_since_when(tree: Path) -> None:
    for fixture in find_fixtures([tree], GONE):
        assert fixture.header.fails == (Fails("AttributeError", (Condition("torch", ">=", "1.13"),)),)
        assert [evidence.kind for evidence in fixture.header.evidence] == ["raises"]
    explained = run(tree, "fsdp_migrate", "explain", GONE)
    assert "\nFails since           torch 1.13\n" in explained
    assert "\nRewritten code needs  torch 2.0 or newer\n" in explained


def test_a_rule_that_is_named_after_no_method_starts_with_one_that_no_fixture_of_others_calls() -> None:
    assert checked(FREE, "started-for-something-else", "x").method == SOME_METHOD
    theirs = {rule.card.code for rule in RULES if SOME_METHOD not in rule.words}
    fixtures = [fixture for fixture in find_fixtures() if theirs.issuperset(fixture.header.rules)]
    assert not [f.name for f in fixtures if f".{SOME_METHOD}(" in f.before.read_text(encoding="utf-8")]


def test_what_to_do_next_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.new_rule.ROOT", tmp_path)
    index = tmp_path / "fsdp_migrate" / "rules" / "index.py"
    index.parent.mkdir(parents=True)
    shutil.copy(ROOT / "fsdp_migrate" / "rules" / "index.py", index)
    assert main([MANUAL, "fsdp-modules", "x"]) == 0
    output = capsys.readouterr().out
    assert "wrote fixtures/fsdp-modules/first/before.py\n" in output
    assert '-k "fsdp-modules or fsdp_modules"\n' in output
    assert f'"fsdp-modules", "{FAMILY}/fsdp_modules"'.replace("/", ".") in index.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["FSDP101", "x", "y"], "FSDP101 is taken: FSDP101 full-optim-state-dict, "),
        ([FREE, "optim-input", "y"], "optim-input is taken: FSDP106 optim-input, "),
        (["FSDP001", "x", "y"], "a code is FSDP and three digits"),
        (["fsdp599", "x", "y"], "a code is FSDP and three digits"),
        ([FREE, "Some_Name", "y"], "a name is lower-case words with hyphens"),
        ([FREE, "import", "y"], "a name is lower-case words with hyphens"),
        ([FREE, "methods", "y"], f"fsdp_migrate/{FAMILY}/methods.py is there already"),
        ([FREE, "x", 'a "y"'], "a summary is one line without double quotes"),
        ([FREE, "x", "a\ny"], "a summary is one line without double quotes"),
        ([FREE, "x", "y" * 101], "the summary has 101 characters: keep it within 100"),
        ([FREE, "x", "y", "--method", "nothing"], "the API data of torch know no FSDP.nothing"),
        ([FREE, "x", "y", "--rewrites", "nothing"], "the API data of torch know no FSDP.nothing"),
        ([FREE, "x", "y", "--rewrites", "optim_state_dict_post_hook"], "torch 2.1.0 has no FSDP.optim_state_dict"),
        ([FREE, "no-sync", "y", "--rewrites", "no_sync"], "would rewrite FSDP.no_sync to itself"),
    ],
)
def test_what_cannot_be_started_is_refused_in_one_line(
    arguments: list[str],
    message: str,
    tree: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tools.new_rule.ROOT", tree)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_the_index_with_started_rules_is_what_building_it_gives(tree: Path) -> None:
    assert run(tree, "tools.build_rule_index") == "index.py is up to date\n"


def test_nothing_is_overwritten(tree: Path) -> None:
    request = checked(FREE, "fsdp-modules-2", "x", "fsdp_modules")
    test = tree / "tests" / FAMILY / "test_fsdp_modules_2.py"
    test.write_text("mine\n")
    with pytest.raises(Refused, match=rf"tests/{FAMILY}/test_fsdp_modules_2\.py is there already"):
        scaffold(tree, request)
    test.unlink()
    assert len(scaffold(tree, request)) == 4
