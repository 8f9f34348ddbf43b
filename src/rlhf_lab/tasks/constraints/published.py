"""The published constraints of IFEval (arXiv:2311.07911) and IFBench (arXiv:2507.02833) that are
checked here, and those that are not.

Checks have the published names and arguments. Each follows the published definition of what is
counted, but for sentences, which are those of `text.py`, and for the language, which is unchecked.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rlhf_lab.tasks.constraints.formats import unfenced
from rlhf_lab.tasks.constraints.text import lines, sentences
from rlhf_lab.types.errors import UserError

RELATIONS = ("less than", "at least")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Published:
    """check(text, **arguments): whether a text satisfies the constraint. arguments: the names of
    those that a row must give; others of the row are not read."""

    check: Callable[..., bool]
    arguments: tuple[str, ...] = ()


def within(count: int, relation: str, limit: float) -> bool:
    """Whether a count is less than a limit, or at least the limit."""
    return count < limit if relation == RELATIONS[0] else count >= limit


def bare_words(text: str) -> list[str]:
    """What white space separates, in lower case and without punctuation."""
    return text.lower().translate(NO_PUNCTUATION).split()


def trimmed(text: str) -> str:
    """The text without white space and punctuation around it, in lower case."""
    return text.strip(string.punctuation + string.whitespace).lower()


def num_occurrences(text: str, keyword: str) -> int:
    """Occurrences, also inside of other words."""
    return text.lower().count(keyword.lower())


def has_word(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None


def word_count(text: str) -> int:
    return len(re.findall(r"\w+", text))


def divided(text: str, divider: str) -> list[str] | None:
    """The parts between dividers, without empty ones at the ends; None if one inside is empty."""
    parts = [part.strip() for part in re.split(rf"\s?{re.escape(divider)}\s?", text)]
    inner = parts[1:-1]
    return [part for part in parts if part] if all(inner) else None


def has_paragraphs(text: str, num_paragraphs: float) -> bool:
    parts = divided(text, "***")
    return parts is not None and len(parts) == num_paragraphs


def begins_paragraph(
    text: str, num_paragraphs: float, nth_paragraph: float, first_word: str
) -> bool:
    parts = text.split("\n\n")
    full = sum(bool(part.strip()) for part in parts)
    nth = int(nth_paragraph)
    if full != num_paragraphs or nth > full or not parts[nth - 1].strip():
        return False
    word = parts[nth - 1].split()[0].lstrip("'").lstrip('"')
    return re.split(r"[.,?!'\"]", word)[0].lower() == first_word.lower()


def has_postscript(text: str, postscript_marker: str) -> bool:
    spelled = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    pattern = spelled.get(postscript_marker, re.escape(postscript_marker.lower()))
    return re.search(pattern, text.lower()) is not None


def num_highlights(text: str) -> int:
    single = re.findall(r"\*([^\n*]*)\*", text)
    double = re.findall(r"\*\*([^\n*]*)\*\*", text)
    return sum(bool(part.strip()) for part in (*single, *double))


def num_bullets(text: str) -> int:
    return len(re.findall(r"^[^\S\n]*+(?:\*[^*]|-).*$", text, re.MULTILINE))


def count_placeholders(text: str) -> int:
    """Brackets that are closed in their line. One that is not ends the search in its line."""
    return re.findall(r"\[[^\]\n]*+(\]?)", text).count("]")


def has_sections(text: str, section_spliter: str, num_sections: float) -> bool:
    found = re.findall(rf"\s?{re.escape(section_spliter)}\s?\d+\s?", text)
    return len(found) >= num_sections


def has_title(text: str) -> bool:
    rests = re.findall(r"<<([^\n]*+)", text)
    return any(rest[: max(rest.rfind(">>"), 0)].strip("<> \t") for rest in rests)


def is_json(text: str) -> bool:
    try:
        json.loads(unfenced(text.strip()))
    except (ValueError, RecursionError):
        return False
    return True


def are_two_answers(text: str) -> bool:
    parts = divided(text, "******")
    return parts is not None and len(parts) == 2 and parts[0] != parts[1]


def is_quoted(text: str) -> bool:
    stripped = text.strip()
    return len(stripped) > 1 and stripped[0] == stripped[-1] == '"'


def num_capital_words(text: str) -> int:
    return sum(word.isupper() for word in re.findall(r"\w+", text))


IFEVAL: dict[str, Published] = {
    "keywords:existence": Published(
        lambda text, keywords: all(num_occurrences(text, one) for one in keywords), ("keywords",)
    ),
    "keywords:frequency": Published(
        lambda text, keyword, relation, frequency: within(
            num_occurrences(text, keyword), relation, frequency
        ),
        ("keyword", "relation", "frequency"),
    ),
    "keywords:forbidden_words": Published(
        lambda text, forbidden_words: not any(has_word(text, one) for one in forbidden_words),
        ("forbidden_words",),
    ),
    "keywords:letter_frequency": Published(
        lambda text, letter, let_relation, let_frequency: within(
            num_occurrences(text, letter), let_relation, let_frequency
        ),
        ("letter", "let_relation", "let_frequency"),
    ),
    "length_constraints:number_sentences": Published(
        lambda text, relation, num_sentences: within(len(sentences(text)), relation, num_sentences),
        ("relation", "num_sentences"),
    ),
    "length_constraints:number_paragraphs": Published(has_paragraphs, ("num_paragraphs",)),
    "length_constraints:number_words": Published(
        lambda text, relation, num_words: within(word_count(text), relation, num_words),
        ("relation", "num_words"),
    ),
    "length_constraints:nth_paragraph_first_word": Published(
        begins_paragraph, ("num_paragraphs", "nth_paragraph", "first_word")
    ),
    "detectable_content:number_placeholders": Published(
        lambda text, num_placeholders: count_placeholders(text) >= num_placeholders,
        ("num_placeholders",),
    ),
    "detectable_content:postscript": Published(has_postscript, ("postscript_marker",)),
    "detectable_format:number_bullet_lists": Published(
        lambda text, **limit: num_bullets(text) == limit["num_bullets"], ("num_bullets",)
    ),
    "detectable_format:constrained_response": Published(
        lambda text: re.search(r"My answer is (?:yes|no|maybe)\.", text) is not None
    ),
    "detectable_format:number_highlighted_sections": Published(
        lambda text, **limit: num_highlights(text) >= limit["num_highlights"], ("num_highlights",)
    ),
    "detectable_format:multiple_sections": Published(
        has_sections, ("section_spliter", "num_sections")
    ),
    "detectable_format:json_format": Published(is_json),
    "detectable_format:title": Published(has_title),
    "combination:two_responses": Published(are_two_answers),
    "combination:repeat_prompt": Published(
        lambda text, prompt_to_repeat: (
            text.strip().lower().startswith(prompt_to_repeat.strip().lower())
        ),
        ("prompt_to_repeat",),
    ),
    "startend:end_checker": Published(
        lambda text, end_phrase: (
            text.strip().strip('"').lower().endswith(end_phrase.strip().lower())
        ),
        ("end_phrase",),
    ),
    "startend:quotation": Published(is_quoted),
    "change_case:capital_word_frequency": Published(
        lambda text, capital_relation, capital_frequency: within(
            num_capital_words(text), capital_relation, capital_frequency
        ),
        ("capital_relation", "capital_frequency"),
    ),
    "change_case:english_capital": Published(str.isupper),
    "change_case:english_lowercase": Published(str.islower),
    "punctuation:no_comma": Published(lambda text: "," not in text),
}


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


CHECKS = IFEVAL | IFBENCH
# Many need parts of speech, syllables, names, other alphabets or facts of the world.
MISSING = tuple(
    "language:response_language count:conjunctions count:person_names count:pronouns "
    "count:words_japanese custom:character_reverse custom:csv_city custom:csv_quotes "
    "custom:csv_special_character custom:date_format_list custom:european_capitals_sort "
    "custom:mcq_count_length custom:multiples custom:reverse_newline custom:sentence_alphabet "
    "custom:word_reverse format:emoji format:line_indent format:list format:no_bullets_bullets "
    "format:output_template format:parentheses format:quote_unquote format:quotes "
    "format:sub-bullets format:thesis format:title_case ratio:overlap ratio:sentence_balance "
    "ratio:sentence_type ratio:sentence_words ratio:stop_words sentence:alliteration_increment "
    "sentence:increment words:odd_even_syllables words:start_verb".split()
)


@dataclass(frozen=True)
class PublishedConstraint:
    """A constraint of a row: its published name and the arguments of its check."""

    name: str
    arguments: Mapping[str, Any]

    def holds(self, text: str) -> bool:
        """Whether the text satisfies it. An empty text satisfies nothing."""
        return bool(text.strip()) and CHECKS[self.name].check(text, **self.arguments)


def published_constraint(name: str, given: Mapping[str, Any], place: str) -> PublishedConstraint:
    """The constraint of a row. given: its arguments, of which null ones are absent; place: of the
    row, for errors. Raises UserError if an argument is absent or a relation is unknown."""
    present = {key: value for key, value in given.items() if value is not None}
    needed = CHECKS[name].arguments
    if absent := [key for key in needed if key not in present]:
        raise UserError(f"{place}: {name} has no {absent[0]!r} in 'kwargs': add it")
    arguments = {key: present[key] for key in needed}
    for key, value in arguments.items():
        if key.endswith("relation") and value not in RELATIONS:
            raise UserError(
                f"{place}: {name} has {key}={value!r} in 'kwargs': write one of "
                f"{', '.join(map(repr, RELATIONS))}"
            )
    return PublishedConstraint(name, arguments)
