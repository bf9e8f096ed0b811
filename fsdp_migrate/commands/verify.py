"""The command `verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fsdp_migrate import runner
from fsdp_migrate.commands.options import usage_errors
from fsdp_migrate.commands.runs import (
    refuse_rewrite_options,
    rendezvous,
    rewrite_layer,
    with_machine_options,
    with_rewrite_options,
)
from fsdp_migrate.source import is_notebook
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.settings import Layer
from fsdp_migrate.workspace.settings.configuration import Configuration

if TYPE_CHECKING:
    from pathlib import Path

    from fsdp_migrate.verify import Fixture


# What shows that a program is as it was before a target, where it does not say so itself.
_EVIDENCE = {"fsdp2": "call torch.distributed.fsdp.FullyShardedDataParallel.__init__"}


@click.command(
    short_help="Run programs before and after a rewrite, and compare them.",
    epilog="""\b
Examples:
  fsdp-migrate verify
  fsdp-migrate verify -k FSDP104 --nproc 4
  fsdp-migrate verify my/case/
  fsdp-migrate verify --rewrite my/before.py
  fsdp-migrate verify --rewrite my/check.py --target fsdp2 --unsafe-fixes

Exit codes: 0 every program that ran did as expected, and one ran at least,
1 one did not, 2 bad usage or no torch.""",
)
@click.argument("paths", nargs=-1, type=click.Path(exists=True))
@click.option("-k", "keyword", metavar="PATTERN", help="Part of a fixture's name, a pattern with *, or a rule code.")
@click.option(
    "--nproc", type=click.IntRange(1, 256), help="Ranks (per machine).  [default: 2, more if a fixture needs them]"
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where the ranks run; auto uses GPUs if there are enough.",
)
@click.option("--timeout", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Seconds per scenario.")
@click.option("--full", is_flag=True, help="Every sharding strategy and optimizer, on 2 and 4 ranks.")
@click.option(
    "--torch", "pythons", metavar="PYTHON", multiple=True, help="A Python with another torch; may be repeated."
)
@click.option(
    "--rewrite",
    "to_rewrite",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Compare this program with its rewrite; may be repeated.",
)
@with_rewrite_options
@with_machine_options
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="Format of the report.",
)
def verify(**options: Any) -> None:
    """Run programs before and after rewriting on real process groups, and compare what every rank observes.

    PATHS are cases, folders with a before.py and an after.py, or folders of cases (default: the bundled fixtures).
    """
    import gc
    import tempfile
    from pathlib import Path

    from fsdp_migrate import verify as harness

    gc.enable()
    _check(options)
    settings = harness.RunSettings(
        nproc=options["nproc"],
        device=options["device"],
        timeout=options["timeout"],
        full=options["full"],
        pythons=options["pythons"],
        rendezvous=rendezvous(options),
    )
    chosen = {"keyword": options["keyword"], "output_format": options["output_format"]}
    if not options["to_rewrite"]:
        click.get_current_context().exit(harness.run(settings, paths=map(Path, options["paths"]), **chosen))
    with tempfile.TemporaryDirectory(prefix="fsdp-migrate-") as folder:
        layer = rewrite_layer(options)
        pairs = [_rewritten_pair(Path(path), Path(folder), layer) for path in options["to_rewrite"]]
        code = harness.run(settings, pairs=pairs, **chosen)
    click.get_current_context().exit(code)


def _check(options: dict[str, Any]) -> None:
    """Refuse what does not go together."""
    if options["paths"] and options["to_rewrite"]:
        raise click.UsageError("give PATHS or --rewrite, not both")
    if not options["to_rewrite"]:
        refuse_rewrite_options(options, "fixtures say themselves what they need")


def _rewritten_pair(before: Path, folder: Path, layer: Layer) -> Fixture:
    """A program and what rewriting makes of it, written into `folder`; with a target so are the modules beside it."""
    if is_notebook(str(before)):
        raise click.UsageError(f"{before}: a notebook has no scenario: give a .py file")
    from pathlib import Path

    from fsdp_migrate.verify import FixtureError, read_fixture

    beside = filesystem.discover((str(before if layer.target is None else before.parent),))
    with usage_errors():
        plan = runner.rewrite(beside, Configuration(layer, rewriting=True), write=False)
    if plan.failures:
        raise click.UsageError(f"{plan.failures[0].path}: {plan.failures[0].message}")
    if not plan.changes:
        left = "".join(f"; {finding.code} is left: {finding.reason}" for finding in plan.findings[:1])
        raise click.UsageError(f"{before}: rewriting changes nothing, so there is nothing to compare{left}")
    if not _has_scenario(before.read_bytes()):
        raise click.UsageError(f"{before}: has no function scenario(trial), which the ranks run")
    own = folder / str(len(list(folder.iterdir())))
    texts = {Path(file.path): filesystem.read(file) for file in beside.files}
    texts.update((Path(change.path), change.after) for change in plan.changes)
    for path, text in texts.items():
        copy = own / path.relative_to(before.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(text)
    try:
        evidence = _EVIDENCE.get(layer.target or "")
        return read_fixture(before, own / before.name, evidence=evidence, target=layer.target)
    except FixtureError as error:
        raise click.UsageError(str(error)) from None


def _has_scenario(program: bytes) -> bool:
    """Whether a program that parses may have a `scenario`, by whatever means: the ranks need seconds to find out."""
    import ast
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(program)
    names = {"scenario", "*"}
    return any(
        names & {getattr(part, field, None) for field in ("name", "asname", "id", "value")}
        for part in ast.walk(tree)
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias, ast.Name, ast.Constant))
    )
