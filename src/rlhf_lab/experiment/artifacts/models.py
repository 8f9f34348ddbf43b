"""The stages that train models: SFT, reward models, and models of steps."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.experiment.build.engine import stage_engine
from rlhf_lab.experiment.build.prompts import (
    build_prompts,
    prompt_reader,
    stream_of,
)
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.derived import sft_response_tokens, sft_tokens
from rlhf_lab.experiment.rules.models import check_context, require_references
from rlhf_lab.models.causal_lm import load_policy, save_policy
from rlhf_lab.models.devices import chosen, torch_threads
from rlhf_lab.models.options import PretrainedModel, ScratchModel
from rlhf_lab.models.reward_model import (
    for_scores,
    load_reward_model,
    reward_model_from,
    save_reward_model,
)
from rlhf_lab.models.weights import meta_model, with_parameters
from rlhf_lab.rollout.generators.environment_calls import EnvironmentCalls
from rlhf_lab.rollout.generators.open_episode import episode_limits
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.prompts import PromptStream, fit
from rlhf_lab.tasks.references import LongReferences, reference_form, reference_sample
from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
from rlhf_lab.training.stages.demonstrations import Demonstrations
from rlhf_lab.training.stages.options import SFTOptions
from rlhf_lab.training.stages.reward_model import pair_gaps, train_reward_model, write_calibration
from rlhf_lab.training.stages.scored_rows import ScoreNetwork, strength_metrics, vote
from rlhf_lab.training.stages.step_labels import LabelledSteps, labelled_steps, step_rows
from rlhf_lab.training.stages.step_reward_model import train_step_reward_model
from rlhf_lab.training.stages.supervised import Answers, StageReferences, train_sft
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Prompt, Split

STRENGTH = "strength.json"
HELD_OUT_PROMPTS = 256
REFERENCES = 512
Pair = dict[str, Any]


def make_sft(
    config: Config, console: Console, model: ScratchModel | PretrainedModel, folder: Path
) -> dict[str, float]:
    """A policy that is fine-tuned on references, as a folder that transformers loads."""
    require_references(config, "SFT")
    with console.phase(f"loading the weights of {model.name}"):
        policy, tokenizer = load_policy(model, config.task.tokenizer(), config.seed)
    check_context(config, policy, sft_tokens(config))
    options = config.sft.for_model(model.is_pretrained)
    shape, by = meta_model(policy), stage_engine(config, options)
    answers = answers_of(config, tokenizer, options)
    train = sft_prompts(config, console, tokenizer, Split.train, answers)
    held_out = sft_prompts(config, console, tokenizer, Split.validation, answers, shuffle=False)
    num = min(HELD_OUT_PROMPTS, len(held_out))
    with (
        console.stage(f"sft {model.name}", total=options.num_steps(len(train))) as bar,
        by.led(PolicyWithValues(policy, None, temperature=1.0)) as engine,
    ):
        metrics, weights = train_sft(
            engine,
            tokenizer,
            train,
            [held_out[index] for index in range(num)],
            answers,
            options,
            bar,
        )
    with console.phase("saving the SFT policy"):
        save_policy(with_parameters(shape, weights.state), tokenizer, folder)
    if isinstance(answers, StageReferences) and answers.note:
        console.print(answers.note)
    return metrics


def sft_prompts(
    config: Config,
    console: Console,
    tokenizer: Any,
    split: Split,
    answers: Answers,
    shuffle: bool = True,
) -> PromptStream:
    """The prompts of a split that SFT reads: with task.long_references=left_out, those whose
    references need not be cut."""
    examples = config.task.examples(split)
    if isinstance(answers, StageReferences) and answers.form.long is LongReferences.left_out:
        read, shorten = prompt_reader(config.task, tokenizer), config.task.shorter
        fitted = (fit(one, read, shorten, config.task.max_prompt_tokens) for one in examples)
        kept = [one for one, tokens in fitted if answers.fits(Prompt(0, tokens, one))]
        if not kept:
            raise UserError(
                f"task.long_references=left_out leaves out all {len(examples):,} rows of {split}: "
                "raise task.max_response_tokens or sft.max_response_tokens"
            )
        if len(kept) < len(examples):
            num = len(examples) - len(kept)
            console.print(
                f"sft: {num:,} of {len(examples):,} rows of {split} are left out, their references "
                "are too long (task.long_references=left_out)"
            )
        examples = kept
    return stream_of(examples, config, tokenizer, "sft", shuffle)


def answers_of(config: Config, tokenizer: Any, options: SFTOptions) -> Answers:
    """What SFT learns: reference answers, or demonstrations of episodes."""
    limit = sft_response_tokens(config)
    if not config.task.is_episodic:
        return StageReferences(tokenizer, limit, options, reference_form(config.task))
    seed = functools.partial(stable_hash, config.seed, "environment", "sft")
    limits = episode_limits(config.task, limit)
    calls = EnvironmentCalls(config.episodes)
    return Demonstrations(config.task, tokenizer, limits, seed, calls).groups


def make_initial(config: Config, model: ScratchModel, folder: Path) -> dict[str, float]:
    """A policy of random weights, as a folder that transformers loads."""
    policy, tokenizer = load_policy(model, config.task.tokenizer(), config.seed)
    check_context(config, policy)
    save_policy(policy, tokenizer, folder)
    return {}


def make_reward_model(
    config: Config,
    console: Console,
    member: int,
    start: tuple[Any, Any],
    pairs: tuple[Sequence[Pair], Sequence[Pair]],
    strength_P: torch.Tensor | None,
    folder: Path,
) -> dict[str, float]:
    """A proxy. start: model and tokenizer that it begins as. pairs: to train on, and held out.
    strength_P: how strongly voters prefer the chosen answers."""
    require_references(config, "a proxy")
    options = config.reward_model.for_model(config.proxy.is_pretrained)
    (policy, tokenizer), (train, held_out) = start, pairs
    seed = stable_hash(config.seed, "member", member) & (2**63 - 1) if member else config.seed
    model = reward_model_from(policy, seed, options.head_std)
    shape, by = meta_model(model), stage_engine(config, options)
    stream = build_prompts(config, tokenizer, Split.train, "reward_model")
    form = reference_form(config.task)
    limit = sft_response_tokens(config)
    references = [
        [*stream[index].tokens, *reference_sample(stream[index], tokenizer, limit, form).tokens]
        for index in range(REFERENCES)
    ]
    num_trained = len(train) - int(options.drop_share * len(train))
    steps = num_trained // options.batch * options.epochs
    title = f"reward model {config.proxy.name}" + (f" {member + 1}" if member else "")
    with (
        console.stage(title, total=steps) as bar,
        by.led(ScoreNetwork(model)) as engine,
    ):
        trained = train_reward_model(
            engine, train, held_out, references, options, seed, bar, strength_P
        )
    whole = with_parameters(shape, trained.weights.state)
    offset = trained.offset if options.normalize else 0.0
    save_reward_model(whole, tokenizer, folder, offset)
    write_calibration(folder, trained.bins)
    return trained.metrics | {"offset": offset}


def make_strength(
    config: Config, voters: Sequence[Path], pairs: Sequence[Pair], folder: Path
) -> dict[str, float]:
    """How strongly the voters prefer the chosen answer of each pair: mean and std over them."""
    options = config.reward_model
    device = chosen(config.engine.device, "engine.device")
    models = (for_scores(load_reward_model(str(voter))[0], device) for voter in voters)
    with torch_threads(options.threads):
        gaps = [pair_gaps(model, pairs, options.batch).cpu() for model in models]
    gap_MP = torch.stack(gaps)
    mean_P, std_P = vote(gap_MP)
    strength = {"mean": mean_P.tolist(), "std": std_P.tolist()}
    (folder / STRENGTH).write_text(json.dumps(strength), encoding="utf-8")
    return strength_metrics(pairs, mean_P) | {"strength_std": float(std_P.mean())}


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
