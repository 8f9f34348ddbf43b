"""The benchmark's arithmetic, what crosses between its processes, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.speed import (
    against_trl,
    device_limits,
    inputs,
    program,
    timed_runs,
    trl_side,
)
from benchmarks.speed.against_trl import TRL, speed_up
from benchmarks.speed.clock import Spread, seconds_of
from benchmarks.speed.device_limits import Limits
from benchmarks.speed.inputs import write_prompts
from benchmarks.speed.reward import Counted, reward, share_of_vowels
from benchmarks.speed.spec import Spec, Timed
from benchmarks.speed.timed_runs import options, python_of, time_between
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.models.causal_lm import load_policy, save_policy
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.rollout.mode import ExecutorKind
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis import markdown
from tests.support.examples import call

PAGE = f"# Title\n\n{markdown.BEGIN}\nan earlier table\n{markdown.END}\n\nThe rest.\n"
SPEC = Spec("nano_m", 32, 64, 32, 16, updates=2, repeats=1)


def test_the_median_is_told_with_the_smallest_and_the_largest() -> None:
    assert Spread.of([3.0, 1.0, 2.0, 10.0, 2.5]) == Spread(2.5, 1.0, 10.0)
    assert Spread.of([1234.0, 1236.0]).text() == "1,235 [1,234, 1,236]"


def test_a_speed_up_is_of_two_runs_of_the_same_repeat() -> None:
    # The machine is twice as slow in the second repeat: by medians the speed-up would be 10 / 4.
    own = [Timed(1.0, 10, 0), Timed(2.0, 10, 0), Timed(1.0, 30, 0)]
    others = [Timed(1.0, 5, 0), Timed(2.0, 4, 0), Timed(1.0, 4, 0)]
    assert speed_up(own, others) == Spread(2.5, 2.0, 7.5)


def test_repeats_without_a_partner_are_no_ratio() -> None:
    with pytest.raises(ValueError, match="shorter"):
        speed_up([Timed(1.0, 1, 1)] * 2, [Timed(1.0, 1, 1)])


def test_the_limits_of_this_machine_are_those_of_a_copy_and_a_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    seconds = iter([[0.5, 0.1, 0.2], [4.0, 2.0, 1.0]])
    monkeypatch.setattr(device_limits, "seconds_of", lambda *_: next(seconds))
    monkeypatch.setattr(device_limits, "COPY_BYTES", {"cpu": 100})
    monkeypatch.setattr(device_limits, "MATRIX", {"cpu": 10})
    # At best 200 bytes in 0.1 s, and 2 * 1000 operations in 1 s.
    assert device_limits.measure_limits("cpu", torch.float32) == Limits(2000.0, 2000.0)


def test_the_first_trial_is_not_counted() -> None:
    calls: list[int] = []
    assert len(seconds_of(lambda: calls.append(1), 3, "cpu")) == 3
    assert len(calls) == 4


def test_a_spec_crosses_between_the_environments_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Spec] = []

    def there(command: Sequence[str], _: Spec) -> str:
        seen.append(Spec(**json.loads(Path(command[-1]).read_text())))
        return f"a warning\n{json.dumps(asdict(Timed(1.0, 2, 3)))}\n"

    monkeypatch.setattr(timed_runs, "output_of", there)
    assert timed_runs.theirs(Path(sys.executable), SPEC, tmp_path / "run") == Timed(1.0, 2, 3)
    assert seen == [SPEC]


def test_both_sides_are_rewarded_alike_and_tokens_are_counted_to_the_end_token() -> None:
    assert share_of_vowels("aab ") == 0.5
    assert share_of_vowels("") == 0.0
    counted = Counted(eos=1)
    texts = ["aab ", "x"]
    # Padded behind the end token; cut before one was written; and padded with end tokens.
    assert counted(completions=texts, completion_ids=[[5, 1, 0, 0], [5, 6]], prompts=[]) == [
        reward("", text, reference="", hidden={}, finished=True) for text in texts
    ]
    counted(completions=["e"], completion_ids=[[7, 1, 1, 1]])
    assert (counted.completions, counted.tokens) == (3, 6)


def row(step: int) -> dict[str, float]:
    """Round 0 takes 9 s of warm-up, later ones 2 s each."""
    return {
        "seconds/wall": 9.0 + 2 * step,
        "total/completions": 32 * (step + 1),
        "total/generated_tokens": 100 * (step + 1),
    }


def test_warm_up_and_what_async_trains_on_at_its_end_are_not_timed() -> None:
    rows = [row(step) for step in range(4)]
    rows[3]["seconds/wall"] = 1000.0
    found = time_between(rows, warm_up=1, updates=2)
    assert found == Timed(4.0, 64, 200)
    assert found.completions_per_second == 16


def test_trl_is_timed_from_the_end_of_its_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 14.0])
    monkeypatch.setattr(trl_side, "perf_counter", lambda: next(clock))
    counted = Counted(eos=1)
    watch = trl_side.Watch(2, counted)
    for step in (1, 2, 3):
        counted(completions=["a"] * 8, completion_ids=[[5, 1]] * 8)
        watch.on_step_end(None, SimpleNamespace(global_step=step), None)
    watch.on_train_end(None, None, None)
    assert watch.timed == Timed(4.0, 8, 16)


def test_trl_makes_an_update_of_as_many_rows_as_we_do() -> None:
    given = trl_side.arguments(SPEC, "")
    rows = given["per_device_train_batch_size"] * given["gradient_accumulation_steps"]
    assert rows == SPEC.rows == 32
    whole = trl_side.arguments(replace(SPEC, micro_rows=64), "")
    assert (whole["per_device_train_batch_size"], whole["gradient_accumulation_steps"]) == (32, 1)
    pairs = replace(SPEC, algorithm="online_dpo")
    given = trl_side.arguments(pairs, "")
    assert given["per_device_train_batch_size"] == pairs.groups == 16
    assert given["gradient_accumulation_steps"] == 1
    assert given["max_steps"] == 3


@pytest.mark.parametrize(("mode", "updates", "threads"), [("sync", 3, 2), ("async", 4, 1)])
def test_our_side_is_a_run_of_the_same_work_on_as_many_cores(
    tmp_path: Path,
    make_config: Callable[..., Config],
    mode: str,
    updates: int,
    threads: int,
) -> None:
    config = make_config(*options(SPEC, mode, tmp_path))
    assert config.run.updates == updates
    assert config.run.groups_per_round * config.run.group_size == SPEC.rows
    assert (config.engine.threads, config.generator.threads) == (threads, threads)
    assert (config.mode.executor is ExecutorKind.process) == (mode == "async")
    assert config.algo.kl_coef == SPEC.kl_coef
    assert config.generator.max_new_tokens == SPEC.max_new_tokens
    assert not config.checkpoint.is_on
    assert config.eval.name == "none"


def test_a_missing_environment_is_refused_with_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run `make bench`, which makes it"):
        python_of(tmp_path)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\necho 'ModuleNotFoundError: no trl' >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(UserError, match=r"ModuleNotFoundError: no trl.*remove .*\.installed"):
        python_of(tmp_path)


def test_the_command_says_what_is_missing_and_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert against_trl.main(["--trl", str(tmp_path / "absent"), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("bench: --trl=")
    assert against_trl.main(["--docs", str(tmp_path / "absent.md"), "--trl", str(tmp_path)]) == 2
    assert "--docs=" in capsys.readouterr().err


def test_a_failed_run_ends_the_benchmark_with_what_it_said() -> None:
    with pytest.raises(RuntimeError, match=r"No module named benchmarks\.absent"):
        timed_runs.output_of([sys.executable, "-m", "benchmarks.absent"], SPEC)


def test_every_side_is_offered_as_many_prompts_as_it_reads(tmp_path: Path) -> None:
    given = ["--models", "nano_m", "--out", str(tmp_path)]
    specs = against_trl.specs_of(against_trl.arguments_of(given))
    inputs.make_prompts(specs)
    rows = (tmp_path / "prompts" / "train.jsonl").read_text().splitlines()
    # Online DPO has 64 pairs an update; one of warm-up, 8 timed, and one more of async.
    assert len(rows) == 64 * 10
    assert {spec.rows for spec in specs} == {128}


FOUND = against_trl.Found(
    [SPEC], {SPEC.name: {"rlhf_lab sync": [Timed(2.0, 64, 128)], TRL: [Timed(4.0, 64, 128)]}}
)


def test_the_table_has_a_row_for_each_side() -> None:
    rows = against_trl.table_of(FOUND).rows
    assert [(line[2], line[3], line[-1]) for line in rows] == [
        ("rlhf_lab sync", "32.0 [32.0, 32.0]", "2.00 [2.00, 2.00]"),
        (TRL, "16.0 [16.0, 16.0]", "1"),
    ]


def test_the_page_gets_the_tables_and_the_record_every_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    given = against_trl.arguments_of(["--out", str(tmp_path), "--docs", str(page)])
    against_trl.report(FOUND, given, Console(quiet=True))
    text = page.read_text()
    assert text.startswith("# Title\n") and text.endswith("\n\nThe rest.\n")
    assert "an earlier table" not in text
    assert "| nano_m grpo | 8 x 4 | TRL | 16.0 [16.0, 16.0] |" in text
    record = json.loads((tmp_path / "bench.json").read_text())
    assert record["specs"] == [asdict(SPEC)]
    assert record["runs"]["nano_m grpo"][TRL][0]["seconds"] == 4.0
    assert "torch" in record["provenance"]["versions"]


def tiny(folder: Path) -> Spec:
    """A spec over a model of 4k parameters that was never trained."""
    task = TldrNano()
    shape = ScratchModel("tiny", hidden_size=8, num_layers=1, num_heads=1)
    spec = replace(SPEC, folder=str(folder), rows=8, max_new_tokens=4, threads=1)
    save_policy(*load_policy(shape, task.tokenizer(), 1), spec.model_folder)
    rows = [("r/advice post : i was hurt . tl;dr :", " hurt .")] * 8
    write_prompts(spec.prompts_folder, rows)
    return spec


def test_our_side_runs_and_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(command: Sequence[str], _: Spec) -> None:
        """In this process, which has everything imported."""
        assert list(command[:3]) == [sys.executable, "-m", "rlhf_lab.cli.main"]
        assert call(*command[3:], monkeypatch=monkeypatch) == 0

    monkeypatch.setattr(timed_runs, "output_of", here)
    spec = replace(tiny(tmp_path), updates=1)
    found = timed_runs.ours("sync", spec, tmp_path / "run")
    assert found.completions == spec.rows == 8
    assert 8 <= found.tokens <= 32
    assert found.seconds > 0


def test_a_busy_machine_is_noted_with_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 9.0, 9.0))
    assert program.busy_note() == ""
    monkeypatch.setattr("os.getloadavg", lambda: (0.8, 0.0, 0.0))
    assert "other work held 0.8 of" in program.busy_note()
    found = against_trl.Found([SPEC], note=program.busy_note())
    assert "are not to be trusted" in against_trl.caption(found)
