"""The card of a rule: its documentation, and the examples that test it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from packaging.version import Version

from fsdp_migrate.findings import Applicability, Finding, Fix, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.supported_releases import around, changed, is_only_for_older, newest, older, range_from, too_old
from fsdp_migrate.torch_api import DEFAULT_RANGE, TorchRange

if TYPE_CHECKING:
    import ast

    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.scan.needles import Needles
    from fsdp_migrate.source import Span

# In which files a rule is in force: in all; in those that torch.distributed or FSDP may get to, by the file itself or
# through its project; in those that FSDP may get to; in those that use torch.distributed or FSDP, unless it is asked
# for by its code; as that, and in those that name the launcher; in all that another rule looks at, whatever is written
# in them.
FileScope = Literal["fsdp", "near", "models", "distributed", "launched", "everywhere"]


class Example(NamedTuple):
    """Code that a rule flags; `after` is what rewriting makes of it, None when the finding is manual there.

    `torch` is the supported range for which that is so.
    """

    before: str
    after: str | None = None
    note: str = ""
    applicability: Applicability = Applicability.SAFE
    torch: str = DEFAULT_RANGE


class RuleCard(NamedTuple):
    """What a rule is about.

    `explanation` is Markdown. `deprecated` and `removed` are the first torch releases that warn and that fail, None
    where there is none; `floor` the lowest release on which the rewritten code does what the old code does, None if
    that is any release. `severity` overrides what `deprecated` and `removed` say for a supported range;
    a rule whose card says hint finds nothing else, and runs only where hints are asked for. `brings` are the codes of
    findings that the rewritten code may have.
    """

    code: str
    name: str
    summary: str
    explanation: str
    applicability: str
    deprecated: str | None = None
    removed: str | None = None
    floor: str | None = None
    severity: Severity | None = None
    brings: tuple[str, ...] = ()
    flags: tuple[Example, ...] = ()
    leaves: tuple[str, ...] = ()
    url: str | None = None

    def severity_on(self, torch: TorchRange) -> Severity:
        """What happens on the supported range."""
        return self.severity_up_to(torch.newest)

    def severity_up_to(self, newest: Version) -> Severity:
        """What happens where `newest` is the newest release that gets there."""
        if self.severity is not None:
            return self.severity
        if self.removed is not None and newest >= Version(self.removed):
            return Severity.BREAKS
        if self.deprecated is not None and newest >= Version(self.deprecated):
            return Severity.DEPRECATED
        return Severity.HINT


class Traced(NamedTuple):
    """A function of torch whose calls a run of the program shows to be places of a rule.

    It is every call, or those that give the parameter `given` something else than its default, or leave out `missing`.
    """

    name: str
    given: str | None = None
    missing: str | None = None


class Rule(NamedTuple):
    """A card with what can trigger it and the function that finds its places.

    It only finds something in a file that has one of the `words` (`fsdp_migrate.scan.needles`), or one of the `names`:
    full names of torch, which `fsdp_migrate.scan.written_names` looks for. `scope` says in which of them it is in
    force. A rule of a `target` replaces the rule with the same code if that target is asked for. `calls` are what
    `trace` looks for, by the names of torch; None where no call shows a place. In a file without Python it needs one of
    the words `beside`. Where hints are asked for, it also looks for the words `hinted`.
    """

    card: RuleCard
    words: tuple[Needles, ...]
    check: Callable[[ModuleFacts, RuleCard], Iterator[Finding]]
    names: Callable[[], Iterable[str]] | None = None
    scope: FileScope = "fsdp"
    target: str | None = None
    calls: Callable[[], Iterable[Traced]] | None = None
    beside: tuple[str, ...] = ()
    hinted: tuple[Needles, ...] = ()


class Verdict(NamedTuple):
    """How a finding can be fixed: the fix with its grade, or None with the reason why not.

    A fix that supports the old and the new form is right `below_floor`, too. `settled` is the torch release from which
    on nothing is left to do. A `note` about the fix is added to the message.
    """

    fix: Fix | None = None
    unsafe: str | None = None
    manual: str | None = None
    below_floor: bool = False
    settled: str | None = None
    note: str | None = None

    @property
    def applicability(self) -> Applicability:
        """The grade of the fix."""
        if self.fix is None:
            return Applicability.MANUAL
        return Applicability.SAFE if self.unsafe is None else Applicability.UNSAFE

    @property
    def reason(self) -> str | None:
        """Why the finding is not safe to fix."""
        return self.unsafe if self.fix is not None else self.manual

    def within(self, card: RuleCard, facts: ModuleFacts, node: ast.AST, severity: Severity) -> Verdict:
        """This verdict at `node`, without its fix if a release below the card's floor runs it.

        The fix is also removed if it would change code that such a release runs elsewhere. The reason names the flags
        with which the fix applies.
        """
        if self.below_floor or card.floor is None or facts.torch.oldest >= Version(card.floor):
            return self
        floor = Version(card.floor)
        reason = too_old(facts, floor, node, () if self.fix is None else self.fix.edits)
        if reason is None:
            return self
        newer = None if self.fix is None else range_from(facts, floor, node)
        if newer is not None:
            more = (" --unsafe-fixes" if self.unsafe else "") + (" --hints" if severity is Severity.HINT else "")
            reason = f"{reason}; `rewrite --torch '{newer}'{more}` fixes it if older releases need no support"
        return self._replace(fix=None, manual=reason)


def below_floor(card: RuleCard, facts: ModuleFacts, *nodes: ast.AST, fix: Fix | None = None) -> bool:
    """Whether a release below the card's floor, which cannot run what its fixes write, gets to one of the nodes.

    With a `fix`, also whether one runs what that would change.
    """
    if card.floor is None or facts.torch.oldest >= Version(card.floor):
        return False
    spans = () if fix is None else changed(facts, fix.edits)
    return any(older(facts, Version(card.floor), node) for node in (*nodes, *(around(facts, span) for span in spans)))


def _severity(facts: ModuleFacts, card: RuleCard, node: ast.AST) -> Severity:
    """What happens on the releases that get to `node`; the old arm of a version check is there to use what warns."""
    severity = card.severity_up_to(newest(facts, node))
    is_old_arm = (
        severity is Severity.DEPRECATED
        and card.floor is not None
        and is_only_for_older(facts, node, Version(card.floor))
    )
    return Severity.HINT if is_old_arm else severity


def manual(reason: str) -> Verdict:
    """No fix, for this reason."""
    return Verdict(manual=reason)


def floor_or(facts: ModuleFacts, way: str, least: str) -> Verdict:
    """No fix: either `way` is gone, or the project supports torch from `least` on only."""
    place = "" if facts.torch.stated is None else f" ({facts.torch.stated})"
    return Verdict(manual=f"{way}, or require torch>={least}{place}", settled=least)


def _of_torch(facts: ModuleFacts, place: ast.AST | Span, verdict: Verdict) -> Verdict:
    """The verdict, without its fix if the file replaces what `place` reads by something of its own, as patches do."""
    if verdict.fix is None:
        return verdict
    from fsdp_migrate.rules.patched_names import replaced_at  # needed only where something can be fixed

    where = replaced_at(facts, place)
    return (
        verdict
        if where is None
        else manual(f"{where} replaces it with an object of your own: change both places together")
    )


def _giving_once(facts: ModuleFacts, verdict: Verdict) -> Verdict:
    """The verdict, without its fix if a call would give an argument twice."""
    if verdict.fix is None:
        return verdict
    from fsdp_migrate.rules.repeated_arguments import repeated

    name = repeated(facts, verdict.fix.edits)
    return verdict if name is None else manual(f"the call would give `{name}` twice")


def finding(
    facts: ModuleFacts,
    card: RuleCard,
    place: ast.AST | Span,
    statement: ast.stmt | Span,
    message: str,
    verdict: Verdict,
    severity: Severity | None = None,
) -> Finding:
    """A finding of `card` at `place`, a node or a span inside `statement` (or what stands for one)."""
    from fsdp_migrate.source import Span

    source = facts.source
    span = place if isinstance(place, Span) else source.span(place)
    node = next((one for one in (place, statement) if not isinstance(one, Span)), source.tree)
    severity = severity or _severity(facts, card, node)
    verdict = _giving_once(facts, _of_torch(facts, place, verdict)).within(card, facts, node, severity)
    if verdict.fix is not None and verdict.note is not None:
        message = f"{message}; {verdict.note}"
    start, end = source.location(span.start), source.location(span.end)
    return Finding(
        code=card.code,
        name=card.name,
        message=message,
        severity=severity,
        applicability=verdict.applicability,
        reason=verdict.reason,
        path=facts.path,
        span=span,
        statement=statement if isinstance(statement, Span) else facts.header(statement),
        line=start.line,
        column=start.column,
        end_line=end.line,
        end_column=end.column,
        url=card.url,
        cell=start.cell,
        settled=verdict.settled,
        fix=verdict.fix,
    )
