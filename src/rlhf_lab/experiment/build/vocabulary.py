"""Whether tokenizers know the prompts of a task, before weights are loaded and stages trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.models.causal_lm import load_tokenizer
from rlhf_lab.models.loading import load_tokenizer_of
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.rewards.options import num_proxies, scorers
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split
from rlhf_lab.types.text_frame import TextFrame

# Prompts that are read, and the shares of unknown tokens in them that are refused and warned of.
FIRST = 64
REFUSED, WARNED = 0.5, 0.05


def require_known_prompts(config: Config, report: Callable[[str], None]) -> None:
    """Refuse a pretrained policy and named reward models whose tokenizers do not know half of the
    tokens of the first prompts. report: takes a line about those that do not know some."""
    examples = config.task.examples(Split.train)
    prompts = [examples[index].prompt for index in range(min(FIRST, len(examples)))]
    for setting, tokenizer in tokenizers(config):
        share = unknown_share(prompts, tokenizer)
        if share < WARNED:
            continue
        text = (
            f"{setting} with task={config.task.name}: its tokenizer has no token for {share:.0%} "
            f"of the first {len(prompts)} prompts"
        )
        if share >= REFUSED:
            raise UserError(f"{text}: pass a model of the task's vocabulary, or another task")
        report(f"warning: {text}; it reads them as one and the same token")


def tokenizers(config: Config) -> Iterator[tuple[str, Any]]:
    """The tokenizers of models that the user named, each with the option that named it."""
    if isinstance(config.model, PretrainedModel):
        tokenizer = load_tokenizer(config.model, config.task.tokenizer())
        yield f"model.path={config.model.path}", tokenizer
    for key in ("reward", "judge"):
        options = getattr(config, key)
        for one in scorers(key, options, [""] * num_proxies(options)):
            if one.path:
                yield f"{one.key}={one.path}", load_tokenizer_of(*one.vocabulary)


def unknown_share(texts: Sequence[str], tokenizer: Any) -> float:
    """The share of a tokenizer's tokens in these texts that stand for what it does not know; 0 of
    no tokens."""
    counts = [unknown_tokens(text, tokenizer) for text in texts]
    return sum(unknown for unknown, _ in counts) / max(1, sum(total for _, total in counts))


def unknown_tokens(text: str, tokenizer: Any) -> tuple[int, int]:
    """How many tokens of a text stand for what the tokenizer does not know, and how many it has. A
    text that the tokenizer refuses is unknown by all of its characters."""
    try:
        tokens = TextFrame(tokenizer).inside(text)
    except Exception:  # what tokenizers raises where nothing stands for unknown parts
        return len(text), len(text)
    unknown = tokenizer.unk_token_id
    return 0 if unknown is None else tokens.count(unknown), len(tokens)
