"""FSDP821 and FSDP822: torch.distributed.launch, and the option it passes to scripts.

Sources: catalogue launch-module and launch-local-rank (1.13.1 run.py:720, 2.0.0 run.py:752).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.rules.flat_classes import template_around
from fsdp_migrate.source import Span

_UNDERSCORED = "--local_rank"
_DASHED = "--local-rank"
_DASHED_SINCE = "2.0"
_LAUNCH = "torch.distributed.launch"
_COMMAND = re.compile(r"-m\s+torch\.distributed\.launch\b")
# A string that is only looked for in other text starts nothing.
_LOOKS = ("startswith", "endswith", "find", "index", "count", "replace")


def check_local_rank(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find options for the local rank that lack the spelling with a dash."""
    options = [call for call in facts.structure.calls if getattr(call.func, "attr", None) == "add_argument"]
    if any(_DASHED in _strings(call) for call in options):
        return
    for call in options:
        if _UNDERSCORED not in _strings(call) or not _gets_dashes(facts, call):
            continue
        message = f"torch.distributed.launch passes `{_DASHED}=N` since torch {_DASHED_SINCE}, which this option is not"
        yield finding(facts, card, call, facts.statement(call), message, _verdict(facts, call), _severity(facts))


def _gets_dashes(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a release that gets to `call` passes the option with a dash."""
    return any(release >= Version(_DASHED_SINCE) for release in facts.gates.alive(call))


def _strings(call: ast.Call) -> list[object]:
    return [argument.value for argument in call.args if isinstance(argument, ast.Constant)]


def _severity(facts: ModuleFacts) -> Severity:
    """Nothing fails where the script is started otherwise: what tells is whether the file names the launcher."""
    if b"distributed.launch" not in facts.source.data:
        return Severity.HINT
    methods = {node.attr for node in facts.structure.attributes}
    ignored = "parse_known_args" in methods and "parse_args" not in methods
    return Severity.CHANGES if ignored else Severity.BREAKS


def _verdict(facts: ModuleFacts, call: ast.Call) -> Verdict:
    if len(call.args) != 1:
        return manual(f"add `{_DASHED}`; the first long option string names the attribute")
    span = facts.source.span(call.args[0])
    written = facts.source.segment(span)
    if written.strip("'\"") != _UNDERSCORED:
        return manual(f"the option string is written in an unusual way: add `{_DASHED}`")
    text = written.replace(_UNDERSCORED, _DASHED)
    return Verdict(Fix((Replace(Span(span.start, span.start), f"{text}, "),)))


def check_launch(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find imports of the module, and strings that start it."""
    for statement in facts.structure.imports:
        if any(f"{name}.".startswith(f"{_LAUNCH}.") for name in _imported(statement)) and facts.reached(statement):
            verdict = manual("import `torch.distributed.run`; its `parse_args` and `run` take other options")
            yield finding(facts, card, statement, statement, _message(), verdict)
    seen: set[ast.AST] = set()
    for string in facts.structure.strings:
        if _starts_launch(facts, string) and facts.reached(string):
            place = template_around(facts, string) or string
            if place not in seen:
                seen.add(place)
                verdict = manual("use `torchrun`, or `torch.distributed.run`: the local rank is in LOCAL_RANK then")
                yield finding(facts, card, place, facts.statement(string), _message(), verdict)


def _imported(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if statement.level:
        return []
    return [statement.module or "", *(f"{statement.module}.{alias.name}" for alias in statement.names)]


def _starts_launch(facts: ModuleFacts, string: ast.Constant) -> bool:
    """Whether a string is the module's name in a list of arguments, or a command with it."""
    if not isinstance(string.value, str) or _LAUNCH not in string.value:
        return False
    parent = facts.structure.parents[string]
    if isinstance(parent, ast.Call) and getattr(parent.func, "attr", None) in _LOOKS:
        return False
    if isinstance(parent, (ast.Expr, ast.Compare)):
        return False
    if string.value == _LAUNCH:
        return isinstance(parent, (ast.List, ast.Tuple))
    return _COMMAND.search(string.value) is not None


def _message() -> str:
    return f"`{_LAUNCH}` is deprecated, and says so at every start: `torchrun` takes its place"


_IMPORT = "import argparse\nimport torch.distributed as dist\n\nparser = argparse.ArgumentParser()\n"

LOCAL_RANK = Rule(
    RuleCard(
        code="FSDP821",
        name="local-rank-option",
        summary="an option `--local_rank` where torch.distributed.launch passes `--local-rank`",
        explanation="""\
`python -m torch.distributed.launch` passes `--local_rank=N` up to torch 1.13 and `--local-rank=N` since 2.0: a script
that knows only the old option stops with "unrecognized arguments" or, with `parse_known_args`, goes on without it.
`torchrun` passes neither. With both spellings a script runs everywhere; the attribute stays `local_rank`.

It breaks where the file itself names torch.distributed.launch, in a comment say; elsewhere this is a hint.""",
        applicability="safe or manual",
        severity=Severity.BREAKS,
        flags=(
            Example(
                before=_IMPORT + 'parser.add_argument("--local_rank", type=int, default=-1)\n',
                after=_IMPORT + 'parser.add_argument("--local-rank", "--local_rank", type=int, default=-1)\n',
            ),
            Example(
                before=_IMPORT + 'parser.add_argument("--gpu", "--local_rank", type=int)\n',
                note="the first option string names the attribute",
            ),
            Example(
                before="# python -m torch.distributed.launch train.py\nimport argparse\n\n"
                'parser = argparse.ArgumentParser()\nparser.add_argument("--local_rank", type=int)\n',
                after="# python -m torch.distributed.launch train.py\nimport argparse\n\n"
                'parser = argparse.ArgumentParser()\nparser.add_argument("--local-rank", "--local_rank", type=int)\n',
            ),
        ),
        leaves=(_IMPORT + 'parser.add_argument("--local_rank", "--local-rank", type=int)\n',),
        url="https://pytorch.org/docs/stable/elastic/run.html",
    ),
    needles=(_UNDERSCORED,),
    check=check_local_rank,
    neighbour=True,
    near=_LAUNCH,
)

LAUNCH = Rule(
    RuleCard(
        code="FSDP822",
        name="distributed-launch",
        summary="`torch.distributed.launch`, imported or started by a command in a string",
        explanation="""\
The module is deprecated in favour of `torchrun` (`python -m torch.distributed.run`), which gives the local rank in the
environment variable `LOCAL_RANK` and not as an option. Shell scripts are not looked at.""",
        applicability="manual",
        deprecated="1.11",
        flags=(
            Example(
                before="import subprocess\n\nsubprocess.run(['python', '-m', 'torch.distributed.launch', 'train.py'])\n"
            ),
            Example(before="from torch.distributed.launch import main\n\nmain()\n"),
        ),
        leaves=(
            '"""Start it with python -m torch.distributed.launch."""\nimport torch.distributed.launcher\n',
            "import subprocess\n\nsubprocess.run(['torchrun', 'train.py'])\n",
        ),
        url="https://pytorch.org/docs/stable/elastic/run.html",
    ),
    needles=(_LAUNCH, "distributed import launch"),
    check=check_launch,
)
RULES = (LOCAL_RANK, LAUNCH)
