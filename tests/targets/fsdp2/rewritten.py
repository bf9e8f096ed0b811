"""Programs rewritten by the whole target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from fsdp_migrate.findings import Fix
from fsdp_migrate.planning.passes import carried_out
from fsdp_migrate.source import Source
from fsdp_migrate.targets.fsdp2.target import Model, models
from fsdp_migrate.workspace.filesystem import discover
from fsdp_migrate.workspace.workspace import Workspace

_SETTINGS = '[tool.fsdp-migrate]\ntarget = "fsdp2"\ntorch = ">=2.13"\n'


def models_of(root: Path, tree: Mapping[str, str]) -> list[Model]:
    """The models of a project of some files."""
    for name, text in {"pyproject.toml": _SETTINGS, **tree}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(dedent(text))
    return list(models(Workspace(discover([str(root)]))))


def rewritten(root: Path, tree: Mapping[str, str]) -> dict[str, str]:
    """The files that the conversion of the one model of a project changes, with their new texts."""
    (model,) = models_of(root, tree)
    assert model.conversion.walls == []
    return {str(Path(path).relative_to(root)): text for path, text in _texts(model).items()}


def after_transaction(model: Model) -> str:
    """The new text of the first file of a model."""
    return _texts(model)[model.facts.path]


def _texts(model: Model) -> dict[str, str]:
    found = {}
    for path, edits in model.conversion.edits.items():
        source = Source(Path(path).read_bytes())
        removed, comments = (getattr(model.conversion, name).get(path, ()) for name in ("removed", "comments"))
        fix = Fix(tuple(edits), tuple(removed), comments=tuple(comments))
        found[path] = carried_out(source, path, [fix]).raw.decode()
    return found
