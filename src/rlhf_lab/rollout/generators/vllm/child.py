"""The process of `generator=vllm`: an `LLM` that takes weights and draws samples on request.

It is a process of its own since vLLM changes transformers' GPTNeoX where it is loaded, and
generators in processes may not have children of multiprocessing's kind.
"""

from __future__ import annotations

import sys
import traceback
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from rlhf_lab.rollout.generators.vllm.heads import require_head_size
from rlhf_lab.rollout.generators.vllm.process import end_session
from rlhf_lab.rollout.generators.vllm.weights import FILE_BACKEND
from rlhf_lab.runs.child_side import read_ahead
from rlhf_lab.types.errors import UserError

PROGRESS_SECONDS = 0.5


def main() -> None:
    """Answer ("draw" | "load", content) with ("done", result), or with ("failed", traceback) and
    end. ("progress", None) is sent while the work goes on, ("refused", reason) for a UserError."""
    connection = Connection(int(sys.argv[1]))
    requests = read_ahead(connection, end_session)
    try:
        engine = Engine(requests.get())
        connection.send(("done", None))
        while True:
            kind, content = requests.get()
            result = engine.load(content) if kind == "load" else engine.draw(content, connection)
            connection.send(("done", result))
    except UserError as error:
        connection.send(("refused", str(error)))
    except BaseException:
        traceback.print_exc()
        connection.send(("failed", traceback.format_exc()))
        raise


class Engine:
    """vLLM's LLM. arguments: of LLM, and `transfer`, the shape that the weight transfer needs."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        from rlhf_lab.rollout.generators.vllm import plugin

        plugin.register()
        require_head_size(arguments["model"])
        from vllm import LLM
        from vllm.config import WeightTransferConfig

        transfer = arguments.pop("transfer")
        self._llm = LLM(
            **arguments,
            weight_transfer_config=WeightTransferConfig(backend=FILE_BACKEND),
            logits_processors=[plugin.GreedyTemperature],
        )
        self._llm.init_weight_transfer_engine({"init_info": {"shape": transfer}})
        self._num_drawn = 0

    def load(self, content: dict[str, str]) -> str:
        """Load a version, and drop the cached keys and values of the old one."""
        self._llm.start_weight_update()
        self._llm.update_weights({"update_info": {"path": content["path"]}})
        self._llm.finish_weight_update(content["name"])
        self._llm.reset_prefix_cache()
        return str(self._llm.get_weight_version())

    def draw(self, rows: list[Any], connection: Connection) -> list[Any]:
        """rows: (prompt tokens, arguments of SamplingParams). Gives (tokens, log-probs, finish
        reason, versions) for each."""
        from vllm import SamplingParams

        engine = self._llm.llm_engine
        first = self._num_drawn
        for tokens, params in rows:
            prompt = {"prompt_token_ids": list(tokens)}
            engine.add_request(str(self._num_drawn), prompt, SamplingParams(**params))
            self._num_drawn += 1
        done: dict[int, Any] = {}
        reported = monotonic()
        while engine.has_unfinished_requests():
            done |= {int(out.request_id): out for out in engine.step() if out.finished}
            if monotonic() - reported > PROGRESS_SECONDS:
                connection.send(("progress", None))
                reported = monotonic()
        return [answer(done[first + place].outputs[0]) for place in range(len(rows))]


def answer(output: Any) -> tuple[list[int], list[float], str, list[str]]:
    """A completion of vLLM's as plain data."""
    tokens = list(output.token_ids)
    logps = [float(row[token].logprob) for token, row in zip(tokens, output.logprobs, strict=True)]
    versions = [str(span.version) for span in output.weight_versions or ()]
    return tokens, logps, str(output.finish_reason), versions


if __name__ == "__main__":
    main()
