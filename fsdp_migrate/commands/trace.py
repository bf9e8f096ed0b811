"""The command `trace`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fsdp_migrate.commands.options import usage_errors
from fsdp_migrate.report import text
from fsdp_migrate.report.plain import counted

if TYPE_CHECKING:
    from fsdp_migrate.trace.records import Trace


@click.command(
    short_help="Run a program, and record which calls of torch it makes.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  fsdp-migrate trace -o uses.json -- torchrun --nproc-per-node 2 train.py
  fsdp-migrate trace -o uses.json -- pytest tests/
  fsdp-migrate trace -o uses.json --append -- python eval.py
  fsdp-migrate lint --trace uses.json src/

The exit code is the one of COMMAND; 2 if it cannot be started, or the file cannot be written.""",
)
@click.option(
    "-o",
    "--output-file",
    "file",
    metavar="FILE",
    required=True,
    type=click.Path(dir_okay=False),
    help="Where the trace goes.",
)
@click.option("--append", is_flag=True, help="Add to the trace that FILE has.")
@click.option("-q", "--quiet", is_flag=True, help="Print only what is wrong with the trace.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def trace(file: str, append: bool, quiet: bool, command: tuple[str, ...]) -> None:
    """Run COMMAND, and record its calls of the functions of torch that rules speak of, however it reaches them.

    Recorded are names, places relative to the repository, and types; no values and no data. `lint --trace FILE` uses
    it.
    """
    from fsdp_migrate.report.output import write_text
    from fsdp_migrate.trace import records
    from fsdp_migrate.trace.running import CommandError, run

    folder = os.path.dirname(os.path.abspath(file))
    if not os.access(folder, os.W_OK):
        raise click.UsageError(f"{file}: the folder {folder} cannot be written")
    try:
        known = records.load(file) if append and os.path.exists(file) else records.Trace()
        ran = run(command)
    except (records.TraceError, CommandError) as error:
        raise click.UsageError(str(error)) from None
    whole = records.merged([known, ran.noted.trace])
    with usage_errors():
        write_text(file, records.document(whole))
    text.print_notices(f"note: {remark}" for remark in ran.noted.remarks)
    if ran.nothing is not None:
        text.print_notice(f"note: nothing was recorded: {ran.nothing}")
    if not quiet:
        text.print_notices(_told(file, ran.noted.trace))
    click.get_current_context().exit(ran.code)


def _told(file: str, trace: Trace) -> Iterator[str]:
    """What was recorded, and what never is."""
    from fsdp_migrate.trace.apis import untraced

    places = {call.place for call in trace.calls if call.place is not None}
    calls = counted(sum(call.times for call in trace.calls), "call")
    processes = "1 process" if trace.processes == 1 else f"{trace.processes} processes"
    yield f"Wrote {file}: {calls} at {counted(len(places), 'place')}, from {processes} with torch."
    outside = sorted({call.api for call in trace.calls if call.place is None})
    if outside:
        yield f"From no line of this repository came calls of {', '.join(outside)}."
    if trace.processes and not trace.sees_lines:
        yield "Which other lines ran is known only from Python 3.12 on."
    for name, why in trace.unwatched.items():
        yield f"Calls of {name} are not seen: {why}."
    codes = ", ".join(rule.card.code for rule in untraced())
    yield f"No call shows what these rules are about (imports, types, positions and defaults of arguments): {codes}."
