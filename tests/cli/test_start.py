"""What is only read, and what is refused, starts without torch; nothing shows Hydra's own words."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rlhf_lab.cli import sweep
from rlhf_lab.cli.command import HydraCommand, OptionsCommand
from rlhf_lab.cli.main import COMMANDS

# Each line is a command; after it, the heavy libraries that it loaded are printed.
PROGRAM = """
import contextlib, io, shlex, sys
from rlhf_lab.cli import main
for line in sys.stdin.read().splitlines():
    sys.argv = ["rlhf-lab", *shlex.split(line)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.main()
    heavy = sorted({"torch", "transformers", "safetensors"} & sys.modules.keys())
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
]
REFUSED = {
    "trian": "unknown command 'trian': did you mean train?",
    "train algo=gpro": "algo=gpro is no option of algo: did you mean grpo or gspo? One of a_lol, ",
    "train agro=grpo": "agro is no key of the config: did you mean algo?",
    "train +agro=grpo": "agro=grpo is not an option: did you mean algo?",
    "train algo.lam=1": "algo.lam is a key of algo=ppo or ma_ppo ",
    "train lr=1e-5": "lr is no key of the config: did you mean optim.lr, sft.lr or ",
    "train +lr=1e-5": "lr=1e-05 is not an option: did you mean optim.lr, sft.lr or ",
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
SWEEPS = Path(__file__).parents[2] / "sweeps"


def results(lines: list[str], folder: Path) -> dict[str, tuple[int, list[str], str, str]]:
    """What each command line returned, loaded and printed, in one process."""
    text = "\n".join(lines).replace("SWEEPS", str(SWEEPS))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=text, capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    rows = [eval(row) for row in done.stdout.splitlines()]
    return {line: tuple(rest) for line, (_, *rest) in zip(lines, rows, strict=True)}


def test_what_only_reads_starts_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for line, (code, loaded, out, err) in results(READ, tmp_path).items():
        assert (code, loaded, err) == (0, [], ""), line
        assert out, line


def test_a_refusal_names_what_was_meant_and_comes_without_torch(tmp_path: Path) -> None:
    for line, (code, loaded, out, err) in results(list(REFUSED), tmp_path).items():
        assert (code, loaded, out) == (2, [], "" if "-m" not in line else out), line
        assert REFUSED[line] in err, line
        assert len(err.splitlines()) == 1, line
        assert [text for text in OF_HYDRA if text in err] == [], err
    # A run that is refused has no folder, which `rlhf-lab runs` would list as failed.
    assert list(tmp_path.iterdir()) == []


def test_a_quoted_value_with_braces_is_read(tmp_path: Path) -> None:
    """The remedy that a refusal names works."""
    line = "train --cfg job task=gsm8k 'task.template=\"{question}\"'"
    code, _, out, _ = results([line], tmp_path)[line]
    assert code == 0
    assert "template: '{question}'" in out


def test_the_example_of_every_help_composes(tmp_path: Path) -> None:
    """Those of commands with options of their own are parsed; those about a run need one."""
    lines = []
    for name, command in COMMANDS.items():
        if isinstance(command, OptionsCommand):
            assert command.parser().parse_intermixed_args(shlex.split(command.example))
        elif command is sweep.COMMAND:
            flags = sweep.flags_of(shlex.split(command.example))[1:]  # without -m
            lines.append(shlex.join(["train", "--cfg", "job", *flags]))
        elif isinstance(command, HydraCommand):
            words = command.example.split()[int(command.of_run is not None) :]
            words = [word for word in words if not word.startswith("round=")]  # the fork's own
            lines.append(" ".join(["train" if command.of_run else name, "--cfg job", *words]))
    for line, (code, _, out, err) in results(lines, tmp_path).items():
        assert (code, err) == (0, ""), line
        assert "seed:" in out, line
