"""Writes and mends reference answers out of the words that the constraints allow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from string import ascii_lowercase
from typing import TypeVar

from rlhf_lab.tasks.constraints.lexicon import ADJECTIVES, LEXICON, NOUNS, PATTERNS
from rlhf_lab.tasks.constraints.text import BEFORE_HEAD, STOP, sentences, spans, split_tail

Span = tuple[int, int]
Fits = Callable[[str], bool]
Place = TypeVar("Place")


class Stuck(Exception):
    """No word and no place is left: these constraints get no reference, and are drawn anew."""


class ReferenceWriter:
    """allows: the words that may be used. kept: words, in lower case, that are not replaced."""

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
        """A word of a part of speech, of any if none fits; one that is not used yet, if any."""
        every = [word for words in self._words.values() for word in words]
        for pool in (self._words[part], every):
            found = [word for word in pool if fits(word)]
            if found:
                fresh = [word for word in found if word not in self._used]
                chosen = self.rng.choice(fresh or found)
                self._used.add(chosen)
                return chosen
        raise Stuck

    def sentence(self, num_words: int, mark: str = ".") -> str:
        """A sentence of so many words."""
        text = " ".join(self._phrase(num_words))
        return text[0].upper() + text[1:] + mark

    def _phrase(self, num_words: int) -> list[str]:
        if num_words <= max(PATTERNS):
            return [self.word(part) for part in PATTERNS[num_words].split()]
        head = 8 if num_words >= 12 else 5
        rest = num_words - head - 1
        return [*self._phrase(head), self.word("link"), *self._phrase(rest)]

    def draft(self, num_words: int, num_sentences: int, topic: str) -> str:
        """About so many words in so many sentences, the first of them on the topic if it may be."""
        sizes = [num_words // num_sentences] * num_sentences
        for index in range(num_words % num_sentences):
            sizes[index] += 1
        found = [self.sentence(max(1, size)) for size in sizes]
        if self._allows(topic):
            subject = next(s for s in spans(found[0]) if found[0][slice(*s)].lower() in NOUNS)
            found[0] = swap(found[0], subject, topic)
        return " ".join(found)

    def parts(self, text: str, num: int) -> list[str]:
        """The sentences of a text in so many parts; short of sentences, new ones are written."""
        found = sentences(text)
        while len(found) < num:
            found.append(self.sentence(self.rng.randint(4, 6)))
        edges = [round(index * len(found) / num) for index in range(num + 1)]
        return [" ".join(found[edges[i] : edges[i + 1]]) for i in range(num)]

    def spots(self, text: str) -> list[Span]:
        """Words that may be replaced: between spaces, not at a sentence's head, and not kept."""
        return [
            (start, end)
            for start, end in spans(text)
            if text[start - 1 : start] == " "
            and (end == len(text) or text[end] in " \n.,;!?")
            and text[start:end].lower() not in self.kept
            and not BEFORE_HEAD.search(text[:start])
        ]

    def spot(self, text: str, fits: Fits = bool) -> Span:
        """Any of them."""
        return self.choose([span for span in self.spots(text) if fits(text[slice(*span)].lower())])

    def choose(self, places: Sequence[Place]) -> Place:
        """Any of the places."""
        if not places:
            raise Stuck
        return self.rng.choice(places)

    def put(self, text: str, word: str, fits: Fits = bool) -> str:
        """The word in place of another."""
        return swap(text, self.spot(text, fits), word)

    def keep(self, text: str, word: str) -> str:
        """The same, and the word stays."""
        text = self.put(text, word)
        self.kept.add(word.lower())
        return text

    def grow(self, text: str) -> str:
        """One word more."""
        start, _ = self.spot(text)
        return f"{text[:start]}{self.word('adjective')} {text[start:]}"

    def cut(self, text: str) -> str:
        """One word fewer, an adjective if there is one."""
        try:
            start, end = self.spot(text, ADJECTIVES.__contains__)
        except Stuck:
            start, end = self.spot(text)
        return text[: start - 1] + text[end:]

    def add_sentence(self, text: str, mark: str = ".") -> str:
        """One sentence more, after the first."""
        first = self.choose(list(STOP.finditer(text))[:1])
        sentence = self.sentence(self.rng.randint(4, 7), mark)
        return f"{text[: first.end()]} {sentence}{text[first.end() :]}"

    def add_ending(self, text: str, phrase: str) -> str:
        """The phrase after the last word."""
        body, tail = split_tail(text)
        return f"{body} {self.word('link')} {phrase}{tail}"


def begins_in(letters: Iterable[str]) -> Fits:
    """Whether a word begins with one of the letters."""
    allowed = frozenset(letters)
    return lambda word: word[0] in allowed


def begins_outside(letters: Iterable[str]) -> Fits:
    """Whether a word begins with none of the letters."""
    return begins_in(set(ascii_lowercase) - set(letters))


def swap(text: str, span: Span, word: str) -> str:
    """The word at a place, written with a capital if the one before it was."""
    start, end = span
    if text[start].isupper():
        word = word[0].upper() + word[1:]
    return text[:start] + word + text[end:]
