"""The pages of a plan: HTML that is valid, safe whatever the code holds, and complete without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import html5lib
import pytest
from click.testing import CliRunner, Result
from pygments.styles import get_style_by_name
from pygments.token import Error

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.migration.reports import page

Run = Callable[..., Result]
HOSTILE = """\
from torch.distributed.fsdp import FlatParameter, FullyShardedDataParallel as FSDP


def gathered(model, optim):
    html = "</script></style><img src=x onerror=alert(1)>{{ 7 * 7 }}</pre>`~~~"
    odd = "\\N{RIGHT-TO-LEFT OVERRIDE}", "\u202e\u2028 \x0c"
    state = FSDP.full_optim_state_dict(model, optim)
    return state, html, odd


def flat(model: FSDP):
    name = "</details><script>alert(2)</script>"
    return name, [p for p in model.parameters() if isinstance(p, FlatParameter)]
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    Path(".git").mkdir()
    Path("<b>&a.py").write_text(HOSTILE, encoding="utf-8")
    return lambda *arguments: CliRunner().invoke(cli, ["plan", *arguments, "."], catch_exceptions=False)


def made(run: Run, *arguments: str) -> str:
    assert run("-o", "plan.html", *arguments).exit_code == 1
    return Path("plan.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", [(), ("--target", "dcp"), ("--target", "fsdp2")])
def test_a_page_is_valid_html(run: Run, target: tuple[str, ...]) -> None:
    Path("m.py").write_text("from torch.distributed.fsdp import FullyShardedDataParallel as F\nF(print()).eval()\n")
    html5lib.HTMLParser(strict=True).parse(made(run, *target))


def test_what_code_holds_is_text(run: Run) -> None:
    html = made(run)
    tree = html5lib.parse(html, namespaceHTMLElements=False)
    assert not list(tree.iter("script"))
    assert not list(tree.iter("img"))
    text = "".join(tree.itertext())
    assert "</script></style><img src=x onerror=alert(1)>{{ 7 * 7 }}" in text
    assert "</details><script>alert(2)</script>" in text
    assert "<b>&a.py" in text


def test_a_page_asks_no_network(run: Run) -> None:
    tree = html5lib.parse(made(run), namespaceHTMLElements=False)
    asking = [one.tag for one in tree.iter() if isinstance(one.tag, str) and {"src", "srcset"} & set(one.attrib)]
    assert asking == []
    assert not list(tree.iter("link"))
    (style,) = tree.iter("style")
    assert "url(" not in style.text
    assert "@import" not in style.text


def test_a_page_is_for_keyboards_and_screen_readers(run: Run) -> None:
    tree = html5lib.parse(made(run), namespaceHTMLElements=False)
    assert tree.attrib["lang"] == "en"
    assert {"header", "main", "footer"} <= {one.tag for one in tree.iter()}
    ids = [one.attrib["id"] for one in tree.iter() if "id" in one.attrib]
    assert len(ids) == len(set(ids))
    for link in tree.iter("a"):
        target = link.attrib["href"]
        assert not target.startswith("#") or target[1:] in ids
    first = next(tree.iter("a"))
    assert first.attrib["href"] == "#steps"
    levels = [int(one.tag[1]) for one in tree.iter() if isinstance(one.tag, str) and re.fullmatch(r"h\d", one.tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def _contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("number", "style"), [(0, page._LIGHT), (1, page._DARK)])
def test_colours_have_the_contrast_that_wcag_asks_for(run: Run, number: int, style: str) -> None:
    variables = re.findall(r":root \{(.*?)\}", made(run), re.DOTALL)[number]
    value = {name: code * 2 if len(code) == 3 else code for name, code in re.findall(r"--(\S+): #(\w+)", variables)}
    inks = [value[name] for name in ("ink", "soft", "link")]
    grounds = [value[name] for name in ("paper", "tint", "add", "sub")]
    code = [one["color"] for token, one in get_style_by_name(style) if one["color"] and token is not Error]
    generic = {one["color"] for token, one in get_style_by_name(style) if "Generic" in str(token)}
    assert min(_contrast(ink, value["paper"]) for ink in inks) >= 4.5
    assert (
        min(_contrast(ink, ground) for ink in set(code) - generic for ground in grounds if ground != value["tint"])
        >= 4.5
    )
    assert _contrast(value["add-ink"], value["tint"]) >= 4.5
    assert _contrast(value["sub-ink"], value["tint"]) >= 4.5


def test_a_page_that_is_too_long_is_split_by_package(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("lib/deep").mkdir(parents=True)
    Path("lib/deep/b.py").write_text(HOSTILE, encoding="utf-8")
    monkeypatch.setattr(page, "LONGEST", 1)
    overview = made(run)
    names = sorted(path.name for path in Path().glob("plan*.html"))
    assert names == ["plan-1.html", "plan-2.html", "plan.html"]
    assert '<a href="plan-2.html"><code>lib/deep</code></a></th>' in overview
    assert "full_optim_state_dict(model, optim)" not in overview
    deep = Path("plan-2.html").read_text(encoding="utf-8")
    assert "lib/deep/b.py" in deep
    assert "<summary><code>&lt;b&gt;" not in deep
    for name in names:
        html5lib.HTMLParser(strict=True).parse(Path(name).read_text(encoding="utf-8"))


def test_without_jinja_one_line_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    page._library.cache_clear()
    monkeypatch.setattr(page, "import_module", missing)
    result = run("-o", "plan.html")
    page._library.cache_clear()
    assert result.exit_code == 2
    assert "a page needs the package jinja2, which is not installed" in result.stderr


def test_a_page_needs_a_file(run: Run) -> None:
    result = run("--output-format", "html")
    assert result.exit_code == 2
    assert "a page goes into a file: give one with -o" in result.stderr


def test_markdown_is_short_enough_for_github_and_code_cannot_leave_its_fence(run: Run) -> None:
    Path("long.py").write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        + "".join(f"x{n} = FSDP.full_optim_state_dict(model, optim)\n\n\n\n\n\n\n\n\n" for n in range(800))
    )
    run("-o", "plan.md")
    document = Path("plan.md").read_text(encoding="utf-8")
    assert len(document) <= 65_536
    assert "The diffs are left out" in document
    Path("long.py").unlink()
    run("-o", "plan.md")
    document = Path("plan.md").read_text(encoding="utf-8")
    assert document.count("diff\n") >= 2
    assert "- [ ] **Make the safe fixes**" in document


def test_what_findings_share_is_said_once(run: Run) -> None:
    call = "    state = FSDP.full_optim_state_dict(model, optim)\n"
    Path("<b>&a.py").write_text(HOSTILE.replace(call, call * 20), encoding="utf-8")
    Path("b.py").write_text(HOSTILE, encoding="utf-8")
    assert made(run).count("is deprecated since torch 2.0: use <code>FSDP.optim_state_dict</code>") == 1


def test_the_text_of_a_rule_has_paragraphs(run: Run) -> None:
    html = made(run)
    assert "<p>The fix is <strong>safe</strong> if" in html
    assert "**" not in html.partition('id="rules"')[2]


def test_a_model_has_links_to_the_steps_that_free_it(run: Run) -> None:
    Path("m.py").write_text(
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def main(hook):\n    model = FSDP(torch.nn.Linear(2, 2))\n    model.register_comm_hook(None, hook)\n"
    )
    models = made(run, "--target", "fsdp2").partition('id="models"')[2].partition("</section>")[0]
    assert re.search(r'<a href="#step-\d+">step \d+</a></li>', models.replace("\n", ""))


def browse(tmp_path: Path, *options: str) -> str:
    always = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/p"]
    command = ["chromium", *always, *options, (tmp_path / "plan.html").as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext is not installed")
def test_what_is_closed_is_open_on_paper(run: Run, tmp_path: Path) -> None:
    assert "<details><summary>The whole text</summary>" in made(run)
    browse(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={tmp_path}/plan.pdf")
    told = subprocess.run(["pdftotext", f"{tmp_path}/plan.pdf", "-"], capture_output=True, text=True, check=True)
    assert "FSDP stores the parameters of a wrapped module in one FlatParameter." in told.stdout


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize("width", [1400, 420])
def test_a_browser_shows_the_page(run: Run, width: int, tmp_path: Path) -> None:
    made(run)
    tree = html5lib.parse(browse(tmp_path, f"--window-size={width},900", "--dump-dom"), namespaceHTMLElements=False)
    assert "Make the safe fixes" in "".join(tree.itertext())
    assert not list(tree.iter("script"))
