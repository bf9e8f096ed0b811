from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import jsonschema
import pytest

from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.fingerprints import numbered
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.report import Plan, sarif
from fsdp_migrate.rules import RULES
from fsdp_migrate.rules.card import RuleCard
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import Statement, TorchRange
from fsdp_migrate.workspace.filesystem import Failure
from fsdp_migrate.workspace.settings import Project, Settings
from tests.looks import rewrite
from tests.report.plans import BROKEN, HEAD, HINT, HOSTILE, HOSTILE_PATH, MANUAL, SAFE, linted

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)


def log(plan: Plan) -> dict[str, Any]:
    """The only run of a log that the official schema accepts."""
    document = json.loads(sarif.report(plan))
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []
    (only,) = document["runs"]
    return dict(only)


def applied(text: str, fix: dict[str, Any]) -> str:
    """What a consumer of SARIF makes of a text with a fix: it knows lines, columns in code points, and nothing else."""
    lines = Source(text.encode()).text_lines
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    (change,) = fix["artifactChanges"]
    pieces, done = [], 0
    for replacement in change["replacements"]:
        region = replacement["deletedRegion"]
        start = starts[region["startLine"] - 1] + region["startColumn"] - 1
        pieces += [text[done:start], replacement["insertedContent"]["text"]]
        done = starts[region["endLine"] - 1] + region["endColumn"] - 1
    return "".join([*pieces, text[done:]])


def test_a_run_with_everything_is_valid_and_says_where_what_and_how_bad() -> None:
    texts = {"src/a b.py": HEAD + "é = 1; " + SAFE, "m.py": HEAD + MANUAL, "h.py": HEAD + HINT, "bad.py": HEAD + BROKEN}
    run = log(linted(texts, hints=True))
    results = {result["ruleId"]: result for result in run["results"] if "h.py" not in str(result["locations"])}
    one = results["FSDP101"]
    assert one["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "src/a%20b.py", "uriBaseId": "%SRCROOT%", "index": 0},
        "region": {"startLine": 2, "startColumn": 16, "endLine": 2, "endColumn": 42},
    }
    assert one["message"]["text"].startswith("`full_optim_state_dict` is deprecated since torch 2.0")
    assert one["message"]["text"].endswith(" [deprecated, fixable]")
    levels = {result["ruleId"]: result["level"] for result in run["results"]}
    assert (levels["FSDP001"], levels["FSDP101"], levels["FSDP210"]) == ("error", "warning", "note")
    rules = run["tool"]["driver"]["rules"]
    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == [r["ruleId"] for r in run["results"]]
    assert (run["columnKind"], run["newlineSequences"]) == ("unicodeCodePoints", ["\r\n", "\n", "\r"])
    assert run["artifacts"][0]["location"] == {"uri": "src/a%20b.py", "uriBaseId": "%SRCROOT%"}


def test_a_run_without_findings_is_valid() -> None:
    run = log(linted({"a.py": HEAD}))
    assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])
    assert run["invocations"][0]["executionSuccessful"] is True


def test_a_rule_brings_its_card() -> None:
    (rule,) = log(linted({"a.py": HEAD + SAFE}))["tool"]["driver"]["rules"]
    assert (rule["id"], rule["name"]) == ("FSDP101", "full-optim-state-dict")
    assert rule["shortDescription"]["text"] == "`FSDP.full_optim_state_dict`, deprecated since torch 2.0"
    assert rule["help"]["text"].startswith("FSDP101 full-optim-state-dict\n")
    assert "```python\n" in rule["help"]["markdown"]
    assert "- Severity: deprecated\n" in rule["help"]["markdown"]
    assert rule["helpUri"].startswith("https://")
    assert rule["defaultConfiguration"] == {"level": "warning"}
    assert rule["properties"] == {"tags": ["pytorch", "fsdp"], "problem.severity": "warning"}


@pytest.mark.parametrize("card", [rule.card for rule in RULES], ids=lambda card: card.code)
def test_descriptions_are_as_short_as_code_scanning_wants_them(card: RuleCard) -> None:
    rule = sarif.rule(card, Severity.BREAKS)
    for name in ("shortDescription", "fullDescription"):
        assert 0 < len(rule[name]["text"]) <= 1024
    assert len(rule["name"]) <= 255


def test_fingerprints_are_the_keys_of_baselines_and_tell_equal_statements_apart() -> None:
    text = HEAD + SAFE + SAFE
    plan = linted({"a.py": text})
    prints = [result["partialFingerprints"]["findingContent/v1"] for result in log(plan)["results"]]
    keys = [key for _, key, _ in numbered(plan.findings, Source(text.encode()))]
    assert prints == [f"{keys[0]}:1", f"{keys[1]}:2"]
    moved = log(linted({"a.py": HEAD + "\n\n# later\n" + SAFE}))["results"]
    assert moved[0]["partialFingerprints"]["findingContent/v1"] == prints[0]


def test_what_could_not_be_checked_is_told_with_its_place() -> None:
    project = Project(".", TorchRange.parse(">=2.1"), "x", note="a note", warnings=("a warning",))
    plan = Plan(torch=">=2.1", failures=(Failure("x/a b.py", "not valid utf-8 {0}"),), projects=(project,))
    (invocation,) = log(plan)["invocations"]
    assert invocation["executionSuccessful"] is False
    (failure,) = invocation["toolExecutionNotifications"]
    assert (failure["level"], failure["message"]["text"]) == ("error", "not valid utf-8 {{0}}")
    assert failure["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "x/a%20b.py"
    notes = [(note["level"], note["message"]["text"]) for note in invocation["toolConfigurationNotifications"]]
    assert notes == [("warning", "a warning"), ("note", "a note")]


def test_a_file_that_does_not_parse_makes_the_execution_unsuccessful() -> None:
    assert log(linted({"a.py": HEAD + BROKEN}))["invocations"][0]["executionSuccessful"] is False


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("src/../a.py", "a.py"),
        ("dir/caf\u00e9 #1?.py", "dir/caf%C3%A9%20%231%3F.py"),
        ("a:b%20.py", "a%3Ab%2520.py"),
        ("bytes\udcff\x01.py", "bytes%FF%01.py"),
    ],
)
def test_uris_give_the_bytes_of_the_path(path: str, uri: str) -> None:
    (result,) = log(linted({path: HEAD + SAFE}))["results"]
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert (location["uri"], location["uriBaseId"]) == (uri, "%SRCROOT%")
    assert unquote_to_bytes(uri) == os.fsencode(os.path.normpath(path))


def test_a_file_elsewhere_has_an_absolute_uri_and_the_root_is_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my work").mkdir()
    monkeypatch.chdir(tmp_path / "my work")
    run = log(linted({"../a.py": HEAD + SAFE, str(tmp_path / "my work" / "b.py"): HEAD + SAFE}))
    assert run["originalUriBaseIds"] == {"%SRCROOT%": {"uri": f"{tmp_path.as_uri()}/my%20work/"}}
    assert run["invocations"][0]["workingDirectory"] == {"uri": f"{tmp_path.as_uri()}/my%20work/"}
    places = [artifact["location"] for artifact in run["artifacts"]]
    assert places == [{"uri": f"{tmp_path.as_uri()}/a.py"}, {"uri": "b.py", "uriBaseId": "%SRCROOT%"}]


def test_the_encoding_of_a_file_is_told() -> None:
    text = "# -*- coding: latin-1 -*-\n# caf\u00e9\n" + HEAD + SAFE
    (artifact,) = log(linted({"a.py": text.encode("latin-1")}))["artifacts"]
    assert artifact["encoding"] == "iso-8859-1"


def test_positions_do_not_count_a_byte_order_mark() -> None:
    (result,) = log(linted({"a.py": b"\xef\xbb\xbf" + (SAFE + HEAD).encode()}))["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"]) == (1, 9)


def test_no_text_under_analysis_becomes_a_placeholder_or_a_link() -> None:
    plan = linted({HOSTILE_PATH: HOSTILE})
    (finding,) = plan.findings
    named = finding._replace(message="`{0}` [x](http://e.example)")
    (result,) = log(Plan(torch=plan.torch, findings=(named,), sources=plan.sources))["results"]
    assert result["message"]["text"].startswith("`{{0}}` [x] (http://e.example) [deprecated, fixable]")


def rewritten_alone(text: str, finding: Finding, settings: Settings) -> str:
    """What rewriting makes of a text if lint finds nothing but `finding`, and only once."""
    first = [True]

    def lint(raw: bytes, path: str, settings: Settings) -> Any:
        report = lint_bytes(raw, path, settings)
        kept = tuple(other for other in report.findings if other == finding and first)
        first.clear()
        return type(report)(path, kept)

    result = rewrite(text.encode(), "a.py", settings, lint)
    assert result.error is None
    return result.raw.decode()


EXAMPLES = [
    pytest.param(rule.card.code, example.before, example.torch, id=f"{rule.card.code}-{number}")
    for rule in RULES
    for number, example in enumerate(rule.card.flags)
    if example.after is not None
]


@pytest.mark.parametrize(("code", "text", "torch"), EXAMPLES)
def test_a_fix_is_what_rewriting_would_do_about_that_finding_alone(code: str, text: str, torch: str) -> None:
    settings = Settings(TorchRange.parse(torch), hints=True, unsafe_fixes=True, select=(code,))
    findings = lint_bytes(text.encode(), "a.py", settings).findings
    results = log(Plan(torch=torch, findings=findings, sources={"a.py": text.encode()}))["results"]
    assert len(results) == len(findings)
    fixes = 0
    for finding, result in zip(findings, results, strict=True):
        for fix in result.get("fixes", ()):
            fixes += 1
            assert applied(text, fix) == rewritten_alone(text, finding, settings)
    assert fixes


def test_an_unsafe_fix_says_so_and_a_manual_finding_has_none() -> None:
    unsafe = "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)):\n"
    head = "from torch.distributed.fsdp import FullStateDictConfig, StateDictType\n" + HEAD
    body = "    state = FSDP.optim_state_dict(model, optim)\n"
    results = log(linted({"a.py": head + unsafe + body, "b.py": HEAD + MANUAL}))["results"]
    by_rule = {result["ruleId"]: result for result in results}
    (fix,) = by_rule["FSDP201"]["fixes"]
    assert fix["description"]["text"].startswith("Unsafe: ")
    assert "fixes" not in by_rule["FSDP104"]
    safe = log(linted({"a.py": HEAD + SAFE}))["results"][0]["fixes"][0]
    assert safe["description"]["text"] == "Safe: the code does the same afterwards"


def test_a_floor_that_is_too_low_is_a_result_of_the_project_at_its_place() -> None:
    stated = Statement("requirements.txt", 2, "torch>=2.3")
    finding = linted({"a.py": HEAD + MANUAL}).findings[0]._replace(settled="2.6")
    run = log(Plan(torch=">=2.3", findings=(finding,), stated={"a.py": stated}))
    result = run["results"][-1]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "stated-torch-floor"
    assert (result["level"], result["message"]["text"]) == (
        "note",
        "requirements.txt:2 states torch>=2.3; >=2.6 would settle 1 of 1 finding",
    )
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]) == ("requirements.txt", {"startLine": 2})
    nowhere = log(Plan(torch=">=2.3", findings=(finding,), stated={"a.py": stated._replace(line=None)}))
    assert "region" not in nowhere["results"][-1]["locations"][0]["physicalLocation"]
