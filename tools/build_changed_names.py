"""Write fsdp_migrate/torch_api/changed_names.txt.gz: the names that the general rules look for in the bytes of a file.

    python -m tools.build_changed_names

Run it after `tools.build_torch_api`, whose data it is derived from. A line has an owner and the names in it. First come
the names that the newest release is at odds with, behind an empty line the others.
"""

from __future__ import annotations

import gzip
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from fsdp_migrate.rules.changed_names import FILE, PARTS
from fsdp_migrate.torch_api import PUBLISHED
from fsdp_migrate.torch_api import data as api
from fsdp_migrate.torch_api.data import Parameter, ParameterKind
from fsdp_migrate.torch_api.unread import WARNINGS

TARGET = Path(__file__).parent.parent / "fsdp_migrate" / "torch_api" / FILE
_BY_POSITION = (ParameterKind.POSITIONAL_ONLY, ParameterKind.POSITIONAL_OR_KEYWORD)
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
    changed = [name for name in (*listed, *aliases) if _changed(name)]
    failing = (_screened(name) for name in changed if _fails(name))
    return frozenset((*failing, *WARNINGS)), frozenset((*map(_screened, changed), *WARNINGS))


def _is_public_to_python(name: str) -> bool:
    return "." in name and not name.rpartition(".")[2].startswith("__")


def _changed(name: str) -> bool:
    present = {api.exists(name, release) for release in PUBLISHED}
    if {True, False} <= present or any(api.deprecation(name, release) for release in PUBLISHED):
        return True
    signatures = {api.signature_text(name, release) for release in PUBLISHED if api.exists(name, release)}
    return len(signatures) > 1


def _fails(name: str) -> bool:
    """Whether code for an older release may fail or warn with the newest one."""
    newest = PUBLISHED[-1]
    if not api.exists(name, newest) or api.deprecation(name, newest):
        return True
    now = api.signature(name, newest)
    older = [api.signature(name, release) for release in PUBLISHED if api.exists(name, release)]
    return now is not None and not all(then is None or takes_all(now, then) for then in older)


def takes_all(new: Sequence[Parameter], old: Sequence[Parameter]) -> bool:
    """Whether every call that fits the old parameters surely fits the new ones."""
    kinds = {parameter.kind for parameter in new}
    if any(parameter.kind in _VARIABLE and parameter.kind not in kinds for parameter in old):
        return False
    places = [parameter for parameter in new if parameter.kind in _BY_POSITION]
    before = [parameter for parameter in old if parameter.kind in _BY_POSITION]
    added = [parameter.name for parameter in places[len(before) :]]
    if len(places) < len(before) or (added and any(one.kind in _VARIABLE for one in old)):
        return False
    named = {parameter.name: parameter for parameter in old if parameter.kind is ParameterKind.KEYWORD_ONLY}
    pairs = [*zip(before, places), *((named[one.name], one) for one in new if one.name in named)]
    same = all(one.name == other.name and (one.kind is other.kind or one.name in named) for one, other in pairs)
    taken = {other.name for _, other in pairs}
    required = [one for one in new if not one.has_default and one.kind not in _VARIABLE]
    optional = {one.name for one, _ in pairs if one.has_default}
    return same and named.keys() <= taken and all(one.name in taken - optional for one in required)


def _screened(name: str) -> str:
    owner, _, member = name.rpartition(".")
    is_class = any(api.kind(owner, release) == "class" for release in PUBLISHED)
    return f"{owner.rpartition('.')[2]}.{member}" if is_class else name


if __name__ == "__main__":
    raise SystemExit(main())
