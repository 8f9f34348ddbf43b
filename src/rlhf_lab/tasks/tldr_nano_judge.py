"""The gold judge of tldr_nano, which knows the facts: the 6.9B gold reward model of the paper."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from rlhf_lab.tasks.tldr_nano_world import IMPORTANCE, OPENERS, SLOTS, render_summary

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
