"""Names that a module gives to who asks for them only then, by a `__getattr__` of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsdp_migrate.workspace.modules.project import Modules
    from fsdp_migrate.workspace.modules.sketch import Sketch


def loaded_late(modules: Modules, path: str, sketch: Sketch, name: str) -> tuple[str, str] | None:
    """The file from which the module at `path` takes a late name, with that name, as far as the texts in it tell."""
    for text in sketch.texts:
        for module in (f".{text}", text):
            found = modules.finder.find(module, path) if text.strip(".") else None
            other = None if found is None or found == path else modules.sketch(found)
            if found is not None and other is not None and other.tells(name):
                return found, name
    return None
