"""The settings of each file of a run: options first, then its configuration file, then the defaults."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from fsdp_migrate.findings import Severity
from fsdp_migrate.workspace.settings.nearest import ConfigFile, ConfigFiles
from fsdp_migrate.workspace.settings.settings import (
    ASKED_FOR_ONLY,
    CHECKPOINTS,
    HELPERS,
    Layer,
    Settings,
    default_range,
)

if TYPE_CHECKING:
    from fsdp_migrate.workspace.filesystem import SourceFile
    from fsdp_migrate.workspace.settings.choice import Choice, Exemption

NOTHING = Layer()


class Configuration:
    """The settings of a run's files. What a configuration file decides is computed once."""

    def __init__(self, options: Layer = NOTHING, files: ConfigFiles | None = None, *, rewriting: bool = False) -> None:
        """`options` are those of the command line; their patterns start from the current folder.

        A run that is `rewriting` takes a target that converts whole programs from the command line only.
        """
        self.options = options
        self.rewriting = rewriting
        self.files = files or ConfigFiles()
        self._settings: dict[str | None, Settings] = {}
        self._of_folder: dict[str, Settings] = {}
        self._choices: dict[str | None, Choice | None] = {}
        self._exemptions: dict[str, list[Exemption]] = {}

    @property
    def targets(self) -> frozenset[str]:
        """What the files that were asked about so far are to move to."""
        return frozenset(one.target for one in self._settings.values() if one.target is not None)

    def check(self, files: Iterable[SourceFile]) -> None:
        """Find the configuration of every file, so that errors are reported before anything is done.

        Raises:
            ConfigFileError: one of them cannot be used.
        """
        for file in files:
            self.shared(file)

    def shared(self, file: SourceFile) -> Settings:
        """The settings of a file without `per-file-ignores`. They decide whether it is worth linting.

        If neither an option nor its configuration file states a torch range, it is the default.

        Raises:
            ConfigFileError: the configuration file cannot be used.
        """
        folder = os.path.dirname(_named(file))
        if folder not in self._of_folder:
            config = self.files.at(os.path.abspath(folder))
            key = None if config is None else config.path
            if key not in self._settings:
                self._settings[key] = _settings(self._combined(config))
            self._of_folder[folder] = self._settings[key]
        return self._of_folder[folder]

    def of(self, file: SourceFile) -> Settings:
        """The settings of a file, with the torch range as in `shared`.

        Raises:
            ConfigFileError: the configuration file cannot be used.
        """
        path, settings = located(file), self.shared(file)
        config = self.files.at(os.path.dirname(path))
        if config is None or not config.layer.per_file_ignores:
            return settings
        if config.path not in self._exemptions:
            from fsdp_migrate.workspace.settings.choice import exemptions

            self._exemptions[config.path] = exemptions(config.folder, config.layer.per_file_ignores)
        ignored = [code for found in self._exemptions[config.path] if found.holds_for(path) for code in found.codes]
        return settings._replace(ignored_here=tuple(ignored)) if ignored else settings

    def choice(self, folder: str, names: Collection[str] | None) -> Choice | None:
        """The `include` and `exclude` that apply in a folder (an absolute path); None if there are none.

        Raises:
            ConfigFileError: the configuration file of the folder cannot be used.
        """
        config = self.files.at(folder, names)
        key = None if config is None else config.path
        if key not in self._choices:
            self._choices[key] = self._choice(config)
        return self._choices[key]

    def _combined(self, config: ConfigFile | None) -> Layer:
        """The options, with the configuration file where they state nothing.

        `--ignore` adds to what a file ignores. `--select` starts anew: otherwise it could not turn on what a file
        ignores.
        """
        if config is None:
            return self.options
        options = self.options
        stated = {name: value for name, value in options._asdict().items() if value is not None}
        if options.select is not None:
            stated["ignore"] = options.ignore
        elif options.ignore is not None:
            stated["ignore"] = (*(config.layer.ignore or ()), *options.ignore)
        if self.rewriting and options.target is None and config.layer.target in ASKED_FOR_ONLY:
            stated["target"] = None
        return config.layer._replace(**stated)

    def _choice(self, config: ConfigFile | None) -> Choice | None:
        layer = self._combined(config)
        if layer.include is None and layer.exclude is None and not layer.scripts:
            return None
        from fsdp_migrate.workspace.settings.choice import Choice, spec

        here, folder = os.getcwd(), os.getcwd() if config is None else config.folder
        include = None if layer.include is None else spec(folder, layer.include)
        exclude = None if layer.exclude is None else spec(here if self.options.exclude else folder, layer.exclude)
        return Choice(include, exclude, scripts=bool(layer.scripts))


def located(file: SourceFile) -> str:
    """The absolute path of a file, which need not exist: text from stdin is located by its file name."""
    return os.path.abspath(_named(file))


def _named(file: SourceFile) -> str:
    return file.path if file.raw is None else file.shown


def _settings(layer: Layer) -> Settings:
    fail_on = layer.fail_on or Severity.DEPRECATED
    return Settings(
        torch=layer.torch or default_range(layer.target),
        select=layer.select or (),
        ignore=layer.ignore or (),
        hints=bool(layer.hints) or fail_on is Severity.HINT,
        unsafe_fixes=bool(layer.unsafe_fixes),
        grades=layer.fixes or (),
        fail_on=fail_on,
        baseline=layer.baseline,
        target=layer.target,
        fsdp2_helper=layer.fsdp2_helper or HELPERS[0],
        checkpoints=layer.checkpoints or CHECKPOINTS[0],
        all_parameters_used=bool(layer.all_parameters_used),
    )
