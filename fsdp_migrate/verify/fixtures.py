"""Fixtures: where they are and what their headers say. Nothing here needs torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatch
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

AXES = ("use_orig_params", "strategy", "optimizer", "world", "rank")
FACTS = (*AXES, "torch", "device")
NEEDS = tuple(fact for fact in FACTS if fact != "rank")

_HEADER_LINE = re.compile(r"#\s*([a-z]+):\s*(.*?)\s*$")
_CONDITION = re.compile(r"(\w+)\s*(==|!=|>=|<=|=|>|<|~=)\s*(\S+)$")
_CODE = re.compile(r"FSDP\d{3}$")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")


class FixtureError(ValueError):
    """A fixture that cannot be used; the message is one line that names file and line."""


@dataclass(frozen=True)
class Condition:
    """A comparison of one fact of a run (`FACTS`) with a value, such as ``world>=4`` or ``use_orig_params=True``."""

    fact: str
    operator: str
    value: str

    def holds(self, facts: Mapping[str, object]) -> bool:
        """Whether the condition holds for `facts`; a fact that is not given satisfies every condition on it."""
        if self.fact not in facts:
            return True
        actual = facts[self.fact]
        if self.fact == "torch":
            return SpecifierSet(f"{self.operator}{self.value}").contains(str(actual), prereleases=True)
        if isinstance(actual, int) and not isinstance(actual, bool):
            return _COMPARE[self.operator](actual, int(self.value))
        return (str(actual) == self.value) == (self.operator != "!=")

    def __str__(self) -> str:
        operator = "=" if self.operator == "==" and self.fact != "torch" else self.operator
        return f"{self.fact}{operator}{self.value}"


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}


@dataclass(frozen=True)
class Evidence:
    """What shows that a program uses the old API.

    `kind` is ``warning`` (`text` occurs in its message), ``raises``, ``call`` (`text` is the function's qualified
    name) or ``deprecation`` (any deprecation warning; what a pair without a header is held to). For a call,
    `argument` narrows it to calls that do (`given`) or do not pass that parameter. It is to be seen wherever `when`
    holds, which is about torch.
    """

    kind: str
    text: str = ""
    argument: str | None = None
    given: bool = True
    when: tuple[Condition, ...] = ()

    def __str__(self) -> str:
        if self.kind == "deprecation":
            return "a deprecation warning"
        if self.kind == "raises":
            return "an exception"
        if self.kind == "warning":
            return f'a warning with "{self.text}"'
        narrowed = "" if self.argument is None else f" with{'' if self.given else 'out'} {self.argument}"
        return f"a call of {self.text}{narrowed}"


@dataclass(frozen=True)
class Fails:
    """`before` raises `exception` on every rank wherever `when` holds, which is not about one rank."""

    exception: str
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Differs:
    """The observation `name` differs wherever `when` holds, and is the same elsewhere."""

    name: str
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Target:
    """What rewriting moves to beyond a newer torch."""

    name: str


@dataclass(frozen=True)
class Header:
    """What the comment lines at the top of `before.py` declare; `unsafe` if rewriting needs `--unsafe-fixes`.

    `target` is what `--target` has to be.
    """

    rules: tuple[str, ...] = ()
    fails: tuple[Fails, ...] = ()
    differs: tuple[Differs, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    needs: tuple[Condition, ...] = ()
    left: tuple[str, ...] = ()
    unsafe: bool = False
    target: str | None = None

    @property
    def world(self) -> int:
        """The smallest number of ranks the fixture runs on."""
        wanted = [int(c.value) + (c.operator == ">") for c in self.needs if c.fact == "world" and c.operator in _LOWER]
        return max([1, *wanted])


_LOWER = (">=", ">", "==")


@dataclass(frozen=True)
class Fixture:
    """One case: a program before rewriting and, unless nothing is rewritten, after it."""

    name: str
    before: Path
    after: Path | None
    header: Header = field(default_factory=Header)


def fixtures_root() -> Path:
    """The folder of the bundled fixtures, in an installed wheel or in a checkout.

    Raises:
        FixtureError: neither is there.
    """
    package = Path(__file__).resolve().parent.parent
    for root in (package / "_fixtures", package.parent / "fixtures"):
        if root.is_dir():
            return root
    raise FixtureError(f"{package}: no fixtures beside the package; install the wheel or use a checkout")


def find_fixtures(paths: Iterable[Path] = (), keyword: str | None = None) -> list[Fixture]:
    """The fixtures under `paths` (default: the bundled ones) whose name matches `keyword`, by name.

    A path is a case (a folder with `before.py`, or that file) or a folder of cases. Headers are obligatory below
    `fixtures_root()`; anywhere else a pair without one is held to showing a deprecation warning. Only what is about a
    rule may lack an `after.py`. `keyword` is a part of the name or a pattern with ``*``, or a rule code.

    Raises:
        FixtureError: no case at a path, no `after.py`, or a bad header.
    """
    given = [Path(path) for path in paths]
    root = fixtures_root() if not given else None
    found: dict[Path, Fixture] = {}
    for path in [root] if root else given:
        for before in _cases(path):
            fixture = read_fixture(before, strict=root is not None)
            if fixture.after is None and not fixture.header.rules:
                raise FixtureError(f"{before}: no after.py beside it; write one, or give it as --rewrite {before}")
            found.setdefault(fixture.before, fixture)
    return sorted((f for f in found.values() if keyword is None or _matches(f, keyword)), key=lambda f: f.name)


_WARNING = "deprecation"


def read_fixture(
    before: Path,
    after: Path | None = None,
    *,
    name: str | None = None,
    strict: bool = False,
    evidence: str | None = None,
    target: str | None = None,
) -> Fixture:
    """One fixture from its files; `after` defaults to the `after.py` beside `before`, if there is one.

    `evidence` is what a program without any in its header is held to, as in a header; a deprecation warning if None.
    `target` is what it was rewritten for, where its header does not say.

    Raises:
        FixtureError: `before` cannot be read, or its header is bad (`strict`: or missing).
    """
    before = before.resolve()
    beside = before.with_name("after.py")
    if after is None and beside.is_file() and beside != before:
        after = beside
    try:
        text = before.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FixtureError(f"{before}: cannot be read: {error}") from None
    header = parse_header(text, before, strict=strict)
    if evidence is not None and header.evidence == (Evidence(_WARNING),):
        header = replace(header, evidence=tuple(_evidence(evidence)))
    header = replace(header, target=header.target or target)
    named = before.parts[-3:-1] if before.name == "before.py" else before.parts[-2:]
    return Fixture(name or "/".join(named), before, after, header)


def parse_header(text: str, path: Path, *, strict: bool = True) -> Header:
    """Read the header at the top of `text`; without `strict` everything has a default.

    Raises:
        FixtureError: a line that is not understood, or (strict) a missing ``fixture``, ``expect`` or ``evidence``.
    """
    values: dict[str, tuple[object, ...]] = {}
    at_the_top = True
    for number, line in enumerate(text.split("\n"), start=1):
        at_the_top = at_the_top and (line.startswith("#") or not line.strip())
        match = _HEADER_LINE.match(line)
        if not match:
            continue
        key, value = match.groups()
        try:
            if at_the_top:
                values[key] = values.get(key, ()) + _header_line(key, value, strict=strict)
            elif _is_out_of_place(key, value):
                raise ValueError(f"'# {key}:' is read only at the top, above the first line that is not a comment")
        except ValueError as error:
            raise FixtureError(f"{path}:{number}: {error}") from None
    missing = [key for key in ("fixture", "expect", "evidence") if key not in values]
    if strict and missing:
        raise FixtureError(f"{path}:1: the header has no '# {missing[0]}:'")
    return _header(values)


def _header_line(key: str, value: str, *, strict: bool) -> tuple[object, ...]:
    if key in _PARSERS:
        return tuple(_PARSERS[key](value))
    if strict or get_close_matches(key, _PARSERS, cutoff=0.75):
        raise ValueError(f"unknown header line '{key}:'; known are {', '.join(_PARSERS)}")
    return ()  # a comment


def _is_out_of_place(key: str, value: str) -> bool:
    """Whether a comment further down says what only a header says."""
    try:
        return key in ("expect", "evidence") and bool(_PARSERS[key](value) or value == "same")
    except ValueError:
        return False


def _header(values: Mapping[str, tuple[object, ...]]) -> Header:
    expect = values.get("expect", ())
    return Header(
        rules=_only(str, values.get("fixture", ())),
        fails=_only(Fails, expect),
        differs=_only(Differs, expect),
        evidence=_only(Evidence, values.get("evidence", (Evidence(_WARNING),))),
        needs=_only(Condition, values.get("needs", ())),
        left=_only(str, values.get("left", ())),
        unsafe="unsafe" in values.get("fix", ()),
        target=next((value.name for value in _only(Target, values.get("target", ()))), None),
    )


def _only(kind: type, values: Sequence[object]) -> tuple:  # type: ignore[type-arg]
    return tuple(value for value in values if isinstance(value, kind))


def _cases(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if (path / "before.py").is_file():
        return [path / "before.py"]
    cases = sorted(path.rglob("before.py")) if path.is_dir() else []
    if not cases:
        raise FixtureError(f"{path}: no before.py here; a case is a folder with before.py and after.py")
    return cases


def _matches(fixture: Fixture, keyword: str) -> bool:
    if "*" in keyword:
        return fnmatch(fixture.name, keyword)
    return keyword in fixture.name or keyword in fixture.header.rules


def _codes(value: str) -> list[str]:
    codes = [] if value == "-" else re.split(r"[,\s]+", value)
    for code in codes:
        if not _CODE.match(code):
            raise ValueError(f"not a rule code: {code!r}; write FSDP101, several with commas")
    return codes


def _conditions(value: str, separator: str, allowed: Sequence[str]) -> list[Condition]:
    return [_condition(part.strip(), allowed) for part in value.split(separator)]


def _condition(text: str, allowed: Sequence[str]) -> Condition:
    match = _CONDITION.match(text)
    if not match or match.group(1) not in allowed:
        raise ValueError(f"not a condition: {text!r}; write one of {', '.join(allowed)} and a value, as in world>=4")
    fact, operator, value = match.groups()
    operator = "==" if operator == "=" else operator
    if fact == "torch":
        try:
            SpecifierSet(f"{operator}{value}")
        except InvalidSpecifier:
            raise ValueError(f"not a torch version: {text!r}") from None
    elif fact in ("world", "rank"):
        if not value.isdigit() or operator not in _COMPARE:
            raise ValueError(f"not a number of ranks: {text!r}")
    elif operator not in ("==", "!="):
        raise ValueError(f"{fact} can only be compared with = and !=: {text!r}")
    return Condition(fact, operator, value)


def _expectations(value: str) -> list[object]:
    if value == "same":
        return []
    told, _, when = value.partition(" when ")
    facts = NEEDS if told.startswith("before-fails") else FACTS
    conditions = tuple(_conditions(when, " and ", facts)) if when else ()
    fails = re.match(r"before-fails\s+([A-Za-z_][\w.]*)(?:\s+\[([^\]]+)\])?$", told)
    if fails:
        return [Fails(fails.group(1), (*_releases(fails.group(2)), *conditions))]
    differs = re.match(r"differs\s+(.+)$", told)
    if differs:
        return [Differs(differs.group(1).strip('"'), conditions)]
    raise ValueError(
        f"not an expectation: {value!r}; write same, before-fails TYPE [torch>=2.1] or differs NAME when AXIS=VALUE"
    )


def _releases(text: str | None) -> tuple[Condition, ...]:
    """A version range, `torch>=2.1,<2.4`: its parts are bounds each."""
    bounds = re.sub(r"^torch\s*", "", text).split(",") if text else []
    return tuple(_condition(f"torch{bound.strip()}", ("torch",)) for bound in bounds)


def _evidence(value: str) -> list[Evidence]:
    ranged = re.match(r"(.*?)\s+\[([^\]]+)\]$", value)
    if ranged:
        return [replace(evidence, when=_releases(ranged.group(2))) for evidence in _evidence(ranged.group(1))]
    if value in ("raises", "deprecation"):
        return [Evidence(value)]
    warning = re.match(r'warning\s+"([^"]+)"$', value)
    if warning:
        return [Evidence("warning", warning.group(1))]
    call = re.match(r"call\s+(\S+?)(?:\s+(with|without)\s+(\w+))?$", value)
    if call and _NAME.match(call.group(1)):
        return [Evidence("call", call.group(1), call.group(3), call.group(2) != "without")]
    raise ValueError(f'not evidence: {value!r}; write warning "text", raises, or call QUALIFIED.NAME')


def _fix(value: str) -> list[str]:
    if value not in ("safe", "unsafe"):
        raise ValueError(f"not a kind of fix: {value!r}; write safe or unsafe")
    return [value]


def _target(value: str) -> list[Target]:
    if not re.fullmatch(r"[a-z][a-z0-9]*", value):
        raise ValueError(f"not a target: {value!r}; write a value of --target, such as dcp")
    return [Target(value)]


_PARSERS: dict[str, Callable[[str], Iterable[object]]] = {
    "fixture": _codes,
    "expect": _expectations,
    "evidence": _evidence,
    "needs": lambda value: _conditions(value, ",", NEEDS),
    "left": _codes,
    "fix": _fix,
    "target": _target,
}
