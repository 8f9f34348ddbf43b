"""Layouts over devices and nodes, and the commands that `rlhf-lab launch` makes of them."""

from __future__ import annotations

import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlhf_lab.cli import launch
from rlhf_lab.experiment.config.layout import Layout, Node, parsed
from rlhf_lab.experiment.rules.devices import check_trainers
from rlhf_lab.rollout.ports import free_port, require_free
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.launchers import torchrun
from rlhf_lab.sweeps.launchers.slurm_script import slurm_script
from rlhf_lab.sweeps.launchers.torchrun import (
    NodeCommand,
    Ports,
    ResourceRequest,
    commands,
    hosts_of,
)
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.survival import wait_until

PORTS = Ports(29500, 8100)
ON_CPU = ResourceRequest(is_cpu=True)
IN_JOB = {"SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": "12"}


def test_the_papers_layout_trains_on_the_first_devices_and_generates_on_the_last() -> None:
    assert parsed("1x8:7+1").placed() == [Node(0, 7, (7,))]


def test_nodes_are_filled_by_trainers_from_the_front_and_by_generators_from_the_back() -> None:
    assert parsed("2x8:8+8").placed() == [Node(0, 8, ()), Node(1, 0, tuple(range(8)))]
    assert parsed("2x4:6+2").placed() == [Node(0, 4, ()), Node(1, 2, (2, 3))]
    assert parsed("2x4:3+5").placed() == [Node(0, 3, (3,)), Node(1, 0, (0, 1, 2, 3))]


def test_devices_that_nobody_asks_for_stay_idle() -> None:
    assert parsed("3x2:1+1").placed() == [Node(0, 1, ()), Node(2, 0, (1,))]


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("devices", [1, 2, 5])
def test_no_device_has_two_tasks_and_none_is_lost(nodes: int, devices: int) -> None:
    for trainers in range(1, nodes * devices + 1):
        for generators in range(nodes * devices - trainers + 1):
            placed = Layout(nodes, devices, trainers, generators).placed()
            assert sum(node.trainers for node in placed) == trainers
            assert sum(len(node.generators) for node in placed) == generators
            for node in placed:
                taken = [*range(node.trainers), *node.generators]
                assert len(set(taken)) == len(taken)
                assert set(taken) <= set(range(devices))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("8", "NODESxDEVICES"),
        ("1x8:7+2", "9 devices are needed"),
        ("1x8:0+1", "at least one device must train"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        parsed(text)


def test_servers_and_trainers_find_each_other() -> None:
    server, trainer = commands(parsed("1x8:7+1"), ["gpu1"], PORTS, ["algo=grpo"], ResourceRequest())
    assert server.text() == (
        "CUDA_VISIBLE_DEVICES=7 rlhf-lab serve algo=grpo generator=vllm generator.port=8100"
    )
    assert trainer.text() == (
        "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6 torchrun --nnodes=1 --node-rank=0 --nproc-per-node=7 "
        "--master-addr=gpu1 --master-port=29500 --shutdown-timeout=600 --no-python rlhf-lab train "
        "algo=grpo generator=vllm 'generator.urls=[http://127.0.0.1:8100]' "
        "generator.connect_seconds=900"
    )


def test_a_server_has_all_devices_that_share_its_model() -> None:
    request = ResourceRequest(server_devices=4)
    *servers, trainer = commands(parsed("2x8:8+8"), ["a", "b"], PORTS, [], request)
    seen = [server.environment["CUDA_VISIBLE_DEVICES"] for server in servers]
    assert seen == ["0,1,2,3", "4,5,6,7"]
    assert "generator.urls=[http://b:8100,http://b:8101]" in trainer.words
    with pytest.raises(UserError, match=r"= 4 devices of a server, but node 0 .* has 6"):
        commands(parsed("1x8:2+6"), ["a"], PORTS, [], request)


@pytest.mark.parametrize(
    ("layout", "word", "seen"),
    [
        ("1x8:7+1", "reward.device=cuda:7", "0,1,2,3,4,5,6,7"),
        ("1x8:5+1", "+reward.terms.proxy.device=cuda:6", "0,1,2,3,4,5,6"),
        ("1x8:5+1", "judge.device=cuda:1", "0,1,2,3,4"),
    ],
)
def test_trainers_see_the_gpu_of_the_reward_model(layout: str, word: str, seen: str) -> None:
    server, trainer = commands(parsed(layout), ["gpu1"], PORTS, [word], ResourceRequest())
    assert trainer.environment["CUDA_VISIBLE_DEVICES"] == seen
    assert server.environment["CUDA_VISIBLE_DEVICES"] == "7" or layout != "1x8:7+1"
    with pytest.raises(UserError, match=r"reward\.device=cuda:8: .* choose cuda:0 to cuda:7"):
        commands(parsed(layout), ["gpu1"], PORTS, ["reward.device=cuda:8"], ResourceRequest())


def test_ranks_count_the_nodes_that_train_and_meet_at_the_first_of_them() -> None:
    found = commands(parsed("3x2:4+2"), ["a", "b", "c"], PORTS, [], ON_CPU)
    assert [command.name for command in found] == [
        "server2.0",
        "server2.1",
        "trainer0",
        "trainer1",
    ]
    assert [found[0].words[-3:], found[1].words[-3:]] == [
        ("generator.sync=nccl", "generator.port=8100", "generator.host=0.0.0.0"),
        ("generator.sync=nccl", "generator.port=8101", "generator.host=0.0.0.0"),
    ]
    second = found[3].words
    assert {"--nnodes=2", "--node-rank=1", "--nproc-per-node=2", "--master-addr=a"} < set(second)
    assert second[-4:] == (
        "generator.urls=[http://c:8100,http://c:8101]",
        "generator.connect_seconds=900",
        "generator.sync=nccl",
        "generator.nccl_host=a",
    )
    assert not any(command.environment for command in found)


def test_without_generators_the_run_generates_by_itself() -> None:
    (trainer,) = commands(parsed("1x2:2+0"), ["a"], PORTS, ["engine=fsdp"], ON_CPU)
    assert trainer.words[-1] == "engine=fsdp"


def test_deterministic_ranks_have_their_workspace_before_they_start() -> None:
    words = ["deterministic=true", "algo=grpo"]
    found = commands(parsed("1x2:2+0"), ["localhost"], PORTS, words, ResourceRequest())
    assert [command.environment["CUBLAS_WORKSPACE_CONFIG"] for command in found] == [":4096:8"]
    (plain,) = commands(parsed("1x2:2+0"), ["localhost"], PORTS, words[1:], ResourceRequest())
    assert "CUBLAS_WORKSPACE_CONFIG" not in plain.environment


@pytest.mark.parametrize(
    ("end", "is_stopped", "code"),
    [("exit 0", False, 0), ("exit 3", False, 3), ("exit 1", True, 75), ("exit 0", True, 0)],
)
def test_a_slurm_script_waits_for_trainers_that_save_their_state(
    tmp_path: Path, end: str, is_stopped: bool, code: int
) -> None:
    script = slurm_script(parsed("1x2:2+0"), PORTS, [], ON_CPU)
    folder = tmp_path / "bin"
    folder.mkdir()
    up, over = tmp_path / "up", tmp_path / "over"
    # A step ends when it is time, whatever signals come.
    wait = f"until [ -e {shlex.quote(str(over))} ]; do sleep 0.02; done"
    step = f"trap '' TERM; touch {shlex.quote(str(up))}; {wait}; {end}"
    for name, body in {"scontrol": "echo alpha", "srun": step}.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    given = IN_JOB | {"PATH": f"{folder}:/usr/bin:/bin"}
    with subprocess.Popen(["bash", "-c", script], env=given) as process:
        wait_until(lambda: up.exists() or process.poll() is not None)
        if is_stopped:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
            process.send_signal(signal.SIGUSR2)
        over.touch()
        assert process.wait(120) == code


def test_a_slurm_script_starts_every_command_on_its_host(tmp_path: Path) -> None:
    script = slurm_script(parsed("2x1:1+1"), PORTS, ["task.path=my data"], ON_CPU)
    folder = tmp_path / "bin"
    folder.mkdir()
    # Stand-ins for Slurm's two commands: the hosts of the job, and a step that tells its words.
    stubs = {
        "scontrol": 'printf "alpha\\nbeta\\n"',
        "srun": f'printf "%s\\n" "$*" >> {shlex.quote(str(tmp_path / "steps"))}; '
        '[[ $* != *" serve "* ]] || exec sleep 60',
    }
    for name, body in stubs.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", script],
        env=IN_JOB | {"PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    server, trainer = sorted((tmp_path / "steps").read_text().splitlines(), key=len)
    assert "--nodelist=beta env rlhf-lab serve task.path=my data" in server
    assert "--nodelist=alpha env --ignore-signal=TERM,USR1,USR2 torchrun" in trainer
    assert "--master-addr=alpha" in trainer
    assert "generator.urls=[http://beta:8100]" in trainer


def python(name: str, code: str) -> NodeCommand:
    return NodeCommand(0, name, (sys.executable, "-c", code), {"MARK": "set"})


def test_a_run_ends_with_its_trainer_and_takes_the_servers_along(tmp_path: Path) -> None:
    server = python("server0.0", "import time; print('up', flush=True); time.sleep(600)")
    trainer = python("trainer0", "import os, sys, time; time.sleep(1); sys.exit(7)")
    assert torchrun.run_here([server, trainer], tmp_path, Console(quiet=True)) == 7
    assert (tmp_path / "server0.0.log").read_text() == "up\n"


def test_a_server_that_ends_too_early_ends_the_run_with_its_last_lines(tmp_path: Path) -> None:
    server = python(
        "server0.0", "import os; raise SystemExit('no memory for ' + os.environ['MARK'])"
    )
    trainer = python("trainer0", "import time; time.sleep(600)")
    with pytest.raises(
        RuntimeError, match=r"server0\.0 ended with exit code 1(.|\n)*memory for set"
    ):
        torchrun.run_here([server, trainer], tmp_path, Console(quiet=True))


def launched(words: list[str], check: Callable[..., None]) -> int:
    """What the command returns. check: refuses configs, in place of composing them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "require_startable", check)
        return launch.LAUNCH.run(words, Console(quiet=True))


def nothing(_: object, __: int, here: bool) -> None:
    """Every config is fine."""


def test_launch_prints_the_commands_under_their_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["layout=2x8:8+8", "--hosts", "a,b", "algo=grpo", "mode=async"]
    assert launched(words, nothing) == 0
    text = capsys.readouterr().out
    assert text.index("# on a") < text.index("torchrun") < text.index("# on b")
    assert text.count("rlhf-lab serve algo=grpo mode=async") == 8
    keys = re.findall(r"^export RLHF_LAB_SERVER_KEY=([0-9a-f]{64})$", text, re.MULTILINE)
    assert len(keys) == 2 and len(set(keys)) == 1, "one key for all hosts"
    launched(words, nothing)
    assert keys[0] not in capsys.readouterr().out, "and another for each launch"
    launched(["layout=1x2:2+0", "algo=grpo"], nothing)
    assert "SERVER_KEY" not in capsys.readouterr().out, "none without servers"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["algo=grpo"], "pass one layout"),
        (["layout=1x2:1+1", "--hosts"], "expected one argument: rlhf-lab launch"),
        (["layout=2x2:2+2"], "needs 2 different host names"),
        (["layout=2x2:2+2", "--hosts", "a,a"], "needs 2 different host names"),
        (["layout=2x2:2+2", "--hosts", "a,b", "--run"], "only this machine's processes"),
        (["layout=1x2:1+1", "--run", "--slurm"], "not allowed with"),
    ],
)
def test_what_cannot_be_launched_is_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        launched(words, nothing)


def test_a_bad_override_is_refused_before_anything_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def check(overrides: object, trainers: int, here: bool) -> None:
        raise UserError(f"no such key in {overrides}")

    with pytest.raises(UserError, match=r"algo=grpo.*generator=vllm"):
        launched(["layout=1x2:1+1", "algo=grpo"], check)
    assert capsys.readouterr().out == ""


def test_servers_of_other_nodes_get_weights_as_the_user_chose() -> None:
    def trainer(*overrides: str) -> tuple[str, ...]:
        return commands(parsed("2x1:1+1"), ["a", "b"], PORTS, overrides, ON_CPU)[1].words

    by_nccl = {"generator.sync=nccl", "generator.nccl_host=a"}
    assert by_nccl <= set(trainer())
    assert not by_nccl & set(trainer("generator.weights_folder=there"))
    assert "generator.nccl_host=a" not in trainer("generator.nccl_host=other")
    assert trainer("generator.sync=nccl").count("generator.sync=nccl") == 1


@pytest.mark.parametrize("layout", ["1x8:7+1", "2x8:8+8"])
def test_what_launch_prints_is_composed_with_its_servers(
    layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither vLLM nor a GPU nor a server is there: a login node has none of them."""
    words = [f"layout={layout}", "engine=deepspeed", "model=nano_s", "task=tldr_nano"]
    assert launch.LAUNCH.run([*words, "--slurm"], Console(quiet=True)) == 0
    assert "srun" in capsys.readouterr().out


def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=rf"--port={port}: the port is in use"):
            require_free("--port", port)
        words = ["layout=1x1:1+0", "--run", "--port", str(port)]
        with pytest.raises(UserError, match="is in use"):
            launched(words, nothing)
    require_free("--port", free_port())


def test_one_node_needs_no_name() -> None:
    assert hosts_of(parsed("1x2:1+1"), "") == ["127.0.0.1"]
    assert hosts_of(parsed("2x2:2+2"), "a,b") == ["a", "b"]


def test_several_trainers_need_an_engine_for_several(config_of: MakeConfig) -> None:
    check_trainers(config_of(), 1)
    check_trainers(config_of("engine=fsdp"), 7)
    with pytest.raises(UserError, match="engine=single with 7 trainers"):
        check_trainers(config_of(), 7)


def test_each_run_has_its_own_mps_daemon_which_all_of_its_processes_find() -> None:
    def pipes(run_id: str) -> set[str | None]:
        wishes = ResourceRequest(has_mps=True, run_id=run_id)
        found = commands(parsed("1x1:1+0"), ["alpha"], Ports(1, 2), [], wishes)
        assert [command.name for command in found] == ["mps0", "trainer0"]
        return {command.environment.get("CUDA_MPS_PIPE_DIRECTORY") for command in found}

    assert len(pipes("a")) == len(pipes("b")) == 1
    assert pipes("a") != pipes("b")
