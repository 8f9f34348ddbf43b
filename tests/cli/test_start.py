"""What is only read, and what is refused, starts without torch; nothing shows Hydra's own words."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rlhf_lab.cli import sweep
from rlhf_lab.cli.command import HydraCommand, OptionsCommand
from rlhf_lab.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
# Each line is a command; after it, the heavy libraries that are loaded by now are printed.
PROGRAM = f"""
import contextlib, io, shlex, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.support.quick_hydra import quicken
import rlhf_lab.runs.run_directory
from rlhf_lab.cli import main
quicken()
for line in sys.stdin.read().splitlines():
    sys.argv = ["rlhf-lab", *shlex.split(line)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.command_line()
    heavy = sorted({{"torch", "transformers", "safetensors"}} & sys.modules.keys())
    print(repr((line, code, heavy, out.getvalue(), err.getvalue())))
"""
READ = [
    "--help",
    "--version",
    "help train",
    "train --help",
    "train --version",
    "explain run.updates",
    "runs .",
    "train --cfg job",
    "completion bash",
    "__complete train run.",
    # The help of a report lists figures, which are modules that draw.
    *(f"{name} --help" for name in COMMANDS if name not in ("train", "report")),
]
REFUSED = {
    "trian": "unknown command 'trian': did you mean train?",
    "train algo=gpro": "algo=gpro is no option of algo: did you mean grpo or gspo? One of a_lol, ",
    "train agro=grpo": "agro is no key of the config: did you mean algo?",
    "train +agro=grpo": "agro=grpo is not an option: did you mean algo?",
    "train algo.lam=1": "algo.lam is a key of algo=ppo or ma_ppo ",
    "train lr=1e-5": "lr is no key of the config: did you mean optim.lr, sft.lr or ",
    "train +lr=1e-5": "lr=1e-05 is not an option: did you mean optim.lr, sft.lr or ",
    "train algo.name=grpo": "algo.name=grpo: the name of an option is its own; choose the option, ",
    "train task.name=../x": "task.name=../x: the name of an option is its own",
    "train mode.name=-1": "mode.name=-1: the name of an option is its own",
    "train judge.name=/dev/null": "judge.name=/dev/null: the name of an option is its own",
    "train +reward.terms.a.name=x": "reward.terms.a.name=x: the name of an option is its own",
    "train -m algo.name=grpo,ppo": "algo.name=grpo,ppo: the name of an option is its own",
    "train run.num_rounds=40": "did you mean run.updates or run.updates_per_round?",
    "train +run.num_rounds=40": "did you mean run.updates or run.updates_per_round?",
    "train run.updatez=3": "run.updatez is no key of the config: did you mean run.updates?",
    "train model@proxy=nano_x": "did you mean nano_s, nano_m or nano_l?",
    "train proxy.hidden_sizee=3": "did you mean proxy.hidden_size?",
    "train run=3": "run=3 is no option of run: One of ",
    "train eval.ks=[a]": "eval.ks=[a]: eval.ks[0]: Value 'a' of type 'str' could not be",
    "train experiment=nosuch": "experiment=nosuch is no option of experiment: ",
    "train debug=tyny": "did you mean tiny?",
    "train run.updates=-1": "run.updates=-1 is out of range: choose 1 to 1000000000",
    "train run.updates=abc": "run.updates=abc: Value 'abc' of type 'str' could not be converted",
    "train run.group_size=1": "run.group_size=1 with algo=online_dpo: it compares the samples",
    "train task=gsm8k 'task.template={question}'": "'task.template=\"{question}\"'",
    "train seed": "seed is no override: write key=value or group=option",
    "train --nothing": "unrecognized arguments: --nothing: write key=value",
    "train --config-name staleness_nan --config-dir SWEEPS": "did you mean staleness_nano?",
    "train -m algo=gpro,grpo": "algo=gpro is no option of algo: did you mean grpo or gspo?",
    "train -m run.updatez=1,2": "did you mean run.updates? (in the job updatez-1: run.updatez=1)",
    "train -m experiment=nosuch,other": "experiment=nosuch is no option of experiment: ",
}
OF_HYDRA = ("provider=", "structured://", "Error executing job", "hydra.cc", "object_type", "+run")
# The remedy that a refusal names.
QUOTED = "train --cfg job task=gsm8k 'task.template=\"{question}\"'"
# What a command line returned, the heavy libraries that were loaded by then, and what it printed.
Results = Mapping[str, tuple[int, list[str], str, str]]


def examples() -> Iterator[str]:
    """Lines that compose the example of each help that is composed; those about a run need one."""
    for name, command in COMMANDS.items():
        if command is sweep.SWEEP:
            flags = sweep.flags_of(shlex.split(command.example))[1:]  # without -m
            yield shlex.join(["train", "--cfg", "job", *flags])
        elif isinstance(command, HydraCommand):
            words = command.example.split()[int(command.of_run is not None) :]
            words = [word for word in words if not word.startswith("round=")]  # the fork's own
            yield " ".join(["train" if command.of_run else name, "--cfg job", *words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("started")


@pytest.fixture(scope="module")
def results(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Of all lines in this order, in one process that stands in the folder."""
    lines = [*dict.fromkeys([*READ, *REFUSED, QUOTED, *examples()])]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="\n".join(lines).replace("SWEEPS", str(ROOT / "sweeps")),
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))},
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    rows = [eval(row) for row in done.stdout.splitlines()]
    return {line: tuple(rest) for line, (_, *rest) in zip(lines, rows, strict=True)}


# One process for all lines of this file, whose imports are what is tested.
@pytest.mark.usefixtures("costly")
def test_what_only_reads_starts_without_torch(results: Results) -> None:
    for line in READ:
        code, loaded, out, err = results[line]
        assert (code, loaded, err) == (0, [], ""), line
        assert out, line


@pytest.mark.usefixtures("costly")
def test_a_refusal_names_what_was_meant_and_comes_without_torch(
    results: Results, folder: Path
) -> None:
    for line in REFUSED:
        code, loaded, out, err = results[line]
        assert (code, loaded, out) == (2, [], "" if "-m" not in line else out), line
        assert REFUSED[line] in err, line
        assert len(err.splitlines()) == 1, line
        assert [text for text in OF_HYDRA if text in err] == [], err
    # A run that is refused has no folder, which `rlhf-lab runs` would list as failed.
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("costly")
def test_a_quoted_value_with_braces_is_read(results: Results) -> None:
    """The remedy that a refusal names works."""
    code, _, out, _ = results[QUOTED]
    assert code == 0
    assert "template: '{question}'" in out


def test_the_example_of_every_command_with_options_is_parsed() -> None:
    for command in COMMANDS.values():
        if isinstance(command, OptionsCommand):
            assert command.parser().parse_intermixed_args(shlex.split(command.example))


@pytest.mark.usefixtures("costly")
def test_the_example_of_every_other_command_composes(results: Results) -> None:
    for line in examples():
        code, _, out, err = results[line]
        assert (code, err) == (0, ""), line
        assert "seed:" in out, line
