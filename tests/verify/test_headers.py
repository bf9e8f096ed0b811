from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.verify import Fixture, FixtureError, find_fixtures, fixtures_root, proofs, read_fixture
from fsdp_migrate.verify.fixtures import Condition, Differs, Evidence, Fails, parse_header

PATH = Path("before.py")
HEADER = """\
# fixture: FSDP104, FSDP101
# expect: differs osd when use_orig_params=True and rank!=0
# expect: before-fails TypeError [torch>=2.1,<2.4]
# expect: before-fails ValueError [torch<2.2] when use_orig_params=True
# evidence: warning "scatter_full_optim_state_dict"
# evidence: call torch.distributed.fsdp.FullyShardedDataParallel.state_dict_type without optim_state_dict_config
# needs: world>=4, torch>=2.2
# left: FSDP110
# fix: unsafe
# target: dcp
import torch
"""


def test_every_header_line_is_understood() -> None:
    header = parse_header(HEADER, PATH)
    assert header.rules == ("FSDP104", "FSDP101")
    assert header.differs == (
        Differs("osd", (Condition("use_orig_params", "==", "True"), Condition("rank", "!=", "0"))),
    )
    assert header.fails == (
        Fails("TypeError", (Condition("torch", ">=", "2.1"), Condition("torch", "<", "2.4"))),
        Fails("ValueError", (Condition("torch", "<", "2.2"), Condition("use_orig_params", "==", "True"))),
    )
    assert header.evidence == (
        Evidence("warning", "scatter_full_optim_state_dict"),
        Evidence(
            "call",
            "torch.distributed.fsdp.FullyShardedDataParallel.state_dict_type",
            "optim_state_dict_config",
            given=False,
        ),
    )
    assert header.needs == (Condition("world", ">=", "4"), Condition("torch", ">=", "2.2"))
    assert (header.left, header.unsafe, header.world, header.target) == (("FSDP110",), True, 4, "dcp")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("# expects: same", "unknown header line 'expects:'; known are fixture, expect, evidence, needs, left, fix"),
        ("# fixture: FSDP1", "not a rule code: 'FSDP1'; write FSDP101, several with commas"),
        ("# expect: maybe", "not an expectation: 'maybe'; write same, before-fails TYPE"),
        ("# expect: differs x when moon=full", "not a condition: 'moon=full'; write one of use_orig_params"),
        ("# expect: before-fails TypeError [torch>=two]", "not a torch version: 'torch>=two'"),
        ("# expect: before-fails TypeError when rank=0", "not a condition: 'rank=0'"),
        ("# evidence: warning unquoted", "not evidence: 'warning unquoted'; write warning \"text\""),
        ("# needs: world>=many", "not a number of ranks: 'world>=many'"),
        ("# needs: device>cuda", "device can only be compared with = and !=: 'device>cuda'"),
        ("# needs: rank=0", "not a condition: 'rank=0'"),
        ("# target: --dcp", "not a target: '--dcp'; write a value of --target, such as dcp"),
        ("# fix: maybe", "not a kind of fix: 'maybe'; write safe or unsafe"),
    ],
)
def test_a_bad_line_is_named_with_file_and_line(line: str, problem: str) -> None:
    with pytest.raises(FixtureError) as caught:
        parse_header(f"# fixture: FSDP101\n{line}\n", PATH)
    assert str(caught.value).startswith(f"before.py:2: {problem}")


@pytest.mark.parametrize("key", ["fixture", "expect", "evidence"])
def test_a_bundled_fixture_must_have_what_decides_its_verdict(key: str) -> None:
    lines = [line for line in HEADER.splitlines() if not line.startswith(f"# {key}:")]
    with pytest.raises(FixtureError, match=f"before.py:1: the header has no '# {key}:'"):
        parse_header("\n".join(lines), PATH)


def test_a_pair_of_ones_own_needs_no_header_and_is_held_to_a_deprecation_warning() -> None:
    header = parse_header("# Copyright: nobody\nimport torch\n", PATH, strict=False)
    assert (header.rules, header.differs, header.evidence) == ((), (), (Evidence("deprecation"),))


@pytest.mark.parametrize("above", ["# coding: utf-8\n# usage: torchrun train.py\n\n", "#!/usr/bin/env python\n\n\n"])
def test_comments_and_empty_lines_may_stand_above_the_header_of_ones_own_program(above: str) -> None:
    header = parse_header(above + "# expect: differs osd\nimport torch\n# usage: none\n", PATH, strict=False)
    assert header.differs == (Differs("osd"),)


@pytest.mark.parametrize("key", ["expct", "expects", "evidences", "need"])
def test_a_word_that_is_nearly_one_of_a_header_is_an_error_for_everybody(key: str) -> None:
    with pytest.raises(FixtureError, match=f"before.py:1: unknown header line '{key}:'"):
        parse_header(f"# {key}: same\n", PATH, strict=False)


@pytest.mark.parametrize("line", ["# expect: same", "# expect: differs osd", "# evidence: raises"])
def test_a_header_below_code_would_not_be_read_and_is_an_error(line: str) -> None:
    with pytest.raises(FixtureError, match=r"before.py:2: '# [a-z]+:' is read only at the top"):
        parse_header(f'"""Train."""\n{line}\n', PATH, strict=False)
    assert parse_header("import torch\n# expect: a lot\n", PATH, strict=False).differs == ()


@pytest.mark.parametrize(
    ("condition", "facts", "holds"),
    [
        (Condition("world", ">=", "4"), {"world": 2}, False),
        (Condition("world", ">=", "4"), {"world": 4}, True),
        (Condition("rank", "!=", "0"), {"rank": 0}, False),
        (Condition("use_orig_params", "==", "True"), {"use_orig_params": True}, True),
        (Condition("use_orig_params", "==", "True"), {"use_orig_params": False}, False),
        (Condition("strategy", "!=", "NO_SHARD"), {"strategy": "FULL_SHARD"}, True),
        (Condition("torch", ">=", "2.4"), {"torch": "2.13.0+cpu"}, True),
        (Condition("torch", "<", "2.4"), {"torch": "2.4.1+cu121"}, False),
        (Condition("torch", ">=", "2.14"), {"torch": "2.15.0.dev20260101"}, True),
        (Condition("rank", "==", "1"), {}, True),
    ],
)
def test_conditions_compare_numbers_names_and_releases(
    condition: Condition, facts: dict[str, object], holds: bool
) -> None:
    assert condition.holds(facts) is holds


def case(folder: Path, name: str, header: str = HEADER) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "before.py").write_text(header)
    (folder / name / "after.py").write_text("")
    return folder / name


def test_cases_are_found_below_a_folder_by_name_pattern_and_code(tmp_path: Path) -> None:
    case(tmp_path, "rule/one")
    case(tmp_path, "rule/two", HEADER.replace("FSDP104, FSDP101", "FSDP301"))

    def names(keyword: str | None) -> list[str]:
        return [fixture.name for fixture in find_fixtures([tmp_path], keyword)]

    assert names(None) == ["rule/one", "rule/two"]
    assert names("tw") == ["rule/two"]
    assert names("*/one") == ["rule/one"]
    assert names("FSDP301") == ["rule/two"]
    assert names("three") == []


def test_one_case_is_its_folder_or_its_file(tmp_path: Path) -> None:
    folder = case(tmp_path, "mine/case")
    by_folder, by_file = find_fixtures([folder]), find_fixtures([folder / "before.py"])
    assert by_folder == by_file
    assert by_folder[0].after == (folder / "after.py").resolve()


def test_a_folder_without_a_case_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FixtureError, match=r"no before.py here; a case is a folder with before.py and after.py"):
        find_fixtures([tmp_path])


def test_a_pair_without_its_after_is_an_error_unless_it_is_about_a_rule(tmp_path: Path) -> None:
    folder = case(tmp_path, "mine/case")
    (folder / "after.py").unlink()
    assert find_fixtures([folder])[0].after is None
    (folder / "before.py").write_text("import torch\n")
    with pytest.raises(
        FixtureError, match=r"case/before.py: no after.py beside it; write one, or give it as --rewrite"
    ):
        find_fixtures([folder])


def test_a_program_of_another_name_is_called_by_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    assert read_fixture(tmp_path / "train.py").name == f"{tmp_path.name}/train.py"


def test_a_handed_pair_keeps_its_own_after(tmp_path: Path) -> None:
    folder = case(tmp_path, "mine/case")
    rewritten = tmp_path / "rewritten.py"
    fixture: Fixture = read_fixture(folder / "before.py", rewritten, name="before.py, rewritten")
    assert (fixture.name, fixture.after) == ("before.py, rewritten", rewritten)


def test_rules_are_proven_by_the_bundled_fixtures() -> None:
    names = proofs("FSDP101")
    assert "full-optim-state-dict/plain-statement" in names
    assert all((fixtures_root() / name / "before.py").is_file() for name in names)
    assert proofs("FSDP999") == []


def test_evidence_may_be_due_on_some_releases_only() -> None:
    lines = ('warning "old [x]" [torch>=2.4,<3]', "call a.b without c [torch>=2.4,<3]", "raises")
    header = parse_header("".join(f"# evidence: {line}\n" for line in lines), Path("b.py"), strict=False)
    when = (Condition("torch", ">=", "2.4"), Condition("torch", "<", "3"))
    assert header.evidence == (
        Evidence("warning", "old [x]", when=when),
        Evidence("call", "a.b", "c", False, when=when),
        Evidence("raises"),
    )
    with pytest.raises(FixtureError, match="not a condition: 'torchnumpy"):
        parse_header("# evidence: raises [numpy>=2]\n", Path("b.py"))
