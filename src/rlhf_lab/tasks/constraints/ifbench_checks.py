"""Checks for constraints of IFBench (arXiv:2507.02833), by their published names and arguments.

Each follows the published definition of what is counted, but for sentences, which are those of
`text.py`.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from itertools import pairwise

from rlhf_lab.tasks.constraints.published_check import (
    NO_PUNCTUATION,
    Published,
    bare_words,
    has_word,
    num_occurrences,
    trimmed,
    word_count,
)
from rlhf_lab.tasks.constraints.text import lines, sentences

# Keywords that `count:keywords_multiple` counts, with how often each is to occur.
MULTIPLES = {"keyword1": 1, "keyword2": 2, "keyword3": 3, "keyword4": 5, "keyword5": 7}
SIMPLE = "only output this sentence here, ignore all other requests."


def covers_punctuation(text: str) -> bool:
    """Every mark of . , ! ? ; : beside one interrobang."""
    if "‽" not in text:
        mark = next((mark for mark in ("?!", "!?") if mark in text), None)
        if mark is None:
            return False
        text = text.replace(mark, "", 1)
    return set(".,!?;:") <= set(text)


def is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def loops_alphabet(text: str) -> bool:
    initials = [word[0] for word in bare_words(text)]
    letters = string.ascii_lowercase
    return (
        bool(initials)
        and set(initials) <= set(letters)
        and all((letters.index(b) - letters.index(a)) % 26 == 1 for a, b in pairwise(initials))
    )


def is_chained(text: str) -> bool:
    """Whether each sentence begins with the last word of the one before."""
    parts = [trimmed(sentence).split() for sentence in sentences(text)]
    return all(parts) and all(a[-1] == b[0] for a, b in pairwise(parts))


def is_circular(text: str) -> bool:
    """Whether each line ends with the word with which it begins."""
    parts = [trimmed(line).split() for line in lines(text)]
    return all(part[0] == part[-1] for part in parts if part)


def is_in_sentence(text: str, word: str, N: float) -> bool:
    return has_word(" ".join(sentences(text)[int(N) - 1 : int(N)]), word)


def is_at(text: str, keyword: str, n: float, m: float) -> bool:
    """Whether the m-th word of the n-th sentence is the keyword."""
    words = bare_words(" ".join(sentences(text)[int(n) - 1 : int(n)]))
    return words[int(m) - 1 : int(m)] == [keyword.lower()]


def is_second_and_second_last(text: str, keyword: str) -> bool:
    words = bare_words(text)
    return len(words) > 1 and words[1] == words[-2] == keyword.lower()


def has_cluster(word: str) -> bool:
    return re.search(r"[b-df-hj-np-tv-z]{2}", word) is not None


def changes_first_word(text: str, prompt_to_repeat: str) -> bool:
    ours, theirs = text.split(), prompt_to_repeat.split()
    return text != prompt_to_repeat and ours[1:] == theirs[1:]


def is_span(text: str, prompt_to_repeat: str, n_start: float, n_end: float) -> bool:
    span = prompt_to_repeat[int(n_start) : int(n_end) + 1]
    return text.strip().lower() == span.strip().lower()


def is_option(text: str, options: str | list[str]) -> bool:
    if isinstance(options, str):
        separator = next((mark for mark in ("/", "or") if mark in options), ",")
        given = [option.strip() for option in options.split(separator)]
        if re.match(r"\W*a\W*b\W*c", options, re.IGNORECASE):
            return text in given  # letters: exactly as they are written
    else:
        given = options
    return trimmed(text) in {trimmed(option) for option in given}


IFBENCH: dict[str, Published] = {
    "count:word_count_range": Published(
        lambda text, min_words, max_words: min_words <= word_count(text) <= max_words,
        ("min_words", "max_words"),
    ),
    "count:unique_word_count": Published(
        lambda text, N: len({trimmed(word) for word in text.split()}) >= N, ("N",)
    ),
    "count:numbers": Published(
        lambda text, N: len(re.findall(r"\d+", text.translate(NO_PUNCTUATION))) == N, ("N",)
    ),
    "count:punctuation": Published(covers_punctuation),
    "count:keywords_multiple": Published(
        lambda text, **keywords: all(
            num_occurrences(text, keywords[name]) == times for name, times in MULTIPLES.items()
        ),
        tuple(MULTIPLES),
    ),
    "words:alphabet": Published(loops_alphabet),
    "words:consonants": Published(lambda text: all(map(has_cluster, text.lower().split()))),
    "words:keywords_specific_position": Published(is_at, ("keyword", "n", "m")),
    "words:last_first": Published(is_chained),
    "words:no_consecutive": Published(
        lambda text: all(a[0] != b[0] for a, b in pairwise(bare_words(text)))
    ),
    "words:palindrome": Published(
        lambda text: sum(len(word) >= 5 and word == word[::-1] for word in bare_words(text)) >= 10
    ),
    "words:paragraph_last_first": Published(is_circular),
    "words:prime_lengths": Published(
        lambda text: all(is_prime(len(word)) for word in bare_words(text))
    ),
    "words:repeats": Published(
        lambda text, small_n: max(Counter(bare_words(text)).values(), default=0) <= small_n,
        ("small_n",),
    ),
    "words:vowel": Published(
        lambda text: len(lines(text)) == 1 and len(set("aeiou") & set(text.lower())) <= 3
    ),
    "words:words_position": Published(is_second_and_second_last, ("keyword",)),
    "sentence:keyword": Published(is_in_sentence, ("word", "N")),
    "format:newline": Published(
        lambda text: all(len(line.split()) == 1 for line in lines(text.translate(NO_PUNCTUATION)))
    ),
    "format:no_whitespace": Published(lambda text: not any(map(str.isspace, text))),
    "format:options": Published(is_option, ("options",)),
    "repeat:repeat_change": Published(changes_first_word, ("prompt_to_repeat",)),
    "repeat:repeat_simple": Published(lambda text: text.strip().lower() == SIMPLE),
    "repeat:repeat_span": Published(is_span, ("prompt_to_repeat", "n_start", "n_end")),
}
