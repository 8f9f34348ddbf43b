"""The processor of greedy rows under both model runners of vLLM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

# vLLM's own parser of a server's command line, which warns when it is imported.
READ_ARGUMENTS = """
import json
import sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

for arguments in json.loads(sys.argv[1]):
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(arguments)
    found = AsyncEngineArgs.from_cli_args(parsed)
    of_engine = [found.skip_tokenizer_init, found.data_parallel_size, found.served_model_name]
    print(json.dumps([*of_engine, found.model, parsed.middleware, parsed.host]))
"""

pytestmark = pytest.mark.vllm


def greedy_at(temperature: float | None) -> Any:
    extra = None if temperature is None else {"greedy_temperature": temperature}
    return SimpleNamespace(extra_args=extra)


def by_slots(num_slots: int) -> Any:
    """The processor as Model Runner V2 makes it."""
    from rlhf_lab.rollout.generators.vllm.plugin import GreedyTemperature

    state = SimpleNamespace(device=torch.device("cpu"), max_num_reqs=num_slots)
    return GreedyTemperature(None, state)


@pytest.mark.parametrize("is_name", [True, False])
def test_both_loaders_of_vllm_accept_the_processor(is_name: bool) -> None:
    """V2 runs on every CUDA device and refuses what is only a processor of V1."""
    from vllm.v1.sample.logits_processor import _load_logitsprocs_by_fqcns
    from vllm.v1.worker.gpu.sample.logits_processor.loader import _load_v2_logitsprocs

    from rlhf_lab.rollout.generators.vllm.plugin import GreedyTemperature
    from rlhf_lab.rollout.generators.vllm.servers import PROCESSOR

    named = PROCESSOR if is_name else GreedyTemperature
    assert _load_v2_logitsprocs([named]) == [GreedyTemperature]
    assert _load_logitsprocs_by_fqcns([named]) == [GreedyTemperature]


def test_rows_are_divided_by_the_temperature_of_their_slot() -> None:
    processor = by_slots(4)
    assert processor.add_request(2, greedy_at(0.5))
    assert not processor.add_request(0, greedy_at(None))
    logits = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    context = SimpleNamespace(expanded_idx_mapping=torch.tensor([2, 0, 2]))
    expected = torch.tensor([[2.0, 4.0], [3.0, 4.0], [10.0, 12.0]])
    assert torch.equal(processor.apply(logits, context), expected)


def test_a_slot_forgets_the_request_that_had_it_before() -> None:
    processor = by_slots(2)
    processor.add_request(1, greedy_at(0.5))
    processor.add_request(1, greedy_at(None))
    context = SimpleNamespace(expanded_idx_mapping=torch.tensor([1]))
    assert torch.equal(processor.apply(torch.ones(1, 3), context), torch.ones(1, 3))


def test_a_server_of_no_run_has_no_tokenizer_to_load_and_the_jobs_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder holds a config alone; of Llama no tokenizer can be made from that."""
    from rlhf_lab.rollout.generators.options import Lengths
    from rlhf_lab.rollout.generators.vllm.http import RUN_ID, SERVER_KEY
    from rlhf_lab.rollout.generators.vllm.make import engine_settings
    from rlhf_lab.rollout.generators.vllm.options import VLLMSampling
    from rlhf_lab.rollout.generators.vllm.own_server import DOOR, lone_server
    from rlhf_lab.rollout.generators.vllm.serve import ALONE
    from rlhf_lab.rollout.ports import free_port
    from tests.with_vllm.models import policy

    monkeypatch.setenv(RUN_ID, "job7")
    monkeypatch.setenv(SERVER_KEY, "secret")
    options = VLLMSampling(port=free_port(), data_parallel_size=4, host="0.0.0.0")
    given, expected = [], []
    for kind in ("llama", "gptneox"):
        model, cache = policy(kind, is_tied=True), tmp_path / kind
        settings = engine_settings(options, model, Lengths(prompt=40, response=16))
        words = lone_server(options, model, settings, cache).words
        given.append(words[words.index(ALONE) + 1 :])
        [folder] = (cache / "vllm").iterdir()
        expected.append([True, 4, ["job7/rlhf_lab"], str(folder), [DOOR], "0.0.0.0"])
    done = subprocess.run(
        [sys.executable, "-c", READ_ARGUMENTS, json.dumps(given)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()[-2:]] == expected
