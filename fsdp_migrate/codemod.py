"""This tool as a LibCST codemod, to run beside a team's other codemods.

    python -m libcst.tool codemod -x fsdp_migrate.codemod.MigrateFsdp --no-format src/

`-x` takes the class from anywhere. Where `.libcst.codemod.yaml` lists `fsdp_migrate` under `modules`, the command is
`codemod.MigrateFsdp` without `-x`. Without `--no-format` LibCST runs its configured formatter (black) over every file
that changes. LibCST prints the whole module anew, which loses a form feed at the start of a line;
`fsdp-migrate rewrite` touches nothing but the places that it fixes. It also reads the settings of the project and which
torch it requires; the codemod knows its options alone. Both follow names through the modules of the project, the
codemod as they lie on the disk at that moment.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from libcst import Module, parse_module
from libcst.codemod import CodemodCommand, CodemodContext, SkipFile

from fsdp_migrate.findings import Severity
from fsdp_migrate.lint import worth_linting
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.report.plain import finding_line
from fsdp_migrate.rules.index import ENTRIES, OF_TARGETS
from fsdp_migrate.source import declared_encoding
from fsdp_migrate.splicing import RewriteError
from fsdp_migrate.torch_api import DEFAULT_RANGE, RangeError, TorchRange
from fsdp_migrate.workspace.filesystem import Discovery, SourceFile
from fsdp_migrate.workspace.modules.view import View
from fsdp_migrate.workspace.reading import imports_relatively
from fsdp_migrate.workspace.settings import ConfigError, Settings, selectors
from fsdp_migrate.workspace.settings.settings import default_range
from fsdp_migrate.workspace.workspace import Workspace


class MigrateFsdp(CodemodCommand):
    """`fsdp-migrate rewrite` as a codemod; what it leaves, with the reasons, becomes LibCST's warnings."""

    DESCRIPTION = "Rewrite PyTorch FSDP code that a newer torch deprecates, breaks or silently changes."

    @staticmethod
    def add_args(arg_parser: argparse.ArgumentParser) -> None:
        """Add the options that `fsdp-migrate rewrite` has too."""
        arg_parser.add_argument(
            "--torch",
            metavar="RANGE",
            type=_usable(TorchRange.parse),
            help=f"The torch releases that the code has to run on. Defaults to '{DEFAULT_RANGE}', or to the target's",
        )
        arg_parser.add_argument(
            "--target",
            choices=tuple(OF_TARGETS),
            help="What to move to beyond a newer torch; dcp: state dicts without FSDP.state_dict_type.",
        )
        for option, help_text in (
            ("--select", "Only these rules: codes, prefixes of codes (FSDP1) or names, separated by commas."),
            ("--ignore", "Turn these rules off; if both options match, the longer prefix wins."),
        ):
            arg_parser.add_argument(
                option, metavar="RULES", type=_usable(_codes), action="extend", default=[], help=help_text
            )
        arg_parser.add_argument(
            "--unsafe-fixes",
            action="store_true",
            help="Also apply fixes with an observable effect.",
        )

    def __init__(
        self,
        context: CodemodContext,
        torch: str | TorchRange | None = None,
        select: Iterable[str] = (),
        ignore: Iterable[str] = (),
        unsafe_fixes: bool = False,
        target: str | None = None,
    ) -> None:
        """Read the settings; `select`, `ignore` and `target` take what the options take.

        Raises:
            RangeError: `torch` is not a range of known releases.
            ConfigError: a selector fits no rule, or there is no such target.
        """
        super().__init__(context)
        if target is not None and target not in OF_TARGETS:
            raise ConfigError(f"there is no target `{target}`: {', '.join(OF_TARGETS)}")
        supported = TorchRange.parse(torch) if isinstance(torch, str) else torch or default_range(target)
        selected, ignored = _selectors(select), _selectors(ignore)
        self.settings = Settings(supported, selected, ignored, unsafe_fixes=unsafe_fixes, target=target)

    def transform_module_impl(self, tree: Module) -> Module:
        """Rewrite `tree`, which is given back as it is when there is nothing to fix.

        Raises:
            SkipFile: the module holds none of the names that the rules look for.
            RewriteError: the rewrite failed, which is this program's fault.
            SourceError: the module declares an encoding that does not exist.
        """
        text = tree.code
        encoding = declared_encoding(text)
        raw = text.encode(encoding)
        view = self._view()
        if not worth_linting(raw, self.context.filename or "<string>", self.settings, view):
            raise SkipFile("no FSDP names")
        if view is None and imports_relatively(raw):
            self.warn("the context has no filename: modules of the project, which this one imports, are not followed")
        result = rewrite_bytes(raw, self.context.filename or "<string>", self.settings, view)
        if result.error is not None:
            raise RewriteError(result.error)
        for finding in result.left:
            if finding.severity is not Severity.HINT:
                self.warn(finding_line(finding))
        if result.raw == raw:
            return tree
        return parse_module(result.raw.decode(encoding), tree.config_for_parsing)

    def _view(self) -> View | None:
        """What the module can learn of its project; nothing where nobody says where it lies."""
        path = self.context.filename
        if path is None:
            return None
        file = SourceFile(path, path)
        return Workspace(Discovery((file,))).view(file, self.settings)


def _usable(read: Callable[[str], object]) -> Callable[[str], object]:
    """`read` with errors that argparse shows as they are."""

    def checked(value: str) -> object:
        try:
            return read(value)
        except (ConfigError, RangeError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _codes(value: str) -> tuple[str, ...]:
    return _selectors([value])


def _selectors(values: Iterable[str]) -> tuple[str, ...]:
    return selectors(values, {entry.code: entry.name for entry in ENTRIES})
