"""Run a renamed command under its former name, which works for one more release."""

from __future__ import annotations

import runpy
import sys


def run_as(new: str) -> None:
    """Run `python -m NEW` with the arguments of this process, after a line that names it."""
    sys.stderr.write(f"this command is now python -m {new}\n")
    runpy.run_module(new, run_name="__main__", alter_sys=True)
