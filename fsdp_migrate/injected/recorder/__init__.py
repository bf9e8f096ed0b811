"""Records what a training program does, for `fsdp-migrate prove`. The program does not know of it.

Every process of a run takes the project's modules from the run's copy. Only the ranks write a record.
"""

from __future__ import annotations

import os

from ..after_import import after_import
from . import copied, processes
from .journal import Journal
from .plan import Plan


def install(plan_file: str) -> None:
    """Do what the plan in a file says, in this process."""
    plan = Plan.read(plan_file)
    finder = copied.install(plan.copy, plan.tree)
    rank = processes.claimed_rank()
    if rank is None:
        after_import("torch.distributed.distributed_c10d", lambda module: processes.report_ranks(module, plan.folder))
        return
    processes.redirect_output(plan.folder, rank)
    processes.dump_stacks_at(plan.deadline, plan.folder, rank)
    journal = Journal(plan, rank)
    finder.tell = lambda module, file: journal.event("outside", module=module, file=file)
    processes.follow(journal)
    from . import coverage

    coverage.start(journal, plan.lines)
    after_import("torch", lambda torch: _record(journal))
    after_import("torch.distributed.distributed_c10d", lambda module: _record_groups(journal, module))


def _record(journal: Journal) -> None:
    """Record from here on: torch is there, and nothing of the program's has used it yet."""
    from . import checkpoints, training, trees, warned, workarounds

    warned.install(journal)
    workarounds.install()
    stored = trees.Trees(os.path.join(journal.plan.folder, "tensors"), journal.plan.keep)
    training.install(journal, stored)
    checkpoints.install(journal, stored)


def _record_groups(journal: Journal, module: object) -> None:
    from . import collectives

    collectives.install(journal, module)
    processes.record_before_destroy(module, journal)
    processes.report_ranks(module, journal.plan.folder, journal)
