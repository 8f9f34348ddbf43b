"""rlhf_lab: synchronous and asynchronous RLHF with exact off-policy accounting."""

import logging

__version__ = "0.1.0"

# Wherever DeepSpeed is installed, transformers imports it, and it warns on every machine without a
# device. The terminal belongs to the console: of its log only errors are shown.
logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
