"""Each file of a run is the one that it wrote, or is found; numbers of a row agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.cli.verify import VERIFY
from rlhf_lab.runs.jsonl import JsonlFile, write_rows
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.summaries import summary
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.verification import (
    contradictions,
    overlong_phases,
    require_recorded,
    verify_run,
)
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.folders import read_folder

EVALUATED = {
    "version": 2,
    "gold/win_rate": 0.5,
    "gold/win_rate_low": 0.4,
    "gold/win_rate_high": 0.6,
}
GROWING: dict[str, dict[str, Any]] = {
    "metrics.jsonl": {"step": 0, "reward/mean": 1.0},
    "schedule.jsonl": {"round": 0, "chunk": 0, "segments": [[0, 0]], "dropped": False},
    "timeline.jsonl": {
        "lane": "trainer", "phase": "sync", "start": 0.0, "end": 1.0, "round": 0, "version": 0,
        "chunk": None,
    },
}  # fmt: skip
WHOLE: dict[str, list[dict[str, Any]]] = {
    "evals.jsonl": [EVALUATED],
    "evals-other.jsonl": [EVALUATED],
    "validation.jsonl": [EVALUATED],
    "samples.jsonl": [{"uid": "a", "sample": "b"}],
}
LARGE = ("weights/000002.safetensors", "policy/model.safetensors", "policy/tokenizer.json")
FACTS = {"run_id": "r1", "seed": 1, "algo": "rloo", "num_rounds": 2, "wall_seconds": 1.5}


def made(folder: Path) -> Path:
    """A finished run with every kind of file."""
    record = RunDirectory.create(folder, FACTS, "seed: 1\noptim:\n  lr: 0.1\n")
    for name, row in GROWING.items():
        file = JsonlFile(folder / name)
        file.append(row, row | {"round": 1})
        file.close()
        record.note_files({name: file.extent()})
    with record.rewriting(*WHOLE):
        for name, rows in WHOLE.items():
            write_rows(folder / name, rows)
    for name in LARGE:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(bytes(range(200)))
    record.record_files(folder / name for name in LARGE)
    record.finish("finished", weights_digest="ab")
    return folder


def verified(*folders: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = VERIFY.run(list(map(str, folders)), Console(quiet=False, is_terminal=False))
    return code, capsys.readouterr().out.splitlines()


def in_rows(path: Path, key: str, value: Any) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[-1][key] = value
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def in_manifest(path: Path, key: str, value: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}, indent=2) + "\n")


@pytest.mark.parametrize("name", [*GROWING, *WHOLE])
def test_a_value_of_a_row_that_was_changed_is_found_by_every_reader(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "run")
    assert verified(tmp_path, capsys=capsys) == (0, ["1 run: no findings"])

    in_rows(run / name, "own", 1)
    code, lines = verified(run, capsys=capsys)
    assert code == 1 and name in lines[0]
    assert name in summary(run, "run").problem
    (record,) = read_folder(tmp_path).records
    assert any(name in finding.what for finding in record.findings)


@pytest.mark.parametrize(
    ("key", "value"), [("seed", 2), ("algo", "ppo"), ("weights_digest", "0"), ("wall_seconds", 0.1)]
)
def test_a_changed_value_of_the_manifest_is_found(tmp_path: Path, key: str, value: Any) -> None:
    run = made(tmp_path / "run")
    in_manifest(run / "manifest.json", key, value)
    (found,) = verify_run(run)[0]
    assert "manifest.json" in found
    # A process that takes the run over writes the digest anew.
    RunDirectory(run, json.loads((run / "manifest.json").read_text())).update()
    assert verify_run(run)[0] == []


def test_a_changed_config_is_found(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    (run / "config.yaml").write_text("seed: 1\noptim:\n  lr: 0.2\n")
    assert [line.partition(":")[0] for line in verify_run(run)[0]] == [str(run / "config.yaml")]


@pytest.mark.parametrize("name", LARGE)
def test_a_flipped_bit_of_weights_is_found_and_refused(tmp_path: Path, name: str) -> None:
    run = made(tmp_path / "run")
    require_recorded(run, run / name)
    data = bytearray((run / name).read_bytes())
    data[100] ^= 64
    (run / name).write_bytes(data)
    (found,) = verify_run(run)[0]
    assert name in found
    with pytest.raises(Unreadable, match="not the file that the run wrote"):
        require_recorded(run, run / name)
    # A list of runs reads no weights.
    assert summary(run, "run").problem == ""


def test_what_was_never_recorded_is_a_note_and_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "run")
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["digest"], manifest["records"]["evals.jsonl"], manifest["records"][LARGE[1]]
    (run / "manifest.json").write_text(json.dumps(manifest))
    in_rows(run / "evals.jsonl", "own", 1)
    code, lines = verified(run, capsys=capsys)
    assert code == 0
    assert lines[0].startswith("note: ") and "evals.jsonl, policy/model.safetensors" in lines[0]


def test_files_that_are_written_again_have_no_wrong_record_meanwhile(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    record = RunDirectory(run, json.loads((run / "manifest.json").read_text()))
    with pytest.raises(ZeroDivisionError), record.rewriting("evals.jsonl"):
        write_rows(run / "evals.jsonl", [])
        1 / 0  # noqa: B018
    assert verify_run(run) == ([], ["evals.jsonl"])


def test_a_number_outside_of_its_bounds_is_found_in_a_run_without_records() -> None:
    low, high = EVALUATED | {"gold/win_rate": 0.39}, EVALUATED | {"gold/win_rate": 0.61}
    path = Path("evals.jsonl")
    assert contradictions([EVALUATED], path) == []
    for row in (low, high):
        (found,) = contradictions([EVALUATED, row, row], path)
        assert "line 2" in found and "gold/win_rate" in found


def test_phases_that_exceed_the_wall_clock_are_found() -> None:
    phases = ("reference", "update", "probe", "sync", "track", "save", "checkpoint")
    row = dict.fromkeys((f"seconds/{phase}" for phase in phases), 1.0)
    row |= {"seconds/take": 3.0, "seconds/train": 2.0, "seconds/wall": 11.0}
    alone = row | {"seconds/generate": 2.0, "seconds/score": 0.5, "seconds/wait": 0.0}
    assert list(overlong_phases(alone | {"seconds/other": 6.5})) == []
    # Five seconds of generation by an earlier process are in seconds/other too.
    assert len(list(overlong_phases(alone | {"seconds/other": 11.5}))) == 1
    background = row | {"seconds/wait": 3.0, "seconds/generate": 20.0, "seconds/other": 6.0}
    assert list(overlong_phases(background)) == []
    assert len(list(overlong_phases(background | {"seconds/take": 5.0}))) == 1


@pytest.mark.parametrize("name", ["/dev/zero", "../other/metrics.jsonl", "weights/../../a"])
def test_a_record_of_a_file_outside_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    run = made(tmp_path / "run")
    in_manifest(run / "manifest.json", "records", {name: {"size": 1, "sha256": "00"}})
    (found,), _ = verify_run(run)
    assert name in found and "outside" in found


def test_numbers_that_are_none_of_float64_are_no_contradiction() -> None:
    for value in (10**5000, "1", None, float("nan"), float("inf"), [1]):
        row = EVALUATED | {"gold/win_rate": value, "seconds/wall": value, "seconds/take": 1.0}
        assert contradictions([row], Path("rows")) == []


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{tmp_path} holds no run"):
        VERIFY.run([str(tmp_path)])
