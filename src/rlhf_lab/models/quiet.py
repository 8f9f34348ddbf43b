"""transformers without its progress bars, and its errors in one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from transformers import modeling_gguf_pytorch_utils as gguf
from transformers.utils import logging as transformers_logging


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for one-line refusals; with the second, if the first
    ends in a colon."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines[: 2 if lines[0].endswith(":") else 1])


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and warnings of transformers: the terminal belongs to the console."""
    before = transformers_logging.get_verbosity()
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    # The reader of GGUF files draws a bar of tqdm itself, which no setting turns off.
    own, gguf.tqdm = gguf.tqdm, transformers_logging.tqdm
    try:
        yield
    finally:
        gguf.tqdm = own
        transformers_logging.set_verbosity(before)
        transformers_logging.enable_progress_bar()
