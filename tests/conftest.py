from __future__ import annotations

import os
import tempfile

# Neither the tests nor the processes they start look at, or leave anything in, the user's own cache.
os.environ["FSDP_MIGRATE_CACHE_DIR"] = tempfile.mkdtemp(prefix="fsdp-migrate-cache-")
