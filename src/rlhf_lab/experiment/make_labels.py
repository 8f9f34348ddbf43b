"""The files of labelled pairs: sampled and judged, copied from the user's, or judged anew."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.build import build_generator, build_reward
from rlhf_lab.experiment.build_prompts import build_prompts, examples_of
from rlhf_lab.experiment.config import Config
from rlhf_lab.models.causal_lm import load_tokenizer
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.rewards.options import parts, scorers
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.pair_sources import GivenPairs, PairRows
from rlhf_lab.training.stages.labels import sample_pairs, write_labels
from rlhf_lab.training.stages.relabel import known_examples, write_relabelled
from rlhf_lab.types.data import Weights
from rlhf_lab.types.samples import Split

CHUNK_GROUPS = 256


def make_labels(
    config: Config, console: Console, model: Any, tokenizer: Any, folder: Path
) -> dict[str, float]:
    """Two samples of the policy for every prompt, in the order of the judge."""
    options = config.labels
    sampling = replace(config.generator, threads=options.threads)
    generator = build_generator(
        replace(config, generator=sampling), model, tokenizer, "labels", options.temperature
    )
    judge = build_reward("judge", config, tokenizer, (), options.threads)
    weights = Weights(0, dict(model.named_parameters()))
    metrics: dict[str, float] = {}
    total = options.pairs + options.held_out_pairs
    with console.stage("label", total=total) as bar:
        for name, split, num in (
            ("train", Split.train, options.pairs),
            ("held_out", Split.validation, options.held_out_pairs),
        ):
            stream = build_prompts(config, tokenizer, split, "labels")
            prompts = [stream[index] for index in range(num)]
            groups = sample_pairs(generator, weights, prompts, CHUNK_GROUPS, bar)
            path = folder / f"{name}.jsonl"
            measured = write_labels(path, groups, judge, options, config.seed)
            metrics |= {f"{name}_{key}": value for key, value in measured.items()}
    return metrics


def copy_labels(pairs: GivenPairs, console: Console, folder: Path) -> dict[str, float]:
    """The user's labels in the form of the stage, without ties, which are counted."""
    metrics = {}
    for name, rows in pairs.parts():
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
        metrics[f"{name}_pairs"] = float(len(rows))
        if rows.num_ties:
            console.print(ties_note(rows))
            metrics[f"{name}_ties"] = rows.num_ties / (len(rows) + rows.num_ties)
    return metrics


def ties_note(rows: PairRows) -> str:
    """What is printed of pairs that are ties."""
    num = rows.num_ties
    return (
        f"{num:,} of {len(rows) + num:,} pairs of {rows.table.source} are left out: their answers "
        "are equal"
    )


def make_relabelled(
    config: Config, console: Console, pairs: GivenPairs, folder: Path
) -> dict[str, float]:
    """The user's pairs in the order of the judge."""
    tokenizer, examples = None, {}
    if models := scorers("judge", config.judge, ()):
        words, key = models[0].vocabulary
        tokenizer = load_tokenizer(PretrainedModel("judge", words), None, key)
    if any(part.reads_example for part in parts(config.judge)):
        is_rule = any(part.is_rule for part in parts(config.judge))
        every = itertools.chain(pairs.train, pairs.held_out)
        examples = known_examples(config.task, every, is_rule, partial(examples_of, config))
    judge = build_reward("judge", config, tokenizer, (), config.labels.threads)
    metrics: dict[str, float] = {}
    total = len(pairs.train) + len(pairs.held_out)
    with console.stage("relabel", total=total) as bar:
        for name, rows in pairs.parts():
            path = folder / f"{name}.jsonl"
            measured = write_relabelled(path, rows, judge, tokenizer, examples, bar)
            if rows.num_ties:
                console.print(ties_note(rows))
            metrics |= {f"{name}_{key}": value for key, value in measured.items()}
    return metrics
