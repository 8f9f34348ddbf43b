"""One line on how close a run came to its ideal timeline, and on what would make it faster."""

from __future__ import annotations

from rlhf_lab.experiment.planning.ideal_timeline import Timeline, Work, ideal, share


def advice(work: Work, max_staleness: int, num_generators: int, actual_wall: float) -> str:
    """One line: how close a run came to its ideal, who waits in it, and what would help."""
    best = ideal(work, max_staleness, num_generators)
    close = (
        f"took {duration(actual_wall)}, ideally {duration(best.wall)} "
        f"({share(best.wall, actual_wall):.0%})"
    )
    if not num_generators:
        return f"{close}; {from_asynchrony(work, best.wall)}"
    waits = (
        f"ideally the trainer waits {duration(best.trainer_wait)} "
        f"({best.trainer_wait_share:.0%}) and the generators {duration(best.generator_wait)} "
        f"({best.generator_wait_share:.0%})"
    )
    remedy = from_balance(work, max_staleness, best)
    return f"{close}; {waits}: {remedy}; {from_staleness(work, max_staleness, best)}"


def from_asynchrony(work: Work, wall: float) -> str:
    """What one generator beside the trainer would bring."""
    beside = ideal(work, max_staleness=1, num_generators=1).wall
    return (
        f"generating takes {share(work.generating, wall):.0%} of it; with a generator on hardware "
        f"of its own (mode=async, S=1) ideally {duration(beside)}, "
        f"{share(wall, beside):.2f} times as fast"
    )


def from_balance(work: Work, max_staleness: int, best: Timeline) -> str:
    """What to change so that trainer and generators wait less for each other."""
    if not max_staleness:
        return "with S=0 they take turns"
    if best.trainer_wait_share > best.generator_wait_share:
        more = ideal(work, max_staleness, best.num_generators + 1).wall
        return (
            "generation-bound, so use samples more often (run.passes), draw fewer per prompt "
            f"(run.group_size) or add a generator (ideally {saving(best.wall, more)})"
        )
    factor = 1 / (1 - best.generator_wait_share) if best.generator_wait_share < 1 else 1.0
    dearer = ideal(work.with_samples(factor), max_staleness, best.num_generators).wall
    return (
        f"training-bound, so {factor:.2f} times the samples per prompt (run.group_size) would "
        f"ideally cost {share(dearer - best.wall, best.wall):.0%} if no more rows are trained on"
    )


def from_staleness(work: Work, max_staleness: int, best: Timeline) -> str:
    """What one more round of staleness would bring; from S=1 on, only uneven times let it help."""
    later = ideal(work, max_staleness + 1, best.num_generators).wall
    return f"S={max_staleness + 1} {saving(best.wall, later)}"


def saving(wall: float, other: float) -> str:
    saved = share(wall - other, wall)
    return f"saves {saved:.0%}" if saved >= 0.005 else "saves nothing"


def duration(seconds: float) -> str:
    """`0.42s`, `42.0s` or `1234s`."""
    digits = 0 if seconds >= 100 else 1 if seconds >= 10 else 2
    return f"{seconds:.{digits}f}s"
