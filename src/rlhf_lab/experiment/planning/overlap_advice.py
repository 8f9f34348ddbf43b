"""How close a run came to its ideal timeline, who is idle in it, and what would make it faster."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_lab.experiment.planning.ideal_timeline import Timeline, Work, ideal, share

COLUMNS = ("wall", "ideal", "trainer idle", "generators idle", "bound by")
TITLE = "overlap (idle times are those of the ideal timeline)"
NOBODY = "-"


@dataclass(frozen=True)
class Overlap:
    """cells: texts of COLUMNS. advice: what would help, a sentence each."""

    cells: tuple[str, ...]
    advice: tuple[str, ...]


def overlap(work: Work, max_staleness: int, num_generators: int, actual_wall: float) -> Overlap:
    """How close a run came to its ideal, who waits in it, and what would help."""
    best = ideal(work, max_staleness, num_generators)
    close = (duration(actual_wall), f"{duration(best.wall)} ({share(best.wall, actual_wall):.0%})")
    if not num_generators:
        generating = share(work.generating, best.wall)
        bound = f"generation {generating:.0%}, training {1 - generating:.0%}"
        return Overlap((*close, NOBODY, NOBODY, bound), from_asynchrony(work, best.wall))
    waits = (
        f"{duration(best.trainer_wait)} ({best.trainer_wait_share:.0%})",
        f"{duration(best.generator_wait)} ({best.generator_wait_share:.0%})",
    )
    balance = from_balance(work, max_staleness, best)
    more = from_staleness(work, max_staleness, best)
    return Overlap((*close, *waits, bound_by(max_staleness, best)), (*balance, more))


def bound_by(max_staleness: int, best: Timeline) -> str:
    """What a run with generators of its own takes its time for."""
    if not max_staleness:
        return "taking turns (S=0)"
    return "generation" if is_generation_bound(best) else "training"


def is_generation_bound(best: Timeline) -> bool:
    return best.trainer_wait_share > best.generator_wait_share


def from_asynchrony(work: Work, wall: float) -> tuple[str, ...]:
    """What one generator beside the trainer would bring, on other hardware and on the same.

    On the same cores, half of them for each, every second becomes s seconds, where s (from 1 to 2)
    is how many times as long half of the cores take. The speed-up of other hardware is divided by
    s.
    """
    beside = ideal(work, max_staleness=1, num_generators=1).wall
    factor = share(wall, beside)
    return (
        "a generator on hardware of its own (mode=async, S=1) would ideally take "
        f"{duration(beside)}, {factor:.2f} times as fast",
        "if it has to share the cores of this run, half of them for each, it is faster only where "
        f"half of them make a sync run take less than {factor:.2f} times as long",
    )


def from_balance(work: Work, max_staleness: int, best: Timeline) -> tuple[str, ...]:
    """What to change so that trainer and generators wait less for each other."""
    if not max_staleness:
        return ()
    if is_generation_bound(best):
        more = ideal(work, max_staleness, best.num_generators + 1).wall
        return (
            "use samples more often (run.passes), or draw fewer per prompt (run.group_size)",
            f"one more generator (mode.num_generators) ideally {saving(best.wall, more)}",
        )
    factor = 1 / (1 - best.generator_wait_share) if best.generator_wait_share < 1 else 1.0
    dearer = ideal(work.with_samples(factor), max_staleness, best.num_generators).wall
    return (
        f"{factor:.2f} times the samples per prompt (run.group_size) would ideally cost "
        f"{share(dearer - best.wall, best.wall):.0%} if no more rows are trained on",
    )


def from_staleness(work: Work, max_staleness: int, best: Timeline) -> str:
    """What one more round of staleness would bring; from S=1 on, only uneven times let it help."""
    later = ideal(work, max_staleness + 1, best.num_generators).wall
    return f"mode.max_staleness={max_staleness + 1} ideally {saving(best.wall, later)}"


def saving(wall: float, other: float) -> str:
    saved = share(wall - other, wall)
    return f"saves {saved:.0%}" if saved >= 0.005 else "saves nothing"


def duration(seconds: float) -> str:
    """`0.42s`, `42.0s` or `1234s`."""
    digits = 0 if seconds >= 100 else 1 if seconds >= 10 else 2
    return f"{seconds:.{digits}f}s"
