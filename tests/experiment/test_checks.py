"""Whatever cannot work is refused before the first step, with the key, the value and the remedy."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

import pytest
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from rlhf_lab.algos.pairs import OnlineDPO
from rlhf_lab.cli import main
from rlhf_lab.cli.exit_codes import message
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.config.groups import CLASSES
from rlhf_lab.experiment.config.registry import group_options
from rlhf_lab.experiment.config.typed import require_own_name
from rlhf_lab.experiment.rules.checks import check, require_readable_splits
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import FACTS, call
from tests.support.survival import generators_at_work, is_running, wait_until

# The shortest of runs, by which nothing but its being a run is tested.
SUMS = ("debug=tiny", "task=arithmetic", "algo=rloo", "reward=task_rule", "eval=none")
ERRORS = "errors.txt"
REFUSALS = (UserError, HydraException, OmegaConfBaseException)


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["algo=grpoo"], ["algo=grpoo is no option of algo: did you mean grpo?", "grpo"]),
        (["algo=grpo", "algo.clpi=0.3"], ["clpi"]),
        (["+algo.foo=1"], ["foo"]),
        (["algo=grpo", "algo.clip=abc"], ["abc", "clip"]),
        (["algo=grpo", "algo.clip=3"], ["algo.clip=3.0", "0 to 1"]),
        (["mode.executor=ray"], ["ray", "inline, thread, process"]),
        (["run.passes=0"], ["run.passes=0", "1 to "]),
        (["run.updates_per_round=0"], ["run.updates_per_round=0"]),
        (["run.group_size=0"], ["run.group_size=0"]),
        (["mode=async", "mode.max_staleness=-1"], ["mode.max_staleness=-1"]),
        (["run.updates=4", "run.updates_per_round=3"], ["run.updates=4", "3 or 6"]),
        (["run.group_size=two"], ["two", "group_size"]),
        (["optim.lr=-1"], ["optim.lr=-1.0"]),
        (["generator.temperature=0"], ["generator.temperature=0.0"]),
        (["eval.prompts=0"], ["eval.prompts=0"]),
        (["task.drop_rate=2"], ["task.drop_rate=2.0", "0 to 1"]),
        (["model.hidden_size=111"], ["model.hidden_size=111", "num_heads"]),
        (["labels.noise=some"], ["some", "bradley_terry"]),
    ],
)
def test_a_bad_option_is_refused_at_composition(
    make_config: MakeConfig, overrides: list[str], parts: list[str]
) -> None:
    with pytest.raises(REFUSALS) as refused:
        make_config(*overrides)
    for part in parts:
        assert part in message(refused.value)


ALONE = ("ppo", "ma_ppo", "sao", "mdpo", "reinforce", "reinforce_plus_plus", "crpg", "distill")
# What a check refuses of an algorithm's defaults.
NAMED = {"distill": ["algo.teacher=somewhere"]}


@pytest.mark.parametrize("algo", sorted(set(CLASSES["algo"]) - set(ALONE)))
def test_one_completion_is_too_few_for_a_group_baseline(make_config: MakeConfig, algo: str) -> None:
    with pytest.raises(UserError, match=r"run.group_size=1 with algo=.*pass run.group_size=2"):
        check(make_config(f"algo={algo}", "run.group_size=1"))


@pytest.mark.parametrize("algo", ALONE)
def test_one_completion_is_enough_without_a_group_baseline(
    make_config: MakeConfig, algo: str
) -> None:
    check(make_config(f"algo={algo}", "run.group_size=1", *NAMED.get(algo, [])))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["generator.max_new_tokens=100"], r"responses of 100 tokens do not fit model.max_pos"),
        (["mode=async", "mode.max_staleness=9"], r"mode.max_staleness=9 with 4 rounds"),
        (
            ["mode=async", "mode.executor=thread", "generator.threads=2"],
            r"generator.threads=2 and engine.threads=1",
        ),
        (["reward@judge=reward_model"], r"judge.path=''"),
        (["task=tldr", "reward=task_rule"], r"reward=task_rule with task=tldr"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    make_config: MakeConfig, overrides: list[str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check(make_config(*overrides))


def test_a_nano_model_needs_a_task_that_brings_a_tokenizer(
    make_config: MakeConfig, gsm8k: Path
) -> None:
    config = make_config(
        "task=gsm8k", f"task.path={gsm8k}", "model=nano_s", "model.max_positions=999"
    )
    with pytest.raises(UserError, match=r"model=nano_s has no tokenizer.*model=smollm2_135m"):
        Artifacts(config, Console(quiet=True)).sft(config.model)


@pytest.fixture
def gsm8k(tmp_path: Path) -> Path:
    """A small GSM8K in a folder of the user's own."""
    for file in ("train", "test"):
        rows = [
            {"question": f"{i} + 1?", "answer": f"It is {i + 1}.\n#### {i + 1}"} for i in range(300)
        ]
        (tmp_path / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["train.jsonl", "empty"]),
        (b'{"question": "1?", "answer": "#### 1"}\n{"question": "2?"}\n', ["line 2", "'answer'"]),
        (b'{"question": "1?", "answer": 1}\n', ["line 1", "no text in field 'answer'"]),
        (b'{"question": "\xff", "answer": "#### 1"}\n', ["line 1", "not valid UTF-8"]),
        (b'{"question": "1?"\n', ["line 1", "not JSON"]),
        (b"[1]\n", ["line 1", "not a JSON object"]),
        (b'{"question": "1?", "answer": "one"}\n', [":1", "no final answer"]),
    ],
)
def test_a_bad_row_is_refused_with_file_and_line(
    make_config: MakeConfig, gsm8k: Path, content: bytes, parts: list[str]
) -> None:
    (gsm8k / "train.jsonl").write_bytes(content)
    config = make_config("task=gsm8k", f"task.path={gsm8k}")
    with pytest.raises(UserError) as refused:
        require_readable_splits(config)
    for part in ["train.jsonl", *parts]:
        assert part in str(refused.value)


def test_no_hub_says_what_to_pass_instead(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = make_config("task=tldr", "task.path=nobody/nothing")
    with pytest.raises(UserError, match=r"task.path=nobody/nothing .*pass task.path=<local folder"):
        require_readable_splits(config)


def test_a_missing_model_says_what_to_pass_instead(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = make_config("model=pretrained", f"model.path={tmp_path}")
    with pytest.raises(UserError, match=r"has no config.json: pass a folder made by save_pretr"):
        Artifacts(config, Console(quiet=True)).sft(config.model)


def test_a_prompt_that_is_too_long_is_named(make_config: MakeConfig, gsm8k: Path) -> None:
    from rlhf_lab.tasks.prompts import PromptStream
    from rlhf_lab.types.samples import Split

    config = make_config("task=gsm8k", f"task.path={gsm8k}")
    stream = PromptStream(
        config.task.examples(Split.train), lambda row: [1] * len(row.prompt), 1, 10
    )
    with pytest.raises(UserError, match=r"train.jsonl:\d+ has \d+ tokens, more than task.max_prom"):
        stream[0]


def test_a_cache_entry_that_was_cut_short_is_refused(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(f"output.cache={tmp_path}/own", "task=arithmetic", "sft.steps=1")
    stages = Artifacts(config, Console(quiet=True))
    product = stages.sft(config.model)
    assert stages.sft(config.model).was_cached
    weights = product.folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"model.safetensors was cut short or changed: delete it"):
        stages.sft(config.model)
    weights.unlink()
    with pytest.raises(UserError, match=r"lacks its file model.safetensors: delete it"):
        stages.sft(config.model)


def test_a_changed_setting_never_reuses_a_stale_product(make_config: MakeConfig) -> None:
    def folder(*overrides: str) -> Path:
        return Artifacts(make_config(*overrides), Console(quiet=True)).folders()[-1]

    first = folder()
    assert folder() == first
    for change in (
        "seed=7",
        "sft.lr=1e-3",
        "task.drop_rate=0.2",
        "labels.noise=bradley_terry",
        "generator.temperature=0.9",
        "reward_model.lr=1e-4",
        "model@proxy=nano_m",
    ):
        assert folder(change) != first, change
    assert folder("optim.lr=1e-2", "run.updates=8", "mode=lagged") == first


def test_the_folder_of_another_run_is_refused_and_kept(
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "mine"
    common = [*SUMS, "run.updates=1", f"output.cache={cache}", f"output.dir={folder}"]
    assert call("train", *common, monkeypatch=monkeypatch) == 0
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert call("train", *common, "seed=2", monkeypatch=monkeypatch) == 2
    message = capsys.readouterr().err
    assert f"output.dir={folder} already holds a run (finished): choose another" in message
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_the_command_line_refuses_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call("trian", monkeypatch=monkeypatch) == 2
    assert "unknown command 'trian'" in capsys.readouterr().err
    assert call("train", "algo=nothing", monkeypatch=monkeypatch) == 2
    assert "algo=nothing is no option of algo: One of a_lol, " in capsys.readouterr().err
    assert call("train", "run.passes=0", monkeypatch=monkeypatch) == 2
    assert "run.passes=0" in capsys.readouterr().err
    assert call("evaluate", "eval=full", monkeypatch=monkeypatch) == 2
    assert "rlhf-lab evaluate RUN" in capsys.readouterr().err
    assert call("evaluate", str(tmp_path), monkeypatch=monkeypatch) == 2
    assert "is not a run" in capsys.readouterr().err


def test_help_lists_commands_groups_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--help", monkeypatch=monkeypatch) == 0
    text = capsys.readouterr().out
    for command in ("train", "sft", "label", "reward-model", "evaluate", "pipeline", "runs"):
        assert command in text
    assert call("train", "--help", monkeypatch=monkeypatch) == 0
    text = capsys.readouterr().out
    for group, names in group_options().items():
        assert {group, *names} <= set(text.split())


def command_line(words: list[str], folder: Path) -> NoReturn:
    """Main of a process: a command with its own folder for temporary files, whose errors are kept
    in a file there."""
    # A shell's background jobs ignore SIGINT, and so do all that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    sys.argv = ["rlhf-lab", *words]
    with (folder / ERRORS).open("w") as errors:
        os.dup2(errors.fileno(), sys.stderr.fileno())
        code = main.command_line()
        sys.stderr.flush()
    sys.exit(code)


@contextmanager
def long_run(folder: Path, cache: Path) -> Iterator[BaseProcess]:
    """An async run without end that has written its first round, in `folder` / run."""
    words = [*SUMS, "run.updates=100000", "mode=async"]
    where = [f"output.dir={folder}/run", f"output.cache={cache}", "output.quiet=true"]
    process = forkserver.start(command_line, (["train", *words, *where], folder))
    metrics = folder / "run" / "metrics.jsonl"
    try:
        wait_until(
            lambda: not process.is_alive() or (metrics.is_file() and metrics.stat().st_size), 300
        )
        assert process.is_alive(), (folder / ERRORS).read_text()
        yield process
    finally:
        process.kill()
        process.join()


def assert_nothing_is_left(members: set[int], folder: Path) -> None:
    """Neither processes of a run, nor their memory and files."""
    wait_until(lambda: not any(map(is_running, members)), 300)
    # torch names its memory by the process that made it.
    left = [n for n in os.listdir("/dev/shm") if any(f"_{pid}_" in n for pid in members)]
    assert left == []
    assert list(folder.glob("rlhf_lab_*")) == []


@pytest.mark.linux
@pytest.mark.parametrize("name", ["grpo", "../x", "/dev/null", "-1", "a b"])
def test_a_file_cannot_call_an_option_like_another_one_or_like_a_path(name: str) -> None:
    with pytest.raises(UserError, match=r"^algo\.name="):
        require_own_name(OnlineDPO, name, "algo")
    for own in ("online_dpo", "mine", "online_dpo_8b", ""):
        require_own_name(OnlineDPO, own, "algo")


def test_ctrl_c_saves_a_checkpoint_and_ends_with_exit_code_130(tmp_path: Path, cache: Path) -> None:
    with long_run(tmp_path, cache) as process:
        assert process.pid is not None
        members = {process.pid, *generators_at_work()}
        os.kill(process.pid, signal.SIGINT)
        process.join(300)
        errors = (tmp_path / ERRORS).read_text()
        assert process.exitcode == 130, errors
    folder = tmp_path / "run"
    (checkpoint,) = (folder / "checkpoints").iterdir()
    newest = f"interrupted; its newest checkpoint is of round {int(checkpoint.name)}"
    assert f"{newest}; `rlhf-lab resume {folder}` continues it" in errors
    assert json.loads((folder / "manifest.json").read_text())["state"] == "interrupted"
    rows = (folder / "metrics.jsonl").read_text().splitlines()
    assert all(json.loads(line) for line in rows)
    assert_nothing_is_left(members, tmp_path)


@pytest.mark.linux
def test_a_killed_trainer_leaves_no_generator_behind(tmp_path: Path, cache: Path) -> None:
    with long_run(tmp_path, cache) as process:
        assert process.pid is not None
        members = {process.pid, *generators_at_work()}
        assert len(members) > 1
        process.kill()
        assert_nothing_is_left(members, tmp_path)


def test_prompts_must_fit_the_context_of_a_loaded_model(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    policy = Artifacts(make_config(), Console(quiet=True)).sft(make_config().model).folder
    config = make_config(
        *("model=pretrained", f"model.path={policy}", "reward=task_rule"),
        *("task.max_prompt_tokens=120", f"output.dir={tmp_path}/long"),
    )
    with pytest.raises(UserError, match=r"max_prompt_tokens=120 .*\b24 .*\b128 "):
        lifecycle.train(config, Console(quiet=True), FACTS)
    assert not (tmp_path / "long" / "metrics.jsonl").exists()
