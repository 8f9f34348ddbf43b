"""Demonstrations of episodes, played in their environments: what SFT learns from where a task has
several turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab.rollout.generators.conversation import Conversations, conversation_of, encoded
from rlhf_lab.rollout.generators.environment_calls import EnvironmentCalls
from rlhf_lab.rollout.generators.open_episode import Limits, OpenEpisode
from rlhf_lab.rollout.generators.turn_writer import Action
from rlhf_lab.tasks.environment import Episodic
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Finish, Group, Prompt


@dataclass(frozen=True)
class Demonstrations:
    """Plays a task's demonstrations. seed(prompt id): of the environment. calls: makes the steps of
    environments."""

    task: Episodic
    tokenizer: Any
    limits: Limits
    seed: Callable[[int], int]
    calls: EnvironmentCalls

    def groups(self, prompts: Sequence[Prompt]) -> list[Group]:
        """A group of one sample for each prompt (log-probs unknown, set to 0). Raises UserError for
        a demonstration that does not fit its limits, or does not end with its episode."""
        return [Group(prompt, (self._played(prompt).sample(),)) for prompt in prompts]

    def _played(self, prompt: Prompt) -> OpenEpisode:
        task, limits = self.task, self.limits
        episode = OpenEpisode(
            prompt, 0, task.environment(), self.seed(prompt.id), limits, task.name
        )
        talk = conversation_of(episode, task, self.tokenizer, limits.turns)
        alone = Conversations([talk], self.calls)
        alone.begin()
        actions = list(task.demonstration(prompt.example))
        for number, action in enumerate(actions, start=1):
            if not episode.is_open:
                raise self._wrong(prompt, f"{len(actions)} actions, but its episode ends before")
            tokens = [*encoded(self.tokenizer, action), self.tokenizer.eos_token_id]
            if len(tokens) > talk.room:
                raise self._wrong(
                    prompt,
                    f"action {number} of {len(tokens)} tokens, where {talk.room} are left: "
                    "raise task.max_turn_tokens and task.max_response_tokens",
                )
            alone.answer([Action(0, tokens, [0.0] * len(tokens), [-1] * len(tokens))])
        if episode.finish is not Finish.eos:
            raise self._wrong(prompt, f"{len(actions)} actions, which do not end its episode")
        return episode

    def _wrong(self, prompt: Prompt, what: str) -> UserError:
        return UserError(
            f"task={self.task.name}, row {prompt.example.uid}: the demonstration has {what}"
        )
