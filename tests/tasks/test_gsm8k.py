"""GSM8K and TL;DR from files: rows, answers, splits."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

import pytest

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.tasks.gsm8k import Gsm8k, Verify, answer_of, example
from rlhf_lab.tasks.tldr import Tldr
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split
from tests.conftest import MakeConfig

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "gsm8k"


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


@pytest.mark.parametrize("answer", ["3/7", "1 200", "1.5e+06", "2^10", "3 and 4", "-1 / 2"])
@pytest.mark.parametrize("verify", Verify)
def test_a_final_answer_that_is_more_than_a_number_is_refused(verify: Verify, answer: str) -> None:
    with pytest.raises(UserError, match=r"u: the field 'answer' .*#### " + re.escape(answer)):
        example(Gsm8k(verify=verify).template, {"question": "q", "answer": f"#### {answer}"}, "u")
    row = {"question": "q", "answer": "2 + 1\n#### 1,200.5 km\nin 3 lines"}
    assert example("", row, "u").hidden["answer"] == "1200.5"


def test_the_held_out_part_must_leave_something_to_train_on(tmp_path: Path) -> None:
    write(tmp_path, "train", [{"question": "1?", "answer": "#### 1"}])
    with pytest.raises(UserError, match=r"task.validation_size=256, but .* has only 1"):
        Gsm8k(path=str(tmp_path)).examples(Split.train)


def test_a_template_must_hold_the_question() -> None:
    with pytest.raises(UserError, match=r"task.template='Solve' has no \{question\}"):
        Gsm8k(template="Solve")


@pytest.fixture
def package() -> None:
    pytest.importorskip("math_verify", reason="needs pip install 'rlhf-lab[math]'")


needs_package = pytest.mark.usefixtures("package")


def score(text: str, answer: str, verify: Verify = Verify.math_verify) -> float:
    row = Example("row/1", "?", f" #### {answer}", {"answer": answer})
    return Gsm8k(verify=verify).judge(row, text, True)


@needs_package
@pytest.mark.parametrize(
    ("text", "answer", "is_right"),
    [
        ("#### 1,000", "1000", True),
        ("#### 1000", "1000", True),
        ("#### 1000.0", "1000", True),
        ("#### 2000/2", "1000", True),
        ("#### 2,000 / 2 apples", "1000", True),
        (r"#### $\frac{2000}{2}$", "1000", True),
        (r"#### \$1,000.00", "1000", True),
        ("#### 500 + 500", "1000", True),
        ("#### 3.5", "3.50", True),
        ("#### -5 apples", "-5", True),
        ("#### 7.", "7", True),
        ("#### 5 (five)", "5", True),
        ("#### 2000/2", "2000", False),
        ("#### 3 or 4", "4", False),
        ("#### 3, 4", "3", False),
        ("#### 1 then #### 2", "2", False),
        ("#### 1001", "1000", False),
        ("#### 1/0", "1", False),
        ("#### 0/0", "0", False),
        ("#### 10^3", "10", False),
        ("#### 9**9**9**9", "9", False),
        ("#### 3(4)", "3", False),
        ("#### what?", "1", False),
        ("1000", "1000", False),
        ("", "1000", False),
    ],
)
def test_equal_numbers_count_whatever_their_form(text: str, answer: str, is_right: bool) -> None:
    assert score(text, answer) == float(is_right)


def test_the_string_decides_by_default() -> None:
    assert Gsm8k().verify is Verify.exact
    assert score("#### 1,000", "1000", Verify.exact) == 1.0
    assert score("#### 1000.0", "1000", Verify.exact) == 0.0


@needs_package
@pytest.mark.parametrize(
    "text",
    [
        "#### " + "(" * 500,
        "#### " + "{" * 31 + "1" + "}" * 31,
        "#### " + "9**" * 40 + "9",
        "#### 9^9^9^9^9",
        "#### " + "9" * 5000,
        "#### " + "*".join([f"{'9' * 30}.{'9' * 30}"] * 8),
        "#### " + "/".join([f"{'7' * 30}.{'7' * 30}"] * 8),
        "#### " + "/".join(["7"] * 500),
        "#### " + "1," * 5000,
        "#### " * 5000,
    ],
)
def test_no_answer_takes_long(text: str) -> None:
    score("#### 1.0", "1")
    start = time.thread_time()
    assert score(text, "1") == 0.0
    # Of this thread's own work, however busy the machine is; by ignorant ways it takes minutes.
    assert time.thread_time() - start < 5


@needs_package
def test_threads_can_judge() -> None:
    told: list[float] = []
    threads = [
        threading.Thread(target=lambda i=i: told.append(score(f"#### {2 * i}/2", f"{i}.0")))
        for i in range(1, 9)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [1.0] * 8


def test_a_missing_math_verify_is_named_with_its_extra(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlhf_lab.tasks.optional_packages.find_spec", lambda _: None)
    check(config_of("task=gsm8k"))
    with pytest.raises(UserError, match=r"task.verify=math_verify needs .*'rlhf-lab\[math\]'"):
        check(config_of("task=gsm8k", "task.verify=math_verify"))


@needs_package
@pytest.mark.skipif(not REAL.is_dir(), reason="the real GSM8K is not beside the checkout")
def test_every_real_reference_equals_its_own_answer() -> None:
    task = Gsm8k(path=str(REAL), verify=Verify.math_verify)
    rows = task.examples(Split.test)
    assert all(task.judge(row, row.reference, True) == 1.0 for row in rows)


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
