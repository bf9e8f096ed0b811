"""The page about a conclusion: valid, complete without anything from elsewhere, and safe whatever a program says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import html5lib
import pytest

from fsdp_migrate.prove import compare, page, verdicts
from fsdp_migrate.prove.compare import Phase
from tests.prove.made import Recorder, Script, record
from tests.prove.test_report import conclusion

HOSTILE = "UserWarning: </pre><script>alert(1)</script> & \u202e \u2028"


def read(text: str) -> str:
    """The page, checked by a strict parser."""
    html5lib.HTMLParser(strict=True).parse(text)
    assert not re.search(r"(?:src|href)=|https?:|url\(|@import", text)
    return text


def test_the_page_has_the_verdict_the_curves_and_what_was_compared(tmp_path: Path) -> None:
    text = read(page.as_page(conclusion(tmp_path, Script())))
    assert "<h1>SAME</h1>" in text
    assert (
        text.count("<figure>") == text.count('<polyline class="before"') == text.count('<polyline class="after"') == 10
    )
    assert "loss, rank 1: " in text
    assert "Bound: bitwise" in text


def test_a_difference_and_what_only_one_version_says_are_on_the_page(tmp_path: Path) -> None:
    before = record(tmp_path / "before")
    after = Recorder(tmp_path / "after")
    after.add(0, "warning", category="UserWarning", text=HOSTILE.partition(": ")[2])
    found = verdicts.judge(compare.compare([Phase("training", before, before, after.end())]))
    text = read(page.as_page(found))
    assert "<h1>DIFFERS</h1>" in text
    assert "start.pt" in text
    assert "<script>" not in text
    assert "&lt;/pre&gt;&lt;script&gt;" in text
    assert "all_gather_into_tensor</th><td>6</td><td>0</td>" in text


def test_what_is_no_number_is_left_out_and_counted() -> None:
    sides = {"before": [[1, 1.0], [2, "nan"], [3, 3.0]], "after": [[1, "inf"]], "control": []}
    (drawing,) = page._drawings([{"measure": "loss", "rank": 0, **sides}])
    assert [(line.side, line.points, line.missing) for line in drawing.lines] == [
        ("before", "0.0,220.0 640.0,0.0", 1),
        ("after", "", 1),
    ]
    assert (
        list(page._drawings([{"measure": "loss", "rank": 0, "before": [[1, "nan"]], "after": [], "control": []}])) == []
    )


def test_without_jinja2_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(page.PageError, match="pip install jinja2"):
        page.as_page(conclusion(tmp_path, Script()))
