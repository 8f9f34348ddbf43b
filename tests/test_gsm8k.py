"""GSM8K and TL;DR from files: rows, answers, splits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlhf_lab.tasks.gsm8k import Gsm8k, answer_of
from rlhf_lab.tasks.tldr import Tldr
from rlhf_lab.types import Split, UserError

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "gsm8k"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so 3.\n#### 3", "3"),
        ("#### 1,200", "1200"),
        ("#### -5 apples", "-5"),
        ("#### 3.50", "3.50"),
        ("#### 7.", "7"),
        ("#### 1 then #### 2", "1"),
        ("the answer is 3", None),
        ("### 3", None),
        ("", None),
    ],
)
def test_the_first_final_answer_counts(text: str, answer: str | None) -> None:
    assert answer_of(text) == answer


def write(folder: Path, file: str, rows: list[dict[str, str]]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"{file}.jsonl").write_text(text, encoding="utf-8")


def test_rows_become_prompts_references_and_hidden_answers(tmp_path: Path) -> None:
    rows = [{"question": f"{i} + {{1}}?", "answer": f"Add.\n#### {i + 1}"} for i in range(6)]
    for file in ("train", "test"):
        write(tmp_path, file, rows)
    task = Gsm8k(path=str(tmp_path), validation_size=2)
    sizes = [len(task.examples(split)) for split in Split]
    assert dict(zip(Split, sizes, strict=True)) == {
        Split.train: 4,
        Split.validation: 2,
        Split.test: 6,
    }
    row = task.examples(Split.validation)[1]
    assert row.prompt == "[MATH_TASK] Problem:\n5 + {1}?\n\nSolution:"
    assert row.reference == " Add.\n#### 6"
    assert task.judge(row, row.reference, True) == 1.0
    assert task.judge(row, "#### 7", True) == 0.0
    assert task.judge(row, "no idea", True) == 0.0


def test_the_held_out_part_must_leave_something_to_train_on(tmp_path: Path) -> None:
    write(tmp_path, "train", [{"question": "1?", "answer": "#### 1"}])
    with pytest.raises(UserError, match=r"task.validation_size=256, but .* has only 1"):
        Gsm8k(path=str(tmp_path)).examples(Split.train)


def test_a_template_must_hold_the_question() -> None:
    with pytest.raises(UserError, match=r"task.template='Solve' has no \{question\}"):
        Gsm8k(template="Solve")


@pytest.mark.skipif(not REAL.is_dir(), reason="the real GSM8K is not beside the checkout")
def test_the_real_gsm8k_reads_whole() -> None:
    task = Gsm8k(path=str(REAL))
    assert len(task.examples(Split.train)) + len(task.examples(Split.validation)) == 7473
    test = task.examples(Split.test)
    assert len(test) == 1319
    assert all(task.judge(row, row.reference, True) == 1.0 for row in test)


def test_tldr_reads_named_columns_and_begins_references_with_one_space(tmp_path: Path) -> None:
    rows = [{"post": "SUBREDDIT: r/x\n\nTL;DR:", "short": "  it is.<|endoftext|>"}]
    write(tmp_path, "train", rows)
    task = Tldr(path=str(tmp_path), prompt_column="post", reference_column="short")
    row = task.examples(Split.train)[0]
    assert (row.prompt, row.reference) == (rows[0]["post"], " it is.")
    with pytest.raises(UserError, match=r"line 1 has no field 'query' \(fields found: post, sh"):
        Tldr(path=str(tmp_path)).examples(Split.train)
    with pytest.raises(UserError, match=r"task=tldr has no rule.*reward@judge=paper_gold"):
        task.judge(row, "text", True)
