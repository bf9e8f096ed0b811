"""What has run when a place is reached, where many ways lead there."""

from __future__ import annotations

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.objects import ProjectCode
from fsdp_migrate.facts.project_code import Callers, Function
from fsdp_migrate.source import Source
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction
from fsdp_migrate.targets.fsdp2.running import comes_first, follows_backward
from fsdp_migrate.torch_api import TorchRange

WIDTH, DEPTH = 8, 5  # 8 ** 5 ways lead from the top to the bottom


class Counting(ProjectCode):
    asked = 0

    def callers(self, function: Function) -> Callers:
        self.asked += 1
        return super().callers(function)


def layers(first: str, bottom: str) -> ModuleFacts:
    """A module in which each function of a layer calls all of the next one; those of the last run `bottom`."""
    lines = ["from torch.distributed.fsdp import FullyShardedDataParallel as FSDP", ""]
    for layer in range(DEPTH):
        for number in range(WIDTH):
            calls = (
                [f"    f{layer + 1}_{other}()" for other in range(WIDTH)] if layer + 1 < DEPTH else [f"    {bottom}"]
            )
            lines += [f"def f{layer}_{number}():", *calls, ""]
    lines += ["def main(model, loss):", f"    {first}", *(f"    f0_{number}()" for number in range(WIDTH)), ""]
    return ModuleFacts(Source("\n".join(lines).encode()), "main.py", TorchRange.parse(">=2.6"))


def test_a_model_is_built_first_whichever_of_many_ways_leads_to_a_place() -> None:
    for first, expected in (("FSDP(model)", True), ("pass", False)):
        facts, code = layers(first, "reached()"), Counting()
        place = facts.structure.calls[WIDTH * WIDTH * (DEPTH - 1)]
        built = tuple(Construction(facts, call) for call in facts.fsdp.constructions)
        closure = Closure(built, (), (), ())
        construction = built[0] if built else Construction(facts, facts.structure.calls[-1])
        assert comes_first(code, closure, construction, facts, place) is expected
        assert code.asked < 4 * WIDTH * DEPTH


def test_gradients_are_computed_whichever_of_many_ways_leads_to_a_place() -> None:
    for first, expected in (("loss.backward()", True), ("pass", False)):
        facts, code = layers(first, "reached()"), Counting()
        place = facts.structure.calls[WIDTH * WIDTH * (DEPTH - 1)]
        assert follows_backward(code, facts, place) is expected
        assert code.asked < 4 * WIDTH * WIDTH * DEPTH
