"""Full, read-only and foreign disks end in one line; names of any sign; rights as the umask has
them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from safetensors import SafetensorError
from safetensors import torch as safetensors

from rlhf_lab.cli.arguments import is_option
from rlhf_lab.cli.main import run_command
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.rewards.judge.calls import JudgeCache
from rlhf_lab.runs.disk import (
    atomic_file,
    atomic_folder,
    disk_error,
    disk_error_text,
    follow_umask,
    remove_drafts,
    save_file,
    umask,
    verify,
    writing,
)
from rlhf_lab.runs.locks import try_lock
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.override_text import quoted
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from tests.conftest import MakeConfig
from tests.experiment.test_checks import SUMS
from tests.support.examples import call

# Rights.


@contextmanager
def masked(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def rights(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): oct(stat.S_IMODE(path.lstat().st_mode))
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize(
    ("mask", "folder", "file"), [(0o002, "0o775", "0o664"), (0o027, "0o750", "0o640")]
)
def test_files_of_a_cache_have_the_rights_of_new_ones(
    tmp_path: Path, mask: int, folder: str, file: str
) -> None:
    with masked(mask):
        assert umask(tmp_path) == mask
        with atomic_folder(tmp_path / "stage" / "key", {}) as draft:
            save_file({"a": torch.zeros(2)}, draft / "weights.safetensors")
            safetensors.save_file({"a": torch.zeros(2)}, draft / "theirs.safetensors")
            (draft / "below").mkdir()
            (draft / "below" / "rows.json").write_text("{}")
        JudgeCache(tmp_path / "judge").settle("abc", "yes")
        with try_lock(tmp_path / "lock"):
            pass
    found = rights(tmp_path)
    assert len(found) == 11
    for name, mode in found.items():
        assert mode == (folder if (tmp_path / name).is_dir() else file), name


def test_the_group_of_a_shared_folder_is_handed_on(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    with masked(0o002):
        with atomic_folder(tmp_path / "key", {}) as draft:
            (draft / "file").write_text("")
            (draft / "file").chmod(0o700)
            (draft / "link").symlink_to("/nowhere")
        assert stat.S_IMODE((tmp_path / "key" / "file").stat().st_mode) == 0o764, "it still runs"
        assert (tmp_path / "key").stat().st_mode & stat.S_ISGID


def test_the_umask_is_found_without_a_change_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with masked(0o037):
        with monkeypatch.context() as patch:
            patch.delattr(os, "umask")
            assert umask(tmp_path) == 0o037
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", sorted({errno.EPERM, errno.EINVAL, errno.ENOTSUP}))
def test_a_file_system_needs_neither_links_nor_rights_nor_folders_that_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    plain = os.fsync

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    def flushes_files(descriptor: int) -> None:
        refused() if stat.S_ISDIR(os.fstat(descriptor).st_mode) else plain(descriptor)

    for name, fault in (("link", refused), ("chmod", refused), ("fsync", flushes_files)):
        monkeypatch.setattr(os, name, fault)
    with atomic_folder(tmp_path / "key", {"stage": "sft"}) as draft:
        (draft / "file").write_text("")
    assert verify(tmp_path / "key")["stage"] == "sft"
    RunDirectory.create(tmp_path / "run", {}, "seed: 1\n").finish("finished")
    with pytest.raises(UserError, match="already holds a run"):
        RunDirectory.create(tmp_path / "run", {}, "seed: 1\n")


@pytest.mark.parametrize("call", ["fsync", "replace", "rename"])
def test_a_fault_of_the_disk_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, broken)
    with pytest.raises(OSError) as raised, atomic_folder(tmp_path / "key", {}) as draft:
        (draft / "file").write_text("")
    assert raised.value.errno == errno.EIO and "key" in str(raised.value.filename)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_file_takes_the_place_of_no_pipe_device_or_folder(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(place := tmp_path / "table.csv")
    before = place.stat()
    with pytest.raises(FileExistsError) as refused, atomic_file(place) as draft:
        draft.write_text("1")
    assert disk_error(refused.value) is refused.value and refused.value.filename == str(place)
    assert os.path.samestat(before, place.stat())
    assert [*tmp_path.iterdir()] == [place]


def test_drafts_of_one_product_are_removed_and_others_stay(tmp_path: Path) -> None:
    for name in ("abc", "abcd"):
        with pytest.raises(KeyError), atomic_folder(tmp_path / name, {}) as draft:
            draft.with_name(f"{draft.name}x").mkdir()  # as a process that was killed leaves it
            raise KeyError
    remove_drafts(tmp_path, "abc")
    (left,) = tmp_path.iterdir()
    assert "abcd" in left.name
    remove_drafts(tmp_path)
    assert list(tmp_path.iterdir()) == []


# Faults.

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/runs/a/weights")


def test_errors_of_libraries_in_rust_are_errors_of_the_system(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "weights.safetensors"
    with pytest.raises(FileNotFoundError, match=r"weights\.safetensors"):
        save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(OSError, match="No space left on device: '/x'") as full, writing(Path("/x")):
        raise SafetensorError('I/O error: no room (os error 28) at path "/x/.tmp"')
    assert disk_error_text(full.value) == (
        "/x: No space left on device: free space, or choose another disk"
    )
    with pytest.raises(ValueError, match="another"), writing(Path("/x")):
        raise ValueError("another")


def test_a_fault_is_found_behind_what_it_caused() -> None:
    error = RuntimeError("a worker failed")
    assert disk_error(error) is None and disk_error(OSError(errno.ENOENT, "no")) is None
    error.__cause__ = ValueError("x")
    error.__cause__.__cause__ = FULL
    assert disk_error(error) is FULL


def failing(number: int, path: str = "/somewhere") -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number), path)

    return fail


@pytest.mark.parametrize(("number", "code"), [(errno.EROFS, 2), (errno.EACCES, 2), (errno.EIO, 1)])
def test_a_command_of_the_analysis_ends_in_one_line(
    capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    assert exit_code("tables", failing(number)) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tables: /somewhere: {os.strerror(number)}: ")


def test_a_full_disk_ends_a_run_in_a_line_that_names_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "it's a run"
    given = [*SUMS, "run.updates=4", "checkpoint.rounds=1", "output.quiet=true",
             f"output.dir={quoted(folder)}", f"output.cache={tmp_path}/cache"]  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "save_policy", failing(errno.ENOSPC, "/disk/policy"))
        assert call("train", *given, monkeypatch=patch) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "rlhf-lab train:" in line]
    assert lines == [
        "rlhf-lab train: /disk/policy: No space left on device: free space, or choose another "
        "disk; the run has failed, its newest checkpoint is of round 3; `rlhf-lab resume "
        f"'{tmp_path}/it'\"'\"'s a run'` continues it"
    ]
    assert run_command("resume", [str(folder)]) == 0
    assert (folder / "policy" / "config.json").is_file()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_cache_that_cannot_be_written_is_refused_with_its_option(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    config = make_config(f"output.cache={tmp_path}/cache", "sft.steps=1")
    monkeypatch.setattr("rlhf_lab.runs.locks.os.open", failing(number, f"{tmp_path}/cache"))
    with pytest.raises(UserError, match=rf"^output.cache={tmp_path}/cache: .*name another folder"):
        Artifacts(config, Console(quiet=True)).sft(config.model)


def test_a_file_in_the_way_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    quick = [*SUMS, "output.quiet=true", "run.updates=1"]
    for option in ("output.dir", "output.cache"):
        other = f"output.{'cache' if option == 'output.dir' else 'dir'}={tmp_path}/{option}"
        code = call(
            "train", *quick, f"{option}={tmp_path}/file/below", other, monkeypatch=monkeypatch
        )
        lines = [line for line in capsys.readouterr().err.splitlines() if "rlhf-lab train:" in line]
        assert code == 2 and len(lines) == 1 and f"{tmp_path}/file" in lines[0], (option, lines)
    code = call("train", *quick, f"output.dir={tmp_path}/{'x' * 300}", monkeypatch=monkeypatch)
    assert code == 2 and "File name too long" in capsys.readouterr().err


# Names.

SIGNS = st.lists(
    st.sampled_from(["\\", "'", '"', "$", "{", "}", "${", "${x}", "\\${", "\n", "=", ",", "é", "a"])
    | st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    min_size=1,
    max_size=8,
).map("".join)


@given(SIGNS)
def test_a_quoted_value_of_any_signs_comes_back(parser: Any, value: str) -> None:
    (override,) = parser.parse_overrides([f"output.dir={quoted(value)}"])
    assert OmegaConf.create({"dir": override.value()}).dir == value


@pytest.fixture(scope="session")
def parser() -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create()


def test_a_folder_is_told_from_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("lr=1") / "seed=2"
    run.mkdir(parents=True)
    assert is_option("lr=1/seed=2") and is_option("seed=2") and is_option("-m") and is_option("~a")
    (run / "manifest.json").write_text("{}")
    assert not is_option("lr=1/seed=2") and not is_option(f"{tmp_path}/a=b") and not is_option("a")
    assert is_option("run.name=" + "x" * 5000)


@pytest.fixture
def odd(make_config: MakeConfig, tmp_path: Path) -> Path:
    """A run in a folder whose name has signs that Hydra, OmegaConf and shells take apart."""
    folder = tmp_path / "a=1,b" / "${x} ${oc.env:HOME}" / 'it\'s "so"\nünd #%&[*]\\'
    config = make_config(
        *SUMS[2:], "run.updates=2", "eval.snapshots=2", f"output.dir={quoted(folder)}"
    )
    assert config.output.dir == str(folder)
    return folder


def test_a_run_in_a_folder_of_any_name_is_resumed_judged_and_replayed(
    odd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*SUMS, "run.updates=2", "eval.snapshots=2", "output.quiet=true",
             f"output.cache={tmp_path}/cache"]  # fmt: skip
    assert run_command("train", [*given, f"output.dir={quoted(odd)}"]) == 0
    assert run_command("resume", [str(odd)]) == 0
    judged = ["eval=quick", "eval.prompts=4", "eval.label=again"]
    assert run_command("evaluate", [str(odd), *judged]) == 0
    assert (odd / "evals-again.jsonl").is_file()
    assert run_command("replay", [str(odd), f"output.dir={tmp_path}/again"]) == 0
    again = tmp_path / "again"
    assert (again / "schedule.jsonl").read_bytes() == (odd / "schedule.jsonl").read_bytes()
    assert run_command("export", [str(odd), f"{tmp_path}/b=c"]) == 0
    assert (tmp_path / "b=c" / "config.json").is_file()
    for command in ("timeline", "plan"):
        assert run_command(command, [str(odd)]) == 0
    capsys.readouterr()


def test_bytes_that_are_no_text_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sur\\udcff: its bytes are no UTF-8"):
        run_command("train", [*SUMS, f"output.dir={tmp_path}/sur\udcff"])
    assert list(tmp_path.iterdir()) == []


def test_links_are_left_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o600)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "file")
    follow_umask(tmp_path / "folder")
    assert rights(tmp_path)["file"] == "0o600"
