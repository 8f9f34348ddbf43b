"""Searches over runs that take no time: who goes on, what is chosen, and what a kill changes."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from rlhf_lab.runs.jsonl import write_rows
from rlhf_lab.runs.locks import locked
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.row_digests import extent_of
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.search.options import Direction, Sampler, SearchOptions, Source
from rlhf_lab.sweeps.search.report import SearchResult
from rlhf_lab.sweeps.search.runs import metric_at
from rlhf_lab.sweeps.search.search import DATABASE, LOCK, Search
from rlhf_lab.sweeps.search.space import parse_space
from rlhf_lab.sweeps.search.study import Study, check_spec, open_study
from rlhf_lab.types.errors import StopRequested, UserError
from tests.support.fake_runs import ROUNDS, FakeRuns, Worth, trials_of

pytestmark = pytest.mark.usefixtures("costly")

optuna = pytest.importorskip("optuna", reason="needs pip install 'rlhf-lab[search]'")

SPACE = ("lr=tag(log,interval(1e-5,1e-1))", "beta=choice(0.05,0.1,0.2)")
SMALL = SearchOptions(trials=8, test_seeds=[1, 2, 3], sampler=Sampler.random)
QUIET = Console(quiet=True)


class InMemory(optuna.storages.InMemoryStorage):  # type: ignore[misc, name-defined]
    """What a study's file holds, but for the file, which takes most of a search's time."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = self

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        super().set_study_user_attr(study_id, key, json.loads(json.dumps(value)))

    def dispose(self) -> None:
        """As an engine of SQL has it."""


class NoFile:
    """Makes studies that outlive their holders, by the address of the file that they are not in."""

    kept: ClassVar[dict[str, InMemory]] = {}

    def __new__(cls, address: str) -> Any:
        return cls.kept.setdefault(address, InMemory())


@pytest.fixture
def on_disk() -> None:
    """This test's studies are files, as a user's are."""


@pytest.fixture(autouse=True)
def no_files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies are kept in memory, but for those of tests that say otherwise."""
    if "on_disk" not in request.fixturenames:
        monkeypatch.setattr(optuna.storages, "RDBStorage", NoFile)


def worth(given: Mapping[str, str], share: float) -> float:
    """Best at a rate of 1e-3; grows with the rounds; a seed adds its own luck."""
    distance = abs(math.log10(float(given.get("lr", "1e-4"))) + 3)
    return share * (10 - distance) + int(given["seed"]) % 10 / 100


def searched(
    folder: Path,
    options: SearchOptions = SMALL,
    space: Sequence[str] = SPACE,
    function: Worth = worth,
    runs: FakeRuns | None = None,
    **changes: Any,
) -> tuple[SearchResult, FakeRuns]:
    fixed, dimensions = parse_space(["task=t", *space], OverridesParser.create())
    search = Search(folder, fixed, dimensions, options, base="base", code="code")
    runs = runs or FakeRuns(folder, function)
    return replace(search, **changes).run(runs, runs.rounds, QUIET), runs


def test_a_bracket_is_halved_and_the_best_of_the_last_rung_is_chosen(tmp_path: Path) -> None:
    found, runs = searched(tmp_path)
    for begin in (0, 4):
        bracket = found.trials[begin : begin + 4]
        # The value at any rung is a share of one and the same number, plus luck.
        ranked = sorted(bracket, key=lambda trial: -trial.values[0])
        assert [trial.state for trial in ranked] == ["complete", "pruned", "pruned", "pruned"]
        assert [len(trial.values) for trial in ranked] == [3, 2, 1, 1]
    best = max(found.trials, key=lambda trial: trial.values[0])
    assert found.chosen == best
    rate = {"lr": str(best.setting["lr"])}
    seeds = [worth(rate | {"seed": seed}, 1.0) for seed in ("101", "102")]
    assert best.values[2] == pytest.approx(sum(seeds) / 2)
    # Of 8 rounds: 4 settings did 2, 2 another 2, 1 the other 4; two brackets, two seeds.
    tuning = {name: n for name, n in runs.rounds_done.items() if name.startswith("trial-")}
    assert sum(tuning.values()) == (4 * 2 + 2 * 2 + 1 * 4) * 2 * 2
    assert max(tuning.values()) == ROUNDS
    assert [len(call) for call in runs.calls] == [8, 4, 2, 8, 4, 2, 6]


def test_a_metric_can_be_made_small(tmp_path: Path) -> None:
    options = replace(SMALL, direction=Direction.minimize)
    found, _ = searched(tmp_path, options)
    complete = [trial for trial in found.trials if trial.state == "complete"]
    for begin in (0, 4):
        bracket = found.trials[begin : begin + 4]
        assert min(bracket, key=lambda trial: trial.values[0]) in complete
    assert found.chosen == min(complete, key=lambda trial: trial.values[2])


def test_a_rung_is_decided_by_rows_that_the_run_wrote(tmp_path: Path) -> None:
    options = replace(SMALL, measured_on=Source.training, metric="reward/mean", last_rounds=1)
    path = tmp_path / "metrics.jsonl"
    write_rows(path, [{"step": 0, "reward/mean": 0.25}])
    wrote = {"records": {path.name: asdict(extent_of(path))}}
    (tmp_path / "manifest.json").write_text(json.dumps({"state": "paused", **wrote}))
    assert metric_at(tmp_path, options, 1) == 0.25
    write_rows(path, [{"step": 0, "reward/mean": 0.75}])
    with pytest.raises(Unreadable, match="not the file that the run wrote"):
        metric_at(tmp_path, options, 1)


def test_training_rewards_are_free_and_averaged(tmp_path: Path) -> None:
    options = replace(
        SMALL, metric="reward/mean", measured_on=Source.training, last_rounds=2, rungs=2, bracket=4
    )
    found, runs = searched(tmp_path, options)
    first = found.trials[0]
    rate = {"lr": str(first.setting["lr"])}
    values = [
        worth(rate | {"seed": seed}, share) for seed in ("101", "102") for share in (3 / 8, 4 / 8)
    ]
    assert first.values[0] == pytest.approx(sum(values) / 4)
    assert runs.seen["trial-000/seed-101"]["eval.validate"] == "none"
    assert not list(tmp_path.rglob("validation.jsonl"))


def test_an_unknown_metric_names_those_that_there_are(tmp_path: Path) -> None:
    options = replace(SMALL, metric="reward/men", measured_on=Source.training)
    with pytest.raises(UserError, match=r"metric=reward/men: .* has step, reward/mean"):
        searched(tmp_path, options)


@pytest.mark.parametrize("sampler", list(Sampler))
def test_the_same_search_chooses_the_same(tmp_path: Path, sampler: Sampler) -> None:
    space = (
        ("lr=choice(1e-5,1e-4,1e-3,1e-2)", "beta=choice(0.05,0.1)")
        if sampler is Sampler.grid
        else SPACE
    )
    options = replace(SMALL, sampler=sampler, startup=4)
    found = [searched(tmp_path / name, options, space)[0] for name in ("one", "two")]
    assert found[0].trials == found[1].trials
    other = replace(options, sampler_seed=1)
    assert searched(tmp_path / "three", other, space)[0].trials != found[0].trials


class Killed(BaseException):
    """What kills a search at a moment of its own choosing."""


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> Callable[[], int]:
    """Raise Killed at the so manieth word to the study, before or after it is heard. Returns a
    count of the words so far."""
    words = 0

    def wrap(name: str) -> None:
        method = getattr(Study, name)

        def heard(self: Study, *arguments: Any) -> Any:
            nonlocal words
            words += 1
            if words == moment:
                raise Killed
            told = method(self, *arguments)
            words += 1
            if words == moment:
                raise Killed
            return told

        monkeypatch.setattr(Study, name, heard)

    for name in ("draw", "report", "complete", "prune", "fail"):
        wrap(name)
    return lambda: words


def fragile(given: Mapping[str, str], share: float) -> float:
    if given.get("beta") == "0.2" and share == 1:
        raise ZeroDivisionError("too large")
    return worth(given, share)


def killed_and_gone_on(
    root: Path, monkeypatch: pytest.MonkeyPatch, sampler: Sampler, kills: int
) -> None:
    """Kill searches, each at a moment of its own: every one ends like one that was not killed."""
    options = replace(SMALL, sampler=sampler, startup=3)
    with monkeypatch.context() as patch:
        words = kill_at(patch, -1)
        whole, _ = searched(root / "whole", options, function=fragile)
        moments = random.Random(sampler.value).sample(range(1, words() + 1), kills)
    for moment in moments:
        folder = root / f"killed-{moment}"
        runs = FakeRuns(folder, fragile)
        with monkeypatch.context() as patch, pytest.raises(Killed):
            kill_at(patch, moment)
            searched(folder, options, runs=runs)
        found, _ = searched(folder, options, runs=runs)
        assert found.trials == whole.trials
        assert max(runs.rounds_done.values()) == ROUNDS, "no round was done twice"
        assert trials_of(folder) == trials_of(root / "whole")


@pytest.mark.parametrize("sampler", [Sampler.tpe, Sampler.random])
def test_a_search_killed_at_any_moment_ends_as_one_that_never_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: Sampler
) -> None:
    killed_and_gone_on(tmp_path, monkeypatch, sampler, kills=5)


def test_what_a_search_goes_on_from_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_disk: None
) -> None:
    killed_and_gone_on(tmp_path, monkeypatch, Sampler.tpe, kills=1)
    again = (tmp_path / "whole", replace(SMALL, sampler=Sampler.tpe, startup=3))
    _, runs = searched(*again, function=fragile)
    assert [name for call in runs.calls for name in call if name.startswith("trial-")] == []
    with pytest.raises(UserError, match="is of a search with space"):
        searched(*again, space=("lr=choice(1e-5,1e-4)",))
    assert (tmp_path / "whole" / DATABASE).stat().st_size > 0


def test_a_finished_search_runs_nothing_again(tmp_path: Path) -> None:
    first, _ = searched(tmp_path)
    again, runs = searched(tmp_path)
    assert again.trials == first.trials
    assert [name for call in runs.calls for name in call if name.startswith("trial-")] == []


def test_more_trials_go_on_with_an_older_search(tmp_path: Path) -> None:
    first, _ = searched(tmp_path / "grown")
    grown, runs = searched(tmp_path / "grown", replace(SMALL, trials=12))
    assert grown.trials[:8] == first.trials
    assert [len(call) for call in runs.calls[:-1]] == [8, 4, 2]
    at_once, _ = searched(tmp_path / "at_once", replace(SMALL, trials=12))
    assert grown.trials == at_once.trials


@pytest.mark.parametrize(
    ("options", "changes", "complaint"),
    [
        (replace(SMALL, tuning_seeds=[101]), {}, r"tuning_seeds=\[101, 102\], this one"),
        (SMALL, {"base": "other"}, "base=base, this one has base=other"),
        (SMALL, {"code": "new"}, "code=code, .* or hydra.sweeper.other_code=keep"),
    ],
)
def test_a_study_of_another_question_is_refused(
    tmp_path: Path, options: SearchOptions, changes: Mapping[str, Any], complaint: str
) -> None:
    searched(tmp_path)
    with pytest.raises(UserError, match=complaint):
        searched(tmp_path, options, **changes)
    with pytest.raises(UserError, match="is of a search with space"):
        searched(tmp_path, space=("lr=choice(1e-5,1e-4)",))


def test_a_study_with_a_hash_of_an_earlier_rule_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    check_spec(path, {"base": "0123456789abcdef", "code": "c"}, {"base": "2:4567", "code": "c"})
    with pytest.raises(UserError, match="base=2:0123"):
        check_spec(path, {"base": "2:0123"}, {"base": "2:4567"})


def test_other_code_may_be_kept(tmp_path: Path) -> None:
    searched(tmp_path)
    searched(tmp_path, code="new", takes_other_code=True)


def test_a_folder_that_is_being_searched_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path / LOCK), pytest.raises(UserError, match="searched by another process"):
        searched(tmp_path)


def test_a_failed_run_fails_its_trial_alone(tmp_path: Path) -> None:
    def fragile(given: Mapping[str, str], share: float) -> float:
        if given.get("beta") == "0.05" and given["seed"] == "102":
            raise ZeroDivisionError("no luck with 102")
        return math.nan if given.get("beta") == "0.1" else worth(given, share)

    found, _ = searched(tmp_path, replace(SMALL, trials=12), function=fragile)
    states: dict[str, set[str]] = {beta: set() for beta in ("0.05", "0.1", "0.2")}
    for trial in found.trials:
        states[str(trial.setting["beta"])].add(trial.state)
    assert states["0.05"] == states["0.1"] == {"failed"}
    assert "complete" in states["0.2"] and "failed" not in states["0.2"]
    problems = {str(trial.setting["beta"]): trial.problem for trial in found.trials}
    assert "seed-102 failed: no luck with 102" in problems["0.05"]
    assert "is no number" in problems["0.1"]
    text = (tmp_path / "search.md").read_text()
    assert "no luck with 102" in text
    assert list(tmp_path.glob("trial-*"))


def test_a_setting_that_cannot_start_fails_without_a_run(tmp_path: Path) -> None:
    space = (SPACE[0], "beta=choice(0.1,impossible)")
    found, runs = searched(tmp_path, space=space)
    failed = [trial for trial in found.trials if trial.setting["beta"] == "impossible"]
    assert failed and all(trial.state == "failed" for trial in failed)
    assert all(given.get("beta") != "impossible" for given in runs.seen.values())


def test_nothing_is_chosen_where_all_failed(tmp_path: Path) -> None:
    def broken(given: Mapping[str, str], share: float) -> float:
        raise ZeroDivisionError("never")

    found, runs = searched(tmp_path, function=broken)
    assert found.chosen is None and found.arms is None
    assert not any(name.startswith("test-") for call in runs.calls for name in call)
    assert "No trial came to the last rung (8 failed)" in (tmp_path / "search.md").read_text()
    assert json.loads((tmp_path / "search.json").read_text())["chosen"] is None


@pytest.mark.parametrize("name", ["trial-002/seed-101", "test-default/seed-2"])
def test_a_stopped_run_stops_the_search_which_goes_on_later(tmp_path: Path, name: str) -> None:
    whole, _ = searched(tmp_path / "whole")
    folder = tmp_path / "stopped"
    runs = FakeRuns(folder, worth)
    runs.stop_at = name
    with pytest.raises(StopRequested):
        searched(folder, runs=runs)
    assert not (folder / "search.json").exists()
    found, _ = searched(folder, runs=runs)
    assert found.trials == whole.trials


def test_equal_settings_share_their_runs(tmp_path: Path) -> None:
    found, runs = searched(tmp_path, space=("beta=choice(0.05,0.1)",))
    assert len(found.trials) == 8
    folders = {name.split("/")[0] for call in runs.calls for name in call if name[:6] == "trial-"}
    assert len(folders) == 2
    assert max(runs.rounds_done.values()) == ROUNDS
    by_setting: dict[str, set[float]] = {}
    for trial in found.trials:
        by_setting.setdefault(str(trial.setting), set()).add(trial.values[0])
    assert all(len(values) == 1 for values in by_setting.values())


def test_a_grid_is_drawn_once_and_no_further(tmp_path: Path) -> None:
    space = ("lr=choice(1e-5,1e-3)", "beta=choice(0.05,0.1,0.2,0.4)")
    options = replace(SMALL, sampler=Sampler.grid)
    found, _ = searched(tmp_path, options, space)
    assert len({str(trial.setting) for trial in found.trials}) == 8
    with pytest.raises(UserError, match=r"trials=12 with sampler=grid: .* 8 settings; choose 8"):
        searched(tmp_path / "more", replace(options, trials=12), space)


def test_a_budget_ends_the_search_with_whole_brackets(tmp_path: Path) -> None:
    # A bracket of 4 with 3 rungs amounts to 2 runs a seed: 4 for two seeds.
    found, _ = searched(tmp_path, replace(SMALL, trials=16, max_runs=9.0))
    assert len(found.trials) == 8
    with pytest.raises(UserError, match=r"max_runs=3.0: one bracket .* amounts to 4 whole runs"):
        searched(tmp_path / "poor", replace(SMALL, max_runs=3.0))


@pytest.mark.parametrize("sampler", [Sampler.tpe, Sampler.random])
def test_tpe_learns_where_it_is_good_and_random_does_not(tmp_path: Path, sampler: Sampler) -> None:
    _, space = parse_space(SPACE, OverridesParser.create())
    distances = []
    for seed in range(3):
        options = SearchOptions(trials=32, rungs=1, sampler=sampler, sampler_seed=seed)
        with open_study(tmp_path / f"{seed}.db", space, options, {"seed": seed}) as study:
            for number in range(32):
                setting = study.draw().setting
                distances.append(abs(math.log10(float(setting["lr"])) + 3))
                study.complete(number, -distances[-1])
    late = [distance for place, distance in enumerate(distances) if place % 32 >= 16]
    # Drawn evenly over two decades to both sides, it is one decade on average.
    assert (sum(late) / len(late) < 0.75) == (sampler is Sampler.tpe)


def test_importance_is_of_what_matters(tmp_path: Path) -> None:
    found, _ = searched(tmp_path, replace(SMALL, trials=32))
    assert list(found.importances) == ["lr", "beta"]
    assert found.importances["lr"] > 0.8
    assert sum(found.importances.values()) == pytest.approx(1)

    def equal(given: Mapping[str, str], share: float) -> float:
        return 0.5

    assert searched(tmp_path / "equal", function=equal)[0].importances == {}
    few = replace(SMALL, trials=2, rungs=2)
    assert searched(tmp_path / "few", few)[0].importances == {}


def test_the_test_is_paired_and_on_seeds_of_its_own(tmp_path: Path) -> None:
    found, runs = searched(tmp_path)
    assert found.chosen is not None
    name = f"test-trial-{found.chosen.number:03d}"
    assert set(runs.calls[-1]) == {
        f"{arm}/seed-{seed}" for arm in ("test-default", name) for seed in (1, 2, 3)
    }
    default, chosen = runs.seen["test-default/seed-2"], runs.seen[f"{name}/seed-2"]
    assert default == {"task": "t", "eval.split": "test", "seed": "2"}
    assert chosen == default | {key: str(value) for key, value in found.chosen.setting.items()}
    report = json.loads((tmp_path / "search.json").read_text())
    told = report["test"]["gold/win_rate"]
    differences = [worth(runs.seen[f"{name}/seed-{s}"], 1) / 2 for s in (1, 2, 3)]
    differences = [
        one - worth(runs.seen[f"test-default/seed-{s}"], 1) / 2
        for s, one in zip((1, 2, 3), differences, strict=True)
    ]
    # All seeds' luck cancels in pairs.
    assert told["difference"] == pytest.approx(differences[0])
    assert told["low"] == pytest.approx(told["difference"]) == pytest.approx(told["high"])
    assert report["spent"]["trial"]["rounds"] == (4 * 2 + 2 * 2 + 1 * 4) * 2 * 2
    assert report["spent"]["trial"]["device_seconds"] == 3600 * 64
    assert report["spent"]["test"] == {
        "runs": 6,
        "rounds": 48,
        "device_seconds": 3600.0 * 48,
        "reading_seconds": 6.0,
    }


def test_a_failed_test_run_is_told_and_the_others_are_compared(tmp_path: Path) -> None:
    def fragile(given: Mapping[str, str], share: float) -> float:
        if given["seed"] == "2" and "lr" in given and share == 1:
            raise ZeroDivisionError("no luck with 2")
        return worth(given, share)

    found, _ = searched(tmp_path, function=fragile)
    assert found.arms is not None
    assert found.arms[1].problems == {2: "no luck with 2"}
    report = json.loads((tmp_path / "search.json").read_text())
    assert set(report["test"]["proxy/mean"]["default"]) == {"1", "3"}
    assert "seed 2, failed: no luck with 2" in (tmp_path / "search.md").read_text()


def test_no_test_seeds_no_test(tmp_path: Path) -> None:
    found, runs = searched(tmp_path, replace(SMALL, test_seeds=[]))
    assert found.chosen is not None and found.arms is None
    assert not any("test-" in name for call in runs.calls for name in call)


@pytest.mark.parametrize("keep", [False, True])
def test_the_disk_of_decided_trials_is_freed(tmp_path: Path, keep: bool) -> None:
    searched(tmp_path, replace(SMALL, keep=keep))
    left = list(tmp_path.glob("trial-*/*/checkpoints"))
    assert len(left) == (16 if keep else 0)
    assert len(list(tmp_path.glob("test-*/*/checkpoints"))) == 6


def test_the_report_names_everything(tmp_path: Path) -> None:
    found, _ = searched(tmp_path)
    text = (tmp_path / "search.md").read_text()
    for trial in found.trials:
        assert f"| {trial.number} | {trial.state} |" in text
    for words in ("Tuning seeds 101, 102, test seeds 1, 2, 3", "1e-05 to 0.1, log", "Code code"):
        assert words in text
