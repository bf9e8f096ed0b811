"""FSDP821 and FSDP822: torch.distributed.launch, and the option it passes to scripts.

Sources: catalogue launch-module and launch-local-rank (1.13.1 run.py:720, 2.0.0 run.py:752).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from packaging.version import Version

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.source import Span
from fsdp_migrate.targets.modernise.neighbours.launch_scripts import commands_in
from fsdp_migrate.workspace.beside import ScriptText

_UNDERSCORED = "--local_rank"
_DASHED = "--local-rank"
_DASHED_SINCE = "2.0"
_LAUNCH = "torch.distributed.launch"
_COMMAND = re.compile(r"-m[\s\\'\"]*torch\.distributed\.launch\b")
_TELLS = re.compile(rf"{_COMMAND.pattern}|\b(?:use|run)\s+[`'\"]*torch\.distributed\.launch\b", re.IGNORECASE)
# A string that is only looked for in other text starts nothing.
_LOOKS = ("startswith", "endswith", "find", "index", "count", "replace")
# Calls that run the module whose name they are given, or put it behind a `-m`.
_TAKES_MODULE = ("run_module", "import_module", "append")
# Calls that show their arguments to people, and do not run them too; classes of exceptions and warnings among them.
_SAYS = re.compile(
    r"^(?!.*(?:run|exec|call|launch|system|submit)).*(?:(?:^|_)(?:print|log|warn|info|debug|error|critical|exception|echo|secho|fail|skip|exit)|(?:[a-z]|^)(?:warning|Error"
    r"|Exception|Warning|Exit)$)|^(?:ArgumentParser|add_parser|deprecated)$"
)
_STREAMS = re.compile(r"(?:.*\.)?std(?:err|out)(?:\.write)?")
# What in a call, or as a key of a dict, names a text for people.
_TEXTS = ("help", "description", "usage", "epilog", "message", "msg", "reason", "help_text", "__doc__")
_REWORKS = ("dedent", "cleandoc", "format", "strip", "lstrip", "rstrip", "join")


def check_local_rank(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find options for the local rank that lack the spelling with a dash."""
    options = [call for call in facts.structure.calls if getattr(call.func, "attr", None) == "add_argument"]
    if any(_DASHED in _strings(call) for call in options):
        return
    for call in options:
        if _UNDERSCORED not in _strings(call) or not _gets_dashes(facts, call):
            continue
        message = f"torch.distributed.launch passes `{_DASHED}=N` since torch {_DASHED_SINCE}: add that spelling"
        yield finding(facts, card, call, facts.statement(call), message, _verdict(facts, call), _severity(facts))


def _gets_dashes(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a release that gets to `call` passes the option with a dash."""
    return any(release >= Version(_DASHED_SINCE) for release in facts.gates.alive(call))


def _strings(call: ast.Call) -> list[object]:
    return [argument.value for argument in call.args if isinstance(argument, ast.Constant)]


def _severity(facts: ModuleFacts) -> Severity:
    """Nothing fails where the script is started otherwise: what tells is whether the file names the launcher."""
    if b"distributed.launch" not in facts.source.written:
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
        return manual(f"the option is not written as a plain string: add `{_DASHED}`")
    shortened = (str(text.value) for text in facts.structure.strings if str(text.value).startswith("--l"))
    if any(len(text) < len(_UNDERSCORED) and _UNDERSCORED.startswith(text) for text in shortened):
        return manual(
            f"the file abbreviates the option, which would match both: add `{_DASHED}` and write the option in full"
        )
    text = written.replace(_UNDERSCORED, _DASHED)
    return Verdict(Fix((Replace(Span(span.start, span.start), f"{text}, "),)))


def check_launch(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find imports of the module, commands that start it, and texts that tell people to."""
    for statement in facts.structure.imports:
        if any(f"{name}.".startswith(f"{_LAUNCH}.") for name in _imported(statement)) and facts.reached(statement):
            verdict = manual("import `torch.distributed.run`; its `parse_args` and `run` take other options")
            yield finding(facts, card, statement, statement, _MESSAGE, verdict)
    seen: set[ast.AST] = set()
    for string in facts.structure.strings:
        if not isinstance(string.value, str) or _LAUNCH not in string.value or not facts.reached(string):
            continue
        place = facts.template_around(string) or string
        if place not in seen and (grade := _grade(facts, string, string.value)):
            seen.add(place)
            said = grade is Severity.HINT
            verdict = manual("name `torchrun` instead" if said else _INSTEAD)
            message = _MESSAGE_OF_TEXT if said else _MESSAGE
            yield finding(facts, card, place, facts.statement(string), message, verdict, grade)
    if isinstance(facts.source, ScriptText):
        for one in commands_in(facts.source):
            yield finding(facts, card, one.span, one.command, _MESSAGE, one.verdict)
    for command, text in facts.source.commands:
        for match in _COMMAND.finditer(text):
            before, named = (
                len(part.encode("utf-8", "surrogatepass")) for part in (text[: match.start()], match.group())
            )
            found = Span(command.start + before, command.start + before + named)
            if not any(comment.contains(found) for comment, _ in facts.source.comments):
                yield finding(facts, card, found, command, _MESSAGE, manual(_INSTEAD))


_MESSAGE = f"`{_LAUNCH}` is deprecated since torch 1.11: use `torchrun`"
_MESSAGE_OF_TEXT = f"this text names `{_LAUNCH}`, which is deprecated since torch 1.11: use `torchrun`"
_INSTEAD = "use `torchrun` or `torch.distributed.run`, and read the local rank from LOCAL_RANK"


def _imported(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if statement.level:
        return []
    return [statement.module or "", *(f"{statement.module}.{alias.name}" for alias in statement.names)]


def _grade(facts: ModuleFacts, string: ast.Constant, text: str) -> Severity | None:
    """What a string that names the module comes to: a command that may be run, a hint in prose, or nothing."""
    parent = facts.structure.parents[string]
    if isinstance(parent, ast.Compare) or getattr(getattr(parent, "func", None), "attr", None) in _LOOKS:
        return None
    if text == _LAUNCH:
        return Severity.DEPRECATED if _is_run(facts, string, parent) else None
    if _is_said(facts, string):
        return Severity.HINT if _TELLS.search(text) else None
    return Severity.DEPRECATED if _COMMAND.search(text) else None


def _is_run(facts: ModuleFacts, string: ast.Constant, parent: ast.AST) -> bool:
    """Whether the module's name is an argument behind `-m`, starts a list of arguments, or is what a call runs."""
    if isinstance(parent, ast.Call):
        around: Sequence[ast.expr] = parent.args
        taken = parent.args[:1] == [string] and _name(parent.func) in _TAKES_MODULE
    elif isinstance(parent, (ast.List, ast.Tuple)):
        around = parent.elts
        taken = isinstance(parent, ast.List) and isinstance(facts.structure.parents[parent], (ast.BinOp, ast.Call))
        taken = taken and around[0] is string
    else:
        return False
    index = around.index(string) if string in around else 0
    before = around[index - 1] if index else None
    return taken or (isinstance(before, ast.Constant) and before.value == "-m")


def _is_said(facts: ModuleFacts, node: ast.AST, *, through_names: bool = True) -> bool:
    """Whether a text is for people only: a docstring, a message, the text of an error or of a parser's help."""
    parents = facts.structure.parents
    child, parent = node, parents[node]
    while True:
        if isinstance(parent, (ast.Raise, ast.Assert, ast.Expr)):
            return True
        if isinstance(parent, ast.keyword):
            if parent.arg in _TEXTS:
                return True
        elif isinstance(parent, ast.Dict):
            return any(isinstance(k, ast.Constant) and k.value in _TEXTS and v is child for k, v in _items(parent))
        elif isinstance(parent, ast.Call):
            if _says(parent):
                return True
            if _name(parent.func) not in _REWORKS:
                return False
        elif isinstance(parent, (ast.Assign, ast.AnnAssign)):
            target = parent.targets[0] if isinstance(parent, ast.Assign) else parent.target
            return _name(target) in _TEXTS or (through_names and _only_said(facts, target))
        elif not isinstance(
            parent, (ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.IfExp, ast.Attribute, ast.Tuple)
        ):
            return False
        child, parent = parent, parents[parent]


def _items(node: ast.Dict) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    return zip(node.keys, node.values)


def _says(call: ast.Call) -> bool:
    """Whether a call shows its arguments to people; what it prints into a file may be run."""
    stream = next((ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "file"), "stderr")
    name = _name(call.func) or ""
    return bool(_STREAMS.fullmatch(stream) and (_SAYS.search(name) or _STREAMS.fullmatch(ast.unparse(call.func))))


def _only_said(facts: ModuleFacts, target: ast.expr) -> bool:
    """Whether a name is read, and only to show its text to people."""
    scope = facts.scope(target).lookup(target.id) if isinstance(target, ast.Name) else None
    if scope is None or not isinstance(target, ast.Name):
        return False
    if scope.is_module and facts.project is not None and facts.project.is_imported(target.id):
        return False
    uses = [use for user in scope.users.get(target.id, ()) for use in user.uses[target.id]]
    return bool(uses) and all(_is_said(facts, use, through_names=False) for use in uses)


def _name(node: ast.expr) -> str | None:
    return getattr(node, "attr", getattr(node, "id", None))


_IMPORT = "import argparse\nimport torch.distributed as dist\n\nparser = argparse.ArgumentParser()\n"

LOCAL_RANK = Rule(
    RuleCard(
        code="FSDP821",
        name="local-rank-option",
        summary="an option `--local_rank` where torch.distributed.launch passes `--local-rank`",
        explanation="""\
`python -m torch.distributed.launch` passes `--local_rank=N` up to torch 1.13 and `--local-rank=N` since 2.0. A script
that only accepts the old option stops with "unrecognized arguments" or, with `parse_known_args`, continues without it.
`torchrun` passes neither. The fix adds the new spelling; the attribute stays `local_rank`.

It breaks if the file itself names torch.distributed.launch, for example in a comment. Otherwise it is a hint.""",
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
    words=(_UNDERSCORED,),
    check=check_local_rank,
    scope="launched",
)

LAUNCH = Rule(
    RuleCard(
        code="FSDP822",
        name="distributed-launch",
        summary="`torch.distributed.launch`, imported or started by a command in a string, a notebook or a script",
        explanation="""\
The module is deprecated since torch 1.11 in favour of `torchrun` (`python -m torch.distributed.run`), which passes the
local rank in the environment variable `LOCAL_RANK` instead of an option.

Commands are reported in strings, in lists of arguments, and in notebooks: lines such as `!python -m ...`, and cells
with `%%bash`, `%%sh`, `%%script bash` or `%%writefile run.sh`. A text that only tells people to run it (a docstring, a
log message, an error, a parser's help) is a hint.

Scripts (`.sh`, `.slurm`, `.sbatch`, `Makefile`, `Dockerfile*`) are checked if they are named, or with the setting
`scripts`. There a fix writes `torchrun`, or `torch.distributed.run` where the interpreter or its flags say more, if
`--use_env` is given or the started program is found and reads LOCAL_RANK. Commands in quotes, lists and texts for other
programs are manual.""",
        applicability="unsafe or manual",
        deprecated="1.11",
        flags=(
            Example(
                before="import subprocess\n\nsubprocess.run(['python', '-m', 'torch.distributed.launch', 'train.py'])\n"
            ),
            Example(before="from torch.distributed.launch import main\n\nmain()\n"),
            Example(before='"""Start it with python -m torch.distributed.launch."""\n', note="a hint: it runs nothing"),
        ),
        leaves=(
            "# processes are created by torch.distributed.launch\nimport torch.distributed.launcher\n",
            "import subprocess\n\nsubprocess.run(['torchrun', 'train.py'])\n",
        ),
        url="https://pytorch.org/docs/stable/elastic/run.html",
    ),
    words=(_LAUNCH, "distributed import launch"),
    check=check_launch,
    beside=(_LAUNCH,),
)
RULES = (LOCAL_RANK, LAUNCH)
