"""The commands `checkpoint inspect` and `checkpoint convert`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fsdp_migrate.commands.options import TEXT_OR_JSON
from fsdp_migrate.report import text
from fsdp_migrate.workspace import filesystem

if TYPE_CHECKING:
    from fsdp_migrate.checkpoint.edits import ParameterNames


class UnusableCheckpoint(click.ClickException):
    """A checkpoint that cannot be read or converted."""

    exit_code = 3


@click.group()
def checkpoint() -> None:
    """Say what a checkpoint holds and what reads it, and turn one into another."""


@checkpoint.command(
    short_help="Say what a checkpoint holds and what reads it.",
    epilog="""\b
Examples:
  fsdp-migrate checkpoint inspect model.pt
  fsdp-migrate checkpoint inspect --output-format json step-1000/

Exit codes: 0 it is described, 2 bad usage, 3 it is no checkpoint, or a damaged one.""",
)
@click.argument("path", type=click.Path(readable=False))
@TEXT_OR_JSON
def inspect(path: str, output_format: str) -> None:
    """Say how the checkpoint at PATH is laid out, which torch wrote it, what reads it and what does not.

    PATH is a file of torch.save or a folder of torch.distributed.checkpoint. No code in it is run, the numbers of
    tensors are not read, and torch is not needed.
    """
    from fsdp_migrate.checkpoint import inspect as look
    from fsdp_migrate.checkpoint import report

    with _one_line(path):
        contents = look(path)
        if output_format == "json":
            text.print_document(report.document(contents))
        else:
            text.print_document("\n".join(filesystem.printable(line) for line in report.lines(contents)))


@checkpoint.command(
    short_help="Turn a checkpoint into another one.",
    epilog="""\b
Examples:
  fsdp-migrate checkpoint convert model.pt model/
  fsdp-migrate checkpoint convert step-1000/ model.pt
  fsdp-migrate checkpoint convert --to full old.pt new.pt
  fsdp-migrate checkpoint convert --parameter-names names.json old.pt new/

Exit codes: 0 done, 2 bad usage or no torch, 3 it cannot be converted; then there
is nothing new.""",
)
@click.argument("source", metavar="SRC", type=click.Path(readable=False))
@click.argument("target", metavar="DST", type=click.Path(readable=False))
@click.option(
    "--to",
    type=click.Choice(["full", "dcp"]),
    help="A file of torch.save, or a folder of torch.distributed.checkpoint.  [default: what SRC is not]",
)
@click.option(
    "--parameter-names",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Parameter names for an optimizer with state by number: a JSON file with a list for each group.",
)
@click.option("--keep-prefixes", is_flag=True, help="Leave names as they are.")
@click.option("--trust", is_flag=True, help="Load pickles that can run code: only if you trust the author.")
def convert(
    source: str, target: str, to: str | None, parameter_names: str | None, keep_prefixes: bool, trust: bool
) -> None:
    """Write what the checkpoint SRC holds to DST, which must not exist, so that newer programs read it.

    Prefixes of wrappers are removed from names, entries that share one `step` get their own, and groups of Adam get
    `decoupled_weight_decay`. The result is read back and compared before it gets its name; SRC never changes.
    """
    import gc
    import importlib.util

    gc.enable()
    if importlib.util.find_spec("torch") is None:
        raise click.UsageError("torch is not installed; pip install torch numpy")
    names = _names(parameter_names) if parameter_names is not None else None
    from fsdp_migrate.checkpoint.contents import Format
    from fsdp_migrate.checkpoint.report import size

    try:
        from fsdp_migrate.checkpoint.conversion import Wish
        from fsdp_migrate.checkpoint.conversion import convert as make
    except ImportError as error:
        raise click.UsageError(f"this torch cannot convert checkpoints, 2.3 and newer can: {error}") from None

    wish = Wish(target, {"full": Format.FULL, "dcp": Format.DCP, None: None}[to], names, not keep_prefixes, trust)
    with _one_line(source):
        made = make(source, wish, lambda line: text.print_document(filesystem.printable(line)))
    held = f"{made.format.value}, {size(made.nbytes)} of tensors, read back and compared"
    text.print_document(filesystem.printable(f"{target}: {held}"))


@contextlib.contextmanager
def _one_line(path: str) -> Iterator[None]:
    from fsdp_migrate.checkpoint import CheckpointError

    try:
        yield
    except CheckpointError as error:
        raise UnusableCheckpoint(filesystem.printable(f"{path}: {error}")) from None


def _names(file: str) -> ParameterNames:
    """The lists of names in a JSON file."""
    import json
    from pathlib import Path

    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise click.BadParameter(f"{file}: {error}", param_hint="--parameter-names") from None
    if not isinstance(found, list) or not all(
        isinstance(group, list) and all(isinstance(name, str) for name in group) for group in found
    ):
        raise click.BadParameter(
            f"{file} does not contain a list of names for each group", param_hint="--parameter-names"
        )
    return found
