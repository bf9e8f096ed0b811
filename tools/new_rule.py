"""Start a rule: its module with a card, fixtures and a test, which pass as they are and wait to be filled in.

    python -m tools.new_rule FSDP599 summon-full-params 'a call of `FSDP.summon_full_params`'
    python -m tools.new_rule FSDP599 old-name 'a method that has a new name' --method old_name --rewrites new_name

The rule looks for calls of the FSDP method that `--method` names. Without it that is the method which the rule is named
after, or just some method if there is none.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from packaging.version import Version

from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.rules import RULES
from fsdp_migrate.torch_api import DEFAULT_RANGE, RELEASES, TorchRange, data

ROOT = Path(__file__).resolve().parent.parent
# No fixture calls it, so that a rule that starts with it finds nothing in the fixtures of others.
SOME_METHOD = "check_is_root"
LONGEST_SUMMARY = 100
_INDEX = Path("fsdp_migrate/rules/index.py")
# The folders of the families under targets/, by the first digit of a code.
_FAMILIES = {
    "1": "modernise/optimizer",
    "2": "modernise/state_dict",
    "3": "modernise/flat_parameter",
    "4": "modernise/wrapping",
    "5": "modernise/constructor",
    "6": "modernise/general",
    "7": "modernise/checkpoint",
    "8": "modernise/neighbours",
    "9": "fsdp2",
}

_RULE = Template('''\
"""$code: $summary.

Source: the torch release and the file that show what the card says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

$imports

_METHOD = "$method"
$constants

def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find calls of `FSDP.$method`."""
    for call in facts.structure.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != _METHOD:
            continue
        receiver = facts.fsdp.receiver(call.func, call.args[0] if call.args else None)
        if receiver is None or not facts.reached(call):
            continue
        message = f"`FSDP.{_METHOD}` is called"
$verdict
        yield finding(facts, card, call.func, facts.statement(call), message, verdict)
$functions

_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\\n\\n"

RULE = Rule(
    RuleCard(
        code="$code",
        name="$name",
        summary="$summary",
        explanation="""\\
What happens on which torch release, and what to write instead.""",
        applicability="$applicability",
$since
        flags=($flags),
        leaves=("from mylib import FSDP\\n\\nFSDP.$method(model)\\n",),
        url="https://pytorch.org/docs/stable/fsdp.html",
    ),
    words=(_METHOD,),
    check=check,
)
''')

_MANUAL = {
    "imports": """\
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding$severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual""",
    "constants": "",
    "verdict": '        verdict = manual("what to write instead")',
    "functions": "",
    "applicability": "manual",
    "flags": 'Example(before=_IMPORT + "FSDP.$method(model)\\n"),',
}

_SAFE = {
    "imports": """\
from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import ordered_arguments
from fsdp_migrate.facts.fsdp import Receiver
from fsdp_migrate.findings import Finding, Fix$severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual""",
    "constants": '_NEW = "$new"\n',
    "verdict": "        verdict = _renamed(facts, call, receiver)",
    "functions": """

def _renamed(facts: ModuleFacts, call: ast.Call, receiver: Receiver) -> Verdict:
    if receiver.doubt is not None:
        return manual(f"{receiver.doubt}: only torch's FSDP can be rewritten")
    kept = tuple(
        Argument(argument.arg if isinstance(argument, ast.keyword) else None, index)
        for index, argument in enumerate(ordered_arguments(call))
    )
    return Verdict(Fix((RewriteCall(facts.source.span(call), _NEW, kept),)))
""",
    "applicability": "safe or manual",
    "flags": """
            Example(
                before=_IMPORT + "FSDP.$method(model)\\n",
                after=_IMPORT + "FSDP.$new(model)\\n",
            ),
        """,
}

_TEST_HEAD = """\
from __future__ import annotations

from tests.rules.checks import $checks

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\\n\\n"

"""

_TEST_MANUAL = """
def test_a_call_is_reported() -> None:
    check_manual(IMPORT + "FSDP.$method(model)\\n", "$code", "what to write instead")

"""

_TEST_SAFE = """
def test_a_call_gets_the_new_name_and_keeps_its_arguments() -> None:
    check_transformed(
        IMPORT + "FSDP.$method(model, *args, flag=True)  # why\\n",
        IMPORT + "FSDP.$new(model, *args, flag=True)  # why\\n",
        "$code",
    )


def test_a_class_that_may_be_another_one_is_manual() -> None:
    fallback = f"if flag:\\n    {IMPORT}else:\\n    from mylib import FSDP\\n\\n"
    check_manual(fallback + "FSDP.$method(model)\\n", "$code", "mylib.FSDP")

"""

_TEST_TAIL = """
def test_the_method_of_another_class_is_left_alone() -> None:
    check_noop("from mylib import FSDP\\n\\nFSDP.$method(model)\\n", "$code")
"""

_FIXTURE = Template('''\
# fixture: $code
# expect: $expect
# evidence: $evidence
$left"""What a user does with `FSDP.$method`."""

$import


def use(model):
    return $class.$called(model)


def scenario(trial):
    model = trial.model()
    optim = trial.optimizer(model)
    trial.train(model, optim, 1)
    trial.observe("result", type(use(model)).__name__)
    trial.train(model, optim, 1)
''')


# Cases of a fixture by name: how each brings the class in, and what it calls it.
_CASES = {
    "first": ("from torch.distributed.fsdp import FullyShardedDataParallel as FSDP", "FSDP"),
    "attribute-chain": ("import torch.distributed.fsdp as fsdp", "fsdp.FullyShardedDataParallel"),
}


class Refused(Exception):
    """The rule cannot be started; the message is one line for the user."""


@dataclass(frozen=True)
class Request:
    """The rule to start; `rewrites` is the method that takes the place of `method`, None when nothing is rewritten."""

    code: str
    name: str
    summary: str
    method: str
    rewrites: str | None = None

    @property
    def module(self) -> str:
        """The name of the rule's module."""
        return self.name.replace("-", "_")

    @property
    def folder(self) -> str:
        """The folder of the rule's family, in the package as in the tests."""
        return f"targets/{_FAMILIES[self.code[4]]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the options, write the files, say what comes next; 2 when refused."""
    parser = argparse.ArgumentParser(prog="python -m tools.new_rule", description=__doc__.partition("\n")[0])
    parser.add_argument("code", help="a free code of the right family, such as FSDP599; see docs/rules.md")
    parser.add_argument("name", help="in kebab case; also names the module, the test and the folder of fixtures")
    parser.add_argument("summary", help="what the rule finds: half a sentence, code in backticks")
    parser.add_argument("--method", help="the FSDP method whose calls the rule finds")
    parser.add_argument("--rewrites", metavar="METHOD", help="the rule rewrites: the FSDP method to call instead")
    given = parser.parse_args(arguments)
    try:
        request = checked(given.code, given.name, given.summary.removesuffix("."), given.method, given.rewrites)
        files = scaffold(ROOT, request)
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 2
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    print("\n".join(_next_steps(request, [path.relative_to(ROOT).as_posix() for path in files])))
    return 0


def checked(code: str, name: str, summary: str, method: str | None = None, rewrites: str | None = None) -> Request:
    """The request with a method to look for.

    Raises:
        Refused: something is taken, badly written, or no method of FSDP.
    """
    if not re.fullmatch(r"FSDP[1-9]\d\d", code):
        raise Refused(f"a code is FSDP and three digits, the first of them a family (1 to 9), not {code!r}")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(name):
        raise Refused(f"a name is lower-case words with hyphens, such as optim-input, not {name!r}")
    for card in (rule.card for rule in RULES):
        if code == card.code or name == card.name:
            raise Refused(f"{code if code == card.code else name} is taken: {card.code} {card.name}, {card.summary}")
    if not summary or not summary.isprintable() or '"' in summary or "\\" in summary:
        raise Refused("a summary is one line without double quotes and backslashes; write code in backticks")
    if len(summary) > LONGEST_SUMMARY:
        raise Refused(f"the summary has {len(summary)} characters: keep it within {LONGEST_SUMMARY}")
    for wanted in (method, rewrites):
        if wanted is not None and data.first(f"{FSDP}.{wanted}") is None:
            raise Refused(f"the API data of torch know no FSDP.{wanted}")
    supported = TorchRange.parse(DEFAULT_RANGE).releases
    lacking = [release for release in supported if rewrites and not data.exists(f"{FSDP}.{rewrites}", release)]
    if lacking:
        raise Refused(f"torch {lacking[0]} has no FSDP.{rewrites} to call instead")
    named_after = name.replace("-", "_")
    found = method or (named_after if data.first(f"{FSDP}.{named_after}") else SOME_METHOD)
    if found == rewrites:
        raise Refused(f"the rule would rewrite FSDP.{found} to itself: give the old method with --method")
    return Request(code, name, summary, found, rewrites)


def scaffold(root: Path, request: Request) -> dict[Path, str]:
    """Every file to write with its text.

    Raises:
        Refused: a file is there already.
    """
    values = _values(request)
    files = {
        root / "fsdp_migrate" / request.folder / f"{request.module}.py": _rule(values, request.rewrites),
        root / "tests" / request.folder / f"test_{request.module}.py": _test(values, request.rewrites),
    }
    for case in _CASES if request.rewrites else ["first"]:
        folder = root / "fixtures" / request.name / case
        files[folder / "before.py"] = _fixture(values, case, request.method, left=request.rewrites is None)
        if request.rewrites is not None:
            files[folder / "after.py"] = _fixture(values, case, request.rewrites, left=False)
    there = next((path for path in files if path.exists()), None)
    if there is not None:
        raise Refused(f"{there.relative_to(root).as_posix()} is there already: choose another name")
    index = root / _INDEX
    return {**files, index: indexed(index.read_text(encoding="utf-8"), request)}


def indexed(text: str, request: Request) -> str:
    """The text of rules/index.py with one more rule, in its place by code."""
    method = f'("{request.method}",)'
    fixes = "" if request.rewrites is None else ', fixes=("safe",)'
    module = f"{request.folder}/{request.module}".replace("/", ".")
    row = f'    Entry("{request.code}", "{request.name}", "{module}", {method}{fixes}),\n'
    lines = text.splitlines(keepends=True)
    rows = [line for line in lines if line.startswith("    Entry(")]
    start = lines.index(rows[0])
    return "".join([*lines[:start], *sorted([*rows, row]), *lines[start + len(rows) :]])


def _values(request: Request) -> dict[str, str]:
    """What the templates are filled with."""
    removed = _removed(request.method)
    new = data.first(f"{FSDP}.{request.rewrites}") if request.rewrites else None
    return {
        "code": request.code,
        "name": request.name,
        "summary": request.summary,
        "method": request.method,
        "new": request.rewrites or "",
        "since": f'removed="{removed}"' if removed else "severity=Severity.CHANGES",
        "floor": _minor(new) if new and new != RELEASES[0] else "",
        "expect": f"before-fails AttributeError [torch>={removed}]" if removed else "same",
        "evidence": "raises" if removed else f"call {FSDP}.{request.method}",
    }


def _removed(method: str) -> str | None:
    """The first release without the method, None while there is none."""
    last = data.last(f"{FSDP}.{method}")
    return None if last is None else _minor(next(release for release in RELEASES if release > last))


def _minor(release: Version) -> str:
    return f"{release.major}.{release.minor}"


def _rule(values: Mapping[str, str], rewrites: str | None) -> str:
    """The module of the rule."""
    parts = _MANUAL if rewrites is None else _SAFE
    severe = "severity" in values["since"]
    since = [values["since"], *([f'floor="{values["floor"]}"'] if values["floor"] else [])]
    known = {
        **values,
        "severity": ", Severity" if severe else "",
        "since": "\n".join(f"        {line}," for line in since),
    }
    filled = {name: Template(text).substitute(known) for name, text in parts.items()}
    return _RULE.substitute({**known, **filled})


def _test(values: Mapping[str, str], rewrites: str | None) -> str:
    """The test of the rule."""
    checks = "check_manual, check_noop" if rewrites is None else "check_manual, check_noop, check_transformed"
    middle = _TEST_MANUAL if rewrites is None else _TEST_SAFE
    return Template(_TEST_HEAD + middle + _TEST_TAIL).substitute(values, checks=checks)


def _fixture(values: Mapping[str, str], case: str, called: str, *, left: bool) -> str:
    """A program that calls the method `called`; `left` says that the finding stays."""
    imported, cls = _CASES[case]
    parts = {"import": imported, "class": cls, "called": called, "left": f"# left: {values['code']}\n" if left else ""}
    return _FIXTURE.substitute({**values, **parts})


def _next_steps(request: Request, written: list[str]) -> list[str]:
    rule, test = written[:2]
    word = request.name if request.name == request.module else f"{request.name} or {request.module}"
    return [
        *(f"wrote {path}" for path in written),
        "",
        f"It finds calls of `FSDP.{request.method}` and passes its tests. Make it yours, as CONTRIBUTING.md says:",
        f"  {rule}: what `check` finds, message and reason, the card",
        f"  {test}: what else it has to find, and what to leave alone",
        f"  fixtures/{request.name}/: programs as users would have them",
        "and check it:",
        "  python -m tools.build_rule_index",
        "  python -m tools.build_rule_docs",
        f'  python -m pytest -q --ignore tests/verify -k "{word}"',
        f"  python -m fsdp_migrate.verify -k {request.name}",
    ]


if __name__ == "__main__":
    sys.exit(main())
