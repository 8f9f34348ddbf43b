"""Config group `eval`: which saved versions are evaluated, and how."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.models.devices import check_name
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split


class Validate(StrEnum):
    """Who scores the version at which a run pauses or ends, for validation.jsonl."""

    none = "none"
    proxy = "proxy"
    judge = "judge"


# Names of files have at most 255 characters.
LABEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})?")


@dataclass(frozen=True)
class EvalOptions(limits.OptionGroup, key="eval"):
    """Which saved versions are judged, on which prompts, and how."""

    name: str = limits.name("quick")
    split: Split = limits.option(Split.validation, about="Split whose prompts are answered.")
    prompts: int = limits.count(512, about="Prompts of the split that are answered.")
    last_prompts: int = limits.count(
        0,
        also={0: "for no second evaluation"},
        about=(
            "Prompts that the last version answers in a second evaluation, evals-last.jsonl: "
            "claims about the end need a finer win-rate than the way to it. 0 makes none."
        ),
    )
    snapshots: int = limits.count(
        5,
        min=0,
        max=10**6,
        about=(
            "Saved versions of a run that are evaluated, evenly spread with the last always among "
            "them; 0 is none but those of eval.every."
        ),
    )
    every: int = limits.count(
        0,
        min=0,
        about=(
            "Rounds from one further version to the next that is kept and judged, by a process "
            "beside the training, which does not wait; 0 judges those of eval.snapshots alone, "
            "after the training."
        ),
    )
    device: str = limits.option(
        "auto",
        about=(
            "Device of the process that judges beside the training (eval.every): cpu, cuda, "
            "cuda:3, ...; auto takes engine.device and generator.device."
        ),
    )
    temperature: float = limits.number(
        0.0,
        min=0.01,
        max=10,
        also={0: "for generator.temperature"},
        about=(
            "Sampling temperature of judged responses; 0 takes generator.temperature, so that the "
            "same samples give win-rate and KL."
        ),
        source="the paper judges at 0.01",
    )
    max_new_tokens: int = limits.tokens(
        0,
        also={0: "for those of training"},
        about=(
            "Longest judged response in tokens; 0 is as in training. Samples for KL are as long as "
            "in training unless temperature and length are the same."
        ),
        source="the published code trains on 53 and judges 128",
    )
    samples: int = limits.count(1, max=10**5, about="Responses per prompt, for pass@k and maj@k.")
    ks: list[int] = limits.collection(
        list, about="The k of pass@k and maj@k; empty takes 1 and samples.", min=1, max=10**5
    )
    chunk_groups: int = limits.rows(256, about="Prompts decoded together, divided by samples.")
    label: str = limits.option(
        "",
        about=(
            "Writes evals-LABEL.jsonl beside evals.jsonl, for a second evaluation of a run; empty "
            "writes evals.jsonl."
        ),
    )
    table_rows: int = limits.count(
        8, min=0, max=10**6, about="Prompts whose responses are kept as texts and shown."
    )
    threads: int = limits.threads(2, about="CPU threads of each operation of evaluation.")
    validate: Validate = limits.option(
        Validate.none,
        about=(
            "Who scores the version at which a run pauses or ends, for validation.jsonl: nobody, "
            "the proxy (what searches select by), or the judge too."
        ),
    )

    tasks: list[str] = limits.collection(
        list,
        about=(
            "Tasks of lm-evaluation-harness that `rlhf-lab evaluate RUN eval=harness` runs on the "
            "exported policy instead, each with at most `prompts` examples."
        ),
    )
    tasks_folder: str = limits.option(
        "",
        about="Folder with task files of your own (YAML) that eval.tasks may name.",
        trust=True,
    )
    fewshot: int = limits.count(
        -1,
        also={-1: "for each task's own"},
        min=0,
        max=1000,
        about="Solved examples before each question of eval.tasks.",
    )

    @property
    def is_harness(self) -> bool:
        """Whether benchmarks of lm-evaluation-harness are run, on a run's policy."""
        return bool(self.tasks) or self.name == "harness"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.device, "eval.device")
        for k in self.ks:
            if k > self.samples:
                raise UserError(
                    f"eval.ks={self.ks} with eval.samples={self.samples}: choose numbers from 1 to "
                    f"eval.samples, or pass eval.samples={max(self.ks)}"
                )
        if not LABEL.fullmatch(self.label):
            raise UserError(
                f"eval.label={self.label!r} is part of a file's name: choose at most 100 "
                "letters, digits, '.', '_' and '-', the first a letter or digit"
            )

    @property
    def most_prompts(self) -> tuple[str, int]:
        """Prompts of the evaluation that has most, and the option that sets them."""
        return max(
            ("eval.prompts", self.prompts),
            ("eval.last_prompts", self.last_prompts),
            key=lambda one: one[1],
        )

    def versions(self, num_rounds: int) -> tuple[int, ...]:
        """Which versions to keep: version 0 is SFT, version num_rounds the end."""
        counts = range(self.snapshots + 1) if self.snapshots else ()
        kept = {round(num_rounds * step / self.snapshots) for step in counts}
        if self.every:
            kept |= {*range(0, num_rounds, self.every), num_rounds}
        return tuple(sorted(kept))

    @property
    def sizes(self) -> list[int]:
        """The k of pass@k and maj@k."""
        return sorted(set(self.ks or (1, self.samples)))
