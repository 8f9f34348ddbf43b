"""Every family of models: each way to read and write rows is exact, slower or refused."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_lab.models.borders import borders, longest_row
from rlhf_lab.types.data import Batch
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.markdown import BEGIN, END
from tests.support.families import FAMILIES
from tests.support.family_matrix import (
    LONGEST,
    PADDED,
    Found,
    Read,
    Texts,
    Verdict,
    cell,
    cells,
    line,
    single_rows,
    taken,
    trained,
)
from tests.support.variants import names

# GPTBigCode scales its scores by a function in TorchScript.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.:DeprecationWarning")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "models.md"
FINE = {Verdict.exact, Verdict.slower, Verdict.refused}
# One of each kind.
OFTEN = (
    "GPT-NeoX, Pythia",
    "Phi-3.5, Phi-4",
    "Gemma 3, images",
    "GPT-Neo",
    "Bloom",
    "DeepSeek V3.2",
    "gpt-oss",
    "Qwen3.5",
    "Mamba",
    "RWKV",
)
TEXTS = Texts(LONGEST)

row_of = functools.cache(lambda name: cells(FAMILIES[name]))


@pytest.mark.parametrize("name", OFTEN)
def test_each_way_is_exact_or_slower_or_refused(name: str) -> None:
    assert {way: found for way, found in row_of(name).items() if found.verdict not in FINE} == {}


@pytest.mark.parametrize("name", names(FAMILIES, ("Llama, SmolLM2, Rho", "Jamba")))
def test_no_way_is_taken_in_half_precision_that_is_not_in_float32(name: str) -> None:
    model = FAMILIES[name].model()
    assert taken(model.bfloat16()) <= taken(FAMILIES[name].model())


@pytest.mark.pages
@pytest.mark.parametrize("name", FAMILIES)
def test_the_page_has_what_each_way_finds_and_nothing_is_wrong(name: str) -> None:
    found = {way: one for way, one in row_of(name).items() if one.verdict not in FINE}
    assert {way: one for way, one in found.items() if one.verdict is not Verdict.stopped} == {}
    assert line(name, row_of(name)) in table(), "python -m tests.support.family_matrix --docs PAGE"


@pytest.mark.pages
def test_the_page_lists_every_family_in_order() -> None:
    assert [row.split(" | ")[0].removeprefix("| ") for row in table()[2:]] == list(FAMILIES)


def table() -> list[str]:
    """The lines between the page's markers."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [row for row in lines[lines.index(BEGIN) + 1 : lines.index(END)] if row]


def test_every_preset_is_of_a_family() -> None:
    known = tuple(name for member in FAMILIES.values() for name in member.presets)
    presets = {path.stem for path in (ROOT / "conf" / "model").glob("*.yaml")} - {"pretrained"}
    assert presets and [name for name in presets if not name.startswith(known)] == []


@pytest.mark.parametrize("name", names(FAMILIES, OFTEN))
def test_texts_are_longer_than_every_border(name: str) -> None:
    config = FAMILIES[name].config
    batch = Texts(longest_row(config) or LONGEST).batch
    longest = int((batch.prompt_mask_BS.sum(dim=1) + batch.mask_BT.sum(dim=1)).max())
    limit = longest_row(config)
    reached = [border for border in borders(config) if limit is None or border < limit]
    assert all(border < longest for border in reached)
    assert longest <= (longest_row(config) or longest)


def raised(error: Exception) -> Any:
    def way(model: Any) -> Read | None:
        raise error

    return way


def shifted(nats: float, share: float) -> Any:
    """A way that finds the truth but for so much at one token, and of one weight's gradient."""

    def way(model: Any) -> Read:
        def read(batch: Batch) -> Found:
            found = single_rows(model, batch)
            gradient: Any = found.gradient
            return Found(at_first(found.logp_N, nats), at_first(gradient, share * gradient.max()))

        return read

    return way


def at_first(numbers: Tensor, more: float) -> Tensor:
    """The numbers, the first of them by so much larger."""
    return torch.cat([numbers[:1] + more, numbers[1:]])


@pytest.mark.parametrize(
    ("way", "verdict"),
    [
        (shifted(0.0, 0.0), Verdict.exact),
        (shifted(0.01, 0.0), Verdict.wrong),
        (shifted(float("nan"), 0.0), Verdict.wrong),
        (shifted(0.0, 0.1), Verdict.wrong),
        (shifted(0.0, float("nan")), Verdict.wrong),
        (lambda model: None, Verdict.slower),
        (raised(UserError("model.path=x: not this one")), Verdict.refused),
        (raised(AttributeError("no such field")), Verdict.error),
        (trained(lambda networks: True, PADDED), Verdict.exact),
        (trained(lambda networks: False, PADDED), Verdict.slower),
    ],
)
def test_verdicts(way: Any, verdict: Verdict) -> None:
    model = FAMILIES["Mistral 0.1"].model()
    truth = single_rows(model, TEXTS.batch)
    assert cell(way, model, TEXTS.batch, truth, 1e-3).verdict is verdict


def test_a_window_that_is_not_heeded_is_wrong() -> None:
    model = FAMILIES["Mistral 0.1"].model()
    truth = single_rows(model, TEXTS.batch)
    model.config.sliding_window = None
    found = cell(trained(lambda _: True, PADDED), model, TEXTS.batch, truth, 1e-3)
    assert found.verdict is Verdict.wrong
