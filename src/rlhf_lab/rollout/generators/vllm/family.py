"""The end of a child of ours and of all that it started, when nobody is left to ask it."""

from __future__ import annotations

import os
import shutil
import signal

FOLDER = "RLHF_LAB_VLLM_FOLDER"


def end_family() -> None:
    """Remove the folder that was ours and the child's, then end everybody of its session."""
    shutil.rmtree(os.environ[FOLDER], ignore_errors=True)
    os.killpg(os.getpgid(0), signal.SIGKILL)
