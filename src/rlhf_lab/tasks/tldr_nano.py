"""`task=tldr_nano`: a generated TL;DR for the controlled experiments of arXiv:2410.18252.

Run as a module it writes rows as JSONL: python -m rlhf_lab.tasks.tldr_nano --help
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.task_options import GeneratedTask
from rlhf_lab.tasks.tldr_nano_world import (
    MAX_PROMPT,
    MAX_RESPONSE,
    Imperfection,
    facts_of,
    render_post,
    render_reference,
    score,
    vocabulary,
)
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<eos>", "<unk>")


@dataclass(frozen=True)
class TldrNano(GeneratedTask):
    """A generated post mentions seven hidden facts among other people's; its reference summary is
    imperfect."""

    name: str = limits.name("tldr_nano")
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

    def row(self, split: Split, index: int) -> Example:
        """One row: a post, its reference summary, and the facts that the judge knows."""
        facts, rng = facts_of(self.world_seed, split, index)
        post = render_post(facts, self.num_distractors, rng)
        imperfection = Imperfection(self.drop_rate, self.garble_rate)
        reference = render_reference(facts, imperfection, rng)
        return Example(f"tldr_nano/{split.value}/{index}", post, f" {reference}", facts)

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """One token a word of the closed vocabulary."""
        return word_tokenizer()

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """The gold points of a summary."""
        return score(example.hidden, text, finished)


@functools.cache
def word_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level tokenizer whose padding and end tokens differ."""
    # The process of a time-limited judge imports this module, but no tokenizer.
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
    options = parser.parse_args(arguments)
    write_jsonl(TldrNano(world_seed=options.seed), options.split, options.num, options.out)


if __name__ == "__main__":
    main()
