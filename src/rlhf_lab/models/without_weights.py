"""Models without memory for weights, with all that they compute from their config alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class WithoutWeights(TorchFunctionMode):
    """Inside, tensors that are made empty, as weights are, have shapes alone (device `meta`).

    Buffers have values, such as the frequencies of rotary positions. Unlike `torch.device("meta")`,
    which makes these on `meta` too, it leaves a model that computes once it is given weights.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func is torch.empty and given.get("device") is None:
            given["device"] = "meta"
        return func(*args, **given)
