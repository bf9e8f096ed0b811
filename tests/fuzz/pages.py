"""The notebooks that one program can stand in: how it falls into cells, what is between them, how the JSON is laid out."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.fuzz import seeds

CODE, TEXT = "code", "markdown"

# What stands in front of a cell's Python, `{}`, or behind it.
FRAMES = (
    *("{}",) * 6,
    "%matplotlib inline\n{}",
    "%%time\n{}",
    "%%capture out\n\n{}",
    "!pip install -q 'torch>=2.1' {{model}}\n{}",
    "# comment\n{}\n",
    "{}\nmodel?",
    "{}\n!ls {{path}}",
    "files = !ls -l\n{}",
    "%time x = 1\n{}\n%timeit -n 3 FSDP(model)",
    "{};",
    "\n\n{}\n\n",
    "%%writefile train.py\n{}",
    "%%writefile -a train.py\n{}",
    "%%writefile notes.txt\n{}",
    "%%bash\n{}",
    "%%rank [0]\n{}",
    ">>> {}",
    "    {}",
)
BETWEEN = (
    (CODE, ""),
    (CODE, "%%html\n<b>FSDP.full_optim_state_dict</b>"),
    (CODE, "!torchrun --nproc-per-node 2 train.py\n"),
    (CODE, "model.eval()"),
    (CODE, "x = (  # open"),
    (CODE, "'''caf\u00e9 \U0001f600 \u2028'''\n"),
    (TEXT, "# `FSDP.full_optim_state_dict` \u2713\n\nimport torch"),
    ("raw", "FSDP.full_optim_state_dict(model, optim)"),
)


@dataclass(frozen=True)
class Pages:
    """How a program is written down as a notebook."""

    cuts: tuple[bool, ...] = (True,)
    frames: tuple[str, ...] = ("{}",)
    between: tuple[tuple[str, str] | None, ...] = (None,)
    newline: str = "\n"
    lists: tuple[bool, ...] = (True,)
    indent: int | str | None = 1
    ascii: bool = False
    separators: tuple[str, str] | None = None
    mark: bool = False
    old: bool = False
    end: str = "\n"

    def on(self, text: str) -> bytes:
        """The notebook's bytes."""
        return self.written(list(self.cells(text)))

    def cells(self, text: str) -> Iterator[tuple[str, str]]:
        """The kinds and sources of all cells."""
        for number, part in enumerate(_parts(text, self.cuts)):
            other = _turn(self.between, number)
            if other is not None:
                yield other
            yield CODE, _turn(self.frames, number).format(part).replace("\n", self.newline)

    def written(self, cells: Sequence[tuple[str, str]]) -> bytes:
        """The JSON with these cells."""
        listed = [self._cell(kind, source, number) for number, (kind, source) in enumerate(cells)]
        metadata: dict[str, Any] = {"language_info": {"name": "python"}, "note": "FSDP caf\u00e9"}
        document: dict[str, Any] = {"worksheets": [{"cells": listed}]} if self.old else {"cells": listed}
        document |= {"metadata": metadata, "nbformat": 3 if self.old else 4, "nbformat_minor": 0}
        options: dict[str, Any] = {"indent": self.indent, "separators": self.separators}
        body = json.dumps(document, ensure_ascii=self.ascii, **options) + self.end
        return (codecs.BOM_UTF8 if self.mark else b"") + body.encode("utf-8")

    def _cell(self, kind: str, source: str, number: int) -> dict[str, Any]:
        lines = re.findall(r"[^\n]*\n|[^\n]+\Z", source)
        written = lines if _turn(self.lists, number) else source
        if kind != CODE:
            return {"cell_type": kind, "metadata": {}, "source": written}
        outputs = [{"name": "stdout", "output_type": "stream", "text": ["FSDP.full_optim_state_dict\n"]}]
        cell: dict[str, Any] = {"cell_type": CODE, "execution_count": number, "metadata": {}, "outputs": outputs}
        return cell | {"input" if self.old else "source": written}


def read(raw: bytes) -> list[tuple[str, str]]:
    """The kinds and sources of the cells in a notebook's bytes."""
    document = json.loads(raw.decode("utf-8-sig"))
    listed = document["worksheets"][0]["cells"] if "worksheets" in document else document["cells"]
    return [(cell["cell_type"], "".join(cell.get("source", cell.get("input")))) for cell in listed]


def pages() -> st.SearchStrategy[Pages]:
    """Mostly as Jupyter writes it, sometimes anything."""
    cuts = st.lists(st.booleans(), min_size=1, max_size=6).map(tuple)
    frames = st.lists(st.sampled_from(FRAMES), min_size=1, max_size=4).map(tuple)
    between = st.lists(st.none() | st.sampled_from(BETWEEN), min_size=1, max_size=4).map(tuple)
    odd = st.builds(
        Pages,
        cuts,
        frames,
        between,
        newline=st.sampled_from(["\n", "\n", "\r\n"]),
        lists=st.lists(st.booleans(), min_size=1, max_size=3).map(tuple),
        indent=st.sampled_from([1, 2, None, "\t", 0]),
        ascii=st.booleans(),
        separators=st.sampled_from([None, (",", ":"), (" , ", " : ")]),
        mark=st.booleans(),
        old=st.booleans(),
        end=st.sampled_from(["\n", "", "\r\n"]),
    )
    return st.one_of(st.builds(Pages, cuts, frames), odd)


def _turn(items: Sequence[Any], number: int) -> Any:
    return items[number % len(items)]


def _parts(text: str, cuts: Sequence[bool]) -> Iterator[str]:
    """The program cut in front of some of its statements, in front of blank lines if it is no program."""
    lines = text.split("\n")
    tree = seeds.parse(text)
    if tree is None or "\f" in text or "\r" in text:
        starts = [number for number, line in enumerate(lines) if number and not line.strip()]
    else:
        ends = {0, *(statement.end_lineno or 0 for statement in tree.body)}
        firsts = [_first_line(statement) for statement in tree.body]
        starts = [line - 1 for line in firsts if line not in ends and line > 1]
    chosen = [start for number, start in enumerate(starts) if _turn(cuts, number)]
    for start, end in pairwise([0, *chosen, len(lines)]):
        yield "\n".join(lines[start:end])


def _first_line(statement: Any) -> int:
    return min(node.lineno for node in (statement, *getattr(statement, "decorator_list", ())))
