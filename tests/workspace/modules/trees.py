"""Projects on disk for the tests, and what linting and rewriting a file of one gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from fsdp_migrate.findings import FileReport, Finding
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.parts import RewriteResult
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.modules import Modules
from fsdp_migrate.workspace.settings import Settings

PUBLIC = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
SAVE = "def save(model, optim):\n    return FSDP.full_optim_state_dict(model, optim)\n"


def grow(root: Path, tree: Mapping[str, str]) -> Path:
    """Write `tree`, texts by path, and a project file at its root."""
    for name, text in {"pyproject.toml": "", **tree}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return root


def modules_of(root: Path) -> Modules:
    return Modules(filesystem.discover([str(root)]).files, [str(root)])


def report_of(root: Path, name: str, torch: str = ">=2.1", modules: Modules | None = None) -> FileReport:
    """What lint finds in the file `name`."""
    settings = Settings(TorchRange.parse(torch), hints=True)
    view = (modules or modules_of(root)).view(str(root / name), settings.torch)
    return lint_bytes((root / name).read_bytes(), name, settings, view)


def findings_of(root: Path, name: str, torch: str = ">=2.1") -> tuple[Finding, ...]:
    return report_of(root, name, torch).findings


def codes_of(root: Path, name: str, torch: str = ">=2.1") -> list[str]:
    return [finding.code for finding in findings_of(root, name, torch)]


def rewritten(root: Path, name: str, torch: str = ">=2.1") -> RewriteResult:
    """What rewriting makes of the file `name`."""
    settings = Settings(TorchRange.parse(torch))
    view = modules_of(root).view(str(root / name), settings.torch)
    return rewrite_bytes((root / name).read_bytes(), name, settings, view)
