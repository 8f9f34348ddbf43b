"""Gold against KL for a proxy and its ensembles: the numbers, what is refused, the figure."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis import gold_and_proxy, markdown
from analysis.compare import Run, check_scores, comparable
from analysis.gold_and_proxy import Curve
from rlhf_lab.runs.folder import EVALS, METRICS, RunDirectory
from rlhf_lab.runs.provenance import provenance
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

PAGE = f"# Title\n\n{markdown.BEGIN}\nan earlier table\n{markdown.END}\n\nThe rest.\n"
REWARDS = {
    "single": ["reward=reward_model"],
    "worst": ["reward=ensemble", "reward.members=4", "reward.combine=worst"],
}


@pytest.fixture(scope="module", autouse=True)
def one_provenance() -> Iterator[None]:
    """What runs were made with is looked up once: here many are, and none is read for it."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("rlhf_lab.runs.folder.provenance", functools.cache(provenance))
        yield


def make_run(
    root: Path, condition: str, seed: int, gold: tuple[float, ...], state: str = "finished"
) -> Path:
    """A run that starts at gold 1 and proxy 0; its KL is 4, 16, .. and its proxy 1, 2, .."""
    folder = root / f"{condition}-seed{seed}"
    overrides = ["optim.lr=1e-3", f"seed={seed}", *REWARDS.get(condition, ())]
    manifest = {"mode": "sync", "seed": seed, "algo": "a", "overrides": overrides}
    record = RunDirectory.create(folder, manifest, "")
    judged = [
        {
            "version": place,
            "gold/mean": 1.0 + gain,
            "proxy/mean": float(place),
            "gold/win_rate": 0.5,
            "kl/sft_k1": float(4**place) if place else 0.0,
            "eval/prompts": 512,
        }
        for place, gain in enumerate((0.0, *gold))
    ]
    (record.folder / METRICS).write_text(json.dumps({"step": 0}) + "\n")
    (record.folder / EVALS).write_text("".join(json.dumps(row) + "\n" for row in judged))
    record.finish(state)  # type: ignore[arg-type]
    return folder


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
    assert (curve.peak, curve.end, curve.drop) == (1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match=r"no evaluation reaches a KL of 17"):
        curve.gold_at(17.0)


def test_the_tables_have_means_over_seeds_and_paired_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_study(tmp_path)
    page, drawn = tmp_path / "page.md", tmp_path / "figures" / "over.png"
    page.write_text(PAGE)
    asked = [str(tmp_path), "--docs", str(page), "--figure", str(drawn)]
    assert gold_and_proxy.main(asked) == 0
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
    assert single["KL at the end"] == "16.00 [16.00, 16.00]"
    assert single["own proxy at the end"] == "2.00 [2.00, 2.00]"
    assert worst["drop from the peak"] == "0.10 [0.10, 0.10]"
    # Both are at the same KL at the end, and the noise of the seeds is gone from the difference.
    assert difference["gold at the peak"] == "-0.20 [-0.20, -0.20]"
    assert difference["gold at equal KL"] == "0.50 [0.50, 0.50]"
    assert "own proxy at the end" not in dict(zip(rows[4], rows[6], strict=True))
    assert drawn.stat().st_size > 1000
    assert "](figures/over.png)" in page.read_text()
    assert page.read_text().endswith("The rest.\n")
    assert "peaks after 50% of the updates" in capsys.readouterr().out


def test_runs_that_differ_in_more_than_seed_and_reward_are_refused(tmp_path: Path) -> None:
    make_study(tmp_path)
    path = tmp_path / "worst-seed2" / "manifest.json"
    path.write_text(path.read_text().replace("optim.lr=1e-3", "optim.lr=1e-4"))
    runs = comparable([tmp_path], Console(quiet=True), check_scores)
    with pytest.raises(UserError, match="differ in more than seed and reward"):
        gold_and_proxy.curves_of(runs)


def test_a_condition_without_its_fellow_of_the_seed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_study(tmp_path)
    make_run(tmp_path, "worst", 4, (1.0, 1.0))
    figure = tmp_path / "over.png"
    assert gold_and_proxy.main([str(tmp_path), "--figure", str(figure)]) == 2
    said = capsys.readouterr().err
    assert "worst and single do not have the same seeds (seed 4)" in said
    assert not figure.exists()


@pytest.mark.parametrize("name", ["single", "mean", "worst", "uncertainty"])
def test_runs_of_the_sweep_are_told_apart_by_what_it_sweeps(tmp_path: Path, name: str) -> None:
    own = [f"proxies={name}", "output.dir=a", "tracker.sweep=s", f"tracker.condition={name}"]
    overrides = [*own, "seed=1", "optim.lr=1e-3"]
    run = Run(name, tmp_path, {"overrides": overrides}, [], [])
    assert gold_and_proxy.condition_of(run) == name
    assert gold_and_proxy.besides(run) == ["optim.lr=1e-3"]
