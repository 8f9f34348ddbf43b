"""Sources of tables, data and models to damage, and what reads them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.data.report import inspect
from rlhf_lab.models.causal_lm import load_policy, policy_shape, require_savable, save_policy
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.models.reward_model import load_reward_model, reward_model_from, save_reward_model
from rlhf_lab.models.sampling import GenerationSettings
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.audit import DataOptions, Limits, audit_split
from rlhf_lab.tasks.gsm8k import Gsm8k
from rlhf_lab.tasks.own_prompts import OwnPrompts
from rlhf_lab.tasks.pair_sources import pair_examples
from rlhf_lab.tasks.prompts import never_shorter
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.samples import Split
from rlhf_lab_analysis.tables.gather import gather
from tests.models.test_loading import llama
from tests.support import source_files
from tests.support.composed import composed
from tests.support.fuzz import Case

GOOD = "good.csv"


def source(kind: str) -> Case:
    """A source of one kind, and a sound CSV beside it whose runs must always be shown."""

    def make(folder: Path) -> None:
        (folder / "it").mkdir()
        source_files.SOURCES[kind](folder / "it")
        (folder / GOOD).write_text("run,seed,loss\nx,1,0.5\n")

    def read(folder: Path) -> None:
        tables = gather([f"csv:{folder / GOOD}", f"{kind}:{folder / 'it'}"])
        assert f"{GOOD}:x" in set(tables.runs["run"])

    def alone(folder: Path) -> None:
        gather([f"{kind}:{folder / 'it'}"])

    return Case(kind, make, {"beside": read, "alone": alone}, ("it",))


def rows(split: str) -> Iterator[dict[str, Any]]:
    """Other questions in each split."""
    first = {"train": 0, "test": 100}[split]
    for number in range(first, first + 12):
        question = f"What is {number} + {number} of {number * 7} apples?"
        yield {"question": question, "answer": f"It is.\n#### {2 * number}", "id": f"n{number}"}


def make_jsonl(folder: Path) -> None:
    for name in ("train", "test"):
        text = "".join(json.dumps(row) + "\n" for row in rows(name))
        (folder / f"{name}.jsonl").write_text(text)


def make_parquet(folder: Path) -> None:
    for name in ("train", "test"):
        table = pyarrow.Table.from_pylist(list(rows(name)))
        when = pyarrow.array(range(12), pyarrow.timestamp("us"))
        path = folder / f"{name}.parquet"
        pyarrow.parquet.write_table(table.append_column("when", when), path)


def read_task(folder: Path) -> None:
    """What a run reads of every row."""
    task = Gsm8k(path=str(folder), validation_size=2)
    limits = Limits(lambda example: [1] * len(example.prompt), never_shorter, 300, 9)
    for split in Split:
        examples = task.examples(split)
        audit_split(split, examples, limits, DataOptions(), lambda: None)


def make_prompts(folder: Path) -> None:
    chats = [[{"role": "user", "content": f"What is {n}?"}] for n in range(24)]
    rows = [{"q": chat, "a": f"It is {n}.", "n": {"m": n}} for n, chat in enumerate(chats)]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))


def read_prompts(folder: Path) -> None:
    task = OwnPrompts(path=str(folder), prompt="q", reference="a", hidden=["n.m"], test_share=0.3)
    for split in Split:
        list(task.examples(split))
    task.content()


def copy_task(folder: Path) -> None:
    out = folder.with_name(f"{folder.name}-copy")
    shutil.rmtree(out, ignore_errors=True)
    options = ("task=gsm8k", f"task.path={folder}", "task.validation_size=2")
    more = ("data.tokens=false", f"data.out={out}", "output.quiet=true")
    inspect(typed(composed(*options, *more)), Console(quiet=True))


def make_pairs(folder: Path) -> None:
    row = {"prompt": "a", "chosen": " b", "rejected": " c", "prompt_tokens": [1]}
    tokens = {"chosen_tokens": [5, 6], "rejected_tokens": [7], "uid": "x", "prompt_messages": []}
    (folder / "pairs.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps({**row, **tokens})}\n" * 3)


def read_pairs(folder: Path) -> None:
    pair_examples(folder / "pairs.jsonl")


def make_policy(folder: Path) -> None:
    save_policy(llama(), TldrNano().tokenizer(), folder, GenerationSettings(0.7, 8))


def read_policy(folder: Path) -> None:
    """Loaded to be trained, and saved again."""
    model, tokenizer = load_policy(PretrainedModel("x", str(folder)), None, seed=0)
    require_savable(model, tokenizer, str(folder), GenerationSettings(0.7, 8))


def read_shape(folder: Path) -> None:
    policy_shape(PretrainedModel("x", str(folder)), None)


def make_reward_model(folder: Path) -> None:
    save_reward_model(reward_model_from(llama(), 1), TldrNano().tokenizer(), folder, 0.5)


def read_reward_model(folder: Path) -> None:
    load_reward_model(str(folder))


Reader = Callable[[Path], None]
TASK: dict[str, Reader] = {"read": read_task, "copy": copy_task}
CASES = (
    *(source(kind) for kind in source_files.SOURCES),
    Case("jsonl", make_jsonl, TASK),
    Case("parquet", make_parquet, TASK),
    Case("prompts", make_prompts, {"read": read_prompts}),
    Case("pairs", make_pairs, {"read": read_pairs}),
    Case("policy", make_policy, {"load": read_policy, "shape": read_shape}),
    Case("reward_model", make_reward_model, {"load": read_reward_model}),
)
