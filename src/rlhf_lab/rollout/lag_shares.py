"""Option `mode.lag_probabilities`: the shares of chunks that are so many rounds old."""

from __future__ import annotations

from rlhf_lab.types.errors import UserError


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
