"""The plan as HTML pages that need nothing else: no network, no script."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from fsdp_migrate._version import __version__
from fsdp_migrate.migration.model import Diff, Migration, Step
from fsdp_migrate.migration.reports import models, text
from fsdp_migrate.migration.reports.parts import by_todo
from fsdp_migrate.migration.standing import PARTS, package_of
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.report import plain
from fsdp_migrate.report.output import FileOptionError
from fsdp_migrate.targets.fsdp2.steps import status

if TYPE_CHECKING:
    from markupsafe import Markup

# A longer page is split by package.
LONGEST = 10_000_000
# What stands around a line of a diff.
_LEAST_OF_LINE = 50
# These have a contrast of 4.5 to 1 on the backgrounds of a diff.
_LIGHT, _DARK = "xcode", "zenburn"


class Block(NamedTuple):
    """Lines of a diff that belong side by side: those that stay, or those that go with those that come instead."""

    stays: bool
    old: tuple[tuple[int, Markup], ...]
    new: tuple[tuple[int, Markup], ...]


def pages(plan: Migration, file: str) -> dict[str, str]:
    """The pages by the names of their files: one, or where that would be too long an overview and one for each package.

    Raises:
        FileOptionError: Jinja2 or Pygments is not installed.
    """
    if _least(plan.steps) <= LONGEST:
        whole = _render(plan, plan.steps)
        if len(whole.encode("utf-8", "replace")) <= LONGEST:
            return {file: whole}
    path = PurePath(file)
    named = sorted({package_of(place.path) for step in plan.steps for place in step.where})
    links = {package: f"{path.stem}-{number}{path.suffix}" for number, package in enumerate(named, 1)}
    short = [step._replace(items=(), causes=(), places=(), diffs=()) for step in plan.steps]
    found = {file: _render(plan, short, links=links)}
    for package, name in links.items():
        own = _of_package(plan.steps, package)
        found[str(path.with_name(name))] = _render(plan, own, package=package, home=path.name)
    return found


def _least(steps: Sequence[Step]) -> int:
    """How many bytes a page with these steps has at least."""
    diffs = [
        diff.patch for step in steps for diff in (*step.diffs, *(one for item in step.items for one in item.diffs))
    ]
    return sum(len(patch) + _LEAST_OF_LINE * patch.count(b"\n") for patch in diffs)


def _of_package(steps: Sequence[Step], package: str) -> list[Step]:
    """The steps with what they have in one package."""
    found = []
    for step in steps:
        items = tuple(item for item in step.items if package_of(item.place.path) == package)
        places = tuple(place for place in step.places if package_of(place.path) == package)
        diffs = tuple(diff for diff in step.diffs if package_of(diff.path) == package)
        causes = tuple(
            cause._replace(places=own)
            for cause in step.causes
            if (own := tuple(place for place in cause.places if package_of(place.path) == package))
        )
        if items or places or diffs:
            found.append(step._replace(items=items, causes=causes, places=places, diffs=diffs))
    return found


def _render(plan: Migration, steps: Sequence[Step], **more: Any) -> str:
    jinja, formatters = _library("jinja2"), _library("pygments.formatters")
    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(os.path.dirname(__file__)),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(prose=_prose, markdown=_markdown, blocks=_blocks, by_todo=by_todo, counted=plain.counted)
    styles = [formatters.HtmlFormatter(style=name).get_style_defs("code") for name in (_LIGHT, _DARK)]
    numbers = {step.id: number for number, step in enumerate(plan.steps, 1)}
    page: str = environment.get_template("page.html.jinja").render(
        plan=plan,
        steps=steps,
        numbers=numbers,
        told="; ".join(text.standing(plan)),
        parts=PARTS,
        light=styles[0],
        dark=styles[1],
        models=[
            (model, status(model), models.freeing(model, plan), models.own_steps(model, plan)) for model in plan.models
        ],
        shown_places=models.by_file,
        version=__version__,
        **{"links": {}, "package": None, "home": None, **more},
    )
    # Lone surrogates stand for bytes that are no text.
    return page.encode("utf-8", "backslashreplace").decode()


@cache
def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0].replace("markdown_it", "markdown-it-py")
        raise FileOptionError(f"a page needs the package {package}, which is not installed") from None


def _prose(value: str) -> Markup:
    """A text in which code stands between backticks."""
    markup = _library("markupsafe").Markup
    parts = value.split("`")
    if len(parts) % 2 == 0:
        return markup.escape(value)  # type: ignore[no-any-return]
    code = markup("<code>{}</code>")
    return markup("").join(code.format(part) if number % 2 else part for number, part in enumerate(parts))  # type: ignore[no-any-return]


def _markdown(value: str) -> Markup:
    """The text of a rule."""
    return _library("markupsafe").Markup(_library("markdown_it").MarkdownIt().render(value))  # type: ignore[no-any-return]


def _blocks(diff: Diff) -> Iterator[tuple[str, list[Block]]]:
    """The hunks of a diff, each with its header and its lines block by block."""
    lines = diff.patch.decode("utf-8", "backslashreplace").split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith("@@ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)]):
        header = lines[start]
        hunk = [line for line in lines[start + 1 : end] if line and not line.startswith("\\")]
        old, new = (int(part.partition(",")[0][1:]) for part in header.split()[1:3])
        olds = iter(_coloured(diff.path, [line[1:] for line in hunk if line[0] != "+"], old))
        news = iter(_coloured(diff.path, [line[1:] for line in hunk if line[0] != "-"], new))
        blocks = []
        for stays, group in groupby(hunk, key=lambda line: line[0] == " "):
            signs = [line[0] for line in group]
            own = tuple(next(olds) for sign in signs if sign != "+")
            blocks.append(Block(stays, own, tuple(next(news) for sign in signs if sign != "-")))
        yield header, blocks


@cache
def _colours(is_json: bool) -> tuple[Any, Any]:
    """What takes code apart, and what writes it in colours: making them takes longer than colouring a few lines."""
    lexers, formatters = _library("pygments.lexers"), _library("pygments.formatters")
    plain = lexers.JsonLexer if is_json else lexers.PythonLexer
    return plain(stripnl=False, ensurenl=False), formatters.HtmlFormatter(nowrap=True)


def _coloured(path: str, lines: list[str], first: int) -> list[tuple[int, Markup]]:
    """Lines of code in colour, with their numbers."""
    lexer, formatter = _colours(path.endswith(".ipynb"))
    # A form feed or another separator is no new line in a diff.
    code = _library("pygments").highlight("\n".join(lines), lexer, formatter)
    coloured = code.split("\n")[: len(lines)]
    markup = _library("markupsafe").Markup
    return [(first + number, markup(line)) for number, line in enumerate(coloured)]
