"""The state of an engine whose parameters lie in flat buffers, as shards of those buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from rlhf_lab.training.engines.parameter_backend import REFERENCE, ParameterBackend

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
