"""Reward models: calibration, strength of preferences and what is made of it, and models from
elsewhere."""

from __future__ import annotations

import copy
import json
import math
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from rlhf_lab.cli.stages import train_reward_models
from rlhf_lab.experiment.artifacts.labels import read_pairs
from rlhf_lab.experiment.artifacts.models import STRENGTH
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.engine import build_value_model, stage_engine
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.models.reward_model import chosen_label, load_reward_model, reward_model_from
from rlhf_lab.rewards.model import row_scores
from rlhf_lab.rewards.model_options import EnsembleReward, ModelReward
from rlhf_lab.rewards.options import RewardContext, build_scorer
from rlhf_lab.rewards.steps_options import StepsReward
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.pairs import swap_sides
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.training.engines.options import SingleEngineOptions
from rlhf_lab.training.stages.options import RewardModelOptions, Treatment
from rlhf_lab.training.stages.reward_model import (
    Bin,
    accuracy,
    by_quarter,
    calibration,
    expected_error,
    pair_gaps,
    read_calibration,
    train_reward_model,
    write_calibration,
)
from rlhf_lab.training.stages.scored_rows import (
    Row,
    ScoreNetwork,
    apply_treatment,
    flip_weakest,
    pair_loss,
    strength_metrics,
    vote,
    weakest,
)
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Engine
from rlhf_lab.types.samples import Split
from tests.conftest import MakeConfig
from tests.support.examples import FACTS, group

pytestmark = pytest.mark.usefixtures("costly")

LOG3 = math.log(3)


REFERENCES = [[5], [6, 7]]
# Of a policy and of a proxy, so small that a stage takes a second; all stages below are theirs.
SMALL = (
    *("model.hidden_size=32", "model.num_layers=1", "proxy.hidden_size=32", "proxy.num_layers=1"),
    *("reward_model.threads=1", "labels.pairs=32", "labels.held_out_pairs=16"),
)


class Silent:
    def advance(self, amount: int = 1, **numbers: float) -> None:
        """Nobody looks."""


def test_the_expected_error_is_a_mean_over_pairs() -> None:
    bins = [Bin(0.5, 0.6, 3, 0.6, 1 / 3), Bin(0.9, 1.0, 1, 0.9, 1.0)]
    assert expected_error(bins) == pytest.approx((3 * 0.8 / 3 + 0.1) / 4)


def test_a_model_that_is_always_right_at_odds_of_three_is_too_shy_by_a_quarter() -> None:
    low, high = calibration(torch.full((200,), LOG3), seed=1)
    assert (low.low, low.high, high.low, high.high) == (0.2, 0.3, 0.7, 0.8)
    assert low.count + high.count == 200
    assert min(low.count, high.count) > 60, "both orders occur"
    assert (low.observed, high.observed) == (0.0, 1.0)
    assert low.predicted == pytest.approx(0.25)
    assert high.predicted == pytest.approx(0.75)
    assert expected_error([low, high]) == pytest.approx(0.25)


def test_odds_that_come_true_are_calibrated() -> None:
    gap_P = torch.tensor([LOG3, LOG3, LOG3, -LOG3]).repeat(2000)
    assert expected_error(calibration(gap_P, seed=1)) < 0.02
    assert calibration(gap_P, seed=1) == calibration(gap_P, seed=1)
    assert calibration(gap_P, seed=1) != calibration(gap_P, seed=2)


def test_certainty_falls_into_the_last_bin() -> None:
    low, high = calibration(torch.full((50,), 1000.0), seed=1)
    assert (low.low, high.high) == (0.0, 1.0)


def test_quarters_are_taken_by_the_ordering_values() -> None:
    is_right_P = torch.tensor([1.0, 0, 1, 1, 0, 0, 1, 0])
    order_P = torch.tensor([8.0, 1, 7, 6, 2, 3, 5, 4])
    assert by_quarter("a", is_right_P, order_P) == {
        "a_quarter_1": 0.0,
        "a_quarter_2": 0.0,
        "a_quarter_3": 1.0,
        "a_quarter_4": 1.0,
    }


def test_pairs_without_gold_scores_are_measured_without_the_gold_gap() -> None:
    gap_P = torch.tensor([1.0, -1.0])
    gold: list[Row] = [{"chosen_gold": 2.0, "rejected_gold": 0.0}] * 2
    with_gold, without = accuracy(gap_P, gold), accuracy(gap_P, [{}, {}])
    assert with_gold["accuracy"] == without["accuracy"] == 0.5
    assert "accuracy_gap_quarter_1" in with_gold
    assert not [name for name in without if name.startswith("accuracy_gap")]
    assert "accuracy_confidence_quarter_1" in without
    assert set(strength_metrics([{}, {}], gap_P)) == {"strength_mean", "strength_negative"}


def test_the_vote_is_mean_and_spread_over_voters() -> None:
    mean_P, std_P = vote(torch.tensor([[1.0, -2.0], [3.0, -2.0]]))
    assert mean_P.tolist() == [2.0, -2.0]
    assert std_P.tolist() == [1.0, 0.0]


def test_the_weakest_are_those_of_least_strength() -> None:
    strength_P = torch.tensor([0.5, -1.0, 2.0, 0.0, 0.0])
    assert weakest(strength_P, 0.4).tolist() == [False, True, False, True, False]
    assert weakest(strength_P, 0.39).sum() == 1
    assert not weakest(strength_P, 0.0).any()
    assert weakest(strength_P, 1.0).all()


ROWS: list[Row] = [
    {"uid": str(n), "chosen": "a", "chosen_gold": n - 1.0, "rejected": "b", "rejected_gold": 0.0}
    for n in range(4)
]
STRENGTH_P = torch.tensor([-2.0, 1.0, 0.5, 3.0])


def test_a_flipped_pair_has_the_other_answer_and_the_other_strength() -> None:
    assert swap_sides(ROWS[0]) == {
        "uid": "0",
        "chosen": "b",
        "chosen_gold": 0.0,
        "rejected": "a",
        "rejected_gold": -1.0,
    }
    rows, strength_P = flip_weakest(ROWS, STRENGTH_P, 0.25)
    assert [row["chosen"] for row in rows] == ["b", "a", "a", "a"]
    assert strength_P.tolist() == [2.0, 1.0, 0.5, 3.0]


def test_what_is_made_of_weak_labels() -> None:
    plain = apply_treatment(ROWS, None, Treatment(smoothing=0.1))
    assert (plain.target_P.tolist(), plain.margin_P.tolist()) == (
        [pytest.approx(0.9)] * 4,
        [0.0] * 4,
    )
    soft = apply_treatment(ROWS, STRENGTH_P, Treatment(soft_share=0.5))
    odds = [1 / (1 + math.exp(2)), 1.0, 1 / (1 + math.exp(-0.5)), 1.0]
    assert soft.target_P.tolist() == pytest.approx(odds)
    dropped = apply_treatment(ROWS, STRENGTH_P, Treatment(drop_share=0.5, margin=True))
    assert [row["uid"] for row in dropped.rows] == ["1", "3"]
    assert dropped.margin_P.tolist() == [1.0, 3.0]
    turned = apply_treatment(
        ROWS, STRENGTH_P, Treatment(flip_share=0.25, margin=True, smoothing=0.2)
    )
    assert turned.margin_P.tolist() == [2.0, 1.0, 0.5, 3.0]
    assert turned.target_P.tolist() == [pytest.approx(0.8)] * 4


def test_pair_losses_by_hand() -> None:
    def loss(gap: float, target: float = 1.0, margin: float = 0.0) -> float:
        return float(pair_loss(torch.tensor([gap]), torch.tensor([target]), torch.tensor([margin])))

    assert loss(1.0) == pytest.approx(math.log(1 + math.exp(-1)))
    assert loss(1.0, target=0.9) == pytest.approx(
        0.9 * math.log(1 + math.exp(-1)) + 0.1 * math.log(1 + math.e)
    )
    assert loss(1.0, margin=1.0) == pytest.approx(math.log(2))
    assert loss(0.0, target=0.5) == pytest.approx(math.log(2))
    assert loss(1.0, target=0.0) == loss(-1.0)


def test_a_soft_label_is_learned_when_the_gap_is_the_strength() -> None:
    gap = torch.tensor([0.7, 0.2, 1.2], requires_grad=True)
    target = torch.tensor(0.7).sigmoid().expand(3)
    pair_loss(gap, target, torch.zeros(3)).sum().backward()  # type: ignore[no-untyped-call]
    assert gap.grad is not None
    at, below, above = gap.grad.tolist()
    assert at == pytest.approx(0.0, abs=1e-7)
    assert below < 0 < above


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"flip_share": 0.2}, r"flip_share=0.2 goes by the strength .* pass reward_model.strength"),
        ({"margin": True}, r"margin=True goes by the strength"),
        ({"strength_members": 1, "margin": True}, "a vote needs 2 or more"),
        ({"strength_members": -2, "margin": True}, "a vote needs 2 or more"),
        ({"strength_members": 4}, "nothing goes by the strength"),
        ({"strength_members": 4, "label_smoothing": 0.1}, "nothing goes by the strength"),
        ({"strength_members": 4, "drop_share": 1.0}, "leaves no pair"),
        ({"strength_members": 4, "soft_share": 1.1}, "soft_share=1.1 is out of range: .* 0 to 1"),
        ({"label_smoothing": 0.6}, "label_smoothing=0.6 is out of range: choose 0 to 0.5"),
        (
            {"strength_members": 4, "flip_share": 0.1, "drop_share": 0.1},
            "both take the weakest pairs",
        ),
        ({"strength_members": 4, "flip_share": 0.1, "soft_share": 0.1}, "turns a negative"),
        (
            {"strength_members": 4, "soft_share": 0.1, "label_smoothing": 0.1},
            "both set the target",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        RewardModelOptions(**wrong)


def tiny_model(seed: int) -> Any:
    tiny = ScratchModel("tiny", hidden_size=32, num_layers=1, num_heads=4)
    policy, _ = load_policy(tiny, TldrNano().tokenizer(), seed=3)
    return reward_model_from(policy, seed)


def labelled(count: int, wrong_every: int, shift: int) -> list[Row]:
    """Pairs whose better answer says word 7 and whose worse one says 8; some labels are wrong."""
    rows: list[Row] = [
        {
            # Nothing but 7 and 8 tells good from bad, and nothing which labels are wrong.
            "prompt_tokens": [20 + (place * 7 + shift) % 149],
            "chosen_tokens": [7, 10 + place % 7],
            "rejected_tokens": [8, 10 + place % 7],
            "chosen_gold": 1.0,
            "rejected_gold": 0.0,
        }
        for place in range(count)
    ]
    return [
        swap_sides(row) if wrong_every and place % wrong_every == 0 else row
        for place, row in enumerate(rows)
    ]


def engine_of(model: Any, options: RewardModelOptions) -> AbstractContextManager[Engine]:
    """The engine of a stage on a CPU, which trains the model in place."""
    config: Any = SimpleNamespace(engine=SingleEngineOptions(device="cpu"))
    return stage_engine(config, options).led(ScoreNetwork(model))


def trained(rows: list[Row], held_out: list[Row], strength_P: Tensor | None, **how: Any) -> Any:
    options = RewardModelOptions(**{"epochs": 2, "batch": 16, "lr": 1e-3, "threads": 1, **how})
    model = tiny_model(seed=1)
    bar = Silent()
    with engine_of(model, options) as engine:
        result = train_reward_model(engine, rows, held_out, REFERENCES, options, 1, bar, strength_P)
    return model, result


def test_voters_find_wrong_labels_and_their_reward_model_is_surer_without_them() -> None:
    rows, held_out = labelled(320, wrong_every=5, shift=0), labelled(32, wrong_every=0, shift=3)
    gaps = []
    for seed in (1, 2):
        model = tiny_model(seed)
        options = RewardModelOptions(epochs=2, batch=16, lr=1e-3, threads=1)
        with engine_of(model, options) as engine:
            train_reward_model(engine, rows, held_out, REFERENCES, options, seed, Silent())
        gaps.append(pair_gaps(model, rows, 16))
    strength_P, _ = vote(torch.stack(gaps))
    found = strength_metrics(rows, strength_P)
    assert found["contradicted"] == pytest.approx(0.2)
    assert found["contradicted_weakest_fifth"] > 0.8
    losses = {}
    for name, how in {
        "as it is": {},
        "flipped": {"strength_members": 2, "flip_share": 0.2},
        "dropped": {"strength_members": 2, "drop_share": 0.2},
        "smoothed": {"label_smoothing": 0.3},
    }.items():
        strength = strength_P if "strength_members" in how else None
        _, result = trained(rows, held_out, strength, **how)
        losses[name] = result.metrics["held_out_loss"]
        assert result.metrics["train_pairs"] == (256 if name == "dropped" else 320)
    assert losses["flipped"] < losses["dropped"] < losses["as it is"] < losses["smoothed"]


def test_a_margin_widens_the_gap() -> None:
    rows, held_out = labelled(160, wrong_every=0, shift=0), labelled(32, wrong_every=0, shift=3)
    plain, _ = trained(rows, held_out, None, epochs=6)
    strong = torch.full((len(rows),), 4.0)
    wide, _ = trained(rows, held_out, strong, strength_members=2, margin=True, epochs=6)
    assert pair_gaps(wide, held_out, 16).mean() > pair_gaps(plain, held_out, 16).mean() + 0.2


def test_voters_are_products_that_an_ensemble_shares(make_config: MakeConfig) -> None:
    voted = ("reward_model.strength_members=2", "reward_model.flip_share=0.25")
    stages = Artifacts(make_config(*SMALL, *voted), Console(quiet=True))
    product = stages.reward_model()
    strength = stages.strength()
    assert strength.was_cached, "the reward model needed it"
    found = json.loads((strength.folder / STRENGTH).read_text())
    pairs = list(read_pairs(stages.labels().folder / "train.jsonl"))
    assert len(found["mean"]) == len(found["std"]) == len(pairs)
    assert strength.metrics["contradicted"] == 0.0
    plain = Artifacts(make_config(*SMALL), Console(quiet=True))
    members = [plain.reward_model(member) for member in range(2)]
    assert all(member.was_cached for member in members)
    models = [load_reward_model(str(member.folder))[0] for member in members]
    gaps = torch.stack([pair_gaps(model, pairs, 16) for model in models])
    assert torch.allclose(gaps.mean(dim=0), torch.tensor(found["mean"]), atol=1e-4)
    assert product.folder != members[0].folder
    assert product.metrics["train_pairs"] == len(pairs)


def test_strength_is_measured_on_pairs_of_ones_own(make_config: MakeConfig, tmp_path: Path) -> None:
    examples = TldrNano().examples(Split.train)
    texts = [examples[place].prompt for place in range(80)]
    rows = [{"prompt": text, "chosen": " my dog .", "rejected": " my ."} for text in texts]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = make_config(
        *SMALL,
        f"labels.path={path}",
        "reward_model.strength_members=2",
        "reward_model.drop_share=0.25",
    )
    stages = Artifacts(config, Console(quiet=True))
    product = stages.reward_model()
    assert product.metrics["train_pairs"] == 48
    assert "accuracy_gap_quarter_1" not in product.metrics
    assert "contradicted" not in stages.strength().metrics


def test_accuracy_is_also_measured_by_the_values_of_a_field(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    examples = TldrNano().examples(Split.train)
    texts = [examples[place].prompt for place in range(80)]
    # The last 16 are held out: 12 of two policies, in either order, and 4 of others.
    policies = [["sup", "ppo"], ["ppo", "sup"], ["ppo", "sup"], ["ref", "sup"]] * 20
    rows = [
        {"prompt": text, "chosen": " my dog .", "rejected": " my .", "policies": names}
        for text, names in zip(texts, policies, strict=True)
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = (*SMALL, f"labels.path={path}")
    config = make_config(*given, "reward_model.accuracy_by=policies")
    metrics = Artifacts(config, Console(quiet=True)).reward_model().metrics
    parts = [metrics[f"accuracy_policies_{names}"] for names in ("ppo and sup", "ref and sup")]
    assert metrics["accuracy_policies_ppo and sup_pairs"] == 12
    assert metrics["accuracy_policies_ref and sup_pairs"] == 4
    assert metrics["accuracy"] == pytest.approx((12 * parts[0] + 4 * parts[1]) / 16)
    wrong = make_config(*given, "reward_model.accuracy_by=writer")
    with pytest.raises(UserError, match=r"accuracy_by=writer: .* has no such field, but .*polici"):
        Artifacts(wrong, Console(quiet=True)).reward_model()


def test_the_curve_of_a_reward_model_is_shown_and_kept(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(*SMALL)
    train_reward_models(config, Console(quiet=False))
    assert "calibration on held-out pairs" in capsys.readouterr().out
    product = Artifacts(config, Console(quiet=True)).reward_model()
    assert product.folder == Artifacts(config, Console(quiet=True)).folders()[-1], (
        "as it was promised"
    )
    bins = read_calibration(product.folder)
    assert sum(part.count for part in bins) == product.metrics["held_out_pairs"]
    assert product.metrics["calibration_error"] == pytest.approx(expected_error(bins))
    with pytest.raises(UserError, match=r"has no calibration\.json"):
        read_calibration(tmp_path)
    write_calibration(tmp_path, bins)
    assert read_calibration(tmp_path) == bins


SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 300,
    "max_position_embeddings": 100,
}
KINDS = ("Llama", "GPTNeoX", "Bert", "Roberta", "DistilBert")


def saved(folder: Path, kind: str, labels: int, tokenizer: Any = None, **more: Any) -> Path:
    """A random sequence-classification model with its tokenizer, as the hub would have it."""
    own = {"dim": 16, "n_heads": 2, "n_layers": 2, "hidden_dim": 32}
    shape = {k: SHAPE[k] for k in ("vocab_size", "max_position_embeddings")} | own
    config = getattr(transformers, f"{kind}Config")(
        **(shape if kind == "DistilBert" else SHAPE), num_labels=labels, **more
    )
    torch.manual_seed(5)
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    (tokenizer or TldrNano().tokenizer()).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_any_sequence_classifier_scores_a_row_by_itself(
    tmp_path: Path, kind: str, labels: int
) -> None:
    model, _, offset = load_reward_model(str(saved(tmp_path, kind, labels)))
    assert offset == 0.0
    label = chosen_label(model, "x", -1 if labels == 1 else 1)
    rows = [[5, 6, 7], [5, 6, 7, 8, 9], [4], [9, 6, 7]]
    with torch.inference_mode():
        together = row_scores(model, rows, label)
        own = torch.cat([model(input_ids=torch.tensor([row])).logits[:, label] for row in rows])
    assert torch.allclose(together, own, atol=1e-5)
    assert together.std() > 0.01


def test_a_pad_token_that_is_the_end_token_hides_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path, "Llama", 1, pad_token_id=9, eos_token_id=9)
    model, _, _ = load_reward_model(str(path))
    with torch.inference_mode():
        ends, goes_on = row_scores(model, [[5, 6, 9], [5, 6]]).tolist()
    assert ends != pytest.approx(goes_on, abs=1e-4), "the end token is read"


def test_one_of_several_labels_must_be_named(tmp_path: Path) -> None:
    path = str(saved(tmp_path, "Bert", 2, id2label={0: "bad", 1: "good"}))
    model, _, _ = load_reward_model(path)
    with pytest.raises(UserError, match=r"reward.label=-1, but .* 2 labels \(0 bad, 1 good\)"):
        chosen_label(model, path, -1)
    with pytest.raises(UserError, match=r"reward.label=2, but"):
        chosen_label(model, path, 2)
    with pytest.raises(
        UserError, match=r"reward.label=-2 is out of range: choose 0 to 1000000000, or -1"
    ):
        ModelReward(label=-2)


def test_a_model_without_a_trained_head_is_refused(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(**SHAPE)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    TldrNano().tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"holds no weights for score.weight, .* random"):
        load_reward_model(str(tmp_path))


def test_a_sample_that_is_too_long_for_the_reward_model_is_refused(tmp_path: Path) -> None:
    model, _, _ = load_reward_model(str(saved(tmp_path, "Bert", 1)))
    with pytest.raises(UserError, match="a sample of 101 tokens does not fit the 100 positions"):
        row_scores(model, [[5] * 101])


def test_steps_are_not_scored_by_a_model_that_pools(tmp_path: Path) -> None:
    for kind, labels in (("Bert", 1), ("Llama", 2)):
        path = saved(tmp_path / kind, kind, labels)
        with pytest.raises(UserError, match="it has no single score for every token"):
            build_scorer(StepsReward(path=str(path)), surroundings())


def surroundings() -> RewardContext:
    task = TldrNano()
    return RewardContext(task, task.tokenizer(), (), 1, 24, Path("unused"))


def test_an_encoder_reads_the_text_as_its_own_tokenizer_has_it(tmp_path: Path) -> None:
    path = saved(tmp_path, "Bert", 2)
    options = ModelReward(path=str(path), label=1)
    groups = [group(0, [[-1.0]], [])]
    ((score,),) = build_scorer(options, surroundings()).score(groups)
    model, tokenizer, _ = load_reward_model(str(path))
    example, text = groups[0].prompt.example, groups[0].samples[0].text
    tokens = torch.tensor([tokenizer(example.prompt + text)["input_ids"]])
    with torch.inference_mode():
        assert score == pytest.approx(float(model(input_ids=tokens).logits[0, 1]), abs=1e-5)
    ensemble = EnsembleReward(paths=[str(path), str(path)], label=1)
    ((mean,),) = build_scorer(ensemble, surroundings()).score(groups)
    assert mean == pytest.approx(score)


def test_a_chat_model_reads_messages_through_its_template(tmp_path: Path) -> None:
    tokenizer = copy.deepcopy(TldrNano().tokenizer())
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} . {% endfor %}"
    )
    path = saved(tmp_path / "chat", "Llama", 1, tokenizer)
    groups = [group(0, [[-1.0]], [])]
    ((score,),) = build_scorer(ModelReward(path=str(path), chat=True), surroundings()).score(groups)
    model, again, _ = load_reward_model(str(path))
    tokens = again("user a b . assistant text . ", add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        assert score == pytest.approx(float(row_scores(model, [tokens])[0]), abs=1e-5)
    plain = saved(tmp_path / "plain", "Llama", 1)
    with pytest.raises(UserError, match=r"has no chat template: pass reward.chat=false"):
        build_scorer(ModelReward(path=str(plain), chat=True), surroundings())


def test_a_run_is_rewarded_by_an_encoder_with_two_labels(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    path = saved(tmp_path / "bert", "Bert", 2)
    own = (f"reward.path={path}", "reward.label=1", "run.updates=1", "algo=ppo", "eval.prompts=4")
    config = make_config(*SMALL, *own)
    config = replace(config, output=replace(config.output, dir=str(tmp_path / "run")))
    sources = Artifacts(config, Console(quiet=True)).sources()
    policy, tokenizer = load_policy(sources.policy, None, config.seed)
    values = build_value_model(config, sources, policy, tokenizer)
    assert values is not None
    head = values.score.get_parameter("weight")
    assert not head.any(), "a reward of a whole text is no value of a state"
    folder = lifecycle.train(config, Console(quiet=True), FACTS)
    rows = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    assert all(math.isfinite(row["proxy/mean"]) for row in rows)
