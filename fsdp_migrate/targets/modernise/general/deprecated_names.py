"""FSDP610: a name whose use warns in the newest supported torch.

It reads the deprecations of the API data and knows no name by itself, so that it also speaks of what a new release
deprecates. Where another rule speaks of the same place, it is silent.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache

from packaging.version import Version

from fsdp_migrate.code.fallback_arms import is_old_arm
from fsdp_migrate.code.instance_members import members_used, sharded_members
from fsdp_migrate.code.torch_names import bindings_of, chains, imports, passed_on, reads
from fsdp_migrate.code.torch_presence import IMPORTING, READING, concerned, excused, having, running
from fsdp_migrate.code.unused_imports import uses_of
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.patterns import pattern
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Traced, Verdict, finding, manual
from fsdp_migrate.rules.changed_names import changed_names, has_changed
from fsdp_migrate.targets.modernise.general.precedence import is_claimed
from fsdp_migrate.torch_api import PUBLISHED, RELEASES
from fsdp_migrate.torch_api.data import Deprecation, deprecation, kind, last, names, target
from fsdp_migrate.torch_api.words import since

# Where the data tells the deprecation of a use; elsewhere one of a class may be that of a single method.
_AREAS = ("torch.distributed.", "torch.nn.parallel.", "torch.nn.utils.", "torch.cuda.amp.", "torch.cpu.amp.")
# What moves to the state-dict functions as a whole; until then it works, and only warns.
_LATER = ("torch.distributed.checkpoint.", "torch.distributed._shard.")
# How what torch points to differs from these collectives, seen on two ranks with torch 2.13.
_DIFFERENTIABLE = "torch.distributed.nn."
_DIFFERS = {
    "all_gather": ", which gives one tensor instead of a tuple",
    "all_reduce": ', which takes the name of the reduction, such as "sum"',
    "all_to_all_single": ", which takes sizes instead of an output",
    "broadcast": ", whose gradient is not summed over the ranks",
    "reduce_scatter": ", which takes one tensor instead of a list",
}
_NEVER = Version("0")
_END_OF_SENTENCE = pattern(r"\.(?:\s+|(?=[A-Z][a-z]+ )|$)")
# What may be named without a warning.
_NO_USES = ("module", "enum-member")
_CALLED = ("function", "method", "staticmethod", "classmethod", "class")
# Where a warning comes to what to do: "please use ...", "consider using ...", "is replaced by ...".
_ADVISING = pattern(r"\b(?:use|using|replaced by)\s+(?!it\b|the [a-z])", re.IGNORECASE)
_NAMED = pattern(r"`([\w.]+)(?:\(|`)|^(\w+\.[\w.]*\w)")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find imports, attribute chains and names for `getattr` that warn when they are used."""
    found = [
        (path, place, node, known)
        for path, place, node, errors in _places(facts)
        if (known := _warning(facts, path, node)) and not excused(facts, node, errors, too_new=False)
    ]
    for path, place, node, known in found:
        if not is_claimed(facts, place, hints=True):
            severity = Severity.HINT if path.startswith(_LATER) else Severity.DEPRECATED
            message = f"`{path}` is deprecated since torch {_first_warning(path)}"
            yield finding(facts, card, place, facts.statement(node), message, _advice(path, known), severity)


def _places(facts: ModuleFacts) -> Iterator[tuple[str, ast.expr | ast.alias, ast.AST, frozenset[str]]]:
    """Names with their places, the nodes that they are part of, and what these may fail with."""
    for taken in imports(facts):
        # What is imported and not used gives no warning.
        if taken.binds_path and any(True for binding in bindings_of(facts, taken) for _ in uses_of(binding)):
            yield taken.path, taken.alias, taken.statement, IMPORTING
    brought = {taken.path for taken in imports(facts)}
    for chain in chains(facts):
        yield from ((path, node, node, READING) for path, node in chain.links if path not in brought)
    looked_up = ((one.path, one.node) for one, _ in reads(facts))
    through = ((path, node) for node, path in passed_on(facts))
    yield from ((path, node, node, READING) for path, node in (*members_used(facts), *looked_up, *through))


def _warning(facts: ModuleFacts, path: str, node: ast.AST) -> Deprecation | None:
    """The warning of the newest release that runs a place, None where there is none."""
    warner = path.rpartition(".")[2].startswith("_warn")
    if warner or not path.startswith(_AREAS) or not has_changed(path, facts.newest_only) or not concerned(facts, path):
        return None
    newest = max(running(facts, node), default=None)
    known = None if newest is None or kind(path, newest) in _NO_USES else deprecation(path, newest)
    return None if known is None or _chooses(facts, path, node) else known


def _chooses(facts: ModuleFacts, path: str, node: ast.AST) -> bool:
    """Whether the file chooses by itself between the old name and one that some release points to."""
    return any(is_old_arm(facts, node, name.rpartition(".")[2]) for name in _successors(path))


def _having(path: str) -> Sequence[Version]:
    """The releases that may have a name; of a module that the data does not read, all of them may."""
    return having(path) or PUBLISHED


@cache
def _successors(path: str) -> frozenset[str]:
    """The names that some release points to."""
    warnings = {known for release in _having(path) if (known := deprecation(path, release)) is not None}
    return frozenset(name for known in warnings if (name := _successor(path, known)) is not None)


def _first_warning(path: str) -> str:
    """The release since which, without a gap up to the newest that has it, the name warns."""
    warns = [release for release in _having(path) if deprecation(path, release) is not None]
    silent = [release for release in _having(path) if release < warns[-1] and release not in warns]
    return since(next(release for release in PUBLISHED if release in warns and release > max(silent, default=_NEVER)))


def _advice_in(known: Deprecation) -> re.Match[str] | None:
    """Where the sentence of a warning that says what to do comes to that, None where no sentence does."""
    sentences = (sentence.strip() for sentence in _END_OF_SENTENCE.split(known.text))
    return next((found for sentence in sentences if (found := _ADVISING.search(sentence)) is not None), None)


def _successor(path: str, known: Deprecation) -> str | None:
    """The first other name in what the warning says to do."""
    advice = _advice_in(known)
    names = () if advice is None else (one or other for one, other in _NAMED.findall(advice.string[advice.end() :]))
    others = (name for name in names if not f".{path}".endswith(f".{name}"))
    return next((name for name in others if "." in name or "_" in name), None)


def _advice(path: str, known: Deprecation) -> Verdict:
    new, advice = _successor(path, known), _advice_in(known)
    if new is not None:
        differs = _DIFFERS.get(path.rpartition(".")[2], "") if path.startswith(_DIFFERENTIABLE) else ""
        return manual(f"torch recommends `{new}`{differs}: check whether it is equivalent")
    said = _END_OF_SENTENCE.split(known.text)[0].strip() if advice is None else advice.string
    return manual(f'torch says "{said}"' if said and "{" not in said else "see torch's documentation for the successor")


def _calls() -> Iterator[Traced]:
    """The functions and classes that warn in the newest release that has them; not where the finding is a hint."""
    for area in _AREAS:
        for name in names(area.rstrip(".")):
            newest = last(name) or RELEASES[-1]
            own = kind(name, newest) in _CALLED and target(name, newest) is None
            inner = name.startswith(_LATER) or name.rpartition(".")[2].startswith(("__", "_warn"))
            if own and not inner and deprecation(name, newest) is not None:
                yield Traced(name)


_DIST = "from torch.distributed import distributed_c10d\n\n"

RULE = Rule(
    RuleCard(
        code="FSDP610",
        name="deprecated-name",
        summary="a name of torch that is deprecated in the newest supported release",
        explanation="""\
The deprecation warnings of `torch.distributed` and the modules around it are read from the wheels of every release. A
name is reported if it warns in the newest supported release and no special rule handles it. The reason has the
successor that torch names. Names that only older releases warned about are not reported: `all_gather_into_tensor`
warns in torch 2.13 and 2.14, but not in 2.15.

Names of distributed checkpointing are hints, because they have no drop-in successor.""",
        applicability="manual",
        severity=Severity.DEPRECATED,
        flags=(
            Example(
                before=_DIST + "distributed_c10d._set_pg_timeout(timeout)\n",
                note="deprecated since torch 2.14",
                torch=">=2.3",
            ),
            Example(
                before="import torch.distributed as dist\n\ndist.all_gather_coalesced(parts, mine)\n",
                note="deprecated since torch 1.13",
            ),
            Example(
                before="import torch.distributed as dist\n\ndist.all_gather_into_tensor(whole, part)\n",
                note="torch 2.15 is not supported",
                torch=">=2.13,<2.15",
            ),
            Example(
                before="import torch.distributed.nn.functional as collectives\n\nx = collectives.all_reduce(x)\n",
                note="deprecated since torch 2.12",
            ),
        ),
        leaves=(
            "import torch.distributed as dist\n\ndist.all_gather_into_tensor(whole, part)\n",
            "import torch.distributed as dist\n\ndist.all_gather(parts, mine)\n",
        ),
        url="https://github.com/pytorch/pytorch/releases",
    ),
    scope="near",
    words=tuple(("sharded_tensor", f".{name}") for name in sorted(sharded_members())),
    names=changed_names,
    check=check,
    calls=lambda: _calls(),
)
