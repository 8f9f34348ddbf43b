"""`task=instructions`: generated requests with constraints that a program checks.

As in IFEval (arXiv:2311.07911) and IFBench (arXiv:2507.02833), for reinforcement learning with
verifiable rewards (arXiv:2411.15124).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.constraints.compose import TYPES, Types, draw, types_of
from rlhf_lab.tasks.constraints.constraint_types import Constraint, Score, Scoring, score
from rlhf_lab.tasks.constraints.reference_writer import ANGLES, FORMS, READERS, TOPICS
from rlhf_lab.tasks.task_options import GeneratedTask
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Split

MOST_CONSTRAINTS = 5
PLACEHOLDERS = ("{request}", "{instructions}")


@dataclass(frozen=True)
class Instructions(GeneratedTask):
    """Generated requests with constraints that programs check, as IFEval has (arXiv:2311.07911)."""

    name: str = limits.name("instructions")
    train_types: Types = limits.option(
        Types.train,
        about=(
            "Types of constraints in train prompts: those of training, the held-out ones, or all."
        ),
    )
    validation_types: Types = limits.option(
        Types.train,
        about=(
            "Types of constraints in validation prompts: those of training, the held-out ones, or "
            "all."
        ),
    )
    test_types: Types = limits.option(
        Types.held_out,
        about="Types of constraints in test prompts: those of training, the held-out ones, or all.",
    )
    min_constraints: int = limits.count(
        1,
        max=MOST_CONSTRAINTS,
        about="Least constraints of a prompt; their number is drawn for each prompt.",
    )
    max_constraints: int = limits.count(
        3,
        max=MOST_CONSTRAINTS,
        about="Most constraints of a prompt; their number is drawn for each prompt.",
    )
    score: Score = fields.score_field()
    scoring: Scoring = fields.scoring_field()
    unfinished_cost: float = limits.coefficient(
        0.0, about="Subtracted from the score of a response that reached the response limit."
    )
    chat: bool = limits.option(
        False, about="Whether the prompt is a user's message in the model's chat template."
    )
    chat_template: str = limits.option(
        "", about="File with the Jinja template for chat=true; empty takes the tokenizer's own."
    )
    chat_arguments: dict[str, Any] = fields.chat_arguments()
    template: str = limits.option(
        "{request}\n\nFollow these instructions:\n{instructions}\n\nAnswer:",
        about="Text of the prompt, with {request} and {instructions} in it.",
    )
    max_prompt_tokens: int = fields.prompt_tokens(256)
    max_response_tokens: int = fields.response_tokens(192)
    is_verifiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_constraints > self.max_constraints:
            raise UserError(
                f"task.max_constraints={self.max_constraints} is out of range: choose "
                f"task.min_constraints={self.min_constraints} to {MOST_CONSTRAINTS}"
            )
        for placeholder in PLACEHOLDERS:
            if self.template.count(placeholder) != 1:
                raise UserError(
                    f"task.template={self.template!r} must hold {placeholder} once: add it where "
                    "it belongs"
                )

    def row(self, split: Split, index: int) -> Example:
        """One row: a request with constraints, and a reference answer that satisfies them."""
        types = types_of(getattr(self, f"{split.value}_types"))
        rng = random.Random(stable_hash(self.world_seed, "instructions", split.value, index))
        request, topic = draw_request(rng)
        while split_of(request) is not split:
            request, topic = draw_request(rng)
        num = rng.randint(self.min_constraints, self.max_constraints)
        constraints, reference = draw(rng, types, num, request, topic)
        listed = "\n".join(f"- {constraint.instruction()}" for constraint in constraints)
        before, after = self.template.split("{instructions}")
        prompt = before.replace("{request}", request) + listed + after.replace("{request}", request)
        hidden = [{"kind": c.type.name, "params": dict(c.params)} for c in constraints]
        uid = f"instructions/{split.value}/{index}"
        if self.chat:
            return Example(uid, prompt, reference, {"constraints": hidden}, (("user", prompt),))
        return Example(uid, prompt, f" {reference}", {"constraints": hidden})

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """The score of the text by its constraints; an empty text satisfies none."""
        constraints = [
            Constraint(TYPES[row["kind"]], row["params"]) for row in example.hidden["constraints"]
        ]
        points = score(constraints, text, self.score, self.scoring)
        return points - (0.0 if finished else self.unfinished_cost)


def draw_request(rng: random.Random) -> tuple[str, str]:
    """A request: form, topic, angle and reader; and its topic alone."""
    topic = rng.choice(TOPICS)
    form = rng.choice(FORMS)
    return form.format(topic=topic, angle=rng.choice(ANGLES), reader=rng.choice(READERS)), topic


def split_of(request: str) -> Split:
    """The split of a request, independent of sizes and seeds: 80, 10 and 10 percent."""
    return {8: Split.validation, 9: Split.test}.get(stable_hash(request) % 10, Split.train)
