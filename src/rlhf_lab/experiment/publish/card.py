"""The model card of a run, and the scores on it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCardData

from rlhf_lab.evaluation.score_table import cells
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.models.options import PACKAGE, PretrainedModel
from rlhf_lab.runs.folder import EVALS, MANIFEST
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.reading import Unreadable, read_yaml
from rlhf_lab.runs.saved_tensors import ADAPTER_WEIGHTS
from rlhf_lab.runs.schema import read_harness

OMITTED = ("run", "version", "samples/s")
# Scores that the hub shows beside a model, with their names there.
INDEXED = {
    "gold/win_rate": "win-rate against references",
    "accuracy/mean": "accuracy",
    "kl/sft_k1": "KL to the start, nats a sequence",
    "sample/length": "tokens a response",
}
SAMPLES = "samples.jsonl"
SHOWN_SAMPLES = 3
SHOWN_CHARACTERS = 600
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


def scores(run: Path, version: int) -> str:
    """Every evaluation of this version, with 95% intervals."""
    lines = [
        {"evaluation": label or row.get("eval/options", ""), **score_row(row)}
        for label, row in evaluations(run, version)
    ]
    if not lines:
        return "This version has not been evaluated (`rlhf-lab evaluate RUN`)."
    columns = list(dict.fromkeys(name for line in lines for name, text in line.items() if text))
    rows = [[line.get(name, "") for name in columns] for line in lines]
    return table(columns, rows) + (
        "\n\nWin-rates are against reference answers, in brackets 95% intervals over prompts. KL "
        "is in nats a sequence to the policy that training started from."
    )


def results(config: Config, run: Path, version: int) -> list[EvalResult]:
    """Scores of a version for the hub: one of each evaluation and metric."""
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=config.task.name,
            dataset_name=f"{config.task.name}, {row.get('eval/options', '')}",
            dataset_split=row.get("eval/split"),
            dataset_args={"prompts": row.get("eval/prompts")},
            metric_type=name.replace("/", "_"),
            metric_name=INDEXED[name],
            metric_value=row[name],
            metric_args={"seed": config.seed, "judge": config.judge.name, "version": version},
        )
        for _, row in evaluations(run, version)
        for name in INDEXED
        if isinstance(row.get(name), int | float)
    ]


def benchmark_results(config: Config, run: Path, version: int) -> list[EvalResult]:
    """Scores of a version by lm-evaluation-harness for the hub."""
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=task,
            dataset_name=task,
            dataset_args={"examples": found["examples"].get(task), "limit": found["limit"]},
            metric_type=name,
            metric_name=name,
            metric_value=value,
            metric_args={"seed": config.seed, "version": version, "lm_eval": found["lm_eval"]},
        )
        for _, found in read_harness(run)
        if found["version"] == version
        for task, scores in found["tasks"].items()
        for name, value in scores.items()
        if "_stderr" not in name
    ]


def evaluations(run: Path, version: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Label and row of every evaluation of a version."""
    for path in sorted(run.glob("evals*.jsonl")):
        label = path.stem.removeprefix("evals").removeprefix("-")
        for row in read_rows(path):
            if row["version"] == version:
                yield label, row


def samples(run: Path, version: int) -> str:
    """Some texts of the version, if it is the last that was evaluated: those are the ones kept."""
    rows = read_rows(run / EVALS)
    if not rows or rows[-1]["version"] != version:
        return ""
    shown = read_rows(run / SAMPLES)[:SHOWN_SAMPLES]
    return "\n\n".join(
        f"Prompt:\n\n{as_code(row['prompt'])}\n\nResponse:\n\n{as_code(row['sample'])}"
        for row in shown
        if isinstance(row.get("prompt"), str) and isinstance(row.get("sample"), str)
    )


def as_code(text: str) -> str:
    """Text as an indented block, which Markdown shows as it is; cut if it is long."""
    cut = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} ..."
    return "\n".join(f"    {line}" for line in cut.splitlines() or [""])


def score_row(row: Mapping[str, Any]) -> dict[str, str]:
    """A row of evals.jsonl as columns and texts of the card."""
    size = {"prompts": f"{row.get('eval/prompts', '')} ({row.get('eval/split', '')})"}
    return size | {name: text for name, text in cells("", row) if name not in OMITTED}


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


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
