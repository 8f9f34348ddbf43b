"""Checkpoints of sharded engines: every process writes its shards, beside training."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_lab.runs.disk import save_file
from rlhf_lab.training.checkpoint import Checkpoints
from rlhf_lab.training.checkpoint_files import Snapshot
from rlhf_lab.training.checkpoint_options import CheckpointOptions
from rlhf_lab.training.engines.options import SingleEngineOptions
from rlhf_lab.training.engines.shards import ShardFiles
from rlhf_lab.types.data import Weights
from tests.support.engine_cases import engine, restore, saved
from tests.support.shards_worker import ALGO, newest, shards_acts
from tests.support.trained_by_two import SHARDED, cases, trained_by_two
from tests.support.two_ranks import seen_of

Digests = dict[str, str]
WHOLE = {"a/step": torch.tensor(3.0)}


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Whether two states have equal tensors."""
    for part in ("weights", "state"):
        assert one[part].keys() == other[part].keys()
        for name, tensor in one[part].items():
            assert torch.equal(tensor, other[part][name]), name
            assert tensor.dtype == other[part][name].dtype


@pytest.mark.usefixtures("processes")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("act", cases(shards_acts(SHARDED)))
def test_shards_load_again_with_any_number_of_processes(cache: Path, act: str) -> None:
    """Two go on from two bit for bit, though training went on while the shards were written; one
    from two, and two from one, have equal tensors."""
    run = trained_by_two(cache, act)
    seen = seen_of(run, act)
    same(seen["again"], seen["held"])
    assert seen["losses"][0] == seen["losses"][1]
    same(seen["from_single"], torch.load(run / "single.pt"))
    found = newest(run / act / "checkpoints")
    assert found.round == 3
    assert found.weights[3].state.keys() == seen["held"]["weights"].keys()
    same({"weights": dict(found.weights[3].state), "state": dict(found.optimizer)}, seen["held"])
    alone = engine(SingleEngineOptions(), ALGO)
    held = {"weights": dict(found.weights[3].state), "state": found.optimizer}
    restore(alone, held)
    alone_state = saved(alone)["state"]
    moved = {key for key in found.optimizer if key.endswith("/reference")}
    assert moved
    assert all(torch.equal(alone_state[key], found.optimizer[key]) for key in alone_state)


@pytest.mark.usefixtures("processes")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("act", cases(shards_acts(SHARDED)))
def test_every_process_writes_a_file_and_damage_is_found(
    cache: Path, tmp_path: Path, act: str
) -> None:
    copy = tmp_path / "checkpoints"
    shutil.copytree(trained_by_two(cache, act) / act / "checkpoints", copy)
    shards = sorted((copy / "00000003" / "shards").glob("*.safetensors"))
    assert len(shards) == 2
    assert not (copy / "00000003" / "optimizer.safetensors").exists()
    data = bytearray(shards[1].read_bytes())
    data[-1] ^= 1
    shards[1].write_bytes(data)
    said: list[str] = []
    assert newest(copy, said.append).round == 2
    assert f"shards/{shards[1].name} was cut short or changed: using the one before" in said[0]
    shards[1].unlink()
    said.clear()
    assert newest(copy, said.append).round == 2
    assert f"lacks its file shards/{shards[1].name}" in said[0]


class Awaited(Future[Digests]):
    """A future that shows when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_waiter = threading.Event()

    def result(self, timeout: float | None = None) -> Digests:
        self.has_waiter.set()
        return super().result(timeout)


class Writer:
    """The lead's side of a sharded engine whose shards are written when the test has it so."""

    def __init__(self, *, is_shared: bool = True) -> None:
        self.digests = Awaited()
        self._is_shared = is_shared

    def write_shards(self, folder: Path) -> tuple[dict[str, torch.Tensor], Future[Digests]] | None:
        if not self._is_shared:
            return None
        save_file({"a/exp_avg": torch.ones(2)}, folder / "one.safetensors")
        return WHOLE, self.digests

    def state(self) -> dict[str, torch.Tensor]:
        return {**WHOLE, "a/exp_avg": torch.zeros(2)}


def of(round_: int, writer: Any) -> Snapshot:
    weights = Weights(round_, {"a": torch.full((2,), float(round_))})
    return Snapshot(round_, {round_: weights}, {}, {}, [], {}, writer)


def test_a_checkpoint_counts_once_all_shards_are_there(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointOptions(keep=1))
    checkpoints.save(of(1, None))
    writer = Writer()
    checkpoints.save(of(2, writer))
    # All but the shards is written: `newest` may remove it.
    assert writer.digests.has_waiter.wait(60)
    assert newest(tmp_path).round == 1, "as a kill would leave it"
    full = OSError(28, "No space left on device")
    writer.digests.set_exception(full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.finish()
    late = Writer()
    late.digests.set_exception(full)
    checkpoints.save(of(3, late))
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(of(4, None))
    checkpoints.save(of(5, late))
    error = ValueError("of the run")
    checkpoints.settle(error)
    assert "its last checkpoint was not completed: [Errno 28]" in error.__notes__[0]
    assert [path.name for path in tmp_path.iterdir()] == ["00000001"]


def test_hosts_without_a_shared_folder_gather_as_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointOptions())
    with pytest.warns(UserWarning, match=r"not every trainer sees .*output\.dir"):
        checkpoints.save(of(1, Writer(is_shared=False)))
    assert not (tmp_path / "00000001" / "shards").exists()
    assert set(newest(tmp_path).optimizer) == {"a/step", "a/exp_avg"}


def test_nothing_is_written_where_a_rank_does_not_see_the_folder(tmp_path: Path) -> None:
    class Apart:
        rank, size = 0, 2

        def all_gather_object(self, value: bool) -> list[bool]:
            return [value, False]

    apart: Any = Apart()
    assert ShardFiles(apart).write(tmp_path, {"a": torch.ones(2)}) is None
    assert not list(tmp_path.iterdir())
