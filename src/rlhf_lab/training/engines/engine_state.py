"""The state of an engine in a checkpoint, besides the policy's weights, as whole tensors.

Keys are `<name of the parameter>/<part>`: the optimizer's own parts (exp_avg, exp_avg_sq, step),
`values` for the value model and adapters, `reference` for a reference that has moved, and `master`
where the optimizer works in another precision than the weights have. The tensors are the same for
every engine and number of processes, so a run may be resumed with another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.parameter_backend import (
    REFERENCE,
    WEIGHT,
    ParameterBackend,
    Sharding,
)
from rlhf_lab.training.engines.tensors import whole as full
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Shards

if TYPE_CHECKING:
    from rlhf_lab.training.engines.shards import Layout, ShardFiles


@dataclass
class FlatState:
    """shards: flat tensors, by buffer and part. layout: which tensors of the state lie in them.
    whole: the others, on the host."""

    shards: dict[str, Tensor] = field(default_factory=dict)
    layout: Layout = field(default_factory=dict)
    whole: dict[str, Tensor] = field(default_factory=dict)


def flat_state(
    entries: Iterable[tuple[str, str, str]],
    backend: ParameterBackend,
    belongs: Callable[[str, str, Tensor], bool],
    files: ShardFiles,
) -> FlatState:
    """What `entries` (key, name and part) name of a backend; all processes call it. A reference
    lies in no buffer of the optimizer, and is gathered."""
    found = FlatState()
    shapes, places = backend.shapes(), backend.places()
    buffers: dict[str, dict[str, Tensor]] = {}
    for key, name, part in entries:
        if part == REFERENCE:
            found.whole[key] = backend.read(name, part)
            continue
        if part not in buffers:
            buffers[part] = dict(backend.flat(part))
        buffer, offset = places[name]
        own = buffers[part][buffer]
        if not belongs(key, name, own):
            continue
        if own.dim() == 0:
            found.whole[key] = own.detach().cpu().clone()
            continue
        flat = f"{buffer}/{part}"
        if flat not in found.shards:
            found.shards[flat] = files.flat(own.detach())
        found.layout[key] = (flat, offset, list(shapes[name]))
    return found


VALUES = "values"
MASTER = "master"


class EngineState:
    """Reads and writes the tensors of a ParameterBackend.

    has_moved: whether the reference is no longer the policy that the run started from. dtypes:
    of the policy's weights; any other trained parameter belongs to a value model or to adapters.
    """

    def __init__(
        self, backend: ParameterBackend, processes: Processes, dtypes: Mapping[str, torch.dtype]
    ) -> None:
        self.has_moved = False
        self._backend = backend
        self._processes = processes
        self._dtypes = dtypes
        self._files: ShardFiles | None = None

    @property
    def is_sharded(self) -> bool:
        """Whether several processes have shards, which `write_shards` can write."""
        return self._processes.size > 1 and self._backend.sharding is not Sharding.none

    def state(self) -> dict[str, Tensor]:
        """All of it on the main rank; the other ranks only take part in reading it."""
        state: dict[str, Tensor] = {}
        for key, name, part in self._entries():
            tensor = self._backend.read(name, part)
            if self._processes.is_main and self._belongs(key, name, tensor):
                state[key] = tensor
        return state

    def write_shards(self, folder: Path) -> Shards | None:
        """Begin to write what `state` gives into an empty folder, each rank its shards.

        Gives copies of the tensors that are not sharded, and the digests of the files once they are
        all written; None if there is a rank that does not see the folder.
        """
        if self._files is None:
            from rlhf_lab.training.engines.shards import ShardFiles  # slow to import

            self._files = ShardFiles(self._processes)
        backend = self._backend
        if backend.sharding is Sharding.buffers:
            flat = flat_state(self._entries(), backend, self._belongs, self._files)
            digests = self._files.write(folder, flat.shards, flat.layout)
            return None if digests is None else (flat.whole, digests)
        shards, whole = {}, {}
        for key, name, part in self._entries():
            tensor = backend.shard(name, part)
            if not self._belongs(key, name, tensor):
                continue
            if isinstance(tensor, DTensor) and tensor.dim():
                shards[key] = tensor
            else:
                whole[key] = full(tensor).cpu().clone()
        digests = self._files.write(folder, shards)
        return None if digests is None else (whole, digests)

    def finish_shards(self) -> None:
        """Wait until shards that are being written are on disk."""
        if self._files is not None:
            self._files.finish()

    def _entries(self) -> Iterator[tuple[str, str, str]]:
        """Key, name and part of every tensor that may belong to the state."""
        parts = list(self._backend.optimizer_parts())
        for name in self._backend.shapes():
            for part in parts:
                yield f"{name}/{part}", name, part
            if self.has_moved and name in self._dtypes:
                yield f"{name}/{REFERENCE}", name, REFERENCE
            yield f"{name}/{MASTER if name in self._dtypes else VALUES}", name, WEIGHT

    def _belongs(self, key: str, name: str, tensor: Tensor) -> bool:
        """Not masters of the same precision as the weights, which are in the checkpoint anyway."""
        return key != f"{name}/{MASTER}" or tensor.dtype != self._dtypes[name]

    def restore(self, weights: Weights, state: Mapping[str, Tensor]) -> None:
        """Write weights and state. Refuses those of another model before anything is written."""
        self._refuse(self._processes.broadcast_object(self._differences(weights, state)))
        trained = self._backend.shapes()
        for name, tensor in self._processes.broadcast_tensors(weights.state):
            # Weights below adapters never change; the adapters are in the state.
            if name in trained:
                self._backend.write(name, WEIGHT, tensor)
        self.has_moved = False
        for key, tensor in self._processes.broadcast_tensors(state):
            name, _, part = key.rpartition("/")
            self.has_moved = self.has_moved or part == REFERENCE
            self._backend.write(name, WEIGHT if part in (VALUES, MASTER) else part, tensor)

    def _differences(self, weights: Weights, state: Mapping[str, Tensor]) -> list[str]:
        shapes = self._backend.shapes()
        differences = sorted(set(weights.state) ^ set(self._dtypes))
        trained = {f"{name}/": t for name, t in weights.state.items() if name in shapes}
        whole = {**trained, **state}
        for key, tensor in whole.items():
            name = key.rpartition("/")[0]
            if name not in shapes:
                differences.append(name)
            elif tensor.dim() and tensor.shape != shapes[name]:
                differences.append(f"{name} ({list(tensor.shape)}, here {list(shapes[name])})")
        values = {f"{name}/{VALUES}" for name in set(shapes) - set(self._dtypes)}
        return list(dict.fromkeys([*differences, *sorted(values - set(state))]))

    def _refuse(self, differences: list[str]) -> None:
        if differences:
            first = ", ".join(differences[:3])
            raise other_model(f"{len(differences)} tensors differ, first {first}")


def other_model(why: str) -> UserError:
    """The refusal of a checkpoint."""
    return UserError(
        f"the checkpoint is of another model: {why}; resume with the model and algorithm that the "
        "run began with, or begin a new run"
    )
