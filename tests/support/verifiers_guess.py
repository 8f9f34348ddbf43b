"""An environment of verifiers that speaks first, for as long as the policy guesses wrongly, and
draws from Python's global random numbers. Tests import it by its bare name, as users do."""

# The package is not there where types are checked.
# mypy: disable-error-code="misc, untyped-decorator"

from __future__ import annotations

import random
from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["GuessEnv", "Numbers"]


class Numbers(vf.Taskset[vf.Task, vf.TasksetConfig]):
    INFINITE = True

    def load(self) -> Iterator[vf.Task]:
        while True:
            yield vf.Task(vf.TaskData(prompt=None), self.config.task)


class GuessConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()
    cost: float = 0.25


class GuessEnv(vf.Env[GuessConfig]):
    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        async with agents.player.interaction(task) as talk:
            said = await talk.turn("Guess a digit.")
            while not said.terminated and said.last_reply != str(random.randrange(10)):
                if said.last_reply == "crash":
                    raise KeyError("no such digit")
                said = await talk.turn(f"no, and the next is below {random.randrange(5, 10)}")
        talk.trace.record_reward("found", 1.0 - self.config.cost * (talk.trace.num_turns - 1))

    async def finalize(self, task: vf.Task, episode: vf.Episode) -> None:
        episode.traces[0].record_metric("traces", len(episode.traces))
