"""How many weights a round changes, by hand and in a run."""

from __future__ import annotations

import torch

from rlhf_lab.training.probe import changed_shares
from rlhf_lab.types.data import Weights
from tests.conftest import Finished

EXACT, ROUNDED = "update/changed_share", "update/changed_share_bfloat16"


def version(number: int, *values: float) -> Weights:
    head, *rest = values
    return Weights(number, {"a": torch.tensor([head]), "b": torch.tensor([rest])})


def test_the_shares_by_hand() -> None:
    before = version(0, 1.0, 2.0, 0.5, 1e-6)
    # as it was; less than bfloat16 resolves at 2; more than it resolves at 0.5; less than 1e-5
    after = version(1, 1.0, 2.0 + 1e-3, 0.5 + 1e-2, 2e-6)
    assert changed_shares(before, after) == {EXACT: 3 / 4, ROUNDED: 1 / 4}
    assert changed_shares(before, before) == {EXACT: 0.0, ROUNDED: 0.0}


def test_it_is_measured_in_the_rounds_of_the_probe_and_changes_nothing(finished: Finished) -> None:
    rows, digest = finished("tracker.changed_share=true", "tracker.probe_every=2", "optim.lr=1e-3")
    assert [EXACT in row for row in rows] == [round_ % 2 == 0 for round_ in range(len(rows))]
    for row in rows[::2]:
        assert 0 < row[ROUNDED] < row[EXACT] <= 1
    plain, same = finished("tracker.probe_every=2", "optim.lr=1e-3")
    assert digest == same
    names = {name for row in plain for name in row}
    assert not names & {EXACT, ROUNDED}
