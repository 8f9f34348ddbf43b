"""Decoding that goes on while environments are called: the same samples, however long that is."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from transformers import MptConfig, MptForCausalLM, Qwen2Config, Qwen2ForCausalLM

from rlhf_lab.rollout.generators.decoders import decoder_of, require_idle_rows
from rlhf_lab.rollout.generators.episode_options import WhenLate
from rlhf_lab.rollout.generators.options import Decode
from rlhf_lab.rollout.generators.plain import PlainDecoder
from rlhf_lab.rollout.generators.writers import TurnRow, due
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Sample
from tests.rollout.test_lean import GROUPED, KINDS, SPECIAL, models
from tests.support.environments import (
    Echo,
    Play,
    chunk,
    player,
    prompt,
    tiny_model,
    weights,
    writer,
)
from tests.support.together import together

pytestmark = pytest.mark.usefixtures("costly")

DECODES = ("lean", "static", "transformers")
ECHO = Play(Echo, max_turn_tokens=12, max_observation_tokens=40)
# Long enough for every other row to end its action.
LONG = 100
# Far longer than what these tests compute.
LIMIT = 60.0


def samples(groups: Sequence[Group]) -> list[Sample]:
    return [sample for group in groups for sample in group.samples]


def assert_same(found: Sequence[Group], expected: Sequence[Group]) -> None:
    """Tokens and episodes are equal, log-probs up to the rounding of another batch."""
    for one, other in zip(samples(found), samples(expected), strict=True):
        assert one.logps == pytest.approx(other.logps, abs=1e-4)
        assert replace(one, logps=()) == replace(other, logps=())


@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("ahead", [1, 4, LONG])
def test_waiting_changes_no_sample(decode: str, ahead: int) -> None:
    wanted = chunk(greedy=True)
    at_once = player(ECHO, writer(24, decode)).generate(weights(), wanted)
    assert {len(s.episode.turns) for s in samples(at_once) if s.episode} == {1, 2, 3}
    later = player(ECHO, writer(24, decode), decode_ahead=ahead).generate(weights(), wanted)
    assert_same(later, at_once)


@pytest.mark.parametrize("decode", DECODES)
def test_in_float64_log_probs_are_equal_to_far_more_digits(decode: str) -> None:
    """Nothing false is in the cache, however little it would weigh."""

    def generated(ahead: int) -> list[Sample]:
        made = writer(24, decode, copy.deepcopy(tiny_model()).double())
        return samples(player(ECHO, made, decode_ahead=ahead).generate(exact, chunk()))

    exact = Weights(4, {name: p.detach().double() for name, p in tiny_model().named_parameters()})
    for one, other in zip(generated(4), generated(0), strict=True):
        assert one.tokens == other.tokens
        # They are kept in float32.
        assert one.logps == pytest.approx(other.logps, rel=1e-6)


@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("stops", [(1, 2, 0), (2, 0)])
def test_parts_of_an_episode_wait_too(decode: str, stops: tuple[int, ...]) -> None:
    whole = player(ECHO, writer(24, decode)).generate(weights(), chunk())
    part = chunk()
    for stop in stops:
        made = player(ECHO, writer(24, decode), decode_ahead=4)
        groups = made.generate(weights(), replace(part, stop_at=stop))
        turns = [len(s.episode.turns) for s in samples(groups) if s.episode]
        assert max(turns) == (stop or 3)
        part = replace(part, begun=tuple(samples(groups)))
    for one, other in zip(samples(groups), samples(whole), strict=True):
        assert one.tokens == other.tokens and one.logps == pytest.approx(other.logps, abs=1e-4)


@dataclass
class Steps:
    """A feed of fixed weights that counts decoding steps by versions."""

    asked: list[int] = field(default_factory=list)

    def at(self, step: int) -> Weights:
        self.asked.append(step)
        return weights(version=10 + step)


@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("ahead", [0, 3])
def test_an_observation_is_read_so_many_steps_behind_its_action(decode: str, ahead: int) -> None:
    """Versions are of the decoding step, from which the first token of the next action is as many
    steps away as the observation has tokens, and those of the wait."""
    feed = Steps()
    made = player(ECHO, writer(24, decode), decode_ahead=ahead)
    found = samples(made.generate(feed, chunk(12)))
    assert feed.asked == list(range(len(feed.asked)))
    waits: list[int] = []
    for sample in found:
        assert sample.episode is not None
        versions = sample.versions or (sample.version,) * len(sample.tokens)
        observed = dict(sample.episode.observed)
        for last, _ in sample.episode.turns[:-1]:
            apart = versions[last + 1] - versions[last] - 1
            waits.append(apart - len(observed.get(last + 1, ())))
    # Where no other row writes, the wait is skipped.
    assert max(waits) == ahead and waits.count(ahead) > len(waits) / 2
    longest = max(sample.steps for sample in found)
    assert longest <= len(feed.asked) <= longest + 2 * ahead


def row(wait: int | None = None, is_done: bool = False) -> TurnRow:
    return TurnRow(0, 9, is_done=is_done, wait=wait, tokens=[1])


@pytest.mark.parametrize(
    ("rows", "expected", "waits"),
    [
        # As long as one writes, those that have waited long enough.
        ([row(), row(2), row(0)], [2], [None, 2, 0]),
        ([row(), row(2)], [], [None, 2]),
        # All wait: the first of them, two steps early, and the others two steps on.
        ([row(2), row(5), row(2), row(is_done=True)], [0, 2], [0, 3, 0, None]),
        ([row(is_done=True)], [], [None]),
    ],
)
def test_states_of_the_rows_decide_which_answers_are_due(
    rows: list[TurnRow], expected: list[int], waits: list[int | None]
) -> None:
    found = due(rows)
    assert [next(n for n, one in enumerate(rows) if one is other) for other in found] == expected
    assert [one.wait for one in rows] == waits


@pytest.mark.parametrize("decode", DECODES)
def test_rows_are_written_while_the_environment_of_another_is_called(decode: str) -> None:
    def generated(task: Play, **options: Any) -> Sequence[Group]:
        made = player(task, writer(24, decode), steps_at_once=2, **options)
        return made.generate(weights(), chunk(3, 2))

    complaint = r"turn 1: the environment took longer than episodes\.step_seconds=1: "
    with together(12) as task, pytest.raises(UserError, match=complaint):
        generated(task, step_seconds=1.0)
    with together(12) as task:
        groups = generated(task, step_seconds=LIMIT, decode_ahead=LONG)
    assert {len(sample.episode.turns) for sample in samples(groups) if sample.episode} == {1, 2}


class Failing(Echo):
    """Raises at its second turn."""

    def step(self, action: str, finished: bool) -> Turn:
        turn = super().step(action, finished)
        if self.number == 2:
            raise LookupError("nothing there")
        return turn


@pytest.mark.parametrize("steps_at_once", [1, 4])
def test_what_a_call_under_way_raises_is_raised(steps_at_once: int) -> None:
    task = replace(ECHO, make=Failing)
    made = player(task, writer(24), decode_ahead=4, steps_at_once=steps_at_once)
    with pytest.raises(LookupError, match="nothing there") as raised:
        made.generate(weights(), chunk())
    assert "turn 2" in raised.value.__notes__[0]


class Slow(Echo):
    """Notes which calls have begun and ended, and takes a while."""

    begun: list[int]
    ended: list[int]

    def step(self, action: str, finished: bool) -> Turn:
        self.begun.append(1)
        threading.Event().wait(0.2)
        self.ended.append(1)
        return super().step(action, finished)


def test_no_call_is_at_work_behind_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are no numbers end the decoding while environments are called."""
    begun: list[int] = []
    ended: list[int] = []
    monkeypatch.setattr(Slow, "begun", begun, raising=False)
    monkeypatch.setattr(Slow, "ended", ended, raising=False)

    class Broken:
        """Weights of which the later ones are no numbers."""

        def at(self, step: int) -> Weights:
            return weights(float("nan") if begun else 1.0, 4 + bool(begun))

    made = player(replace(ECHO, make=Slow), writer(24), decode_ahead=LONG)
    with pytest.raises(FloatingPointError):
        made.generate(Broken(), chunk())
    assert len(begun) == len(ended) == 1
    # Nothing of it is left in what follows.
    again = made.generate(weights(), chunk(1))
    assert_same(again, player(ECHO, writer(24)).generate(weights(), chunk(1)))


class HangingOnce(Echo):
    """The episode of one seed never answers its first action."""

    def __init__(self, seeds: list[int], event: threading.Event) -> None:
        self.seeds, self.event = seeds, event

    def reset(self, example: Example, seed: int) -> str:
        self.seeds.append(seed)
        return super().reset(example, seed)

    def step(self, action: str, finished: bool) -> Turn:
        if self.seed == self.seeds[3]:
            self.event.wait()
        return super().step(action, finished)


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """What a hanging call waits for; it is let go at the end."""
    event = threading.Event()
    yield event
    event.set()


def test_a_late_call_ends_its_own_episode_alone(hanging: threading.Event) -> None:
    seeds: list[int] = []
    task = replace(ECHO, make=lambda: HangingOnce(seeds, hanging))
    cut = player(
        task, writer(24), decode_ahead=4, step_seconds=1.0, when_late=WhenLate.truncate
    ).generate(weights(), chunk())
    whole = player(ECHO, writer(24), decode_ahead=4).generate(weights(), chunk())
    for number, (one, other) in enumerate(zip(samples(cut), samples(whole), strict=True)):
        assert one.episode is not None and one.episode.is_late == (number == 3)
        if number == 3:
            assert one.tokens == other.tokens[: len(one.tokens)]
            assert (one.finish, len(one.episode.turns)) == (Finish.length, 1)
        else:
            assert one.tokens == other.tokens


@pytest.mark.parametrize("decode", ["lean", "transformers"])
@pytest.mark.parametrize("kind", KINDS)
def test_models_whose_places_are_positions_bear_idle_rows(kind: str, decode: str) -> None:
    model = models(kind)
    decoder, _ = decoder_of(model, Decode(decode))
    require_idle_rows(model, decoder)


def windowed() -> Any:
    options = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}
    return Qwen2ForCausalLM(Qwen2Config(**GROUPED, **SPECIAL, **options)).eval()


def sloped() -> Any:
    """Attention that falls with the distance in columns."""
    torch.manual_seed(4)
    config = MptConfig(d_model=32, n_heads=4, n_layers=2, vocab_size=300, max_seq_len=64)
    model = MptForCausalLM(config)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model.eval()


@pytest.mark.parametrize("make", [windowed, sloped])
def test_models_whose_places_are_columns_are_refused(make: Any) -> None:
    model = make()
    with pytest.raises(UserError, match=r"does not bear the gaps .* pass episodes.decode_ahead=0"):
        require_idle_rows(model, PlainDecoder(model))


def test_one_row_alone_skips_its_waits() -> None:
    """No step is made for nothing."""
    feed = Steps()
    (group,) = player(ECHO, writer(24), decode_ahead=LONG).generate(
        feed, Chunk(0, 0, (prompt(),), 1)
    )
    assert len(feed.asked) == group.samples[0].steps
