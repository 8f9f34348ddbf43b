"""A model of steps: its labels, its loss by hand, and that a run is paid for what it learned."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_lab.cli.stages import train_reward_models
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.tldr_nano import word_tokenizer
from rlhf_lab.training.stages.step_labels import LabelledSteps, labelled_steps, step_rows
from rlhf_lab.training.stages.step_reward_model import StepLoss, step_batch
from rlhf_lab.types.data import PolicyOutput
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import FACTS
from tests.support.survival import outcome

WORDS = word_tokenizer()
NAMES = sorted(word for word in WORDS.get_vocab() if word.isalpha())[:12]
# So small that the stage takes a second.
SMALL = ("proxy.hidden_size=32", "proxy.num_layers=1", "sft.steps=4", "reward_model.threads=1")


def answers(number: int) -> list[dict[str, Any]]:
    """Answers of one to three steps of two words; six first words make a step right."""
    rng = random.Random(0)
    rows = []
    for _ in range(number):
        pairs = [rng.sample(range(len(NAMES)), 2) for _ in range(rng.randint(1, 3))]
        rows.append(
            {
                "prompt": NAMES[0],
                "steps": [f" {NAMES[one]} {NAMES[other]} ." for one, other in pairs],
                "labels": [float(one < 6) for one, _ in pairs],
            }
        )
    return rows


def write(path: Path, *rows: Mapping[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_steps_become_places_where_a_run_finds_their_ends() -> None:
    row = {
        "prompt": NAMES[0],
        "steps": [f" {NAMES[1]} .", f" {NAMES[2]} {NAMES[3]} ."],
        "labels": [1, 0.25],
    }
    made = labelled_steps(row, "line 1", WORDS, ".")
    texts = [WORDS.decode(token) for token in made.tokens]
    assert texts == [NAMES[0], NAMES[1], ".", NAMES[2], NAMES[3], ".", WORDS.eos_token]
    assert (made.ends, made.labels) == ((2, 5), (1.0, 0.25))


def test_the_loss_by_hand() -> None:
    rows = [LabelledSteps((5, 6, 7), (1, 2), (1.0, 0.25)), LabelledSteps((5, 8), (1,), (0.0,))]
    batch = step_batch(rows)
    score_BT = torch.tensor([[9.0, 2.0, -1.0], [9.0, 0.0, 9.0]], requires_grad=True)
    zero_BT = torch.zeros(2, 3)
    loss = StepLoss().loss(PolicyOutput(zero_BT, zero_BT, score_BT), batch).loss
    soft = 0.25 * math.log(1 + math.e) + 0.75 * math.log(1 + 1 / math.e)
    by_hand = (math.log(1 + math.exp(-2)) + soft + math.log(2)) / 3
    assert float(loss.detach()) == pytest.approx(by_hand, abs=1e-6)
    loss.backward()  # type: ignore[no-untyped-call]
    assert score_BT.grad is not None
    # sigmoid less label at the ends of steps, nothing elsewhere
    assert (score_BT.grad != 0).tolist() == [[False, True, True], [False, True, False]]
    assert float(score_BT.grad[1, 1]) == pytest.approx(0.5 / 3)


def test_a_model_of_steps_learns_and_pays_a_run(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "steps.jsonl", *answers(600))
    given = (*SMALL, f"reward_model.steps={path}", "reward_model.step_separator=.")
    config = make_config(*given, "reward_model.batch=16", "reward_model.epochs=4")
    train_reward_models(config, Console(quiet=False))
    made = Artifacts(config, Console(quiet=True)).step_model()
    assert "step reward model: made" in capsys.readouterr().out and made.was_cached
    metrics = made.metrics
    assert metrics["train_rows"] == 540 and metrics["held_out_steps"] > 60
    assert metrics["accuracy"] > metrics["accuracy_of_a_constant"] + 0.3
    paid = ("reward=steps", f"reward.path={made.folder}", "reward.separator=.", "algo=ppo")
    run = (*paid, "sft.steps=4", "run.updates=4", "eval=none", "eval.snapshots=0", "algo.lam=1")
    whole, paused = tmp_path / "whole", tmp_path / "paused"
    lifecycle.train(make_config(*run, f"output.dir={whole}"), Console(quiet=True), FACTS)
    for more in (("checkpoint.pause_round=2",), ()):
        again = make_config(*run, f"output.dir={paused}", "output.resume=true", *more)
        lifecycle.train(again, Console(quiet=True), FACTS)
    assert outcome(paused) == outcome(whole)
    # what clipped steps earn is at most 0, and not all of it the same
    rewards = [row["reward/mean"] for row in outcome(whole)[0]]
    assert max(rewards) <= 0 and len(set(rewards)) > 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"prompt": 1}, "no text in field 'prompt'"),
        ({"steps": "a ."}, "no list of texts in field 'steps'"),
        ({"steps": ["a .", " "]}, "no list of texts in field 'steps'"),
        ({"labels": [1]}, "no list of 2 numbers in field 'labels'"),
        ({"labels": [1, -1]}, r"the label -1: write a number from 0 \(wrong\) to 1 \(right\)"),
        ({"labels": [1, "no"]}, "the label 'no'"),
        ({"labels": [1, math.nan]}, "the label nan|NaN"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    good = {"prompt": "p", "steps": ["a .", "b ."], "labels": [1, 0]}
    path = write(tmp_path / "steps.jsonl", good, {**good, **change})
    with pytest.raises(UserError, match=rf"reward_model\.steps: .*line 2.*({why})"):
        step_rows(path)


def test_steps_that_a_run_would_not_find_are_refused(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    one, other = NAMES[:2]
    merged = {"prompt": one, "steps": [f" {one}", f" {other} ."], "labels": [1, 0]}
    path = write(tmp_path / "steps.jsonl", *answers(20), merged)
    given = (*SMALL, f"reward_model.steps={path}", "reward_model.step_separator=.")
    with pytest.raises(UserError, match="line 21 has 2 steps, but its answer has 1 that end in"):
        Artifacts(make_config(*given), Console(quiet=True)).step_model()
    write(path, *answers(20))
    for options, why in (
        ("reward_model.batch=64", r"reward_model\.batch=64 is more than the 18 rows"),
        ("reward_model.held_out_steps=0.01", "leaves none to train on, or none to judge by"),
    ):
        with pytest.raises(UserError, match=why):
            Artifacts(make_config(*given, options), Console(quiet=True)).step_model()
    with pytest.raises(UserError, match=r"reward_model\.step_separator=''"):
        make_config("reward_model.step_separator=''")
