"""The state of an engine in a checkpoint, besides the policy's weights, as whole tensors.

Keys are `<name of the parameter>/<part>`: the optimizer's own parts (exp_avg, exp_avg_sq, step),
`values` for the value model and adapters, `reference` for a reference that has moved, and `master`
where the optimizer works in another precision than the weights have. The tensors are the same for
every engine and number of processes, so a run may be resumed with another one.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.parameter_backend import REFERENCE, WEIGHT, ParameterBackend
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError

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

    def state(self) -> dict[str, Tensor]:
        """All of it on the main rank; the other ranks only take part in reading it."""
        state: dict[str, Tensor] = {}
        parts = list(self._backend.optimizer_parts())
        for name in self._backend.shapes():
            for part in parts:
                self._add(state, f"{name}/{part}", self._backend.read(name, part))
            if self.has_moved and name in self._dtypes:
                reference = self._backend.read(name, REFERENCE)
                self._add(state, f"{name}/{REFERENCE}", reference)
            weight = self._backend.read(name, WEIGHT)
            if name not in self._dtypes:
                self._add(state, f"{name}/{VALUES}", weight)
            elif weight.dtype != self._dtypes[name]:
                self._add(state, f"{name}/{MASTER}", weight)
        return state

    def _add(self, state: dict[str, Tensor], key: str, tensor: Tensor) -> None:
        if self._processes.is_main:
            state[key] = tensor

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
            raise UserError(
                f"the checkpoint is of another model: {len(differences)} tensors differ, first "
                f"{', '.join(differences[:3])}; resume with the model and algorithm that the run "
                "began with, or begin a new run"
            )
