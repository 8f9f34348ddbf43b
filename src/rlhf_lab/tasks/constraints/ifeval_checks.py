"""Checks for the constraints of IFEval (arXiv:2311.07911), by their published names and arguments.

Each follows the published definition of what is counted, but for sentences, which are those of
`text.py`, and for the language, which no check looks at.
"""

from __future__ import annotations

import json
import re

from rlhf_lab.tasks.constraints.data import unfenced
from rlhf_lab.tasks.constraints.published_check import (
    Published,
    has_word,
    num_occurrences,
    within,
    word_count,
)
from rlhf_lab.tasks.constraints.text import sentences


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
    return len(re.findall(r"^\s*(?:\*[^*]|-).*$", text, re.MULTILINE))


def has_sections(text: str, section_spliter: str, num_sections: float) -> bool:
    found = re.findall(rf"\s?{re.escape(section_spliter)}\s?\d+\s?", text)
    return len(found) >= num_sections


def has_title(text: str) -> bool:
    return any(title.strip("<> \t") for title in re.findall(r"<<[^\n]+>>", text))


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
        lambda text, num_placeholders: len(re.findall(r"\[.*?\]", text)) >= num_placeholders,
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
