"""Tokens that the chat template puts between two assistant turns: the observation as a message.

The policy's tokens stay as they were sampled: only the text after its end token is rendered. It is
cut from a dialogue with a fixed answer:

    <user> Add 1 and 2. <end> <assistant> An answer. <end> <tool> 3 <end> <assistant>
    |------------ the prompt -----------|                  |------- between --------|

It is what the policy must read if the dialogue begins with the prompt, and with the answer and the
end token behind it. Templates that write earlier answers in another way are refused.
"""

from __future__ import annotations

import functools
from enum import StrEnum
from typing import Any

from rlhf_lab.tasks import chat
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example
from rlhf_lab.types.text_frame import TextFrame

# The observation by which a template is tested.
OBSERVATION = "An observation."
OTHER_TEMPLATE = "pass task.chat_template=<file of another template>"


class ObservationRole(StrEnum):
    """The role of an observation's message in a chat."""

    user = "user"
    tool = "tool"


class TurnsOfChat:
    """Observations as messages of a prompt's chat, which is rendered in this form."""

    def __init__(
        self, tokenizer: Any, form: chat.ChatForm, role: ObservationRole, example: Example
    ) -> None:
        self._tokenizer = tokenizer
        self._form = form
        self._role = role
        self._example = example

    def tokens(self, observation: str) -> list[int]:
        """The tokens between the end token of an action and the next action.

        They are read together with the end token, which may take spaces behind it into itself.
        Raises UserError where the template has no messages after an answer.
        """
        text = f"{self._end_text}{self._parts(observation)[1]}"
        ids = TextFrame(self._tokenizer).inside(text)
        if ids[:1] != [self._end]:
            raise UserError(
                f"the tokenizer does not read the end token {self._end_text!r} as one token where "
                "a message stands behind it: pass a model whose tokenizer does"
            )
        return ids[1:]

    @functools.cached_property
    def _end(self) -> int:
        """The token by which the template ends an answer."""
        return chat.end_of_answers(self._tokenizer, self._form, self._example)

    @property
    def _end_text(self) -> str:
        return str(self._tokenizer.convert_ids_to_tokens(self._end))

    def require_turns(self, longest: int, most: int) -> None:
        """Refuse a template that leaves observations out, one by which a dialogue of several turns
        is not its turns one behind the other, and one whose own tokens leave no room for the
        longest observation. longest: its tokens. most: those of a whole message."""
        ending, between = self._parts(OBSERVATION)
        if OBSERVATION not in between:
            raise self._refused(f"leaves out messages of role {self._role}")
        message = (str(self._role), OBSERVATION)
        two_turns = self._rendered((message, ("assistant", chat.ANSWER), message))
        turn = f"{chat.ANSWER}{ending}{between}"
        if two_turns != self._rendered(()) + 2 * turn:
            raise self._refused("writes a second turn otherwise than the first")
        own = len(self.tokens(""))
        if own + longest > most:
            raise UserError(
                f"task.max_observation_tokens={most}: the chat template puts {own} tokens around "
                f"an observation, which may have {longest}; choose {own + longest} or more"
            )

    def _parts(self, observation: str) -> tuple[str, str]:
        """The text from an answer to its end token, and from there to the next answer. Raises
        UserError."""
        answer = self._rendered(()) + chat.ANSWER
        whole = self._rendered(((str(self._role), observation),))
        before, end, between = whole.removeprefix(answer).partition(self._end_text)
        if not whole.startswith(answer) or before.strip() or not end:
            raise self._refused(
                "writes an answer otherwise once a message follows it, so that the policy would "
                "not read its own text"
            )
        return before + end, between

    def _rendered(self, behind: chat.Messages) -> str:
        """The chat of the prompt with a fixed answer and the messages behind it; the prompt alone
        where there are none."""
        messages = list(self._example.messages)
        if behind:
            messages += [("assistant", chat.ANSWER), *behind]
        try:
            return chat.rendered(self._tokenizer, self._form, self._example, messages, is_open=True)
        except UserError as error:
            if not behind:
                raise
            raise self._refused(f"takes no message of role {self._role} there ({error})") from error

    def _refused(self, why: str) -> UserError:
        other = ObservationRole.user if self._role is ObservationRole.tool else ObservationRole.tool
        return UserError(
            f"task.observation_role={self._role}: the chat template {why}; pass "
            f"task.observation_role={other}, or {OTHER_TEMPLATE}"
        )


def turns_of_chat(task: Task, tokenizer: Any, example: Example) -> TurnsOfChat | None:
    """How observations of an example's episodes are written; None where its prompt is no chat."""
    if not example.messages:
        return None
    role = ObservationRole(task.observation_role)
    return TurnsOfChat(tokenizer, task.chat_form, role, example)


def check_turns(task: Task, tokenizer: Any, example: Example) -> None:
    """Refuse a chat template by which episodes of the task cannot be written."""
    turns = turns_of_chat(task, tokenizer, example) if task.is_episodic else None
    if turns:
        turns.require_turns(task.longest_observation, task.max_observation_tokens)


def refuse_first(name: str, example: Example, text: str) -> None:
    """Refuse a text that an environment shows before the first action of a chat: the prompt ends
    where the assistant's answer begins."""
    if example.messages and text:
        raise UserError(
            f"task={name}, row {example.uid}: reset returned {text!r}, and the prompt is a chat, "
            "behind which the assistant's answer begins: let reset return '' and put the text "
            "into the prompt's messages"
        )
