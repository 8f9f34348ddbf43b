"""A mirror of the metrics as TensorBoard event files."""

from __future__ import annotations

from pathlib import Path

from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError


class TensorBoardTracker:
    """Writes the numbers among the metrics to `folder`; texts and histograms are left out."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError(
                "tracker.tensorboard=true needs the package tensorboard: "
                "pip install 'rlhf-lab[tensorboard]', or choose tracker=jsonl"
            ) from error
        self._writer = SummaryWriter(str(folder))

    def log(self, metrics: Metrics, step: int) -> None:
        for name, value in metrics.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
