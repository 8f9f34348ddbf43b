"""Turns of episodes by vLLM: a request for each turn, beside those of other episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlhf_lab.rollout.generators.conversation import Conversations
from rlhf_lab.rollout.generators.open_episode import OpenEpisode
from rlhf_lab.rollout.generators.turn_writer import Action
from rlhf_lab.rollout.generators.vllm.generator import VLLMGenerator
from rlhf_lab.rollout.generators.vllm.requests import Answer, Request, request_of
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, GeneratorReport


class VLLMTurns:
    """Asks for the next turn of an episode as soon as its environment has answered, while vLLM
    writes those of others. A request holds the tokens of the whole context, whose keys and values
    vLLM keeps in its prefix cache, so that observations alone are read anew."""

    is_float32 = False

    def __init__(self, writer: VLLMGenerator) -> None:
        self._writer = writer

    @property
    def max_new_tokens(self) -> int:
        """Tokens of an episode that the policy may write."""
        return self._writer.drawing.max_new_tokens

    def write(self, feed: WeightFeed, chunk: Chunk, talks: Conversations) -> None:
        """Write all episodes until they end or stop, and count what was read for them. Newer
        weights of the feed write the rest, within a turn too."""
        first, follow = self._writer.following(feed, chunk)
        backend = self._writer.backend
        starts = [len(episode.tokens) for episode in talks.episodes]
        for episode, start in zip(talks.episodes, starts, strict=True):
            if start or episode.observed:
                episode.count_context(len(episode.context))
        places = {prompt.id: place for place, prompt in enumerate(chunk.prompts)}

        def begin(row: int) -> int:
            """Ask for the next turn of a row. Returns the number of the batch."""
            episode = talks.episodes[row]
            request = self._request(episode, places[episode.prompt.id], chunk)
            drawing = replace(self._writer.drawing, max_new_tokens=talks.room(row))
            return backend.begin([request], drawing)

        under_way = {begin(row): row for row in range(len(talks.open_ones))}
        while under_way:
            finished = backend.finish_some(list(under_way), follow)
            said = [(under_way.pop(number), answers[0]) for number, answers in finished.items()]
            self._writer.require(first, [answer for _, answer in said])
            answers = talks.answer([action_of(row, answer) for row, answer in said])
            for (row, _), answer in zip(said, answers, strict=True):
                if answer is not None:
                    under_way[begin(row)] = row
        for episode, start in zip(talks.episodes, starts, strict=True):
            episode.count_observed(start)

    def report(self) -> GeneratorReport:
        """What was measured since the last call."""
        return self._writer.report()

    def close(self) -> None:
        """End vLLM."""
        self._writer.close()

    def _request(self, episode: OpenEpisode, place: int, chunk: Chunk) -> Request:
        """The next turn, with a seed of the run's, the prompt's number, the sample's, and how much
        the policy has written."""
        key = (episode.prompt.id, episode.number)
        is_greedy = episode.is_greedy(chunk)
        return request_of(
            self._writer.seed, key, len(episode.tokens), episode.context, place, is_greedy
        )


def action_of(row: int, answer: Answer) -> Action:
    """What vLLM wrote of a turn."""
    versions: Sequence[int] = [int(version) for version in answer.versions]
    return Action(row, answer.tokens, answer.logps, versions)
