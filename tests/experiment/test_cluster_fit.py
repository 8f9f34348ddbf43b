"""A virtual cluster that is fitted to a run predicts its lags and its wall-clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from rlhf_lab.cli import plan
from rlhf_lab.experiment.config.layout import parsed
from rlhf_lab.experiment.planning.cluster_fit import Fit, decoding, distance, fitted
from rlhf_lab.experiment.planning.cluster_rates import rates_of
from rlhf_lab.experiment.planning.layouts.choice import Choice, Workload
from rlhf_lab.experiment.planning.layouts.costs import generation
from rlhf_lab.experiment.planning.layouts.gpus import named
from rlhf_lab.experiment.planning.layouts.shapes import published
from rlhf_lab.experiment.planning.timing import read_before_steps
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.rollout.cluster.options import ClusterOptions, TakeOrder
from rlhf_lab.rollout.cluster.simulate import Work, simulate, virtual_mode
from rlhf_lab.runs.folder import METRICS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import FACTS
from tests.support.virtual_files import PLAIN

Train = Callable[..., Path]


@pytest.fixture
def train(make_config: MakeConfig) -> Train:
    def start(*options: str) -> Path:
        base = ("eval=none", "eval.snapshots=0", "reward=task_rule", "generator.chunk_groups=2")
        return lifecycle.train(make_config(*base, *options), Console(quiet=True), FACTS)

    return start


def test_the_seconds_of_a_step_are_found_by_least_squares() -> None:
    steps = {number: 5 + 3 * number % 7 for number in range(20)}
    seconds = {number: 0.5 + 0.25 * length for number, length in steps.items()} | {0: 99.0}
    assert decoding(seconds, steps) == pytest.approx((0.5, 0.25)), "without the first chunk"
    same = dict.fromkeys(range(9), 4)
    assert decoding(dict.fromkeys(range(9), 2.0), same) == pytest.approx((0.0, 0.5))


def test_the_distance_of_histograms_is_the_total_variation() -> None:
    assert distance([0, 0, 1, 1], [1, 1, 1, 1]) == pytest.approx(0.5)
    assert distance([0, 1], [1, 0]) == 0
    assert distance([0], [2, 3]) == 1


def test_a_cluster_with_the_rates_of_a_cluster_predicts_it_exactly() -> None:
    options = replace(
        PLAIN,
        generators=2,
        step_seconds=0.01,
        prefill_tokens_per_second=100.0,
        round_seconds=0.7,
        order=TakeOrder.submission,
    )
    rng = np.random.default_rng(1)
    steps = {number: int(rng.integers(5, 60)) for number in range(60)}
    work = Work(lambda number: (steps[number],), lambda _: 7, 60, 3, 20)
    found = simulate(options, virtual_mode(2), work)
    wall = found.rounds[-1]["virtual_seconds/wall"]
    fit = Fit(options, steps, 7, 3, 2, found.lags, wall)
    lags, predicted = fit.predicted()
    assert distance(lags, fit.lags) == 0 and len(set(lags)) > 1
    assert predicted == pytest.approx(wall)


def test_a_run_beside_its_generators_is_fitted(
    train: Train, tmp_path: Path, processes: None, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train("mode=free", "run.updates=6", "mode.executor=thread")
    assert plan.CLUSTER.run(["fit", str(run), "--out", str(tmp_path / "mine.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "predicted (virtual)" in shown and "virtual s" in shown
    text = (tmp_path / "mine.yaml").read_text(encoding="utf-8")
    assert "name: fitted" in text and "sequences: 4" in text


def test_observations_are_not_read_before_the_first_step(train: Train) -> None:
    """The prompts alone are, as in a run whose episodes end before the first observation."""
    ask = ("task=ask_nano", "task.ask_rate=0.9", "algo=grpo", "run.group_size=2", "sft.steps=60")
    folders = train(*ask), train(*ask, "task.max_turns=1")
    run, without = (read_rows(folder / METRICS)[-1] for folder in folders)
    assert run["total/observed_tokens"] > 0
    assert read_before_steps(run) == read_before_steps(without) > 0


def test_a_run_that_generates_by_itself_is_refused(train: Train) -> None:
    with pytest.raises(UserError, match="the trainer's own time"):
        fitted(train("mode=lagged"))


def test_rates_of_named_gpus_are_those_of_the_planner() -> None:
    """One wave of sequences on one generator takes what the planner takes it to."""
    shape = published("Qwen/Qwen2.5-7B@main")
    assert shape is not None
    work = Workload(
        policy=shape,
        scorers=(),
        value_models=0,
        has_adapters=False,
        reads_reference=True,
        shares_prompts=False,
        prompt=512,
        response=2048,
        observed=0,
        longest=512 + 2048,
        groups=8,
        group_size=8,
        trained_rows=64,
        trained_groups=8,
        updates=1,
        num_rounds=10,
        staleness=1,
        chunk_rows=(8,) * 8,
        logit_tokens=4096,
    )
    choice = Choice(parsed("1x8:7+1"), "fsdp", "bfloat16", 16384, True, 1)
    gpu = named("h100")
    rates = rates_of(work, choice, gpu)
    assert rates["generators"] == 1 and rates["sequences"] == 64
    step = rates["step_seconds"] + 64 * rates["step_seconds_per_sequence"]
    prefill = 8 * 512 / rates["prefill_tokens_per_second"]
    assert prefill + 2048 * step == pytest.approx(generation(work, choice, gpu, 64))


PLANNED = (
    *("--gpu", "h100", "--devices", "8", "--prompt-tokens", "430", "--response-tokens", "1000"),
    *("task=gsm8k", "model=qwen2.5_7b", "algo=grpo", "run.group_size=16", "reward=task_rule"),
)


def test_a_planned_layout_is_a_cluster_to_choose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "conf" / "mine.yaml"
    plan.PLAN.run(
        [
            *PLANNED,
            "mode=async",
            "layout=1x8:7+1",
            "--cluster",
            str(file),
        ]
    )
    assert "mode=virtual cluster=mine" in capsys.readouterr().out
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# layout=1x8:7+1 of h100, planned by `rlhf-lab plan`.\n")
    values = yaml.safe_load(text)
    assert values.pop("defaults") == ["schema/cluster@_here_", "_self_"]
    assert set(values) == {field.name for field in fields(ClusterOptions)}
    assert values["name"] == "mine" and values["generators"] == 1 and values["row_scale"] == 1


def test_a_plan_without_generators_of_their_own_is_no_cluster(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    with pytest.raises(UserError, match="generators on devices of their own"):
        plan.PLAN.run([*PLANNED, "layout=1x8:8+0", "--cluster", str(file)])
    assert not file.exists()
