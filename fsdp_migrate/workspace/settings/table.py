"""The settings of `[tool.fsdp-migrate]`, one row each, for reading, JSON schema, `config` and docs."""

from __future__ import annotations

from typing import Any

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import SUFFIXES, YAML_SUFFIXES
from fsdp_migrate.workspace.settings import kinds
from fsdp_migrate.workspace.settings.kinds import OptionKind
from fsdp_migrate.workspace.settings.settings import CHECKPOINTS, HELPERS


class Setting(NamedTuple):
    """One setting: its key, its kind, its default, and what it does (in Markdown).

    `default` and `example` are TOML values; if the default is None, `unset` describes it. `option` is the option of the
    command line that overrides it.
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
        """The field of `Layer` for it."""
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
        "instead of `FSDP.state_dict_type`, for torch 2.4 and newer where no range is stated. `fsdp2`: models from "
        "FSDP1 to `fully_shard`, for torch 2.6 and newer; `rewrite` needs it on the command line.",
        "dcp",
        unset="no target",
        option="--target",
    ),
    Setting(
        "fsdp2-helper",
        kinds.HELPER,
        HELPERS[0],
        "How the target `fsdp2` writes what a program decides at run time. `auto`: as a call of a generated module "
        "`fsdp2.py`, only where it is needed. `always`: all sharding goes through that module. `never`: such a model "
        "is not converted.",
        "never",
        option="--fsdp2-helper",
    ),
    Setting(
        "checkpoints",
        kinds.CHECKPOINT,
        CHECKPOINTS[0],
        "What the target `fsdp2` loads. `keep`: also the files that the program wrote with FSDP1. `new`: only files "
        "written after the conversion, with less code.",
        "new",
        option="--checkpoints",
    ),
    Setting(
        "all-parameters-used",
        kinds.BOOLEAN,
        False,
        "Tell the target `fsdp2` that every trainable parameter gets a gradient on every rank in every step. Without "
        "it, that is a difference to accept before torch 2.13.",
        True,
        option="--all-parameters-used",
    ),
    Setting(
        "select",
        kinds.RULES,
        [],
        "Only these rules: codes, prefixes of codes, or names. If both `select` and `ignore` match a rule, the longer "
        "prefix wins; `ignore` wins if they are equally long.",
        ["FSDP1", "FSDP303", "isinstance-flat-parameter"],
        unset="all rules",
        option="--select",
    ),
    Setting("ignore", kinds.RULES, [], "Turn these rules off.", ["FSDP210"], option="--ignore"),
    Setting(
        "per-file-ignores",
        kinds.RULES_BY_PATTERN,
        {},
        "Rules to turn off in the files that match a pattern, whatever `select` says; `FSDP` means all. A pattern "
        "that starts with `!` means all files that do not match.",
        {"tests/": ["FSDP2"], "legacy/*.py": ["FSDP"]},
    ),
    Setting(
        "fixes",
        kinds.GRADES,
        {},
        "The grade of a rule's fixes, instead of its own: `rewrite` applies `safe` ones always, `unsafe` ones with "
        "`unsafe-fixes`, and `manual` ones never. It adds no fix where there is none.",
        {"FSDP301": "manual", "missing-optim-state-dict-config": "safe"},
    ),
    Setting(
        "unsafe-fixes",
        kinds.BOOLEAN,
        False,
        "Also apply fixes with an observable effect.",
        True,
        option="--unsafe-fixes",
    ),
    Setting(
        "hints",
        kinds.BOOLEAN,
        False,
        "Also report hints: code that works on all supported releases.",
        True,
        option="--hints",
    ),
    Setting(
        "fail-on",
        kinds.SEVERITY,
        "deprecated",
        "The lowest severity that gives exit code 1; `hint` turns `hints` on. Each finding uses the setting of its own "
        "file.",
        "breaks",
        option="--fail-on",
    ),
    Setting(
        "include",
        kinds.PATTERNS,
        [f"*{suffix}" for suffix in (*SUFFIXES, *YAML_SUFFIXES)],
        "The files to check in folders. A pattern that names a folder, or ends in `*`, means the Python and YAML files "
        "there. A pattern such as `bin/train` means this file. YAML counts only if it names `fsdp_config`, "
        "`fsdp_version` or `parallelism_config`.",
        ["src/", "bin/train"],
    ),
    Setting(
        "scripts",
        kinds.BOOLEAN,
        False,
        "Also check `.sh`, `.slurm`, `.sbatch`, `Makefile` and `Dockerfile*` in folders. One that you name is always "
        "checked.",
        True,
    ),
    Setting(
        "exclude",
        kinds.PATTERNS,
        [],
        "Paths to skip in folders, besides the paths in `.gitignore`, environments and build results. A file that you "
        "name on the command line is still checked, unless you pass `--force-exclude`.",
        ["third_party/", "*_pb2.py"],
        option="--exclude",
    ),
    Setting(
        "baseline",
        kinds.PATH,
        None,
        "The file that `lint --write-baseline` wrote, relative to the folder of the configuration file. Its findings "
        "are known, and only others are reported.",
        "fsdp-baseline.json",
        unset="every finding counts",
        option="--baseline",
    ),
)

BY_KEY = {setting.key: setting for setting in SETTINGS}
