"""Hydra's sweeper for runs: knows what is done, says what it will take, and goes on where it ended.

Whatever launcher is chosen runs the jobs; the shared stages are jobs too, and come first.
"""

from __future__ import annotations
