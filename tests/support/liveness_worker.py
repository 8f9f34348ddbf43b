"""Run as two processes with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: liveness_worker.py WAITS

They join, rank 0 prints `joined`, and process 1 stops itself (SIGNAL=STOP), or is killed, while the
other waits for it within a call (rank 0), or rank 0 stops and process 1 waits for the next call.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta

from rlhf_lab.training.engines import distributed, liveness

distributed.WITHIN_CALL = timedelta(seconds=3)
liveness.BEAT_SECONDS = 0.2
liveness.SILENCE_SECONDS = 2.0


def main(loser: int, number: int) -> None:
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


if __name__ == "__main__":
    main(int(sys.argv[1]), signal.Signals[sys.argv[2]].value)
