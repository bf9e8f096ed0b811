"""FSDP600: a name that some supported torch does not have.

It reads the API data directly and knows no name by itself. Where another rule speaks of the same place, it is silent.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache

from packaging.version import Version

from fsdp_migrate.code.instance_members import MESH, MESHES, members_used
from fsdp_migrate.code.torch_names import chains, from_torch_star, imports, passed_on, quoted
from fsdp_migrate.code.torch_presence import (
    IMPORTING,
    READING,
    concerned,
    errors_of,
    excused,
    having,
    lacking,
    presence,
    running,
    runs_on_import,
    severity,
)
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, floor_or, manual
from fsdp_migrate.rules.changed_names import changed_names, changed_words, has_changed
from fsdp_migrate.targets.modernise.general.precedence import is_claimed
from fsdp_migrate.torch_api import data
from fsdp_migrate.torch_api.words import minor, since

_MOST_CANDIDATES = 2
# What to write for members of device meshes that are gone (catalogue dt-device-mesh).
_SUCCESSORS = {
    f"{MESH}.get_coordinate_on_dim": "use `get_local_rank(mesh_dim)`, the rank along one dimension",
    f"{MESH}.backend": "use the backend of the group: `dist.get_backend(mesh.get_group(mesh_dim))`",
    **{
        f"{MESH}.{name}": f"call `dist.{name}` with `group=mesh.get_group(mesh_dim)`"
        for name in ("all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter", "scatter")
    },
    f"{MESHES}.get_parent_mesh": "use `get_root_mesh` since torch 2.5, and `mesh._get_root_mesh()` since 2.10",
    f"{MESHES}.create_child_mesh": "slice the mesh by dimension names: `mesh['dp']`",
    f"{MESHES}.create_sub_mesh": "slice the mesh by dimension names: `mesh['dp']`",
}


class _Lack(NamedTuple):
    """A name that is missing on some of the releases that run the place where it is written."""

    path: str
    place: ast.expr | ast.alias
    node: ast.AST
    missing: tuple[Version, ...]
    releases: frozenset[Version]

    @property
    def gone(self) -> bool:
        """Whether the newest release lacks it."""
        return max(self.releases) in self.missing


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find imports, attribute chains and looked-up strings whose name some supported release lacks."""
    lacks = [*_imported(facts), *_chained(facts), *_starred(facts), *_looked_up(facts), *_read_off_models(facts)]
    if not facts.hints:
        lacks = [lack for lack in lacks if _severity(facts, lack) is not Severity.HINT]
    told: set[tuple[str, tuple[Version, ...]]] = set()
    for together in _grouped([lack for lack in lacks if not is_claimed(facts, lack.place)]):
        lack = together[0]
        grade = _severity(facts, lack)
        if (lack.path, lack.missing) in told and not lack.gone:
            continue  # What the file fails with when it is imported is said once.
        if grade is Severity.BREAKS and runs_on_import(facts, lack.node):
            told.add((lack.path, lack.missing))
        place = facts.statement(lack.node) if len(together) > 1 else lack.place
        verdict = _verdict(facts, together)
        yield finding(facts, card, place, facts.statement(lack.node), _message(together), verdict, grade)


def _grouped(lacks: Sequence[_Lack]) -> list[list[_Lack]]:
    """Names of one import that the same releases lack, and which are said in one breath."""
    groups: dict[object, list[_Lack]] = defaultdict(list)
    for lack in lacks:
        owner = lack.path.rpartition(".")[0] if isinstance(lack.place, ast.alias) else lack.place
        groups[(lack.node, owner, lack.missing, presence(lack.path, lack.missing))].append(lack)
    return list(groups.values())


def _severity(facts: ModuleFacts, lack: _Lack) -> Severity:
    return severity(facts, lack.node, lack.missing, lack.releases)


def _lack(facts: ModuleFacts, path: str, place: ast.expr | ast.alias, node: ast.AST) -> _Lack | None:
    """What is wrong with `path`, None when nothing is; names that no known release has are not judged."""
    if not has_changed(path, facts.newest_only) or not concerned(facts, path):
        return None
    if not lacking(path, facts.torch.releases) or not having(path):
        return None
    releases = running(facts, node)
    missing = lacking(path, releases)
    return _Lack(path, place, node, missing, releases) if missing else None


def _imported(facts: ModuleFacts) -> Iterator[_Lack]:
    for taken in imports(facts):
        path = taken.path
        if not any(has_changed(prefix, facts.newest_only) for prefix in prefixes(path)):
            continue
        while not having(path) and "." in path:
            path = path.rpartition(".")[0]
        lack = _lack(facts, path, taken.alias, taken.statement)
        if lack is not None and not _is_excused(facts, lack, IMPORTING):
            yield _shortest(lack)


def _shortest(lack: _Lack) -> _Lack:
    """The lack of the module where that says it all."""
    path = lack.path
    while (owner := path.rpartition(".")[0]) and lacking(owner, lack.releases) == lack.missing:
        path = owner
    return _Lack(path, lack.place, lack.node, lack.missing, lack.releases)


def _chained(facts: ModuleFacts) -> Iterator[_Lack]:
    taken = {one.path for one in imports(facts)}
    told = _provided(facts).union(*map(prefixes, taken))
    for chain in chains(facts):
        for path, node in chain.links:
            lack = None if path in told else _lack(facts, path, node, node)
            if lack is None:
                continue
            # A module of the project may have imported the base, and is told so.
            brought = next(start for start in prefixes(chain.path) if start in taken or start == chain.base)
            lack = _past_import(brought, lack)
            if lack is not None:
                if not _is_excused(facts, lack, READING):
                    yield lack
                break


def _starred(facts: ModuleFacts) -> Iterator[_Lack]:
    """Names that a star import of torch does not bring on some release."""
    for node, path in passed_on(facts):
        lack = _lack(facts, path, node, node) if from_torch_star(facts, node, path) else None
        lack = None if lack is None else _past_import(path.rpartition(".")[0], lack)
        if lack is not None and not _is_excused(facts, lack, READING):
            yield lack


def prefixes(path: str) -> list[str]:
    """A name and those of what it lies in, the longest first."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _past_import(path: str, lack: _Lack) -> _Lack | None:
    """The lack on those releases that get past the import of `path`, which has a finding of its own."""
    releases = frozenset(release for release in lack.releases if data.exists(path, release) is not False)
    missing = tuple(release for release in lack.missing if release in releases)
    return _Lack(lack.path, lack.place, lack.node, missing, releases) if missing else None


def _looked_up(facts: ModuleFacts) -> Iterator[_Lack]:
    provided = _provided(facts)
    for one in quoted(facts):
        lack = None if one.path in provided else _lack(facts, one.path, one.node, one.node)
        if lack is not None and one.reader is not None:
            lack = _past_import(one.path.rpartition(".")[0], lack)
        if lack is not None and not _is_excused(facts, lack, errors_of(one)):
            yield lack


def _read_off_models(facts: ModuleFacts) -> Iterator[_Lack]:
    for path, node in members_used(facts):
        lack = _lack(facts, path, node, node)
        lack = None if lack is None else _past_import(path.rpartition(".")[0], lack)
        if lack is not None and not _is_excused(facts, lack, READING):
            yield lack


def _is_excused(facts: ModuleFacts, lack: _Lack, errors: frozenset[str]) -> bool:
    return excused(facts, lack.node, errors, too_new=not lack.gone)


def _provided(facts: ModuleFacts) -> frozenset[str]:
    """Names that it asks for or puts into torch, if some torch lacks them: `hasattr(fsdp, "X")`, `fsdp.X = ...`."""
    return facts.memo(_provided, lambda: frozenset(_find_provided(facts)))


def _find_provided(facts: ModuleFacts) -> Iterator[str]:
    for node in facts.structure.stores:
        yield from _paths(facts, node.value, node.attr)
    for call in facts.structure.calls:
        name = getattr(call.func, "id", None)
        asks = name in ("hasattr", "setattr") or (name == "getattr" and len(call.args) == 3)
        if asks and len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
            yield from _paths(facts, call.args[0], str(call.args[1].value))


def _paths(facts: ModuleFacts, owner: ast.expr, name: str) -> Iterator[str]:
    if name in changed_words(facts.newest_only) and isinstance(owner, (ast.Name, ast.Attribute)):
        for meaning in facts.names.meanings(owner):
            if meaning.qualified is not None:
                yield f"{meaning.qualified}.{name}"


def _message(together: Sequence[_Lack]) -> str:
    first = together[0]
    names = list(dict.fromkeys(lack.path for lack in together))
    where = presence(first.path, first.missing)
    if len(names) == 1:
        return f"`{names[0]}` is {where}"
    owner = names[0].rpartition(".")[0]
    listed = ", ".join(f"`{name.rpartition('.')[2]}`" for name in names)
    return f"{listed} of `{owner}` are {where}"


def _verdict(facts: ModuleFacts, together: Sequence[_Lack]) -> Verdict:
    lack = together[0]
    newest = max(lack.releases)
    if lack.path in _SUCCESSORS and lack.gone:
        return manual(_SUCCESSORS[lack.path])
    if not lack.gone:
        least = since(min(release for release in lack.releases if release > lack.missing[-1]))
        package = lack.path.rpartition(".")[0]
        inner = (name for name in namesakes(lack.path, lack.missing[-1]) if name.startswith(f"{package}._"))
        homes = [name for name in inner if data.kind(name.rpartition(".")[0], lack.missing[-1]) == "module"]
        everywhere = [home for home in homes if all(data.exists(home, release) for release in facts.torch.releases)]
        if len(together) == 1 and everywhere:
            home = everywhere[0].rpartition(".")[0]
            return manual(f"import it from `{home}`, where every supported torch has it")
        return floor_or(facts, "check that it exists before using it", least)
    others = [other for one in together for other in namesakes(one.path, newest)]
    if not others:
        return manual(f"torch {minor(newest)} has nothing of this name: remove the use")
    listed = " and ".join(f"`{other}`" for other in others[:_MOST_CANDIDATES])
    return manual(f"torch {minor(newest)} has {listed}: check whether it is equivalent")


def namesakes(path: str, release: Version) -> list[str]:
    """Where `release` defines something of the same name."""
    called = _by_last_name().get(path.rpartition(".")[2], ())
    return [name for name in called if data.exists(name, release) and data.target(name, release) is None]


@cache
def _by_last_name() -> dict[str, list[str]]:
    """The names of torch.distributed in order, by their last part."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(data.names("torch.distributed")):
        found[name.rpartition(".")[2]].append(name)
    return found


RULE = Rule(
    RuleCard(
        code="FSDP600",
        name="name-not-in-every-torch",
        summary="a name of torch that some supported release lacks",
        explanation="""\
The names of every torch release are read from its wheels. This rule reports imports, attributes and strings in
`getattr`, `mock.patch` or `import_module` that name something which a supported release lacks, because it was removed
or came later. It covers `torch.distributed` with `fsdp`, `tensor`, `checkpoint`, `device_mesh` and their private
modules, `torch.amp`, `torch.utils.checkpoint` and others. It is silent if a special rule handles the name.

A name that the newest supported release lacks breaks. A name that only older releases lack breaks if it is used on
import of the module. It is a hint inside a function with its own import, under a condition that is not a version
check, behind a decorator that skips, and if neither the project nor `--torch` states the supported releases. After an
import that needs some release, the rest of the file is judged from that release on.

Not reported: version checks, `hasattr` tests, `getattr` with a default, fallbacks with `try` and `except`, and names
that no known release has.""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(
            Example(
                "from torch.distributed.fsdp._runtime_utils import _clear_grads_if_needed\n",
                note="gone since torch 2.1",
            ),
            Example("from torch.distributed.fsdp import fully_shard\n", note="new in torch 2.6"),
            Example(
                """\
from torch.distributed import fsdp

def sharded_grads(state):
    return fsdp._optim_utils._all_gather_optim_state(state)
""",
                note="gone since torch 2.2",
            ),
        ),
        leaves=(
            """\
try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    fully_shard = None
""",
            """\
import torch.distributed as dist

def local_rank():
    return dist.get_node_local_rank() if hasattr(dist, "get_node_local_rank") else 0
""",
        ),
        url="https://github.com/pytorch/pytorch/releases",
    ),
    words=(),
    names=changed_names,
    check=check,
)
