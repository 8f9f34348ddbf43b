"""One small, sound file of every kind of source, which tests damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlhf_lab.runs.trackers.tensorboard import TensorBoardTracker
from rlhf_lab_analysis.tables.exported import runs_to_export
from rlhf_lab_analysis.tables.open_rl_benchmark_export import write_benchmark
from rlhf_lab_analysis.tables.store import save
from tests.support.table_records import record, tables

CSV = """\
run,seed,env_id,exp_name,x/updates,x/wall_minutes,config.optim.lr,version,gold/win_rate,loss
a,1,E,grpo,1,0.5,1e-4,,,0.25
a,1,E,grpo,2,1.5,1e-4,,,0.125
a,1,E,grpo,,,,2,0.5,
b,2,E,grpo,1,1,2e-4,,,NaN
"""


def csv(folder: Path) -> Path:
    path = folder / "mine.csv"
    path.write_text(CSV)
    return path


def parquet(folder: Path) -> Path:
    path = folder / "mine.parquet"
    save(tables(record("a", 1), record("b", None)), path)
    return path


def benchmark(folder: Path) -> Path:
    write_benchmark(runs_to_export([record("a", 1), record("b", 2)]), folder, "me", "p")
    return folder


def events(folder: Path) -> Path:
    tracker = TensorBoardTracker(folder / "tensorboard")
    for step in range(5):
        tracker.log({"loss": step / 8, "total/rounds": step + 1}, step)
    tracker.close()
    return folder


SOURCES: dict[str, Callable[[Path], Path]] = {
    "csv": csv,
    "saved": parquet,
    "orb": benchmark,
    "tensorboard": events,
}


def files_of(folder: Path) -> list[Path]:
    """The files that a source was written to."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
