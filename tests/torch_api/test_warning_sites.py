"""Every place at which a torch release warns of a deprecation has a rule that finds it, or a reason why none does."""

from __future__ import annotations

from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import pytest

from fsdp_migrate.rules import RULES
from fsdp_migrate.torch_api import RELEASES
from fsdp_migrate.workspace.toml import load
from tests.rules.checks import lint
from tools.wheel_api.warning_sites import Site, warning_sites

HERE = Path(__file__).parent
HEAD, *LINES = (HERE / "warning_sites.tsv").read_text().splitlines()
SWEPT = HEAD.removeprefix("# torch ").split()
TABLE = {Site(place, text): ranges for place, ranges, text in (line.split("\t") for line in LINES)}
SITES = list(TABLE)


class Answer(NamedTuple):
    place: str = ""
    built_in: str = ""
    text: str = ""
    rule: str = ""
    torch: str = ">=2.1"
    program: str = ""
    reason: str = ""

    def is_for(self, site: Site) -> bool:
        return fnmatchcase(site.place, self.place) and self.text in site.text


def programs(answer: Answer) -> set[str]:
    """The program of an answer with the names of each place that it is for."""
    texts = set()
    for place in {site.place for site in SITES if answer.is_for(site)} or {""}:
        cls, _, name = place.rpartition(":")[2].rpartition(".")
        texts.add(answer.program.replace("NAME", name).replace("CLASS", cls))
    return texts


ANSWERS = [Answer(**fields) for fields in load(str(HERE / "warning_answers.toml"))["answer"]]
RULED = [(answer, program) for answer in ANSWERS if answer.rule for program in sorted(programs(answer))]


def test_the_newest_releases_were_swept() -> None:
    known = [str(release) for release in RELEASES]
    assert {"2.1.2", "2.4.1", "2.6.0", "2.9.1", "2.13.0", "2.14.1"} <= set(SWEPT) <= set(known)


class Installed:
    """The Python files of the torch that is installed."""

    def __init__(self, folder: Path) -> None:
        files = (file.relative_to(folder) for file in folder.glob("torch/**/*.py"))
        self._files = {".".join(file.with_suffix("").parts).removesuffix(".__init__"): folder / file for file in files}
        self.modules = sorted(self._files)

    def text(self, module: str) -> str:
        return self._files[module].read_text()


def test_what_is_installed_warns_where_the_sweep_says() -> None:
    try:
        torch = distribution("torch")
    except PackageNotFoundError:
        pytest.skip("torch is not installed")
    release = torch.version.partition("+")[0]
    if release not in SWEPT:
        pytest.skip(f"torch {release} was not swept")
    folder = Path(str(torch.locate_file("")))
    assert warning_sites(Installed(folder)) == [site for site, ranges in TABLE.items() if _lies_in(release, ranges)]


def _lies_in(release: str, ranges: str) -> bool:
    number = SWEPT.index(release)
    bounds = (text.partition("-") for text in ranges.split(","))
    return any(SWEPT.index(first) <= number <= SWEPT.index(last or SWEPT[-1]) for first, _, last in bounds)


@pytest.mark.parametrize("site", SITES, ids=lambda site: f"{site.place} {site.text[:20]}")
def test_every_place_has_one_answer(site: Site) -> None:
    found = [answer for answer in ANSWERS if answer.is_for(site)]
    assert len(found) == 1, f"give warning_answers.toml one answer for {site.place}: {site.text}"


def test_every_answer_is_for_some_place_and_names_a_rule_or_a_reason() -> None:
    unused = [answer for answer in ANSWERS if not answer.built_in and not any(map(answer.is_for, SITES))]
    assert unused == []
    assert [answer for answer in ANSWERS if bool(answer.rule) == bool(answer.reason)] == []
    assert {answer.rule for answer, _ in RULED} <= {rule.card.code for rule in RULES}


@pytest.mark.parametrize(("answer", "program"), RULED)
def test_the_rule_finds_a_program_that_gets_the_warning(answer: Answer, program: str) -> None:
    assert answer.rule in {finding.code for finding in lint(program, "FSDP", answer.torch)}
