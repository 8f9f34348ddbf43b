"""The label stage: pairs of samples that the judge orders, or pairs of the user's."""

from __future__ import annotations

import itertools
import json
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.build.evaluator import build_generator, build_reward
from rlhf_lab.experiment.build.prompts import build_prompts, examples_of
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.models.borders import longest_row
from rlhf_lab.models.causal_lm import load_tokenizer
from rlhf_lab.models.options import PretrainedModel, ScratchModel
from rlhf_lab.rewards.options import parts, scorers
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.pair_sources import GivenPairs, PairRows
from rlhf_lab.tasks.pairs import PARTS, SIDES, with_tokens
from rlhf_lab.tasks.tables import JsonLines, RequiredFields
from rlhf_lab.training.stages.labels import sample_pairs, write_labels
from rlhf_lab.training.stages.relabel import known_examples, write_relabelled
from rlhf_lab.training.stages.scored_rows import cut_pair, tokens_of
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split
from rlhf_lab.types.text_frame import TextFrame

Row = dict[str, Any]
TOKENS = tuple(f"{part}_tokens" for part in PARTS)
CHUNK_GROUPS = 256


class PackedPairs(Sequence[Row]):
    """Rows of pairs as tokens, without their texts, in four bytes a token."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._tokens = array("i")
        # The end of each part's tokens, three to a row.
        self._ends = array("Q", [0])
        self._facts: list[Row] = []
        without = {*PARTS, *TOKENS, "prompt_messages"}
        for row in rows:
            for name in TOKENS:
                self._tokens.extend(row[name])
                self._ends.append(len(self._tokens))
            self._facts.append({key: value for key, value in row.items() if key not in without})

    def __len__(self) -> int:
        return len(self._facts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._row(number) for number in range(*index.indices(len(self)))]
        return self._row(range(len(self))[index])

    def _row(self, number: int) -> Row:
        ends = self._ends[len(TOKENS) * number : len(TOKENS) * (number + 1) + 1]
        places = itertools.pairwise(ends)
        tokens = (self._tokens[first:last].tolist() for first, last in places)
        return self._facts[number] | dict(zip(TOKENS, tokens, strict=True))


def as_read(rows: Iterable[Row], start: tuple[Any, Any], config: Config) -> PackedPairs:
    """The pairs as tokens of a proxy, cut at its lengths. start: its model and tokenizer."""
    model, tokenizer = start
    ends, options, path = TextFrame(tokenizer).ends, config.reward_model, config.labels.path
    if not path:
        return PackedPairs(cut_pair(row, ends, options) for row in rows)
    form = config.task.chat_form
    read = (cut_pair(with_tokens(row, tokenizer, form), ends, options) for row in rows)
    return PackedPairs(within_context(row, model, path) for row in read)


def within_context(row: dict[str, Any], model: Any, path: str) -> dict[str, Any]:
    """The row, refused if the reward model cannot read it whole."""
    context = longest_row(model.config)
    longest = max(len(tokens_of(row, side)) for side in SIDES)
    if context is not None and longest > context:
        raise UserError(
            f"labels.path={path}: the pair of the prompt {row['prompt'][:60]!r} has {longest} "
            f"tokens, more than the reward model's context of {context}: shorten or delete the row"
        )
    return row


def read_pairs(path: Path) -> Sequence[Row]:
    """The labelled pairs of an artifact that `cached` has verified, each read when it is needed
    for."""
    return JsonLines(path, RequiredFields((), key="labels"))


def require_one_vocabulary(
    config: Config, policy: Callable[[ScratchModel | PretrainedModel], PretrainedModel], own: Any
) -> None:
    """Raises UserError if tokens of the policy are others for the proxy, whose tokenizer is `own`.
    policy: gives the folder of a model."""
    drawn, read = policy(config.model), policy(config.proxy)
    if (drawn.path, drawn.revision) == (read.path, read.revision):
        return
    if load_tokenizer(drawn, None).get_vocab() != own.get_vocab():
        raise UserError(
            f"proxy={config.proxy.name} and model={config.model.name} have different "
            "vocabularies: the pairs are stored as tokens of the policy; choose model@proxy of the "
            "same family"
        )


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
