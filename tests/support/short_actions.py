"""A policy of random weights whose actions are short: of a few symbols, one of them the end."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from rlhf_lab.models.causal_lm import save_policy
from rlhf_lab.models.options import ScratchModel, scratch

MODEL = ScratchModel("short", hidden_size=16, num_layers=1, num_heads=2, max_positions=4096)
# Few updates of few episodes, with nothing but the training.
BRIEF = (
    "model=pretrained",
    "algo=grpo",
    "run=nano",
    "run.updates=2",
    "run.groups_per_update=2",
    "run.group_size=4",
    "optim=nano",
    "eval=none",
    "eval.snapshots=0",
)


def tokenizer_of(symbols: str) -> PreTrainedTokenizerFast:
    """One token a character; any but these is unknown."""
    words = ["<pad>", "<eos>", "<unk>", *symbols]
    tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


def brief_run(folder: Path, symbols: str) -> tuple[str, ...]:
    """Overrides of a run that begins with such a policy, which is saved below the folder."""
    tokenizer = tokenizer_of(symbols)
    path = folder / "policy"
    save_policy(scratch(MODEL, tokenizer, seed=1), tokenizer, path)
    return (*BRIEF, f"model.path={path}")
