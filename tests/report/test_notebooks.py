"""Findings in notebooks, for programs that open the file and know nothing of cells."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsdp_migrate.report import github, gitlab, junit, sarif
from fsdp_migrate.report.regions import Regions
from tests.report.plans import HEAD, HINT, SAFE, linted

CELLS = [
    {"cell_type": "markdown", "metadata": {}, "source": ["# FSDP\n"]},
    {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": 1, "source": ["%time\n", HEAD.strip()]},
    {
        "cell_type": "code",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": ["s = 'caf\u00e9 \"'; " + SAFE, "print(1)"],
    },
]


def notebook(cells: Any, **options: Any) -> str:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, **options)


LISTS = notebook(CELLS, indent=1, ensure_ascii=False)
STRINGS = notebook([cell | {"source": "".join(cell["source"])} for cell in CELLS], indent=1)
ONE_LINE = notebook(CELLS)


def text_at(text: str, region: dict[str, int]) -> str:
    lines = text.split("\n")
    assert region["startLine"] == region["endLine"]
    return lines[region["startLine"] - 1][region["startColumn"] - 1 : region["endColumn"] - 1]


def applied(text: str, fix: dict[str, Any]) -> str:
    (replacement,) = fix["artifactChanges"][0]["replacements"]
    region = replacement["deletedRegion"]
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    start = starts[region["startLine"] - 1] + region["startColumn"] - 1
    end = starts[region["endLine"] - 1] + region["endColumn"] - 1
    return text[:start] + replacement["insertedContent"]["text"] + text[end:]


@pytest.mark.parametrize("text", [LISTS, STRINGS, ONE_LINE], ids=["lists", "strings", "one-line"])
def test_sarif_names_places_and_fixes_in_the_file_itself(text: str) -> None:
    plan = linted({"a.ipynb": text})
    (result,) = json.loads(sarif.report(plan))["runs"][0]["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert text_at(text, region) == "FSDP.full_optim_state_dict"
    (fix,) = result["fixes"]
    source = plan.source("a.ipynb")
    assert source is not None
    new = (plan.texts_of(plan.findings[0]) or {})["a.ipynb"].raw
    assert applied(text, fix).encode() == new
    cells = json.loads(new)["cells"]
    assert "FSDP.optim_state_dict(model, optim)" in "".join(cells[2]["source"])
    assert "StateDictType" in "".join(cells[1]["source"])


def test_the_lines_of_github_and_gitlab_are_those_of_the_file() -> None:
    plan = linted({"a.ipynb": LISTS})
    line = next(number for number, text in enumerate(LISTS.split("\n"), 1) if "full_optim_state_dict" in text)
    assert f",line={line},endLine={line}," in github.report(plan)
    assert "::a.ipynb:cell 3:1:" in github.report(plan)
    assert json.loads(gitlab.report(plan))[0]["location"]["lines"] == {"begin": line, "end": line}
    assert " at cell 3:1:" in junit.report(plan)


def test_a_finding_over_several_lines_of_a_cell_spans_several_lines_of_the_file() -> None:
    cells = [{"cell_type": "code", "source": [HEAD, "x = FSDP.\\\n", "  full_optim_state_dict(model, optim)"]}]
    text = notebook(cells, indent=1)
    plan = linted({"a.ipynb": text})
    region = Regions(plan, "a.ipynb").of(plan.findings[0])
    assert region.end_line == region.line + 1
    assert text.split("\n")[region.line - 1][region.column - 1 :].startswith("FSDP.")
    assert text.split("\n")[region.end_line - 1][: region.end_column - 1].endswith("full_optim_state_dict")


def test_a_notebook_that_cannot_be_read_is_a_failure_in_every_format() -> None:
    plan = linted({"a.ipynb": '{"FSDP": FullyShardedDataParallel'})
    assert plan.failures
    assert "a.ipynb" in sarif.report(plan)
    assert github.report(plan).startswith("::error title=fsdp-migrate,file=a.ipynb::")


def test_keys_of_a_notebook_stay_when_cells_are_added() -> None:
    fingerprint = json.loads(gitlab.report(linted({"a.ipynb": LISTS})))[0]["fingerprint"]
    more = notebook([CELLS[0], CELLS[0], CELLS[1], {"cell_type": "code", "source": "y = 1"}, CELLS[2]])
    assert json.loads(gitlab.report(linted({"a.ipynb": more})))[0]["fingerprint"] == fingerprint


def test_hints_in_notebooks_are_notes() -> None:
    text = notebook([{"cell_type": "code", "source": [HEAD, HINT]}])
    assert github.report(linted({"a.ipynb": text}, hints=True)).startswith("::notice title=FSDP210 ")
