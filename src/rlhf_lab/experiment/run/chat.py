"""A run's policy in conversation: what a person types is a prompt of the run's task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.artifacts.products import products_of
from rlhf_lab.experiment.build.evaluator import build_generator
from rlhf_lab.experiment.build.prompts import prompt_reader
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.publish.export import chosen_version, policy_of
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks import chat
from rlhf_lab.types.data import Weights
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Prompt


def talk(
    config: Config,
    run: Path,
    version: int | None,
    lines: Iterable[str],
    console: Console,
    temperature: float = 0.0,
    max_tokens: int = 0,
) -> Iterator[str]:
    """The policy's answer to each line. Where the task's prompts are chats, the lines are the turns
    of one chat; an empty line begins another. temperature, max_tokens: 0 takes those of training.
    """
    number, file = chosen_version(config, run, version)
    stages = Artifacts(config, console, of_run=products_of(run, False))
    with console.phase(f"loading version {number}"):
        policy, tokenizer = policy_of(config, run, file, number, stages)
    generator = build_generator(config, policy, tokenizer, "chat", temperature, max_tokens)
    weights = Weights(number, dict(policy.named_parameters()))
    read = prompt_reader(config.task, tokenizer)
    first, form = config.task.examples(config.eval.split)[0], config.task.chat_form
    is_chat = bool(chat.rendered_messages(tokenizer, form, first))
    turns: tuple[tuple[str, str], ...] = ()
    for count, line in enumerate(lines):
        text = line.strip()
        if not text:
            turns = ()
            continue
        turns += (("user", text),)
        example = Example(f"chat/{count}", text, "", messages=turns if is_chat else ())
        prompt = Prompt(count, tuple(read(example)), example)
        (group,) = generator.generate(weights, Chunk(0, count, (prompt,), group_size=1))
        answer = group.samples[0].text
        turns += (("assistant", answer),)
        yield answer
