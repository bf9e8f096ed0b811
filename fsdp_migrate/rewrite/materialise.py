"""From the plan of a rewrite to the new text."""

from __future__ import annotations

from collections.abc import Iterable

from fsdp_migrate.edits import (
    Edit,
    EditComment,
    EditImport,
    Hoist,
    ImportBehind,
    MoveImport,
    RemoveStatement,
    Replace,
    RewriteCall,
    Unwrap,
    Wrap,
)
from fsdp_migrate.rewrite.blocks import hoisted, new_text, unwrapped, wrapped
from fsdp_migrate.rewrite.imports import imported
from fsdp_migrate.rewrite.removal import removed
from fsdp_migrate.source import Replacement, Source
from fsdp_migrate.splicing import TooDeepError


def replacements(source: Source, edits: Iterable[Edit]) -> list[Replacement]:
    """The new texts that carry out `edits`, each with its place; equal edits count once.

    Raises:
        RewriteError: the plan cannot be carried out.
    """
    try:
        return _replacements(source, edits)
    except RecursionError:
        raise TooDeepError("too deeply nested to be rewritten: change it by hand") from None


def _replacements(source: Source, edits: Iterable[Edit]) -> list[Replacement]:
    different = list(dict.fromkeys(edits))
    replaces = [edit for edit in different if isinstance(edit, Replace)]
    going = [edit for edit in different if isinstance(edit, RemoveStatement)]
    blocks, used = wrapped(source, [edit for edit in different if isinstance(edit, Wrap)], replaces)
    alone = [edit for edit in different if isinstance(edit, (Replace, RewriteCall)) and edit not in used]
    return [
        *(Replacement(edit.span, new_text(source, edit)) for edit in alone),
        *blocks,
        *(Replacement(edit.span, edit.text) for edit in different if isinstance(edit, EditComment)),
        *(unwrapped(source, edit) for edit in different if isinstance(edit, Unwrap)),
        *removed(source, {edit.span for edit in going}, entirely={e.span for e in going if e.comments is not None}),
        *hoisted(source, [edit for edit in different if isinstance(edit, Hoist)]),
        *imported(source, [edit for edit in different if isinstance(edit, (EditImport, MoveImport, ImportBehind))]),
    ]
