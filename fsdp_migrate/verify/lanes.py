"""A lane: one Python interpreter with its torch, and the devices it sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

# torch is imported only if it was built for GPUs and the question is about them: that takes seconds.
_PROBE = """
import importlib.util, json, runpy, sys
spec = importlib.util.find_spec("torch")
if spec is None:
    print(json.dumps(None)); sys.exit()
about = runpy.run_path(spec.submodule_search_locations[0] + "/version.py")
gpus = 0
if sys.argv[1] != "cpu" and (about.get("cuda") or about.get("hip")):
    import torch
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps({"torch": str(about["__version__"]), "gpus": gpus, "python": list(sys.version_info[:2])}))
"""


class LaneError(ValueError):
    """An interpreter that cannot run the ranks; the message is one line for the user."""


@dataclass(frozen=True)
class Lane:
    """An interpreter, the release of its torch, and how many GPUs it can use."""

    python: str
    torch: str
    gpus: int


def probe(python: str = sys.executable, device: str = "auto") -> Lane:
    """Look at what `python` offers.

    Raises:
        LaneError: it cannot be started, is too old, or has no torch.
    """
    try:
        done = subprocess.run([python, "-c", _PROBE, device], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise LaneError(f"{python}: cannot be run: {error}") from None
    try:
        found: dict[str, Any] | None = json.loads(done.stdout) if done.returncode == 0 else {}
    except ValueError:
        found = {}
    if found is None:
        hint = "pip install torch numpy" if python == sys.executable else "give one that has torch"
        raise LaneError(f"{python}: torch is not installed; {hint}")
    if not found:
        last = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise LaneError(f"{python}: is it a Python interpreter? Asked for its torch, it said: {last[:200]}")
    if found["python"] < [3, 10]:
        raise LaneError(f"{python}: Python {'.'.join(map(str, found['python']))} is too old; 3.10 or newer is needed")
    # Programs run in folders of their own; a name alone is looked up in PATH.
    return Lane(os.path.abspath(python) if os.path.dirname(python) else python, found["torch"], found["gpus"])
