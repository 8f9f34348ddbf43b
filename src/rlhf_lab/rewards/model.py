"""A learned reward model as a reward: how it reads samples, and how it scores them.

It reads the tokens of the policy, a text, or a chat; of an episode the last action alone.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.batching import pad_right
from rlhf_lab.models.borders import longest_row
from rlhf_lab.models.devices import chosen, device_of, torch_threads
from rlhf_lab.models.forward import TokenRows, positions
from rlhf_lab.models.last_token_forward import last_column_stack, last_token_outputs
from rlhf_lab.models.microbatches import GroupSize, buckets, longest_first
from rlhf_lab.models.reward_model import chosen_label, for_scores, load_reward_model
from rlhf_lab.models.right_padded import is_causal, right_padded_inputs, stores_no_masks
from rlhf_lab.models.shared_prompts import (
    Rows,
    common_prefix,
    is_packable,
    packed_last_states,
    packing_is_cheaper,
    rows_with_prefix,
)
from rlhf_lab.rewards.fields import AUTO
from rlhf_lab.rewards.model_options import LearnedReward
from rlhf_lab.rewards.options import RewardContext, RewardOptions
from rlhf_lab.tasks import chat
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.heartbeat import beat
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Finish, Group, Sample
from rlhf_lab.types.text_frame import TextFrame

Encode = Callable[[Group, Sample], Sequence[int]]
# (group, sample, last tokens of its steps) -> the tokens that the model reads, and where in them
# each of the steps ends.
Read = Callable[[Group, Sample, Sequence[int]], tuple[Sequence[int], Sequence[int]]]

CPU = torch.device("cpu")
TOKENS_OF_ROW = 512


class ModelScorer(Reward):
    """score = head(last token) - offset; offset makes reference answers score 0 on average.

    device: where the model is moved to; rows come from the CPU, and scores go back there.
    by_length: rows of like length are read together, and the last layer for their last tokens
    alone, where the model can be read so: faster, and rounded differently.
    """

    def __init__(
        self,
        model: Any,
        offset: float,
        options: LearnedReward,
        encode: Encode,
        threads: int,
        device: torch.device = CPU,
        by_length: bool = False,
    ) -> None:
        self._model = for_scores(model, device, options.dtype)
        self._stack = last_column_stack(self._model) if by_length else None
        self._shares_prompts = shares_prompts(self._model)
        self._label = max(0, options.label)
        self._offset = offset
        self._options = options
        self._encode = encode
        self._threads = threads

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """One float per sample, in order; samples without the end token get `missing_eos`."""
        rows_P = [[self._encode(group, sample) for sample in group.samples] for group in groups]
        with torch_threads(self._threads), torch.inference_mode():
            score_B = self._scores(rows_P)
        scores = iter((score_B - self._offset).tolist())
        return [tuple(self._penalised(s, next(scores)) for s in group.samples) for group in groups]

    def _scores(self, rows_P: Sequence[Rows]) -> Tensor:
        """The head's outputs of the rows of each group, B, on the CPU."""
        size = self._options.micro_rows
        if self._shares_prompts and any(len(rows) > 1 for rows in rows_P):
            return scores_of_groups(self._model, rows_P, size, self._label)
        rows = [row for rows in rows_P for row in rows]
        if self._stack is None:
            return scores_of(self._model, rows, size, self._label)
        require_room(self._model, rows)
        return last_token_outputs(self._stack, rows, size)[:, self._label]

    def _penalised(self, sample: Sample, score: float) -> float:
        is_scored = sample.finish is Finish.eos or not self._options.needs_eos
        return score if is_scored else self._options.missing_eos


def device_for(options: RewardOptions, context: RewardContext) -> torch.device:
    """Where a reward model runs. Raises UserError for a device that is not here."""
    if options.device == AUTO:
        return context.device or CPU
    return chosen(options.device, f"{context.key}.device")


def build_member(options: LearnedReward, path: str, context: RewardContext) -> ModelScorer:
    """The reward of one model, which the user named or the pipeline trained."""
    key = f"{context.key}.{options.paths_key}"
    model, own_tokenizer, offset = load_reward_model(path, key, options.tokenizer)
    labelled = replace(options, label=chosen_label(model, path, options.label, key))
    if options.chat:
        encode = chat_encoder(own_tokenizer, path, key)
    else:
        encode = encoder(context.tokenizer, own_tokenizer, reads_last_token(model))
    device = device_for(options, context)
    return ModelScorer(model, offset, labelled, encode, context.threads, device, context.by_length)


def reads_last_token(model: Any) -> bool:
    """Whether it is a decoder with a linear head called `score`, which transformers applies to the
    last token; others pool in ways of their own."""
    return hasattr(model, "score")


def require_token_scores(model: Any, path: str, key: str) -> None:
    """Refuse a model that does not score every token by one number."""
    if not reads_last_token(model) or model.config.num_labels != 1:
        raise UserError(
            f"{key}={path}: it has no single score for every token; pass a decoder saved as "
            "sequence classification with one label"
        )


def scores_of(model: Any, rows: Sequence[Sequence[int]], size: int, label: int = 0) -> Tensor:
    """The reward of each row, B, in the passes of `passes`."""
    score_B = torch.empty(len(rows))
    for numbers in passes([len(row) for row in rows], size, device_of(model).type):
        score_B[numbers] = row_scores(model, [rows[number] for number in numbers], label)
        beat()
    return score_B


def passes(lengths: Sequence[int], size: int, device_type: str) -> Iterator[list[int]]:
    """The numbers of the rows of each forward pass: `size` rows in order on a CPU; on a GPU rows of
    like length, the longest first, up to TOKENS_OF_ROW padded tokens for each of `size` rows."""
    sizes = [GroupSize(length, 0, 1) for length in lengths]
    if device_type == "cpu":
        return buckets(sizes, range(len(sizes)), size, 0)
    order = longest_first(sizes, range(len(sizes)))
    return buckets(sizes, order, len(sizes), size * TOKENS_OF_ROW)


def shares_prompts(model: Any) -> bool:
    """Whether rows of a group share the reading of what they begin with, by masks of blocks: where
    rows are read without stored masks, of models that compute the same so."""
    device = device_of(model)
    if not (stores_no_masks(device) and reads_last_token(model) and is_causal(model.config)):
        return False
    from rlhf_lab.models.block_attention import takes_blocks, use_blocks

    use_blocks(model)
    return takes_blocks(model.base_model, device) and is_packable(model.base_model, by_blocks=True)


def scores_of_groups(
    model: Any, rows_P: Sequence[Rows], size: int, label: int = 0, by_blocks: bool = True
) -> Tensor:
    """The reward of the rows of each group, B: what they begin with is computed once a group where
    that is cheaper. A pass has up to TOKENS_OF_ROW packed tokens for each of `size` rows."""
    first_P = [0, *itertools.accumulate(map(len, rows_P))]
    prefix_P = [common_prefix(rows) for rows in rows_P]
    sizes = [
        GroupSize(prefix, sum(len(row) - prefix for row in rows), 1)
        for prefix, rows in zip(prefix_P, rows_P, strict=True)
    ]
    score_B = torch.empty(first_P[-1])
    order = longest_first(sizes, range(len(sizes)))
    for numbers in buckets(sizes, order, len(sizes), size * TOKENS_OF_ROW):
        rows = [row for number in numbers for row in rows_P[number]]
        require_room(model, rows)
        split = rows_with_prefix([rows_P[n] for n in numbers], [prefix_P[n] for n in numbers])
        split = TokenRows(*(column.to(device_of(model)) for column in split[:5]))
        if packing_is_cheaper(split, model.config.hidden_size, by_blocks):
            last_BD = packed_last_states(model.base_model, split, by_blocks)
            found_B = head_outputs(model, last_BD)[:, label].cpu()
        else:
            found_B = row_scores(model, rows, label)
        score_B[[place for n in numbers for place in range(*first_P[n : n + 2])]] = found_B
        beat()
    return score_B


def row_scores(model: Any, rows: Sequence[Sequence[int]], label: int = 0) -> Tensor:
    """The reward of each row, B, whatever the rows beside it."""
    require_room(model, rows)
    if reads_last_token(model):
        return last_token_scores(model, rows, label)
    return pooled_scores(model, rows, label)


def require_room(model: Any, rows: Sequence[Sequence[int]]) -> None:
    """Refuse rows that are longer than what the model reads."""
    context = longest_row(model.config)
    longest = max(map(len, rows))
    if context is not None and longest > context:
        raise UserError(
            f"a sample of {longest} tokens does not fit the {context} positions of the reward "
            "model: lower task.max_prompt_tokens or generator.max_new_tokens, or choose another "
            "model"
        )


def last_token_scores(model: Any, rows: Sequence[Sequence[int]], label: int = 0) -> Tensor:
    """The head's output at each row's last token, B, on the CPU.

    Rows are padded on the right, where a causal model cannot see it, so padding changes nothing;
    the position is known, not guessed from a pad id that may also be the end token.
    """
    hidden_BTD, mask_BT = hidden_states(model, rows)
    last_B = mask_BT.sum(dim=1) - 1
    last_BD = hidden_BTD[torch.arange(len(rows), device=last_B.device), last_B]
    return head_outputs(model, last_BD)[:, label].cpu()


def token_scores(model: Any, rows: Sequence[Sequence[int]]) -> Tensor:
    """The head's output at every token, BT, on the CPU: of a causal model, its score of each
    prefix."""
    return head_outputs(model, hidden_states(model, rows)[0]).squeeze(-1).cpu()


def head_outputs(model: Any, hidden: Tensor) -> Tensor:
    """The head's outputs, ...H, as float32, of hidden states, ...D. After `for_scores` the head
    computes in float32."""
    output: Tensor = model.score(hidden)
    return output.float()


def hidden_states(model: Any, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """The last hidden states of rows that are padded on the right, and their mask, on the model's
    device."""
    device = device_of(model)
    tokens_BT = pad_right(rows, torch.long).to(device)
    mask_BT = pad_right([[1] * len(row) for row in rows], torch.long).to(device)
    given = inputs_of(model, tokens_BT, mask_BT)
    hidden_BTD: Tensor = model.base_model(**given).last_hidden_state
    return hidden_BTD, mask_BT


def inputs_of(model: Any, tokens_BT: Tensor, mask_BT: Tensor) -> dict[str, Any]:
    """Arguments of a model's body, without the mask where the device's fast kernels take none."""
    if stores_no_masks(tokens_BT.device) and is_causal(model.config):
        from rlhf_lab.models.block_attention import use_blocks

        use_blocks(model)
        return right_padded_inputs(tokens_BT)
    return {
        "input_ids": tokens_BT,
        "attention_mask": mask_BT,
        "position_ids": positions(mask_BT),
        "use_cache": False,
    }


def pooled_scores(model: Any, rows: Sequence[Sequence[int]], label: int) -> Tensor:
    """The same by the model's own forward pass: encoders, and heads that pool.

    Rows of one length at a time, so that nothing is padded: what such a model makes of padding
    (its positions, its pooling, the token it takes for the last) is its own affair.
    """
    by_length: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        by_length.setdefault(len(row), []).append(index)
    score_B = torch.empty(len(rows))
    for indices in by_length.values():
        tokens_BT = torch.tensor([list(rows[index]) for index in indices], device=device_of(model))
        logits = model(input_ids=tokens_BT, attention_mask=torch.ones_like(tokens_BT)).logits
        score_B[indices] = logits[:, label].float().cpu()
    return score_B


def encoder(policy_tokenizer: Any, reward_tokenizer: Any, ends_with_eos: bool = True) -> Encode:
    """How a reward model reads a sample: its tokens if the vocabulary is shared, else its text.

    ends_with_eos: as a decoder does, which scores the end token; others, and those whose tokenizer
    has no end token, get the special tokens that their tokenizer puts around a text.
    """
    if not ends_with_eos or reward_tokenizer.eos_token_id is None:
        return functools.partial(as_own_text, reward_tokenizer)
    if policy_tokenizer.get_vocab() == reward_tokenizer.get_vocab():
        return as_tokens
    return functools.partial(as_text, reward_tokenizer)


def chat_encoder(reward_tokenizer: Any, path: str, key: str = "reward.path") -> Encode:
    """Reading through the tokenizer's chat template. Raises UserError if it has none. key: the
    option that named the model."""
    if not reward_tokenizer.chat_template:
        option = f"{key.rpartition('.')[0]}.chat"
        raise UserError(
            f"{option}=true, but the tokenizer of {key}={path} has no chat template: pass "
            f"{option}=false, or a reward model that was trained on chats"
        )
    return functools.partial(as_chat, reward_tokenizer)


def steps_encoder(
    policy_tokenizer: Any, reward_tokenizer: Any, path: str, key: str, decode: Any
) -> Read:
    """How a reward model of steps reads a sample, and where in it the steps end. Raises UserError
    for a tokenizer of another vocabulary that does not map tokens to text positions."""
    if policy_tokenizer.get_vocab() == reward_tokenizer.get_vocab():
        return steps_as_tokens
    if not reward_tokenizer.is_fast:
        raise UserError(
            f"{key}={path}: its tokenizer does not map tokens to positions in a text, "
            "and its vocabulary is not the policy's; choose a model with a fast tokenizer"
        )
    return functools.partial(steps_as_text, reward_tokenizer, decode)


def as_tokens(group: Group, sample: Sample) -> Sequence[int]:
    return [*group.prompt.tokens, *sample.answer]


def as_text(tokenizer: Any, group: Group, sample: Sample) -> Sequence[int]:
    """Prompt and response in another vocabulary, with its end token; messages by its template."""
    frame, example = TextFrame(tokenizer), group.prompt.example
    if not example.messages or not tokenizer.chat_template:
        return [*frame.row(example.prompt + sample.text), frame.end]
    tokens = as_chat(tokenizer, group, sample)
    last = next((n for n in range(len(tokens), 0, -1) if frame.has_end(tokens[:n])), 0)
    # Text after the end token begins the next message.
    is_ended = last and not frame.text(tokens[last:]).strip()
    return tokens[:last] if is_ended else [*tokens, frame.end]


def as_own_text(tokenizer: Any, group: Group, sample: Sample) -> Sequence[int]:
    """Prompt and response with the special tokens that the tokenizer adds."""
    tokens: list[int] = tokenizer(group.prompt.example.prompt + sample.text)["input_ids"]
    return tokens


def as_chat(tokenizer: Any, group: Group, sample: Sample) -> list[int]:
    """The example's messages, or its prompt as the user's, and the response as the assistant's."""
    example = group.prompt.example
    before = example.messages or (("user", example.prompt),)
    messages = [*before, ("assistant", sample.text)]
    text = chat.rendered(tokenizer, chat.OWN_FORM, example, messages, is_open=False)
    return TextFrame(tokenizer).chat(text)


def steps_as_tokens(
    group: Group, sample: Sample, ends: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """A sample as it is, and the positions of its steps' last tokens."""
    prompt = group.prompt.tokens
    return [*prompt, *sample.tokens], [len(prompt) + end for end in ends]


def steps_as_text(
    tokenizer: Any,
    decode: Callable[[Sequence[int]], str],
    group: Group,
    sample: Sample,
    ends: Sequence[int],
) -> tuple[Sequence[int], Sequence[int]]:
    """A sample in another vocabulary; a step ends with the last token that begins in it."""
    start, prompt = TextFrame(tokenizer).start, group.prompt.example.prompt
    encoded = tokenizer(
        prompt + decode(sample.tokens), add_special_tokens=False, return_offsets_mapping=True
    )
    starts = [start for start, _ in encoded["offset_mapping"]]
    stops = [len(prompt) + len(decode(sample.tokens[: end + 1])) for end in ends]
    places = [len(start) + bisect_left(starts, stop) - 1 for stop in stops]
    return [*start, *encoded["input_ids"]], places
