"""`task=ifeval`: published rows become prompts with constraints, checked by their definitions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.tasks.constraints.constraint_types import Score
from rlhf_lab.tasks.constraints.published import (
    CHECKS,
    IFBENCH,
    IFEVAL,
    MISSING,
    SIMPLE,
    published_constraint,
)
from rlhf_lab.tasks.ifeval import IFEval, Unchecked
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split
from tests.support.composed import composed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "instructions.md"
PARAGRAPH = "length_constraints:nth_paragraph_first_word"
FIVE = {f"keyword{number}": word for number, word in enumerate("abcde", start=1)}
WORDS = " ".join("a" + " b" * 2 + " c" * 3 + " d" * 5 + " e" * 7 for _ in range(1))
# Of each constraint: arguments, a text that satisfies it, and one that does not.
CASES: list[tuple[str, Mapping[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["tea", "cup"]}, "Cups of Tea", "Tea"),
    (
        "keywords:frequency",
        {"keyword": "tea", "relation": "at least", "frequency": 2},
        "Tea, teapot",
        "Tea",
    ),
    ("keywords:forbidden_words", {"forbidden_words": ["tea"]}, "a teapot", "some Tea."),
    (
        "keywords:letter_frequency",
        {"letter": "o", "let_relation": "less than", "let_frequency": 2},
        "one",
        "Old oak",
    ),
    (
        "length_constraints:number_sentences",
        {"relation": "less than", "num_sentences": 2},
        "One here.",
        "One. Two.",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n\nb"),
    (
        "length_constraints:number_words",
        {"relation": "at least", "num_words": 3},
        "one two three",
        "one two",
    ),
    (
        PARAGRAPH,
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"},
        "First.\n\nThen, more.",
        "Then.\n\nFirst.",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b c]", "[a] (b)"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Hi.\np. s. more", "Hi. PS"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* one\n- two", "* one"),
    ("detectable_format:constrained_response", {}, "My answer is yes.", "Yes."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "a *b c*", "a * *"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection 2\nb",
        "Section 1\na",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{a: 1}"),
    ("detectable_format:title", {}, "<<A title>>\ntext", "<<>> text"),
    ("combination:two_responses", {}, "one\n******\ntwo", "one\n******\none"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, "say it. It.", "It. Say it."),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So. the end."', "The end. So."),
    ("startend:quotation", {}, '"so"', '"'),
    (
        "change_case:capital_word_frequency",
        {"capital_relation": "at least", "capital_frequency": 2},
        "ONE and TWO",
        "One and TWO",
    ),
    ("change_case:english_capital", {}, "ALL OF IT", "All"),
    ("change_case:english_lowercase", {}, "all of it", "All"),
    ("punctuation:no_comma", {}, "none here", "one, here"),
    ("count:word_count_range", {"min_words": 2.0, "max_words": 3.0}, "one two", "one"),
    ("count:unique_word_count", {"N": 2.0}, "one two", "One one."),
    ("count:numbers", {"N": 2.0}, "1,000 and 2", "1 000 and 2"),
    ("count:punctuation", {}, "a. b, c! d? e; f: g?!", "a. b, c! d; e: f?!"),
    ("count:keywords_multiple", FIVE, WORDS, WORDS + " a"),
    ("words:alphabet", {}, "Yes, zebras always bite", "Yes, zebras bite"),
    ("words:consonants", {}, "strong plants", "strong tea"),
    (
        "words:keywords_specific_position",
        {"keyword": "tea", "n": 2, "m": 1},
        "A. Tea it is.",
        "Tea.",
    ),
    ("words:last_first", {}, "I like tea. Tea is hot.", "I like tea. It is hot."),
    ("words:no_consecutive", {}, "one two", "one old"),
    ("words:palindrome", {}, "level " * 10, "level " * 9),
    ("words:paragraph_last_first", {}, "Tea is tea.\nNo no", "Tea is hot."),
    ("words:prime_lengths", {}, "to the", "to a"),
    ("words:repeats", {"small_n": 2.0}, "tea Tea", "tea tea tea"),
    ("words:vowel", {}, "a hot cup", "a hot item"),
    ("words:words_position", {"keyword": "tea"}, "My tea or tea now.", "My tea or not tea."),
    ("sentence:keyword", {"word": "tea", "N": 2.0}, "Well. My Tea.", "My tea. Well."),
    ("format:newline", {}, "one\ntwo", "one two"),
    ("format:no_whitespace", {}, "one-two", "one two"),
    ("format:options", {"options": "yes/no/maybe"}, "Maybe.", "I say yes"),
    ("repeat:repeat_change", {"prompt_to_repeat": "Say it now"}, "Tell it now", "Say it now"),
    ("repeat:repeat_simple", {}, SIMPLE.upper(), "Only this"),
    (
        "repeat:repeat_span",
        {"prompt_to_repeat": "explain it", "n_start": 2, "n_end": 6},
        "plain",
        "explain",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "right", "wrong"), CASES, ids=[c[0] for c in CASES])
def test_a_check_by_hand(name: str, arguments: Mapping[str, Any], right: str, wrong: str) -> None:
    constraint = published_constraint(name, {**arguments, "language": None}, "row")
    assert constraint.holds(right)
    assert not constraint.holds(wrong)
    assert not constraint.holds(" \n")


@pytest.mark.parametrize(
    ("options", "right", "wrong"),
    [
        ("I know or I don't know", "I don't know.", "I know or not"),
        ("a), b), c)", "a)", "A"),
        ("red, green", "Green", "red green"),
        (["left", "right"], "Left.", "up"),
    ],
)
def test_options_are_divided_as_published(options: Any, right: str, wrong: str) -> None:
    constraint = published_constraint("format:options", {"options": options}, "row")
    assert constraint.holds(right)
    assert not constraint.holds(wrong)


def test_every_check_has_a_case_and_no_other_published_name() -> None:
    assert [case[0] for case in CASES] == list(CHECKS)
    # IFEval has 25 constraints, IFBench 58; language:response_language is IFEval's.
    assert (len(IFEVAL) + 1, len(IFBENCH) + len(MISSING) - 1) == (25, 58)
    assert not set(MISSING) & set(CHECKS)


@pytest.mark.pages
def test_the_page_lists_every_published_name() -> None:
    shown = set(re.findall(r"`([a-z_]+:[a-z_-]+)`", PAGE.read_text(encoding="utf-8")))
    assert shown == {*CHECKS, *MISSING}


def written(folder: Path, *rows: dict[str, Any]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def row_of(number: int, *constraints: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A row of the published form."""
    names, arguments = zip(*constraints, strict=True)
    prompt = f"Write about {number}."
    return {
        "key": number,
        "prompt": prompt,
        "instruction_id_list": list(names),
        "kwargs": list(arguments),
    }


COMMA = ("punctuation:no_comma", {"num_words": None})
SHORT = ("length_constraints:number_words", {"num_words": 3, "relation": "less than"})
LANGUAGE = ("language:response_language", {"language": "de"})


def test_rows_become_prompts_that_a_program_judges(tmp_path: Path) -> None:
    path = written(tmp_path, *(row_of(number, COMMA, SHORT) for number in range(20)))
    task = IFEval(path=path, validation_share=0.25)
    train, held_out = (task.examples(split) for split in (Split.train, Split.validation))
    assert len(train) + len(held_out) == 20
    assert train[0].prompt.startswith("Write about ")
    texts = ("one two", "one two three", "one, two, three", "")
    assert [task.judge(train[0], text, True) for text in texts] == [1.0, 0.0, 0.0, 0.0]
    share = IFEval(path=path, score=Score.share)
    assert [share.judge(train[0], text, True) for text in texts] == [1.0, 0.5, 0.0, 0.0]


def test_rows_without_a_check_are_refused_or_left_out(tmp_path: Path) -> None:
    rows = [row_of(number, COMMA, *([LANGUAGE] if number % 2 else [])) for number in range(20)]
    path = written(tmp_path, *rows)
    with pytest.raises(UserError, match=r"'language:response_language'.*task.unchecked=drop"):
        IFEval(path=path).examples(Split.train)
    task = IFEval(path=path, unchecked=Unchecked.drop)
    kept = [*task.examples(Split.train), *task.examples(Split.validation)]
    assert len(kept) == 10
    only = written(tmp_path / "..", *(row_of(number, LANGUAGE) for number in range(4)))
    with pytest.raises(UserError, match="no row of the train split"):
        IFEval(path=only, unchecked=Unchecked.drop).examples(Split.train)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kwargs": [{}]}, r"rows.jsonl.* has 2 entries in instruction_id_list and 1 in kwargs"),
        ({"kwargs": [{}, {"num_words": 3}]}, "number_words has no 'relation'"),
        ({"kwargs": [{}, {"num_words": 3, "relation": "about"}]}, "relation='about'.*'at least'"),
        ({"kwargs": [{}, 3]}, "an entry of kwargs is not an object"),
        ({"instruction_id_list": "punctuation:no_comma"}, "are not lists"),
    ],
)
def test_rows_of_another_form_are_refused(
    change: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    path = written(tmp_path, row_of(1, COMMA, SHORT) | change)
    with pytest.raises(UserError, match=complaint):
        IFEval(path=path).examples(Split.train)


def test_it_composes_with_a_pretrained_model_and_its_own_rule() -> None:
    config = typed(composed("task=ifeval", "task.path=rows.jsonl"))
    check(config, here=False)
    assert (config.reward.name, config.judge.name) == ("task_rule", "task_rule")
