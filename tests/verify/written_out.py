"""Programs before and after the conversion of their constructors: `python -m tests.verify.written_out FILE`, on gloo.

The file has a list in JSON of cases: name, number of ranks, and the texts before and after, which define `build(net)`.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from tests.verify.against_fsdp1 import Case, compare, run


def _compared(name: str, ranks: int, before: str, after: str) -> dict[str, Any]:
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    exec(before, old)
    exec(after, new)
    return compare(name, Case({}, ranks), old["build"], new["build"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    with open(os.devnull, "w") as sys.stderr:  # FSDP1 warns much
        for case in json.loads(Path(sys.argv[1]).read_text()):
            run(case[0], case[1], functools.partial(_compared, *case))
