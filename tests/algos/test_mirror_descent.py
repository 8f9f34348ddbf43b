"""MDPO against numbers worked out by hand, its step size over a run, and Kimi's former name."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_lab.algos.mdpo import MDPO
from rlhf_lab.algos.reward_regression import Kimi
from rlhf_lab.cli.arguments import recorded_overrides
from rlhf_lab.runs import renames
from rlhf_lab.runs.folder import CONFIG, MANIFEST
from tests.support.examples import call
from tests.support.golden import AWAY, POLICY, VALUE, cells, flat, four_rows, output_of

# The first round of four: t = 0.5 * (1 - 1/4).
STEP = 0.375


def test_the_loss_of_mdpo_by_hand() -> None:
    algo = MDPO(step_size=0.5, value_coef=0.0).at_round(1, 4)
    assert algo.step_size == STEP
    batch = four_rows(algo)
    advantage = cells(batch.credit_BT)
    gains = [math.exp(x) * a for x, a in zip(flat(AWAY), advantage, strict=True)]
    # r log r - r + 1 of each token; of the first, e^0.35 * 0.35 - e^0.35 + 1 = 0.0776
    kl = [math.exp(x) * x - math.exp(x) + 1 for x in flat(AWAY)]
    assert kl[0] == pytest.approx(0.0776, abs=1e-4)
    output = output_of(algo, POLICY, batch, VALUE)
    expected = (sum(kl) / STEP - sum(gains)) / 9
    assert float(output.loss) == pytest.approx(expected, abs=1e-5)
    assert float(output.metrics["mdpo/kl_to_round"]) == pytest.approx(sum(kl) / 9, abs=1e-6)
    assert output.clipped_BT is None


def test_the_step_size_of_mdpo_falls_to_the_last_round_and_begins_anew_from_no_state() -> None:
    algo = MDPO(step_size=2.0)
    assert [algo.at_round(k, 4).step_size for k in range(4)] == [2.0, 1.5, 1.0, 0.5]
    assert algo.at_round(2, 4).at_round(3, 4).step_size == 1.0, "it is that of its round"
    fixed = replace(algo, anneal=False)
    assert fixed.at_round(3, 4) is fixed


def test_what_was_recorded_as_mdpo_with_tau_is_kimi() -> None:
    recorded = {"algo": {"name": "mdpo", "tau": 0.1, "part": "MDPO"}, "seed": 1}
    present = renames.present_config(recorded)
    assert present["algo"] == {"name": "kimi", "tau": 0.1, "part": "MDPO"}
    dotted = {"algo.name": "mdpo", "algo.tau": 0.1}
    assert renames.present_config(dotted)["algo.name"] == "kimi"
    now = {"algo": {"name": "mdpo", "step_size": 1.0, "part": "MDPO"}, "seed": 1}
    assert renames.present_config(now) == now
    assert Kimi().name == "kimi"


def test_mdpo_with_tau_on_a_command_line_is_kimi_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    renames.warn.cache_clear()
    given = ("algo=mdpo", "algo.tau=0.5", "--cfg", "job")
    assert call("train", *given, monkeypatch=monkeypatch) == 0
    printed = capsys.readouterr()
    assert "tau: 0.5" in printed.out
    assert "algo=mdpo is now algo=kimi" in printed.err


def test_a_recorded_run_of_mdpo_with_tau_is_started_again_as_kimi(tmp_path: Path) -> None:
    manifest = {"overrides": ["algo=mdpo", "seed=3"], "state": "finished"}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    (tmp_path / CONFIG).write_text("algo: {name: mdpo, tau: 0.1}\n")
    assert recorded_overrides(tmp_path) == ["algo=kimi", "seed=3"]
    (tmp_path / CONFIG).write_text("algo: {name: mdpo, step_size: 1.0}\n")
    assert recorded_overrides(tmp_path) == ["algo=mdpo", "seed=3"]
