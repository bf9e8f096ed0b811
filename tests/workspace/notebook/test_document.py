from __future__ import annotations

import json
from typing import Any

import pytest

from fsdp_migrate.source import SourceError
from fsdp_migrate.workspace.notebook import Notebook
from fsdp_migrate.workspace.notebook.document import read_cells

from .build import code, document, notebook


def texts(value: dict[str, Any]) -> list[tuple[int, str]]:
    return [(cell.number, "".join(cell.source)) for cell in read_cells(json.dumps(value))]


def test_code_cells_count_among_all_cells() -> None:
    markdown, raw = ({"cell_type": kind, "metadata": {}, "source": "x"} for kind in ("markdown", "raw"))
    without = {"cell_type": "code", "metadata": {}, "outputs": []}
    assert texts(document(markdown, "a\nb", raw, code("c"), without, code([]), code(""))) == [
        (2, "a\nb"),
        (4, "c"),
        (6, ""),
        (7, ""),
    ]


def test_worksheets_of_format_3_are_one_notebook() -> None:
    sheets = [{"cells": [{"cell_type": "code", "language": "python", "input": ["a"]}]}, {"cells": [code("b")]}]
    assert texts({"worksheets": sheets, "metadata": {"name": ""}, "nbformat": 3}) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("metadata", "is_python"),
    [
        ({}, True),
        ({"kernelspec": {"name": "python3"}}, True),
        ({"kernelspec": {"language": "Python"}}, True),
        ({"kernelspec": {"language": "julia"}}, False),
        ({"language_info": {"name": "R"}}, False),
        ({"kernelspec": {"language": "sage"}, "language_info": {"name": "python"}}, True),
        ({"kernelspec": None, "language_info": 3}, True),
    ],
)
def test_notebooks_of_other_kernels_have_no_python(metadata: dict[str, Any], is_python: bool) -> None:
    assert bool(texts(document("x", metadata=metadata))) is is_python


def test_a_cell_that_an_editor_marks_as_another_language_is_no_python() -> None:
    sql = code("select 1", metadata={"vscode": {"languageId": "sql"}})
    assert texts(document(sql, code("x", metadata={"vscode": {"languageId": "python"}}))) == [(2, "x")]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not valid JSON: Expecting value (line 1, column 1)"),
        (b'{"cells": [}', "not valid JSON: Expecting value (line 1, column 12)"),
        (b'{"cells": []} x', "not valid JSON: Extra data (line 1, column 15)"),
        (b'{"cells": [], "a\0": 1}', "not valid JSON: Invalid control character at (line 1, column 17)"),
        (b'{"cells": ["' + b"\xff" + b'"]}', "not valid utf-8: 'utf-8' codec can't decode byte 0xff in position 12"),
        (b"[" * 100_000, "too deeply nested to read"),
        (b'{"a":' * 100_000, "too deeply nested to read"),
        (b"[1]", "not a notebook: it has no list of cells"),
        (b'"cells"', "not a notebook: it has no list of cells"),
        (b'{"cells": 3}', "not a notebook: it has no list of cells"),
        (b'{"worksheets": [3]}', "not a notebook: it has no list of cells"),
        (b'{"cells": ["x"]}', "not a notebook: cell 1 is not an object"),
        (b'{"cells": [{"cell_type": "code", "source": 3}]}', "not a notebook: the source of cell 1 is not text"),
        (b'{"cells": [{"cell_type": "code", "source": ["a", 3]}]}', "not a notebook: the source of cell 1 is not text"),
    ],
)
def test_what_is_no_notebook_is_told_in_one_line(raw: bytes, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        Notebook(raw)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_numbers_of_any_size_and_those_that_json_does_not_have_are_read() -> None:
    raw = notebook("x").replace(b'"nbformat": 4', b'"nbformat": 4, "a": [NaN, -Infinity, 1e999, ' + b"9" * 5000 + b"]")
    assert [cell.text for cell in Notebook(raw).cells] == ["x"]
