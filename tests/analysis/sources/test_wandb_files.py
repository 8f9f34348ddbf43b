"""Runs in files that wandb wrote offline."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from wandb.proto.wandb_internal_pb2 import Record

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.findings import Kind
from rlhf_lab_analysis.sources.wandb_files import BLOCK, CHUNK, HEAD, MAGIC, read_offline
from rlhf_lab_analysis.tables.readers import read_source

Rows = Sequence[Mapping[str, Any]]


def add(items: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        item = items.add()
        item.key, item.value_json = name, json.dumps(value)


def write(path: Path, rows: Rows, exit_code: int | None = 0, run: str = "abc") -> Path:
    """A file of one session, in blocks as wandb writes them."""
    records = [Record()]
    records[0].run.run_id, records[0].run.project = run, "elsewhere"
    add(records[0].run.config.update, {"seed": 2, "exp_name": "ppo", "_wandb": {}})
    for number, row in enumerate(rows):
        records.append(Record())
        add(records[-1].history.item, {"_step": number, **row})
    if exit_code is not None:
        records.append(Record())
        records[-1].exit.exit_code = exit_code
    data = bytearray(HEAD.pack(*MAGIC))
    for record in records:
        left, is_first = record.SerializeToString(), True
        while left or is_first:
            room = BLOCK - len(data) % BLOCK
            if room < CHUNK.size:
                data += bytes(room)
                continue
            part, left = left[: room - CHUNK.size], left[room - CHUNK.size :]
            kind = (2 if left else 1) if is_first else (3 if left else 4)
            is_first = False
            checksum = zlib.crc32(part, zlib.crc32(bytes([kind])))
            data += CHUNK.pack(checksum, len(part), kind) + part
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def session(first: int, last: int, base: float, **more: Any) -> Rows:
    return [{"train/reward": base + n, "global_step": n, **more} for n in range(first, last)]


def test_a_run_that_was_continued_is_the_union_by_its_own_step(tmp_path: Path) -> None:
    write(tmp_path / "run-20260101_000000-abc/run-abc.wandb", session(0, 20, 0.0), None)
    write(tmp_path / "run-20260102_000000-abc/run-abc.wandb", session(15, 30, 100.0))
    write(tmp_path / "run-20260102_000000-xyz/run-xyz.wandb", session(0, 2, 0.0), 1, "xyz")
    (tmp_path / "latest-run").symlink_to("run-20260102_000000-abc")
    one, other = read_source(str(tmp_path)).records
    assert [row["train/reward"] for row in one.rounds] == [*range(15), *range(115, 130)]
    assert (one.facts.seed, one.facts.state, one.facts.project) == (2, "finished", "elsewhere")
    assert (other.facts.state, len(other.rounds), other.findings) == ("failed", 2, ())
    (finding,) = one.findings
    assert finding.kind is Kind.duplicate and finding.what.startswith("5 rows")


def test_a_session_that_ends_earlier_leaves_the_later_steps(tmp_path: Path) -> None:
    write(tmp_path / "run-1/run-abc.wandb", session(0, 10, 0.0))
    write(tmp_path / "run-2/run-abc.wandb", session(5, 7, 100.0))
    (run,) = read_offline(tmp_path).records
    rewards = [row["train/reward"] for row in run.rounds]
    assert rewards == [0, 1, 2, 3, 4, 105, 106, 7, 8, 9]


def test_a_file_is_read_up_to_its_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "run-abc.wandb", session(0, 300, 0.0, note="x" * 400))
    whole = path.read_bytes()
    assert len(whole) > 4 * BLOCK
    (run,) = read_offline(path).records
    assert len(run.rounds) == 300 and run.findings == ()
    for data in (whole[:-5], whole[: 2 * BLOCK + 3], whole[:9000] + b"!" + whole[9001:]):
        path.write_bytes(data)
        (run,) = read_offline(path).records
        assert 0 < len(run.rounds) <= 300 and run.rounds[0]["train/reward"] == 0
        assert [one.kind for one in run.findings] == [Kind.damaged]
    for data in (b"", whole[:7], b"no file of wandb's", whole[:10]):
        path.write_bytes(data)
        reading = read_offline(path)
        assert reading.records == () and [one.kind for one in reading.findings] == [Kind.damaged]


def test_without_wandb_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "run-abc.wandb", session(0, 2, 0.0))
    monkeypatch.setitem(__import__("sys").modules, "wandb.proto.wandb_internal_pb2", None)
    with pytest.raises(UserError, match="needs the package wandb"):
        read_offline(path)
