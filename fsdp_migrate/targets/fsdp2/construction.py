"""A call of FSDP1's class becomes calls of `fully_shard`, or of the generated module where values come at run time."""

from __future__ import annotations

from packaging.version import Version

from fsdp_migrate.code.import_texts import CannotSupply
from fsdp_migrate.facts.calls import BindingError
from fsdp_migrate.rules.supported_releases import older, supported
from fsdp_migrate.targets.fsdp2.arguments import written_out
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction, Conversion, Options
from fsdp_migrate.targets.fsdp2.literal import read_literal
from fsdp_migrate.targets.fsdp2.policies import AtRunTime
from fsdp_migrate.targets.fsdp2.precision import Impossible
from fsdp_migrate.targets.fsdp2.sharding import Role, write_literal

_FLOOR = Version("2.6")
_UNUSED_PARAMETERS = Version("2.13")


def convert_construction(
    conversion: Conversion, closure: Closure, construction: Construction, options: Options
) -> None:
    """Add what becomes of one call of FSDP1's class: edits, differences, or a wall."""
    facts, call = construction
    if not facts.torch.assumed and (early := older(facts, _FLOOR, call)):
        reason = f"`torch.distributed.fsdp.fully_shard` came with torch {_FLOOR}, but {supported(facts)}"
        conversion.wall(facts, call, reason, f"raise the floor from torch {early[0]} to {_FLOOR}")
        return
    try:
        given = written_out(facts, call)
        literal = read_literal(facts, call, given, [one.call for one in closure.constructions])
        fills = not options.all_parameters_used and not older(facts, _UNUSED_PARAMETERS, call)
        write_literal(conversion, construction, given, literal, Role(False, fills))
    except BindingError as error:
        conversion.wall(facts, call, f"the call {error}", "correct the call first")
    except Impossible as error:
        conversion.wall(facts, error.node, error.reason, error.step)
    except CannotSupply as error:
        conversion.wall(facts, call, str(error), "change the imports first")
    except AtRunTime as error:
        conversion.wall(facts, call, f"{error} is known at run time only", "write it out in the call")
