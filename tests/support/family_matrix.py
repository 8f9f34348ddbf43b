"""What each way to read and write rows finds for each family, against single rows.

    python -m tests.support.family_matrix [NAME ...]              print the cells of families
    python -m tests.support.family_matrix --docs docs/models.md   write the table of the page

The truth is the model's own forward over one row without padding. Texts are longer than every
window and border of the configs, and prompts have different lengths.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlhf_lab.models.batching import collate
from rlhf_lab.models.forward import token_rows
from rlhf_lab.models.last_columns import last_column_stack, response_logps
from rlhf_lab.models.quiet import first_line, quiet_transformers
from rlhf_lab.rollout.generators.decoders import Decoder, decoder_of
from rlhf_lab.rollout.generators.idle_rows import require_idle_rows
from rlhf_lab.rollout.generators.options import Decode
from rlhf_lab.rollout.generators.plain import PlainDecoder
from rlhf_lab.training.engines.policy_with_values import (
    PASS_OUTPUT,
    PassKind,
    PassLayout,
    PolicyWithValues,
    Rows,
)
from rlhf_lab.types.data import Batch
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from rlhf_lab_analysis.markdown import rows_of, split_at_markers
from tests.support.families import FAMILIES, VOCABULARY, Family

TEMPERATURE = 0.7
# Rounding in float32, far below what another token's presence changes.
NATS, SHARE = 2e-4, 2e-3
PROMPTS = (14, 3, 9)
# Responses to each prompt.
RESPONSES = ((20, 4), (9, 18), (1, 14))
# A row is idle at one in so many steps.
IDLE = 3
CPU = torch.device("cpu")


class Verdict(StrEnum):
    """exact: as single rows. slower: the product takes a slower way instead. refused: by a
    UserError, before the first step."""

    exact = "exact"
    slower = "slower"
    refused = "refused"
    wrong = "wrong"
    error = "error"


class Cell(NamedTuple):
    """What a way finds for a family. detail: how far off it is, or what was raised."""

    verdict: Verdict
    detail: str = ""


class Found(NamedTuple):
    """Log-probs of the N response tokens, row after row. gradient: of a weighted sum of them by all
    weights; None where a way has none."""

    logp_N: Tensor
    gradient: Tensor | None = None


Read = Callable[[], Found]
# Raises UserError for a model that is refused; None: a slower way is taken.
Way = Callable[[Any], Read | None]


def tokens(count: int, seed: int) -> list[int]:
    """Tokens, none of them special."""
    return [3 + (seed * seed + 7 * n + n * n) % (VOCABULARY - 3) for n in range(count)]


@functools.cache
def batch() -> Batch:
    """Groups of two responses; prompts and responses of all lengths."""
    groups = []
    for number, (length, sizes) in enumerate(zip(PROMPTS, RESPONSES, strict=True)):
        texts = [tuple(tokens(size, 5 * number + place)) for place, size in enumerate(sizes, 1)]
        samples = tuple(Sample(text, (-1.0,) * len(text), 0, Finish.eos, "") for text in texts)
        prompt = tuple(tokens(length, 11 + number))
        groups.append(Group(Prompt(number, prompt, Example("", "", "")), samples))
    return collate(groups, pad_id=0)


def with_gradient(model: Any, logp_N: Tensor) -> Found:
    """The log-probs, and the gradient of their sum, each with a weight of its own."""
    weight_N = 1 + torch.arange(len(logp_N)) % 5
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    parts = torch.autograd.grad(
        (logp_N * weight_N).sum(), weights, allow_unused=True, materialize_grads=True
    )
    return Found(logp_N.detach(), torch.cat([part.flatten() for part in parts]))


def single_rows(model: Any) -> Found:
    """The truth."""
    rows, found = batch(), []
    for row in range(len(rows)):
        prompt = rows.prompt_BS[row][rows.prompt_mask_BS[row] > 0]
        response = rows.response_BT[row][rows.mask_BT[row] > 0]
        text = torch.cat([prompt, response]).unsqueeze(0)
        logits_TV = model(input_ids=text, use_cache=False).logits[0, len(prompt) - 1 : -1]
        found.append(chosen_logp(logits_TV, response))
    return with_gradient(model, torch.cat(found))


def chosen_logp(logits_BV: Tensor, token_B: Tensor) -> Tensor:
    """The log-prob of a token by each row of logits, B."""
    all_BV = torch.log_softmax(logits_BV.float() / TEMPERATURE, dim=-1)
    return all_BV.gather(1, token_B.unsqueeze(1)).squeeze(1)


def trained(choose: Callable[[PolicyWithValues], bool], layout: PassLayout, **options: Any) -> Way:
    """How the trainer reads rows in a layout, if its networks choose to. options: of them."""

    def way(model: Any) -> Read | None:
        networks = PolicyWithValues(model, None, TEMPERATURE, **options)

        def read() -> Found:
            columns = networks(token_rows(batch()), PassKind.policy, layout)
            logp_BT: Any = columns[PASS_OUTPUT.index("logp_BT")]
            return with_gradient(model, logp_BT[batch().mask_BT > 0])

        return read if choose(networks) else None

    return way


def last_columns(model: Any) -> Read | None:
    """How evaluation reads rows."""
    stack = last_column_stack(model)

    def read() -> Found:
        with torch.no_grad():
            (logp_BT,) = response_logps(model, stack, batch(), [TEMPERATURE])
        return Found(logp_BT[batch().mask_BT > 0])

    return None if stack is None else read


def plain_loop(model: Any) -> Read:
    """The loop of transformers, over its own cache."""
    decoder, _ = decoder_of(model, Decode.transformers)
    return functools.partial(written, decoder)


def lean_loop(model: Any) -> Read | None:
    """What `auto` takes on a CPU."""
    decoder, _ = decoder_of(model, Decode.auto)
    return None if isinstance(decoder, PlainDecoder) else functools.partial(written, decoder)


def static_loop(model: Any) -> Read | None:
    """What `auto` takes on a GPU; where it is refused by name, that is the plain loop."""
    try:
        decoder, _ = decoder_of(model, Decode.static)
    except UserError:
        return None
    return functools.partial(written, decoder)


def idle_rows(model: Any) -> Read | None:
    """Rows that wait for their environments; where that is refused, they wait together."""
    decoder, _ = decoder_of(model, Decode.auto)
    try:
        require_idle_rows(model, decoder)
    except UserError:
        return None
    return functools.partial(written, decoder, waits=True)


def written(decoder: Decoder, waits: bool = False) -> Found:
    """What a decode loop finds for the same tokens. Rows that ended leave it."""
    rows, room = batch(), batch().response_BT.shape[1]
    length_B = (rows.mask_BT > 0).sum(dim=1)
    row_B, done_B = torch.arange(len(rows)), torch.zeros(len(rows), dtype=torch.long)
    logp_BT = torch.zeros(rows.mask_BT.shape)
    prompts = [tokens(length, 11 + number) for number, length in enumerate(PROMPTS)]
    steps = 0
    with torch.inference_mode():
        logits_BV = decoder.begin(prompts, len(RESPONSES[0]), room, idle_steps=room)
        while True:
            token_B = rows.response_BT[row_B, done_B]
            logp_BT[row_B, done_B] = chosen_logp(logits_BV, token_B)
            kept = (done_B + 1 < length_B[row_B]).nonzero().squeeze(1)
            if not len(kept):
                return Found(logp_BT[rows.mask_BT > 0])
            if len(kept) < len(row_B):
                decoder.keep(kept)
                row_B, done_B, token_B = row_B[kept], done_B[kept], token_B[kept]
            steps += 1
            is_idle_B = (row_B + steps) % IDLE == 0 if waits else torch.zeros_like(row_B)
            idle = [bool(one) for one in is_idle_B]
            before_BV, logits_BV = logits_BV[kept], decoder.step(token_B, idle if waits else ())
            logits_BV = torch.where(is_idle_B.bool().unsqueeze(1), before_BV, logits_BV)
            done_B = done_B + 1 - is_idle_B.long()


PADDED, PACKED = PassLayout(1, False), PassLayout(1, True)
WAYS: Mapping[str, Way] = {
    "loop": plain_loop,
    "lean": lean_loop,
    "static": static_loop,
    "idle rows": idle_rows,
    "padded": trained(lambda networks: True, PADDED),
    "chunked": trained(lambda networks: networks.is_splittable, PassLayout(3, False)),
    "shared": trained(lambda networks: networks.is_packable, PACKED, shares_prompts=True),
    "last columns": last_columns,
    "maskless": trained(lambda n: n.plain_rows is Rows.causal, PADDED, maskless_on=CPU),
    "shared, maskless": trained(
        lambda networks: networks.is_packable, PACKED, shares_prompts=True, maskless_on=CPU
    ),
}


def cell(way: Way, model: Any, truth: Found) -> Cell:
    """The verdict on a way for a model."""
    try:
        read = way(model)
        if read is None:
            return Cell(Verdict.slower)
        found = read()
    except UserError as error:
        return Cell(Verdict.refused, str(error))
    except Exception as error:  # what a user would see as a traceback
        return Cell(Verdict.error, f"{type(error).__name__}: {first_line(error)}")
    nats, share = float((found.logp_N - truth.logp_N).abs().max()), 0.0
    if found.gradient is not None and truth.gradient is not None:
        far = (found.gradient - truth.gradient).abs().max()
        share = float(far / truth.gradient.abs().max())
    is_exact = nats <= NATS and share <= SHARE
    detail = f"{nats:.1e} nats, {share:.1e} of the gradient"
    return Cell(Verdict.exact if is_exact else Verdict.wrong, detail)


def cells(member: Family) -> dict[str, Cell]:
    """A family's row of the matrix."""
    with quiet_transformers():
        truth = single_rows(member.model())
        # A model of its own for each way: some families keep states of the rows that they read.
        return {name: cell(way, member.model(), truth) for name, way in WAYS.items()}


COLUMNS = ("family", "attention", *WAYS)


def line(name: str, row: Mapping[str, Cell]) -> str:
    """A family's line of the page."""
    verdicts = [found.verdict.value for found in row.values()]
    return rows_of(COLUMNS, [(name, FAMILIES[name].attention, *verdicts)])[-1]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.family_matrix")
    parser.add_argument("names", nargs="*", metavar="NAME", help="families; all of them by default")
    parser.add_argument(
        "--docs", type=Path, help="the page whose table is written, of all families"
    )
    given = parser.parse_args(arguments)
    if given.docs:
        before, after = split_at_markers(given.docs)
        lines = [*rows_of(COLUMNS, ()), *(line(name, cells(FAMILIES[name])) for name in FAMILIES)]
        given.docs.write_text("\n".join([before, *lines, "", after]), encoding="utf-8")
        return
    for name in given.names or FAMILIES:
        row = cells(FAMILIES[name])
        print(line(name, row))  # noqa: T201
        for way, found in row.items():
            if found.detail and found.verdict is not Verdict.exact:
                print(f"  {way}: {found.detail}")  # noqa: T201


if __name__ == "__main__":
    main()
