"""Generated requests with constraints: every type by hand, and what holds of all rows."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.tasks.constraints.compose import (
    HELD_OUT,
    TYPES,
    Types,
    types_of,
    with_params,
    write_reference,
)
from rlhf_lab.tasks.constraints.constraint_types import (
    Constraint,
    Score,
    Scoring,
    conflict,
    loosened,
    score,
)
from rlhf_lab.tasks.constraints.reference_writer import (
    ANGLES,
    CLOSING_PHRASES,
    FORBIDDEN,
    FORMS,
    KEYWORDS,
    LEXICON,
    OPENING_PHRASES,
    READERS,
    TOPICS,
)
from rlhf_lab.tasks.constraints.text import heads, paragraphs, sentences, words
from rlhf_lab.tasks.instructions import Instructions, split_of
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split
from tests.conftest import MakeConfig

ASK = "Describe owls at night."
PEN = {"word": "pepper"}
# type: parameters, texts that satisfy it, texts that do not
CASES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "words_at_least": ({"n": 3}, ["one two three", "a-b c d e"], ["one two", "a-b c ..."]),
    "words_at_most": ({"n": 3}, ["one two three", "it's a-b ok"], ["a b c d"]),
    "words_between": ({"low": 2, "high": 3}, ["a b", "a b c"], ["a", "a b c d"]),
    "words_exactly": ({"n": 2}, ["a b.", "1. b"], ["a", "a b c"]),
    "words_multiple": ({"n": 3}, ["a b c", "a b c d e f"], ["a", "a b c d"]),
    "characters_at_most": ({"n": 5}, ["abcde", "  abcde\n"], ["abcdef", "a b c d"]),
    "vowels_at_least": ({"n": 3}, ["banana", "AEI"], ["rhythm, bet", "by me"]),
    "sentences_at_least": ({"n": 2}, ["One. Two!", "One\nTwo"], ["One, two.", "3.5 is it"]),
    "sentences_at_most": ({"n": 2}, ["One.", "One? Two."], ["One. Two. Three."]),
    "sentences_exactly": (
        {"n": 2},
        ["One. Two.", "1. One.\n2. Two."],
        ["One.", "One. Two. P.S. Three."],
    ),
    "sentence_words_at_most": ({"n": 2}, ["One two. Three."], ["One. Two three four."]),
    "paragraphs_exactly": ({"n": 2}, ["a\nb\n\nc", "a\n \n\nb"], ["a\nb", "a\n\nb\n\nc"]),
    "lines_exactly": ({"n": 2}, ["a\nb", "a\n\nb\n"], ["a b", "a\nb\nc"]),
    "lines_at_least": ({"n": 2}, ["a\nb", "a\n\nb\nc"], ["a b"]),
    "growing_lines": ({"n": 3}, ["a\nb c\nd e f"], ["a\nb c", "a\nb\nc d", "a\nb c d\ne f g h i"]),
    "keywords_present": (
        {"words": ["pepper", "copper"]},
        ["Pepper on copper.", "COPPER, pepper"],
        ["pepper only", "peppers and copper"],
    ),
    "keywords_forbidden": (
        {"words": ["very", "good"]},
        ["goods are fine", "every one"],
        ["Good.", "so very"],
    ),
    "keyword_at_least": (
        PEN | {"n": 2},
        ["pepper Pepper", "pepper " * 3],
        ["pepper", "peppers " * 3],
    ),
    "keyword_exactly": (PEN | {"n": 2}, ["pepper, pepper!"], ["pepper", "pepper " * 3]),
    "keywords_in_order": (
        {"words": ["pepper", "anchor"]},
        ["a pepper, an anchor, a pepper"],
        ["anchor, pepper, anchor", "pepper"],
    ),
    "keyword_in_sentence": (
        PEN | {"n": 2},
        ["One. Some pepper. Three."],
        ["Pepper. Two.", "Pepper."],
    ),
    "word_at_position": (
        PEN | {"n": 3},
        ["a b pepper", "a, b: Pepper c"],
        ["a pepper", "pepper a b"],
    ),
    "no_word_repeated": ({}, ["one two three"], ["one two One"]),
    "unique_words": ({"percent": 75}, ["a b c c", "a b"], ["a b a b"]),
    "palindromes": ({"n": 2}, ["A level kayak"], ["level level", "level a aa"]),
    "hyphenated_words": ({"n": 2}, ["sea-green, ice-cold"], ["sea-green - ice", "- one - two"]),
    "letter_at_least": ({"letter": "k", "n": 2}, ["Kick", "kk"], ["k", "cat"]),
    "letter_at_most": ({"letter": "k", "n": 1}, ["k", "cat"], ["Kick"]),
    "letter_forbidden": ({"letter": "e"}, ["a cat"], ["a bee", "End"]),
    "three_vowels": ({"vowels": "a, e and o"}, ["one sea", "by a door"], ["a bird", "US"]),
    "word_length_at_most": ({"n": 3}, ["one two"], ["one four"]),
    "word_length_at_least": ({"n": 3}, ["one four"], ["it is one"]),
    "alliteration": (
        {"letter": "b", "n": 3},
        ["the big Brown bear", "big bad boys bite"],
        ["big bad wolf", "big the bad bear"],
    ),
    "neighbours_differ": ({}, ["one two one"], ["two three", "one Our"]),
    "all_lower": ({}, ["all lower, 1."], ["One"]),
    "all_upper": ({}, ["ALL UPPER, 1."], ["ALL UPPEr"]),
    "title_case": ({}, ["Every Word: A 1st"], ["Every word", "EVERY Word"]),
    "capital_words": ({"n": 2}, ["SO it IS", "GO NOW here"], ["I A SO", "So Is It"]),
    "starts_with": (
        {"phrase": "To begin with"},
        ["To begin with, a", '"to begin with" b', "- To begin with"],
        ["So to begin with", "To begin"],
    ),
    "ends_with": (
        {"phrase": "we shall see"},
        ["And we shall see.", 'We shall see!"', "we shall see"],
        ["we shall see it", "shall see"],
    ),
    "quoted": ({}, ['"a b"', ' "a "c" d" '], ['"a" b', "'a b'"]),
    "fenced": ({}, ["```\na\n```", "```text\na b\n```"], ["```a```", "a\n```\nb\n```", "a"]),
    "postscript": ({}, ["a\nP.S. b", "a\n\nP. S.: b"], ["a P.S. b", "P.S. b\na", "a\nP.S."]),
    "title": ({}, ["<<A title>>\ntext", "text <<b>>"], ["<A>", "<<>> text", "<<a\nb>>"]),
    "repeat_request": (
        {"request": ASK},
        [f"{ASK} They hoot.", "describe owls at night: they hoot"],
        [ASK, f"Well: {ASK} They hoot.", "They hoot."],
    ),
    "ends_with_question": ({}, ["Is it?", '"Is it?"', "Is *it?*"], ["Is it? Yes.", "Is it"]),
    "first_word_last": ({}, ["One by one.", "a a"], ["One by two", "one"]),
    "sentences_start_with": (
        {"word": "perhaps"},
        ["Perhaps one. Perhaps two!"],
        ["Perhaps one. Two."],
    ),
    "sentence_initials_differ": ({}, ["One. Two."], ["Two. Three."]),
    "lines_end_with": (
        {"word": "home", "n": 2},
        ["Go home.\nGo Home!"],
        ["Go home.", "Go home\nGo on", "Home\nhome\nhome"],
    ),
    "acrostic": (
        {"word": "moon"},
        ["Mine\nor\n\nours\n- now"],
        ["m o o n", "m\no\no", "m\no\nn\no"],
    ),
    "bullets": ({"n": 2}, ["- a\n- b", "So:\n* a\n* b"], ["- a", "-a\n-b", "- a\n- b\n- c"]),
    "numbered": ({"n": 2}, ["1. a\n2. b", "So:\n1) a\n2) b"], ["1. a", "2. a\n1. b", "1. a\n1. b"]),
    "sections": (
        {"n": 2},
        ["## A\na\n\n## B\nb"],
        ["## A\na", "## A\n## B\nb", "# A\na\n# B\nb", "## A\na\n## B"],
    ),
    "two_answers": ({}, ["a\n******\nb"], ["a ****** b", "a\n******\na", "a\n******", "a\n***\nb"]),
    "divided": ({"n": 2}, ["a\n---\nb"], ["a --- b", "a\n---", "a\n---\nb\n---\nc"]),
    "highlights": ({"n": 2}, ["*a* and *b c*", "**a** *b*"], ["*a* b", "* a\n* b", "2 * 3 * 4"]),
    "placeholders": ({"n": 2}, ["[a] and [b c]"], ["[a]", "[] []", "(a) (b)"]),
    "parentheses": ({"n": 2}, ["a (b) c (d e)"], ["(a", "() ()", "a (b)"]),
    "json_object": (
        {"keys": ["title", "answer"]},
        ['{"title": "a", "answer": "b"}', '```json\n{"answer": "b", "title": "a"}\n```'],
        ['{"title": "a"}', '{"title": "a", "answer": 1}', "title: a", '["title", "answer"]'],
    ),
    "csv_rows": (
        {"columns": ["name", "size"], "n": 2},
        ["name,size\na,b\nc,d", 'Name, size\n"a, b",c\nd,e'],
        ["name,size\na,b", "size,name\na,b\nc,d", "name,size\na\nb", "name,size\na,\nc,d"],
    ),
    "markdown_table": (
        {"columns": ["name", "size"], "n": 1},
        ["| name | size |\n|---|---|\n| a | b |", "|Name|Size|\n| :-- | --: |\n|a|b|"],
        ["| name | size |\n| a | b |", "| name | size |\n|---|---|", "name\na"],
    ),
    "no_commas": ({}, ["a; b"], ["a, b"]),
    "commas_exactly": ({"n": 2}, ["a, b, c"], ["a, b", "a, b, c, d"]),
    "semicolons_exactly": ({"n": 1}, ["a; b"], ["a, b", "a; b; c"]),
    "no_digits": ({}, ["one"], ["1", "a2"]),
    "digits_exactly": ({"n": 2}, ["42", "4 and 2"], ["4", "123", "two"]),
    "questions_exactly": ({"n": 1}, ["a? b."], ["a.", "a? b?"]),
    "exclamations_exactly": ({"n": 1}, ["a! b."], ["a.", "a! b!"]),
}


def holds(kind: str, params: dict[str, Any], text: str) -> bool:
    return Constraint(TYPES[kind], params).holds(text)


def test_every_type_has_examples() -> None:
    assert set(CASES) == set(TYPES)
    assert len(TYPES) >= 40


@pytest.mark.parametrize("kind", sorted(CASES))
def test_types_by_hand(kind: str) -> None:
    params, kept, broken = CASES[kind]
    assert kept and broken
    assert [text for text in kept if not holds(kind, params, text)] == []
    assert [text for text in broken if holds(kind, params, text)] == []


@pytest.mark.parametrize("kind", sorted(CASES))
def test_an_empty_text_keeps_nothing(kind: str) -> None:
    assert not any(holds(kind, CASES[kind][0], text) for text in ("", "  \n", "...", '""', "?!"))


MARKS = st.text("aB1 \n.?!,;:-*#|<>[](){}\"'`\u2019\u00df\u0130\u00b2", max_size=60)


@given(st.one_of(MARKS, st.text(max_size=60)))
def test_whatever_a_policy_writes_can_be_checked(text: str) -> None:
    for kind, (params, _, _) in CASES.items():
        assert holds(kind, params, text) in (True, False)
    assert 0 <= score(two(), text, Score.share, Scoring.loose) <= 1


@pytest.mark.parametrize("text", ["[" * 5000 + "a", "9" * 5000 + ". a", "a" * 20000, "a! " * 5000])
def test_odd_texts_are_no_error(text: str) -> None:
    for kind, (params, _, _) in CASES.items():
        assert holds(kind, params, text) in (True, False)


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_every_type_alone_has_a_reference_and_an_instruction(kind: str) -> None:
    for seed in range(15):
        rng = random.Random(seed)
        constraint = with_params(TYPES[kind], rng, ASK)
        text = write_reference((constraint,), rng, "owls")
        assert text is not None and constraint.holds(text)
        said = constraint.instruction()
        assert "{" not in said and said[-1] in '."'
        assert all(
            str(item) in said for value in constraint.params.values() for item in listed(value)
        )


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_kinds_that_do_not_conflict_can_be_kept_together() -> None:
    for one, other in itertools.combinations(TYPES.values(), 2):
        assert conflict(one, other) == conflict(other, one)
        if conflict(one, other):
            continue
        for seed in range(5):
            rng = random.Random(seed)
            pair = with_params(one, rng, ASK), with_params(other, rng, ASK)
            if write_reference(pair, rng, "owls") is not None:
                break
        else:
            pytest.fail(f"{one.name} and {other.name} have no reference, but do not conflict")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("words_at_least", "words_at_most"),
        ("all_lower", "all_upper"),
        ("all_lower", "title_case"),
        ("json_object", "bullets"),
        ("json_object", "quoted"),
        ("letter_forbidden", "keywords_present"),
        ("letter_forbidden", "letter_at_least"),
        ("word_length_at_most", "word_length_at_least"),
        ("starts_with", "repeat_request"),
        ("ends_with", "postscript"),
        ("no_word_repeated", "keyword_at_least"),
        ("no_digits", "digits_exactly"),
        ("no_commas", "csv_rows"),
        ("paragraphs_exactly", "lines_exactly"),
        ("sentences_at_most", "lines_exactly"),
        ("quoted", "quoted"),
    ],
)
def test_contradictions_are_conflicts(one: str, other: str) -> None:
    assert conflict(TYPES[one], TYPES[other])


@pytest.mark.parametrize(("fewest", "most"), [(1, 3), (4, 5)])
@pytest.mark.parametrize("types", list(Types))
def test_references_keep_all_constraints(types: Types, fewest: int, most: int) -> None:
    task = Instructions(
        train_types=types, min_constraints=fewest, max_constraints=most, world_seed=3
    )
    rows = task.examples(Split.train)
    names = {kind.name for kind in types_of(types)}
    for index in range(250):
        row = rows[index]
        found = [constraint["kind"] for constraint in row.hidden["constraints"]]
        assert fewest <= len(found) <= most
        assert set(found) <= names
        assert not any(conflict(TYPES[a], TYPES[b]) for a, b in itertools.combinations(found, 2))
        assert task.judge(row, row.reference, True) == 1.0
        assert row.reference.startswith(" ") and row.reference[1:] == row.reference.strip()
        assert row.prompt.count("\n- ") >= len(found)


def test_every_type_of_a_split_occurs_in_it() -> None:
    for split, names in (
        (Split.train, set(TYPES) - HELD_OUT),
        (Split.validation, set(TYPES) - HELD_OUT),
        (Split.test, set(HELD_OUT)),
    ):
        rows = Instructions().examples(split)
        found = {c["kind"] for index in range(250) for c in rows[index].hidden["constraints"]}
        assert found == names


def test_the_held_out_kinds_are_apart_and_known() -> None:
    assert set(TYPES) >= HELD_OUT
    train, held_out = types_of(Types.train), types_of(Types.held_out)
    assert not set(train) & set(held_out)
    assert set(train) | set(held_out) == set(types_of(Types.all))
    assert len(held_out) == len(HELD_OUT) == 26 and len(train) == 43


def test_splits_share_no_prompt_and_no_request() -> None:
    prompts: dict[Split, set[str]] = {}
    for split in Split:
        task = Instructions(train_types=Types.all, validation_types=Types.all, test_types=Types.all)
        rows = [task.examples(split)[index] for index in range(200)]
        assert all(split_of(row.prompt.split("\n")[0]) is split for row in rows)
        prompts[split] = {row.prompt for row in rows}
        assert len(prompts[split]) > 195
    for one, other in itertools.combinations(Split, 2):
        assert not prompts[one] & prompts[other]


def test_rows_are_a_function_of_their_place() -> None:
    one, other = (Instructions().examples(Split.validation) for _ in range(2))
    assert [other[i] for i in (5, 0, 5)] == [one[5], one[0], one[5]]
    assert Instructions(world_seed=1).examples(Split.validation)[5] != one[5]
    assert len(one) == 2048
    with pytest.raises(IndexError):
        one[len(one)]


def test_hidden_constraints_survive_json() -> None:
    task = Instructions()
    for split in Split:
        for index in range(100):
            row = task.examples(split)[index]
            assert json.loads(json.dumps(row.hidden)) == row.hidden


def test_the_template_places_request_and_instructions() -> None:
    rows = Instructions(template="<{instructions}|{request}>").examples(Split.train)
    plain = Instructions().examples(Split.train)
    request, told = plain[3].prompt.split("\n\nFollow these instructions:\n")
    told = told.removesuffix("\n\nAnswer:")
    assert rows[3].prompt == f"<{told}|{request}>"
    assert rows[3].reference == plain[3].reference


def test_words_of_requests_and_fixed_phrases_are_never_forbidden() -> None:
    fixed = words(
        " ".join((*FORMS, *TOPICS, *ANGLES, *READERS, *OPENING_PHRASES, *CLOSING_PHRASES))
    )
    filler = {word for part in LEXICON.values() for word in part}
    assert not set(FORBIDDEN) & {*fixed, *filler, *KEYWORDS}
    assert not set(KEYWORDS) & {*fixed, *filler}


def two() -> list[Constraint]:
    return [
        Constraint(TYPES["words_at_most"], {"n": 3}),
        Constraint(TYPES["no_digits"], {}),
    ]


@pytest.mark.parametrize(
    ("text", "everything", "share"), [("a b", 1, 1), ("1 b", 0, 0.5), ("1 b c d", 0, 0), ("", 0, 0)]
)
def test_all_or_a_share(text: str, everything: float, share: float) -> None:
    assert score(two(), text, Score.all, Scoring.strict) == everything
    assert score(two(), text, Score.share, Scoring.strict) == share


def test_loose_scoring_forgives_lines_around_and_asterisks() -> None:
    assert len(list(loosened("a\nb"))) == 8
    lower = [Constraint(TYPES["all_lower"], {})]
    starts = [Constraint(TYPES["starts_with"], {"phrase": "we shall"})]
    for constraints, text in ((lower, "Sure:\nyes it is"), (starts, "Sure:\nWe shall\nBye")):
        assert score(constraints, text, Score.all, Scoring.strict) == 0
        assert score(constraints, text, Score.all, Scoring.loose) == 1
    quoted = [Constraint(TYPES["quoted"], {})]
    assert score(quoted, '**"a b"**', Score.all, Scoring.loose) == 1
    assert score(lower, "Sure", Score.all, Scoring.loose) == 0
    # what only a text without any line left would keep is not kept
    assert score([Constraint(TYPES["no_digits"], {})], "1 2", Score.all, Scoring.loose) == 0


def test_loose_scoring_never_takes_away() -> None:
    strict, loose = Instructions(), Instructions(scoring=Scoring.loose)
    rows = strict.examples(Split.train)
    for index in range(100):
        for text in (rows[index].reference, rows[index + 1].reference):
            assert loose.judge(rows[index], text, True) >= strict.judge(rows[index], text, True)


def test_a_cut_response_costs_what_is_set() -> None:
    row = Instructions().examples(Split.train)[0]
    assert Instructions().judge(row, row.reference, False) == 1.0
    assert Instructions(unfinished_cost=0.4).judge(row, row.reference, False) == pytest.approx(0.6)
    assert Instructions(unfinished_cost=0.4).judge(row, row.reference, True) == 1.0


def test_what_words_sentences_and_paragraphs_are() -> None:
    assert words("It's a well-known 3rd -- case_one.") == "it's a well-known 3rd case one".split()
    assert sentences("1. One. Two?\n- Three *four!* five\n***\nP.S. Six.") == [
        "One.",
        "Two?",
        "Three *four!*",
        "five",
        "P.S. Six.",
    ]
    assert paragraphs("\n\na\nb\n \n\nc\n") == ["a\nb", "c"]
    text = "- Old. New.\nNext"
    assert [text[start:end] for start, end in heads(text)] == ["Old", "New", "Next"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_size": 0}, "task.train_size=0 is out of range: choose 1 "),
        ({"min_constraints": 0}, "task.min_constraints=0 is out of range: choose 1 "),
        ({"max_constraints": 6}, "task.max_constraints=6 .*choose 1 to 5"),
        ({"min_constraints": 3, "max_constraints": 2}, "task.max_constraints=2 .*=3 to 5"),
        ({"min_constraints": 6}, "task.min_constraints=6 .*choose 1 to 5"),
        ({"unfinished_cost": -1.0}, "task.unfinished_cost=-1.0 is out of range: choose 0 "),
        ({"unfinished_cost": float("nan")}, "task.unfinished_cost=nan is out of range: choose 0 "),
        ({"template": "{request}"}, r"task.template='\{request\}' must hold \{instructions\} once"),
        ({"template": "{instructions}"}, r"must hold \{request\} once: add it where it belongs"),
        ({"max_prompt_tokens": 0}, "task.max_prompt_tokens=0 is out of range: choose 1 "),
        ({"max_response_tokens": -1}, "task.max_response_tokens=-1 is out of range: choose 1 "),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Instructions(**options)


def test_it_composes_with_a_pretrained_model_and_its_own_rule(config_of: MakeConfig) -> None:
    config = config_of("task=instructions", "task.test_types=all", "task.score=share")
    assert config.task == Instructions(test_types=Types.all, score=Score.share)
    assert config.task.tokenizer() is None
    assert (config.model.name, config.reward.name) == ("smollm2_135m", "task_rule")
    with pytest.raises(Exception, match="test_types"):
        config_of("task=instructions", "task.test_types=some")


@pytest.mark.pages
def test_the_page_lists_every_kind_with_its_split() -> None:
    page = (conf_folder().parent / "docs" / "instructions.md").read_text(encoding="utf-8")
    for name in TYPES:
        split = "held out" if name in HELD_OUT else "train"
        assert f"| `{name}` | {split} |" in page
