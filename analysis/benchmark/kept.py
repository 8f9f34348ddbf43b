"""Save and load the numbers of the benchmark's runs that are stored in git."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.registry.definitions import read_registries
from rlhf_lab_analysis.comparison.registry.gates import gated
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.sources.axes import AXES, COLUMNS
from rlhf_lab_analysis.sources.findings import Kind
from rlhf_lab_analysis.sources.record import Cell, Reading, Record, Row, joined
from rlhf_lab_analysis.tables.compact import compact, without_paths
from rlhf_lab_analysis.tables.frames import OWN
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.readers import read_sources
from rlhf_lab_analysis.tables.store import save
from rlhf_lab_analysis.tables.table import Tables, make_tables

TABLES = Path(__file__).parent / "tables.parquet"
# Of the sweeps whose runs are to collapse, with every round; early_warning.py reads it too.
COLLAPSES = TABLES.with_name("collapses.parquet")
POINTS = 16
JUDGED = (
    "gold/win_rate", "gold/mean", "gold/win_rate_length_controlled", "proxy/mean",
    "proxy/win_rate", "gap/win_rate", "kl/sft_k1", "kl/sft_k3", "ppl/sft_response",
    "ppl/sft_paper", "sample/length", "sample/eos_rate", "eval/prompts", "eval/options",
    "eval/split", "eval/samples", "accuracy/mean", "stage/sft_loss", "stage/proxy_accuracy",
    "timing/seconds",
)  # fmt: skip
RECORDED = (
    "reward/mean", "kl/sampled_reference_k1", "gap/staleness_k1", "gap/mismatch_k1", "ratio/ess",
    "ratio/clipped", "ratio/mean", "lag/rounds_mean", "lag/rounds_max", "lag/updates_mean",
    "lag/updates_max", "update/loss", "update/grad_norm", "update/learning_rate",
    "seconds/generate", "seconds/score", "seconds/take", "seconds/reference", "seconds/update",
    "seconds/train", "seconds/wait", "seconds/generator_wait", "seconds/sync", "seconds/other",
    "timing/peak_resident_bytes", "virtual_seconds/wall", "virtual_seconds/wait",
)  # fmt: skip
# What might warn of a collapse: of every round of the sweeps whose runs are to end in one.
SIGNALS = (
    "reward/std", "sample/length", "update/entropy", "update/grad_norm", "update/gradient_cosine",
    "update/loss", "ratio/ess", "ratio/max", "ratio/clipped", "kl/behavior_policy_k3",
    "kl/policy_reference_k1",
)  # fmt: skip
# What shows when a run collapses.
RISE = ("total/rounds", "total/updates", "reward/mean")
COURSE = (*RISE, *SIGNALS)
METRICS = tuple(dict.fromkeys((*(axis.key for axis in AXES), *JUDGED, *RECORDED)))
OF_COLLAPSE = ("updates_before_collapse", "boundary_slope", "boundary_slope_over_inverse")
# What reading tables makes anew of their other columns; the last axis shows where metrics begin.
DERIVED_AXES = COLUMNS[:-1]
DERIVED_OF_RUNS = ("x/", "last/", "final/")
# Measured seconds are kept to a millisecond: runs of a machine differ by more, and digits beyond
# are random, which nothing makes smaller.
SECONDS = ("seconds/", "timing/seconds")
DIGITS_OF_SECONDS = 3


def save_benchmark(sources: Sequence[str], path: Path = TABLES) -> Tables:
    """Save the runs of these sources, folders of runs and tables that were saved so, as the
    benchmark's tables, those that the gates of the claims stop apart from the others. Returns the
    others. Runs of which a claim asks when they collapse keep every round: RISE, and in COLLAPSES
    the signals too.

    Raises UserError if a run did not finish, since a benchmark is whole.
    """
    saved = [source for source in sources if source.endswith(".parquet")]
    runs = [source for source in sources if source not in saved]
    every = COURSE if path.name == COLLAPSES.name else RISE
    kept = dict.fromkeys(sweeps_of_collapse(), every)
    found = [read_sources(saved)] if saved else []
    found += [compact(read_sources(runs), POINTS, kept)] if runs else []
    reading = joined(found)
    records = tuple(small(one, kept.get(one.facts.sweep, ())) for one in reading.records)
    # A grid may be trained in parts, of which each lacks the jobs of the others.
    findings = tuple(one for one in reading.findings if one.kind is not Kind.absent)
    tables = make_tables(Reading(records, findings))
    unfinished = tables.runs.loc[tables.runs["state"] != "finished", "place"]
    if len(unfinished):
        raise UserError(
            f"{len(unfinished)} runs did not finish, such as {unfinished.iloc[0]}: go on with "
            "their sweep (make sweep), or leave them out of the sources"
        )
    stopped = stopped_by_gates(cells(tables))
    good = [run for run in tables.runs["run"] if run not in stopped]
    save_small(tables.only(run=good), path)
    if stopped:
        save_small(tables.only(run=[*stopped]), weak_of(path))
    return tables.only(run=good)


def stopped_by_gates(selection: Selection) -> set[str]:
    """The runs that the gates of some file of claims leave out."""
    good = selection
    for registry in read_registries():
        good, _ = gated(registry, good)
    before, after = (
        {str(member.row["run"]) for cell in one.cells for member in cell.members.values()}
        for one in (selection, good)
    )
    return before - after


def save_small(tables: Tables, path: Path) -> None:
    """Save tables without what reading makes anew: as they are read they have the same numbers, to
    the bit."""
    derived = [name for name in tables.runs if name.startswith(DERIVED_OF_RUNS)]
    own = replace(
        tables,
        points=tables.points.drop(columns=[*DERIVED_AXES]),
        versions=tables.versions.drop(columns=[*DERIVED_AXES]),
        runs=tables.runs.drop(columns=derived),
    )
    save(own, path)


def small(record: Record, course: Sequence[str]) -> Record:
    """The run with METRICS and those of its course alone, where it has them, and seconds rounded to
    a millisecond."""
    rounds = [chosen(row, dict.fromkeys((*METRICS, *course))) for row in record.rounds]
    evals = [chosen(row, (*METRICS, *OWN)) for row in record.evals]
    return without_paths(replace(record, rounds=rounds, evals=evals))


def chosen(row: Row, names: Iterable[str]) -> Row:
    return {name: to_millisecond(name, row[name]) for name in names if name in row}


def to_millisecond(name: str, value: Cell) -> Cell:
    """A metric's value, rounded if it is measured in seconds."""
    if not isinstance(value, float) or not name.startswith(SECONDS):
        return value
    return round(value, DIGITS_OF_SECONDS)


def sweeps_of_collapse() -> set[str]:
    """The sweeps of which claims ask when runs collapse, which a few points do not show."""
    claims = [claim for registry in read_registries() for claim in registry.claims]
    return {name for one in claims if one.measure.name in OF_COLLAPSE for name in one.sweeps}


def weak_of(path: Path) -> Path:
    """Where the runs are kept that the gates of the claims stopped."""
    return path.with_name(f"weak_{path.name}")


def load_benchmark(path: Path = TABLES) -> Tables:
    """The benchmark's tables, of the runs that pass the gates."""
    return gather([str(path)])


def load_beside(path: Path) -> Tables | None:
    """Tables that may not be there: of COLLAPSES, or `weak_of` runs."""
    return gather([str(path)]) if path.is_file() else None
