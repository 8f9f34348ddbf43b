"""Options by their former names: on the command line, in YAML files, and in what runs recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.cli.arguments import recorded_overrides
from rlhf_lab.cli.explain import explanation
from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.renamed_files import present_file, read_earlier_names
from rlhf_lab.runs import renames
from rlhf_lab.runs.identity import recorded_settings
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.record import look_up
from rlhf_lab_analysis.tables.saved import read_saved
from tests.support.composed import by_hydra
from tests.support.examples import call


@pytest.fixture(autouse=True)
def unwarned() -> None:
    renames.warn.cache_clear()


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("mode.at_bound=drop", "mode.when_stale=drop"),
        ("++mode.ahead=2", "++mode.extra_rounds=2"),
        ("mode.weights=newest,newest_in_sequence", "mode.weights=latest,latest_per_token"),
        ("budget@run=paper", "run=paper"),
        ("budget=nano,paper", "run=nano,paper"),
        ("~budget@run", "~run"),
        ("generator=hf,vllm_server", "generator=hf,vllm"),
        ("+generator=vllm_server", "+generator=vllm"),
        ("generator.urls=[http://vllm_server:1]", "generator.urls=[http://vllm_server:1]"),
        ("engine.stage=0,1,3", "engine.stage=2,2,3"),
        ("mode=replay", "mode=recorded"),
        ("mode=replay,replayed", "mode=recorded,replayed"),
        ("run.updates=4", "run.updates=4"),
        ("output.dir=runs/newest", "output.dir=runs/newest"),
        ("--config-dir=budget", "--config-dir=budget"),
    ],
)
def test_an_override_with_a_former_name_is_one_with_the_present_name(
    former: str, present: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert renames.present_overrides([former, former]) == [present] * 2
    warnings = capsys.readouterr().err.splitlines()
    changed = f"rlhf-lab: {former} is now {present}: the former name works for one release"
    assert warnings == ([changed] if former != present else [])


def test_a_command_takes_former_names_with_one_warning_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("mode=free", "mode.at_bound=drop", "budget@run=trial")
    assert call("train", *given, "--cfg", "job", monkeypatch=monkeypatch) == 0
    printed = capsys.readouterr()
    assert "when_stale: drop" in printed.out and "groups_per_update: 4" in printed.out
    assert printed.err.count("the former name works") == 2


FILE = """
defaults:
  - config
  - override budget@run: mine
  - override mode: own
  - override /generator: vllm_server
  - _self_
hydra:
  sweeper:
    params:
      mode.at_bound: wait,drop
      mode.weights: newest,newest_in_sequence
mode:
  ahead: 3
generator:
  name: vllm_server
  port: 8100
"""
OF_GROUP = "defaults:\n  - schema/recipe@_here_\n  - _self_\nupdates: 5\n"
OF_MODE = "defaults:\n  - schema/mode@_here_\n  - _self_\nname: free\nat_bound: drop\n"


def test_a_file_with_former_names_is_read_under_the_present_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("old", FILE), ("budget/mine", OF_GROUP), ("mode/own", OF_MODE)):
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    read_earlier_names()
    search = f"hydra.searchpath=[file://{conf_folder()}]"
    cfg = by_hydra(tmp_path, "old", [search], hydra=True)
    assert (cfg.run.updates, cfg.mode.when_stale.value, cfg.mode.extra_rounds) == (5, "drop", 3)
    swept = {"mode.when_stale": "wait,drop", "mode.weights": "latest,latest_per_token"}
    assert dict(cfg.hydra.sweeper.params) == swept
    assert (cfg.generator.name, cfg.generator.port) == ("vllm", 8100)
    warnings = capsys.readouterr().err
    assert "override budget@run is now override run" in warnings
    assert "generator=vllm_server is now generator=vllm" in warnings


@pytest.mark.parametrize(
    "config",
    [
        {
            "mode": {"at_bound": "drop", "ahead": 2, "weights": "newest"},
            "generator": {"name": "vllm_server"},
        },
        {
            "mode.at_bound": "drop",
            "mode.ahead": 2,
            "mode.weights": "newest",
            "generator.name": "vllm_server",
        },
    ],
)
def test_a_recorded_config_is_read_by_both_names(config: dict[str, Any]) -> None:
    present = renames.present_config(config)
    for key in ("mode.at_bound", "mode.when_stale"):
        assert look_up(present, key) == "drop"
    assert look_up(present, "mode.weights") == "latest"
    assert look_up(present, "generator.name") == "vllm"


@pytest.mark.pages
def test_tables_of_before_have_present_names() -> None:
    tables = conf_folder().parent / "analysis" / "benchmark" / "tables.parquet"
    for record in read_saved(tables).records:
        drops = "queue=drop" in record.facts.swept
        assert look_up(record.config, "mode.when_stale") == ("drop" if drops else "wait")
        assert "at_bound" not in record.config["mode"]


def test_a_former_name_is_explained_by_the_present_one() -> None:
    lines = list(explanation("mode.ahead"))
    assert lines[:2] == ["mode.ahead is now mode.extra_rounds", "mode.extra_rounds"]
    lines = list(explanation("generator=vllm_server"))
    assert lines[0] == "generator=vllm_server is now generator=vllm"


@pytest.mark.parametrize(("earlier", "present"), sorted(renames.KEYS.items()))
def test_each_renamed_key_is_an_option_that_is_explained(earlier: str, present: str) -> None:
    assert next(iter(explanation(earlier))) == f"{earlier} is now {present}"
    node, _, name = earlier.partition(".")
    assert list(renames.present_config({node: {name: 3}})[node]) == [present.partition(".")[2]]
    assert renames.present_override(f"{earlier}=1,2") == f"{present}=1,2"


def test_recorded_changed_keys_have_present_names(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("run: {replay: recency, updates: 4}\n")
    found = recorded_settings(tmp_path, {"changed": ["run.replay"]})
    assert found.values == {"run.replay_sampling": "recency", "run.updates": 4}
    assert found.changed == {"run.replay_sampling"}


@pytest.mark.parametrize("node", ["reward", "judge", "reward.terms.style"])
@pytest.mark.parametrize("name", renames.REMOVED)
def test_a_removed_option_is_refused_and_left_out_of_records(
    tmp_path: Path, node: str, name: str
) -> None:
    with pytest.raises(UserError, match=rf"{node}.{name} is no option.*{node}.retries"):
        renames.present_overrides([f"+{node}.{name}=2"])
    nested: dict[str, Any] = {"retries": 3, name: 2}
    for part in reversed(node.split(".")):
        nested = {part: nested}
    with pytest.raises(UserError, match=rf"mine.yaml: {node}.{name}"):
        present_file(nested, "", "mine.yaml: ")
    (tmp_path / "config.yaml").write_text(json.dumps(nested))
    found = recorded_settings(tmp_path, {"changed": [f"{node}.{name}"]})
    assert found.values == {f"{node}.retries": 3}
    manifest = {"state": "finished", "overrides": [f"{node}.{name}=2", f"{node}.retries=3"]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert recorded_overrides(tmp_path) == [f"{node}.retries=3"]
