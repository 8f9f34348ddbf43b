"""rlhf_lab: synchronous and asynchronous RLHF with exact off-policy accounting."""

import logging
import os

__version__ = "0.2.0"

# Threads of OpenMP spin while they wait for each other. Beside another busy process they take the
# cores that the others need, so they sleep after a short while; at once costs an idle machine more
# than it saves. Read when torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "100000")

# Wherever DeepSpeed is installed, transformers imports it, and it warns on every machine without a
# device. The terminal belongs to the console: of its log only errors are shown.
logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
