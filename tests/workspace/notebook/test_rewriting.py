from __future__ import annotations

import json
from typing import Any

import nbformat
import pytest

from fsdp_migrate.findings import Applicability
from fsdp_migrate.planning.rewriting import rewrite_source
from fsdp_migrate.verify import Fixture, find_fixtures

from .build import IMPORT, NEW, OLD, code, document, lines, notebook, rewritten, sources

MARKDOWN = {"cell_type": "markdown", "metadata": {}, "source": [f"`{OLD}`\n", "caf\u00e9"]}
OUTPUT = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBO" * 300_000, "text/plain": OLD}}
CELLS: tuple[Any, ...] = (
    MARKDOWN,
    IMPORT + "import torch",
    code([f"# caf\u00e9 {'<'}b>\n", "osd = @\n", "print(osd)"], outputs=[OUTPUT]),
    {"cell_type": "raw", "metadata": {}, "source": OLD},
    code([]),
    code(""),
    "%%bash\necho caf\u00e9",
)
WHOLE = document(*CELLS)


def _unordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unordered(value[key]) for key in sorted(value, reverse=True)}
    return [_unordered(item) for item in value] if isinstance(value, list) else value


def _format_3() -> dict[str, Any]:
    cells = [{"cell_type": "code", "language": "python", "input": [IMPORT, "osd = @\n", "osd"], "outputs": []}]
    return {"metadata": {"name": ""}, "nbformat": 3, "nbformat_minor": 0, "worksheets": [{"cells": cells}]}


LAYOUTS = {
    "Jupyter": json.dumps(WHOLE, indent=1, ensure_ascii=False) + "\n",
    "escapes": json.dumps(WHOLE, indent=1),
    "four blanks": json.dumps(WHOLE, indent=4, ensure_ascii=False),
    "tabs": json.dumps(WHOLE, indent="\t", ensure_ascii=False) + "\n\n",
    "one line": json.dumps(WHOLE, separators=(",", ":")),
    "blanks in odd places": json.dumps(WHOLE, separators=(" ,\n ", "  :\t")),
    "CRLF": json.dumps(WHOLE, indent=1).replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + json.dumps(WHOLE, indent=1, ensure_ascii=False),
    "another order": json.dumps(_unordered(WHOLE), indent=2),
    "escaped slashes": json.dumps(WHOLE, indent=1).replace("<", "\\u003C").replace("/", "\\/"),
    "sources as one text": json.dumps(document(*({**c, "source": "".join(c["source"])} for c in WHOLE["cells"]))),
    "format 3": json.dumps(_format_3(), indent=1),
    "the last of two sources counts": json.dumps(WHOLE, indent=1).replace(
        '"source": [\n    "# caf', f'"source": "{OLD}",\n   "source": [\n    "# caf'
    ),
    "a text in several strings": json.dumps(WHOLE).replace('"osd = @\\n", ', '"os", "", "d = @", "\\n", '),
    "numbers": json.dumps(WHOLE).replace('"nbformat": 4', f'"nbformat": 4, "a": [NaN, 1.0, 1e5, {"9" * 5000}]'),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_the_changed_words_change_in_any_layout(layout: str) -> None:
    before = LAYOUTS[layout].replace("@", OLD)
    assert before.count("@") == 0
    result = rewritten(before.encode())
    assert result.raw.decode() == LAYOUTS[layout].replace("@", NEW)
    assert [finding.code for finding in result.fixed] == ["FSDP107"]


def test_the_result_is_a_valid_notebook() -> None:
    raw = rewritten(LAYOUTS["Jupyter"].replace("@", OLD).encode()).raw
    nbformat.validate(nbformat.reads(raw.decode(), as_version=4))


CALL = "osd = FSDP.full_optim_state_dict(model, optim)"
WITH = """\
with FSDP.state_dict_type(
    model,
    StateDictType.FULL_STATE_DICT,
    optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
):
    osd = FSDP.optim_state_dict(model, optim)"""


def test_a_list_stays_a_list_of_lines() -> None:
    raw = notebook(IMPORT.rstrip(), code(["x\n", f"{CALL}\n", "# \u2028y"]), CALL)
    after = json.loads(rewritten(raw).raw)["cells"]
    assert after[1]["source"] == ["x\n", *lines(f"{WITH}\n"), "# \u2028y"]
    assert after[2]["source"] == lines(WITH)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_text_stays_a_text_with_its_newlines(newline: str) -> None:
    raw = notebook(code(IMPORT.rstrip()), code(f"x{newline}{CALL}"))
    result = json.loads(rewritten(raw).raw)["cells"]
    assert result[1]["source"] == f"x\n{WITH}".replace("\n", newline)


def test_each_cell_keeps_its_own_newlines() -> None:
    raw = notebook(IMPORT.rstrip(), code(f"x\r\n{CALL}"), code(f"x\n{CALL}"), code(f"x\r\n{CALL}"))
    after = sources(rewritten(raw).raw)
    crlf = f"x\n{WITH}".replace("\n", "\r\n")
    assert after[1:] == [crlf, f"x\n{WITH}", crlf]


def test_new_lines_of_a_list_are_laid_out_like_the_others() -> None:
    raw = json.dumps(document(IMPORT, f"x\n{CALL}", CALL), indent=3).encode()
    assert rewritten(raw).raw.decode() == json.dumps(json.loads(rewritten(raw).raw), indent=3)


def test_characters_are_spelled_as_in_their_cell() -> None:
    cells = [IMPORT, "'caf\u00e9'\n" + OLD.replace("osd", "'\u00e9', osd[0]") + "\nx", "'caf\u00e9'\nx = " + OLD]
    raw = json.dumps(document(*cells), indent=1, ensure_ascii=False).replace("x = ", "x \\u003d ").encode()
    after = rewritten(raw).raw.decode()
    assert NEW.replace("=", "\\u003d") in after
    assert after.count("\u00e9") == 3


FLAT = "from torch.distributed.fsdp import FlatParameter"
TEST = "if any(isinstance(p, FlatParameter) for p in ps):\n    f()"


@pytest.mark.parametrize(
    ("cell", "after"),
    [
        (FLAT, []),
        (f"x\n{FLAT}", ["x"]),
        (f"x\n\n{FLAT}", ["x"]),
        (f"x\n{FLAT}\n", ["x\n"]),
        (f"{FLAT}\n\nx\n", ["x\n"]),
        (f"x; {FLAT}", ["x"]),
        (f"{FLAT}; x", ["x"]),
        (f"x\n{FLAT}\n%cd ~", ["x\n", "%cd ~"]),
    ],
)
@pytest.mark.parametrize("blank", ["", "\n\n"])
def test_an_import_that_goes_takes_its_line_and_nothing_from_other_cells(
    cell: str, after: list[str], blank: str
) -> None:
    raw = notebook(f"import torch{blank}", cell, f"{blank}{TEST}")
    cells = json.loads(rewritten(raw).raw)["cells"]
    assert [cells[0]["source"], cells[1]["source"]] == [lines(f"import torch{blank}"), after]
    assert cells[2]["source"] == lines(blank + TEST.replace("isinstance(p, FlatParameter)", FLATTENED))


FLATTENED = 'getattr(p, "_fsdp_flattened", False)'


def test_code_behind_a_magic_is_mended_only_within_its_line() -> None:
    raw = notebook(IMPORT.rstrip(), f"%time x = {OLD}\n%time {CALL}\nprint(x, osd)")
    result = rewritten(raw)
    assert sources(result.raw)[1] == f"%time x = {NEW}\n%time {CALL}\nprint(x, osd)"
    (left,) = (finding for finding in result.left if finding.code == "FSDP101")
    assert (left.applicability, left.cell, left.line) == (Applicability.MANUAL, 2, 2)
    assert left.reason == "the code is on the line of a magic, which has to stay: make the change by hand"


def test_code_behind_a_prompt_is_mended_only_within_its_line() -> None:
    raw = notebook(IMPORT.rstrip(), f">>> x = {OLD}\n>>> {CALL}\n>>> print(x, osd)")
    assert sources(rewritten(raw).raw)[1] == f">>> x = {NEW}\n>>> {CALL}\n>>> print(x, osd)"


def test_calls_at_the_end_of_one_cell_and_the_start_of_the_next_get_a_block_each() -> None:
    raw = notebook(IMPORT.rstrip(), CALL, CALL)
    assert sources(rewritten(raw).raw)[1:] == [WITH, WITH]


@pytest.mark.parametrize("magic", ["%prun -s time check({})", "!echo {{FlatParameter}}", "y = %who FlatParameter"])
def test_an_import_that_a_magic_uses_stays(magic: str) -> None:
    raw = notebook(FLAT, TEST, magic.format("isinstance(p, FlatParameter)"))
    before, after = sources(raw), sources(rewritten(raw).raw)
    assert [after[0], after[2]] == [before[0], before[2]]
    assert after[1] == TEST.replace("isinstance(p, FlatParameter)", FLATTENED)


def test_an_import_behind_a_magic_stays() -> None:
    after = sources(rewritten(notebook(f"%time {FLAT}", TEST)).raw)
    assert after[0] == f"%time {FLAT}"


def test_a_value_that_the_notebook_shows_is_hidden_only_on_demand() -> None:
    shown = "FSDP.full_optim_state_dict(model, optim)"
    raw = notebook(IMPORT.rstrip(), shown)
    result = rewritten(raw)
    assert result.raw == raw
    reasons = [(f.applicability, f.reason) for f in result.left if f.code == "FSDP101"]
    assert reasons == [(Applicability.UNSAFE, "the notebook no longer shows the value below the cell")]
    assert sources(rewritten(raw, unsafe=True).raw)[1] == WITH.replace("osd = ", "")
    for quiet in (f"{shown};", f"{shown}\nprint()"):
        assert "with FSDP" in sources(rewritten(notebook(IMPORT.rstrip(), quiet)).raw)[1]


def test_nothing_is_rewritten_beside_a_cell_that_does_not_parse() -> None:
    raw = notebook(IMPORT, f"x = {OLD}", "if x")
    assert rewritten(raw).raw == raw


def test_half_a_surrogate_pair_survives_beside_a_change() -> None:
    text = json.dumps(document(IMPORT, f"s = '\ud83d'; x = {OLD}\nx"), indent=1)
    assert rewritten(text.encode()).raw.decode() == text.replace(OLD, NEW)


EVERY_FIXTURE = [fixture for fixture in find_fixtures() if fixture.after is not None]


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize("fixture", EVERY_FIXTURE[::4], ids=[fixture.name for fixture in EVERY_FIXTURE[::4]])
def test_a_program_in_a_cell_is_rewritten_like_a_file(fixture: Fixture, as_list: bool) -> None:
    before = fixture.before.read_text().rstrip("\n")
    unsafe = fixture.header.unsafe
    after = rewrite_source(before, "a.py", unsafe_fixes=unsafe).source
    source = lines(before) if as_list else before
    result = rewrite_source(notebook(code(source)), "a.ipynb", unsafe_fixes=unsafe)
    assert result.error is None
    assert result.source == notebook(code(lines(after) if as_list else after))
