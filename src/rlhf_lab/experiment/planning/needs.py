"""What the stages of a config and its run take at the very least: memory, disk and rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.evaluation.options import Validate
from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import (
    has_references,
    response_tokens,
    trains_on_labels,
    trains_proxy,
)
from rlhf_lab.models.folders import weight_bytes
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.types.samples import Split

SAMPLE_BYTES = 400
ROUND_BYTES = 1_000
# Weights, their gradients and the two moments of AdamW, or the weights alone; float32.
TRAINED_BYTES = 16
KEPT_BYTES = 4


@dataclass(frozen=True)
class Need:
    """The least that something takes. keys: the options that decide it, as they are set."""

    keys: str
    what: str
    amount: float


def run_memory(config: Config) -> Iterator[Need]:
    """What a run has in memory at once."""
    run = config.run
    ahead = min(config.mode.max_staleness + 1, run.num_rounds)
    drawn = run.groups_generated * run.group_size
    keys = (
        f"run.groups_per_update={run.groups_per_update} with run.updates_per_round="
        f"{run.updates_per_round} and run.group_size={run.group_size}"
    )
    yield Need(keys, "the samples of a round", drawn * ahead * SAMPLE_BYTES)
    yield from uniform_needs(config)
    if evaluates(config):
        key, prompts = config.eval.most_prompts
        samples = prompts * config.eval.samples
        keys = f"{key}={prompts} with eval.samples={config.eval.samples}"
        yield Need(keys, "the samples of an evaluation", samples * SAMPLE_BYTES)


def stage_memory(config: Config) -> Iterator[Need]:
    """What the stages have in memory at once."""
    labels, rows = config.labels, len(config.task.examples(Split.train))
    yield Need(f"task.train_size={rows}", "the order of its prompts", 8 * rows)
    if makes_labels(config):
        keys = f"labels.pairs={labels.pairs} with labels.held_out_pairs={labels.held_out_pairs}"
        pairs = max(labels.pairs, labels.held_out_pairs)
        yield Need(keys, "the pairs", 2 * pairs * SAMPLE_BYTES)
    yield from model_needs(config)


def uniform_needs(config: Config) -> Iterator[Need]:
    """The random numbers of a chunk, which are drawn for whole responses, and once more as one;
    those of a segment where samples have one turn."""
    part, run = config.generator, config.run
    is_whole = config.task.is_episodic or not config.mode.segment_tokens
    if not part.decodes_here or not is_whole:
        return
    rows = min(part.chunk_groups, run.groups_generated) * run.group_size
    key, tokens = "task.max_response_tokens", response_tokens(config)
    key = "generator.max_new_tokens" if part.max_new_tokens else key
    keys = f"{key}={tokens} with generator.chunk_groups={part.chunk_groups}"
    yield Need(keys, "the random numbers of a chunk", 16 * rows * tokens)


def model_needs(config: Config) -> Iterator[Need]:
    """Models that are made here, and those of folders, in half precision at the least."""
    models = {"model": config.model} | ({"proxy": config.proxy} if trains_proxy(config) else {})
    for key, model in models.items():
        if isinstance(model, ScratchModel):
            each = KEPT_BYTES if model.lora_rank else TRAINED_BYTES
            keys = f"{key}.hidden_size={model.hidden_size} with {key}.num_layers={model.num_layers}"
            yield Need(keys, "its weights", each * parameters_of(config, model))
        else:
            yield Need(f"{key}.path={model.path}", "its weights", weight_bytes(model.path) / 2)


def parameters_of(config: Config, model: ScratchModel) -> int:
    """Parameters of a GPTNeoX."""
    tokenizer = config.task.tokenizer()
    vocabulary = 0 if tokenizer is None else len(tokenizer)
    return num_parameters(model, vocabulary)


def num_parameters(model: ScratchModel, vocabulary: int) -> int:
    """Embeddings, layers (attention, a mlp four times as wide, two norms) and the last norm."""
    width = model.hidden_size
    embeddings = vocabulary * width * (1 if model.tie_embeddings else 2)
    return embeddings + model.num_layers * (12 * width**2 + 13 * width) + 2 * width


def run_disk(config: Config) -> Iterator[Need]:
    """What a run's folder will hold."""
    rounds = config.run.num_rounds
    keys = f"run.updates={config.run.updates} ({rounds} rounds)"
    yield Need(keys, "the rows of its metrics", rounds * ROUND_BYTES)
    if isinstance(config.model, ScratchModel) and not config.model.lora_rank:
        weights = KEPT_BYTES * parameters_of(config, config.model)
        kept = len(config.eval.versions(rounds))
        saved = len(list(Path(config.output.dir).glob("weights/*"))) if config.output.dir else 0
        options = {"snapshots": config.eval.snapshots, "every": config.eval.every}
        keys = " ".join(f"eval.{name}={value}" for name, value in options.items() if value)
        yield Need(keys, "the kept weights", max(0, kept - saved) * weights)
        every = config.checkpoint.keep_every
        states = (rounds - 1) // every if every else 0
        # Each has one version at least, and the two moments of AdamW.
        yield Need(f"checkpoint.keep_every={every}", "the kept checkpoints", 3 * states * weights)


def run_rows(config: Config) -> Iterator[Need]:
    """What the run is trained on, all in all."""
    run = config.run
    keys = f"run.updates={run.updates} with run.groups_per_update={run.groups_per_update}"
    yield Need(keys, "its samples", run.updates * run.groups_per_update * run.group_size)


def stage_rows(config: Config) -> Iterator[Need]:
    """What the stages are trained on, all in all."""
    sft = config.sft
    if config.model.begins_by_stage and has_references(config):
        # The rows of whole epochs are there already.
        steps = 0 if sft.epochs else sft.steps
        keys = f"sft.steps={steps} with sft.batch={sft.batch}"
        yield Need(keys, "its references", steps * sft.batch)
    if trains_proxy(config):
        epochs, pairs = config.reward_model.epochs, config.labels.pairs
        keys = f"reward_model.epochs={epochs} with labels.pairs={pairs}"
        yield Need(keys, "its pairs", 2 * epochs * pairs)


def evaluates(config: Config) -> bool:
    """Whether the run's judge scores saved weights."""
    return bool(config.eval.versions(1)) or config.eval.validate is not Validate.none


def makes_labels(config: Config) -> bool:
    """Whether pairs are sampled and labelled for the run."""
    return (trains_proxy(config) or trains_on_labels(config)) and not config.labels.path
