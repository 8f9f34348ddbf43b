"""The vLLM generator: loads weights, proves that vLLM has them, draws samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from rlhf_lab.rollout.generators.episodes import Action, Conversations
from rlhf_lab.rollout.generators.hf import Tokenizer
from rlhf_lab.rollout.generators.vllm.options import Prove
from rlhf_lab.rollout.generators.vllm.proof import Proof, batch_effect, perturbed, proof_requests
from rlhf_lab.rollout.generators.vllm.requests import (
    Answer,
    Backend,
    Drawing,
    Request,
    drawing_of,
    request_of,
    requests_of,
    require_versions,
)
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.rollouts import Chunk, GeneratorReport
from rlhf_lab.types.samples import Finish, Group, Sample
from rlhf_lab.types.text_frame import TextFrame

CANARY = "proof"
PROOF_TOKENS = 16
ALONE = 4


@dataclass(frozen=True)
class Begun:
    """A chunk that is being drawn. number: of its batch at the backend. first: index, among all
    versions loaded so far, of the one that it began with."""

    chunk: Chunk
    requests: list[Request]
    drawing: Drawing
    number: int
    first: int


class VLLMGenerator(Generator):
    """A sample depends on the weights, its prompt, its seed, and, by rounding, on its batch.

    The backend has one version at a time, which it names at every token: where a feed has newer
    weights while a chunk is drawn, they write the rest of it (in-flight updates, arXiv:2509.19128).
    The first load is preceded by one of perturbed weights, and both are proved.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        drawing: Drawing,
        seed: int,
        proof: Proof,
        prove: Prove,
    ) -> None:
        self.backend = backend
        self.drawing = drawing
        self.seed = seed
        self._frame = TextFrame(tokenizer)
        self._proof = proof
        self._prove = prove
        self._loaded: Weights | None = None
        self._has_measured = False
        self._report = GeneratorReport()
        self._versions: list[str] = []
        self._prefetched: list[tuple[WeightFeed, Chunk]] = []
        self._open: list[Begun] = []

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        """Samples of every prompt of the chunk, K each, with their behaviour log-probs."""
        _, follow = self.following(feed, chunk)
        self._prefetched = [(f, other) for f, other in self._prefetched if other != chunk]
        begun = next((one for one in self._open if one.chunk == chunk), None)
        if begun is None:
            begun = self._begin(chunk)
        else:
            self._open.remove(begun)
        if self._has_measured:
            for other_feed, other in self._prefetched:
                if (weights := other_feed.at(0)) is not self._loaded:
                    self._load(weights, other)
                self._open.append(self._begin(other))
            self._prefetched.clear()
        answers = self.backend.finish(begun.number, follow)
        versions = self._versions[begun.first :]
        require_versions(answers, versions)
        if not self._has_measured and len(versions) == 1:
            self._measure(begun.requests, begun.drawing, answers, versions[0])
        drawn = iter(answers)
        samples = [
            self._continued(sample, next(drawn)) if sample.finish is Finish.unfinished else sample
            for sample in chunk.samples
        ]
        return chunk.grouped(samples)

    def following(self, feed: WeightFeed, chunk: Chunk) -> tuple[int, Callable[[], None]]:
        """Load the weights of a feed. Returns the index, among all versions loaded so far, of the
        one that is there now, and what is called to load newer ones while a chunk is drawn."""

        def follow() -> None:
            if (latest := feed.at(0)) is not self._loaded:
                self._load(latest, chunk)

        follow()
        return len(self._versions) - 1, follow

    def require(self, first: int, answers: Sequence[Answer]) -> None:
        """Refuse tokens of other versions than those loaded from this one on."""
        require_versions(answers, self._versions[first:])

    def prefetch(self, feed: WeightFeed, chunk: Chunk) -> None:
        """The chunk is drawn together with those before it."""
        known = [one.chunk for one in self._open] + [other for _, other in self._prefetched]
        if chunk not in known:
            self._prefetched.append((feed, chunk))

    def _begin(self, chunk: Chunk) -> Begun:
        requests = requests_of(chunk, self.seed)
        drawing = drawing_of(chunk, self.drawing)
        number = self.backend.begin(requests, drawing)
        return Begun(chunk, requests, drawing, number, len(self._versions) - 1)

    def report(self) -> GeneratorReport:
        """What was measured since the last call."""
        report, self._report = self._report, GeneratorReport()
        return report

    def close(self) -> None:
        self.backend.close()

    def _load(self, weights: Weights, chunk: Chunk) -> None:
        is_first = self._loaded is None
        self._loaded = None  # a failed load leaves no version behind
        if is_first:
            canary = perturbed(weights)
            self._transfer(canary, CANARY)
            self._require(canary, CANARY, chunk)
            del canary
        start = perf_counter()
        self._transfer(weights, str(weights.version))
        self._versions.append(str(weights.version))
        self._note(**{"timing/generator_sync_seconds": perf_counter() - start})
        if is_first or self._prove is Prove.every:
            self._require(weights, str(weights.version), chunk)
        self._loaded = weights

    def _transfer(self, weights: Weights, name: str) -> None:
        self.backend.load(weights, name)

    def _require(self, weights: Weights, name: str, chunk: Chunk) -> None:
        """Prove that vLLM has this version, by short samples, one of them greedy."""
        drawing = replace(
            self.drawing, max_new_tokens=min(PROOF_TOKENS, self.drawing.max_new_tokens)
        )
        requests = proof_requests(chunk.prompts, self.backend.num_engines)
        answers = self._draw(requests, drawing, name)
        gap = self._proof.require(weights, name, requests, answers)
        self._note(**{"generator/proof_gap_mean": gap.mean, "generator/proof_gap_max": gap.largest})

    def _draw(self, requests: Sequence[Request], drawing: Drawing, name: str) -> list[Answer]:
        answers = self.backend.draw(requests, drawing)
        require_versions(answers, [name])
        return answers

    def _measure(
        self, requests: Sequence[Request], drawing: Drawing, answers: Sequence[Answer], name: str
    ) -> None:
        """Draw a few of a batch's samples again, each alone, and measure the difference."""
        step = max(1, len(requests) // ALONE)
        chosen = range(0, len(requests), step)[:ALONE]
        alone = [self._draw([requests[index]], drawing, name)[0] for index in chosen]
        effect = batch_effect([answers[index] for index in chosen], alone)
        self._has_measured = True
        self._note(
            str(effect),
            **{
                "generator/batch_changed": effect.changed,
                "generator/batch_logp_max": effect.logp_max,
            },
        )

    def _note(self, *notes: str, **measures: float) -> None:
        report = self._report
        self._report = GeneratorReport({**report.measures, **measures}, (*report.notes, *notes))

    def _continued(self, begun: Sample, answer: Answer) -> Sample:
        whole = begun.tokens + answer.tokens
        finish = Finish.unfinished
        if answer.is_finished:
            finish = Finish.eos
        elif len(whole) == self.drawing.max_new_tokens:
            finish = Finish.length
        versions = [int(version) for version in answer.versions]
        text = self._frame.text(whole)
        return begun.continued(answer.tokens, answer.logps, versions, finish, text)


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

    def write(self, feed: WeightFeed, chunk: Chunk, conversations: Conversations) -> None:
        """Write all episodes until they end or stop, and count what was read for them. Newer
        weights of the feed write the rest, within a turn too."""
        starts = [len(episode.tokens) for episode in conversations.episodes]
        for episode, start in zip(conversations.episodes, starts, strict=True):
            if start or episode.observed:
                episode.count_context(len(episode.context))
        ChunkTurns(self.generator, chunk, conversations).write(feed)
        for episode, start in zip(conversations.episodes, starts, strict=True):
            episode.count_observed(start)


@dataclass(frozen=True)
class ChunkTurns:
    """The turns of a chunk that vLLM writes. under_way: rows by the numbers of their requests."""

    writer: VLLMGenerator
    chunk: Chunk
    conversations: Conversations
    under_way: dict[int, int] = field(default_factory=dict)

    def write(self, feed: WeightFeed) -> None:
        """Write all episodes until they end or stop."""
        conversations, under_way = self.conversations, self.under_way
        first, follow = self.writer.following(feed, self.chunk)

        def look() -> None:
            follow()
            self._read(conversations.answered(for_one=False))

        for row in range(len(conversations.open_ones)):
            self._begin(row)
        while under_way or conversations.pending:
            if under_way:
                self._take_some(first, look if conversations.ahead else follow)
            is_idle = not under_way
            self._read(
                conversations.answered(for_one=is_idle)
                if conversations.ahead
                else list(conversations.pending)
            )

    def _take_some(self, first: int, look: Callable[[], None]) -> None:
        """Wait for the first actions, and hand them to their environments. first: see
        VLLMGenerator.require."""
        finished = self.writer.backend.finish_some(list(self.under_way), look)
        written = [(self.under_way.pop(number), one) for number, (one,) in finished.items()]
        self.writer.require(first, [answer for _, answer in written])
        self.conversations.ask([action_of(row, answer) for row, answer in written])

    def _read(self, rows: Sequence[int]) -> None:
        """Wait for the environments of rows, and ask for the turns that follow."""
        for row, answer in zip(rows, self.conversations.answers(rows), strict=True):
            if answer is not None:
                self._begin(row)

    def _begin(self, row: int) -> None:
        """Ask for the next turn of a row, with a seed of the run's, the prompt's number, the
        sample's, and how much the policy has written."""
        episode = self.conversations.episodes[row]
        prompt = episode.prompt
        request = request_of(
            self.writer.seed,
            (prompt.id, episode.number),
            len(episode.tokens),
            episode.context,
            episode.is_greedy(self.chunk),
        )
        drawing = replace(self.writer.drawing, max_new_tokens=self.conversations.room(row))
        self.under_way[self.writer.backend.begin([request], drawing)] = row


def action_of(row: int, answer: Answer) -> Action:
    """What vLLM wrote of a turn."""
    versions: Sequence[int] = [int(version) for version in answer.versions]
    return Action(row, answer.tokens, answer.logps, versions)
