"""The tracked benchmark: what is kept of runs, and the page that is made of it."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from rlhf_lab_analysis.benchmark.__main__ import main
from rlhf_lab_analysis.benchmark.kept import (
    COLLAPSES,
    TABLES,
    load_benchmark,
    load_beside,
    weak_of,
)
from rlhf_lab_analysis.benchmark.page import Judged, judge, pages
from rlhf_lab_analysis.comparison.registry.answers import Answer
from rlhf_lab_analysis.comparison.registry.definitions import FOLDER, read_registry
from rlhf_lab_analysis.markdown import escaped as markdown
from rlhf_lab_analysis.statistics.decisions import Shows
from rlhf_lab_analysis.statistics.power import Aim, power
from rlhf_lab_analysis.tables.store import files
from tests.support import table_records as made
from tests.support.question_records import Made

pytestmark = pytest.mark.usefixtures("costly")

HIGH = (0.90, 0.92, 0.94)
NOTHING = (0.0, 0.0, 0.0)
LOSSES = (0.11, 0.10, 0.09)
PAPER = FOLDER / "async_rlhf.yaml"
# Higher stage seeds came later, with looks that share the error.
FIRST_LOOK = {*range(1, 10)}
ROOT = Path(__file__).parents[3]
NUMBER = r"([+-]?\d+(?:\.\d+)?)"
ESTIMATE = re.compile(rf"{NUMBER} \[{NUMBER}, {NUMBER}\]")


def runs(folder: Path, conditions: Sequence[Made], losses: Sequence[float] = NOTHING) -> Path:
    """Runs of each condition, those after the first lower by the losses."""
    for number, one in enumerate(conditions):
        lost = losses if number else NOTHING
        for record in one.runs([high - loss for high, loss in zip(HIGH, lost, strict=True)]):
            name = f"{number}-seed-{record.facts.seed}"
            local = {"output": {"root": "/somewhere/on/this/machine"}}
            told = {"tracker": {"sweep": "ladder", "condition": record.facts.swept}}
            changed = replace(record, config={**record.config, **local, **told})
            made.write_run(folder / name, changed)
    return folder


def test_pages_have_verdicts_results_and_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = runs(tmp_path / "runs", [Made(), Made(per_round=16)], LOSSES)
    pages, tables = tmp_path / "pages", tmp_path / "t.parquet"
    assert main([str(place), "--tables", str(tables), "--pages", str(pages)]) == 0
    assert " holds: 16 updates per round end at a lower win-rate" in capsys.readouterr().out
    text = {path.stem: path.read_text() for path in pages.iterdir()}
    assert {*text} == {"verdicts", "results", "stages"}
    assert "\n6 runs, 2 conditions, 3 seeds" in text["verdicts"]
    # 11, 10 and 9 points, at as many looks as the claim has by now.
    (looks,) = {one.looks for one in read_registry(PAPER).claims if one.name == "n16_costs"}
    half = stats.t.ppf(1 - 0.05 / looks / 2, 2) / math.sqrt(3)
    numbers = f"{-10 - half:+.1f}, {-10 + half:+.1f}] points ({100 * (1 - 0.05 / looks):.4g}%)"
    numbers = markdown(f"N=16 less N=1: -10.0 [{numbers}")
    aim = Aim(Shows.below, margin=0.02, truth=-0.05, together=looks)
    expected = f"-5.0 points, power {power(aim, 0.02, 3):.2f}"
    (row,) = [line for line in text["verdicts"].splitlines() if f"| {numbers} | holds | " in line]
    assert f" | by itself, {looks} looks | {expected} |" in row
    # 0.90, 0.92, 0.94: mean 0.92, t of 2 times 0.02 / sqrt(3), on log odds over 0.92 times 0.08.
    assert "| 0.920 [0.854, 0.958] |" in text["results"]
    assert "SWEEP=staleness_nano" in text["verdicts"] and "on GPUs: Pythia 410m" in text["verdicts"]
    before = {path.name: path.read_bytes() for path in pages.iterdir()}
    assert main(["--tables", str(tables), "--pages", str(pages)]) == 0
    assert {path.name: path.read_bytes() for path in pages.iterdir()} == before


def test_new_runs_join_the_tables_that_are_kept(tmp_path: Path) -> None:
    tables = tmp_path / "t.parquet"
    first = runs(tmp_path / "a", [Made()])
    assert main([str(first), "--tables", str(tables)]) == 0
    before = load_benchmark(tables)
    second = runs(tmp_path / "b", [Made(per_round=16)])
    assert main([str(tables), str(second), "--tables", str(tables)]) == 0
    after = load_benchmark(tables)
    assert len(before.runs) == 3 and len(after.runs) == 6
    kept = after.points[after.points["run"].isin(before.runs["run"])]
    assert kept["x/updates"].tolist() == before.points["x/updates"].tolist()


def test_seconds_are_kept_to_a_millisecond_and_all_else_to_the_bit(tmp_path: Path) -> None:
    tables = tmp_path / "t.parquet"
    precise = {"seconds/wall": 3.323544, "reward/mean": 0.1 + 0.2, "seconds/sync": 0.0004}
    one = made.record(rounds=made.rounds(4, precise), evals=made.evals())
    made.write_run(tmp_path / "runs" / "one", one)
    assert main([str(tmp_path / "runs"), "--tables", str(tables)]) == 0
    kept = load_benchmark(tables).points
    assert {*kept["seconds/wall"], *kept["x/wall_seconds"]} == {3.324}
    assert {*kept["seconds/sync"]} == {0.0} and {*kept["reward/mean"]} == {0.1 + 0.2}


def test_runs_that_the_gates_stop_are_kept_apart(tmp_path: Path) -> None:
    """The proxy of the second seed is right about too few pairs."""
    tables = tmp_path / "t.parquet"
    assert load_beside(weak_of(tables)) is None
    for seed, accuracy in ((1, 1.0), (2, 0.0)):
        one = Made().run(seed, HIGH[0])
        evals = [{**row, "stage/proxy_accuracy": accuracy} for row in one.evals]
        changed = replace(one, evals=evals, config={**one.config, "stage_seed": seed})
        made.write_run(tmp_path / "runs" / str(seed), changed)
    assert main([str(tmp_path / "runs"), "--tables", str(tables)]) == 0
    good, weak = load_benchmark(tables), load_beside(weak_of(tables))
    assert weak is not None
    assert [found.runs["stage_seed"].tolist() for found in (good, weak)] == [[1], [2]]


def test_nothing_of_the_machine_is_kept(tmp_path: Path) -> None:
    place, tables = runs(tmp_path / "runs", [Made()]), tmp_path / "t.parquet"
    assert main([str(place), "--tables", str(tables)]) == 0
    found = load_benchmark(tables)
    assert all("/somewhere" not in config for config in found.runs["config"])
    assert not paths_in(found.runs, str(tmp_path))
    assert not any(str(tmp_path) in one.line for one in found.findings)


def paths_in(frame: pd.DataFrame, root: str) -> list[str]:
    """The columns with a text that names a folder; `source` is where they were read."""
    texts = frame.drop(columns="source").select_dtypes("object").astype(str)
    return [name for name in texts if texts[name].str.contains(root, regex=False).any()]


def test_runs_that_collapse_lie_beside_and_their_claims_are_decided_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, pages = tmp_path / "t.parquet", tmp_path / "pages"
    first = runs(tmp_path / "a", [Made()])
    # The first condition is left out, so that the losses are of the second.
    second = runs(tmp_path / "b", [Made(), Made(per_round=16)], LOSSES)
    for path in second.glob("0-*"):
        shutil.rmtree(path)
    beside = tables.with_name(COLLAPSES.name)
    assert main([str(second), "--tables", str(beside)]) == 0
    capsys.readouterr()
    assert main([str(first), "--tables", str(tables), "--pages", str(pages)]) == 0
    assert "holds: 16 updates per round end at a lower win-rate" in capsys.readouterr().out
    text = (pages / "verdicts.md").read_text()
    assert "for claims on collapse: 3 runs, 1 condition, 3 seeds" in text


def test_jobs_of_a_grid_that_were_never_trained_are_no_finding_of_the_tables(
    tmp_path: Path,
) -> None:
    place, tables = runs(tmp_path / "sweep", [Made()]), tmp_path / "t.parquet"
    jobs = {"lost": "content"}
    sweep = {"jobs": jobs, "folders": {"lost": str(place / "lost")}, "base": ""}
    (place / "sweep.json").write_text(json.dumps(sweep))
    assert main([str(place), "--tables", str(tables)]) == 0
    assert load_benchmark(tables).findings == ()


def test_unfinished_runs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.write_run(tmp_path / "runs" / "a", made.record("a", 1), state="failed")
    assert main([str(tmp_path / "runs"), "--tables", str(tmp_path / "t.parquet")]) == 2
    assert "1 runs did not finish" in capsys.readouterr().err
    assert not (tmp_path / "t.parquet").exists()


def test_the_cost_of_the_kept_runs_is_known_before_any_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, tables = runs(tmp_path / "runs", [Made()]), tmp_path / "t.parquet"
    assert main([str(place), "--tables", str(tables)]) == 0
    assert main(["--cost", "--tables", str(tables)]) == 0
    # Three runs of four rounds of ten seconds.
    assert "ladder: 3 runs, 0.03 core-hours" in capsys.readouterr().out


def seeds_of(answer: Answer) -> set[int]:
    """The stage seeds that an answer stands on."""
    (named,) = re.findall(r"\((.*?)\)", answer.runs)
    ranges = [[int(end) for end in one.split(" to ")] for one in named.split(", ")]
    return {seed for ends in ranges for seed in range(ends[0], ends[-1] + 1)}


@pytest.fixture(scope="module")
def judged() -> Judged:
    """The decisions on the committed tables."""
    return judge()


@pytest.mark.pages
def test_the_committed_tables_are_whole_and_small(judged: Judged) -> None:
    paths = (TABLES, COLLAPSES, weak_of(TABLES))
    size = sum(place.stat().st_size for path in paths for place in files(path).values())
    assert size < 10e6
    tables, collapses, (weak, _) = judged.tables, judged.collapses, judged.weak
    assert collapses is not None
    # Trained, whatever the gates made of their stages: of the proxies of nano_l one is too weak.
    trained = pd.concat([tables.runs, weak.runs])
    seeds = trained.groupby(["sweep", "env_id", "condition"])["stage_seed"].nunique()
    # A grid of 108 conditions was planned with five, and passes, samples and PPO of async of nano_l
    # with six; their claims have the power of these.
    sweep, env, condition = (seeds.index.get_level_values(name) for name in seeds.index.names)
    grid, few = sweep == "corrections_2026_nano", env == "tldr_nano-nano_l"
    few &= sweep.isin(["passes_nano", "samples_per_prompt_nano"]) | (
        (sweep == "sync_async_nano") & condition.str.startswith("ppo")
    )
    assert seeds[~grid & ~few].min() >= 8, seeds[seeds < 8]
    assert seeds[grid].min() >= 5 and seeds[few].min() >= 6, seeds[seeds < 8]
    assert set(tables.runs["state"]) == {"finished"}
    assert pd.api.types.is_integer_dtype(tables.runs["seed"])
    assert not paths_in(tables.runs, "/tmp/") and not paths_in(tables.points, "/tmp/")
    lines = [one.line for one in (*tables.findings, *collapses.findings)]
    assert not any("/tmp/" in line for line in lines)


@pytest.mark.pages
def test_first_looks_are_of_the_first_stage_seeds(judged: Judged) -> None:
    """Two claims read stage seeds of a second look that was written down for a third one."""
    for one in judged.decided:
        assert one.claim.looks > 1 or seeds_of(one.answer) <= FIRST_LOOK, one.claim.name


def estimates(text: str) -> set[tuple[float, ...]]:
    """Every `value [low, high]` of a text."""
    plain = " ".join(text.replace("\\", "").split())
    return {tuple(map(float, found)) for found in ESTIMATE.findall(plain)}


@pytest.mark.pages
@pytest.mark.parametrize("name", ["README.md", "docs/benchmark.md"])
def test_every_interval_of_a_page_is_one_of_the_verdicts(judged: Judged, name: str) -> None:
    """A loss of 4.2 [2.2, 6.1] is a difference of -4.2 [-6.1, -2.2]."""
    found = estimates(pages(judged)["verdicts.md"])
    known = found | {(-value, -high, -low) for value, low, high in found}
    shown = estimates((ROOT / name).read_text(encoding="utf-8"))
    assert shown and shown - known == set()


@pytest.mark.pages
def test_a_claim_of_the_readme_has_its_verdict(judged: Judged) -> None:
    verdicts: dict[str, set[str]] = {}
    for one in judged.decided:
        verdicts.setdefault(one.answer.claim, set()).add(str(one.answer.verdict))
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    for claim, *rest in rows:
        if claim in verdicts and (shown := re.match(r"\*\*(.+?)\*\*", rest[1])):
            assert shown[1] in verdicts[claim], claim
