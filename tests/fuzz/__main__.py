"""Fuzz for as long as you like: `python -m tests.fuzz --minutes 60`."""

from __future__ import annotations

import argparse
import functools
import random
import re
import time
from collections import Counter
from collections.abc import Callable

import hypothesis

import tests.fuzz.conftest  # noqa: F401 - registers the profiles


def main() -> int:
    """Give every test its turn until time is up; tell each new kind of failure as it comes, and the counts at the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("-k", default="", metavar="PART", help="only the tests with this in their names")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    hypothesis.settings.load_profile("round")
    from tests.fuzz import test_meaning, test_rewriting  # tests take the profile that is loaded when they are made

    found = [one for module in (test_rewriting, test_meaning) for one in vars(module).values()]
    tests = [one for one in found if hasattr(one, "hypothesis") and arguments.k in one.__name__]
    counts: Counter[str] = Counter()
    for test in tests:
        test.hypothesis.inner_test = _counted(test.hypothesis.inner_test, counts)
    kinds: Counter[str] = Counter()
    chance, end = random.Random(arguments.seed), time.monotonic() + arguments.minutes * 60
    while time.monotonic() < end:
        for test in tests:
            _take_turn(test, chance.randrange(2**32), kinds)
    for name, count in sorted(counts.items()):
        print(f"{count:8}  {name}")
    print(f"{sum(counts.values()):8}  programs, {len(kinds)} kinds of failures")
    return int(bool(kinds))


def _counted(test: Callable[..., None], counts: Counter[str]) -> Callable[..., None]:
    @functools.wraps(test)
    def counted(*arguments: object, **keywords: object) -> None:
        counts[test.__name__] += 1
        test(*arguments, **keywords)

    return counted


def _take_turn(test: Callable[[], None], seed: int, kinds: Counter[str]) -> None:
    """Run a test for a round; a failure is told with the smallest program that fails in this way."""
    try:
        hypothesis.seed(seed)(test)()
    except Exception as fault:
        kind = re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "_", f"{type(fault).__name__}: {fault}".partition("\n")[0])
        kinds[kind] += 1
        if kinds[kind] <= 3:
            print(
                "=" * 100,
                test.__name__,
                f"{type(fault).__name__}: {fault}",
                *getattr(fault, "__notes__", ()),
                sep="\n",
                flush=True,
            )


if __name__ == "__main__":
    raise SystemExit(main())
