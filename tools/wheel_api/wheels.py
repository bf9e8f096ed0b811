"""The Python files of a torch release, taken from its PyPI wheel."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

# The wheels for macOS hold the same Python files as those for Linux in a tenth of the space. Each release has them for
# some of these systems and some Python.
SYSTEMS = [f"macosx_{system}_arm64" for system in ("11_0", "12_0", "13_0", "14_0", "15_0", "26_0")]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


class WheelError(Exception):
    """A release that cannot be had; the message is one line."""


class Sources:
    """The Python files of one release, by module name."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path)
        self._files = dict(_modules(self._archive.namelist()))
        # Folders without an `__init__.py` are packages too.
        parents = {name.rpartition(".")[0] for name in self._files}
        self.packages = {parent for parent in parents if parent} | {
            name for name, file in self._files.items() if file.endswith("/__init__.py")
        }

    @property
    def modules(self) -> list[str]:
        """The names of all modules and packages."""
        return sorted({*self._files, *self.packages})

    def __contains__(self, module: object) -> bool:
        return module in self._files or module in self.packages

    def text(self, module: str) -> str:
        """The source of `module`, empty for a folder without `__init__.py`."""
        file = self._files.get(module)
        return self._archive.read(file).decode() if file else ""


def sources(release: str, folder: Path) -> Sources:
    """The Python files of `release`, kept as `folder`/RELEASE.zip; its wheel is downloaded if they are not there.

    Raises:
        WheelError: no wheel could be downloaded.
    """
    kept = folder / f"{release}.zip"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as scratch:
            wheel = _download(release, Path(scratch))
            unfinished = kept.with_suffix(".part")
            with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as target:
                for _, file in _modules(source.namelist()):
                    target.writestr(file, source.read(file))
            unfinished.rename(kept)
    return Sources(kept)


def _modules(files: list[str]) -> Iterator[tuple[str, str]]:
    for file in files:
        if file.startswith("torch/") and file.endswith(".py"):
            yield file.removesuffix(".py").removesuffix("/__init__").replace("/", "."), file


def _download(release: str, folder: Path) -> Path:
    message = ""
    for python in PYTHONS:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--no-cache-dir", "--implementation", "cp", "--python-version", python, "--dest", str(folder)]
        command += [f"--platform={system}" for system in SYSTEMS]
        done = subprocess.run([*command, f"torch=={release}"], capture_output=True, text=True)
        found = sorted(folder.glob("*.whl"))
        if found:
            return found[0]
        message = " ".join(done.stderr.split()) or message
    raise WheelError(f"torch {release}: no wheel downloaded: {message}")
