"""`task=reasoning_gym`: any generator of the package reasoning-gym, scored by its own verifier."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rlhf_lab.runs.foreign import ForeignFailure, call, copied
from rlhf_lab.tasks import fields
from rlhf_lab.tasks.optional_packages import (
    MOST_ROWS,
    ONE_AT_A_TIME,
    first_seed,
    json_settings,
    require_package,
    seeded_globals,
)
from rlhf_lab.tasks.task_options import GeneratedTask, require_placeholder
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Split

# Rows of these follow the order of sets, so that they differ from process to process.
HASH_ORDERED = frozenset(
    "isomorphic_strings knight_swap polynomial_multiplication ransom_note word_ladder".split()
)


@dataclass(frozen=True)
class ReasoningGym(GeneratedTask):
    """Generated reasoning problems of the package reasoning-gym."""

    name: str = limits.name("reasoning_gym")
    dataset: str = limits.option(
        "leg_counting", about="Name of reasoning-gym's generator of problems."
    )
    config: str = limits.option("{}", about="Settings of the generator, a JSON object as text.")
    template: str = limits.option(
        "{question}\nEnd with a line that begins with '{answer_tag}'.\n",
        about="Text of the prompt, with {question} and, if wanted, {answer_tag} in it.",
    )
    answer_tag: str = limits.option(
        "Answer:",
        about=(
            "The answer follows this tag where it last begins a line; without the tag, or if it "
            "is empty, the whole response is the answer."
        ),
    )
    train_size: int = fields.size(4096, "train", max=MOST_ROWS)
    validation_size: int = fields.size(256, "validation", max=MOST_ROWS)
    test_size: int = fields.size(256, "test", max=MOST_ROWS)
    max_prompt_tokens: int = fields.prompt_tokens(512)
    max_response_tokens: int = fields.response_tokens(128)
    is_verifiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_placeholder(self.template, "{question}")
        settings_of(self.config)

    def require_usable(self, key: str) -> None:
        require_package("reasoning_gym", "reasoning", f"{key}=reasoning_gym")

    @property
    def warning(self) -> str:
        is_fixed = os.environ.get("PYTHONHASHSEED", "random") != "random"
        if is_fixed or self.dataset not in HASH_ORDERED:
            return ""
        return (
            f"task.dataset={self.dataset}: its rows follow the order of Python's sets, so a "
            "resumed or repeated run sees others; PYTHONHASHSEED=0 in the environment avoids it"
        )

    def examples(self, split: Split) -> Sequence[Example]:
        """The rows of a split; its generator is made now, so that bad settings fail now."""
        generator_of(self, split)
        return super().examples(split)

    def row(self, split: Split, index: int) -> Example:
        uid = f"reasoning_gym/{self.dataset}/{split.value}/{index}"
        generator = generator_of(self, split)
        with seeded_globals(stable_hash(self.world_seed, uid)):
            entry = call(f"task.dataset={self.dataset}", lambda: generator[index])
        prompt = self.template.replace("{answer_tag}", self.answer_tag)
        prompt = prompt.replace("{question}", entry["question"].strip())
        # Some generators have no answer, only a verifier.
        answer = "" if entry["answer"] is None else str(entry["answer"])
        return Example(uid, prompt, f"{self.answer_tag} {answer}".strip(), {"entry": entry})

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """The score of the answer by the generator's verifier, whose errors are raised."""
        answer = answer_of(text, self.answer_tag)
        verifier = generator_of(self, Split.train)
        # A verifier may change its entry: each answer gets a copy.
        entry = copied(example.hidden["entry"])
        try:
            # Some verifiers have caches of their own.
            with ONE_AT_A_TIME:
                return call(
                    f"the verifier of task.dataset={self.dataset}",
                    lambda: float(verifier.score_answer(answer, entry)),
                )
        except ForeignFailure as failure:
            raise ForeignFailure(
                f"{example.uid}: {failure} on the answer {answer!r}"
            ) from failure.__cause__

    def answer(self, text: str) -> str | None:
        """The answer that the verifier reads; None if it is empty."""
        return answer_of(text, self.answer_tag) or None


def answer_of(text: str, tag: str) -> str:
    """The text after the last tag at the start of a line; the whole text if there is none."""
    start = f"\n{text}".rfind(f"\n{tag}") if tag else -1
    return (text if start < 0 else text[start + len(tag) :]).strip()


def settings_of(config: str) -> dict[str, Any]:
    """The settings in task.config. Raises UserError if it sets the seed or the size."""
    settings = json_settings("config", config, '{"max_animals": 4}')
    for key, option in (("seed", "task.world_seed"), ("size", "task.train_size and its like")):
        if key in settings:
            raise UserError(f"task.config={config} sets {key!r}: set {option} instead")
    return settings


@functools.cache
def generator_of(task: ReasoningGym, split: Split) -> Any:
    """The package's generator for a split. Raises UserError if there is none."""
    require_package("reasoning_gym", "reasoning", f"task={task.name}")
    from reasoning_gym.factory import DATASETS, create_dataset

    settings = settings_of(task.config)
    # A composite is configured by objects, which JSON cannot hold.
    names = sorted(set(DATASETS) - {"composite"})
    if task.dataset not in names:
        near = difflib.get_close_matches(task.dataset, names, n=5, cutoff=0.0)
        raise UserError(
            f"task.dataset={task.dataset} is not a generator of reasoning-gym: near names are "
            f"{', '.join(near)}"
        )
    known = [column.name for column in dataclasses.fields(DATASETS[task.dataset][1])]
    for key in settings:
        if key not in known:
            raise UserError(
                f"task.config={task.config}: {task.dataset} has no setting {key!r}; it has "
                f"{', '.join(name for name in known if name not in ('seed', 'size'))}"
            )
    seed = first_seed("reasoning_gym", task.world_seed, split)
    size = getattr(task, f"{split.value}_size")
    try:
        return call(
            f"task.dataset={task.dataset}",
            functools.partial(create_dataset, task.dataset, **settings, seed=seed, size=size),
        )
    except ForeignFailure as failure:
        cause = failure.__cause__
        if not isinstance(cause, AssertionError | TypeError | ValueError):
            raise
        raise UserError(
            f"task.config={task.config}: {task.dataset} refuses it ({cause}): correct the setting"
        ) from cause
