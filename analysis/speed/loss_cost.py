"""Time credit and loss of each algorithm as a share of an update of nano_m.

python -m rlhf_lab_analysis.speed.loss_cost [--repeats 5] [--most 5]

An update is what the trainer does for a minibatch: reference log-probs, values where needed,
credit, forward and backward passes, and the optimizer's step. Credit and loss are timed by
themselves on the same rows and micro-batches, with the backward pass down to the log-probs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from hydra import compose, initialize_config_dir

from rlhf_lab.experiment.build import pad_id
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
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.data import Batch, PolicyOutput, ValueModel
from rlhf_lab.types.samples import Finish, Group, Sample, Split
from rlhf_lab_analysis.speed.clock import seconds_of

ALGORITHMS = classes("algo")


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


def share(config: Config, repeats: int) -> tuple[float, float]:
    """Milliseconds of credit and loss, and of the whole update."""
    model, tokenizer = load_policy(config.model, config.task.tokenizer(), config.seed)
    algo = config.algo
    kind = algo.needs.values
    values = None if kind is ValueModel.none else value_model_like(model, False)
    engine = build_engine(config, model, values)
    groups = groups_of(config, tokenizer)
    order_P = torch.arange(len(groups))

    def rows() -> Batch:
        batch = collate(groups, pad_id(tokenizer), response_tokens(config))
        batch = replace(batch, reference_logp_BT=engine.reference_logp(batch))
        return replace(batch, value_BT=engine.values(batch)) if values is not None else batch

    def credited(batch: Batch) -> Batch:
        credit = algo.credit(rewards_of(groups), batch)
        return next(iter(minibatches(batch, credit, algo.reduction, 1, order_P)))

    def update() -> None:
        engine.update(credited(rows()), algo, config.correction, 1e-6)

    batch = rows()

    def loss_alone() -> None:
        algo.credit(rewards_of(groups), batch)
        for part in parts:
            logp_BT = part.behavior_logp_BT.clone().requires_grad_()
            value_BT = part.value_BT.clone().requires_grad_()
            output = algo.loss(PolicyOutput(logp_BT, logp_BT.detach(), value_BT), part)
            output.loss.backward()

    parts = list(micro_batches(credited(batch), config.engine.micro_rows))
    loss = 1000 * median(seconds_of(loss_alone, 5 * repeats))
    return loss, 1000 * median(seconds_of(update, repeats))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if an algorithm's share is above the given one."""
    parser = argparse.ArgumentParser(description="Cost of credit and loss.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--most", type=float, default=5.0, help="percent of an update")
    given = parser.parse_args(arguments)
    register()
    torch.set_num_threads(1)
    table = []
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        for name in ALGORITHMS:
            options = ["model=nano_m", "reward=task_rule", "generator=hf", f"algo={name}"]
            config = typed(compose("config", [*options, "run.group_size=4"]))
            loss, update = share(config, given.repeats)
            table.append((name, loss, update, 100 * loss / update))
    columns = ["algorithm", "credit and loss ms", "update ms", "share %"]
    rows = [[name, f"{loss:.2f}", f"{all_:.0f}", f"{part:.2f}"] for name, loss, all_, part in table]
    Console(quiet=False).table("credit and loss, nano_m, 64 prompts of 4", columns, rows)
    return int(max(part for *_, part in table) > given.most)


if __name__ == "__main__":
    sys.exit(main())
