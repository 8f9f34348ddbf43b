"""The forms in which data sets are published load as they are, for each command that uses them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest

from rlhf_lab.cli.compose import stage
from rlhf_lab.cli.stages import judges_pairs
from rlhf_lab.experiment.artifacts.labels import PackedPairs
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.prompts import build_rollout_prompts
from rlhf_lab.experiment.build.rollout import build_worker
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.rules.checks import check, require_readable_splits
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs.identity import hash_of
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.byte_tokenizer import byte_tokenizer
from rlhf_lab.tasks.no_robots import NoRobots
from rlhf_lab.tasks.own_prompts import OwnPrompts
from rlhf_lab.tasks.pair_sources import given_pairs, pair_examples
from rlhf_lab.tasks.pairs import PairColumns, PromptForm, with_tokens
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Split
from tests.support.chats import CHATML, chat_tokenizer
from tests.support.composed import composed
from tests.support.data_forms import (
    ANSWERS,
    ASKED,
    FORMS,
    PAIRS,
    PLAIN,
    assistant,
    of_texts,
    of_whole_chats,
    rows_of,
    user,
    write,
)
from tests.support.examples import FACTS
from tests.support.tiny_families import tiny

SOURCES = ("jsonl", "parquet", "hub")
SOME = 24
MAX = 60
CHAT = (("user", "Name 0."),)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub is a folder below tmp_path: names of data sets are read there by `datasets`."""
    load, names = datasets.load_dataset, datasets.get_dataset_split_names
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(
        "datasets.load_dataset", lambda path, **more: load(str(tmp_path / "hub" / path), **more)
    )
    monkeypatch.setattr(
        "datasets.get_dataset_split_names", lambda path: names(str(tmp_path / "hub" / path))
    )


def published(tmp_path: Path, form: str, source: str) -> str:
    """A set of SOME rows in a form, as a file or under the name that it has on the hub."""
    if source != "hub":
        return str(write(tmp_path / f"set.{source}", rows_of(form, SOME)))
    # What was read of the hub is read once, so that each test has a name for its set.
    name = f"me/{tmp_path.name}"
    (tmp_path / "hub" / name).mkdir(parents=True)
    write(tmp_path / "hub" / name / "train.jsonl", rows_of(form, SOME))
    return name


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("form", FORMS)
def test_prompts_and_references_are_found_by_the_usual_names(
    form: str, source: str, tmp_path: Path
) -> None:
    task = OwnPrompts(path=published(tmp_path, form, source))
    examples = [*task.examples(Split.train), *task.examples(Split.validation)]
    assert len(examples) == SOME
    first = min(examples, key=lambda one: int(one.uid.rpartition(":")[2]))
    assert first.messages == (() if form in PLAIN else CHAT)
    assert "Name 0." in first.prompt
    assert task.has_references == (form in PAIRS or form in ANSWERS)
    assert first.reference.strip() == ("It is 0." if task.has_references else "")


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("form", PAIRS)
def test_pairs_are_found_by_the_usual_names(form: str, source: str, tmp_path: Path) -> None:
    pairs = given_pairs(published(tmp_path, form, source), 4, "labels.path")
    assert (len(pairs.train), len(pairs.held_out)) == (SOME - 4, 4)
    first = pairs.train[0]
    assert (first["chosen"].strip(), first["rejected"].strip()) == ("It is 0.", "No.")
    assert first["prompt"].removeprefix("user: ").startswith(("Name 0.", "\n\nHuman: Name 0."))
    messages = [] if form in PLAIN else [list(turn) for turn in CHAT]
    assert first.get("prompt_messages", []) == messages
    has_scores = "score_chosen" in FORMS[form](0)
    gold = {"chosen_gold": 7.0, "rejected_gold": 5.0} if has_scores else {}
    assert {key: first[key] for key in first if key.endswith("_gold")} == gold


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with a chat template."""
    folder, tokenizer = tmp_path_factory.mktemp("model"), chat_tokenizer()
    made = tiny("qwen3", vocab_size=len(tokenizer), max_position_embeddings=1024)
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def given(tmp_path: Path, model: Path, *more: str) -> tuple[str, ...]:
    """Overrides of a command that takes seconds, on prompts of the file at hand."""
    return (
        *("debug=tiny", "task=prompts", "model=pretrained", f"model.path={model}"),
        *("model@proxy=pretrained", f"proxy.path={model}", "task.max_response_tokens=12"),
        *("labels.held_out_pairs=8", "reward_model.batch=8", "eval=none", "eval.prompts=1"),
        *(f"output.root={tmp_path}/runs", f"output.cache={tmp_path}/cache", "output.quiet=true"),
        *more,
    )


def quiet(config: Any) -> Artifacts:
    return Artifacts(config, Console(quiet=True))


@pytest.mark.parametrize("form", PAIRS)
def test_each_command_takes_pairs_without_further_options(
    form: str, tmp_path: Path, model: Path
) -> None:
    path = write(tmp_path / "set.jsonl", rows_of(form, SOME))
    where = given(tmp_path, model, f"task.path={path}")

    labels = composed(*where, f"labels.path={path}")
    config, _ = stage(labels, judges_pairs(labels))
    metrics = quiet(config).reward_model().metrics
    assert metrics["held_out_pairs"] == 8
    assert ("accuracy_gap_quarter_1" in metrics) == ("score_chosen" in FORMS[form](0))

    judged = ("reward@judge=function", "judge.path=rlhf_lab.rewards.rules.not_empty")
    config, _ = stage(composed(*where, f"labels.path={path}", *judged))
    assert quiet(config).relabel().metrics["train_ties"] == 1.0

    config, _ = stage(composed(*where), judges=False)
    assert quiet(config).sft(config.model).metrics["validation_loss"] > 0

    scored = ("reward.path=rlhf_lab.rewards.rules.not_empty", "run.updates=1")
    config = typed(composed(*where, "algo=dpo", f"generator.path={path}", *scored))
    check(config)
    require_readable_splits(config)
    folder = lifecycle.train(config, Console(quiet=True), FACTS)
    (row,) = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()[:1])
    assert row["reward/best"] == 1.0 and row["total/prompts"] == config.run.groups_per_update


@pytest.mark.parametrize("form", ANSWERS)
def test_sft_takes_answers_without_further_options(form: str, tmp_path: Path, model: Path) -> None:
    path = write(tmp_path / "set.jsonl", rows_of(form, SOME))
    config, _ = stage(composed(*given(tmp_path, model, f"task.path={path}")), judges=False)
    assert quiet(config).sft(config.model).metrics["validation_loss"] > 0


def pair_of(tmp_path: Path, *rows: dict[str, Any], **columns: Any) -> dict[str, Any]:
    """The first pair of these rows."""
    path = write(tmp_path / "pairs.jsonl", [*rows, of_texts(50), of_texts(51)])
    return given_pairs(str(path), 1, "labels.path", PairColumns(**columns)).train[0]


@pytest.mark.parametrize(
    ("chosen", "rejected", "prompt"),
    [
        # TRL's example, and one whose answers begin with the same letters.
        ("The sky is blue.", "The sky is green.", "The sky is"),
        ("The sky is blue.", "The sky is black.", "The sky is"),
        ("The sky is", "The sky is blue", "The sky"),
        # Dialogues are cut behind the assistant's name, however alike the answers begin.
        ("\n\nHuman: a\n\nAssistant: I can", "\n\nHuman: a\n\nAssistant: I do", None),
        ("H: a\nassistant: x\nH: b\nassistant: y", "H: a\nassistant: x\nH: b\nassistant: z", None),
    ],
)
def test_the_common_beginning_of_texts_is_the_prompt(
    chosen: str, rejected: str, prompt: str | None, tmp_path: Path
) -> None:
    if prompt is None:
        prompt = chosen[: chosen.lower().rindex("assistant:") + len("assistant:")]
    row = pair_of(tmp_path, {"chosen": chosen, "rejected": rejected})
    assert row["prompt"] == prompt
    assert [row["prompt"] + row[side] for side in ("chosen", "rejected")] == [chosen, rejected]


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ({"chosen": "a b", "rejected": "c d"}, ["no field 'prompt'", "labels.prompt_column"]),
        (
            {"question": "q", "chosen": "a b", "rejected": "a c"},
            ["no field 'prompt'", "'question'", "labels.prompt_column"],
        ),
        ({"prompt": "p", "chosen": "a", "rejected": [assistant("b")]}, ["'rejected'"]),
        ({"prompt": "p", "chosen": [user(1)], "rejected": [user(2)]}, ["messages user"]),
        (
            {"chosen": [user(1), assistant("a")], "rejected": [user(2), assistant("b")]},
            ["prompt whose last message is not there"],
        ),
        (
            {"prompt": [user(1), assistant("x")], "chosen": [assistant("a")], "rejected": []},
            ["'rejected'", "nothing"],
        ),
    ],
)
def test_a_pair_that_is_in_no_form_is_refused_with_its_line(
    row: dict[str, Any], parts: list[str], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"labels\.path: .*line 1") as refused:
        pair_of(tmp_path, row)
    for part in parts:
        assert part in str(refused.value)


def test_ties_are_left_out_and_counted_and_a_set_of_ties_is_refused(tmp_path: Path) -> None:
    ties: list[dict[str, Any]] = [
        {"prompt": "p", "chosen": " a", "rejected": " a"},
        {"chosen": [user(1), assistant("a")], "rejected": [user(1), assistant(" a ")]},
    ]
    rows = [of_texts(0), *ties, of_whole_chats(1), of_texts(2)]
    pairs = given_pairs(str(write(tmp_path / "set.jsonl", rows)), 1, "labels.path")
    assert (len(pairs.train), len(pairs.held_out), pairs.train.num_ties) == (2, 1, 2)
    assert pairs.held_out[0]["prompt"] == "Name 2."
    examples = pair_examples(tmp_path / "set.jsonl")
    assert [one.uid for one in examples] == ["set.jsonl:1", "set.jsonl:4", "set.jsonl:5"]
    with pytest.raises(UserError, match=r"labels\.path: .*all 2 rows have equal answers"):
        given_pairs(str(write(tmp_path / "ties.jsonl", ties)), 1, "labels.path")


@pytest.mark.parametrize(
    "names",
    [
        ("score_chosen", "score_rejected"),
        ("chosen_score", "rejected_score"),
        ("chosen_rating", "rejected_rating"),
        ("chosen-rating", "rejected-rating"),
    ],
)
def test_published_scores_are_gold(names: tuple[str, str], tmp_path: Path) -> None:
    scores = dict(zip(names, (8.5, 3), strict=True))
    row = pair_of(tmp_path, of_texts(0) | scores)
    assert (row["chosen_gold"], row["rejected_gold"]) == (8.5, 3)
    own = pair_of(tmp_path, of_texts(0) | scores | {"chosen_gold": 1, "rejected_gold": 2})
    assert (own["chosen_gold"], own["rejected_gold"]) == (1, 2)
    assert "chosen_gold" not in pair_of(tmp_path, of_texts(0) | {names[0]: 8.5, names[1]: None})


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_columns_that_are_not_used_are_not_kept(suffix: str, tmp_path: Path) -> None:
    unused = {"query_token": [1] * 9, "chosen_token": [1, 2], "info": {"a": 1}, "policies": "x"}
    path = str(write(tmp_path / f"set.{suffix}", [of_texts(n) | unused for n in range(4)]))
    row = given_pairs(path, 1, "labels.path").train[0]
    assert row == of_texts(0)
    kept = given_pairs(path, 1, "labels.path", PairColumns(kept="policies")).train[0]
    assert kept == of_texts(0) | {"policies": "x"}


def test_the_digest_of_pairs_is_that_of_their_rows_together(tmp_path: Path) -> None:
    rows = [of_texts(n) | {"chosen_gold": n / 3, "rejected_gold": -1} for n in range(5)]
    pairs = given_pairs(str(write(tmp_path / "set.jsonl", rows)), 2, "labels.path")
    parts = [("train", rows[:3]), ("held_out", rows[3:])]
    assert pairs.digest == hash_of({"parts": parts})


def test_a_split_is_held_out_under_its_usual_name_or_else_the_end(tmp_path: Path) -> None:
    for name, num in (("train_prefs", 6), ("test_prefs", 3), ("train_sft", 4)):
        write(tmp_path / f"{name}-00000-of-00001.parquet", rows_of("UltraFeedback", num))
    pairs = given_pairs(str(tmp_path), 1, "labels.path")
    assert (len(pairs.train), len(pairs.held_out)) == (6, 3)
    assert len(pair_examples(tmp_path)) == 6
    (tmp_path / "test_prefs-00000-of-00001.parquet").unlink()
    pairs = given_pairs(str(tmp_path), 1, "labels.path")
    assert (len(pairs.train), len(pairs.held_out)) == (5, 1)
    with pytest.raises(UserError, match=r"train\.jsonl"):
        given_pairs(str(tmp_path / ".."), 1, "labels.path")


@pytest.mark.parametrize("place", ["", "data", "main"])
def test_a_clone_of_a_hub_dataset_is_read_with_all_its_shards(place: str, tmp_path: Path) -> None:
    (tmp_path / place).mkdir(exist_ok=True)
    rows = [{"prompt": ASKED.format(n)} for n in range(24)]
    for shard in range(2):
        name = f"train-{shard:05}-of-00002.parquet"
        write(tmp_path / place / name, rows[12 * shard :][:12])
    task = OwnPrompts(path=str(tmp_path), hub_config="main")
    found = {
        one.prompt for split in (Split.train, Split.validation) for one in task.examples(split)
    }
    assert found == {row["prompt"] for row in rows}
    assert len(task.content()) == 2


PARTS = {
    "role": "user",
    "content": [{"type": "text", "text": "Name "}, {"type": "text", "text": "0."}],
}


@pytest.mark.parametrize("value", [[PARTS], json.dumps([user(0)]), json.dumps([PARTS])])
def test_parts_of_content_and_messages_as_json_text_are_messages(
    value: Any, tmp_path: Path
) -> None:
    path = str(write(tmp_path / "set.jsonl", [{"prompt": value}, {"prompt": value}]))
    assert OwnPrompts(path=path, validation_share=0.0).examples(Split.train)[0].messages == CHAT
    sides = {side: [assistant(side)] for side in ("chosen", "rejected")}
    assert pair_of(tmp_path, {"prompt": value, **sides})["prompt_messages"] == [list(CHAT[0])]
    turns = [*(json.loads(value) if isinstance(value, str) else value), assistant("It.")]
    chats = [{"messages": form} for form in (turns, json.dumps(turns)) for _ in range(2)]
    path = str(write(tmp_path / "chats.jsonl", chats))
    examples = NoRobots(path=path, validation_size=1).examples(Split.train)
    assert {(one.messages, one.reference) for one in examples} == {(CHAT, "It.")}


def test_a_part_that_is_no_text_is_refused_with_its_type(tmp_path: Path) -> None:
    image = {"role": "user", "content": [{"type": "image", "url": "x"}]}
    path = str(write(tmp_path / "set.jsonl", [{"prompt": [image]}]))
    with pytest.raises(UserError, match=r"set\.jsonl:1, message 1 has a part of type 'image'"):
        OwnPrompts(path=path).examples(Split.train)


def test_a_text_that_begins_like_a_list_stays_a_text(tmp_path: Path) -> None:
    texts = ['[{"role": "user"', '["role"]', '[{"role": 1}, 2]', "[1]"]
    path = str(write(tmp_path / "set.jsonl", [{"prompt": text} for text in texts]))
    examples = OwnPrompts(path=path, validation_share=0.0).examples(Split.train)
    assert [one.prompt for one in examples] == texts


def test_no_column_is_a_reference_where_none_is_wanted(tmp_path: Path) -> None:
    judged = {"prompt": "a", "completion": " b", "label": False}
    for name, rows, reference in (
        ("some", rows_of("text and completion", 4), "none"),
        ("judged", [judged] * 4, ""),
    ):
        path = str(write(tmp_path / f"{name}.jsonl", rows))
        task = OwnPrompts(path=path, reference=reference, validation_share=0.0)
        assert not task.has_references and not task.examples(Split.train)[0].reference


def test_plain_pairs_are_shown_as_the_task_shows_prompts(tmp_path: Path) -> None:
    plain, chat = of_texts(0), of_whole_chats(0)
    as_chat = PromptForm(is_chat=True)
    row = pair_of(tmp_path, plain | {"chosen_tokens": [1], "rejected_tokens": [2]}, form=as_chat)
    assert (row["prompt_messages"], row["chosen"]) == ([["user", "Name 0."]], "It is 0.")
    assert "chosen_tokens" not in row
    assert pair_of(tmp_path, chat, form=as_chat)["prompt_messages"] == [["user", "Name 0."]]
    # Messages become plain text by a template, with which the task's own do.
    as_text = PromptForm(template="Q: {prompt}\nA:")
    row = pair_of(tmp_path, chat, form=as_text)
    assert (row["prompt"], "prompt_messages" in row) == ("Q: Name 0.\nA:", False)
    both = PromptForm(is_chat=True, template="Q: {prompt}")
    assert pair_of(tmp_path, plain, form=both)["prompt_messages"] == [["user", "Q: Name 0."]]
    assert pair_of(tmp_path, plain, form=as_text) == plain
    # A row of the label stage has its own messages.
    own = plain | {"prompt_messages": [["system", "s"], ["user", "u"]]}
    assert pair_of(tmp_path, own, form=as_chat)["prompt_messages"] == own["prompt_messages"]


def test_a_stage_alone_asks_for_no_reward_and_for_a_judge_where_one_orders_pairs(
    tmp_path: Path, model: Path
) -> None:
    path = write(tmp_path / "set.jsonl", rows_of("texts", SOME))
    where = given(tmp_path, model, f"task.path={path}")
    with pytest.raises(UserError, match=r"reward\.path"):
        check(typed(composed(*where)))
    cfg = composed(*where)
    stage(cfg, judges=False)
    with pytest.raises(UserError, match=r"judge=none.*reward@judge=function"):
        stage(cfg, judges_pairs(cfg))
    labels = composed(*where, f"labels.path={path}")
    assert not judges_pairs(labels)


@pytest.mark.parametrize("task", ["tldr_nano", "prompts", "gsm8k", "arithmetic"])
def test_dpo_brings_its_two_answers_whatever_the_task(task: str) -> None:
    assert composed("algo=dpo", f"task={task}").run.group_size == 2
    assert composed("algo=dpo", f"task={task}", "run.group_size=4").run.group_size == 4


def test_packed_pairs_are_the_rows_without_their_texts() -> None:
    tokens = [
        {"prompt_tokens": [n] * n, "chosen_tokens": [n, 1], "rejected_tokens": [2]} for n in (1, 3)
    ]
    facts: list[dict[str, Any]] = [{"chosen_gold": 1.5, "batch": "x"}, {"uid": "u"}]
    texts: dict[str, Any] = {
        "prompt": "p",
        "chosen": "c",
        "rejected": "r",
        "prompt_messages": [["user", "p"]],
    }
    rows = [one | fact for one, fact in zip(tokens, facts, strict=True)]
    packed = PackedPairs(texts | row for row in rows)
    assert [*packed] == rows == packed[:5] and packed[-1] == rows[1] and len(packed) == 2


def test_answers_of_a_run_are_rendered_in_the_template_of_the_task(
    tmp_path: Path, model: Path
) -> None:
    path = write(tmp_path / "set.jsonl", rows_of("UltraFeedback", 4))
    template = tmp_path / "upper.jinja"
    template.write_text(CHATML.replace("message['content']", "message['content'] | upper"))
    where = given(tmp_path, model, f"task.path={path}", f"task.chat_template={template}")
    config = typed(composed(*where, "algo=dpo", f"generator.path={path}"))
    tokenizer, sources = chat_tokenizer(), quiet(config).sources()
    stream = build_rollout_prompts(config, sources.pairs, tokenizer)
    worker = build_worker(config, sources)
    (group,) = worker.run(Weights(0, {}), Chunk(0, 0, (stream[0],), group_size=2)).groups
    asked = tokenizer.decode(group.prompt.tokens)
    assert asked.startswith("<|im_start|>user\nNAME ")
    assert [sample.text[:3] for sample in group.samples] == ["IT ", "NO."]


def test_a_model_without_a_chat_template_is_refused_for_chats_with_what_to_pass(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "set.jsonl", rows_of("chats", SOME))
    nano = ("debug=tiny", "task=prompts", "model=nano_s", f"task.path={path}")
    chats = typed(composed(*nano, "algo=dpo", f"generator.path={path}"))
    for refuse in (
        lambda: require_readable_splits(chats),
        lambda: build_rollout_prompts(chats, str(path), byte_tokenizer()),
    ):
        with pytest.raises(
            UserError, match=r"no chat template.*task\.chat_template=.*task\.template"
        ):
            refuse()
    row = given_pairs(str(path), 4, "labels.path").train[0]
    with pytest.raises(UserError, match=r"no chat template.*task\.chat_template="):
        with_tokens(row, byte_tokenizer(), chats.task.chat_form)
    texts = replace(chats, task=replace(chats.task, template="{prompt}\n"))
    stream = build_rollout_prompts(texts, str(path), byte_tokenizer())
    assert byte_tokenizer().decode(stream[0].tokens).startswith("Name ")
