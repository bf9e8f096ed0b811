from __future__ import annotations

from fsdp_migrate.report import plain
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
from tests.stub_engine import lint_bytes


def test_the_place_of_a_finding_in_a_notebook_names_the_cell() -> None:
    (finding,) = lint_bytes(b"x = 1\ny = MANUAL\n", "a.py", Settings(TorchRange.parse(">=2.1"))).findings
    assert plain.shown_place(finding) == "a.py:2:5"
    assert plain.shown_place(finding._replace(path="a.ipynb", cell=3)) == "a.ipynb:cell 3:2:5"
