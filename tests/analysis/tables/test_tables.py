"""The tables of runs, and what is said to be wrong with them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.folders import read_folder
from rlhf_lab_analysis.sources.record import Reading, Record, Source, flat, look_up
from rlhf_lab_analysis.sources.starts import kernels_of, precision_of
from rlhf_lab_analysis.tables.store import load, save
from rlhf_lab_analysis.tables.summary import printable
from rlhf_lab_analysis.tables.table import make_tables
from tests.support.table_records import (
    config,
    evals,
    kinds,
    record,
    rounds,
    tables,
    write_lines,
    write_run,
)


def test_a_point_has_its_place_its_cost_and_its_metrics() -> None:
    made = tables(record())
    assert kinds(made) == []
    assert made.overview == "1 run, 1 condition, 1 seed (1)"
    row = made.points.iloc[2].to_dict()
    place = {"env_id": "arithmetic-nano_s", "exp_name": "grpo-sync", "seed": 1, "algo": "grpo"}
    assert place.items() <= row.items()
    assert row["condition"] == "grpo-sync N=1 T=1 K=2 S=0", "sync is never stale"
    cost: dict[str, float] = {"x/rounds": 3, "x/updates": 3, "x/prompts": 24, "x/completions": 48}
    cost |= {"x/generated_tokens": 480, "x/trained_tokens": 450, "x/flops": 3000}
    cost |= {"x/wall_seconds": 30, "x/device_hours": 60 / 3600}
    assert cost.items() <= row.items()
    assert row["reward/mean"] == 3 / 8
    assert len(made.points) == 4 and made.points["source"].unique().tolist() == ["folder"]


def test_a_version_has_what_it_had_cost_when_it_was_ready() -> None:
    made = tables(record(evals=evals([0, 2, 4])))
    held = made.versions
    assert held["version"].tolist() == [0, 2, 4]
    assert held["x/wall_seconds"].tolist() == [0, 20, 40]
    assert held["x/completions"].tolist() == [0, 32, 64]
    assert held["gold/win_rate"].tolist() == [0.25, 0.45, 0.65]
    (run,) = made.runs.to_dict("records")
    assert run["final/gold/win_rate"] == 0.65 and run["last/reward/mean"] == 0.5
    assert run["x/flops"] == 4000 and json.loads(run["config"])["optim"]["lr"] == 1e-4


def test_a_version_without_its_round_has_a_place_but_no_cost_and_is_told() -> None:
    made = tables(record(rounds=rounds(3)))
    last = made.versions.iloc[-1]
    assert (last["x/rounds"], last["x/updates"]) == (4, 4)
    assert math.isnan(last["x/wall_seconds"])
    assert kinds(made) == ["cut_short", "ragged"]
    assert "3 of 4 rounds" in made.findings[0].what
    assert "versions 4 have no recorded round" in made.findings[1].what


def beside(**changes: Any) -> list[str]:
    """Kinds of findings about a run that differs in something from its fellows of seeds 1 and 2."""
    odd = record("r3", 3, **changes)
    made = tables(record(), record("r2", 2), odd)
    assert {finding.run for finding in made.findings} <= {"r3"}
    assert len(made.runs) == 3, "nothing that is told is left out"
    return kinds(made)


def test_every_way_to_differ_from_the_others_is_a_finding() -> None:
    assert beside() == []
    assert beside(code="0ther") == beside(code="") == ["other_code"]
    assert beside(config=config(3) | {"eval": {"snapshots": 3}}) == ["other_config"]
    assert beside(config=config(3) | {"optim": {"lr": 2e-4}}) == []
    assert beside(state="died") == ["cut_short"]
    assert beside(state="running") == ["cut_short"]
    assert beside(rounds=rounds(3), evals=evals([0, 3])) == ["cut_short", "ragged"]
    assert beside(evals=evals([0, 2, 4])[:1]) == ["ragged"]
    assert beside(evals=evals((0, 4), {"eval/options": "full"})) == ["other_evaluation"]
    assert beside(evals=[]) == ["missing_metric", "ragged"]
    lost = [{k: v for k, v in row.items() if k != "reward/mean"} for row in rounds()]
    assert beside(rounds=lost) == ["missing_metric"]
    assert beside(rounds=rounds(4, {"reward/mean": math.nan})) == ["not_finite"]
    assert beside(rounds=rounds(4, {"reward/mean": "broken"})) == ["not_a_number"]
    assert beside(evals=evals((0, 4), {"gold/win_rate": 61.0})) == ["mixed_units"]
    # The proxy's win-rate less the gold one: a difference of shares, and none itself.
    gap = {"gap/win_rate": -0.1}
    assert kinds(tables(record(), record("r2", 2, evals=evals((0, 4), gap)))) == ["missing_metric"]


def test_fewer_points_than_the_others_is_told_with_both_counts() -> None:
    short = record("r2", 2, rounds=rounds(3), evals=evals([0]), planned_rounds=None)
    told = [one.what for one in tables(record(), short).findings if one.kind is Kind.ragged]
    assert told[0] == "3 points, but 4 in the longest run of its condition"
    assert told[1] == "1 versions, but 2 in the longest run of its condition"


def test_a_setting_that_differs_makes_conditions_which_it_names() -> None:
    odd = record("r3", 3, config=config(3) | {"optim": {"lr": 2e-4}})
    made = tables(record(), record("r2", 2), odd)
    assert made.overview == "3 runs, 2 conditions, 3 seeds (1 to 3)"
    names = dict(zip(made.runs["run"], made.runs["condition"], strict=True))
    assert names["r1"] == names["r2"] and names["r1"].endswith(" optim.lr=0.0001")
    assert names["r3"].endswith(" optim.lr=0.0002") and set(made.runs["optim.lr"]) == {1e-4, 2e-4}


def test_a_setting_that_follows_from_the_seed_makes_no_conditions() -> None:
    own = [config(seed) | {"fork": {"parent": f"runs/parent-{seed}"}} for seed in (1, 2)]
    made = tables(*(record(f"r{n}", n + 1, config=one) for n, one in enumerate(own)))
    assert made.runs["condition"].nunique() == 1


def test_a_run_without_a_seed_is_kept_and_told() -> None:
    made = tables(record(), record("r2", None))
    assert kinds(made) == ["no_seed"]
    assert made.overview == "2 runs, 1 condition, 1 seed (1), 1 without a seed"
    assert made.points["seed"].isna().sum() == 4


def test_the_same_seed_twice_is_kept_told_and_numbered() -> None:
    made = tables(record(), record("r2"), record("r3", 2))
    assert kinds(made) == ["duplicate"]
    assert made.runs["repeat"].tolist() == [0, 1, 0]
    assert "first in runs/r1" in made.findings[0].what


def test_the_same_settings_under_other_names_are_told() -> None:
    first, again = record(content="abc"), record("r2", config=config(mode="lagged"), content="abc")
    assert kinds(tables(first, again)) == ["duplicate"]


def test_a_run_met_in_two_sources_is_there_once_from_the_one_that_knows_most() -> None:
    mirror = record(source=Source.wandb, place="somewhere", rounds=rounds(2))
    made = tables(mirror, record())
    assert made.runs["source"].tolist() == ["folder"] and len(made.points) == 4
    (finding,) = made.findings
    assert finding.kind is Kind.duplicate and finding.place == "somewhere"
    assert "from wandb (2 points) is left out: runs/r1 has it" in finding.what


def test_another_run_of_the_same_id_is_another_run() -> None:
    made = tables(record(), record(seed=2, place="elsewhere"))
    assert made.runs["run"].tolist() == ["r1", "r1 (elsewhere)"]
    assert kinds(made) == ["duplicate"] and len(made.points) == 8
    assert "another run than runs/r1 with the id r1" in made.findings[0].what


def test_seconds_of_another_machine_are_told() -> None:
    fast = record("r3", 3, machine="fast, 8 cores")
    made = tables(*(record(f"r{n}", n, machine="slow, 2 cores") for n in (1, 2)), fast)
    assert [finding.line for finding in made.findings] == [
        "other_machine: runs/r3: machine fast, 8 cores, but slow, 2 cores in 2 of 3 runs"
    ]


def test_runs_of_other_cpu_kernels_are_no_pairs_at_equal_seeds() -> None:
    wide = record("r3", 3, kernels="AVX512 (2024.2)")
    unknown = record("r4", 4)
    made = tables(*(record(f"r{n}", n, kernels="AVX2 (2024.2)") for n in (1, 2)), wide, unknown)
    assert [finding.line for finding in made.findings] == [
        "other_kernels: runs/r3: CPU kernels AVX512 (2024.2), but AVX2 (2024.2) in 2 of 3 runs: "
        "equal seeds are no pairs there"
    ]
    assert made.runs["kernels"].tolist()[2] == "AVX512 (2024.2)"


def test_the_kernels_of_a_run_are_those_of_all_its_starts() -> None:
    host = {"kernels": {"capability": "AVX2", "libraries": ["1"], "flags": [], "environment": {}}}
    assert kernels_of({"host": host}) == "AVX2 (1)"
    for before, known in (("AVX512 (1)", "AVX512 (1) then AVX2 (1)"), ("AVX2 (1)", "AVX2 (1)")):
        again = [{"after": "died", "at": "now", "kernels": before}, {"after": "died", "at": "now"}]
        assert kernels_of({"host": host, "resumed": again}) == known
    assert kernels_of({}) == ""


CPU, GPU = ("engine float32 on cpu", "engine bfloat16 on cuda")


def test_a_correction_that_leaves_most_tokens_out_is_a_finding() -> None:
    few = rounds(4, {"correction/zeroed": 0.5})
    many = [*few[:3], {**few[3], "correction/zeroed": 0.75}]
    assert kinds(tables(record("r1", 1, rounds=few), record("r2", 2, rounds=few))) == []
    made = tables(record("r1", 1, rounds=few), record("r2", 2, rounds=many))
    assert [finding.line for finding in made.findings] == [
        "mostly_zeroed: runs/r2: the correction gave weight 0 to more than half of the tokens in 1 "
        "of 4 recorded rounds, at most to 75%"
    ]


def test_a_reward_that_ties_all_groups_of_all_rounds_is_a_finding() -> None:
    tied, once = {"reward/groups_tied": 1.0}, {"reward/groups_tied": 0.75}
    pairs = config(4) | {"run": {"group_size": 2}}
    some = [*rounds(3, tied), *rounds(4, once)[3:]]
    untied = [
        record("r1", 1, rounds=some, config=pairs),
        record("r2", 2, rounds=rounds(2, tied), config=pairs),
        record("r3", 3, rounds=rounds(4, tied), config=pairs | {"run": {"group_size": 1}}),
    ]
    tie = Kind.all_tied
    assert all(tie not in kinds(tables(one)) for one in untied)
    assert kinds(tables(record("r4", 4, rounds=rounds(4, tied), config=pairs))).count(tie) == 1


def test_runs_of_one_condition_on_a_gpu_and_on_a_cpu_are_told() -> None:
    """Their configs are equal where auto chose; an engine.dtype that was asked for is none."""
    gpu = [record(f"r{n}", n, precision=GPU) for n in (1, 2)]
    slow = record("r3", 3, precision=CPU)
    named = config(4, mode="lagged") | {"engine": {"dtype": "float32"}}
    asked = record("r4", 4, precision=CPU, config=named)
    made = tables(*gpu, slow, asked, record("r5", 5))
    assert [finding.line for finding in made.findings if finding.kind == "other_precision"] == [
        f"other_precision: runs/r3: computed with {CPU}, but {GPU} in 2 of 3 runs: "
        "auto stood for another device"
    ]
    known = dict(zip(made.runs["run"], made.runs["precision"], strict=True))
    assert known == {"r1": GPU, "r2": GPU, "r3": CPU, "r4": CPU, "r5": ""}
    midway = record("r3", 3, precision=f"{GPU} then {CPU}")
    assert kinds(tables(*gpu, midway)) == ["other_precision"]


def test_the_precision_of_a_run_is_that_of_all_its_starts() -> None:
    engine = {"device": "cpu", "dtype": "float32", "micro_tokens": 0, "tf32": False}
    now = {"engine": engine, "generator": {"device": "cuda", "dtype": "bfloat16"}}
    text = "engine float32 on cpu, generator bfloat16 on cuda"
    assert precision_of({"precision": now}) == text
    again = [{"after": "died", "at": "now", "precision": GPU}, {"after": "died", "at": "now"}]
    assert precision_of({"precision": now, "resumed": again}) == f"{GPU} then {text}"
    tf32 = {"engine": engine | {"tf32": True}}
    assert precision_of({"precision": tf32}) == f"{CPU} with tf32"
    assert precision_of({}) == ""


def test_a_part_of_a_selection_says_what_it_is() -> None:
    made = tables(record(), record("r2", 2, code="0ther"), record("r3", 3), record("r4", 4))
    some = made.only(seed=[1, 2], algo="grpo")
    assert some.overview == "2 runs, 1 condition, 2 seeds (1, 2)"
    assert (
        sorted(some.points["run"].unique())
        == sorted(some.versions["run"].unique())
        == [
            "r1",
            "r2",
        ]
    )
    assert kinds(some) == ["other_code"] and kinds(made.only(run="r3")) == []
    with pytest.raises(UserError, match=r"seed=9: no run of 4 runs, .* seed is one of 1, 2, 3, 4"):
        made.only(seed=9)
    with pytest.raises(UserError, match="sede=1: runs have source, run, sweep"):
        made.only(sede=1)


def test_what_would_move_a_terminals_cursor_is_written_out() -> None:
    assert printable("a\nb\x1b[2J é<&>\\") == "a\\nb\\x1b[2J é<&>\\"


def test_clocks_of_trackers_and_of_the_ledger_are_not_mixed_in_silence() -> None:
    foreign = [{"_runtime": 7.0 * n, "_step": n, "reward/mean": 0.5} for n in range(1, 5)]
    made = tables(record(), record("r2", 2), record("r3", 3, rounds=foreign, step="_step"))
    assert "x/wall_seconds is of _runtime, but seconds/wall in 2 of 3 runs" in [
        finding.what for finding in made.findings if finding.kind is Kind.mixed_units
    ]
    row = made.points[made.points["run"] == "r3"].iloc[1]
    assert (row["x/wall_seconds"], row["x/step"]) == (14.0, 2.0)


def test_values_that_are_no_numbers_are_empty_and_told() -> None:
    rows = rounds(4, {"reward/mean": 0.5})
    rows[1] = {**rows[1], "reward/mean": "n/a"}
    made = tables(record(rounds=rows))
    assert made.points["reward/mean"].isna().tolist() == [False, True, False, False]
    assert "reward/mean is 'n/a' where it is a number elsewhere" in made.findings[0].what


def test_not_finite_values_are_told_with_their_place() -> None:
    rows = rounds()
    rows[2] = {**rows[2], "reward/mean": math.inf}
    (finding,) = tables(record(rounds=rows)).findings
    assert finding.what == "reward/mean is not finite in 1 of 4 points, first in number 3"


def test_names_stay_as_they_are_and_do_not_take_the_place_of_columns() -> None:
    odd = {"<b>&amp;_%$#{}\\": 1.0, "seed": 99.0, "x/rounds": 5.0, "a,b\n": 2.0}
    made = tables(record(run="<script>&'\"", rounds=rounds(4, odd)))
    row = made.points.iloc[0]
    assert row["run"] == "<script>&'\"" and row["seed"] == 1 and row["x/rounds"] == 1
    assert row["<b>&amp;_%$#{}\\"] == 1 and row["metric/seed"] == 99 and row["a,b\n"] == 2
    assert row["metric/x/rounds"] == 5


def test_only_the_metrics_asked_for_and_who_lacks_them() -> None:
    lacking = record("r2", 2, rounds=[{**row, "other": 1} for row in rounds()])
    made = tables(record(), lacking, metrics=["other", "gold/win_rate"])
    assert [name for name in made.points if name not in tables(record()).points] == ["other"]
    assert "reward/mean" not in made.points and "gold/win_rate" in made.versions
    assert [(f.kind, f.run, f.what) for f in made.findings] == [
        (Kind.missing_metric, "r1", "other was never recorded")
    ]
    with pytest.raises(UserError, match=r"--metric win: no run has it; there are .*gold/win_rate"):
        tables(record(), metrics=["win"])


def test_no_runs_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="no runs in these sources"):
        make_tables(Reading(()))


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_tables_are_written_with_their_findings(tmp_path: Path, suffix: str) -> None:
    made = tables(record(), record("r<2>,\n", None, rounds=rounds(3)))
    paths = save(made, tmp_path / "new" / f"t.{suffix}")
    assert [path.name for path in paths] == [
        f"t{part}.{suffix}" for part in ("", ".versions", ".runs", ".findings")
    ]
    if suffix == "csv":
        again = pd.read_csv(paths[0])
        assert again["x/wall_seconds"].tolist() == made.points["x/wall_seconds"].tolist()
        return
    again = load(paths[0])
    for part in ("points", "versions", "runs"):
        pd.testing.assert_frame_equal(getattr(again, part), getattr(made, part))
    assert again.findings == made.findings and again.overview == made.overview
    paths[2].unlink()
    with pytest.raises(UserError, match=r"t\.runs\.parquet: it is missing"):
        load(paths[0])


def test_a_file_of_another_kind_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--out .*t.xlsx: choose a name"):
        save(tables(record()), tmp_path / "t.xlsx")


# Folders.


def test_a_folder_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = record()
    write_run(tmp_path / "sweep" / "seed-1", made, started="2026-01-01T00:00:00+00:00")
    write_lines(tmp_path / "sweep/seed-1/evals-test.jsonl", [{"version": 4, "gold/win_rate": 0.75}])
    (read,) = read_folder(tmp_path).records
    assert read.rounds == made.rounds
    assert read.evals == [*made.evals, {"label": "test", "version": 4, "gold/win_rate": 0.75}]
    assert (read.run, read.facts.seed, read.facts.planned_rounds) == ("r1", 1, 4)
    table = tables(read)
    assert table.versions["label"].tolist() == ["", "", "test"]
    assert table.runs["final/gold/win_rate"].tolist() == [0.65], "of the run's own evaluation"
    assert kinds(table) == []


def told_of(folder: Path) -> list[tuple[str, str]]:
    reading = read_folder(folder)
    found = [*reading.findings, *(one for run in reading.records for one in run.findings)]
    return [(str(one.kind), one.what) for one in found]


def test_damaged_files_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    cut = write_run(tmp_path / "cut", record())
    with (cut / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "tot')
    broken = write_run(tmp_path / "broken", record("r2"))
    (broken / "metrics.jsonl").write_text('{"step": 0}\nrubbish\n{"step": 1}\n')
    bare = write_run(tmp_path / "bare", record("r3"), task="arithmetic", algo="ppo", mode="sync")
    (bare / "config.yaml").unlink()
    ruin = write_run(tmp_path / "ruin", record("r4"))
    (ruin / "manifest.json").write_text("{")
    reading = read_folder(tmp_path)
    assert {run.run: len(run.rounds) for run in reading.records} == {"r1": 4, "r2": 0, "r3": 4}
    told = dict.fromkeys(what for _, what in told_of(tmp_path))
    assert [kind for kind, _ in told_of(tmp_path)] == ["damaged"] * len(told_of(tmp_path))
    for part in ("the last line of metrics.jsonl was cut", "line 2: it is not JSON",
                 "config.yaml: it is missing", "manifest.json is damaged"):  # fmt: skip
        assert any(part in what for what in told), part
    (bare_run,) = (run for run in reading.records if run.run == "r3")
    assert look_up(bare_run.config, "algo.name") == "ppo", "the manifest says it too"


def test_a_search_has_tuning_and_test_runs_and_its_pauses_are_meant(tmp_path: Path) -> None:
    def of(role: str) -> dict[str, Any]:
        return config() | {"tracker": {"sweep": "search", "condition": role}}

    paused = record("r1", 101, config=of("trial=000"), evals=[], rounds=rounds(2), state="paused")
    folder = write_run(tmp_path / "trial-000/seed-101", paused)
    write_lines(folder / "validation.jsonl", [{"version": 2, "proxy/mean": 0.5}])
    write_run(tmp_path / "test-default/seed-1", record("r2", config=of("test=default")))
    write_run(tmp_path / "other/seed-1", record("r3", config=of("optim.trial=1")))
    made = make_tables(read_folder(tmp_path))
    roles = dict(zip(made.runs["run"], made.runs["role"], strict=True))
    assert roles == {"r1": "tuning", "r2": "test", "r3": ""}
    (told,) = (one for one in made.findings if one.run == "r1")
    assert told.kind is Kind.tuning and "seed 101 tuned a search (2 of 4 rounds)" in told.what
    row = made.versions[made.versions["label"] == "validation"].iloc[0]
    assert (row["run"], row["version"], row["proxy/mean"]) == ("r1", 2, 0.5)
    assert row["x/wall_seconds"] == 20


def test_a_sweep_tells_which_jobs_it_lacks(tmp_path: Path) -> None:
    write_run(tmp_path / "a/seed-1", record(content="one"))
    write_run(tmp_path / "a/seed-2", record("r2", 2, content="two"))
    jobs = {"a/seed-1": "one", "a/seed-2": "other", "a/seed-3": "three"}
    # Where it was when it ran: it was moved since.
    folders = {name: f"/elsewhere/{name}" for name in jobs}
    (tmp_path / "sweep.json").write_text(json.dumps({"jobs": jobs, "folders": folders, "base": ""}))
    assert told_of(tmp_path) == [
        ("other_config", "content two, but its sweep asked for other"),
        ("absent", f"job a/seed-3 of {tmp_path} has no run"),
    ]
    (tmp_path / "sweep.json").write_text("{}")
    ((kind, what),) = told_of(tmp_path)
    assert kind == "damaged" and "sweep.json, key base: it is missing" in what


# Rows and configs.


def test_rows_become_flat() -> None:
    row = {"a": True, "b": {"0": 1, "c": {"d": 2.5}}, "e": [1, 2], "f": None, "g": "NaN",
           "h": 2**60 + 1, "i": {"_type": "image-file", "path": "p"}, "j": "text"}  # fmt: skip
    found = flat(row)
    assert math.isnan(float(found.pop("g")))
    assert found == {
        "a": 1,
        "b.0": 1,
        "b.c.d": 2.5,
        "e[0]": 1,
        "e[1]": 2,
        "h": 2.0**60,
        "j": "text",
    }


def test_configs_are_looked_up_as_trackers_write_them() -> None:
    nested = {"a": {"b": 1}, "c.d": 2, "e.value": 3}
    assert look_up(nested, "a.b") == look_up(nested, "a.value.b") == 1
    assert (look_up(nested, "c.d"), look_up(nested, "e.value")) == (2, 3)
    assert look_up(nested, "a.x") is None and look_up(nested, "a.b.c") is None
    assert look_up({"a": 4}, "a.value") == 4


def test_a_finding_is_one_line() -> None:
    assert Finding(Kind.ragged, "r", "runs/r", "short").line == "ragged: runs/r: short"


def test_an_evaluation_of_its_own_is_not_cut_short() -> None:
    judged: Record = record("r1-abc", job_type="evaluate", rounds=[], planned_rounds=4)
    made = tables(record(), judged)
    assert made.runs["exp_name"].tolist() == ["grpo-sync", "grpo-sync-evaluate"]
    assert kinds(made) == []
