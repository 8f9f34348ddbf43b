"""Open RL Benchmark, in both directions: its database, and its own plots of ours; filters."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import shlex
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.benchmark.kept import TABLES
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.sources.conditions import place_of
from rlhf_lab_analysis.sources.filters import is_chosen, parse_filters
from rlhf_lab_analysis.sources.open_rl_benchmark import DATABASE, TABLE, read_benchmark
from rlhf_lab_analysis.sources.record import EXACT, Record, Source
from rlhf_lab_analysis.tables.differing import JUDGED
from rlhf_lab_analysis.tables.exported import runs_to_export
from rlhf_lab_analysis.tables.group_checks import compared_settings
from rlhf_lab_analysis.tables.open_rl_benchmark_export import link_command, write_benchmark
from rlhf_lab_analysis.tables.saved import read_saved
from rlhf_lab_analysis.tables.table import Tables
from tests.support import prepared
from tests.support.table_records import config, evals, kinds, record, rounds, tables

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.usefixtures("costly")

# Filters.


def chosen(records: Sequence[Record], *texts: str) -> list[str]:
    filters = parse_filters(texts)
    return [one.run for one in records if is_chosen(one, filters)]


def test_every_part_of_a_filter_filters() -> None:
    common = {"source": Source.orb, "project": "me/p"}
    every = [
        record("a", 1, tags=("t", "u"), **common),
        record("b", 2, tags=("t",), **common),
        record("c", 1, tags=("u", "v"), **common),
        record("d", 1, config=config(1, "lagged"), tags=("u",), **common),
    ]
    assert chosen(every) == ["a", "b", "c", "d"]
    assert chosen(every, "exp_name=grpo-sync") == ["a", "b", "c"]
    assert chosen(every, "tag=t", "tag=v") == ["a", "b", "c"]
    assert chosen(every, "exp_name=grpo-sync", "seed=1") == ["a", "c"]
    assert chosen(every, "seed=1", "seed=2", "tag=t") == ["a", "b"]
    assert chosen(every, "mode.name=lagged") == ["d"]
    assert chosen(every, "optim.lr=0.0001", "seed=2") == ["b"], "written in another way"
    assert chosen(every, "run.passes.value=1", "seed=2") == ["b"]
    assert chosen(every, "optim.lr=1") == chosen(every, "no.such=1") == []
    assert chosen(every, "env_id=arithmetic-nano_s") == ["a", "b", "c", "d"]
    assert chosen(every, "env_id=tldr-nano_s") == []


def test_no_match_tells_what_there_is() -> None:
    filters = parse_filters(["exp_name=ppo", "tag=x"])
    with pytest.raises(UserError) as refused:
        tables(record(tags=("mine",)), record("b", 2), filters=filters)
    text = str(refused.value)
    assert text.startswith("no run of 2 has exp_name=ppo, tag=x. There are:")
    for line in ("projects: runs", "env_id: arithmetic-nano_s", "exp_name: grpo-sync",
                 "seed: 1, 2", "tags: mine"):  # fmt: skip
        assert f"\n  {line}\n" in text
    assert re.search(r"metrics: .*gold/win_rate.*reward/mean", text)


# The database.


def two_conditions() -> list[Record]:
    odd = config(2, "lagged") | {"note": 'a,b\n"c" é <&>'}
    return [
        record("r1", 1, tags=("t", "u"), content="one", commit="0123abcd"),
        record(
            "r2", 2, tags=("t",), evals=evals((0, 4), {"sample/length": 4.25, "text": "a,b\n<é>"})
        ),
        record("r3", 1, config=config(1, "lagged"), rounds=rounds(4, {"x y/z": 0.1 + 0.2})),
        record("r4", 2, config=odd, rounds=rounds(4, {"x y/z": float("nan")}), name="A & B"),
    ]


WHERE = "?we=me&wpn=p&ceik=env_id&cen=exp_name"


def same_numbers(made: Tables, again: Tables) -> None:
    """Tables agree in all but their source."""
    for part in ("points", "versions"):
        ours, theirs = getattr(made, part), getattr(again, part)
        columns = [name for name in ours if name != "source"]
        assert set(columns) <= set(theirs)
        pd.testing.assert_frame_equal(ours[columns], theirs[columns], check_exact=True)


def test_what_is_exported_is_read_back_with_the_same_numbers(tmp_path: Path) -> None:
    written = two_conditions()
    folders = write_benchmark(runs_to_export(written), tmp_path, "me", "p")
    assert folders[0] == tmp_path / "me" / "p" / "r1"
    reading = read_benchmark(tmp_path)
    assert reading.findings == ()
    made, again = tables(*written), tables(*reading.records)
    same_numbers(made, again)
    assert again.runs["source"].unique().tolist() == ["orb"]
    assert kinds(again) == kinds(made) == ["not_finite", "missing_metric", "other_config"]
    by_run = {one.run: one for one in reading.records}
    assert by_run["r1"].facts.tags == ("t", "u") and by_run["r2"].facts.tags == ("t",)
    assert (by_run["r1"].facts.content, by_run["r1"].facts.code) == ("one", "c0de" * 4)
    assert by_run["r4"].config["note"] == 'a,b\n"c" é <&>'
    # Again, and out and in a second time: nothing is there twice.
    write_benchmark(runs_to_export(written[:2]), tmp_path, "me", "p")
    write_benchmark(runs_to_export(reading.records), tmp_path, "me", "q")
    projects: dict[str, list[Record]] = {}
    for one in read_benchmark(tmp_path).records:
        projects.setdefault(one.facts.project, []).append(replace(one, place=""))
    assert {name: len(held) for name, held in projects.items()} == {"me/p": 4, "me/q": 4}
    same_numbers(made, tables(*projects["me/q"]))


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    # Spaces around a name are no part of it in a CSV.
    lambda name: (
        name[0] != "_"
        and name == name.strip() != ""
        and name not in ("label", "version", "global_step")
    )
)
NUMBERS = st.floats() | st.integers(-EXACT, EXACT)


@given(st.lists(st.dictionaries(NAMES, NUMBERS, max_size=4), min_size=1, max_size=4))
def test_any_name_and_number_comes_back(rows: list[dict[str, float]]) -> None:
    whole = record(rounds=[{**row, **own} for row, own in zip(rows, rounds(), strict=False)])
    with tempfile.TemporaryDirectory() as folder:
        write_benchmark(runs_to_export([whole]), Path(folder), "me", "p")
        (again,) = read_benchmark(Path(folder)).records
    for row, theirs in zip(whole.rounds, again.rounds, strict=True):
        for name, value in row.items():
            assert repr(float(theirs[name])) == repr(float(value)), name


def test_names_that_make_no_folder_are_refused_or_made_safe(tmp_path: Path) -> None:
    for entity in ("", "a/b", "..", ".hidden"):
        with pytest.raises(UserError, match=f"entity='{entity}' names no folder"):
            write_benchmark(runs_to_export([record()]), tmp_path, entity, "p")
    (folder,) = write_benchmark(runs_to_export([record("../../a b/ü<>")]), tmp_path, "me", "p")
    assert folder.parent == tmp_path / "me" / "p" and folder.is_dir()
    assert read_benchmark(tmp_path).records[0].run == folder.name


def test_damaged_databases_and_curves_are_findings(tmp_path: Path) -> None:
    write_benchmark(runs_to_export(two_conditions()), tmp_path, "me", "p")
    (tmp_path / "me/p/r2" / TABLE).unlink()
    (tmp_path / "me/q").mkdir()
    (tmp_path / "me/q" / DATABASE).write_text("no database, but long enough to be looked at" * 9)
    reading = read_benchmark(tmp_path)
    assert [one.run for one in reading.records] == ["r1", "r3", "r4"]
    (curve, base) = reading.findings
    assert (
        curve.run == "r2"
        and curve.place.endswith("r2/run_df.csv")
        and curve.what == "it is missing"
    )
    assert base.place.endswith("offline.sqlite") and "it is no database" in base.what
    with closing(sqlite3.connect(tmp_path / "me/p" / DATABASE)) as database:
        kept = database.execute("SELECT count(*) FROM offlinerun").fetchone()
    assert kept == (4,), "reading changes nothing"


def test_the_command_that_links_an_export_is_one_line(tmp_path: Path) -> None:
    told = link_command(tmp_path / "a b", "me")
    assert "\n" not in told and f"'{tmp_path}/a b/me'" in told


# Its own command.


def copy_of_package(folder: Path) -> Path:
    """openrlbenchmark in a folder of its own: it keeps its data inside itself."""
    found = importlib.util.find_spec("openrlbenchmark")
    assert found is not None and found.submodule_search_locations
    source = Path(next(iter(found.submodule_search_locations)))
    shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("dataset"))
    return folder / source.name


def rlops(site: Path, module: str, *arguments: str) -> str:
    """What a command of Open RL Benchmark says. Its dependencies warn of much."""
    names = ("WANDB_DIR", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR")
    own = {name: str(site / "own") for name in names}
    script = f"import runpy; runpy.run_module('openrlbenchmark.{module}', None, '__main__', True)"
    done = prepared.run(
        script, *arguments, modules=prepared.OPEN_RL_BENCHMARK, folder=site, surroundings=own,
        path=(site,),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def row_of(path: Path) -> dict[str, str]:
    """The only row of a CSV by column, the environment's name aside."""
    with path.open() as file:
        (row,) = csv.DictReader(file)
    row.pop("")
    return row


def of_other_sweeps(first: Record) -> list[Record]:
    """A run of the same name, condition and seed with another setting, and the same run again."""
    changed = {**first.config, "optim": {"lr": 1e-3}}
    low = [{**row, "gold/win_rate": 0.01} for row in first.evals]
    other = replace(first, run="r5", place="runs/r5", config=changed, evals=low)
    again = replace(first, run="r6", place="runs/r6", evals=first.evals[1:])
    return [other, again]


def test_what_is_exported_is_each_run_once_under_names_that_tell_settings_apart() -> None:
    first, second, *_ = two_conditions()
    other, again = of_other_sweeps(first)
    renamed = replace(again, config={**first.config, "exp_name": "another sweep's name for it"})
    made = {
        one.record.run: one.condition for one in runs_to_export([renamed, first, second, other])
    }
    assert list(made) == ["r1", "r2", "r5"], "of the same run that with more evaluations stays"
    assert made["r1"] == made["r2"] != made["r5"]
    assert made["r5"] == "grpo-sync N=1 T=1 K=2 S=0 optim.lr=0.001"
    bare = replace(first, facts=replace(first.facts, seed=None), config={"seed": None})
    seedless = [replace(bare, run=run) for run in "ab"]
    assert len(runs_to_export(seedless)) == 2
    alone = runs_to_export([first, second])
    assert {one.condition for one in alone} == {"grpo-sync N=1 T=1 K=2 S=0"}


@pytest.mark.slow
def test_rlops_plots_what_is_exported_with_our_numbers(tmp_path: Path) -> None:
    written = two_conditions()
    package = copy_of_package(tmp_path)
    held = runs_to_export([*written, *of_other_sweeps(written[0])])
    write_benchmark(held, package / "dataset", "me", "p")
    made, out = tables(*written), tmp_path / "out" / "cmp"
    names = {one.record.run: one.condition for one in held}
    # Of equal name and seed are runs of other settings: the key in which they differ is told.
    assert names["r1"].endswith("N=1 T=1 K=2 S=0 optim.lr=0.0001") and "r6" not in names
    filters = [f"{names[run]}?cl={legend}" for legend, run in (("Sync", "r1"), ("Lagged", "r3"))]
    asked = ["--filters", f"{WHERE.replace('exp_name', 'condition')}&metric=gold/win_rate",
             f"{filters[0]}&tag=t", filters[1], "--metric-last-n-average-window", "1",
             "--env-ids", "arithmetic-nano_s", "--scan-history", "--offline",
             "--pc.time-unit", "s", "--output-filename", str(out)]  # fmt: skip
    said = rlops(tmp_path, "rlops", *asked)
    assert "Sync has 2 runs" in said and "Lagged has 2 runs" in said
    by_name = made.versions.groupby("exp_name")
    for legend, name in (("Sync", "grpo-sync"), ("Lagged", "grpo-lagged")):
        # What our tables have of a condition: the last version, not the mean over all and SFT.
        ends = by_name.get_group(name).groupby("run")["gold/win_rate"].last()
        assert row_of(out.with_suffix(".csv"))[legend] == f"{ends.mean():.2f} ± {np.std(ends):.2f}"
        # Its runtime is the mean of the last tenth of the rows: here the last one.
        walls = by_name.get_group(name).groupby("run")["x/wall_seconds"].last()
        theirs = float(row_of(Path(f"{out}_runtimes.csv"))[legend])
        assert theirs == pytest.approx(walls.mean())
    for suffix in (".png", ".pdf", "-time.svg"):
        assert Path(f"{out}{suffix}").stat().st_size > 1000
    again = read_benchmark(package / "dataset")
    assert len(again.records) == 5 and again.findings == ()
    same_numbers(made, tables(*(one for one in again.records if one.run != "r5")))
    # It writes the database anew while it reads, and its tags must still be found by it.
    assert {one.run: one.facts.tags for one in again.records}["r1"] == ("t", "u")


def updates_of(one: Record, updates: int, run: str) -> Record:
    """The run with another number of updates, which no name of a condition has."""
    own = {**one.config["run"], "updates": updates}
    return replace(one, run=run, place=f"runs/{run}", config={**one.config, "run": own})


def test_runs_of_other_settings_have_other_names_whatever_their_seeds_are() -> None:
    """Keys were compared at equal seeds alone: two sweeps without a common seed were one curve."""
    short = [record(f"short-{seed}", seed) for seed in (1, 2)]
    for seeds in ((3, 4), (2, 3), (3,)):
        long = [updates_of(record("", seed), 256, f"long-{seed}") for seed in seeds]
        made = runs_to_export([*short, *long])
        assert [one.condition.split(" S=0 ")[1] for one in made] == [
            *["run.updates=4"] * 2,
            *["run.updates=256"] * len(seeds),
        ]
    (one, other) = runs_to_export([short[0], updates_of(short[1], 256, "long")])
    assert one.condition != other.condition, "each seed has its own, but it is no text of a seed"


def test_what_follows_from_the_seed_is_in_no_name() -> None:
    """The parent of a fork, and whatever else has the seed in it."""

    def derived(seed: int) -> Record:
        own = {"own": {"parent": f"runs/of-{seed}", "seed": seed}}
        return record(f"r{seed}", seed, config={**config(seed), **own})

    every = [derived(seed) for seed in (1, 2, 3)]
    assert {one.condition for one in runs_to_export(every)} == {"grpo-sync N=1 T=1 K=2 S=0"}
    of_stage = [
        replace(one, config={**one.config, "seed": 1, "stage_seed": one.facts.seed},
                facts=replace(one.facts, seed=1))
        for one in every
    ]  # fmt: skip
    assert {one.condition for one in runs_to_export(of_stage)} == {"grpo-sync N=1 T=1 K=2 S=0"}


def named(one: Record, exp_name: str) -> Record:
    """The same run in another sweep, with more evaluations."""
    run = f"{one.run}-{exp_name}"
    own = {**one.config, "exp_name": exp_name}
    return replace(one, run=run, config=own, evals=evals((0, 2, 4)))


def test_the_larger_one_of_two_conditions_with_the_same_runs_stays_whole() -> None:
    """Of 29 seeds 8 were exported under the name of another sweep, and 21 pooled with longer runs
    of their own name."""
    ladder = [record(f"r{seed}", seed) for seed in range(1, 6)]
    again = [named(one, "a longer name of another sweep") for one in ladder[:2]]
    long = [updates_of(one, 256, f"long-{one.run}") for one in ladder[:2]]
    for records in ([*ladder, *again, *long], [*long, *again, *ladder]):
        held: dict[str, set[str]] = {}
        for one in runs_to_export(records):
            held.setdefault(one.condition, set()).add(one.record.run)
        name = "grpo-sync N=1 T=1 K=2 S=0 run.updates"
        assert held == {
            f"{name}=4": {one.run for one in ladder},
            f"{name}=256": {one.run for one in long},
        }
    alike = runs_to_export([*again, *ladder[:2]])
    assert {one.record.run for one in alike} == {one.run for one in again}, "more evaluations"


@pytest.fixture(scope="module")
def kept_records() -> tuple[Record, ...]:
    return read_saved(TABLES).records


def documented(page: str, start: str) -> list[str]:
    """The arguments of a command in the documentation."""
    text = (ROOT / "docs" / page).read_text().replace("\\\n", " ")
    line = text.partition(start)[2].partition("\n")[0]
    return shlex.split(line, comments=True)


def documented_rlops() -> list[str]:
    return documented("results.md", "python -m openrlbenchmark.rlops")


LADDER = "off_policy_ladder_nano"
OTHER_SEEDS = "own_rl_seeds"
ALGORITHMS = ("best_of_n", "online_dpo", "ppo", "proximal_rloo")


def of_algorithm(algo: str) -> dict[str, str]:
    """The documented names of conditions by legend, for another algorithm."""
    filters = [one for one in documented_rlops() if "?cl=" in one]
    pairs = [one.replace("ppo-", f"{algo}-").split("?cl=") for one in filters]
    return {legend: name for name, legend in pairs}


@pytest.mark.pages
def test_the_kept_tables_have_one_setting_a_name_and_every_documented_name(
    kept_records: tuple[Record, ...],
) -> None:
    held: dict[tuple[str, str], list[Record]] = {}
    for one in runs_to_export(kept_records):
        held.setdefault((place_of(one.record).env, one.condition), []).append(one.record)
    for group, records in held.items():
        settings = [compared_settings(one.config) for one in records]
        own = {tuple((k, one[k]) for k in sorted(one) if k not in JUDGED) for one in settings}
        assert len(own) == 1, group
        assert len({place_of(one).seeds for one in records}) == len(records), group
    for page in ("results.md", "benchmark.md"):
        arguments = documented(page, "python -m rlhf_lab_analysis.tables analysis/benchmark/")
        assert arguments[:2] == ["tables.parquet", "--export"]
    for algo in ALGORITHMS:
        names = of_algorithm(algo)
        assert [*names] == ["N=1", "N=64"]
        for legend, name in names.items():
            records = held["tldr_nano-nano_s", name]
            # The same settings with other RL seeds.
            others = {OTHER_SEEDS} if legend == "N=1" else set()
            assert {one.facts.sweep for one in records} == {LADDER, *others}


@pytest.mark.pages
def test_the_documented_command_gives_the_numbers_of_the_tracked_benchmark(
    tmp_path: Path, kept_records: tuple[Record, ...], kept_benchmark: Tables
) -> None:
    """Of all kept tables, for each algorithm: every run counts, none of another setting does, and
    the end is that on more prompts. rlops knows no stage seeds: where these have several RL seeds,
    its mean is over the runs. 304 of 344 runs were taken for repetitions of one
    seed, 21 were pooled with longer ones, and the last row was that of the prompts of the way."""
    package = copy_of_package(tmp_path)
    asked = {
        name: f"{algo} {legend}"
        for algo in ALGORITHMS
        for legend, name in of_algorithm(algo).items()
    }
    # rlops reads every run of the database: those of the algorithms' fresh and oldest samples.
    begins = tuple(name.partition(" run.updates=")[0] for name in asked)
    every = runs_to_export(kept_records)
    beside = [one for one in every if one.condition.startswith(begins)]
    assert {one.condition for one in beside} > {*asked}, "longer runs of the same names"
    write_benchmark(beside, package / "dataset", "local", "rlhf_lab")
    out = tmp_path / "out"
    filters = [f"{name}?cl={legend}" for name, legend in asked.items()]
    own = [one for one in documented_rlops() if "?cl=" not in one]
    place = own.index("--filters") + 2
    arguments = [*own[:place], *filters, *own[place:]]
    rlops(tmp_path, "rlops", *arguments, "--output-filename", str(out))
    ends = row_of(out.with_suffix(".csv"))
    kept = cells(kept_benchmark).only(sweep=[LADDER, OTHER_SEEDS])
    scores: dict[str, list[float]] = {}
    for cell in kept.cells:
        legend = f"{cell.parts['algo']} N={cell.parts['updates_per_round']}"
        for seeds in cell.members if legend in ends else ():
            (score,) = cell.restricted({seeds}).scores("gold/win_rate").values()
            scores.setdefault(legend, []).append(score)
    for legend, of_runs in scores.items():
        assert ends[legend] == f"{np.mean(of_runs):.2f} ± {np.std(of_runs):.2f}", legend
    assert {*scores} == {*asked.values()}


@pytest.mark.slow
def test_its_multi_metrics_command_finds_the_keys_it_asks_for(tmp_path: Path) -> None:
    package = copy_of_package(tmp_path)
    write_benchmark(runs_to_export(two_conditions()), package / "dataset", "me", "p")
    out = tmp_path / "multi"
    rlops(
        tmp_path, "rlops_multi_metrics",
        "--filters", f"{WHERE}&metrics=gold/win_rate&metrics=kl/sft_k1",
        "grpo-sync?cl=Sync", "--env-ids", "arithmetic-nano_s", "--scan-history", "--offline",
        "--output-filename", str(out),
    )  # fmt: skip
    (table,) = out.rglob("*.csv") if out.is_dir() else [out.with_suffix(".csv")]
    text = table.read_text()
    assert "0.4500" in text and "0.5000" in text, "the means of both metrics over versions"


def test_run_json_has_what_its_cache_reads(tmp_path: Path) -> None:
    (folder, *_) = write_benchmark(runs_to_export(two_conditions()), tmp_path, "me", "p")
    told: dict[str, Any] = json.loads((folder / "run.json").read_text())
    assert told["path"] == ["me", "p", "r1"] and told["user"]["username"] == "rlhf_lab"
    keys = {"id", "name", "state", "url", "project", "entity", "config", "tags", "path", "user"}
    assert set(told) == keys
    assert told["config"]["env_id.value"] == told["config"]["env_id"] == "arithmetic-nano_s"
