"""Modules of users, which may lie in the working folder."""

from __future__ import annotations

import os
import sys


def see_working_folder() -> None:
    """Make modules of the working folder importable, as they are under python -m."""
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)
