"""Entry point by path: ``python .../verify/worker fork PLAN`` (all ranks of this machine), ``... rank PLAN`` (one)."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

PACKAGE = "fsdp_migrate_worker"


def main(arguments: list[str]) -> None:
    """Load the worker as a package of its own, without importing fsdp_migrate, and run `arguments`."""
    here = os.path.dirname(os.path.abspath(__file__))
    # A scenario that imports a module called `model` must not get ours.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.util.spec_from_file_location(
        PACKAGE, os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    mode, plan = arguments
    importlib.import_module(f"{PACKAGE}.{mode}").main(plan)


if __name__ == "__main__":
    main(sys.argv[1:])
