"""Write fsdp_migrate/torch_api/changed_names.txt.gz: the names that the general rules look for in the bytes of a file.

    python -m tools.build_changed_names

Run it after `tools.build_torch_api`, whose data it is derived from. A line has an owner and the names in it.
"""

from __future__ import annotations

import gzip
import sys
from collections import defaultdict
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from fsdp_migrate.rules.changed_names import FILE, derived_names

TARGET = Path(__file__).parent.parent / "fsdp_migrate" / "torch_api" / FILE


def main() -> int:
    """Derive the names and write them."""
    by_owner: dict[str, list[str]] = defaultdict(list)
    for name in sorted(derived_names()):
        owner, _, last = name.rpartition(".")
        by_owner[owner].append(last)
    text = "".join(f"{owner} {' '.join(names)}\n" for owner, names in sorted(by_owner.items()))
    # Without a time stamp and a file name, the same data always gives the same bytes.
    TARGET.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{TARGET.name}: {sum(map(len, by_owner.values()))} names")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
