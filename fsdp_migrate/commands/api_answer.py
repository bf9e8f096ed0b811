"""What the API data knows about a name: since when, with which parameters, deprecated where, importable from where."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from packaging.version import Version

from fsdp_migrate._version import __version__
from fsdp_migrate.report.json_format import SCHEMA_VERSION
from fsdp_migrate.spelling import closest
from fsdp_migrate.torch_api import PUBLISHED, TorchRange, data
from fsdp_migrate.torch_api.data import Deprecation

# How people call things in code and in questions.
_SHORT = {
    "FSDP": "FullyShardedDataParallel",
    "DDP": "DistributedDataParallel",
    "dist": "torch.distributed",
    "dcp": "torch.distributed.checkpoint",
}
_MOST_LISTED = 40
_MOST_PLACES = 8
_Value = TypeVar("_Value")


class UnknownName(ValueError):
    """A name that no known release has; the message is one line for the user."""


@dataclass(frozen=True)
class ReleaseSpan:
    """Consecutive known releases; `last` is None when the newest known release is among them."""

    first: str
    last: str | None

    def __str__(self) -> str:
        if self.last is None:
            return f"{self.first} and newer"
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


@dataclass(frozen=True)
class Place:
    """A dotted name that can be imported or reached, and on which releases.

    A private one is `needed` where releases have it in no public place.
    """

    name: str
    spans: tuple[ReleaseSpan, ...]
    needed: bool = False

    @property
    def private(self) -> bool:
        """Whether a module on the way is private."""
        return _in_private(self.name)


@dataclass(frozen=True)
class Answer:
    """One thing that a name can mean.

    `optional`: on these releases it depends on the build of torch. `signatures` are None where it cannot be called or
    its parameters are not recorded.
    """

    name: str
    kind: str
    spans: tuple[ReleaseSpan, ...]
    optional: tuple[ReleaseSpan, ...]
    signatures: tuple[tuple[ReleaseSpan, str | None], ...]
    deprecations: tuple[tuple[ReleaseSpan, Deprecation], ...]
    parameters: tuple[tuple[str, tuple[tuple[ReleaseSpan, Deprecation], ...]], ...]
    places: tuple[Place, ...]
    rules: tuple[tuple[str, str], ...]


def answers(query: str, torch: TorchRange | None = None) -> tuple[Answer, ...]:
    """Everything that `query`, a name with as much of its path as one likes, means on the releases of `torch`.

    Raises:
        UnknownName: no known release in the range has such a name.
    """
    groups = _matches(query)
    if not groups:
        near = closest(query, {part: None for name in data.names() for part in (name.rpartition(".")[2], name)})
        known = f"{PUBLISHED[0]} to {PUBLISHED[-1]}"
        raise UnknownName(f"no torch from {known} has {query!r} in a module that is covered{near}")
    found = [_answer(group, PUBLISHED if torch is None else torch.releases) for group in groups]
    there = [answer for answer in found if answer.spans or answer.optional]
    if not there:
        spans = sorted({span for group in groups for span in _answer(group, PUBLISHED).spans}, key=str)
        raise UnknownName(f"torch{torch} has no {query!r}; it is in torch {_text(spans)}")
    return tuple(sorted(there, key=_order))


def lines(found: tuple[Answer, ...]) -> Iterator[str]:
    """The answers for people: all about one, one line each of several."""
    if len(found) == 1:
        yield from _whole(found[0])
        return
    width = max(len(answer.name) for answer in found[:_MOST_LISTED])
    for answer in found[:_MOST_LISTED]:
        yield f"{answer.name:<{width}}  {answer.kind}, torch {_text(answer.spans or answer.optional)}"
    more = len(found) - _MOST_LISTED
    if more > 0:
        yield f"... and {more} more"
    yield "Give more of its path for signatures and deprecations."


def document(found: tuple[Answer, ...]) -> str:
    """The answers as JSON; `last` is null where the newest known release is included."""
    header = {"schema_version": SCHEMA_VERSION, "tool_version": __version__, "newest": str(PUBLISHED[-1])}
    return json.dumps({**header, "answers": [_plain(answer) for answer in found]}, indent=2)


def _plain(answer: Answer) -> dict[str, Any]:
    return {
        "name": answer.name,
        "kind": answer.kind,
        "in": [asdict(span) for span in answer.spans],
        "optional": [asdict(span) for span in answer.optional],
        "signatures": [asdict(span) | {"parameters": text} for span, text in answer.signatures if text is not None],
        "deprecations": [asdict(span) | found._asdict() for span, found in answer.deprecations],
        "deprecated_parameters": {
            name: [asdict(span) | found._asdict() for span, found in runs] for name, runs in answer.parameters
        },
        "places": [{"name": place.name, "in": [asdict(span) for span in place.spans]} for place in answer.places],
        "rules": [code for code, _ in answer.rules],
    }


def _matches(query: str) -> list[list[str]]:
    """The things that `query` may stand for, each with all its names."""
    query = _spelled_out(query.strip().removesuffix("()"))
    owner, _, part = query.rpartition(".")
    if data.history(query):
        return [group for group in _groups([query, *_ending(part)]) if query in group]
    found = _ending(query)
    if not found and owner:
        found = [name for place in _ending(owner) if data.history(name := f"{place}.{part}")]
    return _groups(found)


def _spelled_out(name: str) -> str:
    head, dot, rest = name.partition(".")
    return f"{_SHORT.get(head, head)}{dot}{rest}"


def _ending(query: str) -> list[str]:
    return [name for name in data.names() if name == query or name.endswith(f".{query}")]


def _groups(names: Iterable[str]) -> list[list[str]]:
    """The names and what else leads to the same: one thing in some release together, and in none two things."""
    groups: list[tuple[list[str], dict[Version, str]]] = []
    for name in dict.fromkeys(place for found in names for place in _places(found)):
        things = {release: state.target or name for release, state in data.history(name).items()}
        merged, apart = [name], []
        for group in groups:
            same = [thing == things[release] for release, thing in group[1].items() if release in things]
            if same and all(same):
                merged = [*group[0], *merged]
                things |= group[1]
            else:
                apart.append(group)
        groups = [*apart, (merged, things)]
    return [group for group, _ in groups]


def _answer(group: list[str], releases: tuple[Version, ...]) -> Answer:
    ranked = sorted(group, key=lambda name: _rank(name, releases))

    def at(look: Callable[[str, Version], _Value | None]) -> list[tuple[Version, _Value | None]]:
        return [(r, next((v for n in ranked if (v := look(n, r)) is not None), None)) for r in releases]

    there = dict(at(lambda n, r: data.exists(n, r) or None))
    have = sorted({release for name in ranked for release in _having(name, releases)})
    name, needed = ranked[0], _needed(ranked, releases)
    return Answer(
        name=name,
        kind=next((kind for release in reversed(have) for n in ranked if (kind := data.kind(n, release))), "alias"),
        spans=tuple(_spans([release for release in releases if there[release]])),
        optional=tuple(_spans([release for release in have if not there[release]])),
        signatures=tuple(_runs([(r, text) for r, text in at(data.signature_text) if r in have])),
        deprecations=tuple(_present(_runs(at(data.deprecation)))),
        parameters=tuple(_parameters(at(lambda n, r: data.deprecated_parameters(n, r) or None))),
        places=tuple(Place(n, spans, n == needed) for n in ranked if (spans := tuple(_spans(_having(n, releases))))),
        rules=tuple(_rules(group)),
    )


def _places(name: str) -> Iterator[str]:
    """`name`, and the same through what its class is called elsewhere."""
    yield name
    owner, _, part = name.rpartition(".")
    if owner and any(data.kind(owner, release) == "class" for release in PUBLISHED):
        cls = owner.rpartition(".")[2]
        for other in _ending(cls):
            if other != owner and any(data.target(other, release) == owner for release in PUBLISHED):
                yield f"{other}.{part}"


def _needed(names: list[str], releases: tuple[Version, ...]) -> str | None:
    """The private name that most releases without a public one have, None where there is no need of one."""
    public = {release for name in names if not _in_private(name) for release in _having(name, releases)}
    private = [name for name in names if _in_private(name) and public and not public >= set(_having(name, releases))]
    return max(private, key=lambda name: len(_having(name, releases)), default=None)


def _in_private(name: str) -> bool:
    return any(part.startswith("_") for part in name.split(".")[:-1])


def _having(name: str, releases: Iterable[Version]) -> list[Version]:
    history = data.history(name)
    return [release for release in releases if release in history]


def _rank(name: str, releases: tuple[Version, ...]) -> tuple[bool, bool, int, int, str]:
    """Names that the newest of the releases has come first, public ones, short ones."""
    shortest = (name.count("."), -len(_having(name, releases)), name)
    return (releases[-1] not in data.history(name), _in_private(name), *shortest)


def _order(answer: Answer) -> tuple[bool, bool, int, str]:
    private = any(part.startswith("_") for part in answer.name.split("."))
    return (private, all(span.last is not None for span in answer.spans), answer.name.count("."), answer.name)


def _runs(values: Iterable[tuple[Version, _Value]]) -> Iterator[tuple[ReleaseSpan, _Value]]:
    """Equal values of consecutive known releases together."""
    run: list[Version] = []
    held: _Value | None = None
    for release, value in values:
        follows = run and PUBLISHED.index(release) == PUBLISHED.index(run[-1]) + 1
        if run and not (follows and value == held):
            yield _span(run), held  # type: ignore[misc]
            run = []
        run.append(release)
        held = value
    if run:
        yield _span(run), held  # type: ignore[misc]


def _present(runs: Iterable[tuple[ReleaseSpan, _Value | None]]) -> Iterator[tuple[ReleaseSpan, _Value]]:
    yield from ((span, value) for span, value in runs if value is not None)


def _spans(releases: Iterable[Version]) -> Iterator[ReleaseSpan]:
    yield from (span for span, _ in _runs([(release, True) for release in releases]))


def _span(run: list[Version]) -> ReleaseSpan:
    """Minors, but where the data tells the releases of a minor apart, those."""
    siblings = [release for release in PUBLISHED if release.release[:2] == run[0].release[:2]]
    first = _minor(run[0]) if run[0] == siblings[0] else str(run[0])
    siblings = [release for release in PUBLISHED if release.release[:2] == run[-1].release[:2]]
    last = _minor(run[-1]) if run[-1] == siblings[-1] else str(run[-1])
    return ReleaseSpan(first, None if run[-1] == PUBLISHED[-1] else last)


def _minor(release: Version) -> str:
    return f"{release.major}.{release.minor}"


def _parameters(warned: list[tuple[Version, Any]]) -> Iterator[tuple[str, tuple[tuple[ReleaseSpan, Deprecation], ...]]]:
    for name in sorted({name for _, found in warned for name in found or ()}):
        yield name, tuple(_present(_runs([(release, (found or {}).get(name)) for release, found in warned])))


def _rules(group: list[str]) -> Iterator[tuple[str, str]]:
    """Codes and summaries of the rules that speak of what has these names."""
    from fsdp_migrate.rules import RULES

    for rule in RULES:
        if any(f".{name}".endswith(f".{told}") for told in _told(rule.card.summary) for name in group):
            yield rule.card.code, rule.card.summary


def _told(summary: str) -> Iterator[str]:
    """The names in a summary, with what it says of their paths."""
    for quote, name in re.findall(r"(`?)([\w.]*\w)", summary):
        if "." in name:
            yield _spelled_out(name.removeprefix("model."))
        elif quote or not (name.isalpha() and name.islower()):  # a word like `load` is a name in backticks only
            yield name


def _whole(answer: Answer) -> Iterator[str]:
    yield f"{answer.name} ({answer.kind})"
    if answer.spans:
        yield f"  In torch {_text(answer.spans)}"
    if answer.optional:
        yield f"  In some builds of torch {_text(answer.optional)}"
    written = [(span, text) for span, text in answer.signatures if text is not None]
    if written:
        yield "  Parameters"
        yield from _table((str(span), f"({text})") for span, text in written)
    if answer.deprecations:
        yield "  Deprecated"
        yield from _table((str(span), _warning(found)) for span, found in answer.deprecations)
    for name, found in answer.parameters:
        yield f"  Parameter {name} deprecated"
        yield from _table((str(span), _warning(deprecation)) for span, deprecation in found)
    yield "  Found as"
    public = [place for place in answer.places if not place.private or place.needed]
    shown = sorted((public or answer.places)[:_MOST_PLACES], key=lambda place: place.needed)
    yield from _table((_text(place.spans), place.name) for place in shown)
    if len(answer.places) > len(shown):
        where = "in private modules" if len(public) <= len(shown) else "more"
        yield f"    and {len(answer.places) - len(shown)} {where}"
    if answer.rules:
        yield "  Rules"
        yield from _table(answer.rules)


def _table(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    listed = list(rows)
    width = max(len(left) for left, _ in listed)
    yield from (f"    {left:<{width}}  {right}" for left, right in listed)


def _text(spans: Iterable[ReleaseSpan]) -> str:
    return ", ".join(map(str, spans))


def _warning(deprecation: Deprecation) -> str:
    return f"{deprecation.category or 'without a warning'}: {deprecation.text}".rstrip(": ")
