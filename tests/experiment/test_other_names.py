"""Names of other projects are answered with the name here, which exists and takes the example."""

from __future__ import annotations

from dataclasses import fields

import pytest

from rlhf_lab.cli.reference_pages import with_table
from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.other_names import PROJECTS, OtherName, content, table
from rlhf_lab.experiment.config.registry import group_options
from rlhf_lab.experiment.config.suggestions import config_names, no_key, no_option
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.sweeps.launchers.slurm import SlurmOptions
from tests.support.composed import composed
from tests.support.examples import call

NAMED = [(row, name) for row in table() for name in row.names]


def composed_with(row: OtherName, words: list[str]) -> None:
    """Compose an example, with what it needs beside it: one of these for each, or the same."""
    beside = row.beside.split(" or ")
    place = row.examples.index(words)
    needed = beside[place] if len(beside) == len(row.examples) else beside[0]
    typed(composed(*needed.split(), *words))


@pytest.mark.parametrize("row", table(), ids=lambda row: "-".join(row.names[:1]))
def test_every_answer_is_a_key_that_takes_its_example(row: OtherName) -> None:
    assert row.examples or row.note
    known = {*config_names(), *group_options()}
    for words in row.examples:
        for word in words:
            key = word.lstrip("+").partition("=")[0]
            assert key in known or key.removesuffix(".NAME") in known, word
        composed_with(row, words)


def test_every_name_is_answered_with_what_it_is_here() -> None:
    for row, name in NAMED:
        refusal = no_key(name)
        assert row.answer in refusal, name
        assert no_key(f"--{name}".replace("_", "-")).endswith(refusal.partition(": ")[2]), name


def test_no_other_name_is_a_key_here() -> None:
    own = {*config_names(), *group_options()}
    assert [name for _, name in NAMED if name in own] == []


def test_four_projects_have_sixty_names() -> None:
    count = {project: sum(len(row.of(project)) for row in table()) for project in PROJECTS}
    assert sum(count.values()) >= 60 and min(count.values()) >= 10, count


def test_options_of_others_are_options_here() -> None:
    for group, options in content()["options"].items():
        known = group_options()[group]
        for own, others in options.items():
            for other in others:
                assert other not in known, (group, other)
                assert f"did you mean {own}?" in no_option(group, other, known), (group, other)


def test_options_of_sbatch_are_answered_with_keys_of_the_launcher() -> None:
    known = {field.name for field in fields(SlurmOptions)}
    for word, key in content()["sbatch"].items():
        assert word not in known and key in known, word
        assert f"hydra.launcher.{key}" in no_key(f"hydra.launcher.{word}".replace("_", "-")), word
    assert "additional_parameters={mail-user: VALUE}" in no_key("hydra.launcher.mail_user")


@pytest.mark.pages
def test_the_table_of_the_page_is_current() -> None:
    page = (conf_folder().parent / "docs" / "coming_from.md").read_text(encoding="utf-8")
    assert page == with_table(page), "run `make docs`"
    listed = {name for row in table() for project in PROJECTS for name in row.of(project)}
    assert [name for name in listed if f"`{name}`" not in page] == []


LINES = {
    "num_generations=8": "run.group_size",
    "+num_generations=8": "run.group_size",
    "--num_generations 8": "run.group_size",
    "--num-generations=8": "run.group_size",
    "actor_rollout_ref.rollout.n=8": "run.group_size",
    "+actor_rollout_ref.rollout.n=8": "run.group_size",
    "data.train_files=x": "task=prompts task.path",
    "--algo.kl.init_coef 0.1": "algo.kl_coef",
    "algo.kl.init_coef=0.1": "algo.kl_coef",
    "top_p=0.9": "generator.temperature",
    "algo=ppo_clip": "ppo",
    "mode=asynchronous": "async",
    "reward@judge=llm_judge": "endpoint",
}


@pytest.mark.parametrize("line", LINES)
def test_the_command_line_answers_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    assert call("train", *line.split(), monkeypatch=monkeypatch) == 2
    (text,) = capsys.readouterr().err.splitlines()
    assert LINES[line] in text, text
