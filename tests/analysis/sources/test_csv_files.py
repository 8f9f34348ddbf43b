"""CSV and TensorBoard's event files, what a path is read as, and the command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from rlhf_lab.cli.main import run_command
from rlhf_lab.runs.trackers.tensorboard import TensorBoardTracker
from rlhf_lab.sweeps.sweep_file import SweepRecord, write_record
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.csv_files import read_csv
from rlhf_lab_analysis.sources.filters import parse_filters
from rlhf_lab_analysis.sources.findings import Kind
from rlhf_lab_analysis.sources.record import Source
from rlhf_lab_analysis.sources.tensorboard_files import read_events
from rlhf_lab_analysis.tables.__main__ import main
from rlhf_lab_analysis.tables.exported import runs_to_export
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.open_rl_benchmark_export import write_benchmark
from rlhf_lab_analysis.tables.readers import kinds_of, read_source, read_sources
from rlhf_lab_analysis.tables.store import load
from tests.support.table_records import evals, record, rounds, tables, write_run

pytestmark = pytest.mark.usefixtures("costly")

# CSV.

TABLE = """\
run,seed,env_id,exp_name,x/updates,x/wall_minutes,x/device_hours,config.optim.lr,version,gold/win_rate,loss
a,1,E,grpo,1,0.5,0.1,1e-4,,,0.25
a,1,E,grpo,2,1.5,0.2,1e-4,,,0.125
a,1,E,grpo,,,,,2,0.5,
b,2,E,grpo,1,1,0.1,2e-4,,,NaN
"""


def test_a_csv_gives_points_versions_and_configs_in_the_units_of_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(TABLE)
    reading = read_csv(path)
    made = tables(*reading.records)
    assert made.points["run"].tolist() == ["mine.csv:a", "mine.csv:a", "mine.csv:b"]
    assert made.points["x/wall_seconds"].tolist() == [30, 90, 60], "minutes were given"
    assert made.points["x/device_hours"].tolist() == pytest.approx([0.1, 0.2, 0.1])
    assert made.points["x/updates"].tolist() == [1, 2, 1]
    assert made.points["loss"].tolist()[:2] == [0.25, 0.125]
    assert made.versions[["version", "gold/win_rate"]].values.tolist() == [[2, 0.5]]
    assert made.overview == "2 runs, 2 conditions, 2 seeds (1, 2)"
    assert [name.split()[-1] for name in made.runs["condition"]] == [
        "optim.lr=1e-4",
        "optim.lr=2e-4",
    ]
    told = {finding.kind: finding.what for finding in made.findings}
    assert told[Kind.not_finite] == "loss is not finite in 1 of 1 points, first in number 1"


def test_a_csv_that_is_not_as_it_should_be(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for text, said in (
        ("seed,loss\n1,2\n", r"t.csv: it has no column `run` \(it has \['seed', 'loss'\]\)"),
        ("", "has no column `run`"),
        ("run,loss,loss\na,1,2\n", "has the column loss twice"),
    ):
        path.write_text(text)
        assert read_csv(path).records == ()
        with pytest.raises(UserError, match=f"no run can be read: .*{said}"):
            gather([str(path)])
    path.write_text("run,seed,loss\na,1,1\na,1\na,2,3\nb,first,4\n")
    reading = read_csv(path)
    assert [one.what for one in reading.findings] == ["line 3 has 2 of 3 values and is left out"]
    told = [finding.what for one in reading.records for finding in one.findings]
    assert told == ["seed of run a is 1 and 2: the last one is taken",
                    "seed 'first' of run b is no whole number"]  # fmt: skip


def test_names_of_a_csv_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a & b.csv"
    path.write_text('run,"<i>x_{1},y%"\n"$r & ""s""",1\n', encoding="utf-8")
    made = tables(*read_csv(path).records)
    assert made.points["run"].tolist() == ['a & b.csv:$r & "s"']
    assert made.points["<i>x_{1},y%"].tolist() == [1]


# TensorBoard.


def test_event_files_have_what_was_written(tmp_path: Path) -> None:
    for name in ("one", "two"):
        tracker = TensorBoardTracker(tmp_path / name)
        for step in range(12):
            row = {"loss": step / 8, "a b/c": 0.1, "total/rounds": step + 1, "text": "no"}
            tracker.log(row, step)
        tracker.close()
    reading = read_events(tmp_path)
    assert [one.run for one in reading.records] == [str(tmp_path / "one"), str(tmp_path / "two")]
    made = tables(*reading.records)
    assert made.points["loss"].tolist() == [step / 8 for step in range(12)] * 2
    assert made.points["a b/c"].tolist() == [float(np.float32(0.1))] * 24, "kept in 32 bits"
    assert made.points["x/rounds"].tolist()[:12] == list(range(1, 13))
    wall = made.points["x/wall_seconds"].tolist()[:12]
    assert wall == sorted(wall) and 0 <= wall[0] <= wall[-1] < 60
    assert made.findings[0].kind is Kind.no_seed and made.overview == "2 runs, 1 condition, no seed"


def test_events_in_a_runs_folder_are_of_that_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "seed-1", record())
    tracker = TensorBoardTracker(folder / "tensorboard")
    for step, row in enumerate(record().rounds):
        tracker.log(dict(row), step)
    tracker.close()
    (mirror,) = read_events(tmp_path).records
    assert (mirror.run, mirror.facts.seed, mirror.facts.planned_rounds) == ("r1", 1, 4)
    made = tables(mirror)
    assert made.points["x/wall_seconds"].tolist() == [10, 20, 30, 40], "the ledger's"
    both = read_sources([str(tmp_path), f"tensorboard:{tmp_path}"])
    assert tables(*both.records).runs["source"].tolist() == ["folder"]


# What a path is.


def test_a_path_is_read_as_what_it_holds(tmp_path: Path) -> None:
    write_run(tmp_path / "runs/a", record())
    (tmp_path / "runs/a/wandb").mkdir()
    (tmp_path / "runs/a/wandb/run-r1.wandb").write_bytes(b"")
    assert kinds_of(tmp_path / "runs") == [Source.folder], "a run's own mirrors are not another run"
    write_benchmark(runs_to_export([record("b")]), tmp_path / "orb", "me", "p")
    assert kinds_of(tmp_path / "orb") == [Source.orb], "its CSVs are its own"
    (tmp_path / "t.csv").write_text("run,loss\na,1\n")
    assert kinds_of(tmp_path / "t.csv") == [Source.csv]
    # Runs come first, and what lies beside them is named.
    assert kinds_of(tmp_path) == [Source.folder, Source.orb]
    held = read_source(str(tmp_path))
    assert [one.run for one in held.records] == ["r1"]
    assert [(one.kind, one.place) for one in held.findings] == [(Kind.unread, str(tmp_path))]
    (tmp_path / "orb/events.out.tfevents.1").touch()
    with pytest.raises(UserError, match="can be read in several ways: pass one or more of orb:"):
        read_source(str(tmp_path / "orb"))
    named = [f"{kind}:{tmp_path}" for kind in ("folder", "orb")]
    assert [one.run for one in read_sources(named).records] == ["r1", "b"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds nothing to read"):
        read_source(str(tmp_path / "empty"))
    with pytest.raises(UserError, match="there is no such file or folder"):
        read_source("folder:nowhere")


# The command.


def test_the_command_shows_writes_and_exports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "runs" / f"seed-{seed}", record(f"r{seed}", seed))
    write_run(tmp_path / "runs/seed-3", record("r3", 3, rounds=rounds(2), evals=evals([0, 2])))
    out, orb = tmp_path / "t.parquet", tmp_path / "orb"
    given = [str(tmp_path / "runs"), "--metric", "gold/win_rate", "--metric", "reward/mean"]
    assert main([*given, "--out", str(out), "--export", str(orb), "--entity", "me"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("3 runs, 1 condition, 3 seeds (1 to 3)\n")
    assert "cut_short: " in said and "2 of 4 rounds were recorded" in said
    assert f"wrote {tmp_path}/t.findings.parquet" in said
    assert f"wrote 3 runs to {orb}/me/rlhf_lab" in said
    assert load(out).overview == "3 runs, 1 condition, 3 seeds (1 to 3)"
    again = gather([str(tmp_path / "runs")], metrics=["gold/win_rate", "reward/mean"])
    assert again.points.equals(load(out).points) and again.findings == load(out).findings
    one = gather([str(tmp_path / "runs")], parse_filters(["seed=1"]), ["gold/win_rate"])
    assert one.overview == "1 run, 1 condition, 1 seed (1)" and "reward/mean" not in one.points
    assert main([str(orb), "--where", "exp_name=grpo-sync", "--where", "seed=3"]) == 0
    assert capsys.readouterr().out.startswith("1 run, 1 condition, 1 seed (3)\n")


def test_the_command_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "seed-1", record())
    for given, said in (
        (["--where", "exp_name=ppo"], "tables: no run of 1 has exp_name=ppo. There are:"),
        (["--where", "ppo"], "tables: --where ppo: pass KEY=VALUE"),
        (["--metric", "win"], "tables: --metric win: no run has it; there are "),
        (["--out", "t.xlsx"], "tables: --out t.xlsx: choose a name"),
    ):
        assert main([str(tmp_path), *given]) == 2
        assert capsys.readouterr().err.startswith(said)
    assert main(["nowhere"]) == 2


# Real runs.


JOBS = [("sync", 1), ("sync", 2), ("lagged", 1)]


@pytest.fixture(scope="session")
def sweep(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, as the jobs of a sweep are named, with a mirror."""
    root = tmp_path_factory.mktemp("real")
    common = [
        "debug=tiny", "reward=task_rule", "tracker.tensorboard=true",
        "output.quiet=true", f"output.cache={cache}", "tracker.sweep=ladder",
    ]  # fmt: skip
    for mode, seed in JOBS:
        own = [f"mode={mode}", f"seed={seed}", f"tracker.condition='mode={mode}'",
               f"output.dir={root}/ladder/mode-{mode}/seed-{seed}"]  # fmt: skip
        assert run_command("train", [*common, *own]) == 0
    return root / "ladder"


def test_a_real_sweep_and_its_mirrors_have_the_same_numbers(sweep: Path) -> None:
    kinds = ("folder", "tensorboard")
    readings = {kind: read_source(f"{kind}:{sweep}") for kind in kinds}
    assert all(one.findings == () for one in readings.values())
    made = {kind: tables(*one.records) for kind, one in readings.items()}
    ours = made["folder"]
    assert ours.overview == "3 runs, 2 conditions, 2 seeds (1, 2)"
    assert sorted(ours.runs["exp_name"].unique()) == ["online_dpo-lagged", "online_dpo-sync"]
    assert ours.runs["max_staleness"].tolist() == [1, 0, 0]
    assert ours.runs["points"].tolist() == ours.runs["planned_rounds"].tolist() == [4] * 3
    assert set(f.kind for f in ours.findings) <= {Kind.missing_metric}, "rounds without any pair"
    assert len(ours.versions) == 6 and ours.versions["x/completions"].max() > 0
    board = made["tensorboard"].points
    scalars = [c for c in board if c in ours.points and c.startswith(("reward/", "kl/", "x/f"))]
    assert len(scalars) > 5
    np.testing.assert_allclose(
        board[scalars].to_numpy(float), ours.points[scalars].to_numpy(float), rtol=1e-6
    )


def test_a_real_sweep_and_its_mirrors_are_each_run_once(sweep: Path) -> None:
    every = read_sources([str(sweep), f"tensorboard:{sweep}"])
    made = tables(*every.records)
    assert made.runs["source"].tolist() == ["folder"] * 3
    assert sum(finding.kind is Kind.duplicate for finding in made.findings) == 3


def test_an_exported_real_sweep_has_the_same_numbers(sweep: Path, tmp_path: Path) -> None:
    read = read_source(str(sweep))
    write_benchmark(runs_to_export(read.records), tmp_path, "me", "p")
    ours, again = tables(*read.records), tables(*read_source(str(tmp_path)).records)
    for part in ("points", "versions"):
        columns = [c for c in getattr(ours, part) if c != "source"]
        assert getattr(again, part)[columns].equals(getattr(ours, part)[columns])


def test_a_real_job_that_is_gone_is_missed(sweep: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(sweep, copy)
    jobs = {f"mode-{mode}/seed-{seed}": copy / f"mode-{mode}/seed-{seed}" for mode, seed in JOBS}
    contents = {
        name: json.loads((folder / "manifest.json").read_text())["content"]
        for name, folder in jobs.items()
    }
    folders = {name: str(folder) for name, folder in jobs.items()}
    asked = SweepRecord(
        "train", "ladder", (), {"mode": ("sync", "lagged")}, "", "", contents, folders
    )
    write_record(copy, asked, may_extend=False)
    assert read_source(str(copy)).findings == ()
    shutil.rmtree(copy / "mode-sync/seed-2")
    (finding,) = read_source(str(copy)).findings
    assert (finding.kind, finding.place) == (Kind.absent, str(copy / "mode-sync/seed-2"))


def test_sessions_of_a_restarted_run_are_merged_as_tensorboard_merges_them(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    for first, last, base, purge in (
        (0, 20, 0.0, None),
        (15, 18, 100.0, 15),
        (17, 30, 200.0, None),
    ):
        writer = SummaryWriter(
            str(tmp_path / "run"), purge_step=purge, filename_suffix=f".{int(base)}"
        )
        for step in range(first, last):
            writer.add_scalar("reward", base + step, step)
        writer.close()
    (one,) = read_events(tmp_path).records
    theirs = EventAccumulator(str(tmp_path / "run"), {"scalars": 0})
    theirs.Reload()
    last_of_step = {event.step: event.value for event in theirs.Scalars("reward")}
    assert [row["reward"] for row in one.rounds] == [last_of_step[step] for step in range(30)]
    assert one.rounds[-1]["reward"] == 229 and one.rounds[14]["reward"] == 14
    (finding,) = one.findings
    # Steps 15 to 19 of the first session, and 17 of the second.
    assert finding.kind is Kind.duplicate and finding.what.startswith("6 values")
