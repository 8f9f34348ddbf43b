"""Whether two ways to read rows give the same hidden states, on a small example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.forward import TokenRows, before_tokens, inputs

# Rounding of a whole pass, far below what another token's presence would change.
UNITS = 64


def reads_as_plain(body: Any, read: Callable[[Any, TokenRows], Tensor]) -> bool:
    """Whether `read` finds the hidden states before the response tokens, ND, of plain rows."""
    small = example(next(body.parameters()).device)
    with torch.no_grad():
        plain = before_tokens(body(**inputs(small)).last_hidden_state, small)[small.mask_BT > 0]
        other = read(body, small)
    tolerance = UNITS * torch.finfo(plain.dtype).eps
    return bool((plain - other).abs().max() <= tolerance * plain.abs().max())


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
