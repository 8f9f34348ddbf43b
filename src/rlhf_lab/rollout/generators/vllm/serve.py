"""A vLLM server: python -m rlhf_lab.rollout.generators.vllm.serve <fd> arguments.

It ends with the run that holds the other end of the pipe fd; with - instead, by itself.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import shutil
import sys
import threading

from rlhf_lab.rollout.generators.vllm.family import FOLDER, end_family
from rlhf_lab.rollout.generators.vllm.heads import require_head_size

ALONE = "-"
SERVER = "vllm.entrypoints.openai.api_server"


def end_with_the_run(descriptor: int) -> None:
    """Nobody writes to the pipe: a read returns when its other end is gone."""
    with contextlib.suppress(OSError):
        os.read(descriptor, 1)
    end_family()


def serve(arguments: list[str]) -> None:
    """Run the server, once its model is known to fit."""
    sys.argv = [SERVER, *arguments]
    require_head_size(sys.argv[sys.argv.index("--model") + 1])
    runpy.run_module(SERVER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if sys.argv[1] == ALONE:
        try:
            serve(sys.argv[2:])
        finally:
            shutil.rmtree(os.environ[FOLDER], ignore_errors=True)
    else:
        threading.Thread(target=end_with_the_run, args=(int(sys.argv[1]),), daemon=True).start()
        serve(sys.argv[2:])
