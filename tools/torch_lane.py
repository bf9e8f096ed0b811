"""Build an environment with a given torch release, for checks on the CPU: ``python tools/torch_lane.py 2.4.1 DIR``.

Most releases are on PyPI only as builds for CUDA, which need some gigabytes of libraries that a CPU never calls.
This installs torch alone, and puts small libraries with the same names and symbols in their place: every function in
them reports that there is no device. Then ``fsdp-migrate verify --torch DIR/bin/python`` runs on it.

Linux on x86-64 with gcc and binutils. Of no use for anything that is to run on a GPU.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

NO_DEVICE = 100  # cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE
NEEDS = ("filelock", "fsspec", "jinja2", "networkx", "packaging", "sympy", "typing_extensions")
SMOKE = (
    "import torch, torch.distributed as dist, torch.distributed.fsdp;"
    "assert dist.is_gloo_available() and not torch.cuda.is_available(); print(torch.__version__)"
)
# Symbols that the C library, the C++ runtime and the interpreter provide.
_PROVIDED = re.compile(r"_Z|__|Py|_Py|_ITM|_Unwind")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*$")


@dataclass
class Library:
    """What one shared object needs from others: names of libraries, and symbols by (library, version)."""

    needed: set[str] = field(default_factory=set)
    versioned: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    unversioned: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)


def main() -> int:
    """Build the lane and try it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="a torch release, such as 2.4.1")
    parser.add_argument("folder", type=Path, help="where the environment goes; must not exist yet")
    given = parser.parse_args()
    missing = [tool for tool in ("gcc", "readelf") if shutil.which(tool) is None]
    if missing or given.folder.exists():
        reason = f"{missing[0]} is not installed" if missing else f"{given.folder} exists already"
        print(f"error: {reason}", file=sys.stderr)
        return 2
    try:
        python = install(given.version, given.folder)
        stub_missing_libraries(package_folder(python) / "lib")
        subprocess.run([python, "-W", "ignore", "-c", SMOKE], check=True)
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(map(str, error.cmd))[:200]} failed with exit code {error.returncode}", file=sys.stderr)
        return 1
    print(python)
    return 0


def install(version: str, folder: Path) -> Path:
    """Make an environment with torch and what it imports, but not what it links; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = (folder / "bin" / "python").absolute()
    pip: list[str | Path] = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-cache-dir"]
    release = tuple(int(part) for part in version.split(".")[:2])
    numpy = "numpy<2" if release < (2, 3) else "numpy"
    subprocess.run([*pip, *NEEDS, numpy], check=True)
    subprocess.run([*pip, "--no-deps", f"torch=={version}"], check=True)
    return python


def package_folder(python: Path) -> Path:
    """Where torch is installed."""
    find = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
    return Path(subprocess.run([python, "-c", find], check=True, capture_output=True, text=True).stdout.strip())


def stub_missing_libraries(folder: Path) -> None:
    """Compile a stand-in for every library that the objects in `folder` need and nobody has."""
    objects = [path for path in folder.glob("*.so*") if path.is_file()] + list(folder.parent.glob("_C*.so"))
    libraries = [read(path) for path in objects]
    there = {path.name for path in objects} | system_libraries()
    missing = sorted(set().union(*(library.needed for library in libraries)) - there)
    if not missing:
        return
    defined = set().union(*(library.defined for library in libraries))
    # A symbol without a version is looked up in every library: one of them is enough.
    loose = set().union(*(library.unversioned for library in libraries)) - defined
    loose = {symbol for symbol in loose if not _PROVIDED.match(symbol)}
    for number, name in enumerate(missing):
        versions: dict[str, set[str]] = defaultdict(set)
        for library in libraries:
            for (file, version), symbols in library.versioned.items():
                if file == name:
                    versions[version] |= symbols
        compile_stub(folder / name, versions, loose if number == 0 else set())


def system_libraries() -> set[str]:
    """The names of the libraries that the dynamic linker knows."""
    linker = shutil.which("ldconfig") or "/sbin/ldconfig"
    listed = subprocess.run([linker, "-p"], check=True, capture_output=True, text=True).stdout
    return {line.split()[0] for line in listed.splitlines()[1:] if line.strip()} | {"ld-linux-x86-64.so.2"}


def read(path: Path) -> Library:
    """What `readelf` says about a shared object."""
    library = Library()
    options = ("--dynamic", "--version-info", "--dyn-syms")
    lines = subprocess.run(
        ["readelf", "--wide", *options, path], check=True, capture_output=True, text=True, errors="replace"
    ).stdout.splitlines()
    files: dict[str, str] = {}
    file = ""
    for line in lines:
        if match := re.search(r"\(NEEDED\).*\[(.+)\]", line):
            library.needed.add(match[1])
        elif match := re.search(r"Version: \d+  File: (\S+)", line):
            file = match[1]
        elif match := re.search(r"Name: (\S+)\s+Flags: .*Version: \d+", line):
            files[match[1]] = file
    for line in lines:
        fields = line.split()
        if len(fields) >= 8 and re.fullmatch(r"\d+:", fields[0]):
            _add_symbol(library, files, fields)
    return library


def _add_symbol(library: Library, files: dict[str, str], fields: list[str]) -> None:
    binding, section, (symbol, _, version) = fields[4], fields[6], fields[7].partition("@")
    if section != "UND":
        library.defined.add(symbol)
    elif binding != "WEAK" and version:
        library.versioned[files.get(version, ""), version].add(symbol)
    elif binding != "WEAK":
        library.unversioned.add(symbol)


def compile_stub(path: Path, versions: dict[str, set[str]], loose: Iterable[str]) -> None:
    """Compile a library in which every function says that there is no device."""
    symbols = sorted({s for s in set().union(loose, *versions.values()) if _IDENTIFIER.match(s)})
    with tempfile.TemporaryDirectory() as scratch:
        source, script = Path(scratch, "stub.c"), Path(scratch, "stub.map")
        source.write_text("".join(map(_function, symbols)))
        script.write_text("".join(f"{v} {{ global: {'; '.join(sorted(names))}; }};\n" for v, names in versions.items()))
        options = ["-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{path.name}"]
        if versions:
            options.append(f"-Wl,--version-script={script}")
        subprocess.run(["gcc", *options, "-o", path, source], check=True)


def _function(symbol: str) -> str:
    if symbol.endswith(("String", "Name")):
        return f'const char *{symbol}(void) {{ return "no device"; }}\n'
    return f"long {symbol}(void) {{ return {NO_DEVICE}; }}\n"


if __name__ == "__main__":
    sys.exit(main())
