"""A vLLM server that ends with the run: python -m rlhf_lab.generators.vllm.serve <fd> arguments."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import threading

from rlhf_lab.generators.vllm.family import end_family
from rlhf_lab.generators.vllm.heads import require_head_size

SERVER = "vllm.entrypoints.openai.api_server"


def end_with_the_run(descriptor: int) -> None:
    """Nobody writes to the pipe: a read returns when its other end is gone."""
    with contextlib.suppress(OSError):
        os.read(descriptor, 1)
    end_family()


if __name__ == "__main__":
    threading.Thread(target=end_with_the_run, args=(int(sys.argv[1]),), daemon=True).start()
    sys.argv = [SERVER, *sys.argv[2:]]
    require_head_size(sys.argv[sys.argv.index("--model") + 1])
    runpy.run_module(SERVER, run_name="__main__", alter_sys=True)
