"""A process with vLLM in it, which ends together with all processes that it started."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rlhf_lab.rollout.generators.vllm.options import VLLMSampling
from rlhf_lab.rollout.generators.vllm.requests import EngineFailure
from rlhf_lab.runs.child import PIPE, Child, exit_text, last_lines
from rlhf_lab.types.errors import UserError


def require_head_size(folder: str) -> None:
    """Refuse the policy whose config is in a folder if vLLM has no kernel for its heads here."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return  # other platforms look for themselves, when they choose among their backends
    from transformers import AutoConfig
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    width, heads = config.hidden_size, config.num_attention_heads
    size = getattr(config, "head_dim", None) or width // heads
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if size not in sizes:
        fitting = [str(width // known) for known in sizes if width % known == 0]
        others = f"model.num_heads={' or '.join(fitting)}" if fitting else "another model"
        raise UserError(
            f"model.hidden_size={width} with model.num_heads={heads}: heads of {size}, and vLLM's "
            f"attention on a CPU has kernels for {', '.join(map(str, sizes))} only; pass {others}, "
            "or generator=hf"
        )


# The variable with the folder of the process, which is removed with it.
FOLDER = "RLHF_LAB_VLLM_FOLDER"
POLL_SECONDS = 0.25
END_SECONDS = 10.0
STARTUP_REMEDY = "raise generator.startup_seconds"


class VLLMProcess:
    """`python -m module <descriptor> arguments`, with a pipe whose end is the end of the run, and
    through which it may send the text of a UserError before it ends.

    Its output goes to a log in a temporary folder, whose last lines are part of every error.
    `close` removes the folder, unless the process has failed.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="rlhf_lab_vllm_"))
        self.log = folder / "vllm.log"
        variables = {**environment, FOLDER: str(folder)}
        words = [sys.executable, "-P", "-m", module, PIPE, *arguments]
        self._child = Child(words, self.log, variables)
        self._has_failed = False

    @property
    def pid(self) -> int:
        return self._child.pid

    def wait_for(
        self, is_done: Callable[[], bool], doing: str, seconds: float, remedy: str
    ) -> None:
        """Poll until it is done. Raises EngineFailure if the process ends first, or is late, and
        UserError where it sent the text of one before it ended."""
        deadline = time.monotonic() + seconds
        while not is_done():
            if self._child.exit_code is not None:
                if self._child.connection.poll():
                    with contextlib.suppress(EOFError):
                        raise UserError(self._child.connection.recv())
                raise self.failure(doing, "ended")
            if time.monotonic() > deadline:
                raise self.failure(doing, f"was not ready after {seconds:g} s ({remedy})")
            time.sleep(POLL_SECONDS)

    def failure(self, doing: str, complaint: str, seconds: float = 0.0) -> EngineFailure:
        """The error to raise: how the process ended, if it does within so many seconds, or else the
        complaint; and the last lines of its log, which stays."""
        self._has_failed = True
        if (code := self._child.wait(seconds)) is not None:
            complaint = f"ended ({exit_text(code)})"
        return EngineFailure(
            f"vLLM (pid {self.pid}) {complaint}, {doing}; its log {self.log} ends with:\n"
            f"{last_lines(self.log)}"
        )

    def close(self) -> None:
        """End it and all processes that it started, at once."""
        self._child.close()
        if not self._has_failed:
            shutil.rmtree(self._folder, ignore_errors=True)


def end_session() -> None:
    """In the process: remove its folder, then kill its whole session, once the run has ended."""
    shutil.rmtree(os.environ[FOLDER], ignore_errors=True)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def environment(options: VLLMSampling, has_gpu: bool) -> dict[str, str]:
    """Environment variables for vLLM; those that the user has set take precedence."""
    defaults = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(options.kv_cache_gb),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if not has_gpu and options.is_eager(has_gpu):
        # Eager or not, vLLM compiles a small function on first use, which takes 20 s on a CPU.
        defaults["TORCHDYNAMO_DISABLE"] = "1"
    if not has_gpu:
        # The engine computes in its own process: another one would take as long again to start.
        defaults["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    # The child finds the package where this process found it.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {
        **{key: os.environ.get(key, value) for key, value in defaults.items()},
        "OMP_NUM_THREADS": str(options.threads),
        "PYTHONPATH": path,
    }
