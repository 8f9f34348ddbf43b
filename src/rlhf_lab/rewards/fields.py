"""Fields that several rewards have, each with its range and description."""

from __future__ import annotations

from rlhf_lab.rewards.limited import OnError
from rlhf_lab.types import limits
from rlhf_lab.types.precision import Precision

AUTO = "auto"


def label() -> int:
    about = "Number of the label whose logit is the reward; -1 takes the only label."
    return limits.count(-1, min=0, also={-1: "for the only one"}, about=about)


def tokenizer() -> str:
    about = (
        "Hub name or folder of the reward model's tokenizer; empty takes the one beside the model."
    )
    return limits.option("", about=about)


def chat() -> bool:
    about = "Whether prompt and response are read as messages of the reward model's chat template."
    return limits.option(False, about=about)


def missing_eos() -> float:
    about = "Score of a sample without the end token, in place of the model's."
    return limits.score(-1.0, about=about, source="N+ detail 23.3, arXiv:2403.17031")


def needs_eos() -> bool:
    about = (
        "Whether a sample without the end token gets missing_eos; false scores it as it is, by its "
        "last token."
    )
    return limits.option(True, about=about, source="false: evaluation of arXiv:2410.18252")


def micro_rows() -> int:
    about = (
        "Rows of one forward pass of the reward model; a GPU reads rows of like length together, "
        "up to 512 tokens for each of them."
    )
    return limits.rows(32, about=about)


def dtype() -> Precision:
    about = (
        "Type of the reward model's weights and passes: auto is bfloat16 on a GPU and float32 on a "
        "CPU. Its head computes in float32 in any case."
    )
    return limits.option(Precision.auto, about=about)


def device() -> str:
    about = (
        "Where the reward model runs: auto (with the generator, by generator.device), cpu, cuda or "
        "cuda:N, such as the GPU of a vLLM server that leaves memory for it."
    )
    return limits.option(AUTO, about=about)


def special_tokens() -> bool:
    about = (
        "Whether the completion has its special tokens, such as <answer> where the tokenizer has "
        "it as one; the end token is left out in any case."
    )
    return limits.option(False, about=about)


def time_limit_s() -> float:
    about = (
        "Seconds for one sample; above 0 the program runs in a process of its own, which is "
        "killed when time is up, and 0 is no limit."
    )
    return limits.seconds(0.0, also={0: "for none"}, about=about)


def workers() -> int:
    about = (
        "Processes that score a chunk's samples at the same time; 0 takes one for a function, and "
        "8 once it is seen to wait, and none for a task's rule without a time limit."
    )
    return limits.count(0, min=0, max=1024, also={0: "for auto"}, about=about)


def on_error() -> OnError:
    about = (
        "A sample whose program raises, runs out of time or returns no finite number stops the "
        "run, or drops its group, which is counted."
    )
    return limits.option(OnError.stop, about=about)
