"""No key gets into what a run writes down."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from rlhf_lab.cli.exit_codes import mask_tracebacks
from rlhf_lab.cli.main import command_line
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run.lifecycle import end_early
from rlhf_lab.rewards.judge.options import EndpointReward
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.secrets import masked, secret_in
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig

VALUE = "0123456789abcdef0123"
FORM = "hf_" + "a1" * 10


def test_secrets_are_told_from_other_texts() -> None:
    environment = {"WANDB_API_KEY": VALUE, "HOME": "/srv/somebody-else", "MY_TOKEN": "word"}
    assert secret_in(f"a {VALUE} b", environment) == "the value of the environment's WANDB_API_KEY"
    assert secret_in("http://me:pass@host/x", environment).startswith("an address")
    assert secret_in(FORM, {}) == "a key or token"
    for plain in ("/srv/somebody-else", "word", "http://host:80/x", "NAME@REVISION", "sk-learn"):
        assert secret_in(plain, environment) == ""


def test_secrets_are_replaced_and_the_rest_is_kept() -> None:
    environment = {"A_KEY": VALUE, "B_KEY": VALUE + "-and-more"}
    text = f"x {VALUE}-and-more y {VALUE} http://me:pass@host/x {FORM} z"
    assert masked(text, environment) == "x *** y *** http://***@host/x *** z"


@pytest.mark.parametrize(
    ("override", "key"),
    [
        (f"tracker.wandb_entity={VALUE}", "tracker.wandb_entity"),
        (f"tracker.wandb_tags=[a,{FORM}]", r"tracker.wandb_tags\[1\]"),
        ("output.root=http://me:pass@host/runs", "output.root"),
        (
            "generator=vllm generator.urls=[http://me:pass@127.0.0.1:80]",
            r"generator.urls\[0\]",
        ),
        (f"model=pretrained model.path=https://{FORM}@hub/x", "model.path"),
    ],
)
def test_a_config_with_a_secret_is_refused_without_repeating_it(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch, override: str, key: str
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", VALUE)
    with pytest.raises(UserError, match=rf"{key} holds .* keep it in the environment") as caught:
        check(config_of(*override.split()))
    assert not any(secret in str(caught.value) for secret in (VALUE, FORM, "pass@"))


@pytest.mark.parametrize("variable", ["sk-proj-123456", VALUE, "my_key"])
def test_a_key_in_the_place_of_its_variables_name_is_not_repeated(variable: str) -> None:
    with pytest.raises(UserError, match="not the name of a variable in capital") as caught:
        EndpointReward(key_variable=variable)
    assert variable not in str(caught.value)


@pytest.mark.parametrize("field", ["api_key", "Authorization", "auth-token"])
def test_no_key_goes_into_the_fields_of_a_request(field: str) -> None:
    with pytest.raises(UserError, match=r"reward\.key_variable names") as caught:
        EndpointReward(extra=f'{{"{field}": "{VALUE}"}}')
    assert VALUE not in str(caught.value)


def test_the_error_that_a_manifest_keeps_has_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", VALUE)
    record = RunDirectory.create(tmp_path / "run", {}, "")
    try:
        raise ConnectionError(f"http://me:pass@host refused {VALUE}")
    except ConnectionError as error:
        end_early(record, error)
    kept = (tmp_path / "run" / "manifest.json").read_text()
    assert "ConnectionError: http://***@host refused ***" in kept
    assert VALUE not in kept


@pytest.mark.parametrize("words", [["train"], ["train", "-m"], ["evaluate", "RUN"], ["sync"]])
def test_an_override_with_a_secret_is_not_repeated_by_any_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", VALUE)
    monkeypatch.setattr(sys, "argv", ["rlhf-lab", *words, f"tracker.wandb_entity={VALUE}"])
    assert command_line() == 2
    said = "".join(capsys.readouterr())
    assert "tracker.wandb_entity: its value holds the value of the environment's WANDB" in said
    assert VALUE not in said


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        *((name, True) for name in ("GH_PAT", "PAT", "DB_PASSWD", "A_CREDENTIAL", "CREDENTIALS")),
        *((name, True) for name in ("MY_TOKEN_2", "SSH_PASSPHRASE", "x_api_key")),
        *((name, False) for name in ("PATH", "COMPAT", "KEYBOARD", "TOKENIZER", "PASSWDS_FILE")),
    ],
)
def test_variables_that_hold_secrets_are_known_by_their_last_word(
    name: str, is_secret: bool
) -> None:
    assert (masked(f"a {VALUE}", {name: VALUE}) == "a ***") == is_secret


def test_the_path_of_a_file_with_credentials_is_no_secret(tmp_path: Path) -> None:
    environment = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path)}
    assert masked(f"in {tmp_path}", environment) == f"in {tmp_path}"


def test_no_traceback_shows_a_secret_or_what_a_terminal_obeys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GH_PAT", VALUE)
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    mask_tracebacks()

    def fail() -> None:
        raise RuntimeError(f"refused {VALUE}\x1b]0;title\x07")

    try:
        fail()
    except RuntimeError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    printed = capsys.readouterr().err
    assert printed.count("RuntimeError: refused ***\\x1b]0;title\\x07") == 2
    assert VALUE not in printed and "\x1b" not in printed
