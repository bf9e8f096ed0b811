"""Comments that silence findings: `# noqa`, `# noqa: FSDP101` and `# fsdp-migrate: ignore[FSDP101]`."""

from __future__ import annotations

import re
from functools import cached_property

from fsdp_migrate.findings import Finding
from fsdp_migrate.source import Source

_NOQA = re.compile(r"#\s*noqa\b(?!-)(?:\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*))?", re.IGNORECASE)
_IGNORE = re.compile(r"#\s*fsdp-migrate:\s*ignore(?:\[(?P<codes>[^\]]*)\])?", re.IGNORECASE)
_EVERYTHING = ""


class Suppressions:
    """The suppressing comments of one file, by line."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @cached_property
    def by_line(self) -> dict[int, set[str]]:
        """Suppressed code prefixes (in capitals) or rule names by line; an empty prefix suppresses everything."""
        lines: dict[int, set[str]] = {}
        for span, comment in self.source.comments:
            found = [match for pattern in (_NOQA, _IGNORE) if (match := pattern.search(comment))]
            for match in found:
                codes = match["codes"]
                wanted = (
                    {_EVERYTHING} if codes is None else {code.upper() for code in re.split(r"[\s,]+", codes) if code}
                )
                lines.setdefault(self.source.position(span.start).line, set()).update(wanted)
        return lines

    def silences(self, finding: Finding) -> bool:
        """Whether a comment on any line of the finding's statement silences it."""
        statement = finding.statement
        first = self.source.position(statement.start).line
        last = self.source.position(max(statement.start, statement.end - 1)).line
        return any(
            code == _EVERYTHING or finding.code.startswith(code) or code == finding.name.upper()
            for line in range(first, last + 1)
            for code in self.by_line.get(line, ())
        )
