"""The virtual cluster: generators behind one queue, on a clock that the trainer moves.

The trainer of a run is the real one: it submits chunks, lets time pass until some are finished, and
publishes a version when its virtual training is over. Time is a function of the lengths alone, so a
run repeats bit for bit. simpy carries the events.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import simpy
from simpy.core import EmptySchedule

from rlhf_lab.rollout.cluster.generator import Generator
from rlhf_lab.rollout.cluster.job import Job, Write
from rlhf_lab.rollout.cluster.options import ClusterOptions
from rlhf_lab.types.randomness import stable_hash, uniforms

MOST_RESTARTS = 1000


class Cluster:
    """Generators and the queue before them. write: called when a chunk begins, and when another
    version goes on with it. seed: keys the failures. newest: version published last."""

    def __init__(self, options: ClusterOptions, write: Write, seed: int) -> None:
        self.write = write
        self.newest = -1
        self.is_paused = False
        self.num_finished = 0
        self._options = options
        self._seed = seed
        self._env = simpy.Environment()
        self._waiting: deque[Job] = deque()
        self._finished: list[Job] = []
        self.generators = [
            Generator(self._env, number, options, self, self._failures_of(number))
            for number in range(options.generators)
        ]

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return float(self._env.now)

    def submit(self, job: Job) -> None:
        """Queue a chunk; the generator with the most room begins it as soon as there is room."""
        self._waiting.append(job)
        self.dispatch()

    def publish(self, version: int) -> None:
        """Make a version the newest, which every chunk that begins from now on is written by."""
        self.newest = version
        self._wake()
        self.give_back([job for one in self.generators for job in one.unassign()])

    def elapse(self, seconds: float) -> None:
        """Let virtual seconds pass."""
        if seconds > 0:
            self._env.run(until=self._env.now + seconds)

    def pause(self, is_paused: bool) -> None:
        """Stop all generators at their next decoding step, or let them go on."""
        self.is_paused = is_paused
        self._wake()

    def advance(self) -> None:
        """Let time pass until the next chunk is finished. Raises RuntimeError if none ever is."""
        before = self.num_finished
        while self.num_finished == before:
            try:
                self._env.step()
            except EmptySchedule:
                raise RuntimeError(
                    "the virtual cluster stands still: no chunk is being written"
                ) from None

    def complete(self, job: Job) -> None:
        job.ended, job.rank = self.now, self.num_finished
        self.num_finished += 1
        self._finished.append(job)

    def drain_finished(self) -> list[Job]:
        """The chunks that were finished since the last call, in the order of their ends."""
        finished, self._finished = self._finished, []
        return finished

    def give_back(self, jobs: Sequence[Job]) -> None:
        """Queue chunks that were not written after all, before the others, oldest first."""
        for job in jobs:
            if job.restarts > MOST_RESTARTS:
                raise RuntimeError(
                    f"cluster.failure_seconds={self._options.failure_seconds:g}: chunk "
                    f"{job.number} was lost {job.restarts} times; generators fail before they have "
                    "written a chunk"
                )
        self._waiting = deque([*sorted(jobs, key=lambda job: job.number), *self._waiting])
        self.dispatch()

    def dispatch(self) -> None:
        """Assign waiting chunks, oldest first, as long as a generator has room."""
        while self._waiting:
            rows = self._waiting[0].rows
            able = [generator for generator in self.generators if generator.accepts(rows)]
            if not able:
                return
            roomiest = max(able, key=lambda generator: (generator.free, -generator.number))
            roomiest.assign(self._waiting.popleft())

    def _wake(self) -> None:
        for generator in self.generators:
            generator.wake()

    def _failures_of(self, generator: int) -> Failures:
        mean = self._options.failure_seconds
        return Failures(stable_hash(self._seed, "failures", generator), mean)


class Failures:
    """Exponential times between a generator's failures, the n-th the same whenever it is drawn."""

    def __init__(self, seed: int, mean: float) -> None:
        self._seed = seed
        self._mean = mean

    def __call__(self, number: int) -> float:
        """Virtual seconds of decoding before the failure of this number; infinite without any."""
        if not self._mean:
            return math.inf
        draw = float(uniforms(self._seed, number, 0, 1)[0])
        return -self._mean * math.log1p(-draw)
