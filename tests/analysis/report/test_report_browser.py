"""The page of `rlhf-lab report` in a real browser: drawn, worked with, small, dark, printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlhf_lab_analysis.report.series import LEVEL
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.statistics.curves import common_range, curve_of, values_on_grid
from rlhf_lab_analysis.statistics.intervals import mean_ends
from tests.support import table_records as made
from tests.support.browser import Page, browser, program
from tests.support.question_records import Made
from tests.support.report_pages import NASTY, nasty_records, page, two_conditions

CHROMIUM = program()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium on the PATH: install it, or set RLHF_LAB_BROWSER"
    ),
]
MEANS = "[...document.querySelectorAll('#chart path.mean')].map(p => p.getAttribute('d'))"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A tab that all tests of this file use in turn."""
    assert CHROMIUM
    with browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def show(tab: Page, tmp_path: Path) -> Iterator[Any]:
    """Opens the page of these runs; afterwards nothing may have been wrong with it."""

    def opened(records: list[Record], **options: Any) -> Page:
        path = tmp_path / "report.html"
        path.write_text(page(records, **options), encoding="utf-8")
        tab.open(path)
        return tab

    tab.errors.clear()
    tab.requests.clear()
    tab.prefer("light")
    tab.size(1280, 900)
    yield opened
    assert tab.errors == []
    assert [address for address in tab.requests if not address.startswith("file:")] == []


def choose(tab: Page, identity: str, text: str) -> None:
    """Choose an option as a user would."""
    tab.run(
        f"""{{ const s = document.getElementById({identity!r});
        s.value = [...s.options].find(o => o.text.startsWith({text!r})).value;
        s.dispatchEvent(new Event("change", {{ bubbles: true }})); }}"""
    )
    tab.settle()


def click(tab: Page, selector: str) -> None:
    tab.run(f"document.querySelector({selector!r}).click()")
    tab.settle()


def test_the_page_opens_and_draws_a_curve_for_each_condition(show: Any) -> None:
    tab = show(two_conditions())
    paths = tab.run(MEANS)
    assert len(paths) == 2
    # Five versions each: a point to begin at, and four lines.
    assert all(path.startswith("M") and path.count("L") == 4 for path in paths)
    assert "NaN" not in tab.run("document.getElementById('chart').innerHTML")
    assert tab.run("document.querySelectorAll('#chart path.area[d^=M]').length") == 2
    assert tab.run("document.querySelectorAll('#legend button[data-group]').length") == 2
    assert "n=3" in tab.run("document.querySelector('#legend button').textContent")
    assert tab.run("document.title") == "N = 1, 16 (PPO, TL;DR nano, 0.3M)"


def test_means_and_bands_are_those_of_the_statistics(show: Any) -> None:
    """Runs that measured at other places are brought to one grid, as by the statistics."""
    ends = {1: 0.7, 2: 0.75, 3: 0.9}
    seconds = {1: 10.0, 2: 12.0, 3: 15.0}
    records = [Made(seconds=seconds[seed]).run(seed, end) for seed, end in ends.items()]
    tab = show([*records])
    found = tab.run(
        """meanOf(DATA.groups[0].runs.map(
        run => curveOf(run, "versions", "x/wall_seconds", "gold/win_rate")), false, DATA.t)"""
    )
    titles = tab.run("DATA.groups.map(group => group.runs.length)")
    assert titles == [3]
    curves = [
        curve_of(str(seed), [seconds[seed] * v for v in range(5)],
                 [0.4 + (end - 0.4) * v / 4 for v in range(5)])
        for seed, end in ends.items()
    ]  # fmt: skip
    grid = np.linspace(*common_range(curves), 5)
    values_SF = values_on_grid(curves, grid)
    assert found["x"] == pytest.approx(grid, rel=1e-5)
    assert found["y"] == pytest.approx(values_SF.mean(axis=0), rel=1e-5)
    bounds = [mean_ends(values_S.tolist(), LEVEL) for values_S in values_SF.T]
    for name, expected in zip(("low", "high"), zip(*bounds, strict=True), strict=True):
        assert found[name] == pytest.approx(expected, rel=1e-4)


def test_along_kl_both_numbers_are_means_at_equal_versions(show: Any) -> None:
    records = [Made(kl=kl).run(seed, 0.8) for seed, kl in ((1, 2.0), (2, 6.0))]
    tab = show(records)
    choose(tab, "axis", "KL to SFT")
    found = tab.run(
        """meanOf(DATA.groups[0].runs.map(
        run => curveOf(run, "versions", "kl/sft_k1", "gold/win_rate")), true, DATA.t)"""
    )
    assert found["x"] == pytest.approx([0, 1, 2, 3, 4])
    assert found["y"] == pytest.approx([0.4, 0.5, 0.6, 0.7, 0.8])
    assert "Points are judged versions" in tab.run("document.getElementById('drawn').textContent")


def test_a_press_on_the_legend_hides_a_curve_and_another_shows_it(show: Any) -> None:
    tab = show(two_conditions())
    click(tab, "#legend button")
    assert len(tab.run(MEANS)) == 1
    assert (
        tab.run("document.querySelector('#legend button').getAttribute('aria-pressed')") == "false"
    )
    assert tab.run("document.querySelectorAll('#chart g.ink[data-group]')[0].dataset.group") == "1"
    click(tab, "#legend button")
    assert len(tab.run(MEANS)) == 2


def test_every_condition_can_be_hidden(show: Any) -> None:
    tab = show(two_conditions())
    click(tab, "#legend button[data-group='0']")
    click(tab, "#legend button[data-group='1']")
    assert tab.run(MEANS) == []
    assert "every condition is hidden" in tab.run("document.getElementById('chart').textContent")


def test_another_axis_or_metric_draws_anew(show: Any) -> None:
    tab = show(two_conditions())
    seen = [tab.run("document.getElementById('chart').innerHTML")]
    changes: tuple[Callable[[], None], ...] = (
        lambda: choose(tab, "axis", "wall-clock"),
        lambda: choose(tab, "metric", "KL to SFT"),
        lambda: click(tab, "#band"),
        lambda: click(tab, "#singles"),
    )
    for change in changes:
        change()
        drawn = tab.run("document.getElementById('chart').innerHTML")
        assert drawn not in seen and "NaN" not in drawn
        seen.append(drawn)
    assert tab.run("document.querySelectorAll('#chart path.single[d^=M]').length") == 6
    assert tab.run("document.querySelectorAll('#chart path.area').length") == 0


def test_what_is_pointed_at_is_read_out(show: Any) -> None:
    tab = show(two_conditions())
    tab.run("document.getElementById('chart').scrollIntoView({ behavior: 'instant' })")
    tab.settle()
    box = tab.run(
        "(b => [b.left, b.top, b.width, b.height])(document.querySelector('#chart svg')"
        ".getBoundingClientRect())"
    )
    tab.point(box[0] + box[2] - 15, box[1] + box[3] / 2)
    tab.settle()
    told = tab.run("document.getElementById('readout').textContent")
    assert "updates: 64" in told
    assert "0.8 [0.746, 0.845]" in told and "0.7 [0.648, 0.747]" in told and "n=3" in told


def test_keys_alone_read_the_curves_out(show: Any) -> None:
    tab = show(two_conditions())
    tab.run("document.getElementById('chart').focus()")
    for key, told in (("End", "updates: 64"), ("ArrowLeft", "updates: 48"), ("Home", "updates: 0")):
        tab.press(key)
        assert told in tab.run("document.getElementById('readout').textContent")
    tab.press("Escape")
    assert tab.run("document.querySelector('#chart .cross')") is None


def test_an_environment_has_curves_of_its_own(show: Any) -> None:
    others = Made(model="nano_m").runs((0.5, 0.6))
    tab = show([*two_conditions(), *others])
    assert tab.run("document.getElementById('env').options.length") == 2
    counts = []
    for place in (0, 1):
        choose(tab, "env", tab.run(f"DATA.envs[{place}]"))
        counts.append(len(tab.run(MEANS)))
    assert sorted(counts) == [1, 2]


@pytest.mark.parametrize("width", [320, 375, 400])
def test_a_phone_has_nothing_to_scroll_sideways(show: Any, width: int) -> None:
    tab = show([*two_conditions(), *nasty_records()], title=NASTY)
    tab.size(width, 740, is_phone=True)
    assert tab.run("document.documentElement.scrollWidth") == width
    assert tab.run("innerWidth") == width
    assert tab.run("document.querySelector('#chart svg').getBoundingClientRect().right") <= width
    # The tables do, in boxes of their own.
    wide = "[...document.querySelectorAll('.wide')].filter(b => b.scrollWidth > b.clientWidth)"
    assert tab.run(f"{wide}.length") >= 1
    assert tab.run(MEANS)


CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = colour => {
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
      .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  };
  const behind = node => {
    const colour = getComputedStyle(node).backgroundColor;
    const isClear = colour === "rgba(0, 0, 0, 0)" && node.parentElement;
    return isClear ? behind(node.parentElement) : colour;
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const says = [...node.childNodes].some(one => one.nodeType === 3 && one.textContent.trim());
    if (!says || !node.checkVisibility() || node.closest("script, style, option")) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(node.closest("svg") ? style.fill : style.color), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push([node.outerHTML.slice(0, 80), ratio]);
  }
  return found;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_enough_in_both_colours(show: Any, scheme: str) -> None:
    tab = show([*two_conditions(), made.record("cut", 4, state="failed")])
    tab.prefer(scheme)
    assert tab.run(CONTRAST) == []


def test_dark_is_what_the_system_prefers(show: Any) -> None:
    tab = show(two_conditions())
    back = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('#chart path.mean')).stroke"
    light, light_ink = tab.run(back), tab.run(ink)
    tab.prefer("dark")
    assert (light, tab.run(back)) == ("rgb(255, 255, 255)", "rgb(20, 23, 27)")
    assert light_ink != tab.run(ink)


def test_tables_are_sorted_by_their_heads(show: Any) -> None:
    tab = show([*two_conditions(), *Made(per_round=4).runs((0.71, 0.735, 0.75))])
    column = tab.run(
        "[...document.querySelectorAll('#runs thead th')].map(h => h.textContent)"
    ).index("gold win-rate")
    rows = "[...document.querySelectorAll('#runs tbody tr')]"
    values = f"{rows}.map(r => +r.cells[{column}].dataset.value)"
    for order in (1, -1):
        click(tab, f"#runs thead th:nth-child({column + 1}) button")
        found = tab.run(values)
        assert found == sorted(found, reverse=order < 0) and len(found) == 9
    assert tab.run("document.querySelectorAll('#runs [aria-sort=descending]').length") == 1


def test_runs_are_filtered_by_words(show: Any) -> None:
    tab = show([*two_conditions(), made.record("cut", 4, state="failed", config=Made().config)])
    shown = (
        "[...document.querySelectorAll('#runs tbody tr')].filter(r => r.checkVisibility()).length"
    )
    field = "document.getElementById('filter')"
    for words, left in (("n=16 finished", 3), ("FAILED", 1), ("nothing like it", 0), ("", 7)):
        tab.run(f"{field}.value = {words!r}; {field}.dispatchEvent(new Event('input'))")
        assert tab.run(shown) == left
    assert tab.run("document.getElementById('shown').textContent") == ""


def test_a_config_opens_with_what_the_run_has_of_its_own_set_apart(show: Any) -> None:
    tab = show([*two_conditions(), *Made(per_round=16).runs({4: 0.7})])
    assert tab.run("document.querySelector('details.config pre').textContent") == ""
    tab.run("document.querySelector('details.config').open = true")
    tab.run("new Promise(r => setTimeout(r, 50))")
    text = tab.run("document.querySelector('details.config pre').textContent")
    assert "algo.name: ppo\n" in text and "run.updates_per_round: 1\n" in text
    apart = tab.run("[...document.querySelectorAll('details.config mark')].map(m => m.textContent)")
    assert "run.updates_per_round: 1" in apart and "algo.name: ppo" not in apart


def test_names_that_look_like_markup_are_text(show: Any) -> None:
    tab = show(nasty_records(), title=NASTY)
    assert tab.run("document.querySelector('h1').textContent") == NASTY
    assert tab.run("document.querySelectorAll('b').length") == 0
    assert NASTY in tab.run("document.querySelector('#runs tbody').textContent")
    click(tab, "details.config summary")
    assert NASTY in tab.run("document.querySelector('details.config pre').textContent")


def test_runs_that_have_nothing_to_draw_are_told_so(show: Any) -> None:
    tab = show([made.record("r1", 1, state="failed")])
    assert "No run that counts" in tab.run("document.getElementById('chart').textContent")


def test_a_curve_of_one_seed_has_no_band(show: Any) -> None:
    tab = show(Made().runs((0.8,)))
    assert len(tab.run(MEANS)) == 1
    assert tab.run("document.querySelectorAll('#chart path.area[d^=M]').length") == 0
    assert math.isclose(tab.run("DATA.groups[0].runs[0].versions['gold/win_rate'][4]"), 0.8)


def test_printed_it_is_light_and_whole(show: Any) -> None:
    tab = show(two_conditions())
    tab.prefer("dark")
    ink = "getComputedStyle(document.body).color"
    assert tab.run(ink) == "rgb(230, 233, 237)"
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    tab.call("Emulation.setEmulatedMedia", media="print", features=dark)
    tab.settle()
    assert tab.run(ink) == "rgb(27, 31, 36)"
    assert not tab.run("document.getElementById('choice').checkVisibility()")
    assert tab.run("document.querySelector('#chart path.mean').checkVisibility()")
    assert tab.run("getComputedStyle(document.querySelector('.wide')).overflowX") == "visible"
    tab.call("Emulation.setEmulatedMedia", media="")
