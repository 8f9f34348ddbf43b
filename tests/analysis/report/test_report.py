"""The page of `rlhf-lab report`, read as text: numbers, escaping, links, bytes."""

from __future__ import annotations

import math
import re
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest

from rlhf_lab.cli.analysis import REPORT
from rlhf_lab.cli.main import run_command
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.questions import answers_of
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.ranges import ranges_text
from rlhf_lab_analysis.report.bars import EDGE, WIDTH, bar, scale_of
from rlhf_lab_analysis.report.groups import name_groups
from rlhf_lab_analysis.report.make import SCRIPTS
from rlhf_lab_analysis.report.rendering import environment
from rlhf_lab_analysis.report.results import number_cell
from rlhf_lab_analysis.report.run_table import configs
from rlhf_lab_analysis.report.series import FEWEST, POINTS, even_indices
from rlhf_lab_analysis.rounding import number_text
from rlhf_lab_analysis.statistics.decisions import NO_WIDTH
from rlhf_lab_analysis.statistics.results import Basis, Estimate, Options
from rlhf_lab_analysis.tables.store import save
from tests.support import table_records as made
from tests.support.question_records import Made
from tests.support.report_pages import (
    HIGH_N,
    LOW_N,
    NASTY,
    Texts,
    data_of,
    ladder_page,
    nasty_page,
    page,
    two_conditions,
)

pytestmark = pytest.mark.usefixtures("costly")

QUIET = Console(quiet=True)
# (1 + 0.95) / 2 of Student's t with 2 degrees of freedom, times 0.02 / sqrt(3).
HALF = 4.302653 * 0.02 / math.sqrt(3)


def test_results_are_means_over_seeds_with_t_intervals() -> None:
    found = Texts(ladder_page())
    assert found.row("N=1")[:3] == ["N=1", "3 (1 to 3)", "0.800 [0.746, 0.845]"]
    assert found.row("N=16")[2] == "0.700 [0.648, 0.747]"
    # On log odds: log(.8 / .2) less HALF / (.8 * .2) is log(.7457 / .2543).
    low = 1 / (1 + math.exp(HALF / 0.16) / 4)
    assert low == pytest.approx(0.7457, abs=1e-4)


def test_the_page_says_how_many_runs_and_of_which_code() -> None:
    found = Texts(page(two_conditions(), title="A ladder")).text
    assert "A ladder" in found
    assert "6 runs, 2 conditions, 3 seeds (1 to 3). Code: c0dec0de (6 runs)." in found


def test_verdicts_are_those_of_the_questions_with_their_numbers() -> None:
    records = two_conditions()
    every = answers_of(cells(made.tables(*records)), Criteria()).every
    found = Texts(ladder_page()).text
    assert every
    for one in every:
        assert {one.claim in found, one.runs in found} == {True}
        assert str(one.verdict) in found
        for number in one.numbers:
            assert number.text in found and number.label in found
    assert any(number.text.startswith("-10.0 [") for one in every for number in one.numbers)


def test_a_question_without_its_runs_says_which_it_takes() -> None:
    found = Texts(ladder_page()).text
    assert "make sweep SWEEP=sync_async_nano" in found


def test_the_data_of_curves_are_those_of_the_tables() -> None:
    data = data_of(ladder_page())
    assert [group["title"] for group in data["groups"]] == ["N=1", "N=16"]
    first = {"id": "gold/win_rate", "label": "gold win-rate", "of": "versions", "share": True}
    first |= {"least": 0}
    assert data["metrics"][0] == first
    assert data["t"]["3"] == pytest.approx(4.302653, rel=1e-5)
    for group, ends in zip(data["groups"], (LOW_N, HIGH_N), strict=True):
        assert [run["seed"] for run in group["runs"]] == [1, 2, 3]
        for run, end in zip(group["runs"], ends, strict=True):
            assert run["versions"]["x/updates"] == [0, 16, 32, 48, 64]
            expected = np.linspace(0.4, end, 5)
            assert run["versions"]["gold/win_rate"] == pytest.approx(expected)
            assert run["versions"]["kl/sft_k1"] == [0, 0.5, 1, 1.5, 2]


def test_the_same_runs_give_the_same_bytes_in_any_order() -> None:
    assert ladder_page() == page(two_conditions()[::-1])


def test_the_page_asks_nothing_of_a_network() -> None:
    text = nasty_page()
    assert "http:" not in text.replace(f'"{SVG}"', "") and "https:" not in text
    assert "@import" not in text and "url(" not in text
    loading = {name for _, held in Texts(text).elements for name in held} & {"src", "srcset"}
    assert loading == set()
    assert "default-src 'none'" in text


SVG = "http://www.w3.org/2000/svg"


def test_names_cannot_break_out_of_the_page() -> None:
    text = nasty_page()
    found = Texts(text)
    scripts = [held for tag, held in found.elements if tag == "script"]
    assert len(scripts) == 2 and "alert(1)" not in "".join(map(str, scripts))
    assert "<b>" not in text and NASTY not in text.replace("\\", "")
    assert found.text.count(NASTY) >= 4
    assert f"{NASTY} 1" in data_of(text)["configs"]["own"]


def test_texts_attributes_and_data_are_escaped() -> None:
    source = (
        '<p title="{{ text }}">{{ text }}</p>'
        '<script type="application/json" id="data">{{ data | tojson }}</script>'
    )
    data = {"a": ["</script>", "\u2028&'"]}
    text = environment().from_string(source).render(text='"<&>', data=data)
    assert text.startswith('<p title="&#34;&lt;&amp;&gt;">&#34;&lt;&amp;&gt;</p>')
    assert text.count("</script>") == 1 and "\u2028" not in text
    assert data_of(text) == data
    with pytest.raises(ValueError, match="not JSON compliant"):
        environment().from_string(source).render(text="", data=[math.nan])


def test_every_table_head_has_a_scope_and_every_table_a_name() -> None:
    found = Texts(ladder_page())
    heads = [held for tag, held in found.elements if tag == "th"]
    assert heads and all(held.get("scope") in ("col", "row") for held in heads)
    tags = [tag for tag, _ in found.elements]
    assert tags.count("caption") == tags.count("table") == 2
    assert {"header", "main", "nav", "footer"} <= set(tags)
    ids = [held["id"] for _, held in found.elements if "id" in held]
    assert len(ids) == len(set(ids))
    drawings = [held for tag, held in found.elements if tag == "svg"]
    assert drawings and all(held["role"] == "img" and held["aria-label"] for held in drawings)


def test_findings_runs_that_do_not_count_and_few_seeds_are_told() -> None:
    records = [*two_conditions(), made.record("cut", 4, state="failed", config=Made().config)]
    found = Texts(page(records)).text
    assert "cut short (" in found and "runs/cut: its state is failed" in found
    assert "left out: runs/cut (its state is failed)" in found
    assert "tldr_nano-nano_s: N=1: 3 (1 to 3)" in found


def test_one_seed_has_a_number_and_no_interval() -> None:
    row = Texts(page(Made().runs((0.8,)))).row("PPO sync")
    assert row[1:3] == ["1 (1)", "0.800 one seed"]


def test_a_number_that_a_seed_lacks_is_marked() -> None:
    records = Made().runs((0.78, 0.80, math.nan))
    text = page(records)
    row = Texts(text).row("PPO sync")
    assert row[2].startswith("0.790 [") and row[2].endswith("*")
    assert 'title="no number of seed 3"' in text


def test_runs_that_were_never_judged_are_drawn_over_their_rounds() -> None:
    records = [made.record(f"r{seed}", seed, evals=()) for seed in (1, 2)]
    data = data_of(page(records))
    assert ("reward/mean", "rounds") in [(m["id"], m["of"]) for m in data["metrics"]]
    assert data["groups"][0]["runs"][0]["rounds"]["reward/mean"] == [0.125, 0.25, 0.375, 0.5]


def test_another_metric_comes_first_in_curves_results_and_runs() -> None:
    text = page(two_conditions(), metric="kl/sft_k1")
    assert data_of(text)["metrics"][0]["id"] == "kl/sft_k1"
    assert any(row[::2][:2] == ["N=1", "2 [2, 2]"] for row in Texts(text).rows)
    assert Texts(text).row("run")[2] == "KL to SFT (nats a sequence)"


def test_long_curves_are_thinned_and_the_page_says_so() -> None:
    rounds = made.rounds(2000)
    records = [made.record(f"r{seed}", seed, rounds=rounds) for seed in (1, 2)]
    text = page(records)
    xs = data_of(text)["groups"][0]["runs"][0]["rounds"]["x/updates"]
    assert len(xs) == POINTS and (xs[0], xs[-1]) == (1, 2000)
    assert f"thinned to {POINTS} points a run" in Texts(text).text
    assert "thinned to" not in Texts(ladder_page()).text


def test_many_runs_get_fewer_points_each(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [made.record(f"r{seed}", seed, rounds=made.rounds(400)) for seed in range(1, 6)]
    monkeypatch.setattr("rlhf_lab_analysis.report.series.NUMBERS", 4000)
    text = page(records)
    runs = data_of(text)["groups"][0]["runs"]
    numbers = [len(c) for run in runs for of in ("rounds", "versions") for c in run[of].values()]
    assert FEWEST * 30 < sum(numbers) <= 4000
    assert f"thinned to {max(numbers)} points a run" in Texts(text).text


@pytest.mark.parametrize(
    ("length", "most", "kept"), [(3, 5, [0, 1, 2]), (9, 3, [0, 4, 8]), (10, 4, [0, 3, 6, 9])]
)
def test_thinning_keeps_both_ends(length: int, most: int, kept: list[int]) -> None:
    assert even_indices(length, most) == kept


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.500"), (64.0, "64"), (-0.0004, "-0.0004"), (math.nan, "–"), (1234.5, "1234"),  # noqa: RUF001
     (0.0, "0.000")],
)  # fmt: skip
def test_numbers_are_told_in_few_digits(value: float, text: str) -> None:
    assert number_text(value) == text


def test_seeds_in_a_row_are_told_as_a_range() -> None:
    given = ([3, 1, 2], [1, 2], [1, 2, 4], [1, 3, 4, 5, 7, 9, 8])
    assert [ranges_text(x) for x in given] == ["1 to 3", "1, 2", "1, 2, 4", "1, 3 to 5, 7 to 9"]


def test_a_bar_has_zero_margin_and_interval_in_their_places() -> None:
    one = Estimate("d", 0.02, -0.02, 0.06, Basis((3,), 1, Options()))
    scale = scale_of([one], 0.0, 0.1)
    # From -0.1 to 0.1 with 6% of that on both sides: 0 is in the middle.
    inner = WIDTH - 2 * EDGE
    assert scale.at(0.0) == pytest.approx(WIDTH / 2)
    assert scale.at(0.06) == pytest.approx(WIDTH / 2 + inner * 0.06 / 0.224, abs=0.06)
    drawn = bar(one, scale, "d")
    assert (drawn.origin, drawn.point) == (WIDTH / 2, scale.at(0.02))
    assert "the shaded margin ±0.100" in drawn.text


def test_groups_have_short_names_in_order_of_their_numbers_and_looks_of_their_own() -> None:
    records = [
        run
        for algo in ("ppo", "online_dpo")
        for mode in ("sync", "async")
        for n in (16, 4, 1)
        for run in Made(algo=algo, mode=mode, per_round=n).runs((0.7, 0.8))
    ]
    selection = cells(made.tables(*records), unjudged=True)
    groups = name_groups(selection.cells)
    assert selection.left_out == ()
    assert [group.title for group in groups][:4] == [
        *("online DPO async N=1", "online DPO async N=4", "online DPO async N=16"),
        "online DPO sync N=1",
    ]
    assert len({group.look for group in groups}) == len(groups) == 12


def test_quantities_that_cannot_be_negative_have_no_negative_ends() -> None:
    assert number_cell({1: 0.1, 2: 5.0}, "kl/sft_k1").note.startswith(" [0.000, ")
    assert number_cell({1: 0.1, 2: 5.0}, "gold/mean").note.startswith(" [-")
    # An estimate below 0 stays within its interval.
    assert number_cell({1: -0.1, 2: -0.2}, "kl/sft_k1").note.startswith(" [-0.150, ")


def test_configs_are_what_most_have_and_what_a_run_has_of_its_own() -> None:
    found = configs(made.tables(*two_conditions(), *Made(per_round=16).runs({4: 0.7})))
    assert found["common"]["run.updates_per_round"] == "16"
    own = {name: config for name, config in found["own"].items() if "per_round=1 " in name}
    assert len(own) == 3
    assert {config["run.updates_per_round"] for config in own.values()} == {"1"}
    assert all("algo.name" not in config for config in found["own"].values())


def test_the_files_of_the_page_are_shipped_with_the_package() -> None:
    root = Path(__file__).resolve().parents[3]
    told = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    shipped = told["package-data"]["rlhf_lab_analysis.report"]
    folder = root / "analysis" / "report"
    data = [str(path.relative_to(folder)) for path in (folder / "templates").iterdir()]
    assert {f"templates/{name}" for name in ("page.html", "page.css", *SCRIPTS)} <= set(data)
    assert all(any(fnmatch(name, pattern) for pattern in shipped) for name in data)
    found = told["packages"]["find"]
    assert "src" in found["where"] and "rlhf_lab*" in found["include"]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Six runs as folders; one has a drawn timeline."""
    for number, one in enumerate(two_conditions()):
        made.write_run(tmp_path / "runs" / f"a run #{number}", one)
    drawn = tmp_path / "runs" / "a run #0"
    (drawn / "timeline.jsonl").touch()
    (drawn / "timeline.html").touch()
    return tmp_path


def test_the_command_writes_a_page_that_links_to_the_files_of_runs(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folders / "pages" / "r.html"
    assert run_command("report", [str(folders / "runs"), "--out", str(out)]) == 0
    assert re.search(r"wrote .*r\.html \(0\.\d\d MB\)", capsys.readouterr().out)
    links = [held["href"] for tag, held in Texts(out.read_text()).elements if tag == "a"]
    files = [link for link in links if link and not link.startswith("#")]
    assert files[:2] == [
        "../runs/a%20run%20%230/config.yaml",
        "../runs/a%20run%20%230/timeline.html",
    ]
    assert len(files) == 7


def test_saved_tables_give_the_same_page_as_their_runs(folders: Path) -> None:
    from rlhf_lab_analysis.tables.gather import gather

    runs, saved = folders / "runs", folders / "t.parquet"
    save(gather([str(runs)]), saved)
    pages = []
    for source in (runs, saved):
        out = folders / f"{source.name}.html"
        REPORT.run([str(source), "--out", str(out), "--title", "t"], QUIET)
        pages.append(out.read_text())
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--out", "page.txt"], "ends in .html"),
        (["--margin", "0"], "--margin 0"),
        (["--margin", "nan"], "--margin nan"),
    ],
)
def test_what_cannot_be_is_refused(folders: Path, options: list[str], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        REPORT.run([str(folders / "runs"), *options], QUIET)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    # With the package itself, whose attributes would else be the modules imported here.
    for name in [name for name in sys.modules if name.split(".")[0] == "rlhf_lab_analysis"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(UserError, match=re.escape("pip install 'rlhf-lab[analysis]'")):
        REPORT.run(["runs"], QUIET)


def test_a_number_without_a_width_has_its_reason() -> None:
    ends = (0.8, 0.8, 0.8)
    records = [*Made().runs(ends), *Made(mode="async", seconds=6.0).runs(ends)]
    assert NO_WIDTH in Texts(page(records)).text
    assert NO_WIDTH not in Texts(ladder_page()).text
