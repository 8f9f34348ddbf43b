"""What each algorithm learns: the tables, what is refused, and the gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.pages import learning
from rlhf_lab_analysis import markdown
from tests.support import study_runs

PAGE = f"# Title\n\n{markdown.BEGIN}\nan earlier table\n{markdown.END}\n\nThe rest.\n"
MODES = {"sync": ("sync", 0, 1), "async": ("async", 1, 1), "N=16": ("sync", 0, 16)}


def make_run(root: Path, algo: str, condition: str, seed: int, gain: float, **names: str) -> Path:
    """A finished run: gold reward from 0.5 to 0.5 + gain, win-rate from 40% to (60 + seed)%.
    names: of other parts of its config."""
    mode, staleness, updates_per_round = MODES[condition]
    settings: dict[str, Any] = {
        "algo": {"name": algo},
        "mode": {"name": mode, "max_staleness": staleness},
        "run": {"updates": 32, "groups_per_update": 64, "updates_per_round": updates_per_round,
                "group_size": 4},
        "tracker": {"sweep": f"{root.name}-{algo}-{condition}"},
    }  # fmt: skip
    for part, name in names.items():
        settings[part] = {**settings.get(part, {}), "name": name}
    versions = [
        {"version": version, "gold/win_rate": rate, "gold/mean": reward, "kl/sft_k1": kl,
         "eval/prompts": 256}
        for version, rate, reward, kl in (
            (0, 0.4, 0.5, 0.0),
            (4, 0.6 + seed / 100, 0.5 + gain, float(seed)),
        )
    ]  # fmt: skip
    return study_runs.make_run(root / f"{algo}-{condition}-{seed}", seed, versions, settings)


def make_runs(root: Path, seeds: tuple[int, ...] = (1, 2, 3)) -> None:
    """Two algorithms, three conditions; gains of 0.2, 0.3 and 0.4."""
    for algo in ("a", "b"):
        for condition in MODES:
            for seed in seeds:
                make_run(root, algo, condition, seed, 0.1 + seed / 10)


def table_of(text: str, title: str) -> list[str]:
    """The lines of a printed table below its title: heads, first row and second row."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(title))
    return lines[start + 1 : start + 5]


def test_numbers_are_means_over_seeds_with_students_intervals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_runs(tmp_path)
    assert learning.main([str(tmp_path)]) == 0
    text = capsys.readouterr().out
    heads, start, *rows = table_of(text, "gold win-rate")
    assert heads.split() == ["algorithm", "sync", "async", "S=1", "N=16"]
    assert start.split() == ["SFT", "(start)", *["40.0"] * 3]
    # 61, 62, 63: mean 62, standard error 1 / sqrt(3), t = 4.303
    assert [row.split() for row in rows] == [[a, *["62.0", "[59.5,", "64.5]"] * 3] for a in "ab"]
    # 1, 2, 3 nats: 2 with the same half-width of 2.48
    assert table_of(text, "KL")[1].split() == ["a", *["2.00", "[-0.48,", "4.48]"] * 3]
    # 0.2, 0.3, 0.4: mean 0.3, a tenth of that half-width
    gains = ["0.30", "[0.05,", "0.55],", "smallest", "0.20"] * 3
    assert table_of(text, "gain")[1].split() == ["a", *gains]
    assert "Means over 3 seeds (1 to 3)" in text
    assert (
        "arithmetic with nano_s, 32 updates of 64 prompts with K=4 completions each, judged on 256"
        in text
    )


def test_an_offline_algorithm_stands_beside_those_that_sample(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for condition in MODES:
        make_run(tmp_path, "grpo", condition, 1, 0.2, generator="hf")
        make_run(tmp_path, "dpo", condition, 1, 0.3, generator="pairs")
    assert learning.main([str(tmp_path)]) == 0
    assert table_of(capsys.readouterr().out, "gain")[1].split()[0] == "dpo"
    make_run(tmp_path / "more", "ppo", "sync", 1, 0.2, generator="vllm")
    assert learning.main([str(tmp_path)]) == 2
    assert "generator.name" in capsys.readouterr().err


def test_runs_from_before_an_option_stand_beside_those_with_its_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path, "grpo", "sync", 1, 0.2)
    make_run(tmp_path, "grpo", "async", 1, 0.2)
    for condition in ("sync", "async"):
        folder = make_run(tmp_path, "rloo", condition, 1, 0.2)
        add_options(folder, {"accuracy_by": ""}, changed=[])
    assert learning.main([str(tmp_path)]) == 0
    assert "rloo" in capsys.readouterr().out
    add_options(folder, {"accuracy_by": "policies"}, changed=["reward_model.accuracy_by"])
    assert learning.main([str(tmp_path)]) == 2
    assert "reward_model.accuracy_by=policies" in capsys.readouterr().err


def add_options(folder: Path, options: dict[str, str], changed: list[str]) -> None:
    """Give a run's recorded config options of reward_model, and its manifest the changed keys."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    text = json.dumps({**manifest, "changed": changed})
    (folder / "manifest.json").write_text(text, encoding="utf-8")
    (path,) = folder.glob("config.*")
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump({**config, "reward_model": options}), encoding="utf-8")


def test_a_table_of_one_seed_has_no_intervals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_runs(tmp_path, seeds=(2,))
    assert learning.main([str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert table_of(text, "gold win-rate")[2].split() == ["a", "62.0", "62.0", "62.0"]
    assert "One seed (2), so there are no intervals" in text


def test_lagged_runs_stand_in_for_async_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path, "a", "sync", 1, 0.3)
    make_run(tmp_path, "a", "async", 1, 0.3, mode="lagged")
    assert learning.main([str(tmp_path), "--margin", "0.1"]) == 0
    assert "async S=1" in capsys.readouterr().out


def test_a_correction_has_a_row_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "none", "a", "sync", 1, 0.3, correction="none")
    make_run(tmp_path / "clip", "a", "sync", 1, 0.2, correction="clip")
    assert learning.main([str(tmp_path)]) == 0
    lines = table_of(capsys.readouterr().out, "gain")
    assert [line.split("  ")[0] for line in lines[1:3]] == ["a", "a, clip"]


def test_the_gate_opens_when_all_gained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_runs(tmp_path)
    # At larger N it may fail to learn: that is a finding.
    make_run(tmp_path / "more", "a", "N=16", 4, -1.0)
    assert learning.main([str(tmp_path), "--margin", "0.1"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == "all 2 algorithms gained at least 0.1 in sync and async"


def test_the_gate_names_who_gained_too_little(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, own in ((1, 0.5), (2, -0.25), (3, 0.5)):
        make_run(tmp_path, "a", "sync", seed, 0.3)
        make_run(tmp_path, "a", "async", seed, own)
        make_run(tmp_path, "b", "sync", seed, 0.05)
        make_run(tmp_path, "c", "sync", seed, 0.3)
        make_run(tmp_path, "c", "async", seed, float("nan"))
    assert learning.main([str(tmp_path), "--margin", "0.1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4:] == [
        "a, async S=1, seed 2: gain -0.25 is not above 0",
        "b, sync: mean gain 0.05 is below 0.1",
        "b, async S=1: no run",
        "c, async S=1: no run",
    ]
    assert sum(line.startswith("left out") and "gold/mean" in line for line in lines) == 1


def test_a_missing_condition_and_a_missing_seed_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2, 3):
        make_run(tmp_path, "a", "sync", seed, 0.3)
    make_run(tmp_path, "a", "async", 2, 0.3)
    make_run(tmp_path, "b", "sync", 1, 0.3)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert learning.main([str(tmp_path), "--docs", str(page)]) == 0
    text = capsys.readouterr().out
    assert "no run" in table_of(text, "KL")[2]
    for line in ("a, async S=1: no run of seed 1, 3", "b, sync: no run of seed 2, 3"):
        assert line in text.splitlines()
        assert f"- {line}" in page.read_text().splitlines()


def test_a_seed_that_occurs_twice_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [make_run(tmp_path / name, "a", "sync", 1, 0.3) for name in ("x", "y")]
    assert learning.main([str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "seed=1 of a, sync occurs twice" in said
    assert all(str(folder) in said for folder in folders)


def test_runs_that_differ_in_more_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path, "a", "sync", 1, 0.3)
    make_run(tmp_path, "a", "sync", 2, 0.3, model="larger")
    assert learning.main([str(tmp_path)]) == 2
    assert "model.name=larger" in capsys.readouterr().err


def test_a_folder_without_runs_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert learning.main([str(tmp_path)]) == 2
    assert "holds nothing to read" in capsys.readouterr().err


def test_the_tables_replace_what_stands_between_the_markers(tmp_path: Path) -> None:
    make_runs(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert learning.main([str(tmp_path), "--docs", str(page)]) == 0
    text = page.read_text()
    assert text.startswith(f"# Title\n\n{markdown.BEGIN}\n\nMeans over 3 seeds")
    assert text.endswith(f"\n\n{markdown.END}\n\nThe rest.\n")
    assert "an earlier table" not in text
    head = "**KL to SFT, nats a sequence**\n\n| algorithm | sync | async S=1 | N=16 |\n"
    cells = " | ".join(["2.00 [-0.48, 4.48]"] * 3)
    assert f"{head}| --- | --- | --- | --- |\n| a | {cells} |\n" in text
    assert learning.main([str(tmp_path), "--docs", str(page)]) == 0
    assert page.read_text() == text, "written again, the page is the same"


@pytest.mark.parametrize(
    "text", [None, "# Title\n", f"{markdown.END}\n{markdown.BEGIN}\n", PAGE + PAGE]
)
def test_a_page_without_its_markers_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    make_runs(tmp_path / "runs", seeds=(1,))
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    assert learning.main([str(tmp_path / "runs"), "--docs", str(page)]) == 2
    assert markdown.BEGIN in capsys.readouterr().err
    assert (page.read_text() if page.exists() else None) == text


@pytest.mark.pages
def test_the_page_of_the_project_has_its_markers() -> None:
    markdown.split_at_markers(Path(__file__).parents[3] / "docs" / "learning.md")
