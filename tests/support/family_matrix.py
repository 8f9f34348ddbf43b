"""What each way to read and write rows finds for each family, against single rows.

    python -m tests.support.family_matrix [NAME ...]              print the cells of families
    python -m tests.support.family_matrix --docs docs/models.md   write the table of the page

The truth is the model's own forward over one row without padding. Texts are longer than every
window of the configs, and as long as rows may be; prompts have different lengths.
"""

from __future__ import annotations

import argparse
import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlhf_lab.models.batching import collate
from rlhf_lab.models.borders import longest_row
from rlhf_lab.models.forward import token_rows
from rlhf_lab.models.last_token_forward import last_column_stack, response_logps
from rlhf_lab.models.loading import require_padded_rows
from rlhf_lab.models.quiet import first_line, quiet_transformers
from rlhf_lab.rollout.generators.decoders import Decoder, decoder_of, require_idle_rows
from rlhf_lab.rollout.generators.options import Decode
from rlhf_lab.rollout.generators.plain import PlainDecoder, RereadingDecoder
from rlhf_lab.training.engines.policy_with_values import (
    PASS_OUTPUT,
    PassKind,
    PassLayout,
    PolicyWithValues,
    Rows,
)
from rlhf_lab.training.probe import LARGEST_MISMATCH
from rlhf_lab.types.data import Batch
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from rlhf_lab_analysis.markdown import rows_of, split_at_markers
from tests.support.families import FAMILIES, VOCABULARY, Family

TEMPERATURE = 0.7
# How far the gradient may be off. As of log-probs (Family.nats), rounding in float32 is far less,
# and another token's presence changes more.
SHARE = 2e-3
PROMPTS = (50, 3, 9)
# Responses to each prompt.
RESPONSES = ((45, 4), (9, 60), (1, 14))
LONGEST = max(PROMPTS) + max(map(max, RESPONSES))
# A row is idle at one in so many steps.
IDLE = 3
CPU = torch.device("cpu")


class Verdict(StrEnum):
    """exact: as single rows. slower: so is the slower way that the product takes instead. refused:
    by a UserError, before the first step. stopped: by one after the first round, in which generator
    and trainer differ (training/probe.py), as one of them alone is exact."""

    exact = "exact"
    slower = "slower"
    refused = "refused"
    stopped = "stopped"
    wrong = "wrong"
    error = "error"


class Cell(NamedTuple):
    """What a way finds for a family. detail: how far off it is, or what was raised. nats: how far
    off its log-probs are."""

    verdict: Verdict
    detail: str = ""
    nats: float = 0.0


class Found(NamedTuple):
    """Log-probs of the N response tokens, row after row. gradient: of a weighted sum of them by all
    weights; None where a way has none. is_slow: the product takes this way for want of another."""

    logp_N: Tensor
    gradient: Tensor | None = None
    is_slow: bool = False


@dataclass(frozen=True)
class Texts:
    """Groups of two responses; prompts and responses of all lengths. longest: tokens of the longest
    prompt and the longest response together, at most."""

    longest: int

    @property
    def prompts(self) -> list[list[int]]:
        """Of each group."""
        sizes = (min(size, self.longest // 2) for size in PROMPTS)
        return [tokens(size, 11 + number) for number, size in enumerate(sizes)]

    @functools.cached_property
    def batch(self) -> Batch:
        groups = []
        for number, (prompt, sizes) in enumerate(zip(self.prompts, RESPONSES, strict=True)):
            room = self.longest - len(self.prompts[0])
            texts = [tuple(tokens(min(size, room), 5 * number + size)) for size in sizes]
            samples = tuple(Sample(text, (-1.0,) * len(text), 0, Finish.eos, "") for text in texts)
            groups.append(Group(Prompt(number, tuple(prompt), Example("", "", "")), samples))
        return collate(groups, pad_id=0)


def tokens(count: int, seed: int) -> list[int]:
    """Tokens, none of them special."""
    return [3 + (seed * seed + 7 * n + n * n) % (VOCABULARY - 3) for n in range(count)]


Read = Callable[[Batch], Found]
# Raises UserError for a model that is refused; None: a slower way is taken.
Way = Callable[[Any], Read | None]


def with_gradient(model: Any, logp_N: Tensor) -> Found:
    """The log-probs, and the gradient of their sum, each with a weight of its own."""
    weight_N = 1 + torch.arange(len(logp_N)) % 5
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    parts = torch.autograd.grad(
        (logp_N * weight_N).sum(), weights, allow_unused=True, materialize_grads=True
    )
    return Found(logp_N.detach(), torch.cat([part.flatten() for part in parts]))


def single_rows(model: Any, batch: Batch) -> Found:
    """The truth."""
    found = []
    for row in range(len(batch)):
        prompt, response = prompt_of(batch, row), batch.response_BT[row][batch.mask_BT[row] > 0]
        text = torch.cat([prompt, response]).unsqueeze(0)
        logits_TV = model(input_ids=text, use_cache=False).logits[0, len(prompt) - 1 : -1]
        found.append(chosen_logp(logits_TV, response))
    return with_gradient(model, torch.cat(found))


def prompt_of(batch: Batch, row: int) -> Tensor:
    """The prompt of a row without padding."""
    return batch.prompt_BS[row][batch.prompt_mask_BS[row] > 0]


def chosen_logp(logits_BV: Tensor, token_B: Tensor) -> Tensor:
    """The log-prob of a token by each row of logits, B."""
    all_BV = torch.log_softmax(logits_BV.float() / TEMPERATURE, dim=-1)
    return all_BV.gather(1, token_B.unsqueeze(1)).squeeze(1)


def trained(chooses: Callable[[PolicyWithValues], bool], layout: PassLayout, **options: Any) -> Way:
    """How the trainer reads rows in a layout, if its networks choose to. options: of them."""

    def way(model: Any) -> Read | None:
        networks = PolicyWithValues(model, None, TEMPERATURE, **options)

        def read(batch: Batch) -> Found:
            columns = networks(token_rows(batch), PassKind.policy, layout)
            logp_BT: Any = columns[PASS_OUTPUT.index("logp_BT")]
            return with_gradient(model, logp_BT[batch.mask_BT > 0])

        return read if chooses(networks) else None

    return way


def last_columns(model: Any) -> Read | None:
    """How evaluation reads rows."""
    stack = last_column_stack(model)

    def read(batch: Batch) -> Found:
        with torch.no_grad():
            (logp_BT,) = response_logps(model, stack, batch, [TEMPERATURE])
        return Found(logp_BT[batch.mask_BT > 0])

    return None if stack is None else read


def plain_loop(model: Any) -> Read:
    """The loop of transformers: over its own cache, or reading rows anew."""
    return functools.partial(written, decoder_of(model, Decode.transformers)[0])


def lean_loop(model: Any) -> Read | None:
    """What `auto` takes on a CPU."""
    decoder, _ = decoder_of(model, Decode.auto)
    is_own = isinstance(decoder, PlainDecoder | RereadingDecoder)
    return None if is_own else functools.partial(written, decoder)


def static_loop(model: Any) -> Read | None:
    """What `auto` takes on a GPU, and else that of transformers; here it is asked for by name."""
    try:
        decoder, _ = decoder_of(model, Decode.static)
    except UserError:
        return None
    return functools.partial(written, decoder)


def idle_rows(model: Any) -> Read | None:
    """Rows that wait for their environments one by one, where that is not refused."""
    decoder, _ = decoder_of(model, Decode.auto)
    try:
        require_idle_rows(model, decoder)
    except UserError:
        return None
    return functools.partial(written, decoder, idle=IDLE)


def written(decoder: Decoder, batch: Batch, idle: int = 0) -> Found:
    """What a decode loop finds for the tokens of a batch. Rows that ended leave it. idle: each row
    waits at one in so many steps; 0: never."""
    room, repeats = batch.response_BT.shape[1], len(RESPONSES[0])
    length_B = (batch.mask_BT > 0).sum(dim=1)
    row_B, done_B = torch.arange(len(batch)), torch.zeros(len(batch), dtype=torch.long)
    logp_BT = torch.zeros(batch.mask_BT.shape)
    prompts = [prompt_of(batch, row).tolist() for row in range(0, len(batch), repeats)]
    steps = 0
    with torch.inference_mode():
        logits_BV = decoder.begin(prompts, repeats, room, idle_steps=room if idle else 0)
        while True:
            token_B = batch.response_BT[row_B, done_B]
            logp_BT[row_B, done_B] = chosen_logp(logits_BV, token_B)
            kept = (done_B + 1 < length_B[row_B]).nonzero().squeeze(1)
            if not len(kept):
                break
            if len(kept) < len(row_B):
                decoder.keep(kept)
                row_B, done_B, token_B = row_B[kept], done_B[kept], token_B[kept]
            steps += 1
            waits_B = (row_B + steps) % idle == 0 if idle else row_B < 0
            before_BV = logits_BV[kept]
            after_BV = decoder.step(token_B, waits_B.tolist() if idle else ())
            logits_BV = torch.where(waits_B.unsqueeze(1), before_BV, after_BV)
            done_B = done_B + 1 - waits_B.long()
    return Found(logp_BT[batch.mask_BT > 0], is_slow=isinstance(decoder, RereadingDecoder))


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
    "no masks": trained(lambda n: n.plain_rows is Rows.causal, PADDED, maskless_on=CPU),
    "shared, no masks": trained(
        lambda networks: networks.is_packable, PACKED, shares_prompts=True, maskless_on=CPU
    ),
}

# The ways of the generator, those that neither it nor the trainer takes, and the plain ones.
LOOPS, ALONE = ("loop", "lean", "static", "idle rows"), ("last columns",)
PLAIN_LOOP, PLAIN_PASS = "loop", "padded"


def cell(way: Way, model: Any, batch: Batch, truth: Found, tolerance: float) -> Cell:
    """The verdict on a way for a model. tolerance: of log-probs, in nats."""
    try:
        read = way(model)
        if read is None:
            return Cell(Verdict.slower)
        found = read(batch)
    except UserError as error:
        return Cell(Verdict.refused, str(error))
    except Exception as error:  # what a user would see as a traceback
        return Cell(Verdict.error, f"{type(error).__name__}: {first_line(error)}")
    nats, share = float((found.logp_N - truth.logp_N).abs().max()), 0.0
    if found.gradient is not None and truth.gradient is not None:
        far = (found.gradient - truth.gradient).abs().max()
        share = float(far / truth.gradient.abs().max())
    if not (nats <= tolerance and share <= SHARE):
        return Cell(Verdict.wrong, f"{nats:.1e} nats, {share:.1e} of the gradient", nats)
    return Cell(Verdict.slower if found.is_slow else Verdict.exact)


def cells(member: Family) -> dict[str, Cell]:
    """A family's row of the matrix."""
    with quiet_transformers():
        try:
            require_padded_rows(member.model(), member.kind, "model.path")
        except UserError as error:
            return dict.fromkeys(WAYS, Cell(Verdict.refused, str(error)))
        batch = Texts(longest_row(member.config) or LONGEST).batch
        truth = single_rows(member.model(), batch)
        # A model of its own for each way: some families keep states of the rows that they read.
        found = {
            name: cell(way, member.model(), batch, truth, member.nats) for name, way in WAYS.items()
        }
    return {name: after_first_round(name, found) for name in WAYS}


def after_first_round(way: str, row: Mapping[str, Cell]) -> Cell:
    """The verdict on a way of a row, with what the run's own comparison of its first round does."""
    others = [row[PLAIN_PASS if way in LOOPS else PLAIN_LOOP]] if way not in ALONE else []
    is_seen = row[way].nats > LARGEST_MISMATCH / TEMPERATURE
    is_seen &= any(other.verdict in (Verdict.exact, Verdict.slower) for other in others)
    is_stopped = row[way].verdict is Verdict.wrong and is_seen
    return row[way]._replace(verdict=Verdict.stopped) if is_stopped else row[way]


def taken(model: Any) -> set[str]:
    """The names of the ways that are taken for a model, none where it is refused."""
    with quiet_transformers():
        try:
            require_padded_rows(model, "it", "model.path")
            return {name for name, way in WAYS.items() if way(copy.deepcopy(model)) is not None}
        except UserError:
            return set()


COLUMNS = ("family", "attention", *WAYS)


def line(name: str, row: Mapping[str, Cell]) -> str:
    """A family's line of the page."""
    verdicts = [found.verdict.value for found in row.values()]
    return rows_of(COLUMNS, [(name, FAMILIES[name].attention, *verdicts)])[-1]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.family_matrix")
    parser.add_argument("names", nargs="*", metavar="NAME", help="families; default: all of them")
    parser.add_argument("--docs", type=Path, help="the page whose table of all families to write")
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
            if found.detail:
                print(f"  {way}: {found.detail}")  # noqa: T201


if __name__ == "__main__":
    main()
