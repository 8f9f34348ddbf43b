"""What a run has cost so far. Every x-axis of every figure comes from here.

Seconds are split by phase and lane. The trainer's lane: `take` (getting a round's groups),
`reference` (collating them and their reference log-probs), `update`, `probe`, `sync`, `track`,
`save`, `checkpoint`; `train` is reference and update together. The generators' lane: `generate` and
`score`, reported by whoever did them. With generators in the background, `wait` is the trainer's
`take`, and `generator_wait` what the generators did not work; without, the trainer generates by
itself and neither waits. `other` is the trainer's wall-clock that went neither into training,
generating, scoring nor waiting. `lost` is wall-clock of work that a kill undid.
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
# Forward passes of models of the policy's size.
READ_BY_POLICY = ("prefill_tokens", "generated_tokens", "reference_tokens", "reread_tokens")
ENDS = ("kept", "tied", "left_out", "unscored", "dropped")
Event = dict[str, Any]


class Ledger:
    """Sums of seconds, counts and FLOPs of the rounds; evaluation comes after them.

    num_devices: cores or accelerators that the run holds, for device-seconds.
    num_background: generators that run beside the trainer.
    policy_parameters, reward_parameters, value_parameters: model sizes, for FLOPs.
    FLOPs are 2 per parameter and token forward and 6 for training (forward and backward), the
    usual estimate (arXiv:2001.08361, section 2.1); attention over the context is left out.
    generated_tokens has the offline_tokens of fixed pairs among it, which cost no FLOPs to have.
    """

    def __init__(
        self,
        num_devices: int,
        num_background: int,
        policy_parameters: int,
        reward_parameters: int = 0,
        value_parameters: int = 0,
        clock: Clock = perf_counter,
    ) -> None:
        self._clock = clock
        self._num_devices = num_devices
        self._num_background = num_background
        self._policy_parameters = policy_parameters
        self._reward_parameters = reward_parameters
        self._value_parameters = value_parameters
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._counts: Counter[str] = Counter()
        self._events: list[Event] = []
        self.lost = 0.0
        self._started = clock()

    @contextmanager
    def span(self, phase: str, round_: int, version: int) -> Iterator[None]:
        """Add the seconds spent inside to a phase, and note when that was."""
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
        """What happened since the last call: lane, phase, start and end in seconds of the run,
        round, version, and number of the chunk within its round (None in the trainer's phases)."""
        events, self._events = self._events, []
        return events

    def count(self, **amounts: int) -> None:
        """Add to counts such as completions, updates or trained_tokens."""
        self._counts.update(amounts)

    def count_rollout(self, rollout: Rollout) -> None:
        """Charge a rollout: prompts, completions, tokens and its worker's seconds."""
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
        """Every generated response token is trained on, without credit, left out for groups that
        say more (run.oversample), unscored, dropped as too old, or still in flight."""
        ends = {name: self._counts[f"{name}_tokens"] for name in ENDS} | {"in flight": in_flight}
        if generated != sum(ends.values()):
            parts = " + ".join(f"{amount} {name}" for name, amount in ends.items())
            raise RuntimeError(
                f"token ledger broken: {generated} generated, but {parts} = {sum(ends.values())}"
            )

    def state(self) -> dict[str, Any]:
        """Everything that `restore` needs to go on counting."""
        spent = {"seconds": dict(self._seconds), "counts": dict(self._counts)}
        return spent | {"wall": self.wall, "lost": self.lost}

    def restore(self, state: Mapping[str, Any], wall: float) -> None:
        """Go on from a saved state. wall: seconds that had passed when the run was cut off; what
        lies between the saved state and it was done in vain, and is kept as seconds/lost."""
        self._seconds = defaultdict(float, state["seconds"])
        self._counts = Counter(state["counts"])
        self.lost = state["lost"] + max(0.0, wall - state["wall"])
        self._started = self._clock() - max(wall, state["wall"])

    @property
    def wall(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    def flops(self) -> int:
        """Estimated floating-point operations of generation, scoring, reading and training."""
        counts = self._counts
        trained = 6 * counts["trained_tokens"]
        read = sum(counts[name] for name in READ_BY_POLICY) - counts["offline_tokens"]
        return (
            (2 * read + trained) * self._policy_parameters
            + 2 * counts["scored_tokens"] * self._reward_parameters
            + (2 * counts["value_tokens"] + trained) * self._value_parameters
        )

    def totals(self, seconds_in_caller: float) -> dict[str, float | int]:
        """Everything so far. Keys under `seconds/` are measured, all others are exact.

        seconds_in_caller: generation and scoring that the trainer did by itself inside `take`.
        """
        wall = self.wall
        spent = self._seconds
        train = spent["reference"] + spent["update"]
        seconds: dict[str, float | int] = {
            f"seconds/{phase}": self._seconds[phase] for phase in PHASES
        }
        seconds["seconds/train"] = train
        idle = self._num_background * wall - spent["generate"] - spent["score"]
        wait = spent["take"] if self._num_background else 0.0
        seconds["seconds/wait"] = wait
        seconds["seconds/generator_wait"] = max(0.0, idle) if self._num_background else 0.0
        seconds["seconds/other"] = wall - train - wait - seconds_in_caller
        seconds["seconds/wall"] = wall
        seconds["seconds/lost"] = self.lost
        seconds["seconds/device"] = wall * self._num_devices
        counts = {f"total/{name}": amount for name, amount in sorted(self._counts.items())}
        return seconds | counts | {"total/flops": self.flops()}
