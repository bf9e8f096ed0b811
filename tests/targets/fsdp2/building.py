"""What becomes of the calls of FSDP1's class in a program, for tests of that part alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Fix
from fsdp_migrate.planning.passes import carried_out
from fsdp_migrate.source import Source
from fsdp_migrate.targets.fsdp2.construction import convert_construction
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction, Conversion, Options
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.filesystem import SourceFile
from fsdp_migrate.workspace.modules import Modules

ANY = Options(all_parameters_used=True)
FILE = "train.py"


def facts_of(text: str, torch: str = ">=2.6") -> ModuleFacts:
    """The facts of a file on its own."""
    return ModuleFacts(Source(dedent(text).encode()), FILE, TorchRange.parse(torch))


def project_of(folder: Path, files: Mapping[str, str], torch: str = ">=2.6") -> dict[str, ModuleFacts]:
    """The facts of the files of a project that is written to `folder`, by their names in it."""
    (folder / ".git").mkdir(exist_ok=True)
    found = []
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))
        found.append(SourceFile(str(folder / name), name))
    modules = Modules(found, [str(folder)])
    facts = {name: modules.facts(str(folder / name), TorchRange.parse(torch)) for name in files}
    return {name: one for name, one in facts.items() if one is not None}


def converted(modules: Mapping[str, ModuleFacts], options: Options = ANY) -> Conversion:
    """The conversion of all constructions in some modules as one closure, without any use of the models."""
    found = [Construction(facts, call) for facts in modules.values() for call in facts.fsdp.constructions]
    conversion, closure = Conversion(), Closure(tuple(found), (), (), ())
    for one in found:
        convert_construction(conversion, closure, one, options)
    return conversion


def texts(modules: Mapping[str, ModuleFacts], conversion: Conversion) -> dict[str, str]:
    """The new texts."""
    result = {}
    for name, facts in modules.items():
        edits, path = conversion.edits.get(facts.path, ()), facts.path
        if edits:
            removed = tuple(conversion.removed.get(path, ()))
            fix = Fix(tuple(edits), removed, comments=tuple(conversion.comments.get(path, ())))
            result[name] = carried_out(facts.source, path, [fix]).raw.decode()
    return result


def rewritten(text: str, torch: str = ">=2.6", options: Options = ANY) -> str:
    """The new text of a program without walls and differences."""
    modules = {FILE: facts_of(text, torch)}
    conversion = converted(modules, options)
    assert conversion.walls == []
    assert conversion.differences == []
    return texts(modules, conversion)[FILE]
