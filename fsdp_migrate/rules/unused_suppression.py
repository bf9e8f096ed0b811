"""FSDP002: a comment that suppresses a finding which is not there."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator

from fsdp_migrate.edits import EditComment
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import UNUSED_SUPPRESSION, Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.rules.entry import Entry
from fsdp_migrate.rules.index import ENTRIES, OF_TARGETS, entry_of
from fsdp_migrate.rules.running import findings_of
from fsdp_migrate.rules.unknown_codes import in_words, is_ours, unknown
from fsdp_migrate.scan.needles import Needles, Written
from fsdp_migrate.source import Source, Span
from fsdp_migrate.suppressions import Directive, Suppressions

_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"

CARD = RuleCard(
    code=UNUSED_SUPPRESSION,
    name="unused-suppression",
    summary="a comment that suppresses a finding which is not there",
    explanation="""\
The comment silences a rule that finds nothing in its statement (for `ignore-file`: in its file). It would hide the
next real finding, so `rewrite` removes it. Only the unused code goes if the comment has other codes or other text.

A code that no rule has is a mistake that only you can fix. The comment stays, and so does any code that it may have
been meant for; those findings are reported as manual.

Whether a rule finds something depends on the torch range. Code that is checked for several ranges may need the comment
for one of them. A comment that only a target may need (`--target dcp`) stays. For stdin nothing is reported if the
text imports more than torch and the standard library. A plain `# noqa`, a plain `ignore-file` and codes of other tools
are never reported.""",
    applicability="safe",
    severity=Severity.DEPRECATED,
    flags=(
        Example(
            f"{_IMPORT}osd = FSDP.optim_state_dict(model, optim)  # noqa: FSDP101\n",
            f"{_IMPORT}osd = FSDP.optim_state_dict(model, optim)\n",
            "left over from `full_optim_state_dict`",
        ),
        Example(
            f"{_IMPORT}osd = FSDP.optim_state_dict(model, optim)  # noqa: E501, FSDP101 - long\n",
            f"{_IMPORT}osd = FSDP.optim_state_dict(model, optim)  # noqa: E501 - long\n",
            "what others need stays",
        ),
        Example(
            "# fsdp-migrate: ignore-file[FSDP10x]\nimport torch\n",
            note="there is no such rule",
        ),
    ),
    leaves=(
        f"{_IMPORT}osd = FSDP.full_optim_state_dict(model, optim)  # noqa: FSDP101\n",
        f"{_IMPORT}osd = FSDP.optim_state_dict(model, optim)  # noqa\n",
    ),
)


def _check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    return iter(())  # only when all others have spoken it is known what is not needed


RULE = Rule(CARD, (), _check, scope="everywhere")


def _more(entry: Entry) -> set[Needles]:
    """The words that the rule of a target looks for, and the rule with its code does not."""
    return set(entry.words) - set(entry_of(entry.code).words)


_WIDER = [entry for entries in OF_TARGETS.values() for entry in entries if _more(entry)]


def unused(facts: ModuleFacts, suppressions: Suppressions, checked: Collection[Entry]) -> Iterator[Finding]:
    """A finding for every comment that silences nothing.

    `checked` are the rules about whose findings the comments have been asked. The other rules that they name are
    checked here: what silences a rule that is not selected is no waste. So is what silences a rule of a target that
    is not set, if that looks for more than the rule with its code and its words are written in the file.
    """
    if any(d.whole_file and (d.codes is None or _names_this(d)) for d in suppressions.directives):
        return
    if facts.project is None and _imports_more_than_torch(facts):
        return
    codes = {entry.code for entry in checked}
    for entry in ENTRIES:
        if entry.code not in codes and any(d.matching(entry.code, entry.name) for d in suppressions.directives):
            for found in findings_of(facts, entry):
                suppressions.silences(found)
    text = Written(facts.written)
    for entry in (entry for entry in _WIDER if entry not in checked and any(map(text.has, _more(entry)))):
        for directive in suppressions.directives:
            directive.used.update(directive.matching(entry.code, entry.name))
    wanted = {d.line for d in suppressions.directives if _names_this(d)}
    for directive in suppressions.directives:
        if directive.line in wanted:
            continue
        idle, misspelt = _idle(directive), unknown(directive)
        if idle is not None:
            yield _finding(facts, directive, idle)
        if misspelt:
            yield _misspelt(facts, directive, misspelt)


def _imports_more_than_torch(facts: ModuleFacts) -> bool:
    """Whether other modules may decide on what is found: FSDP can come from any that is not known."""
    known = {"torch", *sys.stdlib_module_names}
    return any(
        (isinstance(statement, ast.ImportFrom) and statement.level > 0)
        or any(name.split(".")[0] not in known for name in _modules(statement))
        for statement in facts.structure.imports
    )


def _modules(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.ImportFrom):
        return [statement.module or ""]
    return [alias.name for alias in statement.names]


def _names_this(directive: Directive) -> bool:
    return any(word.upper() == CARD.code or word.lower() == CARD.name for word in directive.codes or ())


def _idle(directive: Directive) -> tuple[str, ...] | None:
    """The codes that silenced nothing, () if it has none and silenced nothing; None if all of it is needed."""
    if not directive.codes:
        needless = directive.own and not directive.used
        return () if needless else None
    misspelt = unknown(directive)
    words = (word for word in directive.codes if word not in directive.used and word not in misspelt)
    return tuple(word for word in words if is_ours(word, directive)) or None


def _finding(facts: ModuleFacts, directive: Directive, idle: tuple[str, ...]) -> Finding:
    fix = Fix((_edit(facts.source, directive.comment, directive.text, _without(directive, idle)),))
    return _reported(facts, directive, idle, Verdict(fix))


def _misspelt(facts: ModuleFacts, directive: Directive, codes: tuple[str, ...]) -> Finding:
    return _reported(facts, directive, codes, manual(in_words(codes)))


def _reported(facts: ModuleFacts, directive: Directive, codes: tuple[str, ...], verdict: Verdict) -> Finding:
    place = Span(
        directive.comment.start + len(directive.text[: directive.start].encode()),
        directive.comment.start + len(directive.text[: directive.end].encode()),
    )
    where = "in this file" if directive.whole_file else "here"
    what = ", ".join(f"`{code}`" for code in codes) or f"`{facts.source.segment(place)}`"
    return finding(facts, CARD, place, directive.comment, f"{what} suppresses nothing {where}", verdict)


def _without(directive: Directive, idle: tuple[str, ...]) -> str:
    """The text of the comment without what is not needed."""
    text, left = directive.text, [word for word in directive.codes or () if word not in idle]
    if left:
        start, end = directive.codes_at
        return text[:start] + ", ".join(left) + text[end:]
    before, after = text[: directive.start].rstrip(), text[directive.end :].strip()
    if before:
        return f"{before}  {after}" if after.startswith("#") else f"{before} {after}".rstrip()
    after = after if after.startswith("#") else after.lstrip("-:,;\u2013\u2014 ")
    return after if not after or after.startswith("#") else f"# {after}"


def _edit(source: Source, comment: Span, old: str, new: str) -> EditComment:
    if new:
        return EditComment(comment, old, new)
    start = source.line_start(comment.start)
    before = source.data[start : comment.start]
    if before.strip():
        return EditComment(Span(start + len(before.rstrip()), comment.end), old, "")
    following = [offset for offset in source.line_starts if offset > comment.end]
    return EditComment(Span(start, following[0] if following else comment.end), old, "")
