"""A run whose generator and trainer differ in its first samples stops before its first update."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.run.train import mismatch_limit
from rlhf_lab.rollout.generators import decoders
from rlhf_lab.rollout.generators.lean import LeanDecoder
from rlhf_lab.training.probe import MismatchLimit
from rlhf_lab.types.data import Batch, Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Finish, Group
from tests.conftest import MakeConfig
from tests.support.attention_cases import group
from tests.support.in_memory import memory_of, run_in_memory

pytestmark = pytest.mark.usefixtures("costly")
WEIGHTS = Weights(0, {})
FLOAT32, HALF = MismatchLimit(False, 1.0), MismatchLimit(True, 1.0)


class Off:
    """A trainer whose log-probs are off at some tokens. read: lengths of the prompts it got."""

    def __init__(self, *off: float) -> None:
        self._off = off
        self.read: list[int] = []

    def logp(self, batch: Batch, weights: Weights) -> Tensor:
        assert weights is WEIGHTS
        self.read += batch.prompt_mask_BS.sum(dim=1).tolist()
        off_T = torch.zeros(batch.mask_BT.shape[1])
        off_T[: len(self._off)] = torch.tensor(self._off)
        # What stands on padding means nothing.
        return torch.where(batch.mask_BT > 0, batch.behavior_logp_BT + off_T, 99.0)


def check(limit: MismatchLimit, groups: list[Group], *off: float) -> list[int]:
    engine: Any = Off(*off)
    limit.check(engine, groups, WEIGHTS, 0)
    return engine.read  # type: ignore[no-any-return]


FOUR = [group(0, [5, 6], [1, 2, 3, 4], [1, 2, 3, 4])]


def test_one_token_decides_in_float32_and_the_mean_in_half_precision() -> None:
    check(FLOAT32, FOUR, 0.0, 0.009)
    for off in (0.011, -0.011, float("nan")):
        with pytest.raises(UserError, match=r"engine\.share_prompts=false"):
            check(FLOAT32, FOUR, 0.0, off)
    # A mean of 0.09 and of 0.11 nats over four tokens.
    check(HALF, FOUR, 0.36)
    for off in (0.44, float("nan")):
        with pytest.raises(UserError, match=r"generator\.decode=transformers"):
            check(HALF, FOUR, off)


def test_low_temperatures_magnify_rounding() -> None:
    check(MismatchLimit(False, 0.25), FOUR, 0.039)
    with pytest.raises(UserError):
        check(MismatchLimit(False, 0.25), FOUR, 0.041)
    with pytest.raises(UserError):
        check(MismatchLimit(False, 4.0), FOUR, 0.011)


def test_the_longest_and_the_shortest_group_are_read() -> None:
    groups = [group(n, [7] * size, [1, 2], [3]) for n, size in enumerate((4, 9, 1, 6))]
    assert check(FLOAT32, groups) == [9, 9, 1, 1]
    assert check(FLOAT32, groups[:1]) == [4, 4]


def test_only_what_the_same_weights_wrote_is_compared() -> None:
    (own,) = FOUR
    later = replace(own, samples=tuple(replace(s, version=1) for s in own.samples))
    mixed = own.samples[0].continued([5], [-1.0], [1], Finish.eos, "")
    both = replace(own, samples=(mixed, own.samples[1]))
    assert check(FLOAT32, [later, both], 1.0) == []


def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lean loop that is a little off, and a self-test that does not see it."""
    right = LeanDecoder._logits
    monkeypatch.setattr(LeanDecoder, "_logits", lambda self, hidden: 1.05 * right(self, hidden))
    monkeypatch.setattr(decoders, "distance", lambda *_: 0.0)


MODES = {
    "sync": ("mode=sync",),
    "lagged": ("mode=lagged", "mode.max_staleness=2"),
    "thread": ("mode=async", "mode.executor=thread", "mode.max_staleness=1"),
    "partial": ("mode=partial", "mode.executor=thread", "mode.segment_tokens=3"),
}


@pytest.mark.parametrize("mode", list(MODES))
def test_a_run_stops_before_its_first_update(
    mode: str, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config("algo=rloo", "eval=none", "run.updates=2", *MODES[mode])
    right = memory_of(config)
    run_in_memory(config, right)
    assert len(right.rows) == 2
    wrong(monkeypatch)
    output = memory_of(config)
    with pytest.raises(UserError, match=r"generator\.decode=transformers"):
        run_in_memory(config, output)
    assert output.rows == [] and [weights.version for weights in output.versions] == [0]


def limit(config: Config, dtype: str = "float32") -> MismatchLimit | None:
    return mismatch_limit(config, dtype)


def test_generators_that_differ_by_their_options_are_not_compared(config_of: MakeConfig) -> None:
    assert limit(config_of("generator.temperature=0.5")) == MismatchLimit(False, 0.5)
    assert limit(config_of("engine.dtype=bfloat16")) is None
    assert limit(config_of("generator.dtype=bfloat16")) is None
    halves = config_of("generator.dtype=bfloat16", "engine.dtype=bfloat16")
    assert limit(halves) == MismatchLimit(True, halves.generator.temperature)
    assert limit(config_of("generator.round_weights=bf16")) is None
    own_kernels = SimpleNamespace(draws_samples=True, decodes_here=False, has_own_kernels=True)
    fixed_pairs = SimpleNamespace(draws_samples=False, decodes_here=False, has_own_kernels=False)
    for generator in (own_kernels, fixed_pairs):
        config: Any = SimpleNamespace(**vars(config_of()) | {"generator": generator})
        assert limit(config) is None
