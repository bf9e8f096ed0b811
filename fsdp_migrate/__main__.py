"""`python -m fsdp_migrate`."""

import os
import sys

if __name__ == "__main__":
    here = os.getcwd()
    started_here = sys.path[:1] in ([""], [here]) and not getattr(sys.flags, "safe_path", False)
    if started_here and not os.path.samefile(here, os.path.dirname(os.path.dirname(__file__))):
        # Python looks for modules in the current folder first. Here lies the code under analysis: none of it may run.
        del sys.path[0]
    from fsdp_migrate.start import main

    main()
