"""The virtual cluster: generators behind one queue, on a clock that the trainer moves.

The trainer of a run is the real one: it submits chunks, lets time pass until some are finished, and
publishes a version when its virtual training is over. Time is a function of the lengths alone, so a
run repeats bit for bit. simpy carries the events.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import simpy
from simpy.core import EmptySchedule
from simpy.events import ProcessGenerator

from rlhf_lab.rollout.cluster.job import Job, Write
from rlhf_lab.rollout.cluster.options import ClusterOptions, WeightUpdate
from rlhf_lab.types.randomness import stable_hash, uniforms


class Surroundings(Protocol):
    """What a generator sees of its cluster. complete, give_back: it has written a chunk, or lost
    some. dispatch: it may have room for more."""

    newest: int
    is_paused: bool

    @property
    def write(self) -> Write: ...

    def complete(self, job: Job) -> None: ...

    def give_back(self, jobs: Sequence[Job]) -> None: ...

    def dispatch(self) -> None: ...


class Generator:
    """Writes the chunks that it is assigned, all active sequences a token at each decoding step.

    time_to_failure(number): virtual seconds of decoding before its failure of that number. busy,
    loading, tool_wait: virtual seconds of decoding and reading, of taking weights over, and in
    which all that it has begun waits for tools. decoded, lost: virtual tokens.
    """

    def __init__(
        self,
        env: simpy.Environment,
        number: int,
        options: ClusterOptions,
        cluster: Surroundings,
        time_to_failure: Callable[[int], float],
    ) -> None:
        self.number = number
        self.held = -1
        self.busy = self.loading = self.tool_wait = 0.0
        self.decoded = self.lost = self.failures = 0
        self.running: list[Job] = []
        self.assigned: list[Job] = []
        self._env = env
        self._options = options
        self._cluster = cluster
        self._time_to_failure = time_to_failure
        self._until_failure = time_to_failure(0)
        self._is_down = False
        self._wake = env.event()
        env.process(self._run())

    @property
    def free(self) -> int:
        """Sequences that it could begin now."""
        taken = sum(job.active for job in self.running) + sum(job.rows for job in self.assigned)
        return self._options.rows - taken

    def accepts(self, rows: int) -> bool:
        """Whether it can begin so many sequences, with the newest weights."""
        return not self._is_down and not self._is_outdated and self.free >= rows

    def assign(self, job: Job) -> None:
        """Let it begin a chunk at its next decoding step."""
        self.assigned.append(job)
        self.wake()

    def unassign(self) -> list[Job]:
        """Take back the chunks that it has not begun."""
        jobs, self.assigned = self.assigned, []
        return jobs

    def wake(self) -> None:
        """Let it look at its surroundings at its next decoding step."""
        if not self._wake.triggered:
            self._wake.succeed()

    @property
    def _is_outdated(self) -> bool:
        return self.held < self._cluster.newest

    def _run(self) -> ProcessGenerator:
        while True:
            if self._is_outdated and (self._options.follows_versions or not self.running):
                yield from self._load()
            elif self.assigned and not self._cluster.is_paused:
                yield from self._begin()
            elif self._resumes() and not self._cluster.is_paused:
                yield from self._decode()
            else:
                yield from self._wait()

    def _resumes(self) -> bool:
        """Go on with the rows whose tools have answered. Returns whether there is one to decode."""
        before = self.free
        for job in self.running:
            job.resume(self._env.now)
        self._complete_ended(before)
        return any(job.decoding for job in self.running)

    def _wait(self) -> ProcessGenerator:
        """Do nothing until it is woken. With chunks that it has begun, it is paused, or all of them
        wait for tools."""
        start, is_paused = float(self._env.now), self._cluster.is_paused
        yield self._wake
        self._wake = self._env.event()
        if not is_paused:
            self.tool_wait += (self._env.now - start) * bool(self.running)
            return
        for job in self.running:
            job.pause(start, float(self._env.now))

    def _answer(self, second: float) -> ProcessGenerator:
        """A tool, which lets the generator go on with a row at a virtual second."""
        yield self._env.timeout(second - self._env.now)
        self.wake()

    def _load(self) -> ProcessGenerator:
        version, start = self._cluster.newest, self._env.now
        if self.held >= 0:  # a run begins with its first version in place
            yield self._env.timeout(self._options.load_seconds)
        self.loading += self._env.now - start
        self.held = version
        read = 0.0
        for job in self.running:
            read += job.prompt_tokens + self._options.row_scale * job.decoded
            job.follow(version, self._env.now, self._cluster.write)
        if read and self._options.weight_update is WeightUpdate.interrupt:
            yield from self._read(read)
        self._cluster.dispatch()

    def _read(self, tokens: float) -> ProcessGenerator:
        seconds = self._options.reading_seconds(tokens)
        self.busy += seconds
        yield self._env.timeout(seconds)

    def _begin(self) -> ProcessGenerator:
        for job in (jobs := self.unassign()):
            job.begin(self.held, self.number, self._env.now, self._cluster.write)
        self.running += jobs
        yield from self._read(sum(job.prompt_tokens for job in jobs))

    def _decode(self) -> ProcessGenerator:
        """Decode until a sequence ends or waits for a tool, the surroundings change, a tool has
        answered, or the generator fails."""
        rows = sum(job.decoding for job in self.running)
        step, start = self._options.step(rows), self._env.now
        steps = int(min(job.next_stop for job in self.running))
        fails = self._until_failure < steps * step
        end = self._env.timeout(self._until_failure if fails else steps * step)
        yield end | self._wake
        if not end.processed:
            # A step that has begun is finished.
            steps = min(steps, math.ceil((self._env.now - start) / step))
            fails = self._until_failure < steps * step
            end = self._env.timeout(
                max(0.0, start + min(self._until_failure, steps * step) - self._env.now)
            )
            yield end
        if self._wake.triggered:
            self._wake = self._env.event()
        spent = self._env.now - start
        self.busy += spent
        self._until_failure -= spent
        if fails:
            yield from self._fail(int(spent / step))
        else:
            before = self.free
            self._decoded(steps)
            self._complete_ended(before)

    def _complete_ended(self, before: int) -> None:
        """Hand over the chunks whose rows have all ended, and take more where there is more room
        than before."""
        ended = [job for job in self.running if not job.active]
        self.running = [job for job in self.running if job.active]
        for job in ended:
            self._cluster.complete(job)
        if self.free > before:
            self._cluster.dispatch()

    def _decoded(self, steps: int) -> None:
        """Count decoding steps that end now, and send off the tools that are waited for."""
        for job in self.running:
            self.decoded += job.decoding * steps
            for second in job.advance(steps, self._env.now):
                self._env.process(self._answer(second))

    def _fail(self, steps: int) -> ProcessGenerator:
        """Lose everything under way, and come back after the repair."""
        self._decoded(steps)
        self.lost += sum(job.lose() for job in self.running)
        jobs, self.running = [*self.running, *self.unassign()], []
        self._is_down = True
        self.failures += 1
        self._cluster.give_back(jobs)
        yield self._env.timeout(self._options.repair_seconds)
        self._is_down = False
        self._until_failure = self._time_to_failure(self.failures)
        self._cluster.dispatch()


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
