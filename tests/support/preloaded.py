"""The session's server imports what each process that tests fork from it would import anew.

accelerate imports DeepSpeed, where that is installed, whenever a model is saved: seconds of each
run. Imported by what starts processes.
"""

from __future__ import annotations

from rlhf_lab.runs import forkserver

LATE = (
    *("deepspeed", "torch.distributed.fsdp", "torch.profiler._cupti_monitor"),
    "tests.support.warmed",
)

forkserver.PRELOAD.extend(name for name in LATE if name not in forkserver.PRELOAD)
