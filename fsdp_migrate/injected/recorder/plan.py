"""What a run is to do and where its record goes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plan:
    """One run.

    `folder` takes the record. `copy` is the folder that holds this version of the project, `tree` the user's own, which
    no module is to come from. `steps` is the number of optimizer steps after which all ranks stop, None for the whole
    program. `lines` are the lines to look out for, by path in the copy. `deadline` is the time (as `time.time()`) at
    which ranks write their stacks. `keep` is the number of bytes of tensors that a rank may store. With `nudged` the
    parameters are moved by one unit in the last place before the first step.
    """

    folder: str = ""
    copy: str = ""
    tree: str = ""
    deadline: float = 0.0
    steps: int | None = None
    lines: dict[str, list[int]] = field(default_factory=dict)
    keep: int = 0
    deterministic: bool = False
    nudged: bool = False

    @classmethod
    def read(cls, path: str) -> Plan:
        """Read a plan, an object in JSON with the names of the fields."""
        with open(path, encoding="utf-8") as file:
            return cls(**json.load(file))
