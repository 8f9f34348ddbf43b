"""A taskset of verifiers: sums, one answer each. Tests import it by its bare name, as users do."""

# The package is not there where types are checked.
# mypy: disable-error-code="misc, untyped-decorator"

from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["Quiz"]


class SumData(vf.TaskData):
    answer: int


class Sum(vf.Task[SumData]):
    @vf.reward(weight=2.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == str(self.data.answer))

    @vf.reward
    async def brief(self, trace: vf.Trace) -> float:
        return -0.1 * len(trace.last_reply)

    @vf.metric
    async def messages(self, trace: vf.Trace) -> float:
        return len(trace.messages)


class QuizConfig(vf.TasksetConfig):
    rows: int = 60


class Quiz(vf.Taskset[Sum, QuizConfig]):
    def load(self) -> Iterator[Sum]:
        for number in range(self.config.rows):
            data = SumData(prompt=f"{number}+1=", system_prompt="Add.", answer=number + 1)
            yield Sum(data, self.config.task)
