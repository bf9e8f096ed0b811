"""The stand-ins for libraries that a CPU never calls: everything links, every function says that there is no device."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.torch_lane import NO_DEVICE, main, read, stub_missing_libraries

if not (shutil.which("gcc") and shutil.which("readelf")):
    pytest.skip("needs gcc and readelf", allow_module_level=True)

VENDOR = 'long vendorCount(void) { return 7; }\nconst char *vendorErrorString(void) { return "real"; }\n'
LOOSE = "long looseCount(void) { return 7; }\n"
USER = """
long vendorCount(void); const char *vendorErrorString(void); long looseCount(void);
long count(void) { return vendorCount(); }
long loose(void) { return looseCount(); }
const char *error(void) { return vendorErrorString(); }
"""


def compiled(folder: Path, name: str, source: str, *options: str) -> Path:
    (folder / "source.c").write_text(source)
    target = folder / f"lib{name}.so.1"
    shared = ["-shared", "-fPIC", f"-Wl,-soname,{target.name}", "-Wl,-rpath,$ORIGIN", "-L", str(folder)]
    subprocess.run(["gcc", *shared, "-o", target, folder / "source.c", *options], check=True)
    return target


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A library that needs two others which are gone, one of them with versioned symbols."""
    folder = tmp_path / "torch" / "lib"
    folder.mkdir(parents=True)
    (folder / "vendor.map").write_text("VENDOR_1.0 { global: *; };\n")
    vendor = compiled(folder, "vendor", VENDOR, f"-Wl,--version-script={folder / 'vendor.map'}")
    loose = compiled(folder, "loose", LOOSE)
    made = compiled(folder, "user", USER, f"-l:{vendor.name}", f"-l:{loose.name}")
    vendor.unlink()
    loose.unlink()
    return made


def test_what_a_library_needs_is_read_with_versions(user: Path) -> None:
    library = read(user)
    assert {"libvendor.so.1", "libloose.so.1"} <= library.needed
    assert library.versioned["libvendor.so.1", "VENDOR_1.0"] == {"vendorCount", "vendorErrorString"}
    assert "looseCount" in library.unversioned
    assert "count" in library.defined


def test_a_library_loads_again_and_is_told_that_there_is_no_device(user: Path) -> None:
    with pytest.raises(OSError, match="cannot open shared object file"):
        ctypes.CDLL(str(user))
    stub_missing_libraries(user.parent)
    loaded = ctypes.CDLL(str(user))
    loaded.error.restype = ctypes.c_char_p
    assert (loaded.count(), loaded.loose(), loaded.error()) == (NO_DEVICE, NO_DEVICE, b"no device")


def test_an_existing_folder_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["torch_lane.py", "2.4.1", str(tmp_path)])
    assert main() == 2
    assert capsys.readouterr().err == f"error: {tmp_path} exists already\n"
