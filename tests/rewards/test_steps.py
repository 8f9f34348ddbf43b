"""Rewards of single steps: where steps end, what they earn, and who is credited for it."""

from __future__ import annotations

import functools
import itertools
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlhf_lab.algos.ma_ppo import MacroPPO
from rlhf_lab.algos.ppo import PPO
from rlhf_lab.algos.reinforce import ReinforcePlusPlus
from rlhf_lab.algos.rloo import RLOO
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.models.batching import collate, rewards_of
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.models.reward_model import load_reward_model, reward_model_from, save_reward_model
from rlhf_lab.rewards.combined import CombinedReward, CombinedScorer, How
from rlhf_lab.rewards.data_rewards import RuleReward
from rlhf_lab.rewards.model import last_token_scores, steps_as_text, steps_as_tokens
from rlhf_lab.rewards.options import RewardContext, build_scorer
from rlhf_lab.rewards.shaping import ShapedScorer, ShapingOptions
from rlhf_lab.rewards.steps import StepsScorer, refined
from rlhf_lab.rewards.steps_options import Refine, StepsReward, step_ends
from rlhf_lab.rollout.chunk_states import QueuedChunk
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.arithmetic import character_tokenizer
from rlhf_lab.tasks.tldr_nano import TldrNano, word_tokenizer
from rlhf_lab.training.checkpoint_files import as_row, from_row
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Algorithm
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.rollouts import Chunk, Rollout
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.conftest import MakeConfig
from tests.support.examples import FACTS, group
from tests.support.survival import outcome

pytestmark = pytest.mark.usefixtures("costly")

WORDS = word_tokenizer()
TEXT = "my sister broke my tablet . it was wednesday . should i quit ?"


def ends_of(text: str, separator: str, most: int = 32, tail: int = 1) -> list[int]:
    """Ends of the steps of a text as tokens of words, and `tail` end tokens after it."""
    tokens = WORDS(text, add_special_tokens=False)["input_ids"] + [WORDS.eos_token_id] * tail
    decode = functools.partial(WORDS.decode, skip_special_tokens=True)
    return step_ends(tokens, decode, separator, most)


def test_steps_end_with_the_separators_token() -> None:
    assert ends_of(TEXT, ".") == [5, 9, 14], "two points, and what follows, the end token included"
    assert ends_of(TEXT, "wednesday") == [8, 14]
    assert ends_of("it was wednesday .", ".") == [3], "nothing follows but the end token"
    assert ends_of("it was wednesday . .", ".") == [3], "a step without a word is none"
    assert ends_of(TEXT, ".", most=2) == [5, 14]
    assert ends_of(TEXT, ".", most=1) == [14]
    assert ends_of("", ".") == [0]


def test_characters_and_tokens_of_several_characters() -> None:
    characters = character_tokenizer()
    tokens = characters("12+3=15*2", add_special_tokens=False)["input_ids"]
    decode = functools.partial(characters.decode, skip_special_tokens=True)
    assert step_ends(tokens, decode, "=", 32) == [4, 8]
    assert step_ends(tokens, decode, "+3=", 32) == [4, 8], "a separator of three tokens"
    pieces = ["a\n", "\nb", "c\nd\ne", "\n\n", "f"]

    def join(places: Sequence[int]) -> str:
        return "".join(pieces[place] for place in places)

    # The text is a || bc | d | e || f with | for a line's end: c's and d's steps end in one token.
    assert step_ends(range(5), join, "\n", 32) == [0, 2, 3, 4]
    assert step_ends(range(5), join, "\n\n", 32) == [1, 3, 4], "a separator across two tokens"


def test_probabilities_are_refined_as_in_the_paper() -> None:
    r = [0.9, 0.4, 0.7, 0.2]
    assert refined(r, Refine.none, 0.5) == r
    assert refined(r, Refine.clip, 0.5) == pytest.approx([0.0, -0.1, 0.0, -0.3])
    assert refined(r, Refine.delta, 0.5) == pytest.approx([0.9 - 0.4, 0.4 - 0.7, 0.7, 0.0])
    assert refined(r, Refine.clip_delta, 0.5) == pytest.approx([0.1, -0.1, 0.0, 0.0])
    assert refined([0.9], Refine.delta, 0.5) == [0.0]
    assert refined([0.9, 0.4], Refine.delta, 0.5) == [0.9, 0.0]


def test_more_steps_earn_no_more() -> None:
    for count in range(2, 5):
        for r in itertools.product([0.1, 0.6, 0.8], repeat=count):
            assert sum(refined(r, Refine.delta, 0.5)) == pytest.approx(r[0])
            assert sum(refined(r, Refine.clip, 0.5)) <= 0.0
            assert sum(refined(r, Refine.clip_delta, 0.5)) == pytest.approx(min(r[0] - 0.5, 0.0))


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a model of steps: random weights, which is all that these tests need."""
    shape = ScratchModel("tiny", hidden_size=16, num_layers=1, num_heads=2)
    policy, tokenizer = load_policy(shape, WORDS, seed=3)
    folder = tmp_path_factory.mktemp("steps_judge")
    save_reward_model(reward_model_from(policy, 4), tokenizer, folder, offset=0.25)
    return str(folder)


def written(*texts: str) -> Group:
    """Finished samples of words after a prompt."""
    prompt = WORDS("it was wednesday .")["input_ids"]
    example = Example("row/0", "it was wednesday . ", "")
    rows = [(*WORDS(text)["input_ids"], WORDS.eos_token_id) for text in texts]
    samples = tuple(
        Sample(row, (0.0,) * len(row), 0, Finish.eos, text)
        for row, text in zip(rows, texts, strict=True)
    )
    return Group(Prompt(0, tuple(prompt), example), samples)


def options(judge: str, refine: Refine = Refine.none) -> StepsReward:
    return StepsReward(path=judge, separator=".", refine=refine, micro_rows=2)


def test_a_steps_score_is_the_models_score_of_its_prefix(judge: str) -> None:
    given = RewardContext(TldrNano(), WORDS, (), 1, 32, Path())
    live = build_scorer(options(judge), given)
    assert isinstance(live, StepsScorer)
    scored = live.scored([written(TEXT, "should i quit ?"), written("it was wednesday .")])
    model, _, offset = load_reward_model(judge)
    for one in scored:
        for sample, steps, reward in zip(one.samples, one.step_rewards, one.rewards, strict=True):
            assert reward == sum(value for _, value in steps)
            for place, value in steps:
                prefix = [*one.prompt.tokens, *sample.tokens[: place + 1]]
                with torch.inference_mode():
                    alone = (last_token_scores(model, [prefix]) - offset).sigmoid()
                assert value == pytest.approx(float(alone), abs=1e-6)
    assert [place for place, _ in scored[0].step_rewards[0]] == [5, 9, 14]
    assert live.score([written(TEXT)])[0] == pytest.approx(scored[0].rewards[:1])


def test_a_model_of_another_vocabulary_reads_the_same_places(judge: str) -> None:
    decode = functools.partial(WORDS.decode, skip_special_tokens=True)
    one = written(TEXT)
    tokens, places = steps_as_tokens(one, one.samples[0], [5, 9, 14])
    read, there = steps_as_text(WORDS, decode, one, one.samples[0], [5, 9, 14])
    assert list(read) == list(tokens)[:-1], "a text has no end token"
    assert list(there) == [9, 13, 17]
    assert list(places) == [9, 13, 18]


def stepped(steps: bool) -> list[Group]:
    """Two samples of three tokens with rewards 2 and 1; the first has steps of 0.5 and -0.25."""
    one = group(0, [[-1.0] * 3, [-1.0] * 3], [2.0, 1.0])
    return [replace(one, step_rewards=(((0, 0.5), (1, -0.25)), ())) if steps else one]


def test_steps_are_rewarded_at_their_tokens_and_the_rest_at_the_end() -> None:
    batch = collate(stepped(True), pad_id=0)
    assert batch.step_reward_BT.tolist() == [[0.5, -0.25, 0.0], [0.0, 0.0, 0.0]]
    reward_BT = PPO(kl_coef=0.0).token_rewards(rewards_of(stepped(True)), batch)
    assert reward_BT.tolist() == [[0.5, -0.25, 1.75], [0.0, 0.0, 1.0]]
    assert reward_BT.sum(dim=1).tolist() == [2.0, 1.0], "the whole is the sample's reward"


def test_ppo_by_hand_with_steps() -> None:
    # gamma 1, lam 0.5, values 0, no KL and no whitening, from the last token backwards:
    # 1.75; -0.25 + 0.5 * 1.75 = 0.625; 0.5 + 0.5 * 0.625 = 0.8125.
    # Without steps: 2; 1; 0.5.
    algo = PPO(kl_coef=0.0, lam=0.5, whiten_advantages=False)
    for steps, expected in ((True, [0.8125, 0.625, 1.75]), (False, [0.5, 1.0, 2.0])):
        groups = stepped(steps)
        credit = algo.credit(rewards_of(groups), collate(groups, pad_id=0))
        assert credit.value_BT[0].tolist() == expected
        assert credit.target_BT is not None
        assert credit.target_BT[0].tolist() == expected
        assert credit.value_BT[1].tolist() == [0.25, 0.5, 1.0]


@pytest.mark.parametrize("algo", [PPO(), MacroPPO(macro_tokens=2), ReinforcePlusPlus()])
def test_token_level_algorithms_see_steps_and_zeros_change_no_bit(algo: Algorithm) -> None:
    credits = []
    zero = (((0, 0.0), (1, 0.0)), ((2, 0.0),))
    for groups in (
        stepped(False),
        [replace(stepped(False)[0], step_rewards=zero)],
        stepped(True),
    ):
        credits.append(algo.credit(rewards_of(groups), collate(groups, pad_id=0)).value_BT)
    assert torch.equal(credits[0], credits[1])
    assert not torch.allclose(credits[0], credits[2])


def test_sequence_level_algorithms_see_the_sum() -> None:
    credits = [
        RLOO().credit(rewards_of(groups), collate(groups, pad_id=0)).value_BT
        for groups in (stepped(False), stepped(True))
    ]
    assert torch.equal(*credits)


class Fixed(Reward):
    """Rewards, and steps where there are any."""

    def __init__(self, *rewards: float) -> None:
        self._rewards = rewards

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [self._rewards for _ in groups]


class FixedSteps(Fixed):
    def scored(self, groups: Sequence[Group]) -> list[Group]:
        steps = (((0, 0.5), (1, -0.25)), ((0, 1.0),))
        return [one.scored(self._rewards, steps) for one in groups]


def test_a_sum_weighs_steps_and_a_closed_gate_takes_them() -> None:
    terms = {"steps": FixedSteps(0.25, 1.0), "gold": Fixed(1.0, 1.0), "gate": Fixed(1.0, 0.0)}
    chosen = CombinedReward(
        terms={name: RuleReward() for name in terms},
        weights={"steps": 2.0},
        gates={"gate": 1.0},
        closed=-1.0,
    )
    bare = replace(stepped(False)[0], rewards=())
    live = CombinedScorer(chosen, terms, lambda one: one.samples[0])
    (one,) = live.scored([bare])
    assert one.rewards == (1.5, -1.0)
    assert one.step_rewards == (((0, 1.0), (1, -0.5)), ())
    product = replace(chosen, how=How.product, weights={})
    (one,) = CombinedScorer(product, terms, lambda one: one.samples[0]).scored([bare])
    assert (one.rewards, one.step_rewards) == ((0.25, -1.0), ())
    (one,) = ShapedScorer(live, ShapingOptions(bound=0.5), 8).scored([bare])
    assert one.rewards == (0.5, -0.5)
    assert one.step_rewards == (((0, 1.0), (1, -0.5)), ())


def test_steps_of_queued_samples_are_saved_with_all_their_bits() -> None:
    (one,) = stepped(True)
    chunk = Chunk(0, 0, (one.prompt,), 2)
    rollout = Rollout(chunk, (one,), ((0, 0),), {"generated_tokens": 6})
    row = json.loads(json.dumps(as_row(QueuedChunk(0, 0, False, rollout))))
    assert from_row(row, lambda _: chunk).rollout == rollout


def test_a_model_and_sensible_options_are_asked_for(make_config: MakeConfig) -> None:
    with pytest.raises(UserError, match=r"reward\.terms\.s\.path='': name the model"):
        check(make_config("reward=combined", "+reward@reward.terms.s=steps"))
    for wrong in ({"separator": ""}, {"max_steps": 0}, {"eta": 2.0}, {"micro_rows": 0}):
        with pytest.raises(UserError, match=rf"reward\.{next(iter(wrong))}="):
            StepsReward(**wrong)
    assert StepsReward().mark == "\n"


def test_ppo_on_steps_is_the_same_in_every_mode_and_after_a_resume(
    make_config: MakeConfig, tmp_path: Path, judge: str
) -> None:
    short = (
        "algo=ppo",
        "reward=combined",
        "+reward@reward.terms.steps=steps",
        f"reward.terms.steps.path={judge}",
        "reward.terms.steps.separator=e",
        "reward.terms.steps.refine=none",
        "+reward@reward.terms.gold=task_rule",
        "eval=none",
        "run.updates=3",
        "checkpoint=rounds",
        "checkpoint.rounds=1",
        "checkpoint.keep=9",
    )
    for name, mode in {
        "lagged": ["mode=lagged"],
        "process": ["mode=async", "mode.executor=process"],
    }.items():
        config = make_config(*short, *mode, f"output.dir={tmp_path}/{name}")
        lifecycle.train(config, Console(quiet=True), FACTS)
    whole = outcome(tmp_path / "lagged")
    assert outcome(tmp_path / "process") == whole
    # The lagged run is cut: its queue at a checkpoint is always full, whereas that of processes
    # holds whatever was generated by then.
    cut = tmp_path / "cut"
    shutil.copytree(tmp_path / "lagged", cut)
    manifest = json.loads((cut / "manifest.json").read_text())
    del manifest["weights_digest"]
    (cut / "manifest.json").write_text(json.dumps(manifest | {"state": "failed"}))
    first, *later = sorted((cut / "checkpoints").iterdir())
    for folder in later:
        shutil.rmtree(folder)
    saved = [json.loads(row) for row in (first / "queue.jsonl").read_text().splitlines()]
    steps = [
        one["step_rewards"] for row in saved if "rollout" in row for one in row["rollout"]["groups"]
    ]
    assert any(len(of_sample) > 1 for of_group in steps for of_sample in of_group)
    again = make_config(*short, "mode=lagged", f"output.dir={cut}", "output.resume=true")
    lifecycle.train(again, Console(quiet=True), FACTS)
    assert outcome(cut) == whole
