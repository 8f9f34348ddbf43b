"""The cosine of consecutive gradients: by hand, sharded, over a resume, without effect on them, and
bounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.engines import tensors
from rlhf_lab.training.engines.engine import TrainingEngine
from rlhf_lab.training.engines.options import EngineOptions, FSDPOptions, SingleEngineOptions
from rlhf_lab.training.optim import Optim
from rlhf_lab.training.round_metrics import UpdateMetrics
from rlhf_lab.types.data import UpdateResult
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.run_options import RunOptions
from tests.conftest import MakeConfig
from tests.support import engine_cases
from tests.support.engine_cases import ALGOS, batch_of, engine, restore, saved
from tests.support.examples import FACTS
from tests.support.survival import exact_rows, outcome

pytestmark = pytest.mark.usefixtures("costly")

COSINE, PROJECTED = "gradient_cosine", "gradient_projected"
# Half of the updates of a short run are above it.
BOUND = "optim.max_gradient_cosine=0"
SHORT = ("task=arithmetic", "reward=task_rule", "run.updates=8", "run.updates_per_round=2")
KINDS: list[EngineOptions] = [SingleEngineOptions(), FSDPOptions()]


def test_the_cosine_by_hand() -> None:
    one, other = torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])
    # (3, 0, 4) and (4, 0, 3): 24 / 25
    pairs = [(one, torch.tensor([4.0, 0.0])), (other, torch.tensor([[3.0]]))]
    assert tensors.angle(pairs) == pytest.approx((24 / 25, 1.0))
    assert tensors.angle([(one, -one)]) == (-1.0, 1.0)
    assert tensors.angle([(one, torch.tensor([0.0, 2.0]))]) == (0.0, 1.5)
    assert tensors.angle([(one, torch.zeros(2))]) is None
    assert tensors.angle([]) is None


@pytest.mark.parametrize(
    ("bound", "along"),
    [
        # Beside (2, 0) lies 4 of (3, 4), whatever of its 3 along it stays.
        (0.0, 0.0),
        # 4 / sqrt(3) along and 4 beside: an angle of 60 degrees.
        (0.5, 4 / 3**0.5),
        (0.6, 3.0),
    ],
)
def test_the_projection_by_hand(bound: float, along: float) -> None:
    gradient, last = torch.tensor([3.0, 4.0]), torch.tensor([2.0, 0.0])
    found = tensors.angle([(gradient, last)])
    assert found is not None
    tensors.project([(gradient, last)], found, bound)
    assert gradient.tolist() == pytest.approx([along, 4.0], abs=1e-6)
    # What the next update is compared with is the gradient, not what was left of it.
    assert last.tolist() == [3.0, 4.0]


def measuring(
    options: EngineOptions,
    monkeypatch: pytest.MonkeyPatch,
    rate: float = 1e-9,
    on: bool = True,
    bound: float = 1.0,
) -> TrainingEngine:
    """An engine whose steps are so small that the same batch has the same gradient again."""
    made = Optim(lr=rate, max_grad_norm=1e-3, gradient_cosine=on, max_gradient_cosine=bound)
    monkeypatch.setattr(engine_cases, "Optim", lambda **_: made)
    return engine(options, "online_dpo")


def cosine_of(trained: Any, seed: int, sign: float = 1.0) -> float | None:
    """Of an update on a batch; sign: of the preferences in it."""
    batch = batch_of(trained, "online_dpo", seed)
    batch = replace(batch, credit_BT=sign * batch.credit_BT)
    done: UpdateResult = trained.update(batch, ALGOS["online_dpo"], NoCorrection(), 1e-9)
    return done.metrics.get(COSINE)


@pytest.mark.parametrize("options", KINDS, ids=lambda options: options.name)
def test_an_update_is_compared_with_the_one_before_it(
    options: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = measuring(options, monkeypatch)
    assert cosine_of(trained, 0) is None
    assert cosine_of(trained, 0) == pytest.approx(1.0, abs=1e-5)
    assert cosine_of(trained, 0, sign=-1.0) == pytest.approx(-1.0, abs=1e-4)
    other = cosine_of(trained, 1)
    assert other is not None and abs(other) < 0.9


def test_a_checkpoint_holds_the_last_gradient_and_any_engine_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone, again, parts = (
        measuring(options, monkeypatch)
        for options in (SingleEngineOptions(), SingleEngineOptions(), FSDPOptions())
    )
    cosine_of(alone, 0)
    held = saved(alone)
    restore(again, held)
    restore(parts, held)
    expected = cosine_of(alone, 1)
    assert expected is not None and cosine_of(again, 1) == expected
    assert cosine_of(parts, 1) == pytest.approx(expected, abs=1e-5)


def test_measuring_changes_no_weight_and_off_it_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on, off = (
        measuring(SingleEngineOptions(), monkeypatch, 1e-2, is_on) for is_on in (True, False)
    )
    for trained in (on, off):
        for seed in range(3):
            batch = batch_of(trained, "online_dpo", seed)
            trained.update(batch, ALGOS["online_dpo"], NoCorrection(), 1e-2)
    theirs = off.weights(0).state
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in on.weights(0).state.items())
    kept = {key for key in on.state() if key.endswith(tensors.PREVIOUS)}
    assert kept and set(on.state()) - kept == set(off.state())


def moved(trained: TrainingEngine, batches: int, rate: float) -> tuple[list[float], Tensor]:
    """After updates on that many batches: which were projected, and the weights in one row."""
    projected = []
    for seed in range(batches):
        batch = batch_of(trained, "online_dpo", seed)
        done = trained.update(batch, ALGOS["online_dpo"], NoCorrection(), rate)
        projected.append(done.metrics.get(PROJECTED, 0.0))
    return projected, torch.cat([part.flatten() for part in trained.weights(0).state.values()])


def test_a_bound_acts_where_the_cosine_is_above_it_alike_in_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches, rate = 6, 1e-2
    alone, parts, free = (
        moved(measuring(options, monkeypatch, rate, bound=bound), batches, rate)
        for options, bound in (
            (SingleEngineOptions(), 0.0),
            (FSDPOptions(), 0.0),
            (SingleEngineOptions(), 1.0),
        )
    )
    assert alone[0] == parts[0] and 0 < sum(alone[0]) < batches
    assert free[0] == [0.0] * batches
    torch.testing.assert_close(alone[1], parts[1], rtol=0, atol=1e-5)
    assert (alone[1] - free[1]).abs().max() > 1e-3


def test_the_same_gradient_again_has_nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = measuring(SingleEngineOptions(), monkeypatch, bound=0.0)
    cosine_of(trained, 0)
    # Compared with the last gradient as it was: a projected one would be noise, of any direction.
    assert cosine_of(trained, 0) == pytest.approx(1.0, abs=1e-5)
    assert cosine_of(trained, 0) == pytest.approx(1.0, abs=1e-5)


def test_a_round_takes_the_mean_over_the_updates_that_have_the_metric() -> None:
    rows = {"log_ratio_sequence": torch.zeros(1)}
    batch: Any = SimpleNamespace(version_B=torch.tensor([-1]))
    collected = UpdateMetrics(RunOptions(updates=3, updates_per_round=3), 0)
    for metrics in ({"loss": 1.0}, {"loss": 2.0, COSINE: 0.5}, {"loss": 6.0, COSINE: -0.25}):
        collected.add(batch, UpdateResult(metrics, rows))
    found = collected.metrics()
    assert (found["update/loss"], found[f"update/{COSINE}"]) == (3.0, 0.125)


def run(config: Config) -> None:
    lifecycle.train(config, Console(quiet=True), FACTS)


def test_a_resumed_run_measures_what_one_without_a_pause_does(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    whole, paused = tmp_path / "whole", tmp_path / "paused"
    options = (
        *SHORT,
        "optim.gradient_cosine=true",
        BOUND,
        "eval.snapshots=0",
        "output.resume=true",
    )
    run(make_config(*options, f"output.dir={whole}"))
    run(make_config(*options, f"output.dir={paused}", "checkpoint.pause_round=1"))
    run(make_config(*options, f"output.dir={paused}"))
    rows = exact_rows(whole / "metrics.jsonl")
    assert any(row.get(f"update/{PROJECTED}") for row in rows)
    assert any(row.get(f"update/{COSINE}") is not None for row in rows)
    assert outcome(paused) == outcome(whole)


def test_deepspeed_frees_gradients_within_its_step_and_is_refused(make_config: MakeConfig) -> None:
    with pytest.raises(UserError, match=r"gradient_cosine=true with engine=deepspeed: .*fsdp"):
        check(make_config("engine=deepspeed", "optim.gradient_cosine=true"))


def test_a_bound_needs_the_last_gradient(make_config: MakeConfig) -> None:
    with pytest.raises(UserError, match=r"max_gradient_cosine=0.0: .*gradient_cosine=true"):
        check(make_config(BOUND))
