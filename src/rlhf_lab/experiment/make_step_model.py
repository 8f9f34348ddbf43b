"""The process reward model that a stage trains, as a folder for `reward=steps`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlhf_lab.experiment.build_stage import stage_engine
from rlhf_lab.experiment.checks_models import check_context
from rlhf_lab.experiment.config import Config
from rlhf_lab.models.reward_model import reward_model_from, save_reward_model
from rlhf_lab.models.weights import meta_model, with_parameters
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.stages.scored_rows import ScoreNetwork
from rlhf_lab.training.stages.step_labels import LabelledSteps, labelled_steps, step_rows
from rlhf_lab.training.stages.step_reward_model import train_step_reward_model
from rlhf_lab.types.errors import UserError


def make_step_model(
    config: Config, console: Console, start: tuple[Any, Any], folder: Path
) -> dict[str, float]:
    """start: model and tokenizer that it begins as."""
    options = config.reward_model.for_model(config.proxy.is_pretrained)
    policy, tokenizer = start
    rows, held_out = labelled_rows(config, tokenizer)
    check_context(config, policy, max(len(row.tokens) for row in (*rows, *held_out)))
    model = reward_model_from(policy, config.seed, options.head_std)
    shape, by = meta_model(model), stage_engine(config, options)
    steps = len(rows) // options.batch * options.epochs
    with (
        console.stage(f"step reward model {config.proxy.name}", total=steps) as bar,
        by.led(ScoreNetwork(model, scores_all=True)) as engine,
    ):
        metrics, weights = train_step_reward_model(
            engine, rows, held_out, options, config.seed, bar
        )
    save_reward_model(with_parameters(shape, weights.state), tokenizer, folder, offset=0.0)
    return metrics


def labelled_rows(
    config: Config, tokenizer: Any
) -> tuple[list[LabelledSteps], list[LabelledSteps]]:
    """The rows to train on, and the last ones of the file, which are held out."""
    options = config.reward_model
    rows = [
        labelled_steps(row, name, tokenizer, options.step_mark)
        for name, row in step_rows(Path(options.steps))
    ]
    held_out = round(options.held_out_steps * len(rows))
    if not 0 < held_out < len(rows):
        raise UserError(
            f"reward_model.held_out_steps={options.held_out_steps} of the {len(rows)} rows of "
            f"reward_model.steps={options.steps} leaves none to train on, or none to judge by: "
            "change the share, or add rows"
        )
    return rows[:-held_out], rows[-held_out:]
