"""A mirror of metrics, samples and config as TensorBoard event files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.runs.jsonl import leaves
from rlhf_lab.runs.schema import RolloutSample
from rlhf_lab.runs.trackers.options import Tracker
from rlhf_lab.runs.trackers.wandb import SAMPLES, UPDATES
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError

# The folder in a run's folder that the event files are in.
EVENTS = "tensorboard"
# The end of the names of files with evaluations: rounds and evaluations share steps.
EVALUATIONS = ".evaluations"
# The page of hyperparameters compares runs by these, where they were recorded.
COMPARED = ("reward/mean", "kl/sampled_reference_k1", "gold/win_rate", "kl/sft_k1")
# Groups of the config that do not change the training.
NOT_COMPARED = ("output", "tracker", "checkpoint", "data")


class TensorBoardTracker(Tracker):
    """Writes to `folder` under the names that Weights & Biases has: numbers (those of histograms as
    `name.key`) by optimizer updates where a row has them, else by step; samples as text."""

    def __init__(self, folder: Path, suffix: str = "") -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError(
                "tracker.tensorboard=true needs the package tensorboard: "
                "pip install 'rlhf-lab[tensorboard]', or choose tracker=jsonl"
            ) from error
        self._writer: Any = SummaryWriter(str(folder), filename_suffix=suffix)

    def describe(self, config: Mapping[str, Any]) -> None:
        """Write the config for the page of hyperparameters."""
        from torch.utils.tensorboard import summary

        make: Any = summary.hparams
        for part in make(hyperparameters(config), dict.fromkeys(COMPARED, 0.0)):
            self._writer._get_file_writer().add_summary(part)

    def log(self, metrics: Metrics, step: int) -> None:
        place = int(metrics.get(UPDATES, step))
        for name, value in leaves(metrics):
            if isinstance(value, int | float):
                self._writer.add_scalar(name, value, place)
        self._writer.flush()

    def log_samples(self, samples: Sequence[RolloutSample]) -> None:
        text = "\n\n---\n\n".join(map(markdown, samples))
        self._writer.add_text(SAMPLES, text, samples[0].updates)

    def close(self) -> None:
        self._writer.close()


def hyperparameters(config: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """The values of a config that may change the training, by dotted keys."""
    shown = {name: node for name, node in config.items() if name not in NOT_COMPARED}
    return {
        name: value
        for name, value in leaves(shown)
        if isinstance(value, bool | int | float | str) and not name.endswith(".part")
    }


def markdown(sample: RolloutSample) -> str:
    """A sample as Markdown: its numbers, and its texts as code, which is shown as it is."""
    numbers = (
        f"reward {sample.reward:.4g}, version {sample.version}, lag {sample.lag_updates} updates"
    )
    texts = (
        "\n".join(f"    {line}" for line in text.splitlines() or [""])
        for text in (sample.prompt, sample.response)
    )
    return "\n\n".join([f"**{sample.uid}**: {numbers}", *texts])
