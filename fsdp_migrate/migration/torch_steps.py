"""The steps of what `rewrite` fixes and leaves: the lower bound, safe fixes, and the rest rule by rule."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from packaging.version import Version

from fsdp_migrate.findings import UNPARSABLE, Applicability, Finding, Severity
from fsdp_migrate.fingerprints import numbered
from fsdp_migrate.migration.model import Diff, Item, Step
from fsdp_migrate.report import Plan, diff, plain, source_of
from fsdp_migrate.rules import find
from fsdp_migrate.source import Source
from fsdp_migrate.targets.fsdp2.steps import TOOL, YOU
from fsdp_migrate.targets.fsdp2.target import Place

# In a file with more unsafe fixes these have no diff each: making one takes as long as reading the file.
MOST_DIFFS = 50
# Commands name so many files; beyond, the paths of the run.
_MOST_FILES = 20
_SEVERITIES = list(Severity)
_HOLDS = "the program runs, and its tests pass as before"
_DECIDED = "the difference is accepted, or avoided, at each place"


class Words(NamedTuple):
    """How the commands of a run are written: its paths and options, and the steps that its texts come `after`."""

    paths: tuple[str, ...]
    options: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def command(self, *words: str, files: Iterable[str] = ()) -> str:
        """A command line; it names some files where there are few."""
        named = sorted(set(files))
        paths = named if 0 < len(named) <= _MOST_FILES else self.paths
        return shlex.join(["fsdp-migrate", *words, *self.options, *paths])


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
        after=words.after,
    )


def decisions(plan: Plan, words: Words) -> Iterator[Step]:
    """A step for each rule whose fix somebody has to accept, and for each that somebody has to do by hand.

    What breaks comes first.
    """
    found = [one for one in plan.findings if one.code != UNPARSABLE]
    items = _with_diffs(plan, found)
    for unsafe, make in ((True, _accept), (False, _by_hand)):
        own = [one for one in items if (one.applicability is Applicability.UNSAFE) == unsafe]
        by_code: dict[str, list[Item]] = {}
        for one in own:
            by_code.setdefault(one.code, []).append(one)
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
        todo="read what differs at each place; where it may, the command makes the fix, and where not, change the code",
        items=items,
        codes=(code,),
        after=words.after,
    )


def _by_hand(code: str, items: tuple[Item, ...], words: Words) -> Step:
    return Step(
        f"manual-{code}",
        f"Change by hand {code}: {_summary(code)}",
        YOU,
        _told(item.message for item in items),
        holds=f"no place of {code} is left, or a comment says why it stays",
        check=words.command("lint", "--select", code, files=[item.place.path for item in items]),
        todo=_told(item.reason or item.message for item in items),
        items=items,
        codes=(code,),
        after=words.after,
    )


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

    def diffs(found: Finding) -> tuple[Diff, ...]:
        if found.applicability is not Applicability.UNSAFE or unsafe[found.path] > MOST_DIFFS:
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
