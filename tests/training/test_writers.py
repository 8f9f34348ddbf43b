"""The writers' log-probs in the trainer's numerics: per token and after a resume; that
mismatch and staleness move one ratio each; and the age of tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.models.batching import collate
from rlhf_lab.training.batch_builder import count_tokens, under_generating_versions
from rlhf_lab.types.data import Batch, Weights
from rlhf_lab.types.errors import StopRequested, UserError
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.conftest import Finished, MakeConfig
from tests.support.in_memory import memory_of, run_in_memory
from tests.support.variants import slow

SHORT = (
    *("run.updates=6", "eval=none", "eval.snapshots=0", "sft.steps=4", "reward=task_rule"),
    *("algo=grpo", "optim.lr=2e-3"),
)
SPLIT = (*SHORT, "correction=split")
ROUNDED = "generator.round_weights=bf16"
MISMATCH, STALENESS = "correction/mismatch", "correction/staleness"


@dataclass
class FakeEngine:
    """Gives every token minus its version, and notes how many rows each version read."""

    read: list[tuple[int, int]] = field(default_factory=list)

    def logp(self, batch: Batch, weights: Weights) -> Tensor:
        self.read.append((weights.version, len(batch)))
        return -weights.version * batch.mask_BT


def sample(tokens: int, version: int, *versions: int) -> Sample:
    return Sample((5,) * tokens, (-0.5,) * tokens, version, Finish.eos, "", versions)


def test_each_token_is_read_by_its_own_writer_and_no_row_by_another() -> None:
    prompt = Prompt(0, (1, 2), Example("", "", ""))
    samples = (sample(3, 2), sample(4, 1, 1, 1, 2, 3), sample(1, 3))
    groups = [Group(prompt, samples, (0.0, 1.0, 0.0))]
    batch = collate(groups, 0)
    engine: Any = FakeEngine()
    known = {3: torch.full_like(batch.mask_BT, -3.5)}

    def weights_of(version: int) -> Weights:
        return Weights(version, {})

    logp_BT, tokens = under_generating_versions(engine.logp, weights_of, groups, batch, known)
    assert logp_BT.tolist() == [[-2, -2, -2, 0], [-1, -1, -2, -3.5], [-3.5, 0, 0, 0]]
    assert engine.read == [(1, 1), (2, 2)]
    first, second = (count_tokens(batch.rows(torch.tensor([row]))) for row in (0, 1))
    assert tokens == second + (first + second)


def test_entropies_are_read_under_the_version_that_wrote_a_token(finished: Finished) -> None:
    stale = (*SHORT, "correction=estr", "mode.max_staleness=2")
    # Old samples are left out by a small bound, and fresh ones, whose ratios are one, are not.
    small = ("correction.bound=1e-4",)
    assert max(ratios(finished("mode=lagged", *stale, *small)[0], "correction/zeroed")) > 0
    fresh = finished(*SHORT, "correction=estr", *small)[0]
    assert ratios(fresh, "correction/zeroed") == [0.0] * len(fresh)


def ratios(rows: list[dict[str, Any]], name: str) -> list[float]:
    """A metric in the rounds that had an update."""
    return [row[name] for row in rows if name in row]


def test_fresh_samples_of_an_exact_generator_are_not_corrected(finished: Finished) -> None:
    split, none = (finished(*SHORT, f"correction={name}")[0] for name in ("split", "none"))
    for name in (MISMATCH, STALENESS):
        assert ratios(split, name) == pytest.approx([1.0] * len(split), abs=1e-5)
    assert ratios(split, "update/loss") == pytest.approx(ratios(none, "update/loss"), abs=1e-5)
    assert len(ratios(split, "update/loss")) == len(split)
    assert set(ratios(split, f"{MISMATCH}_bounded")) == {0.0}


def test_rounded_weights_move_the_mismatch_alone(finished: Finished) -> None:
    rows, _ = finished(*SPLIT, ROUNDED)
    # Writer and proximal policy are one version, read once: the ratio is one to the last bit.
    assert ratios(rows, STALENESS) == pytest.approx([1.0] * len(rows), abs=1e-7)
    assert min(abs(x - 1) for x in ratios(rows, MISMATCH)) > 1e-5


@pytest.mark.parametrize("bound", ["cap", "clip"])
def test_old_samples_move_the_staleness_alone(finished: Finished, bound: str) -> None:
    stale = ("mode=lagged", "mode.max_staleness=2", f"correction.staleness={bound}")
    rows, _ = finished(*SPLIT, *stale)
    assert ratios(rows, MISMATCH) == pytest.approx([1.0] * len(rows), abs=1e-5)
    assert max(abs(x - 1) for x in ratios(rows, STALENESS)) > 1e-3
    assert ratios(rows, f"{MISMATCH}_bounded") == [0.0] * len(rows)


def test_without_mismatch_a_clip_from_the_writer_is_no_correction(finished: Finished) -> None:
    stale = (*SHORT, "mode=lagged", "mode.max_staleness=2")
    split = finished(*stale, "correction=split", "correction.staleness=clip")[0]
    none = finished(*stale, "correction=none")[0]
    assert ratios(split, "update/loss") == pytest.approx(ratios(none, "update/loss"), abs=2e-4)


def test_without_mismatch_a_cap_is_truncated_importance_sampling(finished: Finished) -> None:
    stale = (*SHORT, "mode=lagged", "mode.max_staleness=2")
    split, truncated = (finished(*stale, f"correction={c}")[0] for c in ("split", "truncated_is"))
    found, expected = (ratios(rows, "correction/weight") for rows in (split, truncated))
    assert found == pytest.approx(expected, abs=2e-4)


def test_samples_of_several_versions_are_split_token_by_token(finished: Finished) -> None:
    options = (*SPLIT, "mode=partial", "mode.max_staleness=2", "mode.segment_tokens=2")
    rows = finished(*options, "mode.executor=inline")[0]
    assert max(row["sample/version_span"] for row in rows) > 0
    assert ratios(rows, MISMATCH) == pytest.approx([1.0] * len(rows), abs=1e-5)
    assert max(abs(x - 1) for x in ratios(rows, STALENESS)) > 1e-4


def test_groups_that_moved_between_rounds_are_split_token_by_token(finished: Finished) -> None:
    recycled = ("mode=partial", "mode.segment_tokens=2", "mode.over_provision=2")
    rows = finished(*SPLIT, *recycled, "mode.executor=inline")[0]
    assert sum(row["recycled/tokens"] for row in rows) > 0
    assert ratios(rows, MISMATCH) == pytest.approx([1.0] * len(rows), abs=1e-5)
    assert max(abs(x - 1) for x in ratios(rows, STALENESS)) > 1e-4


@pytest.mark.parametrize("mode", [slow("mode=lagged"), ("mode=async", "mode.executor=thread")])
def test_a_resumed_run_still_has_the_writers(
    make_config: MakeConfig, finished: Finished, mode: tuple[str, ...]
) -> None:
    options = (*SPLIT, ROUNDED, *mode, "mode.max_staleness=3")
    config = make_config(*options, "checkpoint=rounds")
    output = memory_of(config)
    with pytest.raises(StopRequested):
        run_in_memory(config, output, lambda: len(output.rows) > 2)
    assert 0 < output.checkpoints.snapshots[-1].round < 6
    assert run_in_memory(config, output) == finished(*options)


def test_ages_of_tokens_decide_and_young_ones_are_not_corrected(finished: Finished) -> None:
    lagged = finished("mode=lagged", *SHORT, "correction=a3po", "mode.max_staleness=2")
    none, exact = (
        finished("mode=lagged", *SHORT, "mode.max_staleness=2", f"correction={name}")
        for name in ("none", "decoupled")
    )
    assert len({none[1], exact[1], lagged[1]}) == 3
    # Up to one round of age, the interpolated policy is the behaviour: nothing is corrected.
    for mode in (("mode=sync",), ("mode=lagged", "mode.max_staleness=1")):
        young = finished(*mode, *SHORT, "correction=a3po")
        assert young == finished(*mode, *SHORT, "correction=none")
    assert "total/reread_tokens" in exact[0][-1]
    assert "total/reread_tokens" not in lagged[0][-1]


def test_in_flight_updates_keep_the_writers_of_every_token(finished: Finished) -> None:
    rows, _ = finished(*SPLIT, "mode=free", "mode.executor=thread", "mode.max_staleness=2")
    assert ratios(rows, MISMATCH) == pytest.approx([1.0] * len(rows), abs=1e-5)


def test_the_tokens_read_by_writers_are_counted(finished: Finished) -> None:
    options = ("mode=lagged", "mode.max_staleness=1")
    split, once = (finished(*SHORT, *options, f"correction={c}")[0] for c in ("split", "decoupled"))
    names = [row["total/reread_tokens"] for row in (*split[:1], *once[:1])]
    assert names[0] == names[1], "the first round's samples are of the version that begins it"
    assert split[-1]["total/reread_tokens"] > 1.5 * once[-1]["total/reread_tokens"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("run.buffer_rounds=2", "run.fresh_share=0.5"), "run.buffer_rounds=2 .*not kept; pass"),
        (("generator=pairs", "run.group_size=2"), "generator=pairs .*pass generator=hf"),
        (("algo=rloo", "correction.staleness=clip"), "correction=split with algo=rloo"),
        (("algo=online_dpo",), "correction=split with algo=online_dpo"),
    ],
)
def test_what_has_no_writers_is_refused(
    make_config: MakeConfig, options: tuple[str, ...], why: str
) -> None:
    with pytest.raises(UserError, match=why):
        check(make_config("algo=grpo", "correction=split", *options))
