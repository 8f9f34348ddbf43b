"""The ledger: seconds, tokens and FLOPs of a run so far, the x-axes of all figures.

Seconds are split by phase. Phases of the trainer: `take` (waiting for a round's groups),
`reference` (collating them, and log-probs and values before the updates), `update`, `probe`,
`sync`, `track`, `save`, `checkpoint`; `train` is reference plus update. Phases of generators:
`generate`, `score`.
With generators in the background, `wait` is `take`, and `generator_wait` their idle time; otherwise
the trainer generates by itself and both are 0. `other` is wall-clock of the trainer outside of
training, generating, scoring and waiting. `lost` is wall-clock of work lost by a kill, and part of
no other phase.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from rlhf_lab.types.data import Clock
from rlhf_lab.types.rollouts import Rollout

PHASES = (
    *("generate", "score", "take", "reference", "update"),
    *("probe", "sync", "track", "save", "checkpoint"),
)
# Tokens of forward passes through models of the policy's size.
POLICY_FORWARD = ("prefill_tokens", "generated_tokens", "reread_tokens")
FATES = ("kept", "tied", "left_out", "unscored", "dropped")
Event = dict[str, Any]


class Ledger:
    """Sums over the rounds; evaluation is not among them.

    num_devices: cores or accelerators of the run, for device-seconds. num_background: generators
    beside the trainer. policy_parameters, reward_parameters, value_parameters,
    reference_parameters: model sizes; 0 for the last is the policy's.
    FLOPs are 2 per parameter and token for a forward pass and 6 for training, the usual estimate
    (arXiv:2001.08361, section 2.1), without attention over the context. generated_tokens includes
    the offline_tokens of fixed pairs, which cost no FLOPs.
    """

    def __init__(
        self,
        num_devices: int,
        num_background: int,
        policy_parameters: int,
        reward_parameters: int = 0,
        value_parameters: int = 0,
        reference_parameters: int = 0,
        clock: Clock = perf_counter,
    ) -> None:
        self._clock = clock
        self._num_devices = num_devices
        self._num_background = num_background
        self._policy_parameters = policy_parameters
        self._reward_parameters = reward_parameters
        self._value_parameters = value_parameters
        self._reference_parameters = reference_parameters or policy_parameters
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._counts: Counter[str] = Counter()
        self._events: list[Event] = []
        # Of earlier processes, which may have had another mode.
        self._in_caller_before = self._wait_before = self._take_before = 0.0
        self.lost = 0.0
        self._started = clock()

    @contextmanager
    def span(self, phase: str, round_: int, version: int) -> Iterator[None]:
        """Add the seconds spent inside to a phase, and record them as an event."""
        start = self._clock()
        try:
            yield
        finally:
            end = self._clock()
            self._seconds[phase] += end - start
            self._note("trainer", phase, start, end, round_, version, None)

    def _note(
        self,
        lane: str,
        phase: str,
        start: float,
        end: float,
        round_: int,
        version: int,
        chunk: int | None,
    ) -> None:
        times = {"start": start - self._started, "end": end - self._started}
        where = {"round": round_, "version": version, "chunk": chunk}
        self._events.append({"lane": lane, "phase": phase, **times, **where})

    def drain(self) -> list[Event]:
        """Events since the last call: lane, phase, start and end in seconds of the run, round,
        version, and index of the chunk within its round (None for phases of the trainer)."""
        events, self._events = self._events, []
        return events

    def count(self, **amounts: int) -> None:
        """Add to counts such as completions, updates or trained_tokens."""
        self._counts.update(amounts)

    def count_rollout(self, rollout: Rollout) -> None:
        """Add a rollout: its prompts, completions, tokens and seconds."""
        for span in rollout.spans:
            worker = rollout.worker if span.worker is None else span.worker
            version = rollout.version if span.version is None else span.version
            lane = "trainer" if worker < 0 else f"generator-{worker}"
            where = (rollout.chunk.round, version, rollout.chunk.index)
            self._seconds[span.phase] += span.end - span.start
            self._note(lane, span.phase, span.start, span.end, *where)
        self._counts.update(rollout.tokens)
        self.count(
            prompts=len(rollout.groups),
            completions=sum(len(group.samples) for group in rollout.groups),
        )

    def check_tokens(self, generated: int, in_flight: int) -> None:
        """Raise unless every generated response token is accounted for: trained on (kept), without
        credit (tied), left out (run.oversample), unscored, dropped as too old, or in flight."""
        fates = {name: self._counts[f"{name}_tokens"] for name in FATES} | {"in flight": in_flight}
        if generated != sum(fates.values()):
            parts = " + ".join(f"{amount} {name}" for name, amount in fates.items())
            raise RuntimeError(
                f"token ledger broken: {generated} generated, but {parts} = {sum(fates.values())}"
            )

    def state(self, seconds_in_caller: float) -> dict[str, Any]:
        """The sums for `restore`. seconds_in_caller: as for `totals`."""
        spent = {"seconds": dict(self._seconds), "counts": dict(self._counts)}
        within = {"in_caller": self._in_caller_before + seconds_in_caller, "wait": self._wait}
        return spent | within | {"wall": self.wall, "lost": self.lost}

    def restore(self, state: Mapping[str, Any], wall: float) -> None:
        """Continue from saved sums. wall: seconds that had passed when the run was interrupted; the
        time between the saved state and then is counted as seconds/lost."""
        self._seconds = defaultdict(float, state["seconds"])
        self._counts = Counter(state["counts"])
        self._take_before = take = self._seconds["take"]
        # Earlier versions saved neither: `take` is little more than one of them.
        waited, alone = (take, 0.0) if self._num_background else (0.0, take)
        self._wait_before = state.get("wait", waited)
        self._in_caller_before = state.get("in_caller", alone)
        self.lost = state["lost"] + max(0.0, wall - state["wall"])
        self._started = self._clock() - max(wall, state["wall"])

    @property
    def wall(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    @property
    def _wait(self) -> float:
        """The trainer's wait for generators beside it."""
        own = self._seconds["take"] - self._take_before if self._num_background else 0.0
        return self._wait_before + own

    def flops(self) -> int:
        """Estimated floating-point operations of generation, scoring, reading and training."""
        counts = self._counts
        trained = 6 * counts["trained_tokens"]
        of_policy = trained + 6 * counts["gradient_tokens"]
        read = sum(counts[name] for name in POLICY_FORWARD) - counts["offline_tokens"]
        return (
            (2 * read + of_policy) * self._policy_parameters
            + 2 * counts["reference_tokens"] * self._reference_parameters
            + 2 * counts["scored_tokens"] * self._reward_parameters
            + (2 * counts["value_tokens"] + trained) * self._value_parameters
        )

    def totals(self, seconds_in_caller: float) -> dict[str, float | int]:
        """All sums so far. Keys under `seconds/` are measured; all others are exact.

        seconds_in_caller: generation and scoring by the trainer itself, within `take`, since this
        process began.
        """
        wall = self.wall
        spent = self._seconds
        train = spent["reference"] + spent["update"]
        seconds: dict[str, float | int] = {
            f"seconds/{phase}": self._seconds[phase] for phase in PHASES
        }
        seconds["seconds/train"] = train
        idle = self._num_background * wall - spent["generate"] - spent["score"]
        wait = self._wait
        seconds["seconds/wait"] = wait
        seconds["seconds/generator_wait"] = max(0.0, idle) if self._num_background else 0.0
        in_caller = self._in_caller_before + seconds_in_caller
        seconds["seconds/other"] = wall - train - wait - in_caller - self.lost
        seconds["seconds/wall"] = wall
        seconds["seconds/lost"] = self.lost
        seconds["seconds/device"] = wall * self._num_devices
        counts = {f"total/{name}": amount for name, amount in sorted(self._counts.items())}
        return seconds | counts | {"total/flops": self.flops()}
