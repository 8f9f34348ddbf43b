"""Turns of episodes by vLLM: a request for each turn, beside those of other episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rlhf_lab.rollout.generators.conversation import Conversations
from rlhf_lab.rollout.generators.turn_rows import Action
from rlhf_lab.rollout.generators.vllm.generator import VLLMGenerator
from rlhf_lab.rollout.generators.vllm.requests import Answer, request_of
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk


class VLLMTurns:
    """Asks for the next turn of an episode as soon as its environment has answered, while vLLM
    writes those of others. A request holds the tokens of the whole context, whose keys and values
    vLLM keeps in its prefix cache, so that observations alone are read anew.

    With episodes.decode_ahead=0 nothing is asked for while environments are called. Otherwise each
    turn is, once its environment is done: a request's tokens are a function of its own seed, up to
    the rounding of what vLLM computes beside it, which depends on clocks as it does anyway."""

    is_float32 = False

    def __init__(self, generator: VLLMGenerator) -> None:
        self.generator = generator

    @property
    def max_new_tokens(self) -> int:
        """Tokens of an episode that the policy may write."""
        return self.generator.drawing.max_new_tokens

    def write(self, feed: WeightFeed, chunk: Chunk, talks: Conversations) -> None:
        """Write all episodes until they end or stop, and count what was read for them. Newer
        weights of the feed write the rest, within a turn too."""
        starts = [len(episode.tokens) for episode in talks.episodes]
        for episode, start in zip(talks.episodes, starts, strict=True):
            if start or episode.observed:
                episode.count_context(len(episode.context))
        ChunkTurns(self.generator, chunk, talks).write(feed)
        for episode, start in zip(talks.episodes, starts, strict=True):
            episode.count_observed(start)


@dataclass(frozen=True)
class ChunkTurns:
    """The turns of a chunk that vLLM writes. under_way: rows by the numbers of their requests."""

    writer: VLLMGenerator
    chunk: Chunk
    talks: Conversations
    under_way: dict[int, int] = field(default_factory=dict)

    def write(self, feed: WeightFeed) -> None:
        """Write all episodes until they end or stop."""
        talks, under_way = self.talks, self.under_way
        first, follow = self.writer.following(feed, self.chunk)

        def look() -> None:
            follow()
            self._read(talks.answered(for_one=False))

        for row in range(len(talks.open_ones)):
            self._begin(row)
        while under_way or talks.asked:
            if under_way:
                self._take_some(first, look if talks.ahead else follow)
            is_idle = not under_way
            self._read(talks.answered(for_one=is_idle) if talks.ahead else list(talks.asked))

    def _take_some(self, first: int, look: Callable[[], None]) -> None:
        """Wait for the first actions, and hand them to their environments. first: see
        VLLMGenerator.require."""
        finished = self.writer.backend.finish_some(list(self.under_way), look)
        written = [(self.under_way.pop(number), one) for number, (one,) in finished.items()]
        self.writer.require(first, [answer for _, answer in written])
        self.talks.ask([action_of(row, answer) for row, answer in written])

    def _read(self, rows: Sequence[int]) -> None:
        """Wait for the environments of rows, and ask for the turns that follow."""
        for row, answer in zip(rows, self.talks.answers(rows), strict=True):
            if answer is not None:
                self._begin(row)

    def _begin(self, row: int) -> None:
        """Ask for the next turn of a row, with a seed of the run's, the prompt's number, the
        sample's, and how much the policy has written."""
        episode = self.talks.episodes[row]
        prompt = episode.prompt
        place = next(n for n, other in enumerate(self.chunk.prompts) if other.id == prompt.id)
        request = request_of(
            self.writer.seed,
            (prompt.id, episode.number),
            len(episode.tokens),
            episode.context,
            place,
            episode.is_greedy(self.chunk),
        )
        drawing = replace(self.writer.drawing, max_new_tokens=self.talks.room(row))
        self.under_way[self.writer.backend.begin([request], drawing)] = row


def action_of(row: int, answer: Answer) -> Action:
    """What vLLM wrote of a turn."""
    versions: Sequence[int] = [int(version) for version in answer.versions]
    return Action(row, answer.tokens, answer.logps, versions)
