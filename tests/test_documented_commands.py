"""Every command that README and docs show is one that this checkout accepts.

Commands of Hydra are composed and checked, sweeps are previewed, and of other programs the options
are looked up in their own parsers. Nothing is trained.
"""

from __future__ import annotations

import functools
import io
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins

from hydra_plugins.rlhf_lab_plugin.search_sweeper import SearchSweeper
from hydra_plugins.rlhf_lab_plugin.slurm_launcher import SlurmLauncher
from hydra_plugins.rlhf_lab_plugin.tracked_sweeper import TrackedSweeper
from rlhf_lab.cli import launch, plan, sweep
from rlhf_lab.cli.command import MULTIRUN, OptionsCommand
from rlhf_lab.cli.main import COMMANDS, run_command
from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.plugins import activate, modules_in
from rlhf_lab.experiment.config.renamed_files import read_earlier_names
from rlhf_lab.experiment.config.schema import register
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.rules.checks import check, check_data
from rlhf_lab.experiment.rules.devices import check_trainers
from rlhf_lab.runs.kernels import RestartNeeded
from rlhf_lab.sweeps.grid import Grid, check_choices, grid_of, sizes
from rlhf_lab.sweeps.launchers import slurm
from rlhf_lab.sweeps.launchers.torchrun import generator_of
from tests.support.composed import by_hydra, composed
from tests.support.own_parts import no_plugins

pytestmark = pytest.mark.pages

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = ("rlhf-lab", "make", "python", "torchrun", "pip")
# Modules of other projects, whose options are theirs.
FOREIGN = ("openrlbenchmark",)
# What stands for a value of the reader's, and what stands for words left out.
PLACEHOLDERS = re.compile(r"<[a-z ]+>|\b(RUN\d?|FOLDER|MODEL|HOST|KEY|NAME)\b")
# What pages show of files that their commands name: page, heading, and the file.
FILES = (
    ("sweeps.md", "## Writing one", "my_sweep.yaml"),
    ("extending.md", "## Folders of config files", "conf/experiment/mine.yaml"),
    ("extending.md", "## Sweeps", "sweeps/mine.yaml"),
)
REWARD = "def my_reward(prompt, completion, **_): return 0.0\n\n\nshort = my_reward\n"
# In the comment of a command that runs some jobs of a sweep.
PART = "a part of the grid"
# What a command reads by itself, though it looks like an override.
OWN_WORDS = {"fork": "round="}
LEFT_OUT = {"...", "RUNS...", "SOURCE...", "…"}


def shown() -> Iterator[tuple[str, ...]]:
    """The words of each command."""
    return map(words_of, lines_shown())


def lines_shown() -> Iterator[str]:
    """Each command: lines of code blocks, and code within sentences, which may leave words out."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        lines = [line for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        lines += [f"{code} ..." for code in re.findall(r"`([^`\n]+)`", prose)]
        for line in lines:
            if line.lstrip().startswith(tuple(f"{program} " for program in PROGRAMS)):
                yield line


def words_of(line: str) -> tuple[str, ...]:
    """The words of a line, without its comment, what it is piped to, and what was left out."""
    words = shlex.split(PLACEHOLDERS.sub("placeholder", line), comments=True)
    ends = [at for at, word in enumerate(words) if word in (">", "|", "&&")]
    return tuple(words[: min(ends, default=len(words))])


def complete(words: tuple[str, ...], others: Set[tuple[str, ...]]) -> bool:
    """Whether no other page shows the same command without leaving words out."""
    return words[-1] not in LEFT_OUT or words[:-1] not in others


def is_bare_target(words: tuple[str, ...]) -> bool:
    """Whether make is called without variables: several such calls are one."""
    return words[0] == "make" and not any("=" in word for word in words)


ALL_SHOWN = set(shown())
COMMANDS_SHOWN = sorted(words for words in ALL_SHOWN if complete(words, ALL_SHOWN))


@pytest.fixture(autouse=True)
def of_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with the files that commands name, and every extra installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write_files(tmp_path)
    for key in ("OPENAI_API_KEY", "WANDB_API_KEY"):
        monkeypatch.setenv(key, "none")
    read_earlier_names()
    register()
    # Extras are installed by whoever uses them.
    monkeypatch.setattr("rlhf_lab.tasks.optional_packages.find_spec", lambda _: object())
    with no_plugins("my_module", "my_guess"):
        yield


@pytest.mark.parametrize(
    "words", [words for words in COMMANDS_SHOWN if not is_bare_target(words)], ids=" ".join
)
def test_a_documented_command_is_accepted(words: tuple[str, ...]) -> None:
    accept(words)


def test_documented_targets_of_make_are_accepted() -> None:
    targets = {word for words in COMMANDS_SHOWN if is_bare_target(words) for word in words[1:]}
    # Its sweeps are composed by tests/analysis/benchmark/test_kept_tables.py.
    accept(["make", *sorted(targets - {"benchmark"})])


@pytest.mark.parametrize("line", [line for line in lines_shown() if PART in line])
def test_a_part_of_a_grid_has_fewer_jobs_than_the_whole(line: str) -> None:
    for _, *arguments in recipe(words_of(line)[1:]):
        flags = sweep.flags_of([word for word in arguments if word != "sweep"])
        before, after = sweep_shown(flags, [word for word in flags if "=" in word]).sizes
        assert after < before


def test_pages_show_a_part_of_a_grid() -> None:
    assert any(PART in line for line in lines_shown())


def write_files(folder: Path) -> None:
    """The files that commands name, as the pages show them."""
    (folder / "my_module.py").write_text(REWARD + python_of("extending.md"))
    (folder / "my_guess.py").write_text(python_of("environments.md"))
    own = r"^# (\w+)\.py[^\n]*\n(.*?)(?=^# \w+\.py|\Z)"
    for module, text in re.findall(own, python_of("rewards.md"), re.DOTALL | re.MULTILINE):
        (folder / f"{module}.py").write_text(text)
    for name, heading, place in FILES:
        text = (ROOT / "docs" / name).read_text(encoding="utf-8").split(f"\n{heading}\n")[1]
        found = re.search(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        assert found, f"{name}: {heading} shows no file"
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(found[1])


def python_of(page: str) -> str:
    """The Python that a page shows, as one module."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def accept(words: Sequence[str]) -> None:
    """Raise what a reader who types these words would meet."""
    program, *rest = words
    if program == "pip":
        require_extras(rest)
    elif program == "make":
        for line in recipe([word for word in rest if word not in LEFT_OUT]):
            accept(line)
    elif program == "torchrun":
        accept(rest[rest.index("rlhf-lab") :])
    elif program == "python":
        require_options(rest)
    else:
        require_composable(rest)


def require_extras(words: Sequence[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        name
        for word in words
        for names in re.findall(r"\[(.*)\]", word)
        for name in names.split(",")
    }
    assert named <= set(project["optional-dependencies"])


def recipe(words: Sequence[str]) -> list[tuple[str, ...]]:
    """What make would run of this project's programs. The environment counts as installed; a name
    that make includes, such as Makefile, must not stand for it: make remakes those despite -n."""
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", "-o", ".venv/.installed", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = re.sub(r"\\\n\s*", " ", done.stdout).splitlines()
    found = re.findall(
        r"\.venv/bin/((?:rlhf-lab|python -m (?:rlhf_lab|benchmarks)).*)", "\n".join(lines)
    )
    return [tuple(shlex.split(line.split("||")[0].split(";")[0])) for line in found]


@functools.cache
def options_of(module: str) -> set[str]:
    """The options that `python -m MODULE --help` lists."""
    is_package = hasattr(import_module(module), "__path__")
    program = import_module(f"{module}.__main__") if is_package else import_module(module)
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(shown):
        patch.setattr(sys, "argv", [module, "--help"])
        with pytest.raises(SystemExit) as ended:
            program.main()
    assert ended.value.code == 0
    return set(re.findall(r"--[\w-]+", shown.getvalue()))


def require_options(words: Sequence[str]) -> None:
    """The module exists, and its help lists every option that is passed."""
    if len(words) < 2 or words[0] != "-m":
        return
    module = words[1]
    if module.startswith(FOREIGN):
        return
    options = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
    if not options:
        place = module.replace(".", "/")
        assert any(
            (base / name).exists()
            for base in (ROOT, ROOT / "src")
            for name in (place, f"{place}.py")
        )
        return
    listed = options_of(module)
    assert options <= listed, f"{module} has no {options - listed}"


def require_composable(words: Sequence[str]) -> None:
    """The command of rlhf-lab exists; its overrides compose into a config that is not refused."""
    name, *arguments = words
    if name in {"COMMAND", "--version", *LEFT_OUT}:
        return
    name, arguments = (arguments[0], ["--help"]) if name == "help" else (name, arguments)
    command = COMMANDS[name]
    arguments = [word for word in arguments if not word.startswith(OWN_WORDS.get(name, "\0"))]
    overrides = [word for word in arguments if "=" in word and not word.startswith("-")]
    activate(modules_in(overrides))
    if "--help" in arguments:
        assert run_command(name, arguments) == 0
    elif isinstance(command, OptionsCommand):
        require_parsable(command, arguments)
    elif command is sweep.SWEEP:
        require_a_named_sweep([word for word in arguments if word not in LEFT_OUT])
    elif MULTIRUN & set(arguments):
        require_a_sweep(arguments, overrides)
    else:
        require_a_run(name, arguments, overrides)


def require_a_named_sweep(named: Sequence[str]) -> None:
    """A sweep that is shipped composes; without a name its command lists them."""
    if named:
        flags = sweep.flags_of(named)
        require_a_sweep(flags, [word for word in flags if "=" in word])


def require_a_run(name: str, arguments: Sequence[str], overrides: Sequence[str]) -> None:
    """The overrides compose; where no run is named, nothing refuses them either."""
    if arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        # The config of the run that is named has what these overrides go with.
        typed(composed(*overrides))
    elif LEFT_OUT & set(arguments):
        return
    elif name == "data":
        check_data(typed(composed(*overrides)))
    else:
        refuse_none(overrides)


def require_parsable(command: OptionsCommand, arguments: Sequence[str]) -> None:
    """A command's own options; of `launch`, the run that it would start, and of `plan`, what it is
    about, too."""
    if command is plan.PLAN:
        first = [word for word in arguments if not word.startswith("--")][:1]
        assert "--gpu" in arguments or not any("=" in word for word in first), plan.PLAN.line
    if LEFT_OUT & set(arguments):
        listed = set(re.findall(r"--[\w-]+", command.help()))
        assert {word for word in arguments if word.startswith("--")} <= listed
        return
    options = command.parser().parse_intermixed_args(arguments)
    if command is launch.LAUNCH:
        layout, shared = launch.layout_and_overrides(options.words)
        chosen, _ = launch.settled(shared, layout)
        refuse_none([*chosen, *generator_of(layout)], layout.trainers)


def refuse_none(overrides: Sequence[str], num_trainers: int = 1) -> None:
    """Check the config of these overrides as a command does before it starts."""
    config = typed(composed(*overrides))
    with suppress(RestartNeeded):
        check(config)
        check_trainers(config, num_trainers)


@dataclass(frozen=True)
class ShownSweep:
    """A sweep as a page shows it. params: the swept keys of its file. of_hydra: overrides that are
    not of its jobs."""

    folder: Path
    name: str
    parts: str
    params: Mapping[str, str]
    grid: Grid
    of_hydra: list[str]

    @property
    def sizes(self) -> tuple[int, int]:
        """Jobs of its file, and of what is shown."""
        return sizes(self.params, self.grid, OverridesParser.create())


def sweep_shown(arguments: Sequence[str], overrides: Sequence[str]) -> ShownSweep:
    """The sweep that is run by these arguments."""
    folder, name = conf_folder(), "config"
    if "--config-name" in arguments:
        folder, name = ROOT / "sweeps", arguments[list(arguments).index("--config-name") + 1]
    if "--config-dir" in arguments:
        folder = Path(arguments[list(arguments).index("--config-dir") + 1]).absolute()
    parts = searched(overrides, is_own=not folder.is_relative_to(ROOT))
    params = params_of(folder, name, parts) if "--config-dir" in arguments else {}
    of_hydra = [word for word in overrides if "hydra." in word or "hydra/" in word]
    of_jobs = [word for word in overrides if word not in of_hydra]
    grid = grid_of(params, of_jobs, OverridesParser.create())
    return ShownSweep(folder, name, parts, params, grid, of_hydra)


def require_a_sweep(arguments: Sequence[str], overrides: Sequence[str]) -> None:
    """The first and the last job of a sweep are not refused, nor is its grid; the whole grids of
    sweeps/ are composed elsewhere."""
    for plugin in (TrackedSweeper, SearchSweeper, SlurmLauncher):
        Plugins.instance().register(plugin)
    slurm.register()
    found = sweep_shown(arguments, overrides)
    folder, name, parts, grid = found.folder, found.name, found.parts, found.grid
    first, *_, last = [next(grid.points()), *grid.points()]
    for point in (first, last):
        values = [f"{key}={value}" for key, value in point.items()]
        check(typed(composed(parts, *grid.fixed, *values, name=name, folder=folder)))
    if found.of_hydra:
        by_hydra(folder, name, [parts, *grid.fixed, *found.of_hydra], hydra=True)
    if found.params:
        before, after = found.sizes
        assert after <= before or "hydra.sweeper.extend=true" in found.of_hydra, (before, after)
        loader = ConfigLoaderImpl(create_config_search_path(f"file://{folder}"))
        check_choices(found.params, grid, OverridesParser.create(), loader)


def searched(overrides: Sequence[str], is_own: bool) -> str:
    """The search path of config files. It has the working folder's conf/, with the files that pages
    show, only if the sweep or a choice is of that folder: Hydra reads it anew for each composition.
    is_own: whether the sweep is."""
    own = Path("conf").absolute()
    chosen = (own / f"{word.replace('=', '/')}.yaml" for word in overrides)
    more = f",file://{own}" if is_own or any(file.exists() for file in chosen) else ""
    return f"hydra.searchpath=[file://{conf_folder()},file://{ROOT}/sweeps{more}]"


@functools.cache
def params_of(folder: Path, name: str, parts: str) -> Mapping[str, str]:
    """The swept keys of a sweep's file with their values, none of a search; `make benchmark` asks
    for many of one file."""
    node = by_hydra(folder, name, [parts], hydra=True).hydra
    return {} if "trials" in node.sweeper else node.sweeper.params
