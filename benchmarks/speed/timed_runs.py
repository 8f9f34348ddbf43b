"""Time one run of either side in its own process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.speed.program import command
from benchmarks.speed.spec import Spec, Timed
from rlhf_lab.runs.folder import METRICS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.types.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
# Rounds that async trains on at its end while its generator is done: they are not timed.
AHEAD = {"sync": 0, "async": 1}
# Half precision with float32 masters.
ENGINE = {"float32": (), "bfloat16": ("engine=fsdp", "engine.dtype=bfloat16")}
REWARD = "benchmarks.speed.reward.reward"


def options(spec: Spec, mode: str, folder: Path) -> list[str]:
    """The options of our side: those of the spec, and nothing evaluated, saved or probed. KL to the
    start is measured on four groups where the algorithm does not ask for it, as TRL's do not."""
    threads = spec.threads if mode == "sync" else max(1, spec.threads // 2)
    updates = spec.warm_up + spec.updates + AHEAD[mode]
    pull = "algo.beta" if spec.algorithm == "online_dpo" else "algo.kl_coef"
    return [
        *("task=tldr", f"task.path={spec.prompts_folder}"),
        *("model=pretrained", f"model.path={spec.model_folder}", f"model.dtype={spec.dtype}"),
        *(f"task.max_prompt_tokens={spec.max_prompt_tokens}", f"mode={mode}", f"seed={spec.seed}"),
        *("reward=function", f"reward.path={REWARD}"),
        *("reward@judge=function", f"judge.path={REWARD}"),
        *(f"algo={spec.algorithm}", f"{pull}={spec.kl_coef}", f"run.updates={updates}"),
        *(f"run.groups_per_update={spec.groups}", f"run.group_size={spec.group_size}"),
        *("run.updates_per_round=1", "run.passes=1", *ENGINE[spec.dtype]),
        *(f"engine.micro_rows={spec.micro_rows}", f"engine.threads={threads}"),
        # Groups of like length share a pass; TRL's trainers cut an update by rows alone.
        "engine.micro_tokens=2048",
        *(f"generator.max_new_tokens={spec.max_new_tokens}", f"generator.threads={threads}"),
        *(f"generator.chunk_groups={spec.groups}", f"generator.temperature={spec.temperature}"),
        *(f"optim.lr={spec.learning_rate}", "optim.schedule=constant", "eval=none"),
        *("checkpoint=none", "tracker.probe_groups=0", "tracker.reference_groups=4"),
        *(f"output.dir={folder}", "output.quiet=true"),
    ]


def ours(mode: str, spec: Spec, folder: Path) -> Timed:
    """A run of rlhf_lab, timed by its own record."""
    output_of(command("train", *options(spec, mode, folder)), spec)
    return time_between(read_rows(folder / METRICS), spec.warm_up, spec.updates)


def time_between(rows: Sequence[Mapping[str, Any]], warm_up: int, updates: int) -> Timed:
    """What lies between the ends of two rounds.

    Async has generated a round more than it has trained on at both of them, so that generation and
    training are of equally many completions.
    """
    start, end = rows[warm_up - 1], rows[warm_up + updates - 1]

    def between(key: str) -> Any:
        return end[key] - start[key]

    return Timed(
        seconds=between("seconds/wall"),
        completions=between("total/completions"),
        tokens=between("total/generated_tokens"),
    )


def theirs(python: Path, spec: Spec, folder: Path) -> Timed:
    """The same with TRL's trainer, by its environment's Python."""
    folder.mkdir(parents=True)
    path = folder / "spec.json"
    path.write_text(json.dumps(asdict(spec)), encoding="utf-8")
    output = output_of([str(python), "-m", "benchmarks.speed.trl_side", str(path)], spec)
    return Timed(**json.loads(output.strip().splitlines()[-1]))


def output_of(words: Sequence[str], spec: Spec) -> str:
    """The standard output of a command. Raises RuntimeError with all its output if it fails."""
    environment = {
        **os.environ,
        # What takes a GPU where there is one must not find it in a comparison of CPUs.
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": str(spec.threads),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def python_of(environment: Path) -> Path:
    """The Python of TRL's environment. Refused if it cannot import what the benchmark needs."""
    python = (environment / "bin" / "python").absolute()
    reason, remedy = "it holds no bin/python", "run `make bench`, which makes it"
    if python.is_file():
        imports = [str(python), "-c", "import accelerate, datasets, trl"]
        done = subprocess.run(imports, capture_output=True, text=True)
        if done.returncode == 0:
            return python
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        remedy = f"remove {environment}/.installed and run `make bench`"
    raise UserError(f"--trl={environment} cannot import TRL ({reason}): {remedy}")
