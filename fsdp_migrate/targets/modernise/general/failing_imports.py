"""FSDP615 and FSDP691: imports that fail on every supported torch.

Sources: the wheel of torch 1.10.2, which has no `torch.distributed._fsdp` (nightlies between 1.10 and 1.11 had it), and
the API data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import groupby

from packaging.version import Version

from fsdp_migrate.code.torch_names import Import, bindings_of, imports
from fsdp_migrate.code.torch_presence import IMPORTING, concerned, excused, gone, having, lacking
from fsdp_migrate.code.unused_imports import uses_of
from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.facts.releases.attempts import attempts_around, names_of_exceptions
from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.rules.changed_names import changed_names, has_changed
from fsdp_migrate.source import Span
from fsdp_migrate.targets.modernise.general.missing_names import namesakes, prefixes
from fsdp_migrate.targets.modernise.general.precedence import is_claimed
from fsdp_migrate.torch_api.data import exists, is_module
from fsdp_migrate.torch_api.words import minor, span_of

_NIGHTLY = "torch.distributed._fsdp"


def check_nightly(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find imports from the package that FSDP was in before its first release."""
    ours = (taken for taken in imports(facts) if f"{taken.path}.".startswith(f"{_NIGHTLY}."))
    for statement, group in groupby(ours, lambda taken: taken.statement):
        if facts.reached(statement):
            verdict = _moved(facts, statement, [f"{PACKAGE}{taken.path.removeprefix(_NIGHTLY)}" for taken in group])
            guarded = excused(facts, statement, IMPORTING, too_new=False)
            if guarded and verdict.fix is not None:
                verdict = verdict._replace(unsafe="the handler has run instead on every release of torch")
            message = f"no torch release has `{_NIGHTLY}`: it was renamed to `{PACKAGE}` in torch 1.11"
            severity = Severity.CHANGES if guarded else Severity.BREAKS
            yield finding(facts, card, statement, statement, message, verdict, severity)


def _moved(facts: ModuleFacts, statement: ast.Import | ast.ImportFrom, new: list[str]) -> Verdict:
    """The import from the released package, where that has what is imported."""
    releases = facts.gates.alive(statement)
    for path in new:
        if (without := lacking(path, releases)) or not all(exists(path, release) for release in releases):
            return manual(
                f"`{path}` does not exist in torch {span_of(without or tuple(sorted(releases)))}: find its successor"
            )
    module = statement.module if isinstance(statement, ast.ImportFrom) else statement.names[0].name
    written = facts.source.segment(statement)
    aliased = isinstance(statement, ast.ImportFrom) or statement.names[0].asname is not None
    offset = written.find(module or "")
    if not aliased or len(new) < len(statement.names) or not f"{module}.".startswith(f"{_NIGHTLY}.") or offset < 0:
        return manual(f"import it from `{PACKAGE}`")
    start = facts.source.span(statement).start + offset
    return Verdict(Fix((Replace(Span(start, start + len(_NIGHTLY)), PACKAGE),)))


def check_attempts(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find imports in a `try` that fail on every supported torch, so that what the handler does is all that happens."""
    for taken in imports(facts):
        statement, path = taken.statement, taken.path
        if not any(has_changed(prefix, facts.newest_only) for prefix in prefixes(path)):
            continue
        while not having(path) and path.count(".") > 1:
            path = path.rpartition(".")[0]
        releases = facts.gates.alive(statement)
        if not releases or not concerned(facts, path) or len(lacking(path, releases)) < len(releases):
            continue
        handler = _handler(facts, statement)
        if (
            handler is None
            or not having(path)
            or having(path)[0] > max(releases)
            or not _matters(facts, taken, handler)
        ):
            continue
        if not is_claimed(facts, taken.alias, hints=True):
            message = f"`{path}` is {gone(path)}: the handler at line {handler.lineno} runs on every supported torch"
            others = [one for one in namesakes(path, max(releases)) if is_module(one) == is_module(path)]
            severity = Severity.CHANGES if others else Severity.HINT
            yield finding(facts, card, taken.alias, statement, message, _advice(others, max(releases)), severity)


def _advice(others: list[str], newest: Version) -> Verdict:
    if not others:
        return manual("remove the `try` and keep the code of its handler")
    return manual(f"torch {minor(newest)} has `{others[0]}`: import that, or keep only the code of the handler")


def _handler(facts: ModuleFacts, statement: ast.stmt) -> ast.ExceptHandler | None:
    """The handler that goes on after an import that fails."""
    if not excused(facts, statement, IMPORTING, too_new=False):
        return None
    for attempt in attempts_around(statement, facts.structure.parents):
        for handler in attempt.handlers:
            if names_of_exceptions(handler.type) & IMPORTING:
                return handler
    return None


def _matters(facts: ModuleFacts, taken: Import, handler: ast.ExceptHandler) -> bool:
    """Whether what is imported is used, and the handler does not take it from another place in torch."""
    places = [one.statement for one in imports(facts) if one.bound == taken.bound and one is not taken]
    if any(part in places for part in ast.walk(handler)):
        return False
    return any(True for binding in bindings_of(facts, taken) for _ in uses_of(binding))


_ATTEMPT = """\
try:
    from torch.distributed.algorithms._checkpoint.{}checkpoint_wrapper import checkpoint_wrapper
except ImportError:
    from fairscale.nn.checkpoint import checkpoint_wrapper

layer = checkpoint_wrapper(layer)
"""
_IMPORT = "from {}.wrap import enable_wrap, wrap\n"

NIGHTLY = Rule(
    RuleCard(
        code="FSDP615",
        name="nightly-fsdp-package",
        summary=f"`{_NIGHTLY}`, the place of FSDP before torch 1.11",
        explanation="""\
FSDP was in `torch.distributed._fsdp` in nightly builds before torch 1.11. No release has this package, so the
import always fails, and in a `try` its handler runs. The fix imports from `torch.distributed.fsdp` the names that
every supported torch has. It is unsafe in a `try`, because other code has run so far.""",
        applicability="safe, unsafe or manual",
        severity=Severity.BREAKS,
        flags=(
            Example(before=_IMPORT.format(_NIGHTLY), after=_IMPORT.format(PACKAGE)),
            Example(
                before=f"try:\n    {_IMPORT.format(_NIGHTLY)}except ImportError:\n    wrap = None\n",
                after=f"try:\n    {_IMPORT.format(PACKAGE)}except ImportError:\n    wrap = None\n",
                applicability=Applicability.UNSAFE,
            ),
            Example(before=f"from {_NIGHTLY}.utils import chunk_and_pad\n", note="gone"),
        ),
        leaves=(_IMPORT.format(PACKAGE),),
        url="https://github.com/pytorch/pytorch/releases/tag/v1.11.0",
    ),
    words=("distributed._fsdp", "distributed import _fsdp"),
    check=check_nightly,
)

ATTEMPTS = Rule(
    RuleCard(
        code="FSDP691",
        name="dead-import-attempt",
        summary="an import in a `try` that fails on every supported torch",
        explanation="""\
A `try` around an import supports releases that lack a name. If all supported releases lack it, the handler always
runs. The finding names the new place if torch has something of this name there: the feature that needs the import is
then silently off. Otherwise it is a hint that the `try` can be removed.

Not reported: attempts whose handler imports the name from another place in torch, and imports whose name is not used,
which only test the release.""",
        applicability="manual",
        severity=Severity.CHANGES,
        flags=(Example(before=_ATTEMPT.format("_"), note="torch 1.12 renamed the module"),),
        leaves=(
            _ATTEMPT.format(""),
            _ATTEMPT.format("_").replace(
                "fairscale.nn.checkpoint", "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
            ),
        ),
        url="https://github.com/pytorch/pytorch/releases",
    ),
    words=(),
    names=changed_names,
    check=check_attempts,
)
RULES = (NIGHTLY, ATTEMPTS)
