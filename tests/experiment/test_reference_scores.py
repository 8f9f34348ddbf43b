"""Reference scores: read from the cache where its key holds all that decides them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_lab.experiment.build.evaluator import (
    REFERENCE_SCORES,
    KnownReferences,
    with_known_references,
)
from rlhf_lab.rewards.model_options import ModelReward
from rlhf_lab.runs.disk import ENTRY
from rlhf_lab.tasks.tldr_nano import TldrNano, word_tokenizer
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.conftest import MakeConfig


def group(text: str, answer: str = "good") -> Group:
    sample = Sample((5, 1), (0.0, 0.0), -1, Finish.eos, answer)
    return Group(Prompt(0, (3, 4), Example("uid", text, answer)), (sample,))


class Counting(Reward):
    """Scores by the length of the prompt, and counts calls."""

    def __init__(self) -> None:
        self.calls = 0

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        self.calls += 1
        return [(len(one.prompt.example.prompt) / 3,) for one in groups]


@pytest.fixture
def proxy(tmp_path: Path) -> str:
    """The folder of a proxy in a cache."""
    folder = tmp_path / "reward_model" / "abc"
    folder.mkdir(parents=True)
    (folder / ENTRY).write_text("{}", encoding="utf-8")
    return str(folder)


@pytest.fixture
def known(make_config: MakeConfig, proxy: str) -> Callable[..., tuple[KnownReferences, Counting]]:
    def make(
        *overrides: str, references: Sequence[Group] = (group("abc"), group("abcde"))
    ) -> tuple[KnownReferences, Counting]:
        reward = Counting()
        config = make_config(*overrides)
        found = with_known_references(config, [proxy], word_tokenizer(), reward, references)
        assert isinstance(found, KnownReferences)
        return found, reward

    return make


def test_references_are_scored_once_with_the_same_bits(
    known: Callable[..., tuple[KnownReferences, Counting]], proxy: str
) -> None:
    first, scoring = known()
    scores = first.score(first.references)
    assert (scores, scoring.calls) == ([(1.0,), (5 / 3,)], 1)
    again, other = known()
    assert (again.score(again.references), other.calls) == (scores, 0)
    # Samples are scored as ever, also where they look like references.
    assert again.score(list(again.references)) == scores
    assert other.calls == 1
    (entry,) = (Path(proxy).parents[1] / REFERENCE_SCORES).glob("*/scores.json")
    entry.write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match="damaged"):
        again.score(again.references)


def test_all_that_decides_a_score_is_in_the_key(
    known: Callable[..., tuple[KnownReferences, Counting]], proxy: str
) -> None:
    keys = [known()[0].key, known("reward.micro_rows=2")[0].key, known("eval.threads=3")[0].key]
    keys += [
        known("reward.missing_eos=-3")[0].key,
        known(references=[group("abc")])[0].key,
        known(references=[group("abc"), group("abcde", "bad")])[0].key,
        known(references=[group("abcde"), group("abc")])[0].key,
    ]
    Path(proxy, ENTRY).write_text('{"files": {}}', encoding="utf-8")
    keys.append(known()[0].key)
    assert all(one != other for n, one in enumerate(keys) for other in keys[:n])
    # What a run learns by changes no score.
    assert known("algo=ppo", "optim.lr=0.1", "run.updates=3", "seed=9")[0].key == keys[-1]


def test_rewards_whose_code_or_models_no_key_holds_are_not_kept(
    make_config: MakeConfig, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, reward, references = make_config(), Counting(), [group("abc")]

    class Other(ModelReward):
        """A plugin's."""

    def is_kept(reward_options: object = config.reward, proxies: Sequence[str] = (proxy,)) -> bool:
        changed = replace(config, reward=reward_options)
        tokenizer = TldrNano().tokenizer()
        found = with_known_references(changed, proxies, tokenizer, reward, references)
        return found is not reward

    assert is_kept()
    assert not is_kept(ModelReward(path="elsewhere"))
    assert not is_kept(Other())
    assert not is_kept(proxies=())
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert not is_kept(), "the cache belongs to somebody else"
