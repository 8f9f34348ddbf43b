"""The wheel works from any folder, with a user's own parts beside it: installed as a user would, in
an environment of its own that borrows the other packages of this one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import nbformat
import pytest
import setuptools

from rlhf_lab_analysis.notebooks.pairing import notebook_of

ROOT = Path(__file__).resolve().parents[1]
OWN_PROJECT = ROOT / "examples" / "own_project"
# What the wheel is built from.
SOURCES = ("src", "analysis", "benchmarks", "conf", "sweeps")
FILES = ("pyproject.toml", "README.md", "LICENSE")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
OFFLINE = ("--no-deps", "--no-index")
TINY = ("run.updates=2", "run.groups_per_update=4", "eval.prompts=8", "sft.steps=2")
# Builds, installs and runs of several programs, on a machine that may have other work.
pytestmark = pytest.mark.timeout(1800)
LEAVE_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info")


def run(*words: str | Path, cwd: Path, **environment: str) -> str:
    """The output of a command that succeeds."""
    settings = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = list(map(str, words))
    done = subprocess.run(
        command, cwd=cwd, env=settings | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def copied_sources(folder: Path) -> Path:
    """The sources alone: building leaves files beside them."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=LEAVE_OUT)
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executables of a new environment with both wheels."""
    base = tmp_path_factory.mktemp("installed")
    sources = [
        copied_sources(base / "sources"),
        Path(shutil.copytree(OWN_PROJECT, base / "own_project", ignore=LEAVE_OUT)),
    ]
    wheels = base / "wheels"
    run(*PIP, "wheel", *OFFLINE, "--no-build-isolation", "-w", wheels, *sources, cwd=base)
    venv.create(base / "env", with_pip=False)
    python = base / "env" / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(python, "-c", code, cwd=base).strip())
    others = sysconfig.get_path("purelib")
    (packages / "beside.pth").write_text(f"import site; site.addsitedir({others!r})\n")
    every = sorted(wheels.glob("*.whl"))
    assert len(every) == 2
    run(*PIP, "--python", python, "install", *OFFLINE, *every, cwd=base)
    return python.parent


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with nothing of this project, whose own package `analysis` is somebody else's."""
    folder = tmp_path / "elsewhere"
    (folder / "analysis").mkdir(parents=True)
    (folder / "analysis" / "__init__.py").write_text("raise RuntimeError('not this one')\n")
    return folder


@pytest.mark.slow
def test_an_installed_wheel_trains_sweeps_and_reports(
    bin_folder: Path, elsewhere: Path, processes: None
) -> None:
    lab = bin_folder / "rlhf-lab"
    code = "import rlhf_lab, rlhf_lab_analysis as a; print(rlhf_lab.__file__, a.__file__)"
    for file in run(bin_folder / "python", "-c", code, cwd=elsewhere).split():
        assert Path(file).is_relative_to(bin_folder.parent)
    code = "import importlib.util as u; print(u.find_spec('benchmarks'))"
    assert run(bin_folder / "python", "-c", code, cwd=elsewhere).strip() == "None"
    words = ["task=arithmetic", "debug=tiny", "output.dir=runs/one", "output.quiet=true"]
    run(lab, "train", *words, cwd=elsewhere)
    manifest = json.loads((elsewhere / "runs/one/manifest.json").read_text())
    assert (manifest["state"], manifest["plugins"]) == ("finished", [])
    listed = run(lab, "sweep", "staleness_nano", "stage_seed=1", "dry=true", cwd=elsewhere)
    assert "9 jobs" in listed
    run(lab, "report", "runs", "--out", "report.html", cwd=elsewhere)
    assert "arithmetic" in run(lab, "tables", "runs", cwd=elsewhere)
    assert (elsewhere / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_the_example_of_an_own_project_runs_from_its_sweep_to_its_figure(
    bin_folder: Path, elsewhere: Path, processes: None
) -> None:
    lab, python = bin_folder / "rlhf-lab", bin_folder / "python"
    for name in ("conf", "sweeps", "notebooks", "tests"):
        shutil.copytree(OWN_PROJECT / name, elsewhere / name, ignore=LEAVE_OUT)
    assert " low_baseline " in run(lab, "train", "--help", cwd=elsewhere)
    run(lab, "sweep", "sweeps/own.yaml", "mode=sync", "seed=1,2", *TINY, cwd=elsewhere)
    runs = sorted((elsewhere / "runs/own").rglob("manifest.json"))
    assert len(runs) == 4
    for path in runs:
        (facts,) = json.loads(path.read_text())["plugins"]
        assert (facts["module"], facts["version"]) == ("own_project", "0.1.0")
        assert facts["parts"] == ["algo=low_baseline", "task=sorting", "reward=right_places"]
    own = ["task=sorting", "reward=right_places", "generator=antithetic", "engine=value_clipped"]
    words = [*own, "debug=tiny", "output.dir=runs/parts", "output.quiet=true"]
    run(lab, "train", *words, cwd=elsewhere)
    (facts,) = json.loads((elsewhere / "runs/parts/manifest.json").read_text())["plugins"]
    assert sorted(facts["parts"]) == sorted(own)
    table = run(python, "notebooks/own.py", cwd=elsewhere, MPLBACKEND="agg")
    assert "algo.shift=-0.2" in table
    assert (elsewhere / "figures/own.png").stat().st_size > 1000
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=elsewhere)


def test_the_wheel_holds_every_package_and_the_files_that_its_patterns_name() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = options["packages"]["find"]
    included = setuptools.find_namespace_packages(
        str(ROOT / "src"), include=found["include"], exclude=found["exclude"]
    )
    folders = [
        Path(folder)
        for folder, _, names in os.walk(ROOT / "src", followlinks=True)
        if "__init__.py" in names
    ]
    assert {*included} >= {".".join(folder.relative_to(ROOT / "src").parts) for folder in folders}
    for package, patterns in options["package-data"].items():
        for pattern in patterns:
            folder = ROOT / "src" / package.replace(".", "/")
            assert any(folder.glob(pattern)), f"{package}: {pattern}"


def test_the_notebook_of_the_example_is_that_of_its_script() -> None:
    script = OWN_PROJECT / "notebooks" / "own.py"
    stored = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    assert [cell.source for cell in stored.cells] == [
        cell.source for cell in notebook_of(script).cells
    ]
