"""The command `prove`."""

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
from fsdp_migrate.report.output import check_place, write_text
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.settings.configuration import Configuration

if TYPE_CHECKING:
    from pathlib import Path, PurePath

    from fsdp_migrate.prove.copies import Project
    from fsdp_migrate.prove.experiment import Experiment
    from fsdp_migrate.prove.subject import Subject
    from fsdp_migrate.prove.verdicts import Conclusion

_HEAD = "HEAD"


@click.command(
    short_help="Run your own program before and after a migration, and compare.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  fsdp-migrate prove --nproc 2 -- train.py --config tiny.yaml
  fsdp-migrate prove --before v1.4 --after HEAD -- -m mylib.train
  fsdp-migrate prove --rewrite --target fsdp2 --unsafe-fixes -- train.py
  fsdp-migrate prove --steps 4 --then-resume -- train.py
  fsdp-migrate prove -- -m pytest tests/test_train.py

Exit codes: 0 both do the same, 1 they do not or there is no evidence,
2 bad usage, or the program cannot be started.""",
)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM...")
@click.option("--nproc", type=click.IntRange(1, 256), default=2, show_default=True, help="Ranks (per machine).")
@click.option("--before", metavar="COMMIT", help="The old version.  [default: HEAD; with --rewrite the working tree]")
@click.option("--after", metavar="COMMIT", help="The new version.  [default: the working tree]")
@click.option("--rewrite", "rewritten", is_flag=True, help="The new version is what `rewrite` would write.")
@with_rewrite_options
@click.option("--steps", type=click.IntRange(min=1), help="Stop all ranks after this many optimizer steps.")
@click.option("--then-resume", is_flag=True, help="Start both again, from their own and each other's checkpoint.")
@click.option("--resume-args", metavar="ARGS", help="Arguments in addition for these starts.")
@click.option("--deterministic", is_flag=True, help="Seed both, and set torch's deterministic algorithms.")
@click.option("--rtol", type=click.FloatRange(min=0), help="How far values may be apart, relative to the old one.")
@click.option("--atol", type=click.FloatRange(min=0), help="How far values may be apart.")
@click.option(
    "--shared", multiple=True, metavar="PATH", type=click.Path(), help="Link this instead of copying it; repeatable."
)
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="Set for the program; repeatable.")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=600.0, show_default=True, help="Seconds for each start."
)
@click.option("--torch", "python", metavar="PYTHON", help="The Python that runs the program.  [default: this one]")
@with_machine_options
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "junit"]),
    default="text",
    show_default=True,
    help="Format of the report.",
)
@click.option(
    "--html", "page", metavar="FILE", type=click.Path(dir_okay=False), help="Also write a page with the curves of both."
)
def prove(**options: Any) -> None:
    """Run a training program before and after a migration, and compare what every rank computes, saves and loads.

    PROGRAM is what torchrun would get: a script or -m MODULE, with its arguments. Both versions run from clean copies
    of the project (a git repository), the old one twice; nothing in the project changes.
    """
    from fsdp_migrate.prove import report
    from fsdp_migrate.prove.copies import CopyError
    from fsdp_migrate.prove.launch import LaunchError, interrupted, workplace
    from fsdp_migrate.prove.page import PageError, as_page
    from fsdp_migrate.verify.lanes import LaneError
    from fsdp_migrate.verify.stopping import stoppable

    _check(options)
    try:
        with stoppable(), workplace() as place:
            conclusion = _concluded(options, place)
            # The report reads values from the records.
            told = report.FORMATS[options["output_format"]](conclusion)
            page = None if options["page"] is None else as_page(conclusion)
    except (CopyError, LaunchError, LaneError, PageError) as error:
        raise click.UsageError(str(error)) from None
    except KeyboardInterrupt as interrupt:
        click.echo("interrupted; every rank has been stopped", err=True)
        click.get_current_context().exit(interrupted(interrupt))
    click.echo(told)
    if page is not None:
        with usage_errors():
            write_text(options["page"], page)
    click.get_current_context().exit(conclusion.exit_code)


def _check(options: dict[str, Any]) -> None:
    """Refuse what does not go together."""
    if options["rewritten"] and (options["before"] or options["after"]):
        raise click.UsageError("--rewrite compares the working tree with its rewrite: give no --before or --after")
    if not options["rewritten"]:
        refuse_rewrite_options(options, "otherwise both versions are as they are")
    if options["nnodes"] > 1 and options["node_rank"] is None:
        raise click.UsageError("--nnodes needs --node-rank: a machine has to have the same ranks in each start")
    if options["resume_args"] is not None and not options["then_resume"]:
        raise click.UsageError("--resume-args is for --then-resume")
    if options["page"] is not None:
        with usage_errors():
            check_place(options["page"])
    wrong = next((given for given in options["environment"] if not given.partition("=")[0] or "=" not in given), None)
    if wrong is not None:
        raise click.UsageError(f"--env {wrong}: give NAME=VALUE")


def _concluded(options: dict[str, Any], place: Path) -> Conclusion:
    from dataclasses import replace
    from pathlib import Path

    from fsdp_migrate.prove import copies, verdicts
    from fsdp_migrate.prove.compare import compare
    from fsdp_migrate.prove.tolerance import Tolerance

    project = copies.find_project(Path.cwd(), [Path(path) for path in options["shared"]])
    experiment = _experiment(options, project, place)
    if options["rewritten"]:
        copies.copy_working_tree(project, experiment.before)
        copies.copy_copy(experiment.before, experiment.after)
        copies.lay_over(experiment.after, _rewritten(options, project))
    else:
        copies.copy_commit(project, options["before"] or _HEAD, experiment.before)
        _copy_after(options["after"], project, experiment.after)
    subject = _subject(options, project, experiment)
    found = experiment.findings()
    tolerance = Tolerance(options["rtol"], options["atol"], drift=found.drifting)
    return replace(
        verdicts.judge(compare(found.phases, found.changed, tolerance), found.missing_checkpoint), subject=subject
    )


def _experiment(options: dict[str, Any], project: Project, place: Path) -> Experiment:
    import shlex
    import sys

    from fsdp_migrate.prove.experiment import Experiment, Settings
    from fsdp_migrate.prove.launch import Program
    from fsdp_migrate.verify.lanes import probe

    program = Program(
        words=options["words"],
        nproc=options["nproc"],
        # The same machine has to get the same ranks in each start, which c10d does not promise.
        rendezvous=rendezvous({**options, "rdzv_backend": options["rdzv_backend"] or "static"}),
        python=probe(options["python"] or sys.executable, "cpu").python,
        environment=dict(given.split("=", 1) for given in options["environment"]),
        timeout=options["timeout"],
    )
    drifting = options["target"] == "fsdp2"
    settings = Settings(
        steps=options["steps"],
        resume_words=tuple(shlex.split(options["resume_args"] or "")) if options["then_resume"] else None,
        deterministic=options["deterministic"],
        measured=drifting or options["rtol"] is not None or options["atol"] is not None,
        drifting=drifting,
    )
    return Experiment(program, project, place, settings, lambda line: click.echo(line, err=True))


def _copy_after(commit: str | None, project: Project, target: Path) -> None:
    from fsdp_migrate.prove import copies

    if commit is None:
        copies.copy_working_tree(project, target)
    else:
        copies.copy_commit(project, commit, target)


def _rewritten(options: dict[str, Any], project: Project) -> dict[PurePath, bytes]:
    """What `rewrite` would write, by the places of the files in the project."""
    from pathlib import Path, PurePath

    found = filesystem.discover((str(project.root),))
    with usage_errors():
        plan = runner.rewrite(found, Configuration(rewrite_layer(options), rewriting=True), write=False)
    if not plan.changes:
        told = plan.failures[0] if plan.failures else None
        left = f"; {told.path}: {told.message}" if told else ""
        left += "".join(f"; {finding.code} is left: {finding.reason}" for finding in plan.findings[:1])
        raise click.UsageError(f"rewriting changes nothing, so there is nothing to compare{left}")
    return {PurePath(Path(change.path).resolve().relative_to(project.root)): change.after for change in plan.changes}


def _subject(options: dict[str, Any], project: Project, experiment: Experiment) -> Subject:
    from fsdp_migrate.prove import copies, subject

    files = subject.differing(experiment.before, experiment.after)
    if not files:
        told = f"{options['before'] or _HEAD} and {options['after'] or 'the working tree'} have the same files"
        raise click.UsageError(f"{told}: name another version with --before or --after, or give --rewrite")
    rewrite = subject.Rewrite(options["target"], options["unsafe_fixes"]) if options["rewritten"] else None
    return subject.Subject(tuple(options["words"]), copies.commit_of(project, _HEAD), rewrite, files)
