"""The plan as JSON; docs/plan.schema.json describes it."""

from __future__ import annotations

import json
import os
from typing import Any

from fsdp_migrate._version import __version__
from fsdp_migrate.migration.compared import SCHEMA_VERSION
from fsdp_migrate.migration.model import Diff, Item, Migration, Proof, Rule, Step
from fsdp_migrate.migration.reports import models
from fsdp_migrate.rules.card import RuleCard


def document(plan: Migration) -> str:
    """The whole plan. Bytes that are not UTF-8 become lone surrogates, as with Python's `surrogateescape`."""
    whole: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "tool_version": __version__,
        "target": plan.target,
        "torch": [
            {"root": one.root, "range": str(one.torch), "source": one.source, "note": one.note} for one in plan.projects
        ],
        "numbers": plan.numbers._asdict(),
        "packages": [one._asdict() for one in plan.packages],
        "steps": [_step(step, plan) for step in plan.steps],
        "rules": {rule.card.code: _rule(rule) for rule in plan.rules},
        "proofs": [_proof(proof) for proof in plan.proofs],
        **models.document(plan),
        "errors": [{"path": one.path, "message": one.message} for one in plan.failures],
    }
    if plan.compared is not None:
        told = plan.compared
        whole["since"] = {
            "file": told.file,
            "done": [one._asdict() for one in told.done],
            "new": [one._asdict() for one in told.new],
            "left": told.left,
        }
    return json.dumps(whole, indent=2)


def _proof(proof: Proof) -> dict[str, Any]:
    return {
        "file": proof.file,
        "verdict": proof.verdict,
        "detail": proof.detail,
        "program": proof.program,
        "files": [{"path": os.path.relpath(path), "state": state} for path, state in proof.files.items()],
        "notes": list(proof.notes),
    }


def _step(step: Step, plan: Migration) -> dict[str, Any]:
    return {
        "id": step.id,
        "title": step.title,
        "by": step.by,
        "why": step.why,
        "todo": step.todo,
        "command": step.command,
        "check": step.check,
        "holds": step.holds,
        "after": list(step.after),
        "rules": list(step.codes),
        "proofs": [{"file": proof.file, "paths": list(paths)} for proof, paths in plan.proven(step)],
        "frees": None if step.frees is None else step.frees._asdict(),
        "causes": [
            {"what": one.what, "todo": one.todo, "places": [models.place_of(place) for place in one.places]}
            for one in step.causes
        ],
        "places": [models.place_of(place) for place in step.places],
        "findings": [_item(item) for item in step.items],
        "diffs": [_diff(diff) for diff in step.diffs],
    }


def _item(item: Item) -> dict[str, Any]:
    return {
        "key": item.key,
        "code": item.code,
        **models.place_of(item.place),
        "message": item.message,
        "reason": item.reason,
        "severity": item.severity.value,
        "applicability": item.applicability.value,
        "diffs": [_diff(diff) for diff in item.diffs],
    }


def _diff(diff: Diff) -> dict[str, Any]:
    return {"path": diff.path, "diff": diff.patch.decode("utf-8", "surrogateescape")}


def _rule(rule: Rule) -> dict[str, Any]:
    card: RuleCard = rule.card
    return {
        "name": card.name,
        "summary": card.summary,
        "explanation": card.explanation,
        "url": card.url,
        "proven_by": list(rule.proofs),
    }
