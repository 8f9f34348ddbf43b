"""wandb's offline files, whole, cut and damaged, and runs of a server, against its own reader."""

from __future__ import annotations

import json
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab_analysis.sources.history import merge_histories
from rlhf_lab_analysis.sources.record import flat
from rlhf_lab_analysis.sources.wandb_files import read_file, read_offline
from rlhf_lab_analysis.sources.wandb_log import BLOCK, CHUNK, HEADER, MAGIC, Log
from rlhf_lab_analysis.tables.table import make_tables
from tests.support import prepared
from tests.support.wandb_project import serving

pytestmark = pytest.mark.usefixtures("costly")


def encoded(records: Sequence[bytes]) -> bytes:
    """A file as LevelDB's log format lays it out, written from its description."""
    data = bytearray(HEADER.pack(*MAGIC))
    for record in records:
        rest, begun = record, False
        while True:
            left = BLOCK - len(data) % BLOCK
            if left < CHUNK.size:
                data += bytes(left)
                continue
            part, rest = rest[: left - CHUNK.size], rest[left - CHUNK.size :]
            kind = (3 if begun else 2) if rest else (4 if begun else 1)
            checksum = zlib.crc32(bytes([kind]) + part)
            data += CHUNK.pack(checksum, len(part), kind) + part
            begun = True
            if not rest:
                break
    return bytes(data)


# Lengths around those where a record, or a chunk's head, ends at a block's end.
SIZES = st.one_of(
    st.integers(0, 200), st.integers(BLOCK - 40, BLOCK + 10), st.integers(2 * BLOCK, 3 * BLOCK)
)


@given(st.lists(SIZES, max_size=5), st.data())
def test_records_are_read_back_and_a_cut_file_up_to_the_cut(
    sizes: list[int], draw: st.DataObject
) -> None:
    records = [bytes([n % 251]) * size for n, size in enumerate(sizes, start=1)]
    data = encoded(records)
    log = Log(data)
    assert list(log) == records and log.stop is None
    cut = draw.draw(st.integers(0, len(data)))
    log = Log(data[:cut])
    ends = [len(encoded(records[: n + 1])) for n in range(len(records))]
    whole = sum(end <= cut for end in ends)
    assert list(log) == records[:whole]
    begins = [HEADER.size, *ends][whole]
    # A cut between records, or in the zeros that end a block, takes nothing away.
    if log.stop is None:
        assert cut >= HEADER.size and cut - begins < CHUNK.size
    else:
        assert log.stop.offset <= cut


@given(st.data())
def test_a_changed_byte_ends_the_reading_where_its_chunk_begins(draw: st.DataObject) -> None:
    records = [b"one" * 40, b"two" * 40, b"three" * 40]
    data = bytearray(encoded(records))
    place = draw.draw(st.integers(HEADER.size, len(data) - 1))
    data[place] ^= draw.draw(st.integers(1, 255))
    log = Log(bytes(data))
    starts = [HEADER.size, *(len(encoded(records[: n + 1])) for n in range(2))]
    hit = max(n for n, start in enumerate(starts) if start <= place)
    assert list(log) == records[:hit]
    assert log.stop is not None and log.stop.offset == starts[hit]


def test_what_is_no_such_file_says_so() -> None:
    for data, why in ((b"", "the header is cut off"), (b"PK\3\4 a zip", "the header is (b'PK")):
        log = Log(data)
        assert list(log) == [] and log.stop is not None
        assert log.stop.offset == 0 and log.stop.why.startswith(why)
    # A part of a record without its beginning: its checksum is right.
    data = HEADER.pack(*MAGIC) + CHUNK.pack(zlib.crc32(b"\4x"), 1, 4) + b"x"
    log = Log(data)
    assert list(log) == [] and log.stop is not None
    assert log.stop.why == "a chunk of type 4 where none belongs"


def test_a_step_that_is_told_again_is_what_was_told_last() -> None:
    first = [{"_step": n, "loss": n} for n in range(4)]
    later = [{"_step": n, "loss": 10 * n} for n in range(2, 6)]
    assert [row["loss"] for row in merge_histories([first, later])] == [0, 1, 20, 30, 40, 50]


# Files of wandb itself.

LOG = """
import json, sys, wandb
how = json.loads(sys.argv[1])
run = wandb.init(mode="offline", dir=sys.argv[2], settings=wandb.Settings(
    silent=True, console="off"), **how["init"])
for step, row in how["rows"]:
    run.log(row, step=step)
run.config.update({"late": [1, 2]})
run.finish(exit_code=how.get("exit", 0))
wandb.teardown()
"""
ODD = {
    "loss/a.b": 0.1,
    "nested": {"a": {"b": 2}},
    "nan": float("nan"),
    "text": "é<&>",
    "big": 2**60,
}


def wandb_process(
    script: str, *arguments: str, folder: Path, own: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """What a process of wandb's own says."""
    return prepared.run(script, *arguments, modules=prepared.WANDB, folder=folder, surroundings=own)


def log_run(folder: Path, **how: Any) -> None:
    """Let wandb write an offline run in a process of its own."""
    places = {name: str(folder / "own") for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR",
                                                     "WANDB_DATA_DIR")}  # fmt: skip
    done = wandb_process(LOG, json.dumps(how), str(folder), folder=folder, own=places)
    assert done.returncode in (0, how.get("exit", 0)), done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in two files, the second of which went on from step 2."""
    path = tmp_path_factory.mktemp("offline")
    init = {
        "project": "p", "entity": "me", "id": "abc", "name": "A & B", "group": "g",
        "tags": ["one", "two"], "config": {"seed": 3, "env_id": "E", "run": {"updates": 4}},
    }  # fmt: skip
    wide = {f"metric/{n}/{'x' * 60}": n + 0.5 for n in range(600)}
    rows = [[0, {"loss": 1.5, **wide}], [1, {"loss": 1.25}], [2, {"loss": 9.0}]]
    log_run(path, init=init, rows=rows, exit=1)
    log_run(path, init={**init, "resume": "allow"}, rows=[[2, ODD], [3, {"loss": 0.5}]])
    return path


def inspected(path: Path) -> list[dict[str, Any]]:
    """A file as wandb's own reader tells it."""
    reader = "import runpy; runpy.run_module('wandb', None, '__main__', True)"
    asked = ("leet", "inspect", "--json", str(path))
    done = wandb_process(reader, *asked, folder=path.parent, own={})
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its values' paths as names, and NaN as something that equals itself."""
    return {key: "NaN" if value != value else value for key, value in flat(row).items()}


def test_every_file_is_read_as_wandbs_own_reader_reads_it(folder: Path) -> None:
    files = sorted(folder.rglob("*.wandb"))
    assert len(files) == 2 and files[0].stat().st_size > BLOCK, "one has more than a block"
    for path in files:
        theirs = inspected(path)
        history = [one["history"]["item"] for one in theirs if one["type"] == "history"]
        heads = [one["run"] for one in theirs if one["type"] == "run"]
        told = read_file(path)
        assert [plain(row) for row in told.rows] == [plain(row) for row in history]
        assert history
        assert (told.head.run_id, told.head.project) == (heads[0]["run_id"], heads[0]["project"])
        own = {k: v for k, v in heads[0]["config"]["update"].items() if not k.startswith("_")}
        assert own.items() <= told.config.items() and told.config["late"] == [1, 2]
        assert told.problems == []


def test_the_files_of_a_resumed_run_are_one_run(folder: Path) -> None:
    reading = read_offline(folder)
    (run,) = reading.records
    assert reading.findings == () and run.findings == ()
    assert (run.run, run.facts.state, run.facts.name) == ("abc", "finished", "A & B")
    assert (run.facts.seed, run.facts.project, run.facts.tags) == (3, "me/p", ("one", "two"))
    assert [row["_step"] for row in run.rounds] == [0, 1, 2, 3]
    assert run.rounds[0]["metric/599/" + "x" * 60] == 599.5
    odd = run.rounds[2]
    assert "loss" not in odd, "the later file says what step 2 was"
    assert (odd["loss/a.b"], odd["nested.a.b"], odd["text"]) == (0.1, 2, "é<&>")
    assert odd["big"] == 2.0**60 and odd["nan"] != odd["nan"]
    made = make_tables(reading)
    assert "nan is not finite in 1 of 4 points, first in number 3" in [
        finding.what for finding in made.findings
    ]
    assert made.points["env_id"].unique().tolist() == ["E"]


def test_the_first_file_alone_is_of_a_run_that_failed(folder: Path) -> None:
    first, last = sorted(folder.rglob("*.wandb"))
    assert [read_offline(path).records[0].facts.state for path in (first, last)] == [
        "failed",
        "finished",
    ]


def test_a_cut_tail_is_told_with_its_byte(folder: Path, tmp_path: Path) -> None:
    path = sorted(folder.rglob("*.wandb"))[1]
    data = path.read_bytes()
    whole = read_file(path).rows
    seen = set()
    # The end of the first record, which names no run.
    first = HEADER.size + CHUNK.size + CHUNK.unpack_from(data, HEADER.size)[1]
    for cut in (*range(len(data) - 1, HEADER.size, -97), first):
        copy = tmp_path / "run-abc.wandb"
        copy.write_bytes(data[:cut])
        told = read_file(copy)
        assert told.rows == whole[: len(told.rows)] or any(v != v for v in told.rows[0].values())
        seen.add(len(told.rows))
        reading = read_offline(copy)
        found = [*reading.findings, *(one for run in reading.records for one in run.findings)]
        # A cut between two records damages none: only a missing run is reported.
        expected = [f"of {cut} of run-abc.wandb"] * len(told.problems)
        if not told.problems and told.head is None:
            expected = ["names no run"]
        assert len(found) == len(expected) <= 1
        assert all(text in finding.what for text, finding in zip(expected, found, strict=True))
        assert [run.facts.state for run in reading.records] == ["died"] * bool(told.head)
    assert seen == {0, 1, 2} and told.head is None and not told.problems


def test_a_damaged_middle_is_told_and_nothing_behind_it_is_guessed(
    folder: Path, tmp_path: Path
) -> None:
    path = sorted(folder.rglob("*.wandb"))[0]
    data = bytearray(path.read_bytes())
    data[BLOCK + 100] ^= 1
    copy = tmp_path / "damaged.wandb"
    copy.write_bytes(data)
    told = read_file(copy)
    assert told.rows == [] and f"read up to byte {BLOCK} of {len(data)}" in told.problems[0]
    assert "the checksum does not fit" in told.problems[0]
    (run,) = read_offline(copy).records
    assert [finding.run for finding in run.findings] == ["abc"]


def test_a_file_of_something_else_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.wandb").write_bytes(b"rubbish, and more of it")
    reading = read_offline(tmp_path)
    assert reading.records == ()
    (finding,) = reading.findings
    assert "read up to byte 0 of 23 of a.wandb (the header is" in finding.what


# A server's runs, by wandb's own client.

READ = """
import json, sys
from pathlib import Path
import rlhf_lab_analysis.sources.online as online
from rlhf_lab_analysis.tables.__main__ import main
online.PER_PAGE = 2
code = main(sys.argv[1:])
import wandb
wandb.teardown()
sys.exit(code)
"""


def by_wandb(folder: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with wandb's client asking a server of ours."""
    names = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")
    own = {name: str(folder / name) for name in names}
    own |= {"WANDB_BASE_URL": url, "WANDB_API_KEY": "0" * 40}
    return wandb_process(READ, *arguments, folder=folder, own=own)


def test_what_the_server_refuses_for_good_is_told(tmp_path: Path) -> None:
    with serving("p", []) as project:
        project.busy, project.status = 1000, 403
        done = by_wandb(tmp_path, project.url, "wandb:me/p")
    assert (done.returncode, project.refused) == (2, 1)
    assert done.stderr.startswith("tables: wandb's server refused the runs of me/p (status 403")
    assert done.stderr.count("\n") == 1


def test_wandbs_own_client_reads_pages_histories_and_waits_when_asked_to(tmp_path: Path) -> None:
    def node(number: int) -> dict[str, Any]:
        told = {"updates": 3, "updates_per_round": 1, "passes": 1}
        rows: list[dict[str, Any]] = [
            {"_step": n, "_runtime": n, "total/rounds": n + 1, "deep": {"a": n}} for n in range(3)
        ]
        rows += [{"_step": 3, "version": 3, "eval/prompts": 8, "gold/win_rate": number / 8}]
        config = {"seed": number, "env_id": "E", "exp_name": "x", "run": told}
        own = {"name": f"r{number}", "displayName": f"R{number}", "state": "finished"}
        return {**own, "heartbeatAt": "2026", "tags": ["t"], "config": config, "history": rows}

    out = tmp_path / "t.csv"
    asked = ["wandb:me/p", "--cache", str(tmp_path / "cache")]
    asked += ["--filters", "?", "x?seed=1&seed=2&tag=t", "--out", str(out)]
    with serving("p", [node(n) for n in range(3)]) as project:
        project.busy = 1
        said = [by_wandb(tmp_path, project.url, *asked) for _ in range(2)]
    assert [one.returncode for one in said] == [0, 0], said[0].stderr
    assert "2 runs, 1 condition, 2 seeds (1, 2)" in said[0].stdout
    assert "no findings" in said[0].stdout
    assert "wandb: 2 runs, 0 of them from the cache" in said[0].stdout
    assert "wandb: 2 runs, 2 of them from the cache" in said[1].stdout
    # Two pages each time, and the histories of the chosen runs once; wandb's own client asked for
    # the refused page again.
    assert (project.refused, project.count("Runs"), project.count("HistoryPage")) == (1, 4, 2)
    values = next(values for name, values in project.asked if name == "Runs")
    assert json.loads(values["filters"])["$or"], "the server is given the filters"
    lines = (tmp_path / "t.versions.csv").read_text().splitlines()
    head = lines[0].split(",")
    rates = [line.split(",")[head.index("gold/win_rate")] for line in lines[1:]]
    assert rates == ["0.125", "0.25"]
