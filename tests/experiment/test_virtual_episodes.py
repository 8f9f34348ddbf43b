"""Episodes on a virtual cluster: sync where nothing is ahead, lagged where there is room, and tools
whose virtual time decides which version writes what."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.types.errors import StopRequested, UserError
from tests.conftest import Finished, MakeConfig
from tests.support.in_memory import Row, memory_of, run_in_memory
from tests.support.variants import slow

SHORT = (
    *("run.updates=4", "eval=none", "eval.snapshots=0", "sft.steps=60", "algo=grpo"),
    *("generator.chunk_groups=1", "task=ask_nano", "task.ask_rate=0.9", "run.group_size=4"),
)
PLAIN = (
    *("cluster.row_scale=1", "cluster.length_scale=1", "cluster.prompt_scale=1"),
    *("cluster.step_seconds=0.1", "cluster.round_seconds=1"),
)
VIRTUAL = (*SHORT, "mode=virtual", *PLAIN)
TOOLS = ("episodes.tool_seconds=2", "episodes.tool_sigma=1.5")
ROOMY = ("cluster.sequences=1000", "cluster.step_seconds=1e-5")
IN_ORDER = "cluster.order=submission"
STALE = "mode.max_staleness=2"


def without_clock(rows: Sequence[Row]) -> list[Row]:
    clocks = ("virtual", "episode/virtual")
    return [{k: v for k, v in row.items() if not k.startswith(clocks)} for row in rows]


@pytest.mark.parametrize("tools", [slow(), TOOLS])
def test_a_cluster_that_is_never_ahead_is_sync(finished: Finished, tools: tuple[str, ...]) -> None:
    rows, digest = finished(*VIRTUAL, "mode.max_staleness=0", IN_ORDER, *tools)
    plain_rows, plain_digest = finished(*SHORT)
    assert (without_clock(rows), digest) == (without_clock(plain_rows), plain_digest)
    assert all((row["episode/virtual_seconds_tools"] > 0) == bool(tools) for row in rows)


def test_a_cluster_with_room_for_all_is_lagged(finished: Finished) -> None:
    rows, digest = finished(*VIRTUAL, STALE, *ROOMY, IN_ORDER)
    plain_rows, plain_digest = finished(*SHORT, "mode=lagged", STALE)
    assert (without_clock(rows), digest) == (without_clock(plain_rows), plain_digest)


@pytest.mark.parametrize(
    "options",
    [TOOLS, slow(*TOOLS, "cluster.is_colocated=true"), slow("cluster.weight_update=in_flight")],
)
def test_a_run_repeats_and_goes_on_where_it_was_stopped(
    make_config: MakeConfig, finished: Finished, options: tuple[str, ...]
) -> None:
    busy = (*VIRTUAL, STALE, "cluster.generators=2", "cluster.sequences=8", *options)
    config = make_config(*busy, "checkpoint.rounds=2")
    output = memory_of(config)
    asked: list[int] = []

    def after_three() -> bool:
        asked.append(1)
        return len(asked) == 3

    with pytest.raises(StopRequested):
        run_in_memory(config, output, after_three)
    whole = finished(*busy)
    assert run_in_memory(config, output) == whole
    walls = [row["virtual_seconds/wall"] for row in whole[0]]
    assert all(after > before for before, after in pairwise(walls))
    if "cluster.weight_update=in_flight" in options:
        assert any(row["episode/lag_first_turn"] > row["episode/lag_last_turn"] for row in whole[0])
    else:
        assert whole[0][-1]["virtual_seconds/tool_wait"] > 0


def test_slow_tools_cost_virtual_time_and_asynchrony_hides_it(finished: Finished) -> None:
    def wall(*options: str) -> float:
        rows, _ = finished(*VIRTUAL, "cluster.sequences=40", *options)
        return float(rows[-1]["virtual_seconds/wall"])

    sync, async_ = "mode.max_staleness=0", "mode.max_staleness=1"
    assert wall(sync, *TOOLS) > wall(sync) > wall(async_)
    assert wall(sync, *TOOLS) - wall(async_, *TOOLS) > wall(sync) - wall(async_) > 0


def test_a_deadline_cuts_episodes_in_every_mode(finished: Finished) -> None:
    cut = (*TOOLS, "episodes.tool_deadline=2")
    rows, digest = finished(*SHORT, *cut)
    assert all(0 < row["episode/late"] < 1 for row in rows)
    assert all(row["episode/virtual_seconds_tools"] <= 2 for row in rows)
    virtual, virtual_digest = finished(*VIRTUAL, "mode.max_staleness=0", IN_ORDER, *cut)
    assert (without_clock(virtual), virtual_digest) == (without_clock(rows), digest)
    assert digest != finished(*SHORT)[1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((*VIRTUAL, "cluster.weight_update=interrupt"), "cluster.weight_update=interrupt: a turn"),
        (
            (*VIRTUAL, "cluster.weight_update=in_flight", *TOOLS),
            "cluster.weight_update=in_flight and episodes.tool_seconds=2: episodes that wait",
        ),
        (
            (*VIRTUAL, "cluster.weight_update=in_flight", "episodes.decode_ahead=4"),
            "cluster.weight_update=in_flight and episodes.decode_ahead=4: steps in which episodes",
        ),
        (("episodes.decode_ahead=4",), "episodes.decode_ahead=4 with task=tldr_nano: it has no"),
        (TOOLS, "episodes.tool_seconds=2 with task=tldr_nano: it has no environment"),
        ((*SHORT, "episodes.tool_sigma=1"), "episodes.tool_sigma=1 with episodes.tool_seconds=0"),
    ],
)
def test_what_tools_cannot_do_is_refused(
    config_of: MakeConfig, options: tuple[str, ...], text: str
) -> None:
    with pytest.raises(UserError, match=text):
        check(config_of(*options))
