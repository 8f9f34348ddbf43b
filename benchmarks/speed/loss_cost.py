"""Time credit and loss, corrections and the replay buffer as shares of an update of nano_m.

python -m benchmarks.speed.loss_cost [--repeats 5] [--most 5] [--model nano_m]
      [--only PART ...]

An update is what the trainer does for a minibatch: reference log-probs, values where needed,
credit, forward and backward passes, and the optimizer's step. Credit and loss are timed by
themselves on the same rows and micro-batches, with the backward pass down to the log-probs.
Corrections are timed without the forward passes that read log-probs for them, and the replay
buffer with one update a round, so that its share is the largest that a run can have.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from torch import Tensor

from benchmarks.speed.clock import seconds_of
from rlhf_lab.algos.off_policy import corrected, fitted, is_anchored, split_terms
from rlhf_lab.experiment.build_engine import build_engine
from rlhf_lab.experiment.build_prompts import build_prompts
from rlhf_lab.experiment.config import Config, typed
from rlhf_lab.experiment.config_schema import register
from rlhf_lab.experiment.derived import response_tokens
from rlhf_lab.experiment.registry import classes, conf_folder
from rlhf_lab.models.batching import collate, minibatches, rewards_of
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.microbatches import micro_batches
from rlhf_lab.models.value_model import value_model_like
from rlhf_lab.rollout.chunk_states import RoundRollouts
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.replay import ReplayBuffer
from rlhf_lab.training.writers import read_by_writers, token_versions
from rlhf_lab.types.data import Batch, PolicyOutput, ValueModel
from rlhf_lab.types.protocols import Interpolating, Splitting
from rlhf_lab.types.rollouts import Chunk, Rollout
from rlhf_lab.types.run_options import ReplayChoice
from rlhf_lab.types.samples import Finish, Group, Sample, Split
from rlhf_lab.types.text_frame import TextFrame


def groups_of(config: Config, tokenizer: Any) -> list[Group]:
    """Random responses of full length with random log-probs and rewards to real prompts."""
    stream = build_prompts(config, tokenizer, Split.train, "bench")
    rng = torch.Generator().manual_seed(1)
    shape = (config.run.group_size, response_tokens(config))
    found = []
    for place in range(config.run.groups_per_update):
        tokens = torch.randint(5, 50, shape, generator=rng).tolist()
        logps = (-torch.rand(shape, generator=rng)).tolist()
        samples = tuple(
            Sample(tuple(row), tuple(logp), 0, Finish.eos, "")
            for row, logp in zip(tokens, logps, strict=True)
        )
        rewards = tuple(torch.randn(shape[0], generator=rng).tolist())
        found.append(Group(stream[place], samples, rewards))
    return found


@dataclass
class Round:
    """One round of one update of random rows, and the engine that makes it."""

    config: Config

    def __post_init__(self) -> None:
        config = self.config
        model, self.tokenizer = load_policy(config.model, config.task.tokenizer(), config.seed)
        self.has_values = config.algo.needs.values is not ValueModel.none
        values = value_model_like(model, False) if self.has_values else None
        self.engine = build_engine(config, model, values)
        self.weights = self.engine.weights(version=0)
        self.groups = groups_of(config, self.tokenizer)
        self.rows = self._read()
        self.parts = list(micro_batches(self._credited(self.rows), config.engine.micro_rows))

    def _read(self) -> Batch:
        batch = collate(self.groups, TextFrame(self.tokenizer).pad, response_tokens(self.config))
        batch = replace(batch, reference_logp_BT=self.engine.reference_logp(batch))
        if is_anchored(self.config.algo, self.config.correction):
            batch = replace(batch, proximal_logp_BT=self.engine.logp(batch, self.weights))
        return replace(batch, value_BT=self.engine.values(batch)) if self.has_values else batch

    def _credited(self, batch: Batch) -> Batch:
        algo = self.config.algo
        credit = algo.credit(rewards_of(self.groups), batch)
        return next(iter(minibatches(batch, credit, algo.reduction, 1, self.order_P)))

    @property
    def order_P(self) -> Tensor:
        return torch.arange(len(self.groups))

    def update(self) -> None:
        """All of an update but the replay buffer and a correction's own reading of writers."""
        self.engine.update(
            self._credited(self._read()), self.config.algo, self.config.correction, 1e-6
        )

    def credit_and_loss(self) -> None:
        """Both, and the loss's gradient with respect to log-probs and values."""
        self.config.algo.credit(rewards_of(self.groups), self.rows)
        for part in self.parts:
            logp_BT = part.behavior_logp_BT.clone().requires_grad_()
            value_BT = part.value_BT.clone().requires_grad_()
            output = self.config.algo.loss(PolicyOutput(logp_BT, logp_BT.detach(), value_BT), part)
            output.loss.backward()

    def correct(self) -> None:
        """A correction's weights and measures, and what it reads of versions and lags. Rows of one
        version are read by `known`, so that no forward pass is timed."""
        algo, correction = self.config.algo, self.config.correction
        if isinstance(correction, Interpolating):
            token_versions(self.groups)
        if isinstance(correction, Splitting):
            known = {0: self.rows.proximal_logp_BT}
            read_by_writers(self.engine.logp, lambda _: self.weights, self.groups, self.rows, known)
        correction = fitted(self.rows, correction)
        for part in self.parts:
            logp_BT = part.behavior_logp_BT
            part, _ = corrected(logp_BT, part, algo, correction)
            split_terms(logp_BT, part, algo, correction)

    def fill_buffer(self) -> Callable[[], None]:
        """One round's drawing from a full replay buffer, and the storing of its fresh groups."""
        options = self.config.run
        buffer = ReplayBuffer(options, self.config.seed)
        fresh = self.groups[: options.groups_fresh]
        rollouts = RoundRollouts(
            [Rollout(Chunk(0, 0, (), 4), tuple(fresh), ((0, 0),), {})],
            [],
            [{"chunk": 0, "dropped": False}],
        )
        for round_ in range(options.buffer_rounds):
            buffer.store(round_, rollouts, fresh)
        last = iter(range(options.buffer_rounds, 10**9))

        def one_round() -> None:
            round_ = next(last)
            buffer.draw(round_)
            buffer.store(round_, rollouts, fresh)

        return one_round


PARTS: Mapping[str, Callable[[Round], Callable[[], None]]] = {
    "credit and loss": lambda round_: round_.credit_and_loss,
    "correction": lambda round_: round_.correct,
    "replay buffer": Round.fill_buffer,
}


# Random rows are far from the reference, and no row of such a group would be trained on.
MORE = {"crraft": ("algo.kl_max=1000",)}


def cases() -> Iterator[tuple[str, str, list[str]]]:
    """The part that is timed, the name of its row, and the options of its run."""
    for name in classes("algo"):
        yield "credit and loss", name, [f"algo={name}", *MORE.get(name, ())]
    for name in classes("correction"):
        yield "correction", name, ["algo=grpo", f"correction={name}"]
    for choice in ReplayChoice:
        replay = [f"run.replay={choice.value}", "run.buffer_rounds=8", "run.fresh_share=0.25"]
        yield "replay buffer", choice.value, ["algo=grpo", *replay]


def milliseconds(part: str, config: Config, repeats: int) -> tuple[float, float]:
    """Of the part, and of an update as a whole."""
    round_ = Round(config)
    alone = 1000 * median(seconds_of(PARTS[part](round_), 5 * repeats))
    return alone, 1000 * median(seconds_of(round_.update, repeats))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if the share of any part is above the given one."""
    parser = argparse.ArgumentParser(description="Cost of credit, losses, corrections and replay.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--most", type=float, default=5.0, help="percent of an update")
    parser.add_argument("--model", default="nano_m")
    parser.add_argument("--only", choices=list(PARTS), nargs="+", default=list(PARTS))
    given = parser.parse_args(arguments)
    register()
    torch.set_num_threads(1)
    rows, most = [], 0.0
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        for part, name, options in cases():
            if part not in given.only:
                continue
            shared = [f"model={given.model}", "reward=task_rule", "generator=hf"]
            config = typed(compose("config", [*shared, *options, "run.group_size=4"]))
            alone, update = milliseconds(part, config, given.repeats)
            share = 100 * alone / update
            most = max(most, share)
            rows.append([part, name, f"{alone:.2f}", f"{update:.0f}", f"{share:.2f}"])
    columns = ["part", "option", "ms", "update ms", "share %"]
    Console(quiet=False).table(f"parts of an update, {given.model}, 64 prompts of 4", columns, rows)
    return int(most > given.most)


if __name__ == "__main__":
    sys.exit(main())
