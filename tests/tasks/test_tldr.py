"""TL;DR from raw posts and prepared queries, from JSONL and Parquet, shortened as N+ does it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from rlhf_lab.experiment.build.prompts import build_prompts
from rlhf_lab.models.causal_lm import with_padding
from rlhf_lab.tasks.prompts import PromptStream
from rlhf_lab.tasks.references import reference_sample
from rlhf_lab.tasks.tldr import RowKind, Tldr
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Finish, Prompt, Split
from rlhf_lab.types.text_frame import Marks, marked
from tests.conftest import MakeConfig

RAW = {"subreddit": "cats", "title": "My cat", "post": "one\ntwo\nthree", "summary": "  it purrs "}
PREPARED = {"query": "SUBREDDIT: r/x\n\nTL;DR:", "reference_response": " it is.<|endoftext|>"}


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def parquet(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    pytest.importorskip("pyarrow", reason="needs pip install 'rlhf-lab[hub]'")
    from pyarrow import Table
    from pyarrow.parquet import write_table

    write_table(Table.from_pylist(rows), path)
    return path


def raw_task(path: Path, **options: Any) -> Tldr:
    return Tldr(path=str(path), rows=RowKind.raw, **options)


def words(text: str) -> list[int]:
    """One token a word."""
    return [1] * len(text.split())


class Words:
    """The part of a tokenizer that reading prompts needs."""

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": words(text)}


def words_of(example: Example) -> list[int]:
    return words(example.prompt)


def characters(text: str) -> list[int]:
    return [1] * len(text)


def test_a_raw_row_becomes_the_query_of_the_paper(tmp_path: Path) -> None:
    task = raw_task(write(tmp_path / "rows.jsonl", [RAW]))
    row = task.examples(Split.train)[0]
    assert row.prompt == ("SUBREDDIT: r/cats\n\nTITLE: My cat\n\nPOST: one\ntwo\nthree\n\nTL;DR:")
    assert row.reference == " it purrs"


def test_columns_and_template_are_options_and_the_text_is_not_read_as_a_template(
    tmp_path: Path,
) -> None:
    rows = [{"s": "x", "t": "{post}", "p": "{title} {subreddit}", "y": "z"}]
    task = raw_task(
        write(tmp_path / "rows.jsonl", rows),
        **{"subreddit_column": "s", "title_column": "t", "post_column": "p"},
        **{"summary_column": "y", "template": "{subreddit}|{title}|{post}"},
    )
    assert task.examples(Split.train)[0].prompt == "x|{post}|{title} {subreddit}"
    with pytest.raises(UserError, match=r"task.template='TL;DR:' has no \{post\}"):
        Tldr(template="TL;DR:")


def shortened(task: Tldr, limit: int, encode: Any) -> str:
    def read(example: Example) -> list[int]:
        return list(encode(example.prompt))

    stream = PromptStream(task.examples(Split.train), read, 1, limit, shorten=task.shorter)
    assert len(stream[0].tokens) <= limit
    assert stream[0].tokens == tuple(encode(stream[0].example.prompt))
    return stream[0].example.prompt


def test_a_post_is_cut_at_its_last_newline_until_the_query_fits(tmp_path: Path) -> None:
    task = raw_task(write(tmp_path / "rows.jsonl", [RAW]))
    # SUBREDDIT: r/cats TITLE: My cat POST: TL;DR: are 7 words.
    assert "POST: one\ntwo\nthree\n\nTL;DR:" in shortened(task, 10, words)
    assert "POST: one\ntwo\n\nTL;DR:" in shortened(task, 9, words)
    assert "POST: one\n\nTL;DR:" in shortened(task, 8, words)


def test_a_post_without_a_newline_loses_a_character_for_each_token_too_many(
    tmp_path: Path,
) -> None:
    task = raw_task(write(tmp_path / "rows.jsonl", [{**RAW, "post": "abcdef\nxyz"}]))
    around = len("SUBREDDIT: r/cats\n\nTITLE: My cat\n\nPOST: \n\nTL;DR:")
    assert "POST: abcdef\n\nTL;DR:" in shortened(task, around + 9, characters)
    assert "POST: abcd\n\nTL;DR:" in shortened(task, around + 4, characters)
    assert shortened(task, around + 1, characters).endswith("POST: a\n\nTL;DR:")


def test_a_query_that_is_too_long_without_any_post_is_refused(tmp_path: Path) -> None:
    task = raw_task(write(tmp_path / "rows.jsonl", [{**RAW, "title": "long " * 30}]))
    with pytest.raises(UserError, match=r"rows.jsonl:1 has 35 tokens, more than task.max_prompt_t"):
        shortened(task, 20, words)


def test_a_prepared_query_is_never_cut(tmp_path: Path) -> None:
    task = Tldr(path=str(write(tmp_path / "rows.jsonl", [PREPARED])))
    row = task.examples(Split.train)[0]
    assert task.shorter(row, 5) is None
    assert (row.prompt, row.reference) == (PREPARED["query"], " it is.")


def test_parquet_rows_are_those_of_jsonl(tmp_path: Path) -> None:
    rows = [{**RAW, "title": f"cat {number}", "id": number} for number in range(5)]
    texts = raw_task(write(tmp_path / "a.jsonl", rows)).examples(Split.train)
    folder = tmp_path / "folder"
    folder.mkdir()
    parquet(folder / "train.parquet", rows)
    for path in (folder, folder / "train.parquet"):
        columns = raw_task(path).examples(Split.train)
        assert [row.prompt for row in columns] == [row.prompt for row in texts]
        assert [row.reference for row in columns] == [row.reference for row in texts]
        assert columns[4].uid == f"{folder}/train.parquet:5"
        with pytest.raises(IndexError):
            columns[5]


def test_bad_parquet_is_refused_with_file_row_and_columns(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"

    def refused(match: str) -> None:
        with pytest.raises(UserError, match=match):
            Tldr(path=str(path)).examples(Split.train)
        path.unlink()
        from rlhf_lab.tasks.tldr import load

        load.cache_clear()

    parquet(path, [RAW])
    refused(r"train.parquet lacks the column query, reference_response \(columns found: post, su")
    parquet(path, [PREPARED, {**PREPARED, "query": None}])
    refused(r"train.parquet, row 2 has no text in field 'query'")
    parquet(path, [PREPARED, PREPARED, {**PREPARED, "query": " \n"}])
    refused(r"train.parquet, row 3 has an empty field 'query': write the text, or delete the row")
    parquet(path, [PREPARED])
    path.write_bytes(path.read_bytes()[:-9])
    refused(r"train.parquet: it is no Parquet file that can be read")
    write(tmp_path / "train.jsonl", [PREPARED])
    parquet(path, [PREPARED])
    with pytest.raises(UserError, match=r"train.jsonl and train.parquet: keep one"):
        Tldr(path=str(tmp_path)).examples(Split.train)


def test_no_rows_no_file_and_no_pyarrow_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"train.jsonl cannot be read .*no train.parquet"):
        Tldr(path=str(tmp_path)).examples(Split.train)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UserError, match=r"empty.jsonl is empty"):
        Tldr(path=f"{tmp_path}/empty.jsonl").examples(Split.train)
    (tmp_path / "some.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr("rlhf_lab.tasks.optional_packages.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"some.parquet needs the package pyarrow.*rlhf-lab\[hub\]"):
        Tldr(path=f"{tmp_path}/some.parquet").examples(Split.train)
    with pytest.raises(UserError, match=r"hub dataset needs the package datasets.*-lab\[hub\]"):
        Tldr(path="nobody/nothing").examples(Split.train)


def test_blank_prompts_and_empty_rows_are_refused_with_their_line(tmp_path: Path) -> None:
    blank = write(tmp_path / "blank.jsonl", [PREPARED, {**PREPARED, "query": "  "}])
    with pytest.raises(UserError, match=r"blank.jsonl, line 2 has an empty field 'query'"):
        Tldr(path=str(blank)).examples(Split.train)
    empty = write(tmp_path / "empty.jsonl", [PREPARED, {}])
    with pytest.raises(UserError, match=r"empty.jsonl, line 2 has no field 'query' \(fields found"):
        Tldr(path=str(empty)).examples(Split.train)
    post = write(tmp_path / "post.jsonl", [{**RAW, "post": "\n"}])
    with pytest.raises(UserError, match=r"post.jsonl, line 1 has an empty field 'post'"):
        raw_task(post).examples(Split.train)


def pythia_like() -> PreTrainedTokenizerFast:
    """A vocabulary with <|padding|> whose tokenizer pads with the end token, as Pythia's may."""
    vocab = {"<|endoftext|>": 0, "<|padding|>": 1, "it": 2, "is": 3}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="<|padding|>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|endoftext|>", eos_token="<|endoftext|>"
    )


def test_a_response_ends_in_one_end_token_and_padding_is_another() -> None:
    tokenizer = with_padding(pythia_like())
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (1, 0)
    example = Example("1", "it", " it is")
    sample = reference_sample(Prompt(0, (2,), example), tokenizer, 53)
    assert (sample.tokens, sample.finish) == ((2, 3, 0), Finish.eos)
    assert reference_sample(Prompt(0, (2,), example), tokenizer, 2).tokens == (2, 0)


def numbered(tmp_path: Path, num: int = 11) -> Tldr:
    rows = [{**PREPARED, "query": f"post {number}"} for number in range(num)]
    return Tldr(path=str(write(tmp_path / "numbered.jsonl", rows)))


def test_resuming_from_a_cursor_is_the_stream_that_was_never_cut(tmp_path: Path) -> None:
    task = numbered(tmp_path)

    def stream() -> PromptStream:
        return PromptStream(task.examples(Split.train), words_of, 7, 99)

    first = stream()
    whole = [first[cursor] for cursor in range(40)]
    resumed = stream()
    assert [resumed[cursor] for cursor in range(17, 40)] == whole[17:]
    epochs = [[p.example.uid for p in whole[start : start + 11]] for start in (0, 11, 22)]
    assert all(len(set(epoch)) == 11 for epoch in epochs), "every row once an epoch"
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    other = PromptStream(task.examples(Split.train), words_of, 8, 99)
    assert [other[cursor].example.uid for cursor in range(11)] != epochs[0]


def test_another_process_sees_the_same_order(config_of: MakeConfig, tmp_path: Path) -> None:
    task = numbered(tmp_path)
    code = (
        "from rlhf_lab.tasks.prompts import PromptStream\n"
        "from rlhf_lab.tasks.tldr import Tldr\n"
        "from rlhf_lab.types.samples import Split\n"
        f"rows = Tldr(path={task.path!r}).examples(Split.train)\n"
        "stream = PromptStream(rows, lambda row: [1], 7, 99)\n"
        "print([stream[cursor].example.uid for cursor in range(5, 30)])\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    stream = PromptStream(task.examples(Split.train), words_of, 7, 99)
    assert found.stdout.strip() == str([stream[cursor].example.uid for cursor in range(5, 30)])


def test_a_file_is_held_as_places_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "crlf.jsonl"
    lines = [json.dumps({**PREPARED, "query": f"é {n}"}, ensure_ascii=False) for n in range(3)]
    path.write_bytes(f"\r\n{lines[0]}\r\n\n{lines[1]}\n{lines[2]}".encode())
    rows = Tldr(path=str(path)).examples(Split.train)
    assert [(row.prompt, row.uid.split(":")[1]) for row in rows] == [
        ("é 0", "2"),
        ("é 1", "4"),
        ("é 2", "5"),
    ]
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(UserError, match=r"crlf.jsonl, line 4 is not JSON"):
        rows[1]


def test_a_run_shortens_what_its_task_can_shorten(config_of: MakeConfig, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [RAW])
    config = config_of(
        *("task=tldr", f"task.path={path}", "task.rows=raw", "task.max_prompt_tokens=9")
    )
    tokenizer = marked(Words(), Marks(start=(), ends=(0,)))
    stream = build_prompts(config, tokenizer, Split.train, "rollout")
    assert "POST: one\ntwo\n\nTL;DR:" in stream[0].example.prompt
