"""Write fsdp_migrate/torch_api/changed_names.txt.gz: the names that the general rules look for in the bytes of a file.

    python -m tools.build_changed_names

Run it after `tools.build_torch_api`, whose data it is derived from. A line has an owner and the names in it, one with
`(` behind it if it takes a call to be at odds with it, and behind that the keywords one of which such a call has. First
come the names that the newest release is at odds with, behind an empty line the others.
"""

from __future__ import annotations

import gzip
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from fsdp_migrate.rules.changed_names import FILE, PARTS
from fsdp_migrate.scan.names import CALLED
from fsdp_migrate.torch_api import PUBLISHED
from fsdp_migrate.torch_api import data as api
from fsdp_migrate.torch_api.data import Parameter, ParameterKind
from fsdp_migrate.torch_api.unread import WARNINGS

TARGET = Path(__file__).parent.parent / "fsdp_migrate" / "torch_api" / FILE
_BY_POSITION = (ParameterKind.POSITIONAL_ONLY, ParameterKind.POSITIONAL_OR_KEYWORD)
_BY_KEYWORD = (ParameterKind.POSITIONAL_OR_KEYWORD, ParameterKind.KEYWORD_ONLY)
_VARIABLE = (ParameterKind.VAR_POSITIONAL, ParameterKind.VAR_KEYWORD)


def main() -> int:
    """Derive the names and write them."""
    failing, every = derived_names()
    text = PARTS.join(map(_lines, (failing, every - failing)))
    # Without a time stamp and a file name, the same data always gives the same bytes.
    TARGET.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{TARGET.name}: {len(every)} names, {len(failing)} of them for the newest release")
    return 0


def _lines(names: Iterable[str]) -> str:
    by_owner: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        owner, _, last = name.rpartition(".")
        by_owner[owner].append(last)
    return "\n".join(f"{owner} {' '.join(names)}" for owner, names in sorted(by_owner.items()))


def derived_names() -> tuple[frozenset[str], frozenset[str]]:
    """The names that the newest release is at odds with, and all that changed, read off the API data."""
    listed = [name for name in api.names("torch") if _is_public_to_python(name)]
    aliases = [
        old + name[len(new) :]
        for old, new in api.SAME_MODULES.items()
        for name in listed
        if name.startswith(f"{new}.") and name.count(".") == new.count(".") + 1
    ]
    names = [*listed, *aliases]
    failing = _marked(filter(_is_lost, names), {name: _refused(name) for name in names})
    return failing, _marked(filter(_is_at_times, names), {name: frozenset({""}) for name in names if _changes(name)})


def _marked(anywhere: Iterable[str], called: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Names that count anywhere, and those that take a call, with the words one of which that has."""
    plain = {_screened(name) for name in anywhere}.union(WARNINGS)
    others: dict[str, set[str]] = defaultdict(set)
    for name, words in called.items():
        if words and (screened := _screened(name)) not in plain:
            others[screened] |= words
    marks = (f"{name}{CALLED}{'' if '' in words else ','.join(sorted(words))}" for name, words in others.items())
    return frozenset((*plain, *marks))


def _is_public_to_python(name: str) -> bool:
    return "." in name and not name.rpartition(".")[2].startswith("__")


def _is_at_times(name: str) -> bool:
    """Whether some release lacks a name that others have, or warns."""
    present = {api.exists(name, release) for release in PUBLISHED}
    return {True, False} <= present or any(api.deprecation(name, release) for release in PUBLISHED)


def _changes(name: str) -> bool:
    """Whether releases that have a name call it in different ways."""
    return len({api.signature_text(name, release) for release in PUBLISHED if api.exists(name, release)}) > 1


def _is_lost(name: str) -> bool:
    """Whether the newest release lacks a name that others have, or warns."""
    newest = PUBLISHED[-1]
    return _is_at_times(name) and bool(not api.exists(name, newest) or api.deprecation(name, newest))


def _refused(name: str) -> frozenset[str]:
    """The words one of which a call has that the newest release refuses and an older one takes; empty for any call."""
    now = api.signature(name, PUBLISHED[-1]) if _changes(name) else None
    if now is None:
        return frozenset()
    older = (api.signature(name, release) for release in PUBLISHED if api.exists(name, release))
    return frozenset(word for then in older if then is not None for word in refused(now, then))


def refused(new: Sequence[Parameter], old: Sequence[Parameter]) -> frozenset[str]:
    """The keywords one of which a call has that fits the old parameters and not the new ones; empty for any call."""
    kinds, before_kinds = {one.kind for one in new}, {one.kind for one in old}
    places = [one.name for one in new if one.kind in _BY_POSITION]
    before = [one.name for one in old if one.kind in _BY_POSITION]
    keywords = {one.name for one in new if one.kind in _BY_KEYWORD}
    given = {one.name for one in old if one.kind in _BY_KEYWORD}
    required = {one.name for one in old if not one.has_default and one.kind not in _VARIABLE}
    star, stars = ParameterKind.VAR_POSITIONAL, ParameterKind.VAR_KEYWORD
    fewer = star not in kinds and (star in before_kinds or len(before) > len(places))
    unknown = stars in before_kinds and (stars not in kinds or not set(places) <= set(before))
    # Behind as many positions as before it may now be given twice, or not at all.
    most = len(places) if star in before_kinds else len(before)
    first = [n for n in places if n in given and places.index(n) < (before.index(n) if n in before else most)]
    later = [n for n in before if n in places and places.index(n) > before.index(n)]
    needed = {one.name for one in new if not one.has_default and one.kind not in _VARIABLE}
    # What had to be given by position, or by a keyword that is lost, fills the same position.
    filled = {new for old, new in zip(before, places) if old in required and old not in keywords}
    missing = (
        needed - required - filled or needed.intersection(later) or {n for n in needed - set(places) if n in before}
    )
    lost = frozenset() if stars in kinds else frozenset(given - keywords)
    return lost | frozenset({""} if fewer or unknown or first or missing else ())


def _screened(name: str) -> str:
    owner, _, member = name.rpartition(".")
    is_class = any(api.kind(owner, release) == "class" for release in PUBLISHED)
    return f"{owner.rpartition('.')[2]}.{member}" if is_class else name


if __name__ == "__main__":
    raise SystemExit(main())
