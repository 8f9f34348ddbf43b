"""Which operations of PyTorch give other bits with other CPU kernels.

    python -m tests.support.operation_digests [FILE]     print a table; write digests to FILE
    python -m tests.support.operation_digests FILE OTHER compare with the file of another machine

Equal settings and seeds give equal runs only where all operations that a run uses are equal.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# As an operator sets them, before torch is loaded.
KERNELS = {
    "native": {},
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "sse": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
    "portable": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
}


def operations() -> dict[str, Callable[[], Any]]:
    """What training, generation and the optimizer compute, on inputs that are exact everywhere."""
    import torch
    from torch.nn import functional

    def numbers(*shape: int) -> Any:
        # Whole numbers and one division, which every processor rounds in the same way.
        count = torch.Size(shape).numel()
        whole = torch.arange(count, dtype=torch.int64) * 7919 % 8191 - 4095
        return (whole.to(torch.float32) / 3000).reshape(shape)

    x, w, y, q = numbers(64, 256), numbers(256, 512), numbers(30000), numbers(2, 4, 64, 16)

    def adamw() -> Any:
        weight = numbers(1000).requires_grad_()
        optimizer = torch.optim.AdamW([weight], lr=1e-3, foreach=False)
        for _ in range(3):
            weight.grad = weight.detach() * 0.7
            optimizer.step()
        return weight.detach()

    def embedding_gradient() -> Any:
        table = numbers(10, 32).requires_grad_()
        taken = functional.embedding(torch.arange(64) % 7, table)
        return torch.autograd.grad((taken * numbers(64, 32)).sum(), table)[0]

    def drawn() -> Any:
        return torch.rand(1000, generator=torch.Generator().manual_seed(1))

    def drawn_normal() -> Any:
        return torch.randn(1000, generator=torch.Generator().manual_seed(1))

    return {
        "matmul": lambda: x @ w,
        "addmm": lambda: torch.addmm(numbers(512), x, w),
        "bmm": lambda: torch.bmm(numbers(8, 32, 64), numbers(8, 64, 32)),
        "matrix-vector": lambda: x @ w[:, 0],
        "attention": lambda: functional.scaled_dot_product_attention(q, q, q, is_causal=True),
        "softmax": lambda: torch.softmax(x, -1),
        "log_softmax": lambda: torch.log_softmax(x, -1),
        "logsumexp": lambda: torch.logsumexp(x, -1),
        "layer_norm": lambda: functional.layer_norm(x, (256,)),
        "rms_norm": lambda: functional.rms_norm(x, (256,)),
        "gelu": lambda: functional.gelu(y),
        "silu": lambda: functional.silu(y),
        "tanh": y.tanh,
        "exp": y.exp,
        "log": lambda: (y.abs() + 1).log(),
        "sqrt": lambda: y.abs().sqrt(),
        "rsqrt": lambda: (y.abs() + 1).rsqrt(),
        "sum": y.sum,
        "sum of rows": lambda: x.sum(1),
        "mean of columns": lambda: x.mean(0),
        "cumsum": lambda: y.cumsum(0),
        "variance": lambda: x.var(1),
        "multiply and add": lambda: y * 1.1 + 0.3,
        "AdamW": adamw,
        "embedding's gradient": embedding_gradient,
        "uniform draws": drawn,
        "normal draws": drawn_normal,
    }


def digests() -> dict[str, str]:
    """8 hex digits of SHA-256 of each operation's bytes, in this process, with one thread."""
    import torch

    torch.set_num_threads(1)
    return {
        name: hashlib.sha256(operation().contiguous().numpy().tobytes()).hexdigest()[:8]
        for name, operation in operations().items()
    }


def with_kernels(variables: dict[str, str]) -> dict[str, str]:
    """The digests of a new process that has these environment variables."""
    plain = {name: value for name, value in os.environ.items() if name not in KERNELS["portable"]}
    done = subprocess.run(
        [sys.executable, __file__, "--digests"],
        env=plain | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def table() -> dict[str, dict[str, str]]:
    """The digests with each choice of kernels."""
    return {name: with_kernels(variables) for name, variables in KERNELS.items()}


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """The operations that give other bits."""
    return [name for name, digest in one.items() if other[name] != digest]


def main(arguments: list[str]) -> int:
    """Print what differs. Returns 1 if another machine's portable kernels give other bits."""
    if arguments == ["--digests"]:
        sys.stdout.write(json.dumps(digests()))
        return 0
    found = table()
    for name in list(KERNELS)[1:]:
        other = differing(found["native"], found[name])
        show(f"{name} against native here", other, len(found[name]))
    if arguments:
        Path(arguments[0]).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if arguments[1:]:
        theirs = json.loads(Path(arguments[1]).read_text(encoding="utf-8"))
        for name in KERNELS:
            show(f"{name} there against here", differing(found[name], theirs[name]), len(found))
        return int(bool(differing(found["portable"], theirs["portable"])))
    return 0


def show(title: str, names: list[str], number: int) -> None:
    """A line that names the operations that differ."""
    sys.stdout.write(f"{title}: {len(names)} of {number} differ: {', '.join(names) or 'none'}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
