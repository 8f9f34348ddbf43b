"""rlhf_lab: synchronous and asynchronous RLHF with exact off-policy accounting."""

import logging
import os

__version__ = "0.1.0"

# Threads of OpenMP that wait for each other by spinning take the cores that the others need: beside
# one busy process a step of two threads took 4 to 10 times as long. Read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Wherever DeepSpeed is installed, transformers imports it, and it warns on every machine without a
# device. The terminal belongs to the console: of its log only errors are shown.
logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
