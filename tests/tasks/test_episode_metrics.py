"""Means over episodes, and episodes as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlhf_lab.tasks.episode_metrics import episode_metrics, transcript
from rlhf_lab.types.samples import Episode, Finish, Sample

PLAIN = Sample((5, 1), (-1.0, -1.0), 0, Finish.eos, "an answer ")


def sample(episode: Episode) -> Sample:
    return replace(PLAIN, episode=episode)


FIRST = Episode(
    observed=((0, (7, 8)), (2, (9,))),
    turns=((1, 0.5), (3, 1.0), (4, 0.0)),
    info={"calls": 3.0, "errors": 1.0},
    is_done=True,
)
SECOND = Episode(turns=((1, 0.5),), info={"calls": 2.0})


def test_means_by_hand() -> None:
    assert episode_metrics([sample(FIRST), sample(SECOND)]) == {
        "episode/turns": 2.0,
        "episode/observed_tokens": 1.5,
        "episode/done": 0.5,
        "episode/calls": 2.5,
        "episode/errors": 0.5,
    }


def test_what_only_some_episodes_count_is_zero_in_the_others() -> None:
    found = episode_metrics([sample(SECOND), sample(Episode()), sample(FIRST), sample(Episode())])
    assert found["episode/errors"] == pytest.approx(1 / 4)
    assert found["episode/calls"] == pytest.approx(5 / 4)
    assert found["episode/turns"] == pytest.approx(4 / 4)


def test_samples_of_one_turn_have_no_such_metrics() -> None:
    assert episode_metrics([]) == episode_metrics([PLAIN, PLAIN]) == {}
    assert episode_metrics([PLAIN, sample(FIRST)]) == episode_metrics([sample(FIRST)])


def test_an_episode_is_a_line_for_each_of_its_texts() -> None:
    lines = (
        ("environment", "hello"),
        ("policy", " who ?\n"),
        ("environment", ""),
        ("policy", "my sister"),
    )
    turns = ((1, -0.02), (3, 1.0))
    assert transcript(sample(Episode(transcript=lines, turns=turns))).splitlines() == [
        "environment: hello",
        "policy (-0.02): who ?",
        "environment: ",
        "policy (1): my sister",
    ]
    assert transcript(PLAIN) == "an answer "
