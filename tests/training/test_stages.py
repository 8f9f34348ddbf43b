"""Labels, the reward model's data, the cache, and evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlhf_lab.evaluation.measures import wilson
from rlhf_lab.evaluation.options import EvalOptions
from rlhf_lab.experiment.artifacts.labels import read_pairs
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.evaluator import build_evaluator
from rlhf_lab.experiment.build.prompts import build_prompts
from rlhf_lab.models.batching import collate
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.forward import response_output
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.models.weights import weights_digest
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.references import reference_groups
from rlhf_lab.training.stages.cache import cached, product_folder
from rlhf_lab.training.stages.labels import LabelOptions, Noise, prefers_first, write_labels
from rlhf_lab.training.stages.options import LossOn
from rlhf_lab.training.stages.supervised import counted
from rlhf_lab.types.data import Weights
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Group, Split
from tests.conftest import MakeConfig
from tests.support.examples import call, group
from tests.support.survival import exact_rows


class Judge(Reward):
    """Scores by a table."""

    def __init__(self, scores: list[tuple[float, ...]]) -> None:
        self._scores = scores

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return self._scores


def test_labels_put_the_better_first_and_leave_ties_out(tmp_path: Path) -> None:
    groups = [group(i, [[-1.0], [-1.0, -2.0]], []) for i in range(4)]
    judge = Judge([(1.0, 2.0), (0.5, 0.5), (3.0, -1.0), ()])
    path = tmp_path / "labels.jsonl"
    measured = write_labels(path, groups, judge, LabelOptions(), seed=1)
    rows = read_pairs(path)
    assert measured == {"ties": pytest.approx(1 / 3), "flipped": 0.0, "unscored": 0.25}
    assert [(row["uid"], row["chosen_gold"], row["rejected_gold"]) for row in rows] == [
        ("row/0", 2.0, 1.0),
        ("row/2", 3.0, -1.0),
    ]
    assert rows[0]["chosen_tokens"] == [5, 6]
    assert rows[0]["prompt_tokens"] == [2, 3]


def test_labels_that_the_judge_cannot_give_are_no_labels(tmp_path: Path) -> None:
    groups = [group(0, [[-1.0], [-1.0]], [])]
    with pytest.raises(RuntimeError, match="could score none of 1 pairs"):
        write_labels(tmp_path / "x", groups, Judge([()]), LabelOptions(), 1)


def test_noise_chooses_by_bradley_terry_odds_keyed_by_the_prompt() -> None:
    options = LabelOptions(noise=Noise.bradley_terry, noise_scale=0.5)
    chosen = [prefers_first((0.4, 0.0), options, 1, id_) for id_ in range(4000)]
    expected = 1 / (1 + math.exp(-0.8))
    assert sum(chosen) / 4000 == pytest.approx(expected, abs=3 * math.sqrt(0.25 / 4000))
    assert chosen == [prefers_first((0.4, 0.0), options, 1, id_) for id_ in range(4000)]
    assert prefers_first((9e9, 0.0), options, 1, 0)


def test_a_product_is_made_once_and_only_whole(tmp_path: Path) -> None:
    calls = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "file").write_text("content")

    first, was_cached = cached(tmp_path, "stage", {"a": 1}, make)
    assert not was_cached
    assert cached(tmp_path, "stage", {"a": 1}, make) == (first, True)
    killed = tmp_path / "stage" / f".making-{product_folder(tmp_path, 'stage', {'a': 2}).name}-x"
    killed.mkdir()
    assert cached(tmp_path, "stage", {"a": 2}, make)[0] != first
    assert len(calls) == 2 and not killed.exists()

    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cached(tmp_path, "stage", {"a": 3}, fail)
    assert sorted(path.name for path in (tmp_path / "stage").glob("[!.]*")) == sorted(
        [first.name, cached(tmp_path, "stage", {"a": 2}, make)[0].name]
    )


def test_sft_loss_counts_the_response_or_everything(make_config: MakeConfig) -> None:
    config = make_config()
    model, tokenizer = load_policy(config.model, config.task.tokenizer(), 1)
    stream = build_prompts(config, tokenizer, Split.train, "sft")
    groups = reference_groups([stream[0], stream[1]], tokenizer, 24)
    batch = collate(groups, tokenizer.pad_token_id)
    with torch.inference_mode():
        counted_rows = {on: counted(batch, on) for on in LossOn}
        response, everything = (
            loss.loss(response_output(model, rows, temperature=1.0), rows).loss
            for rows, loss in (counted_rows[LossOn.response], counted_rows[LossOn.all])
        )
        # by hand: the library's own loss on each unpadded row
        terms = []
        for g in groups:
            ids = torch.tensor([[*g.prompt.tokens, *g.samples[0].tokens]])
            terms.append((float(model(input_ids=ids, labels=ids).loss), ids.shape[1] - 1))
    # left padding makes the first real token of the shorter row a target as well
    total = sum(loss * count for loss, count in terms)
    num_terms = sum(count for _, count in terms)
    assert float(everything) == pytest.approx(total / num_terms, rel=0.05)
    assert float(response) != pytest.approx(float(everything), rel=1e-3)


def test_wilson_by_hand() -> None:
    low, high = wilson(8, 10)
    assert low == pytest.approx(0.4902, abs=1e-4)
    assert high == pytest.approx(0.9433, abs=1e-4)
    assert wilson(0, 10)[0] == 0.0
    assert wilson(10, 10)[1] == pytest.approx(1.0)


def test_snapshots_are_spread_evenly_with_both_ends() -> None:
    assert EvalOptions(snapshots=4).versions(10) == (0, 2, 5, 8, 10)
    assert EvalOptions(snapshots=1).versions(10) == (0, 10)
    assert EvalOptions(snapshots=0).versions(10) == ()
    assert EvalOptions(snapshots=9).versions(3) == (0, 1, 2, 3)


def test_sft_judged_against_itself_has_not_moved(make_config: MakeConfig) -> None:
    config = make_config("eval.prompts=8")
    sources = Artifacts(config, Console(quiet=True)).sources()
    judge = build_evaluator(config, sources)
    model, _ = load_policy(sources.policy, None, 1)
    weights = Weights(0, dict(model.named_parameters()))
    metrics, table = judge.evaluate(weights)
    # The sampler's log-probs are the policy's up to rounding; read by the policy itself, they are
    # the same bits.
    assert metrics["kl/sft_k1"] == pytest.approx(0, abs=1e-5)
    assert metrics["kl/sft_k3"] == pytest.approx(0, abs=1e-5)
    read, _ = replace(judge, has_policy_logps=False).evaluate(weights)
    assert read["kl/sft_k1"] == read["kl/sft_k3"] == 0.0
    assert metrics["ppl/sft_response"] > metrics["ppl/sft_paper"] > 1.0
    assert metrics["gold/win_rate_low"] <= metrics["gold/win_rate"] <= metrics["gold/win_rate_high"]
    wins = sum(row["gold"] > row["reference_gold"] for row in table)
    assert metrics["gold/win_rate"] == wins / 8
    assert judge.evaluate(weights)[0] == metrics


def test_judging_at_another_temperature_leaves_the_kl_as_it_was(make_config: MakeConfig) -> None:
    results = []
    for extra in ("eval.temperature=0", "eval.temperature=0.05"):
        config = make_config("eval.prompts=8", extra)
        sources = Artifacts(config, Console(quiet=True)).sources()
        other, _ = load_policy(config.model, config.task.tokenizer(), seed=5)
        weights = Weights(1, dict(other.named_parameters()))
        results.append(build_evaluator(config, sources).evaluate(weights)[0])
    assert results[0]["kl/sft_k1"] == results[1]["kl/sft_k1"] != 0.0
    assert results[0]["gold/mean"] != results[1]["gold/mean"]


def test_a_run_can_be_judged_again_with_other_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    folder = tmp_path / "judged"
    common = ["debug=tiny", f"output.cache={cache}", f"output.dir={folder}", "output.quiet=true"]
    assert call("pipeline", *common, "seed=1", monkeypatch=monkeypatch) == 0
    first = exact_rows(folder / "evals.jsonl")
    assert call("evaluate", str(folder), monkeypatch=monkeypatch) == 0
    assert exact_rows(folder / "evals.jsonl") == first
    assert call("evaluate", str(folder), "eval.prompts=5", monkeypatch=monkeypatch) == 0
    rows = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
    assert {row["eval/prompts"] for row in rows} == {5}
    assert [row["version"] for row in rows] == [0, 4]
    exported, _ = load_policy(PretrainedModel("exported", f"{folder}/policy"), None, 1)
    assert (
        weights_digest(Weights(4, dict(exported.named_parameters())))
        == json.loads((folder / "manifest.json").read_text())["weights_digest"]
    )
