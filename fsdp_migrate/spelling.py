"""What somebody may have meant by a word that means nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# Letters that look like digits.
_DIGITS = str.maketrans("OIL", "011")


def closest_rule(word: str, rules: Mapping[str, str]) -> str:
    """As `closest`, for the code or the name of a rule; `rules` maps codes to names.

    Codes are near where they begin alike: rules with other digits are about something else.
    """
    like = re.fullmatch(r"FSDP[-_ ]?(\w{0,4})", word.upper())
    if like is None:
        return closest(word, [*rules, *rules.values()])
    written = "FSDP" + like[1].translate(_DIGITS)
    starts = (start for start in (written, written[:-1]) if re.fullmatch(r"FSDP\d{2,}", start))
    near = (code for start in starts for code in sorted(rules) if code.startswith(start))
    code = next(near, None)
    return "" if code is None else f" (did you mean {code}?)"


def closest(word: str, known: Iterable[str]) -> str:
    """A parenthesis for an error message that proposes the known word nearest to `word`, or nothing."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    import difflib  # only for messages

    near = difflib.get_close_matches(word.casefold(), by_folded, n=1)
    return f" (did you mean {by_folded[near[0]]}?)" if near else ""
