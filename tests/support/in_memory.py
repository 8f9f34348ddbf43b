"""Runs without a folder: what a run gives, in memory, from a policy that is read once a session."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from typing import Any

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.config.config import Config, plain
from rlhf_lab.experiment.run.train import learn
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.models.weights import weights_digest
from rlhf_lab.runs.identity import hash_of
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.checkpoint import Checkpoints
from rlhf_lab.training.checkpoint_files import Snapshot
from rlhf_lab.training.checkpoint_options import CheckpointOptions
from rlhf_lab.training.loop import Hooks
from rlhf_lab.types.data import Batch, Metrics, Weights
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Group
from tests.support.survival import untimed

Row = dict[str, Any]
Result = tuple[list[Row], str]
POLICIES: dict[str, tuple[Any, Any]] = {}
RESULTS: dict[str, Result] = {}


class MemoryCheckpoints(Checkpoints):
    """Snapshots in a list, the newest last."""

    def __init__(self, options: CheckpointOptions) -> None:
        self._options = options
        self.snapshots: list[Snapshot] = []

    def is_due(self, round_: int) -> bool:
        """By rounds alone: a test must not depend on a clock."""
        return self._options.rounds > 0 and round_ % self._options.rounds == 0

    def save(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def newest(
        self,
        chunk: Callable[[int], Chunk],
        say: Callable[[str], None],
        prepare: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> Snapshot | None:
        return self.snapshots[-1] if self.snapshots else None


@dataclass
class MemoryOutput:
    """Rows, schedule, versions and failed batches of a run, as lists."""

    checkpoints: MemoryCheckpoints
    rows: list[Row] = field(default_factory=list)
    schedule: list[Mapping[str, Any]] = field(default_factory=list)
    versions: list[Weights] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)

    def report(self, text: str) -> None:
        self.reports.append(text)

    def note(self, **facts: Any) -> None:
        """Facts are of a run's folder."""

    def phase(self, words: str) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def opened(self, begin: int) -> Iterator[tuple[Hooks, float]]:
        del self.rows[begin:]
        self.schedule[:] = [row for row in self.schedule if row["round"] < begin]
        yield Hooks(self._log, self._record, self.versions.append, self._keep_batch), 0.0

    def _log(self, metrics: Metrics, round_: int) -> None:
        # As they are read again: what a file could not hold is an error here too.
        row = json.loads(json.dumps({"step": round_} | metrics, allow_nan=False))
        self.rows.append(untimed(row))

    def _record(
        self, schedule: Sequence[Mapping[str, Any]], _: Sequence[Mapping[str, Any]]
    ) -> None:
        self.schedule += schedule

    def _keep_batch(self, _: Batch, __: Sequence[Group], why: str) -> None:
        self.failed.append(why)


def memory_of(config: Config) -> MemoryOutput:
    """An empty output for runs of a config."""
    return MemoryOutput(MemoryCheckpoints(config.checkpoint))


def run_in_memory(
    config: Config,
    output: MemoryOutput | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Train; the rows without what a clock measured, and the digest of the last weights.

    output: of an earlier run with the same settings, to resume it.
    """
    output = output or memory_of(config)
    sources = Artifacts(config, Console(quiet=True)).sources()
    policy = policy_of(sources.policy, config.seed)
    last = learn(config, sources, policy, output, should_stop)
    return output.rows, weights_digest(last)


def result_of(config: Config) -> Result:
    """The result of a run, which is trained once a session for every resolved config."""
    parts = {f.name: plain(getattr(config, f.name)) for f in fields(config) if f.name != "output"}
    key = hash_of(parts)
    if key not in RESULTS:
        RESULTS[key] = run_in_memory(config)
    return RESULTS[key]


def policy_of(policy: PretrainedModel, seed: int) -> tuple[Any, Any]:
    """A copy of a policy and of its tokenizer; each is read once a session."""
    key = repr((policy, seed))
    if key not in POLICIES:
        POLICIES[key] = load_policy(policy, None, seed)
    return copy.deepcopy(POLICIES[key])
