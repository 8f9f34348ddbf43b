"""Measure the page of `rlhf-lab report`: its size, how long it takes to make and to load.

python -m benchmarks.speed.report_page [--runs 10 100 1000] [--out FOLDER]

The runs are simulated. Loading is measured in a headless Chromium (on the PATH, or named by
RLHF_LAB_BROWSER), in a new tab each time; seconds are those of the browser's own clock.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.program import report
from benchmarks.speed.simulated_runs import simulated_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import Table
from rlhf_lab_analysis.report.make import Options, html
from tests.support.browser import Page, browser, program

COLUMNS = [
    *("runs", "conditions", "size (MB)", "made in (CPU s)", "HTML loaded (s)"),
    *("first chart (s)", "filtered (s)", "CPU of the tab (s)"),
]
LOADS = 3
# Seconds from the beginning of the navigation.
LOADED = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd / 1000"
DRAWN = "performance.getEntriesByName('drawn')[0].startTime / 1000"
FILTERED = """(() => {
  const field = document.getElementById("filter"), begin = performance.now();
  field.value = "async";
  field.dispatchEvent(new Event("input"));
  document.body.getBoundingClientRect();
  return (performance.now() - begin) / 1000;
})()"""


def load(tab: Page, path: Path) -> list[float]:
    """Seconds until the HTML is read, until the first chart stands, and to filter by a word; CPU
    seconds of the tab."""
    tab.open(path)
    times = [float(tab.run(script)) for script in (LOADED, DRAWN, FILTERED)]
    metrics = {one["name"]: one["value"] for one in tab.call("Performance.getMetrics")["metrics"]}
    return [*times, float(metrics["TaskDuration"])]


def measure(runs: int, path: Path, chromium: str) -> list[str]:
    """Write the page of simulated runs, and load it a few times: a row of the table."""
    tables = simulated_runs(runs)
    begin = time.process_time()
    path.write_text(html(tables, Options(title=f"{runs} simulated runs")), encoding="utf-8")
    made, loads = time.process_time() - begin, []
    for _ in range(LOADS):
        with tempfile.TemporaryDirectory() as profile, browser(chromium, Path(profile)) as tab:
            tab.call("Performance.enable")
            tab.size(1280, 900)
            loads.append(load(tab, path))
    medians = [f"{statistics.median(column):.2f}" for column in zip(*loads, strict=True)]
    conditions = len(tables.runs.groupby(["env_id", "condition"]))
    size = f"{path.stat().st_size / 1e6:.2f}"
    return [str(runs), str(conditions), size, f"{made:.1f}", *medians]


def run(given: argparse.Namespace, console: Console) -> None:
    """Measure, and print the table. Raises UserError without a browser."""
    chromium = program()
    if chromium is None:
        raise UserError("no Chromium on the PATH: install it, or set RLHF_LAB_BROWSER to it")
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [measure(runs, given.out / f"report-{runs}.html", chromium) for runs in given.runs]
    report(Table("the page of a report", COLUMNS, rows), given.out / "report_page.json", console)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 without a browser."""
    parser = argparse.ArgumentParser(description="Size and load time of the report's page.")
    parser.add_argument("--runs", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--out", type=Path, default=Path("runs/bench-report"))
    given = parser.parse_args(arguments)
    return exit_code("report_page", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
