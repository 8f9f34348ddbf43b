"""A run is judged on another task than its own, or refused with the key and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab.experiment.build.vocabulary import unknown_share, unknown_tokens
from rlhf_lab.experiment.run.evaluate_again import is_second_task
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.tasks.arithmetic import Arithmetic
from rlhf_lab.tasks.tldr_nano import TldrNano
from tests.conftest import MakeConfig
from tests.support.examples import call
from tests.support.survival import exact_rows


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A finished run of arithmetic, with the scores of its own task."""
    folder = tmp_path_factory.mktemp("second") / "sums"
    options = ("debug=tiny", "task=arithmetic", "algo=rloo", "run.updates=2", "eval.prompts=8")
    with pytest.MonkeyPatch.context() as patch:
        own = (f"output.cache={cache}", f"output.dir={folder}")
        assert call("train", *options, *own, monkeypatch=patch) == 0
    return folder


def test_a_run_is_judged_on_another_task_beside_its_own(
    sums: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (sums / "evals.jsonl").read_bytes()
    products = ("task=arithmetic", "task.operations='*'", "eval.label=products")
    both = ("task=mixture", "eval.label=both")
    for options in (products, both):
        assert call("evaluate", str(sums), *options, monkeypatch=monkeypatch) == 0
    assert (sums / "evals.jsonl").read_bytes() == before
    own, *others = (read_rows(sums / f"evals{label}.jsonl") for label in ("", "-products", "-both"))
    for rows in others:
        assert [row["version"] for row in rows] == [row["version"] for row in own]
        assert rows[0]["kl/sft_k1"] == pytest.approx(0.0, abs=1e-6), "version 0 is where it began"
        assert 0 <= rows[-1]["gold/mean"] <= 1
    assert all("*" in row["prompt"] for row in read_rows(sums / "samples-products.jsonl"))
    first = exact_rows(sums / "evals-products.jsonl")
    assert call("evaluate", str(sums), *products, monkeypatch=monkeypatch) == 0
    assert exact_rows(sums / "evals-products.jsonl") == first


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["task=mixture"], "task=mixture with eval.label='': evals.jsonl has the scores of"),
        (
            ["task=tldr_nano", "reward=reward_model", "eval.label=posts"],
            "reward=reward_model with task=tldr_nano: it would be trained on preferences",
        ),
        (
            ["task=tldr_nano", "reward=task_rule", "eval.label=posts"],
            "task=tldr_nano: the tokenizer that the run learned arithmetic with cannot read",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_judged(
    sums: Path,
    options: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("evaluate", str(sums), *options, monkeypatch=monkeypatch) == 2
    told = capsys.readouterr().err
    assert complaint in told and ("pass " in told or "choose " in told)
    assert not (sums / "evals-posts.jsonl").exists()


def test_texts_without_a_token_are_found_with_and_without_one_for_the_unknown() -> None:
    characters, words = Arithmetic().tokenizer(), TldrNano().tokenizer()
    assert unknown_tokens("1+2=", characters) == (0, 4)
    assert unknown_tokens("one", characters) == (3, 3)
    known = words.decode([words.vocab_size - 1])
    assert unknown_tokens(f"{known} {known} 1+2=", words)[0] == 1
    assert unknown_share([known, known, known, "zyx"], words) == 0.25
    assert unknown_share([""], words) == 0


def test_a_moved_file_is_no_second_task_of_a_pretrained_policy(make_config: MakeConfig) -> None:
    own = make_config("task=arithmetic")
    assert not is_second_task(make_config("task=arithmetic", "eval.label=x"), own)
    assert is_second_task(make_config("task=arithmetic", "task.digits=2"), own)
    pretrained = make_config("task=arithmetic", "model=pretrained", "model.path=mine")
    assert not is_second_task(make_config("task=arithmetic", "task.digits=2"), pretrained)
    assert is_second_task(make_config("task=mixture"), pretrained)
