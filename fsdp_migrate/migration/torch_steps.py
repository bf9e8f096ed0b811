"""The steps of what `rewrite` fixes and leaves: the lower bound, safe fixes, and the rest rule by rule."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TypeAlias

from packaging.version import Version

from fsdp_migrate.findings import UNPARSABLE, Applicability, Finding, Severity
from fsdp_migrate.fingerprints import numbered
from fsdp_migrate.migration.model import Cause, Diff, Item, Step
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.report import Plan, diff, plain, source_of
from fsdp_migrate.rules import find
from fsdp_migrate.rules.index import OF_TARGETS
from fsdp_migrate.source import Source
from fsdp_migrate.targets.fsdp2.steps import TOOL, YOU
from fsdp_migrate.targets.fsdp2.target import Place

# In a file with more unsafe fixes these have no diff each: making one takes as long as reading the file.
MOST_DIFFS = 50
# Nor have those that come behind so many others in a plan: nobody reads them one by one.
MOST_DIFFS_IN_ALL = 1_000
# Commands name so many files; beyond, the paths of the run.
_MOST_FILES = 20
_SEVERITIES = list(Severity)
_HOLDS = "the program runs, and its tests pass as before"
_DECIDED = "the difference is accepted, or avoided, at each place"
_ACCEPT = "read what differs at each place; where it may, the command makes the fix, and where not, change the code"
# The rules about settings of frameworks, each with the name of the framework.
OF_FRAMEWORKS = {entry.code: entry.name.partition("-")[0] for entry in OF_TARGETS["fsdp2"]}


_Make: TypeAlias = "Callable[[str, tuple[Item, ...], Words], Step]"


class Words(NamedTuple):
    """How the commands of a run are written: its paths and options.

    `after` has the steps that change the texts of the run before it, each with the files that it changes.
    """

    paths: tuple[str, ...]
    options: tuple[str, ...] = ()
    after: tuple[tuple[str, frozenset[str]], ...] = ()

    def command(self, *words: str, files: Iterable[str] = ()) -> str:
        """A command line; it names some files where there are few."""
        named = sorted(set(files))
        paths = named if 0 < len(named) <= _MOST_FILES else self.paths
        return shlex.join(["fsdp-migrate", *words, *self.options, *paths])

    def steps_before(self, files: Iterable[str]) -> tuple[str, ...]:
        """The steps that change one of some files before."""
        named = set(files)
        return tuple(step for step, changed in self.after if not named.isdisjoint(changed))

    def behind(self, step: str, plan: Plan) -> Words:
        """The words for a run on the texts that a step leaves."""
        return self._replace(after=(*self.after, (step, frozenset(plan.changed)))) if plan.changes else self


def floors(plan: Plan, words: Words, least_of_target: Version) -> Iterator[Step]:
    """The lower bounds that settle findings if they are raised further than the target needs anyway."""
    higher = (one for one in plan.floors if Version(one.settled[-1][0]) > least_of_target)
    for number, floor in enumerate(higher, 1):
        stated = floor.stated
        places = () if stated.line is None else (Place(stated.file, stated.line),)
        least, _ = floor.settled[-1]
        yield Step(
            f"floor-{number}" if number > 1 else "floor",
            "Raise the lower bound of torch",
            YOU,
            str(floor),
            holds=f"{stated.file} states a torch that is not older than {least}, or you know who needs an older one",
            check=words.command("lint", "--min-torch"),
            todo=f"change `{stated.text}` in {stated.file} so that it starts at {least}, then plan again",
            places=places,
        )


def safe(plan: Plan, words: Words, name: str, title: str, why: str) -> Iterator[Step]:
    """What `rewrite` does by itself."""
    if not plan.changes:
        return
    before = {change.path: change.before for change in plan.changes}
    items = _items(plan.fixed, lambda path: _source(before.get(path), path))
    codes = tuple(sorted({item.code for item in items}))
    yield Step(
        name,
        title,
        TOOL,
        why,
        holds=_HOLDS,
        check=words.command("rewrite", "--check"),
        command=words.command("rewrite"),
        items=items,
        diffs=tuple(_diff(plan, one.path, one.before, one.after, created=one.created) for one in plan.changes),
        codes=codes,
        after=words.steps_before(plan.changed),
    )


def decisions(plan: Plan, words: Words) -> Iterator[Step]:
    """A step for each rule with fixes to accept, for each with places to do by hand, and for each framework.

    What breaks comes first.
    """
    found = [one for one in plan.findings if one.code != UNPARSABLE]
    kinds: dict[_Make, dict[str, list[Item]]] = {_accept: {}, _by_hand: {}, _framework: {}}
    for one in _with_diffs(plan, found):
        unsafe = one.applicability is Applicability.UNSAFE
        kind: _Make = _framework if one.code in OF_FRAMEWORKS else _accept if unsafe else _by_hand
        kinds[kind].setdefault(one.code, []).append(one)
    for make, by_code in kinds.items():
        for code in sorted(by_code, key=lambda code: (min(map(_rank, by_code[code])), code)):
            yield make(code, tuple(by_code[code]), words)


def _rank(item: Item) -> int:
    return _SEVERITIES.index(item.severity)


def _accept(code: str, items: tuple[Item, ...], words: Words) -> Step:
    files = [item.place.path for item in items]
    return Step(
        f"accept-{code}",
        f"Accept or avoid {code}: {_summary(code)}",
        YOU,
        _told(item.reason or item.message for item in items),
        holds=_DECIDED,
        check=words.command("lint", "--select", code, files=files),
        command=words.command("rewrite", "--unsafe-fixes", "--select", code, files=files),
        todo=_ACCEPT,
        items=items,
        causes=_causes(items),
        codes=(code,),
        after=words.steps_before(files),
    )


def _by_hand(code: str, items: tuple[Item, ...], words: Words) -> Step:
    files = [item.place.path for item in items]
    return Step(
        f"manual-{code}",
        f"Change by hand {code}: {_summary(code)}",
        YOU,
        _told(item.message for item in items),
        holds=f"no place of {code} is left, or a comment says why it stays",
        check=words.command("lint", "--select", code, files=files),
        todo=_told(item.reason or item.message for item in items),
        items=items,
        causes=_causes(items),
        codes=(code,),
        after=words.steps_before(files),
    )


def _framework(code: str, items: tuple[Item, ...], words: Words) -> Step:
    """What one framework is told of FSDP, in calls, in YAML and by flags."""
    files = [item.place.path for item in items]
    fixed = [item.place.path for item in items if item.applicability is Applicability.UNSAFE]
    by_hand = len(items) - len(fixed)
    todo = _told(item.reason or item.message for item in items) if not fixed else _ACCEPT
    if fixed and by_hand:
        todo += f"; {plain.counted(by_hand, 'place')} without a fix: change by hand what the place says"
    return Step(
        f"framework-{OF_FRAMEWORKS[code]}",
        f"Change the settings of {OF_FRAMEWORKS[code]} ({code})",
        YOU,
        _told(item.message for item in items),
        holds=f"no setting is left that {code} finds",
        check=words.command("lint", "--select", code, files=files),
        command=words.command("rewrite", "--unsafe-fixes", "--select", code, files=fixed) if fixed else None,
        todo=todo,
        items=items,
        causes=_causes(items),
        codes=(code,),
        after=words.steps_before(files),
    )


def _causes(items: Iterable[Item]) -> tuple[Cause, ...]:
    """What the findings say, with the places of each; the reason of an unsafe fix is what differs."""
    said: dict[tuple[str, str | None], list[Place]] = {}
    for item in items:
        is_unsafe = item.applicability is Applicability.UNSAFE
        told = (item.reason or item.message, _ACCEPT) if is_unsafe else (item.message, item.reason)
        said.setdefault(told, []).append(item.place)
    return tuple(Cause(what, todo, tuple(places)) for (what, todo), places in said.items())


def _summary(code: str) -> str:
    card = find(code)
    return "" if card is None else card.summary


def _told(reasons: Iterable[str]) -> str:
    """The most frequent text, and how many others there are."""
    (first, _), *more = Counter(reasons).most_common()
    return first if not more else f"{first} (and {plain.counted(len(more), 'other reason')}, at the places)"


def _with_diffs(plan: Plan, findings: list[Finding]) -> tuple[Item, ...]:
    sources: dict[str, Source | None] = {}

    def source(path: str) -> Source | None:
        if path not in sources:
            sources[path] = plan.source(path)
        return sources[path]

    unsafe = Counter(one.path for one in findings if one.applicability is Applicability.UNSAFE)
    made = 0

    def diffs(found: Finding) -> tuple[Diff, ...]:
        nonlocal made
        if found.applicability is not Applicability.UNSAFE or unsafe[found.path] > MOST_DIFFS:
            return ()
        made += 1
        if made > MOST_DIFFS_IN_ALL:
            return ()
        texts = plan.texts_of(found, source) or {}
        return tuple(_diff(plan, path, plan.sources[path], new.raw) for path, new in texts.items())

    return _items(findings, source, diffs)


def _diff(plan: Plan, path: str, before: bytes, after: bytes, *, created: bool = False) -> Diff:
    name = diff.patch_name(plan.real_paths.get(path, path))
    return Diff(path, diff.unified(name, before, after, created=created))


def _items(
    findings: Iterable[Finding],
    source: Callable[[str], Source | None],
    diffs: Callable[[Finding], tuple[Diff, ...]] = lambda found: (),
) -> tuple[Item, ...]:
    items = []
    ordered = sorted(findings, key=lambda one: (one.path.split(os.sep), one.place))
    for path, own in groupby(ordered, key=lambda one: one.path):
        items += [
            Item(
                f"{one.finding.code} {path} {one.key} {one.occurrence}",
                one.finding.code,
                Place(path, one.finding.line, one.finding.cell),
                one.finding.message,
                one.finding.reason,
                one.finding.severity,
                one.finding.applicability,
                diffs(one.finding),
            )
            for one in numbered(own, source(path))
        ]
    return tuple(items)


def _source(raw: bytes | None, path: str) -> Source | None:
    return None if raw is None else source_of(raw, path)


def new_texts(plan: Plan) -> Mapping[str, bytes]:
    """The texts after a plan, by absolute path."""
    return {os.path.abspath(plan.real_paths.get(one.path, one.path)): one.after for one in plan.changes}
