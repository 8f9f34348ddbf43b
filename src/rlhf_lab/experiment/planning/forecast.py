"""Whether a run fits: what it needs of memory and disk, and how long it takes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.evaluation.options import Validate
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.derived import (
    has_references,
    response_tokens,
    trains_on_labels,
    trains_proxy,
)
from rlhf_lab.models.adapters import num_trained
from rlhf_lab.models.folders import weight_bytes
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.training.engines.ranks import world_size
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split

SAMPLE_BYTES = 400
ROUND_BYTES = 1_000
# Weights, their gradients and the two moments of AdamW, or the weights alone; float32.
TRAINED_BYTES = 16
KEPT_BYTES = 4
ROWS_PER_SECOND = 1e6
YEAR = 365 * 86_400
MOST_YEARS = 100
# Bytes above which a run reports what it will write.
MUCH_DISK = 1e9
# Bytes of a number that is trained.
FLOAT = 4


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


@dataclass(frozen=True)
class Machine:
    """Bytes of memory, those of devices among them, and of free disk."""

    memory: int
    disk: int


def this_machine(config: Config) -> Machine:
    """What there is here. Of the other nodes of a run, each is taken to have as much."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + swap()
    if torch.cuda.is_available():
        for device in range(torch.cuda.device_count()):
            memory += torch.cuda.get_device_properties(device).total_memory
    root = Path(config.output.dir or config.output.root).absolute()
    there = next(path for path in (root, *root.parents) if path.is_dir())
    disk = shutil.disk_usage(there)
    # A file system of the kernel's own has no size; whether it can be written to is seen later.
    return Machine(memory * world_size(), disk.free if disk.total else sys.maxsize)


def swap() -> int:
    """Bytes of swap, 0 where the system does not show them."""
    path = Path("/proc/meminfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("SwapTotal:"))


def require_room(config: Config, is_run: bool, machine: Machine | None = None) -> None:
    """Refuse what cannot come to its end here, however long it is given: the stages of a config,
    and the run itself if it is one."""
    machine = machine or this_machine(config)
    memory = [*stage_memory(config), *(run_memory(config) if is_run else ())]
    for need in memory:
        refuse(need, "memory", machine.memory, f"this machine has {size(machine.memory)}")
    for need in run_disk(config) if is_run else ():
        refuse(need, "disk", machine.disk, f"{size(machine.disk)} are free below output.root")
    for need in [*stage_rows(config), *(run_rows(config) if is_run else ())]:
        years = need.amount / ROWS_PER_SECOND / YEAR
        if years > MOST_YEARS:
            raise UserError(
                f"{need.keys}: {need.what} are {need.amount:.0e} rows, at least {years:.0e} years "
                "at a million rows a second: lower them"
            )


def refuse(need: Need, of: str, there: int, but: str) -> None:
    """Raise UserError for a need that is more than there is."""
    if need.amount > there:
        raise UserError(
            f"{need.keys}: {need.what} take at least {size(need.amount)} of {of}, and {but}: lower "
            "them"
        )


def size(number: float) -> str:
    """Bytes in words: `24 GB`."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} EB"


def kept_weights(config: Config, model: Any) -> str:
    """What a run will leave on the disk, where that is much; "" elsewhere. model: its policy."""
    parameters = list(model.parameters())
    trained, each = sum(p.numel() for p in parameters), sum(p.nbytes for p in parameters)
    what = "policy"
    if config.model.lora_rank:
        trained = num_trained(model, config.model.lora)
        what, each = "adapters", FLOAT * trained
    copies = len(config.eval.versions(config.run.num_rounds)) + 1
    weights = copies * each
    if weights < MUCH_DISK:
        return ""
    # The weights that AdamW changes, and its two moments.
    state = 3 * FLOAT * trained
    more = f", and its checkpoint {size(state)}" if config.checkpoint.name != "none" else ""
    return (
        f"the run will hold {copies} copies of the {what}, {size(weights)}, the last one and those "
        f"of eval.snapshots={config.eval.snapshots} and eval.every={config.eval.every}{more}"
    )


def few_prompts(config: Config) -> str:
    """That an evaluation takes fewer prompts than its option, since its split has no more; "" if
    there are enough."""
    if not evaluates(config):
        return ""
    there = len(config.task.examples(config.eval.split))
    key, prompts = config.eval.most_prompts
    if prompts <= there:
        return ""
    return (
        f"{key}={prompts}: split {config.eval.split.value} of task={config.task.name} has {there} "
        "rows, and all of them are judged"
    )
