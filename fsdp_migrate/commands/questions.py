"""The commands that answer a question: `explain`, `rules`, `config` and `api`."""

from __future__ import annotations

import click

from fsdp_migrate.commands.options import CONFIG_FILE, SELECT, TEXT_OR_JSON, UnusableConfig, parse_torch, selected
from fsdp_migrate.report import text
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.settings import ConfigFileError
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.settings.nearest import ConfigFiles


@click.command(
    short_help="Explain a rule, with examples.",
    epilog="""\b
Examples:
  fsdp-migrate explain FSDP104
  fsdp-migrate explain isinstance-flat-parameter
  fsdp-migrate explain FSDP1
  fsdp-migrate explain clip""",
)
@click.argument("rule", metavar="RULE")
def explain(rule: str) -> None:
    """Explain a rule: what changed since which torch, and what the fix does, with examples.

    RULE is the code or the name of a rule. A prefix of a code, or a word, lists the rules that match.
    """
    from fsdp_migrate.report.cards import contract
    from fsdp_migrate.rules import find, fitting
    from fsdp_migrate.rules.index import ENTRIES
    from fsdp_migrate.spelling import closest_rule
    from fsdp_migrate.verify import proofs

    card = find(rule)
    fit = [card] if card is not None else fitting(rule)
    if not fit:
        near = closest_rule(rule, {entry.code: entry.name for entry in ENTRIES})
        raise click.UsageError(f"no rule is called {rule!r}{near}; `fsdp-migrate rules` lists them")
    if len(fit) > 1:
        text.print_rules(fit)
        return
    (card,) = fit
    text.print_card(card, card.severity_on(TorchRange.default()))
    promise = contract(card)
    if promise is not None:
        text.print_document(f"\n{promise}")
    cases = proofs(card.code)
    if cases:
        text.print_document(f"\nProven by `fsdp-migrate verify -k {card.code}`:\n  " + "\n  ".join(cases))


@click.command(
    epilog="""\b
Examples:
  fsdp-migrate rules
  fsdp-migrate rules --select FSDP1,FSDP503
  fsdp-migrate rules --output-format json""",
)
@SELECT
@TEXT_OR_JSON
def rules(select: tuple[str, ...], output_format: str) -> None:
    """List the rules."""
    from fsdp_migrate.rules import RULES

    chosen = selected(select)
    cards = [rule.card for rule in RULES if not select or rule.card.code.startswith(chosen)]
    if output_format == "json":
        from fsdp_migrate.report import json_format
        from fsdp_migrate.rules.catalogue import CHANGES

        codes = {card.code for card in cards}
        changes = [change for change in CHANGES if not select or codes.intersection(change.codes)]
        text.print_document(json_format.rules_report(cards, changes))
    else:
        text.print_rules(cards)


@click.command(
    "config",
    short_help="Show the settings that hold for a path.",
    epilog="""\b
Examples:
  fsdp-migrate config
  fsdp-migrate config src/train.py
  fsdp-migrate config --schema > fsdp-migrate.schema.json""",
)
@click.argument("path", default=".", type=click.Path(exists=True))
@click.option("--schema", is_flag=True, help="Print the JSON schema of the settings instead.")
@CONFIG_FILE
@TEXT_OR_JSON
def show_config(path: str, schema: bool, config_file: str | None, output_format: str) -> None:
    """Print the settings for PATH (default: the current folder) and the source of each.

    They are under [tool.fsdp-migrate] in the nearest pyproject.toml above a file, or in a fsdp-migrate.toml.
    """
    from fsdp_migrate.commands import config_answer

    if schema:
        text.print_document(config_answer.SCHEMA.read_text(encoding="utf-8").rstrip("\n"))
        return
    try:
        configured = ConfigFiles(config_file)
        found = config_answer.effective(path, configured)
        excluded = filesystem.left_out(path, Configuration(files=configured).choice)
    except ConfigFileError as error:
        raise UnusableConfig(f"{error.path}: {error}") from None
    text.print_notices(f"warning: {filesystem.printable(warning)}" for warning in configured.warnings)
    if output_format == "json":
        text.print_document(config_answer.document(path, found, excluded=excluded))
    else:
        if excluded:
            text.print_document(f"# {filesystem.printable(path)} is skipped in folders (exclude)")
        text.print_document("\n".join(config_answer.lines(found)))


@click.command(
    short_help="Look up a name of torch, release by release.",
    epilog="""\b
Examples:
  fsdp-migrate api optim_state_dict_to_load
  fsdp-migrate api FSDP.full_optim_state_dict --torch '>=2.1,<2.5'""",
)
@click.argument("name")
@click.option("--torch", metavar="RANGE", callback=parse_torch, help="Only these torch releases.")
@TEXT_OR_JSON
def api(name: str, torch: TorchRange | None, output_format: str) -> None:
    """Print since which torch NAME exists, its parameters, its deprecations and its modules.

    NAME is a name of torch with any part of its path.
    """
    from fsdp_migrate.commands import api_answer

    try:
        found = api_answer.answers(name, torch)
    except api_answer.UnknownName as error:
        raise click.UsageError(str(error)) from None
    text.print_document(api_answer.document(found) if output_format == "json" else "\n".join(api_answer.lines(found)))
