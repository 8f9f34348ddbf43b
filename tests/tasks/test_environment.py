"""Means over episodes, and episodes as text."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from rlhf_lab.tasks.environment import episode_metrics, transcript, turns_of
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
        "episode/late": 0.0,
        "episode/virtual_seconds_tools": 0.0,
    }
    late = replace(SECOND, waits=(2.0, 1.0), is_late=True)
    found = episode_metrics([sample(late), sample(FIRST)])
    assert (found["episode/late"], found["episode/virtual_seconds_tools"]) == (0.5, 1.5)


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
    episode = Episode(transcript=lines, turns=((1, -0.02), (3, 1.0)))
    logps, versions = (-1.0, -2.0, -3.0, -4.0), (2, 2, 2, 3)
    whole = Sample((5, 1, 6, 1), logps, 2, Finish.eos, "my sister", versions, episode)
    assert transcript(whole).splitlines() == [
        "environment: hello",
        "policy (-0.02): who ?",
        "environment: ",
        "policy (1): my sister",
    ]
    assert transcript(PLAIN) == "an answer "
    assert turns_of(PLAIN) == [
        {
            **{"writer": "policy", "text": "an answer ", "logps": [-1.0, -1.0]},
            **{"version": 0, "newest_version": 0},
        }
    ]
    first, second = (turn for turn in turns_of(whole) if turn["writer"] == "policy")
    assert first == {
        **{"writer": "policy", "text": " who ?\n", "reward": -0.02},
        **{"logps": [-1.0, -2.0], "version": 2, "newest_version": 2},
    }
    assert (second["logps"], second["version"], second["newest_version"]) == ([-3.0, -4.0], 2, 3)
    assert second["versions"] == [2, 3] and "versions" not in first


def test_texts_of_tokens_stand_with_the_text_that_they_are_part_of() -> None:
    lines = (("environment", "hello"), ("policy", "who"), ("environment", "me"), ("policy", "so"))
    episode = Episode(observed=((0, (7, 8)), (2, (9,))), transcript=lines, turns=((1, 0), (2, 1)))
    whole = Sample((5, 1, 6), (-1.0, -2.0, math.nan), 2, Finish.eos, "so", (), episode)
    rows = turns_of(whole, lambda tokens: [f"<{token}>" for token in tokens])
    assert [row["token_texts"] for row in rows] == [
        ["<7>", "<8>"],
        ["<5>", "<1>"],
        ["<9>"],
        ["<6>"],
    ]
    assert ["logps" in row for row in rows] == [False, True, False, True]
    # What is not known is no number, which a row of JSON could not hold.
    assert rows[3]["logps"] == [None]
    (plain,) = turns_of(PLAIN, lambda tokens: [str(len(tokens))] * len(tokens))
    assert plain["token_texts"] == ["2", "2"] and "reward" not in plain
