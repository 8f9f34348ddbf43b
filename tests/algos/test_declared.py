"""Needs of algorithms and corrections are true, and what is not declared cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from rlhf_lab.algos.a_lol import ALoL
from rlhf_lab.algos.advantages import Deviation
from rlhf_lab.algos.common import credited_likelihood, keep_all, per_token
from rlhf_lab.algos.corrections.common import EVERY, CorrectionOptions
from rlhf_lab.algos.declared import require_declared, seen_by_algorithm, seen_by_correction
from rlhf_lab.algos.off_policy import corrected, fitted, split_terms
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.algos.rloo import RLOO
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.experiment.rules.algorithm import check_correction
from rlhf_lab.models.batching import collate, minibatches, rewards_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import (
    Batch,
    CorrectionNeeds,
    Credit,
    LossOutput,
    Needs,
    Objective,
    PolicyOutput,
    Reduction,
)
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Algorithm
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.conftest import MakeConfig
from tests.support.in_memory import run_in_memory

ALGORITHMS: dict[str, Any] = classes("algo")
# Other values of options that change what an algorithm reads.
CHANGES: tuple[dict[str, Any], ...] = (
    *({"kl_coef": 0.0}, {"kl_coef": 0.1}, {"kl_coef": 0.1, "kl_in": "loss"}),
    *({"deviation": Deviation.batch}, {"deviation": Deviation.none}),
    *({"pairs": "all"}, {"pair_loss": "sft"}, {"pair_loss": "ipo"}),
    *({"kl": "forward"}, {"kl": "reverse"}, {"signal": "policy"}),
    *({"whiten_advantages": False}, {"whiten_advantages": False, "whiten_rewards": True}),
    *({"baseline": False}, {"priority": True}, {"reference_kl": 0.1}, {"ratio_of": "none"}),
    *({"value_baseline": True}, {"value_baseline": True, "value_rounds": 1}),
)
FORMS: dict[str, Algorithm] = {name: make() for name, make in ALGORITHMS.items()}
for name, make in ALGORITHMS.items():
    for change in CHANGES:
        if set(change) <= {column.name for column in limits.columns(make)}:
            FORMS[f"{name} {change}"] = make(**change)


def one_token_group(size: int) -> Group:
    """Samples of one token each, every one with a reward of its own."""
    samples = tuple(Sample((0,), (-1.0,), 0, Finish.eos, "") for _ in range(size))
    rewards = tuple(float(number) for number in range(size))
    return Group(Prompt(0, (0,), Example("", "", "")), samples, rewards)


def learnt(algo: Algorithm, step: float, scale: float = 1.0) -> tuple[Credit, Tensor]:
    """Credit and loss of a group, from the batch that the algorithm sees. step: how fast the
    reference's log-probs fall from row to row, since comparisons do not see what all have in
    common. scale: factor of the rewards."""
    groups = [one_token_group(4)]
    batch = collate(groups, 0)
    reference_BT = batch.mask_BT * -(step * torch.arange(1, 5).square()).unsqueeze(1)
    batch = replace(batch, reference_logp_BT=reference_BT)
    credit = algo.credit(rewards_of(groups) * scale, seen_by_algorithm(batch, algo))
    require_declared(credit, algo, len(groups))
    (part,) = minibatches(batch, credit, algo.reduction, 1, torch.zeros(1).long())
    logp_BT = -0.9 * part.mask_BT
    none_BT, top_BTK = torch.zeros_like(logp_BT), logp_BT.unsqueeze(2)
    policy = PolicyOutput(
        *(logp_BT, none_BT, none_BT), top_logp_BTK=top_BTK, reference_top_logp_BTK=top_BTK
    )
    return credit, algo.loss(policy, seen_by_algorithm(part, algo)).loss


@pytest.mark.parametrize("name", FORMS)
def test_an_algorithm_declares_the_reference_exactly_where_it_reads_it(name: str) -> None:
    algo = FORMS[name]
    found = []
    # The last is beyond every limit on KL.
    for step in (0.1, 0.2, 20.0):
        credit, loss = learnt(algo, step)
        found.append([float(loss), *credit.value_BT.flatten().tolist(), *credit.keep_B.tolist()])
    assert algo.needs.reference == (not found[0] == found[1] == found[2])


@pytest.mark.parametrize("name", FORMS)
def test_an_algorithm_declares_how_many_rows_of_a_group_it_trains_on(name: str) -> None:
    algo = FORMS[name]
    few, many = (
        int(algo.credit(rewards_of(groups), collate(groups, 0)).keep_B.sum())
        for groups in ([one_token_group(4)], [one_token_group(8)])
    )
    assert algo.needs.trained_rows == (few if few == many else 0)


@pytest.mark.parametrize("name", FORMS)
def test_an_algorithm_declares_whether_its_credit_grows_with_the_rewards(name: str) -> None:
    algo = FORMS[name]
    once, more = (learnt(algo, 0.0, scale)[0].value_BT.abs().sum() for scale in (1.0, 4.0))
    assert algo.needs.scales_with_reward == bool(more > 2 * once)


def test_rounds_and_lambda_of_values_are_declared() -> None:
    assert ALoL(value_baseline=True, value_rounds=3).needs.value_rounds == 3
    assert {n for n, algo in FORMS.items() if algo.needs.constraints} == {"crpg", "crraft", "codpo"}
    assert {n for n in ALGORITHMS if FORMS[n].needs.lam < 1} == {"ppo", "ma_ppo", "sao", "mdpo"}
    assert {n for n in ALGORITHMS if FORMS[n].needs.length_penalty} == {"dapo"}


@dataclass(frozen=True)
class Reading(AlgorithmOptions):
    """A plugin whose credit reads a tensor, declared or not."""

    name: str = limits.name("reading")
    field: str = limits.option("mask_BT", about="What it reads.")
    reduction: Reduction = limits.option(Reduction.sequence_mean, about="A mean.")
    objective: ClassVar[Objective] = Objective.likelihood

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        read = getattr(batch.rows(torch.arange(len(batch))), self.field)
        return Credit(per_token(reward_PG, batch) + 0 * read.sum(), keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        return credited_likelihood(policy, batch)


UNDECLARED = {
    "reference_logp_BT": "add reference=True to the Needs",
    "value_BT": "add values=ValueModel.own to the Needs",
    "target_BT": "add values=ValueModel.own to the Needs",
    "log_ratio_gradient_B": "add ratio_gradients=True to the Needs",
    "writer_logp_BT": r"for corrections \(CorrectionNeeds\)",
    "entropy_BT": r"for corrections \(CorrectionNeeds\)",
    "lag_BT": r"for corrections \(CorrectionNeeds\)",
}


@pytest.mark.parametrize("field", UNDECLARED)
def test_what_an_algorithm_does_not_declare_is_refused_by_name(field: str) -> None:
    with pytest.raises(UserError, match=rf"Reading reads Batch\.{field}, .*{UNDECLARED[field]}"):
        learnt(Reading(field=field), 0.1)


def test_a_run_of_an_algorithm_that_declares_too_little_ends_at_its_first_batch(
    make_config: MakeConfig,
) -> None:
    config = make_config("algo=reinforce", "algo.kl_coef=0")
    own = replace(config, algo=Reading(field="reference_logp_BT"))
    with pytest.raises(UserError, match=r"Batch\.reference_logp_BT.* add reference=True"):
        run_in_memory(own)


def test_more_rows_than_are_declared_are_refused() -> None:
    @dataclass(frozen=True)
    class Few(Reading):
        needs: ClassVar[Needs] = Needs(trained_rows=2)

    with pytest.raises(UserError, match=r"Few trains on 4 rows of 1 groups.* at most 2"):
        learnt(Few(), 0.1)


@dataclass(frozen=True)
class Half(CorrectionOptions):
    """A plugin with helpers of its own, which happen to have the names of optional methods."""

    name: str = limits.name("half")
    corrects: ClassVar[frozenset[Objective]] = EVERY

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        return torch.full_like(log_ratio_BT, 0.5)

    def fitted(self, *_: Any) -> Any:
        return "private"

    def proximal(self, *_: Any) -> Any:
        return "private"

    def terms(self, *_: Any) -> Any:
        return "private"


def test_a_helper_with_the_name_of_an_optional_method_changes_nothing() -> None:
    batch = collate([one_token_group(4)], 0)
    assert fitted(batch, Half()).name == "half"
    assert split_terms(batch.behavior_logp_BT, batch, RLOO(), Half()) == {}
    found, factor_BT = corrected(batch.behavior_logp_BT, batch, RLOO(), Half())
    assert factor_BT.unique().tolist() == [0.5]  # type: ignore[no-untyped-call]
    assert torch.equal(found.proximal_logp_BT, batch.proximal_logp_BT)


def test_weights_of_a_whole_update_need_log_ratios_before_it(make_config: MakeConfig) -> None:
    @dataclass(frozen=True)
    class Whole(CorrectionOptions):
        name: str = limits.name("whole")
        corrects: ClassVar[frozenset[Objective]] = EVERY
        needs: ClassVar[CorrectionNeeds] = CorrectionNeeds(whole_update=True)

    check_correction(replace(make_config("algo=grpo"), correction=Whole()))
    with pytest.raises(UserError, match=r"correction=whole with algo=rloo: .*anchors_at_start"):
        check_correction(replace(make_config("algo=rloo"), correction=Whole()))


def test_a_correction_sees_what_it_declares_and_must_have_the_methods_for_it() -> None:
    @dataclass(frozen=True)
    class Own(CorrectionOptions):
        name: str = limits.name("own")
        corrects: ClassVar[frozenset[Objective]] = EVERY
        needs: ClassVar[CorrectionNeeds] = CorrectionNeeds(lag=True, proximal=True)

    batch = collate([one_token_group(4)], 0)
    seen = seen_by_correction(batch, Own())
    assert torch.equal(seen.lag_BT + 1, batch.mask_BT)
    for field, need in (("writer_logp_BT", "writer_logp"), ("entropy_BT", "entropy")):
        with pytest.raises(UserError, match=rf"Own reads Batch\.{field}.* add {need}=True"):
            getattr(seen, field).sum()
    with pytest.raises(UserError, match=r"declares proximal=True: write its `proximal`"):
        corrected(batch.behavior_logp_BT, batch, RLOO(), Own())
