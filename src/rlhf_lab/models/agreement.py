"""Whether two ways to read rows give the same hidden states, on a small example."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.forward import TokenRows, before_tokens, inputs

# Rounding of a whole pass, far below what another token's presence would change.
UNITS = 64
LAYERS = 2
# Tokens of the example.
VOCABULARY = 8


def reads_as_plain(body: Any, read: Callable[[Any, TokenRows], Tensor]) -> bool:
    """Whether `read` finds the hidden states before the response tokens, ND, of plain rows."""
    body = exact(body)
    small = example(next(body.parameters()).device)
    with torch.no_grad():
        plain = before_tokens(body(**inputs(small)).last_hidden_state, small)[small.mask_BT > 0]
        other = read(body, small)
    tolerance = UNITS * torch.finfo(plain.dtype).eps
    return bool((plain - other).abs().max() <= tolerance * plain.abs().max())


def exact(body: Any) -> Any:
    """The model itself in float32. In half precision, rounding is as large as what another token's
    presence changes: there a model of its class with two layers of random float32 weights."""
    if next(body.parameters()).dtype is torch.float32:
        return body
    config = copy.deepcopy(body.config)
    config.num_hidden_layers = min(config.num_hidden_layers, LAYERS)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: config.num_hidden_layers]
    config.vocab_size, config.pad_token_id = VOCABULARY, None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return type(body)(config).float().eval()


def example(device: torch.device) -> TokenRows:
    """Two responses to one prompt, the first of them with padding."""
    rows = {
        "prompt_BS": [[0, 1, 2], [0, 1, 2]],
        "prompt_mask_BS": [[0, 1, 1], [0, 1, 1]],
        "response_BT": [[3, 1, 0], [2, 4, 3]],
        "mask_BT": [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]],
        "group_B": [0, 0],
    }
    return TokenRows(**{name: torch.tensor(cells, device=device) for name, cells in rows.items()})
