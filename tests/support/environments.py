"""Tasks and environments of a few lines, a tokenizer whose tokens merge, and a policy of its
tokens."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_lab.models.options import ScratchModel, scratch
from rlhf_lab.rollout.generators.episode_options import EpisodeOptions
from rlhf_lab.rollout.generators.episodes import EpisodeGenerator
from rlhf_lab.rollout.generators.hf import HFGenerator, HFTurns
from rlhf_lab.rollout.generators.options import Decode, HFSampling
from rlhf_lab.rollout.generators.writers import Rows, Talks
from rlhf_lab.tasks.environment import Environment, Turn
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.types.data import Weights
from rlhf_lab.types.randomness import stable_hash, uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Episode, Example, Finish, Prompt, Sample, Split

EOS = 1
# Far enough from the usual small weights that every token in front changes the next one.
TINY = ScratchModel(
    "tiny", hidden_size=32, num_layers=2, num_heads=4, init_std=0.2, tie_embeddings=False
)


class Pieces:
    """A tokenizer of few symbols, which takes the longest one at each place: `ab` is one token,
    but a policy may also write it as two."""

    symbols = ("", "", *"abcd12;", "ab", "cd", "abcd", "a;")
    pad_token_id, eos_token_id = 0, EOS

    def __len__(self) -> int:
        return len(self.symbols)

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        found = []
        while text:
            longest = max((s for s in self.symbols if s and text.startswith(s)), key=len)
            found.append(self.symbols.index(longest))
            text = text.removeprefix(longest)
        return {"input_ids": found}

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return "".join(self.symbols[token] for token in tokens)


def ids(text: str) -> list[int]:
    """The tokens of a text."""
    return Pieces()(text, add_special_tokens=False)["input_ids"]


@dataclass
class Script:
    """An environment that gives the same turns whatever the actions are, and notes these."""

    turns: Sequence[Any]
    first: Any = ""
    seen: list[tuple[str, bool]] = field(default_factory=list)
    number: int = 0

    def reset(self, example: Example, seed: int) -> str:
        self.number = 0
        return self.first  # type: ignore[no-any-return]

    def step(self, action: str, finished: bool) -> Turn:
        self.seen.append((action, finished))
        self.number += 1
        return self.turns[self.number - 1]  # type: ignore[no-any-return]


class Echo:
    """Answers with what it read, backwards, and ends on its third action."""

    def reset(self, example: Example, seed: int) -> str:
        self.number, self.seed = 0, seed
        return ""

    def step(self, action: str, finished: bool) -> Turn:
        self.number += 1
        reward = len(action) + (self.seed % 7) / 10
        return Turn(action[::-1] + ";", reward, self.number == 3, {"length": len(action)})


@dataclass(frozen=True)
class Play(Task):
    """A task of any environment."""

    make: Callable[[], Environment]
    max_turns: int = 3
    max_turn_tokens: int = 4
    max_observation_tokens: int = 8
    actions: Sequence[str] = ()
    name: str = "play"
    max_prompt_tokens: int = 8
    max_response_tokens: int = 24

    def examples(self, split: Split) -> list[Example]:
        return [Example("row/0", "ab", "cd")]

    def environment(self) -> Environment:
        return self.make()

    def demonstration(self, example: Example) -> Sequence[str]:
        return self.actions


@functools.cache
def tiny_model() -> Any:
    """A policy of these symbols. Copy it where it is changed."""
    return scratch(TINY, Pieces(), seed=3)


def weights(scale: float = 1.0, version: int = 4) -> Weights:
    state = {name: scale * p.detach() for name, p in tiny_model().named_parameters()}
    return Weights(version, state)


def prompt(number: int = 0, text: str = "abcd") -> Prompt:
    return Prompt(number, tuple(ids(text)), Example(f"row/{number}", text, "cd"))


def chunk(num: int = 6, size: int = 3, greedy: bool = False) -> Chunk:
    """Prompts of one to six tokens."""
    texts = ["1;2;ab"[: 1 + (5 * number) % 6] for number in range(num)]
    prompts = tuple(prompt(number, text) for number, text in enumerate(texts))
    return Chunk(0, 0, prompts, size, greedy)


class Noting(HFGenerator):
    """A generator that keeps the rows that it was to write."""

    rows: list[Rows]

    def converse(self, feed: Any, rows: Rows, talks: Talks, room: int) -> None:
        self.rows = [*getattr(self, "rows", []), rows]
        super().converse(feed, rows, talks, room)


def writer(length: int = 8, decode: str = "lean", model: Any = None) -> Noting:
    """A generator of the tiny policy's like."""
    sampling = HFSampling(temperature=1.0, decode=Decode(decode))
    own = scratch(TINY, Pieces(), seed=9) if model is None else model
    return Noting(own, Pieces(), sampling, length, functools.partial(uniforms, 5))


def player(task: Play, by: Any, **options: Any) -> EpisodeGenerator:
    """options: of episodes."""
    seed = functools.partial(stable_hash, 11)
    return EpisodeGenerator(HFTurns(by), Pieces(), task, seed, EpisodeOptions(**options))


def acted(
    tokens: Sequence[int],
    observed: Sequence[tuple[int, tuple[int, ...]]],
    turns: Sequence[tuple[int, float]] = (),
    logp: float = -1.0,
) -> Sample:
    """A sample with these observations and turns."""
    episode = Episode(observed=tuple(observed), turns=tuple(turns), is_done=True)
    return Sample(tuple(tokens), (logp,) * len(tokens), 0, Finish.eos, "", episode=episode)
