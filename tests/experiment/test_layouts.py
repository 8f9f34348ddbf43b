"""Predictions from sizes: shapes, memory, seconds, the search of layouts, and errors on a run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    LlamaConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from rlhf_lab.cli.launch import LAUNCH
from rlhf_lab.cli.plan import PLAN
from rlhf_lab.experiment.config.layout import Layout, parsed
from rlhf_lab.experiment.planning.layouts import costs, gpu_checks
from rlhf_lab.experiment.planning.layouts.choice import (
    Choice,
    HandOver,
    Workload,
    workload_of,
)
from rlhf_lab.experiment.planning.layouts.errors import mean_lengths
from rlhf_lab.experiment.planning.layouts.gpus import GPUS, named
from rlhf_lab.experiment.planning.layouts.search import (
    FILLED,
    choices_of,
    layouts_of,
    planned,
    ranked,
)
from rlhf_lab.experiment.planning.layouts.shapes import (
    PUBLISHED,
    ModelShape,
    neox,
    published,
    shape_in,
)
from rlhf_lab.runs.jsonl import read_rows, write_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.launchers.torchrun import Ports, ResourceRequest, commands
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.precision import Precision
from tests.conftest import MakeConfig
from tests.experiment.test_planner import sync_rows, write

# Parameters, in millions, as the models' cards state them.
CARDS = {
    "pythia-160m": 162.3,
    "pythia-410m": 405.3,
    "pythia-1b": 1011.8,
    "pythia-2.8b": 2775.2,
    "pythia-6.9b": 6857.3,
    "llama-3.1-8b": 8030.3,
    "llama-3.2-1b": 1235.8,
    "rho-1b": 1100.0,
    "smollm2-135m": 134.5,
    "qwen2.5-0.5b": 494.0,
    "qwen2.5-1.5b": 1543.7,
    "qwen2.5-3b": 3085.9,
    "qwen2.5-7b": 7615.6,
    "qwen3-0.6b": 596.0,
    "qwen3-1.7b": 1720.6,
    "qwen3-4b": 4022.5,
    "qwen3-8b": 8190.7,
}
H200 = GPUS["h200"]
WORK = Workload(
    policy=PUBLISHED["pythia-2.8b"],
    scorers=(PUBLISHED["pythia-2.8b"].as_scorer,),
    value_models=0,
    has_adapters=False,
    reads_reference=True,
    shares_prompts=True,
    prompt=320,
    response=45,
    observed=0,
    longest=565,
    groups=512,
    group_size=2,
    trained_rows=1024,
    trained_groups=512,
    updates=1,
    num_rounds=1000,
    staleness=1,
    chunk_rows=(128,) * 8,
    logit_tokens=1024,
)


def choice(layout: str = "1x8:7+1", **changes: object) -> Choice:
    base = Choice(parsed(layout), "fsdp", "bfloat16", 16384, False, 1)
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CARDS)
def test_published_shapes_have_the_parameters_of_their_cards(name: str) -> None:
    assert PUBLISHED[name].parameters / 1e6 == pytest.approx(CARDS[name], rel=0.01)


@pytest.mark.parametrize(
    ("config", "gated"),
    [
        (GPTNeoXConfig(hidden_size=96, num_hidden_layers=3, num_attention_heads=4), False),
        (LlamaConfig(hidden_size=96, num_attention_heads=4, num_key_value_heads=2), True),
        (Qwen2Config(hidden_size=96, num_attention_heads=4, num_key_value_heads=2), True),
        (Qwen3Config(hidden_size=96, num_attention_heads=4, num_key_value_heads=2), True),
    ],
)
def test_a_shape_counts_the_matrices_of_the_model(config: PretrainedConfig, gated: bool) -> None:
    config.intermediate_size, config.vocab_size, config.num_hidden_layers = 200, 70, 3
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shape = shape_in(config, "folder", "model.path")
    matrices = {id(p): p.numel() for p in model.parameters() if p.dim() == 2}
    assert shape.is_gated is gated
    assert shape.parameters == sum(matrices.values())


def test_sizes_that_are_missing_are_named() -> None:
    with pytest.raises(UserError, match=r"path=odd: its config.json has no num_hidden_layers"):
        shape_in(PretrainedConfig(), "odd", "model.path")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("mnoukhov/pythia2.8b-sft-tldr", "pythia-2.8b"),
        ("EleutherAI/pythia-6.9b-deduped", "pythia-6.9b"),
        ("cleanrl/EleutherAI_pythia-6.9b-deduped__reward__tldr", "pythia-6.9b"),
        ("realtreetune/rho-1b-sft-GSM8K", "rho-1b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
    ],
)
def test_models_that_were_tuned_from_published_ones_have_their_shape(path: str, name: str) -> None:
    assert published(path) == PUBLISHED[name]


def test_an_unknown_name_has_no_published_shape() -> None:
    assert published("somebody/their-own-model") is None


TINY = ModelShape(2, 4, 2, 2, 16, 10, is_gated=False)


def test_operations_and_bytes_of_a_model_by_hand() -> None:
    # Attention 4 x (4 x 4), feed-forward 2 x (4 x 16): 192 in each of 2 layers; 2 x 40 embeddings.
    assert TINY.layer_weights == 192
    assert TINY.parameters == 2 * 192 + 80
    # 2 operations a weight; 4 x width 4 x 5 tokens of context in each layer.
    assert TINY.reading(5) == 2 * (2 * 192 + 80)
    assert TINY.head == 80
    # Keys and values of 2 layers with 2 heads of width 2.
    assert TINY.kv_elements == 16
    assert TINY.activations == 9 * 4 + 2 * 16


def test_memory_of_one_trainer_by_hand() -> None:
    work = dataclasses.replace(WORK, policy=TINY, scorers=(), longest=100, chunk_rows=(8,))
    own = Choice(Layout(1, 1, 1, 0), "single", "float32", 200, False, 1)
    states = (16 + 4) * TINY.parameters
    # 200 tokens through 2 layers, 4 bytes an element; logits of 200 tokens, three copies.
    kept = 200 * 2 * 4 * TINY.activations + 3 * 4 * 200 * 10
    generator = 4 * TINY.parameters + 8 * 4 * 16 * 100
    found = costs.memory_of(work, own, H200)
    assert found.trainer == pytest.approx(1.5e9 + 1.05 * (states + kept + generator), abs=1)
    assert found.generator == 0


@given(
    trainers=st.integers(1, 7),
    micro=st.sampled_from([4096, 16384, 65536]),
    recomputes=st.booleans(),
)
def test_memory_falls_with_trainers_and_recomputing_and_rises_with_tokens(
    trainers: int, micro: int, recomputes: bool
) -> None:
    def trainer(count: int, tokens: int, again: bool) -> float:
        own = choice(f"1x8:{count}+1", micro_tokens=tokens, checkpointing=again)
        return costs.memory_of(WORK, own, H200).trainer

    base = trainer(trainers, micro, recomputes)
    assert trainer(trainers, 2 * micro, recomputes) > base
    assert trainer(trainers, micro, True) <= base
    if trainers > 1:
        assert trainer(trainers - 1, micro, recomputes) > base


def test_a_model_that_does_not_fit_on_a_generator_has_no_room_for_samples() -> None:
    small = GPUS["a10"]
    found = planned(WORK, choice(), dataclasses.replace(small, memory=6e9))
    assert found.memory.kv_rows < 1
    assert not found.fits(small)


def test_trainers_and_generators_overlap_only_where_staleness_allows_it() -> None:
    beside = costs.seconds_of(WORK, choice(), H200, 128)
    lane = beside.generate + beside.score + beside.weights
    assert beside.whole == pytest.approx(max(lane, beside.train), rel=0.01)
    sync = costs.seconds_of(dataclasses.replace(WORK, staleness=0), choice(), H200, 128)
    assert sync.whole == pytest.approx(lane + beside.train)
    assert sync.trainer_wait == 0


def test_an_update_takes_its_operations_at_the_assumed_share() -> None:
    own = choice("1x1:1+0", engine="single")
    tokens = 512 * 320 + 1024 * 45
    operations = 3 * (tokens * WORK.policy.reading(565 / 2) + 1024 * 45 * WORK.policy.head)
    adamw = 28 * WORK.policy.parameters / H200.bandwidth
    expected = operations / (costs.TRAINING_SHARE * H200.bfloat16) + adamw
    assert costs.updating(WORK, own, H200) == pytest.approx(expected)


@given(trainers=st.integers(1, 6), generators=st.integers(1, 2), faster=st.floats(1.1, 10))
def test_a_faster_gpu_never_takes_longer(trainers: int, generators: int, faster: float) -> None:
    better = dataclasses.replace(
        H200,
        bfloat16=H200.bfloat16 * faster,
        bandwidth=H200.bandwidth * faster,
        link=H200.link * faster,
    )
    own = choice(f"1x8:{trainers}+{generators}")
    assert planned(WORK, own, better).seconds.whole <= planned(WORK, own, H200).seconds.whole * (
        1 + 1e-9
    )


def test_every_division_of_the_devices_is_searched() -> None:
    found = [str(layout) for layout in layouts_of(1, 4)]
    assert found == ["1x4:4+0", "1x4:3+1", "1x4:2+2", "1x4:1+3"]


def test_the_search_ranks_what_fits_and_keeps_fixed_keys() -> None:
    fixed = {"engine.micro_tokens": "8192", "engine.dtype": "bfloat16"}
    plans = ranked(list(layouts_of(1, 8)), WORK, H200, fixed)
    assert plans
    times = [plan.seconds.whole for plan in plans]
    assert times == sorted(times)
    for plan in plans:
        assert plan.memory.most <= FILLED * H200.memory
        assert (plan.choice.micro_tokens, plan.choice.dtype) == (8192, "bfloat16")
        # The best of its layout: no other combination of settings that fits is faster.
        for other in choices_of(plan.choice.layout, WORK, fixed):
            rival = planned(WORK, other, H200)
            assert not rival.fits(H200) or rival.seconds.whole >= plan.seconds.whole


def test_float32_is_never_the_faster_one_on_a_gpu() -> None:
    assert {plan.choice.dtype for plan in ranked(list(layouts_of(1, 8)), WORK, H200, {})} == {
        "bfloat16"
    }


def test_larger_models_need_more_than_one_trainer() -> None:
    large = dataclasses.replace(WORK, policy=neox(48, 8192, 64), scorers=())
    assert ranked(list(layouts_of(1, 1)), large, H200, {}) == []
    assert ranked(list(layouts_of(4, 8)), large, H200, {}) != []


def test_a_config_becomes_its_workload(make_config: MakeConfig) -> None:
    config = make_config("algo=ppo", "run.group_size=1", "mode=async")
    work = workload_of(config)
    assert work.policy.parameters > 0
    assert (work.value_models, work.staleness, work.group_size) == (1, 1, 1)
    assert work.rows == config.run.groups_generated
    assert sum(work.chunk_rows) == work.rows
    assert len(work.scorers) == 1


def test_lengths_can_be_given() -> None:
    assert WORK.with_lengths(100, None, None).update_tokens == 512 * 100 + 1024 * 45
    assert WORK.with_lengths(None, None, 7).update_tokens == 512 * 320 + 1024 * (45 + 7)


def test_observations_are_read_and_not_decoded(make_config: MakeConfig) -> None:
    own = choice("1x1:1+0", engine="single")
    episodes = WORK.with_lengths(None, 45, 55)
    # Read once each behind a prompt of 320, in the middle of 100 tokens.
    read = 1024 * 55 * WORK.policy.reading(320 + 50) / (costs.READING_SHARE * H200.bfloat16)
    found = costs.generation(episodes, own, H200, 1)
    decoded = dataclasses.replace(WORK, response=100)
    of_prompts = 512 * 320 * WORK.policy.reading(160) / (costs.READING_SHARE * H200.bfloat16)
    steps = costs.generation(decoded, own, H200, 1) - of_prompts
    assert found - of_prompts - read == pytest.approx(steps * 45 / 100, rel=0.01)
    assert costs.updating(episodes, own, H200) < costs.updating(decoded, own, H200)
    config = make_config("task=ask_nano", "algo=grpo", "run.group_size=4")
    work = workload_of(config)
    assert work.observed == config.task.max_turns * config.task.max_observation_tokens > 0
    assert work.longest == work.prompt + work.response + work.observed


def plan(*arguments: str) -> int:
    return PLAN.run(list(arguments))


def test_the_command_prints_layouts_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    plan("--gpu", "h200", "--devices", "2", "debug=tiny", "mode=async", "engine.micro_tokens=4096")
    out = capsys.readouterr().out
    assert "2 of 2 layouts fit on h200 (141 GB each)" in out
    (fastest,) = [line for line in out.splitlines() if "fastest:" in line]
    assert "rlhf-lab launch layout=1x2:" in fastest
    assert fastest.count("engine.micro_tokens=4096") == 1


@pytest.mark.parametrize(("nodes", "devices"), [(1, 8), (2, 8), (3, 4)])
def test_what_is_planned_can_be_launched(nodes: int, devices: int) -> None:
    """Servers have as many devices as their copies take, and each device has one task."""
    large = dataclasses.replace(WORK, policy=neox(48, 8192, 64), scorers=())
    hosts, ports = [f"h{number}" for number in range(nodes)], Ports(29500, 8100)
    for plan in ranked(list(layouts_of(nodes, devices)), large, H200, {}):
        layout, size = plan.choice.layout, plan.choice.tensor_parallel
        request = ResourceRequest(server_devices=size)
        used = []
        for one in commands(layout, hosts, ports, plan.choice.overrides, request):
            seen = one.environment["CUDA_VISIBLE_DEVICES"].split(",")
            assert one.is_trainer or len(seen) == size
            used += [(one.node, device) for device in seen]
        assert len(used) == len(set(used)) == plan.choice.devices


@pytest.mark.parametrize("size", ["tensor_parallel_size", "data_parallel_size"])
def test_the_fastest_command_is_launched_with_all_devices_of_its_servers(
    capsys: pytest.CaptureFixture[str], size: str
) -> None:
    wide = ["generator=vllm", f"generator.{size}=2", "debug=tiny", "mode=async"]
    plan("--gpu", "h100", "layout=1x4:2+2", *wide)
    (fastest,) = [line for line in capsys.readouterr().out.splitlines() if "fastest:" in line]
    words = fastest.partition("rlhf-lab launch ")[2].split()
    assert LAUNCH.run(words, Console(quiet=True)) == 0
    server, trainer = [line for line in capsys.readouterr().out.splitlines() if "CUDA" in line]
    assert "CUDA_VISIBLE_DEVICES=2,3 rlhf-lab serve" in server
    assert "CUDA_VISIBLE_DEVICES=0,1 torchrun" in trainer


def test_a_layout_that_is_given_is_the_only_one(capsys: pytest.CaptureFixture[str]) -> None:
    plan("--gpu", "h100", "layout=1x1:1+0", "debug=tiny")
    out = capsys.readouterr().out
    assert "1 of 1 layouts fit on h100" in out
    assert "rlhf-lab train debug=tiny engine=single" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "h300"], "--gpu h300: choose b200, h200"),
        (["--gpu", "h200", "--devices", "0"], "--devices 0: choose 1 to 64"),
        (["--gpu", "h200", "--nodes", "65"], "--nodes 65: choose 1 to 64"),
        (["--gpu", "h200", "--prompt-tokens", "0"], "--prompt-tokens 0: choose 1 to"),
        (["--gpu", "h200", "layout=7"], "layout=7: write NODESxDEVICES"),
        ([], "needs --gpu"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(*arguments, *(["debug=tiny"] if arguments else []))


def test_where_nothing_fits_the_least_need_and_the_remedy_are_named() -> None:
    with pytest.raises(UserError, match=r"no layout of these devices fits on rtx_4090 .*layout="):
        plan("--gpu", "rtx_4090", "task=tldr", "model=pythia_2.8b", "reward=paper_proxy")


def test_this_machine_is_measured() -> None:
    here = named("this")
    assert min(here.memory, here.float32, here.bfloat16, here.bandwidth, here.launch) > 0


def test_the_error_for_a_run_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "run", sync_rows(), num_trainers=1)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["overrides"] = ["debug=tiny", "run.groups_per_update=4", "run.updates=4"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    rows = [
        {
            "step": round_,
            "total/prefill_tokens": 40 * round_,
            "total/generated_tokens": 24 * round_,
            "total/observed_tokens": 8 * round_,
        }
        for round_ in range(1, 5)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes = dataclasses.replace(WORK, groups=4, group_size=2)
    assert mean_lengths(folder, sizes) == ((160 - 32) / 16, 96 / 32, 32 / 32)
    plan("--gpu", "a100", str(folder))
    out = capsys.readouterr().out
    assert "predicted from sizes" in out
    (generate,) = [line for line in out.splitlines() if line.startswith("generate and score")]
    # Three rounds of 4 s and the first, for which the last stands in.
    assert "4.00s" in generate
    assert generate.split()[-1].endswith("%")


# What one H200 measured, of docs/gpu.md: seconds of an update, milliseconds of a step.
CHECKED = {
    "matrix product, bfloat16": 779.2,
    "matrix product, float32": 50.81,
    "copy on the device": 4.192,
    "launch of an operation": 6.85,
    "node of a CUDA graph": 0.8958,
    "pythia_410m, single, bfloat16: an update": 0.4011,
    "pythia_410m, fsdp, bfloat16, micro_tokens=4096: an update": 1.514,
    "pythia_1b, single, bfloat16: an update": 0.532,
    "pythia_1b, fsdp, bfloat16: an update": 0.5594,
    "pythia_410m, lean, graph: a step": 3.759,
    "pythia_1b, lean, graph: a step": 4.973,
}


def checked(path: Path, values: dict[str, float], **facts: object) -> Path:
    file = path / "gpu_check.jsonl"
    rows: list[dict[str, object]] = [{"section": 0, "facts": {"name": "NVIDIA H200", **facts}}]
    rows += [{"section": 0, "name": name, "measured": value} for name, value in values.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_a_checked_gpu_is_predicted_near_what_it_measured(tmp_path: Path) -> None:
    file = checked(tmp_path, CHECKED, memory_gib=139.8)
    gpu = named(str(file))
    assert gpu.bfloat16 == H200.bfloat16 == 779.2e12
    assert (gpu.link, gpu.launch) == (H200.link, H200.launch)
    found = list(gpu_checks.compared(file, gpu))
    assert [name for name, *_ in found] == sorted(
        (name for name in CHECKED if ": a" in name), key=[name for name, *_ in found].index
    )
    for name, predicted, took in found:
        assert predicted == pytest.approx(took, rel=0.12), name


def test_the_command_prints_predicted_beside_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = checked(tmp_path, CHECKED, memory_gib=139.8)
    plan("--gpu", str(file), "debug=tiny", "engine.micro_tokens=4096")
    out = capsys.readouterr().out
    assert "pythia_1b, lean, graph: a step" in out
    assert "NVIDIA H200" in out


@pytest.mark.parametrize("missing", ["copy on the device", "node of a CUDA graph"])
def test_a_file_without_a_figure_is_refused_by_its_name(tmp_path: Path, missing: str) -> None:
    values = {name: value for name, value in CHECKED.items() if name != missing}
    file = checked(tmp_path, values, memory_gib=139.8)
    with pytest.raises(UserError, match=rf"it has no {missing}"):
        named(str(file))


def test_a_file_without_its_machine_is_refused(tmp_path: Path) -> None:
    file = checked(tmp_path, CHECKED, memory_gib=139.8)
    write_rows(file, [row for row in read_rows(file) if "facts" not in row])
    with pytest.raises(UserError, match="it has no memory_gib"):
        named(str(file))


def test_an_absent_file_of_a_check_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gpu_check\.jsonl"):
        named(str(tmp_path / "gpu_check.jsonl"))


def test_rows_decoded_together_last_as_long_as_the_longest() -> None:
    own = choice("1x8:7+1")
    free = dataclasses.replace(WORK, response=100, limit=400, max_num_seqs=256)
    # 1,024 rows, 256 at once: freed rooms take the next rows, and the last ones run to the limit.
    assert costs.decoding(free, own, H200, 1024)[0] == 3 * 100 + 400
    # Two chunks of 128 rows at once, each as long as its longest.
    held = dataclasses.replace(free, prefetched=256)
    assert costs.decoding(held, own, H200, 1024)[0] == 4 * 400
    # Room of the cache, and the servers that share the chunks in advance.
    assert costs.decoding(free, own, H200, 128)[0] == 7 * 100 + 400
    two = choice("1x8:6+2")
    assert costs.decoded_together(held, two, H200, 1024) == 128


def test_a_version_takes_the_way_that_the_options_name() -> None:
    size = 2 * WORK.policy.parameters

    def seconds(layout: str, **changes: object) -> float:
        work = dataclasses.replace(WORK, **changes)  # type: ignore[arg-type]
        return costs.weight_sync(work, choice(layout), H200)

    assert seconds("1x8:7+1", sync="nccl") == size / H200.link
    assert seconds("1x8:7+1", sync="auto") == seconds("1x8:7+1", sync="file") == size / 1e9
    assert seconds("2x8:8+8", sync="auto") == size / 50e9
    ways = [seconds("1x1:1+0", hand_over=way) for way in HandOver]
    assert ways == [size / 1e9, 2 * size / 55e9, 2 * size / H200.bandwidth]


def test_reward_models_are_read_in_their_own_type() -> None:
    wide = dataclasses.replace(WORK, scores_in=Precision.float32)
    half, single = (costs.seconds_of(work, choice(), H200, 128).score for work in (WORK, wide))
    assert single / half == pytest.approx(H200.bfloat16 / H200.float32)
    more = costs.scoring(wide, choice()) / costs.scoring(WORK, choice())
    assert more == 2
