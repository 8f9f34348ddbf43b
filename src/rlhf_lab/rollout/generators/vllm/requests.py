"""Requests to vLLM and its answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rlhf_lab.types.data import Weights
from rlhf_lab.types.heartbeat import nothing
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Finish

GREEDY_TEMPERATURE = "greedy_temperature"
# vLLM seeds a torch generator, whose seeds are signed.
SEEDS = 2**63


class EngineFailure(RuntimeError):
    """vLLM ended, refused a request, or answered what cannot be; the message includes its log.
    status: of HTTP, with which a server refused; 0 elsewhere."""

    status = 0


@dataclass(frozen=True)
class Request:
    """One sample to draw. tokens: of the prompt, and those that the sample already has.
    prompt: its number in the run; samples of one prompt are drawn where its keys and values are.
    copy: of the model, among those of all servers, that draws it; None is for any."""

    tokens: tuple[int, ...]
    seed: int
    prompt: int = 0
    is_greedy: bool = False
    copy: int | None = None


@dataclass(frozen=True)
class Answer:
    """One sample: logps are natural, at the run's temperature. versions: of the weights that wrote
    each token, as vLLM names them."""

    tokens: tuple[int, ...]
    logps: tuple[float, ...]
    is_finished: bool
    versions: tuple[str, ...]


@dataclass(frozen=True)
class Drawing:
    """How all samples of a run are drawn. ends: the end tokens."""

    temperature: float
    max_new_tokens: int
    ends: tuple[int, ...]


class Backend(Protocol):
    """Where vLLM is. Several batches of requests may be drawn at the same time.

    begin: hand a batch over; returns its number. finish_some: wait for the first of several
    batches; returns all that are there by then, by number, with answers in the order of the
    requests. `look` is called whenever vLLM has shown that it works. finish: the same for one.
    draw: begin and finish. load: make a version the one that writes from now on; batches that are
    being drawn pause meanwhile, and keep their tokens, keys and values.
    """

    @property
    def num_engines(self) -> int: ...

    def load(self, weights: Weights, name: str) -> None: ...

    def begin(self, requests: Sequence[Request], drawing: Drawing) -> int: ...

    def finish_some(
        self, numbers: Sequence[int], look: Callable[[], None] = nothing
    ) -> dict[int, list[Answer]]: ...

    def finish(self, number: int, look: Callable[[], None] = nothing) -> list[Answer]:
        return self.finish_some([number], look)[number]

    def draw(self, requests: Sequence[Request], drawing: Drawing) -> list[Answer]:
        return self.finish(self.begin(requests, drawing))

    def close(self) -> None: ...


def per_token(spans: Iterable[tuple[str, int, int]]) -> tuple[str, ...]:
    """The version of every token from vLLM's spans (version, first token, end)."""
    return tuple(version for version, start, end in spans for _ in range(start, end))


def requests_of(chunk: Chunk, seed: int) -> list[Request]:
    """A request for every sample of a chunk that is not finished yet, with a seed that depends on
    nothing but the run's, the prompt's number, the sample's, and how much of it there is."""
    size = chunk.group_size
    return [
        request_of(
            seed,
            key_of(chunk, number),
            len(begun.tokens),
            chunk.prompts[number // size].tokens + begun.tokens,
            chunk.greedy and number % size == size - 1,
        )
        for number, begun in enumerate(chunk.samples)
        if begun.finish is Finish.unfinished
    ]


def request_of(
    seed: int,
    key: tuple[int, int],
    written: int,
    tokens: tuple[int, ...],
    is_greedy: bool,
) -> Request:
    """The request for the rest of a sample. key: numbers of its prompt and of the sample. written:
    its tokens so far, which set the seed of a continued sample apart from that of its beginning.
    tokens: all that is read."""
    parts = (*key, written) if written else key
    return Request(tokens, stable_hash(seed, *parts) % SEEDS, key[0], is_greedy)


def key_of(chunk: Chunk, number: int) -> tuple[int, int]:
    """The prompt's number in the run, and the sample's among those of the prompt."""
    place, own = divmod(number, chunk.group_size)
    return chunk.prompts[place].id, own


def drawing_of(chunk: Chunk, drawing: Drawing) -> Drawing:
    """How to draw a chunk's samples, up to its stop. Unfinished samples have the same length."""
    begun = [len(s.tokens) for s in chunk.samples if s.finish is Finish.unfinished]
    return replace(drawing, max_new_tokens=chunk.stop(drawing.max_new_tokens) - begun[0])


def sampling_params(request: Request, drawing: Drawing) -> dict[str, Any]:
    """Arguments of vLLM's SamplingParams: the whole distribution at the temperature, whatever a
    model's own generation config sets, until one of the run's end tokens."""
    params: dict[str, Any] = {
        "temperature": 0.0 if request.is_greedy else drawing.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "seed": request.seed,
        "max_tokens": drawing.max_new_tokens,
        "min_tokens": 0,
        "logprobs": 0,
        "detokenize": False,
        # Only the run's end tokens end a sample, whatever vLLM takes for one.
        "ignore_eos": True,
        "stop_token_ids": list(drawing.ends),
    }
    if request.is_greedy:
        params["extra_args"] = {GREEDY_TEMPERATURE: drawing.temperature}
    return params


def require_versions(answers: Sequence[Answer], names: Sequence[str]) -> None:
    """Refuse tokens of other versions than these, and log-probs that are no numbers."""
    for answer in answers:
        has_all = len(answer.versions) == len(answer.tokens)
        if not has_all or not set(answer.versions) <= set(names):
            raise EngineFailure(
                f"a sample was written by version {' and '.join(sorted(set(answer.versions)))} of "
                f"the weights, not by {' or '.join(names)}: does another program load weights "
                "into this vLLM?"
            )
        if any(map(math.isnan, answer.logps)):  # elsewhere NaN marks offline samples
            raise FloatingPointError(
                f"the policy's log-probs are NaN at version {names[-1]}: no sample was made"
            )
