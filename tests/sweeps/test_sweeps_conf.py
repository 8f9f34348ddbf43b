"""The sweeps that the project ships: what each asks, and that its conditions are comparable.

`make test` composes the first and the last condition of every file, and all of small nano forms;
`make test-slow` composes all.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser

from rlhf_lab.algos.distill import Direction, Distill, Signal
from rlhf_lab.experiment.config.config import Config, plain
from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.runs.identity import hash_of
from rlhf_lab.sweeps.grid import SEEDS as ALL_SEEDS
from tests.support.composed import divided, merged
from tests.support.variants import names, variants

pytestmark = pytest.mark.usefixtures("costly")

FOLDER = conf_folder().parent / "sweeps"
# They span spaces and no grids: tests/test_search_runs.py.
SEARCHES = ["search", "search_nano"]
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem not in SEARCHES)
NANO = "_nano"
QUESTIONS = sorted(name.removesuffix(NANO) for name in NAMES if name.endswith(NANO))
# Their full forms are not on TL;DR.
OTHER_TASKS = {"chats", "prompt_pools", "verified_answers"}
OWN_SEEDS = "own_rl_seeds"
# The RL seeds that go with stage seeds 1 and 3.
OF_STAGES = {OWN_SEEDS: [101, 103], "verified_answers_nano": [1, 3]}
# A real model that a laptop trains: there is no smaller form that could follow instructions. And
# worlds of nano models alone.
OF_ONE_SIZE = [
    *("instructions_smollm2", OWN_SEEDS, "slow_tools"),
    *("stragglers", "turns", "turns_lambda"),
]
SEEDS = ["1", "2", "3", "4", "5"]
# Of the tracked benchmark: those whose stages pass its gates, and one run of each.
STAGE_SEEDS = ["1", "3", "4", "5", "6", "7", "8", "9"]
# No gate is about verified answers; tuning has stage seeds of its own.
OTHER_STAGES = {
    # With one that fails, as a stratum of its own.
    "off_policy_ladder_nano": ["1", "2", "3", "4", "5", "6", "7", "8", "9"],
    "verified_answers_nano": ["1", "2", "3", "4", "5", "6", "7", "8"],
    "prompt_pools_nano": ["1", "2", "3", "4", "5", "6", "7", "8"],
    "learning_rate_nano": ["101", "102"],
    # 90 conditions, of which the fitted boundary takes all.
    "staleness_rate_nano": ["1", "3", "4", "5", "6"],
    # 108 conditions.
    "corrections_2026_nano": ["1", "3", "4", "5", "6"],
    # 72 conditions.
    "queue_policies_nano": ["1", "3", "4", "5", "6"],
}
# Conditions that are all composed; of larger grids, a sample is.
SMALL = 9


PARTS = f"hydra.searchpath=[file://{conf_folder()}]"


@functools.cache
def asked_of_hydra(name: str) -> dict[str, Any]:
    """The node `hydra` of a sweep's file; what it is based on has none."""
    node: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))["hydra"]
    return node


@dataclass(frozen=True)
class Sweep:
    """A sweep's file, and its jobs as overrides."""

    name: str

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.yaml"

    @functools.cache  # noqa: B019  (composing is what these tests take their time for)
    def config(self, *overrides: str) -> Config:
        choices, values = divided(OverridesParser.create().parse_overrides(list(overrides)))
        cfg = copy.deepcopy(merged(FOLDER, self.name, (PARTS, *choices)))
        ConfigLoaderImpl._apply_overrides_to_config(values, cfg)
        return typed(cfg)

    @cached_property
    def swept(self) -> Mapping[str, Sequence[str]]:
        """The values of each swept key, by Hydra's own grammar."""
        params = asked_of_hydra(self.name)["sweeper"]["params"]
        lines = [f"{key}={value}" for key, value in params.items()]
        parsed = OverridesParser.create().parse_overrides(lines)
        return {
            override.get_key_element(): list(override.sweep_string_iterator())
            if override.is_sweep_override()
            else [str(override.get_value_element_as_str())]
            for override in parsed
        }

    @property
    def conditions(self) -> int:
        """Jobs of one seed."""
        return math.prod(map(len, self.varied.values()))

    @property
    def varied(self) -> dict[str, Sequence[str]]:
        """The swept keys without the seeds."""
        return {key: values for key, values in self.swept.items() if key not in ALL_SEEDS}

    @property
    def sample(self) -> list[dict[str, str]]:
        """The whole grid of one seed if it is small; else all values of each key with the first of
        the others, and the last corner."""
        keys = self.varied
        if self.conditions <= SMALL:
            grid = itertools.product(*keys.values())
            return [dict(zip(keys, values, strict=True)) for values in grid]
        first = {key: values[0] for key, values in keys.items()}
        others = [first | {key: value} for key, values in keys.items() for value in values[1:]]
        return [first, *others, {key: values[-1] for key, values in keys.items()}]

    def configs(self) -> list[Config]:
        return [self.config(*as_overrides(condition)) for condition in self.sample]

    def ends(self) -> list[Config]:
        """Of the first condition and of the last."""
        sample = self.sample
        return [self.config(*as_overrides(sample[at])) for at in sorted({0, len(sample) - 1})]


def as_overrides(condition: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in condition.items()]


Chosen = Callable[[Sweep], list[Config]]
CONDITIONS = variants({"ends": Sweep.ends, "all": Sweep.configs}, ["ends"])


def forms(question: str) -> tuple[str, str]:
    return question, question + NANO


def both_forms(question: str) -> list[Any]:
    """The full form, which is slow, and the nano form."""
    return names(forms(question), [question + NANO])


def completions(config: Config) -> int:
    return config.run.num_rounds * config.run.groups_per_round * config.run.group_size


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("name", NAMES)
def test_a_condition_is_a_run_that_nothing_refuses(
    name: str, conditions: Chosen, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of the endpoint that judges chats.
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    configs = conditions(Sweep(name))
    for config in configs:
        check(config)
    assert len({hash_of(plain(config)) for config in configs}) == len(configs)


@pytest.mark.parametrize("name", NAMES)
def test_a_sweep_says_its_question_and_pairs_its_conditions_by_seed(name: str) -> None:
    sweep = Sweep(name)
    question = sweep.path.read_text(encoding="utf-8").splitlines()[0]
    assert question.startswith("# ") and question.endswith("?")
    assert asked_of_hydra(name)["mode"] == "MULTIRUN"
    # Hydra makes the product, so that every condition has all seeds.
    if "stage_seed" in sweep.swept:
        if name in OF_STAGES:
            seeds = [sweep.config(f"stage_seed={stage}").seed for stage in (1, 3)]
            assert "seed" not in sweep.swept and seeds == OF_STAGES[name]
        else:
            assert sweep.swept["seed"] == ["1"]
        assert sweep.swept["stage_seed"] == OTHER_STAGES.get(name, STAGE_SEEDS)
    else:
        assert sweep.swept["seed"] == SEEDS
    assert all(len(set(values)) == len(values) >= 2 for values in sweep.varied.values())


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.yaml")), ids=lambda path: path.stem)
def test_where_runs_go_is_not_a_sweeps_affair(path: Path) -> None:
    assert "output" not in yaml.safe_load(path.read_text(encoding="utf-8"))


def test_every_question_has_a_nano_and_a_full_form_with_the_same_question() -> None:
    assert sorted(set(NAMES) - {q + NANO for q in QUESTIONS}) == sorted(QUESTIONS + OF_ONE_SIZE)
    for question in QUESTIONS:
        first = [Sweep(name).path.read_text().splitlines()[0] for name in forms(question)]
        assert len(set(first)) == 1, question
        full, nano = (Sweep(name) for name in forms(question))
        assert len(full.varied) == len(nano.varied)
        for of_full, of_nano in zip(full.varied.values(), nano.varied.values(), strict=True):
            assert len(of_nano) <= len(of_full)


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("question", sorted(set(QUESTIONS) - OTHER_TASKS))
def test_full_forms_are_the_papers_and_nano_forms_fit_two_to_two_cores(
    question: str, conditions: Chosen
) -> None:
    full, nano = (Sweep(name) for name in forms(question))
    for config in conditions(full):
        assert config.task.name == "tldr" and config.model.name.startswith("pythia")
        assert config.eval.name == "full"
        # 512 prompts with K = 2, as docs/sweeps.md counts them.
        per_update = config.run.groups_per_update * config.run.group_size
        assert per_update == (2048 if config.run.updates == 128 else 1024)
    for config in conditions(nano):
        assert config.task.name == "tldr_nano" and config.model.name.startswith("nano")
        stages = (config.sft, config.labels, config.reward_model, config.engine, config.eval)
        assert {part.threads for part in stages} == {1} and config.generator.threads == 1


@pytest.mark.parametrize("name", both_forms("verified_answers"))
def test_verified_answers_are_those_of_gsm8k_and_of_arithmetic(name: str) -> None:
    configs = Sweep(name).configs()
    found = {(c.task.name, c.model.name, c.reward.name, c.judge.name) for c in configs}
    of_form = ("arithmetic", "nano_s") if name.endswith(NANO) else ("gsm8k", "rho_1b")
    assert found == {(*of_form, "task_rule", "task_rule")}
    assert [c.mode.max_staleness for c in configs] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("name", both_forms("chats"))
def test_chats_have_a_learned_reward_and_another_judge(name: str) -> None:
    configs = Sweep(name).configs()
    found = {(c.task.name, c.model.name, c.reward.name, c.judge.name) for c in configs}
    is_nano = name.endswith(NANO)
    task, model = ("tldr_nano", "nano_s") if is_nano else ("no_robots", "llama3.1_8b")
    assert found == {(task, model, "reward_model", "task_rule" if is_nano else "endpoint")}
    assert {c.reward.missing_eos for c in configs} == {-10.0}
    assert {c.algo.beta for c in configs if c.algo.name == "online_dpo"} == {0.03}
    assert [c.mode.max_staleness for c in configs] == [0, 0, 1, 1]


def test_the_compute_optimal_sweep_has_the_numbers_of_the_papers_run_at_2_8b() -> None:
    configs = Sweep("compute_optimal").configs()
    run = [(c.mode.max_staleness, c.run.updates, c.run.passes, c.run.group_size) for c in configs]
    assert run == [(0, 256, 1, 2), (1, 256, 1, 2), (1, 256, 2, 2), (1, 128, 1, 4)]
    seen = {(c.model.name, c.optim.max_grad_norm, c.eval.prompts, c.eval.split) for c in configs}
    assert seen == {("pythia_2.8b", 0.0, 6447, "validation")}


# Updates, and prompts with completions an update: the same in all conditions of a sweep.
BUDGETS = {
    "off_policy_ladder": ((256, 512 * 2), (64, 8 * 2)),
    "catch_up": ((1024, 512 * 2), (256, 8 * 2)),
    "learning_rate": ((256, 512 * 2), (64, 8 * 2)),
    "kl_frontier": ((256, 512 * 2), (256, 8 * 2)),
    "rate_schedule": ((256, 512 * 2), (256, 8 * 2)),
    "algorithms": ((256, 256 * 4), (256, 8 * 4)),
    "policy_scale": ((256, 512 * 2), (64, 8 * 2)),
    "reward_scale": ((256, 512 * 2), (64, 8 * 2)),
    "sync_async": ((256, 512 * 2), (64, 8 * 2)),
    "staleness": ((256, 256 * 4), (64, 8 * 4)),
    "distill": ((256, 256 * 4), (64, 8 * 4)),
    "staleness_rate": ((256, 256 * 4), (128, 8 * 4)),
    "mismatch_staleness": ((256, 256 * 4), (64, 8 * 4)),
    "single_rollout": ((256, 256 * 4), (64, 8 * 4)),
    "adapters": ((256, 256 * 4), (64, 8 * 4)),
    "corrections": ((256, 256 * 4), (256, 8 * 4)),
    "corrections_2026": ((256, 256 * 4), (128, 8 * 4)),
    "gradient_projection": ((256, 256 * 4), (128, 8 * 4)),
    "off_policy_methods": ((256, 256 * 4), (128, 8 * 4)),
    "over_provision": ((256, 256 * 4), (64, 8 * 4)),
    "lag_distribution": ((256, 256 * 4), (256, 8 * 4)),
    "queue_policies": ((256, 256 * 4), (64, 8 * 4)),
    "chats": ((390, 256 * 2), (256, 8 * 2)),
    "verified_answers": ((512, 252 * 4), (384, 32 * 8)),
    "prompt_pools": ((512, 252 * 4), (384, 32 * 8)),
    "over_optimisation": ((256, 256 * 4), (160, 32 * 4)),
}
# What these change is the budget itself.
OF_BUDGETS = ["compute_optimal", "passes", "replay", "samples_per_prompt"]


def test_no_sweep_escapes_the_budgets_above() -> None:
    assert sorted([*BUDGETS, *OF_BUDGETS]) == QUESTIONS


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("question", sorted(BUDGETS))
def test_conditions_have_equal_updates_and_equal_completions(
    question: str, conditions: Chosen
) -> None:
    for name, (updates, per_update) in zip(forms(question), BUDGETS[question], strict=True):
        for config in conditions(Sweep(name)):
            assert config.run.updates == updates
            assert completions(config) == updates * per_update


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize(
    "name,updates",
    [("off_policy_ladder_nano", 64), ("catch_up_nano", 256), ("off_policy_ladder", 256)],
)
def test_a_ladder_has_equal_updates_and_equal_completions(
    name: str, updates: int, conditions: Chosen
) -> None:
    for config in conditions(Sweep(name)):
        assert config.run.num_rounds * config.run.updates_per_round == updates
        groups = config.run.groups_per_update
        assert completions(config) == updates * groups * 2


def test_rungs_of_catching_up_are_judged_after_the_same_updates() -> None:
    for config in Sweep("catch_up_nano").configs():
        judged = [
            v * config.run.optimizer_steps_per_round
            for v in config.eval.versions(config.run.num_rounds)
        ]
        assert judged == [0, 64, 128, 192, 256]


def test_a_tuned_rate_is_that_of_its_algorithm() -> None:
    rates = Sweep("learning_rate_nano").swept["optim.lr"]
    for path in (FOLDER / "tuned").glob("*.yaml"):
        config = Sweep("off_policy_ladder_nano").config(f"tuned={path.stem}")
        assert config.algo.name == path.stem
        assert config.optim.lr in [float(rate) for rate in rates]


@pytest.mark.parametrize("name", both_forms("samples_per_prompt"))
def test_four_samples_in_half_the_steps_are_as_many_completions(name: str) -> None:
    pairs = {(c.run.group_size, c.run.updates): completions(c) for c in Sweep(name).configs()}
    groups = 512 if name == "samples_per_prompt" else 8
    assert pairs == {(2, 256): 256 * groups * 2, (4, 128): 128 * groups * 4}
    assert len(set(pairs.values())) == 1


@pytest.mark.parametrize("name", both_forms("passes"))
def test_t_passes_make_the_same_updates_from_a_tth_of_the_samples(name: str) -> None:
    groups, updates = (512, 256) if name == "passes" else (8, 64)
    for config in Sweep(name).configs():
        assert config.run.updates == updates
        assert completions(config) * config.run.passes == updates * groups * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", forms("staleness"))
def test_staleness_is_corrected_only_where_there_is_some(name: str) -> None:
    found = [(c.mode.max_staleness, c.correction.name) for c in Sweep(name).configs()]
    stale = [(s, how) for s in (1, 2, 4, 8) for how in ("none", "truncated_is")]
    assert found == [(0, "none"), *stale]
    assert {c.mode.name for c in Sweep(name).configs()} == {"lagged"}


@pytest.mark.slow
@pytest.mark.parametrize("name", forms("mismatch_staleness"))
def test_mismatch_and_staleness_are_crossed_with_each_correction(name: str) -> None:
    found = [
        (c.generator.round_weights.value, c.mode.max_staleness, c.correction.name)
        for c in (
            Sweep(name).config(*as_overrides(dict(zip(Sweep(name).varied, values, strict=True))))
            for values in itertools.product(*Sweep(name).varied.values())
        )
    ]
    factors = (("none", "fp8_e4m3"), (0, 4), ("none", "truncated_is", "icepop", "kpop"))
    assert found == list(itertools.product(*factors))
    assert {c.mode.name for c in Sweep(name).configs()} == {"lagged"}


@pytest.mark.slow
@pytest.mark.parametrize("name", forms("off_policy_methods"))
def test_methods_have_their_losses_and_corrections_at_one_rate(name: str) -> None:
    configs = Sweep(name).configs()
    assert {(c.algo.name, c.correction.name) for c in configs} == {
        *(("grpo", correction) for correction in ("none", "decoupled", "a3po", "dppo")),
        *((loss, "none") for loss in ("rloo", "asymre", "tba")),
        ("vcpo", "ess_scaled"),
    }
    assert {c.mode.max_staleness for c in configs} == {0, 16}
    assert {c.optim.lr for c in configs} == {6e-6 if name == "off_policy_methods" else 6e-4}


@pytest.mark.parametrize("name", both_forms("gradient_projection"))
def test_every_gradient_is_compared_with_the_last_whatever_the_bound(name: str) -> None:
    configs = Sweep(name).configs()
    assert {c.optim.max_gradient_cosine for c in configs} == {0.0, 0.3, 1.0}
    assert all(c.optim.gradient_cosine and c.correction.name == "none" for c in configs)


@pytest.mark.parametrize("name", both_forms("over_provision"))
def test_surpluses_are_compared_with_none_in_the_same_mode(name: str) -> None:
    configs = Sweep(name).configs()
    assert [c.mode.over_provision for c in configs] == [1.0, 1.5, 2.0]
    assert {(c.mode.name, c.mode.max_staleness) for c in configs} == {("partial", 4)}


@pytest.mark.parametrize("name", both_forms("single_rollout"))
def test_single_samples_are_of_four_times_as_many_prompts(name: str) -> None:
    found = [
        (c.algo.name, c.run.group_size, c.mode.max_staleness, c.optim.lr)
        for c in Sweep(name).configs()
    ]
    rate = 3e-6 if name == "single_rollout" else 5e-5
    arms = (("grpo", 4), ("ppo", 1), ("sao", 1))
    assert found == [(*arm, lag, rate) for arm in arms for lag in (0, 1, 4)]


@pytest.mark.parametrize("name", both_forms("adapters"))
def test_adapters_have_the_rate_of_full_training_and_ten_times_it(name: str) -> None:
    rates = sorted({c.optim.lr for c in Sweep(name).configs()})
    full = 3e-6 if name == "adapters" else 5e-5
    assert rates == pytest.approx([full, 10 * full])
    for config in Sweep(name).configs():
        assert config.model.lora_alpha == 32 and config.tracker.changed_share


@pytest.mark.parametrize("name", both_forms("distill"))
def test_every_kl_to_a_teacher_is_crossed_with_staleness(name: str) -> None:
    sweep = Sweep(name)
    kinds = [sweep.config(f"distill={kind}").algo for kind in sweep.varied["distill"]]
    assert all(isinstance(algo, Distill) and algo.teacher for algo in kinds)
    found = {(algo.kl, algo.top_k, algo.signal) for algo in kinds if isinstance(algo, Distill)}
    assert found == {
        (Direction.sampled, 0, Signal.behavior),
        (Direction.sampled, 0, Signal.policy),
        (Direction.reverse, 16, Signal.behavior),
        (Direction.forward, 16, Signal.behavior),
        (Direction.forward, 0, Signal.behavior),
    }
    assert sweep.varied["mode.max_staleness"] == ["0", "4", "16"]
    assert {config.mode.name for config in sweep.configs()} == {"lagged"}


def test_turns_are_of_one_age_or_of_falling_ages() -> None:
    ages = {}
    for config in Sweep("turns").configs():
        mode = config.mode
        ages[mode.name, mode.max_staleness] = mode.segment_turns
        assert config.task.name == "ask_nano" and config.reward.name == "environment"
    assert ages == {("lagged", 0): 0, ("lagged", 4): 0, ("partial_turns", 4): 1}


def test_deadlines_cut_the_shares_of_first_answers_that_their_claims_name() -> None:
    shares = {}
    for config in Sweep("stragglers").configs():
        times = config.episodes.tool_times
        waits = [times.seconds(seed, 1) for seed in range(4000)] if times.deadline else []
        late = sum(wait > times.deadline for wait in waits)
        shares[times.deadline] = round(late / max(len(waits), 1), 2)
    assert shares == {0.0: 0.0, 40.0: 0.02, 10.0: 0.25}


@pytest.mark.parametrize("name", both_forms("lag_distribution"))
def test_all_lags_but_none_have_the_mean_two(name: str) -> None:
    means = []
    for config in Sweep(name).configs():
        shares = config.mode.lag_shares or (*[0.0] * config.mode.max_staleness, 1.0)
        means.append(sum(lag * share for lag, share in enumerate(shares)))
        # Several draws a round, or the lag of a round would be one.
        assert config.run.groups_per_update // config.generator.chunk_groups >= 4
    assert means == pytest.approx([0.0, 2.0, 2.0, 2.0])


@pytest.mark.slow
@pytest.mark.parametrize("name", forms("queue_policies"))
def test_queues_and_tails_are_crossed_and_tails_are_equally_long_in_the_mean(name: str) -> None:
    sweep = Sweep(name)
    queues = [sweep.config(f"queue={queue}") for queue in sweep.varied["queue"]]
    found = [(config.cluster.order.value, config.mode.when_stale.value) for config in queues]
    assert found == [("submission", "wait"), ("completion", "wait"), ("completion", "drop")]
    tails = [sweep.config(f"tail={tail}").cluster for tail in sweep.varied["tail"]]
    assert [tail.length_power for tail in tails] == [0, 1, 3]
    # Of 24 tokens at most, nano samples have 13.5 in the mean, and 5.4 by the power of three.
    means = [48 * 24, 85 * 13.5, 213 * 5.4]
    assert means == pytest.approx([1150] * 3, rel=0.01)
    assert [tail.length_scale for tail in tails] == [48, 85, 213]
    assert all(config.generator.chunk_groups == 1 for config in sweep.configs())


def test_the_overlays_are_all_in_use() -> None:
    used = {value for name in NAMES for values in Sweep(name).swept.values() for value in values}
    used |= {"nano", "paper"}
    overlays = {path.stem for path in FOLDER.glob("*/*.yaml")}
    assert overlays <= used
