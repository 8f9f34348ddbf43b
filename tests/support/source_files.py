"""One small, sound file of every kind of source, which tests damage."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlhf_lab.runs.trackers.tensorboard import TensorBoardTracker
from rlhf_lab_analysis.sources.wandb_log import CHUNK, HEADER, MAGIC
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


def wandb_file(folder: Path, *changed: Callable[[Any], None] | bytes) -> Path:
    """A run with a config and three rows. changed: what is done to further records, or their
    bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    def run(message: Any) -> None:
        message.run.run_id, message.run.project = "abc", "p"
        message.run.start_time.seconds = 1_700_000_000
        item = message.run.config.update.add()
        item.key, item.value_json = "seed", "1"

    def row(step: int) -> Callable[[Any], None]:
        return lambda message: history(message, {"_step": str(step), "loss": "0.5"})

    parts = [run, *(row(step) for step in range(3)), *changed]
    data = HEADER.pack(*MAGIC)
    for part in parts:
        message = Record()
        if not isinstance(part, bytes):
            part(message)
        payload = part if isinstance(part, bytes) else message.SerializeToString()
        kind = b"\x01"
        data += CHUNK.pack(zlib.crc32(kind + payload), len(payload), 1) + payload
    path = folder / "run-abc.wandb"
    path.write_bytes(data)
    return path


def history(message: Any, values: Mapping[str, str]) -> None:
    """A row whose keys are paths with dots."""
    for key, text in values.items():
        item = message.history.item.add()
        item.nested_key.extend(key.split("."))
        item.value_json = text


SOURCES: dict[str, Callable[[Path], Path]] = {
    "csv": csv,
    "saved": parquet,
    "orb": benchmark,
    "tensorboard": events,
    "offline": wandb_file,
}


def files_of(folder: Path) -> list[Path]:
    """The files that a source was written to."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
