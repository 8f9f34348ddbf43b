"""Tables with intervals: numbers worked by hand, escapes, one seed, no runs."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import escaped
from rlhf_lab_analysis.plots.style import Style
from rlhf_lab_analysis.publication_tables import command
from rlhf_lab_analysis.publication_tables.command import TABLES, make_tables
from rlhf_lab_analysis.publication_tables.formats import (
    FORMATS,
    Entry,
    Measured,
    PublicationTable,
    as_csv,
    as_latex,
    as_markdown,
    latex,
    save,
)
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.sources.record import Record, Row
from rlhf_lab_analysis.tables.store import save as save_tables
from rlhf_lab_analysis.tables.table import Tables
from tests.support.table_records import config, evals, record, rounds, tables, write_run

pytestmark = pytest.mark.usefixtures("costly")

NASTY = 'a&b_c%$#{}~^\\|<i>"[*]--\n\x1b'
T_2 = 4.302652729911275
WIN = "gold/win_rate"


def run(seed: int, mode: str = "sync", win: float = 0.5, **changes: Any) -> Record:
    """A run of four rounds that ends at a win-rate, from 0.25 at its start."""
    rows: list[Row] = [
        {**row, WIN: 0.25 if row["version"] == 0 else win, "kl/sft_k1": 0.0} for row in evals()
    ]
    own = {"run": f"{mode}-{seed}", "config": config(seed, mode), "evals": rows}
    own |= {"place": f"runs/{mode}-{seed}"}
    return record(seed=seed, **{**own, **changes})


def both(sync: Sequence[float], other: Sequence[float], **changes: Any) -> Tables:
    """Sync and async runs with these win-rates, by seed from 1 on."""
    made = [run(seed, "sync", win) for seed, win in enumerate(sync, 1)]
    return tables(*made, *(run(n, "async", win, **changes) for n, win in enumerate(other, 1)))


def one(name: str, made: Tables, options: TableOptions | None = None) -> list[dict[str, Entry]]:
    """The rows of the only table of a name."""
    (table,) = make_tables(name, made, options)
    return rows_of(table)


def rows_of(table: PublicationTable) -> list[dict[str, Entry]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def ends(entry: Entry) -> tuple[float, float, float]:
    assert isinstance(entry, Measured)
    return entry.point, entry.low, entry.high


# How they are written.


def test_what_latex_markdown_and_html_would_read_is_written_out() -> None:
    assert latex("a&b_c%$#{}") == r"a\&b\_c\%\$\#\{\}"
    assert latex('~^\\<>|"') == (
        r"\textasciitilde{}\textasciicircum{}\textbackslash{}"
        r"\textless{}\textgreater{}\textbar{}\textquotedbl{}"
    )
    assert latex("[1]* a-b a--b ---\n c") == "{[}1{]}{*} a-b a-{}-b -{}-{}- c"
    assert escaped("a|b <i>&amp; *x*_y_ [l](u) `c` ~s~ $m$ # \\") == (
        r"a\|b &lt;i&gt;&amp;amp; \*x\*\_y\_ \[l\](u) \`c\` \~s\~ \$m\$ \# " + "\\\\"
    )
    assert latex("\x1b") == r"\textbackslash{}x1b" and "\n" not in escaped("a\nb")


def test_a_table_in_three_formats() -> None:
    number = Measured(-0.5, -math.inf, 0.25, digits=1)
    table = PublicationTable(
        "t_1", NASTY, ("a|b", "n", "x"), ((NASTY, 2, number), ("b", None, 1.5)), ("!%",)
    )
    as_text = as_latex(table)
    assert r"\label{tab:t-1}" in as_text and r"\begin{tabular}{@{}lrr@{}}" in as_text
    assert rf"{latex(NASTY)} & $2$ & $-0.5$ {{\scriptsize $[-\infty , 0.2]$}} \\" in as_text
    assert r"b &  & $1.500$ \\" in as_text and as_text.startswith("% !%\n")
    many = PublicationTable("t", "", ("a", "b"), (("[1]", 2),) * 100)
    assert r"\begin{longtable}{@{}lr@{}}" in as_latex(many)
    assert as_markdown(table).splitlines()[2:] == [
        r"| a\|b | n | x |",
        "| --- | --: | --: |",
        f"| {escaped(NASTY)} | 2 | -0.5 [-inf, 0.2] |",
        "| b |  | 1.500 |",
        "",
        "- !%",
    ]
    rows = list(csv.reader(as_csv(table).splitlines(keepends=True)))
    assert rows == [
        ["a|b", "n", "x", "x low", "x high"],
        [NASTY, "2", "-0.5", "-inf", "0.25"],
        ["b", "", "1.5", "", ""],
    ]


def test_names_of_runs_are_escaped_wherever_they_come_from() -> None:
    odd = [
        run(seed, evals=[*evals(), *()], config=config(seed) | {"exp_name": NASTY, "env_id": "<b>"})
        for seed in (1, 2)
    ]
    for table in make_tables(("results", "runs", "settings", "sft"), tables(*odd)):
        assert "<b>" not in as_markdown(table) and "<i>" not in as_markdown(table)
        body = "".join(one for one in as_latex(table).splitlines() if not one.startswith("%"))
        assert "<" not in body and "a&b" not in body and "\x1b" not in body


def test_a_rounded_zero_has_no_sign() -> None:
    assert Measured(-0.0001, -0.4, 0.0).text() == "0.000 [-0.400, 0.000]"
    assert Measured(0.5).text() == "0.500"


# What is in them.


def test_results_have_the_mean_and_its_t_interval() -> None:
    made = tables(*(run(seed, win=seed / 10) for seed in (1, 2, 3)))
    (table,) = make_tables("results", made, TableOptions(("win_rate", "kl", "reward")))
    (row,) = rows_of(table)
    # On log odds: error .1 / sqrt 3 over p (1 - p) = .16, around log(.2 / .8).
    half, centre = T_2 * 0.1 / math.sqrt(3) / 0.16, math.log(0.25)
    low, high = (1 / (1 + math.exp(-(centre + sign * half))) for sign in (-1, 1))
    assert ends(row["gold win-rate"]) == pytest.approx((0.2, low, high))
    assert "95% t intervals, of shares on log odds" in table.caption
    assert (row["condition"], row["n"], row["seeds"]) == ("GRPO sync", 3, "1 to 3")
    assert row["KL to SFT, nats"] == Measured(0.0, digits=2), "nothing varies: no interval"
    assert "3 runs of 1 condition, n = 3 seeds." in table.caption
    assert any("3 seeds, fewer than 5" in text for text in table.notes)


def test_a_metric_is_of_versions_or_of_the_last_rounds_and_some_run_has_it() -> None:
    recorded = [run(n, rounds=rounds(metrics={"reward/mean": n / 8})) for n in (1, 2)]
    judged = [run(n, "async", evals=evals(metrics={"gold/mean": n})) for n in (1, 2)]
    (table,) = make_tables(
        "results", tables(*recorded, *judged), TableOptions(("reward/mean", "gold"))
    )
    rows = {row["condition"]: row for row in rows_of(table)}
    assert ends(rows["sync"]["training reward"])[0] == pytest.approx(3 / 16)
    assert rows["sync"]["gold score"] is None
    assert ends(rows["async"]["gold score"])[0] == pytest.approx(1.5)
    assert any("not every run has gold/mean: sync" in text for text in table.notes)
    with pytest.raises(UserError, match="gold/none: no run has such numbers"):
        make_tables("results", tables(*judged), TableOptions(("gold/none",)))


def test_what_is_never_negative_has_no_negative_end() -> None:
    slow = [{**row, "seconds/wall": 40 * row["seconds/wall"]} for row in rounds()]
    (table,) = make_tables("results", tables(run(1), run(2, rounds=slow)))
    seconds = rows_of(table)[0]["wall-clock, s"]
    assert isinstance(seconds, Measured)
    assert seconds.low == 0.0 < seconds.point < seconds.high


def test_one_seed_has_no_interval_and_is_not_compared() -> None:
    made = both([0.5, 0.6], [0.7])
    first, second = one("results", made)
    assert first["n"] == 1 and first["gold win-rate"] == Measured(0.7)
    assert second["n"] == 2
    lacking = make_tables("differences", made)
    assert all(not table.rows and "one seed alone" in table.notes[0] for table in lacking)
    (table,) = make_tables("results", made)
    assert any("one seed: no interval" in text for text in table.notes)
    assert "n = 1 to 2 seeds" in table.caption


def test_differences_are_paired_with_p_level_and_a_verdict() -> None:
    options = TableOptions(metrics=(WIN,), margin=0.05)
    (table,) = make_tables("differences", both([0.5, 0.6, 0.7], [0.51, 0.62, 0.73]), options)
    (row,) = rows_of(table)
    # The interval of two one-sided tests: the 95% quantile of t with 2 degrees of freedom.
    half = 2.919985580355516 * 0.01 / math.sqrt(3)
    assert row["level"] == "90%"
    assert ends(row["difference"]) == pytest.approx((0.02, 0.02 - half, 0.02 + half))
    # t = 0.02 / (0.01 / sqrt 3); with 2 degrees of freedom p = 1 - t / sqrt(2 + t^2).
    p = 1 - math.sqrt(12) / math.sqrt(14)
    assert [ends(row[name])[0] for name in ("p", "p (corrected)")] == pytest.approx([p, p])
    assert (row["condition"], row["baseline"], row["seeds"]) == ("async", "sync", "3 pairs")
    assert row["verdict"] == "equal within 5 points"
    assert "Margin, stated beforehand: 5 points." in table.caption
    (row,) = one("differences", both([0.5, 0.6, 0.7], [0.3, 0.41, 0.49]), options)
    assert row["verdict"] == "worse by more than 5 points"


def test_several_comparisons_are_corrected_together() -> None:
    """The same change under two algorithms is one claim, another change is another one."""

    def of(algo: str, mode: str, wins: Sequence[float]) -> list[Record]:
        own = [config(n, mode) | {"algo": {"name": algo}} for n in (1, 2, 3)]
        return [
            run(n, run=f"{algo}-{mode}-{n}", win=win, config=own[n - 1], place=f"{algo}/{mode}/{n}")
            for n, win in enumerate(wins, 1)
        ]

    sync, later = [0.5, 0.6, 0.7], [0.51, 0.62, 0.73]
    made = tables(
        *of("ppo", "sync", sync), *of("ppo", "async", later), *of("ppo", "lagged", later),
        *of("dpo", "sync", sync), *of("dpo", "async", later),
    )  # fmt: skip
    rows = one("differences", made, TableOptions(metrics=(WIN,)))
    p = 1 - math.sqrt(12) / math.sqrt(14)
    found: dict[Any, Any] = {
        row["condition"]: (row["level"], ends(row["p (corrected)"])[0]) for row in rows
    }
    assert found == {
        "dpo async": ("95%", pytest.approx(2 * p)),
        "PPO async": ("95%", pytest.approx(2 * p)),
        "PPO lagged": ("90%", pytest.approx(p)),
    }
    assert [ends(row["p"])[0] for row in rows] == pytest.approx([p] * 3)


def test_a_lower_kl_is_better_and_needs_a_margin_of_its_own() -> None:
    def drifted(seed: int, mode: str, kl: float) -> Record:
        return run(seed, mode, evals=evals(metrics={"kl/sft_k1": kl * (1 + seed / 100)}))

    made = tables(*(drifted(n, mode, kl) for mode, kl in (("sync", 1.0), ("async", 3.0))
                    for n in (1, 2, 3)))  # fmt: skip
    options = TableOptions(metrics=("kl/sft_k1",))
    assert one("differences", made, options)[0]["verdict"] == "no margin stated"
    options = TableOptions(metrics=("kl/sft_k1",), margins={"kl/sft_k1": 0.5})
    (row,) = one("differences", made, options)
    assert row["verdict"] == "worse by more than 0.5"
    assert ends(row["difference"])[0] == pytest.approx(2.04)


def test_a_baseline_is_the_same_condition_with_other_parts() -> None:
    made = tables(*(run(n, config=config(n, per_round=per), run=f"r{n}-{per}")
                    for per in (1, 2, 4) for n in (1, 2)))  # fmt: skip
    rows = one("differences", made, TableOptions(metrics=(WIN,), baseline="N=2"))
    assert [(row["condition"], row["baseline"]) for row in rows] == [("N=1", "N=2"), ("N=4", "N=2")]
    usual = one("differences", made, TableOptions(metrics=(WIN,)))
    assert [(row["condition"], row["baseline"]) for row in usual] == [
        ("N=2", "N=1"), ("N=4", "N=1"),
    ]  # fmt: skip
    by_name = one("differences", made, TableOptions(metrics=(WIN,), baseline="N=4"))
    assert {row["baseline"] for row in by_name} == {"N=4"}
    assert make_tables("differences", made, TableOptions(baseline="N=3")) == []
    for text in ("n=1", "mode=sync", "mode", "N"):
        with pytest.raises(UserError, match=f"--baseline {text}: pass KEY=VALUE .*N=1; N=2; N=4"):
            make_tables("differences", made, TableOptions(baseline=text))


def test_runs_that_differ_in_any_setting_are_compared_with_the_first() -> None:
    rates = (1e-4, 3e-4)
    made = [
        run(n, run=f"{rate}-{n}", config=config(n) | {"optim": {"lr": rate}})
        for rate in rates
        for n in (1, 2)
    ]
    (row,) = one("differences", tables(*made), TableOptions((WIN,)))
    assert (row["condition"], row["baseline"]) == ("learning rate 0.0003", "learning rate 0.0001")


def test_corrected_samples_are_compared_with_fresh_ones_that_need_no_correction() -> None:
    def of(seed: int, stale: int, correction: str) -> Record:
        own = config(seed, "lagged") | {"correction": {"name": correction}}
        own["mode"] = {"name": "lagged", "max_staleness": stale}
        return run(seed, run=f"{stale}{correction}{seed}", config=own)

    levels = ((0, "none"), (2, "none"), (2, "icepop"))
    made = tables(*(of(seed, *level) for level in levels for seed in (1, 2)))
    rows = one("differences", made, TableOptions(metrics=(WIN,)))
    assert sorted((str(row["condition"]), row["baseline"]) for row in rows) == [
        ("IcePop S=2", "no correction S=0"), ("no correction S=2", "no correction S=0"),
    ]  # fmt: skip


def half_time(row: Mapping[str, Any]) -> dict[str, Any]:
    return dict(row) | {"seconds/wall": row["seconds/wall"] / 2}


def test_costs_have_ratios_of_their_baseline() -> None:
    fast = [half_time(row) for row in rounds()]
    made = both([0.5, 0.6], [0.5, 0.6], rounds=fast)
    (row,) = one("differences", made, TableOptions(("wall_clock",)))
    assert (row["condition"], row["baseline"]) == ("async", "sync")
    assert row["wall-clock, s"] == Measured(20.0, digits=1)
    assert row["baseline's wall-clock, s"] == Measured(40.0, digits=1)
    assert row["times less"] == Measured(2.0, digits=2), "no seed differs: no interval"
    (row,) = one("differences", made, TableOptions(("completions",)))
    assert row["times less"] == Measured(1.0, digits=2)


def test_the_sft_policies_count_a_seed_once() -> None:
    (row,) = one("sft", both([0.5, 0.6], [0.7, 0.8]), TableOptions(metrics=(WIN,)))
    assert (row["n"], row["seeds"], row["gold win-rate"]) == (2, "1, 2", Measured(0.25))
    later = [run(n, evals=evals([2, 4])) for n in (1, 2)]
    assert make_tables("sft", tables(*later)) == []


def test_settings_are_those_that_matter_or_differ() -> None:
    def of(seed: int, algo: str, rate: float) -> Record:
        own = config(seed) | {"algo": {"name": algo, f"{algo}_only": 3}, "optim": {"lr": rate}}
        own |= {"hidden": {"same": 1, "other": algo}}
        return run(seed, config=own, run=f"{algo}-{seed}-{rate}")

    made = tables(of(1, "ppo", 1e-4), of(1, "dpo", 1e-4), of(2, "dpo", 1e-4))
    rows = {row["setting"]: row for row in one("settings", made)}
    assert rows["optim.lr"] == {"setting": "optim.lr", "dpo": "0.0001", "PPO": "0.0001"}
    assert rows["algo.ppo_only"]["dpo"] == "-" and rows["algo.ppo_only"]["PPO"] == "3"
    assert "hidden.other" in rows and "hidden.same" not in rows and "algo.name" not in rows
    ladder = [run(1, config=config(1, per_round=n), run=f"n{n}") for n in (16, 4, 1)]
    ladder += [of(1, "ppo", 1e-4)]
    rows = {row["setting"]: row for row in one("settings", tables(*ladder))}
    assert rows["run.updates_per_round"]["GRPO"] == "1, 4, 16", "by size"


def test_table_6_has_async_beside_sync() -> None:
    made = both([0.5, 0.6, 0.7], [0.51, 0.62, 0.73], rounds=[half_time(row) for row in rounds()])
    options = TableOptions(("win_rate", "wall_clock"), baseline="mode=sync", margin=0.05)
    quality, seconds = make_tables("differences", made, options)
    (row,) = rows_of(quality)
    assert ends(row["baseline's gold win-rate"])[0] == pytest.approx(0.6)
    assert ends(row["gold win-rate"])[0] == pytest.approx(0.62)
    assert row["verdict"] == "equal within 5 points"
    assert rows_of(seconds)[0]["times less"] == Measured(2.0, digits=2)


def test_a_style_orders_rows_and_names_and_chooses_columns() -> None:
    made = both([0.5, 0.6], [0.5, 0.7])
    style = Style(order=("sync",), labels={"async": "ours", "n": "runs"}, heads=("condition", "n"))
    results, *others = make_tables(("results", "settings"), made, TableOptions(style=style))
    assert results.columns == ("condition", "runs")
    assert [row[0] for row in results.rows] == ["sync", "ours"]
    assert [len(table.columns) > 2 for table in others] == [True], "it has none of these columns"
    alike = TableOptions(style=Style(labels={"async": "ours", "sync": "ours"}))
    assert [row["condition"] for row in one("results", made, alike)] == ["ours", "ours"]
    with pytest.raises(UserError, match=r"order: lagged: no condition .*async; sync"):
        make_tables("results", made, TableOptions(style=Style(order=("lagged",))))
    with pytest.raises(UserError, match=r"heads: seed: no table has this column; .*condition"):
        make_tables("results", made, TableOptions(style=Style(heads=("seed",))))


@pytest.mark.pages
def test_no_caption_of_the_kept_tables_is_longer_than_a_journal_allows(
    kept_benchmark: Tables,
) -> None:
    for table in make_tables(list(TABLES), kept_benchmark):
        assert len(table.caption) <= 600, table.name


def test_the_run_list_has_every_run_and_what_is_wrong_with_it() -> None:
    tuned = config(101) | {"tracker": {"sweep": "", "condition": "trial=000"}}
    made = tables(run(1), run(2, state="died"), record("t", 101, config=tuned))
    (table,) = make_tables("runs", made)
    rows = {row["run"]: row for row in rows_of(table)}
    assert {name: row["counts"] for name, row in rows.items()} == {
        "sync-1": "yes", "sync-2": "no", "t": "no",
    }  # fmt: skip
    assert rows["t"]["role"] == "tuning" and rows["t"]["findings"] == "tuning"
    assert rows["sync-2"]["findings"] == "cut_short"
    assert rows["sync-1"]["wall-clock, s"] == Measured(40.0, digits=1)
    assert rows["sync-1"]["device-hours"] == Measured(80 / 3600, digits=4)
    assert len(table.notes) == 2 and "1 count in comparisons" in table.caption


def test_tuning_runs_are_in_no_comparison() -> None:
    tuned = config(101) | {"tracker": {"sweep": "", "condition": "trial=000"}}
    made = tables(run(1), run(2), record("t", 101, config=tuned))
    (table,) = make_tables("results", made)
    assert [row["seeds"] for row in rows_of(table)] == ["1, 2"]
    assert any("it tuned a search" in text for text in table.notes)


def test_no_run_that_counts_leaves_the_run_list() -> None:
    made = tables(run(1, state="died"))
    assert [name for name in TABLES if make_tables(name, made)] == ["runs"]


# The command.


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    given = parser.parse_args(arguments)
    return exit_code("publication-tables", lambda: command.run(given, Console(quiet=False)))


def test_the_command_writes_from_runs_and_from_saved_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for mode in ("sync", "async"):
        for seed in (1, 2):
            write_run(tmp_path / f"runs/{mode}/{seed}", run(seed, mode, 0.5 + seed / 10))
    out = tmp_path / "new" / "out"
    given = ["--out", str(out), "--only", "differences", "--metric", WIN, "--margin", "0.1"]
    assert main([str(tmp_path / "runs"), *given]) == 0
    said = capsys.readouterr().out
    assert "4 runs, 2 conditions, 2 seeds (1, 2)" in said and "1 row" in said
    names = sorted(path.name for path in out.iterdir())
    assert names == [f"differences-gold_win_rate.{end}" for end in ("csv", "md", "tex")]
    first = (out / names[0]).read_text()
    save_tables(both([0.6, 0.7], [0.6, 0.7]), tmp_path / "t.parquet")
    assert main([str(tmp_path / "t.parquet"), *given]) == 0
    assert (out / names[0]).read_text() == first
    assert main([str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert "settings" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--margin", "x"], "--margin x: pass a number"),
        (["--margin", "kl=x"], "pass a number"),
        (["--baseline", "depth=1"], "--baseline depth=1: pass KEY=VALUE"),
        (["--only", "best"], "--only best: pass one of results"),
        (["--metric", "gold/wins"], "did you mean gold/win_rate"),
        (["--level", "2"], "level=2.0"),
    ],
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], complaint: str
) -> None:
    save_tables(both([0.5, 0.6], [0.5, 0.6]), tmp_path / "t.parquet")
    assert main([str(tmp_path / "t.parquet"), "--out", str(tmp_path / "out"), *more]) == 2
    assert complaint in capsys.readouterr().err
    with pytest.raises(UserError, match="pass one of results"):
        make_tables("nonsense", both([0.5], [0.5]))


def test_tables_take_their_places_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (PublicationTable(name, "what", ("a",), (("1",),)) for name in ("one", "two"))
    save([first, second], tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(before) == 2 * len(FORMATS)
    changed = [replace(table, caption="other") for table in (first, second)]
    plain = Path.write_text

    def full(path: Path, text: str, **options: Any) -> int:
        if "two.csv" in path.name:
            raise OSError(28, "No space left on device")
        return plain(path, text, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="two"):
        save(changed, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
