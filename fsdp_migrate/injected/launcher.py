"""`python launcher.py EXITS ...`: torch's elastic launcher, which also writes how its ranks ended into a file."""

from __future__ import annotations

import json
import os
import signal
import sys


def main(exits: str, arguments: list[str]) -> int:
    """Run `torch.distributed.run` on `arguments`.

    The file gets an object with the exit code, or minus the signal, of each rank that failed by itself: where one does,
    the launcher ends the others with SIGTERM.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as run

    try:
        run(arguments)
    except ChildFailedError as error:
        first, _ = error.get_first_failure()
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        own = {str(rank): code for rank, code in codes.items() if rank == first or code != -signal.SIGTERM}
        with open(exits, "w", encoding="utf-8") as file:
            json.dump(own, file)
        return 1
    return 0


if __name__ == "__main__":
    # No module beside this file is to stand in front of another one.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    sys.exit(main(sys.argv[1], sys.argv[2:]))
