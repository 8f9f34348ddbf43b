"""Scores samples by a function that may raise, hang, or end its process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter

from rlhf_lab.rewards.worker_child import EachSample, Failure, Item, Judge, Outcome, Scoring
from rlhf_lab.rewards.workers import Workers, workers_for
from rlhf_lab.runs.child import RemoteTraceback
from rlhf_lab.runs.foreign import ForeignFailure
from rlhf_lab.types.errors import StopRequested
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Finish, Group, Prompt, Sample, Steps


class OnError(StrEnum):
    """What follows a sample that cannot be scored: the run stops, or its group has no score."""

    stop = "stop"
    drop = "drop"


class TimeUp(RuntimeError):
    """The function did not come back within its time limit."""


class SampleScorer(Reward):
    """Scores sample by sample. What the judge raises stops the run; with on_error=drop a group of
    which one sample fails has no score instead, and failures are counted.

    text_of, prompt_text: the texts of a sample and of its prompt that the judge gets. workers: how
    many processes score (see `Workers`); None: this one, unless there is a time limit.
    """

    def __init__(
        self,
        judge: Judge | Scoring,
        seconds: float,
        on_error: OnError,
        text_of: Callable[[Sample], str] = attrgetter("text"),
        workers: int | None = None,
        prompt_text: Callable[[Prompt], str] = attrgetter("example.prompt"),
    ) -> None:
        self._scoring = judge if isinstance(judge, Scoring) else EachSample(judge)
        self._num, self._seconds = workers, seconds
        self._on_error = on_error
        self._text_of = text_of
        self._prompt_text = prompt_text
        self._workers: Workers | None = None
        self._counts: Counter[str] = Counter()

    @property
    def called(self) -> str:
        return self._scoring.name

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """One float per sample, in order; none for a group of which one sample has no score."""
        return [
            tuple(score for score in row if score is not None) if None not in row else ()
            for row in self.partial_scores(groups)
        ]

    def partial_scores(self, groups: Sequence[Group]) -> list[tuple[float | None, ...]]:
        """The same, with None for a sample that the function leaves to others."""
        items = [self._item(group, sample) for group in groups for sample in group.samples]
        owner = [number for number, group in enumerate(groups) for _ in group.samples]
        failures: dict[int, dict[int, Failure]] = {}
        scores: dict[int, float | None] = {}
        for place, outcome in self._outcomes(items, lambda place: owner[place] not in failures):
            if isinstance(outcome, Failure):
                self._refuse(outcome)
                failures.setdefault(owner[place], {})[place] = outcome
            else:
                scores[place] = outcome
        for of_group in failures.values():
            is_late = of_group[min(of_group)].is_late
            self._counts["reward_timeouts" if is_late else "reward_errors"] += 1
        places = iter(range(len(items)))
        rows = [[next(places) for _ in group.samples] for group in groups]
        return [
            () if number in failures else tuple(scores[place] for place in row)
            for number, row in enumerate(rows)
        ]

    def as_term(
        self, groups: Sequence[Group]
    ) -> list[tuple[tuple[float | None, ...], Sequence[Steps]]]:
        return [(row, ()) for row in self.partial_scores(groups)]

    def drain(self) -> Mapping[str, int]:
        """Failures since the last call; none are counted where the first one stops the run."""
        counts, self._counts = self._counts, Counter()
        if self._on_error is OnError.stop:
            return {}
        return {name: counts[name] for name in ("reward_timeouts", "reward_errors")}

    def _item(self, group: Group, sample: Sample) -> Item:
        is_finished = sample.finish is Finish.eos
        text, prompt = self._text_of(sample), self._prompt_text(group.prompt)
        return Item(group.prompt.example, text, is_finished, sample.answer, prompt)

    def _outcomes(
        self, items: Sequence[Item], is_needed: Callable[[int], bool]
    ) -> Iterator[tuple[int, Outcome]]:
        if self._num is None and not self._seconds:
            return self._scoring.outcomes(items)
        if self._workers is None:
            self._workers = workers_for(self._scoring, self._num or 0, self._seconds)
        return self._workers.outcomes(items, is_needed)

    def _refuse(self, failure: Failure) -> None:
        """Raise what stops the run."""
        if isinstance(failure.error, KeyboardInterrupt | StopRequested):
            raise failure.error
        if self._on_error is OnError.drop:
            return
        if failure.is_late:
            raise TimeUp(failure.text)
        if failure.error is None:
            raise ForeignFailure(failure.text) from RemoteTraceback(failure.traceback)
        if isinstance(self._scoring, EachSample):
            raise failure.error
        raise ForeignFailure(failure.text) from failure.error
