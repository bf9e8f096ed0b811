from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.lint import lint_bytes, worth_linting
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.modules import Modules
from fsdp_migrate.workspace.settings import Settings

TORCH = TorchRange.parse(">=2.1")
SETTINGS = Settings(TORCH)
IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
OLD = "x = FSDP.full_optim_state_dict(model, optim)"


def messages(text: str, settings: Settings = SETTINGS) -> list[str]:
    report = lint_bytes(text.encode(), "x.py", settings)
    assert report.error is None
    return [finding.message for finding in report.findings if finding.code == "FSDP002"]


def rewritten(text: str) -> str:
    result = rewrite_bytes(text.encode(), "x.py", SETTINGS)
    assert result.error is None
    assert [finding for finding in result.left if finding.severity is not Severity.HINT] == []
    return result.raw.decode()


def test_what_silences_a_rule_of_a_target_is_of_use_without_it() -> None:
    bare = f"{IMPORT}state = FSDP.optim_state_dict(model, optim)  # noqa: FSDP210\n"
    assert messages(bare) == messages(bare, Settings(TorchRange.parse(">=2.4"), target="dcp")) == []
    assert messages(f"{IMPORT}x = 1  # noqa: FSDP210\n") == ["`FSDP210` suppresses nothing here"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1  # noqa: FSDP101\n", "x = 1\n"),
        ("x = 1  # noqa: FSDP101", "x = 1"),
        ("x = 1\t# NOQA:FSDP101,FSDP3\r\ny = 2\r\n", "x = 1\r\ny = 2\r\n"),
        ("x = 1  # noqa: E501, FSDP101\n", "x = 1  # noqa: E501\n"),
        ("x = 1  # noqa: FSDP101 E501,W1 why\n", "x = 1  # noqa: E501, W1 why\n"),
        ("x = 1  # noqa: FSDP101 - torch 2.0 needs it\n", "x = 1  # torch 2.0 needs it\n"),
        ("x = 1  # noqa: FSDP101  # pragma: no cover\n", "x = 1  # pragma: no cover\n"),
        ("x = 1  # type: ignore  # noqa: FSDP101\n", "x = 1  # type: ignore\n"),
        ("x = 1  # type: ignore  # noqa: FSDP101  # é\n", "x = 1  # type: ignore  # é\n"),
        ("x = 1  # fsdp-migrate: ignore\n", "x = 1\n"),
        ("x = 1  # fsdp-migrate: ignore[]\n", "x = 1\n"),
        ("x = 1  # fsdp-migrate: ignore[FSDP101, no-shard]\n", "x = 1\n"),
        ("x = 1  # fsdp-migrate: ignore[FSDP101]  # fsdp-migrate: ignore[FSDP3]\n", "x = 1\n"),
        ("x = 1  # noqa: FSDP101  # noqa: FSDP101\n", "x = 1\n"),
        ("x = 1\n    # fsdp-migrate: ignore-file[FSDP1]\ny = 2\n", "x = 1\ny = 2\n"),
        ("#!/usr/bin/python\n# fsdp-migrate: ignore-file[FSDP1]\n\nx = 1\n", "#!/usr/bin/python\n\nx = 1\n"),
        ("# fsdp-migrate: ignore-file[FSDP1]", ""),
        ("f(\n    1,  # noqa: FSDP101\n    # noqa: FSDP102\n)\n", "f(\n    1,\n)\n"),
    ],
)
def test_what_silences_nothing_is_taken_away_and_nothing_else(before: str, after: str) -> None:
    assert worth_linting(before.encode(), "x.py", SETTINGS)
    assert rewritten(before) == after
    assert messages(after) == []


@pytest.mark.parametrize(
    "text",
    [
        f"{OLD}  # noqa: FSDP101\n",
        f"{OLD}  # noqa: FSDP1, E501\n",
        f"{OLD}  # noqa: FSDP101 # fsdp-migrate: ignore\n",
        f"{OLD}  # fsdp-migrate: ignore[full-optim-state-dict]\n",
        f"# fsdp-migrate: ignore-file[FSDP101]\n{OLD}\n",
        "x = 1  # noqa\n",
        "x = 1  # noqa: E501\n",
        "x = 1  # noqa: FSDP101, FSDP002\n",
        "x = 1  # fsdp-migrate: ignore[FSDP3]  # noqa: FSDP002\n",
        "# made by a generator\n# fsdp-migrate: ignore-file\nx = 1  # noqa: FSDP101\n",
        "# fsdp-migrate: ignore-file[unused-suppression]\nx = 1  # noqa: FSDP101\n",
        "x = '# noqa: FSDP101'\n",
        "x = 1  # fsdp-migrate: it was rewritten\n",
    ],
)
def test_what_is_needed_or_for_others_stays(text: str) -> None:
    text = IMPORT + text
    assert messages(text) == []
    assert rewritten(text) == text


def test_of_several_codes_the_idle_ones_are_named() -> None:
    text = f"{IMPORT}{OLD}  # noqa: FSDP101, FSDP102, FSDP3\n"
    assert messages(text) == ["`FSDP102`, `FSDP3` suppresses nothing here"]
    assert rewritten(text) == f"{IMPORT}{OLD}  # noqa: FSDP101\n"


@pytest.mark.parametrize(
    ("comment", "code", "reason"),
    [
        ("noqa: FSDP999", "FSDP999", "no rule is called FSDP999"),
        ("noqa: E501, FSDP999", "FSDP999", "no rule is called FSDP999"),
        ("fsdp-migrate: ignore[FSDP10x]", "FSDP10x", "no rule is called FSDP10x (did you mean FSDP101?)"),
        (
            "fsdp-migrate: ignore[no-shrad]",
            "no-shrad",
            "no rule is called no-shrad (did you mean no-shard?)",
        ),
    ],
)
def test_a_code_that_no_rule_has_stays_with_what_it_may_be_meant_for(comment: str, code: str, reason: str) -> None:
    text = f"{IMPORT}{OLD}  # {comment}\n"
    result = rewrite_bytes(text.encode(), "x.py", SETTINGS)
    assert result.raw.decode() == text
    old, misspelt = result.left
    assert (old.code, old.reason) == ("FSDP101", f"a comment here may be meant to silence this finding, but {reason}")
    assert (misspelt.code, misspelt.message) == ("FSDP002", f"`{code}` suppresses nothing here")
    assert (misspelt.applicability, misspelt.reason) == (Applicability.MANUAL, reason)


def test_a_code_that_no_rule_has_stays_when_those_beside_it_go() -> None:
    text = "x = 1  # noqa: FSDP101, FSDP999, E501\n"
    result = rewrite_bytes(text.encode(), "x.py", SETTINGS)
    assert result.raw == b"x = 1  # noqa: FSDP999, E501\n"
    assert [finding.message for finding in result.left] == ["`FSDP999` suppresses nothing here"]


def test_a_code_that_no_rule_has_holds_the_whole_file_if_it_is_for_all_of_it() -> None:
    text = f"# fsdp-migrate: ignore-file[FSDP10x]\n{IMPORT}{OLD}\n"
    assert rewrite_bytes(text.encode(), "x.py", SETTINGS).raw.decode() == text
    without = Settings(TORCH, ignore=("FSDP002",))
    assert rewrite_bytes(text.encode(), "x.py", without).raw.decode() == text


def test_what_silences_nothing_is_named() -> None:
    assert messages("# fsdp-migrate: ignore-file[no-shard]\n") == ["`no-shard` suppresses nothing in this file"]
    assert messages("x = 1  # fsdp-migrate: ignore\n") == ["`# fsdp-migrate: ignore` suppresses nothing here"]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(TORCH, select=("FSDP002",)),
        Settings(TORCH, select=("FSDP3", "FSDP002")),
        Settings(TORCH, ignore=("FSDP101",)),
        Settings(TORCH, ignored_here=("FSDP1",)),
    ],
)
def test_what_a_rule_that_is_not_selected_would_need_is_not_idle(settings: Settings) -> None:
    assert messages(f"{IMPORT}{OLD}  # noqa: FSDP101\n", settings) == []
    assert len(messages(f"{IMPORT}x = 1  # noqa: FSDP101\n", settings)) == 1


def test_nothing_is_said_where_the_rule_is_not_selected() -> None:
    for settings in (Settings(TORCH, select=("FSDP1",)), Settings(TORCH, ignore=("unused", "FSDP002"))):
        assert messages("x = 1  # noqa: FSDP101\n", settings) == []
        assert not worth_linting(b"x = 1  # noqa: FSDP101\n", "x.py", settings)


@pytest.mark.parametrize(
    "line", ["from . import FSDP", "from mylib import FSDP", "import mylib.dist", "import a, mylib"]
)
def test_without_the_modules_that_it_imports_nothing_is_said_of_a_text(line: str) -> None:
    text = f"{line}\nx = 1  # noqa: FSDP101\n"
    assert messages(text) == []
    view = Modules(()).view("x.py", TORCH)
    codes = [finding.code for finding in lint_bytes(text.encode(), "x.py", SETTINGS, view).findings]
    assert [code for code in codes if code != "FSDP003"] == ["FSDP002"]
    assert len(messages(f"import os, torch\n{text.partition(chr(10))[2]}")) == 1


def test_a_hint_that_is_silenced_is_reason_enough() -> None:
    text = f"{IMPORT}with FSDP.state_dict_type(model, kind):  # noqa: FSDP210\n    pass\n"
    assert messages(text) == []


def test_a_suppression_that_a_rewrite_makes_idle_goes_with_it() -> None:
    text = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
optim.load_state_dict(FSDP.optim_state_dict_to_load(state, model, optim))  # noqa: FSDP101
"""
    after = rewritten(text)
    assert "noqa" not in after
    assert "model=model" in after


def test_comments_on_the_lines_of_other_fixes_go_too() -> None:
    text = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: FSDP303


def save(model, optim):
    x = FSDP.full_optim_state_dict(model, optim)  # noqa: FSDP301
    # noqa: FSDP104
    y = FSDP.full_optim_state_dict(  # noqa: FSDP102
        model,  # noqa: FSDP104 - the wrapped one
        optim,
    )  # fsdp-migrate: ignore[FSDP105] because
    return x, y
"""
    plain = text
    for comment in ("  # noqa: FSDP303", "  # noqa: FSDP301", "    # noqa: FSDP104\n", "  # noqa: FSDP102"):
        plain = plain.replace(comment, "")
    plain = plain.replace("noqa: FSDP104 - ", "").replace("fsdp-migrate: ignore[FSDP105] ", "")
    assert plain.count("#") == 2
    assert rewritten(text) == rewritten(plain) != plain


def test_a_needless_comment_does_not_keep_an_import_that_a_rewrite_leaves_unused() -> None:
    text = "import torch\nfrom torch.cuda import amp{}\n\nwith amp.autocast():\n    torch.distributed.barrier()\n"
    after = rewritten(text.format("  # noqa: FSDP801"))
    assert after == rewritten(text.format(""))
    assert "torch.cuda" not in after


def test_the_place_is_the_suppression_in_code_points() -> None:
    (finding,) = lint_bytes("x = 'é'  # ü # noqa: FSDP101 why\n".encode(), "x.py", SETTINGS).findings
    assert (finding.line, finding.column, finding.end_column) == (1, 14, 29)
