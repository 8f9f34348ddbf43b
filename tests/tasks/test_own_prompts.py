"""`task=prompts`: rows become prompts or are refused with their line, and splits that stay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.experiment.build.prompts import prompt_renderer
from rlhf_lab.tasks import chat
from rlhf_lab.tasks.byte_tokenizer import byte_tokenizer
from rlhf_lab.tasks.hub import read_hub
from rlhf_lab.tasks.own_prompts import Hashing, OwnPrompts, SplitBy
from rlhf_lab.tasks.prompt_columns import Columns
from rlhf_lab.tasks.tables import NoSuchFile, RequiredFields
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split
from tests.tasks.test_no_robots import tokenizer

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "gsm8k"
CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "w1"}]
ANSWER = {"role": "assistant", "content": " w2 "}


def write(path: Path, rows: list[Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def prompts_of(task: OwnPrompts, split: Split) -> set[str]:
    return {example.prompt for example in task.examples(split)}


def numbered(num: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"prompt": f"What is {n}?", "n": n} for n in range(first, first + num)]


@pytest.mark.parametrize(
    ("columns", "row", "expected"),
    [
        (Columns("prompt"), {"prompt": " a "}, Example("u", " a ", "")),
        (Columns("q", "a"), {"q": "x", "a": " y"}, Example("u", "x", " y")),
        (
            Columns("m.q", hidden=("n", "tests.0")),
            {"m": {"q": "x"}, "n": None, "tests": [1, 2]},
            Example("u", "x", "", {"n": None, "tests.0": 1}),
        ),
        (Columns("a.b"), {"a.b": "x", "a": {"b": "y"}}, Example("u", "x", "")),
        (Columns("q", template="Q: {prompt}\nA:"), {"q": "{x}"}, Example("u", "Q: {x}\nA:", "")),
        (
            Columns("q", template="Q: {prompt}", is_chat=True),
            {"q": "x"},
            Example("u", "Q: x", "", {}, (("user", "Q: x"),)),
        ),
        (
            Columns("q"),
            {"q": CHAT},
            Example(
                "u",
                "system: Be kind.\n\nuser: w1\n\nassistant: ",
                "",
                {},
                (("system", "Be kind."), ("user", "w1")),
            ),
        ),
        (
            Columns("q", "a", template="{prompt}\n"),
            {"q": CHAT[1:], "a": [ANSWER]},
            Example("u", "w1\n", " w2 "),
        ),
        (
            Columns("q", "q"),
            {"q": [*CHAT[1:], ANSWER]},
            Example("u", "user: w1\n\nassistant: ", "w2", {}, (("user", "w1"),)),
        ),
    ],
)
def test_a_row_becomes_an_example(columns: Columns, row: dict[str, Any], expected: Example) -> None:
    assert columns.example(row, "u") == expected


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        ({}, {"promt": "a"}, r"no field 'prompt' .*fields found: promt\), did you mean 'promt'"),
        ({"prompt": "a.b"}, {"a": {"c": 1}}, r"no field 'a.b' \(task.prompt=a.b"),
        ({}, {"prompt": "  "}, r"empty prompt \(task.prompt=prompt\): correct or delete the row"),
        ({}, {"prompt": None}, r"that is nothing, neither a text nor a list of messages"),
        ({}, {"prompt": 3}, r"that is int, neither"),
        ({}, {"prompt": []}, r"that is nothing, neither"),
        ({}, {"prompt": ["x"]}, r"message 1 is no object with role and content"),
        ({}, {"prompt": [{"role": "robot", "content": "x"}]}, r"message 1 has role 'robot'"),
        ({}, {"prompt": [*CHAT, CHAT[0]]}, r"system message that is not the first"),
        ({}, {"prompt": [*CHAT, ANSWER]}, r"of assistant, .* pass task.reference=prompt"),
        ({"reference": "prompt"}, {"prompt": CHAT}, r"do not end with an answer"),
        ({"reference": "a"}, {"prompt": "x"}, r"no field 'a' \(task.reference=a"),
        ({"reference": "a"}, {"prompt": "x", "a": " "}, r"task.reference=a\) that is empty"),
        ({"reference": "a"}, {"prompt": "x", "a": CHAT}, r"whose last message is of user"),
        ({"hidden": ["n", "m"]}, {"prompt": "x", "n": 1}, r"no field 'm' \(task.hidden=m"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_its_line(
    tmp_path: Path, columns: dict[str, Any], row: dict[str, Any], message: str
) -> None:
    good = {"prompt": "x", "a": {"b": "x"}, "n": 1, "m": 1} | {columns.get("reference", "n"): "x"}
    if columns.get("reference") == "prompt":
        good["prompt"] = [*CHAT, ANSWER]
    path = write(tmp_path / "rows.jsonl", [good, row])
    with pytest.raises(UserError, match=rf"rows.jsonl:2\D.*{message}"):
        OwnPrompts(path=path, **columns).examples(Split.train)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "Q:"}, r"has no \{prompt\}"),
        ({"prompt": ""}, r"task.prompt='': name the column"),
        ({"test_split": "train"}, r"give each split a name of its own"),
        ({"validation_share": 0.6, "test_share": 0.4}, r"leave nothing to train on"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        OwnPrompts(**options)


def test_files_of_another_format_are_refused_with_what_to_do(tmp_path: Path) -> None:
    for name in ("rows.csv", "rows.jsonl.gz"):
        (tmp_path / name).write_bytes(b"prompt\nx\n")
        with pytest.raises(UserError, match=r"file is not read: convert it to .jsonl"):
            OwnPrompts(path=str(tmp_path / name)).examples(Split.train)
    with pytest.raises(UserError, match=r"task.path='': pass task.path=<a .jsonl"):
        OwnPrompts().examples(Split.train)


texts = st.text(min_size=1, max_size=12)


@given(st.lists(texts, unique=True, min_size=1), st.floats(0, 0.5), st.floats(0, 0.4))
def test_a_split_depends_on_the_prompt_alone_and_shares_only_take_from_train(
    prompts: list[str], validation: float, test: float
) -> None:
    narrow, wide = Hashing(validation, test), Hashing(validation + 0.05, test + 0.05)
    for prompt in prompts:
        before, after = narrow.split_of(prompt), wide.split_of(prompt)
        assert after is before or before is Split.train
        assert Hashing(0, 0).split_of(prompt) is Split.train


@given(st.integers(0, 60), st.randoms(use_true_random=False))
def test_further_rows_in_any_order_move_no_row(
    tmp_path_factory: pytest.TempPathFactory, more: int, order: Any
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    first = OwnPrompts(path=write(folder / "first.jsonl", numbered(60)), test_share=0.2)
    rows = [*numbered(60 + more), *numbered(5)]
    order.shuffle(rows)
    second = OwnPrompts(
        path=write(folder / "second.jsonl", rows), test_share=0.2, template="Q: {prompt}"
    )
    found = {split: prompts_of(second, split) for split in Split}
    for split in Split:
        assert {f"Q: {prompt}" for prompt in prompts_of(first, split)} <= found[split]
    assert sum(len(second.examples(split)) for split in Split) == len(rows)
    assert not found[Split.train] & found[Split.validation], "repeated prompts share a split"


def test_shares_are_about_met_and_the_seed_draws_others(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", numbered(2000))
    task = OwnPrompts(path=path, validation_share=0.2, test_share=0.1)
    sizes = {split: len(task.examples(split)) for split in Split}
    assert sum(sizes.values()) == 2000
    assert abs(sizes[Split.validation] - 400) < 60 and abs(sizes[Split.test] - 200) < 50
    other = OwnPrompts(path=path, validation_share=0.2, test_share=0.1, split_seed=1)
    assert prompts_of(other, Split.test) != prompts_of(task, Split.test)


def test_messages_are_split_by_their_text_without_the_answer(tmp_path: Path) -> None:
    rows = [{"p": [{"role": "user", "content": str(n)}, ANSWER]} for n in range(50)]
    bare = [{"p": row["p"][:1]} for row in rows]
    answered = OwnPrompts(path=write(tmp_path / "a.jsonl", rows), prompt="p", reference="p")
    asked = OwnPrompts(path=write(tmp_path / "b.jsonl", bare), prompt="p")
    assert prompts_of(answered, Split.train) == prompts_of(asked, Split.train)


def test_a_small_share_that_holds_out_no_row_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", numbered(3))
    task = OwnPrompts(path=path, validation_share=0.001)
    with pytest.raises(NoSuchFile, match=r"validation_share=0.001 puts none of the 3 rows of .*"):
        task.examples(Split.validation)
    with pytest.raises(NoSuchFile, match=r"one file, which holds no test split .*test_share=0.1"):
        task.examples(Split.test)


def test_a_folder_with_a_file_for_each_split_is_read_so(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", numbered(9))
    write(tmp_path / "dev.jsonl", numbered(2, first=20))
    task = OwnPrompts(path=str(tmp_path), validation_split="dev")
    assert task.split_by_what is SplitBy.file
    assert [len(task.examples(split)) for split in (Split.train, Split.validation)] == [9, 2]
    with pytest.raises(NoSuchFile, match=r"test.jsonl cannot be read"):
        task.examples(Split.test)
    only_train = OwnPrompts(path=str(tmp_path))
    assert only_train.split_by_what is SplitBy.hash


def test_a_column_names_the_split_and_other_values_are_reported(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n}", "fold": n % 4} for n in range(12)]
    task = OwnPrompts(
        path=write(tmp_path / "rows.jsonl", rows),
        split_by=SplitBy.column,
        split_column="fold",
        train_split="0",
        validation_split="1",
        test_split="7",
    )
    assert prompts_of(task, Split.train) == {"0", "4", "8"}
    assert prompts_of(task, Split.validation) == {"1", "5", "9"}
    with pytest.raises(UserError, match=r"task.test_split=7: column 'fold' .*'0', '1', '2', '3'"):
        task.examples(Split.test)
    assert task.notes()[1:] == [
        "3 rows with fold=2 are in no split",
        "3 rows with fold=3 are in no split",
    ]
    assert task.uses() == {"prompt": "prompt", "fold": "split"}


def test_parquet_rows_may_hold_messages(tmp_path: Path) -> None:
    rows = [{"chat": [*CHAT[1:], ANSWER], "n": n, "meta": {"level": n}} for n in range(20)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    path = str(tmp_path / "rows.parquet")
    task = OwnPrompts(path=path, prompt="chat", reference="chat", hidden=["n", "meta.level"])
    last = task.examples(Split.train)[-1]
    assert (last.messages, last.reference) == ((("user", "w1"),), "w2")
    assert last.hidden["n"] == last.hidden["meta.level"]
    with pytest.raises(UserError, match=r"lacks the column promt \(columns found: chat, meta, n"):
        OwnPrompts(path=path, prompt="promt").examples(Split.train)


def test_the_model_reads_a_chat_in_its_template_and_other_prompts_as_they_are(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "rows.jsonl", [{"prompt": "w1", "chat": CHAT[1:]}] * 3)
    for options in ({"prompt": "chat"}, {"chat": True}):
        task = OwnPrompts(path=path, validation_share=0, **options)
        (example, *_) = task.examples(Split.train)
        assert prompt_renderer(task, tokenizer())(example) == "<user> w1 <end> <assistant> "
        with pytest.raises(UserError, match=r"no chat template.*task=prompts reads messages as"):
            prompt_renderer(task, byte_tokenizer())(example)
    plain = OwnPrompts(path=path, prompt="chat", template="{prompt}", validation_share=0)
    assert prompt_renderer(plain, byte_tokenizer())(plain.examples(Split.train)[0]) == "w1"


@given(st.text())
def test_any_text_is_bytes_and_comes_back(text: str) -> None:
    tokens = byte_tokenizer()(text, add_special_tokens=False)["input_ids"]
    assert byte_tokenizer().decode(tokens) == text
    assert len(tokens) == len(text.encode()) and all(token >= 2 for token in tokens)


def test_its_content_changes_with_its_files(tmp_path: Path) -> None:
    path = write(tmp_path / "train.jsonl", numbered(3))
    for task in (OwnPrompts(path=path), OwnPrompts(path=str(tmp_path))):
        write(tmp_path / "train.jsonl", numbered(3))
        before = task.content()
        assert list(before) == ["train.jsonl"]
        write(tmp_path / "train.jsonl", numbered(4))
        assert task.content() != before
    assert OwnPrompts(path="me/hub").content() == {}


def test_what_a_task_knows_of_itself() -> None:
    task = OwnPrompts(prompt="p", reference="p", hidden=["p", "h"])
    assert task.uses() == {"p": "prompt, reference, hidden", "h": "hidden"}
    assert task.has_references and not OwnPrompts().has_references


def test_a_hub_set_that_is_not_there_names_the_columns_it_must_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlhf_lab.tasks.optional_packages.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"file with the fields messages>"):
        read_hub("me/chats", {"split": "train"}, RequiredFields((), columns=("messages",)))


@pytest.mark.skipif(not REAL.is_dir(), reason="the real GSM8K is not here")
def test_gsm8k_is_read_as_prompts_and_keeps_its_own_test_split() -> None:
    task = OwnPrompts(path=str(REAL), prompt="question", reference="answer", hidden=["answer"])
    sizes = {split: len(task.examples(split)) for split in Split}
    assert sizes[Split.train] + sizes[Split.validation] == 7473 and sizes[Split.test] == 1319
    assert abs(sizes[Split.validation] - 747) < 80
    first = task.examples(Split.test)[0]
    assert first.hidden["answer"] == first.reference and "####" in first.reference


def test_a_plain_prompt_is_a_chat_where_the_tokenizer_has_a_template() -> None:
    plain = Example("row/1", "w1 w2", "w3")
    asked = replace(plain, messages=(("user", "w1 w2"),))
    instruct, base = tokenizer(), tokenizer(template="")
    for value, is_chat in (("auto", True), ("True", False), ("false", False)):
        form = OwnPrompts(path="x.jsonl", chat=value).chat_form
        seen = asked if is_chat else plain
        assert chat.encode(instruct, form, plain) == chat.encode(instruct, chat.OWN_FORM, seen)
        assert chat.answer_tokens(instruct, form, plain, "w3") == chat.answer_tokens(
            instruct, chat.OWN_FORM, seen, "w3"
        )
        assert chat.encode(base, form, plain) == chat.encode(base, chat.OWN_FORM, plain)
    # With true the rows themselves are chats, and a template of texts excludes both.
    columns = {value: OwnPrompts(path="x.jsonl", chat=value).columns for value in chat.CHAT}
    assert [columns[value].is_chat for value in chat.CHAT] == [False, True, False]
    assert not OwnPrompts(path="x.jsonl", template="Q: {prompt}").chat_form.takes_plain
    with pytest.raises(UserError, match=r"task\.chat=maybe"):
        OwnPrompts(path="x.jsonl", chat="maybe")
