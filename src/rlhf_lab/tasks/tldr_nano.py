"""`task=tldr_nano`: a generated TL;DR for the controlled experiments of arXiv:2410.18252.

Run as a module it writes rows as JSONL: python -m rlhf_lab.tasks.tldr_nano --help
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.task_options import GeneratedTask
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


Facts = dict[str, str]

SLOTS: dict[str, tuple[str, ...]] = {
    "who": tuple(
        "sister brother mother father cousin uncle aunt grandma grandpa wife husband girlfriend "
        "boyfriend roommate neighbor landlord boss coworker teacher coach dentist barber tutor "
        "plumber banker driver waiter client intern mentor".split()
    ),
    "event": tuple(
        "broke lost sold stole hid burned borrowed returned painted bought found ruined cleaned "
        "repaired dropped locked kicked traded moved mailed copied washed wrecked scratched "
        "smashed wrapped opened tested".split()
    ),
    "object": tuple(
        "bike phone car laptop guitar camera watch wallet jacket couch lamp table mirror piano "
        "tent kayak drone tablet printer blender toaster oven ladder hammer violin helmet "
        "backpack suitcase necklace ring vase painting carpet telescope".split()
    ),
    "place": tuple(
        "kitchen office park garage library gym cafe airport hotel beach school church museum "
        "market station hospital theater basement attic garden bakery pharmacy stadium harbor "
        "farm castle".split()
    ),
    "time": tuple(
        "yesterday today monday tuesday wednesday thursday friday saturday sunday recently "
        "january april june august october december".split()
    ),
    "feeling": tuple(
        "angry sad confused happy worried scared jealous guilty proud tired bored hurt lonely "
        "anxious furious relieved ashamed grateful nervous hopeful".split()
    ),
    "ask": tuple(
        "apologize leave complain wait forgive sue move quit laugh talk pay write argue ignore "
        "confess celebrate cry vent fight smile".split()
    ),
}

# Points of the judge for each fact; the first three facts are the core of a story.
IMPORTANCE: dict[str, float] = {
    "who": 1.0,
    "event": 1.0,
    "object": 1.0,
    "place": 0.6,
    "time": 0.4,
    "feeling": 0.6,
    "ask": 0.8,
}
CORE = ("who", "event", "object")

SUBREDDITS = ("r/relationships", "r/advice", "r/family", "r/work", "r/stories")

# Sentences of a post by the facts that they state, in the first person.
SENTENCES: dict[str, tuple[str, ...]] = {
    "core": (
        "my {who} {event} my {object} .",
        "so my {who} went and {event} my {object} .",
        "my {who} just {event} my {object} again .",
    ),
    "place": (
        "it happened in the {place} .",
        "we were at the {place} then .",
        "all of this was near the {place} .",
    ),
    "time": ("it was {time} .", "this was on {time} .", "that was {time} i think ."),
    "feeling": ("i am so {feeling} .", "now i feel {feeling} .", "honestly i am {feeling} now ."),
    "ask": ("should i {ask} ?", "do you think i should {ask} ?", "is it ok to {ask} ?"),
}
DISTRACTORS = (
    "his {who} {event} her {object} .",
    "her {who} was at his {place} .",
    "his {who} felt {feeling} .",
    "her {who} would {ask} .",
    "his {object} came {time} .",
)
OPENERS = ("", "", "", "", "so ", "basically ", "long story but ")

MAX_PROMPT = 64
MAX_RESPONSE = 24


@dataclass(frozen=True)
class Imperfection:
    """Probabilities, per fact, that a reference omits it or states it wrongly."""

    drop_rate: float
    garble_rate: float


def draw_facts(rng: random.Random) -> Facts:
    """Independent facts, each uniform over its slot."""
    return {slot: rng.choice(values) for slot, values in SLOTS.items()}


def split_of(facts: Mapping[str, str]) -> Split:
    """The split of these facts, independent of sizes and seeds: 90, 5 and 5 percent."""
    bucket = stable_hash(*(facts[slot] for slot in SLOTS)) % 20
    return {18: Split.validation, 19: Split.test}.get(bucket, Split.train)


def facts_of(world_seed: int, split: Split, index: int) -> tuple[Facts, random.Random]:
    """The facts of row `index` of a split, and the generator of random numbers to render them with.

    Facts are drawn until they belong to the split; the row depends on its arguments alone.
    """
    rng = random.Random(stable_hash(world_seed, "tldr_nano", split.value, index))
    facts = draw_facts(rng)
    while split_of(facts) is not split:
        facts = draw_facts(rng)
    return facts, rng


def render_post(
    facts: Facts, num_distractors: int, rng: random.Random, unstated: Collection[str] = ()
) -> str:
    """A post of at most MAX_PROMPT words that states all facts but those of the slots `unstated`,
    in any order, among distractors."""
    sentences = [
        rng.choice(options).format(**facts)
        for stated, options in SENTENCES.items()
        if stated not in unstated
    ]
    fixed = f"{rng.choice(SUBREDDITS)} post :", "tl;dr :"
    room = MAX_PROMPT - sum(len(text.split()) for text in (*sentences, *fixed))
    for _ in range(num_distractors):
        sentence = rng.choice(DISTRACTORS).format(**others(facts, rng))
        if len(sentence.split()) <= room:
            sentences.append(sentence)
            room -= len(sentence.split())
    rng.shuffle(sentences)
    return " ".join([fixed[0], *sentences, fixed[1]])


def others(facts: Facts, rng: random.Random) -> Facts:
    """Facts of a distractor: every value differs from the author's."""
    return {slot: other_value(slot, facts[slot], rng) for slot in SLOTS}


def other_value(slot: str, value: str, rng: random.Random) -> str:
    """A random value of the slot, other than this one."""
    return rng.choice([candidate for candidate in SLOTS[slot] if candidate != value])


def render_summary(facts: Mapping[str, str]) -> str:
    """The summary of these facts, which include the core."""
    first = "my {who} {event} my {object}".format(**facts)
    if "place" in facts:
        first += f" in the {facts['place']}"
    if "time" in facts:
        first += f" {facts['time']}"
    parts = [f"{first} ."]
    if "feeling" in facts:
        parts.append(f"i am {facts['feeling']} .")
    if "ask" in facts:
        parts.append(f"should i {facts['ask']} ?")
    return " ".join(parts)


def render_reference(facts: Facts, imperfection: Imperfection, rng: random.Random) -> str:
    """A human-like summary: some facts missing, some wrong, an opener in front."""
    included = {
        slot: value
        for slot, value in facts.items()
        if slot in CORE or rng.random() >= imperfection.drop_rate
    }
    stated = {
        slot: other_value(slot, value, rng) if rng.random() < imperfection.garble_rate else value
        for slot, value in included.items()
    }
    return rng.choice(OPENERS) + render_summary(stated)


def vocabulary() -> list[str]:
    """Every word of posts and summaries, in a fixed order."""
    texts = [*SUBREDDITS, "post : tl;dr :", *OPENERS, *DISTRACTORS]
    texts += [text for options in SENTENCES.values() for text in options]
    texts += [render_summary({slot: "" for slot in SLOTS})]
    words = {word for text in texts for word in text.split() if "{" not in word}
    return sorted(words) + [word for values in SLOTS.values() for word in values]


FLUENCY = 1.0
WORD_COST = 0.03
REPEAT_COST = 0.3
UNFINISHED_COST = 1.0
CONTRADICTION = 1.0


def score(facts: Mapping[str, str], text: str, finished: bool) -> float:
    """Gold points of a summary. A perfect one gets about 5.9.

    coverage      + importance of each fact whose value is mentioned (5.4 in all)
    faithfulness  - importance of the slot, for each other value of it that is mentioned
    fluency       + 1.0 * share of the word pairs that the grammar of summaries can write
    brevity       - 0.03 a word
    repetition    - 0.3 for each further mention of a value
    end           - 1.0 if the end token is missing
    """
    words = text.split()
    points = FLUENCY * fluency(words) - WORD_COST * len(words)
    for slot, values in SLOTS.items():
        mentioned = [word for word in words if word in values]
        points += IMPORTANCE[slot] * (facts[slot] in mentioned)
        points -= CONTRADICTION * IMPORTANCE[slot] * len(set(mentioned) - {facts[slot]})
        points -= REPEAT_COST * (len(mentioned) - len(set(mentioned)))
    return points - (0.0 if finished else UNFINISHED_COST)


def fluency(words: list[str]) -> float:
    """Share of neighbouring pairs, start and end among them, that a summary can contain."""
    classes = ["<start>", *(SLOT_OF.get(word, word) for word in words), "<end>"]
    pairs = list(itertools.pairwise(classes))
    return sum(pair in PAIRS for pair in pairs) / len(pairs)


def grammar_pairs() -> set[tuple[str, str]]:
    """All neighbours that `render_summary` can write, slots by name, over every set of facts."""
    optional = ("place", "time", "feeling", "ask")
    pairs = set()
    for bits in range(2 ** len(optional)):
        included = [slot for number, slot in enumerate(optional) if bits >> number & 1]
        facts = {slot: f"<{slot}>" for slot in ("who", "event", "object", *included)}
        for opener in OPENERS:
            words = ["<start>", *(opener + render_summary(facts)).split(), "<end>"]
            pairs |= set(itertools.pairwise(words))
    return pairs


SLOT_OF = {word: f"<{slot}>" for slot, values in SLOTS.items() for word in values}
PAIRS = grammar_pairs()


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
        min=0,
        max=1000,
        about="Sentences about other people in a post, as far as they fit into 64 words.",
    )
    max_prompt_tokens: int = limits.count(
        MAX_PROMPT,
        min=MAX_PROMPT,
        max=limits.MOST_TOKENS,
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
        return word_tokenizer()

    def judge(self, example: Example, text: str, finished: bool) -> float:
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
    parser = argparse.ArgumentParser(description="Write rows of tldr_nano as JSONL.")
    parser.add_argument("--split", type=Split, choices=list(Split), default=Split.train)
    parser.add_argument("--num", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="task.world_seed")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    write_jsonl(TldrNano(world_seed=options.seed), options.split, options.num, options.out)


if __name__ == "__main__":
    main()
