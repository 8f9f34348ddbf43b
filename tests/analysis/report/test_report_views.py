"""What the report's page shows on demand: filters, links to a view, values, files, samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.runs.schema import RolloutSample
from rlhf_lab_analysis.report.make import Options, html
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.tables.gather import gather
from tests.support import table_records as made
from tests.support.browser import Page, browser, program
from tests.support.question_records import Made
from tests.support.report_pages import page, two_conditions

CHROMIUM = program()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium on the PATH: install it, or set RLHF_LAB_BROWSER"
    ),
]
SHOWN = "[...document.querySelectorAll('#chart path.mean')].length"
ROWS = "[...document.querySelectorAll('#runs tbody tr')].filter(r => r.checkVisibility()).length"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
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
    tab.size(1280, 900)
    yield opened
    assert tab.errors == []


def modes() -> list[Record]:
    """Sync and async, which answer one question, and a ladder, which answers another."""
    ends = (0.78, 0.80, 0.82)
    modes = [*Made(seconds=10).runs(ends), *Made(mode="async", seconds=6).runs(ends)]
    return [*modes, *Made(per_round=16).runs(ends)]


def set_value(tab: Page, identity: str, value: str) -> None:
    """Enter a value or choose an option, which has both events in a browser."""
    tab.run(
        f"{{ const c = document.getElementById({identity!r}); c.value = {value!r};"
        " for (const event of ['input', 'change'])"
        " c.dispatchEvent(new Event(event, { bubbles: true })); }"
    )
    tab.settle()


def question(tab: Page, text: str) -> str:
    return str(tab.run(f"String(DATA.questions.findIndex(q => q.text.includes({text!r})))"))


def test_where_modes_differ_wall_clock_comes_first_and_the_speed_up_is_named(show: Any) -> None:
    tab = show(modes())
    assert tab.run("DATA.axes[get('axis').value].id") == "x/wall_seconds"
    headline = tab.run("document.querySelector('.headline').textContent")
    assert "1.67 [1.67, 1.67] times" in headline
    # Sync and async alone at first, with their names at the ends of the lines.
    assert tab.run(SHOWN) == 2
    names = tab.run("[...document.querySelectorAll('#chart .label text')].map(t => t.textContent)")
    assert sorted(name.split()[0] for name in names) == ["async", "sync"]


def test_a_question_leaves_its_conditions_everywhere(show: Any) -> None:
    tab = show(modes())
    every = tab.run(ROWS)
    set_value(tab, "question", question(tab, "does async cost"))
    assert tab.run("[...document.querySelectorAll('#legend [data-group]')].length") == 2
    assert (every, tab.run(ROWS)) == (9, 6)
    visible = "[...document.querySelectorAll('[data-question]')].filter(b => !b.hidden).length"
    assert tab.run(visible) == 1
    assert "6 of 9 runs, 2 of 3 conditions" in tab.run("get('shown').textContent")
    tab.run("get('clear').click()")
    assert tab.run(ROWS) == 9


def test_words_leave_conditions_whose_runs_have_them(show: Any) -> None:
    tab = show(modes())
    set_value(tab, "filter", "async")
    assert tab.run("[...document.querySelectorAll('#legend [data-group]')].length") == 1
    assert tab.run(ROWS) == 3
    results = "[...document.querySelectorAll('#results tbody tr')].filter(r => !r.hidden).length"
    assert tab.run(results) == 1


def test_the_values_stand_at_the_pointer(show: Any) -> None:
    tab = show(two_conditions())
    tab.run("document.getElementById('chart').scrollIntoView({ behavior: 'instant' })")
    box = tab.run("(b => [b.left, b.top, b.width, b.height])(get('chart').getBoundingClientRect())")
    for share in (0.2, 0.8):
        x = box[0] + share * box[2]
        tab.point(x, box[1] + box[3] / 2)
        tab.settle()
        left, right = tab.run("(b => [b.left, b.right])(get('readout').getBoundingClientRect())")
        cross = tab.run("document.querySelector('#chart .cross').getBoundingClientRect().left")
        assert min(abs(left - cross), abs(right - cross)) < 30
        assert box[0] <= left and right <= box[0] + box[2] + 1


def test_what_keys_reach_is_spoken(show: Any) -> None:
    tab = show(two_conditions())
    tab.run("document.getElementById('chart').focus()")
    tab.press("End")
    assert "updates 64: N=1 0.8 [0.746, 0.845]" in tab.run("get('spoken').textContent")


def test_downloads_hold_what_is_shown(show: Any) -> None:
    tab = show(two_conditions())
    rows = tab.run("csvText(curveRows())").splitlines()
    assert rows[0] == "sweep,environment,condition,seed,n,x/updates,gold/win_rate,low,high"
    assert len(rows) == 1 + 2 * 5
    set_value(tab, "filter", "N=16")
    assert len(tab.run("csvText(curveRows())").splitlines()) == 1 + 5
    runs = tab.run("csvText(tableRows('runs'))").splitlines()
    assert len(runs) == 1 + 3 and runs[0].startswith("run,state")


def test_cells_that_a_spreadsheet_would_run_are_text(show: Any) -> None:
    tab = show(two_conditions())
    assert tab.run("csvText([['=1+1', '@x', '-0.5', 'a,b', 'q\"', 0.25, NaN]])") == (
        '\'=1+1,\'@x,-0.5,"a,b","q""",0.25,\n'
    )


def test_a_share_has_no_band_beyond_its_range(show: Any) -> None:
    tab = show(Made(start=0.5).runs((0.99, 0.90, 0.6)))
    low, high = tab.run("(m => [Math.min(...m.low), Math.max(...m.high)])(drawn.shown[0].mean)")
    assert 0 < low < high < 1


def test_of_many_conditions_some_are_shown_and_the_rest_on_demand(show: Any) -> None:
    records = [one for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) for one in
               Made(per_round=n, updates=1024).runs((0.7, 0.8))]  # fmt: skip
    tab = show(records)
    assert tab.run(SHOWN) == 8
    tab.run("[...document.querySelectorAll('#legend .all')][0].click()")
    assert tab.run(SHOWN) == 10


def test_long_tables_are_shown_in_parts(show: Any) -> None:
    records = [one for n in range(1, 31) for one in Made(per_round=n, updates=240).runs((0.7,) * 4)]
    tab = show(records)
    assert tab.run(ROWS) == 100
    assert tab.run("get('more-runs').textContent") == "show 20 more of 120 runs"
    tab.run("get('more-runs').click()")
    assert tab.run(ROWS) == 120
    assert tab.run("csvText(tableRows('runs'))").count("\n") == 121


def sample(round_: int, number: int) -> dict[str, Any]:
    return RolloutSample(
        round=round_, updates=round_, prompt_id=number, uid=f"u{number}", sample=0,
        prompt=f"<b>prompt {number}</b>", response=f"response of round {round_}", reward=0.5,
        credit=0.1, is_kept=True, version=round_, newest_version=round_, lag_rounds=1,
        lag_updates=2, tokens=5, finish="eos", steps=[],
    ).row()  # fmt: skip


def test_samples_of_a_run_and_round_are_chosen(tab: Page, tmp_path: Path) -> None:
    folder = made.write_run(tmp_path / "runs" / "one", Made().runs((0.8,))[0])
    made.write_lines(folder / "rollouts.jsonl", [sample(r, n) for r in range(9) for n in range(6)])
    judged = {"prompt": "what", "sample": "zebras", "reference": "wanted", "gold": 1.5}
    made.write_lines(folder / "samples.jsonl", [judged])
    path = tmp_path / "report.html"
    tables = gather([str(tmp_path / "runs")])
    path.write_text(html(tables, Options()), encoding="utf-8")
    tab.open(path)
    names = tab.run("[...get('sample-round').options].map(o => o.text)")
    assert names[0] == "round 0" and names[-3:] == ["round 8", "last evaluation", "all rounds"]
    assert len(names) == 8
    text = tab.run("get('sample-list').textContent")
    assert "<b>prompt 0</b>" in text and "2 updates, 1 round" in text
    set_value(tab, "sample-round", "last evaluation")
    assert "wanted" in tab.run("get('sample-list').textContent")
    assert "zebras" in html(tables, Options())
    assert "zebras" not in html(tables, Options(texts=False))


def test_samples_are_found_by_reward_length_and_text(tab: Page, tmp_path: Path) -> None:
    folder = made.write_run(tmp_path / "runs" / "one", Made().runs((0.8,))[0])
    turns = [
        {"writer": "policy", "text": "ask", "reward": -0.5, "logps": [-0.25, -1.5],
         "token_texts": ["ask", "<b>"], "version": 1, "newest_version": 2, "versions": [1, 2]},
        {"writer": "environment", "text": "told", "token_texts": ["told"]},
    ]  # fmt: skip
    kept = [
        {"reward": 0.5, "tokens": 9, "response": "first"},
        {"reward": 2.0, "tokens": 3, "response": "second"},
        {"reward": -1.0, "tokens": 5, "response": "third", "turns": turns},
    ]
    rows = [sample(number, number) | values for number, values in enumerate(kept)]
    made.write_lines(folder / "rollouts.jsonl", rows)
    path = tmp_path / "report.html"
    path.write_text(html(gather([str(tmp_path / "runs")]), Options()), encoding="utf-8")
    tab.open(path)
    set_value(tab, "sample-round", "all rounds")
    shown = "[...document.querySelectorAll('.sample dd')].map(d => d.textContent)"

    def order(name: str) -> list[str]:
        set_value(tab, "sample-order", name)
        return [text for text in tab.run(shown) if text.startswith("round")]

    assert order("highest reward first") == ["round 1", "round 0", "round 2"]
    assert order("shortest first") == ["round 1", "round 2", "round 0"]
    set_value(tab, "sample-text", "ASK")
    lines = "[...document.querySelectorAll('.turn')].map(d => d.textContent)"
    assert tab.run(lines) == [
        "policy, 2 tokens of versions 1 to 2, in the loss, reward -0.5ask",
        "environment, 1 token, masked from the losstold",
    ]


def test_bands_of_few_seeds_are_shown_on_demand(show: Any) -> None:
    tab = show([*Made().runs((0.8, 0.9)), *Made(per_round=16).runs((0.6, 0.7))])
    assert tab.run("document.querySelectorAll('#chart path.area').length") == 0
    tab.run("get('band').click()")
    tab.settle()
    assert tab.run("document.querySelectorAll('#chart path.area').length") == 2


def test_a_band_of_what_cannot_be_negative_ends_at_zero(show: Any) -> None:
    tab = show([Made(kl=kl).run(seed, 0.8) for seed, kl in ((1, 0.1), (2, 5.0))])
    set_value(tab, "metric", tab.run("String(DATA.metrics.findIndex(m => m.id === 'kl/sft_k1'))"))
    assert tab.run("Math.min(...drawn.shown[0].mean.low)") == 0


def test_differences_are_made_in_pairs_of_seeds(show: Any) -> None:
    """Seeds that differ much, and conditions that differ by a tenth in each of them."""
    ends = {1: 0.5, 2: 0.7, 3: 0.9}
    less = {seed: end - 0.1 - 0.01 * seed for seed, end in ends.items()}
    tab = show([*Made().runs(ends), *Made(per_round=16).runs(less)])
    tab.run("get('paired').click()")
    tab.settle()
    assert tab.run("drawn.shown.length") == 1
    sign = 1 if tab.run("drawn.shown[0].group.title") == "N=1" else -1
    mean, low, high = tab.run("(m => [m.y, m.low, m.high].map(v => v.at(-1)))(drawn.shown[0].mean)")
    # 0.11, 0.12 and 0.13: 0.12, and 4.302653 times 0.01 / sqrt(3) on both sides.
    assert mean == pytest.approx(sign * 0.12)
    assert (low, high) == pytest.approx((mean - 0.0248412, mean + 0.0248412), abs=1e-5)
    title = tab.run("document.querySelector('#chart .title').textContent")
    assert "less that of N=" in title
