"""Notebooks: the cells of their scripts with stored outputs, and every cell runs."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.notebooks.pairing import (
    executed,
    notebook_of,
    scripts,
    write,
)
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.tables.store import save
from tests.support.figure_tables import end_of, run_of
from tests.support.table_records import config, evals, record, rounds, tables

pytestmark = pytest.mark.usefixtures("costly")

SCRIPTS = scripts()
# It trains runs of its own; the others show tables.
TRAINING = "train_a_tiny_run"
SHOWING = [path for path in SCRIPTS if path.stem != TRAINING]
WITHOUT_FIGURE = ("aggregates_and_tests", "paper_tables")
SEEDS = (1, 2, 3)
SPENT = {"generate": 2.0, "score": 1.0, "train": 4.0, "wait": 1.0}
SECONDS = {f"seconds/{phase}": seconds for phase, seconds in SPENT.items()}
Condition = tuple[str, float, dict[str, dict[str, Any]]]


def ladder(sweep: str, part: str, key: str, levels: dict[str, float]) -> list[Condition]:
    """N = 1 and 4 at each level of something; N = 4 costs a tenth. levels: with win-rates."""
    return [
        (sweep, win - loss, {"run": {"updates_per_round": n}, part: {key: level}})
        for level, win in levels.items()
        for n, loss in ((1, 0.0), (4, 0.1))
    ]


def line(sweep: str, part: str, key: str, levels: dict[Any, float]) -> list[Condition]:
    """One part at several levels, with their win-rates."""
    return [(sweep, win, {part: {key: level}}) for level, win in levels.items()]


def stale(rounds_old: int, correction: str, win: float) -> Condition:
    """A staleness with a correction."""
    mode = {"name": "lagged", "max_staleness": rounds_old}
    return "staleness_nano", win, {"mode": mode, "correction": {"name": correction}}


CONDITIONS: list[Condition] = [
    *ladder("off_policy_ladder_nano", "algo", "name", {"ppo": 0.8, "online_dpo": 0.7}),
    *ladder("policy_scale_nano", "model", "name", {"nano_s": 0.6, "nano_m": 0.7}),
    *ladder("rate_schedule_nano", "optim", "schedule_per", {"update": 0.6, "round": 0.55}),
    *line("sync_async_nano", "mode", "name", {"sync": 0.6, "async": 0.59}),
    *ladder("reward_scale_nano", "proxy", "name", {"nano_s": 0.6, "nano_m": 0.7}),
    *line("over_optimisation_nano", "reward", "name", {"reward_model": 0.6, "ensemble": 0.62}),
    *line("passes_nano", "run", "passes", {1: 0.6, 2: 0.63}),
    *line("samples_per_prompt_nano", "run", "group_size", {2: 0.6, 4: 0.61}),
    *[stale(*level) for level in ((0, "none", 0.6), (1, "none", 0.57), (4, "none", 0.5))],
    *[stale(*level) for level in ((1, "truncated_is", 0.59), (4, "truncated_is", 0.55))],
]


def seen_at(version: int, win: float, seed: int) -> dict[str, Any]:
    """What is judged of a version: straight lines up to the win-rate, apart by seed."""
    return {
        "gold/win_rate": 0.2 + (win - 0.2) * version / 4 + seed / 100,
        "gold/mean": 1.0 + version,
        "accuracy/mean": (0.1 + version / 10) * win,
        "proxy/mean": 2.0 * version,
        "kl/sft_k1": version * (0.5 + win) + seed / 50,
    }


def of_sweep(sweep: str, seed: int, win: float, **changed: dict[str, Any]) -> Record:
    """A run of a sweep, to this win-rate, whose config has other values in some parts."""
    name = "-".join(f"{key}={value}" for part in changed.values() for key, value in part.items())
    own = config(seed)
    for part, values in changed.items():
        own[part] = {**own.get(part, {}), **values}
    own["tracker"] = {"sweep": sweep, "condition": f"level={name}"}
    judged = [
        dict(row) | seen_at(version, win, seed) for version in (0, 2, 4) for row in evals([version])
    ]
    place = f"runs/{sweep}/{name}/seed-{seed}"
    return record(
        place, seed, config=own, evals=judged, rounds=rounds(4, metrics=SECONDS), place=place,
        sweep=sweep, swept=own["tracker"]["condition"],
    )  # fmt: skip


def some_runs() -> Iterator[Record]:
    """Conditions of every sweep that a notebook is about, three seeds each."""
    for seed, (sweep, win, changed) in product(SEEDS, CONDITIONS):
        yield of_sweep(sweep, seed, win, **changed)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("saved") / "t.parquet"
    save(tables(*some_runs()), place)
    return place


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_is_its_script_without_outputs(script: Path) -> None:
    text = script.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert text == f"{nbformat.writes(notebook_of(script))}\n", "notebooks --plain writes it anew"
    assert not any(cell.get("outputs") for cell in json.loads(text)["cells"])


def test_notebooks_are_as_their_schema_says() -> None:
    schema = pytest.importorskip("nbformat", reason="needs pip install 'rlhf-lab[dev]'")
    for script in SCRIPTS:
        schema.validate(schema.from_dict(notebook_of(script)))


def test_every_notebook_has_a_script() -> None:
    folder = SCRIPTS[0].parent
    assert {path.stem for path in folder.glob("*.ipynb")} == {path.stem for path in SCRIPTS}


def test_a_script_in_cells(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text(
        "# ---\n# jupyter:\n#   nbformat: 4\n# ---\n"
        "# %% [markdown]\n# # T\n#\n# a\n\n# %%\nx = 1\n\n\ny = 2\n\n# %%\nx\n"
    )
    assert scripts(tmp_path) == [script]
    assert [(cell.cell_type, cell.source) for cell in notebook_of(script).cells] == [
        ("markdown", "# T\n\na"),
        ("code", "x = 1\n\n\ny = 2"),
        ("code", "x"),
    ]
    kept = json.loads(nbformat.writes(notebook_of(script)))
    first, second, _ = kept["cells"]
    assert first["source"] == ["# T\n", "\n", "a"] and second["source"][-1] == "y = 2"


def shown_by(text: str, names: dict[str, Any]) -> Any:
    """Run a cell; what its last line says, as a notebook shows it."""
    body = ast.parse(text).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


@pytest.mark.parametrize("script", SHOWING, ids=lambda path: path.stem)
def test_every_cell_of_a_script_runs_and_shows_something(
    script: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(view.VARIABLE, str(saved))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(view, "DPI", 40)
    names: dict[str, Any] = {}
    cells = notebook_of(script).cells
    shown = [shown_by(cell.source, names) for cell in cells if cell.cell_type == "code"]
    frames = [one for one in shown if isinstance(one, pd.DataFrame)]
    views = [one for one in shown if isinstance(one, view.Shown)]
    assert len(frames) == 1 and len(frames[0]), "no data frame to touch"
    assert len(views) == len(shown) - 1 and all(one.text for one in views)
    bundles = [bundle for one in views for bundle in one.bundles()]
    assert not any("\\_" in bundle["text/plain"] for bundle in bundles)
    if script.stem not in WITHOUT_FIGURE:
        assert any("image/png" in bundle for bundle in bundles), "no figure"
    if "view.answer" in script.read_text(encoding="utf-8"):
        assert any("**" in one.text or "To make them" in one.text for one in views), "no verdict"
    assert any("| --- |" in one.text for one in views), "no table"


def test_a_notebook_is_written_with_what_a_kernel_shows(tmp_path: Path) -> None:
    pytest.importorskip("nbclient", reason="needs pip install 'rlhf-lab[dev]'")
    pytest.importorskip("ipykernel", reason="needs pip install 'rlhf-lab[dev]'")
    script = tmp_path / "s.py"
    script.write_text('# %%\nprint("of this machine")\n"shown"\n')
    path = write(script, tmp_path / "run")
    assert path == tmp_path / "run" / "s.ipynb" and (tmp_path / "s.ipynb").is_file()
    notebook = json.loads(path.read_text(encoding="utf-8"))
    ((output,),) = [cell["outputs"] for cell in notebook["cells"]]
    assert output["data"] == {"text/plain": ["'shown'"]}


@pytest.mark.slow
def test_a_notebook_that_shows_figures_runs_in_a_kernel(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nbclient", reason="needs pip install 'rlhf-lab[dev]'")
    pytest.importorskip("ipykernel", reason="needs pip install 'rlhf-lab[dev]'")
    monkeypatch.setenv(view.VARIABLE, str(saved))
    roots = [str(path) for path in (Path("src").absolute(), Path().absolute())]
    known = [*roots, os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, known)))
    script = next(path for path in SCRIPTS if path.stem == "paper_figures")
    notebook = executed(notebook_of(script))
    outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    assert any("image/png" in one.get("data", {}) for one in outputs)
    assert not any(one.output_type == "error" for one in outputs)


@pytest.mark.slow
def test_the_notebook_that_trains_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLHF_LAB_NOTEBOOK_SIZE", "debug=tiny")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {}
    script = next(path for path in SCRIPTS if path.stem == TRAINING)
    cells = [cell.source for cell in notebook_of(script).cells if cell.cell_type == "code"]
    last = [shown_by(source, names) for source in cells][-1]
    assert set(last["mode"]) == {"sync", "async"}


def test_a_figure_without_its_runs_is_refused_with_their_sweep() -> None:
    alone = tables(record())
    with pytest.raises(UserError, match="policy_scale"):
        view.figure("fig5_policy_scale", alone)
    assert "nothing to put in it" in view.table("differences", alone).text
    assert view.of_sweeps(alone, "passes") is alone


def test_a_page_about_chats_reads_those_before_other_runs() -> None:
    """Whatever else is in the tables, and its title is that of what it read."""
    names = ("sync_async_nano", "chats")
    of_each = [
        run_of(1, {"mode": "sync", "model": f"of_{one}"}, end_of(1, 0), one) for one in names
    ]
    for held, read in ((of_each, "chats"), (of_each[:1], "sync_async_nano")):
        runs = view.of_first_sweep(tables(*held), "chats", "sync_async")
        assert set(runs.runs["sweep"]) == {read}
        (title,) = re.findall(r"of_\w+", view.about(runs).__repr__())
        assert title == f"of_{read}"
    alone = tables(record())
    assert view.of_first_sweep(alone, "chats", "sync_async") is alone


def test_outside_of_a_notebook_the_plain_text_is_displayed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view.lines("a*b")._ipython_display_()
    assert "- a*b" in capsys.readouterr().out


def test_the_tables_of_the_benchmark_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(view.VARIABLE, raising=False)
    monkeypatch.setattr(view, "gather", lambda places: places)
    assert view.tables() == [str(view.BENCHMARK)]  # type: ignore[comparison-overlap]
    assert view.BENCHMARK.resolve().parts[-3:] == ("analysis", "benchmark", "tables.parquet")
