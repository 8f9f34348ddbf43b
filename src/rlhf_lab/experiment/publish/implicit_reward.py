"""The implicit reward of a run's policy beside a reward model, on the same held-out pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.evaluation.measures import wilson
from rlhf_lab.evaluation.sft_distance import log_ratios
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.artifacts.products import products_of
from rlhf_lab.experiment.build.policy import PolicyLoader
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.publish.export import policy_of, versions
from rlhf_lab.models.batching import collate
from rlhf_lab.models.reward_model import for_scores, load_reward_model
from rlhf_lab.rewards.model import CPU
from rlhf_lab.runs.folder import POLICY
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.pairs import SIDES
from rlhf_lab.training.stages.reward_model import pair_gaps
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from rlhf_lab.types.text_frame import TextFrame

COLUMNS = ["reward", "pairs", "accuracy [95%]"]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """Of each held-out pair: 1 if a reward prefers the answer that the label prefers, 1/2 if both
    answers have the same reward, else 0."""

    implicit_P: Tensor
    explicit_P: Tensor

    def rows(self) -> list[list[str]]:
        """The accuracies and their difference, with intervals over pairs (one training seed)."""
        num = len(self.implicit_P)
        named = {"policy's implicit reward": self.implicit_P, "reward model": self.explicit_P}
        rows = []
        for name, right_P in named.items():
            low, high = wilson(float(right_P.sum()), num)
            rows.append([name, str(num), f"{float(right_P.mean()):.3f} [{low:.3f}, {high:.3f}]"])
        difference_P = self.implicit_P - self.explicit_P
        mean = float(difference_P.mean())
        half = 1.959964 * float(difference_P.std()) / math.sqrt(num)
        text = f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"
        return [*rows, ["difference, by pair", str(num), text]]


def right(gap_P: Tensor) -> Tensor:
    """1 where the preferred answer of a pair has more, 1/2 where both have the same, else 0."""
    return (gap_P > 0).double() + (gap_P == 0).double() / 2


def implicit_gaps(policy: Any, reference: Any, rows: Sequence[Row], pad_id: int) -> Tensor:
    """Log-ratio to the reference of the chosen answer less that of the rejected one, in nats.

    beta times it is the gap of implicit rewards (arXiv:2305.18290, section 4). rows: pairs with the
    tokens of prompt and answers.
    """
    batch = collate([pair_group(number, row) for number, row in enumerate(rows)], pad_id)
    with torch.inference_mode():
        ratio_B, _, _ = log_ratios(policy, reference, batch, temperature=1.0)
    return ratio_B[0::2] - ratio_B[1::2]


def pair_group(number: int, row: Row) -> Group:
    """The two answers of a pair, chosen first, as samples of its prompt."""
    prompt = Prompt(number, tuple(row["prompt_tokens"]), Example("", "", ""))
    answers = (tuple(row[f"{side}_tokens"]) for side in SIDES)
    samples = (Sample(one, (0.0,) * len(one), 0, Finish.eos, "") for one in answers)
    return Group(prompt, tuple(samples))


def compare(config: Config, run: Path, console: Console) -> Comparison:
    """Compare the final policy of a run with the proxy of its config, which is trained on the same
    labels or found in the cache (arXiv:2403.17031, detail 19).

    Raises UserError if the run has no final policy, or its pairs no tokens of the policy.
    """
    if not (run / POLICY).is_dir():
        raise UserError(f"{run} has no final policy: `rlhf-lab resume {run}` finishes it")
    loader = PolicyLoader(console)
    stages = Artifacts(config, console, loader, products_of(run, may_make=True))
    rows = stages.held_out_pairs()
    reference, tokenizer = loader.read(stages.policy(config.model), config.seed)
    with console.phase("comparing by the final policy"):
        last = config.run.num_rounds
        policy, _ = policy_of(config, run, versions(config, run)[last], last, stages)
        pad_id = TextFrame(tokenizer).pad
        implicit_P = right(implicit_gaps(policy, reference, rows, pad_id))
    proxy = stages.reward_model().folder
    with console.phase("comparing by the proxy"):
        scorer, _, _ = load_reward_model(str(proxy))
        gap_P = pair_gaps(for_scores(scorer, CPU), rows, config.reward_model.batch)
    return Comparison(implicit_P, right(gap_P))
