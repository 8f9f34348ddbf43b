import pytest

from benchmarks.speed import loss_cost

SMALL = ["run.groups_per_update=2"]


@pytest.fixture
def one_case_of_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rounds of eight rows. Split reads what each version gives its tokens."""
    replay = ["run.buffer_rounds=8", "run.fresh_share=0.5", "run.replay=advantage"]
    cases = [
        ("credit and loss", "ppo", [*SMALL, "algo=ppo"]),
        ("correction", "split", [*SMALL, "algo=grpo", "correction=split"]),
        ("correction", "a3po", [*SMALL, "algo=grpo", "correction=a3po"]),
        ("replay buffer", "advantage", [*SMALL, "algo=grpo", *replay]),
    ]
    monkeypatch.setattr(loss_cost, "cases", lambda: iter(cases))


@pytest.mark.usefixtures("one_case_of_each_part")
def test_a_part_above_its_share_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", "nano_s", "--repeats", "1"]
    assert loss_cost.main([*options, "--most", "1e9"]) == 0
    table = capsys.readouterr().out
    assert [line.split()[-4] for line in table.splitlines()[2:]] == [
        "ppo",
        "split",
        "a3po",
        "advantage",
    ]
    assert loss_cost.main([*options, "--most", "0", "--only", "replay buffer"]) == 1


def test_every_correction_and_choice_of_replay_is_timed() -> None:
    timed = {(part, name) for part, name, _ in loss_cost.cases()}
    assert {("correction", "split"), ("correction", "m2po"), ("replay buffer", "recency")} <= timed
    assert ("credit and loss", "distill") in timed
