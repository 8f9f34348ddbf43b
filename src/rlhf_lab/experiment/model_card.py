"""The model card of a run's policy: how it was trained, its scores, how to load and cite it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCardData

from rlhf_lab.experiment.card_scores import benchmark_results, results, samples, scores, table
from rlhf_lab.experiment.config import Config
from rlhf_lab.models.options import PACKAGE, PretrainedModel
from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.reading import Unreadable, read_yaml
from rlhf_lab.runs.saved_tensors import ADAPTER_WEIGHTS

CARD = "README.md"
PAPER = "arXiv:2410.18252"
ARXIV = re.compile(r"arXiv:\d{4}\.\d{4,5}")
# Where a run writes and what a clock measured concerns the run alone.
PRIVATE = ("output", "hydra")

LOADING = """\
{about}```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
```

Samples were drawn at temperature {temperature}, without top-p and top-k.
`rlhf-lab train model=pretrained model.path=path/to/this/folder` goes on training from it."""

ADAPTERS_ALONE = """\
These are adapters alone (pip install peft); adapter_config.json names their base model. `rlhf-lab
export RUN FOLDER` writes the whole model, with the adapters merged in.

"""


def write_card(config: Config, run: Path, folder: Path, version: int) -> None:
    """Write the card of a version of a run into a folder that holds its weights."""
    text = card(config, run, version, (folder / ADAPTER_WEIGHTS).is_file())
    (folder / CARD).write_text(text, encoding="utf-8")


def card(config: Config, run: Path, version: int, is_adapters: bool = False) -> str:
    """The whole card, from the run's config and files. is_adapters: whether it is about adapters
    without their base."""
    manifest = read_manifest(run / MANIFEST)
    title = f"{config.model.name} after {config.algo.name} on {config.task.name}"
    sections = {
        "How it was trained": table(["", ""], list(training(config))),
        "Scores": scores(run, version),
        "Samples": samples(run, version),
        "How to load it": LOADING.format(
            about=ADAPTERS_ALONE if is_adapters else "",
            temperature=config.generator.temperature,
        ),
        "Made with": table(["", ""], list(made_with(manifest))),
        "Config": written_config(run),
        "How to cite it": citation(config),
    }
    found = [*results(config, run, version), *benchmark_results(config, run, version)]
    front = front_matter(config, found, "peft" if is_adapters else "transformers")
    lines = [front, f"# {title}", "", summary(config, version), ""]
    for heading, text in sections.items():
        if not text:
            continue
        lines += [f"## {heading}", "", text, ""]
    return "\n".join(lines)


def front_matter(
    config: Config, found: Sequence[EvalResult] = (), library: str = "transformers"
) -> str:
    """The hub's metadata, with the results that it shows. library: what loads the folder. No
    licence: it follows from that of the base model and of the data."""
    names = (config.algo.name, config.mode.name, config.task.name)
    data = ModelCardData(
        model_name=f"{config.model.name}-{config.algo.name}-{config.task.name}" if found else None,
        eval_results=list(found) or None,
        base_model=base_model(config) or None,
        library_name=library,
        pipeline_tag="text-generation",
        tags=["rlhf-lab", "rlhf", *dict.fromkeys(name.replace("_", "-") for name in names)],
    )
    return f"---\n{data.to_yaml()}\n---\n"


def base_model(config: Config) -> str:
    """The hub name of what was trained; '' for folders, packages and models from nothing."""
    model = config.model
    if not isinstance(model, PretrainedModel) or model.path.startswith(PACKAGE):
        return ""
    is_name = re.fullmatch(r"[\w.-]+/[\w.-]+", model.path) and not Path(model.path).exists()
    return model.path if is_name else ""


def summary(config: Config, version: int) -> str:
    """One sentence."""
    rounds = config.run.num_rounds
    done = "the last version" if version == rounds else f"version {version} of {rounds}"
    return (
        f"This is {done} of a policy that rlhf_lab trained with `{config.algo.name}` in mode "
        f"`{config.mode.name}`, seed {config.seed}."
    )


def training(config: Config) -> Iterator[list[str]]:
    """What decides the policy, and how old its samples were."""
    model, run, mode, lora = config.model, config.run, config.mode, config.model.lora
    per_round, stale = run.optimizer_steps_per_round, mode.max_staleness
    yield ["start", base_model(config) or f"`{model.name}`"]
    if lora.rank:
        targets = ", ".join(lora.targets)
        yield ["adapters", f"LoRA of rank {lora.rank}, alpha {lora.alpha:g} ({targets})"]
    yield ["algorithm", f"`{config.algo.name}`, correction `{config.correction.name}`"]
    yield ["task", f"`{config.task.name}`"]
    yield ["reward", f"`{config.reward.name}`, judged by `{config.judge.name}`"]
    yield ["mode", f"`{mode.name}`, at most S = {stale} rounds stale"]
    yield ["minibatches a round", f"N = {run.updates_per_round}"]
    yield ["passes over a round", f"T = {run.passes}"]
    yield ["completions a prompt", f"K = {run.group_size}"]
    yield ["age of the samples", f"0 to {(stale + 1) * per_round - 1} updates"]
    yield ["updates", f"{run.updates} of {run.groups_per_update} prompts each"]
    yield ["learning rate", f"{config.optim.lr:g}"]
    yield ["seed", str(config.seed)]


def made_with(manifest: Mapping[str, Any]) -> Iterator[list[str]]:
    """Versions, commit and hashes, as the run wrote them down."""
    for name, version in manifest.get("versions", {}).items():
        if version:
            yield [name, version]
    if git := manifest.get("git"):
        changes = " with local changes" if git["is_dirty"] else ""
        yield ["git commit", f"{git['commit']}{changes}"]
    for key in ("content", "run_id", "weights_digest", "accelerator"):
        if manifest.get(key):
            yield [key.replace("_", " "), str(manifest[key])]


def written_config(run: Path) -> str:
    """The resolved config, less what is about the machine; where its file was damaged, the reason:
    a run that has trained to its end does not fail by it."""
    try:
        whole = read_yaml(run / "config.yaml")
    except Unreadable as error:
        return f"The run's config.yaml cannot be read: {error.reason}."
    public = {name: value for name, value in whole.items() if name not in PRIVATE}
    return f"```yaml\n{yaml.safe_dump(public, sort_keys=False)}```"


def citation(config: Config) -> str:
    """The platform, the paper that it starts from, and those of the algorithm and correction."""
    kinds = [type(part) for part in (config.algo, config.correction)]
    texts = " ".join(f"{sys.modules[kind.__module__].__doc__} {kind.__doc__}" for kind in kinds)
    papers = ", ".join(dict.fromkeys([PAPER, *ARXIV.findall(texts)]))
    return f"Cite rlhf_lab (its CITATION.cff) and the papers whose methods were used: {papers}."
