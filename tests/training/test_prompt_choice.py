"""Runs whose prompts follow from pass rates: the same bits in every mode and after a kill."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import StopRequested, UserError
from tests.conftest import Finished, MakeConfig
from tests.support.examples import FACTS
from tests.support.in_memory import memory_of, result_of, run_in_memory
from tests.support.survival import outcome
from tests.support.variants import tuples

SHORT = (
    *("task=arithmetic", "task.train_size=12", "reward=task_rule", "algo=grpo"),
    *("eval=none", "eval.snapshots=0", "run.updates=8", "run.groups_per_update=4"),
    *("run.group_size=4", "generator.chunk_groups=2"),
)
CHOICES = {
    "pool": ("run.prompts=pool", "run.rest_rounds=3"),
    "replay": (
        *(
            "run.prompts=replay",
            "run.cooldown_rounds=1",
            "run.min_pass_rate=0",
            "run.max_pass_rate=1",
        ),
    ),
}
BUFFER = ("run.buffer_rounds=2", "run.fresh_share=0.5", "run.groups_per_update=8")
KILLS = {
    "sync": ("mode=sync",),
    "lagged": ("mode=lagged", "mode.max_staleness=2"),
    "random": ("mode=lagged", "mode.max_staleness=2", "mode.lag_probabilities='0.4,0.3,0.3'"),
    "thread": ("mode=async", "mode.executor=thread", "mode.max_staleness=1"),
    "partial": ("mode=partial", "mode.executor=inline", "mode.segment_tokens=3"),
    "buffer": ("mode=lagged", "mode.max_staleness=1", *BUFFER),
}


@pytest.mark.parametrize("choice", list(CHOICES))
def test_prompts_are_remembered_as_late_as_samples_are_old(finished: Finished, choice: str) -> None:
    options = (*SHORT, *CHOICES[choice])
    sync = finished(*options)
    lagged = finished("mode=lagged", "mode.max_staleness=2", *options)
    name = {"pool": "prompts/filtered", "replay": "prompts/repeated"}[choice]
    for rows, staleness in ((sync[0], 0), (lagged[0], 2)):
        assert any(row[name] > 0 for row in rows)
        known = [row["prompts/remembered"] > 0 for row in rows]
        assert known == [round_ > staleness for round_ in range(8)]


@pytest.mark.parametrize("choice", list(CHOICES))
def test_prompts_and_their_repeats_are_counted(make_config: MakeConfig, choice: str) -> None:
    rows = result_of(make_config(*SHORT, *CHOICES[choice]))[0]
    repeats = 0
    for row in rows:
        repeats += round(4 * row["prompts/repeated"])
        assert row["prompts/repeats"] == repeats
        assert 0 <= row["prompts/filtered"] < 1
        assert row["total/completions"] == 16 * (row["step"] + 1)
    assert (repeats > 0) == (choice == "replay")


# One mode of each choice; the order of draws, threads and a buffer are between them.
OFTEN = {("pool", "random"), ("replay", "thread"), ("pool", "buffer")}


@pytest.mark.parametrize(("choice", "mode"), tuples(product(CHOICES, KILLS), OFTEN))
def test_a_run_that_paused_ends_as_one_that_never_did(
    make_config: MakeConfig, tmp_path: Path, choice: str, mode: str
) -> None:
    options = (*SHORT, *CHOICES[choice], *KILLS[mode], "output.resume=true")
    folders = {name: tmp_path / name for name in ("whole", "paused")}
    quiet = Console(quiet=True)
    lifecycle.train(make_config(*options, f"output.dir={folders['whole']}"), quiet, FACTS)
    for pause in (3, 0):
        ends = (f"output.dir={folders['paused']}", f"checkpoint.pause_round={pause}")
        lifecycle.train(make_config(*options, *ends), quiet, FACTS)
    assert outcome(folders["paused"]) == outcome(folders["whole"])
    for name in ("schedule.jsonl", "rollouts.jsonl"):
        assert (folders["paused"] / name).read_text() == (folders["whole"] / name).read_text()


@pytest.mark.parametrize("choice", list(CHOICES))
@pytest.mark.parametrize("done", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_a_run_that_was_stopped_goes_on(make_config: MakeConfig, choice: str, done: int) -> None:
    background = ("mode=async", "mode.executor=thread", "mode.max_staleness=2")
    config = make_config(*SHORT, *CHOICES[choice], *background, "checkpoint=rounds")
    output = memory_of(config)
    with pytest.raises(StopRequested):
        run_in_memory(config, output, lambda: len(output.rows) >= done)
    assert run_in_memory(config, output) == run_in_memory(config)


def test_the_prompts_of_a_free_run_are_repeated(make_config: MakeConfig, tmp_path: Path) -> None:
    free, again = tmp_path / "free", tmp_path / "again"
    options, bound = (*SHORT, *CHOICES["replay"]), "mode.max_staleness=2"
    quiet = Console(quiet=True)
    waiting = ("mode=free", "mode.executor=thread", "mode.when_stale=wait", bound)
    lifecycle.train(make_config(*options, *waiting, f"output.dir={free}"), quiet, FACTS)
    recorded = ("mode=recorded", f"mode.schedule={free}", bound)
    # The trainer generates round by round, and knows more than the first run did.
    lifecycle.train(make_config(*options, *recorded, f"output.dir={again}"), quiet, FACTS)
    assert outcome(again) == outcome(free)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("generator=pairs", "run.group_size=2", "algo=rloo"), "fixed answers have no pass rate"),
        (
            ("run.offline_share=0.25", "run.group_size=2", "reward=reward_model"),
            "fixed answers have no pass rate",
        ),
        (("reward=reward_model",), "scores of a reward model are no pass rates"),
        (("mode=free", "mode.when_stale=drop"), "pass mode.when_stale=wait"),
        (
            ("mode=lagged", "mode.max_staleness=3", "run.prompts=pool", "run.rest_rounds=3"),
            "pass run.rest_rounds=4 or more",
        ),
        (("run.repeat_share=0.2",), "less than one of the 4 groups"),
    ],
)
def test_a_choice_that_nothing_follows_from_is_refused(
    make_config: MakeConfig, options: tuple[str, ...], why: str
) -> None:
    with pytest.raises(UserError, match=why):
        check(make_config(*SHORT, *CHOICES["replay"], *options))
