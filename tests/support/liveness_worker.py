"""Two processes of which one is lost. Children import this module.

They join; then one stops itself (SIGSTOP), or is killed, while the other waits for it within a call
(rank 0), or rank 0 stops and process 1 waits for the next call.
"""

from __future__ import annotations

import os
from datetime import timedelta

from rlhf_lab.training.engines import distributed


def lose(loser: int, number: int) -> None:
    """In both processes."""
    distributed.WITHIN_CALL = timedelta(seconds=3)
    distributed.BEAT_SECONDS = 0.2
    distributed.SILENCE_SECONDS = 2.0
    own = int(os.environ["RANK"])
    processes = distributed.join()
    processes.all_gather_object("joined")
    if own == loser:
        os.kill(os.getpid(), number)
    with distributed.together(processes):
        if loser == 1:
            processes.all_gather_object("lead")
        else:
            processes.broadcast_call(None)
