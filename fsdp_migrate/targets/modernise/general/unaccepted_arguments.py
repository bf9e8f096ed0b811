"""FSDP500: a call of torch with arguments that some supported release does not accept.

It reads the signatures of the API data. Where another rule speaks of the same call, it is silent.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from packaging.version import Version

from fsdp_migrate.code.instance_members import members_used
from fsdp_migrate.code.made_calls import Made, made_calls
from fsdp_migrate.code.torch_names import torch_path
from fsdp_migrate.code.torch_presence import CALLING, concerned, excused, lacking, running, severity
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, floor_or, manual
from fsdp_migrate.rules.changed_names import changed_names, changed_words, has_changed
from fsdp_migrate.targets.modernise.general.precedence import claimed_spans
from fsdp_migrate.torch_api import RELEASES, data
from fsdp_migrate.torch_api.data import Parameter, ParameterKind
from fsdp_migrate.torch_api.words import minor, since, span_of

_BY_POSITION = (ParameterKind.POSITIONAL_ONLY, ParameterKind.POSITIONAL_OR_KEYWORD)
_BY_KEYWORD = (ParameterKind.POSITIONAL_OR_KEYWORD, ParameterKind.KEYWORD_ONLY)
_MOST_LISTED = 6


class Misfit(NamedTuple):
    """What a signature does not accept in a call: the argument, None for a missing one, and the words for it."""

    argument: ast.expr | ast.keyword | None
    text: str


class _Callee(NamedTuple):
    """Something of torch that is called by its full name, or, `bound`, as a method of an object."""

    path: str
    bound: bool = False

    def parameters(self, release: Version) -> Sequence[Parameter] | None:
        """What a call gives; a method called by its full name takes its object first, and is not judged."""
        return _parameters(self.path, self.bound, release)


@cache
def _parameters(path: str, bound: bool, release: Version) -> Sequence[Parameter] | None:
    unknown = ("property",) if bound else ("method", "property")
    return None if data.kind(path, release) in unknown else data.signature(path, release)


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find calls of functions, classes and static methods with arguments that some supported release rejects."""
    methods: dict[ast.expr, str] = {node: path for path, node in members_used(facts)}
    for made in made_calls(facts, changed_words(facts.newest_only), methods):
        callee = _callee(facts, made.seen, methods)
        if callee is None or not has_changed(callee.path, facts.newest_only) or not concerned(facts, callee.path):
            continue
        if made.unread or not _misfits(callee, made, facts.torch.releases):
            continue
        releases = running(facts, made.call)
        if isinstance(made.seen.func, ast.Attribute) and lacking(callee.path, releases):
            continue  # The name is missing, which another rule says.
        misfits = _misfits(callee, made, releases)
        if not misfits or not _fits_somewhere(callee, made):
            continue
        grade = severity(facts, made.call, tuple(misfits), releases)
        wanted = facts.hints or grade is not Severity.HINT
        if wanted and not _is_left_to_others(facts, made, misfits, releases):
            yield _finding(facts, card, callee, made, misfits, releases, grade)


def _callee(facts: ModuleFacts, call: ast.Call, methods: Mapping[ast.expr, str]) -> _Callee | None:
    """What of torch is called, None if it is something else."""
    if call.func in methods:
        return _Callee(methods[call.func], bound=True)
    path = torch_path(facts, call.func)
    return None if path is None else _Callee(path)


def _misfits(callee: _Callee, made: Made, releases: Iterable[Version]) -> dict[Version, Misfit]:
    """The releases that reject the call, oldest first, each with what it rejects."""
    judged: dict[int, Misfit | None] = {}  # most releases share their parameters
    found = {}
    for release in sorted(releases):
        parameters = callee.parameters(release)
        if parameters is None:
            continue
        if id(parameters) not in judged:
            judged[id(parameters)] = misfit_of(made.seen, parameters, made.more)
        misfit = judged[id(parameters)]
        if misfit is not None:
            found[release] = misfit
    return found


def _fits_somewhere(callee: _Callee, made: Made) -> bool:
    """Whether some known release accepts the call; a call that none does has another fault, or the data has."""
    for release in RELEASES:
        parameters = callee.parameters(release)
        if parameters is not None and misfit_of(made.seen, parameters, made.more) is None:
            return True
    return False


def misfit_of(call: ast.Call, parameters: Sequence[Parameter], more: bool = False) -> Misfit | None:
    """The first thing about a call with plain arguments that a signature does not accept; `more` may come to them."""
    positions = [parameter.name for parameter in parameters if parameter.kind in _BY_POSITION]
    keywords = {parameter.name for parameter in parameters if parameter.kind in _BY_KEYWORD}
    kinds = {parameter.kind for parameter in parameters}
    given = set(positions[: len(call.args)])
    if len(call.args) > len(positions) and ParameterKind.VAR_POSITIONAL not in kinds:
        count = f"{len(positions)} positional argument{'s' * (len(positions) != 1)}"
        return Misfit(call.args[len(positions)], f"accepts {count}, not {len(call.args)}")
    for keyword in call.keywords:
        if keyword.arg in keywords and keyword.arg in given:
            return Misfit(keyword, f"gets `{keyword.arg}` by position and by keyword")
        if keyword.arg not in keywords and ParameterKind.VAR_KEYWORD not in kinds:
            return Misfit(keyword, f"has no parameter `{keyword.arg}`")
    given.update(keyword.arg for keyword in call.keywords if keyword.arg is not None)
    for parameter in () if more else parameters:
        needed = parameter.kind in (*_BY_POSITION, ParameterKind.KEYWORD_ONLY) and not parameter.has_default
        if needed and parameter.name not in given:
            return Misfit(None, f"requires `{parameter.name}`")
    return None


def _is_left_to_others(
    facts: ModuleFacts, made: Made, misfits: Mapping[Version, Misfit], releases: frozenset[Version]
) -> bool:
    call = made.call
    too_new = max(releases) not in misfits
    if excused(facts, call, CALLING, too_new=too_new):
        return True
    places = [
        facts.source.span(made.seen.func),
        *(facts.source.span(m.argument) for m in misfits.values() if m.argument),
    ]
    whole = facts.source.span(call)
    return any(span == whole or any(span.overlaps(place) for place in places) for span in claimed_spans(facts))


def _finding(
    facts: ModuleFacts,
    card: RuleCard,
    callee: _Callee,
    made: Made,
    misfits: Mapping[Version, Misfit],
    releases: frozenset[Version],
    grade: Severity,
) -> Finding:
    shown = list(misfits)[-1]
    misfit = misfits[shown]
    same = [release for release, other in misfits.items() if other.text == misfit.text]
    place = made.seen.func if misfit.argument is None else misfit.argument
    message = f"`{callee.path.rpartition('.')[2]}` of torch {span_of(same)} {misfit.text}"
    verdict = _verdict(facts, callee, misfits, releases)
    node = place.value if isinstance(place, ast.keyword) else place  # one from a dict is no node of the file
    return finding(facts, card, place, facts.statement(node), message, verdict, grade)


def _verdict(
    facts: ModuleFacts, callee: _Callee, misfits: Mapping[Version, Misfit], releases: frozenset[Version]
) -> Verdict:
    parameters = callee.parameters(max(misfits)) or ()
    listed = [f"`{parameter.name}`" for parameter in parameters]
    shown = ", ".join(listed[:_MOST_LISTED]) + (", ..." if len(listed) > _MOST_LISTED else "")
    accepted = f"it accepts {shown or 'nothing'}"
    newest = max(releases)
    if newest not in misfits:
        least = since(min(release for release in releases if release > max(misfits)))
        return floor_or(facts, f"{accepted}; check the version", least)
    return manual(f"{accepted}: change the call for torch {minor(newest)}")


RULE = Rule(
    RuleCard(
        code="FSDP500",
        name="argument-not-in-every-torch",
        summary="a call with arguments that some supported torch does not accept",
        explanation="""\
The signatures of every torch release are read from its wheels. A call of a function, a class or a static method of
`torch.distributed` and the modules around it is reported if a supported release rejects it: an unknown keyword, too
many positional arguments, a missing argument. `functools.partial` and dicts written in the file are read; calls
with other `*args` or `**kwargs` are not judged. The rule is silent if a
special rule handles the call.

A call that the newest supported release rejects breaks. A call that only older releases reject breaks as well, unless
it may never run there: under a condition that is not a version check, or in a function with its own import of
something new, it is a hint. A call that no known release accepts is left alone.""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(
            Example(
                """\
from torch.distributed.tensor.parallel import parallelize_module

def parallelize(model, mesh, plan):
    return parallelize_module(model, mesh, plan, tp_mesh_dim=1)
""",
                note="gone since torch 2.3",
            ),
            Example(
                """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def shard(model, mesh):
    return FSDP(model, device_mesh=mesh)
""",
                note="new in torch 2.2",
            ),
        ),
        leaves=(
            """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def shard(model, **options):
    return FSDP(model, use_orig_params=True, **options)
""",
        ),
        url="https://github.com/pytorch/pytorch/releases",
    ),
    words=(),
    check=check,
    names=changed_names,
)
