"""What only Linux has stands in few places, and the project resolves and imports elsewhere: on a
Mac, and inside programs of others."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rlhf_lab.cli.completion import BASH
from rlhf_lab.runs import provenance
from rlhf_lab.types.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
OF_LINUX = re.compile(r"/proc\b|/dev/shm|sched_\w+affinity|prctl|/sys/fs")
# Each works without what it looks for.
NAMED = {
    "src/rlhf_lab/runs/processes.py",
    "src/rlhf_lab/runs/forkserver.py",  # the name of a process
    "src/rlhf_lab/runs/provenance.py",  # boot, cores and their quota
    "src/rlhf_lab/runs/kernels.py",  # the processor
    "src/rlhf_lab/runs/memory.py",  # the peak of a child of the fork server
    "src/rlhf_lab/experiment/planning/forecast.py",  # swap
    "src/rlhf_lab/rollout/shared.py",
    "src/rlhf_lab/rollout/generators/vllm/weights.py",
    "tests/support/survival.py",
    "tests/support/trials.py",
    "tests/support/cpu_seconds.py",
    "tests/support/like_mac/sitecustomize.py",
}
# Of Linux by their marker, or read the word alone.
OTHERS = {
    "tests/test_systems.py",
    "tests/slurm/test_slurm.py",
    "tests/with_vllm/test_vllm.py",
    "tests/runs/test_provenance.py",
    "tests/rollout/test_survival.py",
}


def test_what_only_linux_has_stands_in_named_files() -> None:
    found = set()
    for top in ("src", "analysis", "benchmarks", "tests"):
        for path in (ROOT / top).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if OF_LINUX.search(text) and "pytest.mark.linux" not in text:
                found.add(path.relative_to(ROOT).as_posix())
    assert found <= NAMED | OTHERS


def test_make_and_bash_of_a_mac_can_read_ours() -> None:
    """GNU make 3.81 and bash 3.2."""
    later = r"^\.ONESHELL|::=|^\w+ *!=|\$\(file |&:"
    assert re.findall(later, (ROOT / "Makefile").read_text(), re.MULTILINE) == []
    assert re.findall(r"mapfile|readarray|\[-\d", BASH) == []


def test_the_lock_names_the_system_of_what_no_mac_has() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    of_cuda = [line for line in lines if re.match(r"nvidia-|cuda-|triton|deepspeed", line)]
    assert len(of_cuda) > 10
    assert [line for line in of_cuda if "sys_platform == 'linux'" not in line] == []


def compile_for(platform: str, requirements: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "in.txt").write_text(requirements)
    words = ["uv", "pip", "compile", "--quiet", "in.txt", "--python-version", "3.11"]
    words += ["--python-platform", platform, "-c", str(ROOT / "constraints.txt")]
    environment = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": "14.0"}
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv")
def test_a_mac_finds_all_packages(tmp_path: Path) -> None:
    if compile_for("x86_64-unknown-linux-gnu", "iniconfig", tmp_path).returncode:
        pytest.skip("needs an index of packages")
    done = compile_for("aarch64-apple-darwin", f"rlhf-lab[dev,docs] @ file://{ROOT}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\nappnope==" in done.stdout and "\nnvidia-" not in done.stdout
    assert "\ndeepspeed==" not in done.stdout


def test_an_apple_gpu_is_refused_with_the_reason() -> None:
    from rlhf_lab.models.devices import check_name

    with pytest.raises(UserError, match=r"engine\.device=mps: .*float64.*auto or cpu"):
        check_name("mps", "engine.device")


SEEN = """
import json, logging, os, signal, sys, warnings

def seen():
    loggers = {name: logger for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)}
    found = {
        "environment": dict(os.environ),
        "signals": {number: str(signal.getsignal(number)) for number in signal.valid_signals()},
        "warnings": list(map(str, warnings.filters)),
        "loggers": {name: [logger.level, logger.propagate, len(logger.handlers),
            len(logger.filters)] for name, logger in {"": logging.root, **loggers}.items()},
        "hooks": [str(hook) for hook in (sys.excepthook, sys.displayhook, *sys.meta_path)],
        "paths": [os.getcwd(), *sys.path],
        "umask": os.umask(0o22),
    }
    os.umask(found["umask"])
    if torch := sys.modules.get("torch"):
        found["torch"] = list(map(str, (torch.get_num_threads(), torch.get_default_dtype(),
            torch.is_grad_enabled(), torch.initial_seed(), torch.get_rng_state().sum(),
            torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision())))
    return found
"""


def changes(imported: str, before: str = "") -> dict[str, object]:
    """What a program sees differently after an import, by kind."""
    script = textwrap.dedent(f"""
{before}
{SEEN}
before = seen()
{imported}
after = seen()
found = {{}}
for kind in after:
    if isinstance(after[kind], dict):
        names = after[kind].keys() | before[kind].keys()
        differ = [n for n in names if after[kind].get(n) != before[kind].get(n)]
    else:
        differ = [] if after[kind] == before[kind] else [before[kind], after[kind]]
    if differ:
        found[kind] = sorted(map(str, differ))
loaded = {{"torch", "transformers", "hydra", "numpy"}} & sys.modules.keys()
print(json.dumps([found, sorted(loaded)]))
""")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, loaded = json.loads(done.stdout)
    return {**found, "loaded": loaded}


def test_an_import_changes_what_the_docs_name_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in provenance.WAITING:
        monkeypatch.delenv(name, raising=False)
    assert changes("import rlhf_lab") == {
        "environment": ["GOMP_SPINCOUNT", "KMP_BLOCKTIME"],
        "loggers": ["DeepSpeed"],
        "loaded": [],
    }
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert "environment" not in changes("import rlhf_lab")


@pytest.mark.slow
def test_no_module_of_a_run_changes_settings_of_torch_or_of_python() -> None:
    """Loggers and filters of warnings are those of the packages that are imported."""
    found = changes(
        "import rlhf_lab, rlhf_lab.cli.python, rlhf_lab.experiment.config.preloaded\n"
        "import rlhf_lab.experiment.run.lifecycle, rlhf_lab_analysis.plots.command",
        "import rlhf_lab, torch, matplotlib; from transformers import AutoModelForCausalLM",
    )
    assert found.keys() <= {"loggers", "loaded", "warnings"}
    assert "" not in found.get("loggers", ())  # type: ignore[operator]
