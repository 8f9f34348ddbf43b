"""Write and repair reference answers with the words that the constraints allow."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from string import ascii_lowercase
from typing import TypeVar

from rlhf_lab.tasks.constraints.lexicon import ADJECTIVES, LEXICON, NOUNS, PATTERNS
from rlhf_lab.tasks.constraints.text import BEFORE_HEAD, STOP, sentences, spans, split_tail

Span = tuple[int, int]
Fits = Callable[[str], bool]
Item = TypeVar("Item")


class Stuck(Exception):
    """No word, or no position for it, is left: these constraints are drawn again."""


class ReferenceWriter:
    """Draws words that `allows` accepts, and edits texts. kept: words that no edit replaces."""

    def __init__(self, rng: random.Random, allows: Fits, kept: set[str]) -> None:
        self.rng = rng
        self.kept = kept
        self._allows = allows
        self._words = {
            part: [word for word in words if allows(word) and word not in kept]
            for part, words in LEXICON.items()
        }
        self._used: set[str] = set()

    def word(self, part: str, fits: Fits = bool) -> str:
        """A word of a part of speech, of another part if none fits; an unused one if possible."""
        every = [word for words in self._words.values() for word in words]
        for pool in (self._words[part], every):
            fitting = [word for word in pool if fits(word)]
            if fitting:
                unused = [word for word in fitting if word not in self._used]
                chosen = self.rng.choice(unused or fitting)
                self._used.add(chosen)
                return chosen
        raise Stuck

    def sentence(self, num_words: int, mark: str = ".") -> str:
        """A sentence with this number of words."""
        text = " ".join(self._phrase(num_words))
        return text[0].upper() + text[1:] + mark

    def _phrase(self, num_words: int) -> list[str]:
        if num_words <= max(PATTERNS):
            return [self.word(part) for part in PATTERNS[num_words].split()]
        head = 8 if num_words >= 12 else 5
        rest = num_words - head - 1
        return [*self._phrase(head), self.word("link"), *self._phrase(rest)]

    def draft(self, num_words: int, num_sentences: int, topic: str) -> str:
        """A text of about this size; its first sentence names the topic if that word is allowed."""
        sizes = [num_words // num_sentences] * num_sentences
        for index in range(num_words % num_sentences):
            sizes[index] += 1
        first, *others = [self.sentence(max(1, size)) for size in sizes]
        if self._allows(topic):
            subject = next(s for s in spans(first) if first[slice(*s)].lower() in NOUNS)
            first = swap(first, subject, topic)
        return " ".join([first, *others])

    def parts(self, text: str, num: int) -> list[str]:
        """The sentences of a text, with new ones if there are too few, divided into parts."""
        every = sentences(text)
        while len(every) < num:
            every.append(self.sentence(self.rng.randint(4, 6)))
        edges = [round(index * len(every) / num) for index in range(num + 1)]
        return [" ".join(every[start:end]) for start, end in itertools.pairwise(edges)]

    def replaceable(self, text: str) -> list[Span]:
        """Where words may be replaced: between spaces, not first in a sentence, and not kept."""
        return [
            (start, end)
            for start, end in spans(text)
            if text[start - 1 : start] == " "
            and (end == len(text) or text[end] in " \n.,;!?")
            and text[start:end].lower() not in self.kept
            and not BEFORE_HEAD.search(text[:start])
        ]

    def draw_span(self, text: str, fits: Fits = bool) -> Span:
        """Where any one of these words stands."""
        return self.choose([s for s in self.replaceable(text) if fits(text[slice(*s)].lower())])

    def choose(self, items: Sequence[Item]) -> Item:
        """Any of the items; raises Stuck if there is none."""
        if not items:
            raise Stuck
        return self.rng.choice(items)

    def insert(self, text: str, word: str, fits: Fits = bool) -> str:
        """Replace any fitting word by this one."""
        return swap(text, self.draw_span(text, fits), word)

    def insert_and_keep(self, text: str, word: str) -> str:
        """Replace any word by this one, which no later edit replaces."""
        text = self.insert(text, word)
        self.kept.add(word.lower())
        return text

    def add_word(self, text: str) -> str:
        """Add an adjective."""
        start, _ = self.draw_span(text)
        return f"{text[:start]}{self.word('adjective')} {text[start:]}"

    def remove_word(self, text: str) -> str:
        """Remove an adjective, or another word if there is none."""
        try:
            start, end = self.draw_span(text, ADJECTIVES.__contains__)
        except Stuck:
            start, end = self.draw_span(text)
        return text[: start - 1] + text[end:]

    def add_sentence(self, text: str, mark: str = ".") -> str:
        """Add a sentence after the first."""
        first = self.choose(list(STOP.finditer(text))[:1])
        sentence = self.sentence(self.rng.randint(4, 7), mark)
        return f"{text[: first.end()]} {sentence}{text[first.end() :]}"

    def add_ending(self, text: str, phrase: str) -> str:
        """Add the phrase after the last word."""
        body, tail = split_tail(text)
        return f"{body} {self.word('link')} {phrase}{tail}"


def begins_in(letters: Iterable[str]) -> Fits:
    """The test whether a word begins with one of the letters."""
    allowed = frozenset(letters)
    return lambda word: word[0] in allowed


def begins_outside(letters: Iterable[str]) -> Fits:
    """The test whether a word begins with none of the letters."""
    return begins_in(set(ascii_lowercase) - set(letters))


def is_none_of(words: Iterable[str]) -> Fits:
    """The test whether a word is none of these."""
    excluded = frozenset(words)
    return lambda word: word not in excluded


def swap(text: str, span: Span, word: str) -> str:
    """Replace what stands at the span by the word, capitalised if the span was."""
    start, end = span
    if text[start].isupper():
        word = word[0].upper() + word[1:]
    return text[:start] + word + text[end:]
