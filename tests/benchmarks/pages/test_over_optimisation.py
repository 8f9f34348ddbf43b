"""Gold against KL for a proxy and its ensembles: the numbers, what is refused, the figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages import over_optimisation
from benchmarks.pages.over_optimisation import Curve
from rlhf_lab_analysis import markdown
from tests.support import study_runs

PAGE = f"# Title\n\n{markdown.BEGIN}\nan earlier table\n{markdown.END}\n\nThe rest.\n"
REWARDS: dict[str, dict[str, Any]] = {
    "single": {"name": "reward_model"},
    "worst": {"name": "ensemble", "members": 4, "combine": "worst"},
}


def make_run(
    root: Path, reward: str, seed: int, gold: tuple[float, ...], rate: float = 1e-3
) -> Path:
    """A run that starts at gold 1 and proxy 0; its KL is 4, 16, .. and its proxy 1, 2, .."""
    versions = [
        {"version": i, "gold/mean": 1.0 + gain, "proxy/mean": float(i), "gold/win_rate": 0.5,
         "kl/sft_k1": float(4**i) if i else 0.0, "eval/prompts": 512}
        for i, gain in enumerate((0.0, *gold))
    ]  # fmt: skip
    settings = {"reward": REWARDS[reward], "optim": {"lr": rate}}
    settings["tracker"] = {"sweep": root.name, "condition": f"proxies={reward}"}
    return study_runs.make_run(root / f"{reward}-seed{seed}", seed, versions, settings)


def make_study(root: Path) -> None:
    """The single proxy ends at 0.2, 0.4 and 0.6 after a peak 0.8 higher; the other drops by 0.1."""
    for seed in (1, 2, 3):
        end = seed / 5
        make_run(root, "single", seed, (end + 0.8, end))
        make_run(root, "worst", seed, (end + 0.6, end + 0.5))


def test_gold_at_a_kl_is_read_off_the_line_where_the_run_first_gets_there() -> None:
    curve = Curve(kl=(0.0, 4.0, 16.0, 8.0), gold=(0.0, 1.0, 0.4, 0.0), proxy=(0, 1, 2, 3))
    assert curve.gold_at(4.0) == 1.0
    assert curve.gold_at(2.0) == 0.5
    assert curve.gold_at(10.0) == pytest.approx(0.7)
    with pytest.raises(ValueError, match=r"no evaluation reaches a KL of 17"):
        curve.gold_at(17.0)


def test_the_tables_have_means_over_seeds_and_paired_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_study(tmp_path)
    page, drawn = tmp_path / "page.md", tmp_path / "figures" / "over.png"
    page.write_text(PAGE)
    asked = [str(tmp_path), "--docs", str(page), "--figure", str(drawn)]
    assert over_optimisation.main(asked) == 0
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.read_text().splitlines()
        if line.startswith("| ")
    ]
    columns = rows[0]
    single, worst, difference = (
        dict(zip(columns, row, strict=False)) for row in (rows[2], rows[3], rows[6])
    )
    # 0.2, 0.4, 0.6: standard error 0.2 / sqrt(3), times t = 4.303
    assert single["gold at the end"] == "0.40 [-0.10, 0.90]"
    assert single["drop from the peak"] == "0.80 [0.80, 0.80]"
    assert single["KL at the end"] == "16.00"
    assert single["own proxy at the end"] == "2.00"
    assert worst["drop from the peak"] == "0.10"
    # Both are at the same KL at the end, and the noise of the seeds is gone from the difference.
    assert difference["gold at the peak"] == "-0.20 [-0.20, -0.20]"
    assert difference["gold at equal KL"] == "0.50"
    assert "own proxy at the end" not in dict(zip(rows[4], rows[6], strict=True))
    assert drawn.stat().st_size > 1000
    assert "](figures/over.png)" in page.read_text()
    assert page.read_text().endswith("The rest.\n")
    assert "peaks after 50% of the updates" in capsys.readouterr().out


def test_runs_that_differ_in_more_than_seed_and_reward_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        make_run(tmp_path, "single", seed, (0.5, 0.2))
        make_run(tmp_path, "worst", seed, (0.5, 0.2), rate=1e-4)
    assert over_optimisation.main([str(tmp_path)]) == 2
    assert "differ in more than seed and reward" in capsys.readouterr().err


def test_a_condition_without_its_fellow_of_the_seed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_study(tmp_path)
    make_run(tmp_path, "worst", 4, (1.0, 1.0))
    figure = tmp_path / "over.png"
    assert over_optimisation.main([str(tmp_path), "--figure", str(figure)]) == 2
    said = capsys.readouterr().err
    assert "worst and single do not have the same seeds (seed 4)" in said
    assert not figure.exists()
