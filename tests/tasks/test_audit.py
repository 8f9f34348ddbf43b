"""`rlhf-lab data` and `rlhf-lab relabel`: what they count, by hand and as a user would ask."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.artifacts.labels import read_pairs
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.data.report import inspect, share
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.audit import (
    DataOptions,
    Lengths,
    Limits,
    Overlap,
    SplitAudit,
    audit_split,
    ngrams,
    normalised,
    overlap,
    words,
)
from rlhf_lab.tasks.gsm8k import Gsm8k
from rlhf_lab.tasks.prompts import never_shorter
from rlhf_lab.tasks.tldr import Tldr
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.training.stages.relabel import ordered, write_relabelled
from rlhf_lab.training.stages.reward_model import accuracy
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Example, Group, Split
from tests.conftest import MakeConfig
from tests.support.examples import FACTS, call

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "gsm8k"


class Bar:
    def advance(self, amount: int = 1, **numbers: float) -> None: ...


def examples(*prompts: str, reference: str = " r") -> list[Example]:
    return [Example(f"row/{n}", prompt, reference) for n, prompt in enumerate(prompts, start=1)]


def words_of_prompt(example: Example) -> list[int]:
    return [1] * len(example.prompt.split())


def words_of_reference(example: Example) -> list[int]:
    """With an end token."""
    return [1] * (len(example.reference.split()) + 1)


def audited(rows: Sequence[Example], limits: Limits | None = None, **options: Any) -> SplitAudit:
    limits = limits or Limits(words_of_prompt, never_shorter, 3, 2, answer=words_of_reference)
    return audit_split(Split.train, rows, limits, DataOptions(**options), lambda: None)


def compared(of: Sequence[Example], against: Sequence[Example], **options: Any) -> Overlap:
    splits = {Split.test: of, Split.train: against}
    return overlap(Split.test, Split.train, splits, DataOptions(**options), lambda: None)


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_lengths_by_hand() -> None:
    lengths = Lengths(limit=4)
    for length in (1, 2, 3, 4, 10):
        lengths.add(length)
    assert (lengths.num, lengths.mean, lengths.num_over) == (5, 4.0, 1)
    assert [lengths.quantile(q) for q in (0.0, 0.5, 0.8, 0.95, 1.0)] == [1, 3, 4, 10, 10]


def test_quantiles_are_those_of_the_sorted_list() -> None:
    rng = random.Random(1)
    values = sorted(rng.randrange(50) for _ in range(200))
    lengths = Lengths()
    for value in values:
        lengths.add(value)
    for percent in range(1, 101):
        assert lengths.quantile(percent / 100) == values[-(-percent * 200 // 100) - 1]


def test_words_leave_case_spacing_and_punctuation_but_not_signs() -> None:
    assert words("Tom's  12+7*3=, No_way!") == [
        "tom",
        "s",
        "12",
        "+",
        "7",
        "*",
        "3",
        "=",
        "no",
        "way",
    ]
    assert normalised("A b,c") == normalised("a  B (C)")
    assert normalised("1+2") != normalised("1*2")
    assert normalised("?") != normalised("!"), "no words are left, so the text decides"


def test_repeats_are_counted_once_each_and_named_with_the_first() -> None:
    rows = examples("a b", "A b!", "a b", "c", "C", "a b")
    found = audited(rows)
    assert (found.same.num, found.same.named) == (2, [("row/3", "row/1"), ("row/6", "row/1")])
    assert (found.near.num, found.near.named) == (2, [("row/2", "row/1"), ("row/5", "row/4")])
    assert found.repeated == {1, 2, 4, 5}
    assert audited(rows, examples=1).same.named == [("row/3", "row/1")]


def test_rows_that_do_not_fit_are_counted_before_any_run() -> None:
    found = audited(examples("a b c d", "a b c", "a", reference=" x y"))
    assert found.lengths["prompt tokens"].num_over == 1
    # Two words and the end token, of which two fit.
    assert found.lengths["reference tokens"].num_over == 3
    assert found.too_long == {0}
    assert audited(examples("a b c d"), Limits(None, never_shorter, 3, 2)).too_long == set()


def test_an_overlap_is_n_words_in_a_row_or_the_whole_prompt() -> None:
    train = examples("the red fox ran far", "hello", "one two")
    test = examples("THE red fox, ran home", "Hello!", "red fox ran", "fox ran far off", "two one")
    found = compared(test, train, ngram=3)
    assert (found.num, found.num_equal, found.total) == (4, 1, 5)
    assert found.rows == {0, 1}
    assert found.named[:2] == [
        ("row/1", "row/1", "the red fox"),
        ("row/2", "row/2", "all of its words"),
    ]
    assert compared(test, train, ngram=4).num == 2


def test_phrases_of_many_rows_count_for_nothing_but_whole_prompts_always_do() -> None:
    train = examples(*(f"how much is {n}" for n in range(5)))
    assert compared(examples("how much is it"), train, ngram=3, common=4).num == 0
    assert compared(examples("how much is it"), train, ngram=3, common=5).num == 1
    same = examples(*["how much is it"] * 9)
    assert compared(same[:1], same, ngram=3, common=1).num_equal == 1


def test_overlap_is_what_holding_every_text_would_find() -> None:
    rng = random.Random(3)
    train, test = (
        examples(*(" ".join(rng.choices("abcdef", k=rng.randrange(1, 12))) for _ in range(40)))
        for _ in range(2)
    )
    for n, common in ((2, 3), (3, 1), (4, 10)):
        rows = [{gram for _, gram in ngrams(row.prompt, n)} for row in train]
        count = Counter(gram for row in rows for gram in row)
        texts = {row.prompt for row in train}
        expected = sum(
            row.prompt in texts or any(1 <= count[g] <= common for _, g in ngrams(row.prompt, n))
            for row in test
        )
        assert compared(test, train, ngram=n, common=common).num == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ngram": 1}, "data.ngram=1 is out of range: choose 2 "),
        ({"show": -1}, "data.show=-1"),
        ({"limit": 5, "out": "x"}, r"data.limit=5 with data.out=x"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        DataOptions(**options)


ROWS = [
    {"id": "a", "query": "red fox ran far away", "reference_response": "x y"},
    {"id": "b", "query": "green bird", "reference_response": ""},
    {"id": "a", "query": "Green bird!", "reference_response": "z"},
    {"id": "c", "query": "blue fish swam in the sea", "reference_response": "w"},
    {"id": "d", "query": "word " * 30, "reference_response": "w", "note": "n"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A TL;DR of five train rows: one is good, the others repeat, overlap or do not fit."""
    write(tmp_path / "mine" / "train.jsonl", ROWS)
    write(tmp_path / "mine" / "validation.jsonl", [{**ROWS[0], "query": "the red fox ran far"}])
    return tmp_path / "mine"


def data_config(make_config: MakeConfig, folder: Path, *overrides: str) -> Config:
    nano = Artifacts(make_config(), Console(quiet=True)).sft(make_config().model).folder
    return make_config(
        *("task=tldr", f"task.path={folder}", "model=pretrained", f"model.path={nano}"),
        *("task.max_prompt_tokens=20", "data.ngram=4", *overrides),
    )


def test_the_report_names_what_is_wrong(
    make_config: MakeConfig, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inspect(data_config(make_config, folder), Console(quiet=False, is_terminal=False))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith("test: left out (task.path:") for line in lines)
    for line in (
        "train 5 0 1 (20%) 1 (20%)",
        "train reference_response 1 (20%)",
        "train note 4 (80%)",
        "validation train 1 (100%) 0",
        "train: train.jsonl:3 has nearly the prompt of train.jsonl:2",
        "train: train.jsonl:3 has the id of train.jsonl:1",
        "validation: validation.jsonl:1 shares with train.jsonl:1 of train: red fox ran far",
    ):
        assert line in lines
    assert any("1 prompts have more than task.max_prompt_tokens=20" in line for line in lines)


def test_a_copy_leaves_out_what_is_wrong_and_the_input_is_as_it_was(
    make_config: MakeConfig, folder: Path, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    out = tmp_path / "clean"
    config = data_config(make_config, folder, f"data.out={out}")
    inspect(config, Console(quiet=True))
    assert list(read_pairs(out / "train.jsonl")) == [ROWS[1], ROWS[3]]
    assert (out / "validation.jsonl").read_bytes() == before["validation.jsonl"]
    assert json.loads((out / "entry.json").read_text())["train"] == {
        "rows": 5,
        "repeated": 1,
        "too_long": 1,
        "overlapping": 1,
        "kept": 2,
    }
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with pytest.raises(UserError, match=r"data.out=.*clean is there already: name a new folder"):
        inspect(config, Console(quiet=True))


def test_a_copy_needs_rows_and_something_left_of_them(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"rows of task=tldr_nano are made on demand"):
        inspect(make_config(f"data.out={tmp_path}/clean"), Console(quiet=True))
    path = write(tmp_path / "rows.jsonl", ROWS[:2])
    config = data_config(make_config, path, f"data.out={tmp_path}/clean")
    with pytest.raises(UserError, match=r"no train row is left .*overlapping 2.*not one file"):
        inspect(config, Console(quiet=True))
    assert not (tmp_path / "clean").exists()


def test_splits_cut_from_one_file_go_back_into_one_file(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    rows = [{"question": f"q{n // 2}", "answer": f"#### {n}"} for n in range(6)]
    for name in ("train", "test"):
        write(
            tmp_path / "gsm8k" / f"{name}.jsonl",
            rows if name == "train" else [{"question": "other", "answer": "#### 1"}],
        )
    config = make_config(
        *("task=gsm8k", f"task.path={tmp_path}/gsm8k", "task.validation_size=2"),
        *("data.tokens=false", f"data.out={tmp_path}/clean"),
    )
    inspect(config, Console(quiet=True))
    # q0 and q1 twice in train, of which one each stays; q2 twice in validation, which is kept.
    assert list(read_pairs(tmp_path / "clean" / "train.jsonl")) == [rows[0], rows[2], *rows[4:]]
    task = Gsm8k(path=f"{tmp_path}/clean", validation_size=2)
    assert [len(task.examples(split)) for split in Split] == [2, 2, 1]


def test_the_prompts_from_a_cursor_on_are_those_of_a_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("task.train_size=8", "seed=3")

    def shown(*options: str) -> list[str]:
        assert call("data", *small, *options, monkeypatch=monkeypatch) == 0
        return capsys.readouterr().out.splitlines()

    whole = shown("data.show=20")
    heads = [line for line in whole if line.startswith("prompt ")]
    assert heads[0].startswith("prompt 0: epoch 0, 1 of 8, tldr_nano/train/")
    assert heads[17].startswith("prompt 17: epoch 2, 2 of 8, tldr_nano/train/")
    assert shown("data.show=5", "data.start=15") == whole[whole.index(heads[15]) :]


def test_a_limit_reads_no_more_rows() -> None:
    rows = TldrNano().examples(Split.train)
    found = audited(rows, limit=50)
    assert (found.rows, found.lengths["prompt tokens"].num) == (50, 50)


def test_shares_are_readable() -> None:
    assert [share(0, 9), share(1, 3), share(1500, 1500)] == ["0", "1 (33%)", "1,500 (100%)"]


@pytest.mark.skipif(not REAL.is_dir(), reason="the real GSM8K is not beside the checkout")
def test_the_first_rows_of_the_real_gsm8k_are_no_repeats() -> None:
    rows = Gsm8k(path=str(REAL)).examples(Split.train)
    found = audited([rows[number] for number in range(300)], Limits(None, never_shorter, 512, 128))
    assert (found.rows, found.same.num, found.near.num) == (300, 0, 0)


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="the real GSM8K is not beside the checkout")
def test_what_the_real_gsm8k_holds() -> None:
    task = Gsm8k(path=str(REAL))
    splits = {split: task.examples(split) for split in (Split.train, Split.test)}
    limits = Limits(None, never_shorter, 512, 128)
    found = audit_split(Split.train, splits[Split.train], limits, DataOptions(), lambda: None)
    assert (found.rows, found.same.num, found.near.num) == (7217, 0, 0)
    shared = overlap(Split.test, Split.train, splits, DataOptions(), lambda: None)
    assert (shared.num, shared.num_equal, shared.total) == (3, 0, 1319)


class Table(Reward):
    """A judge that knows its scores by the text."""

    def __init__(self, scores: dict[str, float]) -> None:
        self._scores = scores

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        known = [[s.text for s in group.samples if s.text in self._scores] for group in groups]
        return [tuple(self._scores[text] for text in texts if len(texts) == 2) for texts in known]


def pair(chosen: str, rejected: str, **more: Any) -> dict[str, Any]:
    return {"prompt": "p", "chosen": chosen, "rejected": rejected, **more}


def test_pairs_are_ordered_by_score_and_ties_keep_their_order(tmp_path: Path) -> None:
    rows = [
        pair("a", "b"),
        pair("b", "a", chosen_tokens=[1], note=7),
        pair("a", "c"),
        pair("c", "b"),
        pair("a", "unknown"),
    ]
    judge = Table({"a": 2.0, "b": 1.0, "c": 2.0})
    path = tmp_path / "train.jsonl"
    measured = write_relabelled(path, rows, judge, None, {}, Bar())
    shares = {"agreement": 0.5, "ties": 0.25, "swapped": 0.25, "unscored": 0.2}
    assert measured == {"pairs": 4.0, **shares}, "what cannot be scored is left out and counted"
    assert read_pairs(path)[1] == {
        **pair("a", "b", rejected_tokens=[1], note=7),
        **{"chosen_gold": 2.0, "rejected_gold": 1.0, "is_swapped": True},
    }
    assert [row["chosen"] for row in read_pairs(path)] == ["a", "a", "a", "c"]
    assert [row["is_swapped"] for row in read_pairs(path)] == [False, True, False, False]
    assert ordered(pair("a", "b"), 0.0, 0.0)["is_swapped"] is False


def test_accuracy_by_gap_needs_scores() -> None:
    import torch

    scored = [{"chosen_gold": float(n), "rejected_gold": 0.0} for n in range(4)]
    gap_P = torch.tensor([-1.0, 1.0, 1.0, 1.0])
    assert accuracy(gap_P, scored)["accuracy_gap_quarter_1"] == 0.0
    assert "accuracy_gap_quarter_1" not in accuracy(gap_P, [pair("a", "b")] * 4)


def stages(config: Config) -> Artifacts:
    return Artifacts(config, Console(quiet=True))


def test_labels_relabelled_by_a_reward_model_train_one_and_a_run(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    labels = stages(make_config()).labels().folder
    proxy = stages(make_config()).reward_model().folder
    judge = ("reward@judge=reward_model", f"judge.path={proxy}")
    product = stages(make_config(f"labels.path={labels}", *judge)).relabel()
    given, rows = (read_pairs(folder / "train.jsonl") for folder in (labels, product.folder))
    assert product.metrics["train_pairs"] == len(rows) == len(given)
    assert all(row["chosen_gold"] >= row["rejected_gold"] for row in rows)
    swapped = [row["is_swapped"] for row in rows]
    assert product.metrics["train_swapped"] == sum(swapped) / len(rows)
    assert 0 < sum(swapped) < len(rows), "four steps teach a reward model little"
    for before, after in zip(given, rows, strict=True):
        sides = ("rejected", "chosen") if after["is_swapped"] else ("chosen", "rejected")
        assert [after[side] for side in sides] == [before["chosen"], before["rejected"]]
        assert after[f"{sides[0]}_tokens"] == before["chosen_tokens"]
    assert (product.folder / "held_out.jsonl").is_file()
    again = stages(make_config(f"labels.path={product.folder}", *judge)).relabel()
    assert again.metrics["train_swapped"] == 0.0
    trained = stages(make_config(f"labels.path={product.folder}")).reward_model()
    assert "accuracy_gap_quarter_1" in trained.metrics
    config = make_config(
        *("algo=dpo", f"generator.path={product.folder}/train.jsonl", "eval=none"),
        f"output.dir={tmp_path}/run",
    )
    assert (lifecycle.train(config, Console(quiet=True), FACTS) / "metrics.jsonl").is_file()


def test_a_users_text_pairs_go_through_relabel_and_reward_model(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    task = TldrNano()
    rows = [
        {"prompt": row.prompt, "chosen": " i", "rejected": row.reference}
        for row in (task.examples(Split.train)[n] for n in range(40))
    ]
    path = write(tmp_path / "pairs.jsonl", rows)
    options = (f"labels.path={path}", "labels.held_out_pairs=8")
    unscored = stages(make_config(*options)).reward_model()
    assert unscored.metrics["held_out_pairs"] == 8.0
    assert "accuracy_gap_quarter_1" not in unscored.metrics
    # The task's own rule knows these prompts, and that a reference says more than "i".
    product = stages(make_config(*options)).relabel()
    assert (product.metrics["train_pairs"], product.metrics["held_out_pairs"]) == (32.0, 8.0)
    assert product.metrics["train_agreement"] < 0.5
    assert read_pairs(product.folder / "train.jsonl")[0]["chosen"] == rows[0]["rejected"]
    offline = make_config("generator=pairs", f"generator.path={path}", "labels.held_out_pairs=8")
    assert stages(offline).relabel().folder == product.folder


def test_pairs_that_cannot_be_relabelled_say_why(make_config: MakeConfig, tmp_path: Path) -> None:
    def refused(match: str, *options: str) -> None:
        with pytest.raises(UserError, match=match):
            stages(make_config(*options)).relabel()

    path = write(tmp_path / "pairs.jsonl", [pair("a", "b")] * 3)
    refused(r"labels.path='': pass labels.path=<JSON lines")
    refused(r"labels.held_out_pairs=32, but .* has only 3 pairs", f"labels.path={path}")
    one = (f"labels.path={path}", "labels.held_out_pairs=1", "task.train_size=50")
    refused(r"judge=task_rule: the prompt 'p' and 0 others .*pass reward@judge=reward_mo", *one)
    judge = ("reward@judge=reward_model", f"judge.path={tmp_path}/none")
    refused(r"judge.path=.*/none has no tokenizer that could be loaded", *one, *judge)
    refused(r"labels.path=.* has no train.jsonl", f"labels.path={tmp_path}")
    write(tmp_path / "bad.jsonl", [pair("a", "b"), pair(" ", "a")])
    refused(
        r"labels.path: .*bad.jsonl, line 2 has an empty field", f"labels.path={tmp_path}/bad.jsonl"
    )


def test_commands_exist_at_the_door(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call("data", "task.train_size=40", "data.limit=30", monkeypatch=monkeypatch) == 0
    assert "overlap of prompts (13 words in a row" in capsys.readouterr().out
    assert call("relabel", "debug=tiny", monkeypatch=monkeypatch) == 2
    assert "rlhf-lab relabel: labels.path=''" in capsys.readouterr().err
    assert call("data", "data.ngram=0", monkeypatch=monkeypatch) == 2
    assert "data.ngram=0 is out of range: choose 2 " in capsys.readouterr().err


def test_columns_of_a_hub_or_file_split_are_those_of_its_rows(folder: Path) -> None:
    found = audited(Tldr(path=str(folder)).examples(Split.train))
    assert found.columns == ["id", "query", "reference_response", "note"]
    assert dict(found.empty) == {"id": 0, "query": 0, "reference_response": 1, "note": 4}
