from __future__ import annotations

import os
import signal
import tempfile

# Neither the tests nor the processes they start look at, or leave anything in, the user's own cache.
os.environ["FSDP_MIGRATE_CACHE_DIR"] = tempfile.mkdtemp(prefix="fsdp-migrate-cache-")

# In the background of a shell, or under `nohup`, these are ignored, and so they would be by every process of a test.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (getattr(signal, "SIGHUP", None), signal.SIG_DFL)):
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
