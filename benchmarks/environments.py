"""The programs to compare, each in an environment of its own, and the trees to run them on, as anybody gets them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import Failed

ROOT = Path(__file__).resolve().parent.parent
# What goes into the environment of each program.
PROGRAMS = {
    "fsdp-migrate": (str(ROOT),),
    "ruff": ("ruff==0.17.6",),
    "ast-grep": ("ast-grep-cli==0.51.1",),
    "torchfix": ("torchfix==0.7.0", "libcst<1.6", "setuptools<81"),
    "libcst": ("libcst==1.9.0",),
    "pyupgrade": ("pyupgrade==3.22.0",),
    "django-upgrade": ("django-upgrade==1.33.0",),
    "flake8": ("flake8==7.5.0",),
    "fixit": ("fixit==2.2.1",),
}


@dataclass(frozen=True)
class Release:
    """A released package whose sources are a tree to look at."""

    requirement: str
    options: tuple[str, ...]
    folder: str


RELEASES = {
    "accelerate": Release("accelerate==1.10.0", ("--no-binary", ":all:", "--no-build-isolation"), "accelerate-1.10.0"),
    "lightning": Release("lightning==2.6.0", ("--only-binary", ":all:"), "lightning"),
    "transformers": Release("transformers==4.57.3", ("--only-binary", ":all:"), "transformers"),
    # The smallest wheel; of it only the Python files count.
    "torch": Release(
        "torch==2.13.0",
        ("--only-binary", ":all:", "--platform", "macosx_14_0_arm64", "--python-version", "3.12"),
        "torch",
    ),
}


def program(name: str, work: Path) -> Path:
    """The folder of executables of a program's environment, which is made if it is not there.

    Raises:
        Failed: pip cannot install it.
    """
    folder = work / "environments" / name
    done = folder / "done"
    wanted = " ".join(PROGRAMS[name])
    if not done.exists() or done.read_text() != wanted or name == "fsdp-migrate":
        if not folder.exists():
            venv.create(folder, with_pip=True)
        _run([str(folder / "bin" / "pip"), "install", "-q", "--upgrade", *PROGRAMS[name]])
        done.write_text(wanted)
    return folder / "bin"


def tree(name: str, work: Path) -> Path:
    """The folder with the sources of a release, which is downloaded if it is not there.

    Raises:
        Failed: pip cannot download it.
    """
    release, folder = RELEASES[name], work / "trees" / name
    if not folder.exists():
        downloads = work / "downloads" / name
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(downloads)]
        _run([*pip, *release.options, release.requirement])
        (archive,) = downloads.iterdir()
        staged = folder.with_suffix(".new")
        shutil.rmtree(staged, ignore_errors=True)
        _unpack(archive, staged)
        staged.rename(folder)
    return folder / release.folder


def _unpack(archive: Path, folder: Path) -> None:
    """Take the Python files and the project files out of an archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.endswith(".py")])
    else:
        with tarfile.open(archive) as sources:
            wanted = [member for member in sources.getmembers() if member.name.endswith((".py", ".toml", ".cfg"))]
            sources.extractall(folder, wanted, filter="data")


def _run(words: Sequence[str]) -> None:
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode:
        raise Failed(f"{' '.join(words[-3:])}: {result.stderr.strip().splitlines()[-1] if result.stderr else 'failed'}")
