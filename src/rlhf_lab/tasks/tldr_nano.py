"""`task=tldr_nano`: a procedurally generated TL;DR that keeps the paper's controlled experiment.

Run as a module it writes rows as JSONL: python -m rlhf_lab.tasks.tldr_nano --help
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rlhf_lab.tasks import fields, tldr_nano_judge
from rlhf_lab.tasks.lazy_rows import LazyRows
from rlhf_lab.tasks.tldr_nano_world import (
    MAX_PROMPT,
    MAX_RESPONSE,
    Imperfection,
    facts_of,
    render_post,
    render_reference,
    vocabulary,
)
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<eos>", "<unk>")


@dataclass(frozen=True)
class TldrNano(limits.Limited, key="task"):
    """A generated post mentions seven hidden facts among other people's; its reference summary is
    imperfect."""

    name: str = limits.name("tldr_nano")
    world_seed: int = fields.world_seed()
    train_size: int = fields.size(65536, "train")
    validation_size: int = fields.size(2048, "validation")
    test_size: int = fields.size(2048, "test")
    drop_rate: float = limits.share(
        0.65, about="Chance that a reference summary leaves out a minor fact."
    )
    garble_rate: float = limits.share(
        0.01, about="Chance that a reference summary states a fact wrongly."
    )
    num_distractors: int = limits.count(
        2,
        least=0,
        most=1000,
        about="Sentences about other people in a post, as far as they fit into 64 words.",
    )
    max_prompt_tokens: int = limits.count(
        MAX_PROMPT,
        least=MAX_PROMPT,
        most=limits.MOST_TOKENS,
        why="posts have up to as many as the least",
        about="Longest prompt in tokens.",
    )
    max_response_tokens: int = fields.response_tokens(MAX_RESPONSE)
    has_rule: ClassVar[bool] = True

    def examples(self, split: Split) -> Sequence[Example]:
        """Rows made on demand, the same whenever they are asked for."""
        return LazyRows(getattr(self, f"{split.value}_size"), functools.partial(row, self, split))

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """One token a word of the closed vocabulary."""
        return word_tokenizer()

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """Gold points; see tldr_nano_judge."""
        return tldr_nano_judge.score(example.hidden, text, finished)


def row(task: TldrNano, split: Split, index: int) -> Example:
    """One row of a world."""
    facts, rng = facts_of(task.world_seed, split, index)
    post = render_post(facts, task.num_distractors, rng)
    imperfection = Imperfection(task.drop_rate, task.garble_rate)
    reference = render_reference(facts, imperfection, rng)
    uid = f"tldr_nano/{split.value}/{index}"
    return Example(uid, post, f" {reference}", facts)


@functools.cache
def word_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level tokenizer whose padding and end tokens differ."""
    # Not for the judge alone, which a time limit has in a process of its own.
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate([*SPECIAL, *vocabulary()])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


def write_jsonl(task: TldrNano, split: Split, num: int, path: Path) -> None:
    """Write the first `num` rows of a split: uid, prompt, reference, hidden."""
    rows = task.examples(split)
    if num > len(rows):
        raise UserError(f"--num {num}: split {split.value} has {len(rows)} rows")
    with path.open("w", encoding="utf-8") as out:
        for index in range(num):
            row: dict[str, Any] = asdict(rows[index])
            out.write(json.dumps(row) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of the generator."""
    parser = argparse.ArgumentParser(description="Write rows of tldr_nano as JSONL.")
    parser.add_argument("--split", type=Split, choices=list(Split), default=Split.train)
    parser.add_argument("--num", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="task.world_seed")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    write_jsonl(TldrNano(world_seed=given.seed), given.split, given.num, given.out)


if __name__ == "__main__":
    main()
