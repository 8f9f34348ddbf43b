"""`make gpu-check`: its form for CPUs, on a machine that has little more than torch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.gpu import __main__ as program
from benchmarks.gpu import page, sections, supervise
from benchmarks.gpu.findings import Finding, Refused, Setting, Verdict, info, judged
from benchmarks.gpu.generation import judged_gap
from benchmarks.gpu.sections import SECTIONS, Section, chosen
from benchmarks.gpu.update import products_of
from rlhf_lab.runs.processes import birth
from tests.support.bare_machine import bare_python, files_of, needed
from tests.support.survival import descendants, wait_until

ROOT = Path(__file__).resolve().parents[3]
PATH = os.pathsep.join([str(ROOT), str(ROOT / "src")])
WHEELS = ("hydra-core", "omegaconf", "antlr4-python3-runtime", "pydantic", "annotated-types")
FACTS = {"device": "cuda", "name": "NVIDIA H200", "torch": "2.13.0", "driver": "580.1"}


def wheel_of(name: str, folder: Path) -> None:
    """Pack an installed distribution and all that it needs, as a wheel is packed."""
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as wheel:
        for distribution in needed([name], set()).values():
            for top, path in files_of(distribution).items():
                files = sorted(path.rglob("*")) if path.is_dir() else [path]
                for file in files:
                    if file.is_file() and "__pycache__" not in file.parts:
                        inside = Path(top, file.relative_to(path)) if path.is_dir() else Path(top)
                        if str(inside) not in wheel.namelist():
                            wheel.write(file, str(inside))


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "names",
    [
        "machine,update",
        "generation,weights",
        # Minutes each, of what other tests have too: runs in every mode, and overlap.
        "parity,bits",
        "overlap,tenants,learning",
        "system",
    ],
)
def test_all_sections_pass_on_the_cpu_of_a_bare_machine(tmp_path: Path, names: str) -> None:
    python = bare_python(tmp_path / "python")
    (tmp_path / "wheels").mkdir()
    for name in WHEELS:
        wheel_of(name, tmp_path / "wheels")
    out = tmp_path / "out"
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
        "PYTHONPATH": PATH,
        "SECTIONS": names,
        "OUT": str(out),
        "GPU_CHECK_WHEELS": str(tmp_path / "wheels"),
    }
    words = [str(python), "-m", "benchmarks.gpu"]
    done = subprocess.run(
        words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=1190
    )
    log = (out / supervise.LOG).read_text() if (out / supervise.LOG).is_file() else ""
    assert done.returncode == 0, done.stdout + done.stderr + log[-3000:]
    rows = supervise.rows_of(out / supervise.RESULTS)
    for section in chosen(names):
        found = supervise.findings_of(rows, section.number)
        assert len(found) > 1 and all(one.verdict is not Verdict.failed for one in found)
    names_ = {path.name for path in out.iterdir()}
    assert names_ == {supervise.RESULTS, supervise.LOG, "gpu_check.md"}


def test_without_wheels_a_bare_machine_is_told_what_to_make(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "python")
    environment = {"PYTHONPATH": PATH, "PATH": os.environ["PATH"], "OUT": "out"}
    words = [str(python), "-m", "benchmarks.gpu", "--device", "cpu"]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no hydra, omegaconf, antlr4" in done.stderr
    assert "make gpu-check-wheels" in done.stderr


@pytest.mark.parametrize(
    ("far", "plain", "dtype", "is_well"),
    [
        (9e-5, 1.0, torch.float32, True),
        (2e-4, 1.0, torch.float32, False),
        (0.014, 0.001, torch.bfloat16, True),
        (0.016, 0.001, torch.bfloat16, False),
        (0.037, 0.025, torch.bfloat16, True),
        (0.038, 0.025, torch.bfloat16, False),
    ],
)
def test_log_probs_in_bfloat16_are_compared_with_those_of_transformers_own_loop(
    far: float, plain: float, dtype: torch.dtype, is_well: bool
) -> None:
    verdict = Verdict.passed if is_well else Verdict.failed
    assert judged_gap("", far, plain, dtype).verdict is verdict


def test_no_module_imports_a_client_of_http_by_itself() -> None:
    """Which one is there depends on the version of huggingface_hub."""
    sources = {path: path.read_text("utf-8") for path in (ROOT / "src/rlhf_lab").rglob("*.py")}
    assert not [
        str(path)
        for path, text in sources.items()
        if re.search(r"^(import|from) httpx", text, re.M)
    ]


def test_sections_are_chosen_by_number_and_name() -> None:
    assert [one.number for one in chosen("bits, 0,2")] == [2, 0]
    assert chosen("") == list(SECTIONS)
    with pytest.raises(Refused, match="SECTIONS=99: 99 is none; choose of 0 machine, 1 par"):
        chosen("99")


@pytest.mark.pages
def test_the_sections_on_a_gpu_end_within_the_time_of_the_documented_job() -> None:
    job = re.search(r"sbatch .*--time=(\d+) ", (ROOT / "docs/gpu.md").read_text("utf-8"))
    assert job is not None
    assert sum(section.limit("cuda") for section in SECTIONS) <= 60 * int(job[1])


def test_sections_are_numbered_from_0() -> None:
    assert [section.number for section in SECTIONS] == list(range(len(SECTIONS)))


def plan_for(tmp_path: Path, *these: Section) -> supervise.Plan:
    setting = Setting("cpu", True, str(tmp_path / "scratch"))
    return supervise.Plan(these, setting, tmp_path / "out")


@pytest.mark.parametrize(
    ("code", "seconds", "expected"),
    [
        ("raise ValueError('broken')", 60, "exit code 1: ValueError: broken"),
        ("import time; time.sleep(600)", 1, "ended after its limit of 1 s"),
    ],
)
def test_a_section_that_does_not_end_well_fails_and_the_next_is_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    seconds: int,
    expected: str,
) -> None:
    monkeypatch.setattr(sections, "ON_CPU", seconds)
    popen = subprocess.Popen

    def start(words: list[str], **options: Any) -> Any:
        return popen([words[0], "-c", code], **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    assert not supervise.run_all(plan_for(tmp_path, *SECTIONS[:2]))
    rows = supervise.rows_of(tmp_path / "out" / supervise.RESULTS)
    for number in (0, 1):
        failed, took = supervise.findings_of(rows, number)
        assert (failed.name, failed.measured) == ("section", expected)
        assert failed.verdict is Verdict.failed and took.name == "section took"


@pytest.mark.usefixtures("processes")
def test_a_check_that_is_ended_leaves_no_process_of_a_section(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.gpu", "--device=cpu", "--sections=machine"]
    words.append(f"--out={tmp_path}")
    check = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
    wait_until(lambda: len(descendants(check.pid)) > 0)
    (section, *_) = descendants(check.pid)
    check.terminate()
    assert check.wait(60) == 128 + signal.SIGTERM
    wait_until(lambda: birth(section) is None)


def test_results_of_several_calls_add_up(tmp_path: Path) -> None:
    """So a check fits into jobs of minutes. A section that is run again replaces its own rows, and
    those of another kind of device go."""
    plan = plan_for(tmp_path, SECTIONS[0], SECTIONS[3])
    plan.out.mkdir(parents=True)
    rows = [
        {"section": 0, "facts": {"device": "cpu"}},
        row(0, info("old", 1.0)),
        {"section": 1, "facts": {"device": "cpu"}},
        row(1, info("kept", 2.0)),
        {"section": 2, "facts": {"device": "cuda"}},
        row(2, info("of a GPU", 3.0)),
    ]
    plan.results.write_text("".join(json.dumps(one) + "\n" for one in rows))
    assert supervise.of_other_sections(plan) == rows[2:4]
    before = [{"facts": {"device": "cpu"}}, row(1, info("of a former version", 1.0))]
    plan.results.write_text("".join(json.dumps(one) + "\n" for one in before))
    assert supervise.of_other_sections(plan) == []


def test_a_section_of_another_day_names_it(tmp_path: Path) -> None:
    rows = [
        {"section": 0, "facts": {**FACTS, "day": "2026-01-01"}},
        row(0, info("copy", 4.3, "TB/s")),
        {"section": 2, "facts": {**FACTS, "day": "2026-01-02"}},
        row(2, info("seconds", 1.0)),
    ]
    text = page.text_of(rows)
    assert text.startswith("Measured on 2026-01-02 on NVIDIA H200")
    assert text.count("Measured on 2026-01-01 on NVIDIA H200") == 1
    assert (
        text.index("### 0") < text.index("2026-01-01") < text.index("| copy") < text.index("### 2")
    )


def results(tmp_path: Path, device: str) -> Path:
    path = tmp_path / "results.jsonl"
    rows: list[dict[str, Any]] = [
        {"section": 0, "facts": {**FACTS, "device": device}},
        row(0, info("copy", 4.2999, "TB/s", "4.3")),
        row(2, judged("lagged = sync | x", False, False, expected="equal digests")),
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(section: int, finding: Finding) -> dict[str, Any]:
    return {"section": section, **vars(finding)}


def test_the_page_has_what_was_measured_beside_what_was_expected(tmp_path: Path) -> None:
    docs = tmp_path / "gpu.md"
    docs.write_text(f"# Title\n\n{page.BEGIN}\nold\n{page.END}\n\nRest.\n")
    page.write(results(tmp_path, "cuda"), docs)
    text = docs.read_text()
    assert text.startswith(f"# Title\n\n{page.BEGIN}\n") and text.endswith("Rest.\n")
    assert "on NVIDIA H200, driver 580.1, torch 2.13.0." in text and "old" not in text
    assert "| copy | 4.3 TB/s | 4.3 | INFO |" in text
    assert "| lagged = sync \\| x | False | equal digests | FAIL |" in text
    assert page.ON_CPU not in text and page.is_of_a_gpu(docs)
    page.write(results(tmp_path, "cpu"), docs)
    assert page.ON_CPU in docs.read_text() and not page.is_of_a_gpu(docs)


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    docs = tmp_path / "gpu.md"
    docs.write_text("# Title\n")
    with pytest.raises(Refused, match="has no lines"):
        page.write(results(tmp_path, "cuda"), docs)


def test_a_machine_without_torch_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "HAS_GPU", "import no_such_module")
    assert program.main(["--sections", "machine", "--out", str(tmp_path)]) == 2
    assert "cannot import torch: use the one that can" in capsys.readouterr().err


def test_what_is_chosen_wrongly_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert program.main(["--sections", "zero", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("gpu_check: SECTIONS=zero: zero is none; choose of")


def test_an_embedding_multiplies_nothing_and_the_head_multiplies_answers_alone() -> None:
    sizes = {"hidden_size": 4, "intermediate_size": 8, "num_attention_heads": 1}
    tiny = LlamaConfig(vocab_size=10, num_hidden_layers=1, tie_word_embeddings=False, **sizes)
    # Attention 4 * 16, the MLP 3 * 32, three norms of 4; the head 40.
    assert products_of(LlamaForCausalLM(tiny), 100, 5) == (64 + 96 + 12) * 105 + 40 * 5
    tiny.tie_word_embeddings = True
    assert products_of(LlamaForCausalLM(tiny), 100, 5) == (64 + 96 + 12) * 105 + 40 * 5
