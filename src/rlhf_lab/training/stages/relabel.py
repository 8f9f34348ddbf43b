"""Fixed preference pairs put in the order of a judge: step 2 of the paper (arXiv:2410.18252)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.tasks.pairs import SIDES, row_messages, swap_sides, with_tokens
from rlhf_lab.tasks.tables import NoSuchFile
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.training.stages.labels import pair_scores
from rlhf_lab.training.stages.supervised import Bar
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample, Split

Row = dict[str, Any]


def known_examples(
    task: Task,
    rows: Iterable[Mapping[str, Any]],
    is_rule: bool,
    read: Callable[[Split], Sequence[Example]],
) -> dict[str, Example]:
    """The task's own examples of the prompts in these rows. is_rule: the task's rule judges, which
    knows no others: then raises UserError if one is not there. read: gives the examples of a split.

    A generated split is searched row by row, and no further than needed.
    """
    wanted = {row["prompt"] for row in rows}
    found: dict[str, Example] = {}
    for example in examples_in(read):
        if example.prompt in wanted:
            found[example.prompt] = example
            if len(found) == len(wanted):
                return found
    if is_rule:
        missing = sorted(wanted - found.keys())
        raise UserError(
            f"judge=task_rule: the prompt {missing[0][:60]!r} and {len(missing) - 1} others are "
            f"no prompts of task={task.name}, whose rule knows only its own: pass "
            "reward@judge=reward_model judge.path=<folder>"
        )
    return found


def examples_in(read: Callable[[Split], Sequence[Example]]) -> Iterator[Example]:
    """The examples of all splits; a set need not have others than train."""
    for split in Split:
        try:
            examples = read(split)
        except NoSuchFile:
            if split is Split.train:
                raise
            continue
        yield from examples


def write_relabelled(
    path: Path,
    rows: Sequence[Row],
    judge: Reward,
    tokenizer: Any | None,
    examples: Mapping[str, Example],
    bar: Bar,
) -> dict[str, float]:
    """Write every pair with both scores, the better first; a tie keeps its order and is counted. A
    pair that the judge could not score is left out and counted.

    agreement: share of scored pairs whose chosen answer the judge scores strictly higher.
    examples: by prompt, what a judge that knows the task needs to know; of other prompts it is
    shown the pair's own.
    """
    agreed = ties = scored = 0
    with path.open("w", encoding="utf-8") as out:
        for start in range(0, len(rows), 256):
            chunk = [rows[index] for index in range(start, min(start + 256, len(rows)))]
            groups = [as_group(row, tokenizer, examples) for row in chunk]
            for row, scores in zip(chunk, pair_scores(judge, groups), strict=True):
                if not scores:
                    continue
                chosen, rejected = scores
                scored += 1
                agreed += chosen > rejected
                ties += chosen == rejected
                out.write(json.dumps(ordered(row, chosen, rejected)) + "\n")
            bar.advance(len(chunk))
    if not scored:
        raise RuntimeError(f"the judge could score none of {len(rows)} pairs: none is in order")
    return {
        "pairs": float(scored),
        "agreement": agreed / scored,
        "ties": ties / scored,
        "swapped": (scored - agreed - ties) / scored,
        "unscored": (len(rows) - scored) / len(rows),
    }


def as_group(row: Row, tokenizer: Any | None, examples: Mapping[str, Example]) -> Group:
    """Both answers as if they were samples. Without a tokenizer they are text alone."""
    read = row if tokenizer is None else with_tokens(row, tokenizer)
    messages = row_messages(row, row["prompt"])
    plain = Example("", row["prompt"], row["chosen"], messages=messages)
    example = examples.get(row["prompt"], plain)
    samples = tuple(
        Sample(
            tokens := () if tokenizer is None else tuple(read[f"{side}_tokens"]),
            (0.0,) * len(tokens),
            0,
            Finish.eos if row.get(f"{side}_finished", True) else Finish.length,
            row[side] if tokenizer is not None else row[side].strip(),
        )
        for side in SIDES
    )
    tokens = () if tokenizer is None else tuple(read["prompt_tokens"])
    return Group(Prompt(0, tokens, example), samples)


def ordered(row: Row, chosen: float, rejected: float) -> Row:
    """The pair with its scores, sides exchanged where the judge likes the rejected one better."""
    scored = {**row, "chosen_gold": chosen, "rejected_gold": rejected}
    if chosen >= rejected:
        return {**scored, "is_swapped": False}
    return {**swap_sides(scored), "is_swapped": True}
