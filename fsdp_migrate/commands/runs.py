"""Options of the commands that run programs before and after a rewrite."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fsdp_migrate.commands.options import parse_torch, with_fsdp2_options
from fsdp_migrate.workspace.settings import TARGETS, Layer

if TYPE_CHECKING:
    from fsdp_migrate.verify import Rendezvous

# What the rewrite of a program is told.
_OF_REWRITES = ("unsafe_fixes", "target", "torch_range", "fsdp2_helper", "checkpoints", "all_parameters_used")


def with_rewrite_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how `--rewrite` rewrites."""
    command = with_fsdp2_options(command)
    for option in (
        click.option(
            "--torch-range",
            metavar="RANGE",
            callback=parse_torch,
            help="With --rewrite: the torch releases that the rewritten program has to run on, as `--torch` of "
            "`rewrite`.",
        ),
        click.option(
            "--target",
            type=click.Choice(list(TARGETS)),
            help="With --rewrite: what the program and the modules beside it move to.",
        ),
        click.option("--unsafe-fixes", is_flag=True, help="With --rewrite: also apply unsafe fixes."),
    ):
        command = option(command)
    return command


def rewrite_layer(options: dict[str, Any]) -> Layer:
    """The settings that those options give."""
    return Layer(
        torch=options["torch_range"],
        unsafe_fixes=options["unsafe_fixes"] or None,
        target=options["target"],
        fsdp2_helper=options["fsdp2_helper"],
        checkpoints=options["checkpoints"],
        all_parameters_used=options["all_parameters_used"],
    )


def refuse_rewrite_options(options: dict[str, Any], reason: str) -> None:
    """Refuse those options where nothing is rewritten."""
    given = next((name for name in _OF_REWRITES if options[name]), None)
    if given is not None:
        raise click.UsageError(f"--{given.replace('_', '-')} is for --rewrite: {reason}")


def with_machine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for a run on several machines."""
    for option in (
        click.option("--rdzv-backend", metavar="NAME", help="Backend of the rendezvous."),
        click.option("--rdzv-endpoint", metavar="HOST:PORT", help="Address of the rendezvous."),
        click.option("--node-rank", type=click.IntRange(min=0), help="The number of this machine."),
        click.option(
            "--nnodes",
            type=click.IntRange(min=1),
            default=1,
            help="Number of machines; this and the next three are as for torchrun.",
        ),
    ):
        command = option(command)
    return command


def rendezvous(options: dict[str, Any]) -> Rendezvous:
    """How the machines of those options find each other."""
    from fsdp_migrate.verify import Rendezvous

    if options["nnodes"] > 1 and options["rdzv_endpoint"] is None:
        raise click.UsageError("--nnodes needs --rdzv-endpoint HOST:PORT, the address of the rendezvous")
    return Rendezvous(options["nnodes"], options["node_rank"], options["rdzv_endpoint"], options["rdzv_backend"])
