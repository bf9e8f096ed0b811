from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fsdp_migrate.report import Plan, gitlab
from tests.report.plans import BROKEN, HEAD, HINT, HOSTILE, HOSTILE_PATH, SAFE, linted

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "codeclimate.json").read_text(encoding="utf-8"))
# Beyond GitLab's schema: what its documentation allows, and what it needs to show an issue at a line.
SEVERITIES = {"info", "minor", "major", "critical", "blocker"}


@pytest.fixture(autouse=True)
def _not_in_gitlab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI_PROJECT_DIR", raising=False)


def issues(plan: Plan) -> list[dict[str, Any]]:
    """The issues of a report, each of which GitLab accepts."""
    found = json.loads(gitlab.report(plan))
    for issue in found:
        jsonschema.validate(issue, SCHEMA)
        assert issue["severity"] in SEVERITIES
        assert issue["location"]["lines"]["begin"] >= 1
        assert not Path(issue["location"]["path"]).is_absolute()
    return list(found)


def test_a_finding_is_an_issue() -> None:
    (issue,) = issues(linted({"src/a.py": HEAD + SAFE}))
    assert issue["location"] == {"path": "src/a.py", "lines": {"begin": 2, "end": 2}}
    assert (issue["check_name"], issue["severity"]) == ("FSDP101", "minor")
    assert issue["description"].startswith("FSDP101: `full_optim_state_dict` is deprecated")


def test_the_severity_follows_the_finding() -> None:
    plan = linted({"a.py": HEAD + BROKEN, "b.py": HEAD + HINT}, hints=True)
    assert [issue["severity"] for issue in issues(plan)] == ["critical", "info"]


def test_fingerprints_stay_when_code_moves_and_differ_between_equal_statements_and_files() -> None:
    before = issues(linted({"a.py": HEAD + SAFE}))[0]["fingerprint"]
    after = [issue["fingerprint"] for issue in issues(linted({"a.py": HEAD + "\n" + SAFE + SAFE, "b.py": HEAD + SAFE}))]
    assert after[0] == before
    assert len(set(after)) == 3


def test_a_clean_run_is_an_empty_list() -> None:
    assert issues(linted({"a.py": HEAD})) == []


def test_hostile_names_and_texts_stay_inside_their_strings() -> None:
    (issue,) = issues(linted({HOSTILE_PATH: HOSTILE}))
    assert issue["location"]["path"].startswith("a\ufffd::error::b")


def test_paths_start_from_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
    assert issues(linted({"a.py": HEAD + SAFE}))[0]["location"]["path"] == "sub/a.py"
