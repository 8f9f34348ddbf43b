"""Experience replay: which groups are repeated, exact counts, the same bits in every mode."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.rollout.chunk_states import RoundRollouts
from rlhf_lab.training.checkpoint_files import buffer_row, stored_group
from rlhf_lab.training.replay import ReplayBuffer, StoredGroup, replay_metrics, spread
from rlhf_lab.types.errors import StopRequested, UserError
from rlhf_lab.types.rollouts import Chunk, Rollout
from rlhf_lab.types.run_options import ReplayChoice, RunOptions
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.conftest import Finished, MakeConfig
from tests.support.in_memory import memory_of, result_of, run_in_memory

HALF = ("run.buffer_rounds=2", "run.fresh_share=0.5")
SHORT = (
    *("sft.steps=4", "eval=none", "eval.snapshots=0", "run.updates=6", "algo=rloo"),
    *("run.groups_per_update=4", *HALF),
)


def group_of(number: int, rewards: tuple[float, ...] = (0.0, 1.0)) -> Group:
    sample = Sample((5, 6), (-0.5, -0.25), 0, Finish.eos, "a b", ())
    prompt = Prompt(number, (1, 2), Example(str(number), "x", "y"))
    return Group(prompt, (sample,) * len(rewards), rewards)


def stored(round_: int, place: int = 0, rewards: tuple[float, ...] = (0.0, 1.0)) -> StoredGroup:
    return StoredGroup(round_, place, round_, 1, group_of(10 * round_ + place, rewards))


def buffer_of(*held: StoredGroup, **options: object) -> ReplayBuffer:
    given = {"updates": 64, "groups_per_update": 4, "buffer_rounds": 4, "fresh_share": 0.5}
    return ReplayBuffer(RunOptions(**given | options), 7, held)  # type: ignore[arg-type]


def test_a_buffer_holds_the_last_rounds_and_counts_uses() -> None:
    buffer = buffer_of(stored(0), stored(1), stored(2), stored(3), buffer_rounds=2)
    drawn = buffer.draw(4)
    # Rounds 2 and 3 alone are at most two rounds old.
    assert [(one.round, one.uses) for one in drawn] == [(2, 1), (3, 1)]
    assert [(one.round, one.uses) for one in buffer.stored] == [(2, 2), (3, 2)]
    assert [(one.round, one.uses) for one in buffer.draw(5)] == [(3, 2)]
    assert replay_metrics(drawn, 4, 4) == {
        "replay/share": 0.5,
        **{"replay/uses_min": 1, "replay/uses_mean": 1, "replay/uses_max": 1},
        "replay/uses_histogram": {"1": 2},
        **{"replay/age_min": 1, "replay/age_mean": 1.5, "replay/age_max": 2},
        "replay/age_histogram": {"1": 1, "2": 1},
    }


def test_what_is_stored_is_named_by_chunk_and_place() -> None:
    groups = tuple(group_of(number) for number in range(4))
    rollouts = [
        Rollout(Chunk(3, index, tuple(g.prompt for g in two), 2), two, ((0, 3),), {})
        for index, two in enumerate((groups[:2], groups[2:]))
    ]
    schedule = [
        {"chunk": 6, "dropped": False},
        {"chunk": 7, "dropped": True},
        {"chunk": 8, "dropped": False},
    ]
    buffer = buffer_of()
    buffer.store(3, RoundRollouts(rollouts, [], schedule), [groups[1], groups[2]])
    assert [(one.number, one.place, one.round, one.uses) for one in buffer.stored] == [
        (6, 1, 3, 1),
        (8, 0, 3, 1),
    ]
    row = json.loads(json.dumps(buffer_row(buffer.stored[1])))
    assert stored_group(row, lambda number: rollouts[(number - 6) // 2].chunk) == buffer.stored[1]


def chosen(choice: ReplayChoice, held: tuple[StoredGroup, ...], rounds: int = 400) -> Counter[int]:
    """How often each place of the buffer is drawn, one group a round, over many seeds."""
    options = RunOptions(
        updates=64, groups_per_update=2, buffer_rounds=8, fresh_share=0.5, replay_sampling=choice
    )
    found: Counter[int] = Counter()
    for seed in range(rounds):
        (one,) = ReplayBuffer(options, seed, held).draw(8)
        found[held.index(next(h for h in held if h.group is one.group))] += 1
    return found


def test_groups_are_chosen_as_the_option_has_it() -> None:
    by_age = (stored(0), stored(4), stored(7))
    even = chosen(ReplayChoice.uniform, by_age)
    # 400 draws of a third each: 133 with a standard deviation of 9.4.
    assert all(95 < even[place] < 172 for place in range(3))
    recent = chosen(ReplayChoice.recency, by_age)
    # Ages 8, 4, 1: shares 1/11, 2/11, 8/11.
    assert recent[2] == pytest.approx(400 * 8 / 11, abs=40)
    assert recent[0] == pytest.approx(400 / 11, abs=25)
    spreads = (stored(1, 0, (1.0, 1.0)), stored(1, 1, (0.0, 1.0)), stored(1, 2, (0.0, 3.0)))
    assert [spread(one.group.rewards) for one in spreads] == [0.0, 0.5, 1.5]
    varied = chosen(ReplayChoice.advantage, spreads)
    assert varied[0] == 0 and varied[2] == pytest.approx(300, abs=40)


def test_a_draw_depends_on_seed_and_round_alone() -> None:
    held = tuple(stored(3, place) for place in range(16))
    first, again = (buffer_of(*held).draw(4) for _ in range(2))
    assert first == again and len(first) == 2
    assert len({tuple(one.place for one in buffer_of(*held).draw(r)) for r in range(4, 8)}) > 1


def test_a_run_counts_fresh_and_repeated_samples_apart(make_config: MakeConfig) -> None:
    rows = result_of(make_config(*SHORT))[0]
    plain = result_of(make_config(*SHORT[:-3], "run.groups_per_update=2"))[0]
    for round_, row in enumerate(rows):
        repeated = min(2, 2 * round_)
        assert row["replay/share"] == pytest.approx(repeated / (2 + repeated))
        # Round r repeats samples that are one or two rounds old, and its own have no age.
        ages = {int(k): v for k, v in row.get("replay/age_histogram", {}).items()}
        assert sum(ages.values()) == repeated and set(ages) <= {1, 2}
        lags = {int(k): v for k, v in row["lag/rounds_histogram"].items()}
        assert lags == {0: 4, **{age: 2 * count for age, count in ages.items()}}
        # Generated tokens are trained on or tied; repeated ones are counted apart.
        assert row["total/kept_tokens"] + row["total/tied_tokens"] == row["total/generated_tokens"]
        assert (row["total/replayed_tokens"] > 0) == (round_ > 0)
        assert row["total/completions"] == plain[round_]["total/completions"]
        assert row["sample/groups_left_out"] == 0
    # Each group is repeated at most twice: it is gone after two rounds.
    assert max(row.get("replay/uses_max", 0) for row in rows) <= 2


def test_the_ages_of_mode_and_buffer_add_up(finished: Finished) -> None:
    rows, _ = finished("mode=lagged", "mode.max_staleness=1", *SHORT)
    assert max(row["lag/rounds_max"] for row in rows) == 3, "one of the mode, two of the buffer"


def test_a_run_that_was_stopped_goes_on(make_config: MakeConfig) -> None:
    config = make_config(*SHORT, "mode=async", "mode.executor=thread", "checkpoint=rounds")
    output = memory_of(config)
    with pytest.raises(StopRequested):
        run_in_memory(config, output, lambda: len(output.rows) > 2)
    assert run_in_memory(config, output) == run_in_memory(config)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("run.buffer_rounds=2",), "nothing would be repeated of 2 groups"),
        (("run.fresh_share=0.5",), "pass both, such as run.buffer_rounds=4"),
        (
            ("run.buffer_rounds=1", "run.groups_per_update=8", "run.fresh_share=0.25"),
            "a round repeats 6 groups, and the buffer holds 2 at most; pass run.buffer_rounds=3",
        ),
        ((*HALF, "generator=pairs"), "pass generator=hf"),
    ],
)
def test_what_cannot_be_repeated_is_refused(
    make_config: MakeConfig, options: tuple[str, ...], why: str
) -> None:
    with pytest.raises(UserError, match=why):
        check(make_config("run.groups_per_update=2", *options))
