"""The browser that measurements use, for tests."""

from __future__ import annotations

from benchmarks.speed.browser import Page, browser, program

__all__ = ["Page", "browser", "program"]
