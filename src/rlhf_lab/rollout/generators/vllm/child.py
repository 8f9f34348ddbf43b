"""The process of `generator=vllm`: an `LLM` that takes weights and draws samples on request.

It is a process of its own since vLLM changes transformers' GPTNeoX where it is loaded, and
generators in processes may not have children of multiprocessing's kind.
"""

from __future__ import annotations

import sys
import traceback
from multiprocessing.connection import Connection
from queue import SimpleQueue
from time import monotonic
from typing import Any

from rlhf_lab.rollout.generators.vllm.process import end_session, require_head_size
from rlhf_lab.rollout.generators.vllm.weights import FILE_BACKEND
from rlhf_lab.runs.child import read_ahead
from rlhf_lab.types.errors import UserError

PROGRESS_SECONDS = 0.1


def main() -> None:
    """Answer ("load", content) with ("done", result) and ("draw", batch) with ("drawn", batch's
    answers), or with ("failed", traceback) and end. ("progress", None) is sent while samples are
    drawn, ("refused", reason) for a UserError."""
    connection = Connection(int(sys.argv[1]))
    requests = read_ahead(connection, end_session)
    try:
        engine = Engine(requests.get())
        connection.send(("done", None))
        serve(engine, requests, connection)
    except UserError as error:
        connection.send(("refused", str(error)))
    except BaseException:
        traceback.print_exc()
        connection.send(("failed", traceback.format_exc()))
        raise


def serve(engine: Engine, requests: SimpleQueue[Any], connection: Connection) -> None:
    """Step the engine, and handle messages between steps."""
    reported = monotonic()
    while True:
        if engine.is_idle or not requests.empty():
            kind, content = requests.get()
            if kind == "load":
                connection.send(("done", engine.load(content)))
            else:
                engine.begin(*content)
            continue
        for batch in engine.step():
            connection.send(("drawn", batch))
        if monotonic() - reported > PROGRESS_SECONDS:
            connection.send(("progress", None))
            reported = monotonic()


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
        self._version = ""
        self._num_begun = 0
        self._batches: dict[int, range] = {}
        self._done: dict[int, Any] = {}

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to draw."""
        return not self._batches

    def load(self, content: dict[str, str]) -> str:
        """Load a version. Samples that are being drawn wait, and go on with the keys and values
        that the old one computed; without such samples, these are dropped."""
        is_idle = self.is_idle
        if not is_idle:
            self._pause()
        self._llm.start_weight_update()
        self._llm.update_weights({"update_info": {"path": content["path"]}})
        self._llm.finish_weight_update(content["name"])
        self._version = content["name"]
        if is_idle:
            self._llm.reset_prefix_cache()
        else:
            self._llm.llm_engine.wake_up(["scheduling"])
        return str(self._llm.get_weight_version())

    def _pause(self) -> None:
        """Start no step any more, and take the tokens of those that run: vLLM would name them by
        the next version."""
        engine = self._llm.llm_engine
        engine.sleep(0, "keep")
        own_core = getattr(engine.engine_core, "engine_core", None)
        while own_core is not None and own_core.batch_queue:
            self._take(engine.step())

    def begin(self, number: int, rows: list[Any]) -> None:
        """Add a batch. rows: (prompt tokens, arguments of SamplingParams)."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        first = self._num_begun
        self._num_begun += len(rows)
        self._batches[number] = range(first, self._num_begun)
        for place, (tokens, params) in enumerate(rows, first):
            # Salted: what an older version computed for the same tokens is not taken.
            prompt = {"prompt_token_ids": list(tokens), "cache_salt": self._version}
            wanted = SamplingParams(**params, output_kind=RequestOutputKind.FINAL_ONLY)
            self._llm.llm_engine.add_request(str(place), prompt, wanted)

    def step(self) -> list[tuple[int, list[Any]]]:
        """One step of all samples. Gives the batches that are complete: their number, and (tokens,
        log-probs, finish reason, version spans) for each row."""
        self._take(self._llm.llm_engine.step())
        complete = [
            number
            for number, places in self._batches.items()
            if all(place in self._done for place in places)
        ]
        return [
            (number, [self._done.pop(place) for place in self._batches.pop(number)])
            for number in complete
        ]

    def _take(self, outputs: list[Any]) -> None:
        for output in outputs:
            if output.finished:
                self._done[int(output.request_id)] = answer(output.outputs[0])


def answer(output: Any) -> tuple[list[int], list[float], str, list[tuple[str, int, int]]]:
    """A completion of vLLM's as plain data."""
    tokens = list(output.token_ids)
    logps = [float(row[token].logprob) for token, row in zip(tokens, output.logprobs, strict=True)]
    spans = [(str(one.version), one.start, one.end) for one in output.weight_versions or ()]
    return tokens, logps, str(output.finish_reason), spans


if __name__ == "__main__":
    main()
