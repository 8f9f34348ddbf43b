"""rlhf_lab: synchronous and asynchronous RLHF with exact off-policy accounting."""

import logging
import os

__version__ = "0.2.0"

# Threads of OpenMP spin while they wait for each other. Beside other busy processes they take the
# cores that their own side needs: so they sleep after some microseconds, which costs nothing that
# can be measured on an idle machine (docs/speed.md). Read when torch is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")

# Wherever DeepSpeed is installed, transformers imports it, and it warns on every machine without a
# device. The terminal belongs to the console: of its log only errors are shown.
logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
