"""`rewrite --interactive`: asks about each fix, as `git add -p` does about each hunk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click

from fsdp_migrate.findings import UNUSED_SUPPRESSION, Applicability, Finding
from fsdp_migrate.planning.parts import Change
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.report import diff, plain, text
from fsdp_migrate.rules import find
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.transactions import Transaction


class Key(NamedTuple):
    """An answer: what it does, and whether it is one for this fix."""

    meaning: str
    fits: Callable[[Transaction], bool] = lambda one: True


def _is_safe(one: Transaction) -> bool:
    return one.grade is Applicability.SAFE


def _can_be_silenced(one: Transaction) -> bool:
    return len(one.paths) == 1 and one.rule != UNUSED_SUPPRESSION


KEYS = {
    "y": Key("make this fix"),
    "n": Key("do not make it"),
    "i": Key("do not make it, and write a comment that silences the finding", _can_be_silenced),
    "a": Key("make it and all later safe fixes of this rule", _is_safe),
    "s": Key("skip this rule: make none of its later fixes"),
    "d": Key("skip this file: make no later fix that changes it"),
    "e": Key("explain the rule"),
    "q": Key("quit: make no later fix; those already accepted are made"),
    "?": Key("list the answers"),
}


class Asking:
    """Asks on the terminal, once about each fix. What the answer means for later fixes is not asked again."""

    def __init__(self) -> None:
        self._said: dict[Finding, bool] = {}
        self._silenced: set[Finding] = set()
        self._all_of: set[str] = set()
        self._no_rules: set[str] = set()
        self._no_files: set[str] = set()
        self._is_over = False

    def takes(self, transaction: Transaction, first: Finding, changes: Callable[[], Sequence[Change]]) -> bool:
        """As `Chooser.takes`."""
        if first not in self._said:
            self._said[first] = self._answer(transaction, first, changes)
        return self._said[first]

    def silences(self, first: Finding) -> bool:
        """As `Chooser.silences`."""
        return first in self._silenced

    def _answer(self, one: Transaction, first: Finding, changes: Callable[[], Sequence[Change]]) -> bool:
        if self._is_over or one.rule in self._no_rules or not self._no_files.isdisjoint(one.paths):
            return False
        # The effect of an unsafe fix differs from place to place, so each is asked about.
        if one.rule in self._all_of and one.grade is Applicability.SAFE:
            return True
        _show(one, changes())
        key = _asked(one)
        if key == "i":
            self._silenced.add(first)
        elif key == "a":
            self._all_of.add(one.rule)
        elif key == "s":
            self._no_rules.add(one.rule)
        elif key == "d":
            self._no_files.update(one.paths)
        elif key == "q":
            self._is_over = True
        return key in ("y", "a")


def is_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _asked(one: Transaction) -> str:
    """The answer, one of `KEYS`. The end of the input and Ctrl-C quit."""
    fitting = [key for key, value in KEYS.items() if value.fits(one)]
    while True:
        try:
            key = click.prompt(f"Make this fix [{','.join(fitting)}]?", prompt_suffix=" ").strip().lower()
        except click.Abort:
            click.echo()
            return "q"
        if key == "e" and (card := find(one.rule)) is not None:
            text.print_card(card, card.severity_on(TorchRange.default()))
        elif key in fitting and key != "?":
            return str(key)
        else:
            text.print_document("\n".join(f"{name}  {KEYS[name].meaning}" for name in fitting))


def _show(one: Transaction, changes: Sequence[Change]) -> None:
    text.print_document(f"\n{plain.finding_line(one.finding)}")
    for change in changes:
        name = diff.patch_name(change.path)
        text.print_diff(diff.unified(name, change.before, change.after, created=change.created))
