"""Runs, sweeps and states that a person or a program changed: no reader ends with a traceback, and
one damaged run hides no other. Random damage is in test_fuzz.py."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlhf_lab.cli import analysis, runs, timeline
from rlhf_lab.cli.arguments import overrides_again, overrides_of_replay, overrides_to_resume
from rlhf_lab.experiment.planning import planner
from rlhf_lab.experiment.run.evaluate import saved_weights
from rlhf_lab.experiment.run.outputs import refuse_occupied
from rlhf_lab.rollout.generators.options import HFSampling
from rlhf_lab.rollout.recorded_schedule import read_schedule
from rlhf_lab.runs.jsonl import read_rows, write_rows
from rlhf_lab.runs.row_digests import extent_of
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.saved_tensors import read_tensors
from rlhf_lab.runs.summaries import list_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.checkpoint import Checkpoints
from rlhf_lab.training.checkpoint_options import CheckpointOptions
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.findings import Kind
from rlhf_lab_analysis.sources.folders import read_folder
from rlhf_lab_analysis.tables import __main__ as tables
from rlhf_lab_analysis.tables.gather import gather
from tests.support.fuzz import pristine
from tests.support.fuzz_runs import CASES, chunk, snapshot

pytestmark = pytest.mark.usefixtures("costly")

CONSOLE = Console(quiet=False, is_terminal=False)
DEEP = '{"a": ' * 10**5


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two runs of a sweep; the tests damage the first."""
    folder = tmp_path / "sweep"
    shutil.copytree(pristine(CASES[0]), folder)
    return folder


@pytest.fixture
def run(sweep: Path) -> Path:
    return sweep / "seed=1"


def set_key(path: Path, key: str, value: Any) -> None:
    """Change a key of the manifest, or of a later row."""
    first, *others = path.read_text().split("\n", 1) if path.suffix == ".jsonl" else [""]
    text = others[0].split("\n")[0] if others else path.read_text()
    found = json.loads(text) | {key: value}
    path.write_text("\n".join([first, json.dumps(found), ""]) if others else json.dumps(found))


def read_all(sweep: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `runs`, tables and a report make of the sweep: each shows the other run."""
    assert runs.RUNS.run([str(sweep)], CONSOLE) == 0
    assert tables.main([str(sweep)]) == 0
    assert analysis.REPORT.run([str(sweep), "--out", str(sweep / "page.html")], CONSOLE) == 0
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err and "seed=2" in out
    assert "seed=2" in (sweep / "page.html").read_text()
    return out


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state", 5),
        ("host", "there"),
        ("num_rounds", "four"),
        ("num_rounds", [4]),
        ("git", "cc6846f6"),
        ("git", {}),
        ("seed", float("inf")),
        ("seed", 10**30),
        ("process", None),
        ("settings", []),
        ("started", "yesterday"),
        ("resumed", [{}]),
        ("versions", 3),
    ],
)
def test_a_manifest_of_other_types_is_a_finding_with_its_key(
    sweep: Path, run: Path, key: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    set_key(run / "manifest.json", key, value)
    assert f"key {key}" in read_all(sweep, capsys)
    (finding,) = (one for one in gather([str(sweep)]).findings if "manifest.json" in one.what)
    assert (finding.kind, finding.place) == ("damaged", str(run))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{", DEEP, '{"state": "running"}', "{}"],
    ids=range(7),
)
def test_a_manifest_that_is_none_is_refused_in_one_line(
    sweep: Path, run: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "manifest.json").write_text(text)
    assert "seed=1: manifest.json is damaged" in read_all(sweep, capsys)
    for command in (
        lambda: overrides_to_resume(run, []),
        lambda: overrides_again(run, []),
        lambda: overrides_of_replay(run, []),
        lambda: planner.show(run, [], CONSOLE),
    ):
        with pytest.raises(UserError, match="manifest") as refused:
            command()
        assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("metrics.jsonl", "total/rounds", float("nan")),
        ("metrics.jsonl", "step", "1"),
        ("metrics.jsonl", "seconds/wall", -1),
        ("evals.jsonl", "version", None),
        ("evals.jsonl", "version", 1.5),
        ("evals-other.jsonl", "version", []),
        ("validation.jsonl", "version", "last"),
    ],
)
def test_a_row_of_other_types_is_a_finding_with_its_line(
    sweep: Path, run: Path, name: str, key: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.loads(line) for line in (run / "evals.jsonl").read_text().splitlines()]
    if name.startswith(("evals-", "validation")):
        write_rows(run / name, rows)
    set_key(run / name, key, value)
    read_all(sweep, capsys)
    found = [one.what for one in gather([str(sweep)]).findings]
    assert any(f"{name}, line 2 key {key}" in what for what in found), found


@pytest.mark.parametrize(
    "row", ["[1]", "3", "null", '"text"', DEEP, '{"a": "\\ud800"}', "\udcff"], ids=range(7)
)
@pytest.mark.parametrize("name", ["metrics.jsonl", "schedule.jsonl", "timeline.jsonl"])
def test_a_line_of_garbage_is_named(
    sweep: Path, run: Path, name: str, row: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (run / name).read_text().splitlines()
    text = "\n".join([lines[0], row, *lines[1:], ""])
    (run / name).write_bytes(text.encode(errors="surrogateescape"))
    if name == "metrics.jsonl":
        assert "metrics.jsonl, line 2" in read_all(sweep, capsys)
        return
    readers: tuple[Callable[[], object], ...] = (lambda: read_rows(run / name),)
    if name == "timeline.jsonl":
        readers = (lambda: timeline.drawable_spans(run), lambda: planner.show(run, [], CONSOLE))
    for read in readers:
        with pytest.raises(UserError, match=rf"{name}, line 2.*: (delete the line|restore)"):
            read()


def test_a_schedule_without_one_of_its_chunks_is_refused_before_the_replay(run: Path) -> None:
    rows = read_rows(run / "schedule.jsonl")
    write_rows(run / "schedule.jsonl", [*rows[:1], *rows[2:]])
    recipe: Any = SimpleNamespace(num_rounds=4)
    mode: Any = SimpleNamespace(max_staleness=1)
    with pytest.raises(UserError, match=r"has no row of chunk 1: restore its schedule\.jsonl"):
        read_schedule(run, mode, recipe, HFSampling())


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n" + "d: [" + "*c, " * 999 + "*c]",
        "a: &a [*a]",
        "a: " + "[" * 10**5,
        "- a\n- b",
        "tracker: text",
        "tracker: {sweep: [1]}",
        "1: 2",
        "a: 2026-01-01",
    ],
    ids=range(8),
)
def test_a_config_that_is_none_is_a_finding_at_once(
    sweep: Path, run: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "config.yaml").write_text(text)
    read_all(sweep, capsys)
    assert any("config.yaml" in one.what for one in gather([str(sweep)]).findings)


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"jobs": [], "folders": {}, "base": ""}', DEEP], ids=range(4)
)
def test_a_sweeps_record_that_is_none_is_told_and_its_runs_are_shown(
    sweep: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (sweep / "sweep.json").write_text(text)
    assert f"{sweep}: {sweep / 'sweep.json'}" in read_all(sweep, capsys)
    (sweep / "sweep.json").unlink()
    (sweep / "sweep.json").mkdir()
    assert "it is no regular file" in read_all(sweep, capsys)


# Whatever stands there, the other run is shown.
PLACES: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "itself": lambda path: path.symlink_to(path.name),
    "nothing": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_file_is_neither_waited_for_nor_read_for_ever(
    sweep: Path, run: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("metrics.jsonl", "config.yaml", "timeline.jsonl"):
        (run / name).unlink()
        PLACES[place](run / name)
    found = read_all(sweep, capsys)
    assert "metrics.jsonl" in found
    with pytest.raises(UserError, match=r"timeline\.jsonl"):
        planner.show(run, [], CONSOLE)
    with pytest.raises(UserError, match=r"metrics\.jsonl is no file: move it away"):
        refuse_occupied(run)


# --- states ---------------------------------------------------------------------------------------


def newest(run: Path) -> tuple[int | None, list[str]]:
    """The round of the checkpoint that is gone on from, and what was said of others."""
    said: list[str] = []
    found = Checkpoints(run / "checkpoints", CheckpointOptions()).newest(chunk, said.append)
    return found.round if found else None, said


def entry(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "entry.json").write_text(text)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a list": entry("[]"),
    "cut": entry('{"files": {'),
    "deep": entry(DEEP),
    "no digests": entry('{"round": 4, "files": {}}'),
    "digests of another type": entry('{"files": {"state.json": 3}}'),
    "a long name": entry(json.dumps({"files": {"x" * 5000: ""}})),
    "no entry": lambda folder: (folder / "entry.json").unlink(),
    "changed state": lambda folder: (folder / "state.json").write_text("{}"),
    "no queue": lambda folder: (folder / "queue.jsonl").unlink(),
    "cut weights": lambda folder: os.truncate(folder / "weights-00000004.safetensors", 40),
    "another round": lambda folder: folder.rename(folder.with_name("00000007")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(run: Path, damage: str) -> None:
    assert newest(run) == (4, [])
    DAMAGES[damage](run / "checkpoints" / "00000004")
    round_, (said,) = newest(run)
    assert round_ == 2 and "using the one before it" in said


def test_what_a_person_puts_beside_checkpoints_is_none(run: Path) -> None:
    folder = run / "checkpoints"
    shutil.copytree(folder / "00000004", folder / "00000004.bak")
    (folder / "00000009").write_text("a file")
    (folder / ".making-a").write_text("a file")
    (folder / ".making-b").symlink_to("00000002")
    assert newest(run) == (4, [])
    Checkpoints(folder, CheckpointOptions(keep=1)).save(snapshot(6))
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["00000004.bak", "00000006", "00000009"]


@pytest.mark.parametrize("name", ["checkpoints", "weights", "policy"])
def test_a_file_where_the_run_needs_a_folder_is_refused_before_it_trains(
    run: Path, name: str
) -> None:
    shutil.rmtree(run / name)
    (run / name).write_text("text")
    with pytest.raises(UserError, match=f"{name} is no folder.*move it away"):
        Checkpoints(run / "checkpoints", CheckpointOptions())
        refuse_occupied(run)


def test_weights_that_are_none_are_named_before_any_is_judged(run: Path) -> None:
    weights = run / "weights"
    (weights / "best.safetensors").write_text("somebody's own")
    assert sorted(saved_weights(run)) == [0, 2, 4]

    def into_a_folder(path: Path) -> None:
        path.unlink()
        path.mkdir()

    def into_a_pipe(path: Path) -> None:
        path.rmdir()
        os.mkfifo(path)

    changes: tuple[Callable[[Path], object], ...] = (
        lambda path: os.truncate(path, 70),
        lambda path: path.write_bytes(b"\xff" * 64),
        into_a_folder,
        into_a_pipe,
    )
    for change in changes:
        change(weights / "000002.safetensors")
        with pytest.raises(UserError, match=r"000002\.safetensors.*delete it to evaluate the"):
            saved_weights(run)
        with pytest.raises(UserError, match=r"000002\.safetensors"):
            read_tensors(weights / "000002.safetensors")


def test_runs_are_listed_whatever_lies_between_them(sweep: Path) -> None:
    os.mkfifo(sweep / "pipe")
    (sweep / "loop").symlink_to(sweep)
    (sweep / "seed=3").mkdir()
    (sweep / "seed=3" / "manifest.json").mkdir()
    assert [run.name for run in list_runs(sweep)] == ["seed=1", "seed=2"]


def test_rounds_that_were_changed_after_the_run_are_a_finding(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    record = RunDirectory.create(folder, {"run_id": "r1", "seed": 1}, "seed: 1\n")
    path = folder / "metrics.jsonl"
    path.write_text('{"step": 0, "reward/mean": 1.0}\n{"step": 1, "reward/mean": 2.0}\n')
    record.finish("finished", records={path.name: asdict(extent_of(path))})
    (whole,) = read_folder(tmp_path).records
    assert whole.findings == ()
    for text, what in (
        (path.read_text().replace("2.0", "3.0"), "its 2 rows are not those that the run"),
        (path.read_text() + '{"step": 2}\n', "it has 3 rows, of 2 that the run wrote"),
        (path.read_text().partition("\n")[0] + "\n", "it has 1 rows, of 2 that the run wrote"),
    ):
        path.write_text(text)
        (changed,) = read_folder(tmp_path).records
        (finding,) = changed.findings
        assert finding.kind is Kind.damaged and what in finding.what
