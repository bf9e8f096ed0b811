"""Flags of commands in scripts."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Span
from fsdp_migrate.workspace.beside.script_text import ScriptText, Word


class Flag(NamedTuple):
    """A flag with the word behind it, empty if that is a flag too.

    `command` is where the whole command stands, `beside` what is written in it.
    """

    word: Word
    value: str
    command: Span
    beside: str


def flags(facts: ModuleFacts, program: str, names: Collection[str]) -> Iterator[Flag]:
    """The flags with some names in commands of scripts that have a word like a program's name."""
    if not isinstance(facts.source, ScriptText):
        return
    for words in facts.source.words:
        if not any(program in word.text for word in words):
            continue
        for number, word in enumerate(words):
            name, equals, value = word.text.partition("=")
            if name in names:
                behind = words[number + 1].text if not equals and number + 1 < len(words) else value
                value = "" if behind.startswith("--") else behind.strip("\"'")
                command = Span(words[0].span.start, words[-1].span.end)
                yield Flag(word, value, command, " ".join(one.text for one in words))
