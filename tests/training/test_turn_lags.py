"""The age of each turn of episodes, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from rlhf_lab.rollout.chunk_states import RoundRollouts
from rlhf_lab.training.round_metrics import MOST_TURNS, turn_lags
from rlhf_lab.types.samples import Episode, Finish, Sample


def played(versions: tuple[int, ...], lasts: tuple[int, ...]) -> Sample:
    """An episode whose turns end at these tokens, of these versions."""
    length = len(versions)
    episode = Episode(turns=tuple((last, 0.0) for last in lasts))
    is_one = len(set(versions)) == 1
    return Sample(
        (5,) * length, (-1.0,) * length, versions[0], Finish.eos, "",
        () if is_one else versions, episode,
    )  # fmt: skip


class Of:
    """The rollouts of a round, as far as ages need them."""

    def __init__(self, round_: int) -> None:
        self.schedule = [{"round": round_}]


def lags(samples: list[Sample], round_: int) -> dict[str, object]:
    return dict(turn_lags(samples, cast(RoundRollouts, Of(round_))))


def test_the_age_of_each_turn_is_the_mean_over_the_episodes_that_have_it() -> None:
    samples = [
        # turns of two, one and two tokens, begun by versions 2, 3 and 3; the last token is of 4
        played((2, 2, 3, 3, 4), (1, 2, 4)),
        played((1, 3), (0, 1)),
        played((4,), (0,)),
    ]
    found = lags(samples, 5)
    assert found["by_turn/lag"] == pytest.approx({"1": (3 + 4 + 1) / 3, "2": (2 + 2) / 2, "3": 2})
    assert found["by_turn/count"] == {"1": 3, "2": 2, "3": 1}
    assert found["episode/lag_first_turn"] == pytest.approx(8 / 3)
    assert found["episode/lag_last_turn"] == pytest.approx((1 + 2 + 1) / 3)


def test_samples_without_an_episode_have_no_turns() -> None:
    plain = replace(played((0, 1), (1,)), episode=None)
    assert lags([plain], 2) == {}
    assert lags([plain, played((1, 2), (0, 1))], 2)["by_turn/count"] == {"1": 1, "2": 1}


def test_many_turns_make_no_more_than_so_many_numbers() -> None:
    count = MOST_TURNS + 3
    found = lags([played(tuple(range(count)), tuple(range(count)))], count)
    assert list(cast(dict[str, float], found["by_turn/lag"])) == [
        str(number) for number in range(1, MOST_TURNS + 1)
    ]
    # the last four turns are 4, 3, 2 and 1 rounds old
    assert cast(dict[str, float], found["by_turn/lag"])[str(MOST_TURNS)] == pytest.approx(2.5)
    assert cast(dict[str, int], found["by_turn/count"])[str(MOST_TURNS)] == 4
