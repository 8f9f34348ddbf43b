from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
TARGETS = "help install demo test test-slow lint sweep benchmark clean".split()
# The GPU build of vLLM exists for other platforms than the resolution that is kept here, verifiers
# needs an older openai than the extra judge, and openenv brings a web interface.
UNPINNED_EXTRAS = {"vllm", "verifiers", "openenv"}
MACHINE_PATH = re.compile(r"(?<![\w.~*$}])/(?:work|home|root|Users|mnt)/\w")


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    section: dict[str, Any] = table["project"]
    return section


def direct() -> list[Requirement]:
    """Requirements of the project and its extras, without references to itself."""
    texts = list(project()["dependencies"])
    for extra, requirements in project()["optional-dependencies"].items():
        texts += requirements if extra not in UNPINNED_EXTRAS else []
    parsed = [Requirement(text) for text in texts]
    return [requirement for requirement in parsed if requirement.name != project()["name"]]


def pins() -> dict[str, str]:
    """Versions by canonical name; each line must be `name==version`."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    found: dict[str, str] = {canonicalize_name(name): version for name, version in pairs}
    assert len(found) == len(pairs), "a package is pinned twice"
    return found


def installed(name: str) -> str | None:
    """The installed version, without a local label such as +cpu."""
    try:
        return metadata.version(name).split("+")[0]
    except metadata.PackageNotFoundError:
        return None


def needed(requirements: list[Requirement]) -> set[str]:
    """Names of the installed packages that the requirements pull in, themselves included."""
    queue, seen = list(requirements), set()
    for requirement in queue:
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen or installed(requirement.name) is None:
            continue
        seen.add(key)
        for text in metadata.requires(requirement.name) or []:
            inner = Requirement(text)
            extras = requirement.extras or {""}
            if inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in extras):
                queue.append(inner)
    return {name for name, _ in seen}


def make(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    surroundings = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(
        command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False
    )


def test_the_package_asks_for_ranges() -> None:
    texts = [t for group in project()["optional-dependencies"].values() for t in group]
    assert not [
        text for text in [*project()["dependencies"], *texts] if "==" in text.partition(";")[0]
    ]


@pytest.mark.parametrize("requirement", direct(), ids=str)
def test_every_direct_dependency_is_pinned_within_its_range(requirement: Requirement) -> None:
    pinned = pins()[canonicalize_name(requirement.name)]
    assert pinned in requirement.specifier
    assert "+" not in pinned, "a local build exists on one machine only"


def test_what_the_dependencies_pull_in_is_pinned_as_well() -> None:
    assert needed(direct()) - set(pins()) == set()


def test_make_alone_lists_every_target() -> None:
    listed = re.findall(r"^  make (\S+) +\S", make().stdout, flags=re.MULTILINE)
    assert set(TARGETS) <= set(listed)
    assert make().stdout == make("help").stdout


def test_the_demo_has_one_folder_for_all_of_its_commands(tmp_path: Path) -> None:
    (tmp_path / ".installed").touch()
    plan = make("-n", "demo", f"VENV={tmp_path}").stdout
    folders = re.findall(r"runs/demo-\d{8}-\d{6}", plan)
    assert folders and len(set(folders)) == 1
    assert make("-n", "demo", f"VENV={tmp_path}", "DEMO=mine").stdout.count("mine") == len(folders)


def test_a_python_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    done = make("install", "PYTHON=false", f"VENV={tmp_path / 'new'}")
    assert done.returncode != 0
    assert "PYTHON=false is not Python 3.11, 3.12 or 3.13" in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("given", [[], ["SWEEP=absent"]])
def test_a_sweep_that_does_not_exist_is_refused_with_those_that_do(
    tmp_path: Path, given: list[str]
) -> None:
    (tmp_path / ".installed").touch()
    done = make("sweep", f"VENV={tmp_path}", *given)
    assert done.returncode != 0
    assert "pass SWEEP=<name>" in done.stderr
    for path in (ROOT / "sweeps").glob("*.yaml"):
        assert f"  {path.stem}\n" in done.stderr


def test_clean_leaves_runs_and_the_cache_of_stages(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    kept = [
        "runs/demo/weights",
        ".cache/rlhf_lab",
        "src/rlhf_lab",
        "analysis",
        "benchmarks",
        "tests",
    ]
    gone = [".venv/bin", "build", ".mypy_cache", "src/rlhf_lab.egg-info", "tests/__pycache__"]
    for name in kept + gone:
        (tmp_path / name).mkdir(parents=True)
    assert make("clean", folder=tmp_path).returncode == 0
    assert [name for name in kept + gone if (tmp_path / name).exists()] == kept


def test_the_check_of_changes_can_be_executed() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_the_citation_names_this_version_and_whole_references() -> None:
    citation: Any = OmegaConf.to_container(OmegaConf.load(ROOT / "CITATION.cff"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["title"] == "rlhf_lab"
    assert citation["authors"] == [{"name": "The rlhf_lab authors"}]
    assert citation["version"] == project()["version"]
    assert citation["license"] == project()["license"]
    assert citation["message"]
    assert len(citation["references"]) >= 11
    for reference in citation["references"]:
        assert {"type", "title", "year", "url", "authors"} <= set(reference)
        assert re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{5}", reference["url"])
        assert all(set(a) == {"family-names", "given-names"} for a in reference["authors"])


def test_the_changelog_and_the_licence_are_there() -> None:
    assert f"## [{project()['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence and "END OF TERMS AND CONDITIONS" in licence


def test_no_file_holds_a_path_of_somebodys_machine() -> None:
    listing = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    found = []
    for name in done.stdout.splitlines():
        path = ROOT / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        if match := MACHINE_PATH.search(text):
            found.append(f"{name}: {match.group()}")
    assert found == []
