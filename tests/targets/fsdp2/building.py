"""What becomes of the calls of FSDP1's class in a program, for tests of that part alone."""

from __future__ import annotations

from textwrap import dedent

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Fix
from fsdp_migrate.planning.passes import carried_out
from fsdp_migrate.source import Source
from fsdp_migrate.targets.fsdp2.construction import convert_construction
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction, Conversion, Options
from fsdp_migrate.torch_api import TorchRange

ANY = Options(all_parameters_used=True)


def converted(modules: dict[str, ModuleFacts], options: Options = ANY) -> Conversion:
    """The conversion of all constructions in some modules as one closure, without any use of the models."""
    found = [Construction(facts, call) for facts in modules.values() for call in facts.fsdp.constructions]
    conversion, closure = Conversion(), Closure(tuple(found), (), (), ())
    for one in found:
        convert_construction(conversion, closure, one, options)
    return conversion


def texts(modules: dict[str, ModuleFacts], conversion: Conversion) -> dict[str, str]:
    """The new texts."""
    result = {}
    for path, edits in conversion.edits.items():
        removed = tuple(conversion.removed.get(path, ()))
        fix = Fix(tuple(edits), removed, comments=tuple(conversion.comments.get(path, ())))
        result[path] = carried_out(modules[path].source, path, [fix]).raw.decode()
    return result


def facts_of(text: str, torch: str = ">=2.6") -> ModuleFacts:
    return ModuleFacts(Source(dedent(text).encode()), "train.py", TorchRange.parse(torch))


def rewritten(text: str, torch: str = ">=2.6", options: Options = ANY) -> str:
    """The new text of a program without walls and differences."""
    modules = {"train.py": facts_of(text, torch)}
    conversion = converted(modules, options)
    assert conversion.walls == []
    assert conversion.differences == []
    return texts(modules, conversion)["train.py"]
