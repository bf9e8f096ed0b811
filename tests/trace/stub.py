"""A package `torch` with the few functions that the tests call, loaded in no time, and programs that call them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fsdp_migrate import injected
from fsdp_migrate.trace.notes import Noted, gathered

_CLASS = "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel"
FULL, SCATTER, TYPE = (
    f"{_CLASS}.{name}" for name in ("full_optim_state_dict", "scatter_full_optim_state_dict", "state_dict_type")
)
AUTOCAST, SAVE = (
    "torch.cuda.amp.autocast_mode.autocast",
    "torch.distributed.checkpoint.state_dict_saver.save_state_dict",
)
SUBMODULES = "torch.distributed.checkpoint.state_dict.get_state_dict"
COMPILED = "torch.distributed.fsdp.compiled"
ALL = {name: [[None, None]] for name in (FULL, SCATTER, TYPE, AUTOCAST, SAVE, COMPILED)}
ALL[SUBMODULES] = [["submodules", None]]

_FILES = {
    "__init__.py": "__version__ = '2.13.0'\nfrom torch import optim\n",
    "optim.py": """\
class Optimizer:
    def __init__(self, params):
        self.param_groups = [{"params": list(params)}]

class AdamW(Optimizer):
    pass
""",
    "distributed/__init__.py": "def is_available(): return True\ndef is_initialized(): return False\n",
    "distributed/fsdp/__init__.py": """\
from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel
compiled = len
""",
    "distributed/fsdp/fully_sharded_data_parallel.py": '''\
from __future__ import annotations
import contextlib
import functools

def deprecated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper

class FullyShardedDataParallel:
    """FSDP."""
    def __init__(self, *params):
        self.params = params
        self.__private = "mangled"

    def parameters(self):
        return iter(self.params)

    @staticmethod
    @deprecated
    def full_optim_state_dict(model, optim, optim_input=None, rank0_only=True, group=None):
        """Its text."""
        FullyShardedDataParallel.state_dict_type(model, "full").__enter__()
        return model.__private

    if True:
        @staticmethod
        def scatter_full_optim_state_dict(full_optim_state_dict, model, optim_input=None, optim=None, group=None):
            import warnings
            warnings.warn("deprecated", FutureWarning, stacklevel=2)
            return lambda: __class__

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(module, state_dict_type, *, strict: bool = True):
        yield module
''',
    "cuda/__init__.py": "from torch.cuda import amp\n",
    "cuda/amp/__init__.py": "from torch.cuda.amp.autocast_mode import autocast\n",
    "cuda/amp/autocast_mode.py": """\
class autocast:
    def __init__(self, enabled=True):
        self.enabled = enabled
""",
    "distributed/checkpoint/__init__.py": "from .state_dict_saver import save_state_dict\n",
    "distributed/checkpoint/state_dict_saver.py": "def save_state_dict(state_dict): return len(state_dict)\n",
    "distributed/checkpoint/state_dict.py": "def get_state_dict(model, *, submodules=None): return {}\n",
}


def install(folder: Path) -> Path:
    """The folder to put into PYTHONPATH."""
    for name, text in _FILES.items():
        path = folder / "site-packages" / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "site-packages"


class Program:
    """A project in a folder of its own, beside the stub, and the notes of its runs."""

    def __init__(self, folder: Path) -> None:
        self.packages = install(folder)
        self.root = folder / "project"
        self.notes = folder / "notes"
        self.plan = folder / "plan.json"
        self.root.mkdir()
        self.notes.mkdir()

    def run(
        self, text: str, *, apis: object = ALL, python: Sequence[str] = (sys.executable,), code: int = 0, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `main.py` with this text under the tracer."""
        (self.root / "main.py").write_text(text)
        self.plan.write_text(json.dumps({"folder": str(self.notes), "root": str(self.root), "apis": apis}))
        here = Path(injected.__file__).parent
        environment = {**os.environ, "FSDP_MIGRATE_TRACE": str(self.plan), **more}
        environment["PYTHONPATH"] = os.pathsep.join(map(str, (here, self.packages)))
        done = subprocess.run(
            [*python, "main.py"], cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        return done

    @property
    def noted(self) -> Noted:
        """What was noted so far."""
        return gathered(self.notes)

    @property
    def lines(self) -> list[tuple[str, str | None, int | None, int]]:
        """The calls: the last name of the function, who called if it was a library, the line, and how often."""
        return [
            (call.api.rpartition(".")[2], call.by, None if call.place is None else call.place.line, call.times)
            for call in self.noted.trace.calls
        ]
