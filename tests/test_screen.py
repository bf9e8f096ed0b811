from __future__ import annotations

import ast

import pytest

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.distributed import uses_distributed
from fsdp_migrate.screen import may_use_distributed
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange

LICENCE = """\
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
"""

NEAR = [
    "import torch.distributed as dist",
    "from torch import distributed as dist",
    "from torch import (\n    nn,\n    distributed,\n)",
    "from torch import (  # :)\n    nn,  # import (order)\n    distributed,\n)",
    "from torch import nn, \\\n    distributed",
    "from torch \\\n    import distributed",
    "from my_fsdp \\\n    import x",
    "from \\\n  my_fsdp import x",
    "try: import my_fsdp\nexcept ImportError: pass",
    "import torch as t\nt.distributed.init_process_group()",
    "import torch\n(torch\n    # the package\n    .distributed).barrier()",
    "import torch\ntorch. \\\n    distributed.barrier()",
    "from x import FullyShardedDataParallel",
    "if x: from torch import (\r\n  distributed)",
]
FAR = [
    LICENCE,
    "import torch\n\nprint('distributed')\nfsdp = 1\n",
    "import (\n# nothing\n)\nfsdp = 1\n",
    "from x import (\n    a,\n)\n\ndef f(fsdp): pass\n",
]


@pytest.mark.parametrize("text", NEAR)
@pytest.mark.parametrize("before", ["", LICENCE, "import os\n\nx = (1, 2)  # import (\n"])
def test_whatever_uses_distributed_passes(text: str, before: str) -> None:
    text = before + text
    ast.parse(text)
    assert uses_distributed(ModuleFacts(Source(text.encode()), "x.py", TorchRange.default()))
    assert may_use_distributed(text.encode())


@pytest.mark.parametrize("text", FAR)
def test_words_that_nothing_imports_are_not_near(text: str) -> None:
    assert not may_use_distributed(text.encode())
