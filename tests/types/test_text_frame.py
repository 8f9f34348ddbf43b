"""What stands around texts, over the forms of published families: BOS, end tokens, templates."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlhf_lab.experiment.build.prompts import prompt_reader
from rlhf_lab.experiment.data.examples import frame_lines
from rlhf_lab.models.causal_lm import load_policy, load_tokenizer
from rlhf_lab.models.loading import load_tokenizer_of
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.models.sampling import GenerationSettings, saved_generation
from rlhf_lab.rewards.function import FunctionReward
from rlhf_lab.rewards.model import as_text, steps_as_text
from rlhf_lab.rewards.options import RewardContext, build_scorer
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.options import Decode, HFSampling
from rlhf_lab.rollout.generators.pairs import PairsGenerator
from rlhf_lab.rollout.generators.vllm.requests import Drawing, Request, sampling_params
from rlhf_lab.tasks import chat
from rlhf_lab.tasks.chat import ChatForm
from rlhf_lab.tasks.no_robots import NoRobots
from rlhf_lab.tasks.own_prompts import OwnPrompts
from rlhf_lab.tasks.pairs import with_tokens
from rlhf_lab.tasks.references import LongReferences, ReferenceForm, reference_sample
from rlhf_lab.training.stages.options import SFTOptions
from rlhf_lab.training.stages.supervised import StageReferences
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from rlhf_lab.types.text_frame import Marks, TextFrame, framed, marked
from tests.support.frames import (
    FAMILIES,
    OPEN_THOUGHT,
    OTHER_PROMPT,
    TURNS,
    Family,
    special_tokenizer,
)

ASKED = (("user", "12 a?"),)
CHAT = Example("row/1", "user: 12 a?\n\nassistant: ", "ab 123", {}, ASKED)
PLAIN = Example("row/1", "12 a?", "ab 123")


def names(tokenizer: Any, tokens: Any) -> list[str]:
    return list(tokenizer.convert_ids_to_tokens(list(tokens)))


@pytest.mark.parametrize(
    "before, behind",
    [((), ()), (("<s>",), ()), (("[gMASK]", "<sop>"), ()), ((), ("</s>",)), (("<s>",), ("</s>",))],
)
def test_a_plain_text_has_in_front_what_the_tokenizer_puts_there(before: Any, behind: Any) -> None:
    tokenizer = special_tokenizer(before=before, behind=behind)
    frame = TextFrame(tokenizer)
    inside = frame.inside("12 a?")
    assert names(tokenizer, frame.start) == list(before)
    assert frame.row("12 a?") == [*frame.start, *inside]
    assert frame.row("".join(before) + "12 a?") == frame.row("12 a?"), "never twice"
    assert tokenizer("12 a?")["input_ids"] == [
        *frame.row("12 a?"),
        *tokenizer.convert_tokens_to_ids(list(behind)),
    ]
    assert chat.encode(tokenizer, chat.OWN_FORM, PLAIN) == frame.row(PLAIN.prompt)
    assert frame.inside("") == []


def of(family: Family) -> tuple[Any, ChatForm]:
    tokenizer = special_tokenizer(family.template, family.eos, family.before)
    ends = tokenizer.convert_tokens_to_ids(list(family.ends))
    return framed(tokenizer, ends), ChatForm(arguments=dict(family.arguments))


@pytest.mark.parametrize("name", FAMILIES)
def test_chats_are_read_and_answered_as_their_template_renders_them(name: str) -> None:
    family = FAMILIES[name]
    tokenizer, form = of(family)
    prompt = chat.encode(tokenizer, form, CHAT)
    turns = [{"role": "user", "content": ASKED[0][1]}]
    given = dict(family.arguments)
    asked = tokenizer.apply_chat_template(turns, add_generation_prompt=True, **given)
    assert prompt == asked["input_ids"]
    assert prompt.count(tokenizer.bos_token_id) == family.bos
    chat.check_end(tokenizer, form, CHAT)
    answer = chat.answer_tokens(tokenizer, form, CHAT, CHAT.reference)
    assert names(tokenizer, answer[-1:]) == [family.end]
    assert not set(answer[:-1]) & set(TextFrame(tokenizer).ends)
    answered = [*turns, {"role": "assistant", "content": CHAT.reference}]
    whole = tokenizer.apply_chat_template(answered, tokenize=False, **given)
    read = tokenizer.decode([*prompt, *answer])
    assert whole.startswith(read) and not whole.removeprefix(read).strip()
    middle = tokenizer.decode(answer[:-1])
    assert middle == f"{family.front}{CHAT.reference}{family.tail}"


@pytest.mark.parametrize("name", FAMILIES)
def test_every_reader_of_answers_has_the_same_tokens(name: str) -> None:
    family = FAMILIES[name]
    tokenizer, form = of(family)
    prompt = Prompt(0, tuple(chat.encode(tokenizer, form, CHAT)), CHAT)
    expected = tuple(chat.answer_tokens(tokenizer, form, CHAT, CHAT.reference))
    sample = reference_sample(prompt, tokenizer, 99, ReferenceForm(form))
    assert (sample.tokens, sample.finish) == (expected, Finish.eos)
    pair = replace(CHAT, hidden={"rejected": "b"})
    assert PairsGenerator(tokenizer, 99, form=form).pair(pair)[0].tokens == expected
    read = Sample(expected, (0.0,) * len(expected), 0, Finish.eos, CHAT.reference)
    if not family.arguments:  # reward models have their own templates
        row = {
            "prompt": CHAT.prompt,
            "prompt_messages": [list(turn) for turn in ASKED],
            **{"chosen": CHAT.reference, "rejected": "b"},
        }
        made = with_tokens(row, tokenizer)
        assert (tuple(made["prompt_tokens"]), tuple(made["chosen_tokens"])) == (
            prompt.tokens,
            expected,
        )
        scored = as_text(tokenizer, Group(prompt, ()), read)
        assert names(tokenizer, scored[-1:]) == [family.end]
        assert scored.count(tokenizer.bos_token_id) == family.bos


def test_a_template_that_puts_answers_elsewhere_is_refused_with_the_place() -> None:
    """The thought that the prompt opens has other tokens than the closed one of an answer."""
    for template, place in ((OPEN_THOUGHT, "think"), (OTHER_PROMPT, "model")):
        tokenizer = special_tokenizer(template, "<|im_end|>")
        with pytest.raises(UserError, match=rf"{place}.*task\.chat_arguments.*task\.chat_template"):
            chat.answer_tokens(tokenizer, chat.OWN_FORM, CHAT, CHAT.reference)
        chat.check_end(tokenizer, chat.OWN_FORM, CHAT)  # sampling alone may go on


def test_a_reference_that_is_read_as_text_may_stand_anywhere() -> None:
    """A thinking model is trained on a rule whatever its template makes of answers."""
    tokenizer = special_tokenizer(OPEN_THOUGHT, "<|im_end|>")
    form = ReferenceForm(as_text=True)
    sample = reference_sample(Prompt(0, (1,), CHAT), tokenizer, 99, form)
    assert (sample.text, tokenizer.decode(sample.tokens)) == ("ab 123", "ab 123<|im_end|>")


def test_a_thought_that_has_the_same_tokens_is_part_of_the_answer() -> None:
    tokenizer = special_tokenizer(OPEN_THOUGHT, "<|im_end|>", merges=[("a", "b")])
    answer = chat.answer_tokens(tokenizer, chat.OWN_FORM, CHAT, CHAT.reference)
    assert tokenizer.decode(answer) == "\n</think>\n\nab 123<|im_end|>"


def test_a_template_without_an_end_token_is_refused_by_every_reader() -> None:
    tokenizer = special_tokenizer(TURNS, "</s>")
    for read in (chat.check_end, functools.partial(chat.answer_tokens, answer="ab")):
        with pytest.raises(UserError, match=r"</turn>.*</s>.*eos_token_id.*task\.chat_template"):
            read(tokenizer, chat.OWN_FORM, CHAT)


def test_arguments_of_templates_that_change_nothing_are_refused() -> None:
    for task in (NoRobots, OwnPrompts):
        with pytest.raises(UserError, match=r"task\.chat_arguments\.add_generation_prompt=False"):
            task(chat_arguments={"add_generation_prompt": False})
        with pytest.raises(UserError, match=r"task\.chat_arguments\.tokenize=True"):
            task(chat_arguments={"tokenize": True})
    tokenizer = special_tokenizer(OPEN_THOUGHT, "<|im_end|>")
    with pytest.raises(UserError, match=r"task\.chat_arguments\.thinking=False"):
        chat.check_end(tokenizer, ChatForm(arguments={"thinking": False}), CHAT)


def folder(tmp_path: Path, tokenizer: Any, config: Any, generation: Any) -> str:
    """A folder of a tokenizer with these JSON files; None for no file, a text as it is."""
    tokenizer.save_pretrained(tmp_path)
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / name).write_text(text, encoding="utf-8")
    return str(tmp_path)


@pytest.mark.parametrize(
    "config, generation, expected",
    [
        (None, None, ["</s>"]),
        ({"eos_token_id": 260}, None, ["</s>", 260]),
        ({"eos_token_id": 260}, {"eos_token_id": 261}, ["</s>", 261]),
        ({}, {"eos_token_id": [270, 261]}, ["</s>", 270, 261]),
        ({}, {"temperature": 0.7}, ["</s>"]),
    ],
)
def test_end_tokens_are_those_of_tokenizer_and_generation_config(
    config: Any, generation: Any, expected: list[Any], tmp_path: Path
) -> None:
    plain = special_tokenizer()
    path = folder(tmp_path, plain, config, generation)
    own = [plain.eos_token_id if one == "</s>" else one for one in expected]
    assert TextFrame(load_tokenizer_of(path, "model.path")).ends == tuple(own)
    again = load_tokenizer_of(path, "model.path")
    model = LlamaForCausalLM(LlamaConfig(hidden_size=8, num_attention_heads=1, vocab_size=400))
    saved = saved_generation(model, again, GenerationSettings(0.7, 9)).eos_token_id
    assert (saved if isinstance(saved, list) else [saved]) == own


@pytest.mark.parametrize(
    "generation", ['{"eos_token_id":', {"eos_token_id": "</s>"}, {"eos_token_id": -1}]
)
def test_end_tokens_that_are_none_are_refused(generation: Any, tmp_path: Path) -> None:
    path = folder(tmp_path, special_tokenizer(), {}, generation)
    with pytest.raises(UserError, match=r"model\.path=.*generation_config\.json"):
        load_tokenizer_of(path, "model.path")


def test_rows_begin_with_bos_as_the_option_says(tmp_path: Path) -> None:
    template = "{{ bos_token }}" + TURNS
    for before, automatic in (((), 0), (("<s>",), 1)):
        tokenizer = special_tokenizer(template, "</turn>", before)
        path = folder(tmp_path, tokenizer, None, None)
        for add_bos, expected in (("auto", automatic), ("true", 1), ("false", 0), (True, 1)):
            model = PretrainedModel("own", path, add_bos=add_bos)  # type: ignore[arg-type]
            found = load_tokenizer(model, None)
            assert chat.encode(found, chat.OWN_FORM, PLAIN).count(found.bos_token_id) == expected
            assert chat.encode(found, chat.OWN_FORM, CHAT).count(found.bos_token_id) == 1
    found = marked(special_tokenizer(TURNS), Marks((0,), (1,), in_chats=True))
    assert chat.encode(found, chat.OWN_FORM, CHAT)[0] == 0, "a template that writes none"
    with pytest.raises(UserError, match=r"model\.add_bos=maybe"):
        PretrainedModel("own", "x", add_bos="maybe")
    without = special_tokenizer()
    without.bos_token = None
    path = folder(tmp_path, without, None, None)
    with pytest.raises(UserError, match=r"model\.add_bos=true"):
        load_tokenizer(PretrainedModel("own", path, add_bos="true"), None)


@pytest.mark.parametrize("add_bos", ["auto", "true", "false"])
@pytest.mark.parametrize("before", [(), ("<s>",)])
def test_every_part_of_a_run_puts_the_same_in_front_of_a_text(
    before: tuple[str, ...], add_bos: str, tmp_path: Path
) -> None:
    """RL and SFT read one prompt, pairs have its tokens, and a reward model of another vocabulary
    reads the whole row: each with what model.add_bos puts there, once, and none in answers."""
    path = folder(tmp_path, special_tokenizer(before=before), None, None)
    tokenizer = load_tokenizer(PretrainedModel("own", path, add_bos=add_bos), None)
    bos = tokenizer.bos_token_id
    count = {"auto": len(before), "true": 1, "false": 0}[add_bos]
    start = [bos] * count
    prompt = Prompt(0, tuple(prompt_reader(OwnPrompts(), tokenizer)(PLAIN)), PLAIN)
    assert list(prompt.tokens) == [*start, *TextFrame(tokenizer).inside(PLAIN.prompt)]
    (learnt,) = StageReferences(tokenizer, 99, SFTOptions())([prompt])
    assert learnt.prompt.tokens == prompt.tokens
    pair = with_tokens({"prompt": PLAIN.prompt, "chosen": "ab", "rejected": "b"}, tokenizer)
    assert pair["prompt_tokens"] == list(prompt.tokens)
    answers = [learnt.samples[0].tokens, pair["chosen_tokens"], pair["rejected_tokens"]]
    assert all(bos not in answer for answer in answers)
    read = as_text(tokenizer, Group(prompt, ()), learnt.samples[0])
    assert read[:count] == start and read.count(bos) == count


@functools.cache
def small() -> Any:
    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=14, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, bos_token_id=1, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


class Numbers:
    """Tokens whose text is their number."""

    eos_token_id = 1

    def decode(self, tokens: Any, skip_special_tokens: bool = True) -> str:
        return " ".join(map(str, tokens))


def drawn(
    decode: str, ends: tuple[int, ...], length: int = 24, last: tuple[int, ...] = ()
) -> list[Sample]:
    """Samples of prompts that end in these last tokens."""
    tokenizer = marked(Numbers(), Marks((), ends))
    sampling = HFSampling(temperature=1.0, decode=Decode(decode))
    made = HFGenerator(small(), tokenizer, sampling, length, functools.partial(uniforms, 5))
    prompts = tuple(Prompt(n, (2, 3, 4 + n, *last), Example(str(n), "", "")) for n in range(3))
    weights = Weights(0, dict(small().named_parameters()))
    groups = made.generate(weights, Chunk(0, 0, prompts, 4))
    return [sample for group in groups for sample in group.samples]


@pytest.mark.parametrize("decode", ["transformers", "lean", "static"])
def test_every_end_token_ends_a_sample(decode: str) -> None:
    """With more end tokens a sample is its own beginning, up to the first of them."""
    num_ended = 0
    for one, few in zip(drawn(decode, (1,)), drawn(decode, (1, 5, 7)), strict=True):
        cut = TextFrame(marked(Numbers(), Marks((), (1, 5, 7)))).cut(one.tokens)
        assert few.tokens == cut
        assert few.logps == pytest.approx(one.logps[: len(cut)], abs=1e-5)
        is_ended = few.tokens[-1] in (1, 5, 7)
        assert few.finish is (Finish.eos if is_ended else Finish.length)
        assert few.text == " ".join(map(str, cut[:-1] if is_ended else cut))
        num_ended += few.tokens[-1] in (5, 7)
    assert num_ended, "no sample ended with one of the further tokens"


@pytest.mark.parametrize("decode", ["transformers", "lean", "static"])
def test_an_end_token_of_the_prompt_ends_no_answer(decode: str) -> None:
    samples = drawn(decode, (1,), length=4, last=(1,))
    assert {one.finish for one in samples} == {Finish.eos, Finish.length}
    for one in samples:
        assert (one.finish is Finish.eos) == (1 in one.tokens)
        assert len(one.tokens) == 4 or one.tokens[-1] == 1


def test_vllm_stops_at_every_end_token() -> None:
    params = sampling_params(Request((1, 2), 3), Drawing(0.7, 9, (1, 5, 7)))
    assert params["stop_token_ids"] == [1, 5, 7] and params["ignore_eos"]


@pytest.mark.parametrize("before", [(), ("<s>",)])
def test_reward_models_of_another_vocabulary_read_a_row_of_their_own(before: Any) -> None:
    tokenizer = special_tokenizer(before=before)
    prompt = Prompt(0, (5, 6), PLAIN)
    sample = Sample((1, 2, 3), (0.0,) * 3, 0, Finish.eos, "ab")
    tokens = as_text(tokenizer, Group(prompt, ()), sample)
    inside = names(tokenizer, tokenizer("12 a?ab", add_special_tokens=False)["input_ids"])
    assert names(tokenizer, tokens) == [*before, *inside, "</s>"]
    texts = {1: "a", 2: "a", 3: "b"}

    def decode(tokens: Any) -> str:
        return "".join(texts[token] for token in tokens)

    read, ends = steps_as_text(tokenizer, decode, Group(prompt, ()), sample, [2])
    assert names(tokenizer, read[: len(before)]) == list(before)
    assert ends == [len(read) - 1]


def tagged(prompt: str, completion: str, **rest: Any) -> float:
    """1 for a tag, and 10 more for an end token."""
    return float("<a>" in completion) + 10 * ("</s>" in completion)


@pytest.mark.parametrize("special_tokens, expected", [(True, 1.0), (False, 0.0)])
def test_a_reward_gets_special_tokens_where_it_asks_for_them(
    special_tokens: bool, expected: float, tmp_path: Path
) -> None:
    tokenizer = special_tokenizer()
    tokens = (*tokenizer.convert_tokens_to_ids(["<a>", "a"]), tokenizer.eos_token_id)
    sample = Sample(tokens, (0.0,) * 3, 0, Finish.eos, TextFrame(tokenizer).text(tokens))
    options = FunctionReward(
        path="tests.types.test_text_frame.tagged", special_tokens=special_tokens
    )
    context = RewardContext(None, tokenizer, (), 1, 9, tmp_path)  # type: ignore[arg-type]
    scorer = build_scorer(options, context)
    assert scorer.score([Group(Prompt(0, (1,), PLAIN), (sample,))]) == [(expected,)]


@pytest.mark.parametrize("example", [PLAIN, CHAT])
def test_long_references_are_left_out_or_cut_with_or_without_an_end_token(example: Example) -> None:
    tokenizer = framed(special_tokenizer(TURNS, "</turn>"))
    prompt = Prompt(0, (1,), example)
    whole = reference_sample(prompt, tokenizer, 99).tokens
    for long, expected, finish in (
        (LongReferences.cut_with_end, (*whole[:2], whole[-1]), Finish.eos),
        (LongReferences.cut, whole[:3], Finish.length),
        (LongReferences.left_out, whole[:3], Finish.length),
    ):
        form = ReferenceForm(long=long)
        found = reference_sample(prompt, tokenizer, 3, form)
        assert (found.tokens, found.finish, found.text) == (expected, finish, "ab 123")
        assert reference_sample(prompt, tokenizer, len(whole), form).tokens == whole
        stage = StageReferences(tokenizer, 3, SFTOptions(), form)
        assert not stage.fits(prompt)
        assert stage([prompt])[0].samples[0].tokens == expected
        assert str(long) in stage.note and stage.seen == {"read": 1, "cut": 1}
        roomy = StageReferences(tokenizer, len(whole), SFTOptions(), form)
        assert roomy.fits(prompt) and roomy([prompt]) and not roomy.note


def test_the_frame_is_shown_with_end_tokens_that_are_ordinary_text() -> None:
    tokenizer = framed(special_tokenizer(before=("<s>",)), [7])
    first = Prompt(0, tuple(chat.encode(tokenizer, chat.OWN_FORM, PLAIN)), PLAIN)
    shown = "\n".join(frame_lines(tokenizer, first))
    assert "'<s>'" in shown and "'</s>'" in shown and " = 7 " in shown
    usual = "\n".join(frame_lines(framed(special_tokenizer()), first))
    assert " = 7" not in usual


def test_a_policy_of_a_folder_is_framed_with_its_model(tmp_path: Path) -> None:
    tokenizer = special_tokenizer(before=("<s>",))
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1, eos_token_id=[tokenizer.eos_token_id, 7], bos_token_id=None,
        pad_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    _, found = load_policy(PretrainedModel("own", str(tmp_path)), None, 0)
    frame = TextFrame(found)
    assert (names(found, frame.start), frame.ends) == (["<s>"], (tokenizer.eos_token_id, 7))
