"""Write and repair reference answers with the words that the constraints allow."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from string import ascii_lowercase
from typing import TypeVar

from rlhf_lab.tasks.constraints.text import BEFORE_HEAD, STOP, sentences, spans, split_tail

LEXICON: dict[str, tuple[str, ...]] = {
    "adjective": tuple(
        "old calm bright quiet brave small tall warm cold soft wild gentle clever busy golden "
        "silver green purple tiny huge happy lonely proud patient curious modern ancient famous "
        "hidden broken frozen wooden narrow broad deep dark pale fresh sweet bitter lively noble "
        "polite rapid slow simple strange sturdy tender useful vivid young eager honest jolly keen "
        "loyal merry neat odd plain rare royal safe smart strong zesty daring early faithful "
        "careful pleasant remote serene blue grand dusty bold major mild moody airy".split()
    ),
    "noun": tuple(
        "sailors rivers gardens birds farmers stars clouds stones towns bakers bridges forests "
        "mountains children doctors dancers painters letters songs stories meadows oceans islands "
        "lamps markets trains tunnels visitors walls windows artists bells candles cats dogs deer "
        "eagles engines families flowers foxes friends guests hills horses houses journeys kings "
        "lakes leaves lions maps masks nests nurses owls paths pearls pilots poets ponds queens "
        "riders roads rooms roots ships shores singers streets tables teachers tents towers trees "
        "uncles valleys villages waves weavers winters workers yards zebras actors boats clocks "
        "fields feasts pots moons mules meals gates bees".split()
    ),
    "verb": tuple(
        "watch carry follow guide love build find keep cross visit paint praise remember discover "
        "protect welcome admire borrow capture describe enjoy explore face gather greet help honor "
        "imagine join know learn lift meet miss need notice observe offer picture pull push "
        "reach respect save see seek serve share shape teach thank touch trust value warm wash "
        "treat mend free feed lead move adore bless".split()
    ),
    "place": tuple(
        "near beside under over behind beyond around above below along inside across among "
        "toward past".split()
    ),
    "link": tuple("while as because although whenever until and once before after but".split()),
}
NOUNS = frozenset(LEXICON["noun"])
ADJECTIVES = frozenset(LEXICON["adjective"])

# Sentences by their number of words; longer ones are two of these with a link between them.
PATTERNS = {
    1: "noun",
    2: "noun verb",
    3: "noun verb noun",
    4: "adjective noun verb noun",
    5: "adjective noun verb adjective noun",
    6: "adjective noun verb noun place noun",
    7: "adjective noun verb adjective noun place noun",
    8: "adjective noun verb adjective noun place adjective noun",
}

# Required words, forbidden words and LEXICON: three sets without a word in common.
KEYWORDS = tuple(
    "window engine harvest mirror ladder signal copper lantern bridge pepper canvas pocket thunder "
    "velvet anchor marble compass blanket feather kettle orchard puzzle ribbon saddle timber "
    "violin whistle basket crystal dolphin".split()
)
FORBIDDEN = tuple(
    "very people good important many great world things often really also most some always "
    "different beautiful various make just even".split()
)
PALINDROMES = tuple("level radar civic kayak noon rotor deed madam refer".split())
OPENING_PHRASES = (
    "To begin with",
    "As far as anyone knows",
    "Here is what matters",
    "In a few words",
    "Let us imagine this",
    "Once upon a time",
)
CLOSING_PHRASES = (
    "now you know",
    "that is the whole story",
    "nothing more remains to be said",
    "we shall see",
    "the rest is up to you",
    "so it goes on",
)

FORMS = (
    "Write a short text about {topic}{angle}{reader}.",
    "Describe {topic}{angle}{reader}.",
    "Tell something about {topic}{angle}{reader}.",
    "Explain what is special about {topic}{angle}{reader}.",
    "Write a little story about {topic}{angle}{reader}.",
    "Write a few thoughts on {topic}{angle}{reader}.",
    "Give a brief account of {topic}{angle}{reader}.",
    "Write an advertisement for {topic}{angle}{reader}.",
)
TOPICS = tuple(
    "lighthouses bicycles libraries volcanoes penguins castles robots gardens deserts trains "
    "museums submarines bakeries telescopes glaciers orchestras spiders festivals islands markets "
    "airports candles dragons elephants farms hospitals kitchens mountains newspapers owls "
    "planets rainbows schools theaters umbrellas vineyards whales zoos bridges clocks".split()
)
ANGLES = (
    "",
    " in winter",
    " at night",
    " in a big city",
    " by the sea",
    " in the future",
    " long ago",
    " during a storm",
    " on a quiet morning",
    " seen from above",
    " in a small village",
    " on a holiday",
)
READERS = (
    "",
    " for a child",
    " for a tourist",
    " for a newspaper",
    " for a friend",
    " for a scientist",
    " for a poet",
    " for a teacher",
    " for a postcard",
    " for a school magazine",
    " for a curious neighbor",
)


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
        """The span of a random one of these words."""
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
    """Replace the text of the span by the word, capitalised if the span was."""
    start, end = span
    if text[start].isupper():
        word = word[0].upper() + word[1:]
    return text[:start] + word + text[end:]
