"""Runs name the CPU kernels that computed them, and can choose those that every machine has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlhf_lab.cli import main as door
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.runs import kernels, provenance
from rlhf_lab.runs.kernels import PORTABLE, Kernels, RestartNeeded, label
from rlhf_lab.runs.manifest import kernels_in
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.summaries import summary
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support import operation_digests


@pytest.fixture
def has_avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "flags", lambda: {"avx2"})
    for name in PORTABLE:
        monkeypatch.delenv(name, raising=False)


def test_portable_kernels_need_a_new_start_unless_the_environment_has_them(
    config_of: MakeConfig, has_avx2: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of("kernels=portable")
    with pytest.raises(RestartNeeded) as needed:
        check(config)
    assert needed.value.variables == PORTABLE
    for name, value in PORTABLE.items():
        monkeypatch.setenv(name, value)
    check(config)
    monkeypatch.setenv("MKL_CBWR", "AVX512")
    with pytest.raises(RestartNeeded):
        check(config)
    check(config_of())


def test_the_command_starts_itself_again_with_the_same_words(
    has_avx2: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Started(BaseException):
        pass

    def execve(path: str, words: list[str], variables: dict[str, str]) -> None:
        started.append((path, words, {name: variables[name] for name in PORTABLE}))
        raise Started

    started: list[object] = []
    monkeypatch.setattr(os, "execve", execve)
    words = ["train", "debug=tiny", "kernels=portable", f"output.root={tmp_path}"]
    monkeypatch.setattr(sys, "argv", ["rlhf-lab", *words])
    with pytest.raises(Started):
        door.command_line()
    assert started == [
        (sys.executable, [sys.executable, "-P", "-m", "rlhf_lab.cli.main", *words], PORTABLE)
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("generator=vllm", "vLLM has kernels of its own; pass generator=hf"),
        ("engine.device=cuda", "engine.device=cuda"),
        ("generator.device=cuda", "generator.device=cuda"),
    ],
)
def test_kernels_that_are_not_the_processors_are_refused(
    config_of: MakeConfig, has_avx2: None, override: str, reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        check(config_of("kernels=portable", override))


def test_portable_kernels_are_refused_where_they_cannot_be_had(
    has_avx2: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"MKL_CBWR=COMPATIBLE .* in the environment of torchrun"):
        kernels.require(Kernels.portable, world_size=2)
    monkeypatch.setattr(kernels, "flags", lambda: {"asimd"})
    with pytest.raises(UserError, match="needs an x86 processor with AVX2"):
        kernels.require(Kernels.portable, world_size=1)


def test_flags_are_those_that_libraries_have_kernels_for(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu avx avx2 avx512f amx_tile fma hypervisor\n\n")
    assert kernels.flags(path) == {"avx", "avx2", "avx512f", "amx_tile", "fma"}
    path.write_text("Features\t: fp asimd sve2 crc32\n")
    assert kernels.flags(path) == {"asimd", "sve2"}
    assert kernels.flags(tmp_path / "absent") == set()


def test_labels_tell_kernels_apart() -> None:
    facts = {"capability": "AVX512", "libraries": ["2024.2"], "flags": ["avx2"], "environment": {}}
    assert label(facts) == "AVX512 (2024.2)"
    assert label(facts | {"processor": "Apple M1"}) == "AVX512 Apple M1 (2024.2)"
    assert label(facts | {"flags": ["amx_tile"]}) == "AVX512 AMX (2024.2)"
    assert label(facts | {"environment": {"MKL_CBWR": "AVX2"}}) == "AVX512 MKL_CBWR=AVX2 (2024.2)"
    # What the processor has beyond them does not matter to portable kernels.
    portable = facts | {"environment": dict(PORTABLE), "capability": "AVX2"}
    assert label(portable) == label(portable | {"flags": []}) == "portable (2024.2)"
    assert label({}) == ""


def test_a_run_names_its_kernels_and_those_it_had_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RunDirectory.create(tmp_path / "run", {}, "")
    first = kernels_in(record.manifest)
    assert first == label(kernels.facts()) and kernels.facts()["capability"] in first
    record.finish("stopped")
    other = provenance.host() | {"kernels": kernels.facts() | {"capability": "NEON"}}
    monkeypatch.setattr(provenance, "host", lambda: other)
    again = RunDirectory.resume(tmp_path / "run", {}, "")
    assert again.manifest["resumed"][-1]["kernels"] == first
    assert kernels_in(again.manifest).startswith("NEON")


def test_stages_of_other_kernels_are_other_products(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    native, portable = (
        Artifacts(config_of(f"kernels={name}"), Console(quiet=True)).folders()
        for name in ("native", "portable")
    )
    assert not set(native) & set(portable)


@pytest.mark.slow
@pytest.mark.skipif("avx2" not in kernels.flags(), reason="no AVX2")
def test_portable_kernels_do_not_depend_on_what_the_processor_offers() -> None:
    portable = operation_digests.with_kernels(PORTABLE)
    assert operation_digests.differing(operation_digests.with_kernels({}), portable)
    for narrower in (
        {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
        {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
        {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F"},
    ):
        other = operation_digests.with_kernels(PORTABLE | narrower)
        assert operation_digests.differing(portable, other) == []


@pytest.mark.slow
@pytest.mark.skipif("avx2" not in kernels.flags(), reason="no AVX2")
def test_a_run_with_portable_kernels_restarts_itself_and_finishes(
    cache: Path, tmp_path: Path
) -> None:
    words = ["train", "debug=tiny", "kernels=portable", "eval=none", f"output.cache={cache}"]
    done = subprocess.run(
        [sys.executable, "-m", "rlhf_lab.cli.main", *words, f"output.dir={tmp_path / 'run'}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    manifest = summary(tmp_path / "run", "run").manifest
    assert manifest["state"] == "finished"
    assert kernels_in(manifest).startswith("portable")
