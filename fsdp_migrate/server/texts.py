"""Positions, edits and diagnostics as the protocol has them."""

from __future__ import annotations

from collections.abc import Iterable

from lsprotocol import types
from pygls.workspace import PositionCodec

from fsdp_migrate.findings import Applicability, Finding, Severity
from fsdp_migrate.source import Replacement, Source, Span

NAME = "fsdp-migrate"
_SEVERITIES = {
    Severity.BREAKS: types.DiagnosticSeverity.Error,
    Severity.CHANGES: types.DiagnosticSeverity.Warning,
    Severity.DEPRECATED: types.DiagnosticSeverity.Warning,
    Severity.HINT: types.DiagnosticSeverity.Hint,
}
_WHOLE_LINE = types.Range(types.Position(0, 0), types.Position(0, 1))


class Positions:
    """The positions of one text, in the units that the client counts: of UTF-16, unless it asked for others."""

    def __init__(self, source: Source, codec: PositionCodec) -> None:
        self._source = source
        self._codec = codec

    def at(self, offset: int) -> types.Position:
        """The position of a byte offset."""
        line = self._source.line_number(offset) - 1
        before = self._source.data[self._source.line_starts[line] : offset].decode()
        return types.Position(line, self._codec.client_num_units(before))

    def range(self, span: Span) -> types.Range:
        """The range of a span."""
        return types.Range(self.at(span.start), self.at(span.end))

    def offset(self, position: types.Position) -> int:
        """The byte offset of a position; one behind the text or a line is its end."""
        lines = self._source.text_lines
        if position.line >= len(lines):
            return len(self._source.data)
        server = self._codec.position_from_client_units(lines, position)
        return self._source.line_starts[position.line] + len(lines[position.line][: server.character].encode())

    def edits(self, changes: Iterable[Replacement]) -> list[types.TextEdit]:
        """Changes as edits, in order."""
        ordered = sorted(changes, key=lambda one: (one.span, one.rank))
        return [types.TextEdit(self.range(span), text) for span, text, _ in ordered]

    def diagnostic(self, finding: Finding) -> types.Diagnostic:
        """A finding as a diagnostic."""
        is_old = finding.severity is Severity.DEPRECATED
        return types.Diagnostic(
            range=self.range(finding.span),
            message=message(finding),
            severity=_SEVERITIES[finding.severity],
            code=finding.code,
            code_description=None if finding.url is None else types.CodeDescription(finding.url),
            source=NAME,
            tags=[types.DiagnosticTag.Deprecated] if is_old else None,
        )


def message(finding: Finding) -> str:
    """What a finding says, and why it is not safe to fix."""
    if finding.reason is None:
        return finding.message
    kind = "unsafe fix" if finding.applicability is Applicability.UNSAFE else "manual"
    return f"{finding.message} ({kind}: {finding.reason})"


def error(text: str) -> types.Diagnostic:
    """Why there are no findings, at the start of a text."""
    return types.Diagnostic(_WHOLE_LINE, text, types.DiagnosticSeverity.Error, source=NAME)
