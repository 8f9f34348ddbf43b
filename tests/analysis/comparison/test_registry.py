"""Claims of files: how they are read, which runs decide them, and with which numbers."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.benchmark import claims as command
from rlhf_lab_analysis.comparison.registry.answers import Criteria, Unit
from rlhf_lab_analysis.comparison.registry.comparisons import Compared
from rlhf_lab_analysis.comparison.registry.decisions import (
    Decision,
    Decisions,
    decide_all,
    least_of_parts,
)
from rlhf_lab_analysis.comparison.registry.definitions import read_registries, read_registry
from rlhf_lab_analysis.comparison.registry.gates import gated, stages_of
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.statistics.decisions import Shows, Verdict, decide
from rlhf_lab_analysis.statistics.power import Aim, chance_of_verdict, least, power
from tests.support import table_records as made
from tests.support.collapsing_runs import RATES, STALENESS, TOP, grid
from tests.support.question_records import Made

# Of Student's t with 2 degrees of freedom at 97.5%.
T2 = 4.302652729911275
HIGH = (0.70, 0.72, 0.74)
LADDER: dict[str, Any] = {
    "text": "16 updates per round cost win-rate.",
    "source": "Fig. 3",
    "sweep": ["off_policy_ladder_nano", "any"],
    "runs": {"model": "nano_s"},
    "change": {"run.updates_per_round": [1, 16]},
    "measure": "quality",
    "shows": "below",
    "plan": {"truth": -0.05, "spread": 0.02},
}


def written(folder: Path, gates: dict[str, Any] | None = None, **claims: dict[str, Any]) -> Path:
    """A file of claims; each is LADDER with other values, None for a key that it lacks."""
    rows = {
        name: {key: value for key, value in {**LADDER, **own}.items() if value is not None}
        for name, own in claims.items()
    }
    asked = {"How robust?": rows}
    file = {"paper": "arXiv:1", "title": "T", "written": "2026-11-24", "claims": asked}
    path = folder / "claims.yaml"
    # Through JSON, so that what two claims share is written twice.
    path.write_text(yaml.safe_dump(json.loads(json.dumps({**file, "gates": gates or {}}))))
    return path


def decided(folder: Path, records: Sequence[Record], **claim: Any) -> Decisions:
    registry = read_registry(written(folder, claim=claim))
    return decide_all(registry, cells(made.tables(*records)), Criteria())


def only(found: Decisions) -> Decision:
    (one,) = found.decided
    return one


def less(ends: Sequence[float], by: Sequence[float]) -> list[float]:
    return [end - one for end, one in zip(ends, by, strict=True)]


def rungs(*losses: Sequence[float], **parts: Any) -> list[Record]:
    """A ladder of N = 1, 4, 16, ... whose rungs end so much lower than the first."""
    return [
        run
        for place, loss in enumerate(losses)
        for run in Made(per_round=4**place, **parts).runs(less(HIGH, loss))
    ]


NOTHING = (0.0, 0.0, 0.0)
TWO_LOOKS = {"truth": -0.05, "spread": 0.02, "looks": 2}
BOUNDARY = {"mode.max_staleness": [*STALENESS], "optim.lr": [*RATES]}


def test_a_change_is_a_paired_difference_with_its_t_interval(tmp_path: Path) -> None:
    found = only(decided(tmp_path, rungs(NOTHING, NOTHING, (0.10, 0.12, 0.08))))
    half = T2 * 0.02 / math.sqrt(3)
    (number,) = found.answer.numbers
    ends = (number.estimate.point, number.estimate.low, number.estimate.high)
    assert ends == pytest.approx((-0.10, -0.10 - half, -0.10 + half))
    assert found.answer.evidence == "N=16 less N=1: -10.0 [-15.0, -5.0] points (95%)"
    assert found.answer.verdict is Verdict.holds and found.needed is None
    assert found.answer.runs == "6 runs, 3 seeds (1 to 3)"
    assert found.expected == f"-5.0 points, power {found.planned:.2f}"


def test_settings_of_one_claim_hold_together(tmp_path: Path) -> None:
    loss = (0.10, 0.12, 0.08)
    runs = [*rungs(NOTHING, NOTHING, loss), *rungs(NOTHING, NOTHING, loss, algo="online_dpo")]
    found = decided(tmp_path, runs)
    assert [one.answer.numbers[0].estimate.basis.options.percent for one in found.decided] == [
        "97.5%"
    ] * 2
    assert [one.family for one in found.decided] == ["1 of 2 comparisons"] * 2


def test_a_claim_waits_while_there_is_one_seed(tmp_path: Path) -> None:
    one = [record for record in rungs(NOTHING, NOTHING, NOTHING) if record.facts.seed == 1]
    found = decided(tmp_path, one)
    assert not found.decided and [claim.name for claim in found.waiting] == ["claim"]


def test_looks_share_the_error(tmp_path: Path) -> None:
    loss = (0.10, 0.12, 0.08)
    runs = [*rungs(NOTHING, NOTHING, loss), *rungs(NOTHING, NOTHING, loss, algo="online_dpo")]
    found = decided(tmp_path, runs, plan=TWO_LOOKS)
    percents = [one.answer.numbers[0].estimate.basis.options.percent for one in found.decided]
    assert percents == ["98.75%"] * 2
    assert [one.family for one in found.decided] == ["1 of 2 comparisons, 2 looks"] * 2
    # Two looks at one claim cost as much as two settings of it.
    once = decided(tmp_path, runs).decided[0]
    twice = only(decided(tmp_path, rungs(NOTHING, NOTHING, loss), plan=TWO_LOOKS))
    assert once.planned == pytest.approx(twice.planned) and once.answer.evidence.endswith("(97.5%)")
    assert twice.answer.numbers[0].estimate == once.answer.numbers[0].estimate


def test_a_slope_is_per_doubling(tmp_path: Path) -> None:
    # Half a point a doubling and half of one more in seed 2: 4 and 16 are two doublings each.
    runs = rungs(NOTHING, (0.01, 0.02, 0.01), (0.02, 0.04, 0.02))
    change = {"run.updates_per_round": [1, 4, 16]}
    claim: dict[str, Any] = {"measure": "quality_per_doubling", "change": change}
    found = only(decided(tmp_path, runs, **claim))
    assert found.answer.numbers[0].estimate.point == pytest.approx(-(0.005 + 0.01 + 0.005) / 3)
    assert found.answer.evidence.startswith("per doubling of N: -0.7 ")
    claim["change"] = {"run.updates_per_round": [1, 2, 4, 16]}
    assert decided(tmp_path, runs, **claim).waiting[0].name == "claim"


def test_one_part_may_lose_more_than_others(tmp_path: Path) -> None:
    runs = [
        *rungs(NOTHING, NOTHING, (0.10, 0.11, 0.12)),
        *rungs(NOTHING, NOTHING, (0.01, 0.02, 0.03), algo="online_dpo"),
        *rungs(NOTHING, NOTHING, (0.20, 0.22, 0.24), algo="best_of_n"),
    ]
    part = {"algo": [["ppo", "best_of_n"], "online_dpo"]}
    claim = {"more_than": part, "shows": "above", "plan": {"truth": 0.1, "spread": 1}}
    found = only(decided(tmp_path, runs, **claim))
    points = [number.estimate.point for number in found.answer.numbers]
    # -2 less -11, and -2 less -22 points.
    assert points == pytest.approx([0.09, 0.20])
    # Each part at its own level: all must hold.
    assert {n.estimate.basis.options.percent for n in found.answer.numbers} == {"95%"}
    assert found.family == "by itself"
    # That one is refuted is true of either at a shared level.
    opposite = {"shows": "below", "plan": {"truth": -0.1, "spread": 1}}
    refuted = only(decided(tmp_path, runs, **claim | opposite))
    assert refuted.answer.verdict is Verdict.does_not_hold
    assert {n.estimate.basis.options.percent for n in refuted.answer.numbers} == {"97.5%"}
    assert refuted.family == "1 of 2 comparisons"
    assert found.answer.evidence.startswith("online_dpo less ppo, of N=16 less N=1: +9.0 ")


def test_rates_are_those_of_each_algorithm(tmp_path: Path) -> None:
    """Algorithms with their own learning rates are compared; other settings keep them apart."""
    part = {"algo": ["online_dpo", "ppo"]}
    claim = {"more_than": part, "change": None, "shows": "above", "plan": {"truth": 1, "spread": 1}}
    first, second = Made().runs(HIGH), Made(algo="online_dpo").runs(less(HIGH, (0.1, 0.11, 0.12)))
    faster = [
        replace(run, config={**run.config, "optim": {"lr": 5e-4, "schedule_per": "update"}})
        for run in second
    ]
    assert only(decided(tmp_path, [*first, *faster], **claim)).answer.verdict is Verdict.holds
    longer = Made(algo="online_dpo", updates=128).runs(HIGH)
    assert not decided(tmp_path, [*first, *longer], **claim).decided


def test_ratios_are_shown_as_ratios_and_decided_as_logarithms(tmp_path: Path) -> None:
    runs = [
        *Made(seconds=20.0).runs(HIGH),
        *(replace(run) for run in Made(mode="async", seconds=10.0).runs(HIGH)),
    ]
    runs = [with_noise(run) for run in runs]
    claim = {
        **{"change": {"mode": ["async", "sync"]}, "measure": "wall_clock", "shows": "above"},
        **{"plan": {"truth": 0.5, "spread": 0.1}},
    }
    found = only(decided(tmp_path, runs, **claim))
    assert found.answer.evidence.startswith("sync / async: 2.0")
    assert found.answer.verdict is Verdict.holds


def with_noise(run: Record) -> Record:
    """A run of sync whose seconds depend on its seed a little."""
    if run.config["mode"]["name"] != "sync" or run.facts.seed is None:
        return run
    factor = 1 + 0.01 * run.facts.seed
    rounds = [{**row, "seconds/wall": float(row["seconds/wall"]) * factor} for row in run.rounds]
    return replace(run, rounds=rounds)


def on_a_virtual_clock(run: Record) -> Record:
    """30 virtual seconds a round, 12 of them waiting for samples, or 15 where one is stale; real
    seconds play no part."""
    assert run.facts.seed is not None
    is_stale = run.config["mode"]["max_staleness"] == 1
    whole = 15.0 if is_stale else 30 * (1 + 0.01 * run.facts.seed)
    rounds = [
        {**row, "virtual_seconds/wall": whole * n, "virtual_seconds/wait": 0.4 * whole * n}
        for n, row in enumerate(run.rounds, start=1)
    ]
    return replace(run, rounds=rounds)


def test_a_virtual_cluster_has_its_own_clock(tmp_path: Path) -> None:
    runs = [
        on_a_virtual_clock(run)
        for staleness, seconds in ((0, 1.0), (1, 100.0))
        for run in Made(mode="virtual", staleness=staleness, seconds=seconds).runs(HIGH)
    ]
    plan = {"plan": {"truth": 0.1, "spread": 0.1}}
    stale = {"change": {"mode.max_staleness": [1, 0]}, "shows": "above", **plan}
    found = only(decided(tmp_path, runs, measure="virtual_wall_clock", **stale))
    assert found.answer.evidence.startswith("S=0 / S=1: 2.04 ")
    ahead = {"change": {"mode.max_staleness": [0, 1]}, **plan}
    overlap = {**ahead, "shows": "not worse", "measure": "virtual_speed_up_over_overlap"}
    # Two lanes of 12 and 18 seconds: 30 / 18 without loss.
    (number,) = only(decided(tmp_path, runs, **overlap)).answer.numbers
    assert number.estimate.point == pytest.approx(2.04 / (30 / 18), abs=0.001)
    equal = {**ahead, "shows": "above", "measure": "quality_at_equal_virtual_wall_clock"}
    (number,) = only(decided(tmp_path, runs, **equal)).answer.numbers
    # When the stale run is over, the other is about half way from 0.4 to its end.
    assert number.estimate.point == pytest.approx(0.16, abs=0.01)


def test_a_treatment_that_did_nothing_has_no_verdict(tmp_path: Path) -> None:
    found = decided(tmp_path, rungs(NOTHING, NOTHING, NOTHING))
    assert not found.decided and not found.waiting
    (line,) = found.idle
    assert line.startswith("claim, nano_s, tldr_nano, ppo, N=16 less N=1: nothing differs")


def test_what_is_undecided_has_a_price(tmp_path: Path) -> None:
    found = only(decided(tmp_path, rungs(NOTHING, NOTHING, (0.10, 0.0, 0.02))))
    assert found.answer.verdict is Verdict.cannot_tell
    assert found.needed is not None
    seeds, hours = found.needed
    # Four rounds of 10 seconds on one device in each of two runs a seed.
    assert seeds > 3 and hours == pytest.approx(seeds * 2 * 40 / 3600)
    # A gain is no loss: as many seeds refute the claim as would show a loss of that size.
    gain = only(decided(tmp_path, rungs(NOTHING, NOTHING, (-0.10, 0.0, -0.02))))
    assert gain.answer.verdict is Verdict.cannot_tell and gain.needed == found.needed


def test_a_claim_of_two_parts_is_refuted_by_one_or_shown_by_both(tmp_path: Path) -> None:
    aim = Aim(Shows.above, 0.02)
    true, slow, false = (
        Compared("", {1: mean - 0.04, 2: mean, 3: mean + 0.04}, (), "")
        for mean in (0.10, 0.05, -0.03)
    )
    alone = [least_of_parts(aim, [part]) for part in (true, slow)]
    assert alone[0] < alone[1] == least_of_parts(aim, [true, slow])
    refuted = least_of_parts(aim, [true, slow, false])
    corrected = replace(aim, truth=-0.03, together=3)
    assert refuted == least(corrected, 0.04, 0.8, 1, chance_of_verdict)


def of_boundary(folder: Path, top: float = TOP, **claim: Any) -> Decision:
    """What the slope of a boundary shows whose largest stable rate is top / (S + 1)."""
    own = {"runs": {}, "change": BOUNDARY, "measure": "boundary_slope"}
    return only(decided(folder, grid(top), **(own | claim)))


def test_the_exponent_of_a_boundary_is_compared_with_a_number(tmp_path: Path) -> None:
    found = of_boundary(tmp_path)
    (number,) = found.answer.numbers
    assert number.label == "slope of log lr on log(S + 1)"
    assert number.estimate.low < -1 < number.estimate.high < 0
    assert found.answer.verdict is Verdict.holds and "as exponent (95%)" in number.text
    assert "60 runs, 3 seeds" in found.answer.runs
    inverse = "boundary_slope_over_inverse"
    near = of_boundary(tmp_path, shows="equal", measure=inverse)
    (moved,) = near.answer.numbers
    assert moved.estimate.point == pytest.approx(number.estimate.point + 1)
    assert decide(moved.estimate, Shows.equal, 0.5) is Verdict.holds
    assert moved.label.endswith(", less -1")
    assert decide(number.estimate, Shows.equal, 0.25) is Verdict.does_not_hold


def test_runs_without_a_boundary_decide_nothing_and_have_a_reason(tmp_path: Path) -> None:
    found = of_boundary(tmp_path, top=1.0)
    assert found.answer.verdict is Verdict.cannot_tell
    assert "have stable and collapsed runs of one seed" in found.answer.warnings[0]
    assert found.needed is None


def test_collapse_is_counted_in_updates_up_to_the_end_of_the_runs(tmp_path: Path) -> None:
    runs = {"optim.lr": RATES[-2]}
    change = {"mode.max_staleness": [STALENESS[0], STALENESS[-1]]}
    claim = {"runs": runs, "change": change, "measure": "updates_before_collapse"}
    found = decided(tmp_path, grid(), **claim)
    # At 8e-4 none collapses with S = 0, which counts as the 16 updates of a run; all do after 12
    # with S = 7. Seeds do not differ, so that nothing is decided.
    (number,) = only(found).answer.numbers
    assert (number.estimate.point, number.text[:4]) == (-4.0, "-4.0")
    assert only(found).answer.verdict is Verdict.cannot_tell


def staged(run: Record, stage_seed: int, **numbers: float) -> Record:
    """The run with stages of their own seed, and what an evaluation records of these."""
    evals = [{**row, **{f"stage/{name}": x for name, x in numbers.items()}} for row in run.evals]
    config = {**run.config, "stage_seed": stage_seed}
    content = f"{run.facts.content}/{stage_seed}"
    return replace(
        run,
        run=f"{run.run}/{stage_seed}",
        config=config,
        evals=evals,
        facts=replace(run.facts, content=content),
    )


def test_runs_of_one_stage_seed_count_once(tmp_path: Path) -> None:
    """Two runs of each of three stage seeds are three numbers, the means of each."""
    ends = {1: (0.70, 0.72), 3: (0.72, 0.74), 4: (0.70, 0.70)}
    losses = {1: (0.1, 0.0), 3: (0.1, 0.1), 4: (0.1, 0.2)}
    runs = [
        staged(run, stage_seed)
        for stage_seed, own in ends.items()
        for n, one in ((1, own), (16, less(own, losses[stage_seed])))
        for run in Made(per_round=n).runs(one)
    ]
    found = only(decided(tmp_path, runs))
    estimate = found.answer.numbers[0].estimate
    assert estimate.basis.seeds == (3,)
    # -5, -10 and -15 points: a standard deviation of 5.
    half = T2 * 0.05 / math.sqrt(3)
    assert (estimate.point, estimate.high - estimate.point) == pytest.approx((-0.10, half))
    assert found.answer.runs == "12 runs, 3 stage seeds (1, 3, 4), 2 RL seeds"


def test_seeds_of_one_side_alone_have_no_part_in_the_answer(tmp_path: Path) -> None:
    fresh = [run for seed in (1, 3, 4, 5) for run in map_stage(Made().runs((0.7, 0.72)), seed)]
    old = [
        run for seed in (1, 3, 4) for run in map_stage(Made(per_round=16).runs((0.6, 0.7)), seed)
    ]
    found = only(decided(tmp_path, [*fresh, *old]))
    assert found.answer.runs == "12 runs, 3 stage seeds (1, 3, 4), 2 RL seeds"


def map_stage(runs: Sequence[Record], stage_seed: int) -> list[Record]:
    """The runs, with stages of this seed."""
    return [staged(run, stage_seed) for run in runs]


def with_last(run: Record, end: float) -> Record:
    """A run whose last version is judged on more prompts as well."""
    last = {**run.evals[-1], "label": "last", "gold/win_rate": end}
    return replace(run, evals=[*run.evals, last])


def test_ends_are_those_on_more_prompts_and_ways_are_not(tmp_path: Path) -> None:
    low = [with_last(run, 0.8) for run in Made().runs(HIGH)]
    high = [
        with_last(run, 0.8 - loss)
        for run, loss in zip(
            Made(per_round=16).runs(less(HIGH, (0.3, 0.3, 0.3))), (0.10, 0.12, 0.08), strict=True
        )
    ]
    found = only(decided(tmp_path, [*low, *high]))
    assert found.answer.numbers[0].estimate.point == pytest.approx(-0.10)
    # From SFT at 0.4 to 0.42 on the prompts of the way, whatever the end is on others.
    gain = {"change": None, "measure": "gain_over_sft", "shows": "above", "runs": {
        "run.updates_per_round": 16}, "plan": {"truth": 0.1, "spread": 0.1}}  # fmt: skip
    assert only(decided(tmp_path, high, **gain)).answer.numbers[0].estimate.point == pytest.approx(
        0.02
    )
    (cell,) = cells(made.tables(*low)).cells
    assert cell.scores("gold/win_rate") == {1: 0.8, 2: 0.8, 3: 0.8}
    assert [ys[-1] for _, ys in cell.paths("x/updates", "gold/win_rate").values()] == [*HIGH]


def test_accuracy_is_the_mean_of_a_rule_and_no_win_rate(tmp_path: Path) -> None:
    """Claims on accuracy had been decided by the win-rate against a reference."""

    def right(run: Record, share: float) -> Record:
        return replace(run, evals=[{**row, "gold/mean": share} for row in run.evals])

    low = [right(run, share) for run, share in zip(Made().runs(HIGH), HIGH, strict=True)]
    shares = less(HIGH, (0.10, 0.12, 0.08))
    high = [
        right(run, share) for run, share in zip(Made(per_round=16).runs(HIGH), shares, strict=True)
    ]
    (number,) = only(decided(tmp_path, [*low, *high], measure="accuracy")).answer.numbers
    assert number.estimate.point == pytest.approx(-0.10) and number.unit is Unit.points


def test_gates_stop_runs_of_bad_stages(tmp_path: Path) -> None:
    gates = {
        "tldr_nano": {"stage/sft_loss": {"most": 0.36}, "stage/proxy_accuracy": {"least": 0.8}}
    }
    registry = read_registry(written(tmp_path, gates, claim={}))
    quality = {1: (0.34, 0.9), 2: (0.40, 0.9), 3: (0.34, 0.7)}
    runs = [
        staged(Made().run(1, 0.7), seed, sft_loss=loss, proxy_accuracy=accuracy)
        for seed, (loss, accuracy) in quality.items()
    ]
    # Of a pretrained policy nothing is known, and nothing is stopped.
    selection = cells(made.tables(*runs, *Made(algo="grpo").runs(HIGH)))
    kept, lines = gated(registry, selection)
    assert {seeds for cell in kept.cells for seeds in cell.members} == {
        *((1, 1), (0, 1), (0, 2), (0, 3))
    }
    assert lines == [
        "stopped by the gate: tldr_nano, stage seed 2: stage/sft_loss is 0.400, and at most 0.36 "
        "is wanted (1 run)",
        "stopped by the gate: tldr_nano, stage seed 3: stage/proxy_accuracy is 0.700, and at least "
        "0.8 is wanted (1 run)",
    ]
    assert [(one.seed, one.is_good) for one in stages_of(registry, selection)] == [
        (1, True),
        (2, False),
        (3, False),
    ]


@pytest.mark.parametrize(
    ("claim", "key", "remedy"),
    [
        ({"measure": "beauty"}, "measure", "beauty: choose one of accuracy, boundary_slope"),
        (
            {"measure": ["quality", "boundary_slope"]},
            "measure",
            "boundary_slope: it is of many cond",
        ),
        ({"shows": "more"}, "shows", "'below', 'above', 'equal' or 'not worse', not 'more'"),
        ({"sweep": "off_policy_nano"}, "sweep", "did you mean .*off_policy_methods_nano"),
        ({"change": {"mode": ["sync"]}}, "change", r"mode=\['sync'\]: pass \[before, after\]"),
        ({"more_than": {"algo": ["ppo"]}}, "more_than.algo", r"at least 2 items .* not \['ppo'\]"),
        ({"plan": TWO_LOOKS | {"looks": 0}}, "plan.looks", "greater than or equal to 1, not 0"),
        ({"colour": "red"}, "colour", "not 'red'. A claim has text, source, sweep, runs, change"),
        ({"question": "How?"}, "question", r"not 'How\?'. A claim has text"),
        ({"text": None}, "text", "it is missing. A claim has text"),
        ({"change": None, "measure": "flops_saved"}, "measure", "is of two conditions: pass"),
        ({"measure": "boundary_slope"}, "measure", "boundary_slope is of conditions over 2 sett"),
    ],
)
def test_a_wrong_file_is_refused_with_file_claim_key_value_and_remedy(
    tmp_path: Path, claim: dict[str, Any], key: str, remedy: str
) -> None:
    with pytest.raises(UserError, match=remedy) as refused:
        read_registry(written(tmp_path, of_this_name=claim))
    assert all(text in str(refused.value) for text in ("claims.yaml", "of_this_name", key))


def test_the_files_of_claims_can_be_read_and_each_can_be_shown() -> None:
    registries = read_registries()
    # The paper that is reproduced comes first.
    assert registries[0].path.stem == "async_rlhf"
    for registry in registries:
        for claim in registry.claims if not registry.is_general else ():
            # A plan whose difference contradicts the claim is refused by its power.
            assert 0 < planned(claim) <= 1, claim.name
        assert {claim.name for claim in registry.claims}


def planned(claim: Any) -> float:
    aim = Aim(claim.shows, claim.measure.margin_of(Criteria()), claim.row["plan"]["truth"], 4)
    return power(aim, claim.row["plan"]["spread"], 8)


@pytest.mark.parametrize(
    ("losses", "lines"),
    [
        ((0.10, 0.12, 0.08), ["holds", "-10.0 [-15.0, -5.0] points (95%)"]),
        # The mean is -2 points, with a standard deviation of 6, and the next look is the second:
        # about (2.24 + 0.84)^2 (6 / 2)^2 seeds.
        (
            (0.08, 0.02, -0.04),
            ["cannot tell", "not decided: claim (nano_s, tldr_nano, ppo): 86 stage seeds in all"],
        ),
        ((0.02, 0.02, 0.02), ["nothing gives their spread"]),
    ],
)
def test_the_command_lists_verdicts_and_what_waits(
    losses: tuple[float, ...], lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "runs"
    for number, record in enumerate(rungs(NOTHING, NOTHING, losses)):
        made.write_run(place / str(number), record)
    claims = tmp_path / "claims"
    claims.mkdir()
    written(claims, claim={}, other={"runs": {"model": "nano_l"}})
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    command.run(parser.parse_args([str(place), "--claims", str(claims)]), Console(quiet=False))
    text = " ".join(capsys.readouterr().out.split())
    assert all(line in text for line in lines), text
    assert "waits for runs: other (make sweep SWEEP=off_policy_ladder_nano)" in text


def test_claims_about_real_seconds_compare_runs_of_one_sweep(tmp_path: Path) -> None:
    """Another sweep may have runs of the same settings that shared their machine."""
    runs = [
        *Made(seconds=30.0, sweep="beside_other_work", snapshots=4).runs(HIGH),
        *map(with_noise, Made(seconds=20.0, sweep="alone", snapshots=2).runs(HIGH)),
        *Made(mode="async", seconds=10.0, sweep="alone", snapshots=2).runs(HIGH),
    ]
    runs = [replace(run, place=f"runs/{n}") for n, run in enumerate(runs)]
    claim = {"change": {"mode": ["async", "sync"]}, "shows": "above", "sweep": None}
    plan = {"plan": {"truth": 0.5, "spread": 0.1}}
    found = only(decided(tmp_path, runs, measure="wall_clock", **claim, **plan))
    assert found.answer.evidence.startswith("sync / async: 2.0")
    assert {sweep for sweep, *_ in found.answer.conditions} == {"alone"}


def test_a_claim_may_name_a_real_model_and_no_sweep(tmp_path: Path) -> None:
    runs = rungs(NOTHING, NOTHING, (0.10, 0.12, 0.08), model="pythia_410m")
    claim = {"sweep": None, "runs": {"model": "pythia_410m", "task": "tldr_nano"}}
    found = only(decided(tmp_path, runs, **claim))
    assert found.answer.evidence == "N=16 less N=1: -10.0 [-15.0, -5.0] points (95%)"
    (waits,) = decided(tmp_path, rungs(NOTHING), **claim).waiting
    assert waits.making == (
        "runs with model=pythia_410m task=tldr_nano run.updates_per_round=[1, 16]"
    )


def test_an_algorithm_that_other_sweeps_have_at_another_rate_is_that_of_the_claims_sweep(
    tmp_path: Path,
) -> None:
    """compute_optimal_nano has online DPO at four times the rate of the ladder, and comes first."""
    runs = [
        replace(run, config={**run.config, "optim": {**run.config["optim"], "lr": rate}})
        for sweep, algo, rate, ends in (
            (LADDER["sweep"][0], "ppo", 1e-4, HIGH),
            ("a_sweep", "online_dpo", 4e-4, less(HIGH, (-0.2, -0.2, -0.2))),
            (LADDER["sweep"][0], "online_dpo", 1e-4, less(HIGH, (0.05, 0.04, 0.06))),
        )
        for run in Made(algo=algo, sweep=sweep).runs(ends)
    ]
    runs = [replace(run, run=f"{run.run} {n}", place=f"runs/{n}") for n, run in enumerate(runs)]
    against = {"algo": ["online_dpo", "ppo"]}
    plan = {"truth": 0.05, "spread": 0.02}
    claim = {"change": None, "more_than": against, "shows": "above", "plan": plan}
    found = only(decided(tmp_path, runs, **claim))
    assert found.answer.evidence.startswith("ppo less online_dpo: +5.0 ")
    assert found.answer.verdict is Verdict.holds


def test_runs_of_a_claims_own_sweeps_decide_it_and_those_of_any_where_it_names_any(
    tmp_path: Path,
) -> None:
    def ladder(sweep: str, loss: Sequence[float]) -> list[Record]:
        runs = [
            *Made(sweep=sweep).runs(HIGH),
            *Made(sweep=sweep, per_round=16).runs(less(HIGH, loss)),
        ]
        return [
            replace(run, run=f"{sweep} {n}", place=f"{sweep}/{n}") for n, run in enumerate(runs)
        ]

    own = ladder("off_policy_ladder_nano", (0.10, 0.12, 0.08))
    mine = ladder("mine", (0.01, 0.02, 0.03))
    assert only(decided(tmp_path, [*mine, *own])).answer.evidence.startswith(
        "N=16 less N=1: -10.0 "
    )
    assert only(decided(tmp_path, mine)).answer.evidence.startswith("N=16 less N=1: -2.0 ")
    # What a claim states of its sweep, such as other RL seeds, is of no other runs.
    assert not decided(tmp_path, mine, sweep="off_policy_ladder_nano").decided
    several = {"sweep": ["reward_scale_nano", "off_policy_ladder_nano"]}
    found = only(decided(tmp_path, [*mine, *own], **several))
    assert found.answer.evidence.startswith("N=16 less N=1: -10.0 ")


def test_a_setting_of_any_level_and_one_of_several_are_named_with_the_effect(
    tmp_path: Path,
) -> None:
    loss = (0.10, 0.12, 0.08)
    runs = [
        run
        for staleness in (1, 2, 4)
        for run in (
            *Made(mode="lagged", staleness=staleness).runs(HIGH),
            *Made(mode="lagged", staleness=staleness, per_round=16).runs(less(HIGH, loss)),
        )
    ]
    every = decided(tmp_path, runs, runs={"mode.max_staleness": "each"})
    labels = [one.answer.numbers[0].label for one in every.decided]
    assert labels == [f"N=16 less N=1, S={staleness}" for staleness in (1, 2, 4)]
    some = decided(tmp_path, runs, runs={"mode.max_staleness": [1, 4]})
    assert [one.answer.numbers[0].label for one in some.decided] == [labels[0], labels[2]]
    (one,) = decided(tmp_path, runs, runs={"mode.max_staleness": 4}).decided
    assert one.answer.numbers[0].label == "N=16 less N=1"


def test_measures_after_the_first_are_shown_and_decide_nothing(tmp_path: Path) -> None:
    runs = rungs(NOTHING, NOTHING, (0.10, 0.12, 0.08))
    found = only(decided(tmp_path, runs, measure=["quality", "quality_over_updates", "kl"]))
    first, average, drift = found.answer.numbers
    # A straight line from 0.4: half of the loss at the end.
    assert (first.estimate.point, average.estimate.point) == pytest.approx((-0.10, -0.05))
    assert average.label == "mean over the updates, N=16 less N=1" and drift.unit is Unit.nats
    assert found.answer.verdict is only(decided(tmp_path, runs)).answer.verdict
