from __future__ import annotations

import pytest

from fsdp_migrate.edits import Replace
from fsdp_migrate.findings import Applicability, Fix
from fsdp_migrate.lint import lint_bytes, worth_linting
from fsdp_migrate.source import Source, Span
from fsdp_migrate.workspace.notebook import Notebook
from fsdp_migrate.workspace.notebook.review import reviewed

from .build import IMPORT, NEW, OLD, code, found, lines, linted, notebook, rewritten, settings, sources


def test_cells_are_one_module_and_places_are_within_cells() -> None:
    markdown = {"cell_type": "markdown", "metadata": {}, "source": [f"`{OLD}`"]}
    raw = notebook(IMPORT, markdown, f"%matplotlib inline\n\u00e9 = {OLD}\nprint(\u00e9)", f"x = {NEW}")
    assert found(raw) == [("FSDP107", 3, 2, 5)]
    (finding,) = linted(raw).findings
    assert (finding.end_line, finding.end_column) == (2, 5 + len("FSDP.optim_state_dict_to_load"))


def test_code_behind_a_magic_that_runs_it_is_checked() -> None:
    assert found(notebook(IMPORT, f"if x:\n    %time y = {OLD}\nprint(y)")) == [("FSDP107", 2, 2, 15)]
    assert found(notebook(IMPORT, f"%%time\ny = {OLD}\nprint(y)")) == [("FSDP107", 2, 2, 5)]


def test_a_fix_that_would_leave_its_cell_is_for_people() -> None:
    raw = notebook(IMPORT, "a = 1", "b = 2")
    source = Notebook(raw)
    finding, *_ = lint_bytes(f"{IMPORT}{OLD}\n".encode(), "a.py", settings()).findings
    ends = source.cells[1].span.start, source.cells[2].span.end
    (reviewed_one,) = reviewed(source, [source], "a.ipynb", [finding._replace(fix=Fix((Replace(Span(*ends), "c"),)))])
    assert (reviewed_one.applicability, reviewed_one.fix) == (Applicability.MANUAL, None)
    assert reviewed_one.reason == "the change would span cells 2 to 3: make it by hand"


@pytest.mark.parametrize(
    "magic",
    ["%%bash\n", "%%writefile a.sh\n", "%%file a.py b.py\n", "%%file {name}\n", "!", "%unknown ", "%%javascript\n"],
)
def test_what_is_not_run_as_python_of_the_notebook_is_not_checked(magic: str) -> None:
    assert found(notebook(IMPORT, f"{magic}{OLD}", f"x = {OLD}\nprint(x)")) == [("FSDP107", 3, 1, 5)]


def test_comments_in_cells_silence_findings() -> None:
    report = linted(notebook(IMPORT, f"x = {OLD}  # noqa: FSDP107\nprint(x)", f"x = {OLD}  # fsdp-migrate: ignore"))
    assert (report.findings, report.suppressed) == ((), 2)


def test_a_comment_in_one_cell_silences_the_whole_notebook() -> None:
    report = linted(notebook(IMPORT, f"x = {OLD}\nprint(x)", "# fsdp-migrate: ignore-file[FSDP107]"))
    assert (report.findings, report.suppressed) == ((), 1)


def test_comments_that_silence_nothing_are_found_in_cells_of_python() -> None:
    raw = notebook(IMPORT, "%%bash\nls # noqa: FSDP107", f"x = 1\n%time y = {NEW} # noqa: FSDP107\nprint(x, y)")
    assert found(raw) == [("FSDP002", 3, 2, len(f"%time y = {NEW} #"))]
    assert sources(rewritten(raw).raw)[2] == f"x = 1\n%time y = {NEW}\nprint(x, y)"


def test_a_cell_that_does_not_parse_is_named_and_the_others_are_checked() -> None:
    raw = notebook(IMPORT, "x = 1\nif x\n  y", f"x = {OLD}\nprint(x)", "f(")
    report = linted(raw)
    assert [(f.code, f.cell, f.line, f.column) for f in report.findings] == [
        ("FSDP001", 2, 2, 5),
        ("FSDP107", 3, 1, 5),
        ("FSDP001", 4, 1, 2),
    ]
    assert report.failed
    assert report.findings[0].message == "the cell does not parse: expected ':'"
    assert report.findings[1].applicability is Applicability.MANUAL
    assert report.findings[1].reason == "cell 2 does not parse: fix it first"


def test_cells_that_parse_only_together_are_two_faults() -> None:
    raw = notebook(IMPORT, f"x = (1, {OLD},", "2)")
    assert [(f.code, f.cell) for f in linted(raw).findings] == [("FSDP001", 2), ("FSDP001", 3)]


def test_a_broken_cell_counts_only_where_code_holds_names_of_fsdp() -> None:
    markdown = {"cell_type": "markdown", "metadata": {}, "source": f"{IMPORT}{OLD}"}
    assert linted(notebook(markdown, code("if x", outputs=[{"text": OLD}]))).findings == ()


@pytest.mark.parametrize("other", ["julia", "R"])
def test_notebooks_of_other_kernels_are_left_alone(other: str) -> None:
    raw = notebook(IMPORT, f"x = {OLD}", metadata={"language_info": {"name": other}})
    assert linted(raw).findings == ()


@pytest.mark.parametrize("as_list", [True, False])
def test_the_screen_sees_names_at_the_start_of_a_line(as_list: bool) -> None:
    text = "import torch\ntorch.distributed.fsdp.ShardingStrategy.OLD\n\ttorch.cuda.amp.GradScaler()"
    raw = notebook(code(lines(text) if as_list else text))
    assert worth_linting(raw, "a.ipynb", settings())


def test_other_texts_have_no_cells() -> None:
    source = Source(b"a\nb = 1\n")
    assert source.location(2) == source.position(2)
    assert source.lines(None) == ["a\n", "b = 1\n", ""]


LEGACY = "FSDP.full_optim_state_dict(model, optim)"


@pytest.mark.parametrize("leaves", ["raise RuntimeError('too old')", "sys.exit()"])
def test_an_error_in_one_cell_does_not_keep_the_next_ones_from_being_run(leaves: str) -> None:
    check = f"if torch.__version__ < '2.6':\n    {leaves}\nx = {LEGACY}\nprint(x)"
    raw = notebook(f"import sys\nimport torch\n{IMPORT}", check, f"y = {LEGACY}\nprint(y)")
    assert [(f.cell, f.applicability) for f in linted(raw, ">=1.13").findings] == [
        (2, Applicability.SAFE),
        (3, Applicability.MANUAL),
    ]


def test_a_file_that_cells_write_is_run_as_a_whole() -> None:
    check = "if torch.__version__ < '2.6':\n    raise RuntimeError\n"
    head = f"%%writefile train.py\nimport torch\n{IMPORT}\n{check}"
    raw = notebook(head, f"%%writefile -a train.py\nx = {LEGACY}\nprint(x)")
    assert [f.applicability for f in linted(raw, ">=1.13").findings] == [Applicability.SAFE]
