"""The settings of `[tool.fsdp-migrate]`, one row each; reading, JSON schema, `config` and docs come from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fsdp_migrate.source import SUFFIXES
from fsdp_migrate.workspace.settings import kinds
from fsdp_migrate.workspace.settings.kinds import OptionKind


@dataclass(frozen=True)
class Setting:
    """One setting: its key, what it may be, what holds where nobody sets it, and what it is for (in Markdown).

    `default` and `example` are values as TOML has them; a default of None is told by `unset`. `option` is the option
    of the command line that wins over it.
    """

    key: str
    kind: OptionKind
    default: Any
    doc: str
    example: Any
    unset: str = ""
    option: str | None = None

    @property
    def field(self) -> str:
        """The field of `Layer` that holds it."""
        return self.key.replace("-", "_")


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "torch",
        kinds.RANGE,
        None,
        "The torch releases that the code has to run on; a version alone means that one and newer.",
        ">=2.2,<2.8",
        unset="read from the project's own files",
        option="--torch",
    ),
    Setting(
        "target",
        kinds.TARGET,
        None,
        "What to move to beyond a newer torch. `dcp`: state dicts through `torch.distributed.checkpoint.state_dict` "
        "instead of `FSDP.state_dict_type`, for torch 2.4 and newer where no range is stated.",
        "dcp",
        unset="no target",
        option="--target",
    ),
    Setting(
        "select",
        kinds.RULES,
        [],
        "Only these rules: codes, starts of codes, or names. Where `select` and `ignore` both fit, the longer start of "
        "the code wins, and `ignore` if they are equally long.",
        ["FSDP1", "FSDP303", "isinstance-flat-parameter"],
        unset="all rules",
        option="--select",
    ),
    Setting("ignore", kinds.RULES, [], "Not these rules.", ["FSDP210"], option="--ignore"),
    Setting(
        "per-file-ignores",
        kinds.RULES_BY_PATTERN,
        {},
        "Rules to leave out in the files that a pattern fits, whatever `select` says; `FSDP` means all. A pattern that "
        "starts with `!` means all files that it does not fit.",
        {"tests/": ["FSDP2"], "legacy/*.py": ["FSDP"]},
    ),
    Setting(
        "fixes",
        kinds.GRADES,
        {},
        "How far the fixes of a rule are trusted, whatever the rule says itself: `safe` ones are applied by `rewrite`, "
        "`unsafe` ones with `unsafe-fixes`, `manual` ones never. Where there is no fix, there still is none.",
        {"FSDP301": "manual", "missing-optim-state-dict-config": "safe"},
    ),
    Setting(
        "unsafe-fixes",
        kinds.BOOLEAN,
        False,
        "Let `rewrite` also apply fixes after which something observable differs.",
        True,
        option="--unsafe-fixes",
    ),
    Setting("hints", kinds.BOOLEAN, False, "Also show hints: what works, and is discouraged.", True, option="--hints"),
    Setting(
        "fail-on",
        kinds.SEVERITY,
        "deprecated",
        "The least severe finding that makes the exit code 1; `hint` brings `hints` with it. Every finding is held "
        "against the setting of its own file.",
        "breaks",
        option="--fail-on",
    ),
    Setting(
        "include",
        kinds.PATTERNS,
        [f"*{suffix}" for suffix in SUFFIXES],
        "The files to take where a folder is searched. A pattern that names a folder, or ends in `*`, takes the Python "
        "files there; one like `bin/train` takes that very file.",
        ["src/", "bin/train"],
    ),
    Setting(
        "exclude",
        kinds.PATTERNS,
        [],
        "What to leave out where a folder is searched, besides what `.gitignore` names, environments and build "
        "results. A file that is named on the command line is taken all the same, unless with `--force-exclude`.",
        ["third_party/", "*_pb2.py"],
        option="--exclude",
    ),
    Setting(
        "baseline",
        kinds.PATH,
        None,
        "The baseline, a path from the folder of the configuration file: what `lint --write-baseline` put there is "
        "known, and only other findings are reported.",
        "fsdp-baseline.json",
        unset="every finding counts",
        option="--baseline",
    ),
)

BY_KEY = {setting.key: setting for setting in SETTINGS}
