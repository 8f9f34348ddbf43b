"""vLLM itself, on a CPU: log-probs, weights, seeds, servers, whole runs, and what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_lab.rollout.generators.options import Lengths
from rlhf_lab.rollout.generators.vllm.generator import VLLMGenerator
from rlhf_lab.rollout.generators.vllm.http import GENERATE, SERVER_KEY, Server
from rlhf_lab.rollout.generators.vllm.make import engine_settings, vllm_generator
from rlhf_lab.rollout.generators.vllm.options import Prove, VLLMSampling
from rlhf_lab.rollout.generators.vllm.own_server import SERVE, own_server
from rlhf_lab.rollout.generators.vllm.proof import Proof
from rlhf_lab.rollout.generators.vllm.requests import Drawing, EngineFailure, Request
from rlhf_lab.training.checkpoint_files import saved_checkpoints
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Finish, Group
from tests.support.variants import names, variants
from tests.with_vllm.conftest import STARTUP_SECONDS
from tests.with_vllm.models import VOCABULARY, chunk, policy, tokenizer, version

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).resolve().parents[2]
TEMPERATURE = 0.7
LENGTHS = Lengths(prompt=40, response=16)
PROMPTS = [(5, 9, 30), (7, 8), (40, 41, 42, 43, 44), (11,)]
KINDS = {
    "llama-tied": ("llama", True),
    "llama": ("llama", False),
    "gptneox-tied": ("gptneox", True),
    "gptneox": ("gptneox", False),
}
SEED = 17


def options(**given: Any) -> VLLMSampling:
    limit = {"startup_seconds": STARTUP_SECONDS}
    return VLLMSampling(temperature=TEMPERATURE, prove=Prove.every, **limit, **given)


@pytest.fixture(scope="module", params=variants(KINDS, ["llama-tied", "gptneox"]))
def made(request: pytest.FixtureRequest) -> Iterator[tuple[Any, VLLMGenerator]]:
    """A policy, and a generator over a server that has been started for it."""
    kind, is_tied = request.param
    is_shared = request.param == KINDS["llama-tied"]
    given = options(urls=[request.getfixturevalue("llama_url")]) if is_shared else options()
    generator = vllm_generator(given, tokenizer(), lambda: policy(kind, is_tied), LENGTHS, SEED)
    yield policy(kind, is_tied), generator
    generator.close()


def reread(model: Any, weights: Weights, groups: tuple[Group, ...]) -> list[torch.Tensor]:
    """Log-probs TV of every position of every sample, by transformers, at the temperature."""
    model.load_state_dict(weights.state, strict=False)
    found = []
    for group in groups:
        for sample in group.samples:
            row = torch.tensor([[*group.prompt.tokens, *sample.tokens]])
            with torch.inference_mode():
                logits = model(input_ids=row).logits[0, len(group.prompt.tokens) - 1 : -1]
            found.append((logits.float() / TEMPERATURE).log_softmax(-1))
    return found


def samples(groups: tuple[Group, ...]) -> list[Any]:
    return [sample for group in groups for sample in group.samples]


def test_log_probs_are_those_of_transformers_for_every_version(made: Any) -> None:
    model, generator = made
    for number, change in ((0, 0.0), (1, 0.1), (2, 0.001)):
        weights = version(model, number, change)
        groups = generator.generate(weights, chunk(PROMPTS, 3, greedy=True))
        for place, (sample, logp_TV) in enumerate(
            zip(samples(groups), reread(policy_like(model), weights, groups), strict=True)
        ):
            token_T = torch.tensor(sample.tokens)
            own_T = logp_TV.gather(1, token_T.unsqueeze(1)).squeeze(1)
            assert torch.allclose(own_T, torch.tensor(sample.logps), atol=5e-5), place
            assert sample.version == number
            if place % 3 == 2:
                assert torch.equal(logp_TV.argmax(dim=1), token_T), "the greedy sample"
        measures = generator.report().measures
        assert measures["generator/proof_gap_mean"] < 1e-5


def policy_like(model: Any) -> Any:
    return type(model)(model.config).eval()


def test_a_sample_depends_on_its_seed_and_not_on_its_neighbours(made: Any) -> None:
    model, generator = made
    weights = version(model, 3)
    whole = samples(generator.generate(weights, chunk(PROMPTS, 4)))
    again = samples(generator.generate(weights, chunk(PROMPTS, 4)))
    part = samples(generator.generate(weights, chunk(PROMPTS[:2], 4)))
    assert [s.tokens for s in again] == [s.tokens for s in whole]
    assert [s.tokens for s in part] == [s.tokens for s in whole[:8]]
    assert len({s.tokens for s in whole[:4]}) > 1, "samples of a prompt have seeds of their own"


def test_more_prompt_tokens_than_one_step_reads_change_nothing(made: Any) -> None:
    """vLLM would read the last of these prompts in parts, and fail with a seed on a CPU."""
    model, generator = made
    weights = version(model, 6)
    prompts = [tuple((7 * row + place) % 90 + 2 for place in range(40)) for row in range(160)]
    whole = samples(generator.generate(weights, chunk(prompts, 2)))
    part = samples(generator.generate(weights, chunk(prompts[:4], 2)))
    assert [s.tokens for s in part] == [s.tokens for s in whole[:8]]


def test_samples_end_with_the_end_token_or_at_the_limit(made: Any) -> None:
    model, generator = made
    found = samples(generator.generate(version(model, 4), chunk(PROMPTS * 8, 4)))
    assert {s.finish for s in found} == {Finish.eos, Finish.length}
    for sample in found:
        assert 0 not in sample.tokens[:-1]
        assert (sample.finish is Finish.eos) == (sample.tokens[-1] == 0)
        assert sample.finish is Finish.eos or len(sample.tokens) == LENGTHS.response


def test_first_tokens_follow_the_distribution(made: Any) -> None:
    """Pearson's statistic of 2048 first tokens stays where chance leaves it."""
    model, generator = made
    weights = version(model, 5)
    drawing = Drawing(TEMPERATURE, 1, ends=(0,))
    generator.generate(weights, chunk(PROMPTS, 2))
    asked = [Request(PROMPTS[0], seed) for seed in range(2048)]
    answers = generator.backend.draw(asked, drawing)
    count_V = torch.bincount(torch.tensor([a.tokens[0] for a in answers]), minlength=VOCABULARY)
    state = weights.state
    like = policy_like(model)
    like.load_state_dict(state, strict=False)
    with torch.inference_mode():
        logits_V = like(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1].float()
    expected_V = (logits_V / TEMPERATURE).softmax(-1) * len(asked)
    common_V = expected_V >= 5
    rest = torch.tensor([float(count_V[~common_V].sum()), float(expected_V[~common_V].sum())])
    terms_V = (count_V[common_V] - expected_V[common_V]).square() / expected_V[common_V]
    statistic = float(terms_V.sum() + (rest[0] - rest[1]).square() / rest[1].clamp(min=1))
    freedom = int(common_V.sum())
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("kind", names(["llama", "gptneox"], ["gptneox"]))
def test_a_tied_head_that_stays_behind_is_refused(kind: str) -> None:
    def load_model() -> Any:
        return policy(kind, is_tied=True)

    model = load_model()
    stale = {"worker_extension_cls": "tests.with_vllm.stale.Stale"}
    backend = own_server(options(), model, engine_settings(options(), model, LENGTHS) | stale)
    proof = Proof(load_model(), TEMPERATURE, 1e-3, 1, torch.device("cpu"))
    drawing = Drawing(TEMPERATURE, LENGTHS.response, (0,))
    generator = VLLMGenerator(backend, tokenizer(), drawing, SEED, proof, Prove.first)
    with pytest.raises(EngineFailure, match="does not have the weights"):
        generator.generate(version(model, 0), chunk(PROMPTS, 2))
    generator.close()


def test_a_server_knows_its_model_and_its_key(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, generator = made
    [server] = generator.backend._servers
    known, url = VLLMSampling(urls=[server.url]), server.url
    monkeypatch.delenv(SERVER_KEY, raising=False)
    stranger = Server(url)
    assert stranger.is_healthy()
    for path in ("/start_weight_update", "/update_weights", "/pause?mode=keep", GENERATE):
        with pytest.raises(EngineFailure, match=r"refused \(401\)"):
            stranger.post(path)
    with pytest.raises(EngineFailure, match=r"refused \(401\)"):
        stranger.get("/weight_info")
    stranger.close()
    with pytest.raises(UserError, match=f"set {SERVER_KEY}"):
        known.start_backend(model, LENGTHS)
    monkeypatch.setenv(SERVER_KEY, server._headers["Authorization"].removeprefix("Bearer "))
    other = policy("gptneox" if model.config.model_type == "llama" else "llama", is_tied=True)
    with pytest.raises(EngineFailure, match=f"model_type={model.config.model_type}"):
        known.start_backend(other, LENGTHS)
    with pytest.raises(UserError, match="--max-model-len 123"):
        known.start_backend(model, Lengths(41, 82))
    with pytest.raises(UserError, match=f"generator.port={url.rsplit(':', 1)[1]}"):
        VLLMSampling(port=int(url.rsplit(":", 1)[1])).start_backend(model, LENGTHS)


def test_log_probs_that_are_no_numbers_are_those_of_the_policy(made: Any) -> None:
    model, generator = made
    spoiled = {name: torch.full_like(t, torch.nan) for name, t in version(model, 7).state.items()}
    with pytest.raises(FloatingPointError, match="NaN at version"):
        generator.backend.load(Weights(7, spoiled), "7")
        generator._draw([Request(PROMPTS[0], 3)], Drawing(TEMPERATURE, 4, (0,)), "7")


def test_a_head_size_without_a_kernel_is_refused_with_one_that_has() -> None:
    model = policy("gptneox", is_tied=True)
    model.config.num_attention_heads = 8
    with pytest.raises(UserError, match=r"heads of 8, .*pass model.num_heads=2 or 1"):
        vllm_generator(options(), tokenizer(), lambda: model, LENGTHS, SEED)


def command(folder: Path, *overrides: str) -> list[str]:
    # Heads of 32: vLLM's attention on a CPU has no kernel for those of the nano models.
    small = ["model.hidden_size=64", "model.num_heads=2", "reward=task_rule", "eval=none"]
    small.append(f"generator.startup_seconds={STARTUP_SECONDS}")
    names = [f"output.dir={folder}", f"output.cache={folder.parent}/cache", *small, *overrides]
    return [sys.executable, "-m", "rlhf_lab.cli.main", "train", "debug=tiny", *names]


def started(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    """A run that trains until it is ended, and has trained four rounds."""
    run = subprocess.Popen(
        command(folder, "generator=vllm", "run.updates=4000", "checkpoint=rounds", *overrides),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + STARTUP_SECONDS
    while len(rows_of(folder)) < 4:
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    return run


def rows_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(row) for row in text.splitlines(keepends=True) if row.endswith("\n")]


def server_of(folder: Path) -> int:
    """The server of the run whose temporary files are in a folder."""
    [pid] = [
        int(place.name)
        for place in Path("/proc").glob("[0-9]*")
        if SERVE in words_of(place, "cmdline") and f"TMPDIR={folder}" in words_of(place, "environ")
    ]
    return pid


def words_of(place: Path, name: str) -> list[str]:
    try:
        return (place / name).read_text().split("\0")
    except OSError:
        return []


def wait_for_end(session: int) -> None:
    """Until no process of a session is left, the engine's own neither."""

    def is_member(place: Path) -> bool:
        fields = " ".join(words_of(place, "stat")).rpartition(")")[2].split()
        return len(fields) > 3 and fields[3] == str(session) and fields[0] != "Z"

    deadline = time.monotonic() + 60
    while any(map(is_member, Path("/proc").glob("[0-9]*"))):
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.2)


@pytest.mark.parametrize("mode", names(["sync", "async"], ["async"]))
def test_a_run_trains_on_what_vllm_draws_and_ends_with_its_log(tmp_path: Path, mode: str) -> None:
    folder = tmp_path / "run"
    run = started(folder, f"mode={mode}", "generator.prove=every")
    pid = server_of(tmp_path)
    os.kill(pid, signal.SIGKILL)
    output, _ = run.communicate(timeout=300)
    rows = rows_of(folder)
    assert rows[0]["generator/proof_gap_mean"] < 1e-5
    assert rows[-1]["timing/generator_sync_seconds"] > 0
    for number, row in enumerate(rows):
        assert abs(row["gap/mismatch_k1"]) < 1e-5
        assert row["lag/rounds_max"] == (min(number, 1) if mode == "async" else 0)
    assert "vLLM draws each sample from its own seed" in output
    assert run.returncode == 1
    assert f"vLLM (pid {pid}) ended (killed by SIGKILL)" in output
    assert "vllm.log ends with:" in output
    assert int(saved_checkpoints(folder / "checkpoints")[-1].name) == len(rows), "nothing is lost"
    wait_for_end(pid)


def test_a_killed_run_takes_its_vllm_with_it(tmp_path: Path) -> None:
    run = started(tmp_path / "run", "mode=async")
    pid = server_of(tmp_path)
    run.kill()
    run.communicate()
    wait_for_end(pid)
    assert not list(tmp_path.glob("rlhf_lab_vllm_*"))
