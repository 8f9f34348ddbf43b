"""A generator of the virtual cluster: continuous batching of sequences, as a simpy process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import simpy
from simpy.events import ProcessGenerator

from rlhf_lab.rollout.cluster.choices import WeightUpdate
from rlhf_lab.rollout.cluster.job import Job, Write
from rlhf_lab.rollout.cluster.options import ClusterOptions


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
