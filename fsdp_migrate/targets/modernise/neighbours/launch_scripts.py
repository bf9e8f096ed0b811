"""Commands in scripts that start torch.distributed.launch, and what starts the same program without it.

The options of the two are the same but for `--use_env`, which torchrun has always on (torch 2.13 launch.py, run.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from fsdp_migrate.edits import Replace
from fsdp_migrate.findings import Fix
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Verdict, manual
from fsdp_migrate.source import Span
from fsdp_migrate.workspace import disk
from fsdp_migrate.workspace.beside import ScriptText
from fsdp_migrate.workspace.beside.script_text import Word

_MODULE = "torch.distributed.launch"
_RUN = "torch.distributed.run"
_NAMED = re.compile(r"-m[\s\\'\",]*torch\.distributed\.launch\b")
_ENVIRONMENT = ("--use_env", "--use-env")
_AS_MODULE = ("-m", "--module")
# Options of the launcher without a value.
_SWITCHES = ("--standalone", "--no_python", "--no-python", "--run_path", "--run-path", *_ENVIRONMENT)
_PLAIN = re.compile(r"(?P<before>[@+-]*)python[\d.]*")
_LITERAL = re.compile(r"[\w./-]+")
_UNSAFE = "`torchrun` passes no `--local_rank`, and has to be on the PATH of the interpreter that runs now"
_IN_TEXT = "the command stands in a text: use `torchrun` there, and read the local rank from LOCAL_RANK"
_LEVELS = 6


class Place(NamedTuple):
    """The launcher in a command, the whole command, and what to do."""

    span: Span
    command: Span
    verdict: Verdict


def commands_in(source: ScriptText) -> Iterator[Place]:
    """The commands that start the launcher."""
    comments = source.comment_spans
    for match in _NAMED.finditer(source.text):
        span = Span(source.at(match.start()), source.at(match.end()))
        if any(comment.contains(span) for comment in comments):
            continue
        words = next((one for one in source.words if one[0].span.start <= span.start < one[-1].span.end), None)
        number = next(
            (n for n, word in enumerate(words or ()) if word.text == _MODULE and word.span.end == span.end), 0
        )
        if words is None or not number or words[number - 1].text != "-m":
            line = Span(span.start, span.end)
            yield Place(span, line, manual(_IN_TEXT))
        else:
            command = Span(words[0].span.start, words[-1].span.end)
            yield Place(
                Span(words[number - 1].span.start, words[number].span.end), command, _verdict(source, words, number)
            )


def _verdict(source: ScriptText, words: Sequence[Word], number: int) -> Verdict:
    """What to do about a command whose word `number` is the launcher."""
    given = [n for n in range(number + 1, len(words)) if words[n].text in _ENVIRONMENT]
    given = [n for n in given if n < _program_at(words, number)]
    if not given and (reason := _why_not(source, words, number)) is not None:
        return manual(reason)
    edits = [Replace(Span(words[n - 1].span.end, words[n].span.end), "") for n in given]
    plain = _PLAIN.fullmatch(words[number - 2].text) if number >= 2 else None
    if plain is None:
        return Verdict(Fix((Replace(words[number].span, _RUN), *edits)), unsafe=_UNSAFE)
    start = words[number - 2].span.start + len(plain["before"])
    return Verdict(Fix((Replace(Span(start, words[number].span.end), "torchrun"), *edits)), unsafe=_UNSAFE)


def _program_at(words: Sequence[Word], number: int) -> int:
    """The number of the word that names the started program; their count where no word can be told to."""
    at = number + 1
    while at < len(words):
        text = words[at].text
        if text in _AS_MODULE:
            return at + 1
        if not text.startswith("-"):
            if _LITERAL.fullmatch(text):
                return at
            at += 1  # a variable: options, mostly
        else:
            at += 1 if "=" in text or text in _SWITCHES else 2
    return len(words)


def _why_not(source: ScriptText, words: Sequence[Word], number: int) -> str | None:
    """Why a program may need the option for the local rank; None if it reads LOCAL_RANK."""
    at = _program_at(words, number)
    if at >= len(words) or not _LITERAL.fullmatch(words[at].text):
        return "the started program is not written here: see that it reads LOCAL_RANK, then use `torchrun`"
    program = words[at].text
    if words[at - 1].text in _AS_MODULE:
        program = program.replace(".", "/") + ".py"
    folder = os.path.dirname(os.path.abspath(source.path))
    for _ in range(_LEVELS):
        try:
            raw = disk.contents(os.path.join(folder, program))
        except OSError:
            if folder == os.getcwd() or os.path.lexists(os.path.join(folder, ".git")):
                break
            folder = os.path.dirname(folder)
            continue
        if b"LOCAL_RANK" in raw:
            return None
        return f"{program} does not read LOCAL_RANK: let it, then use `torchrun`"
    return f"{program} is not found from here: see that it reads LOCAL_RANK, then use `torchrun`"
