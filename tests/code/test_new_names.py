"""How a new name is spelled: as the file already writes it, else by an import next to its kin."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from fsdp_migrate.code.import_texts import CannotSupply
from fsdp_migrate.code.new_names import spell, spell_from
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Fix
from fsdp_migrate.planning.passes import carried_out
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange

CLIP = "torch.nn.utils.clip_grad_norm_"


def facts_of(text: str) -> ModuleFacts:
    return ModuleFacts(Source(dedent(text).encode()), "example.py", TorchRange.parse(">=2.6"))


def place(facts: ModuleFacts) -> ast.Call:
    return next(call for call in facts.structure.calls if ast.unparse(call.func) == "here")


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ("import torch", CLIP),
        ("import torch\nimport torch.nn as nn", "nn.utils.clip_grad_norm_"),
        ("from torch import nn", "nn.utils.clip_grad_norm_"),
        ("import torch\nfrom torch.nn.utils import clip_grad_norm_ as clip", "clip"),
        ("import torch\nif fast:\n    from torch import nn", CLIP),
    ],
)
def test_the_spelling_of_the_file_is_used(imports: str, expected: str) -> None:
    facts = facts_of(f"{imports}\n\n\ndef f():\n    here()\n")
    assert spell(facts, CLIP, place(facts)) == (expected, ())


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ("import os\n", "import os\nfrom torch.nn.utils import clip_grad_norm_\n"),
        (
            "import torch.fx as fx\nfrom torch.optim import SGD\n",
            "import torch.fx as fx\nfrom torch.nn.utils import clip_grad_norm_\nfrom torch.optim import SGD\n",
        ),
        (
            "from torch.nn.utils import parametrize\n",
            "from torch.nn.utils import clip_grad_norm_, parametrize\n",
        ),
    ],
)
def test_else_it_is_imported(imports: str, expected: str) -> None:
    facts = facts_of(f"{imports}\n\ndef f():\n    here()\n")
    spelled = spell(facts, CLIP, place(facts))
    assert spelled.text == "clip_grad_norm_"
    text = carried_out(facts.source, "example.py", [Fix(spelled.edits)]).raw.decode()
    assert text == f"{expected}\n\ndef f():\n    here()\n"


def test_a_module_goes_to_its_group() -> None:
    facts = facts_of("import os\nimport sys\n\nimport torch\nfrom mine import *\n\n\ndef f():\n    here()\n")
    spelled = spell(facts, "contextlib.contextmanager", place(facts))
    text = carried_out(facts.source, "example.py", [Fix(spelled.edits)]).raw.decode()
    assert text.startswith("import os\nimport sys\nfrom contextlib import contextmanager\n\nimport torch\n")


def test_a_taken_name_gets_an_alias() -> None:
    facts = facts_of("import os\n\ndef no_sync(): ...\n\ndef f():\n    here()\n")
    assert spell_from(facts, ".fsdp2", "no_sync", place(facts)).text == "torch_no_sync"


def test_a_local_variable_of_that_name_is_no_module() -> None:
    facts = facts_of("import torch\n\ndef f(torch):\n    here()\n")
    spelled = spell(facts, CLIP, place(facts))
    assert spelled.text == "clip_grad_norm_"


IMPORT = "from torch.nn.utils import clip_grad_norm_"
CODE = "def f():\n    here()\n"


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (CODE, f"{IMPORT}\n\n\n{CODE}"),
        ("#!/usr/bin/env python\n" + CODE, f"#!/usr/bin/env python\n{IMPORT}\n\n\n{CODE}"),
        ("# license\n\n# f\n@wraps\n" + CODE, f"# license\n\n{IMPORT}\n\n\n# f\n@wraps\n{CODE}"),
        (f'"""Doc."""\n\n\n{CODE}', f'"""Doc."""\n\n{IMPORT}\n\n\n{CODE}'),
        (
            f'r"""Doc."""\nfrom __future__ import annotations\n\n{CODE}',
            f'r"""Doc."""\nfrom __future__ import annotations\n\n{IMPORT}\n\n{CODE}',
        ),
        (f"here()\nimport os\n\n{CODE}", f"{IMPORT}\n\n\nhere()\nimport os\n\n{CODE}"),
    ],
)
def test_without_imports_it_opens_the_file(before: str, expected: str) -> None:
    facts = facts_of(before)
    spelled = spell(facts, CLIP, place(facts))
    assert carried_out(facts.source, "example.py", [Fix(spelled.edits)]).raw.decode() == expected


def test_statements_before_it_have_lines_of_their_own() -> None:
    facts = facts_of('"""Doc."""; x = 1\n\ndef f():\n    here()\n')
    with pytest.raises(CannotSupply, match="line 1 has several statements"):
        spell(facts, CLIP, place(facts))


def test_a_star_import_can_be_what_a_new_import_goes_behind() -> None:
    facts = facts_of("import os\nfrom mine import *\n\nhere()\n")
    spelled = spell_from(facts, "mine.other", "name", place(facts))
    new = carried_out(facts.source, "example.py", [Fix(spelled.edits)])
    assert new.raw.decode() == "import os\nfrom mine import *\nfrom mine.other import name\n\nhere()\n"
