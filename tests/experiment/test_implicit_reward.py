"""The implicit reward of policies beside reward models: by hand, and of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_lab.experiment.publish.implicit_reward import Comparison, implicit_gaps, right
from rlhf_lab.models.options import ScratchModel, scratch
from rlhf_lab.tasks.tldr_nano import TldrNano
from tests.support.examples import call

pytestmark = pytest.mark.usefixtures("costly")

MODEL = ScratchModel("small", hidden_size=8, num_layers=1, num_heads=1)


def test_equal_rewards_count_half_and_differences_are_by_pair() -> None:
    explicit_P = right(torch.tensor([2.0, 0.5, 0.0, 3.0]))
    assert explicit_P.tolist() == [1.0, 1.0, 0.5, 1.0]
    rows = Comparison(right(torch.tensor([2.0, -1.0, 0.0, 1.0])), explicit_P).rows()
    # Differences 0, -1, 0, 0: mean -1/4, standard deviation 1/2; Wilson's bounds of 2.5 of 4.
    assert [row[2] for row in rows] == [
        "0.625 [0.219, 0.908]",
        "0.875 [0.396, 0.987]",
        "-0.250 [-0.740, +0.240]",
    ]


def logp_by_hand(model: Any, row: dict[str, Any], side: str) -> float:
    """Log-prob of an answer, from the logits for the row alone, without padding."""
    tokens, start = row["prompt_tokens"] + row[side], len(row["prompt_tokens"])
    logp_TV = torch.log_softmax(model(torch.tensor([tokens])).logits[0], dim=-1)
    return sum(float(logp_TV[place - 1, tokens[place]]) for place in range(start, len(tokens)))


def test_the_gap_is_that_of_the_log_ratios() -> None:
    tokenizer = TldrNano().tokenizer()
    policy, reference = (scratch(MODEL, tokenizer, seed).eval() for seed in (1, 2))
    rows: list[dict[str, Any]] = [
        {"prompt_tokens": [5, 6], "chosen_tokens": [7, 8, 9], "rejected_tokens": [9]},
        {"prompt_tokens": [4], "chosen_tokens": [3], "rejected_tokens": [8, 7]},
    ]
    rows = [row | {"prompt": "", "chosen": ""} for row in rows]
    with torch.inference_mode():
        expected = [
            sum(
                sign * (logp_by_hand(policy, row, side) - logp_by_hand(reference, row, side))
                for sign, side in ((1, "chosen_tokens"), (-1, "rejected_tokens"))
            )
            for row in rows
        ]
    gap_P = implicit_gaps(policy, reference, rows, pad_id=0)
    assert gap_P.tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_run_on_pairs_is_compared_with_the_reward_model_of_its_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int
) -> None:
    run = tmp_path / "run"
    given = ["debug=tiny", "algo=dpo", "eval=none", f"output.cache={tmp_path}/cache"]
    given.append(f"model.lora_rank={rank}")
    assert call("train", *given, f"output.dir={run}", monkeypatch=monkeypatch) == 0
    capsys.readouterr()
    assert call("implicit-reward", str(run), monkeypatch=monkeypatch) == 0
    names = ("policy's implicit reward", "reward model", "difference, by pair")
    shown = capsys.readouterr().out
    numbers = {
        name: line.removeprefix(name).split()[:2]
        for line in map(str.strip, shown.splitlines())
        for name in names
        if line.startswith(name)
    }
    implicit, explicit, difference = (float(numbers[name][1]) for name in names)
    assert difference == pytest.approx(implicit - explicit, abs=2e-3)
    assert call("implicit-reward", str(tmp_path / "cache"), monkeypatch=monkeypatch) == 2
