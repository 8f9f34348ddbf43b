"""Demonstrations of episodes, played in their environments: what SFT learns from where a task has
several turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab.rollout.generators.environment_calls import EnvironmentCalls
from rlhf_lab.rollout.generators.episodes import (
    Action,
    Conversation,
    Conversations,
    conversation_of,
)
from rlhf_lab.rollout.generators.open_episode import Limits, OpenEpisode, Stop
from rlhf_lab.tasks.chat import end_of_answers
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Finish, Group, Prompt
from rlhf_lab.types.text_frame import TextFrame


@dataclass(frozen=True)
class Play:
    """A demonstration's episode as a conversation, and its actions as text."""

    talk: Conversation
    actions: Sequence[str]

    @property
    def episode(self) -> OpenEpisode:
        return self.talk.episode


@dataclass(frozen=True)
class Demonstrations:
    """Plays a task's demonstrations. seed(prompt id): of the environment. calls: makes the steps of
    environments."""

    task: Task
    tokenizer: Any
    limits: Limits
    seed: Callable[[int], int]
    calls: EnvironmentCalls

    def groups(self, prompts: Sequence[Prompt]) -> list[Group]:
        """A group of one sample for each prompt (log-probs unknown, set to 0). Raises UserError for
        a demonstration that does not fit its limits, or does not end with its episode."""
        plays = [self._begun(prompt) for prompt in prompts]
        talks = Conversations([play.talk for play in plays], self.calls)
        talks.begin()
        # All of them turn by turn, so that their environments are called together.
        for number in range(max((len(play.actions) for play in plays), default=0)):
            turn = [(row, play) for row, play in enumerate(plays) if number < len(play.actions)]
            talks.answer([Action(row, *self._action(play, number)) for row, play in turn])
        for play in plays:
            if play.episode.finish is not Finish.eos:
                raise self._wrong(
                    play, f"{len(play.actions)} actions, which do not end its episode"
                )
        return [Group(play.episode.prompt, (play.episode.sample(),)) for play in plays]

    def _begun(self, prompt: Prompt) -> Play:
        task, limits = self.task, self.limits
        episode = OpenEpisode(
            prompt, 0, task.environment(), self.seed(prompt.id), limits, task.name
        )
        talk = conversation_of(episode, task, self.tokenizer, Stop(limits.turns, limits.tokens))
        return Play(talk, list(task.demonstration(prompt.example)))

    def _action(self, play: Play, number: int) -> tuple[list[int], list[float], list[int]]:
        """The tokens of an action, counted from 0, with log-probs and versions that nobody has."""
        actions, room = play.actions, play.talk.room
        if not play.episode.is_open:
            raise self._wrong(play, f"{len(actions)} actions, but its episode ends before")
        frame = TextFrame(self.tokenizer)
        end = end_of_answers(self.tokenizer, self.task.chat_form, play.episode.prompt.example)
        tokens = [*frame.inside(actions[number]), end]
        if len(tokens) > room:
            raise self._wrong(
                play,
                f"action {number + 1} of {len(tokens)} tokens, where {room} are left: "
                "raise task.max_turn_tokens and task.max_response_tokens",
            )
        return tokens, [0.0] * len(tokens), [-1] * len(tokens)

    def _wrong(self, play: Play, what: str) -> UserError:
        uid = play.episode.prompt.example.uid
        return UserError(f"task={self.task.name}, row {uid}: the demonstration has {what}")
