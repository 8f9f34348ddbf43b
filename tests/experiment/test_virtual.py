"""mode=virtual: real learning on the clock of a virtual cluster, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab.experiment.config.registry import group_options
from rlhf_lab.experiment.planning.timing import measured
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.rollout.recorded_schedule import read_schedule
from rlhf_lab.runs.folder import SCHEDULE
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import StopRequested, UserError
from tests.conftest import Finished, MakeConfig
from tests.support.examples import FACTS
from tests.support.in_memory import MemoryOutput, Row, memory_of, run_in_memory
from tests.support.survival import outcome
from tests.support.variants import slow

SHORT = ("run.updates=4", "eval=none", "eval.snapshots=0", "sft.steps=4")
ONE_BY_ONE = (*SHORT, "generator.chunk_groups=1", "algo=grpo")
# Slow generators: rounds wait, and chunks of several versions are under way.
BUSY = (
    *ONE_BY_ONE,
    "mode=virtual",
    "mode.max_staleness=2",
    "run.updates=8",
    "cluster.generators=2",
    "cluster.sequences=6",
    "cluster.step_seconds=0.1",
    "cluster.load_seconds=0.05",
    "cluster.round_seconds=1",
    "cluster.row_scale=1",
    "cluster.length_scale=1",
    "cluster.prompt_scale=1",
)


def without_clock(rows: list[Row]) -> list[Row]:
    return [{k: v for k, v in row.items() if not k.startswith("virtual")} for row in rows]


def test_a_cluster_that_is_never_ahead_is_sync(finished: Finished) -> None:
    rows, digest = finished(*ONE_BY_ONE, "mode=virtual", "mode.max_staleness=0", IN_ORDER)
    assert (without_clock(rows), digest) == finished(*ONE_BY_ONE)


IN_ORDER = "cluster.order=submission"


@pytest.mark.parametrize("staleness", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_cluster_with_room_for_all_is_lagged(finished: Finished, staleness: int) -> None:
    """Every chunk begins when it is admitted, with the version of then. Generators have ended
    before the next one comes."""
    behind = f"mode.max_staleness={staleness}"
    rows, digest = finished(
        *(*ONE_BY_ONE, "mode=virtual", behind, IN_ORDER),
        *("cluster.sequences=1000", "cluster.step_seconds=1e-5", "cluster.round_seconds=1"),
    )
    assert (without_clock(rows), digest) == finished(*ONE_BY_ONE, "mode=lagged", behind)


def trained(config: MakeConfig, *options: str) -> tuple[tuple[list[Row], str], MemoryOutput]:
    made = config(*options)
    output = memory_of(made)
    return run_in_memory(made, output), output


def lags(output: MemoryOutput) -> list[int]:
    return [r["round"] - r["segments"][0][1] for r in output.schedule if not r["dropped"]]


def test_a_virtual_run_repeats_and_trains_on_every_prompt_once(make_config: MakeConfig) -> None:
    result, output = trained(make_config, *BUSY)
    again, _ = trained(make_config, *BUSY)
    assert again == result
    chunks = [row["chunk"] for row in output.schedule]
    assert sorted(chunks) == list(range(len(chunks))) and chunks != sorted(chunks)
    assert set(lags(output)) == {0, 1, 2}
    assert all(
        row["virtual_seconds_end"] <= row["virtual_seconds_taken"] for row in output.schedule
    )
    walls = [row["virtual_seconds/wall"] for row in result[0]]
    assert walls == sorted(walls) and walls[0] > 0


@pytest.mark.parametrize(
    "options",
    [
        slow(),
        slow(IN_ORDER),
        slow("mode.when_stale=drop", "mode.max_staleness=1", "mode.extra_rounds=2"),
        ("cluster.failure_seconds=3", "cluster.repair_seconds=0.5"),
        slow("cluster.weight_update=in_flight", "cluster.round_seconds=0.5"),
        ("cluster.weight_update=interrupt", "cluster.round_seconds=0.5"),
    ],
)
def test_a_virtual_run_goes_on_where_it_was_stopped(
    make_config: MakeConfig, options: tuple[str, ...]
) -> None:
    whole, complete = trained(make_config, *BUSY, *options)
    config = make_config(*BUSY, *options, "checkpoint.rounds=3")
    output = memory_of(config)
    asked: list[int] = []

    def after_four() -> bool:
        asked.append(1)
        return len(asked) == 4

    with pytest.raises(StopRequested):
        run_in_memory(config, output, after_four)
    assert len(output.rows) == 4
    assert run_in_memory(config, output) == whole
    assert output.schedule == complete.schedule
    if "cluster.round_seconds=0.5" in options:
        assert any(len(row["segments"]) > 1 for row in output.schedule)
        assert any(row["sample/continued"] > 0 for row in whole[0])


def test_dropped_samples_are_counted_and_replaced(make_config: MakeConfig) -> None:
    (rows, _), output = trained(
        make_config, *BUSY, "mode.when_stale=drop", "mode.max_staleness=1", "mode.extra_rounds=3"
    )
    dropped = [row for row in output.schedule if row["dropped"]]
    assert dropped and rows[-1]["total/dropped_groups"] == len(dropped)
    assert max(lags(output)) == 1
    assert len(lags(output)) == 8 * 4


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("cluster.generators=3",), "cluster.generators=3 with mode=sync"),
        (("mode=virtual", "cluster.sequences=30"), "the 8 samples of a chunk"),
        (("mode=virtual", "mode.segment_tokens=4", "mode.weights=cluster"), "segment_tokens=4"),
        (("mode=virtual", "mode.executor=inline"), "mode.weights=cluster"),
        (("mode=virtual", "mode.num_generators=2"), "cluster.generators=2"),
        (
            ("mode=virtual", "run.prompts=pool", "reward=task_rule", "run.rest_rounds=3"),
            "run.prompts=pool",
        ),
        (
            ("mode=virtual", "mode.when_stale=drop", "cluster.weight_update=in_flight"),
            "mode.when_stale=drop",
        ),
    ],
)
def test_what_a_virtual_cluster_cannot_do_is_refused(
    config_of: MakeConfig, options: tuple[str, ...], text: str
) -> None:
    with pytest.raises(UserError, match=text):
        check(config_of(*options))


def test_its_schedule_is_not_replayed(make_config: MakeConfig) -> None:
    config = make_config(*BUSY, "run.updates=4")
    folder: Path = lifecycle.train(config, Console(quiet=True), FACTS)
    with pytest.raises(UserError, match="no machine's timing changes"):
        read_schedule(folder, config.mode, config.run, config.generator)
    with pytest.raises(UserError, match="trained on a virtual cluster"):
        measured(folder)


@pytest.mark.parametrize("preset", sorted(group_options()["cluster"]))
def test_every_preset_trains_the_same_prompts(make_config: MakeConfig, preset: str) -> None:
    options = (*ONE_BY_ONE, "mode=virtual", f"cluster={preset}", "run.updates=2")
    _, output = trained(make_config, *options)
    assert sorted(row["chunk"] for row in output.schedule) == list(range(2 * 4))
    assert max(lags(output)) <= 1


def test_a_virtual_run_that_paused_goes_on_from_its_files(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    options = (*BUSY, "run.updates=8", "cluster.weight_update=in_flight")
    whole = lifecycle.train(make_config(*options), Console(quiet=True), FACTS)
    into = (*options, f"output.dir={tmp_path}/paused")
    paused = make_config(*into, "checkpoint.pause_round=4")
    folder = lifecycle.train(paused, Console(quiet=True), FACTS)
    lifecycle.train(make_config(*into, "output.resume=true"), Console(quiet=True), FACTS)
    assert outcome(folder) == outcome(whole)
    assert read_rows(folder / SCHEDULE) == read_rows(whole / SCHEDULE)
