"""Self-tests of ways to read rows: whether they find what a model finds in each row alone.

A way that fails its test, or raises, is not taken.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.batching import pad_left, pad_right
from rlhf_lab.models.borders import borders, longest_row
from rlhf_lab.models.forward import TokenRows, before_tokens, body, inputs
from rlhf_lab.models.quiet import first_line
from rlhf_lab.runs.memory import is_shortage

# Rounding of a whole pass, far below what another token's presence would change.
UNITS = 64
LAYERS = 2
# Rows of the embedding of such a model, and tokens of the example.
VOCABULARY, TOKENS = 8, 5
# Prompts of the example: at least so many tokens, and so many at most, however far attention
# reaches.
SHORTEST, LONGEST = 6, 64
RESPONSES = ((3, 1), (2, 4, 3), (1, 5))
# Config fields of transformers by which a model caps its logits.
CAPS = ("final_logit_softcapping", "output_logits_soft_cap")
# How far log-probs of padded rows may be from those of rows alone, as a share of their spread.
PADDED, PADDED_OF_HALVES = 1e-3, 0.05
# What models raise that do not take an argument or a shape.
UNFIT = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def tried(test: Callable[[], float]) -> tuple[float, str]:
    """What a self-test finds; infinity, and the reason in a line, if it raises."""
    try:
        return test(), ""
    except UNFIT as error:
        if is_shortage(error):
            raise
        return float("inf"), f"{type(error).__name__}: {first_line(error)}"


def reads_as_single_rows(network: Any, read: Callable[[Any, TokenRows], Tensor]) -> bool:
    """Whether `read` finds the hidden states before the response tokens, ND, that the model finds
    in each row alone."""
    return problem_of(network, read) == ""


def problem_of(network: Any, read: Callable[[Any, TokenRows], Tensor]) -> str:
    """Why `read` is not to be taken, in a line; "" if it finds what the model finds in each row
    alone."""

    def distance() -> float:
        own = exact(network)
        rows = example(own)
        with torch.no_grad():
            alone = single_rows(lambda token_1L: own(token_1L).last_hidden_state, rows)
            difference = (read(own, rows) - alone).abs().max()
        return float(difference / alone.abs().max() / torch.finfo(alone.dtype).eps / UNITS)

    far, reason = tried(distance)
    if reason:
        return reason
    return "" if far <= 1 else f"its hidden states are {far:.3g} times as far off as is tolerated"


def padding_problem(model: Any) -> str:
    """Why rows of a language model cannot be read beside others, in a line; "" if padded rows have
    the log-probs of each row alone."""

    def distance() -> float:
        rows = example(model)
        with torch.no_grad():
            alone = single_rows(lambda token_1L: model(token_1L).logits, rows)
            padded = before_tokens(model(**inputs(rows)).logits, rows)[rows.mask_BT > 0]
        alone, padded = (logits.float().log_softmax(dim=-1) for logits in (alone, padded))
        # A model may rule out tokens of its vocabulary.
        is_known = alone != -torch.inf
        alone, padded = alone[is_known], padded[is_known]
        return float((padded - alone).norm() / (alone - alone.mean()).norm())

    far, reason = tried(distance)
    tolerance = PADDED if model.dtype is torch.float32 else PADDED_OF_HALVES
    if reason or far <= tolerance:
        return reason
    return f"log-probs of padded rows are off by {far:.2g} of their own spread"


def is_splittable(model: Any) -> bool:
    """Whether the logits are exactly the output head applied to the last hidden states.

    Tested on two tokens, because models that scale or cap their logits name that differently. A cap
    hardly changes small logits, so the known config fields are checked as well.
    """
    if any(getattr(model.config, name, None) for name in CAPS):
        return False
    head = model.get_output_embeddings()
    if head is None or not hasattr(model, "base_model") or model.base_model is model:
        return False

    def distance() -> float:
        tokens = torch.arange(2, device=next(model.parameters()).device).unsqueeze(0)
        with torch.no_grad():
            logits = model(input_ids=tokens, use_cache=False).logits
            parts = head(body(model)(input_ids=tokens, use_cache=False).last_hidden_state)
        is_same = logits.shape == parts.shape and torch.allclose(
            logits, parts, rtol=1e-4, atol=1e-5
        )
        return 0.0 if is_same else 1.0

    return tried(distance)[0] == 0


def single_rows(read: Callable[[Tensor], Tensor], rows: TokenRows) -> Tensor:
    """What `read` finds before the response tokens, ND, in rows that are read one by one."""
    found = []
    for row in range(len(rows.mask_BT)):
        prompt = rows.prompt_BS[row][rows.prompt_mask_BS[row] > 0]
        response = rows.response_BT[row][rows.mask_BT[row] > 0]
        whole_LD = read(torch.cat([prompt, response]).unsqueeze(0))[0]
        found.append(whole_LD[len(prompt) - 1 : -1])
    return torch.cat(found)


def exact(network: Any) -> Any:
    """The model itself in float32. In half precision, rounding is as large as what another token's
    presence changes: there a model of its class with few layers, one of each kind at least, of
    random float32 weights."""
    if next(network.parameters()).dtype is torch.float32:
        return network
    config = copy.deepcopy(network.config)
    kinds = list(getattr(config, "layer_types", None) or ())
    layers = max([LAYERS, *(kinds.index(kind) + 1 for kind in kinds)])
    config.num_hidden_layers = min(config.num_hidden_layers, layers)
    if kinds:
        config.layer_types = kinds[: config.num_hidden_layers]
    config.vocab_size, config.pad_token_id = VOCABULARY, None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return type(network)(config).float().eval()


def reach(config: Any, written: int) -> int:
    """The tokens of a prompt that reaches beyond every border of a config, or LONGEST, and leaves
    room for so many more."""
    wanted = max([SHORTEST, *(border + 2 for border in borders(config))])
    room = (longest_row(config) or LONGEST + written) - written
    return max(2, min(wanted, LONGEST, room))


def example(model: Any) -> TokenRows:
    """Two responses to a long prompt (`reach`), and one to a short one. Padding, before prompts and
    behind responses, has tokens like any."""
    size = reach(model.config, max(map(len, RESPONSES)))
    prompts = [[(3 * place * place + place) % TOKENS for place in range(size)]] * 2 + [[1, 2]]
    prompt_BS, prompt_mask_BS = pad_left(prompts, TOKENS - 1)
    mask_BT = pad_right([[1.0] * len(response) for response in RESPONSES], torch.float32)
    response_BT = pad_right(RESPONSES, torch.long)
    group_B = torch.tensor([0, 0, 1])
    rows = (prompt_BS, prompt_mask_BS, response_BT, mask_BT, group_B)
    device = next(model.parameters()).device
    return TokenRows(*(column.to(device) for column in rows))
