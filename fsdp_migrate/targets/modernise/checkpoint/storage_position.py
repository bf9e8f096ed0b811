"""FSDP702: the storage of a distributed checkpoint by position.

Sources: catalogue dcp-save-load (2.2.2 and 2.3.1, state_dict_saver.py and state_dict_loader.py; `_api_bc_check` in
2.3.1 to 2.15.0, checkpoint/utils.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.made_calls import made_calls
from fsdp_migrate.code.torch_names import last_words, torch_path
from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import ordered_arguments
from fsdp_migrate.findings import Finding, Fix
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding

_PACKAGE = "torch.distributed.checkpoint"
_STORAGE = {
    f"{_PACKAGE}.save": "storage_writer",
    f"{_PACKAGE}.state_dict_saver.save": "storage_writer",
    f"{_PACKAGE}.load": "storage_reader",
    f"{_PACKAGE}.state_dict_loader.load": "storage_reader",
}
_WORDS = last_words(_STORAGE)
# What every release takes beside the storage; with anything else a call is more than old-fashioned.
_COMMON = ("planner", "process_group")
_KEYWORD_SINCE = Version("2.3")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find calls whose second of two positions is the storage."""
    for made in made_calls(facts, _WORDS):
        call, seen = made.call, made.seen
        storage = _STORAGE.get(torch_path(facts, seen.func) or "")
        if storage is None or len(seen.args) != 2 or made.unread:
            continue
        if any(keyword.arg not in _COMMON for keyword in seen.keywords):
            continue
        if not any(release >= _KEYWORD_SINCE for release in facts.gates.alive(call)):
            continue
        names: dict[ast.expr, str] = {seen.args[1]: storage}
        arguments = tuple(
            Argument(argument.arg if isinstance(argument, ast.keyword) else names.get(argument), index)
            for index, argument in enumerate(ordered_arguments(call))
        )
        verdict = Verdict(Fix((RewriteCall(facts.source.span(call), None, arguments),)))
        message = f"`{storage}` by position is deprecated since torch 2.3: pass it by keyword"
        yield finding(facts, card, seen.args[1], facts.statement(call), message, verdict)


_SAVE = f"import {_PACKAGE} as dcp\n\ndcp.save(state, writer)\n"
_LOAD = f"from {_PACKAGE} import load\n\nload(state, FileSystemReader(path), planner=planner)\n"

RULE = Rule(
    RuleCard(
        code="FSDP702",
        name="positional-checkpoint-storage",
        summary="the storage of a distributed checkpoint by position in `dcp.save` or `dcp.load`",
        explanation="""\
torch 2.2 accepted `save(state_dict, storage_writer)` and `load(state_dict, storage_reader)` by position. Since 2.3
only the state dict is positional. A call with exactly two positions still works, and warns that the order of the
arguments has changed. The keywords are the same on every release that has these functions.""",
        applicability="safe",
        deprecated="2.3",
        floor="2.2",
        flags=(
            Example(before=_SAVE, after=_SAVE.replace("writer)", "storage_writer=writer)"), torch=">=2.2"),
            Example(before=_LOAD, after=_LOAD.replace("FileS", "storage_reader=FileS"), torch=">=2.4"),
        ),
        leaves=(
            f"import {_PACKAGE} as dcp\n\ndcp.save(state, storage_writer=writer)\n",
            f"import {_PACKAGE} as dcp\n\ndcp.save(state, checkpoint_id=path)\n",
        ),
        url="https://pytorch.org/docs/stable/distributed.checkpoint.html",
    ),
    words=(),
    check=check,
    names=lambda: _STORAGE,
)
