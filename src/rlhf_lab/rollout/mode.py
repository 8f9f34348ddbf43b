"""Config group `mode`: how stale samples may be, and who generates them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError


class ExecutorKind(StrEnum):
    """Where generation runs: in the trainer's time, in a thread, in a process of its own, or in the
    trainer's time on the clock of a virtual cluster."""

    inline = "inline"
    thread = "thread"
    process = "process"
    virtual = "virtual"


class WeightPolicy(StrEnum):
    """Which version writes a chunk: the one at its admission (reproducible), the latest one at its
    first token, the latest one at every token, that of a recorded schedule, or the one that a
    generator of a virtual cluster holds."""

    admission = "admission"
    latest = "latest"
    latest_per_token = "latest_per_token"
    recorded = "recorded"
    cluster = "cluster"


class WhenStale(StrEnum):
    """How max_staleness is enforced: generators wait, or samples that are too old are dropped."""

    wait = "wait"
    drop = "drop"


class OnFailure(StrEnum):
    """What happens when a generator process is killed, hangs or raises."""

    stop = "stop"
    restart = "restart"


def shares_of(text: str, max_staleness: int) -> tuple[float, ...]:
    """Probability of each lag 0..S. Raises UserError for what is no distribution."""
    try:
        shares = tuple(float(share) for share in text.split(","))
    except ValueError:
        shares = ()
    if len(shares) != max_staleness + 1 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise UserError(
            f"mode.lag_probabilities={text!r} with mode.max_staleness="
            f"{max_staleness}: pass {max_staleness + 1} numbers that sum to 1, "
            "quoted, as in 'mode.lag_probabilities=\"0.5,0.5\"'"
        )
    return shares


@dataclass(frozen=True)
class Mode(limits.OptionGroup, key="mode"):
    """How stale samples may be and who generates them; executor, num_generators and prefetch
    change no bit of the result while weights=admission."""

    name: str = limits.name("sync")
    max_staleness: int = limits.count(
        0,
        min=0,
        max=1024,
        why="rounds; 0 is synchronous",
        about="S: rounds that samples may be older than the policy that trains on them.",
        source="arXiv:2410.18252",
    )
    executor: ExecutorKind = limits.option(
        ExecutorKind.inline,
        about=(
            "Where samples are generated: in the trainer's own time (inline), in a thread, in "
            "processes beside it, or in its own time on the clock of a virtual cluster (virtual)."
        ),
    )
    num_generators: int = limits.count(1, max=1024, about="Generators that run beside the trainer.")
    prefetch: int = limits.count(
        2,
        max=10**6,
        about=(
            "Chunks given to each generator in advance; vLLM, which draws them side by side, takes "
            "those of a round at least."
        ),
    )
    weights: WeightPolicy = limits.option(
        WeightPolicy.admission,
        about=(
            "Which version writes a chunk: that of its admission (reproducible), the latest at "
            "its start, the latest at every token, that of a recorded schedule, or what a "
            "generator of the virtual cluster holds (config group cluster)."
        ),
    )
    lag_probabilities: str = limits.option(
        "",
        about=(
            "Comma-separated shares of chunks that are 0, 1, ... S rounds old, drawn with the "
            "run's seed; empty makes all of them S rounds old."
        ),
    )
    when_stale: WhenStale = limits.option(
        WhenStale.wait,
        about=(
            "What keeps samples within max_staleness when weights are the latest: generators "
            "wait, or samples that became too old are dropped."
        ),
    )
    extra_rounds: int = limits.count(
        1,
        max=10**6,
        about="Rounds that generators run beyond max_staleness, with when_stale=drop.",
    )
    schedule: str = limits.option(
        "", about="Folder of the run whose schedule weights=recorded repeats."
    )
    segment_tokens: int = limits.tokens(
        0,
        also={0: "for whole samples"},
        about=(
            "The policy's tokens after which an unfinished sample is continued by the next version "
            "(partial rollouts), in an episode perhaps within a turn; 0 is whole samples."
        ),
        source="Kimi k1.5, arXiv:2501.12599",
    )
    segment_turns: int = limits.count(
        0,
        min=0,
        max=1024,
        about=(
            "Turns after which the next version continues an unfinished episode (partial rollouts "
            "of tasks with an environment); 0 is whole episodes."
        ),
    )
    over_provision: float = limits.number(
        1.0,
        min=1,
        max=2,
        about=(
            "Groups in flight for each that a round needs, with segments: the round ends once "
            "enough are complete, and the next version continues the others. 1 is none."
        ),
        source="APRIL, arXiv:2509.18521",
    )
    on_generator_failure: OnFailure = limits.option(
        OnFailure.stop,
        about=(
            "What follows when a generator process is killed, hangs or raises: the run stops, or "
            "the process is restarted."
        ),
    )
    hang_seconds: float = limits.seconds(
        60.0,
        about=(
            "Seconds without progress after which a generator process has failed; it is reported "
            "after 5 s. A call in the trainer's own process (mode=sync) is reported after them."
        ),
    )
    max_restarts: int = limits.count(
        3, min=0, max=10**6, about="Restarts of one generator within a run."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name == "sync" and self.max_staleness:
            raise UserError(
                f"mode.max_staleness={self.max_staleness} with mode=sync: sync means 0; "
                "pass mode=lagged (stale, without concurrency) or mode=async"
            )
        self._check_virtual()
        if self.executor is ExecutorKind.inline and self.num_generators > 1:
            raise UserError(
                f"mode.num_generators={self.num_generators} with mode.executor=inline: "
                "the trainer generates by itself; pass mode.executor=process"
            )
        self._check_failures()
        self._check_weights()
        self._check_segments()
        self.lag_shares  # noqa: B018  (refuses what is no distribution)

    def _check_virtual(self) -> None:
        if self.is_virtual != (self.weights is WeightPolicy.cluster):
            raise UserError(
                f"mode.executor={self.executor.value} with mode.weights={self.weights.value}: a "
                "virtual cluster is both, executor=virtual and weights=cluster; pass mode=virtual"
            )
        if self.is_virtual and self.num_generators > 1:
            raise UserError(
                f"mode.num_generators={self.num_generators} with mode=virtual: generators of the "
                f"virtual cluster are meant; pass cluster.generators={self.num_generators}"
            )

    def _check_failures(self) -> None:
        restarts = self.on_generator_failure is OnFailure.restart
        if restarts and self.executor is not ExecutorKind.process:
            raise UserError(
                f"mode.on_generator_failure=restart with mode.executor={self.executor.value}: only "
                "a process can be restarted; pass mode.executor=process"
            )

    def _check_weights(self) -> None:
        is_background = self.executor is not ExecutorKind.inline
        if self.uses_latest_weights and not is_background:
            raise UserError(
                f"mode.weights={self.weights.value} with mode.executor=inline: new weights come "
                "only while another process generates; pass mode=free"
            )
        if self.when_stale is WhenStale.drop and not (self.uses_latest_weights or self.is_replay):
            raise UserError(
                "mode.when_stale=drop with mode.weights=admission: every sample would be too old "
                "by design; pass mode=free, or mode.when_stale=wait"
            )
        if self.is_replay and is_background:
            raise UserError(
                f"mode.weights=recorded with mode.executor={self.executor.value}: a replay is "
                "generated in the trainer's own time; pass mode.executor=inline"
            )
        if self.schedule and not self.is_replay:
            raise UserError(
                f"mode.schedule={self.schedule} with mode.weights={self.weights.value}: only a "
                "replay follows a schedule; pass mode=recorded"
            )
        if self.lag_probabilities and self.weights is not WeightPolicy.admission:
            raise UserError(
                f"mode.lag_probabilities={self.lag_probabilities} with "
                f"mode.weights={self.weights.value}: lag is chosen only with "
                "mode.weights=admission; pass mode=lagged"
            )

    def _check_segments(self) -> None:
        key = f"mode.{self.segment_unit}={self.segment_steps}"
        if self.segment_turns and self.segment_tokens:
            raise UserError(
                f"{key} with mode.segment_tokens={self.segment_tokens}: a segment ends with a turn "
                "or after a number of tokens; leave one of the two out"
            )
        if not self.segment_steps and self.recycles_groups:
            raise UserError(
                f"mode.over_provision={self.over_provision:g} with {key}: what a round does not "
                "wait for stops after a segment; pass mode=partial (or mode=partial_turns for a "
                "task with an environment), or mode.over_provision=1"
            )
        if not self.segment_steps:
            return
        if not self.max_staleness:
            raise UserError(
                f"{key} with mode.max_staleness=0: there is no version before the round's own that "
                "could begin a sample; pass mode=partial, or mode.max_staleness=1"
            )
        if self.weights is not WeightPolicy.admission:
            raise UserError(
                f"{key} with mode.weights={self.weights.value}: which version writes a token "
                "follows from its position; pass mode.weights=admission"
            )
        if self.lag_probabilities:
            raise UserError(
                f"{key} with mode.lag_probabilities={self.lag_probabilities}: every chunk goes "
                "through all versions from S rounds before its own; leave one of the two out"
            )

    @property
    def segment_unit(self) -> str:
        """The option that has the length of a segment."""
        return "segment_turns" if self.segment_turns else "segment_tokens"

    @property
    def segment_steps(self) -> int:
        """Steps of a segment, tokens or turns; 0 where chunks are not written in segments."""
        return self.segment_tokens or self.segment_turns

    @property
    def lag_shares(self) -> tuple[float, ...]:
        """Probability of each lag 0..S, empty for a fixed one."""
        if not self.lag_probabilities:
            return ()
        return shares_of(self.lag_probabilities, self.max_staleness)

    @property
    def rounds_ahead(self) -> int:
        """Rounds by which generation may run ahead of training: none in a replay, whose schedule
        has the versions, and `extra_rounds` more where samples may be dropped."""
        if self.is_replay:
            return 0
        return self.max_staleness + (self.extra_rounds if self.deadline is None else 0)

    @property
    def deadline(self) -> int | None:
        """Rounds within which a chunk must be taken; None where it is dropped after them."""
        return self.max_staleness if self.when_stale is WhenStale.wait else None

    @property
    def max_lag(self) -> int:
        """Rounds that a chunk may be old when it is looked at, to be taken or dropped."""
        is_dropping = self.when_stale is WhenStale.drop
        return self.max_staleness + (self.extra_rounds + 1 if is_dropping else 0)

    @property
    def uses_latest_weights(self) -> bool:
        """Whether timing, real or virtual, decides which weights write a sample."""
        return self.weights in (
            WeightPolicy.latest,
            WeightPolicy.latest_per_token,
            WeightPolicy.cluster,
        )

    @property
    def is_timed(self) -> bool:
        """Whether wall-clock decides which weights write a sample, so that no run repeats it."""
        return self.uses_latest_weights and not self.is_virtual

    @property
    def is_virtual(self) -> bool:
        """Whether timing is that of a virtual cluster."""
        return self.executor is ExecutorKind.virtual

    @property
    def recycles_groups(self) -> bool:
        """Whether later rounds may continue the groups that a round has started."""
        return self.over_provision > 1

    @property
    def is_replay(self) -> bool:
        return self.weights is WeightPolicy.recorded

    @property
    def num_background(self) -> int:
        """Generators that run beside the trainer."""
        is_alone = self.executor is ExecutorKind.inline or self.is_virtual
        return 0 if is_alone else self.num_generators
