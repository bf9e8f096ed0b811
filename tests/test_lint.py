from __future__ import annotations

import gc

import pytest

from fsdp_migrate.findings import Applicability
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.rules.index import ENTRIES
from fsdp_migrate.screen import Screen
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

SETTINGS = Settings(torch=TorchRange.parse(">=2.1"))
IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
CALL = "FSDP.full_optim_state_dict(model, optim)"


def codes(text: str, settings: Settings = SETTINGS) -> list[str]:
    return [f.code for f in lint_bytes(text.encode(), "x.py", settings).findings if f.severity.value != "hint"]


def test_a_finding_says_where_it_is_in_code_points() -> None:
    report = lint_bytes(f"{IMPORT}é = {CALL}\n".encode(), "pkg/x.py", SETTINGS)
    (finding,) = report.findings
    assert (finding.path, finding.line, finding.column) == ("pkg/x.py", 2, 5)
    assert (finding.end_line, finding.end_column) == (2, 5 + len("FSDP.full_optim_state_dict"))


@pytest.mark.parametrize(
    ("comment", "silent"),
    [
        ("# noqa", True),
        ("# NOQA: FSDP101", True),
        ("# noqa: E501,FSDP1", True),
        ("# noqa: E501", False),
        ("# fsdp-migrate: ignore[FSDP101]", True),
        ("# fsdp-migrate: ignore[full-optim-state-dict]", True),
        ("# fsdp-migrate: ignore", True),
        ("# fsdp-migrate: ignore[FSDP104]", False),
        ("# a remark", False),
    ],
)
@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_comment_on_any_line_of_the_statement_silences(comment: str, silent: bool, line: int) -> None:
    lines = ["osd = FSDP.full_optim_state_dict(", "    model, optim", ")"]
    lines[line] += f"  {comment}"
    report = lint_bytes((IMPORT + "\n".join(lines) + "\n").encode(), "x.py", SETTINGS)
    assert (report.findings == ()) == silent
    assert report.suppressed == int(silent)


def test_a_comment_in_the_body_of_a_block_does_not_silence_its_header() -> None:
    assert codes(f"{IMPORT}if {CALL}:\n    x = 1  # noqa\n") == ["FSDP101"]
    assert codes(f"{IMPORT}if {CALL}:  # noqa\n    x = 1\n") == []


def test_findings_come_in_order_of_place() -> None:
    text = f"{IMPORT}a = FSDP.scatter_full_optim_state_dict(osd, model)\nb = {CALL}\nc = {CALL}\n"
    assert codes(text) == ["FSDP104", "FSDP101", "FSDP101"]


def test_a_file_that_does_not_parse_is_found_only_if_it_holds_fsdp_names() -> None:
    report = lint_bytes(f"{IMPORT}x = {CALL}\ndef (:\n".encode(), "x.py", SETTINGS)
    assert [(f.code, f.line, f.column) for f in report.findings] == [("FSDP001", 3, 5)]
    assert report.failed
    assert lint_bytes(b"def (:\n", "x.py", SETTINGS).findings == ()


def test_a_file_that_cannot_be_decoded_is_an_error() -> None:
    report = lint_bytes(b"# full_optim_state_dict \xff\n", "x.py", SETTINGS)
    assert report.error is not None
    assert report.failed


def test_old_arms_of_version_checks_are_not_reported_and_new_arms_are() -> None:
    text = f"""\
import torch
from packaging import version
{IMPORT}
if version.parse(torch.__version__) < version.parse("2.1"):
    a = {CALL}
else:
    b = {CALL}
"""
    found = [(f.code, f.line) for f in lint_bytes(text.encode(), "x.py", SETTINGS._replace(hints=True)).findings]
    assert found == [("FSDP690", 5), ("FSDP101", 8)]
    assert [f.code for f in lint_bytes(text.encode(), "x.py", SETTINGS).findings] == ["FSDP101"]


def test_the_screen_passes_exactly_files_that_have_a_word() -> None:
    assert Screen(ENTRIES).passes(b"x.full_optim_state_dict()")
    assert not Screen(ENTRIES).passes(b"import torch\nmodel.state_dict()")
    assert not Screen(()).passes(b"anything")


def test_selection_decides_which_rules_run() -> None:
    text = f"{IMPORT}a = FSDP.scatter_full_optim_state_dict(osd, model)\nb = {CALL}\n"
    assert codes(text, Settings(torch=SETTINGS.torch, select=("FSDP104",))) == ["FSDP104"]
    assert codes(text, Settings(torch=SETTINGS.torch, ignore=("FSDP104",))) == ["FSDP101"]


def test_a_chain_of_many_attributes_is_analysed_link_by_link() -> None:
    # Each link was printed with all in front of it once, which takes long and is too deep for Python's stack.
    links = ".block" * 900
    head = f"{IMPORT}import torch.distributed as dist\n"
    text = f"{head}model.block = FSDP(model)\nx = model{links}\ny = dist{links}\nstate = {CALL}\n"
    assert codes(text) == ["FSDP101"]


def test_attributes_that_are_written_alike_hold_the_same() -> None:
    text = f"{IMPORT}self.parts[0].net = FSDP(m)\n{{}}.full_optim_state_dict(self.parts[0].net, optim)\n"

    def is_known(receiver: str) -> bool:
        (finding,) = lint_bytes(text.format(receiver).encode(), "x.py", SETTINGS).findings
        return "is not visible here" not in (finding.reason or "")

    assert is_known("self.parts[ 0 ].net")
    assert not is_known("self.parts[1].net")
    assert not is_known("other.parts[0].net")


def test_what_is_deleted_is_what_it_was() -> None:
    text = f"{IMPORT}self.net = FSDP(m)\nself.net.full_optim_state_dict(self.net, optim)\ndel self.net\n"
    assert [finding.reason for finding in lint_bytes(text.encode(), "x.py", SETTINGS).findings] == [None]


def test_more_code_than_fits_into_memory_is_named_and_not_analysed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsdp_migrate.source.LONGEST_TEXT", 1_000_000)
    (finding,) = lint_bytes(f"{IMPORT}{CALL}\n".encode() + b"x = 1\n" * 200_000, "x.py", SETTINGS).findings
    assert (finding.code, finding.applicability) == ("FSDP001", Applicability.MANUAL)
    assert (
        finding.message == "the file is not parsed: it has more than 1 million characters, which take too much memory"
    )
    assert finding.reason == "split or exclude it; nothing else in the file was checked"
    # What no rule has anything to look for in is clean, however long.
    assert codes("x = 1\n" * 200_000) == []


def test_nothing_is_left_for_the_garbage_collector() -> None:
    # It is off while files are looked at.
    dead = "import torch\n\nif torch.__version__ < '2.0':\n    x = 1\nelse:\n    x = 2\n"
    raw = f"{dead}{IMPORT}y = {CALL}\n".encode()
    settings = SETTINGS._replace(hints=True)
    assert [finding.code for finding in lint_bytes(raw, "x.py", settings).findings] == ["FSDP690", "FSDP101"]
    gc.collect()
    gc.disable()
    try:
        rewrite_bytes(raw, "x.py", settings)
        lint_bytes(raw, "x.py", settings)
        assert gc.collect() < 20
    finally:
        gc.enable()
