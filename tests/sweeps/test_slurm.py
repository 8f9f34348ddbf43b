"""The launcher for Slurm without one: Slurm's commands are scripts of a few lines."""

from __future__ import annotations

import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hydra.core.utils import JobReturn, JobStatus
from hydra_plugins.hydra_submitit_launcher.config import SlurmQueueConf
from omegaconf import OmegaConf
from submitit.core.utils import DelayedSubmission, cloudpickle_dump

from rlhf_lab.runs.child import end_process
from rlhf_lab.runs.processes import birth
from rlhf_lab.sweeps.job import content_of
from rlhf_lab.sweeps.launchers import slurm, slurm_cluster
from rlhf_lab.sweeps.launchers.slurm import (
    TARGET,
    SlurmOptions,
    check_options,
)
from rlhf_lab.sweeps.launchers.slurm_cluster import (
    array_size,
    check_ready,
    check_submittable,
    settings_of,
)
from rlhf_lab.sweeps.launchers.slurm_jobs import (
    LATE_SECONDS,
    PREEMPTED_SECONDS,
    JobsGoOn,
    LostJob,
    PendingReasons,
    SlurmState,
    Stoppable,
    Submitted,
    after_stop,
    expanded,
    parsed,
    passing_on,
    slurm_job,
    wait_for,
)
from rlhf_lab.sweeps.launchers.slurm_script import layout_of, script_of
from rlhf_lab.sweeps.launchers.slurm_words import gigabytes_of, minutes_of, remedy_of
from rlhf_lab.sweeps.launchers.torchrun import generator_of
from rlhf_lab.sweeps.run_job import JobRunner, StopFiles
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig

Bin = Callable[..., Path]


@pytest.fixture
def slurm_bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bin:
    """Makes Slurm's commands from the bodies of shell scripts; no others are on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(**bodies: str) -> Path:
        usual = {
            "sbatch": f'/bin/cp "$1" {tmp_path}/batch.sh; echo Submitted batch job 7',
            "srun": "exit 1",
            "scontrol": "echo AccountingStorageType = accounting_storage/slurmdbd",
            "sacct": "exit 0",
        }
        for name, body in (usual | bodies).items():
            if body:
                (folder / name).write_text(f"#!/bin/sh\n{body}\n")
                (folder / name).chmod(0o755)
        return tmp_path

    return make


def test_all_options_of_the_plugin_are_kept() -> None:
    ours = {field.name for field in dataclasses.fields(SlurmOptions)}
    assert {field.name for field in dataclasses.fields(SlurmQueueConf)} <= ours


def test_a_cluster_that_has_everything_is_used(slurm_bin: Bin) -> None:
    slurm_bin()
    assert array_size(check_ready()) == 1001
    slurm_bin(scontrol="echo AccountingStorageType = slurmdbd; echo 'MaxArraySize   = 4'")
    assert array_size(check_ready()) == 4
    slurm_bin(scontrol="echo AccountingStorageType = slurmdbd; echo 'MaxArraySize = 0'")
    assert array_size(check_ready()) == 1


@pytest.mark.parametrize(
    ("bodies", "complaint"),
    [
        ({"sbatch": ""}, "sbatch not on PATH.*login node.*LAUNCHER=joblib"),
        ({"sacct": ""}, "sacct not on PATH"),
        (
            {"scontrol": "echo 'AccountingStorageType   = accounting_storage/none'"},
            "no accounting.*waited for for ever.*slurmdbd",
        ),
        ({"scontrol": "echo 'AccountingStorageType = (null)'"}, "no accounting"),
        ({"scontrol": "echo nobody there >&2; exit 1"}, "scontrol show config.*nobody there"),
        ({"sacct": "echo refused >&2; exit 1"}, "sacct .* failed .refused."),
    ],
)
def test_a_cluster_that_lacks_something_is_refused(
    slurm_bin: Bin, bodies: dict[str, str], complaint: str
) -> None:
    slurm_bin(**bodies)
    with pytest.raises(UserError, match=complaint):
        check_ready()


@pytest.mark.parametrize(
    ("account", "qos", "rows", "refused"),
    [
        (None, None, "lab|5", "account=lab.* 5 jobs .*MaxSubmitJobs.* 6 are to run"),
        (None, None, "lab|5\nteam|6", ""),
        ("lab", None, "lab|", ""),
        ("lab", "long", "long|4", "qos=long: .* 4 jobs"),
        (None, None, "", ""),
    ],
)
def test_more_jobs_than_may_be_submitted_are_refused(
    slurm_bin: Bin, account: str | None, qos: str | None, rows: str, refused: str
) -> None:
    """By the largest limit of the associations, or that of the QOS."""
    launcher = OmegaConf.create({"account": account, "qos": qos})
    show = "printf 'AccountingStorageType = slurmdbd\\nClusterName = c\\n{}'"
    kind = "show qos" if qos else "show associations user="
    sacctmgr = f"case \"$*\" in *'{kind}'*) printf '{rows}'; esac".replace("\n", "\\n")
    slurm_bin(scontrol=show.format("AccountingStorageEnforce = associations"), sacctmgr=sacctmgr)
    check_submittable(launcher, 6)
    slurm_bin(scontrol=show.format("AccountingStorageEnforce = limits,qos"), sacctmgr=sacctmgr)
    with pytest.raises(UserError, match=refused) if refused else nullcontext():
        check_submittable(launcher, 6)


def test_a_missing_package_is_refused_with_the_extra(
    slurm_bin: Bin, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm_bin()
    monkeypatch.setattr(slurm_cluster, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"hydra-submitit-launcher.*pip install 'rlhf-lab\[slurm\]"):
        check_ready()


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"signal_delay_s": 600, "timeout_min": 10}, "lower signal_delay_s below 600"),
        ({"timeout_min": 0}, "timeout_min=0: choose 1 or more"),
        ({"array_parallelism": 0}, "array_parallelism=0"),
        ({"max_num_timeout": -1}, "max_num_timeout=-1: choose 0 or more"),
        ({"tasks_per_node": 8}, "hydra.sweeper.layout"),
        ({"timeout_min": "noon"}, "timeout_min=noon: .*12:00:00"),
        ({"mem_gb": "32Q"}, "mem_gb=32Q: .*32G"),
        ({"submitit_folder": "runs/50%/%j"}, "submitit_folder=.*50%/%j: Slurm replaces %"),
    ],
)
def test_options_with_which_no_job_could_run_are_refused(
    changed: dict[str, int], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        check_options(SlurmOptions(**changed))  # type: ignore[arg-type]


def test_settings_of_the_cluster_are_read_by_name() -> None:
    config = "Configuration data as of x\nMaxArraySize    = 4\nPrologFlags = (null)\nA = b=c"
    found = settings_of(config)
    assert [found[name] for name in ("MaxArraySize", "PrologFlags", "A")] == ["4", "", "b=c"]


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        (90, 90), ("90", 90), ("90:01", 91), ("12:00:00", 720), ("0:00:30", 1), ("1-0", 1440),
        ("1-6", 1800), ("1-06:30", 1830), ("1-06:30:01", 1831),
    ],
)  # fmt: skip
def test_times_are_read_as_sbatch_reads_them(text: int | str, minutes: int) -> None:
    assert minutes_of(text) == minutes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (None, None), (32, 32), ("32", 32), ("32G", 32), ("32Gb", 32), ("32GiB", 32), ("0.5g", 0.5),
        ("64000M", 62.5), ("1T", 1024), ("1048576K", 1),
    ],
)  # fmt: skip
def test_sizes_are_read_with_the_units_of_sbatch(text: Any, size: float | None) -> None:
    assert gigabytes_of(text) == size


# What sbatch of Slurm 22.05 wrote when it refused a job.
@pytest.mark.parametrize(
    ("message", "keys"),
    [
        ("invalid partition specified: nope", "partition=short"),
        ("Memory specification can not be satisfied", "mem_gb=900, mem_per_cpu=null or "),
        ("Requested node configuration is not available", "cpus_per_task=99, mem_gb=900"),
        ("Invalid generic resource (gres) specification", "gpus_per_node=l40s:1 or gres=null"),
        ("Invalid feature specification", "constraint=null"),
        ("Invalid node name specified", "exclude=null or additional_parameters={}"),
        ("sbatch: unrecognized option '--foo=1'", "additional_parameters={}"),
        ("Invalid --mail-type specification", "additional_parameters={}"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "timeout_min=1440 or"),
        ("Invalid account or account/partition combination specified", "account=null or partition"),
        ("Invalid qos specification", "qos=null or account=null"),
        ("PartitionTimeLimit", "timeout_min=1440 or partition=short"),
        ("PartitionNodeLimit", "nodes=1"),
        ("AssocGrpCpuLimit", "cpus_per_task=99"),
        ("AssocGrpMemLimit", "mem_gb=900"),
        ("AssocGrpGRES", "gpus_per_node=l40s:1"),
        ("QOSMaxWallDurationPerJobLimit", "timeout_min=1440"),
        ("QOSGrpNodeLimit", "nodes=1"),
        ("QOSMaxJobsPerUserLimit", "array_parallelism=256"),
        ("ReqNodeNotAvail", "partition=short, constraint=null, exclude=null or timeout_min=1440"),
        ("no such message", "partition=short, account=null, qos=null"),
    ],
)
def test_a_message_of_slurm_is_answered_with_the_keys_that_it_is_about(
    message: str, keys: str
) -> None:
    options = SlurmOptions(partition="short", cpus_per_task=99, mem_gb=900, gpus_per_node="l40s:1")
    assert remedy_of(message, dataclasses.asdict(options)).startswith(
        f"change hydra.launcher.{keys}"
    )


def test_the_limit_that_a_policy_names_counts_and_not_its_general_text() -> None:
    policy = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    options = dataclasses.asdict(SlurmOptions())
    assert "fewer values" in remedy_of(f"QOSMaxSubmitJobPerUserLimit\n{policy}", options)
    assert "cpus_per_task" in remedy_of(f"QOSMaxCpuPerUserLimit\n{policy}", options)
    assert "qos=null, account=null" in remedy_of(policy, options)


def test_reasons_to_wait_are_shown_once_with_the_key(
    slurm_bin: Bin, capsys: pytest.CaptureFixture[str]
) -> None:
    def show(*reasons: str) -> None:
        lines = [f"echo JobId=7 JobState=PENDING Reason={one} Dependency=x" for one in reasons]
        slurm_bin(scontrol="\n".join(["echo JobId=8 JobState=RUNNING Reason=Held", *lines]))

    reasons = PendingReasons(dataclasses.asdict(SlurmOptions(partition="short")))
    show("PartitionTimeLimit", "Priority")
    reasons(["7_0", "7_1"])
    assert capsys.readouterr().err == "", "it may pass"
    reasons(["7_0", "7_1"])
    (line,) = capsys.readouterr().err.splitlines()
    for part in ("job 7 ", "PartitionTimeLimit", "timeout_min=1440 or partition=short", "scancel"):
        assert part in line
    show("PartitionTimeLimit", "ReqNodeNotAvail,_UnavailableNodes:gpu[1-4]")
    reasons(["7_1"])
    reasons(["7_1"])
    (line,) = capsys.readouterr().err.splitlines()
    assert "ReqNodeNotAvail: change" in line
    reasons([])
    assert capsys.readouterr().err == ""


def test_waiting_jobs_alone_are_asked_for_their_reason(tmp_path: Path) -> None:
    time = Time()
    asked: list[Sequence[str]] = []
    ask = told([(0.0, "PENDING"), (20.0, "RUNNING"), (40.0, "CANCELLED")], time)
    wait_for([job(tmp_path, 0)], ask, time, time.sleep, asked.append)
    assert asked[:3] == [["7_0"]] * 3 and not any(asked[3:])


# The array's lines of a script, and the variables that sbatch gets with it.
NOTED = """
echo "$(/usr/bin/grep -E 'array|dependency|account' "$1" | /usr/bin/tr '\\n' ' ')" >> {0}/noted
/usr/bin/env > {0}/environment
echo Submitted batch job $(/usr/bin/wc -l < {0}/noted)"""


@pytest.mark.parametrize(
    ("most", "parallelism", "arrays"),
    [
        (6, 4, ["array=0-5%4"]),
        (4, 5, ["array=0-3%3", "array=0-1%2"]),
        (2, 256, ["array=0-1%2", "array=0-1%2", "array=0-1%2"]),
        # Two lanes, the third array after the first.
        (2, 2, ["array=0-1%1", "array=0-1%1", "array=0-1%1 afterany:1"]),
    ],
)
def test_a_sweep_is_cut_to_the_arrays_of_the_cluster(
    slurm_bin: Bin, tmp_path: Path, most: int, parallelism: int, arrays: list[str]
) -> None:
    slurm_bin(sbatch=NOTED.format(tmp_path))
    options = SlurmOptions(
        submitit_folder=str(tmp_path / "%j"), name="x", array_parallelism=parallelism
    )
    found = slurm.submit(options, abs, [(number,) for number in range(6)], most)  # type: ignore[arg-type]
    assert len({one.job_id for one in found}) == 6
    noted = (tmp_path / "noted").read_text().replace("#SBATCH --", "").splitlines()
    assert [line.replace("dependency=", "").strip() for line in noted] == arrays


def test_no_job_is_left_where_a_later_array_is_refused(slurm_bin: Bin, tmp_path: Path) -> None:
    refuse = f"[ -e {tmp_path}/one ] && {{ echo QOSMaxSubmitJobPerUserLimit >&2; exit 1; }}"
    slurm_bin(
        sbatch=f"{refuse}\n: > {tmp_path}/one; echo Submitted batch job 7",
        scancel=f'echo "$@" > {tmp_path}/ended',
    )
    options = SlurmOptions(submitit_folder=str(tmp_path / "%j"), name="x")
    with pytest.raises(UserError, match=r"MaxSubmitJobPerUserLimit.*fewer values"):
        slurm.submit(options, abs, [(1,), (2,), (3,)], 2)  # type: ignore[arg-type]
    assert (tmp_path / "ended").read_text() == "7\n"


def test_an_allocation_changes_nothing_in_jobs_that_are_submitted_from_it(
    slurm_bin: Bin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = {"SLURM_CONF": "/etc/slurm.conf", "MY_SLURM_NOTE": "x", "OMP_NUM_THREADS": "1"}
    names = "SLURM_MEM_PER_NODE SLURM_JOB_ID SLURM_STEP_GPUS SLURMD_NODENAME PMI_RANK SRUN_DEBUG "
    names += "SBATCH_TIMELIMIT SBATCH_ACCOUNT CUDA_VISIBLE_DEVICES"
    left = dict.fromkeys(names.split(), "1")
    for name, value in (kept | left).items():
        monkeypatch.setenv(name, value)
    slurm_bin(sbatch=NOTED.format(tmp_path))
    options = SlurmOptions(submitit_folder=str(tmp_path / "%j"), name="x")
    own = dataclasses.replace(options, **slurm.defaults_of_user(options))
    assert own.account == "1", "the user's, which another project may have"
    told = capsys.readouterr().err
    assert "SBATCH_TIMELIMIT" in told and "SBATCH_ACCOUNT" not in told
    slurm.submit(own, abs, [(1,)], 2)  # type: ignore[arg-type]
    found = dict(
        line.split("=", 1) for line in (tmp_path / "environment").read_text().splitlines() if line
    )
    assert kept.items() <= found.items() and not left.keys() & found.keys()
    assert left.items() <= os.environ.items(), "for the launcher itself they stay"
    assert "account=1" in (tmp_path / "noted").read_text()


def batch_text(folder: Path, **options: Any) -> str:
    """What sbatch gets for two jobs."""
    made = slurm.executor(SlurmOptions(submitit_folder=str(folder / "%j"), name="x", **options))
    made.map_array(abs, [1, 2])
    return (folder / "batch.sh").read_text()


def test_options_reach_sbatch(slurm_bin: Bin) -> None:
    text = batch_text(
        slurm_bin(),
        partition="long",
        account="lab",
        qos="low",
        gpus_per_node=4,
        cpus_per_task=6,
        mem_gb=32,
        nodes=2,
        timeout_min=90,
        signal_delay_s=200,
        array_parallelism=1,
        setup=["module load cuda", "ulimit -n 4096"],
        additional_parameters={"mail-user": "a@b.c"},
    ).splitlines()
    wanted = "partition=long account=lab qos=low gpus-per-node=4 cpus-per-task=6 mem=32GB nodes=2"
    wanted += " time=90 signal=USR2@200 array=0-1%1 mail-user=a@b.c open-mode=append"
    assert {f"#SBATCH --{option}" for option in wanted.split()} <= set(text)
    setup, command = text.index("module load cuda"), text.index("export SUBMITIT_EXECUTOR=slurm")
    assert setup < text.index("ulimit -n 4096") < command
    assert f"{sys.executable} -P -u -m submitit.core._submit" in text[command + 1]
    assert "container" not in "\n".join(text)


def test_an_image_is_given_to_srun_with_the_working_folder(slurm_bin: Bin) -> None:
    text = batch_text(slurm_bin(), container="registry#lab/rlhf:1")
    here = os.getcwd()
    assert "'--container-image=registry#lab/rlhf:1'" in text
    assert f"--container-mounts={here}:{here} --container-workdir={here}" in text
    assert " python -P -u -m submitit.core._submit" in text
    assert sys.executable not in text, "the image has a python of its own"


def test_a_command_is_put_before_python(slurm_bin: Bin) -> None:
    text = batch_text(slurm_bin(), container="apptainer exec --nv lab.sif")
    assert " apptainer exec --nv lab.sif python -P -u -m submitit.core._submit" in text
    assert "--container" not in text


def test_what_slurm_does_not_take_is_refused_with_its_own_word(
    slurm_bin: Bin, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = slurm_bin(sbatch="echo 'invalid partition specified: nope' >&2; exit 1")
    options = SlurmOptions(submitit_folder=str(folder / "%j"), name="x", partition="nope")
    setting = {"hydra_context": None, "task_function": abs, "config": None}
    with pytest.raises(UserError, match=r"invalid partition specified: nope.*hydra.launcher.part"):
        slurm.launch(options, setting, [["seed=1"]], 0)


def job(folder: Path, number: int, result: tuple[str, Any] | None = None) -> Submitted:
    """A submitted job, with what it left."""
    place = folder / f"7_{number}"
    place.mkdir(parents=True, exist_ok=True)
    if result is not None:
        cloudpickle_dump(result, place / "result.pkl")
    return Submitted(f"7_{number}", place / "result.pkl", place / "out", place / "err")


class Time:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def told(history: Sequence[tuple[float, str]], time: Time) -> Callable[..., dict[str, SlurmState]]:
    """Accounting of job 7_0, by the seconds from which each state holds."""

    def ask(ids: Sequence[str]) -> dict[str, SlurmState]:
        return {"7_0": SlurmState([name for since, name in history if time.now >= since][-1])}

    return ask


def test_one_bad_job_does_not_sink_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = JobReturn(status=JobStatus.COMPLETED)
    good.return_value = "finished"
    raised = JobReturn(status=JobStatus.FAILED)
    raised.return_value = ZeroDivisionError("in the task")
    jobs = [
        job(tmp_path, 0, ("success", good)),
        job(tmp_path, 1),
        job(tmp_path, 2, ("success", raised)),
        job(tmp_path, 3, ("error", "Traceback of the worker")),
    ]
    time = Time()
    lost = SlurmState("OUT_OF_MEMORY", "0:125", "node3")
    states = wait_for(jobs, lambda ids: {"7_1": lost}, time, time.sleep)
    assert time.now < 30, "a killed job is told soon"
    assert "7_1 is OUT_OF_MEMORY" in capsys.readouterr().err
    found = [slurm.outcome(one, states[one.id], ["seed=1"]) for one in jobs]
    assert [one.status for one in found] == [JobStatus.COMPLETED] + 3 * [JobStatus.FAILED]
    assert found[0].return_value == "finished"
    message = str(found[1]._return_value)
    for part in ("7_1", "OUT_OF_MEMORY", "0:125", "node3", "hydra.launcher.mem_gb"):
        assert part in message
    assert str(jobs[1].stdout) in message
    assert str(jobs[1].stderr) in message
    assert isinstance(found[2]._return_value, ZeroDivisionError)
    assert "Traceback of the worker" in str(found[3]._return_value)
    for one, place in ((found[2], "7_2"), (found[3], "7_3")):
        assert place in one._return_value.__notes__[0]


def test_a_result_that_cannot_be_read_is_that_jobs_failure(tmp_path: Path) -> None:
    broken = job(tmp_path, 0)
    broken.result.write_bytes(b"no pickle")
    found = slurm.outcome(broken, SlurmState("COMPLETED"), ["seed=1"])
    assert found.status is JobStatus.FAILED
    assert list(found.overrides or []) == ["seed=1"]


def test_a_preempted_job_is_waited_for_while_slurm_queues_it_again(tmp_path: Path) -> None:
    time = Time()
    one = job(tmp_path, 0)
    history = [(0.0, "RUNNING"), (20.0, "PREEMPTED"), (100.0, "PENDING"), (140.0, "RUNNING")]
    ask = told(history, time)

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if time.now >= 200:
            cloudpickle_dump(("success", None), one.result)

    assert wait_for([one], ask, time, sleep)["7_0"].name == "RUNNING"
    assert time.now == pytest.approx(200, abs=2)


@pytest.mark.parametrize(
    ("end", "patience"), [("CANCELLED", LATE_SECONDS), ("PREEMPTED", PREEMPTED_SECONDS)]
)
def test_a_job_that_slurm_ended_is_given_up_after_the_patience_of_its_end(
    tmp_path: Path, end: str, patience: float, capsys: pytest.CaptureFixture[str]
) -> None:
    time = Time()
    ask = told([(0.0, "SUSPENDED"), (1000.0, end)], time)
    states = wait_for([job(tmp_path, 0)], ask, time, time.sleep)
    assert states["7_0"].name == end
    assert 1000 + patience <= time.now <= 1000 + patience + 10
    assert f"7_0 is {end}" in capsys.readouterr().err


def test_accounting_that_does_not_answer_is_told_and_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    time = Time()

    def ask(ids: Sequence[str]) -> dict[str, SlurmState]:
        if time.now < 30:
            raise subprocess.CalledProcessError(1, "sacct", stderr="no route")
        return {"7_0": SlurmState("NODE_FAIL")}

    assert wait_for([job(tmp_path, 0)], ask, time, time.sleep)["7_0"].name == "NODE_FAIL"
    assert "sacct does not answer (no route)" in capsys.readouterr().err


def test_lines_of_accounting_name_one_job_or_many() -> None:
    assert parsed("12_3|CANCELLED by 0|0:15|node1") == {
        "12_3": SlurmState("CANCELLED", "0:15", "node1")
    }
    assert parsed("12_[0-1,4%2]|PENDING|0:0|None assigned") == {
        "12_0": SlurmState("PENDING"),
        "12_1": SlurmState("PENDING"),
        "12_4": SlurmState("PENDING"),
    }
    assert expanded("12") == ["12"]


def test_an_interrupted_launcher_leaves_the_jobs_and_says_how_to_end_them(
    slurm_bin: Bin, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = slurm_bin()

    def interrupt(jobs: Sequence[Submitted], reasons: object) -> dict[str, SlurmState]:
        raise KeyboardInterrupt

    monkeypatch.setattr(slurm, "wait_for", interrupt)
    options = SlurmOptions(submitit_folder=str(folder / "%j"), name="x")
    setting = {"hydra_context": None, "task_function": abs, "config": None}
    with pytest.raises(JobsGoOn, match=r"2 jobs go on.*scancel 7`"):
        slurm.launch(options, setting, [["seed=1"], ["seed=2"]], 0)


@dataclasses.dataclass
class Task(Stoppable):
    """Stops when it is asked, and has what no pickle takes."""

    stopped: list[float] = dataclasses.field(default_factory=list)
    unpicklable: Any = None

    def stop(self, seconds: float) -> None:
        self.stopped.append(seconds)


def test_a_checkpoint_waits_for_the_run_and_gives_back_what_was_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    monkeypatch.setenv("SUBMITIT_FOLDER", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    path = tmp_path / "5_submitted.pkl"
    DelayedSubmission(slurm.Requeued(abs, Task(), 9.0), -3).dump(path)
    path.with_suffix(".pkl.save_tmp").write_text("left by a job that was killed")
    running = Task(unpicklable=threading.Lock())
    with pytest.raises(TypeError):
        pickle.dumps(running)
    again = slurm.Requeued(abs, running, 9.0).checkpoint(-3)
    assert running.stopped == [9.0]
    again.dump(tmp_path / "new.pkl")
    assert again.result() == 3
    assert not path.with_suffix(".pkl.save_tmp").exists()


def in_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is job 7_3 of Slurm."""
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    for name, value in (("JOB_ID", "11"), ("ARRAY_JOB_ID", "7"), ("ARRAY_TASK_ID", "3")):
        monkeypatch.setenv(f"SLURM_{name}", value)


def test_outside_of_slurm_nobody_waits_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUBMITIT_EXECUTOR", raising=False)

    def fail(*arguments: Any) -> Any:
        raise AssertionError("asked")

    assert slurm_job() is None
    after_stop(60, fail, fail, fail)


@pytest.mark.parametrize("end", ["COMPLETING", "CANCELLED", "PREEMPTED", "PENDING"])
def test_a_stopped_job_ends_without_a_result_when_slurm_takes_it_away(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    in_job(monkeypatch)
    states = iter(["RUNNING", None, "RUNNING", end])
    asked: list[str] = []

    def state(number: str) -> str | None:
        asked.append(number)
        return next(states)

    def leave(code: int) -> None:
        raise SystemExit(code)

    with pytest.raises(SystemExit, match="75"):
        after_stop(1800, state, lambda seconds: None, leave)
    assert asked == ["7_3"] * 4


def test_a_stopped_job_that_slurm_does_not_end_says_so_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_job(monkeypatch)
    time = Time()

    def leave(code: int) -> None:
        raise AssertionError("left")

    after_stop(60, lambda number: "RUNNING", time.sleep, leave)
    assert time.now == 60


def started(code: str) -> subprocess.Popen[bytes]:
    """A process that has said that it runs."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


SAVES = """
import signal, sys, time
def save(*_):
    time.sleep(0.3)
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
print("ready")
time.sleep(60)
"""
STAYS = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready")
time.sleep(60)
"""


def test_a_process_has_time_to_save_its_state() -> None:
    with started(SAVES) as process:
        assert end_process(process.pid, 120)
        assert process.wait() == 75


def test_a_process_that_does_not_end_is_made_to() -> None:
    with started(STAYS) as process:
        assert not end_process(process.pid, 0.3)
        assert process.wait() == -signal.SIGKILL


def test_a_process_that_has_ended_is_left_alone() -> None:
    with started("print('ready')") as process:
        process.wait()
    assert birth(process.pid) is None
    assert end_process(process.pid, 0)


def test_the_signal_that_slurm_sends_goes_on_to_the_run() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with started(SAVES) as process:
        with passing_on(process.pid):
            os.kill(os.getpid(), signal.SIGTERM)
            assert process.wait(120) == 75
        assert signal.getsignal(signal.SIGTERM) is before


def test_lost_jobs_say_where_to_look_after_a_copy(tmp_path: Path) -> None:
    error = LostJob(job(tmp_path, 0), SlurmState("TIMEOUT"))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "signal_delay_s" in str(error)


def test_a_layout_asks_for_its_nodes_and_devices_and_has_them_alone() -> None:
    given = {"_target_": TARGET, "gpus_per_node": 1, "additional_parameters": {"mail-user": "me"}}
    launcher = OmegaConf.create(given)
    layout = layout_of("2x8:8+8", launcher)
    assert layout is not None
    assert (launcher.nodes, launcher.gpus_per_node) == (2, 8)
    assert launcher.additional_parameters == {"exclusive": True, "mail-user": "me"}
    assert generator_of(layout) == ["generator=vllm"]
    words = ["train", "seed=1", "generator=vllm", "output.dir=there"]
    script = script_of(layout, words, launcher, 1)
    assert "overrides=(\n    seed=1\n    output.dir=there\n)\n" in script
    assert script.count('rlhf-lab serve "${overrides[@]}" generator=vllm') == 8
    assert script.count("--nproc-per-node=8") == 1


def test_a_layout_without_gpus_has_processes_of_the_cpu() -> None:
    launcher = OmegaConf.create(
        {"_target_": TARGET, "gpus_per_node": None, "additional_parameters": {}}
    )
    layout = layout_of("1x2:2+0", launcher)
    assert layout is not None
    assert launcher.gpus_per_node is None
    assert generator_of(layout) == []
    assert "CUDA_VISIBLE_DEVICES" not in script_of(layout, ["train", "seed=1"], launcher, 1)
    assert script_of(None, ["train", "seed=1"], launcher, 1) == ""


def test_only_slurm_takes_a_layout() -> None:
    launcher = OmegaConf.create({"_target_": "another"})
    assert layout_of("", launcher) is None
    with pytest.raises(UserError, match=r"layout=1x8:7\+1: only Slurm.*launcher=slurm"):
        layout_of("1x8:7+1", launcher)


def test_where_servers_are_makes_no_other_run(config_of: MakeConfig) -> None:
    base = ["generator=vllm", "generator.weights_folder=shared"]
    here, there = (
        content_of(config_of(*base, f"generator.urls=[http://{host}:81]")) for host in "ab"
    )
    assert here == there == content_of(config_of(*base))
    assert here != content_of(config_of(*base, "generator.temperature=0.5"))


def test_on_other_nodes_of_a_job_there_is_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_job(monkeypatch)
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert JobRunner((), "", (), StopFiles(tmp_path))(None) == "elsewhere"
