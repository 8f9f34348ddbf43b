"""rlhf_lab: synchronous and asynchronous RLHF with exact off-policy accounting."""

import logging
import os
from importlib import import_module
from typing import Any

__version__ = "0.2.0"

# Threads of OpenMP spin while they wait at a barrier. On a busy machine a thread that spins holds
# the core that the thread it waits for needs, so threads sleep after some microseconds
# (docs/speed.md). Read when torch is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    # Milliseconds of LLVM's library, which torch for macOS has.
    os.environ.setdefault("KMP_BLOCKTIME", "1")

# Wherever DeepSpeed is installed, transformers imports it, and it warns on every machine without a
# device. The terminal belongs to the console: of its log only errors are shown.
logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)


# Of docs/python.md; each is imported at its first use.
FRONT = ("train", "resume", "Run", "plot")


def __getattr__(name: str) -> Any:
    """What notebooks and scripts call."""
    if name in FRONT:
        return getattr(import_module("rlhf_lab.cli.python"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
