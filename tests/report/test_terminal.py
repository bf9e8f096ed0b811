from __future__ import annotations

import io

import pytest
from rich.console import Console

from fsdp_migrate.report import Plan, terminal
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
from tests.stub_engine import lint_bytes, rewrite_bytes

SETTINGS = Settings(TorchRange.parse(">=2.1"), hints=True)


def printed(raw: bytes, width: int = 80, path: str = "a.py") -> list[str]:
    report = lint_bytes(raw, path, SETTINGS)
    plan = Plan(torch=">=2.1", findings=report.findings, files_checked=1, sources={path: raw})
    stream = io.StringIO()
    terminal.print_findings(Console(file=stream, width=width, soft_wrap=True, highlight=False, markup=False), plan)
    return stream.getvalue().splitlines()


def test_a_finding_is_its_place_its_line_with_carets_and_what_can_be_done() -> None:
    assert printed(b"x = 1\n    y = MANUAL  # see\n") == [
        "a.py:2:9: FSDP104 `MANUAL` is old",
        "  |",
        "2 |     y = MANUAL  # see",
        "  |         ^^^^^^",
        "  = deprecated, manual: no optimizer in `load`",
        "",
    ]


@pytest.mark.parametrize(
    ("line", "text", "carets"),
    [
        ("\tif x: SAFE", "    if x: SAFE", "          ^^^^"),
        ("'\u4f60\u597d', SAFE", "'\u4f60\u597d', SAFE", "        ^^^^"),
        ("'caf\u00e9', SAFE\r", "'caf\u00e9', SAFE", "        ^^^^"),
        ("'\x1b[31m', SAFE", "'\ufffd[31m', SAFE", "         ^^^^"),
    ],
)
def test_carets_stand_under_the_code_whatever_its_width(line: str, text: str, carets: str) -> None:
    _, _, source, marks, _, _ = printed(f"{line}\n".encode())
    assert (source, marks) == (f"1 | {text}", f"  | {carets}")


def test_a_long_line_is_cut_around_the_finding() -> None:
    line = "f(" + ", ".join(f"argument_{number}" for number in range(20)) + ", SAFE, " + "z" * 90 + ")"
    _, _, source, marks, _, _ = printed(f"{line}\n".encode(), width=60)
    assert len(source) == 60
    assert len(marks) <= 60
    start = marks.index("^")
    assert source[start : start + 4] == "SAFE"
    assert marks[start:] == "^^^^"
    assert source.startswith("1 | <")
    assert source.endswith(">")


def test_a_finding_of_several_lines_is_marked_to_the_end_of_the_first() -> None:
    (finding,) = lint_bytes(b"x = SAFE(\n  1)  \n", "a.py", SETTINGS).findings
    finding = finding._replace(end_line=2, end_column=4)
    stream = io.StringIO()
    plan = Plan(torch=">=2.1", findings=(finding,), sources={"a.py": b"x = SAFE(\n  1)\n"})
    terminal.print_findings(Console(file=stream, width=80, soft_wrap=True), plan)
    assert stream.getvalue().splitlines()[2:4] == ["1 | x = SAFE(", "  |     ^^^^^"]


def test_markup_in_code_is_printed_as_it_is() -> None:
    assert printed(b"x = '[red]' + SAFE\n")[2] == "1 | x = '[red]' + SAFE"


def test_a_rewrite_shows_what_was_fixed_and_frames_what_is_left() -> None:
    raw = b"x = SAFE\ny = MANUAL\n"
    result = rewrite_bytes(raw, "a.py", SETTINGS)
    plan = Plan(torch=">=2.1", findings=result.left, fixed=result.fixed, sources={"a.py": result.raw})
    stream = io.StringIO()
    console = Console(file=stream, width=80, soft_wrap=True)
    terminal.print_rewrite(console, plan, quiet=False)
    assert stream.getvalue().splitlines() == [
        "a.py:1:5: FSDP101 `SAFE` is old [fixed]",
        "",
        "a.py:2:5: FSDP104 `MANUAL` is old",
        "  |",
        "2 | y = MANUAL",
        "  |     ^^^^^^",
        "  = deprecated, manual: no optimizer in `load`",
        "",
    ]


def test_a_diff_is_coloured_line_by_line() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=80, soft_wrap=True, force_terminal=True, color_system="standard")
    terminal.print_diff(console, b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\r\n+new\n same\n")
    assert stream.getvalue().splitlines()[2:] == [
        "\x1b[36m@@ -1 +1 @@\x1b[0m",
        "\x1b[31m-old\x1b[0m",
        "\x1b[32m+new\x1b[0m",
        " same",
    ]


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True)
    terminal.print_diff(console, b"-old\n+new\n")
    assert "\x1b[31m" not in stream.getvalue()
    assert "\x1b[32m" not in stream.getvalue()
