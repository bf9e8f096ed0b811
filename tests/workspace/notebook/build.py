"""Notebooks for tests, and what is in them."""

from __future__ import annotations

import json
from typing import Any

from fsdp_migrate.findings import FileReport
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.parts import RewriteResult
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
OLD = "FSDP.optim_state_dict_to_load(osd, model, optim)"
NEW = "FSDP.optim_state_dict_to_load(model=model, optim=optim, optim_state_dict=osd)"

PYTHON = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def code(source: str | list[str], **more: Any) -> dict[str, Any]:
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
    return cell | more


def lines(text: str) -> list[str]:
    """A source as Jupyter writes it."""
    return text.splitlines(keepends=True)


def document(*cells: str | dict[str, Any], metadata: dict[str, Any] = PYTHON) -> dict[str, Any]:
    """A notebook of the current format; a text stands for a code cell."""
    whole = [code(lines(cell)) if isinstance(cell, str) else cell for cell in cells]
    cells_with_ids = [{"id": f"cell-{number}"} | cell for number, cell in enumerate(whole, 1)]
    return {"cells": cells_with_ids, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def notebook(*cells: str | dict[str, Any], metadata: dict[str, Any] = PYTHON) -> bytes:
    """The file of a notebook, laid out as Jupyter does."""
    return (json.dumps(document(*cells, metadata=metadata), indent=1, ensure_ascii=False) + "\n").encode()


def sources(raw: bytes) -> list[str]:
    """The texts of the cells."""
    return ["".join(cell["source"]) for cell in json.loads(raw)["cells"]]


def settings(unsafe: bool = False, torch: str = ">=2.1") -> Settings:
    return Settings(TorchRange.parse(torch), unsafe_fixes=unsafe)


def linted(raw: bytes, torch: str = ">=2.1") -> FileReport:
    return lint_bytes(raw, "a.ipynb", settings(torch=torch))


def found(raw: bytes) -> list[tuple[str, int | None, int, int]]:
    """Code, cell, line and column of the findings that are no hints."""
    found = [finding for finding in linted(raw).findings if finding.severity.value != "hint"]
    return [(finding.code, finding.cell, finding.line, finding.column) for finding in found]


def rewritten(raw: bytes, *, unsafe: bool = False) -> RewriteResult:
    result = rewrite_bytes(raw, "a.ipynb", settings(unsafe))
    assert result.error is None, result.error
    assert rewrite_bytes(result.raw, "a.ipynb", settings(unsafe)).raw == result.raw
    return result
