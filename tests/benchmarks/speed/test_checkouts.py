"""Two checkouts are timed in pairs, by the CPU seconds of their processes."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from benchmarks.speed import checkouts
from rlhf_lab.types.errors import UserError

# Each side writes down whose code it would run; the other one works for longer.
SIDE = """
import os, pathlib, sys, time
path, here = os.environ["PYTHONPATH"], os.getcwd()
assert path == str(pathlib.Path(here, "src")) and os.environ["OMP_NUM_THREADS"] == "1"
assert "algo=ppo" in sys.argv and not list(pathlib.Path(sys.argv[-1][11:]).parent.iterdir())
limit = 0.4 if pathlib.Path(here, "slow").exists() else 0.1
while time.process_time() < limit:
    pass
sys.exit(3 if pathlib.Path(here, "broken").exists() else 0)
"""


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(checkouts, "command", lambda *words: [sys.executable, "-c", SIDE, *words])
    (tmp_path / "src" / "rlhf_lab").mkdir(parents=True)
    return tmp_path


def test_the_side_that_works_for_longer_takes_more_seconds(other: Path) -> None:
    (other / "slow").touch()
    pairs = checkouts.time_pairs(other, ["algo=ppo"], 2)
    assert len(pairs) == 2 and all(0.1 <= this < that for this, that in pairs)


def test_a_run_that_fails_stops_the_comparison(other: Path) -> None:
    (other / "broken").touch()
    with pytest.raises(UserError, match="the run ended with code 3: correct its options"):
        checkouts.main([str(other), "algo=ppo"])


def test_the_ratio_is_the_geometric_mean_of_pairs() -> None:
    assert checkouts.ratio_text([(2, 1), (1, 2)]).startswith("1.000 [")
    # Of two pairs the logarithms are 0.1 and 0.3: their mean is 0.2, with a standard error of 0.1
    # and one degree of freedom (12.706).
    pairs = [(math.exp(0.1), 1.0), (math.exp(0.3), 1.0)]
    low, high = math.exp(0.2 - 1.2706), math.exp(0.2 + 1.2706)
    expected = f"{math.exp(0.2):.3f} [{low:.3f}, {high:.3f}] (95% t interval, 2 pairs)"
    assert checkouts.ratio_text(pairs) == expected


@pytest.mark.parametrize(
    ("words", "why"),
    [([], "holds no src/rlhf_lab: pass a checkout"), (["--pairs", "1"], "--pairs 1")],
)
def test_what_cannot_be_compared_is_refused(
    words: list[str], why: str, tmp_path: Path, other: Path
) -> None:
    folder = other if words else tmp_path / "none"
    with pytest.raises(UserError, match=why):
        checkouts.main([str(folder), *words])
