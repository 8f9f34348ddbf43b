"""A fork repeats its parent's bits up to its round, and follows its own settings from there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.run.fork_training import train_past
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.forks import QUIET, Runs, contents, versions
from tests.support.survival import exact_rows, outcome
from tests.support.variants import names, slow

# Their parents are shared.
pytestmark = pytest.mark.usefixtures("costly")

SHORT = (
    *("algo=grpo", "run.group_size=4", "run.updates=8", "reward=task_rule", "eval.snapshots=0"),
    *("checkpoint.minutes=0", "checkpoint.keep_every=3"),
)
LAGGED = ("mode=lagged", "mode.max_staleness=2")
REPLAY = ("mode=recorded", "mode.max_staleness=2")
VIRTUAL = ("mode=virtual", "generator.chunk_groups=1")
MODES = {
    "sync": ("mode=sync",),
    "lagged": LAGGED,
    "thread": ("mode=async", "mode.executor=thread", "mode.max_staleness=2"),
    "drawn": (*LAGGED, 'mode.lag_probabilities="0.2,0.4,0.4"'),
    "partial": ("mode=partial", "mode.executor=inline", "mode.segment_tokens=3"),
    "recycling": (
        *("mode=partial", "mode.executor=inline", "mode.segment_tokens=3"),
        *("mode.over_provision=1.5", "mode.max_staleness=2"),
    ),
    "virtual": (*VIRTUAL, "mode.max_staleness=2"),
    # Chunks of the fork's rounds wait at its round, or are lost after it.
    "busy": (*VIRTUAL, "mode.max_staleness=2", "cluster.row_scale=25"),
    "failing": (*VIRTUAL, "mode.max_staleness=2", "cluster.failure_seconds=20"),
    "buffer": (*LAGGED, "run.buffer_rounds=2", "run.fresh_share=0.5"),
    "pool": (*LAGGED, "run.prompts=pool", "run.rest_rounds=2"),
    "episodes": (
        *("task=ask_nano", "sft.steps=60", "mode=partial_turns", "mode.executor=inline"),
        "mode.max_staleness=2",
    ),
}


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parents")


@pytest.fixture
def runs(tmp_path: Path, parents: Path) -> Runs:
    return Runs(tmp_path, parents)


@pytest.mark.parametrize("mode", names(MODES, ["thread", "recycling", "episodes"]))
def test_a_fork_without_a_change_ends_as_its_parent(
    make_config: MakeConfig, runs: Runs, mode: str
) -> None:
    options = (*SHORT, *MODES[mode])
    parent = runs.parent(make_config, *options)
    before = contents(parent)
    # A new beginning, a checkpoint, and two rounds after it.
    for round_ in (0, 3, 5) if mode == "sync" else (5,):
        place = f"output.dir={runs.folder(str(round_))}"
        of = (f"fork.parent={parent}", f"fork.round={round_}")
        fork = runs.train(make_config(*options, *of, place))
        assert outcome(fork) == outcome(parent)
        for name in ("schedule.jsonl", "rollouts.jsonl"):
            assert (fork / name).read_text() == (parent / name).read_text()
    assert contents(parent) == before


def test_a_run_whose_timing_decided_is_forked_along_its_schedule(
    make_config: MakeConfig, runs: Runs
) -> None:
    free = (*SHORT, "mode=free", "mode.executor=thread")
    parent = runs.parent(make_config, *free)
    for round_ in (3, 5):
        place = f"output.dir={runs.folder(str(round_))}"
        of = (f"fork.parent={parent}", f"fork.round={round_}", f"mode.schedule={parent}")
        fork = runs.train(make_config(*SHORT, *REPLAY, *of, place))
        assert outcome(fork)[1] == outcome(parent)[1]
        assert (fork / "schedule.jsonl").read_text() == (parent / "schedule.jsonl").read_text()
    of = (f"fork.parent={parent}", "fork.round=4", f"output.dir={runs.folder('sync')}")
    other = runs.train(make_config(*SHORT, "mode=sync", *of))
    # Chunks of round 4 are written when the fork begins; later ones follow its mode.
    assert versions(other)[:5] == versions(parent)[:5]
    assert versions(other)[5:] == [(5, 5), (6, 6), (7, 7)]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # On their way at round 4 are the chunks of rounds 4, 5 and 6, by versions 2, 3 and 4.
        (("mode=sync",), [2, 3, 4, 7]),
        (("mode=lagged", "mode.max_staleness=1"), [2, 3, 4, 6]),
        (("mode=lagged", "mode.max_staleness=3"), [2, 3, 4, 4]),
        (("mode=partial", "mode.executor=inline", "mode.segment_tokens=3"), [2, 3, 4, 6]),
    ],
)
def test_chunks_on_their_way_keep_their_versions(
    make_config: MakeConfig, runs: Runs, mode: tuple[str, ...], expected: list[int]
) -> None:
    parent = runs.parent(make_config, *SHORT, *LAGGED)
    assert versions(parent) == [(r, max(0, r - 2)) for r in range(8)]
    of = (f"fork.parent={parent}", "fork.round=4", f"output.dir={runs.folder('fork')}")
    fork = runs.train(make_config(*SHORT, *mode, *of))
    assert versions(fork) == versions(parent)[:4] + list(zip(range(4, 8), expected, strict=True))
    rows = exact_rows(parent / "metrics.jsonl")[:4]
    assert exact_rows(fork / "metrics.jsonl")[:4] == rows


@pytest.mark.parametrize("mode", ["recycling", "virtual"])
def test_what_is_no_chunk_of_a_fixed_round_is_not_taken_over_by_another_mode(
    make_config: MakeConfig, runs: Runs, mode: str
) -> None:
    parent = runs.parent(make_config, *SHORT, *MODES[mode])
    of = (f"fork.parent={parent}", "fork.round=4", f"output.dir={runs.folder('fork')}")
    chunks = [one for one in MODES[mode] if one.startswith("generator.")]
    with pytest.raises(UserError, match="cannot be taken over"):
        runs.fork_of(make_config(*SHORT, *LAGGED, *chunks, *of))


def test_postponed_chunks_wait_for_the_version_that_the_new_mode_gives_them(
    make_config: MakeConfig, runs: Runs
) -> None:
    options = (*SHORT, *MODES["drawn"])
    parent = runs.parent(make_config, *options)
    of = (f"fork.parent={parent}", "fork.round=4", f"output.dir={runs.folder('fork')}")
    fork = runs.train(make_config(*SHORT, "mode=sync", *of))
    for (round_, before), (_, after) in zip(versions(parent), versions(fork), strict=True):
        is_shared = round_ < 4 or (round_ <= 6 and before <= 4)
        assert after == (before if is_shared else round_)


@pytest.mark.parametrize(
    "change",
    [
        ("correction=split", "mode.max_staleness=2"),
        slow("algo=rloo", "optim.lr=1e-2"),
        slow("generator.round_weights=bf16", "shaping.length_weight=0.01"),
    ],
)
def test_a_change_acts_from_the_round_on_whichever_checkpoint_serves(
    make_config: MakeConfig, runs: Runs, change: tuple[str, ...]
) -> None:
    # Chunks of round 7 are written when the fork begins: new sampling shows in round 8.
    options = (*SHORT, *MODES["thread"], "mode.max_staleness=1", "run.updates=9")
    parent = runs.parent(make_config, *options)
    found = []
    for name in ("near", "far", "none"):
        of = (f"fork.parent={parent}", "fork.round=6", f"output.dir={runs.folder(name)}")
        fork = runs.train(make_config(*options, *change, *of))
        rows = exact_rows(parent / "metrics.jsonl")
        assert exact_rows(fork / "metrics.jsonl")[:6] == rows[:6]
        found.append(outcome(fork))
        newest = max((parent / "checkpoints").iterdir(), default=None)
        if newest is not None:
            shutil.rmtree(newest)
    assert found[0] == found[1] == found[2]
    assert found[0] != outcome(parent)


def test_a_fork_of_a_fork_goes_back_to_the_first_run(make_config: MakeConfig, runs: Runs) -> None:
    parent = runs.parent(make_config, *SHORT, *LAGGED)
    of = (f"fork.parent={parent}", "fork.round=2", "optim.lr=1e-2")
    options = (*SHORT, *LAGGED, *of, "checkpoint=none")
    fork = runs.train(make_config(*options, f"output.dir={runs.folder('fork')}"))
    shutil.rmtree(fork / "checkpoints")
    of = (f"fork.parent={fork}", "fork.round=5", "optim.lr=1e-2")
    second = make_config(*SHORT, *LAGGED, *of, f"output.dir={runs.folder('second')}")
    assert [past.until for past in runs.fork_of(second).pasts] == [2, 5]
    assert outcome(runs.train(second)) == outcome(fork)
    for round_ in (1, 2):
        of = (f"fork.parent={fork}", f"fork.round={round_}", "optim.lr=1e-2")
        with pytest.raises(UserError, match=r"itself a fork at round 2; choose a later one"):
            runs.fork_of(make_config(*SHORT, *LAGGED, *of))


def test_a_fork_that_was_stopped_in_its_past_goes_on(
    make_config: MakeConfig, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = runs.parent(make_config, *SHORT, *LAGGED)
    of = (f"fork.parent={parent}", "fork.round=5", "mode=sync")
    options = (*SHORT, *of, f"output.dir={runs.folder('fork')}", "output.resume=true")
    config = make_config(*options)
    with monkeypatch.context() as patch:
        patch.setattr("rlhf_lab.experiment.run.lifecycle.train_past", stopped_after(train_past))
        with pytest.raises(RuntimeError, match="stopped"):
            runs.train(config)
    fork = runs.train(config)
    assert versions(fork)[5:] == [(5, 3), (6, 4), (7, 5)]


def stopped_after(train: object) -> object:
    def run(*arguments: object) -> None:
        train(*arguments)  # type: ignore[operator]
        raise RuntimeError("stopped")

    return run


def test_a_damaged_checkpoint_of_the_round_is_not_passed_over(
    make_config: MakeConfig, runs: Runs
) -> None:
    parent = runs.parent(make_config, *SHORT, *LAGGED)
    of = (f"fork.parent={parent}", "fork.round=5", "optim.lr=1e-2", "run.updates=8")
    folder = runs.folder("fork")
    config = make_config(*SHORT, *LAGGED, *of, f"output.dir={folder}", "output.resume=true")
    fork = runs.train(config)
    manifest = json.loads((fork / "manifest.json").read_text())
    del manifest["weights_digest"]
    (fork / "manifest.json").write_text(json.dumps({**manifest, "state": "failed"}))
    (fork / "checkpoints/00000005/state.json").write_text("{}")
    shutil.rmtree(fork / "checkpoints/00000006")
    with pytest.raises(UserError, match=r"no intact checkpoint of round 5 or later: delete"):
        runs.train(config)


def test_a_fork_saves_the_version_that_it_begins_from_and_its_own(
    make_config: MakeConfig, runs: Runs
) -> None:
    options = (*SHORT, "mode=sync", "eval.snapshots=4")
    parent = runs.parent(make_config, *options)
    for round_ in (3, 5):
        of = (f"fork.parent={parent}", f"fork.round={round_}")
        fork = runs.train(make_config(*options, *of, f"output.dir={runs.folder(str(round_))}"))
        found = [int(path.stem) for path in sorted((fork / "weights").iterdir())]
        assert found == [round_, *(version for version in (4, 6, 8) if version > round_)]
        evaluated = {row["version"]: row for row in exact_rows(fork / "evals.jsonl")}
        own = {row["version"]: row for row in exact_rows(parent / "evals.jsonl")}
        assert all(evaluated[version] == own[version] for version in set(own) & set(evaluated))


def refuses(make_config: MakeConfig, runs: Runs, changes: list[str], complaint: str) -> None:
    """A fork at round 3 with these changes is refused, for this reason."""
    runs.configs[runs.folder("parent")] = make_config(*SHORT, *LAGGED)
    written(runs.folder("parent"))
    of = (f"fork.parent={runs.folder('parent')}", "fork.round=3")
    with pytest.raises(UserError, match=complaint):
        runs.fork_of(make_config(*SHORT, *LAGGED, *of, *changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["seed=2"], r"seed=2, but 1 in .* at round 3 cannot change it, since it keys prompts"),
        (["run.group_size=2"], r"run.group_size=2, but 4 .* have groups of it; leave it out"),
        (["generator.chunk_groups=2"], r"chunk_groups=2, .* chunks on their way"),
        (["model=nano_m"], r"model.name=nano_m, .* the shared rounds train this model"),
        (["algo=ppo"], r"algo=ppo, but grpo .* a value model of the same kind"),
        (["algo=remax"], r"algo=remax, .* greedy"),
        (["task=arithmetic"], r"task\..*, but .* the prompts of the shared rounds"),
        (["run.updates=5"], r"run.updates=5: chunks .* up to round 6; pass 6 or more"),
        (["fork.round=8"], r"fork.round=8: .* has 8 rounds; choose 0 to 7"),
    ],
)
def test_what_would_change_the_past_is_refused(
    make_config: MakeConfig, runs: Runs, changes: list[str], complaint: str
) -> None:
    refuses(make_config, runs, changes, complaint)


def test_samples_that_are_begun_keep_their_settings(make_config: MakeConfig, runs: Runs) -> None:
    parent: Config = make_config(*SHORT, *MODES["partial"])
    runs.configs[runs.folder("parent")] = parent
    written(runs.folder("parent"))
    for change in ("generator.temperature=0.5", "mode.segment_tokens=2", "shaping.clip=true"):
        of = (f"fork.parent={runs.folder('parent')}", "fork.round=3", change)
        with pytest.raises(UserError, match=r"samples that are begun are continued"):
            runs.fork_of(make_config(*SHORT, *MODES["partial"], *of))


def written(folder: Path) -> None:
    folder.mkdir()
    (folder / "manifest.json").write_text('{"state": "finished"}')


def test_a_round_needs_a_parent(config_of: MakeConfig) -> None:
    with pytest.raises(UserError, match=r"fork.round=3 without fork.parent"):
        config_of("fork.round=3")


def test_rows_left_out_are_counted_and_change_no_other_row(
    make_config: MakeConfig, runs: Runs
) -> None:
    parent = runs.parent(make_config, *SHORT, *LAGGED)
    of = (f"fork.parent={parent}", "fork.round=4", f"output.dir={runs.folder('fork')}")
    config = make_config(*SHORT, *LAGGED, *of, "fork.without_rows=[0,1,2,3,9]")
    facts = runs.fork_of(config).facts
    assert facts is not None
    assert facts["changes"] == {"fork.without_rows": [[], [0, 1, 2, 3, 9]]}
    fork = runs.train(config)
    before, after = (exact_rows(folder / "metrics.jsonl") for folder in (parent, fork))
    assert after[:4] == before[:4] and after[4] != before[4]
    own, whole = after[4], before[4]
    assert own["reward/mean"] == whole["reward/mean"]
    assert own["rows_kept"] == whole["rows_kept"] - own["sample/without_rows"] / 16
    gone = own["total/tied_tokens"] - whole["total/tied_tokens"]
    assert own["sample/without_tokens"] == gone > 0
    assert "sample/without_rows" not in after[5]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["fork.without_rows=[16]"], r"without_rows=16: a round has 16 rows; choose 0 to 15"),
        (
            ["algo=online_dpo", "fork.without_rows=[4,5,6]"],
            r"without_rows=7 is missing with algo=online_dpo: .* leave out all 4 rows",
        ),
    ],
)
def test_rows_that_cannot_be_left_out_are_refused(
    make_config: MakeConfig, runs: Runs, changes: list[str], complaint: str
) -> None:
    refuses(make_config, runs, changes, complaint)


def test_repeated_rounds_of_other_code_are_named(
    make_config: MakeConfig, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = runs.parent(make_config, *SHORT)
    printed: list[str] = []
    monkeypatch.setattr(QUIET, "print", printed.append)
    of = (f"fork.parent={parent}", "fork.round=4")
    for name in ("same", "other"):
        if name == "other":
            manifest = json.loads((parent / "manifest.json").read_text())
            text = json.dumps({**manifest, "code": "0123456789abcdef"})
            (parent / "manifest.json").write_text(text)
        runs.train(make_config(*SHORT, *of, f"output.dir={runs.folder(name)}"))
        found = [text for text in printed if "other code (01234567, this is" in text]
        assert len(found) == (name == "other")
