"""Subclasses of FSDP in other modules of a project: found in bytes, and parsed only where these speak for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_migrate.facts.class_members import all_members
from fsdp_migrate.facts.other_modules import ForeignClass
from fsdp_migrate.workspace.modules.sketch import is_torch, joined

if TYPE_CHECKING:
    from fsdp_migrate.workspace.modules.view import View

FSDP_CLASS = "FullyShardedDataParallel"
# The questions on the way here, each a file and a name in it or a base written there: classes may go in circles.
_Seen = set[tuple[str, str]]


def foreign_class(view: View, name: str) -> ForeignClass | None:
    """The subclass of FSDP that the file of `view` imports as `name`, None when it is none."""
    found = _derived(view, name, set())
    facts = None if found is None else view.modules.facts(found[0], view.torch)
    if found is None or facts is None:
        return None
    inner = found[1]
    cls = facts.fsdp.subclasses.get(inner)
    if cls is None or not any(binding.node is cls for binding in facts.names.exported(inner)):
        return None
    return ForeignClass(inner, all_members(cls, facts.names))


def _derived(view: View, name: str, seen: _Seen) -> tuple[str, str] | None:
    """The file of a class that, as far as the bytes tell, derives from FSDP, and the name of the class there."""
    found = view.module_of(name)
    if found is None or found in seen:
        return None
    seen.add(found)
    path, inner = found
    view.asked.add(path)
    sketch = view.modules.sketch(path)
    other = view.modules.view_at(path, view.torch)
    if sketch is None or not other.may_bring(inner):
        return None
    if any(_may_be_fsdp(other, base, seen) for base in sketch.bases(inner)):
        return found
    targets = (*sketch.imports.get(inner, ()), *other.star_targets(sketch, inner))
    followed = (_derived(other, target, seen) for target in targets)
    return next((one for one in followed if one is not None), None)


def _may_be_fsdp(view: View, base: str, seen: _Seen) -> bool:
    """Whether a base as it is written in the file of `view` may be FSDP or a subclass of it."""
    sketch, question = view.modules.sketch(view.path), (view.path, f"base {base}")
    if sketch is None or question in seen:
        return False
    seen.add(question)
    if any(_may_be_fsdp(view, inner, seen) for inner in sketch.bases(base) if inner != base):
        return True
    head, _, rest = base.partition(".")
    if any(alias == "FSDP" or alias.endswith(FSDP_CLASS) for alias in sketch.aliases(head)):
        return True
    imported = [f"{target}.{rest}" if rest else target for target in sketch.imports.get(head, ())]
    if any(is_torch(target) and target.endswith(FSDP_CLASS) for target in imported):
        return True
    if any(is_torch(module) for module in sketch.stars):
        return True
    starred = [joined(module, base) for module in sketch.stars]
    project = [target for target in (*imported, *starred) if not is_torch(target)]
    return any(_derived(view, target, seen) is not None or _is_fsdp(view, target) for target in project)


def _is_fsdp(view: View, name: str) -> bool:
    return any(meaning is not None and meaning.endswith(FSDP_CLASS) for meaning in view.meanings(name) or ())
