"""A server in the place of vLLM's that samples from the weights which it was sent, by transformers.
With its folder on PYTHONPATH, `rlhf-lab serve` starts it."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from typing import Any

from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from rlhf_lab.models.weights import load_weights
from rlhf_lab.rollout.generators.vllm.http import SERVER_KEY
from rlhf_lab.rollout.generators.vllm.requests import GREEDY_TEMPERATURE, Drawing, Request
from rlhf_lab.types.data import Weights
from tests.support.fake_server import FakeServer, serving
from tests.support.fake_vllm import Mirror


class MirrorServer(FakeServer):
    """A server around a model of transformers, which does one thing at a time."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(0)
        config = AutoConfig.from_pretrained(options.model)
        self._mirror = Mirror(AutoModelForCausalLM.from_config(config).float().eval())
        self._busy = threading.Lock()
        self.model_config["max_model_len"] = options.max_model_len
        self.model_config["served_model_name"] = options.served_model_name
        self.key = os.environ.get(SERVER_KEY, "")

    def reply(self, path: str, content: Any) -> Any:
        if path == "/update_weights":
            with self._busy:
                state = load_file(content["update_info"]["path"])
                load_weights(self._mirror.model, Weights(0, state))
        return super().reply(path, content)

    def written(self, content: Any) -> Any:
        params = content["sampling_params"]
        is_greedy = params["temperature"] == 0.0
        temperature = params["extra_args"][GREEDY_TEMPERATURE] if is_greedy else None
        drawing = Drawing(
            temperature or params["temperature"],
            params["max_tokens"],
            tuple(params["stop_token_ids"]),
        )
        request = Request(tuple(content["token_ids"]), params["seed"], is_greedy=is_greedy)
        with self._busy:
            self._mirror.says = self.version
            answer = self._mirror.answer(request, drawing)
        return {
            "choices": [
                {
                    "token_ids": answer.tokens,
                    "logprobs": {"content": [{"logprob": logp} for logp in answer.logps]},
                    "finish_reason": "stop" if answer.is_finished else "length",
                    "weight_versions": [
                        {"version": self.version, "start": 0, "end": len(answer.tokens)}
                    ],
                }
            ]
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--max-model-len", type=int, required=True)
    parser.add_argument("--served-model-name", default="tiny")
    options, _ = parser.parse_known_args()
    fake = MirrorServer(options)
    with serving(fake, options.port, options.host):
        signal.pause()


if __name__ == "__main__":
    main()
