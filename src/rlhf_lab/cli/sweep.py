"""`rlhf-lab sweep`: the sweep of a file, one that this package ships or one of the user's own."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

from rlhf_lab.cli import train
from rlhf_lab.cli.command import HydraCommand
from rlhf_lab.cli.exit_codes import BAD_INPUT
from rlhf_lab.sweeps.options import SweeperOptions, questions, sweep_file

# Options of the sweeper, which may be passed without `hydra.sweeper.`.
SHORT = tuple(f.name for f in dataclasses.fields(SweeperOptions))


class SweepCommand(HydraCommand):
    """Runs or resumes the jobs of one file."""

    def help(self) -> str:
        known = questions()
        width = max(map(len, known))
        return "\n".join(
            [
                *self.heading,
                "dry=true         list the jobs and stop",
                "rerun=failed     run failed jobs again, from their checkpoints",
                "extend=true      add jobs to an older sweep of the same settings",
                "launcher=NAME    local, joblib (two jobs at a time), slurm",
                "KEY=VALUE[,VALUE] holds for all jobs, or replaces a swept key (docs/sweeps.md).",
                "",
                "Sweeps:",
                *(f"  {name:<{width}}  {question}" for name, question in known.items()),
                "",
            ]
        )

    def run(self, arguments: list[str]) -> int:
        if not arguments:
            sys.stderr.write(self.help())
            return BAD_INPUT
        return super().run(flags_of(arguments))


def flags_of(arguments: Sequence[str]) -> list[str]:
    """What Hydra is passed for a sweep's name or path and its overrides, in which options of the
    sweeper have short names."""
    path = sweep_file(arguments[0])
    chosen = ["--config-dir", str(path.parent), "--config-name", path.stem]
    whole = [
        f"hydra.sweeper.{text}" if text.partition("=")[0] in SHORT else text
        for text in arguments[1:]
    ]
    return ["-m", *chosen, *whole]


SWEEP = SweepCommand(
    "sweep",
    "run or go on with a sweep, by its name or by the path of its file",
    "staleness_nano launcher=joblib dry=true",
    usage="NAME|PATH.yaml [dry=true] [rerun=failed] [extend=true] [key=value ...]",
    job=train.train,
    job_command=train.TRAIN.name,
)
