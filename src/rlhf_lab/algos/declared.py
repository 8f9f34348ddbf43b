"""The batch that an algorithm or a correction sees: without the tensors that it does not declare.

A run computes what is declared alone. A tensor that is not holds zeros, or another policy's
log-probs for some rows, so reading it is refused in place of training on it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlhf_lab.types.data import Batch, Credit, ValueModel
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Correction, Loss

if TYPE_CHECKING:
    from torch import Tensor

OF_CORRECTIONS = {"writer_logp_BT": "writer_logp", "entropy_BT": "entropy", "lag_BT": "lag"}


def seen_by_algorithm(batch: Batch, algo: Loss) -> Batch:
    """The batch of `Algorithm.credit` and `Algorithm.loss`."""
    needs, missing = algo.needs, {}
    if not needs.reference:
        missing["reference_logp_BT"] = "reference=True"
    if needs.values is ValueModel.none:
        missing["value_BT"] = missing["target_BT"] = "values=ValueModel.own"
    if not needs.ratio_gradients:
        missing["log_ratio_gradient_B"] = "ratio_gradients=True"
    name = type(algo).__name__
    texts = {
        field: f"{name} reads Batch.{field}, which it does not declare: add {needed} to the Needs "
        "of its `needs`"
        for field, needed in missing.items()
    }
    for field in OF_CORRECTIONS:
        texts[field] = f"{name} reads Batch.{field}, which is for corrections (CorrectionNeeds)"
    return hidden(batch, texts)


def require_declared(credit: Credit, algo: Loss, num_groups: int) -> None:
    """Refuse credit for more rows than the algorithm declares. Raises UserError."""
    most, kept = algo.needs.trained_rows, int(credit.keep_B.sum())
    if most and kept > most * num_groups:
        raise UserError(
            f"{type(algo).__name__} trains on {kept} rows of {num_groups} groups, and declares at "
            f"most {most} of each: correct trained_rows in the Needs of its `needs` (0: all rows)"
        )


def seen_by_correction(batch: Batch, correction: Correction) -> Batch:
    """The batch of a correction's methods."""
    name = type(correction).__name__
    texts = {
        field: f"{name} reads Batch.{field}, which it does not declare: add {needed}=True to the "
        "CorrectionNeeds of its `needs`"
        for field, needed in OF_CORRECTIONS.items()
        if not getattr(correction.needs, needed)
    }
    return hidden(batch, texts)


def hidden(batch: Batch, texts: Mapping[str, str]) -> Batch:
    """The batch with fields whose use raises UserError, by field and text."""
    return replace(
        batch,
        **{field: getattr(batch, field).as_subclass(undeclared(texts[field])) for field in texts},
    )


@functools.cache
def undeclared(text: str) -> type[Tensor]:
    """A class of tensors that have a shape and rows; any other use raises UserError with the
    text."""
    import torch

    class Undeclared(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if func.__name__ in ("__getitem__", "__get__"):
                return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
            raise UserError(text)

    return Undeclared
