"""Python loads this at its start, as this folder stands in PYTHONPATH. It installs what the environment asks for.

The folder leaves `sys.path` again, so that no module in it stands in front of one of the user's. Processes started from
here have it in their PYTHONPATH.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder

PACKAGE = "fsdp_migrate_injected"
# Each names a file that says what to do, for `install(file)` of the module.
ASKED_BY = {"FSDP_MIGRATE_PROVE": "recorder", "FSDP_MIGRATE_TRACE": "tracer"}


def _load_the_shadowed_one() -> None:
    """Run the `sitecustomize` that Python would have loaded, if there is one, under its name."""
    spec = PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        return
    own = sys.modules["sitecustomize"]
    module = type(sys)("sitecustomize")
    module.__spec__, module.__file__ = spec, spec.origin
    sys.modules["sitecustomize"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules["sitecustomize"] = own
        raise


def _install() -> None:
    asked = {module: os.environ[name] for name, module in ASKED_BY.items() if os.environ.get(name)}
    if not asked:
        return
    package = type(sys)(PACKAGE)
    package.__path__ = [_HERE]
    package.__spec__ = ModuleSpec(PACKAGE, None, is_package=True)
    sys.modules[PACKAGE] = package
    for name, plan in asked.items():
        import_module(f"{PACKAGE}.{name}").install(plan)


if __name__ == "sitecustomize":
    _HERE = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
    try:
        _load_the_shadowed_one()
    finally:
        _install()
