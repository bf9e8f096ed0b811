"""Plans of the real linter over texts that are given."""

from __future__ import annotations

from collections.abc import Mapping

from fsdp_migrate import runner
from fsdp_migrate.findings import Severity
from fsdp_migrate.report import Plan
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.filesystem import Discovery, SourceFile, printable
from fsdp_migrate.workspace.settings import Layer
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.settings.nearest import ConfigFiles

HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
SAFE = "state = FSDP.full_optim_state_dict(model, optim)\n"
MANUAL = "def load(model, osd):\n    return FSDP.scatter_full_optim_state_dict(osd, model)\n"
HINT = "FSDP.set_state_dict_type(model, kind, one, two)\n"
BROKEN = "x = (\n"

# A program whose names and texts try to break out of every format.
HOSTILE_PATH = 'a\n::error::b\r%0A,c]]>d\x1b[31m\u202e&<e>\udcff".py'
HOSTILE = (
    HEAD
    + "state = FSDP.full_optim_state_dict(model['::warning::%0A]]>{0}[x](http://e.example)\x1b[31m\u202e'], optim)\n"
)


def linted(texts: Mapping[str, str | bytes], *, hints: bool = False, fail_on: Severity | None = None) -> Plan:
    """What lint finds in files of these names on torch>=2.1."""
    sources = [
        SourceFile(name, printable(name), text if isinstance(text, bytes) else text.encode())
        for name, text in texts.items()
    ]
    options = Layer(torch=TorchRange.parse(">=2.1"), hints=hints, fail_on=fail_on)
    return runner.lint(Discovery(tuple(sources)), Configuration(options, ConfigFiles(isolated=True)))
