"""Calls of environments: in order, at the same time, and given up when they hang."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rlhf_lab.rollout.generators import environment_calls
from rlhf_lab.rollout.generators.environment_calls import Call, EnvironmentCalls
from rlhf_lab.rollout.generators.episode_options import EpisodeOptions, WhenLate
from rlhf_lab.rollout.generators.open_episode import Limits, OpenEpisode, Said
from rlhf_lab.tasks.environment import Turn, episode_metrics
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish
from tests.support.environments import Play, Script, player, prompt
from tests.support.given_actions import Given, played, said

# Far longer than a call of these tests takes, and far shorter than the test's own limit.
SOON = 1.0


def calls_of(*functions: Callable[[], Any]) -> list[Call]:
    return [Call(f"call {number}", function) for number, function in enumerate(functions)]


def making(**options: Any) -> EnvironmentCalls:
    return EnvironmentCalls(EpisodeOptions(**options))


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """What a hanging call waits for; it is let go at the end."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("step_seconds", [0, 60])
@pytest.mark.parametrize("at_once", [1, 3, 50])
def test_results_come_in_the_order_of_the_calls(step_seconds: float, at_once: int) -> None:
    calls = making(step_seconds=step_seconds, steps_at_once=at_once)
    functions = [lambda number=number: number**2 for number in range(20)]
    assert calls.all(calls_of(*functions)) == [number**2 for number in range(20)]
    assert calls.all([]) == []


def test_calls_are_made_at_the_same_time_and_no_more_than_allowed() -> None:
    barrier = threading.Barrier(3, timeout=60)
    calls = making(steps_at_once=3)
    # Each waits for two others.
    assert sorted(calls.all(calls_of(*[barrier.wait] * 6))) == [0, 0, 1, 1, 2, 2]
    running, most = [0], [0]

    def counted() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        running[0] -= 1

    making().all(calls_of(*[counted] * 50))
    assert most == [1]


@pytest.mark.parametrize("at_once", [1, 4])
def test_what_the_first_failing_call_raises_is_raised(at_once: int) -> None:
    def failing(number: int) -> None:
        raise LookupError(f"call {number}")

    functions = [lambda: 1, lambda: failing(1), lambda: failing(2)]
    with pytest.raises(LookupError, match="call 1"):
        making(steps_at_once=at_once).all(calls_of(*functions))


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_call_that_hangs_stops_the_run_or_is_left_out(
    at_once: int, hanging: threading.Event
) -> None:
    functions = (lambda: 1, hanging.wait, lambda: 3)
    stopped = making(step_seconds=SOON, steps_at_once=at_once)
    complaint = r"^call 1: the environment took longer than episodes\.step_seconds=1: raise it"
    with pytest.raises(UserError, match=complaint):
        stopped.all(calls_of(*functions))
    cut = making(step_seconds=SOON, steps_at_once=at_once, when_late=WhenLate.truncate)
    assert cut.all(calls_of(*functions)) == [1, None, 3]
    needed = Call("reset", hanging.wait, is_needed=True)
    with pytest.raises(UserError, match=r"^reset: the environment took longer"):
        cut.one(needed)


def test_threads_are_used_again_and_a_hanging_one_when_it_is_let_go(
    hanging: threading.Event,
) -> None:
    cut = making(step_seconds=SOON, when_late=WhenLate.truncate)
    assert cut.all(calls_of(hanging.wait, lambda: 2)) == [None, 2]
    named: list[threading.Thread] = []
    for _ in range(100):
        making().all(calls_of(lambda: named.append(threading.current_thread())))
    # One at work, and one that has not come back yet when the next call is made.
    assert len({*named}) <= 3
    hanging.set()
    assert cut.all(calls_of(lambda: 3)) == [3]


def test_calls_go_on_beside_what_begins_them_and_are_bounded_together() -> None:
    """Those of several beginnings share the threads."""
    gates = [threading.Event() for _ in range(3)]
    begun: list[int] = []

    def waiting(number: int) -> bool:
        begun.append(number)
        return gates[number].wait(60)

    calls = making(steps_at_once=2)
    parts = [calls.begin(calls_of(functools.partial(waiting, number))) for number in range(3)]
    gates[0].set()
    assert calls.end(parts[0]) == [True]
    gates[2].set()
    # The third takes the place of the first, and need not wait for the second.
    assert calls.ended([*parts[2], *parts[1]], for_one=True) == [True, False]
    assert calls.end(parts[2]) == [True]
    assert sorted(begun[:2]) == [0, 1] and begun[2:] == [2]
    gates[1].set()
    assert calls.end(parts[1]) == [True]


def test_calls_that_have_no_thread_yet_are_dropped(hanging: threading.Event) -> None:
    calls = making(step_seconds=SOON)
    made: list[int] = []
    has_begun = threading.Event()

    def hang() -> None:
        has_begun.set()
        hanging.wait()

    first, *_ = calls.begin(calls_of(hang, lambda: made.append(1)))
    assert has_begun.wait(60)
    calls.drop()
    assert calls.ended([first], for_one=False) == [True] and not made
    assert calls.all(calls_of(lambda: 3)) == [3]


class Hanging(Script):
    """Hangs at its second turn."""

    def __init__(self, event: threading.Event) -> None:
        super().__init__([Turn("1", 0.5), Turn("2"), Turn(is_done=True)])
        self.event = event

    def step(self, action: str, finished: bool) -> Turn:
        if self.number == 1:
            self.event.wait()
        return super().step(action, finished)


def test_an_episode_whose_step_is_late_ends_with_the_action(hanging: threading.Event) -> None:
    world = Play(lambda: Hanging(hanging))
    actions = [[said("1")], [said("2")], [said("12")]]
    with pytest.raises(UserError, match=r"^task=play, row row/0, turn 2: the environment took"):
        played(world, actions, step_seconds=SOON)
    (sample,) = played(world, actions, step_seconds=SOON, when_late=WhenLate.truncate).samples
    assert sample.episode is not None
    assert (sample.text, sample.finish) == ("2", Finish.length)
    assert (sample.episode.is_late, sample.episode.is_done) == (True, False)
    assert [reward for _, reward in sample.episode.turns] == [0.5, 0.0]


@dataclass
class Clock:
    """Seconds that pass where an environment has them pass."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Timed(Script):
    """Takes so long to begin, and for each turn."""

    clock: Clock = field(default_factory=Clock)
    begin: float = 0.0
    each: float = 40.0

    def reset(self, example: Example, seed: int) -> str:
        self.clock.now += self.begin
        return super().reset(example, seed)

    def step(self, action: str, finished: bool) -> Turn:
        self.clock.now += self.each
        return super().step(action, finished)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """That of calls."""
    ours = Clock()
    monkeypatch.setattr(environment_calls, "time", ours)
    return ours


TURNS = [Turn("1", 0.5), Turn("2", 0.5), Turn(reward=1.0, is_done=True)]


def timed(clock: Clock, **seconds: Any) -> Play:
    return Play(lambda: Timed(TURNS, clock=clock, **seconds))


@pytest.mark.parametrize("step_seconds", [0.0, 50.0])
def test_the_calls_of_an_episode_have_a_limit_together(clock: Clock, step_seconds: float) -> None:
    actions = [[said("1")], [said("2")], [said("12")]]
    limits: dict[str, Any] = {"step_seconds": step_seconds, "episode_seconds": 100.0}
    complaint = (
        r"^task=play, row row/0, turn 3: the environment took longer than "
        r"episodes\.episode_seconds=100: raise it"
    )
    with pytest.raises(UserError, match=complaint):
        played(timed(clock), actions, **limits)
    (sample,) = played(timed(clock), actions, when_late=WhenLate.truncate, **limits).samples
    assert sample.episode is not None
    assert (sample.text, sample.finish) == ("12", Finish.length)
    assert (sample.episode.is_late, sample.episode.is_done) == (True, False)
    assert [reward for _, reward in sample.episode.turns] == [0.5, 0.5, 0.0]
    assert episode_metrics([sample])["episode/late"] == 1
    # The reset counts too.
    with pytest.raises(UserError, match=r"row row/0, turn 2: the environment took longer"):
        played(timed(clock, begin=30.0), actions, **limits)
    with pytest.raises(UserError, match=r"row row/0, turn 1: .* than episodes.episode_seconds=100"):
        played(timed(clock, begin=130.0), actions, episode_seconds=100.0)


def test_each_episode_has_its_own_limit_and_so_has_one_that_is_played_again(clock: Clock) -> None:
    actions = [[said(turn)] * 3 for turn in ("1", "2", "12")]
    group = played(timed(clock, each=30.0), actions, size=3, episode_seconds=100.0)
    assert [sample.finish for sample in group.samples] == [Finish.eos] * 3
    assert clock.now == 4 * 90


def test_an_error_names_the_limit_that_was_exceeded(clock: Clock) -> None:
    for step_seconds, episode_seconds, named in ((30, 100, "step"), (100, 30, "episode")):
        calls = making(step_seconds=step_seconds, episode_seconds=episode_seconds)
        episode = OpenEpisode(prompt(), 0, Timed(TURNS, clock=clock), 0, Limits(3, 9, 9, 9), "play")
        with pytest.raises(UserError, match=rf"longer than episodes\.{named}_seconds=30: "):
            calls.one(episode.step(Said("1", True)))


@pytest.mark.parametrize(("again", "late"), [(20.0, 0.0), (40.0, 1.0), (60.0, 1.0)])
def test_a_continued_episode_goes_on_behind_the_seconds_of_its_turns(
    clock: Clock, again: float, late: float
) -> None:
    """No turn that was in time is cut, however long it takes to repeat it."""
    options: dict[str, Any] = {
        "step_seconds": 80.0,
        "episode_seconds": 100.0,
        "when_late": WhenLate.truncate,
    }
    part = Chunk(0, 0, (prompt(),), 1, stop_at=2)
    first = Given([[said("1")], [said("2")]])
    groups = player(timed(clock), first, **options).generate(Weights(0, {}), part)
    rest = replace(part, stop_at=0, begun=groups[0].samples)
    second = player(timed(clock, each=again), Given([[said("12")]]), **options)
    (group,) = second.generate(Weights(0, {}), rest)
    (sample,) = group.samples
    assert sample.episode is not None and len(sample.episode.turns) == 3
    assert episode_metrics([sample])["episode/late"] == late
    slow = player(timed(clock, each=90.0), Given([[said("12")]]), **options)
    with pytest.raises(UserError, match=r"turn 1: the environment took longer .*step_seconds=80"):
        slow.generate(Weights(0, {}), rest)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tool_sigma": 1.0}, r"episodes\.tool_sigma=1 with episodes\.tool_seconds=0: "),
        ({"tool_deadline": 2.0}, r"episodes\.tool_deadline=2 with episodes\.tool_seconds=0: "),
        ({"step_seconds": -1.0}, r"episodes\.step_seconds"),
        ({"episode_seconds": -1.0}, r"episodes\.episode_seconds"),
        ({"steps_at_once": 0}, r"episodes\.steps_at_once"),
        (
            {"step_seconds": 0.0, "when_late": WhenLate.truncate},
            r"episodes\.when_late=truncate with episodes\.step_seconds=0 and "
            r"episodes\.episode_seconds=0: no step is ever late; pass episodes\.step_seconds or ",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        EpisodeOptions(**options)
