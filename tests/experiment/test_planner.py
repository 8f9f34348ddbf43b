from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.cli.plan import PLAN
from rlhf_lab.experiment.planning import ideal_timeline, planner
from rlhf_lab.experiment.planning import settings as changes
from rlhf_lab.experiment.planning.planner import Prediction, predict
from rlhf_lab.experiment.planning.settings import Settings, changed
from rlhf_lab.experiment.planning.timing import Measurement, Round, measured
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from tests.support.variants import tuples

QUIET = Console(quiet=True)
SETTINGS = {
    "updates": 4,
    "groups_per_update": 4,
    "updates_per_round": 1,
    "passes": 1,
    "group_size": 2,
    "max_staleness": 0,
    "num_generators": 0,
    "chunk_groups": 4,
    "compares": True,
}

# Phases of a synchronous round and their seconds. Nothing is measured from 5.5 to 5.75.
ROUND = {
    "take": (0.0, 4.5),
    "generate": (0.0, 3.0),
    "score": (3.0, 4.0),
    "reference": (4.5, 5.5),
    "update": (5.75, 7.5),
    "sync": (7.5, 7.75),
    "track": (7.75, 8.0),
}


def row(phase: str, start: float, end: float, round_: int, **facts: Any) -> dict[str, Any]:
    chunk = round_ if phase in ("generate", "score") else None
    base = {"lane": "trainer", "phase": phase, "start": start, "end": end, "round": round_}
    return base | {"version": round_, "chunk": chunk} | facts


def write(folder: Path, rows: Iterable[dict[str, Any]], **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    manifest = {"state": "finished", "settings": SETTINGS | settings}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "timeline.jsonl").write_text(text, encoding="utf-8")
    return folder


def sync_rows(num_rounds: int = 4, warmup: float = 10.0) -> list[dict[str, Any]]:
    """Rounds of 8 s; `warmup` more in the first round's generation."""
    rows = [
        row(phase, 8.0 * round_ + start, 8.0 * round_ + end, round_)
        for round_ in range(num_rounds)
        for phase, (start, end) in ROUND.items()
    ]
    for part in rows:
        is_first = part["round"] == 0
        part["end"] += warmup
        part["start"] += 0 if is_first and part["phase"] in ("take", "generate") else warmup
    return rows


def sync_run(folder: Path, **settings: Any) -> Measurement:
    return measured(write(folder, sync_rows(), **settings))


def planned(measurement: Measurement, *arguments: str) -> Prediction:
    ((_, change),) = changes.grid(arguments)
    return predict(measurement, changed(measurement.settings, change))


def async_rows() -> list[dict[str, Any]]:
    """Two rounds of 4 s of generation, one round ahead; taking costs 0.25 s after it."""
    generator = {"lane": "generator-0", "version": 0}
    return [
        row("generate", 0, 3, 0, **generator),
        row("score", 3, 4, 0, **generator),
        row("generate", 4, 7, 1, **generator),
        row("score", 7, 8, 1, **generator),
        row("take", 0, 4.25, 0),
        row("reference", 4.25, 5.25, 0),
        row("update", 5.25, 7.25, 0),
        row("sync", 7.25, 7.75, 0),
        row("take", 7.75, 8, 0),
        row("track", 8, 8.25, 0),
        row("take", 8.25, 8.5, 1),
        row("reference", 8.5, 9.5, 1),
        row("update", 9.5, 11.5, 1),
        row("sync", 11.5, 12, 1),
        row("take", 12, 12.25, 1),
        row("track", 12.25, 12.5, 1),
    ]


def async_run(folder: Path) -> Measurement:
    facts = {"updates": 2, "max_staleness": 1, "num_generators": 1}
    return measured(write(folder, async_rows(), **facts))


def test_the_first_round_warms_up_and_is_left_out(tmp_path: Path) -> None:
    measurement = sync_run(tmp_path)
    assert (measurement.wall, measurement.trainer_wait, measurement.generator_wait) == (42, 0, 0)
    assert measurement.is_whole
    # 4 s for 8 rows; reference and what lies between for 8; update for 4 groups.
    for round_ in measurement.rounds:
        assert round_.chunks == (0.5,)
        assert (round_.rows * 8, round_.trained * 4, round_.other) == (1.25, 1.75, 1)


def test_two_rounds_are_both_kept(tmp_path: Path) -> None:
    first, second = measured(write(tmp_path, sync_rows(2), updates=2)).rounds
    assert (first.chunks, second.chunks) == ((14 / 8,), (0.5,))


def test_a_run_predicts_itself(tmp_path: Path) -> None:
    measurement = sync_run(tmp_path)
    assert predict(measurement, measurement.settings) == Prediction(4, 32, 0, 0, 0, 0)


def test_asynchrony_hides_generation_but_for_the_first_round(tmp_path: Path) -> None:
    # 4 s of generation, then 4 rounds of 4 s of training; rounds 1 to 3 are a round old.
    found = planned(sync_run(tmp_path), "mode=async")
    assert found == Prediction(4, 20, 0.2, 0.2, 0.75, 1)


def test_the_lag_of_a_lagged_run_is_the_same_without_waiting(tmp_path: Path) -> None:
    found = planned(sync_run(tmp_path), "mode=lagged", "mode.max_staleness=2")
    assert found == Prediction(4, 32, 0, 0, 1.25, 2)


@pytest.mark.parametrize(("compares", "wall"), [(True, 53), (False, 60)])
def test_more_samples_cost_training_only_where_all_are_trained_on(
    tmp_path: Path, compares: bool, wall: float
) -> None:
    # Generation 8, reference and between 2.5, other 1, updates 1.75 or 3.5: 13.25 or 15 a round.
    found = planned(sync_run(tmp_path, compares=compares), "run.group_size=4")
    assert found.wall == wall


def test_more_passes_repeat_the_updates_only(tmp_path: Path) -> None:
    # 2 rounds of 8 + 1.75 s.
    found = planned(sync_run(tmp_path), "run.passes=2")
    assert found == Prediction(2, 19.5, 0, 0, 0.5, 1)


def test_larger_rounds_scale_all_but_the_fixed_part(tmp_path: Path) -> None:
    # 2 rounds of twice 7 s, and 1 s of other.
    found = planned(sync_run(tmp_path), "run.updates_per_round=2")
    assert found == Prediction(2, 30, 0, 0, 0.5, 1)


def test_chunks_are_shared_by_the_generators(tmp_path: Path) -> None:
    # Chunks of 3 and 1 groups: 3 s beside 1 s, then 4 rounds of 4 s.
    arguments = ("mode=async", "mode.num_generators=2", "generator.chunk_groups=3")
    assert planned(sync_run(tmp_path), *arguments).wall == 19


def test_measured_variation_is_kept(tmp_path: Path) -> None:
    rows = sync_rows(warmup=0)
    for part in rows:
        if part["phase"] == "generate" and part["round"] == 2:
            part["end"] -= 2
    measurement = measured(write(tmp_path, rows))
    # Round 0 repeats round 3. The 2 s that are missing in round 2 went into taking.
    assert [round_.chunks for round_ in measurement.rounds] == [(0.5,), (0.5,), (0.25,), (0.5,)]
    assert [round_.other for round_ in measurement.rounds] == [1, 1, 3, 1]
    assert planned(measurement, "run.updates=8").wall == 64


def test_waiting_ends_when_the_generators_are_done(tmp_path: Path) -> None:
    measurement = async_run(tmp_path)
    assert (measurement.wall, measurement.trainer_wait, measurement.generator_wait) == (
        12.5,
        4,
        4.5,
    )
    # Round 0: 0.25 s of taking, 0.5 of syncing, 0.25 of handing over, 0.25 of tracking.
    assert [round_.other for round_ in measurement.rounds] == [1.25, 1.25]
    found = predict(measurement, measurement.settings)
    assert found == Prediction(2, 12.5, 4 / 12.5, 4.5 / 12.5, 0.5, 1)


def test_an_asynchronous_run_predicts_the_synchronous_one(tmp_path: Path) -> None:
    assert planned(async_run(tmp_path), "mode=sync") == Prediction(2, 16.5, 0, 0, 0, 0)


def test_a_round_that_was_cut_is_left_out(tmp_path: Path) -> None:
    rows = [part for part in sync_rows() if (part["round"], part["phase"]) != (3, "sync")]
    measurement = measured(write(tmp_path, rows))
    assert not measurement.is_whole
    assert (len(measurement.rounds), measurement.wall) == (3, 34)
    assert predict(measurement, measurement.settings).wall == 32


def test_updates_in_lag_count_from_the_round_that_wrote(tmp_path: Path) -> None:
    # 4 rounds of N*T = 4: lags 0 4 4 4 in rounds, and 0 to 3 within each.
    found = planned(sync_run(tmp_path), "run.updates=16", "run.passes=4", "mode=async")
    assert (found.rounds, found.lag_updates_mean, found.lag_updates_max) == (4, 4.5, 7)


def test_a_grid_has_a_line_per_combination(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "run", sync_rows())
    arguments = [str(folder), "run.passes=1,2", "mode=sync,async"]
    assert PLAN.run(arguments, Console(quiet=False, is_terminal=False)) == 0
    title, head, *lines, overlap, heads, cells, apart, here = capsys.readouterr().out.splitlines()
    assert title == f"plan from {folder}"
    assert [line.split("  ")[0] for line in lines] == [
        "measured",
        "as run, predicted",
        "run.passes=1 mode=sync",
        "run.passes=1 mode=async",
        "run.passes=2 mode=sync",
        "run.passes=2 mode=async",
    ]
    assert head.split("  ")[0] == "settings"
    assert lines[0].split() == "measured 4 42.0s 131% - -".split()
    assert lines[1].split()[3:] == "4 32.0s 100% - - 0.00 0".split()
    assert lines[3].split()[2:] == "4 20.0s 62% 20% 20% 0.75 1".split()
    assert overlap.startswith("overlap") and heads.split()[:2] == ["wall", "ideal"]
    assert cells.startswith("42.0s  32.0s (76%)")
    # 32 s of work in turns, 20 s side by side: so much may half of the cores cost.
    assert "mode=async" in apart and "20.0s, 1.60 times" in apart
    assert "less than 1.60 times" in here


def test_an_unfinished_run_says_how_far_it_came_and_gets_no_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, sync_rows(3))
    PLAN.run([str(tmp_path)], Console(quiet=False, is_terminal=False))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[2].split() == "measured 3 of 4 34.0s - -".split()


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("run.epochs=2", "run.epochs=2: pass KEY=VALUE with KEY one of run.updates"),
        ("mode", "mode: pass KEY=VALUE"),
        ("run.passes=two", "run.passes=two: pass a whole number"),
        ("run.passes=", "run.passes=: pass a whole number"),
        ("run.passes=0", "run.passes=0 is out of range: choose 1 to "),
        ("run.passes=3", "run.updates=4 is not divisible by .* = 3: choose 3 or 6"),
        ("run.group_size=1", "run.group_size=1: .* choose 2 or more"),
        ("mode.max_staleness=-1", "mode.max_staleness=-1 is out of range: choose 0 to 1024"),
        ("mode.max_staleness=4", "mode.max_staleness=4 with 4 rounds: choose 0 to 3"),
        ("mode.num_generators=0", "mode.num_generators=0: .* pass mode=sync or mode=lagged"),
        ("mode.num_generators=-1", "mode.num_generators=-1 is out of range: choose 1 to 1024"),
        ("generator.chunk_groups=0", "generator.chunk_groups=0 is out of range"),
        ("mode=free", "mode=free cannot be planned: choose sync, lagged, async"),
        ("mode=sync mode.max_staleness=1", "mode.max_staleness=1 with mode=sync"),
        ("mode=lagged mode.num_generators=2", "mode.num_generators=2 with mode=lagged"),
    ],
)
def test_what_cannot_be_planned_is_refused(tmp_path: Path, argument: str, says: str) -> None:
    folder = write(tmp_path, sync_rows())
    with pytest.raises(UserError, match=says):
        PLAN.run([str(folder), *argument.split()], QUIET)


def test_a_run_without_a_timeline_or_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs --gpu"):
        PLAN.run(["mode=async"], QUIET)
    with pytest.raises(UserError, match=r"has no manifest\.json"):
        PLAN.run([str(tmp_path)], QUIET)
    write(tmp_path, [])
    with pytest.raises(UserError, match=r"timeline\.jsonl is empty: train again"):
        measured(tmp_path)
    write(tmp_path, [{"lane": "trainer"}])
    with pytest.raises(UserError, match="line 1 key phase: it is missing"):
        measured(tmp_path)
    write(tmp_path, [part for part in sync_rows() if part["phase"] != "sync"])
    with pytest.raises(UserError, match="no whole round yet"):
        measured(tmp_path)
    (tmp_path / "manifest.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="has no settings to plan from"):
        measured(tmp_path)


def seconds_of_many(num: int) -> list[list[float]]:
    """Uneven seconds per row, chunk by chunk, as a machine has them."""
    return [[0.01 + 0.003 * ((7 * n + 3 * c) % 5) for c in range(2)] for n in range(num)]


@pytest.mark.parametrize(
    ("generators", "staleness", "slow"),
    tuples(
        product([0, 1, 3], [0, 1, 4], [0.02, 0.3, 3.0]),
        # Each pair of two of these is in one case.
        [
            (n, s, (0.02, 0.3, 3.0)[(i + j) % 3])
            for i, n in enumerate((0, 1, 3))
            for j, s in enumerate((0, 1, 4))
        ],
    ),
)
def test_many_rounds_by_their_rhythm_are_what_placing_each_comes_to(
    generators: int, staleness: int, slow: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = tuple(
        Round(tuple(chunks), 0.001, slow / 8 * (1 + n % 3), 0.05)
        for n, chunks in enumerate(seconds_of_many(6))
    )
    facts: dict[str, Any] = SETTINGS | {
        "groups_per_update": 12,
        "max_staleness": staleness,
        "updates": 4001,
    }
    own = Settings(**facts | {"num_generators": generators})
    measurement = Measurement(own, rounds, 1.0, 0.0, 0.0)
    placed = predict(measurement, own)
    monkeypatch.setattr(planner, "MOST_EXACT", 0)
    by_rhythm = predict(measurement, own)
    assert asdict(by_rhythm) == pytest.approx(asdict(placed), rel=1e-9, abs=1e-12)
    # Even where no rhythm is found in time.
    monkeypatch.setattr(ideal_timeline, "MOST_PLACED", 600)
    monkeypatch.setattr(ideal_timeline, "LONGEST_RHYTHM", 0)
    assert asdict(predict(measurement, own)) == pytest.approx(asdict(placed), rel=0.02, abs=0.01)


def test_a_plan_of_a_hundred_million_updates_ends_at_once(tmp_path: Path) -> None:
    measurement = async_run(tmp_path)
    for change in ("run.updates=100000000", "run.groups_per_update=1000000000 run.updates=1000"):
        found = planned(measurement, *change.split())
        short = planned(measurement, *change.split()[:-1], "run.updates=1000")
        assert found.rounds / short.rounds == pytest.approx(found.wall / short.wall, rel=0.01)


def test_lags_are_summed_without_counting_rounds() -> None:
    for num, staleness in [(1, 0), (1, 3), (3, 3), (4, 3), (9, 3), (9, 0)]:
        each = [min(round_, staleness) for round_ in range(num)]
        assert planner.lags(num, staleness) == (sum(each), max(each))
